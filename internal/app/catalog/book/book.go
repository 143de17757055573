package book

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Suffix ends the names of catalogues.
const Suffix = ".catalog"

// Options of Open.
type Options struct {
	// Write opens it for changes: gaps in the commits, and commits after the last, are looked for.
	Write bool
	// Fresh is for how long a state is used before the next commit is asked for.
	Fresh time.Duration
	// Now is the time of commits; nil means time.Now.
	Now func() time.Time
	// Over returns the layers that lookups and lists see over the commits, the newest first. Nil means none.
	Over func() []Layer
	// Signed, if it has a sum, is what the catalogue is, for reading.
	Signed Signed
	// Cache keeps pages, of several catalogues; nil means one of 64 MiB for this catalogue alone.
	Cache *rows.Cache

	text   func() string // random names
	inline int           // how large a run in a commit may be
}

// A Book is an open catalogue. Its methods may be called concurrently.
type Book struct {
	st     store.Store
	dir    string // ends in a slash
	folder string // the address of the folder that it is in, with a slash at its end
	o      Options

	writing chan struct{} // has one while somebody commits

	mu    sync.Mutex
	state *State // is never changed
	asked time.Time
	fixed bool // it is that of an earlier commit, and stays
	runs  map[string]*opening
	shown map[ID]catalog.Archive // by pages
	cache *rows.Cache

	headers atomic.Pointer[parsed] // of the last location with some

	noted int64     // the last commit beside whose archives lies what should
	saved int64     // number of the last state that is stored, as far as known
	head  int64     // number of the stored head
	wrote time.Time // the head
}

type opening struct {
	once sync.Once
	run  *rows.Run
	err  error
}

// An Error is about a catalogue or one of its objects.
type Error struct {
	Object string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", format.Escape(e.Object), e.Err) }
func (e *Error) Unwrap() error { return e.Err }

func (b *Book) fail(object string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*Error](err); is {
		return err
	}
	return &Error{b.dir + object, err}
}

// ErrLate is wrapped by errors of work that began too long ago.
var ErrLate = errors.New("do it again")

// ErrBroken is wrapped by errors about objects of a catalogue that are damaged or missing.
var ErrBroken = errors.New("the catalogue is damaged: 'holdall catalog rebuild' makes a new one from the archives")

func broken(err error) error { return fmt.Errorf("%w (%w)", err, ErrBroken) }

func newBook(st store.Store, name string, o Options) *Book {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.text == nil {
		o.text, o.inline = rand.Text, mostInline
	}
	if o.Cache == nil {
		o.Cache = rows.NewCache(64 << 20)
	}
	name = strings.TrimRight(name, "/")
	at := ""
	if of := st.Can().Address; of != nil {
		at = of(name)
	}
	return &Book{st: st, dir: name + "/", folder: at[:strings.LastIndexByte(at, '/')+1], o: o, runs: map[string]*opening{}, shown: map[ID]catalog.Archive{}, cache: o.Cache, writing: make(chan struct{}, 1)}
}

// Create makes a new catalogue in a folder. If there is one, the error wraps [fs.ErrExist].
func Create(ctx context.Context, st store.Store, name string) (*Book, error) {
	return create(ctx, newBook(st, name, Options{Write: true}))
}

func create(ctx context.Context, b *Book) (*Book, error) {
	c := &Commit{Catalog: b.o.text(), Number: 1, Attempt: b.o.text(), Time: b.now()}
	o, err := c.encode()
	if err != nil {
		return nil, err
	}
	if err := b.probe(ctx); err != nil {
		return nil, b.fail("", err)
	}
	if err := b.put(ctx, commitName(1), o, true); err != nil {
		return nil, b.fail(commitName(1), err)
	}
	if b.state, err = (&State{}).after(c, hashOf(o)); err != nil {
		return nil, err
	}
	return b, b.writeHead(ctx)
}

// now is rounded to what other languages can represent.
func (b *Book) now() time.Time { return b.o.Now().UTC().Truncate(time.Microsecond) }

// probe creates an object twice. A store that replaces it then could lose commits.
func (b *Book) probe(ctx context.Context) error {
	name := "probe-" + b.o.text()
	if err := b.put(ctx, name, []byte("one"), true); err != nil {
		return err
	}
	defer storekit.Remove(context.WithoutCancel(ctx), b.st, b.dir+name)
	err := b.put(ctx, name, []byte("two"), true)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = errors.New("the server replaces an object that is to be created only once (If-None-Match), so commits to a catalogue there could be lost")
	}
	return err
}

func (b *Book) put(ctx context.Context, object string, content []byte, once bool) error {
	w, err := storekit.CreateAs(ctx, b.st, b.dir+object, store.Wishes{Once: once})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// get reads an object in one request, if it has at most so many bytes.
func (b *Book) get(ctx context.Context, object string, most int) ([]byte, error) {
	return b.getBeside(ctx, b.dir+object, most)
}

// headSize is how much of an object is read at first: all of a head. Most objects are much shorter.
const headSize = headTails + 32<<10

var heads = sync.Pool{New: func() any { return new([headSize]byte) }}

func (b *Book) getBeside(ctx context.Context, name string, most int) ([]byte, error) {
	o, err := b.st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	whole := heads.Get().(*[headSize]byte)
	p := whole[:min(most, headSize)]
	n, err := storekit.ReadHead(ctx, o, p)
	if err == nil || errors.Is(err, fs.ErrNotExist) { // otherwise a request that was given up may still write to it
		defer heads.Put(whole)
	}
	if err != nil {
		return nil, err
	}
	if n < len(p) {
		return bytes.Clone(p[:n]), nil
	}
	info, err := o.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Size > int64(most) {
		return nil, fmt.Errorf("%d bytes, expected at most %d", info.Size, most)
	}
	all := make([]byte, info.Size)
	copy(all, p)
	return all, o.ReadAt(ctx, all[n:], int64(n))
}

// Open opens a catalogue. If there is none, the error wraps [fs.ErrNotExist].
func Open(ctx context.Context, st store.Store, name string, o Options) (*Book, error) {
	b := newBook(st, name, o)
	if o.Signed.Sum != "" {
		s, err := b.sealed(ctx, o.Signed.Sum)
		b.state, b.fixed = s, true
		return b, err
	}
	s, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	b.state, b.head, b.saved = s, s.Number, s.Stored
	if err := b.follow(ctx); err != nil {
		return nil, err
	}
	if o.Write {
		if err = b.isOf(ctx, b.current()); err == nil {
			err = b.whole(ctx)
		}
		if err == nil {
			err = b.reaches(ctx)
		}
	}
	return b, err
}

// begin returns the state from which commits are followed: the head, or the newest stored state, or
// what is before the first commit.
func (b *Book) begin(ctx context.Context) (*State, error) {
	o, err := b.get(ctx, "head", mostObject)
	if err == nil {
		var s *State
		if s, err = parseState(o); err == nil {
			return s, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, b.fail("head", err)
	}
	// The head is a hint. Without it, the newest state is found by a list, if there is one.
	if s, err := b.newest(ctx); s != nil || err != nil {
		return s, err
	}
	if _, cerr := b.commit(ctx, 1); cerr != nil {
		if errors.Is(cerr, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist) {
			return nil, &Error{strings.TrimSuffix(b.dir, "/"), fmt.Errorf("no catalogue: %w", fs.ErrNotExist)}
		}
		return nil, b.fail("head", broken(cmp.Or(err, cerr)))
	}
	return &State{}, nil
}

// newest returns the newest stored state, or nil.
func (b *Book) newest(ctx context.Context) (*State, error) {
	last := int64(0)
	for info, err := range storekit.List(ctx, b.st, b.dir+"states/") {
		if err != nil {
			break
		}
		if n, ok := numbered(path.Base(info.Name)); ok {
			last = max(last, n)
		}
	}
	if last == 0 {
		return nil, nil
	}
	s, err := b.stored(ctx, last)
	if err == nil {
		s.Stored = last
	}
	return s, err
}

// numbered parses the name of a commit or a state.
func numbered(base string) (n int64, ok bool) {
	if len(base) != 16 {
		return 0, false
	}
	for _, c := range []byte(base) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// stored reads a stored state, which must be that of its commit: a folder may have been copied, or put
// back in part.
func (b *Book) stored(ctx context.Context, n int64) (*State, error) {
	o, err := b.get(ctx, stateName(n), mostObject)
	var s *State
	if err == nil {
		if s, err = parseState(o); err == nil && (s.Number != n || s.Elsewhere != 0) {
			err = fmt.Errorf("it is not state %d", n)
		}
		if err == nil {
			return s, b.isOf(ctx, s)
		}
		err = broken(err)
	}
	return nil, b.fail(stateName(n), err)
}

// isOf compares a state with its commit.
func (b *Book) isOf(ctx context.Context, s *State) error {
	c, err := b.commit(ctx, s.Number)
	if err == nil && (c.hash != s.Hash || c.Catalog != s.Catalog) {
		err = broken(errors.New("the state or the head is of another one"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = broken(fmt.Errorf("a state or the head follows it: %w", err))
	}
	return b.fail(commitName(s.Number), err)
}

type numberedCommit struct {
	*Commit
	hash string
}

func (b *Book) commit(ctx context.Context, n int64) (c numberedCommit, err error) {
	o, err := b.get(ctx, commitName(n), mostObject)
	if err != nil {
		return c, err
	}
	if c.Commit, err = parseCommit(o, n); err != nil {
		return c, broken(err)
	}
	c.hash = cmp.Or(c.Erased, hashOf(o))
	return c, err
}

// follow applies the commits after the state.
func (b *Book) follow(ctx context.Context) error {
	for {
		s := b.current()
		n, err := b.next(ctx, s)
		// S3 says so of an object that does not exist to those who must not list the bucket.
		hidden := !b.o.Write && !b.st.Can().Near && errors.Is(err, fs.ErrPermission)
		if errors.Is(err, fs.ErrNotExist) || hidden {
			b.mu.Lock()
			b.asked = time.Now()
			b.mu.Unlock()
			return nil
		}
		if errors.Is(err, errErased) {
			n, err = b.beyond(ctx, s)
		}
		if err != nil {
			return err
		}
		b.take(s, n)
	}
}

// take replaces the state, if it is still that.
func (b *Book) take(was, is *State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == was {
		if b.state = is; len(is.Moves) > len(was.Moves) {
			clear(b.shown) // they may have other addresses now
		}
	}
}

// whole looks for commits after the last, which a gap would hide.
func (b *Book) whole(ctx context.Context) error {
	s := b.current()
	for info, err := range storekit.ListFrom(ctx, b.st, b.dir+"commits/", b.dir+commitName(s.Number)+"\x00") {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return b.fail("commits", err)
		}
		n, ok := numbered(path.Base(info.Name))
		if ok && n != s.next() {
			return b.fail(commitName(s.next()), broken(fmt.Errorf("it is missing, and there is commit %d", n)))
		}
		if ok { // another has just created it
			return b.follow(ctx)
		}
	}
	return nil
}

func (b *Book) current() *State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// State returns the state, which is at most Options.Fresh old.
func (b *Book) State(ctx context.Context) (*State, error) {
	b.mu.Lock()
	s, old := b.state, !b.fixed && time.Since(b.asked) > b.o.Fresh
	b.mu.Unlock()
	if !old {
		return s, nil
	}
	err := b.follow(ctx)
	return b.current(), err
}

// Full returns the state with everything that only writers need.
func (b *Book) Full(ctx context.Context) (*State, error) {
	s, err := b.State(ctx)
	if err != nil {
		return nil, err
	}
	return b.full(ctx, s)
}

// full returns the state with all archives.
func (b *Book) full(ctx context.Context, s *State) (*State, error) {
	if s.Elsewhere == 0 {
		return s, nil
	}
	whole, err := b.stored(ctx, s.Elsewhere)
	for err == nil && whole.Number < s.Number {
		whole, err = b.next(ctx, whole)
	}
	if errors.Is(err, fs.ErrNotExist) { // gc has removed that state since
		whole, err = b.stateAt(ctx, s.Number)
	}
	if errors.Is(err, errErased) && !b.fixed {
		if err := b.follow(ctx); err != nil {
			return nil, err
		}
		if n := b.current(); n.Number > s.Number {
			return b.full(ctx, n)
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range whole.Runs { // whose ends came with the head
		r := &whole.Runs[i]
		if k := slices.IndexFunc(s.Runs, func(x RunRef) bool { return x.id() == r.id() }); k >= 0 && r.tail == nil {
			r.tail = s.Runs[k].tail
		}
	}
	b.take(s, whole)
	return whole, nil
}

func (b *Book) Close() (err error) {
	if b.o.Write && b.head < b.current().Number {
		err = b.writeHead(context.Background())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.runs {
		if o.run != nil {
			err = errors.Join(err, o.run.Close())
		}
	}
	b.runs = map[string]*opening{}
	return err
}

// A Change makes a commit of a state. It may be called again, if others have committed meanwhile.
// What it changes is then beside the archives, too.
type Change func(s *State) (*Commit, error)

// Commit commits a change, and returns the state after it. If the change returns nil, nothing is
// committed. A state with an error means that the commit is there, and what should follow it failed.
func (b *Book) Commit(ctx context.Context, change Change) (*State, error) {
	if err := b.follow(ctx); err != nil {
		return nil, err
	}
	return b.commitNow(ctx, change)
}

// commitNow is Commit for those that have just asked for the newest commit.
func (b *Book) commitNow(ctx context.Context, change Change) (*State, error) {
	select {
	case b.writing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-b.writing }()
	for lost := 0; ; lost++ {
		if lost > 1 { // there may be many more
			if err := b.follow(ctx); err != nil {
				return nil, err
			}
		}
		s, err := b.full(ctx, b.current())
		if err != nil {
			return nil, err
		}
		c, err := change(s)
		switch {
		case err != nil:
			return nil, err
		case c == nil:
			return s, nil
		}
		c.Catalog, c.Number, c.Before, c.Attempt, c.Time = s.Catalog, s.next(), s.Hash, b.o.text(), b.now()
		if c.Base == 0 {
			c.Base = s.Number
		}
		if from := cmp.Or(c.since, c.Base); from < s.Floor {
			return nil, fmt.Errorf("it was begun at commit %d, and the catalogue has forgotten what was before commit %d: %w", from, s.Floor, ErrLate)
		}
		for _, id := range c.Drop {
			if i, ok := s.at[id]; ok && !slices.ContainsFunc(c.Add, func(a Archive) bool { return a.Address == s.Archives[i].Address }) {
				c.Gone = append(c.Gone, s.Archives[i].Address)
			}
		}
		if err := b.noteLast(ctx, s); err != nil {
			return nil, err
		}
		is, err := b.create(ctx, c)
		if err != nil {
			return nil, err
		}
		n, err := s.after(is.Commit, is.hash)
		if err != nil {
			return nil, b.fail(commitName(c.Number), broken(err))
		}
		n.last = is
		if b.take(s, n); is.Attempt == c.Attempt { // otherwise another was first
			return n, errors.Join(b.note(ctx, *is), b.checkpoint(ctx))
		}
	}
}

// create creates a commit, and returns it as readers do. If another has that number, it returns that one.
func (b *Book) create(ctx context.Context, c *Commit) (*numberedCommit, error) {
	o, err := c.encode()
	if err != nil {
		return nil, err
	}
	done := func() (*numberedCommit, error) {
		is, err := parseCommit(o, c.Number)
		return &numberedCommit{is, hashOf(o)}, err
	}
	const tries = 5
	for try := 1; ; try++ {
		if err = b.put(ctx, commitName(c.Number), o, true); err == nil {
			return done()
		}
		// The answer may be lost. Only what is there tells.
		is, gerr := b.commit(ctx, c.Number)
		switch {
		case gerr == nil:
			return &is, nil
		case !errors.Is(gerr, fs.ErrNotExist):
			return nil, b.fail(commitName(c.Number), errors.Join(err, gerr))
		case try == tries || ctx.Err() != nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported):
			return nil, b.fail(commitName(c.Number), err)
		}
		// A server may refuse an object that another is just creating, before it shows that one.
		timer := time.NewTimer(time.Duration(try*try) * 20 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

const (
	stateEvery = 32
	headEvery  = time.Second // some services refuse to replace an object more often
)

// checkpoint stores the state every now and then. Neither it nor the head is needed.
func (b *Book) checkpoint(ctx context.Context) error {
	s := b.current()
	if s.Number-b.saved >= stateEvery || b.saved == 0 && len(s.Archives) > headArchives {
		if err := b.store(ctx, s); err != nil {
			return err
		}
	}
	if b.o.Now().Sub(b.wrote) < headEvery {
		return nil
	}
	return b.writeHead(ctx)
}

// store stores a state, which must be full.
func (b *Book) store(ctx context.Context, s *State) error {
	o, err := s.encode(0)
	if err == nil {
		err = b.put(ctx, stateName(s.Number), o, true)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return b.fail(stateName(s.Number), err)
	}
	b.saved = s.Number
	return nil
}

func (b *Book) writeHead(ctx context.Context) error {
	s := b.current()
	o, err := s.encode(b.saved)
	if err == nil {
		err = b.put(ctx, "head", o, false)
	}
	if err == nil {
		err = b.mark(ctx, s)
	}
	b.head, b.wrote = s.Number, b.o.Now()
	return b.fail("head", err)
}

// open opens a run, once.
func (b *Book) open(ctx context.Context, r *RunRef) (*rows.Run, error) {
	b.mu.Lock()
	o := b.runs[r.id()]
	if o == nil {
		o = &opening{}
		b.runs[r.id()] = o
	}
	b.mu.Unlock()
	o.once.Do(func() {
		var obj store.Object
		if obj, o.err = b.st.Open(ctx, b.dir+r.Object); o.err == nil {
			o.run, o.err = rows.Open(ctx, part{obj, r.Off, r.Size}, b.dir+r.Object, r.Commit, r.Summary, r.tail, b.o.Signed.Sum != "", b.cache)
			if o.run != nil {
				o.run.Base = r.Base
			}
		}
	})
	if o.err != nil {
		b.mu.Lock()
		delete(b.runs, r.id()) // the next one tries again
		b.mu.Unlock()
	}
	return o.run, o.err
}

// part is a range of an object.
type part struct {
	store.Object
	off, size int64
}

func (p part) ReadAt(ctx context.Context, b []byte, off int64) error {
	if off < 0 || off > p.size-int64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	return p.Object.ReadAt(ctx, b, p.off+off)
}

func (p part) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// open runs of a state, at once.
func (b *Book) runsOf(ctx context.Context, refs []RunRef) (all []*rows.Run, err error) {
	for i := range refs {
		r, err := b.open(ctx, &refs[i])
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return slices.Clip(all), nil
}
