package storekit

import (
	"context"
	"io"
	"iter"
	"sort"

	"github.com/holdall/holdall/store"
)

// A Pieced is an object that consists of pieces of others, one behind the other. It is made by Add,
// and can then be read by several goroutines.
type Pieced struct {
	Name string
	// Closer, if it is not nil, is closed with it.
	Closer io.Closer

	pieces []piece
	size   int64
}

// A piece is n bytes at an offset of the whole, from an offset of an object, or zeros.
type piece struct {
	at, n int64
	in    store.Object
	from  int64
}

// Add adds n bytes of an object from an offset on, or zeros if it is nil.
func (p *Pieced) Add(in store.Object, from, n int64) {
	if n <= 0 {
		return
	}
	if last := len(p.pieces) - 1; last >= 0 && p.pieces[last].in == in && p.pieces[last].from+p.pieces[last].n == from {
		p.pieces[last].n += n
	} else {
		p.pieces = append(p.pieces, piece{p.size, n, in, from})
	}
	p.size += n
}

func (p *Pieced) Size() int64 { return p.size }

// Pieces yields the pieces that n bytes from an offset on consist of: the object, or nil for zeros, and
// the first and the number of its bytes.
func (p *Pieced) Pieces(off, n int64) iter.Seq2[store.Object, [2]int64] {
	return func(yield func(store.Object, [2]int64) bool) {
		end := off + min(n, p.size-off)
		for i := sort.Search(len(p.pieces), func(i int) bool { return p.pieces[i].at+p.pieces[i].n > off }); i < len(p.pieces) && off < end; i++ {
			x := p.pieces[i]
			part := min(end, x.at+x.n) - off
			if !yield(x.in, [2]int64{x.from + off - x.at, part}) {
				return
			}
			off += part
		}
	}
}

func (p *Pieced) Info(context.Context) (store.Info, error) {
	return store.Info{Name: p.Name, Size: p.size}, nil
}

func (p *Pieced) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (p *Pieced) Close() error {
	if p.Closer == nil {
		return nil
	}
	return p.Closer.Close()
}

func (p *Pieced) ReadAt(ctx context.Context, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	if off < 0 || int64(len(b)) > p.size-off {
		return &store.Error{Op: "read", Name: p.Name, Off: off, Err: io.ErrUnexpectedEOF}
	}
	for i := sort.Search(len(p.pieces), func(i int) bool { return p.pieces[i].at+p.pieces[i].n > off }); len(b) > 0; i++ {
		x := p.pieces[i]
		skip := off - x.at
		n := min(int64(len(b)), x.n-skip)
		if x.in == nil {
			clear(b[:n])
		} else if err := x.in.ReadAt(ctx, b[:n], x.from+skip); err != nil {
			return err
		}
		b, off = b[n:], off+n
	}
	return nil
}
