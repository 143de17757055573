package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdall/holdall"
)

// A Source is an archive that can be served: what is known of it before it is opened.
type Source struct {
	// Name is what it should be called in paths. Of two sources of one name the
	// second is called NAME-2.
	Name string
	// Address is where it lies, for people: without secrets.
	Address string
	// View is what it is opened in where a request does not say.
	View string
	// Keep has it stay open though nobody asks for it.
	Keep bool
	// Mark tells its states apart: a source that comes again with another is
	// opened again.
	Mark string
	// ModTime is when it was written, if that is known.
	ModTime time.Time
	// State, if not nil, says what stands for its bytes now, "" if that is not known. It is
	// asked when the archive is, but no more often than Every, 0 being 2 s; one that has
	// changed is opened again.
	State func(ctx context.Context) string
	Every time.Duration
	// Open opens it in a view, and returns its Version.
	Open func(ctx context.Context, view string) (*holdall.Archive, string, error)
}

// An Archive is one that is served, open until it is released.
type Archive struct {
	*holdall.Archive
	Name    string // what it is called in paths
	Address string // where it lies, for people
	View    string // the one it is open in, the format's usual one if none was asked for
	ModTime time.Time
	// Version stands for the bytes of all the archive's volumes, and for what
	// else decides what its contents are, such as its view: the same Version is
	// the same contents. Entries without a digest get their ETag from it, or
	// none if it is empty.
	Version string
	Once    string // stands for its bytes while it is open

	set  *Set
	o    *opened
	done sync.Once
}

// Release ends the use of the archive.
func (a *Archive) Release() { a.done.Do(func() { a.set.release(a.o) }) }

// Hold is one more use of the archive, which release ends. Who asks for it must use it.
func (a *Archive) Hold() (release func()) {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.o.refs++
	return sync.OnceFunc(func() { a.set.release(a.o) })
}

// WhenIdle has forget called once, when the archive is closed or nobody has used it for a
// while: for what was made of it, and takes memory. It must not ask the Set for anything.
func (a *Archive) WhenIdle(forget func()) {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.o.whenIdle = append(a.o.whenIdle, forget)
}

// Current reports whether what is served by its name is still this archive.
func (a *Archive) Current(ctx context.Context) bool {
	s := a.set
	if s.isOld() {
		_ = s.look(ctx, always) // what cannot be listed stays what it was
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookAgain(ctx, a.o)
	return !a.o.retired
}

// Stale says that what was opened is not what is there any more.
func (a *Archive) Stale() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.retire(a.o)
}

// A Listed is an archive in a list of them.
type Listed struct {
	Name, Address string
	ModTime       time.Time
	// Err says why it could not be opened when that was last tried.
	Err error
}

// A Folder is a place whose archives are served, whichever these are at the time.
type Folder struct {
	// List returns what is there.
	List func(ctx context.Context) ([]Source, error)
	// Every is how long a list may be used.
	Every time.Duration
}

// SetOptions are wishes for a Set; the zero value suits most.
type SetOptions struct {
	MaxOpen int           // how many archives that nobody uses are held open; 0 is 32
	Idle    time.Duration // after which such are closed; 0 is five minutes
	Log     *slog.Logger
}

// A Set is the archives of a server. They are opened when they are first asked for,
// and closed when nobody has for a while.
type Set struct {
	max  int
	idle time.Duration
	log  *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	looking sync.Mutex // held while folders are listed
	mu      sync.Mutex
	fixed   []Source
	folders []*listedFolder
	known   map[string]Source
	names   []string
	open    map[openKey]*opened
	all     map[*opened]bool // the retired, too
	counts  setCounts
}

type listedFolder struct {
	Folder
	at      time.Time
	sources []Source
	err     error
}

type openKey struct{ name, view string }

type opened struct {
	key     openKey
	src     Source
	ready   chan struct{}
	a       *holdall.Archive
	version string
	once    string
	err     error
	refs    int
	last    time.Time
	retired bool

	whenIdle []func()

	consolidated consolidated

	state  string // before it was opened
	looked time.Time
}

// rest forgets what was made of the archive. mu is held.
func (o *opened) rest() {
	for _, forget := range o.whenIdle {
		forget()
	}
	o.whenIdle = nil
}

type setCounts struct{ opens, failures, hits, closes int64 }

// errKept is how long an archive that could not be opened is not tried again.
const errKept = 3 * time.Second

// NewSet returns a set without archives.
func NewSet(o SetOptions) *Set {
	s := &Set{
		max: cmp.Or(o.MaxOpen, 32), idle: cmp.Or(o.Idle, 5*time.Minute), log: cmp.Or(o.Log, slog.Default()),
		open: map[openKey]*opened{}, all: map[*opened]bool{}, known: map[string]Source{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.closeIdle)
	return s
}

// Add adds a source and returns the name that it got.
func (s *Set) Add(src Source) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = append(s.fixed, src)
	s.rebuild()
	return s.names[len(s.fixed)-1]
}

// AddFolder adds all that is in a folder, now and later.
func (s *Set) AddFolder(f Folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = append(s.folders, &listedFolder{Folder: f})
}

// rebuild gives all sources their names. Those that were given by name keep theirs.
func (s *Set) rebuild() {
	s.known = map[string]Source{}
	s.names = s.names[:0]
	add := func(src Source) {
		name := src.Name
		for n := 2; ; n++ {
			if _, taken := s.known[name]; !taken {
				break
			}
			name = src.Name + "-" + strconv.Itoa(n)
		}
		s.known[name] = src
		s.names = append(s.names, name)
	}
	for _, src := range s.fixed {
		add(src)
	}
	for _, f := range s.folders {
		for _, src := range f.sources {
			add(src)
		}
	}
	for key, o := range s.open {
		if src, ok := s.known[key.name]; !ok || src.Mark != o.src.Mark || src.Address != o.src.Address {
			s.retire(o)
		}
	}
}

// look lists the folders whose lists are too old. Whoever waits here waits for who
// lists them; requests for what is known do not come here.
func (s *Set) look(ctx context.Context, most time.Duration) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	folders := slices.Clone(s.folders)
	s.mu.Unlock()
	var errs []error
	changed := false
	for _, f := range folders {
		if time.Since(f.at) > min(f.Every, most) {
			sources, err := f.List(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.mu.Lock()
			f.at, f.err = time.Now(), err
			if err == nil {
				f.sources, changed = sources, true
			}
			s.mu.Unlock()
		}
		errs = append(errs, f.err)
	}
	if changed {
		s.mu.Lock()
		s.rebuild()
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

const always = time.Duration(1<<63 - 1)

func (s *Set) isOld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.folders, func(f *listedFolder) bool { return time.Since(f.at) > f.Every })
}

// List returns what is served, in the order in which it was added, that of a folder by
// name. Where a folder cannot be listed, what it had before is in it, and the error
// says why.
func (s *Set) List(ctx context.Context) ([]Listed, error) {
	err := s.look(ctx, always)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Listed, len(s.names))
	for i, name := range s.names {
		src := s.known[name]
		all[i] = Listed{Name: name, Address: src.Address, ModTime: src.ModTime}
		if o := s.open[openKey{name, src.View}]; o != nil && o.isReady() {
			all[i].Err = o.err
		}
	}
	return all, err
}

// ErrNoArchive means that none of the name is served.
var ErrNoArchive = fmt.Errorf("no archive with this name: %w", fs.ErrNotExist)

func (s *Set) source(name string) (src Source, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok = s.known[name]
	return src, ok
}

// Use opens an archive in a view, "" for its usual one, unless it is open.
func (s *Set) Use(ctx context.Context, name, view string) (*Archive, error) {
	src, ok := s.source(name)
	if !ok || s.isOld() {
		most := always
		if !ok {
			most = time.Second // it may have come since
		}
		err := s.look(ctx, most)
		if src, ok = s.source(name); !ok && err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, ErrNoArchive
	}
	key := openKey{name, cmp.Or(view, src.View)}
	s.mu.Lock()
	if o := s.open[key]; o != nil {
		s.lookAgain(ctx, o)
	}
	o := s.open[key]
	if o != nil && o.isReady() && o.err != nil && time.Since(o.last) > errKept {
		s.retire(o)
		o = nil
	}
	if o != nil {
		s.counts.hits++
	} else {
		if s.ctx.Err() != nil {
			s.mu.Unlock()
			return nil, context.Cause(s.ctx)
		}
		o = &opened{key: key, src: src, ready: make(chan struct{})}
		// Others of its views are what somebody looked at.
		o.src.Keep = src.Keep && (key.view == src.View || key.view == zarrView || key.view == zarr3View)
		s.open[key], s.all[o] = o, true
		s.counts.opens++
		s.makeRoom()
		// Not by the context of this request: others wait for it, too.
		s.work.Go(func() { s.openOne(o) })
	}
	o.refs++
	s.mu.Unlock()
	select {
	case <-o.ready:
	case <-ctx.Done():
		s.release(o)
		return nil, context.Cause(ctx)
	}
	if o.err != nil {
		s.release(o)
		return nil, o.err
	}
	return &Archive{Archive: o.a, Name: name, Address: src.Address, View: viewOf(o.a), Version: o.version, ModTime: src.ModTime, Once: o.once, set: s, o: o}, nil
}

// viewOf is the name of the view that an archive is open in.
func viewOf(in *holdall.Archive) string {
	if view := in.Options().View; view != "" {
		return view
	}
	if v := in.Format().Views; len(v) > 0 {
		return v[0]
	}
	return ""
}

// lookAgain retires what is open if its source has changed since. It holds mu, but not
// while it asks.
func (s *Set) lookAgain(ctx context.Context, o *opened) {
	if o.src.State == nil || o.retired || !o.isReady() || o.err != nil || o.state == "" || time.Since(o.looked) < cmp.Or(o.src.Every, 2*time.Second) {
		return
	}
	o.looked = time.Now() // who comes meanwhile does not wait
	s.mu.Unlock()
	now := o.src.State(ctx)
	s.mu.Lock()
	if now != "" && now != o.state && !o.retired {
		s.retire(o)
	}
}

func (o *opened) isReady() bool {
	select {
	case <-o.ready:
		return true
	default:
		return false
	}
}

func (s *Set) openOne(o *opened) {
	state := ""
	if o.src.State != nil {
		state = o.src.State(s.ctx)
	}
	a, version, err := o.src.Open(s.ctx, o.key.view)
	var once [16]byte
	rand.Read(once[:])
	s.mu.Lock()
	o.state, o.looked = state, time.Now()
	o.a, o.version, o.err, o.last, o.once = a, version, err, time.Now(), hex.EncodeToString(once[:])
	if err != nil {
		s.counts.failures++
	} else {
		o.refs++
	}
	s.mu.Unlock()
	close(o.ready)
	if err != nil {
		return // who asked says so
	}
	// The next start is not to take as long. Whoever is served now does not wait.
	_, _ = a.KeepIndex(s.ctx, true)
	s.release(o)
}

func (s *Set) release(o *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.refs--
	if o.isReady() && o.err == nil {
		o.last = time.Now()
	}
	if o.retired && o.refs == 0 {
		s.drop(o)
		return
	}
	s.makeRoom()
}

// retire lets nobody else have what is open. It is closed when the last one has let go
// of it.
func (s *Set) retire(o *opened) {
	if s.open[o.key] == o {
		delete(s.open, o.key)
	}
	o.retired = true
	if o.refs == 0 && o.isReady() {
		s.drop(o)
	}
}

func (s *Set) drop(o *opened) {
	if !s.all[o] {
		return
	}
	delete(s.all, o)
	o.rest()
	if o.a == nil {
		return
	}
	s.counts.closes++
	if err := o.a.Close(); err != nil {
		s.log.Warn("cannot be closed", "archive", o.key.name, "error", err)
	}
}

// makeRoom closes what nobody has used for the longest time.
func (s *Set) makeRoom() {
	for len(s.open) > s.max {
		var oldest *opened
		for _, o := range s.open {
			if o.refs == 0 && o.isReady() && !o.src.Keep && (oldest == nil || o.last.Before(oldest.last)) {
				oldest = o
			}
		}
		if oldest == nil {
			return // all are in use
		}
		s.retire(oldest)
	}
}

func (s *Set) closeIdle() {
	tick := time.NewTicker(max(s.idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		for _, o := range s.open {
			// What could not be opened stays, so that lists say so.
			switch {
			case o.refs > 0 || !o.isReady() || o.err != nil || time.Since(o.last) <= s.idle:
			case o.src.Keep:
				o.rest()
			default:
				s.retire(o)
			}
		}
		s.mu.Unlock()
	}
}

// Close closes all archives. Nobody may use them any more.
func (s *Set) Close() {
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.all {
		s.drop(o)
	}
	clear(s.open)
}

func (s *Set) stats() (c setCounts, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.all {
		if o.a != nil {
			open++
		}
	}
	return s.counts, open
}
