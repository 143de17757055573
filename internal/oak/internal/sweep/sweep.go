package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Sweep rewrites tar i of the plan, whose action must be Rewrite. It writes an object of st,
// called prefix and NewName, that appears complete. The caller must then remove the old tar.
// Until that is done, a store that is opened uses either of them. The output depends on nothing but
// the old tar.
//
// All tars of the plan must still be open. If Sweep returns an error, nothing has changed.
func (p *Plan) Sweep(ctx context.Context, st store.Store, prefix string, i int) (store.Info, error) {
	t := &p.Tars[i]
	if t.Action != Rewrite {
		return store.Info{}, fmt.Errorf("%s: %s, expected a tar to rewrite", t.Name, t.Action)
	}
	name := prefix + t.NewName
	if err := free(ctx, st, name); err != nil {
		return store.Info{}, err
	}
	w := writer{p: p, t: t, names: transfer.NewNames(t.Name, p.segment)}
	var err error
	if w.old, err = transfer.RecordedIn(ctx, t.Tar.Tar); err != nil {
		return store.Info{}, err
	}
	kept := slices.DeleteFunc(slices.Clone(t.Index().ByPosition()), func(i uint32) bool { return t.IsGarbage(int(i)) })
	info, err := transfer.Tar[uint32]{Read: w.read, Describe: w.describe}.Write(ctx, st, name, kept)
	if err != nil {
		return store.Info{}, err
	}
	if err := proof(ctx, st, name, info.Size, len(kept)); err != nil {
		return store.Info{}, errors.Join(err, storekit.Remove(ctx, st, name))
	}
	return info, nil
}

func free(ctx context.Context, st store.Store, name string) error {
	_, err := storekit.Briefly(st, name).Info(ctx)
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

type writer struct {
	p     *Plan
	t     *TarPlan
	old   transfer.Recorded
	names *transfer.Names
}

func (w *writer) read(ctx context.Context, i uint32, buf []byte) (segment.Finished, error) {
	return cloud.Read(ctx, w.t.Object, w.t.Index().At(int(i)), buf)
}

// describe adds what graph and binary references contain about a segment. As in Oak, the result omits
// garbage segments of this tar from the graph. What cannot be read is reported and left out.
func (w *writer) describe(ctx context.Context, i uint32, f *segment.Finished) error {
	e := w.t.Index().At(int(i))
	report := func(c tarfile.Class, at tarfile.Span, what string) {
		w.p.report(w.t.Name, tarfile.Problem{Class: c, Off: at.Off, Len: at.Len, Segment: e.ID, HasSegment: true, What: what})
	}
	h, err := tarfile.ParseHeader(f.Header)
	if n, named := tarfile.ParseEntryName(h.Name); err != nil || !h.ChecksumOK || h.Size != int64(e.Len) || !named || n.ID != e.ID {
		what := "header: damaged; wrote a new one, because the segment matches its checksum"
		if bytes.Equal(tarfile.NewHeader(f.Header, e.ID, f.Data, time.Time{}), f.Header) {
			what = "header: damaged, and the segment cannot be verified: both kept unchanged"
		}
		report(tarfile.BadHeader, tarfile.Span{Off: e.Pos - tarfile.BlockSize, Len: tarfile.BlockSize}, what)
	}
	if !e.ID.IsData() {
		return nil
	}
	named := w.old.Names(f)
	if !named || w.old.Graph == nil {
		x := *f
		if err := w.names.Describe(ctx, &x, func(err error) {
			if !named {
				report(tarfile.BadSegment, tarfile.Span{Off: e.Pos, Len: int64(e.Len)}, fmt.Sprintf("binary references are lost: %v", err))
			}
		}); err != nil {
			return err
		}
		if f.Refs = x.Refs; !named {
			f.BlobIDs = x.BlobIDs
		}
	}
	if w.old.Graph != nil {
		refs, _ := w.old.Graph.Targets(e.ID)
		f.Refs = slices.Collect(refs.All())
	}
	f.Refs = slices.DeleteFunc(f.Refs, func(id segment.ID) bool {
		k, ok := w.t.Index().Find(id)
		return ok && w.t.IsGarbage(k)
	})
	return nil
}

// proof opens the new tar, to verify it before the old one is removed.
func proof(ctx context.Context, st store.Store, name string, size int64, segments int) error {
	o, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.Close()
	t, err := tarfile.Open(ctx, o, name, tarfile.Options{})
	if err != nil {
		return err
	}
	if t.Size() != size || t.Index().Len() != segments {
		return fmt.Errorf("%s: %d bytes, %d segments, expected %d and %d as written", name, t.Size(), t.Index().Len(), size, segments)
	}
	if _, err := t.Graph(ctx); err != nil {
		return err
	}
	_, err = t.Binaries(ctx)
	return err
}

// segment reads a segment of the newest tar that has it.
func (p *Plan) segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	for i := range p.Tars {
		t := &p.Tars[i]
		if k, ok := t.Index().Find(id); ok {
			b, err := t.Tar.Read(ctx, k, nil)
			if err != nil {
				return nil, err
			}
			return segment.Parse(id, b)
		}
	}
	return nil, fs.ErrNotExist
}
