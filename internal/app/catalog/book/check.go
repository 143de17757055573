package book

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store/storekit"
)

// fleetFolders are folders of a catalogue that belong to fleets.
var fleetFolders = []string{"work", "left", "retired", "erased"}

// Check reads all commits, states and runs, and looks for objects that belong to nothing.
func (b *Book) Check(ctx context.Context, report func(problem string)) error {
	_, err := b.check(ctx, report)
	return err
}

// check is Check, and returns the state that the commits make.
func (b *Book) check(ctx context.Context, report func(problem string)) (made *State, err error) {
	s, err := b.State(ctx)
	if err == nil {
		s, err = b.full(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	said := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		report(err.Error())
		return nil
	}
	// The commits must lead to the state.
	is, hashes, gap := &State{}, map[int64]string{}, false
	walk := func() error {
		for !gap {
			n, err := b.next(ctx, is)
			if errors.Is(err, errErased) {
				n, err = b.leap(ctx, is, s.Floor, hashes)
			}
			if is.Number >= s.Number && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
				return nil
			}
			if gap = err != nil; gap {
				return said(err)
			}
			if is = n; n.Number == s.Number {
				if made = n; !n.says(s) {
					report("the head is not what the commits make")
				}
			}
			hashes[n.Number] = n.Hash
		}
		return nil
	}
	if err := walk(); err != nil {
		return nil, err
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
				return nil, err
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
	var named []Record // which name a commit
	for info, err := range storekit.List(ctx, b.st, b.dir) {
		if errors.Is(err, errors.ErrUnsupported) {
			return made, nil
		}
		if err != nil {
			return nil, b.fail("", err)
		}
		name := info.Name[len(b.dir):]
		n, ok := numbered(path.Base(name))
		switch path.Dir(name) {
		case "commits":
			if !ok {
				report(fmt.Sprintf("%s does not belong to the catalogue", name))
			}
			named = append(named, Record{Object: info.Name, Commit: n})
		case "states":
			if _, err := b.stored(ctx, n); err != nil && !errors.Is(err, fs.ErrNotExist) {
				if err := said(err); err != nil {
					return nil, err
				}
			}
		case "signed":
			if _, err := b.sealed(ctx, path.Base(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				if err := said(err); err != nil {
					return nil, err
				}
			}
		case "runs": // others may be in use by readers, or be written
			base, _, _ := strings.Cut(path.Base(name), "-")
			if n, err := strconv.ParseInt(base, 10, 64); err == nil {
				named = append(named, Record{Object: info.Name, Commit: n})
			}
		default:
			if folder, _, _ := strings.Cut(name, "/"); !used[name] && !slices.Contains(fleetFolders, folder) {
				report(fmt.Sprintf("%s does not belong to the catalogue", name))
			}
		}
	}
	// What lies there may have come with later commits, which must be there then.
	beside, _, err := Records(ctx, b.st, path.Dir(b.Name()), func(string) bool { return false })
	if err == nil {
		err = walk()
	} else {
		err = said(err)
	}
	named = append(named, beside...)
	slices.SortStableFunc(named, func(a, b Record) int { return cmp.Compare(b.Commit, a.Commit) })
	for _, r := range named {
		if gap || err != nil {
			break
		}
		if r.Catalog == "" {
			r.Hash = hashes[r.Commit]
		} else if r.Catalog != s.Catalog {
			continue
		}
		if err := r.isOf(is.Number, hashes[r.Commit]); err != nil {
			report(err.Error())
			break // the others say the same
		}
	}
	return made, err
}

// says reports whether two states say the same, wherever they were read.
func (s *State) says(of *State) bool {
	text := func(s State) []byte {
		s.Tails, s.Stored, s.Elsewhere = nil, 0, 0
		b, _ := json.Marshal(s) // states are made of JSON
		return b
	}
	return bytes.Equal(text(*s), text(*of))
}
