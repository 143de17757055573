package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/facts"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	recordingsAtOnce = 8    // that are read
	recordingsInOne  = 1000 // that a commit adds
)

// A recording is an archive that is recorded as one file, with its facts.
type recording struct {
	st      store.Store
	name    string
	address string
	known   catalog.Archive // or only how it is recorded
	named   bool            // by the user, and not found in a folder
	survey.Survey
	err error
}

// recordingsAt returns the archive at an address, or what may be recordings below a folder. It counts those there
// that have not changed.
func (a *app) recordingsAt(ctx context.Context, c *book.Book, address string, again bool) (all []*recording, unchanged int64, err error) {
	var st store.Store
	var name, prefix string
	find := func(name, path string, named bool) (*recording, error) {
		r := &recording{st: st, name: name, address: storekit.AddressOf(st, name), named: named}
		known, err := c.Archive(ctx, r.address)
		if r.known = known; err != nil || known.Facts == "" { // one that was recorded as a file keeps its path
			r.known = catalog.Archive{Facts: catalog.FactsAt(path)}
		} else if again {
			r.known = catalog.Archive{Facts: known.Facts}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return r, err
	}
	if st, name, err = a.locateCatalogued(ctx, strings.TrimRight(address, "/")); err != nil { // a whole bucket
		var ferr error
		if st, ferr = storekit.OpenFolder(ctx, address); ferr != nil {
			return nil, 0, err
		}
		name, err = "", nil
	}
	some, last := false, ""
	if name != "" && name != "." {
		prefix = name + "/"
	}
	if !survey.MayHaveFacts(name) || strings.HasSuffix(address, "/") {
		for info, err := range storekit.List(ctx, st, prefix) {
			if errors.Is(err, errors.ErrUnsupported) {
				break
			}
			if err != nil {
				return nil, 0, err
			}
			some = true
			at := archiveIn(strings.TrimPrefix(info.Name, prefix))
			if at == "" || at == last {
				continue
			}
			last = at
			r, err := find(prefix+at, at, false)
			if err != nil {
				return nil, 0, err
			}
			if r.known.ID != 0 && prefix+at == info.Name && info.Version+r.known.Version != "" && survey.Is(info, st.Can().Near, r.known) {
				unchanged++
				continue
			}
			all = append(all, r)
		}
	}
	if some {
		if len(all) == 0 && unchanged == 0 {
			err = fmt.Errorf("%s: expected a recording, or a folder with files whose names end as those of HDF5 and LINDI do", format.Escape(store.Redact(address)))
		}
		return all, unchanged, err
	}
	r, err := find(name, archiveName(address), true)
	return []*recording{r}, 0, err
}

// archiveIn returns the part of a path that names what may be a recording, which may be a folder, or "".
func archiveIn(name string) string {
	for i, c := range name + "/" {
		if c == '/' && survey.MayHaveFacts(name[:i]) && !strings.HasPrefix(path.Base(name[:i]), ".") {
			return name[:i]
		}
	}
	return ""
}

// addRecordings records archives, and those below folders, as files with facts.
func (a *app) addRecordings(ctx context.Context, c *book.Book, addresses []string, again bool) error {
	var all, some []*recording
	seen, unchanged, others, failed := map[string]bool{}, int64(0), int64(0), false
	for _, address := range addresses {
		found, same, err := a.recordingsAt(ctx, c, address, again)
		if err != nil {
			return err
		}
		for _, r := range found {
			if !seen[r.address] {
				all = append(all, r)
			}
			seen[r.address] = true
		}
		unchanged += same
	}
	m := &holdall.Meter{}
	m.Expect(int64(len(all)), 0)
	stop := a.showProgress(m, "read")
	defer stop()
	add := func() error {
		var additions []catalog.Addition
		for _, r := range some {
			additions = append(additions, catalog.Addition{Archive: r.Archive, Rows: r.Rows(ctx, nil)})
		}
		if len(some) == 0 {
			return nil
		}
		done, err := a.addNow(ctx, c, additions)
		a.tellAdditions(done)
		for _, r := range some {
			r.Survey = survey.Survey{} // its text can be long
		}
		some = nil
		return err
	}
	o := a.openOptions()
	err := pipe.Ordered(ctx, pipe.All(all), recordingsAtOnce, func(ctx context.Context, r *recording) {
		r.Survey, r.err = survey.Open(ctx, r.st, r.name, r.known, o)
		if r.err == nil && !r.Known {
			r.err = findParity(ctx, &r.Survey)
		}
	}, func(r *recording) error {
		m.Add(1, 0)
		switch {
		case r.err != nil && (ctx.Err() != nil || len(all) == 1 && r.named):
			return r.err
		case errors.Is(r.err, survey.ErrNoRecording) && !r.named:
			others++
		case r.err != nil:
			failed = true
			a.entryFailed(store.Redact(r.address), r.err)
		case r.Known && r.named:
			a.tellAdded("unchanged", r.Archive)
		case r.Known:
			unchanged++
		default:
			if text := r.Said.Incomplete(); text != "" {
				a.warn("%s: %s", format.Escape(r.address), printable(text))
			}
			if some = append(some, r); len(some) == recordingsInOne {
				return add()
			}
		}
		return nil
	}, func(*recording) {})
	if err == nil {
		err = add()
	}
	if err != nil {
		return err
	}
	if unchanged > 0 {
		a.warn("%s unchanged", count(unchanged, "recording"))
	}
	if others > 0 {
		a.warn("%s left out that are not NWB", count(others, "file"))
	}
	return answer(failed)
}

type recordingJSON struct {
	locationJSON
	NWB *facts.Facts `json:"nwb"`
}

// findRecordings prints the recordings whose facts fulfil all of some expressions.
func (a *app) findRecordings(ctx context.Context, c *book.Book, where []string) error {
	var queries []facts.Query
	for _, text := range where {
		q, err := facts.ParseQuery(text)
		if err != nil {
			return usage("--where: %v", err)
		}
		queries = append(queries, q)
	}
	all, err := c.Archives(ctx)
	if err != nil {
		return err
	}
	archives := map[int64]catalog.Archive{}
	for _, x := range all {
		archives[x.ID] = x
	}
	found, failed, perhaps := false, false, int64(0)
	err = each(c.Below(ctx, ""), func(l catalog.Location) error {
		if !l.HasFacts() {
			return nil
		}
		f, err := facts.Parse(l)
		switch {
		case err != nil:
			failed = true
			a.entryFailed(l.Path, err)
		case !slices.ContainsFunc(queries, func(q facts.Query) bool { return !q.Holds(f) }):
			found = true
			a.tellRecording(l, archives[l.Archive], f)
		case f.Incomplete() != "":
			perhaps++
		}
		return nil
	})
	if perhaps > 0 {
		a.warn("%s may match too: the catalogue does not have all their facts", count(perhaps, "recording"))
	}
	return cmp.Or(err, answer(!found || failed))
}

// tellRecording prints a recording, with a few facts as far as the line has room.
func (a *app) tellRecording(l catalog.Location, in catalog.Archive, f *facts.Facts) {
	j := locationAsJSON(l)
	j.Archive, j.Format, j.Added = format.Escape(in.Address), in.Format, &in.Added
	a.tell(recordingJSON{j, f}, func() {
		line := quoteEmpty(j.Path) + ": "
		words := []string{}
		if w := f.Subject; w != nil {
			words = append(words, w.ID, w.Species, ifAny("sex %s", w.Sex))
		}
		day, _, _ := strings.Cut(f.Session.StartTime, "T")
		words = append(words, day, thousands(int64(len(f.Series)))+" series")
		for _, d := range f.Devices {
			words = append(words, d.Name)
		}
		words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
		for i, w := range words {
			if w = foreign(w); i > 0 {
				if w = ", " + w; len([]rune(line+w)) > a.width() {
					break
				}
			}
			line += w
		}
		fmt.Fprintln(a.out, line)
	})
}
