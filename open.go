package holdall

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/blocks"
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/detect"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// OpenOptions are the options for opening an archive. The zero value suits most programs.
type OpenOptions struct {
	// Store has the archive, by its name in it. If it is nil, that is decided by the address.
	Store store.Store `json:"-"`
	// Format is the name of the format. If it is empty, the format is detected from the archive's
	// bytes. "dir" opens a local folder, given by its path, as if it were an archive; the other
	// options then have no effect.
	Format string `json:"format,omitempty"`
	// View is one of the format's views. If it is empty, the format's default view is used.
	View string `json:"view,omitempty"`
	// FewLookups says that only one or two names will be looked up, or all entries iterated over
	// once. A large index is then read as a stream instead of loaded.
	FewLookups bool `json:"few_lookups,omitempty"`
	// Limits bound the sizes that are accepted from an archive.
	Limits format.Limits `json:"limits"`
	// Param has values for the format's Params, such as "ends": "inclusive".
	Param map[string]string `json:"param,omitempty"`
	// Password decrypts contents, if the format can do that. No index is then used.
	Password string `json:"-"`
	// Formats replaces the registered formats.
	Formats []*format.Format `json:"-"`
	// External lists where an archive may refer to outside itself. Without limits, an archive
	// with references could make the program that opens it read any file or send requests to any
	// server. If External is empty, references may lead into the archive's own folder or to its
	// own server. "none" allows no references and "any" allows all of them. Any other value is an
	// address or a folder, and allows it and everything below it.
	External []string `json:"external,omitempty"`
	// Index says where to look for a kept index of the archive.
	Index UseIndex `json:"index"`
	// Trusted are public keys of minisign. If there are any, what is read must be covered by the roots that
	// one of them has signed ("holdall sign"). Everything else is an [UntrustedError].
	Trusted []string `json:"trusted,omitempty"`
	// Parity is the address of the archive's parity, which is used to repair damaged data while
	// it is read. If it is empty, parity is looked for beside the archive. "none" disables it.
	Parity string `json:"parity,omitempty"`
	// OnHeal is called when damaged data is first repaired while it is read: once with the location
	// of the parity, and once with "its checksums" if those show which bit is wrong.
	OnHeal func(by string) `json:"-"`
	// corrected calls OnHeal for checksums.
	corrected func()
	// once says that all entries will be read once, in order, and nothing else.
	once bool
	// linked opens files that the archive refers to; see format.OpenOptions.
	linked func(ctx context.Context, address string) (format.Reader, error)
	// outside opens objects that the archive refers to; see format.OpenOptions.
	outside func(ctx context.Context, address string) (store.Object, error)
	// NoVerify disables the comparison of contents with digests.
	NoVerify bool `json:"no_verify,omitempty"`
	// CompareWhole is the size up to which a file is read as a whole and compared with its digest
	// when any part of it is read. 0 means 1 MiB; a negative value means never. A file that
	// matched is not compared again.
	CompareWhole int64 `json:"compare_whole,omitempty"`
	// CacheBytes bounds the memory used to cache a remote archive. Decoded data may take twice as
	// much. 0 means 32 MiB.
	CacheBytes int64 `json:"cache_bytes,omitempty"`
	// Blocks is a cache on a disk for remote archives, shared by processes. Verify and Repair do not
	// use it.
	Blocks *BlockCache `json:"-"`
}

// A BlockCache is a folder on a disk with blocks of remote archives. Its layout is documented, so that other
// programs can share it.
type BlockCache = blocks.Cache

// In returns o for an archive in a store.
func (o OpenOptions) In(st store.Store) OpenOptions {
	o.Store = st
	return o
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
	return format.OpenOptions{View: o.View, FewLookups: o.FewLookups, Once: o.once, Linked: o.linked, Outside: o.outside, Limits: o.Limits, Param: o.Param, Password: o.Password, NoVerify: o.NoVerify, OnHeal: o.corrected}
}

// Open opens the archive at an address: a path, a URL of a registered scheme, or a name in
// OpenOptions.Store. The caller must close the archive.
func Open(ctx context.Context, address string, o OpenOptions) (*Archive, error) {
	if o.Format == dirFormat.Name && o.Store == nil {
		if err := o.untrusting(address); err != nil {
			return nil, err
		}
		return openFolder(ctx, address)
	}
	st, name, err := at(ctx, o.Store, address)
	if err != nil {
		return nil, err
	}
	return open(ctx, st, name, o)
}

// at returns the store of an address, and the name in it. If st is not nil, the address is a name
// in st.
func at(ctx context.Context, st store.Store, address string) (store.Store, string, error) {
	if st != nil {
		return st, address, nil
	}
	return store.OpenAddress(ctx, address)
}

// open opens the archive called name in st.
func open(ctx context.Context, st store.Store, name string, o OpenOptions) (*Archive, error) {
	if on := o.OnHeal; on != nil {
		o.corrected = sync.OnceFunc(func() { on("its checksums") })
	}
	st = blocks.Wrap(st, o.Blocks)
	none := o.NoVerify || o.Parity == parity.None
	if st.Can().Over != nil && !none {
		return openLayer(ctx, st, name, o)
	}
	p := opening{cache.Shared(st, o.CacheBytes), name, o}
	if none {
		return p.from(ctx, p.st)
	}
	return p.healed(ctx)
}

// openLayer opens an archive whose parity is that of what is stored. The layer shows what is damaged, and that
// what parity restores is right.
func openLayer(ctx context.Context, st store.Store, name string, o OpenOptions) (*Archive, error) {
	var guard atomic.Pointer[parity.Guard]
	find := sync.OnceValues(func() (store.Store, error) {
		ctx := context.WithoutCancel(ctx)
		g, err := parity.Locate(ctx, st.Can().Below, name, o.Parity)
		if g == nil {
			return nil, err
		}
		g.OnHeal, g.Unsound = o.OnHeal, func(context.Context) bool { return true }
		err = g.Look(ctx)
		if guard.Store(g); err != nil {
			return nil, err
		}
		return g.Store(), nil
	})
	heal := func(context.Context) store.Store { healed, _ := find(); return healed }
	p := opening{cache.Shared(st.Can().Over(st.Can().Below, heal), o.CacheBytes), name, o}
	a, err := p.from(ctx, p.st)
	if err != nil && ctx.Err() == nil && !storekit.Temporary(err) {
		if healed := heal(ctx); healed != nil {
			p.st = cache.Shared(st.Can().Over(healed, nil), o.CacheBytes)
			if again, aerr := p.from(ctx, p.st); aerr == nil {
				a, err = again, nil
			}
		}
	}
	if err != nil {
		if g := guard.Load(); g != nil {
			g.Close()
		}
		return nil, err
	}
	if a.guard = &guard; o.Parity != "" {
		_, a.parity = find()
	}
	return a, nil
}

// An opening opens one archive. All its steps share the objects of st.
type opening struct {
	st   store.Store
	name string
	o    OpenOptions
}

// healed opens an archive that parity heals while it is opened and read.
func (p opening) healed(ctx context.Context) (*Archive, error) {
	// On a disk, looking for parity is free. Elsewhere it takes a request, so parity is looked
	// for only if something is wrong.
	near := p.st.Can().Near
	var g *parity.Guard
	var why error
	var sound atomic.Bool // as far as it shows itself
	locate := func() {
		if g, why = parity.Locate(ctx, p.st, p.name, p.o.Parity); g != nil {
			g.OnHeal, g.Unsound = p.o.OnHeal, p.unsoundAnywhere
		}
	}
	if near || p.o.Parity != "" {
		locate()
	}
	by := p.st
	switch {
	case g == nil:
	case g.Suits != nil && near && g.Inserted(ctx) && g.Look(ctx) == nil:
		by = g.Store()
	case g.Suits == nil:
		by = g.StoreIf(func(ctx context.Context, object string, off, n int64) bool {
			damaged := g.Look(ctx) == nil && p.unsound(ctx, object, off, n)
			sound.Store(!damaged)
			return damaged
		})
	}
	a, err := p.from(ctx, by)
	if sound.Load() && g.Suits == nil && g.IsShort() { // it is no part of what the parity belongs to
		g.Suits = errSound
	}
	if err != nil && ctx.Err() == nil && !storekit.Temporary(err) || err == nil && a.Doubt() != nil {
		heals := false
		switch {
		case !near && p.o.Parity == "":
			locate()
			heals, why = g != nil && g.Suits == nil, nil
		case near && g != nil && g.Suits != nil: // it is longer than it was, which may be damage
			heals = g.Look(ctx) == nil
		}
		if heals {
			if err == nil {
				a.Close()
			}
			a, err = p.from(ctx, g.Store())
		}
	}
	if err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	var reopen func(context.Context, store.Store) (*content.Source, error)
	if (g == nil || g.Suits != nil) && len(p.o.Trusted) == 0 {
		reopen = p.reopen
	}
	if g != nil || !near {
		a.src.HealBy(g, p.o.Parity, p.o.OnHeal, reopen)
	}
	a.parity = why
	return a, nil
}

var errSound = errors.New("it belongs to another version of the archive, which is sound")

// reopen opens the archive in another store, by itself.
func (p opening) reopen(ctx context.Context, st store.Store) (*content.Source, error) {
	p.st, p.o.Index = st, UseIndex{}
	a, err := p.from(ctx, st)
	if err != nil {
		return nil, err
	}
	return a.src, nil
}

// unsound reports whether an archive is damaged, as far as the archive itself shows. It is called
// for a range that does not match the digests in the archive's parity. If the archive is sound,
// the parity belongs to another version or was made to mislead. unsound reads the whole archive
// only if its structure and all content in the range are sound, but that content does not cover
// the range.
func (p opening) unsound(ctx context.Context, object string, off, n int64) bool {
	p.o.Index, p.o.Trusted, p.o.Parity, p.o.corrected = UseIndex{}, nil, parity.None, nil
	a, err := p.from(ctx, p.st)
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
	c := check{o: VerifyOptions{OpenOptions: p.o}, report: func(Problem) {}, told: map[Problem]bool{}}
	err = c.archive(ctx, p.st, p.name)
	return err != nil || c.sum.Errors+c.sum.Warnings > 0
}

func (p opening) unsoundAnywhere(ctx context.Context) bool {
	return p.unsound(ctx, p.name, 0, math.MaxInt64)
}

// spans is a range and the parts of it that have been covered.
type spans struct {
	off, end int64
	of       [][2]int64
}

// add marks the bytes from off to end as covered, and reports whether any of them are in the
// range.
func (s *spans) add(off, end int64) bool {
	off, end = max(off, s.off), min(end, s.end)
	if off < end {
		s.of = append(s.of, [2]int64{off, end})
	}
	return off < end
}

// cover reports whether the parts cover the whole range.
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

// errEncrypted means that an archive is stored encrypted, and is opened as if it were not.
var errEncrypted = errors.New("it is encrypted by age: put age: in front of its address")

// errFolder means that no format recognised a folder.
var errFolder = fmt.Errorf("the folder is %w", format.ErrUnknown)

// from opens the archive, and reads its structure through the store by: with an index, if there is
// one, or else with its format.
func (p opening) from(ctx context.Context, by store.Store) (*Archive, error) {
	st, name, o := p.st, p.name, p.o
	a := &Archive{src: content.New(st, name, o.External, o.CacheBytes), asked: o}
	o.linked, o.outside = a.openLinked, a.src.Outside
	a.src.Blocks(o.Blocks)
	a.src.Checking = content.Checking{None: o.NoVerify, Whole: o.CompareWhole}
	a.src.OnCorrect(o.corrected)
	// The object is opened first, so that what is read for detection is cached for later reads. A
	// folder has no such object; its format finds the files in it.
	if _, err := a.src.Object(ctx, name); err != nil && by == st {
		names, release := lookBelow(ctx, st, name)
		if release(); names == nil {
			if errors.Is(err, syscall.EISDIR) && o.Format == "" {
				err = errFolder
			}
			return nil, err
		}
	}
	if len(o.Trusted) > 0 {
		if err := p.trust(ctx, by, a); err != nil {
			a.src.CloseObjects()
			return nil, &UntrustedError{name, err}
		}
		return a, nil
	}
	if u := o.Index.inner(); u.Any() && o.Password == "" {
		if p.indexed(ctx, a, u, func(ctx context.Context, f *format.Format) (format.Reader, error) { return openAs(ctx, f, by, name, o) }) {
			return a, nil
		}
		if u.Folder != nil && !st.Can().Near {
			// The whole list is fetched now, so that it can be kept.
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

// indexed makes a read by an index, if there is one. open opens the archive itself where the index does not
// know.
func (p opening) indexed(ctx context.Context, a *Archive, u kept.Use, open func(context.Context, *format.Format) (format.Reader, error)) bool {
	x, state := kept.Find(ctx, p.st, p.name, u, p.o.wanted())
	if a.index = state; x == nil {
		return false
	}
	f := p.o.formats().ByName(x.Format)
	a.src.Read(f, kept.NewReader(x, a.src.ProvenBefore, func(ctx context.Context) (format.Reader, error) { return open(ctx, f) }))
	a.src.UseIndex(x)
	return true
}

// openLinked opens a file that the archive refers to, as Zarr keys.
func (a *Archive) openLinked(ctx context.Context, address string) (format.Reader, error) {
	st, name, err := a.src.Find(ctx, address)
	if err != nil {
		return nil, err
	}
	if st != a.src.Store {
		st = cache.Shared(blocks.Wrap(st, a.asked.Blocks), 0)
	}
	_, r, err := recognise(ctx, st, name, OpenOptions{View: "zarr", Formats: a.asked.Formats, Limits: a.asked.Limits})
	return r, err
}

// errPage means that a server has sent something else under the archive's address.
var errPage = errors.New("the server sent a web page, not an archive: open the address in a browser to see why")

// recognise detects the format of an archive and opens it. The extension of the name only decides
// which format is tried first; the bytes decide.
func recognise(ctx context.Context, st store.Store, name string, o OpenOptions) (_ *format.Format, _ format.Reader, err error) {
	defer func() {
		if (errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrUnknown)) && storekit.IsPage(ctx, st, name) {
			err = errPage
		}
	}()
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
	if guess != nil && (guess.Open == nil || o.formats().Shares(guess)) {
		guess = nil // a LINDI archive may be called x.tar: only its bytes tell the two apart
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
	if bytes.HasPrefix(p.Head, []byte("age-encryption.org/")) {
		return nil, nil, errEncrypted
	}
	f, err := o.formats().Detect(p)
	if errors.Is(err, format.ErrUnknown) && p.Names != nil {
		err = errFolder
	}
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
	if f.Open == nil {
		return nil, fmt.Errorf("%s: %s is only written; what is written opens as a folder, without its format: %w", name, f.Name, errors.ErrUnsupported)
	}
	return f.Open(ctx, st, name, o.inner())
}

// probe reads both ends of an object at the same time. If name may be a folder, it also lists
// names in it. That listing can be reused until release is called.
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
	var wg sync.WaitGroup
	far, looked := !st.Can().Near, path.Ext(name) == "" // folders usually have no extension
	if far && looked {
		wg.Go(look)
	}
	found, err := detect.Probe(ctx, o, p.Name, far)
	wg.Wait()
	if err != nil {
		// Stores on a network open objects that do not exist, folders included.
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
	return found, release, nil
}

// lookBelow lists the first names in a folder. The listing can be reused until release is called.
func lookBelow(ctx context.Context, st store.Store, name string) (names []string, release func()) {
	const enough = 1000
	prefix := strings.TrimSuffix(name, "/") + "/"
	names, release = cache.Look(ctx, st, prefix, enough)
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, prefix)
	}
	return names, release
}
