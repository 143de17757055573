// Package outside decides which references out of an archive may be followed. Without this, an
// archive with references could make the program that opens it read any file of this machine, or
// send requests to any server that this machine can reach.
package outside

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Rule says where an archive may refer to.
type Rule struct {
	Store store.Store
	Name  string // of the archive
	// Allowed lists where the archive may refer to besides its own folder or server. "none"
	// allows nothing and "any" everything. Any other value is an address or a folder, and allows
	// it and everything below it.
	Allowed []string
}

// An Error means that an archive refers to an address that is not allowed.
type Error struct{ Address string }

func (e *Error) Error() string {
	return fmt.Sprintf("the archive refers to %s, outside its own folder or server, which is not allowed", store.Redact(e.Address))
}

// Find returns the store and the name of what the archive refers to, or fails with an *Error. A
// path is relative to the archive's own folder.
func (x Rule) Find(ctx context.Context, address string) (store.Store, string, error) {
	whole, name := x.resolve(address)
	if !x.mayLead(whole, name) {
		return nil, "", &Error{address}
	}
	if name != "" {
		return x.Store, name, nil
	}
	return store.OpenAddress(ctx, whole)
}

// resolve returns the whole address of what an archive leads to, and its name
// if it lies in the archive's own folder or below.
func (x Rule) resolve(address string) (whole, name string) {
	layer, own := store.CutLayer(storekit.AddressOf(x.Store, x.Name))
	switch above, at := store.CutLayer(address); {
	case above == layer, store.Scheme(address) == "" && !path.IsAbs(address):
		address = at // as if neither had it
		defer func() { whole = layer + whole }()
	case above == "":
		own = "" // what is beside the archive, but not encrypted, is outside
	}
	if store.Scheme(address) == "file" {
		if p, ok := strings.CutPrefix(address, "file://"); ok && strings.HasPrefix(p, "/") {
			if plain, err := url.PathUnescape(p); err == nil {
				address = plain
			}
		}
	}
	if store.Scheme(address) == "" {
		if !path.IsAbs(address) {
			if n := path.Join(path.Dir(x.Name), address); n != ".." && !strings.HasPrefix(n, "../") && inFolder(path.Dir(x.Name), n) {
				return join(folderOf(own), address), n
			}
			if u, err := url.Parse(own); store.Scheme(own) != "" && err == nil {
				return u.ResolveReference(&url.URL{Path: address}).String(), ""
			}
			return join(folderOf(own), address), ""
		}
		if store.Scheme(own) == "" && own != "" {
			if rest, ok := strings.CutPrefix(path.Clean(address), strings.TrimSuffix(folderOf(own), "/")+"/"); ok {
				return address, path.Join(path.Dir(x.Name), rest)
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
func (x Rule) mayLead(whole, name string) bool {
	switch {
	case slices.Contains(x.Allowed, "any"):
		return true
	case slices.Contains(x.Allowed, "none"):
		return false
	case name != "":
		return true
	}
	_, own := store.CutLayer(storekit.AddressOf(x.Store, x.Name)) // where something is does not depend on it
	_, whole = store.CutLayer(whole)
	scheme := store.Scheme(own)
	switch {
	case scheme != store.Scheme(whole):
	case scheme == "" && own != "" && path.IsAbs(whole) && inFolder(folderOf(own), path.Clean(whole)),
		scheme != "" && origin(own) == origin(whole) && origin(own) != "":
		return true
	}
	return slices.ContainsFunc(x.Allowed, func(a string) bool { return below(whole, a) })
}

// below reports whether an address is base, or lies below it.
func below(address, base string) bool {
	_, base = store.CutLayer(base)
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

// Portable returns an address in the form that an archive at own may store it. The address of an
// archive beside own becomes a path relative to it.
func (x Rule) Portable(address, own string) string {
	if store.Scheme(address) != "" {
		return address
	}
	whole, _ := x.resolve(address)
	if store.Scheme(whole) == "" && own != "" && path.Dir(whole) == path.Dir(own) {
		return path.Base(whole)
	}
	return whole
}
