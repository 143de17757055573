package gateway

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

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
	if err := b.between(ctx, func() error {
		err := b.isEmpty(ctx)
		if err == nil {
			b.stop(serve.ErrNoArchive)
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := storekit.Write(ctx, g.st, g.removed(name), func(store.Writer) error { return nil }); err != nil {
		return err
	}
	g.set.Drop(name)
	g.mu.Lock()
	delete(g.buckets, name)
	g.mu.Unlock()
	return errors.Join(b.close(), g.removeRest(ctx, name))
}

// isEmpty returns an error unless the bucket has no objects, and its catalogue has only what the gateway has made.
func (b *bucket) isEmpty(ctx context.Context) error {
	for _, err := range b.book.Below(ctx, "") {
		if err == nil {
			err = serve.ErrBucketNotEmpty
		}
		return err
	}
	s, err := b.book.Full(ctx)
	if err != nil {
		return err
	}
	if err := b.owns(s); err != nil {
		return err
	}
	all, err := b.book.Archives(ctx)
	for _, a := range all {
		if base := path.Base(a.Address); a.Address != storekit.AddressOf(b.g.st, b.in(base)) || !ours(b.name, base) {
			return serve.ErrReadOnly
		}
	}
	if len(s.Plans)+len(s.Removals) > 0 {
		return serve.ErrReadOnly
	}
	return err
}

func (g *Gateway) removed(name string) string { return g.catalogue(name) + ".removed" }

func (g *Gateway) wasRemoved(ctx context.Context, name string) (bool, error) {
	_, err := storekit.Briefly(g.st, g.removed(name)).Info(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

var made = regexp.MustCompile(`^-(log-[0-9]{8,}-[0-9a-f]{8}|object-[0-9A-Z]{26})\.caf($|\.)`)

// ours reports whether an object beside the catalogue of a bucket is an archive that the gateway has made, or belongs
// to one.
func ours(bucket, base string) bool {
	rest, is := strings.CutPrefix(base, bucket)
	return is && made.MatchString(rest)
}

// removeRest removes what is left of a bucket of which it was said that it is removed.
func (g *Gateway) removeRest(ctx context.Context, name string) error {
	is, err := g.wasRemoved(ctx, name)
	if err != nil || !is {
		return err
	}
	for _, at := range []string{name + "-log-", name + "-object-", name + ".uploads/", name + book.Suffix + "/", name + book.Suffix + ".gone/"} {
		for info, err := range storekit.List(ctx, g.st, g.at+at) {
			if err != nil {
				return err
			}
			if strings.HasSuffix(at, "-") && !ours(name, path.Base(info.Name)) {
				continue
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
