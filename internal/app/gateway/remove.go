package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A removal lies beside a catalogue that is being removed: then the bucket is not there, whatever is left of it. It says
// what the catalogue was when it had no object, and what is beside it.
type removal struct {
	Marker string   `json:"marker"`
	Names  []string `json:"names"`
}

// Remove implements [serve.Keeper]. It removes the catalogue, and the archives that the gateway has made, if no object
// is left.
func (g *Gateway) Remove(ctx context.Context, name string) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	b := g.buckets[name]
	g.mu.Unlock()
	switch {
	case b == nil:
		_, err := g.Bucket(ctx, name)
		return err
	case g.only != "" || g.o.InBucket: // other gateways may write
		return serve.ErrReadOnly
	}
	var r removal
	if err := b.between(ctx, func() error {
		archives, err := b.isEmpty(ctx)
		if err != nil {
			return err
		}
		_, added := b.book.Beside()
		for _, a := range archives {
			for _, beside := range append([]string{"", added}, kept.Beside...) {
				r.Names = append(r.Names, a+beside)
			}
		}
		b.stop(serve.ErrNoArchive)
		return nil
	}); err != nil {
		return err
	}
	g.set.Drop(name)
	g.mu.Lock()
	delete(g.buckets, name)
	g.mu.Unlock()
	err := b.close() // it writes the head, and nothing follows
	r.Marker = b.book.Marker().String()
	if err == nil {
		err = putJSON(ctx, g.st, g.removed(name), r, store.Wishes{})
	}
	if err == nil {
		err = g.removeRest(ctx, name)
	}
	return err
}

// isEmpty returns an error unless the bucket has no objects, and its catalogue has only what gateways have packed. It
// returns the names of the archives beside it.
func (b *bucket) isEmpty(ctx context.Context) (archives []string, err error) {
	if b.book.Source() != "" {
		return nil, serve.ErrSource
	}
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
	for _, l := range b.over.Load().every {
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

// wasRemoved reports whether a bucket is being removed.
func (g *Gateway) wasRemoved(ctx context.Context, name string) (r removal, is bool, err error) {
	err = getJSON(ctx, g.st, g.removed(name), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil && !book.IsMarker(r.Marker) {
		err = damaged(g.removed(name), "it does not say what was removed")
	}
	return r, err == nil, err
}

// setAside has a bucket answer requests with an error: nobody knows whether it was removed.
func (g *Gateway) setAside(name string, err error) {
	err = fmt.Errorf("remove the marker to have the bucket again, and start the server again: %w", err)
	g.o.Logger.Error("the bucket cannot be used", "bucket", name, "error", err)
	g.aside[name] = err
	g.set.Add(serve.Source{Name: name, Address: g.shown(name), Open: func(context.Context, string) (*holdall.Archive, string, error) { return nil, "", err }})
}

// removeRest removes what is left of a bucket that is being removed. The head goes last: as long as it is there, it
// proves that this is the catalogue which had no object.
func (g *Gateway) removeRest(ctx context.Context, name string) error {
	r, is, err := g.wasRemoved(ctx, name)
	if err != nil || !is {
		return err
	}
	catalogue := g.catalogue(name)
	b, err := book.Open(ctx, g.st, catalogue, book.Options{})
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return err
	}
	if !gone {
		is := b.Marker().String()
		if err := b.Close(); err != nil {
			return err
		}
		if is != r.Marker {
			return fmt.Errorf("%s: it says that %s was removed, but this is another state of it: remove this file to have the bucket again", format.Escape(g.removed(name)), format.Escape(catalogue))
		}
		for _, base := range r.Names {
			if base != path.Base(base) || !strings.HasPrefix(base, name+"-") {
				return fmt.Errorf("%s: it has %q, which is no archive of the bucket", format.Escape(g.removed(name)), base)
			}
			if err := g.removeOne(ctx, g.at+base); err != nil {
				return err
			}
		}
		if g.o.Log != "" {
			if err := os.RemoveAll(g.folder(name)); err != nil {
				return err
			}
		}
		for _, at := range []string{g.at + name + ".uploads/", catalogue + ".gone/", catalogue + "/"} {
			for info, err := range storekit.List(ctx, g.st, at) {
				if err == nil && info.Name != catalogue+"/head" {
					err = g.removeOne(ctx, info.Name)
				}
				if err != nil {
					return err
				}
			}
		}
		if err := g.removeOne(ctx, catalogue+"/head"); err != nil {
			return err
		}
	}
	return g.removeOne(ctx, g.removed(name))
}

// removeOne removes an object, if it is there.
func (g *Gateway) removeOne(ctx context.Context, name string) error {
	err := storekit.Remove(ctx, g.st, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
