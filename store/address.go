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
// registered scheme such as file:///… or https://…, either with a layer in front, such as age:.
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

// age is the layer that may stand in front of an address. It is known here, whether or not a program
// registers it: nothing may be written to "age:x" that is not encrypted.
const age = "age"

// CutLayer splits an address into the layer in front of it, with its colon, and the address of
// what that is a layer of: age:s3://bucket/x is "age:" and s3://bucket/x. The layer is "" if there is none,
// as in ./age:x, the path of a file of that name.
func CutLayer(address string) (layer, below string) {
	if below, ok := strings.CutPrefix(address, age+":"); ok {
		return age + ":", below
	}
	return "", address
}

// Scheme returns the scheme of an address, or "" for a plain path. The scheme must be followed by
// "://", because a file may be called "c:notes". That of an address with a layer is the layer, as "age".
func Scheme(address string) string {
	if layer, _ := CutLayer(address); layer != "" {
		return strings.TrimSuffix(layer, ":")
	}
	s, _, ok := strings.Cut(address, "://")
	if !ok || s == "" || strings.ContainsAny(s, "/\\.") {
		return ""
	}
	return strings.ToLower(s)
}
