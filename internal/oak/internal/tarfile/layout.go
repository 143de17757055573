package tarfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Layout says where a tar's parts are, headers and zeros included. None has no length.
type Layout struct {
	Segments, Binaries, Graph, Index, Trailer Span
}

// Layout finds the parts of a tar.
func (t *Tar) Layout(ctx context.Context) (Layout, error) {
	return t.CheckLayout(ctx, func(Problem) {})
}

// CheckLayout finds the parts of a tar and reports what is wrong with all that are
// no segments, and with what the parts say of each other. It reads graph and binary
// references, and no segments. An error is one of the store.
func (t *Tar) CheckLayout(ctx context.Context, report func(Problem)) (Layout, error) {
	c := layoutCheck{t: t, w: window{t: t}, report: report}
	err := c.run(ctx)
	return c.l, err
}

type layoutCheck struct {
	t      *Tar
	w      window
	report func(Problem)
	l      Layout
}

func (c *layoutCheck) problem(class Class, off, n int64, format string, a ...any) {
	c.report(Problem{Class: class, Off: off, Len: n, What: fmt.Sprintf(format, a...)})
}

func (c *layoutCheck) run(ctx context.Context) error {
	t := c.t
	trailer := t.size - trailerLen
	c.l.Trailer = Span{trailer, trailerLen}
	c.l.Index = Span{t.place.header, trailer - t.place.header}
	b, err := c.w.at(ctx, trailer-footerLen, footerLen+trailerLen)
	if err != nil {
		return err
	}
	if !isZero(b[footerLen:]) {
		c.problem(BadPadding, trailer, trailerLen, "file: it ends with something else than %d zeros", trailerLen)
	}
	if size := int64(parseFooter(b[:footerLen]).size); size != c.l.Index.Len-BlockSize {
		c.problem(BadIndex, trailer-8, 4, "index: %d bytes, expected %d", size, c.l.Index.Len-BlockSize)
	}
	if _, err := c.header(ctx, c.l.Index, t.place.from, ".idx", true); err != nil {
		return err
	}
	end := c.l.Index.Off
	g, p, err := c.w.graph(ctx)
	if c.l.Graph, err = c.part(ctx, p, err, ".gph"); err != nil {
		return err
	}
	if c.l.Graph.Len > 0 {
		end = c.l.Graph.Off
	}
	if g != nil {
		c.checkGraph(g)
	}
	r, p, err := c.w.binaries(ctx)
	if c.l.Binaries, err = c.part(ctx, p, err, ".brf"); err != nil {
		return err
	}
	if c.l.Binaries.Len > 0 {
		end = min(end, c.l.Binaries.Off)
	}
	if r != nil {
		c.checkBinaries(r)
	}
	c.l.Segments = Span{0, end}
	t.index.Check(end, c.report)
	return nil
}

// part reports why a part cannot be read, and looks at its header. One whose content is
// damaged is believed to be where its footer says only if there is its header.
func (c *layoutCheck) part(ctx context.Context, p part, bad error, suffix string) (Span, error) {
	if e, ok := errors.AsType[*Error](bad); ok {
		c.problem(e.Class, e.Offset, 0, "%s", e.What)
	} else if bad != nil || p.Len == 0 {
		return Span{}, bad
	}
	if p.Len == 0 {
		return Span{}, nil
	}
	ok, err := c.header(ctx, p.Span, p.content(), suffix, bad == nil)
	if bad != nil && !ok {
		return Span{}, err
	}
	return p.Span, err
}

// header reports what is wrong with header and zeros of a part, if it is to be told,
// and whether the header is that of the part.
func (c *layoutCheck) header(ctx context.Context, s Span, content int64, suffix string, tell bool) (ok bool, err error) {
	b, err := c.w.at(ctx, s.Off, content-s.Off)
	if err != nil {
		return false, err
	}
	h, err := ParseHeader(b[:BlockSize])
	problem := func(class Class, off, n int64, format string, a ...any) {
		if tell {
			c.problem(class, off, n, format, a...)
		}
		ok = false
	}
	ok = true
	switch {
	case err != nil:
		problem(BadHeader, s.Off, BlockSize, "%v", err)
	case !h.ChecksumOK:
		problem(BadHeader, s.Off, BlockSize, "header of %s: its checksum is wrong", suffix)
	case !strings.HasSuffix(h.Name, suffix) && len(h.Name) < nameLen:
		problem(BadHeader, s.Off, BlockSize, "header: name %q, expected one with %s", h.Name, suffix)
	case h.Size != s.Len-BlockSize:
		problem(BadHeader, s.Off, BlockSize, "header of %s: %d bytes, expected %d", suffix, h.Size, s.Len-BlockSize)
	}
	if !isZero(b[BlockSize:]) {
		problem(BadPadding, s.Off+BlockSize, int64(len(b))-BlockSize, "something else than zeros before the content of %s", suffix)
	}
	return ok, nil
}

// about reports a problem of what a part says of a segment.
func (c *layoutCheck) about(class Class, s Span, id ID, format string, a ...any) {
	c.report(Problem{Class: class, Off: s.Off, Len: s.Len, Segment: id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}

func (c *layoutCheck) checkGraph(g *Graph) {
	at := c.l.Graph
	if g.twice > 0 {
		c.problem(BadGraph, at.Off, at.Len, "graph: %d lists of segments that have another one", g.twice)
	}
	for id, targets := range g.All() {
		switch _, ok := c.t.index.Find(id); {
		case !ok:
			c.about(BadGraph, at, id, "graph: a list of a segment that is not in the index")
		case !id.IsData():
			c.about(BadGraph, at, id, "graph: a list of a segment that is no data segment")
		case targets.Len() == 0:
			c.about(BadGraph, at, id, "graph: a list without targets")
		}
		for to := range targets.All() {
			if to == id {
				c.about(BadGraph, at, id, "graph: the segment refers to itself")
			}
		}
	}
}

func (c *layoutCheck) checkBinaries(r *BinaryRefs) {
	at := c.l.Binaries
	for s := range r.All() {
		i, ok := c.t.index.Find(s.ID)
		switch {
		case !ok:
			c.about(BadBinaries, at, s.ID, "binary references: of a segment that is not in the index")
		case c.t.index.At(i).Generation != s.Generation:
			c.about(BadBinaries, at, s.ID, "binary references: generation %s, expected %s as in the index", s.Generation, c.t.index.At(i).Generation)
		}
	}
}
