package parity

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdall/holdall/store"
)

// None as the address means that no parity is to be used.
const None = "none"

// Seek finds the parity of the archive called name in st and binds it: the file at an address, or
// without one the file beside the archive. It returns nil if there is none. It reads some blocks
// of the archive.
func Seek(ctx context.Context, st store.Store, name, at string, unsound func(context.Context) bool) (*Guard, error) {
	g, err := Locate(ctx, st, name, at)
	if g != nil {
		g.Unsound = unsound
		if err = g.look(ctx); err != nil {
			_ = g.Close()
			g = nil
		}
	}
	return g, err
}

// Locate is like Seek but does not read the archive, which saves requests to a remote store.
func Locate(ctx context.Context, st store.Store, name, at string) (*Guard, error) {
	if at == None {
		return nil, nil
	}
	if at != "" {
		from, fromName, err := store.OpenAddress(ctx, at)
		if err != nil {
			return nil, err
		}
		return open(ctx, from, fromName, store.Redact(at), st, name)
	}
	for _, beside := range Names(name) {
		g, err := open(ctx, st, beside, beside, st, name)
		// A file with the name of a set's parity may be the parity of a different archive.
		if err == nil && beside != NameOf([]string{name}) && !g.ofSet() {
			err = errors.Join(errOther, g.Close())
		}
		// A bucket that may not be listed denies permission for objects that do not exist.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errOther) {
			continue
		}
		return g, err
	}
	return nil, nil
}

// errOther means that the parity belongs to other files.
var errOther = errors.New("it protects other files")

// ofSet reports whether the objects are files beside the parity, by their names.
func (g *Guard) ofSet() bool {
	return len(g.f.Objects) > 0 && g.f.Objects[0].Name != "" && g.f.Objects[0].Name[0] != '/'
}

func open(ctx context.Context, from store.Store, fromName, shown string, st store.Store, name string) (*Guard, error) {
	f, err := Open(ctx, from, fromName, shown)
	if err != nil {
		return nil, err
	}
	return bind(ctx, f, st, name)
}
