package hdf5

import (
	"context"

	"github.com/holdall/holdall/format"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/store"
)

// verify reads all structures, whose checksums are compared, and decodes every chunk.
func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return formatkit.Reported(err, report)
	}
	defer a.close()
	if err := a.load(ctx); err != nil {
		return formatkit.Reported(err, report)
	}
	if end := a.f.End; end > a.f.Size() {
		report(format.Problem{Code: format.Truncated, Severity: format.Error, Volume: name, Off: a.f.Size(), Message: "the file ends before its superblock says"})
	}
	for _, p := range a.notes {
		report(p)
	}
	for v, err := range a.tree() {
		if err != nil {
			return formatkit.Reported(err, report)
		}
		if v.object == nil || v.object.Kind != h5.Dataset || v.object.Readable() != nil {
			continue
		}
		for c, err := range v.object.Chunks(ctx) {
			if err == nil && !o.Quick {
				err = a.check(ctx, v.object, c)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				report(a.problem(v.path, err))
			}
		}
	}
	return nil
}

// check decodes a chunk.
func (a *archive) check(ctx context.Context, o *h5.Object, c h5.Chunk) error {
	if c.Size > a.f.Limit {
		return &h5.Error{File: a.name, What: "chunk", Off: c.Addr, Err: h5.ErrLimit}
	}
	b := make([]byte, c.Size)
	if err := a.obj.ReadAt(ctx, b, c.Addr); err != nil {
		return err
	}
	_, err := o.Decode(c, b)
	return err
}
