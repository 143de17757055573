// Package fleet_test tortures the built command on versitygw, which keeps buckets as
// folders, and on PostgreSQL, all on this machine.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_S3_SERVER names the program that ../install s3 makes, and on PostgreSQL
// where HOLDALL_POSTGRES names its programs; ./check does both. HOLDALL_TORTURE is how
// many objects there are, if it says more than the tests do.
package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

var built string // the folder of the command

// program builds the command, once.
var program = sync.OnceValues(func() (name string, err error) {
	if built, err = os.MkdirTemp("", "holdall-torture-"); err != nil {
		return "", err
	}
	name = filepath.Join(built, "holdall")
	if said, err := exec.Command("go", "build", "-o", name, "github.com/holdall/holdall/cmd/holdall").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, said)
	}
	return name, nil
})

func TestMain(m *testing.M) {
	testkit.Main(m, func() error {
		if built == "" {
			return nil
		}
		return os.RemoveAll(built)
	})
}

// A site is a server of buckets, a proxy before it that makes it worse, and what is in
// the bucket from.
type site struct {
	t       *testing.T
	dir     string // of the buckets, which are folders
	direct  string // the server's address
	proxied string
	proxy   *proxy
	seed    uint64
	sizes   map[string]int // of the objects
	db, out string         // the catalogue, and the bucket of the archives, in which it is
	queue   string
}

func newSite(t *testing.T, seed uint64) *site {
	gateway := testkit.Needs(t, "HOLDALL_S3_SERVER")
	s := &site{t: t, dir: t.TempDir(), seed: seed, sizes: map[string]int{}}
	if err := os.Mkdir(filepath.Join(s.dir, "from"), 0o777); err != nil {
		t.Fatal(err)
	}
	addr, err := testkit.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := testkit.Start(exec.Command(gateway, "--port", addr, "--access", s3test.AccessKey, "--secret", s3test.Secret, "--quiet", "--keep-alive", "posix", "--sidecar", t.TempDir(), s.dir), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	s.direct = "http://" + addr
	s.worsen()
	s3test.Setenv(t, s.direct)
	return s
}

// worsen makes the proxy.
func (s *site) worsen() {
	s.proxy = newProxy(strings.TrimPrefix(s.direct, "http://"), s.seed)
	server := httptest.NewServer(s.proxy)
	s.t.Cleanup(server.Close)
	s.proxied = server.URL
}

// beside returns a site on the same server, with a proxy and a seed of its own.
func (s *site) beside(t *testing.T) *site {
	b := &site{t: t, dir: s.dir, direct: s.direct, seed: rand.Uint64()}
	b.worsen()
	return b
}

// A proxy hands requests on to a server, except for those that it refuses or breaks off. It also
// drops some of the server's answers.
type proxy struct {
	httputil.ReverseProxy
	worse atomic.Bool // it does

	mu   sync.Mutex
	r    *rand.Rand
	left int // requests until then is called
	then func()
	lied map[string]bool // objects of which a wrong body was handed on, once each: twice would be damage

	refused, cut, forgotten, broken, wrong atomic.Int64
}

// faults says how often it made things worse.
func (p *proxy) faults() string {
	return fmt.Sprintf("%d requests refused, %d cut, %d answers forgotten, %d broken off, %d bodies wrong", p.refused.Load(), p.cut.Load(), p.forgotten.Load(), p.broken.Load(), p.wrong.Load())
}

// lies reports whether the body of an answer is to be wrong: that of an original, now and then.
func (p *proxy) lies(r *http.Response) bool {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.Request.URL.Path, "/"), "/")
	if r.Request.Method != http.MethodGet || !strings.HasPrefix(bucket, "from") || key == "" || r.ContentLength < 1 || !p.chance(100) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.lied[r.Request.URL.Path]
	p.lied[r.Request.URL.Path] = true
	return !was
}

// A wrongBody has one bit that is not that of the server.
type wrongBody struct {
	io.ReadCloser
	at int64
}

func (b *wrongBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if 0 <= b.at && b.at < int64(n) {
		p[b.at] ^= 0x10
	}
	b.at -= int64(n)
	return n, err
}

var errForgotten = errors.New("forgotten")

func newProxy(addr string, seed uint64) *proxy {
	p := &proxy{r: rand.New(rand.NewPCG(seed, 1)), lied: map[string]bool{}}
	// The host is signed, so it stays the proxy's.
	p.Rewrite = func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", addr
		r.Out.URL.RawQuery = r.In.URL.RawQuery
	}
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	p.ModifyResponse = func(r *http.Response) error {
		switch {
		case p.chance(100):
			p.forgotten.Add(1)
			return errForgotten
		case p.chance(100):
			p.broken.Add(1)
			r.Body = &shortBody{r.Body, int64(p.upTo(2000))}
		case p.lies(r):
			p.wrong.Add(1)
			r.Body = &wrongBody{r.Body, int64(p.upTo(int(r.ContentLength)))}
		}
		return nil
	}
	p.ErrorLog = log.New(io.Discard, "", 0)
	p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) { panic(http.ErrAbortHandler) }
	return p
}

func (p *proxy) upTo(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.IntN(n)
}

func (p *proxy) chance(one int) bool { return p.worse.Load() && p.upTo(one) == 0 }

// after calls f when the nth request from now on comes, or a moment later. It takes the place of
// what an earlier call asked for.
func (p *proxy) after(n int, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.then = n, f
}

// count counts a request.
func (p *proxy) count() {
	p.mu.Lock()
	f, later := p.then, time.Duration(p.r.Int64N(int64(20*time.Millisecond)))
	if p.left--; p.left > 0 {
		f = nil
	}
	if f != nil {
		p.then = nil
	}
	p.mu.Unlock()
	switch {
	case f == nil:
	case later%2 == 0:
		f()
	default: // between requests
		time.AfterFunc(later, f)
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.count()
	switch {
	case p.chance(100):
		p.refused.Add(1)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		if r.Method != http.MethodHead {
			io.WriteString(w, "<Error><Code>SlowDown</Code><Message>please reduce your request rate</Message></Error>")
		}
	case p.chance(100):
		p.cut.Add(1)
		panic(http.ErrAbortHandler)
	default:
		p.ReverseProxy.ServeHTTP(w, r)
	}
}

// A shortBody breaks off.
type shortBody struct {
	io.ReadCloser
	left int64
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// content is what an object is made of.
func (s *site) content(name string) []byte {
	p := make([]byte, s.sizes[name])
	rand.NewChaCha8(sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(name), s.seed))).Read(p)
	return p
}

// fill puts n objects into the bucket from: most are small, some empty, and some are
// large enough for an upload in parts.
func (s *site) fill(n int) {
	r := rand.New(rand.NewPCG(s.seed, 2))
	names := make(chan string)
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprintf("d%02d/e%d/%06d", i%17, i%5, i)
		switch {
		case i%50 == 0:
			s.sizes[name] = 0
		case i%600 == 1 && i < 100_000:
			s.sizes[name] = 9<<20 + r.IntN(4<<20)
		default:
			s.sizes[name] = r.IntN(8000)
		}
	}
	st, err := bucket.New("from", "", bucket.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(s.t.Context())
	defer cancel(nil)
	for range 8 {
		wg.Go(func() {
			for name := range names {
				if err := storetest.Put(ctx, st, name, s.content(name)); err != nil {
					cancel(err)
				}
			}
		})
	}
	for name := range s.sizes {
		names <- name
	}
	close(names)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// command is the built one, talking to the proxy.
func (s *site) command(args ...string) *exec.Cmd {
	name, err := program()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+s.proxied, "HOLDALL_CATALOG="+s.db, "HOLDALL_QUEUE="+s.queue, "HOLDALL_FLEET_HASTE=2s")
	return cmd
}

// run runs the command to its end.
func (s *site) run(args ...string) string {
	s.t.Helper()
	cmd := s.command(args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	said, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("holdall %s: %v\n%s%s", strings.Join(args, " "), err, said, complaints.Bytes())
	}
	return string(said)
}

// Whatever is killed, each object is in exactly one recorded archive, with its bytes,
// and nothing else is left.
func TestFleetUnderTorture(t *testing.T) {
	objects, away := 1200, time.Second
	if n, err := strconv.Atoi(os.Getenv("HOLDALL_TORTURE")); err == nil && n > objects {
		objects, away = n, 30*time.Second
	}
	s := newSite(t, rand.Uint64())
	t.Logf("seed %d", s.seed)
	s.fill(objects)
	t.Run("sqlite", func(t *testing.T) {
		s.begin(t, filepath.Join(t.TempDir(), "queue.db"), "packed-one")
		s.torture(objects, nil)
	})
	t.Run("postgres", func(t *testing.T) {
		s.begin(t, pgtest.Database(t), "packed-two")
		s.torture(objects, func() error { return pgtest.Restart(away) })
	})
}

// begin makes s one of a test with a queue, a catalogue and a target of its own.
func (s *site) begin(t *testing.T, queue, out string) {
	s.t, s.queue, s.out, s.db = t, queue, out, "s3://"+out+"/x"+book.Suffix
	if err := os.Mkdir(filepath.Join(s.dir, out), 0o777); err != nil {
		t.Fatal(err)
	}
}

func (s *site) torture(objects int, restart func() error) {
	t := s.t
	began := time.Now()
	s.run("catalog", "init", "--catalog", s.db)
	s.proxy.worse.Store(true)
	planned := s.run("--json", "fleet", "plan", "s3://from", "-o", "s3://"+s.out+"/set.caf", "--chunk-objects", strconv.Itoa(max(objects/40, 25)), "--chunk-size", "20MB")

	var said lines
	defer func() {
		if t.Failed() {
			t.Logf("the workers said:\n%s", said.String())
		}
	}()
	type ended struct {
		i   int
		err error
	}
	ends := make(chan ended)
	var all [4]*exec.Cmd
	start := func(i int) {
		cmd := s.command("fleet", "work", "--workers", "2", "--tries", "30")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all[i] = cmd
		go func() { ends <- ended{i, cmd.Wait()} }()
	}
	for i := range all {
		start(i)
	}
	r := rand.New(rand.NewPCG(s.seed, 3))
	kills, working := 0, len(all)
	restarted := make(chan error, 1)
	refused := 0 // may be, to begin
	tick := make(chan struct{}, 1)
	next := func() {
		s.proxy.after(objects/40+r.IntN(objects/20), func() { tick <- struct{}{} })
	}
	next()
	// A fleet that hangs says nothing. How long it takes depends on the machine.
	quiet := time.NewTicker(5 * time.Minute)
	defer quiet.Stop()
	written := int64(-1)
	for working > 0 {
		select {
		case <-tick:
			i := r.IntN(len(all))
			if all[i] != nil && all[i].Process.Kill() == nil {
				kills++
			}
			if kills == 6 && restart != nil {
				f := restart
				restart = nil
				refused = 1000
				go func() { restarted <- f() }()
			}
			if kills < 15 {
				next()
			}
		case <-quiet.C:
			if now := said.written(); now != written {
				written = now
				continue
			}
			t.Errorf("not done after %v, with %d workers killed:\n%s", time.Since(began), kills, s.run("fleet", "status"))
			for _, cmd := range all {
				if cmd != nil {
					_ = cmd.Process.Signal(syscall.SIGQUIT) // it says what it waits for
				}
			}
			for ; working > 0; working-- {
				<-ends
			}
			return
		case e := <-ends:
			var exit *exec.ExitError
			if errors.As(e.err, &exit) && (!exit.Exited() || refused > 0 && exit.ExitCode() == 2) {
				// It was killed, or began while the database was away, which is an error.
				if exit.Exited() {
					refused--
					time.Sleep(200 * time.Millisecond)
				}
				start(e.i)
				continue
			}
			if e.err != nil {
				t.Errorf("a worker that nobody killed: %v", e.err)
			}
			all[e.i] = nil
			working--
		}
	}
	s.proxy.worse.Store(false)
	s.proxy.after(0, nil)
	if restart == nil && strings.HasPrefix(s.queue, "postgres:") {
		if err := <-restarted; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s; %d workers killed; %s; in %v", strings.TrimSpace(planned), kills, s.proxy.faults(), time.Since(began).Round(100*time.Millisecond))
	if kills < 5 {
		t.Errorf("only %d workers were killed: that is no torture", kills)
	}
	s.check(planned)
}

// book opens the catalogue, without the proxy.
func (s *site) book() *book.Book {
	s.t.Helper()
	st, name, err := store.OpenAddress(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := book.Open(s.t.Context(), st, name, book.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { b.Close() })
	return b
}

// statusOf is what fleet status says of the plan.
type statusOf struct {
	Archives int
	Objects  int
	Waiting  struct{ Chunks int }
	Left     map[string]int
	Jobs     map[string]map[string]int
	Problems []struct{ Problem string }
}

// finished checks that nothing waits, nothing is left, and that no job is handed out.
func (s *site) finished() (is statusOf) {
	s.t.Helper()
	said := s.run("--json", "fleet", "status")
	if err := json.Unmarshal([]byte(said), &is); err != nil {
		s.t.Fatalf("%v: %s", err, said)
	}
	left := 0
	for _, n := range is.Left {
		left += n
	}
	if is.Waiting.Chunks != 0 || left != 0 || len(is.Jobs) != 0 || len(is.Problems) != 0 {
		s.t.Errorf("it is not finished: %s", said)
	}
	return is
}

// files returns what lies in the bucket of archives, by name, with sizes: archives, what the catalogue put
// beside them, and the catalogue. Markers do not count.
func (s *site) files(b *book.Book) (archives, beside, catalogue map[string]int64) {
	archives, beside, catalogue = map[string]int64{}, map[string]int64{}, map[string]int64{}
	root := filepath.Join(s.dir, s.out)
	folders, suffix := b.Beside()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || book.IsMarker(path) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		of := archives
		if strings.HasSuffix(name, suffix) {
			of = beside
		}
		for _, at := range folders {
			if strings.HasPrefix("s3://"+s.out+"/"+name, at+"/") {
				of = catalogue
			}
		}
		of[name] = info.Size()
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return archives, beside, catalogue
}

// archiveRE is how archives of a plan are named: by its listing, and a number.
var archiveRE = regexp.MustCompile(`^set-[0-9]{5,}-[0-9]{5,}\.caf$`)

// tidy checks that nothing lies in the bucket of archives that nobody knows of: archives that are not
// recorded, what lies beside others, lists of chunks, uploads.
func (s *site) tidy(b *book.Book, recorded []catalog.Archive) {
	t, ctx := s.t, s.t.Context()
	t.Helper()
	known := map[string]bool{}
	for _, a := range recorded {
		known[strings.TrimPrefix(a.Address, "s3://"+s.out+"/")] = true
	}
	archives, beside, catalogue := s.files(b)
	for name := range archives {
		if !known[name] || !archiveRE.MatchString(name) {
			t.Errorf("%s is in the bucket, and nobody knows of it", name)
		}
	}
	_, suffix := b.Beside()
	for name := range beside {
		if !known[strings.TrimSuffix(name, suffix)] {
			t.Errorf("%s is left", name)
		}
	}
	for name := range catalogue {
		if kind := path.Base(path.Dir(path.Dir(name))); kind == "work" || kind == "left" {
			t.Errorf("%s is left", name)
		}
	}
	out, err := bucket.New(s.out, "", bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for u, err := range out.Unfinished(ctx, "") {
		t.Errorf("the upload %s of %s is left (%v)", u.ID, u.Name, err)
	}
	if said := s.run("catalog", "check", "-q"); said != "" {
		t.Errorf("catalog check says: %s", said)
	}
}

// check compares what is recorded with what there was.
func (s *site) check(planned string) {
	t, ctx := s.t, s.t.Context()
	var p struct{ Chunks, Objects int }
	if err := json.Unmarshal([]byte(planned), &p); err != nil {
		t.Fatal(err)
	}
	if is := s.finished(); is.Archives != p.Chunks || is.Objects != p.Objects || p.Objects != len(s.sizes) {
		t.Errorf("%+v, of %+v", is, p)
	}
	b := s.book()
	archives, err := b.Archives(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int, len(s.sizes))
	for _, a := range archives {
		name, ok := strings.CutPrefix(a.Address, "s3://")
		if !ok {
			t.Fatalf("archive at %s", a.Address)
		}
		in, err := holdall.Open(ctx, filepath.Join(s.dir, name), holdall.OpenOptions{})
		if err != nil {
			t.Errorf("%s is recorded: %v", a.Address, err)
			continue
		}
		for l, err := range b.Locations(ctx, a) {
			if err != nil {
				t.Fatal(err)
			}
			if found[l.Path]++; !s.holds(ctx, in, l.Path) {
				t.Errorf("%s of %s: expected its bytes", l.Path, a.Address)
			}
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	for name := range s.sizes {
		if found[name] != 1 {
			t.Errorf("%s is recorded %d times", name, found[name])
		}
	}
	if len(found) != len(s.sizes) {
		t.Errorf("%d paths are recorded, of %d", len(found), len(s.sizes))
	}
	s.tidy(b, archives)
}

// holds reports whether an archive has an object with its bytes.
func (s *site) holds(ctx context.Context, in *holdall.Archive, name string) bool {
	e, err := in.Lookup(ctx, name)
	if err != nil {
		s.t.Error(err)
		return false
	}
	r, err := in.OpenEntry(ctx, e)
	if err != nil {
		s.t.Error(err)
		return false
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		s.t.Error(err)
	}
	return bytes.Equal(b.Bytes(), s.content(name))
}

// lines keeps the last of what several say.
type lines struct {
	mu sync.Mutex
	b  []byte
	n  int64 // of all that was written
}

func (l *lines) written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += int64(len(p))
	l.b = append(l.b, p...)
	if over := len(l.b) - 64<<10; over > 1<<20 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
