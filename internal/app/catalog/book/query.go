package book

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	return catalog.Archive{ID: int64(a.ID), Address: b.address(a.Address), Format: a.Format, Size: a.Size, Version: string(a.Version), Entries: a.Entries, Added: a.Added, Verified: a.Verified, Parity: a.Parity, Roots: a.Roots}
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

// A version is a file in an archive.
type version struct {
	catalog.Location
	seq int64
}

// A look is what a run has of a name.
type look struct {
	run     *rows.Run
	always  bool // even if its filter is far: its page takes no more
	all     []version
	deleted int64 // up to that sequence
}

func (b *Book) look(ctx context.Context, l *look, s *State, path string) error {
	if may, err := l.run.MayHave(ctx, path, l.always); err != nil || !may {
		return err
	}
	for x, err := range l.run.From(ctx, path) {
		switch {
		case err != nil:
			return err
		case x.Name != path:
			return nil
		case x.What == rows.Delete:
			l.deleted = max(l.deleted, x.Seq)
		case !s.dropped[idOf(x.Archive)]:
			l.all = append(l.all, version{b.location(x), x.Seq})
		}
	}
	return nil
}

// Holders returns all archives that have a path, the newest first.
func (b *Book) Holders(ctx context.Context, path string) (all []catalog.Found, err error) {
	s, err := b.State(ctx)
	var runs []*rows.Run
	if err == nil {
		runs, err = b.runsOf(ctx, s.Runs)
	}
	var looks []*look
	for i, r := range runs {
		looks = append(looks, &look{run: r, always: i == 0})
	}
	if err == nil {
		err = atOnce(ctx, b, looks, func(ctx context.Context, l *look) error { return b.look(ctx, l, s, path) })
	}
	if err != nil {
		return nil, err
	}
	deleted, found := int64(0), []version(nil)
	for _, l := range looks {
		deleted, found = max(deleted, l.deleted), append(found, l.all...)
	}
	slices.SortFunc(found, func(a, b version) int { return cmp.Or(cmp.Compare(b.seq, a.seq), cmp.Compare(b.Archive, a.Archive)) })
	for _, v := range found {
		if v.seq < deleted {
			break
		}
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

// each calls do with all rows in [from, before), and perhaps some after them, until it returns an error.
func (b *Book) each(ctx context.Context, from, before string, do func(s *State, x *rows.Item) error) error {
	s, err := b.State(ctx)
	var runs []*rows.Run
	if err == nil {
		runs, err = b.runsOf(ctx, s.Runs)
	}
	runs = slices.DeleteFunc(runs, func(r *rows.Run) bool { return !r.Within(from, before) })
	if err == nil {
		err = b.fetch(ctx, runs, from)
	}
	if err != nil || len(runs) == 0 {
		return err
	}
	for x, err := range rows.Merged(ctx, runs, from) {
		if err == nil {
			err = do(s, x)
		}
		if err == errEnough {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch reads the first pages that runs need from a name on.
func (b *Book) fetch(ctx context.Context, runs []*rows.Run, from string) error {
	if len(runs) < 2 || b.Near() { // they are read in turn
		return nil
	}
	return atOnce(ctx, b, runs, func(ctx context.Context, r *rows.Run) error { return r.Fetch(ctx, from) })
}

// atOnce calls do for all, at once if the catalogue is far away.
func atOnce[T any](ctx context.Context, b *Book, all []T, do func(context.Context, T) error) (err error) {
	if len(all) > 1 && !b.Near() {
		return pipe.Each(ctx, pipe.All(all), len(all), do)
	}
	for i := 0; i < len(all) && err == nil; i++ {
		err = do(ctx, all[i])
	}
	return err
}

// errEnough ends each without an error.
var errEnough = errors.New("enough")

// Between yields the newest location of each path in [from, before) in the archives of a scope, in
// byte order. If before is empty, there is no upper bound.
func (b *Book) Between(ctx context.Context, from, before string, in catalog.Scope) iter.Seq2[catalog.Location, error] {
	return pipe.Told(func(tell func(catalog.Location) error) error {
		done, any := "", false // the name that was told or deleted last
		return b.each(ctx, from, before, func(s *State, x *rows.Item) error {
			if before != "" && x.Name >= before {
				return errEnough
			}
			if any && x.Name == done {
				return nil
			}
			if id := idOf(x.Archive); x.What == rows.Put && (s.dropped[id] || in != nil && !in(int64(id))) {
				return nil
			}
			if done, any = x.Name, true; x.What == rows.Delete {
				return nil
			}
			return tell(b.location(x))
		})
	})
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
	return pipe.Told(func(tell func(catalog.Location) error) error {
		s, err := b.State(ctx)
		if err == nil {
			s, err = b.full(ctx, s)
		}
		if err != nil {
			return err
		}
		i, ok := s.at[ID(a.ID)]
		if !ok || s.Archives[i].Entries == 0 {
			return nil
		}
		first, last := string(s.Archives[i].First), string(s.Archives[i].Last)
		deleted, name := int64(0), ""
		return b.each(ctx, first, last+"\x00", func(_ *State, x *rows.Item) error {
			if x.Name > last {
				return errEnough
			}
			if x.Name != name {
				deleted, name = 0, x.Name
			}
			if x.What == rows.Delete {
				deleted = max(deleted, x.Seq)
				return nil
			}
			if int64(idOf(x.Archive)) != a.ID {
				return nil
			}
			l := b.location(x)
			l.Gone = x.Seq < deleted
			return tell(l)
		})
	})
}

// Store and Name say where the catalogue is.
func (b *Book) Store() store.Store { return b.st }
func (b *Book) Name() string       { return strings.TrimSuffix(b.dir, "/") }

// Near reports whether the catalogue is on a disk.
func (b *Book) Near() bool { return b.st.Can().Near }
