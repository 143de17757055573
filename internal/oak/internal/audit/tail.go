package audit

import (
	"context"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Tail tells of what stands at the end of tar i: index, graph, references to
// binaries. It reads no segments. An error is one of the source.
func (a *Audit) Tail(ctx context.Context, i int, report func(Problem)) error {
	x := a.tars[i]
	t := newTeller(report)
	defer t.end()
	if x.t == nil {
		x.noIndex(t, x.Number == a.tars[0].Number)
		return nil
	}
	var gaps []tarfile.Problem
	var damaged bool
	l, err := x.t.CheckLayout(ctx, func(p tarfile.Problem) {
		switch p.Class {
		case tarfile.Gap:
			gaps = append(gaps, p) // at most one more than there are segments
		case tarfile.BadGraph, tarfile.BadBinaries, tarfile.Truncated, tarfile.Limit:
			damaged = damaged || !p.HasSegment && p.Len == 0
			x.part(t, p)
		default:
			x.tail(t, p)
		}
	})
	if err != nil {
		return x.changed(t, -1, err)
	}
	for _, p := range gaps {
		// What cannot be read as a graph belongs to nothing for that reason.
		if !damaged || p.Off+p.Len != l.Index.Off {
			x.tail(t, p)
		}
	}
	return nil
}

// noIndex tells of a tar without an index. The newest most often was not closed.
func (x *unit) noIndex(t *teller, newest bool) {
	if x.damage != nil {
		t.about(UnknownFile, Error, x.Name, -1, "%v", x.damage)
		return
	}
	if x.Size <= 2*tarfile.BlockSize {
		t.about(EmptyTar, Error, x.Name, 0, "file: %d bytes, expected a segment", x.Size)
		return
	}
	switch x.none.Reason {
	case tarfile.UnknownMagic, tarfile.LengthNotBlocks, tarfile.TooShort:
		if newest {
			t.about(NotClosed, Warning, x.Name, x.none.Offset, "%s", x.none.What)
			return
		}
	}
	t.about(NoIndex, Error, x.Name, x.none.Offset, "%s", x.none.What)
}

// part tells what is wrong with graph or references. That it concerns the whole of
// it shows in that there is no segment and no length.
func (x *unit) part(t *teller, p tarfile.Problem) {
	whole := !p.HasSegment && p.Len == 0
	c, s := BadGraph, Error
	switch {
	case p.Class == tarfile.Limit:
		c, s = TooLarge, Warning
	case p.Class == tarfile.BadBinaries && whole:
		c = BadBinaries
	case p.Class == tarfile.BadBinaries:
		c, s = OddBinaries, Warning
	case !whole:
		c, s = OddGraph, Warning
	}
	// Without a graph what is needed is asked of the segments.
	x.noGraph = x.noGraph || c == BadGraph || c == TooLarge
	x.pass(t, c, s, p)
}

func (x *unit) tail(t *teller, p tarfile.Problem) {
	switch c := p.Class; {
	case c == tarfile.Gap:
		p.What = fmt.Sprintf("%d %s", p.Len, p.What)
		x.pass(t, Gap, Warning, p)
	// The index was read: what is odd with it as a whole is not bad.
	case c == tarfile.BadHeader, c == tarfile.BadPadding, c == tarfile.BadIndex && !p.HasSegment:
		x.pass(t, BadTail, Warning, p)
	default:
		x.pass(t, BadIndex, Error, p)
	}
}

func (x *unit) pass(t *teller, c Class, s format.Severity, p tarfile.Problem) {
	t.tell(Problem{c, s, x.Name, p.Off, p.Segment, p.HasSegment, p.What})
}
