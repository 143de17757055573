package serve

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Archives are also served as they are stored, so that other programs read them with ranges: each object
// below the archive's name, and what lies beside it below that name with the same ending. An encrypted
// archive stays encrypted.

// wantsStored reports whether a client would rather have the stored archive than a page or a list.
func wantsStored(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), storekit.StoredType)
}

// errUnproven means that only signed contents are served.
var errUnproven = errors.New("no key signs an archive byte for byte")

// storedAt returns what below /raw/ a request is for, or "" if it is for something else. A client that
// wants what is stored gets it at the address of the list, and at that which the page has for people.
func (s *Site) storedAt(r *http.Request, route, rest string) string {
	switch {
	case route == "raw" || route == "f" && wantsStored(r):
		return strings.Trim(rest, "/")
	case route == "other" && wantsStored(r):
		return strings.Trim(r.URL.Path, "/")
	case route == "page" && wantsStored(r):
		if all, _ := s.archives(r); len(all) == 1 {
			return all[0].Name
		}
	}
	return ""
}

// raw serves the object that at, NAME or NAME/BELOW, stands for. It returns false if there is none and the
// path may be that of a file in an archive.
func (s *Site) raw(w http.ResponseWriter, r *http.Request, route, at string) bool {
	a, object, err := s.stored(r.Context(), at)
	if err == nil {
		defer a.Release()
		err = s.object(w, r, a, object)
	}
	switch {
	case err == nil:
	case route == "f" && a == nil && strings.Contains(at, "/"):
		return false
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission): // a bucket that may not be listed denies what it does not have
		http.Error(w, "404: no archive has an object with this name", http.StatusNotFound)
	case errors.Is(err, errUnproven):
		http.Error(w, "403: only signed contents are served", http.StatusForbidden)
	default:
		unlessGone(r)
		s.o.Log.Error("cannot be served", "path", format.Escape(r.URL.Path), "error", err)
		code := statusOf(err)
		http.Error(w, strconv.Itoa(code)+": cannot be read: "+outwardly(err), code)
	}
	return true
}

// object serves an object of an archive.
func (s *Site) object(w http.ResponseWriter, r *http.Request, a *Archive, object string) error {
	ctx := r.Context()
	in, err := holdall.Open(ctx, object, holdall.OpenOptions{Store: a.objects(), Formats: []*format.Format{asStored}, Format: asStored.Name, NoVerify: true})
	if err != nil {
		return err
	}
	defer in.Close()
	o, err := in.Source().Object(ctx, object)
	if err != nil {
		return err
	}
	info, err := o.Info(ctx)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	h := &handler{a: &Archive{Archive: in, Name: a.Name, Version: info.Version, set: a.set, o: a.o}, log: s.o.Log, guarded: s.door != nil}
	h.content(w, r, holdall.Entry{Name: path.Base(object), Size: info.Size, ModTime: info.ModTime, Ref: int64(0)})
	return nil
}

// asStored presents one object as an archive whose content is all of it.
var asStored = &format.Format{Name: "stored", Title: "An object as it is stored", Open: func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	return kit.OpenRuns(ctx, st, name, o, "stored", "", 0, func(*kit.Runs, int64, []byte) (int64, error) { return math.MaxInt64, nil })
}}

// objects is the store of what is stored of the archive.
func (a *Archive) objects() store.Store { return storekit.Under(cache.Below(a.Store())) }

// stored returns the archive that a path stands for, which must be released, and the name of the object in
// its store. Nothing is an object but what the archive consists of and what belongs to it by its name.
func (s *Site) stored(ctx context.Context, rest string) (*Archive, string, error) {
	name, below, _ := strings.Cut(rest, "/")
	a, err := s.toRead(ctx, name)
	if err == nil {
		return a.having(ctx, strings.TrimSuffix(strings.TrimSuffix(a.Archive.Name(), "/")+"/"+below, "/"))
	}
	if !errors.Is(err, ErrNoArchive) || below != "" {
		return nil, "", err
	}
	all, lerr := s.set.List(ctx)
	for _, x := range all {
		if i := slices.Index(beside(x.Name), name); i >= 0 {
			if a, err = s.toRead(ctx, x.Name); err != nil {
				return nil, "", err
			}
			return a, beside(a.Archive.Name())[i], nil
		}
	}
	stem := strings.TrimSuffix(name, path.Ext(name)) + "."
	for _, x := range all {
		if !strings.HasPrefix(x.Name, stem) { // the parts of x.zip are x.z01 and so on
			continue
		}
		if a, err := s.toRead(ctx, x.Name); err == nil {
			if a, object, err := a.having(ctx, path.Join(path.Dir(a.Archive.Name()), name)); err == nil {
				return a, object, nil
			}
		}
	}
	return nil, "", errors.Join(err, lerr)
}

// beside returns the names of what may lie beside an archive.
func beside(name string) (all []string) {
	name = strings.TrimSuffix(name, "/")
	for _, end := range kept.Beside {
		all = append(all, name+end)
	}
	return append(all, parity.Names(name)...)
}

// toRead opens an archive to serve its objects, also one that is damaged.
func (s *Site) toRead(ctx context.Context, name string) (*Archive, error) {
	a, err := s.set.Use(ctx, name, "")
	if errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrUnknown) {
		if left, lerr := s.set.Use(ctx, name, autopsy.Bytes); lerr == nil {
			a, err = left, nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case len(a.Options().Trusted) > 0:
		err = errUnproven
	case a.Store() == nil:
		err = fs.ErrNotExist
	}
	if err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// volumes caches the names of an archive's objects, sorted.
type volumes struct {
	listing sync.Mutex
	names   atomic.Pointer[[]string]
}

// having returns the archive and the name, if it is that of one of the archive's objects. Otherwise it
// releases the archive.
func (a *Archive) having(ctx context.Context, object string) (*Archive, string, error) {
	v := &a.o.volumes
	v.listing.Lock()
	defer v.listing.Unlock()
	names := v.names.Load()
	if names == nil {
		all, err := a.Volumes(ctx)
		if err != nil {
			a.Release()
			return nil, "", err
		}
		all = slices.Sorted(slices.Values(all))
		names = &all
		v.names.Store(names)
		a.WhenIdle(func() { v.names.Store(nil) })
	}
	if _, ok := slices.BinarySearch(*names, object); !ok {
		a.Release()
		return nil, "", fs.ErrNotExist
	}
	return a, object, nil
}
