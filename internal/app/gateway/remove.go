package gateway

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Remove implements [serve.Keeper]. It removes the catalogue, and the archives that the gateway has made, if no object
// is left. An object beside the catalogue says first that this was begun, and is removed last: then a bucket that is
// removed in part is not there.
func (g *Gateway) Remove(ctx context.Context, name string) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	b := g.buckets[name]
	g.mu.Unlock()
	switch {
	case b == nil:
		return serve.ErrNoArchive
	case g.only != "" || g.o.InBucket: // other gateways may write
		return serve.ErrReadOnly
	}
	var archives []string
	if err := b.between(ctx, func() (err error) {
		if archives, err = b.isEmpty(ctx); err == nil {
			b.stop(serve.ErrNoArchive)
		}
		return err
	}); err != nil {
		return err
	}
	if err := putJSON(ctx, g.st, g.removed(name), archives, store.Wishes{}); err != nil {
		return err
	}
	g.set.Drop(name)
	g.mu.Lock()
	delete(g.buckets, name)
	g.mu.Unlock()
	return errors.Join(b.close(), g.removeRest(ctx, name))
}

// isEmpty returns an error unless the bucket has no objects, and its catalogue has only what gateways have packed. It
// returns the names of the archives beside it.
func (b *bucket) isEmpty(ctx context.Context) (archives []string, err error) {
	for _, err := range b.book.Below(ctx, "") {
		if err == nil {
			err = serve.ErrBucketNotEmpty
		}
		return nil, err
	}
	s, err := b.book.Full(ctx)
	if err == nil {
		err = b.owns(s)
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Plans, func(p book.Plan) bool { return string(p.Name) != b.name }) {
		return nil, serve.ErrReadOnly
	}
	var addresses []string
	all, err := b.book.Archives(ctx)
	for _, a := range all {
		if a.Roots != b.packing.Roots {
			return nil, serve.ErrReadOnly
		}
		addresses = append(addresses, a.Address)
	}
	for _, l := range b.over.Load().held {
		for _, a := range l.archives[1:] {
			addresses = append(addresses, a.Address)
		}
	}
	for _, r := range s.Removals {
		addresses = append(addresses, b.book.AddressOf(r))
	}
	for _, address := range addresses {
		base := path.Base(address)
		if address != storekit.AddressOf(b.g.st, b.in(base)) {
			return nil, serve.ErrReadOnly
		}
		archives = append(archives, base)
	}
	return archives, err
}

func (g *Gateway) removed(name string) string { return g.catalogue(name) + ".removed" }

// wasRemoved reports whether a bucket was removed, and returns its archives.
func (g *Gateway) wasRemoved(ctx context.Context, name string) (archives []string, is bool, err error) {
	err = getJSON(ctx, g.st, g.removed(name), &archives)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return archives, err == nil, err
}

// removeRest removes what is left of a bucket that was removed.
func (g *Gateway) removeRest(ctx context.Context, name string) error {
	begins, is, err := g.wasRemoved(ctx, name)
	if err != nil || !is {
		return err
	}
	for _, at := range append(begins, name+".uploads/", name+book.Suffix+"/", name+book.Suffix+".gone/") { // with what lies beside
		for info, err := range storekit.List(ctx, g.st, g.at+at) {
			if err != nil {
				return err
			}
			if err := storekit.Remove(ctx, g.st, info.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if g.o.Log != "" {
		if err := os.RemoveAll(g.folder(name)); err != nil {
			return err
		}
	}
	return storekit.Remove(ctx, g.st, g.removed(name))
}
