package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/read/detect"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// wild are the characters that make an address a pattern.
const wild = "*?[{"

// mostLevel is how many objects may be where a pattern of a bucket has its last part.
const mostLevel = 1_000_000

// archivesOf returns the archives that an address stands for, if it is a
// pattern, or the first of several archives. It returns none for the address
// of one archive. The names are those in st, or are addresses if st is nil.
func (a *app) archivesOf(ctx context.Context, address string) (st store.Store, names []string, err error) {
	if list := a.together[address]; list != nil {
		return nil, list, nil
	}
	scheme := store.Scheme(address)
	layer, at := store.CutLayer(address)
	query := ""
	if scheme != "" {
		if i := strings.IndexByte(at, '?'); i >= 0 {
			at, query = at[:i], at[i:]
		}
	} else {
		at = filepath.ToSlash(address)
	}
	first := strings.IndexAny(at, wild)
	if first < 0 || strings.HasPrefix(address, catalogScheme) || isBook(address) {
		return nil, nil, nil
	}
	if scheme == "http" || scheme == "https" {
		if !strings.Contains(at, "*") {
			return nil, nil, nil
		}
		return nil, nil, usage("%s: a web server does not list its files, so a pattern of them finds nothing: name one archive, with %%2A for a star", store.Redact(address))
	}
	dir := at[:strings.LastIndexByte(at[:first], '/')+1]
	pattern, err := glob.Compile(at[len(dir):], false)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	depth := strings.Count(at[len(dir):], "/")
	if strings.Contains(at[len(dir):], "**") {
		depth = naming.MostFolders
	}
	if pattern = pattern.Whole(); scheme == "" {
		if _, err := os.Lstat(address); err == nil {
			return nil, nil, nil
		}
		if err = filesLike(dir, "", pattern, depth, &names); err == nil && names == nil && strings.Contains(at, "*") {
			return nil, nil, usage("%s: no archive has such a name", address)
		}
	} else {
		var prefix string
		if st, prefix, err = a.storeOf(ctx, layer+dir+"x"+query); err != nil {
			return nil, nil, err
		}
		prefix = strings.TrimSuffix(prefix, "x")
		names, err = objectsLike(ctx, storekit.Under(st), prefix, at[len(dir):first], pattern, depth)
		if slices.Contains(names, prefix+at[len(dir):]) {
			names = nil // one is called so
		}
	}
	slices.Sort(names)
	return st, names, err
}

// besideArchive reports whether something belongs to the archive beside it.
func besideArchive(name string) bool {
	return slices.ContainsFunc(kept.Beside, func(end string) bool { return strings.HasSuffix(name, end) })
}

// filesLike finds the files below dir whose names there match a pattern, and
// the folders that are archives by their names. It looks into as many levels of
// folders as depth says.
func filesLike(dir, below string, pattern glob.Pattern, depth int, found *[]string) error {
	all, err := os.ReadDir(cmp.Or(dir+below, "."))
	if err != nil && (below != "" || errors.Is(err, fs.ErrNotExist)) {
		return nil // nothing there matches
	}
	for _, f := range all {
		name, mode := below+f.Name(), f.Type()
		if mode&fs.ModeSymlink != 0 {
			if info, err := os.Stat(dir + name); err == nil {
				mode = info.Mode()
			}
		}
		if pattern.Match(name) && !besideArchive(name) && (mode.IsRegular() || mode.IsDir() && format.All().ByExtension(name) != nil) {
			at := dir + name
			if layer, _ := store.CutLayer(at); layer != "" {
				at = "./" + at // the name of a file
			}
			*found = append(*found, at)
		} else if f.IsDir() && depth > 0 {
			if err := filesLike(dir, name+"/", pattern, depth-1, found); err != nil {
				return err
			}
		}
	}
	return err
}

// objectsLike is filesLike for a bucket. Their names begin with prefix and plain.
func objectsLike(ctx context.Context, st store.Store, prefix, plain string, pattern glob.Pattern, depth int) (found []string, err error) {
	add := func(info store.Info) {
		if name := strings.TrimPrefix(info.Name, prefix); pattern.Match(name) && !besideArchive(name) {
			found = append(found, info.Name)
		}
	}
	if level := st.Can().Level; level != nil && depth == 0 {
		all, more, err := level(ctx, prefix+plain, mostLevel)
		if err != nil || !more {
			for _, b := range all {
				add(b.Info)
			}
			return found, err
		}
	}
	for info, err := range storekit.List(ctx, st, prefix+plain) {
		if err != nil {
			return nil, err
		}
		add(info)
	}
	return found, nil
}

// oneByOne returns an error if an address stands for several archives.
func (a *app) oneByOne(ctx context.Context, address string) error {
	_, names, err := a.archivesOf(ctx, address)
	if err == nil && len(names) > 0 {
		err = usage("%s stands for %s, and %s takes archives by their own names, one by one", store.Redact(address), count(int64(len(names)), "archive"), a.verb)
	}
	return err
}

// isNoneOf returns an error if an output is one of the archives that an address stands for.
func (a *app) isNoneOf(ctx context.Context, address string, to store.Store, name string) error {
	st, inputs, err := a.archivesOf(ctx, address)
	if err != nil || len(inputs) == 0 {
		return err
	}
	for i := range inputs {
		if st != nil {
			inputs[i] = storekit.AddressOf(st, inputs[i])
		}
	}
	return output.Guard{Inputs: inputs, Ours: func(format.Probe) bool { return true }}.Check(ctx, to, name)
}

// openSet opens several archives as one.
func (a *app) openSet(ctx context.Context, address string, st store.Store, names []string, o holdall.OpenOptions) (*holdall.Archive, error) {
	if a.index != "" && a.index != noIndex || a.parity != "" && a.parity != parity.None {
		return nil, usage("--index and --parity are of one archive, and %s stands for %s", store.Redact(address), count(int64(len(names)), "archive"))
	}
	if o.CacheBytes = cmp.Or(o.CacheBytes, leastCache); !a.several {
		a.several = true
	}
	return holdall.OpenSet(ctx, store.Redact(address), names, func(ctx context.Context, name string) (*holdall.Archive, error) {
		at, in, err := st, name, error(nil)
		if st == nil {
			at, in, err = a.storeOf(ctx, name)
		}
		if err != nil {
			return nil, err
		}
		o := o
		o.OnHeal = a.saysHealed(name)
		one, err := a.openIn(ctx, at, in, o)
		if err == nil {
			oneLine.Lock()
			defer oneLine.Unlock()
			a.tellIgnored(one)
		}
		return one, err
	})
}

// withTogether finds the archives that a shell made of a pattern among the
// arguments of a verb: files that are archives, and that the first archive has
// no entry of. All of them then are one set, under the address of the first.
func (a *app) withTogether(ctx context.Context, args []string) ([]string, error) {
	isArchive := make([]bool, len(args))
	for i := 1; i < len(args); i++ {
		isArchive[i] = isArchiveFile(ctx, args[i])
	}
	if !slices.Contains(isArchive, true) || !isArchiveFile(ctx, args[0]) {
		return args, nil
	}
	in, err := a.open(ctx, args[0], true)
	if err != nil {
		return args, nil // the verb gets the error
	}
	defer in.Close()
	set, path := args[:1:1], ""
	for i, arg := range args[1:] {
		if isArchive[i+1] {
			if _, err := in.Lookup(ctx, arg); !errors.Is(err, fs.ErrNotExist) {
				isArchive[i+1] = false
			}
		}
		switch {
		case !isArchive[i+1]:
			path = cmp.Or(path, arg)
		case path != "":
			return nil, usage("%s is an archive, and %s before it is a path in one: put a pattern of archives in quotes, as '*%s'", printable(arg), printable(path), filepath.Ext(args[0]))
		default:
			set = append(set, arg)
		}
	}
	if len(set) > 1 {
		a.together = map[string][]string{args[0]: set}
	}
	return append(args[:1:1], args[len(set):]...), nil
}

func isArchiveFile(ctx context.Context, path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	st, name, err := store.OpenAddress(ctx, path)
	if err != nil {
		return false
	}
	p, err := detect.Probe(ctx, storekit.Briefly(st, name), name, false)
	if err == nil {
		_, err = format.All().Detect(p)
	}
	return err == nil
}
