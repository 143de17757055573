package rescue

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Limits of names of binaries. Names are some 70 bytes; those that Oak puts into a
// record of their own have 4096 and more. All are held until the tar is written.
const (
	maxName  = 1 << 20
	maxNames = 128 << 20
)

// binaries finds out which binaries outside of the store segments refer to. One that
// the tar does not tell of is lost with the next collection of garbage.
type binaries struct {
	plan   *Plan
	source *segment.Recent
	reader *segment.Reader
	room   int      // for names, in bytes
	names  []string // of one segment

	// old are the names that the base has, read when they are needed.
	old     map[tarfile.ID]tarfile.Texts
	oldRead bool
}

// of returns a data segment's names, as far as there is room. An error is of the store.
func (b *binaries) of(ctx context.Context, id tarfile.ID, data []byte) ([]string, error) {
	b.names = b.names[:0]
	g, damage := segment.Parse(id, data)
	whole := damage == nil
	if whole {
		var err error
		b.source.Current = g
		if whole, err = b.collect(ctx, g); err != nil {
			return nil, err
		}
	}
	if !whole {
		if err := b.addOld(ctx, id); err != nil {
			return nil, err
		}
	}
	slices.Sort(b.names)
	b.names = slices.Compact(b.names)
	for i, name := range b.names {
		if b.room -= len(name); b.room < 0 {
			return b.names[:i], nil
		}
	}
	return b.names, nil
}

// collect goes through the records. One that is damaged costs its name.
func (b *binaries) collect(ctx context.Context, g *segment.Segment) (whole bool, err error) {
	room := b.room
	whole = true
	for record := range g.External() {
		name, err := b.reader.BlobID(ctx, record, min(room, maxName))
		if _, damaged := errors.AsType[*segment.Error](err); damaged {
			whole = false
			continue
		}
		if err != nil {
			return false, err
		}
		room -= len(name)
		b.names = append(b.names, name)
	}
	return whole, nil
}

// addOld adds what the base's binary references say of a segment that is not whole.
func (b *binaries) addOld(ctx context.Context, id tarfile.ID) error {
	if !b.oldRead && b.plan.base != nil {
		r, err := b.plan.base.Binaries(ctx)
		if _, damaged := errors.AsType[*tarfile.Error](err); err != nil && !damaged {
			return err
		}
		if err == nil {
			b.old = map[tarfile.ID]tarfile.Texts{}
			for s := range r.All() {
				b.old[s.ID] = s.Refs
			}
		}
	}
	b.oldRead = true
	b.names = slices.AppendSeq(b.names, b.old[id].All())
	return nil
}

// held is how many segments are held for names that lie in others.
const held = 4

// segment reads a segment that holds names, of the plan or of tars of other numbers.
func (p *Plan) segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	if k, ok := p.at[id]; ok {
		var buf []byte
		b, _, err := p.read(ctx, p.Segments[k], &buf)
		if err != nil {
			return nil, err
		}
		return segment.Parse(id, b)
	}
	missing := &segment.Error{Class: segment.Missing, Segment: id, Record: -1, Off: -1, What: "there is no such segment"}
	if p.copies == nil {
		return nil, missing
	}
	for place, err := range p.copies(ctx, id) {
		if err != nil {
			return nil, err
		}
		if place.Len < 1 || place.Len > tarfile.MaxSegment {
			continue
		}
		b := make([]byte, place.Len)
		if err := place.Object.ReadAt(ctx, b, place.Pos); errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		} else if err != nil {
			return nil, err
		}
		if g, err := segment.Parse(id, b); err == nil {
			return g, nil
		}
	}
	return nil, missing
}
