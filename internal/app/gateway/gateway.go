// Package gateway takes changes of objects, as S3 clients send them, and packs them. A change is durable when it is
// answered: it is in a log on a disk, whose segments become archives of a catalogue.
//
// The newest changes lie as layers over the catalogue, so everything that reads the catalogue in this process sees
// them at once. A layer goes when a commit has what its segment says.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

type Options struct {
	// Log is the folder of the logs, on a disk of this machine.
	Log string
	// InBucket has each change in an archive and a commit in the store before it is answered. Then there is no log,
	// and any number of gateways may write.
	InBucket bool
	// SegmentSize is the size at which a segment of the log becomes an archive; 0 means 256 MiB.
	SegmentSize int64
	// SealAfter is for how long a change may be in the log alone; 0 means 5 minutes.
	SealAfter time.Duration
	// Address is where others reach this gateway.
	Address string
	// TakeOver claims catalogues that another gateway has claimed, whose log is lost.
	TakeOver bool
	// Packing says how what is written into a bucket is packed, so that a fleet can compact it.
	Packing func(ctx context.Context, bucket string) (fleet.Packing, error)
	// Through names the source of the bucket for good, if there is just one: the address of another bucket, whose objects
	// are shown, too. [None] ends that. Without it, the source is what the catalogue names.
	Through string
	// Adopt also makes what was read from the source an object of the bucket.
	Adopt bool
	// Source opens a source; nil means storekit.OpenFolder.
	Source func(ctx context.Context, address string) (store.Store, error)
	// Find returns the function that finds the archives of a catalogue; nil means any address.
	Find func(c *book.Book) Find
	// NoVerify turns off the comparison of contents with their digests when they are read.
	NoVerify bool
	// Logger logs failures that are tried again; nil means slog.Default().
	Logger *slog.Logger

	now   func() time.Time
	text  func() string
	wait  func(ctx context.Context, d time.Duration) bool
	large int64 // from that size on an object is an archive of its own
	room  int64 // see [journal.Options]
	// folder returns the folder of a log, as a disk and as a store.
	folder func(dir string) (disk.Disk, store.Store, error)
}

// A Find finds the store of an archive by its address.
type Find func(ctx context.Context, address string) (store.Store, string, error)

// A Gateway keeps buckets. Each is a catalogue in one folder, and is called like it.
type Gateway struct {
	st   store.Store
	at   string // what the names of catalogues begin with: empty, or it ends in a slash
	only string // the bucket, if there is just one
	set  *serve.Set
	o    Options

	memory *semaphore.Weighted // of contents
	pages  *rows.Cache
	rows   atomic.Int64 // names in the layers of all buckets

	ctx  context.Context
	stop context.CancelFunc

	changing sync.Mutex // held while buckets are made, opened or removed
	mu       sync.Mutex
	buckets  map[string]*bucket
	others   map[string]*forward // buckets that other gateways own
	aside    map[string]error    // why buckets cannot be used
}

// New opens the buckets whose catalogues are in a folder of a store, or only one of them. The set serves them.
func New(ctx context.Context, st store.Store, at, only string, set *serve.Set, o Options) (*Gateway, error) {
	o.SegmentSize, o.SealAfter, o.Logger = cmp.Or(o.SegmentSize, 256<<20), cmp.Or(o.SealAfter, 5*time.Minute), cmp.Or(o.Logger, slog.Default())
	if o.Source == nil {
		o.Source = storekit.OpenFolder
	}
	if o.now == nil {
		o.now, o.text, o.wait, o.large, o.folder = time.Now, rand.Text, wait, large, folder
	}
	g := &Gateway{st: st, at: at, only: only, set: set, o: o, memory: semaphore.NewWeighted(mostMemory), pages: rows.NewCache(mostPages), buckets: map[string]*bucket{}, others: map[string]*forward{}, aside: map[string]error{}}
	g.ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	names := []string{only}
	if only == "" {
		var err error
		if names, err = g.found(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		_, removed, err := g.wasRemoved(ctx, name)
		if errors.Is(err, format.ErrCorrupt) && only == "" {
			g.setAside(name, err)
			continue
		}
		if err == nil && !removed {
			err = g.openOrForward(ctx, name)
		}
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	return g, nil
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func folder(dir string) (disk.Disk, store.Store, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return nil, nil, err
	}
	d, err := disk.Open(dir)
	return d, local.New(dir), err
}

// found returns the names of the buckets whose catalogues are in the folder.
func (g *Gateway) found(ctx context.Context) (buckets []string, err error) {
	names, err := g.names(ctx)
	for _, name := range names {
		if name, is := strings.CutSuffix(name, book.Suffix); is && bucketName().MatchString(name) {
			buckets = append(buckets, name)
		}
	}
	return buckets, err
}

// names returns the names of the folders in the folder.
func (g *Gateway) names(ctx context.Context) (names []string, err error) {
	at := strings.TrimSuffix(storekit.AddressOf(g.st, g.at+"x"), "x")
	level := g.st.Can().Level
	if level == nil && store.Scheme(at) == "" {
		all, err := os.ReadDir(filepath.FromSlash(at))
		if errors.Is(err, fs.ErrNotExist) {
			err = os.MkdirAll(filepath.FromSlash(at), 0o777)
		}
		for _, e := range all {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names, err
	}
	const most = 1_000_000
	if level == nil {
		return nil, fmt.Errorf("%s: the folder cannot be listed: %w", store.Redact(at), errors.ErrUnsupported)
	}
	all, more, err := level(ctx, g.at, most)
	if err == nil && more {
		err = fmt.Errorf("%s: expected at most %d objects in a folder", store.Redact(at), most)
	}
	for _, b := range all {
		if name, is := strings.CutSuffix(b.Name, "/"); is && b.All {
			names = append(names, strings.TrimPrefix(name, g.at))
		}
	}
	return names, err
}

// bucketName is what the name of a bucket may be. It is also that of files.
var bucketName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$`) })

func (g *Gateway) catalogue(bucket string) string { return g.at + bucket + book.Suffix }

// shown is the address of a bucket for people.
func (g *Gateway) shown(bucket string) string {
	return "catalog:" + store.Redact(storekit.AddressOf(g.st, g.catalogue(bucket)))
}

// now is rounded to what the log has.
func (g *Gateway) now() time.Time { return g.o.now().UTC().Truncate(time.Millisecond) }

// Bucket implements [serve.Keeper].
func (g *Gateway) Bucket(_ context.Context, name string) (serve.Bucket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.buckets[name]; b != nil {
		return b, nil
	}
	return nil, cmp.Or(g.aside[name], serve.ErrNoArchive)
}

// Make implements [serve.Keeper].
func (g *Gateway) Make(ctx context.Context, name string) error {
	if g.only != "" || !bucketName().MatchString(name) {
		return serve.ErrReadOnly
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	if _, err := g.Bucket(ctx, name); err == nil {
		return serve.ErrBucketExists
	}
	if err := g.removeRest(ctx, name); err != nil {
		return err
	}
	c, err := book.Create(ctx, g.st, g.catalogue(name))
	if errors.Is(err, fs.ErrExist) {
		err = serve.ErrBucketExists
	}
	if err == nil {
		err = c.Close()
	}
	if err == nil {
		err = g.open(ctx, name)
	}
	return err
}

// open opens a bucket, and has it served.
func (g *Gateway) open(ctx context.Context, name string) (err error) {
	b := &bucket{g: g, name: name, queue: make(chan *change, mostWaiting), shut: make(chan struct{}), halted: make(chan struct{}), full: make(chan struct{}, 1), aside: make(chan func()), making: map[string]bool{}}
	b.ctx, b.end = context.WithCancel(g.ctx)
	b.over.Store(&layers{})
	if b.book, err = book.Open(ctx, g.st, g.catalogue(name), book.Options{Write: true, Fresh: g.fresh(), Now: g.o.now, Cache: g.pages, Over: func() []book.Layer { return b.over.Load().all }}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err = b.recover(ctx); err != nil {
		return err
	}
	others := Find(store.OpenAddress)
	if g.o.Find != nil {
		others = g.o.Find(b.book)
	}
	o := shelf.Options{Address: storekit.AddressOf(g.st, g.catalogue(name)), NoVerify: g.o.NoVerify, Source: g.o.Source, Open: func(ctx context.Context, address string) (store.Store, string, error) {
		if number, is := strings.CutPrefix(address, segments); is {
			return logs{b}, number, nil
		}
		return others(ctx, address)
	}}
	if g.o.Adopt {
		b.adopts = newAdopter(b)
		o.Read = b.adopts.read
	}
	if b.hall, err = shelf.New(ctx, b.book, o); err != nil {
		return err
	}
	open := func(ctx context.Context) (*holdall.Archive, error) {
		return holdall.Open(ctx, shelf.Tree, holdall.OpenOptions{Store: b.hall, Formats: []*format.Format{shelf.Format}, Parity: parity.None, NoVerify: g.o.NoVerify})
	}
	if b.tree, err = open(ctx); err != nil {
		return err
	}
	since, err := b.book.Since(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.mu.Lock()
	g.buckets[name] = b
	g.mu.Unlock()
	g.set.Add(serve.Source{Name: name, Address: g.shown(name), ModTime: since, Keep: true, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		if view != "" {
			return nil, "", &holdall.ViewError{Format: shelf.Format.Name, View: view}
		}
		in, err := open(ctx)
		return in, "", err
	}})
	b.work.Go(b.commit)
	b.work.Go(func() { b.keepHouse(b.ctx) })
	if !g.o.InBucket {
		b.work.Go(func() { b.seal(b.ctx) })
		b.work.Go(func() { b.tick(b.ctx) })
	}
	return nil
}

// fresh is for how long a state of the catalogue is used. What this process commits is seen at once. If others commit
// objects, each request asks for the next commit.
func (g *Gateway) fresh() time.Duration {
	if g.o.InBucket {
		return -1
	}
	return 2 * time.Second
}

// Close ends all work. What is in the log stays there.
func (g *Gateway) Close() (err error) {
	g.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.buckets {
		err = errors.Join(err, b.close())
	}
	clear(g.buckets)
	return err
}

// Flush makes commits of everything that is in the log.
func (g *Gateway) Flush(ctx context.Context) error {
	return g.each(func(b *bucket) error { return b.flush(ctx) })
}

// Leave makes commits of everything that is in the log, and ends the claims, so that another gateway can have the
// buckets. Nothing may be written any more.
func (g *Gateway) Leave(ctx context.Context) error {
	return g.each(func(b *bucket) error {
		b.adopts.stop()
		if err := b.flush(ctx); err != nil {
			return err
		}
		return b.leave(ctx)
	})
}

func (g *Gateway) each(do func(*bucket) error) (err error) {
	g.mu.Lock()
	all := slices.Collect(maps.Values(g.buckets))
	g.mu.Unlock()
	for _, b := range all {
		err = errors.Join(err, do(b))
	}
	return err
}

// folder is where the log of a bucket is.
func (g *Gateway) folder(bucket string) string { return filepath.Join(g.o.Log, bucket+".log") }

// in is the name of an object in the folder of the catalogue.
func (b *bucket) in(base string) string { return b.g.at + path.Base(base) }
