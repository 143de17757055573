package book

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"path"
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
	if store.Scheme(b.folder) != "" {
		rest = (&url.URL{Path: rest}).EscapedPath()
	}
	return b.folder + rest
}

// relative returns what is stored of an address. A path below the folder has no escapes.
func (b *Book) relative(address string) text {
	rest, ok := strings.CutPrefix(address, b.folder)
	if b.folder == "" || !ok {
		return text(address)
	}
	if store.Scheme(b.folder) != "" {
		plain, err := url.PathUnescape(rest)
		if err != nil {
			return text(address)
		}
		rest = plain
	}
	return text("./" + rest)
}

// PathFrom returns the path of an address from the folder that contains the catalogue, if it is below it.
func (b *Book) PathFrom(address string) (path string, ok bool) {
	return strings.CutPrefix(string(b.relative(address)), "./")
}

func (b *Book) record(a *Archive) catalog.Archive {
	return catalog.Archive{ID: int64(a.ID), Address: b.address(a.Address), Format: a.Format, Size: a.Size, Version: string(a.Version), Entries: a.Entries, Added: a.Added, Verified: a.Verified, Parity: a.Parity, Roots: a.Roots, Proven: a.Proven, Facts: string(a.Facts)}
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
	over := b.over()
	s, err := b.State(ctx)
	if err != nil {
		return catalog.Archive{}, err
	}
	return b.archiveOf(ctx, over, s, id)
}

// archiveOf is ArchiveOf for what has just been looked up in layers and a state: both may be others now.
func (b *Book) archiveOf(ctx context.Context, over []Layer, s *State, id int64) (_ catalog.Archive, err error) {
	for _, x := range over {
		if a, ok := x.Archive(id); ok {
			return a, nil
		}
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
	return catalog.Location{Path: x.Name, Seq: x.Seq, Archive: int64(id), Kind: x.Kind, Size: x.Size, Raw: x.Raw, Off: x.Off, Digest: x.Digest, Modified: x.Time, ETag: x.ETag, HeaderText: x.Headers}
}

// withFate adds what became of the original. Of rows about the same version, the first counts.
func withFate(l catalog.Location, fates []rows.Row) catalog.Location {
	if i := slices.IndexFunc(fates, func(f rows.Row) bool { return f.Of == l.Seq }); i >= 0 {
		is := fates[i].Original
		l.Missing, l.Unseen, l.Since = is == rows.Missing || is == rows.Unseen, is == rows.Unseen, fates[i].Seq
		switch is {
		case rows.Leaving:
			l.Original = catalog.OriginalLeaving
		case rows.Lingers:
			l.Original = catalog.OriginalLingers
		}
	}
	return l
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

// parsed are headers and their text.
type parsed struct {
	text    string
	headers map[string]string
}

// HeadersOf returns what a service stored with the object of a location, in a map of its own.
func (b *Book) HeadersOf(_ context.Context, l catalog.Location) (map[string]string, error) {
	if l.HeaderText == "" || l.HasFacts() {
		return nil, nil
	}
	last := b.headers.Load()
	if last == nil || last.text != l.HeaderText { // often it is the same
		last = &parsed{text: l.HeaderText}
		if err := json.Unmarshal([]byte(last.text), &last.headers); err != nil {
			return nil, b.fail("", broken(err))
		}
		b.headers.Store(last)
	}
	return maps.Clone(last.headers), nil
}

// A Layer has rows that will be in a commit, and are newer than those of all commits and of the layers after it.
type Layer interface {
	rows.Source
	// Archive returns an archive that only the layer knows, by its ID.
	Archive(id int64) (catalog.Archive, bool)
}

// LayerID returns the ID of an archive that only a layer knows. No commit has its number.
func LayerID(n int64, ordinal int) rows.ArchiveID {
	return rows.ArchiveID{Commit: rows.MostCommit - n, Ordinal: ordinal}
}

// NumberOf returns the ID of an archive as catalogues have it.
func NumberOf(a rows.ArchiveID) int64 { return int64(idOf(a)) }

// over returns the layers. A reader must take them before it takes the state: a layer goes when a commit has its rows.
func (b *Book) over() []Layer {
	if b.o.Over == nil {
		return nil
	}
	return b.o.Over()
}

// A look is what a run, or a layer, has of a name.
type look struct {
	run     *rows.Run
	from    rows.Source
	always  bool // even if its filter is far: its page takes no more
	all     []catalog.Location
	fates   []rows.Row
	deleted int64 // up to that sequence
}

func (b *Book) look(ctx context.Context, l *look, s *State, path string) error {
	if l.run != nil {
		if may, err := l.run.MayHave(ctx, path, l.always); err != nil || !may {
			return err
		}
	}
	for x, err := range rows.Merged(ctx, []rows.Source{l.from}, path) {
		switch {
		case err != nil:
			return err
		case x.Name != path:
			return nil
		case x.What == rows.Delete:
			l.deleted = max(l.deleted, x.Seq)
		case x.What == rows.Fate:
			l.fates = append(l.fates, x.Row)
		case !s.dropped[idOf(x.Archive)]:
			l.all = append(l.all, b.location(x))
		}
	}
	return nil
}

// Holders returns all archives that have a path, the newest first.
func (b *Book) Holders(ctx context.Context, path string) (all []catalog.Found, err error) {
	all, _, err = b.holdersNow(ctx, path)
	return all, err
}

func (b *Book) holdersNow(ctx context.Context, path string) (all []catalog.Found, gone bool, err error) {
	over := b.over()
	s, err := b.State(ctx)
	if err != nil {
		return nil, false, err
	}
	return b.holders(ctx, over, s, path)
}

// NewestAt is Newest at a state, without layers.
func (b *Book) NewestAt(ctx context.Context, s *State, path string) (catalog.Found, error) {
	all, gone, err := b.holders(ctx, nil, s, path)
	return newestOf(all, gone, err, path, nil)
}

// holders also reports whether the path was ever deleted.
func (b *Book) holders(ctx context.Context, over []Layer, s *State, path string) (all []catalog.Found, gone bool, err error) {
	var looks []*look
	for _, x := range over {
		looks = append(looks, &look{from: x})
	}
	runs, err := b.runsOf(ctx, s.Runs)
	for i, r := range runs {
		looks = append(looks, &look{run: r, from: r, always: i == 0})
	}
	if err == nil {
		err = atOnce(ctx, b, looks, func(ctx context.Context, l *look) error { return b.look(ctx, l, s, path) })
	}
	if err != nil {
		return nil, false, err
	}
	deleted, found, fates := int64(0), []catalog.Location(nil), []rows.Row(nil)
	for _, l := range looks {
		deleted, found, fates = max(deleted, l.deleted), append(found, l.all...), append(fates, l.fates...)
	}
	slices.SortFunc(fates, func(a, b rows.Row) int { return a.Compare(&b) })
	slices.SortFunc(found, func(a, b catalog.Location) int {
		return cmp.Or(cmp.Compare(b.Seq, a.Seq), cmp.Compare(b.Archive, a.Archive))
	})
	for _, l := range found {
		if l.Seq < deleted {
			break
		}
		a, err := b.archiveOf(ctx, over, s, l.Archive)
		if err != nil {
			return nil, false, err
		}
		all = append(all, catalog.Found{Location: withFate(l, fates), In: a})
	}
	return all, deleted > 0, nil
}

// Newest returns where the newest file of that path is, or an error that wraps fs.ErrNotExist: if it was deleted, it
// wraps [catalog.ErrDeleted], too.
func (b *Book) Newest(ctx context.Context, path string) (catalog.Found, error) {
	return b.NewestIn(ctx, path, nil)
}

// NewestIn is Newest for some archives.
func (b *Book) NewestIn(ctx context.Context, path string, in catalog.Scope) (catalog.Found, error) {
	all, gone, err := b.holdersNow(ctx, path)
	return newestOf(all, gone, err, path, in)
}

func newestOf(all []catalog.Found, gone bool, err error, path string, in catalog.Scope) (catalog.Found, error) {
	for _, f := range all {
		if in == nil || in(f.Archive) {
			return f, nil
		}
	}
	if gone && len(all) == 0 {
		return catalog.Found{}, cmp.Or(err, catalog.Deleted(path))
	}
	return catalog.Found{}, cmp.Or(err, catalog.Absent(path))
}

// each calls do with all rows in [from, before), and perhaps some after them, until it returns an error.
func (b *Book) each(ctx context.Context, from, before string, do func(s *State, x *rows.Item) error) error {
	var all []rows.Source
	for _, x := range b.over() {
		all = append(all, x)
	}
	s, err := b.State(ctx)
	var runs []*rows.Run
	if err == nil {
		runs, err = b.runsOf(ctx, s.Runs)
	}
	runs = slices.DeleteFunc(runs, func(r *rows.Run) bool { return !r.Within(from, before) })
	if err == nil {
		err = b.fetch(ctx, runs, from)
	}
	for _, r := range runs {
		all = append(all, r)
	}
	if err != nil || len(all) == 0 {
		return err
	}
	for x, err := range rows.Merged(ctx, all, from) {
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

// A sight is what a reader has seen of a name. The rows of a name come in their order, the newest first.
type sight struct {
	name    string
	any     bool
	done    bool // its newest file in the scope was seen, or it is deleted
	deleted bool
	fates   []rows.Row
}

// of reports whether a row is a file in a scope, and whether that file is visible there. The deletion of a name without
// a visible file is visible, too.
func (v *sight) of(s *State, x *rows.Item, in catalog.Scope) (file, visible bool) {
	if !v.any || x.Name != v.name {
		*v = sight{name: x.Name, any: true, fates: v.fates[:0]}
	}
	switch id := idOf(x.Archive); {
	case x.What == rows.Delete:
		visible, v.done, v.deleted = !v.done, true, true
	case x.What == rows.Fate:
		v.fates = append(v.fates, x.Row)
	case !s.dropped[id] && (in == nil || in(int64(id))):
		file, visible, v.done = true, !v.done, true
	}
	return file, visible
}

// Between yields the newest location of each path in [from, before) in the archives of a scope, in
// byte order. If before is empty, there is no upper bound.
func (b *Book) Between(ctx context.Context, from, before string, in catalog.Scope) iter.Seq2[catalog.Location, error] {
	return b.files(ctx, from, before, in, false, false)
}

// BetweenAll is Between for all archives. It also yields the paths that were deleted, as locations that are Gone.
func (b *Book) BetweenAll(ctx context.Context, from, before string) iter.Seq2[catalog.Location, error] {
	return b.files(ctx, from, before, nil, false, true)
}

// Versions yields all locations in all archives of each path in [from, before), as Between: by path, the newest first.
// Those that are Gone were deleted.
func (b *Book) Versions(ctx context.Context, from, before string) iter.Seq2[catalog.Location, error] {
	return b.files(ctx, from, before, nil, true, false)
}

func (b *Book) files(ctx context.Context, from, before string, in catalog.Scope, older, gone bool) iter.Seq2[catalog.Location, error] {
	return pipe.Told(func(tell func(catalog.Location) error) error {
		var v sight
		return b.each(ctx, from, before, func(s *State, x *rows.Item) error {
			if before != "" && x.Name >= before {
				return errEnough
			}
			file, visible := v.of(s, x, in)
			switch {
			case file && (visible || older):
				l := withFate(b.location(x), v.fates)
				l.Gone = v.deleted
				return tell(l)
			case !file && visible && gone:
				return tell(catalog.Location{Path: x.Name, Gone: true})
			}
			return nil
		})
	})
}

// A Usage counts the files of an archive.
type Usage struct {
	Files, Bytes int64 // of those that are visible in a scope
	All          int64 // bytes of all its files
	Spread       bool  // the content of a visible file is not one run of its bytes
	Deleted      int64 // files that were deleted
	Retired      int64 // visible files whose originals were removed, or were to be
}

// Usage reads all rows, and counts the files of the archives of a scope.
func (b *Book) Usage(ctx context.Context, in catalog.Scope) (map[int64]*Usage, error) {
	all := map[int64]*Usage{}
	var v sight
	err := b.each(ctx, "", "", func(s *State, x *rows.Item) error {
		file, visible := v.of(s, x, in)
		if !file {
			return nil
		}
		id := int64(idOf(x.Archive))
		u := all[id]
		if u == nil {
			u = &Usage{}
			all[id] = u
		}
		if v.deleted {
			u.Deleted++
		}
		if u.All += x.Size; visible {
			if l := withFate(catalog.Location{Seq: x.Seq}, v.fates); l.Original != catalog.OriginalStays {
				u.Retired++
			}
			u.Files++
			u.Bytes += x.Size
			u.Spread = u.Spread || !x.Raw && x.Size > 0
		}
		return nil
	})
	return all, err
}

// Bounds returns the first and the last name of the files of an archive.
func (b *Book) Bounds(ctx context.Context, archive int64) (first, last string, err error) {
	s, err := b.Full(ctx)
	if err != nil {
		return "", "", err
	}
	i, ok := s.at[ID(archive)]
	if !ok {
		return "", "", catalog.Absent(fmt.Sprintf("archive %d", archive))
	}
	return string(s.Archives[i].First), string(s.Archives[i].Last), nil
}

// ListFrom yields the items directly below a prefix. See [catalog.List].
func (b *Book) ListFrom(ctx context.Context, prefix, from string, in catalog.Scope) iter.Seq2[catalog.Listed, error] {
	return catalog.List(ctx, b.Between, prefix, from, in)
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
		var fates []rows.Row
		return b.each(ctx, first, last+"\x00", func(_ *State, x *rows.Item) error {
			if x.Name > last {
				return errEnough
			}
			if x.Name != name {
				deleted, name, fates = 0, x.Name, fates[:0]
			}
			if x.What == rows.Fate {
				fates = append(fates, x.Row)
			}
			if x.What == rows.Delete {
				deleted = max(deleted, x.Seq)
				return nil
			}
			if x.What != rows.Put || int64(idOf(x.Archive)) != a.ID {
				return nil
			}
			l := withFate(b.location(x), fates)
			l.Gone = x.Seq < deleted
			return tell(l)
		})
	})
}

// AddressOf returns where an archive is that is to be removed.
func (b *Book) AddressOf(r Removal) string { return b.address(r.Address) }

// Beside returns the addresses of the folders of the catalogue, and what the names of objects beside its
// archives end in.
func (b *Book) Beside() (folders []string, suffix string) {
	at := b.folder + path.Base(b.Name())
	return []string{at, at + goneSuffix}, addedSuffix + b.current().Catalog
}

// ID is a random text that no other catalogue has.
func (b *Book) ID() string { return b.current().Catalog }

// Store and Name say where the catalogue is.
func (b *Book) Store() store.Store { return b.st }
func (b *Book) Name() string       { return strings.TrimSuffix(b.dir, "/") }

// Signed is the state that is read because it is signed, if it has a sum.
func (b *Book) Signed() Signed { return b.o.Signed }

// Source is the address of the bucket whose objects are shown, too, or "". It is not older than what was looked up.
func (b *Book) Source() string { return string(b.current().Source) }

// Near reports whether the catalogue is on a disk.
func (b *Book) Near() bool { return b.st.Can().Near }
