// Package age is a layer of encryption over another store. Its objects are stored as files of age
// (age-encryption.org/v1), which the command age reads and writes too.
//
// Contents are encrypted in pages of 64 KiB, each of which is authenticated, with its place and whether
// it is the last. So a range takes only the pages that it is in, and a wrong byte is never returned.
package age

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"

	"filippo.io/age"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Store has the objects of another store, decrypted.
type Store struct {
	below store.Store
	keys  *Keys
	heal  func(context.Context) store.Store // see store.Layer
}

// New returns a store over below.
func New(below store.Store, keys *Keys) *Store { return &Store{below: below, keys: keys} }

// Open returns the store and the object's name for an address with age: in front. It can be passed
// to [store.Register]. The keys are those of the environment, and are read when they are needed.
func Open(ctx context.Context, address string) (store.Store, string, error) {
	_, at := store.CutLayer(address)
	below, name, err := store.OpenAddress(ctx, at)
	if err != nil {
		return nil, "", err
	}
	return New(below, environment()), name, nil
}

// Can returns what a layer can do. What would change or copy stored bytes is absent, since that would
// bypass it, and so is an identity, since it would let caches on a disk keep what is decrypted.
func (s *Store) Can() store.Abilities {
	below := s.below.Can()
	can := store.Abilities{Near: below.Near, Layer: &store.Layer{Below: s.below, Over: s.over}, Remove: below.Remove, Locked: below.Locked, Owns: below.Owns}
	if below.Address != nil {
		can.Address = s.address
	}
	if below.List != nil {
		can.List = s.list
	}
	if below.Create != nil {
		can.Create = s.create(below.Create)
	}
	if below.Folder != nil {
		can.Folder = func(ctx context.Context, name string) (*store.Folder, error) {
			f, err := below.Folder(ctx, name)
			if err != nil {
				return nil, err
			}
			return &store.Folder{Create: s.create(f.Create), Commit: f.Commit, Abort: f.Abort}, nil
		}
	}
	return can
}

func (s *Store) over(below store.Store, heal func(context.Context) store.Store) store.Store {
	return &Store{below, s.keys, heal}
}

func (s *Store) address(name string) string {
	if at := storekit.AddressOf(s.below, name); at != "" {
		return "age:" + at
	}
	return ""
}

// Open opens an object. If it is missing, it may have to be healed.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	in, err := s.below.Open(ctx, name)
	o := &object{st: s, name: name, in: in, loading: make(chan struct{}, 1)}
	if err == nil {
		return o, nil
	}
	if healed := o.cure(ctx, err); healed != nil {
		return healed, nil
	}
	return nil, err
}

// list lists objects with their sizes as they are decrypted, for which it reads the beginning of each.
// One that is not encrypted has the size that it has, and cannot be read.
func (s *Store) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	const workers = 8
	return func(yield func(store.Info, error) bool) {
		type listed struct {
			store.Info
			err error
		}
		all := func(yield func(*listed, error) bool) {
			for info, err := range storekit.List(ctx, s.below, prefix) {
				if !yield(&listed{Info: info}, err) {
					return
				}
			}
		}
		left := errors.New("left")
		err := pipe.Ordered(ctx, all, workers, func(ctx context.Context, x *listed) {
			o := &object{st: s, name: x.Name, in: storekit.Briefly(s.below, x.Name)}
			_, header, err := o.header(ctx, 0)
			if err == nil {
				x.Size, _, _ = sizes(x.Size - int64(len(header)) - nonceLen)
			} else if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, errPlain) && !errors.Is(err, errArmor) {
				x.err = err
			}
		}, func(x *listed) error {
			if x.err == nil && !yield(x.Info, nil) {
				return left
			}
			return x.err
		}, func(*listed) {})
		if err != nil && !errors.Is(err, left) {
			yield(store.Info{}, err)
		}
	}
}

// create returns a function that begins objects. Their keys are random, so nothing of an earlier
// writer can be resumed.
func (s *Store) create(below func(context.Context, string, store.Wishes) (store.Writer, error)) func(context.Context, string, store.Wishes) (store.Writer, error) {
	return func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		to, err := s.keys.recipients()
		if err != nil {
			return nil, &store.Error{Op: "create", Name: name, Off: -1, Err: err}
		}
		wish.Resume = false
		in, err := below(ctx, name, wish)
		if err != nil {
			return nil, err
		}
		w := &writer{in: in, name: name}
		if w.to, err = age.Encrypt(in, to...); err != nil {
			return nil, errors.Join(&store.Error{Op: "create", Name: name, Off: -1, Err: err}, in.Abort())
		}
		return w, nil
	}
}

type writer struct {
	in    store.Writer
	name  string
	to    io.WriteCloser
	n     int64
	ended bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, &store.Error{Op: "write", Name: w.name, Off: -1, Err: fs.ErrClosed}
	}
	n, err := w.to.Write(p)
	w.n += int64(n)
	return n, err
}

// Can returns what does not change or keep what was encrypted before.
func (w *writer) Can() (can store.WriterAbilities) {
	if finish := w.in.Can().Finish; finish != nil {
		can.Finish = func(ctx context.Context) (store.Info, error) { return w.end(ctx, finish) }
	}
	return can
}

// end writes the last page, and then calls last.
func (w *writer) end(ctx context.Context, last func(context.Context) (store.Info, error)) (info store.Info, err error) {
	if !w.ended {
		w.ended = true
		err = w.to.Close()
	}
	if err == nil {
		info, err = last(ctx)
	}
	info.Size = w.n
	return info, err
}

func (w *writer) Commit(ctx context.Context) (store.Info, error) { return w.end(ctx, w.in.Commit) }

func (w *writer) Abort() error {
	w.ended = true
	return w.in.Abort()
}
