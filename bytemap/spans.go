package bytemap

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
)

// An Archive returns the places of its contents and the uses of its other bytes.
// holdall.Archive implements it.
type Archive interface {
	Entries(ctx context.Context) iter.Seq2[format.Entry, error]
	Extents(ctx context.Context, e format.Entry) iter.Seq2[format.Extent, error]
	Regions(ctx context.Context) iter.Seq2[format.Region, error]
	Volumes(ctx context.Context) ([]string, error)
	VolumeSize(ctx context.Context, volume string) (int64, error)
	Unproven(ctx context.Context, e format.Entry) bool
}

// Of returns a Map of an archive. Spans are generated as they are needed, so an archive with
// millions of entries takes the memory of a few thousand cells.
func Of(ctx context.Context, a Archive) (m *Map, err error) {
	names, err := a.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	var volumes []Volume
	for _, name := range names {
		size, err := a.VolumeSize(ctx, name)
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, Volume{Name: name, Size: size})
	}
	var unproven Unproven
	m = Build(volumes, func(yield func(Span) bool) {
		for s, serr := range spans(ctx, a, func(e format.Entry) {
			if a.Unproven(ctx, e) {
				unproven.Files, unproven.Bytes = unproven.Files+1, plus(unproven.Bytes, e.Size)
			}
		}) {
			if err = serr; err != nil || !yield(s) {
				return
			}
		}
	})
	m.Unproven = unproven
	return m, err
}

// Spans yields the uses of an archive's bytes. It omits content outside the archive, and inline
// content in an index that has a region.
func Spans(ctx context.Context, a Archive) iter.Seq2[Span, error] {
	return spans(ctx, a, func(format.Entry) {})
}

// spans calls seen with each entry that has content.
func spans(ctx context.Context, a Archive, seen func(format.Entry)) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) {
		for e, err := range a.Entries(ctx) {
			if err != nil {
				yield(Span{}, err)
				return
			}
			if !e.Kind.HasContent() || e.Fault != nil {
				continue
			}
			seen(e)
			for x, err := range a.Extents(ctx, e) {
				if err != nil {
					yield(Span{}, err)
					return
				}
				if x.Len > 0 && !x.External && x.Data == nil && !yield(Span{Volume: x.Object, Off: x.Off, Len: x.Len, Label: e.Name}, nil) {
					return
				}
			}
		}
		for r, err := range a.Regions(ctx) {
			if !yield(Span{Volume: r.Object, Off: r.Off, Len: r.Len, Use: Use(r.Use), Label: r.Label}, err) || err != nil {
				return
			}
		}
	}
}
