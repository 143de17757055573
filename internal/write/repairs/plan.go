// Package repairs carries out the repair plans of formats, and plans repairs from a second copy of
// an archive.
package repairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Apply writes the archive called name, as repaired by plan, to a new object called out, which may
// be in a different store. It appears complete or not at all.
func Apply(ctx context.Context, st store.Store, name string, plan format.Plan, outStore store.Store, out string) error {
	if plan.Build != nil {
		return build(ctx, plan, outStore, out, outStore == st && out == name)
	}
	obj, info, err := storekit.OpenInfo(ctx, st, name)
	if err != nil && !plan.Changes() {
		return copyAll(ctx, st, name, outStore, out, err)
	}
	if err != nil {
		return err
	}
	defer obj.Close()
	w, err := storekit.Create(ctx, outStore, out)
	if err != nil {
		return err
	}
	defer w.Abort()
	at := int64(0)
	for _, e := range plan.Edits {
		if e.Object != name {
			return fmt.Errorf("the repair changes %s, not only %s: %w", e.Object, name, errors.ErrUnsupported)
		}
		if e.Off < at || e.Len < 0 || e.Off+e.Len > info.Size {
			return fmt.Errorf("invalid repair: bytes %d+%d of an object of %d, after byte %d", e.Off, e.Len, info.Size, at)
		}
		if err := storekit.WriteRange(ctx, w, obj, at, e.Off-at); err != nil {
			return err
		}
		if e.Write != nil {
			if err := e.Write(writerOnly{w}); err != nil {
				return err
			}
		}
		at = e.Off + e.Len
	}
	if err := storekit.WriteRange(ctx, w, obj, at, info.Size-at); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// copyAll copies the objects of an archive that is a folder. If there are none, it returns why.
func copyAll(ctx context.Context, st store.Store, name string, outStore store.Store, out string, why error) error {
	name = strings.TrimSuffix(name, "/")
	var all []string
	for info, err := range storekit.List(ctx, st, name+"/") {
		if err != nil {
			return errors.Join(why, err)
		}
		all = append(all, info.Name)
	}
	if len(all) == 0 {
		return why
	}
	return build(ctx, format.Plan{Build: func(ctx context.Context, to store.Store, out string, _ bool) error {
		for _, n := range all {
			if err := Apply(ctx, st, n, format.Plan{}, to, out+strings.TrimPrefix(n, name)); err != nil {
				return err
			}
		}
		return nil
	}}, outStore, strings.TrimSuffix(out, "/"), false)
}

// build writes an archive of several objects, which appear together.
func build(ctx context.Context, plan format.Plan, st store.Store, name string, inPlace bool) (err error) {
	stage := storekit.NewStage(st)
	if !inPlace {
		if err := stage.Vacant(ctx, name); err != nil {
			return err
		}
	}
	if plan.Place != nil {
		place, release, refused := plan.Place(ctx, st, name)
		if refused != nil {
			return refused
		}
		defer func() { err = errors.Join(err, release()) }()
		stage.Store, st = place, place
	}
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
			err = errors.Join(err, storekit.Remove(ctx, st, n))
		}
	}
	return err
}

// Backup copies what a plan changes of an archive to a place beside it, under its name and
// suffix. It fails if something else exists there: a backup never replaces a different backup. It
// completes a backup that a killed process began. It does nothing if the plan keeps a backup
// itself.
func Backup(ctx context.Context, st store.Store, name, suffix string, plan format.Plan) error {
	if plan.KeepsBackup {
		return nil
	}
	name = strings.TrimSuffix(name, "/")
	backup, changed := name+suffix, []string{name}
	if plan.Build != nil {
		changed = plan.Replaces
	}
	var missing []string
	for _, n := range changed {
		there, err := kit.Alike(ctx, st, n, backup+strings.TrimPrefix(n, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, n)
		case err != nil:
			return err
		case !there:
			return fmt.Errorf("%s exists already: move it away first", backup)
		}
	}
	if len(missing) == len(changed) {
		if err := storekit.NewStage(st).Vacant(ctx, backup); err != nil {
			return err
		}
	}
	for _, n := range missing {
		if err := Apply(ctx, st, n, format.Plan{}, st, backup+strings.TrimPrefix(n, name)); err != nil {
			return err
		}
	}
	return nil
}

// writerOnly keeps a plan from committing.
type writerOnly struct{ io.Writer }
