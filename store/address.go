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

// Register registers the addresses of a scheme, such as "https", or "" for plain paths. The
// function open returns the store and the object's name for an address; it need not send
// requests. Register panics if the scheme is already registered.
func Register(scheme string, open func(ctx context.Context, address string) (st Store, name string, err error)) {
	schemesMu.Lock()
	defer schemesMu.Unlock()
	if _, dup := schemes[scheme]; dup {
		panic("store: scheme " + scheme + " registered twice")
	}
	schemes[scheme] = open
}

// OpenAddress returns the store and the object's name for an address: a path, or a URL of a
// registered scheme such as file:///… or https://….
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

// Scheme returns the scheme of an address, or "" for a plain path. The scheme must be followed by
// "://", because a file may be called "c:notes".
func Scheme(address string) string {
	s, _, ok := strings.Cut(address, "://")
	if !ok || s == "" || strings.ContainsAny(s, "/\\.") {
		return ""
	}
	return strings.ToLower(s)
}
