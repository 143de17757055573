package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/tree"
	"github.com/holdall/holdall/store"
)

// listed yields what the sources have, in byte order of the paths.
func (j *job) listed(ctx context.Context) iter.Seq2[catalog.Member, error] {
	order := make([]int, len(j.origins))
	for i := range order {
		order[i] = i
	}
	// No prefix begins with another, so whole sources lie one behind the other.
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(j.origins[a].prefix, j.origins[b].prefix) })
	return func(yield func(catalog.Member, error) bool) {
		last, first := "", true
		for _, i := range order {
			o := j.origins[i]
			for info, err := range branches(ctx, o.st, listPage, listHeld) {
				m := catalog.Member{Path: o.prefix + info.Name, Origin: i, Size: info.Size, Version: info.Version}
				switch {
				case err != nil:
					err = fmt.Errorf("list %s: %w", format.Escape(o.address), err)
				case tree.Excluded(m.Path, j.set.Exclude) || strings.HasSuffix(info.Name, "/") && info.Size == 0:
					continue // an object that stands for a folder is implied by what is in it
				case !first && m.Path <= last:
					err = fmt.Errorf("list %s: expected what comes after %s, found %s", format.Escape(o.address), format.Escape(last), format.Escape(m.Path))
				}
				last, first = m.Path, false
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// fresh yields those of listed that are not planned in this version, or were planned
// and could not be packed; it counts the others.
func fresh(listed, planned iter.Seq2[catalog.Member, error], known *int64) iter.Seq2[catalog.Member, error] {
	return func(yield func(catalog.Member, error) bool) {
		next, stop := iter.Pull2(planned)
		defer stop()
		was, err, more := next()
		for m, lerr := range listed {
			for lerr == nil && err == nil && more && was.Path < m.Path {
				was, err, more = next()
			}
			if err := errors.Join(lerr, err); err != nil {
				yield(catalog.Member{}, err)
				return
			}
			if more && was.Path == m.Path && same(was, m) && (was.Outcome == catalog.Pending || was.Outcome == catalog.Packed) {
				*known++
				continue
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// same reports whether two members are the same version of an object.
func same(a, b catalog.Member) bool {
	return a.Size == b.Size && a.Version == b.Version && a.Origin == b.Origin
}

// reachable says why a source cannot be listed, nil if it can. Where it is gone as a
// whole its objects did not vanish.
func (o origin) reachable(ctx context.Context) error {
	for _, err := range store.List(ctx, o.st, "") {
		return err
	}
	return fmt.Errorf("%s: nothing is there: %w", format.Escape(o.address), fs.ErrNotExist)
}
