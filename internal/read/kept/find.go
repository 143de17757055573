package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity"
	signed "github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Suffix is appended to the name of an archive to get the name of its published index.
const Suffix = ".holdall"

// Beside is what the names of objects end in that belong to the archive beside them: its index, its parity and
// its signature.
var Beside = []string{Suffix, parity.Suffix, signed.Suffix}

// Use says where an index of an archive may be. An index that is damaged, or belongs to a
// different version of the archive, is never used. One that was made of a copy is used with care; see
// [Index.Copied].
type Use struct {
	At     string  // the address of an index; if set, no other is searched
	Beside bool    // search one that is published beside the archive
	Folder *Folder // search one that was kept here; nil means no

	// SizeOnly accepts an index of any archive of this length.
	SizeOnly bool
	// Root accepts no index but that of this root, whichever version of the archive it was made of.
	Root string
}

func (u Use) Any() bool { return u.At != "" || u.Beside || u.Folder != nil }

// State says which index an archive is read by, and why an index is ignored.
type State struct {
	Used    string // where it is; empty if there is none
	Ignored string // the index that was found but not used, if there is one
	Why     error
}

// Wanted is how an archive is to be opened.
type Wanted struct {
	Format, View string
	Param        map[string]string
	Formats      format.Formats
}

// suits returns an error if x cannot answer what w needs.
func (w Wanted) suits(x *Index) error {
	f := w.Formats.ByName(x.Format)
	switch {
	case f == nil:
		return fmt.Errorf("it belongs to an archive of format %q", x.Format)
	case w.Format != "" && w.Format != x.Format:
		return fmt.Errorf("it belongs to an archive of format %s, not %s", x.Format, w.Format)
	case x.View != f.ViewOf(w.View):
		return fmt.Errorf("it belongs to the view %q", x.View)
	case !maps.Equal(x.Param, w.Param) && len(x.Param)+len(w.Param) > 0:
		return errors.New("it was written with other options")
	}
	return nil
}

// Find looks for an index of the archive called name in st, and opens it. It returns nil if there
// is none that can be used.
func Find(ctx context.Context, st store.Store, name string, u Use, w Wanted) (*Index, State) {
	f := finder{st: st, name: name, u: u, w: w}
	f.now = sync.OnceValues(func() (Bound, error) { return Bind(ctx, st, name) })
	return f.find(ctx), f.state
}

type finder struct {
	st    store.Store
	name  string
	u     Use
	w     Wanted
	now   func() (Bound, error)
	state State
}

func (f *finder) find(ctx context.Context) *Index {
	if f.u.At != "" {
		st, name, err := store.OpenAddress(ctx, f.u.At)
		if err != nil {
			f.state.Ignored, f.state.Why = f.u.At, err
			return nil
		}
		return f.try(ctx, st, name, store.Redact(f.u.At), false)
	}
	beside := func() *Index {
		return f.try(ctx, f.st, strings.TrimSuffix(f.name, "/")+Suffix, path.Base(f.name)+Suffix, false)
	}
	// A published index may have digests, which an index that was kept here does not. But the
	// latter costs no request.
	near := f.st.Can().Near
	if f.u.Beside && near {
		if x := beside(); x != nil {
			return x
		}
	}
	if f.u.Folder != nil {
		if st, name, ok := f.u.Folder.of(ctx, storekit.AddressOf(f.st, f.name), f.w); ok {
			if x := f.try(ctx, st, name, storekit.AddressOf(st, name), true); x != nil {
				f.u.Folder.touch(name)
				return x
			}
		}
	}
	if f.u.Beside && !near {
		return beside()
	}
	return nil
}

// try opens the index called name in st, if it can be used. If it is one of ours and cannot be
// used, that is not reported.
func (f *finder) try(ctx context.Context, st store.Store, name, shown string, ours bool) *Index {
	workers := 8
	if f.st.Can().Near {
		workers = 2
	}
	guess := tailGuess
	if likely := f.w.Formats.ByExtension(f.name); likely != nil && slices.Contains(likely.Views, "zarr") && !st.Can().Near {
		guess = treeGuess
	}
	var x *Index
	obj, err := st.Open(ctx, name)
	if err == nil {
		x, err = Open(ctx, obj, shown, f.name, workers, guess, st.Can().Near)
	}
	if err == nil {
		if err = f.believe(ctx, x, obj, ours); err == nil {
			f.state.Used = shown
			return x
		}
		x.Close()
	}
	// A bucket that may not be listed denies permission for objects that do not exist.
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || x == nil && !storekit.Temporary(err) && storekit.IsPage(ctx, st, name)
	if !ours && (!missing || f.u.At != "") {
		f.state.Ignored, f.state.Why = shown, err
	}
	return nil
}

// believe returns an error that says why x, which obj has, must not be used. If x is in the folder of this
// machine, the archive must be at its old place, unchanged.
func (f *finder) believe(ctx context.Context, x *Index, obj store.Object, ours bool) error {
	if err := f.w.suits(x); err != nil {
		return err
	}
	if f.u.Root != "" {
		if x.Root != f.u.Root {
			return errors.New("it is not the one that was signed")
		}
		x.trust()
		return nil
	}
	now, err := f.now()
	if err != nil || f.u.SizeOnly && x.Bound.Size == now.Size {
		return err
	}
	if x.Copied, err = x.Bound.Is(now); err != nil || !x.Copied {
		return err
	}
	info, err := obj.Info(ctx)
	switch {
	case err != nil:
		return err
	case x.Bound.Whole != "" && !ours:
		x.Copied = false
		return f.begins(ctx, now.Size, x.Bound.Whole)
	case ours || now.ModTime.After(info.ModTime) && !info.ModTime.IsZero():
		return fmt.Errorf("it was made of an archive of %s, and the archive is newer; make it again, or touch it if the archive is a copy", x.Bound.ModTime.Format(time.RFC3339Nano))
	case x.Bound.Head != "" && now.Head == "" && len(now.Objects) == 0:
		return f.begins(ctx, endLen, x.Bound.Head)
	}
	return nil
}

// begins compares the beginning of an archive with its digest.
func (f *finder) begins(ctx context.Context, n int64, sum string) error {
	head, err := headOf(ctx, f.st, f.name, min(n, wholeLen))
	if got, _ := sumsOfEnd(head); err == nil && got != sum {
		err = errors.New("it belongs to an archive with another beginning")
	}
	return err
}
