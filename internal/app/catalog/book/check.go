package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store/storekit"
)

var _ catalog.Files = (*Book)(nil)

// Check reads all commits, states and runs, and looks for objects that belong to nothing.
func (b *Book) Check(ctx context.Context, report func(problem string)) error {
	s, err := b.State(ctx)
	if err == nil {
		s, err = b.full(ctx, s)
	}
	if err != nil {
		return err
	}
	said := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		report(err.Error())
		return nil
	}
	// The commits must lead to the state.
	is := &State{}
	for is.Number < s.Number {
		c, err := b.commit(ctx, is.Number+1)
		if err == nil {
			var n *State
			if n, err = is.after(c.Commit, c.hash); err == nil {
				is = n
				continue
			}
		}
		if err := said(b.fail(commitName(is.Number+1), err)); err != nil {
			return err
		}
		break
	}
	if is.Number == s.Number && (is.Hash != s.Hash || is.Entries != s.Entries || len(is.Archives) != len(s.Archives)) {
		report("the head is not what the commits make")
	}
	entries := map[ID]int64{}
	used := map[string]bool{"head": true}
	for i := range s.Runs {
		r := &s.Runs[i]
		used[r.Object] = true
		run, err := b.open(ctx, r)
		n := int64(0)
		if err == nil {
			for x, rerr := range run.All(ctx) {
				if err = rerr; err != nil {
					break
				}
				n++
				if x.What == rows.Put {
					entries[idOf(x.Archive)]++
				}
			}
		}
		if err == nil && n != r.Rows {
			err = fmt.Errorf("%d rows, expected %d", n, r.Rows)
		}
		if err != nil {
			if err := said(b.fail(r.Object, err)); err != nil {
				return err
			}
		}
	}
	for _, a := range s.Archives {
		if n := entries[a.ID]; n != a.Entries {
			report(fmt.Sprintf("archive %s: expected %d entries, found %d", a.Address, a.Entries, n))
		}
		delete(entries, a.ID)
	}
	for id := range entries {
		if !s.dropped[id] {
			report(fmt.Sprintf("entries of archive %d, which is not there", id))
		}
	}
	for info, err := range storekit.List(ctx, b.st, b.dir) {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return b.fail("", err)
		}
		name := info.Name[len(b.dir):]
		n, ok := numbered(path.Base(name))
		switch path.Dir(name) {
		case "commits":
			if !ok || n > s.Number+1 {
				report(fmt.Sprintf("%s does not belong to the commits before", name))
			}
		case "states":
			if _, err := b.stored(ctx, n); err != nil && !errors.Is(err, fs.ErrNotExist) {
				if err := said(err); err != nil {
					return err
				}
			}
		case "runs": // others may be in use by readers, or be written
		default:
			if !used[name] {
				report(fmt.Sprintf("%s does not belong to the catalogue", name))
			}
		}
	}
	return nil
}
