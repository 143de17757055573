package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var (
	schemesMu sync.RWMutex
	schemes   = map[string]opener{}
)

type opener = func(ctx context.Context, address string) (st Store, name string, err error)

// Schemes returns the schemes of the addresses that OpenAddress takes: "" is that of paths.
func Schemes() []string {
	schemesMu.RLock()
	defer schemesMu.RUnlock()
	return slices.Sorted(maps.Keys(schemes))
}

// Register makes addresses of the given scheme known ("https"; "" for plain
// paths). open finds the store that an address lies in and the object's name within
// it, and need not touch the network. Register panics if the scheme is taken.
func Register(scheme string, open func(ctx context.Context, address string) (st Store, name string, err error)) {
	schemesMu.Lock()
	defer schemesMu.Unlock()
	if _, dup := schemes[scheme]; dup {
		panic("store: scheme " + scheme + " registered twice")
	}
	schemes[scheme] = open
}

// OpenAddress finds the store and the object's name behind an address: a path,
// file:///…, https://….
func OpenAddress(ctx context.Context, address string) (Store, string, error) {
	scheme := Scheme(address)
	schemesMu.RLock()
	open, ok := schemes[scheme]
	known := slices.Sorted(maps.Keys(schemes))
	schemesMu.RUnlock()
	if !ok {
		return nil, "", fmt.Errorf("%s: no store for %s:// addresses (known: %s): %w",
			Redact(address), scheme, strings.TrimLeft(strings.Join(known, ", "), ", "), errors.ErrUnsupported)
	}
	return open(ctx, address)
}

// OpenFolder finds the store of what lies below an address: what it lists is there, by
// names that begin behind the address.
func OpenFolder(ctx context.Context, address string) (Store, error) {
	at, query, found := strings.Cut(address, "?")
	if found {
		query = "?" + query
	}
	// Any name will do: its store is that of all beside it.
	st, _, err := OpenAddress(ctx, strings.TrimRight(at, "/")+"/x"+query)
	return st, err
}

// Scheme returns the scheme of an address, "" for a plain path. Only "x://"
// counts: a file may be called "c:notes".
func Scheme(address string) string {
	s, _, ok := strings.Cut(address, "://")
	if !ok || s == "" || strings.ContainsAny(s, "/\\.") {
		return ""
	}
	return strings.ToLower(s)
}

// AddressOf returns the address of an object of st, "" where st cannot say.
func AddressOf(st Store, name string) string {
	if address := st.Can().Address; address != nil {
		return address(name)
	}
	return ""
}
