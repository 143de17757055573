package shelf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
)

// A stem maps one root of archives to a part of the tree: names with a given
// prefix are paths with a given prefix, in some archives.
type stem struct {
	names, paths string
	in           catalog.Scope
}

func (c stem) path(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, c.names)
	return c.paths + rest, ok
}

func (c stem) name(path string) string { return c.names + path[len(c.paths):] }

type reader struct {
	s      *Shelf
	bucket string // SCHEME/BUCKET; empty for the tree of all files

	mu    sync.Mutex
	stems []stem
	count int // Shelf.count when the stems were found
}

func (s *Shelf) reader(ctx context.Context, name string) (format.Reader, error) {
	r := &reader{s: s, count: -1}
	if name != Tree {
		r.bucket = strings.TrimPrefix(name, buckets)
		stems, err := r.find(ctx)
		all, terr := r.through(ctx)
		if err = cmp.Or(err, terr); err == nil && len(stems)+len(all) == 0 {
			err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *reader) find(ctx context.Context) ([]stem, error) {
	if r.bucket == "" {
		return []stem{{}}, nil
	}
	all, err := r.s.archives(ctx)
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	count := r.s.count
	r.s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == count {
		return r.stems, nil
	}
	type key struct{ names, paths string }
	of := map[key]map[int64]bool{}
	for _, a := range all {
		for _, root := range a.Roots.All() {
			scheme, bucket, prefix, ok := place(root.Address)
			if !ok || scheme+"/"+bucket != r.bucket {
				continue
			}
			k := key{prefix, root.Prefix}
			if of[k] == nil {
				of[k] = map[int64]bool{}
			}
			of[k][a.ID] = true
		}
	}
	r.stems, r.count = nil, count
	for k, ids := range of {
		c := stem{names: k.names, paths: k.paths}
		if len(of) > 1 || len(ids) < len(all) { // otherwise all archives count, and no filter is needed
			c.in = func(id int64) bool { return ids[id] }
		}
		r.stems = append(r.stems, c)
	}
	return r.stems, nil
}

// entry makes an entry from a location. If whole is set, it adds the fields
// that only the archive's own index has.
func (r *reader) entry(ctx context.Context, name string, l catalog.Location, whole bool) (format.Entry, error) {
	e := format.Entry{Name: name, Kind: l.Kind, Size: l.Size, Digest: l.Digest, ModTime: l.Modified, Ref: l}
	headers, err := r.s.c.HeadersOf(ctx, l)
	if err != nil {
		return e, err
	}
	e.Attr = l.Attributes(headers)
	if !whole || r.s.c.Signed().Sum != "" { // what the archive itself says is not signed
		return e, nil
	}
	a, err := r.s.archive(ctx, l.Archive)
	if errors.Is(err, fs.ErrNotExist) && a.ID == 0 {
		return e, nil // it has just been replaced: whoever reads the content looks again
	}
	if a.ID == 0 {
		return e, err
	}
	f := format.All().ByName(a.Format)
	if f == nil || l.Raw && f.Keeps&(format.KeepsModes|format.KeepsTimes|format.KeepsOwners) == 0 {
		return e, nil
	}
	own, err := r.s.Own(ctx, l)
	if err != nil {
		if ctx.Err() != nil {
			return e, err
		}
		return e, nil // reading the content returns the error
	}
	e.Mode, e.HasMode, e.ModTime, e.Owner, e.Group, e.Link, e.Fault = own.Mode, own.HasMode, own.ModTime, own.Owner, own.Group, own.Link, own.Fault
	return e, nil
}

// Entry returns the entry in Tree of a file, which need not be the newest of its name.
func (s *Shelf) Entry(ctx context.Context, l catalog.Location) (format.Entry, error) {
	return (&reader{s: s}).entry(ctx, l.Path, l, false)
}

// Own returns what an archive's own index says of a file.
func (s *Shelf) Own(ctx context.Context, l catalog.Location) (format.Entry, error) {
	a, err := s.archive(ctx, l.Archive)
	if a.ID == 0 {
		return format.Entry{}, err
	}
	in, release, err := s.open(ctx, a)
	if err != nil {
		return format.Entry{}, err
	}
	defer release()
	return in.Lookup(ctx, l.Path)
}

func (r *reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if name == "." {
		return format.Entry{Name: ".", Kind: format.Dir}, nil
	}
	stems, err := r.find(ctx)
	if err != nil {
		return format.Entry{}, err
	}
	var newest catalog.Found
	gone := false
	for _, c := range stems {
		path, ok := c.path(name)
		if !ok {
			continue
		}
		found, err := r.s.c.NewestIn(ctx, path, c.in)
		if err == nil && found.Archive > newest.Archive {
			newest = found
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return format.Entry{}, err
		}
		gone = gone || errors.Is(err, catalog.ErrDeleted)
	}
	if newest.Archive > 0 {
		return r.entry(ctx, name, newest.Location, true)
	}
	if !gone || r.bucket != "" { // a bucket of a plan may have it again
		if e, err := r.atSource(ctx, name); !errors.Is(err, fs.ErrNotExist) {
			return e, err
		}
	}
	if naming.ValidPath(name) {
		for _, err := range r.keys(ctx, name+"/", "", false) {
			return format.Entry{Name: name, Kind: format.Dir}, err
		}
	}
	return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

type item struct {
	name  string // ends in a slash if it is a folder
	where catalog.Location
	dir   bool
	at    *format.Entry // nil unless it is read from a source
}

// keys yields the items whose names begin with prefix, by name, starting at
// from.
func (r *reader) keys(ctx context.Context, prefix, from string, whole bool) iter.Seq2[format.Entry, error] {
	between := r.s.c.Between
	if r.bucket == "" && r.s.o.Source != nil {
		between = func(ctx context.Context, from, before string, _ catalog.Scope) iter.Seq2[catalog.Location, error] {
			return r.s.c.BetweenAll(ctx, from, before)
		}
	}
	return r.merged(ctx, whole, func(x *source) iter.Seq2[item, error] {
		return x.originals(ctx, prefix, from, false)
	}, func(c stem) iter.Seq2[item, error] {
		// Names that begin with both.
		first, last := max(prefix, from, c.names), catalog.After(prefix)
		if !strings.HasPrefix(prefix, c.names) && !strings.HasPrefix(c.names, prefix) {
			return nil
		}
		if end := catalog.After(c.names); last == "" || end != "" && end < last {
			last = end
		}
		if last != "" && first >= last {
			return nil
		}
		begin, ok := c.path(first)
		if !ok {
			return nil
		}
		before := catalog.After(c.paths)
		if last != "" && strings.HasPrefix(last, c.names) {
			before, _ = c.path(last)
		}
		return func(yield func(item, error) bool) {
			for l, err := range between(ctx, begin, before, c.in) {
				x := item{where: l}
				if err == nil {
					x.name = c.name(l.Path)
				}
				if !yield(x, err) || err != nil {
					return
				}
			}
		}
	})
}

// list yields the items directly below a folder, by name. The name of a folder
// ends in a slash.
func (r *reader) list(ctx context.Context, folder, from string) iter.Seq2[format.Entry, error] {
	if r.bucket == "" && r.s.o.Source != nil {
		return r.folders(ctx, folder, from)
	}
	return r.merged(ctx, false, func(x *source) iter.Seq2[item, error] {
		return x.originals(ctx, folder, from, true)
	}, func(c stem) iter.Seq2[item, error] {
		if deeper, ok := strings.CutPrefix(c.names, folder); ok && deeper != "" {
			// All of the stem is in one folder there.
			name, _, _ := strings.Cut(deeper, "/")
			if name = folder + name + "/"; name < from {
				return nil
			}
			return func(yield func(item, error) bool) {
				for _, err := range r.s.c.Between(ctx, c.paths, catalog.After(c.paths), c.in) {
					yield(item{name: name, dir: true}, err)
					return
				}
			}
		}
		path, ok := c.path(folder)
		if !ok {
			return nil
		}
		begin, _ := c.path(max(folder, from))
		return func(yield func(item, error) bool) {
			for l, err := range r.s.c.ListFrom(ctx, path, begin, c.in) {
				x := item{where: l.Location, dir: l.Folder}
				if err == nil {
					x.name = c.name(l.Path)
				}
				if !yield(x, err) || err != nil {
					return
				}
			}
		}
	})
}

// folders is list by the keys: a folder that only the source has is there if something below it was not deleted.
func (r *reader) folders(ctx context.Context, folder, from string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for at, more := max(folder, from), true; more; {
			more = false
			for e, err := range r.keys(ctx, folder, at, false) {
				if err == nil {
					var name string
					if name, _, more = strings.Cut(e.Name[len(folder):], "/"); more {
						e = format.Entry{Name: folder + name, Kind: format.Dir}
						at = catalog.After(e.Name + "/")
					}
				}
				if !yield(e, err) || err != nil {
					return
				}
				if more {
					more = at != ""
					break
				}
			}
		}
	}
}

// merged yields the items of all stems by name, and for each name the newest.
func (r *reader) merged(ctx context.Context, whole bool, at func(*source) iter.Seq2[item, error], of func(stem) iter.Seq2[item, error]) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		stems, err := r.find(ctx)
		sources, serr := r.through(ctx)
		if err = cmp.Or(err, serr); err != nil {
			yield(format.Entry{}, err)
			return
		}
		var all []iter.Seq2[item, error]
		for _, c := range stems {
			if seq := of(c); seq != nil {
				all = append(all, seq)
			}
		}
		for _, x := range sources {
			if seq := at(x); seq != nil {
				all = append(all, seq)
			}
		}
		for x, err := range merge(all) {
			var e format.Entry
			switch {
			case err != nil:
			case x.where.Gone:
				continue
			case x.at != nil:
				e = *x.at
			case x.dir:
				e = format.Entry{Name: strings.TrimSuffix(x.name, "/"), Kind: format.Dir}
			default:
				e, err = r.entry(ctx, x.name, x.where, whole)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// merge merges several ordered sequences. For each name it yields the newest
// item.
func merge(all []iter.Seq2[item, error]) iter.Seq2[item, error] {
	if len(all) == 1 {
		return all[0]
	}
	type head struct {
		item
		next func() (item, error, bool)
	}
	return func(yield func(item, error) bool) {
		var heads []*head
		for _, seq := range all {
			next, stop := iter.Pull2(seq)
			defer stop()
			heads = append(heads, &head{next: next})
		}
		advance := func(h *head) (more bool, err error) {
			h.item, err, more = h.next()
			return more, err
		}
		var err error
		heads = slices.DeleteFunc(heads, func(h *head) bool {
			more, herr := advance(h)
			if herr != nil {
				err = herr
			}
			return !more
		})
		for err == nil && len(heads) > 0 {
			first := heads[0].item
			for _, h := range heads[1:] {
				if h.name < first.name || h.name == first.name && h.where.Archive > first.where.Archive {
					first = h.item
				}
			}
			if !yield(first, nil) {
				return
			}
			heads = slices.DeleteFunc(heads, func(h *head) bool {
				if h.name != first.name || err != nil {
					return false
				}
				var more bool
				more, err = advance(h)
				return !more
			})
		}
		if err != nil {
			yield(item{}, err)
		}
	}
}

// Entries yields files only: folders are implied by names.
func (r *reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return r.keys(ctx, "", "", true)
}

func (r *reader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return r.ReadDirFrom(ctx, dir, "")
}

func (r *reader) ReadDirFrom(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	folder := ""
	if dir != "." {
		folder = dir + "/"
	}
	return func(yield func(format.Entry, error) bool) {
		some := false
		for e, err := range r.list(ctx, folder, folder+from) {
			some = true
			switch {
			case err != nil:
				yield(e, err)
				return
			case e.Kind == format.Dir && e.Name == "" || dir == "." && !naming.ValidPath(e.Name):
				// These are in no folder: they are in the root under their complete names.
				if dir != "." {
					continue
				}
				prefix := e.Name
				if e.Kind == format.Dir {
					prefix += "/"
				}
				for odd, err := range r.keys(ctx, prefix, from, false) {
					if !yield(odd, err) || err != nil {
						return
					}
				}
				continue
			case !naming.ValidPath(e.Name):
				continue // only its complete name leads to it
			}
			if !yield(e, nil) {
				return
			}
		}
		if some || dir == "." || from != "" {
			return
		}
		yield(format.Entry{}, r.noFolder(ctx, dir))
	}
}

// noFolder returns the error for a folder with no items.
func (r *reader) noFolder(ctx context.Context, dir string) error {
	if _, err := r.Lookup(ctx, dir); err != nil {
		return err
	}
	return &fs.PathError{Op: "readdir", Path: dir, Err: syscall.ENOTDIR}
}

func (r *reader) Can() format.Abilities {
	return format.Abilities{Run: r.Run, ReadDirFrom: r.ReadDirFrom, Root: r.s.c.Signed().Sum,
		Keys: func(ctx context.Context, prefix, from string) iter.Seq2[format.Entry, error] {
			return r.keys(ctx, prefix, from, false)
		},
		EntriesBelow: func(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
			return r.keys(ctx, dir+"/", "", true)
		},
		EntriesFrom: func(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
			return r.keys(ctx, "", name, true)
		}}
}

// Run returns the place of a content, if its archive was checked a moment ago.
func (r *reader) Run(e format.Entry) (format.Extent, bool) {
	l, ok := e.Ref.(catalog.Location)
	if !ok || !l.Raw || l.Size == 0 || !l.Kind.HasContent() {
		return format.Extent{}, false
	}
	r.s.mu.Lock()
	k := r.s.known[l.Archive]
	ok = k != nil && !k.gone && time.Since(k.at) < fresh && r.s.fixed.IsZero()
	r.s.mu.Unlock()
	return format.Extent{Size: l.Size, Object: objectOf(l.Archive), Off: l.Off, Len: l.Size}, ok
}

func objectOf(archive int64) string { return archives + strconv.FormatInt(archive, 10) }

// now returns the current place of a content: archives that are compacted
// disappear, and their files are then in other archives.
func (r *reader) now(ctx context.Context, e format.Entry) (catalog.Location, error) {
	l, ok := e.Ref.(catalog.Location)
	if !ok {
		return l, &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
	}
	_, err := r.s.archive(ctx, l.Archive)
	if !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	for now, err := range r.s.c.Versions(ctx, l.Path, l.Path+"\x00") {
		if err != nil || now.Content() == l.Content() {
			return now, err
		}
	}
	return l, fmt.Errorf("%s: its archive was replaced by another: %w", format.Escape(e.Name), fs.ErrNotExist)
}

func (r *reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if n <= 0 || !e.Kind.HasContent() {
			return
		}
		if o, ok := e.Ref.(*Original); ok {
			r.s.extents(*o, off, n)(yield)
			return
		}
		l, err := r.now(ctx, e)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		if l.Raw {
			yield(r.s.beside(ctx, l, "", format.Extent{Size: l.Size, Object: objectOf(l.Archive), Off: l.Off, Len: l.Size}))
			return
		}
		a, err := r.s.archive(ctx, l.Archive)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		in, release, err := r.s.open(ctx, a)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		defer release()
		own, err := in.Lookup(ctx, l.Path)
		if err == nil && own.Fault != nil {
			err = &format.CorruptError{Format: a.Format, Problem: *own.Fault}
		}
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		for x, err := range in.Source().Reader.Extents(ctx, own, off, n) {
			if err == nil {
				below := x.Object
				rest, inside := strings.CutPrefix(below, in.Name())
				inside = inside && !x.External
				if x.External { // the rules of the archive itself allow or refuse this
					below = "/" + below
				}
				if x.Object = objectOf(l.Archive); x.External || below != in.Name() {
					x.Object += "/" + below
				}
				if x.External = false; inside {
					x, err = r.s.beside(ctx, l, rest, x)
				}
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

func (r *reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}

// About names no volumes: it would have to request the size of each.
func (r *reader) About(ctx context.Context) (format.About, error) {
	all, err := r.s.archives(ctx)
	var files, bytes int64
	for _, a := range all {
		files, bytes = files+a.Entries, bytes+a.Size
	}
	return format.About{Facts: [][2]string{{"archives", fmt.Sprint(len(all))}, {"files in them", fmt.Sprint(files)}, {"bytes of them", fmt.Sprint(bytes)}}}, err
}

func (r *reader) Close() error { return nil }
