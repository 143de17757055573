package holdall

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/holdall/holdall/internal/content"
	"github.com/holdall/holdall/internal/kept"
	"github.com/holdall/holdall/internal/listing"
	"github.com/holdall/holdall/internal/meter"
	"github.com/holdall/holdall/internal/parity"
	"github.com/holdall/holdall/store"
)

// The words of the trade, so that most programs import only holdall.
type (
	Entry   = format.Entry
	Problem = format.Problem
)

// A Meter counts the work done: the library adds, others look with Snapshot, at their
// own pace. It returns what is done, Entries and Bytes, and TotalEntries and TotalBytes,
// which are zero as long as they are unknown. With WantTotal the work is counted before it
// is done, or meanwhile. The zero value is ready.
type Meter = meter.Meter

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
	// Parity is the address of the archive's parity, by which damage is healed. Empty looks
	// beside the archive, NoParity looks for none.
	Parity string `json:"parity,omitempty"`
	// OnHeal is called once, with where the parity is, when something is healed.
	OnHeal func(by string) `json:"-"`
	// once says that all entries are wanted, one after the other, and no more.
	once bool
	// linked opens what the archive leads to: see format.OpenOptions.
	linked func(ctx context.Context, address string) (format.Reader, error)
	// NoVerify has content read without comparing it with digests.
	NoVerify bool `json:"no_verify,omitempty"`
	// CompareWhole is up to which size a file is read whole and compared with its digest
	// when any of it is read; 0 is 1 MiB, and a negative one is none. That it was right is
	// remembered, so it is done once.
	CompareWhole int64 `json:"compare_whole,omitempty"`
	// CacheBytes bounds what is kept in memory of a remote archive; 0 is 32 MiB.
	CacheBytes int64 `json:"cache_bytes,omitempty"`
}

func (o OpenOptions) formats() format.Formats {
	if o.Formats != nil {
		return o.Formats
	}
	return format.All()
}

func (o OpenOptions) wanted() kept.Wanted {
	return kept.Wanted{Format: o.Format, View: o.View, Param: o.Param, Formats: o.formats()}
}

func (o OpenOptions) inner() format.OpenOptions {
	return format.OpenOptions{View: o.View, FewLookups: o.FewLookups, Once: o.once, Linked: o.linked, Limits: o.Limits, Param: o.Param, NoVerify: o.NoVerify}
}

// An Archive is an archive open for reading. Its methods may run in parallel.
type Archive struct {
	src   *content.Source
	index kept.State
	asked OpenOptions
	took  time.Duration // to open it

	parity error // why parity that is there was not opened
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
	st = cache.Far(st, o.CacheBytes)
	if o.NoVerify || o.Parity == NoParity {
		return openBy(ctx, st, name, o, st)
	}
	// On a disk a look costs nothing. Elsewhere it is a request: parity is looked for when
	// something is wrong.
	var g *parity.Guard
	var why error
	near := st.Can().Near
	if near || o.Parity != "" {
		g, why = parity.Locate(ctx, st, name, o.Parity)
	}
	heard := func() {
		if g != nil {
			g.OnHeal = o.OnHeal
		}
	}
	heard()
	by := st
	if g != nil && g.Suits == nil {
		by = g.StoreIf(func(ctx context.Context, object string, off, n int64) bool {
			return g.Look(ctx) == nil && unsound(ctx, st, name, o, object, off, n)
		})
	}
	a, err := openBy(ctx, st, name, o, by)
	if g == nil && why == nil && !near && o.Parity == "" && (err != nil && ctx.Err() == nil && !store.Temporary(err) || err == nil && a.Doubt() != nil) {
		if g, _ = parity.Locate(ctx, st, name, ""); g != nil && g.Suits == nil {
			heard()
			if err == nil {
				a.Close()
			}
			a, err = openBy(ctx, st, name, o, g.Store())
		}
	}
	if err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	var reopen func(context.Context, store.Store) (*content.Source, error)
	if g == nil {
		reopen = func(ctx context.Context, by store.Store) (*content.Source, error) {
			o := o
			o.Index = UseIndex{}
			a, err := openBy(ctx, st, name, o, by)
			if err != nil {
				return nil, err
			}
			return a.src, nil
		}
	}
	if g != nil || !near {
		a.src.HealBy(g, o.Parity, o.OnHeal, reopen)
	}
	a.parity = why
	return a, nil
}

// unsound reports whether an archive is damaged, as far as it can tell by itself. A range of it
// is not what its parity has digests of. If the archive is sound, the parity is of another
// version, or was made to mislead. All of the archive is read only if its structure is sound,
// and so is what content lies in the range, but that is not all of it.
func unsound(ctx context.Context, st store.Store, name string, o OpenOptions, object string, off, n int64) bool {
	o.Index, o.Parity = UseIndex{}, NoParity
	a, err := openBy(ctx, st, name, o, st)
	if err != nil {
		return true
	}
	defer a.Close()
	if a.Doubt() != nil {
		return true
	}
	var within []Entry
	known := spans{off: off, end: off + n}
	for e, err := range a.Entries(ctx) {
		if err != nil || e.Fault != nil {
			return true
		}
		if !a.src.HasDigest(e) || len(within) == mostFiles {
			continue
		}
		isIn := false
		for x, err := range a.src.Extents(ctx, e) {
			if err != nil {
				return true
			}
			isIn = !x.External && x.Object == object && known.add(x.Off, x.Off+x.Len) || isIn
		}
		if isIn {
			within = append(within, e)
		}
	}
	if a.Doubt() != nil {
		return true
	}
	for _, e := range within {
		if a.src.Settle(ctx, e) != nil {
			return true
		}
	}
	if known.cover() {
		return false
	}
	sum, err := VerifyStore(ctx, st, name, VerifyOptions{OpenOptions: o}, func(Problem) {})
	return err != nil || sum.Errors+sum.Warnings > 0
}

// spans are parts of a range.
type spans struct {
	off, end int64
	of       [][2]int64
}

// add reports whether anything from off to end lies in the range.
func (s *spans) add(off, end int64) bool {
	off, end = max(off, s.off), min(end, s.end)
	if off < end {
		s.of = append(s.of, [2]int64{off, end})
	}
	return off < end
}

// cover reports whether nothing is left between the parts.
func (s *spans) cover() bool {
	slices.SortFunc(s.of, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	at := s.off
	for _, part := range s.of {
		if part[0] > at {
			break
		}
		at = max(at, part[1])
	}
	return at >= s.end
}

// openBy is OpenStore of an archive whose structure is read by another store.
func openBy(ctx context.Context, st store.Store, name string, o OpenOptions, by store.Store) (*Archive, error) {
	a := &Archive{src: content.New(st, name, o.External), asked: o}
	o.linked = a.openLinked
	a.src.Checking = content.Checking{None: o.NoVerify, Whole: o.CompareWhole}
	// Held from the start, so that what recognising fetches is there for reading.
	// A folder has none; its format will find what lies in it.
	if _, err := a.src.Object(ctx, name); err != nil && by == st {
		names, release := lookBelow(ctx, st, name)
		if release(); names == nil {
			return nil, err
		}
	}
	if u := o.Index.inner(); u.Any() {
		x, state := kept.Find(ctx, st, name, u, o.wanted())
		if a.index = state; x != nil {
			f := o.formats().ByName(x.Format)
			a.src.Read(f, kept.NewReader(x, func(ctx context.Context) (format.Reader, error) { return openAs(ctx, f, by, name, o) }))
			a.src.UseIndex(x)
			return a, nil
		}
		if u.Folder != nil && !st.Can().Near {
			// All of the list is fetched now, to be kept.
			o.FewLookups, a.asked.FewLookups = false, false
		}
	}
	start := time.Now()
	f, r, err := recognise(ctx, by, name, o)
	if err != nil {
		a.src.CloseObjects()
		return nil, err
	}
	a.took = time.Since(start)
	a.src.Read(f, r)
	if by == st {
		a.src.Borrow()
	}
	return a, nil
}

// openLinked opens a file that the archive leads to, as keys of Zarr.
func (a *Archive) openLinked(ctx context.Context, address string) (format.Reader, error) {
	st, name, err := a.src.Find(ctx, address)
	if err != nil {
		return nil, err
	}
	if st != a.src.Store {
		st = cache.Far(st, 0)
	}
	_, r, err := recognise(ctx, st, name, OpenOptions{View: "zarr", Formats: a.asked.Formats, Limits: a.asked.Limits})
	return r, err
}

// recognise finds the format of an archive and opens it. A name that ends like
// a format's files only says where to look first: its bytes decide.
func recognise(ctx context.Context, st store.Store, name string, o OpenOptions) (*format.Format, format.Reader, error) {
	if o.Format != "" {
		f, err := o.formats().Named(o.Format)
		if err != nil {
			return nil, nil, err
		}
		r, err := openAs(ctx, f, st, name, o)
		return f, r, err
	}
	guess := o.formats().ByExtension(name)
	var guessErr error
	if guess != nil && o.formats().Shares(guess) {
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
	p, release, err := probe(ctx, st, name)
	defer release()
	if err != nil {
		return nil, nil, err
	}
	f, err := o.formats().Detect(p)
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

// probe reads both ends of an object, at the same time, and of what may be a folder what lies
// in it, which may be listed again until release.
func probe(ctx context.Context, st store.Store, name string) (_ format.Probe, release func(), _ error) {
	p := format.Probe{Name: path.Base(name), Size: -1}
	release = func() {}
	look := func() { p.Names, release = lookBelow(ctx, st, name) }
	o, err := st.Open(ctx, name)
	if err != nil {
		if look(); p.Names != nil {
			err = nil
		}
		return p, release, err
	}
	defer o.Close()
	head, tail := make([]byte, format.ProbeSize), make([]byte, format.ProbeSize)
	var headErr error
	var headLen int
	var wg sync.WaitGroup
	far, looked := !st.Can().Near, path.Ext(name) == "" // as most folders are called
	if far {
		wg.Go(func() { headLen, headErr = store.ReadHead(ctx, o, head) })
		if looked {
			wg.Go(look)
		}
	}
	n, err := store.ReadTail(ctx, o, tail)
	wg.Wait()
	if err == nil && !far {
		headLen, headErr = store.ReadHead(ctx, o, head)
	}
	if err := errors.Join(err, headErr); err != nil {
		// A store behind a network opens what is not there, as a folder is not.
		if errors.Is(err, fs.ErrNotExist) {
			if !far || !looked {
				look()
			}
			if p.Names != nil {
				err = nil
			}
		}
		return p, release, err
	}
	info, err := o.Info(ctx)
	p.Size, p.Head, p.Tail, p.Names = info.Size, head[:headLen], tail[:n], nil
	return p, release, err
}

// lookBelow lists some of what lies in a folder, which may be listed again until release.
func lookBelow(ctx context.Context, st store.Store, name string) (names []string, release func()) {
	const enough = 1000
	prefix := strings.TrimSuffix(name, "/") + "/"
	names, release = cache.Look(ctx, st, prefix, enough)
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, prefix)
	}
	return names, release
}

// Source is the archive as the other packages of this module read it.
func (a *Archive) Source() *content.Source { return a.src }

// Format returns the archive's format.
func (a *Archive) Format() *format.Format { return a.src.Format }

// Name returns the archive's name within its store.
func (a *Archive) Name() string { return a.src.Name }

// Store returns the store that the archive is in, by its [Archive.Name]; nil of a folder of
// files.
func (a *Archive) Store() store.Store {
	if a.IsDir() {
		return nil
	}
	return a.src.Store
}

// IsNear reports whether the archive is on this machine, so that reading it takes no
// round trips.
func (a *Archive) IsNear() bool { return a.src.Store.Can().Near }

// Options are how the archive was asked to be opened.
func (a *Archive) Options() OpenOptions { return a.asked }

// ModTime returns when the archive was written, zero if that is not known: of a folder
// it is not.
func (a *Archive) ModTime(ctx context.Context) time.Time {
	if o, err := a.src.Object(ctx, a.src.Name); err == nil {
		if info, err := o.Info(ctx); err == nil {
			return info.ModTime
		}
	}
	return time.Time{}
}

// Entries yields every entry in stored order.
func (a *Archive) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return a.src.Reader.Entries(ctx)
}

// Below yields every entry below a directory, in stored order; "." is the root. It
// goes through all entries where the format cannot do without.
func (a *Archive) Below(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return a.src.Below(ctx, dir)
}

// Lookup returns the entry called name, or an error wrapping fs.ErrNotExist.
func (a *Archive) Lookup(ctx context.Context, name string) (Entry, error) {
	return a.src.Reader.Lookup(ctx, name)
}

// ReadDir yields the entries directly in dir; "." is the root.
func (a *Archive) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return a.src.Reader.ReadDir(ctx, dir)
}

// Keys yields what has a name that begins with prefix and is no directory, in the byte
// order of names, from the first name on that is not less than from: as a bucket would
// list it.
func (a *Archive) Keys(ctx context.Context, prefix, from string) iter.Seq2[Entry, error] {
	if keys := a.src.Reader.Can().Keys; keys != nil {
		return keys(ctx, prefix, from)
	}
	return listing.ReadDir(a.src.ReadDirFrom).Keys(ctx, prefix, from)
}

// Extents yields where e's content is stored.
func (a *Archive) Extents(ctx context.Context, e Entry) iter.Seq2[format.Extent, error] {
	return a.src.Extents(ctx, e)
}

// Regions yields what the bytes that are not content are for.
func (a *Archive) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return a.src.Reader.Regions(ctx)
}

// About says what is known of the archive as a whole.
func (a *Archive) About(ctx context.Context) (format.About, error) { return a.src.Reader.About(ctx) }

// Volumes returns the objects that the archive is made of.
func (a *Archive) Volumes(ctx context.Context) ([]string, error) { return a.src.Volumes(ctx) }

// VolumeSize returns how long one of the archive's volumes is.
func (a *Archive) VolumeSize(ctx context.Context, volume string) (int64, error) {
	return a.src.VolumeSize(ctx, volume)
}

// StoredSize returns how many bytes the archive's volumes have.
func (a *Archive) StoredSize(ctx context.Context) (int64, error) { return a.src.StoredSize(ctx) }

// ReadAt reads len(p) content bytes of e from off; it reads fewer only at the
// end, and then returns io.EOF. What [Archive.Compares] says is compared with digests
// before any byte of it is in p.
func (a *Archive) ReadAt(ctx context.Context, e Entry, p []byte, off int64) (int, error) {
	return a.src.ReadAt(ctx, e, p, off)
}

// Compares says what of e's content is compared with a digest or checksums before it is
// handed on: any part of it, or only all of it, read from its beginning to its end. The
// last read of that then returns a [*DigestError] if it is damaged. Of other content
// nobody can tell.
func (a *Archive) Compares(ctx context.Context, e Entry) (parts, whole bool) {
	return a.src.Compares(ctx, e)
}

// Doubt returns what is wrong with the archive's index as a whole, as far as it was read,
// nil if nothing is known: that it is not what its own digest says. Names and places that
// it has may be wrong then.
func (a *Archive) Doubt() error { return a.src.Doubt() }

// Contents calls each, one by one and in stored order, with the content of every
// entry that is wanted, or with the error that keeps it from being read. Many
// are fetched at once, neighbours together.
func (a *Archive) Contents(ctx context.Context, wanted func(Entry) bool, each func(e Entry, content io.Reader, err error) error) error {
	return a.ContentsOf(ctx, listing.Only(a.Entries(ctx), wanted), each)
}

// ContentsOf is Contents for entries that somebody else enumerates, in their order:
// a list, or [Archive.Shuffled]. What lies together is fetched together, as far as
// it comes together.
func (a *Archive) ContentsOf(ctx context.Context, entries iter.Seq2[Entry, error], each func(e Entry, content io.Reader, err error) error) error {
	return a.src.Sweep(ctx, entries, true, func(c content.Content, err error) error { return each(c.Entry, c.Checked(), err) })
}

// Close ends the use of the archive: reads fail from then on.
func (a *Archive) Close() error { return a.src.Close() }
