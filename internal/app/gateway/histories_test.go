package gateway

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/disktest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// TestHistories has clients write and read a bucket at once, while gateways are flushed, killed, held up at any
// request, cut off from the store, and take each other's place, and disks fail, fill up and lose their power. What the
// clients were answered must be linearizable, and at the end the catalogue must have it. The seed of one that fails is
// that of the test: HOLDALL_SEED=… repeats it, mostly.
func TestHistories(t *testing.T) {
	testkit.Serial(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see settle
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	seed := testkit.Seed(t)
	counts := map[string]int{}
	for n := range testkit.Rounds(t, 300) {
		cryptotest.SetGlobalRandom(t, seed+uint64(n))
		var h *history
		synctest.Test(t, func(t *testing.T) {
			h = newHistory(t, seed+uint64(n))
			if h.run(); h.wrong != nil { // perhaps not everything has ended
				t.Fatalf("%s\n%s=%d: %v", strings.Join(h.lines, "\n"), testkit.SeedVar, seed+uint64(n), h.wrong)
			}
		})
		if h.linearizes(); h.wrong != nil {
			t.Fatalf("%s\n%s=%d: %v", strings.Join(h.lines, "\n"), testkit.SeedVar, seed+uint64(n), h.wrong)
		}
		for what, n := range h.counts {
			counts[what] += n
		}
	}
	t.Log(counts)
}

var historyKeys = []string{"a/1", "a/2", "b", "c/1"}

const (
	historySegment = 2000
	historyLarge   = 400
)

// A history is a store, machines beside it, and what clients have done. Everything that runs in it waits at gates,
// which are opened one at a time.
type history struct {
	ctx      context.Context
	there    bool // InBucket
	source   map[string]entry
	calm     bool // nothing is killed, and nothing fails
	mem      *storetest.Mem
	machines []*machine

	mu      sync.Mutex
	rnd     *rand.Rand
	gates   []*gate
	pauses  []*pause
	ahead   atomic.Int64 // how much later it is than for those that ask the system
	tick    int64
	jumps   int
	aged    bool // much time has passed at once
	all     []*op
	etags   map[string][]string // that a key had
	running int
	left    int                  // steps
	begun   []*uploading         // that no client goes on with just now
	late    []func(serve.Bucket) // requests that have not arrived
	lines   []string
	counts  map[string]int
	wrong   error
	fleet   bool // it rewrites archives
	taking  bool // a machine is about to take the place of another
	harmed  bool // something was killed, or a request failed
}

// A machine has the log of a gateway.
type machine struct {
	name   string
	disk   *disktest.Disk
	folder *storetest.Mem
	bad    bool // the disk may fail
	runs   *process
}

// A process is a gateway while it runs.
type process struct {
	h       *history
	m       *machine
	name    string
	faults  int // one of so many requests fails, or its answer is lost; 0 means none
	rough   bool
	hung    bool
	dead    bool
	ready   bool
	stale   bool // another has taken its place
	leaves  bool
	closing bool
	busy    int
	g       *Gateway
	set     *serve.Set
}

// A gate is where a request waits for its turn.
type gate struct {
	p    *process
	what string
	open chan struct{}
}

type pause struct {
	at time.Time
	c  chan struct{}
}

var errKilled = errors.New("killed")

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{ctx: t.Context(), mem: &storetest.Mem{}, rnd: rand.New(rand.NewPCG(seed, 5)), etags: map[string][]string{}, counts: map[string]int{}}
	h.mem.Now = h.now
	h.there, h.calm = h.rnd.IntN(3) == 0, h.rnd.IntN(5) == 0
	if h.rnd.IntN(2) == 0 {
		h.source = map[string]entry{historyKeys[0]: {data: "same 1", headers: map[string]string{"x-amz-meta-n": "source"}}, historyKeys[2]: {data: strings.Repeat("large ", historyLarge/5)}}
		for key, e := range h.source {
			h.etags[key] = []string{e.etag()}
		}
	}
	c, err := book.Create(h.ctx, h.plain(), "b.catalog")
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	h.ahead.Add(1) // only what is newer than the catalogue may be an orphan
	n := 2
	if h.there {
		n += h.rnd.IntN(2)
	}
	for i := range n {
		d := disktest.New(rand.New(rand.NewPCG(seed, uint64(i))))
		d.Sparse = h.rnd.IntN(2) == 0
		h.machines = append(h.machines, &machine{name: string(rune('A' + i)), disk: d, folder: &storetest.Mem{}})
	}
	return h
}

func (h *history) say(format string, a ...any) {
	h.lines = append(h.lines, fmt.Sprintf("%4d %s  ", h.tick, h.now().Format("04:05.000"))+fmt.Sprintf(format, a...))
}

// breaks notes that a promise is broken.
func (h *history) breaks(format string, a ...any) {
	if h.wrong == nil {
		h.wrong = fmt.Errorf(format, a...)
		h.say("%v", h.wrong)
	}
}

func (h *history) now() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }

// addressed is a store whose objects have addresses.
type addressed struct{ store.Store }

const simulated = "sim://"

type processKey struct{}

func init() {
	store.Register("sim", func(ctx context.Context, address string) (store.Store, string, error) {
		p, _ := ctx.Value(processKey{}).(*process)
		if p == nil {
			return nil, "", fmt.Errorf("%s: nobody's", address)
		}
		return p.store(), strings.TrimPrefix(address, simulated+"bucket/"), nil
	})
}

func (s addressed) Can() store.Abilities {
	can := s.Store.Can()
	can.Address = func(name string) string { return simulated + "bucket/" + name }
	can.RemoveAs = func(ctx context.Context, info store.Info) error {
		if is, err := storekit.Briefly(s, info.Name).Info(ctx); err != nil || is.Version != info.Version {
			return cmp.Or(err, store.ErrChanged)
		}
		return can.Remove(ctx, info.Name)
	}
	return can
}

// plain is the store for those that nothing holds up.
func (h *history) plain() store.Store { return addressed{h.mem} }

// store is the store as a process sees it.
func (p *process) store() store.Store {
	return addressed{storetest.Around(p.h.mem, func(op, name string, act func() error) error {
		switch op {
		case "create", "write", "rewind", "patch", "abort", "info":
			return act()
		case "head", "tail", "read":
			if !strings.HasSuffix(name, ".caf") { // it may be replaced, and is read by one request
				return act()
			}
		}
		p.pass(op + " " + name)
		h := p.h
		h.mu.Lock()
		fails, lost := p.dead, false
		if !fails && p.faults > 0 && h.rnd.IntN(p.faults) == 0 {
			lost = h.rnd.IntN(2) == 0
			fails, p.rough, h.harmed = !lost, true, true
			h.say("%s: %s %s fails, done: %v", p.name, op, name, lost)
		}
		h.mu.Unlock()
		if fails {
			return &store.Error{Op: op, Name: name, Off: -1, Err: errKilled, Retry: true}
		}
		err := act()
		if lost && err == nil {
			err = &store.Error{Op: op, Name: name, Off: -1, Err: errKilled, Retry: true}
		}
		return err
	})}
}

// from is the source as a process sees it.
func (p *process) from() store.Store {
	return originals{p.h.source, func(op, name string) error {
		p.pass(op + " at the source: " + name)
		h := p.h
		h.mu.Lock()
		defer h.mu.Unlock()
		if p.dead || p.faults > 0 && h.rnd.IntN(p.faults) == 0 {
			p.rough, h.harmed = true, true
			return &store.Error{Op: op, Name: name, Off: -1, Err: errKilled, Retry: true}
		}
		return nil
	}}
}

// pass waits at a gate.
func (p *process) pass(what string) {
	h := p.h
	h.mu.Lock()
	if p.dead {
		h.mu.Unlock()
		return
	}
	g := &gate{p, what, make(chan struct{})}
	h.gates = append(h.gates, g)
	h.mu.Unlock()
	<-g.open
}

func (p *process) wait(ctx context.Context, d time.Duration) bool {
	h := p.h
	h.mu.Lock()
	w := &pause{h.now().Add(d), make(chan struct{})}
	h.pauses = append(h.pauses, w)
	h.mu.Unlock()
	select {
	case <-w.c:
		return true
	case <-ctx.Done():
		h.mu.Lock()
		h.pauses = slices.DeleteFunc(h.pauses, func(x *pause) bool { return x == w })
		h.mu.Unlock()
		return false
	}
}

// A slow disk is one whose syncs wait at gates.
type slow struct {
	disk.Disk
	p *process
}

func (d slow) Open(name string) (disk.File, error) {
	f, err := d.Disk.Open(name)
	return slowFile{f, d.p}, err
}

type slowFile struct {
	disk.File
	p *process
}

func (f slowFile) Datasync() error {
	f.p.pass("datasync")
	return f.File.Datasync()
}

// told notes what a gateway logs.
type told struct {
	slog.Handler
	p *process
}

func (t told) Enabled(context.Context, slog.Level) bool { return true }

func (t told) Handle(_ context.Context, r slog.Record) error {
	h := t.p.h
	h.mu.Lock()
	defer h.mu.Unlock()
	said := ""
	r.Attrs(func(a slog.Attr) bool {
		said += " " + a.String()
		return true
	})
	h.say("%s: %s%s", t.p.name, r.Message, said)
	return nil
}

// settle lets everything go on until it waits. With one processor, what yields is next when nothing else can run.
func (h *history) settle() {
	for range 4 {
		runtime.Gosched()
	}
}

// begins has something done beside.
func (h *history) begins(p *process, do func()) {
	h.running++
	if p != nil {
		p.busy++
	}
	go func() {
		do()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
		if p != nil {
			p.busy--
		}
	}()
}

func (h *history) run() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.left = 100 + h.rnd.IntN(300); h.left > 0 && h.wrong == nil; h.left-- {
		h.step()
	}
	h.ends()
}

// unlocked has others go on.
func (h *history) unlocked(do func()) {
	h.mu.Unlock()
	do()
	h.mu.Lock()
}

// opens opens one of the gates, and reports whether there was any.
func (h *history) opens() bool {
	h.unlocked(h.settle)
	var can []*gate
	for _, g := range h.gates {
		if !g.p.hung || g.p.dead {
			can = append(can, g)
		}
	}
	if len(can) == 0 {
		return false
	}
	g := can[h.rnd.IntN(len(can))]
	h.gates = slices.DeleteFunc(h.gates, func(x *gate) bool { return x == g })
	close(g.open)
	h.counts["requests"]++
	return true
}

// later lets time pass.
func (h *history) later(d time.Duration) {
	h.ahead.Add(int64(d))
	h.aged = h.aged || d >= oldOrphan
	h.jumps++
	var due []*pause
	h.pauses = slices.DeleteFunc(h.pauses, func(w *pause) bool {
		if w.at.After(h.now()) {
			return false
		}
		due = append(due, w)
		return true
	})
	for _, w := range due {
		close(w.c)
	}
}

// idles lets time pass until something happens.
func (h *history) idles() {
	d := 10 * time.Millisecond
	for i, w := range h.pauses {
		if left := w.at.Sub(h.now()); i == 0 || left < d {
			d = left
		}
	}
	if d = max(d, time.Millisecond); d < time.Second {
		h.later(d)
	}
	if h.unlocked(h.settle); len(h.gates) == 0 {
		h.unlocked(func() { time.Sleep(10 * time.Millisecond) })
	}
}

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case n < 70:
		if h.opens() {
			return
		}
		fallthrough
	case n < 90:
		if h.running < 8 {
			h.client()
		}
	case n < 92:
		h.idles()
	default:
		h.happens()
	}
}

// pick returns a gateway that takes requests, or nil.
func (h *history) pick() *process {
	var can []*process
	for _, m := range h.machines {
		if p := m.runs; p != nil && p.ready && !p.leaves && !((p.stale || isClosed(p.g.buckets["b"].shut)) && h.rnd.IntN(4) > 0) {
			can = append(can, p)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return can[h.rnd.IntN(len(can))]
}

// happens has something happen to a machine.
func (h *history) happens() {
	m := h.machines[h.rnd.IntN(len(h.machines))]
	p := m.runs
	if p == nil {
		if !h.taking {
			h.starts(m, nil)
		}
		return
	}
	n := h.rnd.IntN(20)
	if h.calm && (n < 2 || n == 5 || n == 8 || n > 10 && n < 14 || n == 16) {
		return
	}
	switch n {
	case 0, 1:
		h.kills(p, !h.there && h.rnd.IntN(2) == 0)
	case 2, 3, 4:
		h.flushes(p)
	case 5:
		p.faults = []int{0, 0, 4, 20}[h.rnd.IntN(4)]
		h.say("%s: faults %d", p.name, p.faults)
	case 6:
		p.hung = !p.hung && !p.closing
		h.say("%s: hangs: %v", p.name, p.hung)
	case 7:
		d := []time.Duration{time.Second, 3 * time.Second, 61 * time.Second, 6 * time.Minute, time.Hour, oldOrphan, oldUpload}[h.rnd.IntN(7)]
		h.say("%v pass", d)
		h.later(d)
	case 8:
		h.disks(m)
	case 9, 10:
		h.leaves(p)
	case 11, 12, 13:
		if !h.there && p.ready && !p.stale && !p.leaves {
			h.takesOver(p)
		}
	case 14:
		if h.there {
			h.watches()
		}
	case 15:
		h.compacts()
	case 16:
		if len(h.begun) > 0 {
			h.say("uploads get old")
			h.later(oldUpload)
		}
	case 17, 18:
		h.arrives(p)
	case 19:
		h.forgets()
	}
}

// forgets has the catalogue forget what was before now: merges then leave out deletions.
func (h *history) forgets() {
	b, err := book.Open(h.ctx, h.plain(), "b.catalog", book.Options{Write: true})
	if err == nil {
		_, err = b.Commit(h.ctx, func(s *book.State) (*book.Commit, error) { return &book.Commit{Floor: s.Number}, nil })
		err = errors.Join(err, b.Close())
	}
	if err != nil {
		h.breaks("the catalogue: %v", err)
	}
	h.say("the catalogue forgets")
	h.harmed = h.harmed || h.there || h.fleet // an archive may be too late
	h.counts["forgets"]++
}

// disks has something happen to the disk of a machine.
func (h *history) disks(m *machine) {
	if h.there {
		return
	}
	d := m.disk
	switch h.rnd.IntN(4) {
	case 0:
		d.BadSync = 1 + h.rnd.IntN(5)
	case 1:
		d.BadIO = 1 + h.rnd.IntN(5)
	case 2:
		d.Room = d.Used() + int64(h.rnd.IntN(2000))
	default:
		d.Room = 1 << 20
	}
	h.say("%s: bad sync in %d, bad write in %d, room %d of %d", m.name, d.BadSync, d.BadIO, d.Used(), d.Room)
	h.harmed, m.bad = true, true
}

// owner is the machine whose log has what no commit has, or that has claimed the bucket, or nil.
func (h *history) owner() *machine {
	s := h.state()
	if s == nil || s.Claim == nil {
		return nil
	}
	for _, m := range h.machines {
		if strings.Contains(string(m.folder.Get(ownerName)), s.Claim.ID) {
			return m
		}
	}
	return nil
}

func (h *history) state() *book.State {
	b, err := book.Open(h.ctx, h.plain(), "b.catalog", book.Options{})
	if err != nil {
		h.breaks("the catalogue: %v", err)
		return nil
	}
	defer b.Close()
	s, err := b.Full(h.ctx)
	if err != nil {
		h.breaks("the catalogue: %v", err)
	}
	return s
}

// starts starts a gateway on a machine, which may take the place of one that hangs.
func (h *history) starts(m *machine, of *process) *process {
	owner, takeOver := h.owner(), of != nil
	p := &process{h: h, m: m, name: fmt.Sprintf("%s%d", m.name, h.tick)}
	m.runs = p
	if h.rnd.IntN(3) > 0 {
		m.disk.Room, m.disk.BadSync, m.disk.BadIO, m.bad = 1<<20, -1, -1, false
	}
	p.set = serve.NewSet(serve.SetOptions{})
	st := p.store()
	o := Options{Log: m.name, InBucket: h.there, SegmentSize: historySegment, SealAfter: time.Minute, TakeOver: takeOver, Logger: slog.New(told{slog.DiscardHandler, p}),
		Packing: func(ctx context.Context, bucket string) (fleet.Packing, error) {
			return fleet.OfGateway(ctx, bucket, simulated+"bucket/"+bucket+".caf", 0)
		},
		Find: func(*book.Book) Find {
			return func(_ context.Context, address string) (store.Store, string, error) {
				return st, strings.TrimPrefix(address, simulated+"bucket/"), nil
			}
		},
		now:    h.now,
		Source: func(context.Context, string) (store.Store, error) { return p.from(), nil },
		text:   crand.Text, wait: p.wait, large: historyLarge, room: []int64{1, 600, 3000}[h.rnd.IntN(3)],
	}
	if h.source != nil {
		o.Through, o.Adopt = []string{"src", ""}[h.rnd.IntN(2)], h.rnd.IntN(2) == 0
		if s := h.state(); s == nil || s.Source == "" {
			o.Through = "src"
		}
	}
	d, folder := m.disk, m.folder
	o.folder = func(string) (disk.Disk, store.Store, error) { return slow{d, p}, folder, nil }
	if h.there {
		d = disktest.New(h.rnd)
		o.folder = func(string) (disk.Disk, store.Store, error) { return d, m.folder, nil }
	}
	h.say("%s starts, takes over: %v", p.name, takeOver)
	h.begins(p, func() {
		g, err := New(context.WithValue(h.ctx, processKey{}, p), st, "", "b", p.set, o)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.say("%s has started: %v", p.name, err)
		if of != nil {
			h.taking = false
			of.hung, of.leaves, of.stale = false, false, h.owner() == m
		}
		_, claimed := errors.AsType[*ClaimError](err)
		_, stale := errors.AsType[*StaleError](err)
		switch {
		case stale && !p.dead:
			h.counts["stale"]++
			m.disk, m.folder = disktest.New(h.rnd), &storetest.Mem{}
			h.closes(p)
		case err == nil && p.dead:
			h.begins(nil, func() { _ = g.Close() })
		case err == nil:
			p.g, p.ready = g, true
		case claimed && owner == m, !claimed && !p.rough && !p.dead && !m.bad:
			h.breaks("%s does not start: %v", p.name, err)
			fallthrough
		default:
			h.closes(p)
		}
	})
	return p
}

// closes ends a process.
func (h *history) closes(p *process) {
	p.ready, p.hung, p.closing = false, false, true
	g := p.g
	h.begins(nil, func() {
		p.set.Close()
		if g != nil {
			_ = g.Close()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if p.m.runs == p {
			p.m.runs = nil
		}
	})
}

// kills ends a process at once.
func (h *history) kills(p *process, cut bool) {
	h.say("%s is killed, power cut: %v", p.name, cut)
	h.counts["kills"]++
	h.harmed = true
	p.dead = true
	p.m.disk = p.m.disk.Reborn(cut)
	p.m.runs = nil
	h.gates = slices.DeleteFunc(h.gates, func(g *gate) bool {
		if g.p == p {
			close(g.open)
		}
		return g.p == p
	})
	if !p.closing {
		h.closes(p)
	}
}

func (h *history) flushes(p *process) {
	if !p.ready || h.there {
		return
	}
	h.begins(p, func() {
		err := p.g.Flush(h.ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.say("%s: flush: %v", p.name, err)
		h.counts["flushes"]++
	})
}

// leaves has a gateway leave, or only end.
func (h *history) leaves(p *process) {
	if !p.ready || p.leaves || p.stale {
		return
	}
	p.leaves = true
	leaves := h.rnd.IntN(3) > 0
	h.begins(p, func() {
		var err error
		if leaves {
			err = p.g.Leave(h.ctx)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.say("%s ends, left: %v, %v", p.name, leaves, err)
		h.harmed = h.harmed || p.busy > 1 || !leaves && h.source != nil // a large object may be about to be adopted
		h.counts["ends"]++
		if !p.dead {
			h.closes(p)
		}
	})
}

// takesOver has another machine take the place of one that has everything in commits, and goes on.
func (h *history) takesOver(p *process) {
	p.leaves = true
	h.begins(p, func() {
		err := p.g.Flush(h.ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.IndexFunc(h.machines, func(m *machine) bool { return m.runs == nil })
		if err != nil || p.dead || i < 0 || p.busy > 1 || len(p.g.buckets["b"].over.Load().live) > 0 {
			p.leaves = false
			return
		}
		h.say("%s is overtaken", p.name)
		h.counts["take-overs"]++
		h.left += 400 // much can come of it
		p.hung, h.taking = true, true
		h.starts(h.machines[i], p)
	})
}

// compacts has a fleet rewrite archives, beside gateways.
func (h *history) compacts() {
	if h.fleet {
		return
	}
	h.fleet = true
	p := &process{h: h, m: &machine{}, name: fmt.Sprintf("fleet %d", h.tick)}
	h.counts["compactions"]++
	h.begins(nil, func() {
		n, err := p.compact(context.WithValue(h.ctx, processKey{}, p))
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fleet = false
		h.say("%s: %d archives are written again: %v", p.name, n, err)
		h.counts["rewritten"] += n
		if h.harmed = h.harmed || err != nil; err != nil && !errors.Is(err, book.ErrConflict) && !errors.Is(err, book.ErrLate) {
			h.breaks("%s: %v", p.name, err)
		}
	})
}

func (p *process) compact(ctx context.Context) (int, error) {
	n := 0
	err := p.has(ctx, func(b *book.Book, plan fleet.Plan) error {
		f := fleet.Fleet{Book: b, Queue: &jobs{}}
		done, err := fleet.Compact(ctx, f, plan, fleet.CompactOptions{Dead: 0.01})
		if n = done.Old; err == nil {
			_, err = fleet.Work(ctx, f, fleet.WorkOptions{Tries: 1})
		}
		if err == nil {
			_, _, err = fleet.Tidy(ctx, f, plan, linger)
		}
		return err
	})
	return n, err
}

// has opens the catalogue, and its plan.
func (p *process) has(ctx context.Context, do func(*book.Book, fleet.Plan) error) error {
	b, err := book.Open(ctx, p.store(), "b.catalog", book.Options{Write: true, Fresh: -1})
	if err != nil {
		return err
	}
	defer b.Close()
	plan, err := fleet.PlanNamed(ctx, b, "b")
	if err != nil {
		return nil // no gateway has started
	}
	return do(b, plan)
}

// jobs is a queue in memory.
type jobs struct{ all []queue.Job }

func (q *jobs) Add(_ context.Context, jobs ...queue.Job) (int, error) {
	q.all = append(q.all, jobs...)
	return len(jobs), nil
}

func (q *jobs) Jobs(context.Context, string) iter.Seq2[queue.State, error] {
	return func(yield func(queue.State, error) bool) {
		for _, j := range q.all {
			if !yield(queue.State{Job: j, Status: queue.Waiting}, nil) {
				return
			}
		}
	}
}

func (q *jobs) Counts(context.Context, string) (map[string]map[queue.Status]int, error) {
	return map[string]map[queue.Status]int{}, nil
}

func (q *jobs) Cancel(context.Context, string) (int, error) { return 0, nil }
func (q *jobs) Retry(context.Context, string) (int, error)  { return 0, nil }

func (q *jobs) Work(ctx context.Context, _ queue.WorkOptions, do func(context.Context, queue.Job) error) (err error) {
	for len(q.all) > 0 && err == nil {
		j := q.all[0]
		j.Attempt = 1
		err = do(ctx, j)
		q.all = q.all[1:]
	}
	return err
}

// A value is what a key has.
type value struct {
	there                  bool
	data, etag, meta, tags string
}

func (v value) headers() map[string]string {
	all := map[string]string{}
	if v.meta != "" {
		all["x-amz-meta-n"] = v.meta
	}
	if v.tags != "" {
		all["x-amz-tagging"] = v.tags
	}
	return all
}

func valueOf(data string, attr map[string]string) value {
	return value{true, data, entry{data: data}.etag(), attr["x-amz-meta-n"], attr["x-amz-tagging"]}
}

// An op is of one key.
type op struct {
	what      string // put, delete, tag, get, list
	key       string
	call, ret int64
	if_       serve.Condition
	is        value  // what is put, or was read; of a list, without the data
	etag      string // that was listed
	err       error  // ErrCondition, ErrNoObject, nil, or errUnknown
}

func (o *op) String() string {
	return fmt.Sprintf("%d-%d %s %s %v %v %.40q %s %v", o.call, o.ret, o.what, o.key, o.if_, cmp.Or(o.etag, o.is.etag), o.is.meta, o.is.tags, o.err)
}

var (
	errUnknown = errors.New("unknown")
	errNever   = errors.New("nothing was done")
)

// outcome is what is known after an answer.
func (h *history) outcome(p *process, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, serve.ErrCondition):
		return serve.ErrCondition
	case errors.Is(err, serve.ErrNoObject):
		return serve.ErrNoObject
	case errors.Is(err, serve.ErrFull), errors.Is(err, errNever), errors.Is(err, errGivenUp), errors.Is(err, serve.ErrPart): // see ended
		return errNever
	case h.there && h.aged && errors.Is(err, fs.ErrNotExist): // it was held up for so long that its archive is gone
		return errUnknown
	case errors.Is(err, serve.ErrBusy), errors.Is(err, book.ErrLate), p.rough, p.dead, p.stale, p.leaves, errors.Is(err, journal.ErrStopped) && h.harmed:
		return errUnknown
	}
	h.breaks("%s: a write fails: %v", p.name, err)
	return errUnknown
}

// does has a client do something with keys, and notes the outcome.
func (h *history) does(p *process, ops []*op, do func() []error) {
	h.tick++
	for _, o := range ops {
		o.call, o.ret = h.tick, math.MaxInt64
	}
	stale := p.stale
	if !stale {
		h.all = append(h.all, ops...)
	}
	h.counts[ops[0].what]++
	h.begins(p, func() {
		errs := do()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tick++
		for i, o := range ops {
			if o.err = h.outcome(p, errs[i]); o.err != errUnknown {
				o.ret = h.tick
			}
			h.harmed = h.harmed || o.err == errUnknown
			h.say("%s: %v (%v)", p.name, o, errs[i])
			if o.is.there && o.err == nil {
				h.etags[o.key] = append(h.etags[o.key], o.is.etag)
			}
		}
	})
}

// isLate has a client make a request that it gives up before it arrives.
func (h *history) isLate(o *op, do func(serve.Bucket)) {
	h.tick++
	o.call, o.ret, o.err = h.tick, math.MaxInt64, errUnknown
	h.all = append(h.all, o)
	h.late = append(h.late, do)
	h.counts["late"]++
	h.harmed = true
	h.say("given up: %v", o)
}

// arrives has a request arrive that its client has given up, perhaps after the gateway was started again.
func (h *history) arrives(p *process) {
	if len(h.late) == 0 || !p.ready || p.stale || p.leaves {
		return
	}
	i := h.rnd.IntN(len(h.late))
	do := h.late[i]
	h.late = slices.Delete(h.late, i, i+1)
	if b, err := p.g.Bucket(h.ctx, "b"); err == nil {
		h.say("%s: a request arrives late", p.name)
		h.begins(p, func() { do(b) })
	}
}

// client has a client make a request.
func (h *history) client() {
	p := h.pick()
	if p == nil {
		m := h.machines[h.rnd.IntN(len(h.machines))]
		if owner := h.owner(); owner != nil && h.rnd.IntN(4) > 0 {
			m = owner
		}
		if m.runs == nil && !h.taking {
			h.starts(m, nil)
		}
		return
	}
	b, err := p.g.Bucket(h.ctx, "b")
	if err != nil {
		h.breaks("%s: %v", p.name, err)
		return
	}
	key := historyKeys[h.rnd.IntN(len(historyKeys))*h.rnd.IntN(2)] // often the same
	o := &op{key: key}
	if all := h.etags[key]; h.rnd.IntN(2) == 0 {
		switch n := h.rnd.IntN(6); {
		case n < 2:
			o.if_.NoneMatch = "*"
		case n < 3:
			o.if_.Match = "*"
		case len(all) > 0:
			o.if_.Match = all[max(0, len(all)-1-h.rnd.IntN(3))]
		}
	}
	n := h.rnd.IntN(20)
	if n < 9 {
		o.what = "put"
		data, meta := fmt.Sprint("same ", h.rnd.IntN(2)), fmt.Sprint(h.tick)
		if h.rnd.IntN(2) > 0 {
			data = fmt.Sprint("content ", h.tick, " ", strings.Repeat("x", h.rnd.IntN(200)))
			if h.rnd.IntN(6) == 0 {
				data += strings.Repeat("large ", historyLarge/6)
			}
		}
		if p.stale {
			meta = "stale"
		}
		o.is = valueOf(data, map[string]string{"x-amz-meta-n": meta})
	}
	switch {
	case n < 7:
		put := func(b serve.Bucket) []error {
			_, err := b.Put(h.ctx, key, h.upload(o.is.data, o))
			return []error{err}
		}
		if !h.calm && !p.stale && h.rnd.IntN(16) == 0 {
			h.isLate(o, func(b serve.Bucket) { put(b) })
			return
		}
		h.does(p, []*op{o}, func() []error { return put(b) })
	case n < 9:
		u := &uploading{key: key, is: o.is}
		if n := len(h.begun); p.stale {
			// its values are known by their headers
		} else if n > 0 && h.rnd.IntN(3) > 0 {
			i := h.rnd.IntN(n)
			u = h.begun[i]
			h.begun = slices.Delete(h.begun, i, i+1)
			key, o.key, o.is, o.if_ = u.key, u.key, u.is, serve.Condition{}
		} else if h.rnd.IntN(2) == 0 {
			h.uploads(p, b, key, o.is)
			return
		}
		h.does(p, []*op{o}, func() []error { return []error{h.inParts(p, b, u, o)} })
	case n < 11:
		o.what = "delete"
		remove := func(b serve.Bucket) []error { return b.Delete(h.ctx, []serve.Deletion{{Key: key, If: o.if_}}) }
		if !h.calm && !p.stale && h.rnd.IntN(16) == 0 {
			h.isLate(o, func(b serve.Bucket) { remove(b) })
			return
		}
		h.does(p, []*op{o}, func() []error { return remove(b) })
	case n < 12:
		var ops []*op
		var all []serve.Deletion
		for _, key := range historyKeys {
			if h.rnd.IntN(2) == 0 {
				ops, all = append(ops, &op{what: "delete", key: key}), append(all, serve.Deletion{Key: key})
			}
		}
		if len(all) > 0 {
			h.does(p, ops, func() []error { return b.Delete(h.ctx, all) })
		}
	case n < 14:
		o.what, o.if_, o.is = "tag", serve.Condition{}, value{tags: fmt.Sprint(h.tick)}
		h.does(p, []*op{o}, func() []error {
			return []error{b.Change(h.ctx, key, func(headers map[string]string) (map[string]string, error) {
				if headers = maps.Clone(headers); headers == nil {
					headers = map[string]string{}
				}
				headers["x-amz-tagging"] = o.is.tags
				return headers, nil
			})}
		})
	default:
		h.reads(p, key, n == 19)
	}
}

func (h *history) upload(data string, o *op) *serve.Upload {
	return &serve.Upload{Body: strings.NewReader(data), Size: int64(len(data)), End: func() (string, map[string]string) { return o.is.etag, o.is.headers() }, If: o.if_}
}

// An uploading is an upload in parts.
type uploading struct {
	key, id string
	is      value
	parts   int
	at      time.Time // before the last part, or before it was begun
	finish  time.Time
	rough   bool // it may be gone
}

// adds begins an upload, or adds the next of its two parts.
func (h *history) adds(p *process, b serve.Bucket, u *uploading) error {
	h.mu.Lock()
	at := h.now()
	h.mu.Unlock()
	var err error
	if u.id == "" {
		u.id, err = b.Begin(h.ctx, u.key, u.is.headers())
	} else {
		half := len(u.is.data) / 2
		data := []string{u.is.data[:half], u.is.data[half:]}[u.parts]
		_, err = b.Part(h.ctx, u.key, u.id, u.parts+1, h.upload(data, &op{is: valueOf(data, nil)}))
		u.parts++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		u.at = at
	} else {
		h.ended(p, u, err)
	}
	return err
}

// ended compares an error with the age of an upload.
func (h *history) ended(p *process, u *uploading, err error) {
	switch {
	case errors.Is(err, serve.ErrNoUpload):
		h.counts["uploads that were ended"]++
		if early := h.now().Sub(u.at) < oldUpload; early && !u.rough {
			h.breaks("%s: upload %s of %s is gone, but not old", p.name, u.id, u.key)
		}
	case errors.Is(err, serve.ErrPart) && h.now().Sub(u.finish) < oldUpload:
		h.breaks("%s: upload %s of %s has lost a part", p.name, u.id, u.key)
	}
	u.rough = true
	h.harmed = h.harmed || errors.Is(err, serve.ErrBusy) || errors.Is(err, serve.ErrNoUpload) // and then nobody goes on with it
}

// begins has a client begin an upload, and perhaps add a part. Another goes on with it.
func (h *history) uploads(p *process, b serve.Bucket, key string, is value) {
	u, n := &uploading{key: key, is: is}, 1+h.rnd.IntN(2)
	h.counts["uploads"]++
	h.begins(p, func() {
		var err error
		for ; n > 0 && err == nil; n-- {
			err = h.adds(p, b, u)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.say("%s: upload %s of %s has %d parts: %v", p.name, u.id, key, u.parts, err)
		if err != nil {
			err = fmt.Errorf("%w: %w", errNever, err)
		}
		if h.outcome(p, err) == nil {
			h.begun = append(h.begun, u)
		}
	})
}

// inParts adds all parts of an upload, and finishes it.
func (h *history) inParts(p *process, b serve.Bucket, u *uploading, o *op) error {
	for u.id == "" || u.parts < 2 {
		if err := h.adds(p, b, u); err != nil {
			return fmt.Errorf("%w: %w", errNever, err)
		}
	}
	headers, parts, err := b.Parts(h.ctx, o.key, u.id)
	if u.finish = h.now(); err == nil {
		_, err = b.Finish(h.ctx, o.key, u.id, parts, &serve.Upload{End: func() (string, map[string]string) { return o.is.etag, headers }, If: o.if_})
	} else if !errors.Is(err, serve.ErrNoUpload) {
		return fmt.Errorf("%w: %w", errNever, err)
	}
	if errors.Is(err, serve.ErrCondition) || errors.Is(err, serve.ErrNoObject) {
		_ = b.Abandon(h.ctx, o.key, u.id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended(p, u, err); errors.Is(err, serve.ErrNoUpload) {
		err = fmt.Errorf("%w: %w", errNever, err)
	}
	return err
}

// reads has a client read a key, or list all.
func (h *history) reads(p *process, key string, lists bool) {
	h.tick++
	call, jumps := h.tick, h.jumps
	stale := p.stale
	h.counts[map[bool]string{false: "get", true: "list"}[lists]]++
	h.begins(p, func() {
		ops, err := p.read(h.ctx, key, lists)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tick++
		for _, o := range ops {
			o.call, o.ret = call, h.tick
			h.say("%s: %v", p.name, o)
			if o.is.meta == "stale" && !stale {
				h.breaks("%s: what a gateway wrote that was overtaken is in %s", p.name, o.key)
			}
			if !stale && err == nil {
				h.all = append(h.all, o)
				if o.is.there && o.what == "get" {
					h.etags[o.key] = append(h.etags[o.key], o.is.etag)
				}
			}
		}
		if err != nil && !p.rough && !p.dead && !p.leaves && jumps == h.jumps && !errors.Is(err, serve.ErrNoArchive) && !errors.Is(err, fs.ErrNotExist) {
			h.breaks("%s: a read fails: %v", p.name, err)
		}
	})
}

func (p *process) read(ctx context.Context, key string, lists bool) ([]*op, error) {
	a, err := p.set.Use(ctx, "b", "")
	if err != nil {
		return nil, err
	}
	defer a.Release()
	if lists {
		all := map[string]*op{}
		for _, key := range historyKeys {
			all[key] = &op{what: "list", key: key}
		}
		for e, err := range a.Keys(ctx, "", "") {
			if err != nil {
				return nil, err
			}
			o := all[e.Name]
			if o == nil || o.is.there {
				return []*op{{what: "list", key: historyKeys[0], is: value{there: true, data: "never written"}}}, nil
			}
			o.is.there, o.etag = true, e.Attr[kit.ETagAttr]
		}
		return slices.Collect(maps.Values(all)), nil
	}
	o := &op{what: "get", key: key}
	e, err := a.Lookup(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return []*op{o}, nil
	}
	if err != nil {
		return nil, err
	}
	p.pass("what was looked up")
	f, err := a.OpenEntry(ctx, e)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.pass("what was opened")
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	o.is = valueOf(string(data), e.Attr)
	if o.is.etag != e.Attr[kit.ETagAttr] {
		o.is.meta = "torn: has the ETag " + e.Attr[kit.ETagAttr]
	}
	return []*op{o}, nil
}

// watches has one that only reads the catalogue look up a key.
func (h *history) watches() {
	h.tick++
	o := &op{what: "list", key: historyKeys[h.rnd.IntN(len(historyKeys))], call: h.tick}
	b, err := book.Open(h.ctx, h.plain(), "b.catalog", book.Options{})
	if err != nil {
		h.breaks("the catalogue: %v", err)
		return
	}
	defer b.Close()
	f, err := b.Newest(h.ctx, o.key)
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, catalog.ErrDeleted) {
		if e, is := h.source[o.key]; is {
			f.ETag, err = e.etag(), nil
		}
	}
	if o.is.there, o.etag = err == nil, f.ETag; err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.breaks("the catalogue: %v", err)
	}
	h.tick++
	o.ret = h.tick
	h.all = append(h.all, o)
}

// finish has everything that was begun end.
func (h *history) finish(what string) {
	for n := 0; h.running > 0 && h.wrong == nil; n++ {
		if h.opens() {
			continue
		}
		if h.idles(); n > 3000 {
			stacks := make([]byte, 1<<20)
			h.breaks("%s: %d calls do not return\n%s", what, h.running, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// ends compares the catalogue with what clients were answered.
func (h *history) ends() {
	for _, m := range h.machines {
		m.disk.Room, m.disk.BadSync, m.disk.BadIO = 1<<20, -1, -1
		m.bad = m.bad && m.runs != nil && !m.runs.ready // it may have failed already
		if p := m.runs; p != nil {
			if p.hung = false; !h.calm && (h.rnd.IntN(2) == 0 || p.stale) {
				h.kills(p, !h.there && h.rnd.IntN(2) == 0)
			} else {
				p.faults = 0
			}
		}
	}
	h.finish("the end")
	var p *process
	for tries := 0; h.wrong == nil; tries++ {
		m := h.machines[0]
		if owner := h.owner(); owner != nil {
			m = owner
		}
		if p = m.runs; p == nil {
			p = h.starts(m, nil)
			h.finish("the last start")
		}
		if p.ready && (h.there || h.calm || tries > 0) && p.g.buckets["b"].why == nil {
			break
		}
		if tries > 4 {
			h.breaks("no gateway starts at the end")
		}
		h.kills(p, false)
		h.finish("a kill at the end")
	}
	look := func() {
		for _, key := range historyKeys {
			h.reads(p, key, false)
		}
		h.reads(p, "", true)
		h.finish("the last reads")
	}
	if h.wrong == nil {
		look()
		h.begins(p, func() {
			p.g.buckets["b"].adopts.stop()
			if err := p.g.Flush(h.ctx); err != nil {
				h.breaks("%s: the last flush: %v", p.name, err)
			}
		})
		h.finish("the last flush")
	}
	if h.wrong == nil {
		h.later(2 * linger)
		look()
		for h.opens() { // what goes on beside
		}
		h.compares(p, false)
		h.tidies(p)
		look()
		h.compares(p, true)
	}
	for range 2 { // what starts late
		for _, m := range h.machines {
			if m.runs != nil {
				h.kills(m.runs, false)
			}
		}
		wrong := h.wrong
		h.wrong = nil
		h.finish("the kills")
		h.wrong = cmp.Or(wrong, h.wrong)
	}
}

// tidies has the gateway find everything that is left, and a fleet remove it.
func (h *history) tidies(p *process) {
	f := &process{h: h, m: &machine{}, name: "the last fleet"}
	for _, d := range []time.Duration{oldUpload, lookAgain, oldOrphan + lookAgain} {
		h.later(d)
		for h.opens() { // what goes on beside
		}
		h.begins(nil, func() {
			ctx := context.WithValue(h.ctx, processKey{}, f)
			err := f.has(ctx, func(b *book.Book, plan fleet.Plan) error {
				_, err := b.Commit(ctx, func(*book.State) (*book.Commit, error) { return &book.Commit{}, nil }) // its time is now
				if err == nil {
					_, _, err = fleet.Tidy(ctx, fleet.Fleet{Book: b}, plan, 0)
				}
				return err
			})
			if err != nil {
				h.breaks("%s: %v", f.name, err)
			}
		})
		h.finish("the last fleet")
	}
}

// compares has one read that has no gateway. Nothing may be left that nobody needs: if all is tidy, not even what was
// killed may have left something.
func (h *history) compares(p *process, tidy bool) {
	h.tick++
	call := h.tick
	b, err := book.Open(h.ctx, h.plain(), "b.catalog", book.Options{})
	if err != nil {
		h.breaks("the catalogue: %v", err)
		return
	}
	defer b.Close()
	s, err := b.Full(h.ctx)
	if err != nil {
		h.breaks("the catalogue: %v", err)
		return
	}
	all := map[string]*op{}
	for _, key := range historyKeys {
		all[key] = &op{what: "get", key: key, call: call, ret: call}
		_, err := b.Newest(h.ctx, key)
		if e, is := h.source[key]; is && errors.Is(err, fs.ErrNotExist) && !errors.Is(err, catalog.ErrDeleted) {
			all[key].is = valueOf(e.data, e.headers)
			h.counts["never here"]++
		}
	}
	for l, err := range b.Below(h.ctx, "") {
		if err != nil {
			h.breaks("the catalogue: %v", err)
			return
		}
		a, err := b.ArchiveOf(h.ctx, l.Archive)
		if err != nil {
			h.breaks("the catalogue: %v", err)
			return
		}
		headers, err := b.HeadersOf(h.ctx, l)
		if err != nil || all[l.Path] == nil {
			h.breaks("the catalogue has %q: %v", l.Path, err)
			return
		}
		content := h.mem.Get(path.Base(a.Address))
		if l.Off < 0 || l.Size < 0 || l.Off > int64(len(content))-l.Size {
			h.breaks("the catalogue has %q at %d of %s", l.Path, l.Off, a.Address)
			return
		}
		if all[l.Path].is = valueOf(string(content[l.Off:l.Off+l.Size]), headers); all[l.Path].is.etag != l.ETag {
			h.breaks("the catalogue has other bytes for %q in %s", l.Path, a.Address)
		}
	}
	for _, o := range all {
		h.say("the catalogue: %v", o)
		h.all = append(h.all, o)
	}
	known := map[string]bool{}
	for _, a := range s.Archives {
		name := path.Base(string(a.Address))
		known[name] = true
		if got := int64(len(h.mem.Get(name))); got != a.Size {
			h.breaks("%s has %d bytes, the catalogue says %d", name, got, a.Size)
			continue
		}
		err := caf.Format.Verify(h.ctx, h.mem, name, format.OpenOptions{}, func(p format.Problem) { h.breaks("%s: %+v", name, p) })
		if err != nil {
			h.breaks("%s: %v", name, err)
		}
	}
	for _, r := range s.Removals {
		known[path.Base(b.AddressOf(r))] = true
	}
	for info, err := range h.mem.List(h.ctx, "") {
		name, _, _ := strings.Cut(info.Name, ".added-")
		if err != nil || strings.HasPrefix(name, "b.catalog") || known[name] || book.IsMarker(name) {
			continue
		}
		ours := p.g.buckets["b"].packing.Owns(name) || strings.HasPrefix(name, "b.uploads/")
		if !tidy && (strings.HasSuffix(name, endedName) || slices.ContainsFunc(h.begun, func(u *uploading) bool { return strings.Contains(name, u.id) })) {
			continue // it goes later
		}
		if h.counts["left"]++; ours && tidy || !h.harmed {
			h.breaks("%s is left, and nothing needs it", name)
		}
	}
}

// linearizes compares the answers with what one register for each key could have answered.
func (h *history) linearizes() {
	for _, key := range historyKeys {
		seen := map[string]bool{}
		for _, o := range h.all {
			if o.key == key && (o.what == "get" || o.what == "list") && o.err == nil {
				seen[o.is.meta], seen[o.is.tags], seen[o.etag] = true, true, true
			}
		}
		// Often it is as if what nobody has seen had never happened.
		is := porcupine.Illegal
		for try := 0; try < 3 && is != porcupine.Ok; try++ {
			var all []porcupine.Operation
			for _, o := range h.all {
				happened := o.err != errUnknown || try == 2 || o.what == "delete" && try == 1 || o.what == "put" && (seen[o.is.meta] || seen[o.is.etag]) || o.what == "tag" && seen[o.is.tags]
				if o.key == key && o.err != errNever && happened {
					all = append(all, porcupine.Operation{Input: o, Call: o.call, Output: o, Return: o.ret})
				}
			}
			model := register
			if e, is := h.source[key]; is {
				model.Init = func() any { return valueOf(e.data, e.headers) }
			}
			is = porcupine.CheckOperationsTimeout(model, all, time.Duration(1+4*(try/2))*time.Second)
		}
		switch is {
		case porcupine.Illegal:
			h.breaks("%s: the answers are not linearizable", key)
		case porcupine.Unknown:
			h.counts["undecided"]++
		}
	}
}

// register is a key whose value is a state.
var register = porcupine.Model{
	Init: func() any { return value{} },
	Step: func(state, in, _ any) (bool, any) {
		was, o := state.(value), in.(*op)
		switch o.what {
		case "get":
			return was == o.is, was
		case "list":
			return was.there == o.is.there && was.etag == o.etag, was
		}
		now, may := o.is, o.if_.Check(was.etag)
		if o.what == "tag" {
			if now = was; !was.there {
				may = serve.ErrNoObject
			}
			now.tags = o.is.tags
		}
		if o.err == errUnknown && may != nil {
			return true, was
		}
		if o.err != errUnknown && may != o.err {
			return false, was
		}
		if may != nil {
			return true, was
		}
		return true, now
	},
}
