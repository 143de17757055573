package repo

import (
	"bytes"
	"context"
	"iter"

	"github.com/holdall/holdall/store"
)

const (
	window  = 64 << 10
	maxText = 4096 // of a line
)

// A line is one of a file of text.
type line struct {
	off  int64
	text []byte // as far as maxText, until the next one
	torn bool   // the file ends without an end of the line
}

// backwards gives the lines of a file from the last to the first. A line ends with
// \n, \r\n or \r, as for Oak. How long lines are does not matter: of those that are
// longer than a window the beginning is read again.
func backwards(ctx context.Context, obj store.Object) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		info, err := obj.Info(ctx)
		if err != nil {
			yield(line{}, err)
			return
		}
		r := reverse{ctx: ctx, obj: obj, size: info.Size, b: make([]byte, min(window, info.Size))}
		r.off = info.Size
		r.end, r.torn = info.Size, true
		for at := info.Size; at > 0; {
			if at == r.off {
				if err := r.more(); err != nil {
					yield(line{}, err)
					return
				}
			}
			i := bytes.LastIndexAny(r.b[:at-r.off], "\n\r")
			if i < 0 {
				at = r.off
				continue
			}
			at = r.off + int64(i)
			if !r.pass(at, r.b[i], yield) {
				return
			}
		}
		if r.end > 0 {
			r.give(0, yield)
		}
	}
}

type reverse struct {
	ctx  context.Context
	obj  store.Object
	size int64
	b    []byte // a window of the file
	off  int64  // where it begins
	end  int64  // of the line that is looked for: of its text
	torn bool
	lf   int64 // where a \n is that a \r may be before; the file's end is none
	head []byte
}

// more moves the window to what is before it.
func (r *reverse) more() error {
	n := min(int64(cap(r.b)), r.off)
	r.b, r.off = r.b[:n], r.off-n
	return r.obj.ReadAt(r.ctx, r.b, r.off)
}

// pass is what a byte that ends a line does: it gives the line behind it. There is
// none behind the last one, nor between \r and \n.
func (r *reverse) pass(at int64, c byte, yield func(line, error) bool) bool {
	next := at + 1
	switch {
	case c == '\r' && r.lf == next && r.end == at+1:
	case next == r.size:
		r.torn = false
	default:
		if !r.give(next, yield) {
			return false
		}
		r.torn = false
	}
	r.end = at
	if c == '\n' {
		r.lf = at
	}
	return true
}

// give gives the line that begins at from.
func (r *reverse) give(from int64, yield func(line, error) bool) bool {
	n := min(r.end-from, maxText)
	l := line{off: from, torn: r.torn}
	if from >= r.off && from+n <= r.off+int64(len(r.b)) {
		l.text = r.b[from-r.off:][:n]
	} else {
		if r.head == nil {
			r.head = make([]byte, maxText)
		}
		if err := r.obj.ReadAt(r.ctx, r.head[:n], from); err != nil {
			yield(line{}, err)
			return false
		}
		l.text = r.head[:n]
	}
	return yield(l, nil)
}
