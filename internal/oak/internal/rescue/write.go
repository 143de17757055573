package rescue

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Write writes the tar of a plan in st, under the given name. In memory it keeps one segment, a
// few more for long names of binaries, and what follows the segments. Its output depends on the
// plan alone.
//
// It fails with [store.ErrChanged] if a segment has changed since the survey.
func Write(ctx context.Context, st store.Store, name string, p *Plan) error {
	if len(p.Segments) == 0 {
		return fmt.Errorf("%s: %w", name, ErrNothing)
	}
	var base *tarfile.Tar
	var graph *tarfile.Graph
	if p.Base >= 0 {
		var err error
		if base, err = tarfile.Open(ctx, p.Sources[p.Base].Object, p.Sources[p.Base].Name, tarfile.Options{}); err != nil {
			return err // the caller could open it
		}
		if p.Counts.Proof[Kept] > 0 {
			graph, err = base.Graph(ctx)
			if _, damaged := errors.AsType[*tarfile.Error](err); err != nil && !damaged {
				return err
			}
		}
	}
	source := &segment.Recent{Most: held, Load: p.segment}
	w := &writer{plan: p, base: base, graph: graph, binaries: &binaries{plan: p, base: base, source: source, reader: segment.NewReader(source), room: maxNames}}
	_, err := storekit.Write(ctx, st, name, func(out store.Writer) error {
		w.tar = tarfile.NewWriter(out, path.Base(name), func() time.Time { return w.time })
		for _, c := range p.Segments {
			if err := w.add(ctx, c); err != nil {
				return err
			}
		}
		w.time = w.newest
		return w.tar.Close()
	})
	return err
}

type writer struct {
	plan     *Plan
	base     *tarfile.Tar // or nil
	tar      *tarfile.Writer
	binaries *binaries
	graph    *tarfile.Graph // of the base, or nil
	buf      []byte
	time     time.Time // of the next header
	newest   time.Time // of those that were known, for those that are not
}

func (w *writer) add(ctx context.Context, c Segment) error {
	data, header, err := w.plan.read(ctx, c, &w.buf)
	if err != nil {
		return err
	}
	w.time = w.newest
	if h, err := tarfile.ParseHeader(header); err == nil && h.ChecksumOK {
		w.time = h.ModTime
		if w.newest.Before(w.time) {
			w.newest = w.time
		}
	}
	var gen tarfile.Generation
	var refs tarfile.IDs
	var names []string
	if c.ID.IsData() {
		h, ok := segment.ParseHead(data)
		if !ok {
			return w.plan.changed(c)
		}
		gen, refs = h.Generation, h.Refs
		if names, err = w.binaries.of(ctx, c, data); err != nil {
			return err
		}
	}
	if c.Proof == Kept {
		// What the base records about it is intact.
		if i, ok := w.base.Index().Find(c.ID); ok {
			gen = w.base.Index().At(i).Generation
		}
		if w.graph != nil {
			refs, _ = w.graph.Targets(c.ID)
		}
	}
	if err = w.tar.Move(header, c.ID, gen, data, refs, names); err != nil {
		return fmt.Errorf("recovered tar: %w", err)
	}
	return nil
}

func (p *Plan) changed(c Segment) error {
	return fmt.Errorf("%s at %d: segment %s: %w", p.Sources[c.From].Name, c.Pos, c.ID, store.ErrChanged)
}

// read reads a segment into *buf, with its header, and corrects its wrong bit, if it has one.
func (p *Plan) read(ctx context.Context, c Segment, buf *[]byte) (data, header []byte, err error) {
	n := tarfile.BlockSize + int(c.Len)
	*buf = slices.Grow((*buf)[:0], n)[:n]
	if err := p.Sources[c.From].Object.ReadAt(ctx, *buf, c.Pos-tarfile.BlockSize); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = p.changed(c)
		}
		return nil, nil, err
	}
	header, data = (*buf)[:tarfile.BlockSize], (*buf)[tarfile.BlockSize:]
	if c.mask != 0 {
		data[c.bit] ^= c.mask
	}
	if crc32.ChecksumIEEE(data) != c.CRC {
		return nil, nil, p.changed(c)
	}
	return data, header, nil
}

// Limits of names of binaries. Names usually have some 70 bytes; those that Oak puts into a
// record of their own have at least 4096. All are kept in memory until the tar is written.
const (
	maxName  = 1 << 20
	maxNames = 128 << 20
)

// binaries finds the binaries outside of the store to which segments refer. The next garbage
// collection deletes a binary that the tar does not list.
type binaries struct {
	plan   *Plan
	base   *tarfile.Tar // or nil
	source *segment.Recent
	reader *segment.Reader
	room   int      // for names, in bytes
	names  []string // of one segment

	// old has the names in the base. They are read when they are needed.
	old     map[tarfile.ID]tarfile.Texts
	oldRead bool
}

// of returns a data segment's names, up to the limits. It returns an error only if the store
// fails.
func (b *binaries) of(ctx context.Context, c Segment, data []byte) ([]string, error) {
	b.names = b.names[:0]
	g, damage := segment.Parse(c.ID, data)
	whole := damage == nil
	if whole {
		var err error
		b.source.Current = g
		if whole, err = b.collect(ctx, g); err != nil {
			return nil, err
		}
	}
	if !whole || c.Proof == Kept {
		if err := b.addOld(ctx, c.ID); err != nil {
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

// collect reads the names in the records. The name of a damaged record is lost.
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

// addOld adds what the base's binary references contain about a segment that is not intact.
func (b *binaries) addOld(ctx context.Context, id tarfile.ID) error {
	if !b.oldRead && b.base != nil {
		r, err := b.base.Binaries(ctx)
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

// held is how many segments are kept for names that are stored in other segments.
const held = 4

// segment reads a segment that holds names, of the plan or of tars of other numbers.
func (p *Plan) segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	if c, ok := p.Find(id); ok {
		b, err := p.Read(ctx, c)
		if err != nil {
			return nil, err
		}
		return segment.Parse(id, b)
	}
	missing := &segment.Error{Class: segment.Missing, Segment: id, Record: -1, Off: -1, What: "no such segment"}
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
