package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	st    store.Store
	info  store.Info // only its name, if it was not listed
	path  string
	named bool // by the user, and not found in a folder
	o     holdall.OpenOptions
	survey.Survey
	err error
}

func (r *recording) address() string { return storekit.AddressOf(r.st, r.info.Name) }

// recordingsAt returns the archive at an address, or what may be recordings in the folder there.
func (a *app) recordingsAt(ctx context.Context, address string) (all []*recording, err error) {
	st, name, err := a.locateCatalogued(ctx, strings.TrimRight(address, "/"))
	if err != nil { // a whole bucket
		var ferr error
		if st, ferr = storekit.OpenFolder(ctx, address); ferr != nil {
			return nil, err
		}
		name, err = ".", nil
	}
	one := []*recording{{st: st, info: store.Info{Name: name}, path: archiveName(address), named: true}}
	if survey.MayHaveFacts(name) && !strings.HasSuffix(address, "/") {
		return one, nil
	}
	prefix, some := strings.TrimPrefix(name+"/", "./"), false
	for info, err := range storekit.List(ctx, st, prefix) {
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil {
			return nil, err
		}
		some = true
		path := recordingIn(info.Name[len(prefix):])
		if path == "" || len(all) > 0 && all[len(all)-1].path == path {
			continue
		}
		if prefix+path != info.Name { // an archive that is a folder
			info = store.Info{Name: prefix + path}
		}
		all = append(all, &recording{st: st, info: info, path: path})
	}
	if !some {
		return one, nil
	}
	if len(all) == 0 {
		err = fmt.Errorf("%s: expected a recording, or a folder with files whose names end as those of HDF5 and LINDI do", format.Escape(store.Redact(address)))
	}
	return all, err
}

// recordingIn returns the beginning of a path that names what may be a recording, or "".
func recordingIn(name string) string {
	for i, c := range name + "/" {
		if c == '/' && survey.MayHaveFacts(name[:i]) && !strings.HasPrefix(path.Base(name[:i]), ".") {
			return name[:i]
		}
	}
	return ""
}

// read reads the facts of a recording, unless the catalogue has them. One that was recorded keeps its path.
func (r *recording) read(ctx context.Context, c *book.Book, again bool) error {
	known, err := c.Archive(ctx, r.address())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if known.Facts == "" || again {
		known = catalog.Archive{Facts: cmp.Or(known.Facts, catalog.FactsAt(r.path))}
	}
	if !r.named && known.ID != 0 && known.Version != "" && survey.Is(r.info, r.st.Can().Near, known) {
		r.Known = true
		return nil
	}
	if r.Survey, err = survey.Open(ctx, r.st, r.info.Name, known, r.o); err == nil && !r.Known {
		err = findParity(ctx, &r.Survey)
	}
	return err
}

// addRecordings records archives, and those below folders, as files with facts.
func (a *app) addRecordings(ctx context.Context, c *book.Book, addresses []string, again bool) error {
	var all []*recording
	seen := map[string]bool{}
	for _, address := range addresses {
		found, err := a.recordingsAt(ctx, address)
		if err != nil {
			return err
		}
		for _, r := range found {
			if at := r.address(); !seen[at] {
				seen[at], all = true, append(all, r)
				a.address = store.Redact(at)
				r.o = a.openOptions()
			}
		}
	}
	if len(all) > 1 {
		a.address = "" // errors name theirs
	}
	m := &holdall.Meter{}
	m.Expect(int64(len(all)), 0)
	defer a.showProgress(m, "read")()
	var some []catalog.Addition
	add := func() error {
		if len(some) == 0 {
			return nil
		}
		done, err := a.addNow(ctx, c, some)
		a.tellAdditions(done)
		some = nil
		return err
	}
	unchanged, others, failed := int64(0), int64(0), false
	err := pipe.Ordered(ctx, pipe.All(all), recordingsAtOnce, func(ctx context.Context, r *recording) {
		r.err = r.read(ctx, c, again)
	}, func(r *recording) error {
		m.Add(1, 0)
		is := r.Survey
		r.Survey = survey.Survey{} // its text can be long
		switch {
		case r.err != nil && (ctx.Err() != nil || len(all) == 1 && r.named):
			return r.err
		case errors.Is(r.err, survey.ErrNoRecording) && !r.named:
			others++
		case r.err != nil:
			failed = true
			a.entryFailed(store.Redact(r.address()), r.err)
		case is.Known && r.named:
			a.tellAdded("unchanged", is.Archive)
		case is.Known:
			unchanged++
		default:
			if missing := is.Said.Missing; len(missing) > 0 {
				a.warn("%s: recorded without all facts: %s", format.Escape(is.Address), printable(strings.Join(missing, ", ")))
			}
			if some = append(some, catalog.Addition{Archive: is.Archive, Rows: is.Rows(ctx, nil)}); len(some) == recordingsInOne {
				return add()
			}
		}
		return nil
	}, func(*recording) {})
	if err = cmp.Or(err, add()); err != nil {
		return err
	}
	if unchanged > 0 {
		a.warn("%s unchanged", count(unchanged, "recording"))
	}
	if others > 0 {
		a.warn("%s left out, not NWB", count(others, "file"))
	}
	return answer(failed)
}

type recordingJSON struct {
	locationJSON
	NWB json.RawMessage `json:"nwb"`
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
	found, failed, perhaps := false, false, int64(0)
	err := each(c.Below(ctx, ""), func(l catalog.Location) error {
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
			in, err := c.ArchiveOf(ctx, l.Archive)
			if err != nil {
				return err
			}
			a.tellRecording(catalog.Found{Location: l, In: in}, f)
		case len(f.Missing) > 0:
			perhaps++
		}
		return nil
	})
	if perhaps > 0 {
		a.warn("%s may match, too: the catalogue does not have all their facts", count(perhaps, "recording"))
	}
	return cmp.Or(err, answer(!found || failed))
}

// tellRecording prints a recording, and a few facts in what room the line has.
func (a *app) tellRecording(l catalog.Found, f *facts.Facts) {
	j := foundAsJSON(l)
	a.tell(recordingJSON{j, f.Text}, func() {
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
		name := []rune(quoteEmpty(j.Path) + ": ")
		line := append(name, []rune(foreign(strings.Join(words, ", ")))...)
		if most := max(columnsOf(a.stdout)-1, len(name)); len(line) > most+1 {
			line = append(line[:most], '…')
		}
		fmt.Fprintln(a.out, string(line))
	})
}
