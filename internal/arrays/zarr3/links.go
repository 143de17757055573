package zarr3

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// maxHops is the longest chain of soft links that is followed.
const maxHops = 40

// LookupLinked looks up a name where soft links may stand for groups or arrays. link returns the
// target of the link at a path, or "". A target without a leading slash is relative to the group of
// the link. LookupLinked also returns the last name that it looked up.
func LookupLinked(ctx context.Context, name string, link func(at string) string, lookup func(context.Context, string) (format.Entry, error)) (e format.Entry, at string, err error) {
	e, err = lookup(ctx, name)
	if at = name; !naming.ValidPath(name) {
		return e, at, err
	}
	for range maxHops {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		to, ok := follow(at, link)
		if !ok {
			break
		}
		at = to
		found, lerr := lookup(ctx, at)
		if lerr == nil {
			found.Name = name
			return found, at, nil
		}
	}
	return e, at, err
}

// follow replaces the first link on the way to a name.
func follow(name string, link func(at string) string) (string, bool) {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		at := name[:i]
		to := link(at)
		if to == "" {
			continue
		}
		return zarrkey.LinkTarget(at, to+name[i:]), true
	}
	return "", false
}
