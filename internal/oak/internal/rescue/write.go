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
)

// Write writes the tar of a plan in st, under the given name. It holds one segment, a
// few more for long names of binaries, and what stands behind the segments. What it
// writes depends on the plan alone.
//
// It fails with [store.ErrChanged] if a segment is no longer what the survey saw.
func Write(ctx context.Context, st store.Store, name string, p *Plan) error {
	if len(p.Segments) == 0 {
		return fmt.Errorf("%s: %w", name, ErrNothing)
	}
	source := &segment.Recent{Most: held, Load: p.segment}
	w := &writer{plan: p, binaries: &binaries{plan: p, source: source, reader: segment.NewReader(source), room: maxNames}}
	_, err := store.Write(ctx, st, name, func(out store.Writer) error {
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
	tar      *tarfile.Writer
	binaries *binaries
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
		if names, err = w.binaries.of(ctx, c.ID, data); err != nil {
			return err
		}
	}
	if err := w.tar.Add(c.ID, gen, data, refs, names); err != nil {
		return fmt.Errorf("recovered tar: %w", err)
	}
	return nil
}

func (p *Plan) changed(c Segment) error {
	return fmt.Errorf("%s at %d: segment %s: %w", p.Sources[c.From].Name, c.Pos, c.ID, store.ErrChanged)
}

// read reads a segment into *buf, with its header, and puts its bit right.
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
