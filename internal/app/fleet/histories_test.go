package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
)

// TestHistories has an application write to a bucket, while machines plan, pack, retire, compact and repair, are
// held up at any request, killed, or done twice, with copies of the catalogue. The seed of one that fails is that of
// the test: HOLDALL_SEED=… repeats it.
func TestHistories(t *testing.T) {
	testkit.Serial(t)
	defer func(was int64) { rangeObjects = was }(rangeObjects)
	rangeObjects = 3
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	seed := testkit.Seed(t)
	for n := range testkit.Rounds(t, 150) {
		cryptotest.SetGlobalRandom(t, seed+uint64(n))
		var h *history
		synctest.Test(t, func(t *testing.T) {
			h = newHistory(t, seed+uint64(n))
			h.run()
		})
		if h.wrong != nil {
			t.Fatalf("%s\n%s=%d: %v", strings.Join(h.lines, "\n"), testkit.SeedVar, seed+uint64(n), h.wrong)
		}
	}
}

const plan = scheme + "://out/set.caf"

// A history is a world with a source, and catalogues that are copies of one.
type history struct {
	*world
	ctx    context.Context // of one that only looks
	copies []*copied
	lives  map[string]*life    // of objects of the source, by key
	taken  []map[string]*thing // copies of the catalogue
	lists  int
	known  map[string]map[string]entry // contents of archives, by bytes
	hurt   map[string]bool             // archives that were lost or damaged by no fault of the fleet
	keys   []string
	again  bool  // the catalogue was made again
	forks  bool  // there may be copies of the catalogue
	harms  bool  // archives may be lost or damaged
	forked int64 // after that write
	slow   bool  // a listing took long: it counts from its begin on
	does   []string
	atOnce *machine // what has just begun, and is done
}

// A copied is a catalogue. The others are copies of the first.
type copied struct {
	name     string // in the bucket out
	line     *line
	machines []*machine
	books    []*book.Book
	shown    map[string]*wrote // of each key, by the catalogue, at the last look
	buried   map[string]*wrote // what was shown last of files that are deleted now
	watched  *book.Book        // by one that only looks
	archives map[int64]bool    // that were seen
	expires  bool              // old files may have expired
	removed  int64             // the first write after which it removed something that the other one does not know of
}

// A life is all that the application has written under a key.
type life struct {
	all []*wrote
	is  *wrote // nil if the application has deleted it
}

// A wrote is a version of an object that the application has written.
type wrote struct {
	*thing
	until   int64     // the write that ended it; 0 if none has
	deleted time.Time // by the application
	leaving bool      // a catalogue said so
}

type entry struct {
	data    []byte
	headers map[string]string
	etag    string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{world: &world{rnd: rand.New(rand.NewPCG(seed, 3)), buckets: map[string]map[string]*thing{"from": {}, "out": {}, "lists": {}}}, lives: map[string]*life{}, known: map[string]map[string]entry{}, hurt: map[string]bool{}, keys: []string{"a/1", "a/2", "a/3", "b", "c", "no sum", "z/1", "z/2"}}
	h.forks, h.harms = h.rnd.IntN(4) == 0, h.rnd.IntN(4) == 0
	for _, what := range []string{"plan", "retire", "compact", "night", "night", "repair", "gc"} {
		if h.rnd.IntN(4) > 0 {
			h.does = append(h.does, what)
		}
	}
	h.does = append(h.does, "work", "work", "plan")
	h.ctx = (&machine{w: h.world, watcher: true}).in(t.Context())
	h.removes = h.removed
	for _, key := range h.keys {
		h.lives[key] = &life{}
	}
	if _, err := book.Create(h.ctx, simulated{h.world, "out"}, "set.catalog"); err != nil {
		t.Fatal(err)
	}
	h.copies = []*copied{h.copied("set.catalog")}
	return h
}

func (h *history) copied(name string) *copied {
	c := &copied{name: name, line: &line{w: h.world}, shown: map[string]*wrote{}, buried: map[string]*wrote{}, archives: map[int64]bool{}}
	for i := range 3 {
		c.machines = append(c.machines, &machine{w: h.world, name: fmt.Sprintf("%s %d", strings.TrimSuffix(name, book.Suffix), i), stopped: make(chan struct{}, 1), resume: make(chan struct{}), rnd: rand.New(rand.NewPCG(h.rnd.Uint64(), 0))})
		c.books = append(c.books, nil)
	}
	return c
}

func (h *history) open(ctx context.Context, name string, o book.Options) (*book.Book, error) {
	if o.Write {
		o.Fresh = -1 // no time passes between requests
	}
	return book.Open(ctx, simulated{h.world, "out"}, name, o)
}

// watch is a catalogue as it is now.
func (h *history) watch(c *copied) *book.Book {
	if c.watched == nil {
		b, err := h.open(h.ctx, c.name, book.Options{})
		if err != nil {
			h.breaks("%s: %v", c.name, err)
		}
		c.watched = b
	}
	time.Sleep(time.Nanosecond) // otherwise it does not look again
	return c.watched
}

func (h *history) run() {
	for range 3 + h.rnd.IntN(5) {
		h.application()
	}
	for n := 10 + h.rnd.IntN(50); n > 0 && !h.broken(); n-- {
		h.step()
		h.look()
	}
	for _, c := range h.copies {
		for _, m := range c.machines {
			if h.atOnce = nil; m.works() && h.rnd.IntN(2) == 0 && !h.broken() {
				m.mu.Lock()
				m.faults, m.quota = 0, math.MaxInt
				m.mu.Unlock()
				m.goesOn()
				h.look()
			}
			for m.works() {
				m.kill()
			}
		}
	}
	if !h.broken() {
		h.look()
	}
	if !h.broken() {
		h.ends()
	}
}

// application writes or deletes an object.
func (h *history) application() {
	key := h.keys[h.rnd.IntN(len(h.keys))]
	l := h.lives[key]
	was := h.get("from", key)
	switch n := h.rnd.IntN(10); {
	case n < 2 && was != nil:
		h.ended(key).deleted = time.Now()
		l.is = nil
		h.remove("from", key)
		h.say("the application deletes %s", key)
	case n < 4 && was != nil:
		h.replaces(key, was.data, map[string]string{"content-type": fmt.Sprint("t/", h.rnd.IntN(3))})
	case n < 5 && len(l.all) > 0: // again
		x := l.all[h.rnd.IntN(len(l.all))]
		h.replaces(key, x.data, x.headers)
	default:
		size := []int{0, 10, 10, 10, 20}[h.rnd.IntN(5)]
		h.replaces(key, testkit.Noise(h.rnd, size), map[string]string{"content-type": fmt.Sprint("t/", h.rnd.IntN(3))})
	}
	if h.rnd.IntN(4) > 0 {
		time.Sleep(time.Duration(1+h.rnd.IntN(3)) * time.Second)
	}
}

func (h *history) replaces(key string, data []byte, headers map[string]string) {
	h.ended(key)
	x := &wrote{thing: h.put("from", key, data, headers)}
	l := h.lives[key]
	l.all, l.is = append(l.all, x), x
	h.say("the application writes %s, version %d: %.4x… of %d bytes, %s", key, len(l.all), data, len(data), headers["content-type"])
}

// ended notes that what is there of a key is not any more.
func (h *history) ended(key string) *wrote {
	is := h.lives[key].is
	if is != nil {
		is.until = h.writes + 1
	}
	return is
}

func (h *history) step() {
	h.atOnce = nil
	n := h.rnd.IntN(100)
	switch {
	case n < 25:
		h.application()
	case n < 40:
		d := []time.Duration{2 * time.Second, 10 * time.Minute, 4 * day, 8 * day, 8 * day, 8 * day}[h.rnd.IntN(6)]
		time.Sleep(d)
		h.say("%s pass", d)
		for _, c := range h.copies { // a listing may take long: it counts from its begin on
			h.slow = h.slow || d > time.Hour && slices.ContainsFunc(c.machines, (*machine).works)
		}
	case n < 44 && h.forks:
		h.fork()
	case n < 45 && h.harms:
		h.hurts()
	default:
		c := h.copies[h.rnd.IntN(len(h.copies))]
		i := h.rnd.IntN(len(c.machines))
		m := c.machines[i]
		switch {
		case !m.works():
			h.begin(c, i)
		case h.rnd.IntN(6) == 0:
			m.kill()
			for m.works() {
				m.kill()
			}
			c.books[i] = nil
		default:
			h.until(m)
			m.goesOn()
			h.settled(m)
		}
	}
}

// until says how far a machine goes.
func (h *history) until(m *machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota, m.at = math.MaxInt, ""
	switch h.rnd.IntN(4) {
	case 0:
		m.quota = h.rnd.IntN(50)
	case 1:
		places := []string{"remove from/", "remove out/set-", "put out/", "put out/set-", "put from/", "list from/", "head from/", "get from/"}
		m.quota, m.at = h.rnd.IntN(3), places[h.rnd.IntN(len(places))]
	}
}

// settled is called when a machine waits, or is done.
func (h *history) settled(m *machine) {
	if !m.works() && m.err == nil && m.what == "plan" && m.broke {
		h.breaks("%s: a plan is complete, and a listing failed", m.name)
	}
	if !m.works() && (m.what == "plan" || m.what == "night") && time.Since(m.since) > time.Hour {
		h.slow = true
	}
	if m.works() && h.rnd.IntN(4) == 0 {
		time.Sleep(10 * time.Minute)
		h.say("10 minutes pass")
	}
}

// fork takes a copy of the catalogue, or has one used under another name.
func (h *history) fork() {
	if len(h.copies) > 1 {
		return
	}
	if len(h.taken) == 0 || h.rnd.IntN(2) == 0 {
		files := map[string]*thing{}
		for _, name := range h.names("out", "set.catalog") {
			files[name] = h.get("out", name)
		}
		h.taken = append(h.taken, files)
		h.say("a copy of the catalogue is taken")
		return
	}
	from := h.taken[h.rnd.IntN(len(h.taken))]
	c := h.copied("copy.catalog")
	for name, x := range from {
		to := "copy" + strings.TrimPrefix(name, "set")
		h.mu.Lock()
		h.buckets["out"][to] = x
		h.mu.Unlock()
	}
	h.copies, h.forked = append(h.copies, c), h.writes
	h.say("a copy of the catalogue is used")
}

// hurts loses or replaces an archive of which all originals are there, while no originals are being retired.
func (h *history) hurts() {
	for _, c := range h.copies {
		for _, m := range c.machines {
			if m.works() {
				return
			}
		}
	}
	for key, l := range h.lives {
		if l.is != nil && h.get("from", key) == nil {
			return
		}
	}
	var all []string
	for _, name := range h.names("out", "set-") {
		if strings.HasSuffix(name, ".caf") {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return
	}
	name := all[h.rnd.IntN(len(all))]
	h.hurt[name] = true
	if h.rnd.IntN(2) == 0 {
		h.remove("out", name)
		h.say("%s is lost", name)
		return
	}
	b := bytes.Clone(h.get("out", name).data)
	for range 20 {
		b[h.rnd.IntN(len(b))]++
	}
	h.put("out", name, b, nil)
	h.say("%s is damaged", name)
}

func (h *history) spec() Spec {
	return Spec{Sources: []string{scheme + "://from"}, Target: plan, ChunkObjects: 3, Gone: 1}
}

// begin has a machine begin to do something.
func (h *history) begin(c *copied, i int) {
	m, clock := c.machines[i], time.Duration(h.rnd.IntN(3)-1)*time.Hour
	fresh := h.rnd.IntN(2) == 0
	fleet := func(ctx context.Context) (Fleet, error) {
		if c.books[i] == nil || fresh {
			b, err := h.open(ctx, c.name, book.Options{Write: true, Now: func() time.Time { return time.Now().Add(clock) }})
			if err != nil {
				return Fleet{}, err
			}
			c.books[i] = b
		}
		return Fleet{c.books[i], c.line}, nil
	}
	what, do := h.choose(c)
	faults := 0
	if h.rnd.IntN(5) == 0 {
		faults = 5 + h.rnd.IntN(30)
	}
	h.say("%s: %s", m.name, what)
	h.until(m)
	m.begins(h.ctx, what, faults, func(ctx context.Context) error {
		f, err := fleet(ctx)
		if err != nil {
			return err
		}
		return do(ctx, f)
	})
	if h.settled(m); !m.works() {
		h.atOnce = m
	}
}

func planned(do func(ctx context.Context, f Fleet, p Plan) error) func(context.Context, Fleet) error {
	return func(ctx context.Context, f Fleet) error {
		p, err := PlanNamed(ctx, f.Book, plan)
		if err != nil {
			return err
		}
		return do(ctx, f, p)
	}
}

const (
	grace  = 7 * day
	expire = 60 * day
)

func (h *history) choose(c *copied) (string, func(context.Context, Fleet) error) {
	switch what := h.does[h.rnd.IntN(len(h.does))]; what {
	case "plan", "night":
		s, list := h.spec(), h.rnd.IntN(4) == 0
		if list {
			s.List = h.list()
		}
		plan := func(ctx context.Context, f Fleet) error {
			_, err := MakePlan(ctx, f, s, nil)
			return err
		}
		switch {
		case what == "plan" && list:
			return "plan by a list", plan
		case what == "plan":
			return what, plan
		}
		o := CompactOptions{Yes: true, Dead: []float64{0, -1}[h.rnd.IntN(2)]}
		compacts := h.rnd.IntN(2) == 0
		return what, func(ctx context.Context, f Fleet) error {
			err := plan(ctx, f)
			if err == nil {
				_, err = Work(ctx, f, WorkOptions{Jobs: 1, Tries: 3})
			}
			if err == nil && compacts {
				err = h.compacts(ctx, f, o)
			}
			if err == nil && compacts {
				_, err = Work(ctx, f, WorkOptions{Jobs: 1, Tries: 3})
			}
			return err
		}
	case "retire":
		o := RetireOptions{Jobs: 1, DryRun: h.rnd.IntN(6) == 0, OlderThan: []time.Duration{0, 0, 0, time.Hour}[h.rnd.IntN(4)], Limit: int64(h.rnd.IntN(3) * 2), Tries: 2}
		return what, planned(func(ctx context.Context, f Fleet, p Plan) error {
			done, err := Retire(ctx, f, p, o)
			h.say("retired %d, left %v", done.Objects, done.Left)
			return err
		})
	case "compact":
		o := CompactOptions{Dead: []float64{0, -1}[h.rnd.IntN(2)], Yes: true, Expire: []time.Duration{0, 0, 0, 0, 0, expire}[h.rnd.IntN(6)]}
		return what, func(ctx context.Context, f Fleet) error {
			c.expires = c.expires || o.Expire > 0
			return h.compacts(ctx, f, o)
		}
	case "repair":
		return what, planned(func(ctx context.Context, f Fleet, p Plan) error {
			_, err := Repair(ctx, f, p, RepairOptions{})
			return err
		})
	case "gc":
		return what, func(ctx context.Context, f Fleet) error {
			_, err := f.Book.GC(ctx, grace, false)
			return err
		}
	}
	if h.rnd.IntN(8) == 0 {
		_, _ = c.line.Retry(h.ctx, plan)
	}
	var all []*lined
	any := h.rnd.IntN(3) == 0
	for _, x := range c.line.all {
		if any || !x.done && x.status != queue.SetAside && x.status != queue.Running {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		return "look", func(context.Context, Fleet) error { return nil }
	}
	x := all[h.rnd.IntN(len(all))]
	if x.done && h.rnd.IntN(2) == 0 {
		x.Attempt = 0
	}
	return "do " + x.Name, func(ctx context.Context, f Fleet) error {
		return c.line.work(ctx, x, 3, newWorker(f, WorkOptions{Jobs: 1, Tries: 3}).do)
	}
}

func (h *history) compacts(ctx context.Context, f Fleet, o CompactOptions) error {
	return planned(func(ctx context.Context, f Fleet, p Plan) error {
		done, err := Compact(ctx, f, p, o)
		h.say("compacted %+v", done)
		if err == nil {
			_, _, err = Tidy(ctx, f, p, grace)
		}
		return err
	})(ctx, f)
}

// list is a list of some objects.
func (h *history) list() string {
	var b bytes.Buffer
	for _, key := range h.keys {
		if x := h.get("from", key); x != nil && h.rnd.IntN(2) == 0 {
			_ = json.NewEncoder(&b).Encode(map[string]any{"key": key, "size": len(x.data), "etag": x.etag})
		}
	}
	h.lists++
	name := fmt.Sprintf("%d.jsonl", h.lists)
	h.put("lists", name, b.Bytes(), nil)
	return scheme + "://lists/" + name
}

// archive reads an archive as it is now.
func (h *history) archive(name string) (map[string]entry, error) {
	x := h.get("out", name)
	if x == nil {
		return nil, fs.ErrNotExist
	}
	if all := h.known[x.etag]; all != nil {
		return all, nil
	}
	in, err := holdall.Open(h.ctx, name, holdall.OpenOptions{Store: simulated{h.world, "out"}, Format: "caf"})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all := map[string]entry{}
	for e, err := range in.Entries(h.ctx) {
		if err != nil {
			return nil, err
		}
		r, err := in.OpenEntry(h.ctx, e)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		_ = r.Close()
		headers := map[string]string{}
		for k, v := range e.Attr {
			if storekit.IsHeader(k) {
				headers[k] = v
			}
		}
		all[e.Name] = entry{data, headers, e.Attr[kit.ETagAttr]}
	}
	h.known[x.etag] = all
	return all, nil
}

// reads returns what a reader of a catalogue gets of a file.
func (h *history) reads(b *book.Book, l catalog.Location) (e entry, err error) {
	a, err := b.ArchiveOf(h.ctx, l.Archive)
	if err != nil {
		return e, err
	}
	name := strings.TrimPrefix(a.Address, scheme+"://out/")
	x := h.get("out", name)
	if l.Size == 0 && h.hurt[name] { // nothing is read of it
		headers, err := b.HeadersOf(h.ctx, l)
		return entry{nil, headers, l.ETag}, err
	}
	if x == nil || !survey.Is(x.info(name), false, a) {
		return e, fmt.Errorf("%s is lost, or another one", name)
	}
	all, err := h.archive(name)
	if err != nil {
		return e, err
	}
	e, ok := all[l.Path]
	if !ok || l.Raw && !bytes.Equal(e.data, x.data[l.Off:l.Off+l.Size]) {
		return e, fmt.Errorf("%s does not have %s there", name, l.Path)
	}
	headers, err := b.HeadersOf(h.ctx, l)
	if err == nil && (!maps.Equal(headers, e.headers) || l.ETag != e.etag || l.Size != int64(len(e.data))) {
		err = fmt.Errorf("the catalogue has %v %s %d bytes of %s, and the archive %v %s", headers, l.ETag, l.Size, l.Path, e.headers, e.etag)
	}
	return e, err
}

func same(e entry, x *thing) bool {
	return bytes.Equal(e.data, x.data) && maps.Equal(e.headers, x.headers)
}

// serves returns why a catalogue does not serve an object.
func (h *history) serves(b *book.Book, key string, x *thing) error {
	f, err := b.Newest(h.ctx, key)
	var e entry
	if err == nil {
		e, err = h.reads(b, f.Location)
	}
	if err == nil && !same(e, x) {
		err = fmt.Errorf("it has %.4x… %v, version %d", e.data, e.headers, f.Seq)
	}
	return err
}

// of is the catalogue that a machine works for.
func (h *history) of(m *machine) *copied {
	return h.copies[slices.IndexFunc(h.copies, func(c *copied) bool { return slices.Contains(c.machines, m) })]
}

// removed is called before a machine removes an object.
func (h *history) removed(m *machine, bucket, name string, is *thing, began time.Time) {
	c := h.of(m)
	b := h.watch(c)
	if bucket == "from" && !book.IsMarker(name) || strings.HasSuffix(name, ".caf") {
		for _, other := range h.copies {
			if other != c && other.removed > 0 && other.removed < m.began {
				h.breaks("%s removes %s, and so did another copy of the catalogue", m.name, name)
			}
		}
		if c.removed == 0 && len(h.copies) > 1 && m.began > h.forked {
			c.removed = h.writes
		}
	}
	switch {
	case book.IsMarker(name) || bucket == "out" && strings.Contains(name, ".catalog"):
	case bucket == "from":
		h.retired(c, m, b, name, is, began)
	case strings.HasSuffix(name, ".caf"):
		h.tidied(m, b, name)
	}
}

// marked reports whether there is a marker of a commit, or a later one, which may be that of a copy.
func (h *history) marked(m *machine, bucket string, commit int64) bool {
	stored := func(c *copied) *thing { return h.get("out", fmt.Sprintf("%s/commits/%016d", c.name, commit)) }
	own := h.of(m)
	for _, c := range h.copies {
		if a, b := stored(own), stored(c); c != own && (a == nil || b == nil || !bytes.Equal(a.data, b.data)) {
			continue
		}
		b := h.watch(c)
		for _, name := range h.names(bucket, "") {
			m, ok := book.ParseMarker(name)
			if knows, err := b.Knows(h.ctx, m); ok && err == nil && knows && m.Commit >= commit {
				return true
			}
		}
	}
	return false
}

func (h *history) retired(c *copied, m *machine, b *book.Book, key string, is *thing, began time.Time) {
	l := h.lives[key]
	if l == nil || l.is == nil {
		h.breaks("%s removes %s, which is not the application's", m.name, key)
		return
	}
	m.mu.Lock()
	asked := m.asked[key]
	m.mu.Unlock()
	h.say("%s removes %s, version %d", m.name, key, slices.Index(l.all, l.is)+1)
	if asked.is != nil && asked.is.n != is.n && asked.is.etag == is.etag { // no service has a condition for headers
		h.say("its headers were replaced just before")
		if err := h.serves(b, key, asked.is); err != nil && h.serves(b, key, is) != nil {
			h.breaks("%s removes %s: %v", m.name, key, err)
		}
		h.ended(key).deleted, l.is = time.Now(), nil
		return
	}
	f, err := b.Newest(h.ctx, key)
	if err == nil {
		err = h.serves(b, key, l.is.thing)
	}
	switch {
	case err != nil:
		h.breaks("%s removes %s: %v", m.name, key, err)
	case began.Sub(asked.at) > time.Minute:
		h.breaks("%s removes %s, and last heard of it %s ago", m.name, key, began.Sub(asked.at))
	case f.Original == catalog.OriginalStays:
		h.breaks("%s removes %s, and no commit says so", m.name, key)
	case f.Original == catalog.OriginalLeaving:
		if n := h.leftSince(c, f.Location); !(h.marked(m, "from", n) && h.marked(m, "out", n)) {
			h.breaks("%s removes %s without a marker of commit %d", m.name, key, n)
		}
	}
}

// leftSince returns the first commit since which a catalogue never takes the original for deleted by its owner: it
// was leaving all the time, or lingered. A job that is done twice says once more that it is leaving.
func (h *history) leftSince(c *copied, l catalog.Location) int64 {
	for {
		b, err := h.open(h.ctx, c.name, book.Options{})
		if err == nil {
			err = b.At(h.ctx, l.Since-1)
		}
		if err != nil { // that state is forgotten
			return l.Since
		}
		was, err := b.Newest(h.ctx, l.Path)
		if err != nil || was.Seq != l.Seq || was.Original == catalog.OriginalStays {
			return l.Since
		}
		l = was.Location
	}
}

func (h *history) tidied(m *machine, b *book.Book, name string) {
	h.say("%s removes %s", m.name, name)
	s, err := b.Full(h.ctx)
	if err != nil {
		h.breaks("%s removes %s: %v", m.name, name, err)
		return
	}
	address := scheme + "://out/" + name
	if _, err := b.Archive(h.ctx, address); err == nil {
		h.breaks("%s removes %s, which is in the catalogue", m.name, name)
	}
	i := slices.IndexFunc(s.Removals, func(r book.Removal) bool { return b.AddressOf(r) == address })
	if i < 0 {
		h.breaks("%s removes %s, and no commit says so", m.name, name)
		return
	}
	at, err := b.TimeOf(h.ctx, s.Removals[i].Commit)
	switch {
	case err != nil || time.Since(at) < grace:
		h.breaks("%s removes %s after %s: %v", m.name, name, time.Since(at), err)
	case !h.marked(m, "out", s.Removals[i].Commit):
		h.breaks("%s removes %s without a marker", m.name, name)
	}
}

// look compares the catalogues with what the application has written.
func (h *history) look() {
	if h.broken() {
		return
	}
	lost := map[string][]error{} // of originals that are removed
	serving := false
	for _, c := range h.copies {
		b := h.watch(c)
		h.shows(c, b)
		all := true
		for _, key := range h.keys {
			is := h.lives[key].is
			if is == nil || h.get("from", key) != nil {
				continue
			}
			if err := h.serves(b, key, is.thing); err != nil && !h.expired(c, is) {
				lost[key] = append(lost[key], fmt.Errorf("%s: %w", c.name, err))
				all = false
			}
		}
		serving = serving || all
	}
	if !serving {
		h.breaks("originals that were removed are lost: %v", lost)
	}
	if len(h.copies) == 1 {
		h.stored(h.copies[0])
	}
}

// shows checks what a catalogue shows.
func (h *history) shows(c *copied, b *book.Book) {
	shown := map[string]*wrote{}
	for l, err := range b.Below(h.ctx, "") {
		if err != nil {
			h.breaks("%s: %v", c.name, err)
			return
		}
		a, err := b.ArchiveOf(h.ctx, l.Archive)
		if err != nil {
			h.breaks("%s: %v", c.name, err)
			return
		}
		name := strings.TrimPrefix(a.Address, scheme+"://out/")
		if h.hurt[name] || len(h.copies) > 1 && h.get("out", name) == nil {
			if was := c.shown[l.Path]; was != nil {
				shown[l.Path] = was
			}
			continue
		}
		e, err := h.reads(b, l)
		if err != nil {
			h.breaks("%s: %s: %v", c.name, l.Path, err)
			return
		}
		x := h.version(l, e)
		if x == nil {
			h.breaks("%s shows %s as it never was: %.4x… %v of %s", c.name, l.Path, e.data, e.headers, l.Modified)
			return
		}
		shown[l.Path] = x
		x.leaving = x.leaving || l.Original != catalog.OriginalStays
		h.honest(c, l, x)
		if was := c.buried[l.Path]; was == x {
			h.breaks("%s shows %s again, which was deleted", c.name, l.Path)
		}
	}
	if len(h.copies) > 1 {
		return // what machines of the other one have made may be taken over
	}
	h.packedAgain(c, b)
	for key, was := range c.shown {
		if shown[key] != nil {
			delete(c.buried, key)
			continue
		}
		l := h.lives[key]
		var last time.Time // the application deleted it
		for _, x := range l.all {
			if !x.deleted.IsZero() && x.deleted.After(last) && !x.deleted.After(time.Now().Add(-goneAfter)) {
				last = x.deleted
			}
		}
		if (last.IsZero() && !h.slow || was.leaving) && !h.expired(c, was) && len(h.hurt) == 0 {
			h.breaks("%s does not show %s any more, which was not deleted before", c.name, key)
		}
		if l.is == nil {
			c.buried[key] = was
		}
	}
	c.shown = shown
}

// packedAgain checks that a job which nothing has come between does not pack what the catalogue had.
func (h *history) packedAgain(c *copied, b *book.Book) {
	all, err := b.Archives(h.ctx)
	if err != nil {
		h.breaks("%v", err)
	}
	for _, a := range all {
		if c.archives[a.ID] {
			continue
		}
		c.archives[a.ID] = true
		x := h.get("out", strings.TrimPrefix(a.Address, scheme+"://out/"))
		if m := h.atOnce; x == nil || m == nil || !strings.HasPrefix(m.what, "do 0") || m.faults > 0 || x.n <= m.began {
			continue
		}
		for l, err := range b.Locations(h.ctx, a) {
			e, rerr := h.reads(b, l)
			if err != nil || rerr != nil {
				h.breaks("%s: %v, %v", a.Address, err, rerr)
			} else if v := h.version(l, e); v != nil && v == c.shown[l.Path] {
				h.breaks("%s has %s, which another archive has", a.Address, l.Path)
			}
		}
	}
}

func (h *history) expired(c *copied, x *wrote) bool {
	return c.expires && time.Since(x.at) > expire
}

// version finds what the application wrote.
func (h *history) version(l catalog.Location, e entry) *wrote {
	life := h.lives[l.Path]
	if life == nil {
		return nil
	}
	for _, x := range slices.Backward(life.all) {
		if x.etag == e.etag && same(e, x.thing) && x.at.Equal(l.Modified.Truncate(time.Second)) {
			return x
		}
	}
	return nil
}

// honest checks that a file was there after the listing that it says.
func (h *history) honest(c *copied, l catalog.Location, x *wrote) {
	at := h.get("out", fmt.Sprintf("%s/commits/%016d", c.name, l.Seq))
	if h.again || at == nil || x.until == 0 || x.until > at.n {
		return
	}
	// A copy of the catalogue may take over an archive of the other one. Lists have no times, so headers of the same
	// content may be older there; a retirement compares them.
	all := h.lives[l.Path].all
	if h.forked > 0 && slices.ContainsFunc(all[slices.Index(all, x)+1:], func(y *wrote) bool { return y.etag == x.etag }) {
		return
	}
	h.breaks("%s shows version %d of %s as of listing %d, and it was replaced before", c.name, slices.Index(h.lives[l.Path].all, x)+1, l.Path, l.Seq)
}

// stored checks that all archives are there that a reader may need.
func (h *history) stored(c *copied) {
	b := h.watch(c)
	is := func(address string, size int64, version string, what string) {
		name := strings.TrimPrefix(address, scheme+"://out/")
		x := h.get("out", name)
		if !h.hurt[name] && (x == nil || !survey.Is(x.info(name), false, catalog.Archive{Size: size, Version: version})) {
			h.breaks("%s is lost, or another one, and %s", name, what)
		}
	}
	all, err := b.Archives(h.ctx)
	if err != nil {
		h.breaks("%v", err)
	}
	for _, a := range all {
		is(a.Address, a.Size, a.Version, "in the catalogue")
	}
	s, err := b.Full(h.ctx)
	if err != nil {
		h.breaks("%v", err)
		return
	}
	for _, r := range s.Removals {
		if at, err := b.TimeOf(h.ctx, r.Commit); err == nil && time.Since(at) < grace {
			is(b.AddressOf(r), r.Size, string(r.Version), "readers may need it")
		}
	}
}

// ends does all that is left to do. Then everything is packed, and may be retired.
func (h *history) ends() {
	h.say("the end")
	h.atOnce = nil
	if len(h.copies) > 1 || len(h.hurt) > 0 {
		return
	}
	c := h.copies[0]
	b, err := h.open(h.ctx, c.name, book.Options{Write: true})
	if err != nil {
		h.breaks("%v", err)
		return
	}
	f := Fleet{b, c.line}
	m := &machine{w: h.world, name: "the last", quota: math.MaxInt, asked: map[string]asking{}}
	c.machines = append(c.machines, m)
	ctx := m.in(h.ctx)
	m.resume, m.stopped = make(chan struct{}), make(chan struct{}, 1)
	does := func(what string, do func() error) {
		if h.broken() {
			return
		}
		if err := do(); err != nil {
			h.breaks("%s: %v", what, err)
		}
		h.look()
	}
	plans := func() error {
		time.Sleep(2 * time.Second)
		_, err := MakePlan(ctx, f, h.spec(), nil)
		if err == nil {
			_, _ = c.line.Retry(ctx, plan)
			for _, x := range c.line.all {
				if !x.done {
					x.status = queue.Waiting
				}
			}
			_, err = Work(ctx, f, WorkOptions{Jobs: 1, Tries: 3})
		}
		for _, x := range c.line.all {
			if err == nil && !x.done && x.Kind != retireKind {
				err = fmt.Errorf("%s is set aside: %s", x.Name, x.problem)
			}
		}
		return err
	}
	does("plan", plans)
	does("plan again", plans)
	for _, key := range h.keys {
		is := h.lives[key].is
		if is == nil {
			continue
		}
		if err := h.serves(b, key, is.thing); err != nil && !h.broken() && !h.hidden(key) && !h.expired(c, is) {
			h.breaks("%s is not packed: %v", key, err)
		}
	}
	p, err := PlanNamed(ctx, b, plan)
	if err != nil {
		return // nothing was ever there
	}
	does("retire", func() error { _, err := Retire(ctx, f, p, RetireOptions{Jobs: 1}); return err })
	for _, key := range h.keys {
		if h.get("from", key) != nil && !h.broken() && !h.hidden(key) {
			h.breaks("%s is not retired", key)
		}
	}
	does("compact", func() error {
		_, err := Compact(ctx, f, p, CompactOptions{Dead: -1, Yes: true})
		if err == nil {
			_, err = Work(ctx, f, WorkOptions{Jobs: 1})
		}
		time.Sleep(8 * day)
		return err
	})
	does("tidy", func() error { _, _, err := Tidy(ctx, f, p, grace); return err })
	does("gc", func() error { _, err := b.GC(ctx, grace, false); return err })
	does("rebuild", h.rebuilt)
	does("plan after that", func() error {
		b, err := h.open(h.ctx, c.name, book.Options{Write: true})
		if err != nil {
			return err
		}
		f, s := Fleet{b, &line{w: h.world}}, h.spec()
		s.Target = scheme + "://out/again.caf"
		for range 3 {
			if _, err := MakePlan(ctx, f, s, nil); err != nil {
				return err
			}
			if _, err := Work(ctx, f, WorkOptions{Jobs: 1}); err != nil {
				return err
			}
			time.Sleep(8 * day)
		}
		p, err := PlanNamed(ctx, b, s.Target)
		if err == nil {
			_, err = Compact(ctx, f, p, CompactOptions{Yes: true})
		}
		return err
	})
}

// hidden reports whether a service says that a key has not changed, although it has: its ETag is the same, and its
// time in seconds.
func (h *history) hidden(key string) bool {
	l := h.lives[key]
	for _, x := range l.all {
		if x != l.is && x.etag == l.is.etag && !l.is.at.After(x.at) {
			return true
		}
	}
	return false
}

// rebuilt makes the catalogue again from what lies beside the archives.
func (h *history) rebuilt() error {
	for _, name := range h.names("out", "set.catalog/") {
		h.remove("out", name)
	}
	h.again, h.copies[0].watched = true, nil
	st := simulated{h.world, "out"}
	b, err := book.Create(h.ctx, st, "set.catalog")
	if err != nil {
		return err
	}
	all, _, err := book.Records(h.ctx, st, "", func(name string) bool { return format.All().ByExtension(name) != nil })
	if err == nil {
		err = b.Follow(h.ctx, all)
	}
	for _, r := range all {
		var s survey.Survey
		if err == nil && r.Archive != "" {
			s, err = survey.Open(h.ctx, st, strings.TrimPrefix(r.Archive, scheme+"://out/"), catalog.Archive{}, holdall.OpenOptions{})
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
				continue
			}
			if err == nil {
				s.Roots = r.Roots
				_, err = b.Add(h.ctx, catalog.Addition{Archive: s.Archive, Rows: r.Numbered(s.Rows(h.ctx, nil))})
				err = errors.Join(err, s.In.Close())
			}
		}
		for _, a := range r.Dropped {
			if _, rerr := b.Remove(h.ctx, a); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = cmp.Or(err, rerr)
			}
		}
		if len(r.Deleted) > 0 && err == nil {
			_, err = b.Do(h.ctx, book.Step{Rows: r.Deletions})
		}
	}
	return err
}
