package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/internal/engine"
	"github.com/holdall/holdall/store"
)

// The words of the trade, so that most programs import only holdall.
type (
	Entry   = format.Entry
	Extent  = format.Extent
	Region  = format.Region
	Problem = format.Problem
	Plan    = format.Plan
	About   = format.About
	Digest  = format.Digest
)

// OpenOptions are wishes for reading; the zero value suits most.
type OpenOptions struct {
	// Format names the format; empty recognises it by its bytes.
	Format string `json:"format,omitempty"`
	// View is one of the format's views; empty is its usual one.
	View string `json:"view,omitempty"`
	// FewLookups says that one or two names are wanted: a large index is then
	// searched, not loaded.
	FewLookups bool `json:"few_lookups,omitempty"`
	// Limits bound what is believed of an archive.
	Limits format.Limits `json:"limits"`
	// Param has values of the format's own Params ("ends": "inclusive").
	Param map[string]string `json:"param,omitempty"`
	// Formats replaces the registered formats.
	Formats []*format.Format `json:"-"`
	// External says where an archive may lead outside itself. An archive of
	// references could otherwise make whoever opens it read any file or ask any
	// server. Without any, it may lead to what lies in its own folder, or on its
	// own server. "none" allows nothing, "any" everything; else each is an
	// address or a folder, and what lies below it is allowed too.
	External []string `json:"external,omitempty"`
	// Index says where an index of the archive may be that was kept.
	Index UseIndex `json:"index"`
	// once says that all entries are wanted, one after the other, and no more.
	once bool
	// CacheBytes bounds what is kept in memory of a remote archive; 0 is 32 MiB.
	CacheBytes int64 `json:"cache_bytes,omitempty"`
}

const defaultCache = 32 << 20

func (o OpenOptions) formats() []*format.Format {
	if o.Formats != nil {
		return o.Formats
	}
	return format.All()
}

func (o OpenOptions) inner() format.OpenOptions {
	return format.OpenOptions{View: o.View, FewLookups: o.FewLookups, Once: o.once, Limits: o.Limits, Param: o.Param}
}

// An Archive is an archive open for reading. Its methods may run in parallel.
type Archive struct {
	f       *format.Format
	r       format.Reader
	st      store.Store
	name    string
	engine  *engine.Engine
	objects objects
	index   IndexState
	proof   *prover // nil if nothing is proven
	asked   OpenOptions
	took    time.Duration // to open it
}

// Open opens the archive at an address.
func Open(ctx context.Context, address string, o OpenOptions) (*Archive, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	return OpenStore(ctx, st, name, o)
}

// OpenStore opens the archive called name in st.
func OpenStore(ctx context.Context, st store.Store, name string, o OpenOptions) (*Archive, error) {
	limits := engine.Near
	if !store.IsNear(st) {
		st = cache.Wrap(st, cmp.Or(o.CacheBytes, defaultCache))
		limits = engine.Far
	}
	a := &Archive{st: st, name: name, asked: o}
	a.objects = objects{st: st, name: name, allowed: o.External}
	a.engine = engine.New(a.objects.open, limits)
	// Held from the start, so that what recognising fetches is there for reading.
	// A folder has none; its format will find what lies in it.
	if _, err := a.objects.open(ctx, name, false); err != nil && namesBelow(ctx, st, name) == nil {
		return nil, err
	}
	if o.Index.any() {
		if x := a.findIndex(ctx, o); x != nil {
			a.f = format.ByName(o.formats(), x.Format)
			a.r = &keptReader{x: x, open: func(ctx context.Context) (format.Reader, error) { return openAs(ctx, a.f, st, name, o) }}
			if x.Chunk > 0 {
				a.proof = &prover{x: x}
			}
			if x.HasPoints() {
				a.engine.UsePoints(x)
			}
			return a, nil
		}
		if o.Index.Folder != nil && limits == engine.Far {
			// All of the list is fetched now, to be kept.
			o.FewLookups, a.asked.FewLookups = false, false
		}
	}
	start := time.Now()
	var err error
	if a.f, a.r, err = recognise(ctx, st, name, o); err != nil {
		a.objects.close()
		return nil, err
	}
	a.took = time.Since(start)
	return a, nil
}

// recognise finds the format of an archive and opens it. A name that ends like
// a format's files only says where to look first: its bytes decide.
func recognise(ctx context.Context, st store.Store, name string, o OpenOptions) (*format.Format, format.Reader, error) {
	if o.Format != "" {
		f := format.ByName(o.formats(), o.Format)
		if f == nil {
			return nil, nil, unknownFormat(o.Format, o.formats())
		}
		r, err := openAs(ctx, f, st, name, o)
		return f, r, err
	}
	guess := format.ByExtension(o.formats(), name)
	var guessErr error
	if guess != nil && format.Shares(o.formats(), guess) {
		guess = nil // a LINDI archive may be called x.tar: only bytes can tell
	}
	if guess != nil {
		r, err := openAs(ctx, guess, st, name, o)
		if err == nil {
			return guess, r, nil
		}
		if _, unfit := errors.AsType[*format.ParamError](err); !unfit && !errors.Is(err, format.ErrCorrupt) {
			return guess, nil, err
		}
		guessErr = err
	}
	p, err := probe(ctx, st, name)
	if err != nil {
		return nil, nil, err
	}
	f, err := format.Detect(o.formats(), p)
	if guessErr != nil && (err != nil || f == guess) {
		return guess, nil, guessErr
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := openAs(ctx, f, st, name, o)
	return f, r, err
}

func openAs(ctx context.Context, f *format.Format, st store.Store, name string, o OpenOptions) (format.Reader, error) {
	if o.View != "" && !slices.Contains(f.Views, o.View) {
		return nil, &ViewError{Format: f.Name, View: o.View, Has: f.Views}
	}
	if err := f.CheckParams(format.ToOpen, o.Param); err != nil {
		return nil, err
	}
	return f.Open(ctx, st, name, o.inner())
}

// A ViewError says that an archive has no such view.
type ViewError struct {
	Format, View string
	Has          []string
}

func (e *ViewError) Error() string {
	if len(e.Has) == 0 {
		return fmt.Sprintf("%s has one view only, not %q", e.Format, e.View)
	}
	return fmt.Sprintf("%s has no view %q: it has %s", e.Format, e.View, strings.Join(e.Has, ", "))
}

func unknownFormat(name string, among []*format.Format) error {
	var names []string
	for _, f := range among {
		names = append(names, f.Name)
	}
	return fmt.Errorf("no format %q: there are %s", name, strings.Join(names, ", "))
}

// probe reads both ends of an object, at the same time.
func probe(ctx context.Context, st store.Store, name string) (format.Probe, error) {
	p := format.Probe{Name: path.Base(name), Size: -1}
	o, err := st.Open(ctx, name)
	if err != nil {
		if p.Names = namesBelow(ctx, st, name); p.Names != nil {
			err = nil
		}
		return p, err
	}
	defer o.Close()
	head, tail := make([]byte, format.ProbeSize), make([]byte, format.ProbeSize)
	var headErr error
	var headLen int
	var wg sync.WaitGroup
	if !store.IsNear(st) {
		wg.Go(func() { headLen, headErr = store.ReadHead(ctx, o, head) })
	}
	n, err := store.ReadTail(ctx, o, tail)
	wg.Wait()
	if err == nil && store.IsNear(st) {
		headLen, headErr = store.ReadHead(ctx, o, head)
	}
	if err := errors.Join(err, headErr); err != nil {
		return p, err
	}
	info, err := o.Info(ctx)
	p.Size, p.Head, p.Tail = info.Size, head[:headLen], tail[:n]
	return p, err
}

// namesBelow lists some of what lies in a folder.
func namesBelow(ctx context.Context, st store.Store, name string) (names []string) {
	const enough = 1000
	prefix := strings.TrimSuffix(name, "/") + "/"
	for info, err := range store.List(ctx, st, prefix) {
		if err != nil || len(names) == enough {
			break
		}
		names = append(names, strings.TrimPrefix(info.Name, prefix))
	}
	return names
}

// Format returns the archive's format.
func (a *Archive) Format() *format.Format { return a.f }

// Name returns the archive's name within its store.
func (a *Archive) Name() string { return a.name }

// Entries yields every entry in stored order.
func (a *Archive) Entries(ctx context.Context) iter.Seq2[Entry, error] { return a.r.Entries(ctx) }

// Below yields every entry below a directory, in stored order; "." is the root. It
// goes through all entries where the format cannot do without.
func (a *Archive) Below(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	if dir == "." {
		return a.Entries(ctx)
	}
	return entriesBelow(ctx, a.r, dir)
}

func entriesBelow(ctx context.Context, r format.Reader, dir string) iter.Seq2[Entry, error] {
	if d, ok := r.(format.Descender); ok {
		return d.EntriesBelow(ctx, dir)
	}
	return func(yield func(Entry, error) bool) {
		for e, err := range r.Entries(ctx) {
			if err == nil && !strings.HasPrefix(e.Name, dir+"/") {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// packed yields the entries that somebody packed: all but the archive's own.
func (a *Archive) packed(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range a.Entries(ctx) {
			if err == nil && e.Internal {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Lookup returns the entry called name, or an error wrapping fs.ErrNotExist.
func (a *Archive) Lookup(ctx context.Context, name string) (Entry, error) {
	return a.r.Lookup(ctx, name)
}

// ReadDir yields the entries directly in dir; "." is the root.
func (a *Archive) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return a.r.ReadDir(ctx, dir)
}

// Extents yields where e's content is stored.
func (a *Archive) Extents(ctx context.Context, e Entry) iter.Seq2[Extent, error] {
	return a.r.Extents(ctx, e, 0, e.Size)
}

// Regions yields what the bytes that are not content are for.
func (a *Archive) Regions(ctx context.Context) iter.Seq2[Region, error] { return a.r.Regions(ctx) }

// About says what is known of the archive as a whole.
func (a *Archive) About(ctx context.Context) (About, error) { return a.r.About(ctx) }

// Volumes returns the objects that the archive is made of.
func (a *Archive) Volumes(ctx context.Context) ([]string, error) {
	if k, ok := a.r.(*keptReader); ok {
		return k.volumes(a.name), nil
	}
	about, err := a.r.About(ctx)
	return about.Volumes, err
}

// StoredSize returns how many bytes the archive's volumes have.
func (a *Archive) StoredSize(ctx context.Context) (int64, error) {
	if d, ok := a.r.(*dirReader); ok {
		return d.stored, nil
	}
	volumes, err := a.Volumes(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, v := range volumes {
		size, err := a.VolumeSize(ctx, v)
		if err != nil {
			return 0, err
		}
		n += size
	}
	return n, nil
}

// VolumeSize returns how long one of the archive's volumes is.
func (a *Archive) VolumeSize(ctx context.Context, volume string) (int64, error) {
	o, err := a.objects.open(ctx, volume, false)
	if err != nil {
		return 0, err
	}
	info, err := o.Info(ctx)
	return info.Size, err
}

// ReadAt reads len(p) content bytes of e from off; it reads fewer only at the
// end, and then says io.EOF. Nothing is checked against e's digest; by an index
// that has digests of pieces, each piece is, before any byte of it is in p.
func (a *Archive) ReadAt(ctx context.Context, e Entry, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
	}
	if e.Fault == nil && off >= e.Size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.Size-off)
	var err error
	if a.proves(e) {
		var k int
		if k, err = a.readProven(ctx, e, p[:n], off); err != nil {
			if !saysWhich(err) {
				err = &fs.PathError{Op: "read", Path: e.Name, Err: err}
			}
			return k, err
		}
	} else if err = a.readStored(ctx, e, p[:max(n, 0)], off); err != nil {
		return 0, &fs.PathError{Op: "read", Path: e.Name, Err: err}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// readStored fills p with content bytes of e from off, whatever they are.
func (a *Archive) readStored(ctx context.Context, e Entry, p []byte, off int64) error {
	if x, ok := a.run(e); ok && int64(len(p)) <= a.engine.MaxRequest() {
		o, err := a.engine.Object(ctx, x)
		if err != nil {
			return err
		}
		return o.ReadAt(ctx, p, x.Off+off)
	}
	return a.engine.ReadAt(ctx, a.r.Extents(ctx, e, off, int64(len(p))), p, off)
}

// run returns e's content as one raw run, if it is one and the format can say so
// at once.
func (a *Archive) run(e Entry) (Extent, bool) {
	if c, ok := a.r.(format.Contiguous); ok {
		return c.Run(e)
	}
	return Extent{}, false
}

// Close ends the use of the archive.
func (a *Archive) Close() error {
	a.engine.Close() // it may have objects in use
	return errors.Join(a.r.Close(), a.objects.close())
}

// Contents calls each, one by one and in stored order, with the content of every
// entry that is wanted, or with the error that keeps it from being read. Many
// are fetched at once, neighbours together.
func (a *Archive) Contents(ctx context.Context, wanted func(Entry) bool, each func(e Entry, content io.Reader, err error) error) error {
	entries := func(yield func(Entry, error) bool) {
		for e, err := range a.Entries(ctx) {
			if err == nil && !wanted(e) {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
	return a.sweep(ctx, entries, true, func(it engine.Item, content io.Reader, err error) error {
		return each(it.Entry, content, err)
	})
}

// expect tells m how much the wanted entries are.
func (a *Archive) expect(ctx context.Context, m *Meter, wanted func(Entry) bool) error {
	if !m.wantsTotal() {
		return nil
	}
	var n, bytes int64
	for e, err := range a.Entries(ctx) {
		if err != nil {
			return err
		}
		if wanted(e) {
			n, bytes = n+1, bytes+e.Size
		}
	}
	m.expect(n, bytes)
	return nil
}

// sweep reads the contents of entries; see engine.Sweep.
func (a *Archive) sweep(ctx context.Context, entries iter.Seq2[Entry, error], ordered bool, each engine.Each) error {
	if a.proof != nil {
		each = a.provenEach(ctx, each)
	}
	return a.sweepStored(ctx, entries, ordered, each)
}

// sweepStored is sweep of what is stored, whatever that is.
func (a *Archive) sweepStored(ctx context.Context, entries iter.Seq2[Entry, error], ordered bool, each engine.Each) error {
	return a.engine.Sweep(ctx, func(yield func(engine.Item, error) bool) {
		for e, err := range entries {
			if !yield(engine.Item{Entry: e, Extents: a.r.Extents(ctx, e, 0, e.Size)}, err) || err != nil {
				return
			}
		}
	}, ordered, each)
}
