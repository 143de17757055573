package parity

import (
	"context"
	"encoding/hex"
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
		if err == nil && !g.f.mayProtect(name) {
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

// Identity returns the identity of the parity that lies beside an archive of so many bytes, or "" if there is
// none for it. It reads nothing of the archive: an identity is that of what was protected.
func Identity(ctx context.Context, st store.Store, name string, size int64) (string, error) {
	for _, beside := range Names(name) {
		f, err := Open(ctx, st, beside, beside)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return "", err
		}
		own, n := int64(0), 0
		for _, o := range f.Objects {
			if o.isOf(name) {
				own, n = own+o.Size, n+1
			}
		}
		if err := f.Close(); err != nil {
			return "", err
		}
		if f.mayProtect(name) && (own == size || n > 1) { // a folder may have objects that are not the archive's
			return hex.EncodeToString(f.h.id[:]), nil
		}
	}
	return "", nil
}

// errOther means that the parity belongs to other files.
var errOther = errors.New("it protects other files")

// mayProtect reports whether a file that lies beside an archive may be its parity: one with the name of a
// set's parity may be that of a different archive. A set has files beside the parity, by their names.
func (f *File) mayProtect(name string) bool {
	return f.At == NameOf([]string{name}) || len(f.Objects) > 0 && f.Objects[0].Name != "" && f.Objects[0].Name[0] != '/'
}

func open(ctx context.Context, from store.Store, fromName, shown string, st store.Store, name string) (*Guard, error) {
	f, err := Open(ctx, from, fromName, shown)
	if err != nil {
		return nil, err
	}
	return bind(ctx, f, st, name)
}
