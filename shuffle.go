package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/holdall/holdall/format"
)

// ShuffleOptions select the order of [Archive.Shuffled]. The zero value is one such order.
type ShuffleOptions struct {
	Seed uint64
	// Readers is the number of readers that share the entries; 0 means one. Reader is the number
	// of this reader, from 0. A reader gets the entries of every Readers-th block.
	Readers, Reader int
	// Skip is the number of entries to skip, which were read before an interruption.
	Skip int64
	// Block is the size of the content that stays together, about as much as one read fetches; 0
	// means 4 MiB. Mix is the number of blocks that are mixed with each other; 0 means 8.
	Block int64
	Mix   int
}

const (
	shuffleBlock = 4 << 20
	shuffleMix   = 8
	// mostInBlock is the largest number of entries in a block.
	mostInBlock = 4096
)

// shuffled is a block of consecutive entries, given by the name of the first one and their
// number.
type shuffled struct {
	first string
	n     int
}

// Shuffled yields the files of an archive in a pseudo-random order. Equal options give the same
// order. It shuffles blocks of neighbouring files, and mixes the files of a few blocks at a time,
// so reading them costs about as much as reading in stored order. It needs memory for one name
// for each block.
//
// Each call first iterates over all entries to find the blocks. If archives of the format cannot
// be listed from the middle, the error wraps [errors.ErrUnsupported].
func (a *Archive) Shuffled(ctx context.Context, o ShuffleOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		o.Readers, o.Block, o.Mix = cmp.Or(o.Readers, 1), cmp.Or(o.Block, shuffleBlock), cmp.Or(o.Mix, shuffleMix)
		if o.Readers < 0 || o.Reader < 0 || o.Reader >= o.Readers || o.Block < 0 || o.Mix < 0 || o.Skip < 0 {
			yield(Entry{}, fmt.Errorf("shuffle: invalid options: reader %d of %d, blocks of %d, %d mixed, %d skipped", o.Reader, o.Readers, o.Block, o.Mix, o.Skip))
			return
		}
		from := a.src.Reader.Can().EntriesFrom
		if from == nil {
			yield(Entry{}, fmt.Errorf("%s archives cannot be read from the middle: %w", a.src.Format.Name, errors.ErrUnsupported))
			return
		}
		blocks, err := a.blocks(ctx, o.Block)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		rnd := rand.New(rand.NewPCG(o.Seed, 0x686F6C64616C6C))
		rnd.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		var own []shuffled
		for i := o.Reader; i < len(blocks); i += o.Readers {
			own = append(own, blocks[i])
		}
		skip := o.Skip
		for n := 0; n*o.Mix < len(own); n++ {
			some := own[n*o.Mix : min((n+1)*o.Mix, len(own))]
			all := 0
			for _, b := range some {
				all += b.n
			}
			if skip >= int64(all) {
				skip -= int64(all)
				continue
			}
			mixed := make([]Entry, 0, all)
			for _, b := range some {
				k := 0
				for e, err := range from(ctx, b.first) {
					if err != nil {
						yield(Entry{}, err)
						return
					}
					if !isSample(e) {
						continue
					}
					mixed = append(mixed, e)
					if k++; k == b.n {
						break
					}
				}
			}
			// Each round has its own seed, so that skipped rounds do not change the order.
			r := rand.New(rand.NewPCG(o.Seed, uint64(o.Reader)<<32|uint64(n)))
			r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			for _, e := range mixed[min(skip, int64(len(mixed))):] {
				if !yield(e, nil) {
					return
				}
			}
			skip = 0
		}
	}
}

// isSample reports whether an entry is a readable file that was packed, not one of the archive's
// own.
func isSample(e Entry) bool { return e.Kind == format.File && !e.Internal && e.Fault == nil }

func (a *Archive) blocks(ctx context.Context, size int64) (blocks []shuffled, _ error) {
	var held int64
	for e, err := range a.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if !isSample(e) {
			continue
		}
		if n := len(blocks); n == 0 || held+e.Size > size || blocks[n-1].n == mostInBlock {
			blocks, held = append(blocks, shuffled{first: e.Name}), 0
		}
		blocks[len(blocks)-1].n++
		held += e.Size
	}
	return blocks, nil
}
