package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const dryRunUsage = "only print what would be done"

// dryRunFlag defines -n for a verb that then works on a store that discards
// its writes.
func (a *app) dryRunFlag(fs *pflag.FlagSet) {
	fs.BoolVarP(&a.dryRun, "dry-run", "n", false, dryRunUsage)
}

// didNot returns the end of a result line of a dry run, which says that
// nothing was done.
func (a *app) didNot() string {
	if a.dryRun {
		return " (dry run: nothing is written)"
	}
	return ""
}

// A dryStore is a store that can be read but discards its writes. A dry run
// therefore does all the verb's work, and meets the same errors.
type dryStore struct {
	store.Store
	noParity bool // changes are discarded, so there is nothing to protect afterwards
}

func (a *app) dry(st store.Store, noParity bool) store.Store {
	if a.dryRun {
		return dryStore{st, noParity}
	}
	return st
}

func (s dryStore) Open(ctx context.Context, name string) (store.Object, error) {
	if s.noParity && strings.HasSuffix(name, ".parity") {
		return nil, &store.Error{Op: "open", Name: name, Off: -1, Err: fs.ErrNotExist}
	}
	return s.Store.Open(ctx, name)
}

func (s dryStore) Can() store.Abilities {
	can := s.Store.Can()
	create := func(_ context.Context, name string, _ store.Wishes) (store.Writer, error) {
		if err := s.creatable(name); err != nil {
			return nil, err
		}
		return &dryWriter{name: name}, nil
	}
	if can.Create == nil {
		create = nil
	}
	return store.Abilities{
		Near: can.Near, Address: can.Address, List: can.List, ListFrom: can.ListFrom, ListHeaders: can.ListHeaders, Level: can.Level,
		OpenAs: can.OpenAs, OpenGrowing: can.OpenGrowing, Locked: can.Locked, Fetch: can.Fetch, Owns: can.Owns, Adopt: can.Adopt,
		Create: create,
		Remove: func(context.Context, string) error { return nil },
		Amend:  s.amend,
	}
}

// creatable returns the error with which a store on this machine would refuse
// to create a file: its folder is missing, or it is a folder itself.
func (s dryStore) creatable(name string) error {
	stored := storekit.Under(s.Store)
	at := storekit.AddressOf(stored, name)
	if !stored.Can().Near || at == "" || store.Scheme(at) != "" {
		return nil
	}
	there, err := os.Stat(at)
	switch {
	case err == nil && there.IsDir():
		err = syscall.EISDIR
	case errors.Is(err, fs.ErrNotExist): // the store makes the folders in the name
		_, err = os.Stat(cmp.Or(strings.TrimSuffix(at, name), "."))
		for dir := filepath.Dir(at); err == nil && dir != "." && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, lerr := os.Lstat(dir); lerr == nil { // it may be a link to nothing
				_, err = os.Stat(dir)
				break
			}
		}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if err != nil {
		return &store.Error{Op: "create", Name: at, Off: -1, Err: err}
	}
	return nil
}

type dryWriter struct {
	name string
	n    int64
}

func (w *dryWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

func (w *dryWriter) Commit(context.Context) (store.Info, error) {
	return store.Info{Name: w.name, Size: w.n}, nil
}

func (w *dryWriter) Abort() error { return nil }

func (w *dryWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{
		Rewind:     func(to int64) error { w.n = to; return nil },
		Patch:      func(context.Context, []byte, int64) error { return nil },
		PatchLimit: math.MaxInt64,
	}
}

// amend opens an object for changes that stay private. If the store itself
// cannot change the object, it returns an error, too.
func (s dryStore) amend(ctx context.Context, name string) (store.Amendment, error) {
	can := s.Store.Can()
	if can.Amend == nil {
		return storekit.Amend(ctx, s.Store, name)
	}
	if can.Locked != nil {
		if by, err := can.Locked(ctx, name); err == nil && by != "" {
			return nil, &store.LockedError{Name: name, Holder: by}
		}
	}
	o, info, err := storekit.OpenInfo(ctx, s.Store, name)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "holdall-dry-")
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &dryAmendment{o: o, f: f, base: info.Size, size: info.Size}, nil
}

// A dryAmendment is an object with changes, which are kept in a temporary file
// at their offsets in the object. Everything after base is in that file, and
// so are patches before base.
type dryAmendment struct {
	o          store.Object
	f          *os.File
	base, size int64
	patched    []patch
}

type patch struct{ off, end int64 }

func (a *dryAmendment) Size() int64                { return a.size }
func (a *dryAmendment) Sync(context.Context) error { return nil }

func (a *dryAmendment) Close() error {
	return errors.Join(a.o.Close(), a.f.Close(), os.Remove(a.f.Name()))
}

func (a *dryAmendment) Truncate(_ context.Context, size int64) error {
	a.size, a.base = size, min(a.base, size)
	return nil
}

func (a *dryAmendment) WriteAt(_ context.Context, p []byte, off int64) error {
	end := off + int64(len(p))
	if off < 0 || off > a.size {
		return fmt.Errorf("write at %d: the object ends at %d", off, a.size)
	}
	if off < a.base {
		a.patched = append(a.patched, patch{off, min(end, a.base)})
	}
	a.size = max(a.size, end)
	_, err := a.f.WriteAt(p, off)
	return err
}

func (a *dryAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	end := off + int64(len(p))
	if off < 0 || end > a.size {
		return fmt.Errorf("read of bytes %d to %d: the object ends at %d", off, end, a.size)
	}
	if below := min(end, a.base) - off; below > 0 {
		if err := a.o.ReadAt(ctx, p[:below], off); err != nil {
			return err
		}
	}
	for _, s := range append([]patch{{a.base, end}}, a.patched...) {
		if from, to := max(s.off, off), min(s.end, end); from < to {
			if _, err := a.f.ReadAt(p[from-off:to-off], from); err != nil {
				return err
			}
		}
	}
	return nil
}
