// Package shelf presents a catalogue as one archive: the files of all its
// archives in one tree, each in its newest version, or a bucket in the layout
// it had before it was packed. Names are read from the catalogue in ranges, so
// millions of them need no memory. Contents are read from the archives that
// contain them at that time.
package shelf

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/read/blocks"
	signed "github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// Tree is the name in a Shelf of the tree of all files. The archives are below
	// it.
	Tree = "catalog"

	archives = "archives/" // NUMBER, or NUMBER/OBJECT if the archive has several objects
	buckets  = "buckets/"  // SCHEME/BUCKET

	// magic begins each object that represents a tree.
	magic = "holdall catalogue\n"
)

type Options struct {
	// Address is the shown address of the catalogue, without secrets.
	Address string
	// Open finds the store of an archive; nil means store.OpenAddress.
	Open func(ctx context.Context, address string) (store.Store, string, error)
	// Through are addresses of buckets, or of prefixes in them. Objects there that
	// are not packed are shown from there.
	Through []string
	// Source, if not nil, opens the source that the catalogue names. The tree of all files also shows what is there
	// and was never here.
	Source func(ctx context.Context, address string) (store.Store, error)
	// Read, if not nil, is called with each object of that source that was read up to its end. It must not block.
	Read func(o Original)
	// Blocks is a cache on a disk for the archives. If it has what is read of the version that the catalogue records,
	// no request is sent.
	Blocks *holdall.BlockCache
	// NoVerify turns off the verification of contents that the archives' own
	// readers read.
	NoVerify bool
}

// A Shelf is a catalogue in the form of a store. Its objects are trees, which
// package holdall opens as archives of Format, and the archives that hold
// their contents. It must be closed after everything in it is closed.
type Shelf struct {
	c *book.Book
	o Options

	mu    sync.Mutex
	known map[int64]*known
	seen  time.Time // when all archives were last listed
	count int       // how often they have changed
	all   []catalog.Archive
	used  list.List // of *held, the most recently used first
	held  map[string]*held
	ins   map[int64]*inner
	near  bool

	through []*source
	own     *source // that the catalogue names

	fixed time.Time // when the commit was made that Fix keeps
}

type known struct {
	catalog.Archive
	at   time.Time // it was in the catalogue
	gone bool      // it is not there any more
}

// fresh is how long cached information about archives is used. Old archives
// are kept for longer than that after new ones hold their files.
const fresh = 2 * time.Second

// New returns the shelf of a catalogue. Closing the catalogue is up to the
// caller.
func New(ctx context.Context, c *book.Book, o Options) (*Shelf, error) {
	if o.Open == nil {
		o.Open = store.OpenAddress
	}
	s := &Shelf{c: c, o: o, near: c.Near(), known: map[int64]*known{}, held: map[string]*held{}, ins: map[int64]*inner{}}
	return s, s.openSources(ctx)
}

// archives returns all archives, from a cache that is at most fresh old.
func (s *Shelf) archives(ctx context.Context) ([]catalog.Archive, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.seen) < fresh {
		return s.all, nil
	}
	all, err := s.c.Archives(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(all, s.all) {
		s.all = all
		s.count++
	}
	s.seen = time.Now()
	return all, nil
}

// archive returns the catalogue's current record of an archive, or an error
// that wraps fs.ErrNotExist.
func (s *Shelf) archive(ctx context.Context, id int64) (catalog.Archive, error) {
	s.mu.Lock()
	k := s.known[id]
	s.mu.Unlock()
	if k != nil && (k.gone || time.Since(k.at) < fresh) {
		return k.Archive, k.err()
	}
	a, err := s.c.ArchiveOf(ctx, id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 100_000
	if len(s.known) >= most {
		clear(s.known)
	}
	n := &known{Archive: a, at: time.Now(), gone: err != nil}
	if n.gone && k != nil {
		n.Archive = k.Archive // readers that have it open continue
	}
	s.known[id] = n
	return n.Archive, n.err()
}

func (k *known) err() error {
	if k.gone {
		return &fs.PathError{Op: "catalogue", Path: fmt.Sprintf("archive %d", k.ID), Err: fs.ErrNotExist}
	}
	return nil
}

type Bucket struct {
	Name    string
	Address string // SCHEME://BUCKET
	Of      string // the name of its tree in the Shelf
}

func (s *Shelf) Buckets(ctx context.Context) (found []Bucket, err error) {
	all, err := s.archives(ctx)
	for _, a := range all {
		for _, r := range a.Roots.All() {
			if scheme, name, _, ok := place(r.Address); ok {
				found = append(found, Bucket{Name: name, Address: scheme + "://" + name, Of: buckets + scheme + "/" + name})
			}
		}
	}
	for _, x := range s.through {
		scheme, name, _ := strings.Cut(x.tree, "/")
		found = append(found, Bucket{Name: name, Address: scheme + "://" + name, Of: buckets + x.tree})
	}
	slices.SortFunc(found, func(a, b Bucket) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Of, b.Of)) })
	return slices.Compact(found), err
}

// place returns the bucket of an address, and the prefix of the keys in it.
func place(address string) (scheme, bucket, prefix string, ok bool) {
	scheme = store.Scheme(address)
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || scheme != "s3" && scheme != "gs" && scheme != "az" {
		return "", "", "", false
	}
	path := strings.TrimPrefix(u.Path, "/")
	if scheme == "az" { // the account is the host
		bucket, prefix, _ = strings.Cut(path, "/")
		return scheme, bucket, prefix, bucket != ""
	}
	return scheme, u.Host, path, true
}

// RootOf returns the root of an archive with files of a bucket, or of a prefix in it.
func RootOf(address string) (catalog.Root, error) {
	u, err := url.Parse(address)
	if _, _, _, ok := place(address); !ok || err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return catalog.Root{}, noBucket(address)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/")+"/", ""
	return catalog.Root{Address: u.String()}, nil
}

func noBucket(address string) error {
	return fmt.Errorf("%s: expected the address of a bucket, as s3://photos", store.Redact(address))
}

// Called returns the shown address of the catalogue, without secrets.
func (s *Shelf) Called() string { return s.o.Address }

// Catalog returns the catalogue.
func (s *Shelf) Catalog() *book.Book { return s.c }

// Can reports that a shelf is near if its catalogue is.
func (s *Shelf) Can() store.Abilities { return store.Abilities{Near: s.near, Address: s.address} }

func (s *Shelf) address(name string) string {
	rest, ok := strings.CutPrefix(name, archives)
	if !ok {
		return "catalog:" + s.o.Address
	}
	number, object, several := strings.Cut(rest, "/")
	id, err := strconv.ParseInt(number, 10, 64)
	s.mu.Lock()
	k := s.known[id]
	s.mu.Unlock()
	if err != nil || k == nil {
		return ""
	}
	if several {
		return k.Address + "/" + object
	}
	return k.Address
}

// Fix prepares a shelf that nobody else uses for an index that is read without the catalogue. It stays as it is now. Contents in
// archives below the folder of the catalogue have extents outside it, with ./ and the path of the archive from there.
func (s *Shelf) Fix(ctx context.Context) error {
	is, err := s.c.State(ctx)
	if err == nil {
		err = s.c.At(ctx, is.Number)
	}
	if err == nil {
		s.fixed = is.Time
	}
	return err
}

// beside returns the extent as Fix has it. The name of its object is that of the archive, and rest.
func (s *Shelf) beside(ctx context.Context, l catalog.Location, rest string, x format.Extent) (format.Extent, error) {
	if s.fixed.IsZero() {
		return x, nil
	}
	a, err := s.archive(ctx, l.Archive)
	if path, near := s.c.PathFrom(a.Address); err == nil && near {
		x.Object, x.External = "./"+path+rest, true
	}
	return x, err
}

// Open returns the object of a tree, or an object of an archive. The latter is
// opened when it is first read, and closed again after many others were
// opened.
func (s *Shelf) Open(ctx context.Context, name string) (store.Object, error) {
	if name == Tree || strings.HasPrefix(name, buckets) {
		return &root{s, name, []byte(magic)}, nil
	}
	if tree, is := strings.CutSuffix(name, signed.Suffix); is && s.c.Signed().Sum != "" && (tree == Tree || strings.HasPrefix(tree, buckets)) {
		return &root{s, name, s.c.Signed().File}, nil
	}
	rest, ok := strings.CutPrefix(name, archives)
	number, _, _ := strings.Cut(rest, "/")
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	a, err := s.archive(ctx, id)
	if a.ID == 0 {
		return nil, err
	}
	return &object{s: s, name: name, of: a}, nil
}

func (s *Shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, h := range s.held {
		errs = append(errs, h.close())
	}
	for _, in := range s.ins {
		errs = append(errs, in.close())
	}
	s.held, s.ins = map[string]*held{}, map[int64]*inner{}
	return errors.Join(errs...)
}

// A root is an object that represents a tree, or the signature of one.
type root struct {
	s    *Shelf
	name string
	b    []byte
}

func (r *root) Info(context.Context) (store.Info, error) {
	return store.Info{Name: r.name, Size: int64(len(r.b)), ModTime: r.s.fixed}, nil
}

func (r *root) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(r.b)) || copy(p, r.b[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (r *root) Close() error               { return nil }
func (r *root) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// An object is an object of an archive, in the version that the catalogue
// records.
type object struct {
	s    *Shelf
	name string
	of   catalog.Archive
}

type held struct {
	name string
	o    store.Object
	near bool
	same atomic.Bool // its version was compared
	used int
	elem *list.Element
	gone bool // close it when it is no longer in use
}

func (h *held) close() error {
	if h.o == nil {
		return nil
	}
	return h.o.Close()
}

// mostHeld is how many unused objects stay open.
const mostHeld = 256

// use opens the object if necessary, and returns it with a function that ends
// the use.
func (o *object) use(ctx context.Context) (*held, func(), error) {
	s := o.s
	s.mu.Lock()
	h := s.held[o.name]
	if h != nil {
		h.used++
		s.used.MoveToFront(h.elem)
		s.mu.Unlock()
		return h, func() { s.release(h) }, nil
	}
	s.mu.Unlock()
	st, name, err := s.o.Open(ctx, o.of.Address)
	if err != nil {
		return nil, nil, err
	}
	_, below, several := strings.Cut(strings.TrimPrefix(o.name, archives), "/")
	if several {
		if st, name, err = s.inside(ctx, o.of, st, below); err != nil {
			return nil, nil, err
		}
	}
	open := st
	if !several {
		open = blocks.Wrap(st, s.o.Blocks)
	}
	var in store.Object
	openAs := open.Can().OpenAs
	as := open != st && openAs != nil && strings.HasPrefix(o.of.Version, `"`)
	if as {
		in, err = openAs(ctx, store.Info{Name: name, Size: o.of.Size, Version: o.of.Version})
	} else {
		in, err = open.Open(ctx, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &LostError{o.of.Address, err}
	}
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h = s.held[o.name]; h != nil { // another goroutine opened it first
		in.Close()
	} else {
		// One of several objects of an archive has no version of its own here.
		h = &held{name: o.name, o: in, near: st.Can().Near}
		h.same.Store(several || as)
		h.elem = s.used.PushFront(h)
		s.held[o.name] = h
		s.makeRoom()
	}
	h.used++
	return h, func() { s.release(h) }, nil
}

// makeRoom closes the least recently used objects.
func (s *Shelf) makeRoom() {
	for e := s.used.Back(); e != nil && s.used.Len() > mostHeld; {
		h := e.Value.(*held)
		e = e.Prev()
		if h.used == 0 {
			s.drop(h)
		}
	}
}

func (s *Shelf) drop(h *held) {
	if h.gone {
		return
	}
	if s.held[h.name] == h {
		delete(s.held, h.name)
	}
	s.used.Remove(h.elem)
	if h.gone = true; h.used == 0 {
		_ = h.close() // it was only read
	}
}

func (s *Shelf) release(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.used--; h.used == 0 && h.gone {
		_ = h.close()
	}
}

func (o *object) Info(ctx context.Context) (store.Info, error) {
	h, release, err := o.use(ctx)
	if err != nil {
		return store.Info{}, err
	}
	defer release()
	return h.o.Info(ctx)
}

// ReadAt compares the version of the archive with the one in the first
// response, so the check takes no request of its own.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	h, release, err := o.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = h.o.ReadAt(ctx, p, off)
	if errors.Is(err, fs.ErrNotExist) {
		return o.lost(h, err)
	}
	if h.same.Load() {
		if errors.Is(err, store.ErrChanged) {
			err = o.changed(ctx, h, err)
		}
		return err
	}
	info, ierr := h.o.Info(ctx)
	if ierr != nil {
		return cmp.Or(err, ierr)
	}
	// A shorter archive is a different one, not a damaged one, so check this even
	// if the read failed.
	if !survey.Is(info, h.near, o.of) {
		o.s.mu.Lock()
		o.s.drop(h) // it may be the recorded version when it is opened again
		o.s.mu.Unlock()
		return o.stale(info, h)
	}
	h.same.Store(true)
	return err
}

// changed returns the error for an archive of another version than it had.
func (o *object) changed(ctx context.Context, h *held, err error) error {
	o.s.mu.Lock()
	o.s.drop(h)
	o.s.mu.Unlock()
	st, name, oerr := o.s.o.Open(ctx, o.of.Address)
	if oerr != nil {
		return err
	}
	if info, ierr := storekit.Briefly(st, name).Info(ctx); ierr == nil && !survey.Is(info, h.near, o.of) {
		return o.stale(info, h)
	}
	return err
}

func (o *object) stale(info store.Info, h *held) error {
	return &StaleError{o.of.Address, ShownVersion(o.of.Size, o.of.Version), ShownVersion(info.Size, survey.Version(info, h.near))}
}

// lost returns the error for a missing archive, and has the next read open it
// again.
func (o *object) lost(h *held, err error) error {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.s.drop(h)
	return &LostError{o.of.Address, err}
}

func (o *object) Close() error { return nil }

func (o *object) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// A LostError reports that an archive of a catalogue is missing.
type LostError struct {
	Address string
	err     error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s: the archive no longer exists", store.Redact(e.Address))
}

func (e *LostError) Unwrap() error { return e.err }

// A StaleError reports that an archive is not the version that the catalogue
// records.
type StaleError struct {
	Address      string
	Known, Found string
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s: changed since it was added: expected %s, found %s", store.Redact(e.Address), e.Known, e.Found)
}

func ShownVersion(size int64, version string) string {
	if version == "" {
		return fmt.Sprintf("%d bytes", size)
	}
	return fmt.Sprintf("%d bytes of version %s", size, version)
}

// An inner is an archive that was opened with its own index.
type inner struct {
	once sync.Once
	a    *holdall.Archive
	err  error
	at   time.Time
	used int
}

func (in *inner) close() error {
	if in.a == nil {
		return nil
	}
	return in.a.Close()
}

// mostInner is how many unused ones stay open.
const mostInner = 16

// open opens an archive with its own index, for information that the catalogue
// does not have.
func (s *Shelf) open(ctx context.Context, of catalog.Archive) (*holdall.Archive, func(), error) {
	s.mu.Lock()
	in := s.ins[of.ID]
	if in == nil {
		in = &inner{}
		s.ins[of.ID] = in
	}
	in.used++
	in.at = time.Now()
	for len(s.ins) > mostInner {
		oldest := int64(0)
		for id, x := range s.ins {
			if x.used == 0 && (oldest == 0 || x.at.Before(s.ins[oldest].at)) {
				oldest = id
			}
		}
		if oldest == 0 {
			break
		}
		_ = s.ins[oldest].close()
		delete(s.ins, oldest)
	}
	s.mu.Unlock()
	release := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		in.used--
		if in.used == 0 && in.err != nil && s.ins[of.ID] == in {
			delete(s.ins, of.ID) // the next one tries again
		}
	}
	in.once.Do(func() {
		// Not with this context: others wait for it, too.
		ctx := context.WithoutCancel(ctx)
		st, name, err := s.o.Open(ctx, of.Address)
		if err == nil {
			in.a, err = holdall.Open(ctx, name, holdall.OpenOptions{Store: st, Format: of.Format, NoVerify: s.o.NoVerify, Blocks: s.o.Blocks})
		}
		in.err = err
	})
	if in.err != nil {
		release()
		return nil, nil, in.err
	}
	return in.a, release, nil
}

// inside finds an object of an archive of several, or one that it leads to: then its name begins
// with a slash.
func (s *Shelf) inside(ctx context.Context, of catalog.Archive, st store.Store, object string) (store.Store, string, error) {
	outside, ok := strings.CutPrefix(object, "/")
	if !ok {
		return st, object, nil
	}
	in, release, err := s.open(ctx, of)
	if err != nil {
		return nil, "", err
	}
	defer release()
	return in.Source().Find(ctx, outside)
}

var errNoShelf = errors.New("expected a catalogue: use the address catalog:FILE")

// Format opens the trees of a Shelf.
var Format = &format.Format{
	Name:  "catalog",
	Title: "Catalogue of archives",
	Keeps: format.KeepsDigests,
	Detect: func(p format.Probe) format.Match {
		if string(p.Head) == magic {
			return format.Certain
		}
		return format.No
	},
	Open: func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		obj, err := st.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		defer obj.Close()
		r, ok := storekit.Inner[*root](obj)
		if !ok {
			return nil, errNoShelf
		}
		return r.s.reader(ctx, r.name)
	},
}
