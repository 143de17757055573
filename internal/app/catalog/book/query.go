package book

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
)

// Address returns an address that a reader can open.
func (b *Book) address(stored text) string {
	rest, ok := strings.CutPrefix(string(stored), "./")
	if !ok {
		return string(stored)
	}
	folder := b.folder()
	if store.Scheme(folder) != "" {
		rest = (&url.URL{Path: rest}).EscapedPath()
	}
	return folder + rest
}

// folder is the address of the folder of the catalogue, with a slash at its end.
func (b *Book) folder() string {
	name := strings.TrimSuffix(b.dir, "/")
	at := ""
	if of := b.st.Can().Address; of != nil {
		at = of(name)
	}
	return at[:strings.LastIndexByte(at, '/')+1]
}

// relative returns what is stored of an address. A path below the folder has no escapes.
func (b *Book) relative(address string) text {
	folder := b.folder()
	rest, ok := strings.CutPrefix(address, folder)
	if folder == "" || !ok {
		return text(address)
	}
	if store.Scheme(folder) != "" {
		plain, err := url.PathUnescape(rest)
		if err != nil {
			return text(address)
		}
		rest = plain
	}
	return text("./" + rest)
}

func (b *Book) record(a *Archive) catalog.Archive {
	return catalog.Archive{ID: int64(a.ID), Address: b.address(a.Address), Format: a.Format, Size: a.Size, Version: string(a.Version), Entries: a.Entries, Added: a.Added, Verified: a.Verified, Roots: a.Roots}
}

// Archives returns all archives, the oldest first.
func (b *Book) Archives(ctx context.Context) (all []catalog.Archive, err error) {
	s, err := b.State(ctx)
	if err == nil {
		s, err = b.full(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	for i := range s.Archives {
		all = append(all, b.record(&s.Archives[i]))
	}
	return all, nil
}

// ArchiveOf returns the record of the archive with an ID, or an error that wraps fs.ErrNotExist.
func (b *Book) ArchiveOf(ctx context.Context, id int64) (catalog.Archive, error) {
	s, err := b.State(ctx)
	if err != nil {
		return catalog.Archive{}, err
	}
	if s.dropped[ID(id)] {
		return catalog.Archive{}, catalog.Absent(fmt.Sprintf("archive %d", id))
	}
	b.mu.Lock()
	a, ok := b.shown[ID(id)]
	b.mu.Unlock()
	if ok && s.Elsewhere != 0 {
		return a, nil
	}
	if s, err = b.full(ctx, s); err != nil {
		return catalog.Archive{}, err
	}
	if i, ok := s.at[ID(id)]; ok {
		return b.record(&s.Archives[i]), nil
	}
	return catalog.Archive{}, catalog.Absent(fmt.Sprintf("archive %d", id))
}

// Archive returns the record of the archive at an address, or an error that wraps fs.ErrNotExist.
func (b *Book) Archive(ctx context.Context, address string) (catalog.Archive, error) {
	s, err := b.State(ctx)
	if err == nil {
		s, err = b.full(ctx, s)
	}
	if err != nil {
		return catalog.Archive{}, err
	}
	if a := s.archiveAt(b.relative(address)); a != nil {
		return b.record(a), nil
	}
	return catalog.Archive{}, catalog.Absent(address)
}

func (s *State) archiveAt(stored text) *Archive {
	for i := range s.Archives {
		if s.Archives[i].Address == stored {
			return &s.Archives[i]
		}
	}
	return nil
}

// location is a row in the form that all catalogues have.
func (b *Book) location(x *rows.Item) catalog.Location {
	id := idOf(x.Archive)
	if x.About != nil {
		b.show(id, x.About, x.Run.Base)
	}
	return catalog.Location{Path: x.Name, Archive: int64(id), Kind: x.Kind, Size: x.Size, Raw: x.Raw, Off: x.Off, Digest: x.Digest, Modified: x.Time, ETag: x.ETag, HeaderText: x.Headers}
}

// mostRemembered is how many archives are remembered that pages have described.
const mostRemembered = 10_000

// show remembers an archive that a page describes, so that the state need not be read for it.
func (b *Book) show(id ID, a *rows.Archive, base int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.shown[id]; ok {
		return
	}
	if len(b.shown) >= mostRemembered {
		clear(b.shown)
	}
	b.shown[id] = catalog.Archive{ID: int64(id), Address: b.address(b.state.moved(text(a.Address), base)), Format: a.Format, Size: a.Size, Version: a.Version}
}

// HeadersOf returns what a service stored with the object of a location.
func (b *Book) HeadersOf(_ context.Context, l catalog.Location) (headers map[string]string, err error) {
	if l.HeaderText == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(l.HeaderText), &headers); err != nil {
		return nil, b.fail("", broken(err))
	}
	return headers, nil
}

// runsWith returns the runs that may have a name.
func (b *Book) runsWith(ctx context.Context, s *State, name string) (all []*rows.Run, err error) {
	every, err := b.runsOf(ctx, s.Runs)
	if err != nil {
		return nil, err
	}
	may := make([]bool, len(every))
	err = pipe.Each(ctx, pipe.All(slices.Collect(counting(len(every)))), len(every), func(ctx context.Context, i int) (err error) {
		// A page of the largest run takes no more than a part of its filter.
		if may[i] = i == 0 && !every[0].FilterNear(); !may[i] {
			may[i], err = every[i].MayHave(ctx, name)
		}
		return err
	})
	for i, r := range every {
		if may[i] {
			all = append(all, r)
		}
	}
	return all, err
}

func counting(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// Holders returns all archives that have a path, the newest first.
func (b *Book) Holders(ctx context.Context, path string) (all []catalog.Found, err error) {
	s, err := b.State(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := b.runsWith(ctx, s, path)
	if err != nil {
		return nil, err
	}
	found := make([][]catalog.Location, len(runs))
	deleted := make([]int64, len(runs)) // up to that sequence
	seqs := make([][]int64, len(runs))
	err = pipe.Each(ctx, pipe.All(slices.Collect(counting(len(runs)))), max(len(runs), 1), func(ctx context.Context, i int) error {
		for x, err := range runs[i].From(ctx, path) {
			if err != nil {
				return err
			}
			if x.Name != path {
				break
			}
			if x.What == rows.Delete {
				deleted[i] = max(deleted[i], x.Seq)
			} else if !s.dropped[idOf(x.Archive)] {
				found[i], seqs[i] = append(found[i], b.location(x)), append(seqs[i], x.Seq)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	gone := slices.Max(append(deleted, 0))
	type version struct {
		catalog.Location
		seq int64
	}
	var versions []version
	for i := range found {
		for k, l := range found[i] {
			if seqs[i][k] >= gone {
				versions = append(versions, version{l, seqs[i][k]})
			}
		}
	}
	slices.SortFunc(versions, func(a, b version) int { return cmp.Or(cmp.Compare(b.seq, a.seq), cmp.Compare(b.Archive, a.Archive)) })
	for _, v := range versions {
		a, err := b.ArchiveOf(ctx, v.Archive)
		if err != nil {
			return nil, err
		}
		all = append(all, catalog.Found{Location: v.Location, In: a})
	}
	return all, nil
}

// Newest returns where the newest file of that path is, or an error that wraps fs.ErrNotExist.
func (b *Book) Newest(ctx context.Context, path string) (catalog.Found, error) {
	return b.NewestIn(ctx, path, nil)
}

// NewestIn is Newest for some archives.
func (b *Book) NewestIn(ctx context.Context, path string, in catalog.Scope) (catalog.Found, error) {
	all, err := b.Holders(ctx, path)
	for _, f := range all {
		if in == nil || in(f.Archive) {
			return f, nil
		}
	}
	return catalog.Found{}, cmp.Or(err, catalog.Absent(path))
}

// Between yields the newest location of each path in [from, before) in the archives of a scope, in
// byte order. If before is empty, there is no upper bound.
func (b *Book) Between(ctx context.Context, from, before string, in catalog.Scope) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		s, err := b.State(ctx)
		var runs []*rows.Run
		if err == nil {
			runs, err = b.runsOf(ctx, s.Runs)
		}
		if err != nil {
			yield(catalog.Location{}, err)
			return
		}
		if len(runs) == 0 {
			return
		}
		done, any := "", false // the name that was yielded or deleted last
		for x, err := range rows.Merged(ctx, runs, from) {
			if err != nil {
				yield(catalog.Location{}, err)
				return
			}
			if before != "" && x.Name >= before {
				return
			}
			if any && x.Name == done {
				continue
			}
			if x.What == rows.Delete {
				done, any = x.Name, true
				continue
			}
			if id := idOf(x.Archive); s.dropped[id] || in != nil && !in(int64(id)) {
				continue
			}
			done, any = x.Name, true
			if !yield(b.location(x), nil) {
				return
			}
		}
	}
}

// ListFrom yields the items directly below a prefix. See [catalog.Catalog.ListFrom].
func (b *Book) ListFrom(ctx context.Context, prefix, from string, in catalog.Scope) iter.Seq2[catalog.Listed, error] {
	return catalog.ListIn(ctx, b.Between, prefix, from, in)
}

// List is ListFrom for all archives, from the beginning.
func (b *Book) List(ctx context.Context, prefix string) iter.Seq2[catalog.Listed, error] {
	return b.ListFrom(ctx, prefix, prefix, nil)
}

// Below yields the newest location of each path that begins with prefix, in byte order.
func (b *Book) Below(ctx context.Context, prefix string) iter.Seq2[catalog.Location, error] {
	return b.Between(ctx, prefix, catalog.After(prefix), nil)
}

// Locations yields all locations of an archive, in byte order of the paths.
func (b *Book) Locations(ctx context.Context, a catalog.Archive) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		s, err := b.State(ctx)
		var runs []*rows.Run
		if err == nil {
			runs, err = b.runsOf(ctx, s.Runs)
		}
		if err != nil {
			yield(catalog.Location{}, err)
			return
		}
		deleted, name := int64(0), ""
		for x, err := range rows.Merged(ctx, runs, "") {
			if err != nil {
				yield(catalog.Location{}, err)
				return
			}
			if x.Name != name {
				deleted, name = 0, x.Name
			}
			if x.What == rows.Delete {
				deleted = max(deleted, x.Seq)
				continue
			}
			if int64(idOf(x.Archive)) != a.ID {
				continue
			}
			l := b.location(x)
			l.Gone = x.Seq < deleted
			if !yield(l, nil) {
				return
			}
		}
	}
}

// Store and Name say where the catalogue is.
func (b *Book) Store() store.Store { return b.st }
func (b *Book) Name() string       { return strings.TrimSuffix(b.dir, "/") }

// Near reports whether the catalogue is on a disk.
func (b *Book) Near() bool { return b.st.Can().Near }
