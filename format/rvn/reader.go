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

// reader shows the files of an archive.
type reader struct {
	*archive
	*format.Index
}

func (r *reader) Close() error { return r.obj.Close() }

// Extents of a file are a slice of the one frame, or of each section that it
// lies in.
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
				p := r.problem(format.Truncated, "contents", format.Error, x.Off, "the archive ends at %d, within or before section %d, which has bytes %d to %d", r.size, k, x.Off, x.Off+x.Len)
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

// frameSize is how much block 4 becomes, 0 if that is not certain.
func (r *archive) frameSize() int64 {
	if r.said.ArcFlat == uint64(r.index.total) && r.block[contentBlock].end() <= r.size {
		return r.index.total
	}
	return 0
}

// Regions are the blocks before the contents, and what of block 4 is no content.
func (r *reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		for _, x := range r.regions() {
			if x.Len > 0 && !yield(x, nil) {
				return
			}
		}
	}
}

func (a *archive) regions() []format.Region {
	region := func(s span, use format.Use, label string) format.Region {
		return format.Region{Object: a.name, Off: s.off, Len: s.len, Use: use, Label: label}
	}
	meta, index, contents := a.block[metaBlock], a.block[indexBlock], a.block[contentBlock]
	out := []format.Region{region(span{0, headerLen}, format.Header, "header"), region(meta, format.Header, "metadata")}
	if t := a.table.span; t.len > 0 {
		out = append(out, region(span{index.off, t.off - index.off}, format.IndexData, "index"),
			region(t, format.IndexData, "section table"),
			region(span{t.end(), index.end() - t.end()}, format.IndexData, "index"))
	} else {
		out = append(out, region(index, format.IndexData, "index"))
	}
	end := min(contents.end(), a.size)
	switch s := a.table.sections; {
	case s != nil:
		last := min(contents.off+s[len(s)-1].comp, end)
		out = append(out, region(span{contents.off, min(s[0].comp, end-contents.off)}, format.Header, "frame header"),
			region(span{last, end - last}, format.Header, "end of frame"))
	case a.index.total == 0:
		out = append(out, region(span{contents.off, end - contents.off}, format.Unknown, "contents of no file"))
	}
	return append(out, region(span{end, a.size - end}, format.Unknown, "behind the contents"))
}

// About says what the package says of itself, and what is odd about it.
func (r *reader) About(context.Context) (format.About, error) { return r.about(), nil }

func (a *archive) about() format.About {
	about := format.About{
		Version:    strconv.Itoa(int(a.said.Version)),
		IndexBytes: headerLen + a.block[metaBlock].len + a.block[indexBlock].len,
		Volumes:    []string{a.name},
		Notes:      a.notes,
	}
	fact := func(key, value string) {
		if value != "" {
			about.Facts = append(about.Facts, [2]string{key, value})
		}
	}
	m, err := a.metadata()
	if err == nil {
		for _, f := range m.facts() {
			fact(f[0], f[1])
		}
		about.Carry = [][2]string{{carryMetadata, string(m.text)}}
	} else {
		about.Notes = append(about.Notes, a.metaProblem(err))
	}
	switch s := a.table.sections; {
	case s != nil:
		fact("sections", fmt.Sprintf("%d, the longest of %d bytes: files are read at random", len(s)-1, longest(s)))
	case a.index.total > singleCall:
		fact("sections", "none: a file is read by decoding all that precede it")
	}
	return about
}

func longest(s []section) int64 {
	most := int64(0)
	for i := range s[1:] {
		most = max(most, s[i+1].flat-s[i].flat)
	}
	return most
}
