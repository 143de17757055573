// Package listing yields the names of an archive in the order of buckets and directory pages,
// whatever their order in the format.
package listing

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"syscall"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

// Place returns the position of an entry in a listing of the directory that contains it: its name
// there, with a slash at the end if it is a directory. This is the order of a bucket's keys,
// "a-b" before "a/x". Two entries have the same place only if one is a directory and the other a
// file whose name ends in a slash, which is not a path.
func Place(dir string, e format.Entry) string {
	name := e.Name
	if dir != "." {
		name = strings.TrimPrefix(name, dir+"/")
	}
	if e.Kind == format.Dir {
		name += "/"
	}
	return name
}

// A Lister is the part of a format.Reader that lists directories.
type Lister interface {
	Lookup(ctx context.Context, name string) (format.Entry, error)
	ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error]
	Can() format.Abilities
}

// ReadDirFrom yields the entries directly in dir, in the byte order of [Place], from the first
// place on that is not less than from. A file that has entries below it comes twice, as a file and
// as a directory. If r cannot list from a given place, about every ten thousand yielded entries
// cost a walk through all of dir, and memory for as many entries.
func ReadDirFrom(ctx context.Context, r Lister, dir, from string) iter.Seq2[format.Entry, error] {
	if seek := r.Can().ReadDirFrom; seek != nil {
		return seekDir(ctx, r, seek, dir, from)
	}
	return selectDir(ctx, r, dir, from)
}

type readDirFrom = func(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error]

// seekDir yields each directory after the entries that sort between its name and its name with a
// slash. The name of each waiting directory begins with the name of the one that waited before
// it, so the last one is yielded first.
func seekDir(ctx context.Context, r Lister, seek readDirFrom, dir, from string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		waiting, err := passed(ctx, r, seek, dir, from)
		if err != nil {
			yield(format.Entry{}, err)
			return
		}
		for e, err := range seek(ctx, dir, from) {
			if err != nil {
				yield(e, err)
				return
			}
			at := Place(dir, e)
			for n := len(waiting) - 1; n >= 0 && Place(dir, waiting[n]) < at; n-- {
				if !yield(waiting[n], nil) {
					return
				}
				waiting = waiting[:n]
			}
			if e.Kind != format.Dir {
				if !yield(e, nil) {
					return
				}
			} else if !slices.ContainsFunc(waiting, func(w format.Entry) bool { return w.Name == e.Name }) {
				waiting = append(waiting, e)
			}
		}
		for _, e := range slices.Backward(waiting) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// passed returns the directories whose names are less than from, but not if a slash is appended:
// "a" for "a-b".
func passed(ctx context.Context, r Lister, seek readDirFrom, dir, from string) (found []format.Entry, err error) {
	for i := 1; i < len(from); i++ {
		if from[i] > '/' || from[i] == '/' && i+1 < len(from) {
			continue
		}
		name := from[:i]
		if name == "." {
			continue // dir itself
		}
		if strings.Contains(name, "/") && (dir != "." || naming.ValidPath(name)) {
			continue
		}
		if dir != "." {
			name = dir + "/" + name
		}
		e, err := r.Lookup(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.Kind != format.Dir {
			any := false
			for _, err := range seek(ctx, name, "") {
				any = err == nil
				break
			}
			if !any {
				continue
			}
			e = format.Entry{Name: name, Kind: format.Dir}
		}
		found = append(found, e)
	}
	return found, nil
}

// How many entries of an unordered directory are kept in memory: at first, and at most.
const (
	selectedFirst = 1 << 10
	selectedMost  = 1 << 14
)

// selectDir walks a directory repeatedly, and each time yields the next entries in order.
func selectDir(ctx context.Context, r Lister, dir, from string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for room := selectedFirst; ; room = min(4*room, selectedMost) {
			found, more, err := selectFrom(ctx, r, dir, from, room)
			if err != nil {
				yield(format.Entry{}, err)
				return
			}
			for _, x := range found {
				if !yield(x.e, nil) {
					return
				}
				from = x.at + "\x00"
			}
			if !more {
				return
			}
		}
	}
}

type inPlace struct {
	at string
	e  format.Entry
}

// selectFrom returns the first entries whose place is not less than from, at most room of them, and
// whether there are more.
func selectFrom(ctx context.Context, r Lister, dir, from string, room int) (found []inPlace, more bool, err error) {
	byPlace := func(a, b inPlace) int { return strings.Compare(a.at, b.at) }
	for e, err := range r.ReadDir(ctx, dir) {
		if err != nil {
			return nil, false, err
		}
		at := Place(dir, e)
		if at < from || more && at >= found[room-1].at && len(found) == room {
			continue
		}
		if found = append(found, inPlace{at, e}); len(found) == 2*room {
			slices.SortStableFunc(found, byPlace)
			clear(found[room:])
			found, more = found[:room], true
		}
	}
	slices.SortStableFunc(found, byPlace)
	if len(found) > room {
		found, more = found[:room], true
	}
	return found, more, nil
}

// A ReadDir is ReadDirFrom for a given reader.
type ReadDir func(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error]

// Keys yields entries as a bucket would list them: all entries except directories whose names begin
// with prefix and are not less than from, in the byte order of names.
func (read ReadDir) Keys(ctx context.Context, prefix, from string) iter.Seq2[format.Entry, error] {
	k := keys{ctx, read, prefix, max(prefix, from)}
	return func(yield func(format.Entry, error) bool) {
		if !strings.HasPrefix(k.from, prefix) {
			return
		}
		// A name that is not a path is in the root, so it can sort between the names in the
		// directory that it seems to be in.
		next, stop := iter.Pull2(read(ctx, ".", upToSlash(k.from)))
		defer stop()
		e, err, ok := next()
		for ok && err == nil {
			here := e
			e, err, ok = next()
			more, _ := k.take(here, yield, func() bool {
				return !naming.ValidPath(here.Name) || k.below(here.Name, func(key format.Entry, kerr error) bool {
					for ok && err == nil && kerr == nil && e.Name < key.Name && (e.Kind != format.Dir || !naming.ValidPath(e.Name)) {
						if e.Kind != format.Dir && e.Name >= k.from && strings.HasPrefix(e.Name, prefix) && !yield(e, nil) {
							return false
						}
						e, err, ok = next()
					}
					return yield(key, kerr)
				})
			})
			if !more {
				return
			}
		}
		if ok && err != nil {
			yield(format.Entry{}, err)
		}
	}
}

// keys are the parameters of ReadDir.Keys.
type keys struct {
	ctx          context.Context
	read         ReadDir
	prefix, from string
}

// take yields an entry that is a key or, if it is a directory, the entries below it. It reports
// whether the directory may have more, and whether the caller wants more.
func (k keys) take(e format.Entry, yield func(format.Entry, error) bool, below func() bool) (more, wanted bool) {
	at := e.Name + "/"
	switch {
	case e.Kind != format.Dir && e.Name < k.from:
		return true, true
	case e.Kind != format.Dir && !strings.HasPrefix(e.Name, k.prefix):
		return false, true
	case e.Kind != format.Dir:
		wanted = yield(e, nil)
	case !strings.HasPrefix(at, k.prefix) && !strings.HasPrefix(k.prefix, at):
		return at <= k.prefix, true
	default:
		wanted = below()
	}
	return wanted, wanted
}

// below yields the keys below dir, which is not the root, and reports whether to go on.
func (k keys) below(dir string, yield func(format.Entry, error) bool) bool {
	rest, ok := strings.CutPrefix(k.from, dir+"/")
	if !ok && k.from > dir+"/" {
		return true // all keys below dir are less than from
	} else if !ok {
		rest = ""
	}
	for e, err := range k.read(k.ctx, dir, upToSlash(rest)) {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return true
		}
		if err != nil {
			yield(e, err)
			return false
		}
		if more, wanted := k.take(e, yield, func() bool { return k.below(e.Name, yield) }); !more {
			return wanted
		}
	}
	return true
}

// upToSlash returns s up to and including its first slash, or all of s if it has none.
func upToSlash(s string) string {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i+1]
	}
	return s
}

// Below yields every entry of r below a directory, in stored order.
func Below(ctx context.Context, r format.Reader, dir string) iter.Seq2[format.Entry, error] {
	if below := r.Can().EntriesBelow; below != nil {
		return below(ctx, dir)
	}
	return Only(r.Entries(ctx), func(e format.Entry) bool { return strings.HasPrefix(e.Name, dir+"/") })
}

// Only yields the entries that are wanted.
func Only(entries iter.Seq2[format.Entry, error], wanted func(format.Entry) bool) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for e, err := range entries {
			if err == nil && !wanted(e) {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
