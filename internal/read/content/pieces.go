package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
)

// CheckPieces compares all contents with the digests of the index of s. It calls found for each
// damaged piece, one at a time, and done for each entry without damage.
func (s *Source) CheckPieces(ctx context.Context, m *meter.Meter, found func(Entry, *ProofError), done func(Entry)) error {
	var mu sync.Mutex
	err := s.sweepStored(ctx, listing.Only(s.Reader.Entries(ctx), func(e Entry) bool { return s.proof(e).pieces }), AnyOrder, func(c Content, err error) error {
		bad := 0
		err = s.piecesOf(ctx, c, err, func(p *ProofError) {
			mu.Lock()
			defer mu.Unlock()
			bad++
			found(c.Entry, p)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", format.Escape(c.Entry.Name), err)
		}
		m.Add(1, c.Entry.Size)
		if bad == 0 {
			mu.Lock()
			defer mu.Unlock()
			done(c.Entry)
		}
		return nil
	})
	if err == nil {
		err = s.proven.x.Damage()
	}
	return err
}

// CheckSome compares the pieces of contents of which pick returns true, each by itself. It asks for
// all pieces in the order of entries, and calls done for each that was read, one at a time, with
// its length and the error if it is damaged.
func (s *Source) CheckSome(ctx context.Context, m *meter.Meter, pick func() bool, done func(Entry, int64, *ProofError)) error {
	type piece struct {
		of Entry
		at int64
	}
	c := s.proven.x.Chunk
	items := func(yield func(engine.Item, error) bool) {
		for e, err := range s.Reader.Entries(ctx) {
			if err != nil {
				yield(engine.Item{}, err)
				return
			}
			for i := range kept.Pieces(&e, c) {
				if !pick() {
					continue
				}
				n := min(c, e.Size-i*c)
				part := Entry{Name: e.Name, Kind: e.Kind, Size: n, Ref: piece{e, i * c}}
				if !yield(engine.Item{Entry: part, Extents: engine.Part(s.Reader.Extents(ctx, e, i*c, n), i*c, n)}, nil) {
					return
				}
			}
		}
	}
	var mu sync.Mutex
	err := s.engine.Sweep(ctx, items, false, func(it engine.Item, r io.Reader, err error) error {
		p := it.Entry.Ref.(piece)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := Passing(p.of, err); err != nil {
			return err
		}
		want, lost := s.proven.sums(ctx, p.of, p.at/c, 1)
		if lost != nil {
			return lost
		}
		var got digest.Piece // of what cannot be read
		if b, ok := (Content{Entry: it.Entry, r: r}).inMemory(); ok && err == nil {
			got = blake3.Sum256(b)
		}
		bad, _ := errors.AsType[*ProofError](s.proven.check(p.of, p.at/c, int(it.Entry.Size), got, want[0]))
		m.Add(0, it.Entry.Size)
		mu.Lock()
		defer mu.Unlock()
		done(p.of, it.Entry.Size, bad)
		return nil
	})
	if err == nil {
		err = s.proven.x.Damage()
	}
	return err
}

// piecesOf compares the pieces of content with their digests. err is the error of reading the
// content as a whole, if any; each piece is then read by itself.
func (s *Source) piecesOf(ctx context.Context, content Content, err error, found func(*ProofError)) error {
	e, c := content.Entry, s.proven.x.Chunk
	var sums []digest.Piece
	compare := func(at int64, n int, got digest.Piece, rerr error) error {
		if len(sums) == 0 {
			var err error
			if sums, err = s.proven.sums(ctx, e, at/c, min(sumsAtOnce, (e.Size-at-1)/c+1)); err != nil {
				return err
			}
		}
		want := sums[0]
		sums = sums[1:]
		if rerr != nil {
			got = digest.Piece{}
		}
		if bad, ok := errors.AsType[*ProofError](s.proven.check(e, at/c, n, got, want)); ok {
			found(bad)
		}
		return nil
	}
	at := int64(0)
	if err == nil {
		ahead := digest.NewAhead(content.r, digest.AheadOptions{Pieces: true, Block: c, Length: e.Size})
		defer ahead.Close()
		for ; at < e.Size; at += c {
			var b []byte
			var sum digest.Piece
			if b, sum, err = nextPiece(ahead, min(c, e.Size-at)); err != nil {
				break
			}
			if err := compare(at, len(b), sum, nil); err != nil {
				return err
			}
		}
	}
	// After an error the rest is read piece by piece.
	var lost *Extent // an extent with damage: the rest of it cannot be decoded
	b := make([]byte, min(c, e.Size))
	for ; at < e.Size; at += c {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if Passing(e, err) != nil {
			return err
		}
		b = b[:min(c, e.Size-at)]
		x, _ := s.first(ctx, e, at, int64(len(b)))
		if lost == nil || x.Codec == codec.Raw || x.Object != lost.Object || x.Off != lost.Off {
			if err = s.readStored(ctx, e, b, at); err != nil {
				lost = &x
			}
		}
		if cerr := compare(at, len(b), blake3.Sum256(b), err); cerr != nil {
			return cerr
		}
	}
	return nil
}
