package fleet

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// At most samplePiece bytes are read of each of samplePieces objects: 256 MiB
// in all.
const (
	samplePieces = 64
	samplePiece  = 4 << 20
)

// A Sample is what was read of the listed objects to measure the speed.
type Sample struct {
	Objects int64         `json:"objects"`
	Bytes   int64         `json:"bytes"`
	Took    time.Duration `json:"-"`
}

// Rate returns the bytes read per second, or 0 if nothing was measured.
func (s Sample) Rate() float64 {
	if s.Bytes == 0 || s.Took <= 0 {
		return 0
	}
	return float64(s.Bytes) / s.Took.Seconds()
}

// A reservoir keeps a sample of the objects that it is offered. Each request
// has the same probability of being kept. So the few large objects, which have
// most of the bytes, get their due weight.
type reservoir struct {
	most int
	rand *rand.Rand
	heap lots
}

// A lot is an object that was drawn: the higher its key, the longer it stays.
type lot struct {
	key    float64
	m      Member
	pieces int64
}

type lots []lot

func (l lots) Len() int           { return len(l) }
func (l lots) Less(i, j int) bool { return l[i].key < l[j].key }
func (l lots) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lots) Push(x any)        { *l = append(*l, x.(lot)) }
func (l *lots) Pop() any          { x := (*l)[len(*l)-1]; *l = (*l)[:len(*l)-1]; return x }

func newReservoir(most int) *reservoir {
	// The same listing gives the same sample.
	return &reservoir{most: most, rand: rand.New(rand.NewPCG(1, 2))}
}

// offer offers an object that takes pieces requests.
func (r *reservoir) offer(m Member, pieces int64) {
	x := lot{math.Log(1-r.rand.Float64()) / float64(pieces), m, pieces}
	if len(r.heap) < r.most {
		heap.Push(&r.heap, x)
	} else if r.heap[0].key < x.key {
		r.heap[0] = x
		heap.Fix(&r.heap, 0)
	}
}

// all returns the selected objects in byte order.
func (r *reservoir) all() []lot {
	slices.SortFunc(r.heap, func(a, b lot) int { return strings.Compare(a.m.Path, b.m.Path) })
	return r.heap
}

// read reads one piece of each object, several at once. Objects that are gone
// or have changed do not count.
func (j *job) read(ctx context.Context, all []lot, jobs int) (Sample, error) {
	var objects, bytes atomic.Int64
	begun := time.Now()
	err := pipe.Each(ctx, pipe.All(all), jobs, func(ctx context.Context, x lot) error {
		o := j.origins[x.m.Origin]
		info := store.Info{Name: strings.TrimPrefix(x.m.Path, o.prefix), Size: x.m.Size, Version: x.m.Version}
		in, err := storekit.OpenAs(ctx, o.st, info)
		if err == nil {
			defer in.Close()
			off := x.pieces / 2 * pack.PieceSize
			p := make([]byte, min(samplePiece, x.m.Size-off))
			if err = in.ReadAt(ctx, p, off); err == nil {
				objects.Add(1)
				bytes.Add(int64(len(p)))
			}
		}
		if errors.Is(err, store.ErrChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
			return nil
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("measure: %w", err)
	}
	return Sample{objects.Load(), bytes.Load(), time.Since(begun)}, err
}
