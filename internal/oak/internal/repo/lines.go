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

type line struct {
	off  int64
	text []byte // at most maxText bytes, valid until the next line
	torn bool   // the file ends without an end of the line
}

// backwards yields the lines of a file from the last to the first. A line ends with \n, \r\n or
// \r, as in Oak. Lines may have any length: the beginning of a line that is longer than a window
// is read again.
func backwards(ctx context.Context, obj store.Object) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		info, err := obj.Info(ctx)
		if err != nil {
			yield(line{}, err)
			return
		}
		r := reverse{ctx: ctx, obj: obj, b: make([]byte, 0, min(window, info.Size)), off: info.Size}
		end := r.withoutEnd(info.Size)
		for torn := end == info.Size; end > 0 && r.err == nil; torn = false {
			from := r.lineStart(end)
			l := line{from, r.text(from, min(end-from, maxText)), torn}
			if r.err != nil || !yield(l, nil) {
				break
			}
			end = r.withoutEnd(from)
		}
		if r.err != nil {
			yield(line{}, r.err)
		}
	}
}

// A reverse reads a file from its end. After an error it reads nothing.
type reverse struct {
	ctx  context.Context
	obj  store.Object
	b    []byte // a window of the file
	off  int64  // where it begins
	head []byte
	err  error
}

// before returns the bytes of the window before end or, if there are none, an earlier window.
func (r *reverse) before(end int64) []byte {
	if end <= r.off && end > 0 && r.err == nil {
		n := min(int64(cap(r.b)), end)
		r.b, r.off = r.b[:n], end-n
		r.err = r.obj.ReadAt(r.ctx, r.b, r.off)
	}
	if r.err != nil || end <= r.off {
		return nil
	}
	return r.b[:end-r.off]
}

// withoutEnd returns where the text of a line ends; the line itself ends before end.
func (r *reverse) withoutEnd(end int64) int64 {
	b := r.before(end)
	if bytes.HasSuffix(b, []byte{'\n'}) {
		end--
		b = r.before(end)
	} else if !bytes.HasSuffix(b, []byte{'\r'}) {
		return end
	}
	if bytes.HasSuffix(b, []byte{'\r'}) {
		end--
	}
	return end
}

// lineStart returns where the line begins whose text ends at end.
func (r *reverse) lineStart(end int64) int64 {
	for {
		b := r.before(end)
		if i := bytes.LastIndexAny(b, "\n\r"); i >= 0 || b == nil {
			return end - int64(len(b)) + int64(i) + 1
		}
		end = r.off
	}
}

// text returns n bytes from off, which are valid until the next call.
func (r *reverse) text(off, n int64) []byte {
	if r.err != nil {
		return nil
	}
	if off >= r.off && off+n <= r.off+int64(len(r.b)) {
		return r.b[off-r.off:][:n]
	}
	if r.head == nil {
		r.head = make([]byte, maxText)
	}
	r.err = r.obj.ReadAt(r.ctx, r.head[:n], off)
	return r.head[:n]
}
