package storekit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
)

// OpenFolder returns the store of the objects below an address. Their names in it are relative to
// the address.
func OpenFolder(ctx context.Context, address string) (store.Store, error) {
	at, query, found := strings.Cut(address, "?")
	if found {
		query = "?" + query
	}
	// The store of any name below the address is the store of all of them.
	st, _, err := store.OpenAddress(ctx, strings.TrimRight(at, "/")+"/x"+query)
	return st, err
}

// AddressOf returns the address of an object of st, or "" if it has none.
func AddressOf(st store.Store, name string) string {
	if address := st.Can().Address; address != nil {
		return address(name)
	}
	return ""
}

// ErrDamaged means that what is stored is not what was written, as the store itself can tell.
var ErrDamaged = errors.New("archive is damaged")

// Under returns the store of what is stored, if st is a layer over one, or else st.
func Under(st store.Store) store.Store { return cmp.Or(st.Can().Below, st) }

// Over returns the layer that st is over another store, or that store if st is none.
func Over(st, below store.Store) store.Store {
	if over := st.Can().Over; over != nil {
		return over(below, nil)
	}
	return below
}

// OpenInfo opens an object and requests its Info.
func OpenInfo(ctx context.Context, st store.Store, name string) (o store.Object, info store.Info, err error) {
	if o, err = st.Open(ctx, name); err != nil {
		return nil, info, err
	}
	if info, err = o.Info(ctx); err != nil {
		o.Close()
		return nil, info, err
	}
	return o, info, nil
}

// Briefly returns an object that is opened anew for each call of its methods. It is for programs
// that use more objects than a process can hold open.
func Briefly(st store.Store, name string) store.Object { return briefly{st, name} }

type briefly struct {
	st   store.Store
	name string
}

func (b briefly) do(ctx context.Context, ask func(store.Object) error) error {
	o, err := b.st.Open(ctx, b.name)
	if err != nil {
		return err
	}
	defer o.Close()
	return ask(o)
}

func (b briefly) Info(ctx context.Context) (info store.Info, err error) {
	err = b.do(ctx, func(o store.Object) (err error) { info, err = o.Info(ctx); return err })
	return info, err
}

func (b briefly) ReadAt(ctx context.Context, p []byte, off int64) error {
	return b.do(ctx, func(o store.Object) error { return o.ReadAt(ctx, p, off) })
}

func (b briefly) Close() error { return nil }

func (b briefly) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

type patience struct{}

// Patient returns a context in which a request that may succeed later is sent again for at least d, and not only a few times.
func Patient(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, d)
}

// Patience returns what Patient has set, for stores.
func Patience(ctx context.Context) time.Duration {
	d, _ := ctx.Value(patience{}).(time.Duration)
	return d
}

type telling struct{}

// Telling returns a context in which stores call tell with what a user should know of a request that
// succeeded, in one line. It may be called concurrently.
func Telling(ctx context.Context, tell func(line string)) context.Context {
	return context.WithValue(ctx, telling{}, tell)
}

// Tell calls what Telling has set, if anything. It is for stores.
func Tell(ctx context.Context, line string) {
	if tell, ok := ctx.Value(telling{}).(func(string)); ok {
		tell(line)
	}
}

// Temporary reports whether err is a failed request that may succeed later.
func Temporary(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Retry
}

// IsPage reports whether an object of a store on a network begins as web pages do. Some servers send a
// page in the place of what is not there, as if it were that.
func IsPage(ctx context.Context, st store.Store, name string) bool {
	if st.Can().Near {
		return false
	}
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	head := make([]byte, 512)
	n, err := ReadHead(ctx, o, head)
	text := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(string(head[:n]), "\ufeff"), " \t\r\n\f"))
	return err == nil && slices.ContainsFunc([]string{"<!doctype html", "<html", "<head", "<body", "<script", "<!--"}, func(tag string) bool {
		return strings.HasPrefix(text, tag)
	})
}

// ReadTail reads the last len(p) bytes of o into p, or all of o if it is shorter. It returns the
// number of bytes.
func ReadTail(ctx context.Context, o store.Object, p []byte) (int, error) {
	return readEnd(ctx, o, p, true)
}

// ReadHead reads the first len(p) bytes of o into p, or all of o if it is shorter. It returns the
// number of bytes.
func ReadHead(ctx context.Context, o store.Object, p []byte) (int, error) {
	return readEnd(ctx, o, p, false)
}

func readEnd(ctx context.Context, o store.Object, p []byte, tail bool) (int, error) {
	if read := o.Can().ReadEnd; read != nil {
		return read(ctx, p, tail)
	}
	info, err := o.Info(ctx)
	if err != nil {
		return 0, err
	}
	n, off := min(int64(len(p)), info.Size), int64(0)
	if tail {
		off = info.Size - n
	}
	return int(n), o.ReadAt(ctx, p[:n], off)
}

// Inner returns o if it has the type O, or else the first object of that type that o is a view
// of.
func Inner[O store.Object](o store.Object) (found O, ok bool) {
	for o != nil && !ok {
		if found, ok = o.(O); !ok {
			o = o.Can().Inner
		}
	}
	return found, ok
}

// OpenGrowing opens an object that programs only append to. If the store does not support that,
// reads fail once the object has grown.
func OpenGrowing(ctx context.Context, st store.Store, name string) (store.Object, error) {
	if open := st.Can().OpenGrowing; open != nil {
		return open(ctx, name)
	}
	return st.Open(ctx, name)
}

// List yields the objects of st whose names begin with prefix, sorted by name. If the store
// cannot list, it yields an error that wraps [errors.ErrUnsupported].
func List(ctx context.Context, st store.Store, prefix string) iter.Seq2[store.Info, error] {
	if list := st.Can().List; list != nil {
		return list(ctx, prefix)
	}
	return func(yield func(store.Info, error) bool) {
		yield(store.Info{}, fmt.Errorf("list %q: %w", prefix, errors.ErrUnsupported))
	}
}

// ListFrom is like [List], but starts at the first name that is not less than from. If the store
// does not support that, it lists from the beginning and skips the names before from.
func ListFrom(ctx context.Context, st store.Store, prefix, from string) iter.Seq2[store.Info, error] {
	if list := st.Can().ListFrom; list != nil && from > prefix {
		return list(ctx, prefix, from)
	}
	return func(yield func(store.Info, error) bool) {
		for info, err := range List(ctx, st, prefix) {
			if err == nil && info.Name < from {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// ListHeaders is like [List], and yields the headers of the objects too if the store can list
// them.
func ListHeaders(ctx context.Context, st store.Store, prefix string) iter.Seq2[store.Headed, error] {
	if list := st.Can().ListHeaders; list != nil {
		return list(ctx, prefix)
	}
	return func(yield func(store.Headed, error) bool) {
		for info, err := range List(ctx, st, prefix) {
			if !yield(store.Headed{Info: info}, err) {
				return
			}
		}
	}
}

// Unchanged returns an error that wraps [store.ErrChanged] if info and now describe different versions
// of an object.
func Unchanged(info, now store.Info) error {
	if info.Size != now.Size || info.Version != now.Version {
		return &store.Error{Op: "compare", Name: info.Name, Off: -1, Err: store.ErrChanged}
	}
	return nil
}

// OpenAs opens the version of an object that a listing returned as info. If the store does not
// support that, OpenAs requests the current version and compares it; another version is
// [store.ErrChanged].
func OpenAs(ctx context.Context, st store.Store, info store.Info) (store.Object, error) {
	if open := st.Can().OpenAs; open != nil {
		return open(ctx, info)
	}
	o, now, err := OpenInfo(ctx, st, info.Name)
	if err == nil && (now.Size != info.Size || info.Version != "" && now.Version != info.Version) {
		o.Close()
		return nil, &store.Error{Op: "open", Name: info.Name, Off: -1, Err: store.ErrChanged}
	}
	return o, err
}
