package blocks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/web"
)

// asked has a process of this test read objects through a cache.
const asked = "HOLDALL_TEST_BLOCKS"

func TestMain(m *testing.M) {
	if how := os.Getenv(asked); how != "" {
		var w work
		err := json.Unmarshal([]byte(how), &w)
		if err == nil {
			err = w.do(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// content returns what an object has in a version.
func content(version string, size int) []byte {
	var seed [32]byte
	copy(seed[:], version)
	b := make([]byte, size)
	rand.NewChaCha8(seed).Read(b)
	return b
}

// A server has one object, and counts how often each block of it is requested.
type server struct {
	*httptest.Server
	version atomic.Pointer[string]
	size    int

	mu      sync.Mutex
	onFetch func()
	blocks  map[int64]int
	fetches int
}

func serve(t testing.TB, size int) *server {
	s := &server{size: size, blocks: map[int64]int{}, onFetch: func() {}}
	v := "one"
	s.version.Store(&v)
	var all sync.Map
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil && to > from {
			s.mu.Lock()
			for b := from / block; b <= to/block; b++ {
				s.blocks[b]++
			}
			s.fetches++
			then := s.onFetch
			s.mu.Unlock()
			then()
		}
		v := *s.version.Load()
		b, ok := all.Load(v)
		if !ok {
			b, _ = all.LoadOrStore(v, content(v, size))
		}
		if v != "" {
			w.Header().Set("ETag", `"`+v+`"`)
		}
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(b.([]byte)))
	}))
	t.Cleanup(s.Close)
	return s
}

// then has a function called at each request for more than a byte.
func (s *server) then(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onFetch = f
}

// fetched returns how many requests for more than a byte there were since the last call.
func (s *server) fetched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.fetches
	s.fetches = 0
	return n
}

// work is what a process reads.
type work struct {
	URL     string
	Cache   Cache
	Version string
	Size    int
	Passes  int
	Threads int
}

func openWeb(ctx context.Context, url string, c *Cache) (store.Object, error) {
	st, name, err := web.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return Wrap(st, c).Open(ctx, name)
}

// do reads all of the object in each pass, in runs in any order, and compares it.
func (w work) do(ctx context.Context) error {
	want := content(w.Version, w.Size)
	o, err := openWeb(ctx, w.URL, &w.Cache)
	if err != nil {
		return err
	}
	defer o.Close()
	if _, err := o.Info(ctx); err != nil {
		return err
	}
	for range w.Passes {
		const step = 100_000
		order := make(chan int, w.Size/step+1)
		for _, i := range rand.Perm(cap(order)) {
			order <- i * step
		}
		close(order)
		errs := make([]error, max(w.Threads, 1))
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				for off := range order {
					p := make([]byte, min(step*(1+rand.IntN(5)), w.Size-off))
					if err := o.ReadAt(ctx, p, int64(off)); err != nil {
						errs[i] = err
					} else if !bytes.Equal(p, want[off:][:len(p)]) {
						errs[i] = fmt.Errorf("wrong bytes in %d at %d", len(p), off)
					}
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// process starts another process for work.
func process(t *testing.T, w work) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	how, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asked+"="+string(how)), &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// sizeOf returns the size of all files in a folder.
func sizeOf(t testing.TB, dir string) (n int64) {
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range all {
		if fi, err := e.Info(); err == nil {
			n += fi.Size()
		}
	}
	return n
}

// Sixteen processes read a set that fits, four times each.
func TestProcessesFetchEachBlockOnce(t *testing.T) {
	s := serve(t, 20<<20+12345)
	c := Cache{Dir: t.TempDir(), Size: 24 << 20}
	s.then(func() {
		if n := sizeOf(t, c.Dir); n > c.Size {
			t.Errorf("%d bytes, may have %d", n, c.Size)
		}
	})
	w := work{s.URL + "/x", c, "one", s.size, 4, 2}
	var wg sync.WaitGroup
	for range testkit.Rounds(t, 16) {
		cmd, out := process(t, w)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	if want := s.size/block + 1; len(s.blocks) != want {
		t.Errorf("%d blocks were requested, expected %d", len(s.blocks), want)
	}
	for b, n := range s.blocks {
		if n != 1 {
			t.Errorf("block %d was requested %d times", b, n)
		}
	}
	s.mu.Unlock()
	s.fetched()
	if err := w.do(t.Context()); err != nil || s.fetched() != 0 {
		t.Errorf("%v, or requests", err)
	}
	u, err := c.Usage(t.Context())
	if err != nil || u.Size != sizeOf(t, c.Dir) || u.Blocks != int64(len(s.blocks)) || u.Limit != c.Size {
		t.Errorf("%+v, %v", u, err)
	}
}

// The set is larger than the cache, so segments are removed all the time.
func TestKilledProcessesLeaveNothingWrong(t *testing.T) {
	s := serve(t, 20<<20)
	c := Cache{Dir: t.TempDir(), Size: 16 << 20}
	kills := 200
	if testing.Short() {
		kills = 20
	}
	var mu sync.Mutex
	running := map[*exec.Cmd]bool{}
	s.then(func() {
		if n := sizeOf(t, c.Dir); n > c.Size {
			t.Errorf("%d bytes, may have %d", n, c.Size)
		}
		mu.Lock()
		defer mu.Unlock()
		for cmd, alive := range running { // in any order
			if alive && kills > 0 && rand.IntN(8) == 0 {
				_ = cmd.Process.Kill()
				running[cmd] = false
				kills--
			}
			break
		}
	})
	w := work{s.URL + "/x", c, "one", s.size, 1000, 4}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				mu.Lock()
				if kills == 0 {
					mu.Unlock()
					return
				}
				cmd, out := process(t, w)
				running[cmd] = true
				mu.Unlock()
				_ = cmd.Wait()
				if out.Len() > 0 {
					t.Error(out)
				}
				mu.Lock()
				delete(running, cmd)
				for cmd, alive := range running {
					if alive && kills == 0 {
						_ = cmd.Process.Kill()
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	w.Passes = 1
	if err := w.do(t.Context()); err != nil {
		t.Error(err)
	}
	// What was left behind is gone, and a set that fits is kept.
	w.Size = 12 << 20
	s = serve(t, w.Size)
	w.URL = s.URL + "/y"
	for pass := range 2 {
		err := w.do(t.Context())
		if n := s.fetched(); err != nil || pass > 0 && n != 0 {
			t.Errorf("pass %d: %d requests, %v", pass, n, err)
		}
	}
	if n := sizeOf(t, c.Dir); n > c.Size {
		t.Errorf("%d bytes, may have %d", n, c.Size)
	}
}

func TestDamageIsAMiss(t *testing.T) {
	s := serve(t, 3<<20+77)
	c := Cache{Dir: t.TempDir(), Size: leastSize}
	w := work{s.URL + "/x", c, "one", s.size, 1, 1}
	if err := w.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range testkit.Rounds(t, 300) {
		files, _ := filepath.Glob(filepath.Join(c.Dir, "[bs]*[e0-9a-f]"))
		name := files[rand.IntN(len(files))]
		b, err := os.ReadFile(name)
		if err != nil || len(b) == 0 {
			t.Fatal(name, len(b), err)
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := rand.IntN(len(b))
		switch {
		case filepath.Base(name) != "blocks.table":
		case rand.IntN(2) == 0:
			at = 16 + rand.IntN(slotsAt-16) // not in the edition
		default:
			for range 10_000 { // in a slot
				if at = slotsAt + rand.IntN(len(b)-slotsAt); b[at] != 0 {
					break
				}
			}
		}
		if _, err := f.WriteAt([]byte{b[at] ^ byte(1+rand.IntN(255))}, int64(at)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := w.do(t.Context()); err != nil {
			t.Fatalf("%s changed at %d: %v", name, at, err)
		}
	}
	// What replaces the damaged blocks may take the room of others. A set that fits is whole after a few passes.
	s.fetched()
	for pass := 0; ; pass++ {
		if err := w.do(t.Context()); err != nil || pass == 8 {
			t.Fatalf("it does not recover: %v", err)
		}
		if s.fetched() == 0 {
			break
		}
	}
}

func TestVersionsDoNotMix(t *testing.T) {
	s := serve(t, 2<<20)
	c := Cache{Dir: t.TempDir()}
	w := work{s.URL + "/x", c, "one", s.size, 2, 1}
	if err := w.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := openWeb(t.Context(), w.URL, &c)
	if err == nil {
		_, err = old.Info(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	two := "two"
	s.version.Store(&two)
	w.Version = two
	if err := w.do(t.Context()); err != nil {
		t.Error(err)
	}
	p := make([]byte, 1000)
	if err := old.ReadAt(t.Context(), p, 300_000); err != nil || !bytes.Equal(p, content("one", s.size)[300_000:][:1000]) {
		t.Errorf("the version that is open: %v", err)
	}
	// A query may select another object.
	st, _, err := web.Open(t.Context(), s.URL+"/x?a")
	if err != nil {
		t.Fatal(err)
	}
	if can := st.Can(); can.Identity("x") == can.Address("x") {
		t.Error("the query is not part of the identity")
	}
}

// A date does not identify bytes.
func TestWithoutETagNothingIsKept(t *testing.T) {
	s := serve(t, 1<<20)
	v := ""
	s.version.Store(&v)
	c := Cache{Dir: t.TempDir()}
	if err := (work{s.URL + "/x", c, v, s.size, 2, 1}).do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u, err := c.Usage(t.Context()); u.Blocks != 0 || err != nil {
		t.Error(u, err)
	}
}

// A folder that cannot be used is as none, and nothing in it is changed.
func TestReadsDoNotNeedTheCache(t *testing.T) {
	s := serve(t, 1<<20)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	other := filepath.Join(dir, "other", "blocks.table")
	var id [16]byte
	h := newHead(leastSize, id)
	later := append(h.header(), h.state()...)
	later[8]++
	os.Mkdir(filepath.Dir(other), 0o777)
	for name, b := range map[string][]byte{file: []byte("text"), other: later} {
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []Cache{{Dir: file}, {Dir: filepath.Dir(other)}, {Dir: dir, Size: leastSize - 1}, {Dir: dir, Size: mostSize + 1}} {
		if err := (work{s.URL + "/x", c, "one", s.size, 2, 1}).do(t.Context()); err != nil {
			t.Error(c, err)
		}
		if err := c.Check(t.Context()); err == nil || strings.Contains(err.Error(), "\n") {
			t.Error(c, err)
		}
	}
	if b, err := os.ReadFile(other); !bytes.Equal(b, later) {
		t.Error("another's table was changed", err)
	}
}

func TestSizes(t *testing.T) {
	for _, limit := range []int64{leastSize, leastSize + 1, 100 << 20, 1 << 30, usual, 1 << 40, mostSize} {
		h := newHead(limit, [16]byte{255})
		all := h.size() + int64(h.segments)*h.segment
		if all > limit || limit-all >= int64(h.segments) || h.segment < block {
			t.Errorf("%d bytes: %+v takes %d", limit, h, all)
		}
		var b [slotsAt]byte
		copy(b[:], append(h.header(), h.state()...))
		if got, err := parseHead(&b); got != h || err != nil {
			t.Errorf("%+v, expected %+v, %v", got, h, err)
		}
	}
}

// A cache of another size is emptied; one of which no size is said stays.
func TestAnotherSizeEmptiesTheCache(t *testing.T) {
	s := serve(t, 1<<20)
	c := Cache{Dir: t.TempDir(), Size: 32 << 20}
	for _, tt := range []struct{ size, blocks, limit int64 }{{32 << 20, 4, 32 << 20}, {0, 4, 32 << 20}, {20 << 20, 0, 20 << 20}} {
		if tt.blocks > 0 {
			if err := (work{s.URL + "/x", c, "one", s.size, 1, 1}).do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.Size = tt.size
		if u, err := c.Usage(t.Context()); err != nil || u.Blocks != tt.blocks || u.Limit != tt.limit {
			t.Errorf("%+v: %+v, %v", tt, u, err)
		}
	}
	if u, err := c.Clear(t.Context()); err != nil || u.Blocks != 0 {
		t.Error(u, err)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	s := serve(t, 1<<20)
	c := Cache{Dir: t.TempDir()}
	o, err := openWeb(t.Context(), s.URL+"/x", &c)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	info, err := o.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, _, _ := o.(*object).block(info, 0)
	release, _, err := o.(*object).f.hold(t.Context(), k, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.ReadAt(ctx, make([]byte, 10), 0) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
	if err := o.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
		t.Error(err)
	}
}

// Ends and runs that cross blocks are the same as without a cache.
func TestEndsAndRuns(t *testing.T) {
	s := serve(t, 1<<20+5)
	want := content("one", s.size)
	c := Cache{Dir: t.TempDir()}
	for range 2 {
		o, err := openWeb(t.Context(), s.URL+"/x", &c)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p := make([]byte, 300_000)
			if n, err := storekit.ReadTail(t.Context(), o, p); err != nil || !bytes.Equal(p[:n], want[s.size-n:]) {
				t.Error("tail", n, err)
			}
			if n, err := storekit.ReadHead(t.Context(), o, p); err != nil || !bytes.Equal(p[:n], want[:n]) {
				t.Error("head", n, err)
			}
			p = make([]byte, s.size)
			if err := o.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, want) {
				t.Error("whole", err)
			}
			if err := o.ReadAt(t.Context(), p, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error("past the end", err)
			}
		}
		o.Close()
		if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err == nil {
			t.Error("it reads after Close")
		}
	}
}

// restarted forgets what this process has open, as another process has nothing open.
func restarted() {
	opened.Lock()
	defer opened.Unlock()
	opened.in = nil
}

// After a power failure, the table may be older than the segments, or short.
func TestWhatWasLeftIsRemoved(t *testing.T) {
	s := serve(t, 1<<20)
	c := Cache{Dir: t.TempDir(), Size: leastSize}
	w := work{s.URL + "/x", c, "one", s.size, 1, 1}
	for _, harm := range []func() error{
		func() error {
			return os.WriteFile(filepath.Join(c.Dir, "segment-00000001"), make([]byte, 1<<20), 0o600)
		},
		func() error { return os.Truncate(filepath.Join(c.Dir, "blocks.table"), int64(rand.IntN(20_000))) },
		func() error { return os.Truncate(filepath.Join(c.Dir, "blocks.table"), 1<<20) },
		func() error { return os.RemoveAll(c.Dir) },
		func() error { return os.Remove(filepath.Join(c.Dir, "blocks.table")) },
		func() error { return os.Remove(filepath.Join(c.Dir, "blocks.lock")) },
	} {
		if err := w.do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		restarted()
		if err := w.do(t.Context()); err != nil {
			t.Error(err)
		}
		u, err := c.Usage(t.Context())
		if n := sizeOf(t, c.Dir); err != nil || n != u.Size || n > 1<<20+100_000 || u.Blocks != 4 {
			t.Errorf("%d bytes, %+v, %v", n, u, err)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the test vectors")

// A vector is a cache of two blocks, as testdata/vectors.json has it. Byte i of each object is i*31>>3.
type vector struct {
	ID      string        `json:"id"`
	Limit   int64         `json:"limit"`
	Header  string        `json:"header"`
	State   string        `json:"state"`
	Blocks  []vectorBlock `json:"blocks"`
	Segment string        `json:"segment"`
	SHA256  string        `json:"segment_sha256"`
}

type vectorBlock struct {
	Identity string   `json:"identity"`
	Version  string   `json:"version"`
	Size     int64    `json:"size"`
	Block    int64    `json:"block"`
	Key      string   `json:"key"`
	Lock     int64    `json:"lock"`
	Buckets  [2]int64 `json:"buckets"`
	SlotAt   int64    `json:"slot_at"`
	Slot     string   `json:"slot"`
}

func TestVectors(t *testing.T) {
	v := vector{ID: "0123456789abcdeffedcba9876543210", Limit: 100e6, Blocks: []vectorBlock{
		{Identity: "https://example.org/a.tar?x=1", Version: `"5d41402a"`, Size: 300_000, Block: 1},
		{Identity: "https://bucket.example.org/b", Version: `"1"`, Size: 5, Block: 0},
	}}
	f, err := open(t.Context(), t.TempDir(), v.Limit)
	if err != nil {
		t.Fatal(err)
	}
	var id [16]byte
	hex.Decode(id[:], []byte(v.ID))
	h := newHead(v.Limit, id)
	if _, err := f.table.WriteAt(append(h.header(), h.state()...), 0); err != nil {
		t.Fatal(err)
	}
	for i := range v.Blocks {
		b := &v.Blocks[i]
		o := &object{identity: b.Identity}
		k, from, end := o.block(store.Info{Version: b.Version, Size: b.Size}, b.Block)
		p := make([]byte, end-from)
		for i := range p {
			p[i] = byte((from + int64(i)) * 31 >> 3)
		}
		f.write(t.Context(), k, p)
		b.Key, b.Lock = hex.EncodeToString(k[:]), lockOf(k)
		b.Buckets[0], b.Buckets[1] = h.at(k)
		table, err := os.ReadFile(f.table.Name())
		if err != nil || int64(len(table)) != h.size() {
			t.Fatal(len(table), err)
		}
		b.SlotAt = int64(bytes.Index(table, k[:]))
		b.Slot = hex.EncodeToString(table[b.SlotAt:][:record])
		v.Header, v.State = hex.EncodeToString(table[:record]), hex.EncodeToString(table[record:slotsAt])
		if got := make([]byte, len(p)); !f.read(k, got, 0, int64(len(p))) || !bytes.Equal(got, p) {
			t.Error("it is not read")
		}
	}
	v.Segment = segmentName(h.current)
	b, err := os.ReadFile(f.segment(h.current))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	v.SHA256 = hex.EncodeToString(sum[:])
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/vectors.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got)+"\n" {
		t.Errorf("%s, expected %s, %v", got, want, err)
	}
}

func FuzzTable(f *testing.F) {
	h := newHead(leastSize, [16]byte{1, 2, 3})
	s := slot{key: key{1}, segment: h.current, length: 3, crc: 5}
	f.Add(append(append(h.header(), h.state()...), bytes.Repeat(h.slot(s), 2*perSlots)...))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var top [slotsAt]byte
		n := copy(top[:], b)
		h, err := parseHead(&top)
		if err == nil && !bytes.Equal(h.header(), top[:record]) {
			t.Errorf("%x is read as %x", top[:record], h.header())
		}
		var two [2][bucket]byte
		n += copy(two[0][:], b[n:])
		copy(two[1][:], b[n:])
		if err != nil {
			h = newHead(leastSize, [16]byte{1})
		}
		for o := 0; o < bucket; o += record {
			if s, ok := h.parseSlot(two[0][o:][:record]); ok && s.off+int64(s.length) > h.segment {
				t.Errorf("%+v", s)
			}
		}
		first, second := h.at(key(two[0][:32]))
		if in, off := h.choose(key(two[0][:32]), two[0][:], two[1][:]); in > 1 || off < 0 || off >= bucket || max(first, second)+bucket > h.size() {
			t.Error(in, off, first, second)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s := serve(b, 64<<20)
	c := Cache{Dir: b.TempDir()}
	o, err := openWeb(b.Context(), s.URL+"/x", &c)
	if err == nil {
		_, err = o.Info(b.Context())
	}
	if err == nil {
		err = o.ReadAt(b.Context(), make([]byte, s.size), 0)
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{4 << 10, block, 4 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			p := make([]byte, n)
			for i := 0; b.Loop(); i++ {
				if err := o.ReadAt(b.Context(), p, int64(i*7919*block)%int64(s.size-n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
