package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/store"
)

// Repair finds out what is wrong with an archive and what would mend it. It
// changes nothing; [Apply] does. A plan without edits says that nothing needs
// mending.
func Repair(ctx context.Context, st store.Store, name string, o OpenOptions, report func(Problem)) (Plan, *format.Format, error) {
	if !store.IsNear(st) {
		st = cache.Wrap(st, cmp.Or(o.CacheBytes, defaultCache))
	}
	var f *format.Format
	a, err := OpenStore(ctx, st, name, o)
	if a != nil {
		f = a.f
		a.Close()
	} else if f = formatOfBroken(name, o, err); f == nil {
		return Plan{}, nil, err
	}
	if f.Repair == nil {
		return Plan{}, f, fmt.Errorf("%s archives cannot be repaired: %w", f.Name, errors.ErrUnsupported)
	}
	p, err := f.Repair(ctx, st, name, o.inner(), report)
	return p, f, err
}

// Apply writes what plan makes of the archive called name as a new object
// called out, which may be in another store. It appears whole or not at all.
func Apply(ctx context.Context, st store.Store, name string, plan Plan, outStore store.Store, out string) (int64, error) {
	if plan.Build != nil {
		return 0, build(ctx, plan, outStore, out, outStore == st && out == name)
	}
	obj, err := st.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return 0, err
	}
	w, err := store.Create(ctx, outStore, out)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	at := int64(0)
	for _, e := range plan.Edits {
		if e.Object != name {
			return 0, fmt.Errorf("plan changes %s, not only %s: %w", e.Object, name, errors.ErrUnsupported)
		}
		if e.Off < at || e.Len < 0 || e.Off+e.Len > info.Size {
			return 0, fmt.Errorf("plan replaces bytes %d+%d of an object of %d, behind %d", e.Off, e.Len, info.Size, at)
		}
		if err := store.WriteRange(ctx, w, obj, at, e.Off-at); err != nil {
			return 0, err
		}
		if e.Write != nil {
			if err := e.Write(writerOnly{w}); err != nil {
				return 0, err
			}
		}
		at = e.Off + e.Len
	}
	if err := store.WriteRange(ctx, w, obj, at, info.Size-at); err != nil {
		return 0, err
	}
	done, err := w.Commit(ctx)
	return done.Size, err
}

// build writes an archive of several objects, which appear together.
func build(ctx context.Context, plan Plan, st store.Store, name string, inPlace bool) error {
	if !inPlace {
		if err := vacant(ctx, st, name); err != nil {
			return err
		}
	}
	stage := store.NewStage(st)
	defer stage.Discard()
	if err := plan.Build(ctx, stage, name, inPlace); err != nil {
		return err
	}
	made, err := stage.Names(), stage.Publish(ctx)
	if err != nil || !inPlace {
		return err
	}
	for _, n := range plan.Drops {
		if !slices.Contains(made, n) {
			err = errors.Join(err, store.Remove(ctx, st, n))
		}
	}
	return err
}

// Backup copies what a plan changes of an archive beside it, under its name and
// suffix, where nothing may be yet: a backup is never the price of another. A plan
// that keeps a backup itself needs none.
func Backup(ctx context.Context, st store.Store, name, suffix string, plan Plan) error {
	if plan.KeepsBackup {
		return nil
	}
	name = strings.TrimSuffix(name, "/")
	backup := name + suffix
	if o, err := st.Open(ctx, backup); err == nil {
		_, err := o.Info(ctx)
		o.Close()
		if err == nil {
			return fmt.Errorf("%s is there already: move it away first", backup)
		}
	}
	if plan.Build == nil {
		_, err := Apply(ctx, st, name, Plan{}, st, backup)
		return err
	}
	if err := vacant(ctx, st, backup); err != nil {
		return err
	}
	for _, n := range plan.Replaces {
		if _, err := Apply(ctx, st, n, Plan{}, st, backup+strings.TrimPrefix(n, name)); err != nil {
			return err
		}
	}
	return nil
}

// writerOnly keeps a plan from committing.
type writerOnly struct{ io.Writer }
