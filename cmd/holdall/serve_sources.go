package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

type placed struct {
	source serve.Source
	folder *serve.Folder
}

func (a *app) whatToServe(ctx context.Context, address string, files bool) (placed, error) {
	a.address = store.Redact(address)
	at, _, _ := strings.Cut(address, "?")
	if st, names, err := a.archivesOf(ctx, address); err != nil || len(names) > 0 {
		return placed{source: a.setToServe(address, st, names)}, err
	}
	switch scheme := store.Scheme(address); {
	case address == "-":
	case strings.HasPrefix(address, catalogScheme):
	case scheme == "" || scheme == "file":
		return a.localToServe(ctx, address, files)
	case strings.HasSuffix(at, "/") && scheme != "http" && scheme != "https":
		return a.prefixToServe(ctx, address, at)
	}
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return placed{}, err
	}
	return placed{source: a.sourceIn(st, name, archiveName(address), store.Redact(address), store.Info{})}, nil
}

func (a *app) setToServe(address string, st store.Store, names []string) serve.Source {
	o := a.openOptions()
	o.Index, a.several = a.useIndex(), true
	return serve.Source{Name: archiveName(address), Address: store.Redact(address), View: a.view, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		o := o
		o.View = view
		in, err := a.openSet(ctx, address, st, names, o)
		return in, "", err
	}}
}

func (a *app) sourceIn(st store.Store, name, called, address string, info store.Info) serve.Source {
	src := serve.Source{Name: called, Address: address, View: a.view, ModTime: info.ModTime}
	if !info.ModTime.IsZero() || info.Version != "" {
		src.Mark = fmt.Sprintf("%s %d %d", info.Version, info.Size, info.ModTime.UnixNano())
	}
	src.State = func(ctx context.Context) string { return stateIn(ctx, st, name) }
	if !st.Can().Near {
		src.Every = 30 * time.Second
	}
	o, index := a.openOptions(), a.useIndex()
	src.Open = func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		if autopsy.Is(view) {
			in, err := autopsy.Open(ctx, st, name, view, o)
			return in, "", err
		}
		o := o
		o.View, o.Index = view, index
		before := versionIn(ctx, st, name)
		in, err := a.openIn(ctx, st, name, o)
		if err != nil {
			return nil, "", err
		}
		if s := in.Index(); s.Ignored != "" {
			a.warn("%s: not used: %v", s.Ignored, s.Why)
		}
		if err := in.Doubt(); err != nil {
			a.warn("%s: %v", address, err)
		}
		// If the state is the same before and after, it is the state that was opened.
		// For an archive of more than this one object, the state is incomplete.
		volumes, err := in.Volumes(ctx)
		if err != nil {
			return nil, "", errors.Join(err, in.Close())
		}
		if before == "" || before != versionIn(ctx, st, name) || len(volumes) != 1 || volumes[0] != in.Name() {
			return in, "", nil
		}
		return in, fmt.Sprintf("%s %q %q %s", in.Format().Name, view, o.Param, before), nil
	}
	return src
}

func (a *app) localToServe(ctx context.Context, address string, files bool) (placed, error) {
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return placed{}, err
	}
	path := filepath.FromSlash(storekit.AddressOf(st, name))
	info, err := os.Stat(path)
	if err == nil && info.IsDir() && a.format == "" && !looksLikeOne(ctx, st, name) {
		if files {
			return placed{source: serve.Source{Name: archiveName(address), Address: address, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
				if view != "" {
					return nil, "", &holdall.ViewError{Format: "folder", View: view}
				}
				in, err := holdall.Open(ctx, path, holdall.OpenOptions{Format: "dir"})
				return in, "", err
			}}}, nil
		}
		return a.folderToServe(path)
	}
	return placed{source: a.sourceIn(st, name, archiveName(address), address, store.Info{})}, nil
}

// looksLikeOne reports whether a folder is an archive, by the names of its
// files.
func looksLikeOne(ctx context.Context, st store.Store, name string) bool {
	const enough = 1000
	prefix := strings.TrimSuffix(name, "/") + "/"
	var names []string
	for info, err := range storekit.List(ctx, st, prefix) {
		if err != nil || len(names) == enough {
			break
		}
		names = append(names, strings.TrimPrefix(info.Name, prefix))
	}
	if len(names) == 0 {
		return false
	}
	_, err := format.All().Detect(format.Probe{Name: path.Base(name), Size: -1, Names: names})
	return err == nil
}

// looksLikeFile reports whether a file may be an archive, by its name. A
// folder may have many other files, and reading all of them would take long.
func looksLikeFile(name string) bool {
	return !strings.HasPrefix(name, ".") && format.All().ByExtension(name) != nil && !besideArchive(name)
}

// lookedAt remembers which folders are archives, under a string that
// identifies their state.
type lookedAt map[string]bool

func (l lookedAt) isArchive(ctx context.Context, st store.Store, name, state string) bool {
	const most = 100_000
	is, seen := l[name+state]
	if !seen {
		if len(l) > most {
			clear(l)
		}
		is = looksLikeOne(ctx, st, name)
		l[name+state] = is
	}
	return is
}

// oneOfSeveral returns a copy of a whose parameters only some of several
// archives need to take.
func (a *app) oneOfSeveral() *app {
	one := *a
	one.several = true
	return &one
}

// folderToServe returns the archives in a folder. It opens nothing outside the
// folder, whatever the links in it.
func (a *app) folderToServe(dir string) (placed, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return placed{}, err
	}
	a.cleanup = append(a.cleanup, func() { root.Close() })
	st := local.Within(root)
	inside := a.oneOfSeveral()
	if len(inside.external) == 0 {
		inside.external = []string{"none"} // references do not know roots
	}
	looked := lookedAt{}
	list := func(ctx context.Context) (all []serve.Source, err error) {
		entries, err := fs.ReadDir(root.FS(), ".")
		for _, e := range entries {
			info, err := root.Stat(e.Name())
			if err != nil {
				continue // removed since, or a link that leads outside
			}
			isFile := info.Mode().IsRegular() && looksLikeFile(e.Name())
			isFolder := info.IsDir() && !strings.HasPrefix(e.Name(), ".") && looked.isArchive(ctx, st, e.Name(), info.ModTime().String())
			if isFile || isFolder {
				all = append(all, inside.sourceIn(st, e.Name(), e.Name(), filepath.Join(dir, e.Name()), store.Info{Size: info.Size(), ModTime: info.ModTime()}))
			}
		}
		return all, err
	}
	return placed{folder: &serve.Folder{List: list, Every: 2 * time.Second}}, nil
}

// maxInPrefix is the maximum number of archives served from a prefix.
const maxInPrefix = 100_000

// prefixToServe returns what is below a prefix of a bucket: an archive, or
// several.
func (a *app) prefixToServe(ctx context.Context, address, at string) (placed, error) {
	st, err := storekit.OpenFolder(ctx, address)
	if err != nil {
		return placed{}, err
	}
	_, name, err := store.OpenAddress(ctx, strings.TrimRight(at, "/")+"/x")
	if err != nil {
		return placed{}, err
	}
	prefix := strings.TrimSuffix(name, "x")
	if dir := strings.TrimSuffix(prefix, "/"); dir != "" && looksLikeOne(ctx, st, dir) {
		return placed{source: a.sourceIn(st, dir, archiveName(address), store.Redact(address), store.Info{})}, nil
	}
	level := st.Can().Level
	if level == nil {
		return placed{}, fmt.Errorf("%s: expected an archive, found a folder that cannot be listed", store.Redact(address))
	}
	below, looked := a.oneOfSeveral(), lookedAt{}
	list := func(ctx context.Context) (all []serve.Source, err error) {
		branches, more, err := level(ctx, prefix, maxInPrefix)
		if err != nil {
			return nil, err
		}
		if more {
			return nil, fmt.Errorf("%s: more than %d objects in one folder", store.Redact(address), maxInPrefix)
		}
		for _, b := range branches {
			name := strings.TrimSuffix(b.Name, "/")
			called := strings.TrimPrefix(name, prefix)
			if called == "" || b.All && !looked.isArchive(ctx, st, name, "") || !b.All && !looksLikeFile(called) {
				continue
			}
			all = append(all, below.sourceIn(st, name, called, strings.TrimRight(store.Redact(at), "/")+"/"+called, b.Info))
		}
		return all, nil
	}
	return placed{folder: &serve.Folder{List: list, Every: 30 * time.Second}}, nil
}

func versionIn(ctx context.Context, st store.Store, name string) string {
	info, err := storekit.Briefly(st, name).Info(ctx)
	if err != nil {
		return ""
	}
	return info.Version
}

// archiveName returns the default name of an archive: the last element of its
// address.
func archiveName(address string) string {
	if address == "-" {
		return "stdin"
	}
	address = strings.TrimPrefix(address, catalogScheme)
	if address == "" {
		return shelf.Tree
	}
	_, address = store.CutLayer(address)
	name := filepath.ToSlash(address)
	if u, err := url.Parse(address); err == nil && store.Scheme(address) != "" {
		name = cmp.Or(u.Path, "/"+u.Host)
	} else if whole, err := filepath.Abs(address); err == nil {
		name = filepath.ToSlash(whole) // "." is not a name
	}
	if name = path.Base(name); name == "/" || name == "." {
		name = "archive"
	}
	return name
}
