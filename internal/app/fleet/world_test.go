package fleet

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
)

// A world has buckets in memory, and machines whose requests it holds up. What happens in it depends on its seed.
type world struct {
	rnd *rand.Rand

	mu      sync.Mutex
	buckets map[string]map[string]*thing
	writes  int64 // of objects
	lines   []string
	wrong   error // the first promise that was broken

	// removes is asked before a machine removes an object.
	removes func(m *machine, bucket, name string, is *thing, began time.Time)
}

// A thing is an object as it is after a write. It never changes.
type thing struct {
	data    []byte
	headers map[string]string
	etag    string
	at      time.Time
	n       int64 // of the write
}

func (w *world) say(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf("%s  ", time.Now().Format("01-02 15:04:05"))+fmt.Sprintf(format, a...))
}

// breaks notes that a promise is broken.
func (w *world) breaks(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, a...)
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong != nil
}

func (w *world) get(bucket, name string) *thing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buckets[bucket][name]
}

func (w *world) put(bucket, name string, data []byte, headers map[string]string) *thing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(bucket, name, data, headers)
}

// add is put for those that hold the lock. Services have times in seconds.
func (w *world) add(bucket, name string, data []byte, headers map[string]string) *thing {
	sum := md5.Sum(data)
	w.writes++
	x := &thing{data: data, headers: headers, etag: `"` + hex.EncodeToString(sum[:]) + `"`, at: time.Now().Truncate(time.Second), n: w.writes}
	w.buckets[bucket][name] = x
	return x
}

func (w *world) remove(bucket, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.buckets[bucket], name)
}

func (w *world) names(bucket, prefix string) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.buckets[bucket] {
		if strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// A machine does one thing at a time. Its requests wait when it has made so many, until it goes on or is killed.
type machine struct {
	w       *world
	name    string
	watcher bool // only looks, and never waits

	mu      sync.Mutex
	quota   int
	at      string // it waits before the request number quota that begins so, if not ""
	resume  chan struct{}
	stopped chan struct{} // it waits, or is done
	waits   bool
	busy    bool
	dead    bool
	last    string // request
	rnd     *rand.Rand
	faults  int // one of so many requests fails, or its answer is lost; 0 means none
	asked   map[string]asking
	made    int
	began   int64 // after that write
	since   time.Time
	broke   bool // a listing of the source failed
	cancel  context.CancelFunc
	what    string
	err     error // of what it did
}

// An asking is what a machine has last heard of an object of a source.
type asking struct {
	is *thing
	at time.Time
}

type machineKey struct{}

func (m *machine) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, machineKey{}, m)
}

var errDead = errors.New("killed")

// request waits for the turn of a request. Its answer is lost if lost is not nil.
func request(ctx context.Context, op, name string) (m *machine, lost, err error) {
	m, _ = ctx.Value(machineKey{}).(*machine)
	if m == nil || m.watcher {
		return m, nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(op + " " + name)
	if strings.HasPrefix(op+" "+name, m.at) {
		m.quota--
	}
	m.made++
	failed := &store.Error{Op: op, Name: name, Off: -1, Err: errors.New("connection reset"), Retry: true}
	switch {
	case m.dead:
		return m, nil, &store.Error{Op: op, Name: name, Off: -1, Err: errDead}
	case ctx.Err() != nil:
		return m, nil, &store.Error{Op: op, Name: name, Off: -1, Err: ctx.Err()}
	case m.faults == 0 || m.rnd.IntN(m.faults) > 0:
		return m, nil, nil
	case m.rnd.IntN(2) == 0 || op == "list" || op == "get" || op == "head":
		m.broke = m.broke || op == "list" && strings.HasPrefix(name, "from/")
		m.w.say("%s: lost %s %s", m.name, op, name)
		return m, nil, failed
	}
	m.w.say("%s: lost the answer to %s %s", m.name, op, name)
	return m, failed, nil
}

// turn waits while the machine may make no requests. The lock is held before and after.
func (m *machine) turn(what string) {
	for (m.waits || m.quota <= 0 && strings.HasPrefix(what, m.at)) && !m.dead {
		resume := m.resume
		if !m.waits {
			m.waits, m.last = true, what
			m.stopped <- struct{}{}
		}
		m.mu.Unlock()
		<-resume
		m.mu.Lock()
	}
}

// begins has a machine do something, until it has made so many requests.
func (m *machine) begins(ctx context.Context, what string, faults int, do func(context.Context) error) {
	ctx, m.cancel = context.WithCancel(m.in(ctx))
	m.what, m.faults, m.busy, m.dead, m.waits, m.made, m.broke = what, faults, true, false, false, 0, false
	m.began, m.since, m.asked = m.w.writes, time.Now(), map[string]asking{}
	go func() {
		err := do(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy, m.err = false, err
		m.cancel()
		if !m.waits { // otherwise what it left behind waits
			m.stopped <- struct{}{}
		}
	}()
	m.watch()
}

func (m *machine) goesOn() {
	m.mu.Lock()
	m.waits = false
	close(m.resume)
	m.resume = make(chan struct{})
	busy := m.busy
	m.mu.Unlock()
	if busy {
		m.watch()
	}
}

func (m *machine) works() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.busy
}

// kill has all its requests fail from now on.
func (m *machine) kill() {
	m.mu.Lock()
	m.dead = true
	m.cancel()
	m.mu.Unlock()
	m.goesOn()
}

// watch waits until a machine waits, or is done.
func (m *machine) watch() {
	<-m.stopped
	switch m.mu.Lock(); {
	case m.busy:
		m.w.say("%s: %s waits before request %d, %s", m.name, m.what, m.made+1, m.last)
	case m.dead:
		m.w.say("%s: %s is killed", m.name, m.what)
	default:
		m.w.say("%s: %s is done after %d requests: %v", m.name, m.what, m.made, m.err)
	}
	m.mu.Unlock()
}

const scheme = "sim"

func init() {
	store.Register(scheme, func(ctx context.Context, address string) (store.Store, string, error) {
		bucket, name, _ := strings.Cut(strings.TrimPrefix(address, scheme+"://"), "/")
		m, _ := ctx.Value(machineKey{}).(*machine)
		if m == nil || m.w.buckets[bucket] == nil {
			return nil, "", fmt.Errorf("%s: no such bucket", address)
		}
		return simulated{m.w, bucket}, name, nil
	})
}

// simulated is a bucket of a world, like one of S3: a request that deletes may have an ETag as its condition, and
// nothing else.
type simulated struct {
	w      *world
	bucket string
}

func (s simulated) Can() store.Abilities {
	return store.Abilities{Address: func(name string) string { return scheme + "://" + s.bucket + "/" + name }, List: s.list, Create: s.create,
		Remove:   func(ctx context.Context, name string) error { return s.remove(ctx, name, nil) },
		RemoveAs: func(ctx context.Context, info store.Info) error { return s.remove(ctx, info.Name, &info) },
		RemoveIf: func(ctx context.Context, info store.Info) error { return s.remove(ctx, info.Name, &info) },
	}
}

func (s simulated) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*store.Error); ok {
		return e
	}
	return &store.Error{Op: op, Name: s.bucket + "/" + name, Off: -1, Err: err}
}

func (x *thing) info(name string) store.Info {
	return store.Info{Name: name, Size: int64(len(x.data)), ModTime: x.at, Version: x.etag}
}

// list lists the source in small pages, so that much can happen in between.
func (s simulated) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		page, after := 1000, ""
		if s.bucket == "from" {
			page = 3
		}
		for {
			_, lost, err := request(ctx, "list", s.bucket+"/"+prefix)
			if err = errors.Join(err, lost); err != nil {
				yield(store.Info{}, s.fail("list", prefix, err))
				return
			}
			n := 0
			for _, name := range s.w.names(s.bucket, prefix) {
				x := s.w.get(s.bucket, name)
				if name <= after || x == nil {
					continue
				}
				if n++; !yield(x.info(name), nil) {
					return
				}
				if after = name; n == page {
					break
				}
			}
			if n < page {
				return
			}
		}
	}
}

func (s simulated) remove(ctx context.Context, name string, as *store.Info) error {
	began := time.Now()
	m, lost, err := request(ctx, "remove", s.bucket+"/"+name)
	if err != nil {
		return err
	}
	is := s.w.get(s.bucket, name)
	switch {
	case time.Since(began) > 15*time.Minute: // its signature has expired
		return s.fail("remove", name, fs.ErrPermission)
	case is == nil:
		return s.fail("remove", name, fs.ErrNotExist)
	case as != nil && as.Version != is.etag:
		return s.fail("remove", name, store.ErrChanged)
	}
	if m != nil && !m.watcher && s.w.removes != nil {
		s.w.removes(m, s.bucket, name, is, began)
	}
	s.w.remove(s.bucket, name)
	return lost
}

func (s simulated) create(_ context.Context, name string, wish store.Wishes) (store.Writer, error) {
	return &simulatedWriter{s: s, name: name, once: wish.Once}, nil
}

type simulatedWriter struct {
	s    simulated
	name string
	once bool
	buf  bytes.Buffer
}

func (x *simulatedWriter) Write(p []byte) (int, error) { return x.buf.Write(p) }
func (x *simulatedWriter) Abort() error                { return nil }

func (x *simulatedWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{PatchLimit: math.MaxInt64, Patch: func(_ context.Context, p []byte, off int64) error {
		copy(x.buf.Bytes()[off:], p)
		return nil
	}, Rewind: func(to int64) error {
		x.buf.Truncate(int(to))
		return nil
	}}
}

func (x *simulatedWriter) Commit(ctx context.Context) (store.Info, error) {
	_, lost, err := request(ctx, "put", x.s.bucket+"/"+x.name)
	if err != nil {
		return store.Info{}, err
	}
	w := x.s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.once && w.buckets[x.s.bucket][x.name] != nil {
		return store.Info{}, x.s.fail("put", x.name, fs.ErrExist)
	}
	return w.add(x.s.bucket, x.name, bytes.Clone(x.buf.Bytes()), nil).info(x.name), lost
}

func (s simulated) Open(_ context.Context, name string) (store.Object, error) {
	return &simulatedObject{s: s, name: name}, nil
}

// A simulatedObject is of the version that its first answer had.
type simulatedObject struct {
	s    simulated
	name string
	mu   sync.Mutex
	is   *thing
}

func (o *simulatedObject) ask(ctx context.Context, op string) (*thing, error) {
	m, lost, err := request(ctx, op, o.s.bucket+"/"+o.name)
	if err = errors.Join(err, lost); err != nil {
		return nil, o.s.fail(op, o.name, err)
	}
	now := o.s.w.get(o.s.bucket, o.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case now == nil:
		return nil, o.s.fail(op, o.name, fs.ErrNotExist)
	case o.is != nil && o.is.etag != now.etag:
		return nil, o.s.fail(op, o.name, store.ErrChanged)
	case o.is == nil:
		o.is = now
	}
	if m != nil && o.s.bucket == "from" {
		m.mu.Lock()
		m.asked[o.name] = asking{o.is, time.Now()} // a later answer says nothing of other headers
		m.mu.Unlock()
	}
	return o.is, nil
}

// told is the version of which something was heard already.
func (o *simulatedObject) told(ctx context.Context) (*thing, error) {
	o.mu.Lock()
	is := o.is
	o.mu.Unlock()
	if is != nil {
		return is, nil
	}
	return o.ask(ctx, "head")
}

func (o *simulatedObject) Info(ctx context.Context) (store.Info, error) {
	is, err := o.told(ctx)
	if err != nil {
		return store.Info{}, err
	}
	return is.info(o.name), nil
}

func (o *simulatedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	is, err := o.ask(ctx, "get")
	if err == nil && (off < 0 || off > int64(len(is.data)-len(p))) {
		err = o.s.fail("get", o.name, io.ErrUnexpectedEOF)
	}
	if err == nil {
		copy(p, is.data[off:])
	}
	return err
}

func (o *simulatedObject) Close() error { return nil }

func (o *simulatedObject) Can() store.ObjectAbilities {
	return store.ObjectAbilities{
		ReadEnd: func(ctx context.Context, p []byte, tail bool) (int, error) {
			is, err := o.ask(ctx, "get")
			if err != nil {
				return 0, err
			}
			if tail {
				return copy(p, is.data[max(0, len(is.data)-len(p)):]), nil
			}
			return copy(p, is.data), nil
		},
		Headers: func(ctx context.Context) (map[string]string, error) {
			is, err := o.told(ctx)
			if err != nil {
				return nil, err
			}
			return maps.Clone(is.headers), nil
		},
		Sums: func(ctx context.Context) ([]store.Sum, error) {
			is, err := o.told(ctx)
			if err != nil || strings.HasPrefix(o.name, "no sum") {
				return nil, err
			}
			sum := md5.Sum(is.data)
			return []store.Sum{{Algo: "md5", Value: string(sum[:])}}, nil
		},
	}
}

// A line is a queue in memory. It may hand out a job twice.
type line struct {
	w   *world
	mu  sync.Mutex
	all []*lined
}

type lined struct {
	queue.Job
	status  queue.Status
	done    bool
	problem string
}

func (l *line) Add(ctx context.Context, jobs ...queue.Job) (added int, err error) {
	if _, _, err := request(ctx, "queue", "add"); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		if !slices.ContainsFunc(l.all, func(x *lined) bool { return !x.done && x.Plan == j.Plan && x.Name == j.Name }) {
			l.all = append(l.all, &lined{Job: j, status: queue.Waiting})
			added++
		}
	}
	return added, nil
}

func (l *line) unfinished(plan string) (all []queue.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all {
		if !x.done && x.Plan == plan {
			all = append(all, queue.State{Job: x.Job, Status: x.status, Problem: x.problem})
		}
	}
	return all
}

func (l *line) Jobs(ctx context.Context, plan string) iter.Seq2[queue.State, error] {
	return func(yield func(queue.State, error) bool) {
		if _, _, err := request(ctx, "queue", "list"); err != nil {
			yield(queue.State{}, err)
			return
		}
		for _, x := range l.unfinished(plan) {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// Counts makes no request: it is asked while others are made. But it waits like one.
func (l *line) Counts(ctx context.Context, plan string) (map[string]map[queue.Status]int, error) {
	if m, _ := ctx.Value(machineKey{}).(*machine); m != nil {
		m.mu.Lock()
		if m.waits {
			m.turn("queue counts")
		}
		m.mu.Unlock()
	}
	all := map[string]map[queue.Status]int{}
	for _, x := range l.unfinished(plan) {
		if all[x.Kind] == nil {
			all[x.Kind] = map[queue.Status]int{}
		}
		all[x.Kind][x.Status]++
	}
	return all, ctx.Err()
}

func (l *line) Cancel(ctx context.Context, plan string) (n int, err error) {
	if _, _, err := request(ctx, "queue", "cancel"); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all {
		if !x.done && x.Plan == plan {
			x.done = true
			n++
		}
	}
	return n, nil
}

func (l *line) Retry(_ context.Context, plan string) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all {
		if !x.done && x.Plan == plan && x.status == queue.SetAside {
			x.status, x.Attempt = queue.Waiting, 0
			n++
		}
	}
	return n, nil
}

// Work does the jobs that wait, and does not wait for others.
func (l *line) Work(ctx context.Context, o queue.WorkOptions, do func(context.Context, queue.Job) error) error {
	for {
		if _, _, err := request(ctx, "queue", "take"); err != nil {
			return err
		}
		l.mu.Lock()
		i := slices.IndexFunc(l.all, func(x *lined) bool {
			return !x.done && (x.status == queue.Waiting || x.status == queue.Failed) && slices.Contains(o.Kinds, x.Kind)
		})
		if i < 0 {
			l.mu.Unlock()
			return nil
		}
		x := l.all[i]
		l.mu.Unlock()
		l.work(ctx, x, o.Tries, do)
	}
}

func (l *line) work(ctx context.Context, x *lined, tries int, do func(context.Context, queue.Job) error) error {
	l.mu.Lock()
	x.status = queue.Running
	x.Attempt++
	j := x.Job
	l.mu.Unlock()
	err := do(ctx, j)
	if ctx.Err() != nil {
		return err // it stays with one that is dead
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		x.done = true
	case x.Attempt >= tries || fmt.Sprintf("%T", err) == fmt.Sprintf("%T", queue.Never(err)):
		x.status, x.problem = queue.SetAside, err.Error()
	default:
		x.status, x.problem = queue.Failed, err.Error()
	}
	return err
}
