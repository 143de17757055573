// Package union reads several archives as one, such as the chunks of a set. If several of them
// have a name, the last of these counts. Contents are read and proven by the archives themselves.
package union

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// formatName is the name of the format of a set.
const formatName = "set"

// Open opens one of the archives.
type Open func(ctx context.Context, name string) (*content.Source, error)

// How many archives stay open, and how many far ones are opened at once.
const (
	mostOpen  = 64
	farAtOnce = 16
	fewNames  = 8 // so many are looked up before all are read
)

// A Reader shows the entries of several archives. The names of all entries are in memory once
// something is listed, or many names were looked up.
type Reader struct {
	kit.LateIndex
	open Open
	all  []*member
	near bool

	mu      sync.Mutex
	opened  []*member // the one used last is the last
	certain bool
	closed  bool

	loading sync.Mutex
	index   *kit.Index
	stored  int64
	looked  int // names
}

// A member is one of the archives. The Ref of its entries is its address.
type member struct {
	name  string
	once  sync.Mutex // while it is opened
	src   *content.Source
	users int
	doubt *format.CorruptError // what is wrong with it, as far as that is known
}

// New returns the source of the archives with these names. Those that are damaged or missing are left out, and
// the source's Doubt says which. An error of opening all of them is returned.
func New(ctx context.Context, called string, names []string, open Open) (*content.Source, error) {
	r := &Reader{open: open}
	r.Load = r.load
	for _, name := range names {
		r.all = append(r.all, &member{name: name})
	}
	var first error
	for _, m := range r.all {
		src, release, err := r.use(ctx, m)
		if err != nil {
			if first = cmp.Or(first, err); !spoilt(err) {
				return nil, err
			}
			continue
		}
		defer release()
		r.near = src.Store.Can().Near
		s := content.New(nowhere{r.near}, called, nil, 0)
		s.Checking, s.Parts = src.Checking, r
		f := &format.Format{Name: formatName, Title: "Set of archives", Keeps: src.Format.Keeps | format.KeepsSymlinks | format.KeepsHardLinks}
		s.Read(f, r)
		return s, nil
	}
	return nil, cmp.Or(first, fs.ErrNotExist)
}

// spoilt reports whether an error means that an archive cannot be read later either. Then the others are shown
// without it.
func spoilt(err error) bool {
	return !storekit.Temporary(err) && (errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrUnknown) || errors.Is(err, fs.ErrNotExist))
}

// use returns the source of an archive, which stays open until release is called.
func (r *Reader) use(ctx context.Context, m *member) (_ *content.Source, release func(), err error) {
	r.mu.Lock()
	m.users++
	r.mu.Unlock()
	release = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		m.users--
	}
	m.once.Lock()
	defer m.once.Unlock()
	r.mu.Lock()
	src := m.src
	r.mu.Unlock()
	if src == nil {
		if src, err = r.open(ctx, m.name); err != nil {
			if release(); spoilt(err) {
				r.lose(m, err)
			}
			return nil, nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		m.users--
		return nil, nil, errors.Join(fs.ErrClosed, src.Close())
	}
	if r.certain {
		src.Certain()
	}
	m.src, r.opened = src, append(slices.DeleteFunc(r.opened, func(x *member) bool { return x == m }), m)
	for i := 0; i < len(r.opened) && len(r.opened) > mostOpen; {
		if x := r.opened[i]; x.users > 0 {
			i++
		} else {
			r.opened = slices.Delete(r.opened, i, i+1)
			_ = x.shut() // it was only read
		}
	}
	return src, release, nil
}

// shut closes an archive. What is wrong with it is remembered.
func (m *member) shut() error {
	m.remember()
	src := m.src
	m.src = nil
	return src.Close()
}

// remember keeps the doubt of an open archive.
func (m *member) remember() {
	if c, ok := errors.AsType[*format.CorruptError](m.src.Doubt()); ok && m.doubt == nil {
		m.doubt = &format.CorruptError{Format: c.Format, Problem: c.Problem, Err: c.Err}
		m.doubt.Message = m.name + ": " + c.Message
	}
}

// lose notes that an archive, or the rest of it, is not shown.
func (r *Reader) lose(m *member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.doubt = &format.CorruptError{Format: formatName, Problem: format.Problem{Code: format.MissingVolume, Severity: format.Error, Volume: m.name, Off: -1, Message: m.name + " cannot be read, so entries are missing"}, Err: err}
}

// Doubts is that of content.Parts.
func (r *Reader) Doubts() (all []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.opened {
		m.remember()
	}
	for _, m := range r.all {
		if m.doubt != nil {
			all = append(all, m.doubt)
		}
	}
	return all
}

func (r *Reader) beCertain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.certain = true
	for _, m := range r.opened {
		m.src.Certain()
	}
}

// each calls do for the archives, several at once, and take with what it returned for each, in order.
func each[T any](ctx context.Context, r *Reader, all []*member, do func(context.Context, *content.Source) (T, error), take func(*member, T, error) error) error {
	type job struct {
		m   *member
		got T
		err error
	}
	n := farAtOnce
	if r.near {
		n = runtime.GOMAXPROCS(0)
	}
	return pipe.Ordered(ctx, func(yield func(*job, error) bool) {
		for _, m := range all {
			if !yield(&job{m: m}, nil) {
				return
			}
		}
	}, n, func(ctx context.Context, j *job) {
		var src *content.Source
		var release func()
		if src, release, j.err = r.use(ctx, j.m); j.err == nil {
			defer release()
			j.got, j.err = do(ctx, src)
		}
	}, func(j *job) error { return take(j.m, j.got, j.err) }, func(*job) {})
}

// load reads the entries of all archives.
func (r *Reader) load(ctx context.Context) (*kit.Index, error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.index != nil {
		return r.index, nil
	}
	type part struct {
		entries kit.Entries
		stored  int64
	}
	t, stored := &table{}, int64(0)
	err := each(ctx, r, r.all, func(ctx context.Context, src *content.Source) (p part, err error) {
		for e, err := range src.Reader.Entries(ctx) {
			if err != nil {
				return p, err
			}
			e.Ref = nil // it may hold on to what is closed
			p.entries = append(p.entries, e)
		}
		p.stored, err = src.StoredSize(ctx)
		return p, err
	}, func(m *member, p part, err error) error {
		if err != nil && !spoilt(err) {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err != nil {
			r.lose(m, err)
		}
		for i := range p.entries {
			t.names = append(t.names, p.entries[i].Name)
		}
		t.of, t.entries, t.ends = append(t.of, m), append(t.entries, p.entries), append(t.ends, t.Len())
		stored += p.stored
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.index, r.stored = kit.NewIndex(t), stored
	return r.index, nil
}

// A table has the entries of all archives, in their order.
type table struct {
	of      []*member
	entries []kit.Entries
	ends    []int
	names   []string // as names are compared often
}

func (t *table) Len() int { return len(t.names) }

func (t *table) Name(i int) string { return t.names[i] }

func (t *table) Entry(i int) format.Entry {
	k, _ := slices.BinarySearch(t.ends, i+1)
	return t.of[k].shown(t.entries[k][i-t.ends[k]+len(t.entries[k])])
}

// shown returns an entry of an archive as that of the set.
func (m *member) shown(e format.Entry) format.Entry {
	if e.Ref = m; e.Fault != nil {
		p := *e.Fault
		p.Message = m.name + ": " + p.Message
		e.Fault = &p
	}
	return e
}

var errFound = errors.New("found")

// Lookup asks the archives, the last one first. After a few names, it reads the names of all.
func (r *Reader) Lookup(ctx context.Context, name string) (found format.Entry, err error) {
	r.loading.Lock()
	r.looked++
	ask := r.index == nil && r.looked <= fewNames
	r.loading.Unlock()
	if !ask || name == "." {
		return r.LateIndex.Lookup(ctx, name)
	}
	last := slices.Clone(r.all)
	slices.Reverse(last)
	err = each(ctx, r, last, func(ctx context.Context, src *content.Source) (format.Entry, error) {
		return src.Reader.Lookup(ctx, name)
	}, func(m *member, e format.Entry, err error) error {
		switch {
		case err == nil:
			found = m.shown(e)
			return errFound
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case spoilt(err):
			r.lose(m, err)
			return nil
		}
		return err
	})
	switch err {
	case nil:
		err = &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
	case errFound:
		err = nil
	}
	return found, err
}

// Of is that of content.Parts.
func (r *Reader) Of(ctx context.Context, e format.Entry) (*content.Source, format.Entry, func(), error) {
	m, ok := e.Ref.(*member)
	if !ok { // a directory that only names imply
		return nil, e, nil, &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
	}
	src, release, err := r.use(ctx, m)
	if err != nil {
		return nil, e, nil, err
	}
	own, err := src.Reader.Lookup(ctx, e.Name)
	if err == nil && (own.Kind != e.Kind || own.Size != e.Size || own.Digest != e.Digest) {
		err = fmt.Errorf("%s: %w", m.name, store.ErrChanged)
	}
	if err != nil {
		release()
		return nil, e, nil, err
	}
	return src, own, release, nil
}

// Extents names the objects as the set names its archives.
func (r *Reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if n <= 0 || !e.Kind.HasContent() {
			return
		}
		src, own, release, err := r.Of(ctx, e)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		defer release()
		for x, err := range src.Reader.Extents(ctx, own, off, n) {
			if rest, ok := strings.CutPrefix(x.Object, src.Name); ok && !x.External {
				x.Object = e.Ref.(*member).name + rest
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// Regions yields nothing: each archive is drawn by itself.
func (r *Reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}

// About counts the archives.
func (r *Reader) About(ctx context.Context) (a format.About, err error) {
	_, err = r.load(ctx)
	for _, m := range r.all {
		a.Volumes = append(a.Volumes, m.name)
	}
	a.Stored, a.Facts = r.stored, [][2]string{{"archives", fmt.Sprint(len(r.all))}}
	return a, err
}

// Can returns what the reader can do besides.
func (r *Reader) Can() format.Abilities {
	can := r.LateIndex.Can()
	can.Certain = r.beCertain
	return can
}

// Close closes all archives.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, m := range r.opened {
		errs = append(errs, m.shut())
	}
	r.opened = nil
	return errors.Join(errs...)
}

// nowhere is the store of a set, which has no object of its own.
type nowhere struct{ near bool }

func (s nowhere) Can() store.Abilities { return store.Abilities{Near: s.near} }

func (nowhere) Open(_ context.Context, name string) (store.Object, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("several archives are no object: %w", errors.ErrUnsupported)}
}
