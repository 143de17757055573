package holdall

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/kept"
	"github.com/holdall/holdall/internal/sorter"
	"github.com/holdall/holdall/store"
)

// IndexSuffix is what the name of a published index has behind its archive's.
const IndexSuffix = ".holdall"

// UseIndex says where an index of an archive may be that was kept. An index that is
// not of this very version of the archive, or is damaged, is never believed.
type UseIndex struct {
	// At is the address of one; where it is set no other is looked for.
	At string `json:"at,omitempty"`
	// Beside looks for one that is published beside the archive. Of an archive behind a
	// network that is a request.
	Beside bool `json:"beside,omitempty"`
	// Folder is a folder of indexes that were kept here.
	Folder *IndexFolder `json:"-"`

	sizeOnly bool // it need not be of this version, but of one of this length
}

func (u UseIndex) any() bool { return u.At != "" || u.Beside || u.Folder != nil }

// An IndexState says which index an archive is read by, and why another is not.
type IndexState struct {
	Used    string // where it is; empty if there is none
	Ignored string // where one is that was not believed
	Why     error
}

// endLen is how much of each end of an archive an index is bound to.
const endLen = 4 << 10

// bind says what version of an archive is there. Of a folder it is that of all that is
// in it.
func bind(ctx context.Context, st store.Store, name string) (b kept.Bound, err error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		if below, berr := bindFolder(ctx, st, name); berr == nil {
			return below, nil
		}
		return b, err
	}
	defer o.Close()
	tail := make([]byte, endLen)
	n, err := store.ReadTail(ctx, o, tail)
	if err != nil {
		return b, err
	}
	info, err := o.Info(ctx)
	if err != nil {
		return b, err
	}
	b.Size, b.ModTime, b.Tail = info.Size, info.ModTime.UTC(), sumOfEnd(tail[:n])
	if !store.IsNear(st) {
		b.Version = info.Version
		return b, nil
	}
	n, err = store.ReadHead(ctx, o, tail)
	b.Head = sumOfEnd(tail[:n])
	return b, err
}

// sumOfEnd is enough of a digest to tell ends apart.
func sumOfEnd(b []byte) string {
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// errFarFolder means that a folder cannot be told from what it was.
var errFarFolder = errors.New("a folder whose objects cannot be listed")

// bindFolder is bind of an archive of many objects: what they are called, how long they
// are, and when they were written.
func bindFolder(ctx context.Context, st store.Store, name string) (b kept.Bound, err error) {
	h := blake3.New()
	prefix := strings.TrimSuffix(name, "/") + "/"
	objects := 0
	for info, err := range store.List(ctx, st, prefix) {
		if err != nil {
			return b, err
		}
		objects++
		b.Size += info.Size
		if info.ModTime.After(b.ModTime) {
			b.ModTime = info.ModTime.UTC()
		}
		version := info.Version
		if store.IsNear(st) {
			version = info.ModTime.UTC().Format(time.RFC3339Nano)
		}
		fmt.Fprintf(h, "%q %d %s\n", strings.TrimPrefix(info.Name, prefix), info.Size, version)
	}
	if objects == 0 {
		return b, errFarFolder
	}
	b.Tail = hex.EncodeToString(h.Sum(nil)[:16])
	return b, nil
}

// isOf says why an index that is bound to was is not one of what is there now.
func isOf(was, now kept.Bound) error {
	sameTime := !now.ModTime.IsZero() && (was.ModTime.Equal(now.ModTime) || now.ModTime.Nanosecond() == 0 && was.ModTime.Truncate(time.Second).Equal(now.ModTime))
	switch {
	case was.Size != now.Size:
		return fmt.Errorf("it is of an archive of %d bytes, not of %d", was.Size, now.Size)
	case was.Tail != now.Tail || was.Head != "" && now.Head != "" && was.Head != now.Head:
		return errors.New("it is of an archive with another end, or beginning")
	case was.Version != "" && was.Version == now.Version:
		return nil
	case !sameTime:
		return fmt.Errorf("it is of an archive of %s, not of %s", was.ModTime.Format(time.RFC3339Nano), now.ModTime.Format(time.RFC3339Nano))
	case was.Version != "" && now.Version != "":
		return fmt.Errorf("it is of version %s of the archive, not of %s", was.Version, now.Version)
	}
	return nil
}

// index looks for an index of the archive, and opens it.
func (a *Archive) findIndex(ctx context.Context, o OpenOptions) (x *kept.Index) {
	var now kept.Bound
	var nowErr error
	bound := sync.OnceFunc(func() { now, nowErr = bind(ctx, a.st, a.name) })
	try := func(st store.Store, name, shown string, ours bool) *kept.Index {
		obj, err := st.Open(ctx, name)
		if err == nil {
			x, err = kept.Open(ctx, obj, shown, a.name, a.workers())
		}
		if err == nil {
			if err = a.suits(x, o); err == nil {
				if bound(); nowErr != nil {
					err = nowErr
				} else {
					err = isOf(x.Bound, now)
				}
				if o.Index.sizeOnly && nowErr == nil && x.Bound.Size == now.Size {
					err = nil
				}
			}
			if err == nil {
				a.index.Used = shown
				return x
			}
			x.Close()
		}
		// Buckets that may not be listed forbid to read what is not there.
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
		if !ours && (!missing || o.Index.At != "") {
			a.index.Ignored, a.index.Why = shown, err
		}
		return nil
	}
	if o.Index.At != "" {
		st, name, err := store.OpenAddress(ctx, o.Index.At)
		if err != nil {
			a.index.Ignored, a.index.Why = o.Index.At, err
			return nil
		}
		return try(st, name, store.Redact(o.Index.At), false)
	}
	beside := func() *kept.Index {
		return try(a.st, strings.TrimSuffix(a.name, "/")+IndexSuffix, path.Base(a.name)+IndexSuffix, false)
	}
	// One that was published may have digests, which one that was kept here has not; but
	// that costs no request.
	near := store.IsNear(a.st)
	if o.Index.Beside && near {
		if x := beside(); x != nil {
			return x
		}
	}
	if f := o.Index.Folder; f != nil {
		if st, name, ok := f.of(ctx, a.address(), o); ok {
			if x := try(st, name, store.AddressOf(st, name), true); x != nil {
				f.touch(name)
				return x
			}
		}
	}
	if o.Index.Beside && !near {
		return beside()
	}
	return nil
}

// suits says why an index does not answer what is asked of the archive.
func (a *Archive) suits(x *kept.Index, o OpenOptions) error {
	f := format.ByName(o.formats(), x.Format)
	switch {
	case f == nil:
		return fmt.Errorf("it is of an archive of format %q", x.Format)
	case o.Format != "" && o.Format != x.Format:
		return fmt.Errorf("it is of an archive of format %s, not %s", x.Format, o.Format)
	case x.View != viewOf(f, o.View):
		return fmt.Errorf("it is of the view %q", x.View)
	case !maps.Equal(x.Param, o.Param) && len(x.Param)+len(o.Param) > 0:
		return errors.New("it was made with other options")
	}
	return nil
}

// viewOf is the view that is meant.
func viewOf(f *format.Format, view string) string {
	if view == "" && len(f.Views) > 0 {
		return f.Views[0]
	}
	return view
}

func (a *Archive) workers() int {
	if store.IsNear(a.st) {
		return 2
	}
	return 8
}

// Index says which index the archive is read by.
func (a *Archive) Index() IndexState { return a.index }

// keptReader answers by an index, and by the archive where that is damaged or does not
// know.
type keptReader struct {
	x    *kept.Index
	open func(context.Context) (format.Reader, error)

	mu   sync.Mutex
	real format.Reader
	lost bool // the index
}

// archive opens the archive itself. Whoever waits for it waits for somebody.
func (k *keptReader) archive(ctx context.Context) (format.Reader, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil {
		r, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		k.real = r
	}
	return k.real, nil
}

// spoilt reports whether an index cannot be used any more, because of err or of
// something before it.
func (k *keptReader) spoilt(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	_, bad := errors.AsType[*kept.Error](err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = k.lost || bad && ctx.Err() == nil
	return bad && ctx.Err() == nil
}

func (k *keptReader) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

func (k *keptReader) Lookup(ctx context.Context, name string) (Entry, error) {
	if !k.isLost() {
		e, err := k.x.Lookup(ctx, name)
		if !k.spoilt(ctx, err) {
			return e, err
		}
	}
	r, err := k.archive(ctx)
	if err != nil {
		return Entry{}, err
	}
	return r.Lookup(ctx, name)
}

// either yields what the index says; where that breaks off, what the archive says goes
// on from there.
func (k *keptReader) either(ctx context.Context, said iter.Seq2[Entry, error], archive func(format.Reader) iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		n := 0
		if !k.isLost() {
			broken := false
			for e, err := range said {
				if broken = k.spoilt(ctx, err); broken {
					break
				}
				if n++; !yield(e, err) || err != nil {
					return
				}
			}
			if !broken {
				return
			}
		}
		r, err := k.archive(ctx)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for e, err := range archive(r) {
			if n--; n >= 0 && err == nil {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (k *keptReader) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return k.either(ctx, k.x.Entries(ctx), func(r format.Reader) iter.Seq2[Entry, error] { return r.Entries(ctx) })
}

func (k *keptReader) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return k.either(ctx, k.x.ReadDir(ctx, dir), func(r format.Reader) iter.Seq2[Entry, error] { return r.ReadDir(ctx, dir) })
}

func (k *keptReader) EntriesBelow(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return k.either(ctx, k.x.EntriesBelow(ctx, dir), func(r format.Reader) iter.Seq2[Entry, error] { return entriesBelow(ctx, r, dir) })
}

func (k *keptReader) EntriesFrom(ctx context.Context, name string) iter.Seq2[Entry, error] {
	return k.either(ctx, k.x.EntriesFrom(ctx, name), func(r format.Reader) iter.Seq2[Entry, error] {
		if s, ok := r.(format.Seeker); ok {
			return s.EntriesFrom(ctx, name)
		}
		return func(yield func(Entry, error) bool) {
			yield(Entry{}, fmt.Errorf("this archive cannot be read from the middle: %w", errors.ErrUnsupported))
		}
	})
}

func (k *keptReader) Extents(ctx context.Context, e Entry, off, n int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		ours := k.x.Has(e)
		if ours {
			broken := false
			for x, err := range k.x.Extents(ctx, e, off, n) {
				if broken = k.spoilt(ctx, err); broken {
					break // it is the first one
				}
				if !yield(x, err) {
					return
				}
			}
			if !broken {
				return
			}
		}
		r, err := k.archive(ctx)
		if err == nil && (ours || kept.IsElsewhere(e)) {
			e, err = r.Lookup(ctx, e.Name)
		}
		if err != nil {
			yield(Extent{}, err)
			return
		}
		for x, err := range r.Extents(ctx, e, off, n) {
			if !yield(x, err) {
				return
			}
		}
	}
}

func (k *keptReader) Run(e Entry) (Extent, bool) {
	if k.x.Has(e) {
		return k.x.Run(e)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.real.(format.Contiguous); ok && !kept.IsElsewhere(e) {
		return c.Run(e)
	}
	return Extent{}, false
}

func (k *keptReader) Regions(ctx context.Context) iter.Seq2[Region, error] {
	return func(yield func(Region, error) bool) {
		r, err := k.archive(ctx)
		if err != nil {
			yield(Region{}, err)
			return
		}
		r.Regions(ctx)(yield)
	}
}

func (k *keptReader) About(ctx context.Context) (About, error) {
	r, err := k.archive(ctx)
	if err != nil {
		return About{}, err
	}
	return r.About(ctx)
}

// volumes are the objects of the archive, which is called name.
func (k *keptReader) volumes(name string) (all []string) {
	for _, o := range k.x.Objects {
		all = append(all, name+o)
	}
	return all
}

func (k *keptReader) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.x.Close()
	if k.real != nil {
		err = errors.Join(err, k.real.Close())
	}
	return err
}

// IndexOptions are wishes for an index.
type IndexOptions struct {
	// Chunk is how many bytes of content a digest shall be of, by which every read is
	// proven: a power of two from 64 KiB to 1 MiB. All contents are read for that; 0 is
	// no digests.
	Chunk int64
	// OnError hears of content that gets no proof: it cannot be read, or is not what the
	// archive says it is.
	OnError func(Problem)
	// Meter counts.
	Meter *Meter
}

// An IndexSummary says what an index has.
type IndexSummary struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`       // of contents
	Index   int64 `json:"index_bytes"` // its own length
	Digests int64 `json:"digests,omitempty"`
	// Unproven counts the files that have none, because they are damaged.
	Unproven int64 `json:"unproven,omitempty"`
}

// BuildIndex writes an index of the archive called name in st to what to creates.
func BuildIndex(ctx context.Context, st store.Store, name string, o OpenOptions, to store.Store, toName string, w IndexOptions) (sum IndexSummary, err error) {
	if w.Chunk != 0 && !kept.IsChunk(w.Chunk) {
		return sum, fmt.Errorf("digests of %d bytes each: expected a power of two from %d to %d", w.Chunk, kept.MinChunk, kept.MaxChunk)
	}
	if at := store.AddressOf(to, toName); at != "" && at == store.AddressOf(st, name) {
		return sum, fmt.Errorf("%s: an index cannot take the place of its archive", store.Redact(at))
	}
	o.Index, o.FewLookups = UseIndex{}, false
	o.once = w.Chunk == 0 // contents are read some time after they are listed
	a, err := OpenStore(ctx, st, name, o)
	if err != nil {
		return sum, err
	}
	defer a.Close()
	return a.writeIndex(ctx, o, to, toName, false, true, w)
}

// writeIndex writes an index of a. Only ours says where the archive is.
func (a *Archive) writeIndex(ctx context.Context, o OpenOptions, to store.Store, toName string, ours, points bool, wish IndexOptions) (sum IndexSummary, err error) {
	was, err := bind(ctx, a.st, a.name)
	if err != nil {
		return sum, fmt.Errorf("no index can be told to be of it: %w", err)
	}
	if err := bindHead(ctx, a.st, a.name, &was); err != nil {
		return sum, err
	}
	head := kept.Head{Format: a.f.Name, View: viewOf(a.f, o.View), Param: o.Param, Bound: was, Objects: []string{""}, Chunk: wish.Chunk}
	// Formats that can go through entries once have archives of one object; what is known
	// of it as a whole they would have to load it for.
	if !a.asked.once || was.Head == "" {
		about, err := a.r.About(ctx)
		if err != nil {
			return sum, err
		}
		head.Version, head.Objects = about.Version, nil
		for _, v := range about.Volumes {
			if rest, ok := strings.CutPrefix(v, a.name); ok {
				head.Objects = append(head.Objects, rest)
			}
		}
	}
	if ours {
		head.Archive = store.Redact(a.address())
	}
	w, err := store.Create(ctx, to, toName)
	if err != nil {
		return sum, err
	}
	defer w.Abort()
	if wish.Chunk != 0 {
		if err := a.expect(ctx, wish.Meter, func(Entry) bool { return true }); err != nil {
			return sum, err
		}
	}
	digests := digester{a: a, chunk: wish.Chunk, o: wish, sum: &sum}
	defer digests.close()
	build := kept.Options{Scratch: sorter.TempFile, Digests: digests.all(ctx)}
	if points {
		build.Stored = a.storedBytes
	}
	if head, err = kept.Build(ctx, w, metered{a.r, wish.Meter}, a.name, head, build); err != nil {
		return sum, err
	}
	// What was read while the archive changed is of no version.
	now, err := bind(ctx, a.st, a.name)
	if err == nil {
		err = isOf(was, now)
	}
	if err != nil {
		return sum, fmt.Errorf("the archive changed while it was indexed: %w", err)
	}
	info, err := w.Commit(ctx)
	sum.Entries, sum.Bytes, sum.Index = head.Entries, head.Bytes, info.Size
	return sum, err
}

// storedBytes reads stored bytes of one of the archive's objects.
func (a *Archive) storedBytes(ctx context.Context, object string, off, n int64) (io.ReadCloser, error) {
	o, err := a.objects.open(ctx, object, false)
	if err != nil {
		return nil, err
	}
	return a.engine.Stored(ctx, o, off, n), nil
}

// bindHead adds what is at the beginning of an archive behind a network, which is not
// asked for where an index is looked for.
func bindHead(ctx context.Context, st store.Store, name string, b *kept.Bound) error {
	if b.Head != "" {
		return nil
	}
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil // a folder
	}
	defer o.Close()
	head := make([]byte, endLen)
	n, err := store.ReadHead(ctx, o, head)
	if err == nil {
		b.Head = sumOfEnd(head[:n])
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a folder
	}
	return err
}

// metered counts the entries that are gone through.
type metered struct {
	format.Reader
	m *Meter
}

func (c metered) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range c.Reader.Entries(ctx) {
			if err == nil {
				c.m.Add(1, 0)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Run passes on what the reader can.
func (c metered) Run(e Entry) (Extent, bool) {
	if r, ok := c.Reader.(format.Contiguous); ok {
		return r.Run(e)
	}
	return Extent{}, false
}
