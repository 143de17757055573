package rvn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
)

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	if o.View != "" && o.View != filesView && o.View != metaView {
		return nil, fmt.Errorf("rvn has no view %q: %w", o.View, errors.ErrUnsupported)
	}
	a, err := load(ctx, st, name, o)
	if err != nil && o.View != metaView {
		r, err := orRepository(ctx, st, name, o, err)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if o.View == metaView {
		return newMetaReader(a)
	}
	return &reader{a, a.byName}, nil
}

// reader is the view of the files of an archive.
type reader struct {
	*archive
	*kit.Index
}

func (a *archive) Close() error { return a.obj.Close() }

// Can returns the optional functions of the reader.
func (r *reader) Can() format.Abilities {
	can := r.Index.Can()
	can.Doubt = func() *format.Problem { return r.doubt }
	can.Carry = r.carry
	return can
}

// Extents yields a part of the single frame, or of each section that contains the file.
func (r *reader) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		i, ok := e.Ref.(int)
		if !ok || e.Fault != nil || !e.Kind.HasContent() || n <= 0 || off >= e.Size {
			return
		}
		start := r.index.start(i)
		from, to := start+max(off, 0), start+min(off+n, e.Size)
		contents := r.block[contentBlock]
		sections := r.table.sections
		if sections == nil {
			yield(format.Extent{
				Size: e.Size, Object: r.name, Off: contents.off, Len: contents.len,
				Codec: codec.Zstd, Skip: start, Unit: r.frameSize(),
			}, nil)
			return
		}
		k := sort.Search(len(sections), func(k int) bool { return sections[k].flat > from }) - 1
		for ; k+1 < len(sections) && sections[k].flat < to; k++ {
			s, next := sections[k], sections[k+1]
			x := format.Extent{
				Object: r.name, Off: contents.off + s.comp, Len: next.comp - s.comp,
				Codec: codec.ZstdBlocks, Unit: next.flat - s.flat,
			}
			first, last := max(s.flat, start), min(next.flat, start+e.Size)
			x.At, x.Size, x.Skip = first-start, last-first, first-s.flat
			if x.Off+x.Len > r.size {
				p := r.problem(format.Truncated, "contents", format.Error, x.Off, "the archive ends at %d, before the end of section %d, bytes %d to %d", r.size, k, x.Off, x.Off+x.Len)
				p.Entry, p.HasEntry = e.Name, true
				yield(x, &format.CorruptError{Format: "rvn", Problem: p})
				return
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// frameSize returns the uncompressed size of block 4, or 0 if it is not certain.
func (r *archive) frameSize() int64 {
	if r.said.ArcFlat == uint64(r.index.total) && r.block[contentBlock].end() <= r.size {
		return r.index.total
	}
	return 0
}

// Regions yields the blocks before the contents, and the parts of block 4 that are not content.
func (r *reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return pipe.All(r.regions())
}

func (a *archive) regions() (out []format.Region) {
	add := func(off, end int64, use format.Use, label string) {
		if off < end {
			out = append(out, format.Region{Object: a.name, Off: off, Len: end - off, Use: use, Label: label})
		}
	}
	index, contents, table := a.block[indexBlock], a.block[contentBlock], a.table.span
	add(0, headerLen, format.Header, "header")
	add(headerLen, index.off, format.Header, "metadata")
	if table.len > 0 {
		add(index.off, table.off, format.IndexData, "index")
		add(table.off, table.end(), format.IndexData, "section table")
		add(table.end(), index.end(), format.IndexData, "index")
	} else {
		add(index.off, index.end(), format.IndexData, "index")
	}
	end := min(contents.end(), a.size)
	switch s := a.table.sections; {
	case s != nil:
		add(contents.off, min(contents.off+s[0].comp, end), format.Header, "frame header")
		add(min(contents.off+s[len(s)-1].comp, end), end, format.Header, "end of frame")
	case a.index.total == 0:
		add(contents.off, end, format.Unknown, "contents without a file")
	}
	add(end, a.size, format.Unknown, "after the contents")
	return out
}

// About returns the properties of the package, and what is unusual about it.
func (a *archive) About(context.Context) (format.About, error) {
	about := format.About{
		Version:    strconv.Itoa(int(a.said.Version)),
		IndexBytes: headerLen + a.block[metaBlock].len + a.block[indexBlock].len,
		Volumes:    []string{a.name},
		Notes:      a.notes,
	}
	fact := func(key, value string) { about.Facts = append(about.Facts, [2]string{key, value}) }
	m, err := a.metadata()
	if err == nil {
		about.Facts = m.facts()
	} else {
		about.Notes = append(about.Notes, a.metaProblem(err))
	}
	switch s := a.table.sections; {
	case s != nil:
		fact("sections", fmt.Sprintf("%d, the longest of %d bytes: each file can be read alone", len(s)-1, longest(s)))
	case a.index.total > singleCall:
		fact("sections", "none: to read a file, all files before it are decoded")
	}
	return about, nil
}

// carry returns the metadata, unless it is damaged.
func (a *archive) carry(context.Context) ([][2]string, error) {
	m, err := a.metadata()
	if err != nil {
		return nil, nil
	}
	return [][2]string{{carryMetadata, string(m.text)}}, nil
}

func longest(s []section) int64 {
	most := int64(0)
	for i := range s[1:] {
		most = max(most, s[i+1].flat-s[i].flat)
	}
	return most
}
