// Package age is a layer of encryption over another store. Its objects are stored as files of age
// (age-encryption.org/v1), in pages of 64 KiB, each of which proves itself, its place, and whether it is
// the last. So a range takes only the pages that it lies in, and no wrong byte is ever returned.
package age

import (
	"context"
	"errors"
	"io"
	"iter"

	"filippo.io/age"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Store has the objects of another store, decrypted.
type Store struct {
	below store.Store
	keys  *Keys
	heal  func(context.Context) store.Store // see store.Abilities; may be nil
}

// New returns a store over below.
func New(below store.Store, keys *Keys) *Store { return &Store{below: below, keys: keys} }

// Open returns the store and the object's name for an address with age: in front. It can be passed
// to [store.Register]. The environment names the keys.
func Open(ctx context.Context, address string) (store.Store, string, error) {
	_, at := store.CutLayer(address)
	below, name, err := store.OpenAddress(ctx, at)
	if err != nil {
		return nil, "", err
	}
	keys, err := environment()
	return New(below, keys), name, err
}

// Can returns what cannot bypass the layer. It has no identity, because caches on a disk would then keep what is
// decrypted, and is not near: what was decrypted is worth caching in memory.
func (s *Store) Can() store.Abilities {
	below := s.below.Can()
	can := store.Abilities{Below: s.below, Over: s.over, Remove: below.Remove, Locked: below.Locked, Owns: below.Owns}
	if below.Address != nil {
		can.Address = func(name string) string {
			if at := below.Address(name); at != "" {
				return "age:" + at
			}
			return ""
		}
	}
	if below.List != nil {
		can.List = s.list
	}
	if below.Create != nil {
		can.Create = s.creates(below.Create)
	}
	if below.Folder != nil {
		can.Folder = func(ctx context.Context, name string) (*store.Folder, error) {
			f, err := below.Folder(ctx, name)
			if err == nil {
				f = &store.Folder{Create: s.creates(f.Create), Commit: f.Commit, Abort: f.Abort}
			}
			return f, err
		}
	}
	return can
}

func (s *Store) over(below store.Store, heal func(context.Context) store.Store) store.Store {
	return &Store{below, s.keys, heal}
}

func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	in, err := s.below.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &object{st: s, name: name, in: in}, nil
}

// list reads the beginning of each object, for its size as it is decrypted. One that is no file of age keeps
// its size, and cannot be read.
func (s *Store) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range storekit.List(ctx, s.below, prefix) {
			if err == nil {
				o := &object{st: s, name: info.Name, in: storekit.Briefly(s.below, info.Name)}
				if _, header, herr := o.header(ctx); herr == nil {
					info.Size, _ = sizes(info.Size - int64(len(header)) - nonceLen)
				} else if e, ok := errors.AsType[*store.Error](herr); !ok || e.Op != opDecrypt {
					err = herr
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

type creator = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error)

func (s *Store) creates(below creator) creator {
	return func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		if len(s.keys.Recipients) == 0 {
			return nil, &store.Error{Op: "encrypt", Name: name, Off: -1, Err: noKey("to whom? Set " + recipientsVar + " to a recipient (age1…) or a file of them, or " + passphraseVar + " to a file with a passphrase")}
		}
		wish.Resume = false // nothing of an earlier writer has the same key
		in, err := below(ctx, name, wish)
		if err != nil {
			return nil, err
		}
		w := &writer{in: in}
		if w.to, err = age.Encrypt(in, s.keys.Recipients...); err != nil {
			return nil, errors.Join(&store.Error{Op: "encrypt", Name: name, Off: -1, Err: err}, in.Abort())
		}
		return w, nil
	}
}

type writer struct {
	in store.Writer
	to io.WriteCloser
	n  int64
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	return n, err
}

// Can returns nothing: what changes or copies bytes would not encrypt them.
func (w *writer) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w *writer) Commit(ctx context.Context) (info store.Info, err error) {
	if err = w.to.Close(); err == nil { // it writes the last page
		info, err = w.in.Commit(ctx)
	}
	info.Size = w.n
	return info, err
}

func (w *writer) Abort() error { return w.in.Abort() }
