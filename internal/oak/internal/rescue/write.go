package rescue

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
)

// Write writes the tar of a plan in st, under the given name. Its output depends on the plan alone.
//
// It fails with [store.ErrChanged] if a segment has changed since the survey.
func Write(ctx context.Context, st store.Store, name string, p *Plan) error {
	if len(p.Segments) == 0 {
		return fmt.Errorf("%s: %w", name, ErrNothing)
	}
	w := &writer{plan: p, names: transfer.NewNames(name, p.segment)}
	if p.Base >= 0 {
		base, err := tarfile.Open(ctx, p.Sources[p.Base].Object, p.Sources[p.Base].Name, tarfile.Options{})
		if err == nil {
			w.index = base.Index()
			w.old, err = transfer.RecordedIn(ctx, base)
		}
		if err != nil {
			return err
		}
	}
	_, err := transfer.Tar[Segment]{Read: p.finished, Describe: w.describe}.Write(ctx, st, name, p.Segments)
	return err
}

type writer struct {
	plan  *Plan
	names *transfer.Names
	index *tarfile.Index // of the base, or nil
	old   transfer.Recorded
}

// describe adds what the tar records about a segment. If the segment is damaged, the base may have what
// its bytes do not show any more.
func (w *writer) describe(ctx context.Context, c Segment, f *segment.Finished) error {
	if !c.ID.IsData() {
		return nil
	}
	h, ok := segment.ParseHead(f.Data)
	if !ok {
		return w.plan.changed(c)
	}
	f.Generation = h.Generation
	whole := c.Proof != Kept
	if err := w.names.Describe(ctx, f, func(error) { whole = false }); err != nil {
		return err
	}
	if !whole {
		w.old.Names(f)
	}
	if c.Proof != Kept || w.index == nil {
		return nil
	}
	if i, ok := w.index.Find(c.ID); ok {
		f.Generation = w.index.At(i).Generation
	}
	if w.old.Graph != nil {
		refs, _ := w.old.Graph.Targets(c.ID)
		f.Refs = slices.Collect(refs.All())
	}
	return nil
}

func (p *Plan) changed(c Segment) error {
	return fmt.Errorf("%s at %d: segment %s: %w", p.Sources[c.From].Name, c.Pos, c.ID, store.ErrChanged)
}

// finished reads a segment with its header, and corrects its wrong bit, if it has one. The MD5 of a blob
// only proves it: the survey has judged it without.
func (p *Plan) finished(ctx context.Context, c Segment, buf []byte) (f segment.Finished, err error) {
	f, err = cloud.Read(ctx, p.Sources[c.From].Object, tarfile.Entry{ID: c.ID, Pos: c.Pos, Len: int(c.Len)}, buf)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return f, p.changed(c)
	}
	if err != nil && !tarfile.IsDamage(err) {
		return f, err
	}
	if c.mask != 0 {
		f.Data[c.bit] ^= c.mask
	}
	if crc32.ChecksumIEEE(f.Data) != c.CRC {
		return f, p.changed(c)
	}
	return f, nil
}

// segment reads a segment that has names of binaries, of the plan or of tars of other numbers.
func (p *Plan) segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	if c, ok := p.Find(id); ok {
		b, err := p.Read(ctx, c)
		if err != nil {
			return nil, err
		}
		return segment.Parse(id, b)
	}
	if p.copies == nil {
		return nil, fs.ErrNotExist
	}
	for place, err := range p.copies(ctx, id) {
		if err != nil {
			return nil, err
		}
		if place.Len < 1 || place.Len > tarfile.MaxSegment {
			continue
		}
		b := make([]byte, place.Len)
		if err := place.Object.ReadAt(ctx, b, place.Pos); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		} else if g, bad := segment.Parse(id, b); err == nil && bad == nil {
			return g, nil
		}
	}
	return nil, fs.ErrNotExist
}
