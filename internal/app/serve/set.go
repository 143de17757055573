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
	"github.com/holdall/holdall/internal/app/autopsy"
)

// A Source is an archive that can be served, described before it is opened.
type Source struct {
	// Name is its preferred name in paths. If two sources have the same name, the
	// second is called NAME-2.
	Name string
	// Address is where it is, for people: without secrets.
	Address string
	// View is the view that it is opened in if a request names none.
	View string
	// Keep keeps it open even if there are no requests for it.
	Keep bool
	// Mark identifies its state. If a source is listed again with another Mark, it
	// is opened again.
	Mark string
	// ModTime is when it was written, if that is known.
	ModTime time.Time
	// State, if not nil, returns a string that identifies the current bytes, or ""
	// if that is unknown. It is called when the archive is requested, but at most
	// once per Every, where 0 means 2 s. If the string has changed, the archive is
	// opened again.
	State func(ctx context.Context) string
	Every time.Duration
	// Open opens it in a view, and returns its Version. If it knows the views of package autopsy, the
	// explorer shows what is left of an archive that cannot be opened.
	Open func(ctx context.Context, view string) (*holdall.Archive, string, error)
}

// An Archive is a served archive. It is open until it is released.
type Archive struct {
	*holdall.Archive
	Name    string // its name in paths
	Address string // where it is, for people
	View    string // the view that it is open in: the format's usual one if none was requested
	ModTime time.Time
	// Version identifies the bytes of all the archive's volumes, and everything
	// else that determines its contents, such as its view: the same Version means
	// the same contents. It is the ETag's source for entries without a digest. If
	// it is empty, they have no ETag.
	Version string
	Once    string // identifies its bytes while it is open

	set  *Set
	o    *opened
	done sync.Once
}

func (a *Archive) Release() { a.done.Do(func() { a.set.release(a.o) }) }

// Hold adds one more use of the archive, which release ends. The caller must
// have the archive in use.
func (a *Archive) Hold() (release func()) {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.o.refs++
	return sync.OnceFunc(func() { a.set.release(a.o) })
}

// WhenIdle arranges one call of forget when the archive is closed or has not
// been used for a while. It is for data that was derived from the archive and
// takes memory. forget must not call the Set.
func (a *Archive) WhenIdle(forget func()) {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.o.whenIdle = append(a.o.whenIdle, forget)
}

// Current reports whether its name still leads to this archive.
func (a *Archive) Current(ctx context.Context) bool {
	s := a.set
	s.mu.Lock()
	old, due := s.isOld(), s.isDue(a.o)
	s.mu.Unlock()
	if old {
		_ = s.look(ctx, always) // if a folder cannot be listed, its old list is kept
	}
	if due {
		s.lookAgain(ctx, a.o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !a.o.retired
}

// Stale reports to the Set that the archive has changed since it was opened.
func (a *Archive) Stale() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.retire(a.o)
}

// A Listed is an item in a list of archives.
type Listed struct {
	Name, Address string
	ModTime       time.Time
	// Err is the error of the last attempt to open it.
	Err error
}

// A Folder is a place whose archives are served. They may change at any time.
type Folder struct {
	// List returns its current archives.
	List func(ctx context.Context) ([]Source, error)
	// Every is how long a list may be used.
	Every time.Duration
}

type SetOptions struct {
	MaxOpen int           // how many unused archives are kept open; 0 means 32
	Idle    time.Duration // how long an archive may be unused before it is closed; 0 is five minutes
	Log     *slog.Logger
}

// A Set is the archives of a server. They are opened at the first request, and
// closed when they have not been used for a while.
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
	all     map[*opened]bool // including retired ones
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
	volumes      volumes
	cancel       context.CancelFunc // ends its opening

	state  string // before it was opened
	looked time.Time
}

// rest drops the data derived from the archive. mu must be held.
func (o *opened) rest() {
	for _, forget := range o.whenIdle {
		forget()
	}
	o.whenIdle = nil
}

type setCounts struct{ opens, failures, hits, closes int64 }

// errKept is how long to wait before an archive that could not be opened is
// tried again.
const errKept = 3 * time.Second

func NewSet(o SetOptions) *Set {
	s := &Set{
		max: cmp.Or(o.MaxOpen, 32), idle: cmp.Or(o.Idle, 5*time.Minute), log: cmp.Or(o.Log, slog.Default()),
		open: map[openKey]*opened{}, all: map[*opened]bool{}, known: map[string]Source{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.closeIdle)
	return s
}

func (s *Set) Add(src Source) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = append(s.fixed, src)
	s.rebuild()
	return s.names[len(s.fixed)-1]
}

// Drop removes a source that was added by its name. Its current uses go on.
func (s *Set) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = slices.DeleteFunc(s.fixed, func(src Source) bool { return src.Name == name })
	s.rebuild()
}

// AddFolder adds all archives in a folder, now and later.
func (s *Set) AddFolder(f Folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = append(s.folders, &listedFolder{Folder: f})
}

// rebuild names all sources. Those that were added by name keep their names.
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

// look lists the folders whose lists are too old. Calls wait for each other.
// Requests for archives in the list do not call it.
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

// Again makes the next request list all folders again.
func (s *Set) Again() {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.folders {
		f.at = time.Time{}
	}
}

const always = time.Duration(1<<63 - 1)

// isOld reports whether a list is too old. mu must be held.
func (s *Set) isOld() bool {
	return slices.ContainsFunc(s.folders, func(f *listedFolder) bool { return time.Since(f.at) > f.Every })
}

// List returns the served archives, in the order in which they were added, and
// those of a folder by name. If a folder cannot be listed, List returns its
// earlier archives and an error.
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

// ErrNoArchive reports that there is no archive with the name.
var ErrNoArchive = fmt.Errorf("no archive with this name: %w", fs.ErrNotExist)

// Use opens an archive in a view, unless it is open. "" means its usual view.
func (s *Set) Use(ctx context.Context, name, view string) (*Archive, error) {
	s.mu.Lock()
	src, ok := s.known[name]
	if !ok || s.isOld() {
		most := always
		if !ok {
			most = time.Second // the archive may be new
		}
		s.mu.Unlock()
		err := s.look(ctx, most)
		s.mu.Lock()
		if src, ok = s.known[name]; !ok {
			s.mu.Unlock()
			return nil, cmp.Or(err, ErrNoArchive)
		}
	}
	key := openKey{name, cmp.Or(view, src.View)}
	o := s.open[key]
	if s.isDue(o) {
		s.mu.Unlock()
		s.lookAgain(ctx, o)
		s.mu.Lock()
		o = s.open[key]
	}
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
		ctx, cancel := context.WithCancel(s.ctx)
		o = &opened{key: key, src: src, ready: make(chan struct{}), cancel: cancel}
		// Its other views are open only because a user looked at them.
		o.src.Keep = src.Keep && (key.view == src.View || key.view == zarrView || key.view == zarr3View)
		s.open[key], s.all[o] = o, true
		s.counts.opens++
		s.makeRoom()
		// Not with the context of this request: others wait for the archive, too.
		s.work.Go(func() { s.openOne(ctx, o) })
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
	return &Archive{Archive: o.a, Name: name, Address: src.Address, View: viewOf(o.a, key.view), Version: o.version, ModTime: src.ModTime, Once: o.once, set: s, o: o}, nil
}

func viewOf(in *holdall.Archive, asked string) string {
	if autopsy.Is(asked) {
		return asked
	}
	if view := in.Options().View; view != "" {
		return view
	}
	if v := in.Format().Views; len(v) > 0 {
		return v[0]
	}
	return ""
}

// lookAgain retires an open archive if its source has changed since.
func (s *Set) lookAgain(ctx context.Context, o *opened) {
	now := o.src.State(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now != "" && now != o.state && !o.retired {
		s.retire(o)
	}
}

// isDue reports whether it is time for lookAgain of an archive, if it is open.
// Requests that come meanwhile do not wait. mu must be held.
func (s *Set) isDue(o *opened) bool {
	due := o != nil && o.src.State != nil && !o.retired && o.isReady() && o.err == nil && o.state != "" && time.Since(o.looked) >= cmp.Or(o.src.Every, 2*time.Second)
	if due {
		o.looked = time.Now()
	}
	return due
}

func (o *opened) isReady() bool {
	select {
	case <-o.ready:
		return true
	default:
		return false
	}
}

func (s *Set) openOne(ctx context.Context, o *opened) {
	defer o.cancel()
	state := ""
	if o.src.State != nil {
		state = o.src.State(ctx)
	}
	a, version, err := o.src.Open(ctx, o.key.view)
	var once [16]byte
	rand.Read(once[:])
	s.mu.Lock()
	o.state, o.looked = state, time.Now()
	o.a, o.version, o.err, o.last, o.once = a, version, err, time.Now(), hex.EncodeToString(once[:])
	switch {
	case err == nil:
		o.refs++
	case o.retired && o.refs == 0:
		s.drop(o)
	default:
		s.counts.failures++
	}
	s.mu.Unlock()
	close(o.ready)
	if err != nil {
		return // the caller reports it
	}
	// Keep an index, so that the next start is faster. Current requests do not
	// wait.
	_, _ = a.KeepIndex(ctx, true)
	s.release(o)
}

func (s *Set) release(o *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.refs--
	switch {
	case o.isReady() && o.err == nil:
		o.last = time.Now()
	case o.refs == 0 && o.key.view == autopsy.Repaired && !o.isReady(): // a plan may take long
		o.cancel()
		s.retire(o)
		return
	}
	if o.retired && o.refs == 0 {
		s.drop(o)
		return
	}
	s.makeRoom()
}

// retire prevents further uses of an open archive. It is closed when its last
// use ends.
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

// makeRoom closes the least recently used archives.
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
			// An archive that could not be opened stays, so that lists show the error.
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

// Close closes all archives. They must not be used any more.
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
