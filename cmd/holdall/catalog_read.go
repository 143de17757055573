package main

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"sync/atomic"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
)

// openLocated opens an archive as if it had the given files only, whose content is
// where a catalogue says. Nothing of the archive's own index is read.
func openLocated(ctx context.Context, st store.Store, name string, in catalog.Archive, files []catalog.Location, noVerify bool) (*holdall.Archive, error) {
	entries := make(format.Entries, len(files))
	for i, l := range files {
		entries[i] = format.Entry{Name: l.Path, Kind: l.Kind, Size: l.Size, Digest: l.Digest, Ref: l.Off}
	}
	located := &format.Format{
		Name: in.Format,
		Open: func(context.Context, store.Store, string, format.OpenOptions) (format.Reader, error) {
			return &locatedReader{Index: format.NewIndex(entries), name: name}, nil
		},
	}
	return holdall.OpenStore(ctx, &pinned{Store: st, name: name, in: in}, name, holdall.OpenOptions{Format: in.Format, Formats: []*format.Format{located}, NoVerify: noVerify})
}

// locatedReader reads files that are one run of an archive's bytes each.
type locatedReader struct {
	*format.Index
	name string
}

// Can returns what else the reader can do.
func (r *locatedReader) Can() format.Abilities {
	can := r.Index.Can()
	can.Run = r.Run
	return can
}

func (r *locatedReader) Run(e format.Entry) (format.Extent, bool) {
	off, ok := e.Ref.(int64)
	return format.Extent{Size: e.Size, Object: r.name, Off: off, Len: e.Size}, ok && e.Size > 0
}

func (r *locatedReader) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if x, ok := r.Run(e); ok && n > 0 {
			yield(x, nil)
		}
	}
}

func (r *locatedReader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}

// About names no volumes: their sizes would be asked for.
func (r *locatedReader) About(context.Context) (format.About, error) { return format.About{}, nil }

func (r *locatedReader) Close() error { return nil }

// A staleError means that an archive is not the one that a catalogue knows.
type staleError struct {
	address      string
	known, found string
}

func (e *staleError) Error() string {
	return fmt.Sprintf("%s: changed since it was added: expected %s, found %s", store.Redact(e.address), e.known, e.found)
}

// pinned is a store in which one object must be the version that a catalogue
// knows. That is compared with what comes along with the first answer, so that it
// takes no request.
type pinned struct {
	store.Store
	name string
	in   catalog.Archive
}

// Can says that it is as near as the store below, and only read.
func (p *pinned) Can() store.Abilities { return store.Abilities{Near: p.Store.Can().Near} }

func (p *pinned) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := p.Store.Open(ctx, name)
	if err != nil || name != p.name {
		return o, err
	}
	return &pinnedObject{Object: o, p: p}, nil
}

type pinnedObject struct {
	store.Object
	p    *pinned
	same atomic.Bool // the versions were compared
}

func (o *pinnedObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o *pinnedObject) ReadAt(ctx context.Context, b []byte, off int64) error {
	err := o.Object.ReadAt(ctx, b, off)
	if o.same.Load() {
		return err
	}
	info, ierr := o.Object.Info(ctx)
	if ierr != nil {
		if err == nil {
			err = ierr
		}
		return err
	}
	// An archive that is shorter now is no damaged one, so this is looked at even if
	// the read failed.
	if v := survey.Version(info, o.p.Store.Can().Near); v != o.p.in.Version || info.Size != o.p.in.Size {
		return &staleError{o.p.in.Address, shownVersion(o.p.in.Size, o.p.in.Version), shownVersion(info.Size, v)}
	}
	o.same.Store(true)
	return err
}

func shownVersion(size int64, version string) string {
	if version == "" {
		return fmt.Sprintf("%d bytes", size)
	}
	return fmt.Sprintf("%d bytes of version %s", size, version)
}

// absentHere is the error for what no archive of a catalogue has.
func absentHere(path string) error {
	return &fs.PathError{Op: "catalogue", Path: path, Err: fs.ErrNotExist}
}
