package holdall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/store"
)

// objects keeps the objects of an archive open as long as it is, and those that
// it leads to outside.
type objects struct {
	st      store.Store
	name    string   // of the archive
	allowed []string // OpenOptions.External

	mu sync.RWMutex
	m  map[objectKey]store.Object
}

type objectKey struct {
	name     string
	external bool
}

// maxOpen is how many objects are held open. A folder of blobs has more of them
// than a process may have files; the others are opened for each read.
const maxOpen = 256

func (x *objects) open(ctx context.Context, name string, external bool) (store.Object, error) {
	key := objectKey{name, external}
	x.mu.RLock()
	o := x.m[key]
	x.mu.RUnlock()
	if o != nil {
		return o, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.m[key]; o != nil {
		return o, nil
	}
	st, at := x.st, name
	if external {
		var err error
		if st, at, err = x.outside(ctx, name); err != nil {
			return nil, err
		}
	}
	if len(x.m) >= maxOpen {
		return briefly{st, at}, nil
	}
	o, err := st.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	if x.m == nil {
		x.m = map[objectKey]store.Object{}
	}
	x.m[key] = o
	return o, nil
}

// held returns those that are open.
func (x *objects) held() []store.Object {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(x.m))
}

func (x *objects) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, o := range x.m {
		errs = append(errs, o.Close())
	}
	x.m = nil
	return errors.Join(errs...)
}

// briefly is an object that is open only while it is asked something.
type briefly struct {
	st   store.Store
	name string
}

func (b briefly) Info(ctx context.Context) (store.Info, error) {
	o, err := b.st.Open(ctx, b.name)
	if err != nil {
		return store.Info{}, err
	}
	defer o.Close()
	return o.Info(ctx)
}

func (b briefly) ReadAt(ctx context.Context, p []byte, off int64) error {
	o, err := b.st.Open(ctx, b.name)
	if err != nil {
		return err
	}
	defer o.Close()
	return o.ReadAt(ctx, p, off)
}

func (b briefly) Close() error { return nil }

func (b briefly) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// An ExternalError means that an archive leads to an address which it may not
// lead to.
type ExternalError struct{ Address string }

func (e *ExternalError) Error() string {
	return fmt.Sprintf("the archive leads to %s, outside its own folder or server, which is not allowed", store.Redact(e.Address))
}

// outside finds the store and the name of what an archive leads to. A path is
// meant from the archive's own folder.
func (x *objects) outside(ctx context.Context, address string) (store.Store, string, error) {
	whole, name := x.resolve(address)
	if !x.mayLead(whole, name) {
		return nil, "", &ExternalError{address}
	}
	if name != "" {
		return x.st, name, nil
	}
	st, at, err := store.OpenAddress(ctx, whole)
	if err != nil || store.IsNear(st) {
		return st, at, err
	}
	return cache.Wrap(st, defaultCache), at, nil
}

// resolve returns the whole address of what an archive leads to, and its name
// if it lies in the archive's own folder or below.
func (x *objects) resolve(address string) (whole, name string) {
	own := store.AddressOf(x.st, x.name)
	if store.Scheme(address) == "file" {
		if p, ok := strings.CutPrefix(address, "file://"); ok && strings.HasPrefix(p, "/") {
			if plain, err := url.PathUnescape(p); err == nil {
				address = plain
			}
		}
	}
	if store.Scheme(address) == "" {
		if !path.IsAbs(address) {
			if n := path.Join(path.Dir(x.name), address); n != ".." && !strings.HasPrefix(n, "../") && inFolder(path.Dir(x.name), n) {
				return join(folderOf(own), address), n
			}
			if u, err := url.Parse(own); store.Scheme(own) != "" && err == nil {
				return u.ResolveReference(&url.URL{Path: address}).String(), ""
			}
			return join(folderOf(own), address), ""
		}
		if store.Scheme(own) == "" && own != "" {
			if rest, ok := strings.CutPrefix(path.Clean(address), strings.TrimSuffix(folderOf(own), "/")+"/"); ok {
				return address, path.Join(path.Dir(x.name), rest)
			}
		}
	}
	return address, ""
}

// inFolder reports whether a name, cleaned, lies in a folder.
func inFolder(folder, name string) bool {
	return folder == "." || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/")
}

// mayLead says whether an archive may lead to an address.
func (x *objects) mayLead(whole, name string) bool {
	switch {
	case slices.Contains(x.allowed, "any"):
		return true
	case slices.Contains(x.allowed, "none"):
		return false
	case name != "":
		return true
	}
	own := store.AddressOf(x.st, x.name)
	if scheme := store.Scheme(own); scheme != "" && scheme == store.Scheme(whole) && origin(own) == origin(whole) && origin(own) != "" {
		return true
	}
	return slices.ContainsFunc(x.allowed, func(a string) bool { return below(whole, a) })
}

// below reports whether an address is base, or lies below it.
func below(address, base string) bool {
	if store.Scheme(base) == "" {
		if store.Scheme(address) != "" {
			return false
		}
		address, base = path.Clean(address), path.Clean(base)
		return address == base || strings.HasPrefix(address, strings.TrimSuffix(base, "/")+"/")
	}
	a, err := url.Parse(address)
	if err != nil || strings.Contains(a.EscapedPath(), "%2e") || strings.Contains(a.EscapedPath(), "%2E") || strings.Contains(a.Path, "/../") || strings.HasSuffix(a.Path, "/..") {
		return false
	}
	b, err := url.Parse(base)
	if err != nil || origin(address) != origin(base) {
		return false
	}
	return b.Path == "" || b.Path == "/" || a.Path == b.Path || strings.HasPrefix(a.Path, strings.TrimSuffix(b.Path, "/")+"/")
}

// origin is what of a web address says whose it is: scheme, host and port.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + host + ":" + port
}

// folderOf returns the address of the folder that an address lies in.
func folderOf(address string) string {
	if store.Scheme(address) == "" {
		return path.Dir(address)
	}
	if i := strings.LastIndexByte(address, '/'); i >= 0 {
		return address[:i]
	}
	return address
}

func join(folder, name string) string {
	if folder == "" || folder == "." {
		return name
	}
	return strings.TrimSuffix(folder, "/") + "/" + name
}
