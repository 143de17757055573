package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// A request is one range read and the extents that it serves.
type request struct {
	object   string
	external bool
	off, len int64
	extents  []format.Extent
}

// plan joins the stored ranges of extents into requests. It splits raw extents that are longer than
// a request. Other extents are one unit and are not split.
func plan(extents []format.Extent, l Limits) []request {
	x := make([]format.Extent, 0, len(extents))
	for _, e := range extents {
		if e.Codec == codec.Raw {
			for e.Size > l.Request {
				head := e
				head.Size, head.Len = l.Request, l.Request
				x = append(x, head)
				e.At, e.Off = e.At+l.Request, e.Off+l.Request
				e.Size, e.Len = e.Size-l.Request, e.Len-l.Request
			}
		}
		x = append(x, e)
	}
	slices.SortStableFunc(x, func(a, b format.Extent) int {
		if a.External != b.External {
			if b.External {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Off, b.Off))
	})
	var reqs []request
	for _, e := range x {
		if n := len(reqs); n > 0 {
			last := &reqs[n-1]
			end := last.off + last.len
			if grown := max(end, e.Off+e.Len) - last.off; last.object == e.Object && last.external == e.External && e.Off-end <= l.Gap && grown <= l.Request {
				last.len = grown
				last.extents = append(last.extents, e)
				continue
			}
		}
		reqs = append(reqs, request{e.Object, e.External, e.Off, e.Len, []format.Extent{e}})
	}
	return reqs
}

// Requests returns how many requests reading stored bytes takes.
func (g *Engine) Requests(xs []format.Extent) int64 { return int64(len(plan(xs, g.limits))) }

// check rejects invalid extents before they are used.
func check(e format.Extent) error {
	const most = 1 << 62
	if e.At < 0 || e.Size < 0 || e.Off < 0 || e.Len < 0 || e.Skip < 0 ||
		e.At > most || e.Size > most || e.Off > most || e.Len > most || e.Skip > most ||
		e.Codec == codec.Raw && e.Len-e.Skip < e.Size ||
		e.Codec == codec.Inline && e.Make == nil && int64(len(e.Data))-e.Skip < e.Size ||
		e.Unit < 0 || e.Unit > most || e.Unit > 0 && Coded(e) && e.Unit-e.Skip < e.Size {
		return fmt.Errorf("invalid extent: content %d+%d, stored %d+%d, skip %d, unit %d", e.At, e.Size, e.Off, e.Len, e.Skip, e.Unit)
	}
	return nil
}

// admit is check, and rejects what is damaged unless the engine returns that, too.
func (g *Engine) admit(e format.Extent) error {
	if err := check(e); err != nil || !e.Damaged || g.doubts {
		return err
	}
	return unsummed{fmt.Errorf("%s at %d: what is compressed there is damaged, so this may be wrong", e.Object, e.Off)}
}

// trim cuts e to the content [off, off+n), and for a raw extent also the stored bytes.
func trim(e format.Extent, off, n int64) format.Extent {
	if cut := off - e.At; cut > 0 {
		e.At, e.Size, e.Skip = e.At+cut, e.Size-cut, e.Skip+cut
	}
	e.Size = min(e.Size, off+n-e.At)
	if e.Codec == codec.Raw {
		e.Off, e.Len, e.Skip = e.Off+e.Skip, e.Size, 0
	}
	return e
}

// Part returns extents of n bytes of a content, from off, as those of a content of their own.
func Part(xs Extents, off, n int64) Extents {
	return func(yield func(format.Extent, error) bool) {
		for e, err := range xs {
			if err == nil {
				err = check(e)
			}
			e = trim(e, off, n)
			if e.At -= off; (err != nil || e.Size > 0) && !yield(e, err) {
				return
			}
		}
	}
}
