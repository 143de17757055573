package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// Objects of 4 KiB are written, read, and overwritten by clients of S3, whose requests are signed before the clock
// starts. They know just enough of HTTP: the clients share the processors with the servers.

const (
	smallSize   = 4 << 10
	gateClients = 16
	gateBucket  = "photos"
	pace        = 1000 // PUTs in a second, so that no processor is the limit
)

// An s3Server is a server of buckets in a folder.
type s3Server struct {
	name, missing string // missing is why it is not here
	start         func(s *suite, dir string) (*served, error)
}

var ourGateway = s3Server{"holdall serve --s3 --write", "", func(s *suite, dir string) (*served, error) {
	return s.startServer("serving buckets", s.bin, "serve", "--addr", "127.0.0.1:0", "--s3", "--s3-addr", "127.0.0.1:0", "--s3-key", benchKey+":"+benchSecret, "--write", dir)
}}

// gatePeers are the peers of a gateway.
func gatePeers() []s3Server {
	one := func(name, variable, program string, args func(addr, dir string) []string) s3Server {
		p := s3Server{name: name}
		if given := os.Getenv(variable); given != "" {
			program = given
		}
		if !have(program) {
			p.missing = fmt.Sprintf("%s is not installed, and $%s does not name it", name, variable)
		}
		p.start = func(s *suite, dir string) (*served, error) {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return nil, err
			}
			return s.startQuiet(func(addr string) *exec.Cmd {
				cmd := exec.CommandContext(s.ctx, program, args(addr, dir)...)
				cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+benchKey, "MINIO_ROOT_PASSWORD="+benchSecret, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
				return cmd
			})
		}
		return p
	}
	return []s3Server{
		one("MinIO", "HOLDALL_MINIO", "minio", func(addr, dir string) []string { return []string{"server", "--quiet", "--address", addr, dir} }),
		one("versitygw", "HOLDALL_S3_SERVER", "versitygw", func(addr, dir string) []string {
			return []string{"--port", addr, "--access", benchKey, "--secret", benchSecret, "--quiet", "--keep-alive", "posix", dir}
		}),
	}
}

// cpu is what a running server has taken until now.
func (v *served) cpu() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.cmd.Process.Pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// A smallRequest is one of an object.
type smallRequest struct {
	head    []byte
	content uint64 // what the object has, or is to have
	puts    bool
}

// request signs a request. The address is http://HOST:PORT.
func request(url, method, path string, content uint64) (smallRequest, error) {
	r, err := http.NewRequest(method, url+"/"+gateBucket+path, nil)
	if err != nil {
		return smallRequest{}, err
	}
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	r = signer.SignV4(*r, benchKey, benchSecret, "", "us-east-1")
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, r.URL.RequestURI(), r.URL.Host)
	puts := method == http.MethodPut
	if puts {
		size := smallSize
		if path == "" {
			size = 0 // it makes the bucket
		}
		r.Header.Set("Content-Length", strconv.Itoa(size))
	}
	err = r.Header.Write(&b)
	b.WriteString("\r\n")
	return smallRequest{b.Bytes(), content, puts && path != ""}, err
}

// fillSmall makes the content of an object.
func fillSmall(p []byte, content uint64) {
	binary.LittleEndian.PutUint64(p, content)
	binary.LittleEndian.PutUint64(p[len(p)-8:], ^content)
}

// A wire is a connection to a server.
type wire struct {
	addr string
	c    net.Conn
	r    *bufio.Reader
	body []byte
}

// do sends a request, and checks the answer.
func (w *wire) do(q smallRequest) (err error) {
	if w.c == nil {
		if w.c, err = net.Dial("tcp", w.addr); err != nil {
			return err
		}
		w.r = bufio.NewReaderSize(w.c, 16<<10)
	}
	out := net.Buffers{q.head}
	if q.puts {
		fillSmall(w.body, q.content)
		out = append(out, w.body)
	}
	if _, err := out.WriteTo(w.c); err != nil {
		return err
	}
	status, length, last := "", 0, false
	for {
		line, err := w.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		text := strings.TrimSpace(string(line))
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(text, ": ")
		switch {
		case status == "":
			_, status, _ = strings.Cut(text, " ")
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.Atoi(value); err != nil {
				return err
			}
		case strings.EqualFold(name, "Connection"):
			last = strings.EqualFold(value, "close")
		}
	}
	got := make([]byte, length)
	if _, err := io.ReadFull(w.r, got); err != nil {
		return err
	}
	if last {
		err, w.c = w.c.Close(), nil
	}
	if !strings.HasPrefix(status, "200") {
		return fmt.Errorf("%s: %.300s", status, got)
	}
	if bytes.HasPrefix(q.head, []byte("GET /"+gateBucket+"/")) {
		want := make([]byte, smallSize)
		copy(want, w.body)
		fillSmall(want, q.content)
		if !bytes.Equal(got, want) {
			return errors.New("an object is not what was written")
		}
	}
	return err
}

// A phase is a part of what was measured of a server.
type phase struct {
	figures
	n   int
	p99 time.Duration
}

// load has clients send requests, each after the answer to the one before. With a rate, that many are sent in a second.
func (v *served) load(all []smallRequest, clients, rate int) (p phase, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	took, errs := make([]time.Duration, len(all)), make([]error, clients)
	before, start := v.cpu(), time.Now()
	for k := range clients {
		wg.Go(func() {
			w := &wire{addr: strings.TrimPrefix(v.url, "http://"), body: appendNoise(nil, random('g', 0), smallSize)}
			for errs[k] == nil {
				i := next.Add(1) - 1
				if i >= int64(len(all)) {
					break
				}
				if rate > 0 {
					time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				}
				began := time.Now()
				errs[k] = w.do(all[i])
				took[i] = time.Since(began)
			}
			if w.c != nil {
				w.c.Close()
			}
		})
	}
	wg.Wait()
	p.wall, p.cpu, p.n, p.p99 = time.Since(start), v.cpu()-before, len(all), rankOf(took, 99)
	return p, errors.Join(errs...)
}

// rankOf returns what a share of all, in percent, does not exceed.
func rankOf(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}

// loneSyncs measures single writes of 4 KiB with fdatasync, to a file with room.
func loneSyncs(dir string, n int) (took []time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "lone"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	p := appendNoise(nil, random('f', 0), smallSize)
	if err := errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, int64(n*smallSize)), f.Sync()); err != nil {
		return nil, err
	}
	for i := range n {
		start := time.Now()
		if _, err := f.WriteAt(p, int64(i*smallSize)); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// A life is what was measured of a server from its first object to the end.
type life struct {
	phases          map[string]*phase
	lone            time.Duration // p99 of a lone fdatasync
	stored, written float64       // for each byte of content
	rss             int64
}

// lives are those that were measured, for all rows.
var lives = map[string]*life{}

// life measures a server.
func (s *suite) life(of s3Server) (*life, error) {
	if l := lives[of.name]; l != nil {
		return l, nil
	}
	l := &life{phases: map[string]*phase{}}
	for range s.n {
		if err := s.live(of, l); err != nil {
			return nil, err
		}
	}
	lives[of.name] = l
	return l, nil
}

func keyOf(i int) string { return fmt.Sprintf("/2026/%03d/%06d.jpg", i%1000, i) }

// live has a server live once: all objects are written, read, and written in part by clients that also read; the
// server ends; then all are read from where they are now, half of them are overwritten, and what is dead is removed.
func (s *suite) live(of s3Server, l *life) (err error) {
	n, dir := s.sizes.sFiles, filepath.Join(s.out, "life")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	syncDisks()
	v, err := of.start(s, dir)
	if err != nil {
		return err
	}
	defer func() {
		if v != nil {
			_, eerr := v.end()
			err = errors.Join(err, eerr)
		}
	}()
	contents, wrote, r := make([]uint64, 0, 2*n), int64(0), random('l', n)
	run := func(name string, many, rate int, next func(i int) (method string, object int)) error {
		all := make([]smallRequest, many)
		for i := range all {
			method, k := next(i)
			if method == http.MethodPut {
				if k == len(contents) {
					contents = append(contents, 0)
				}
				contents[k] = r.Uint64()
				wrote += smallSize
			}
			if all[i], err = request(v.url, method, keyOf(k), contents[k]); err != nil {
				return err
			}
		}
		p, err := v.load(all, gateClients, rate)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", of.name, name, err)
		}
		if old := l.phases[name]; old != nil {
			p.figures, p.p99 = *old.best(p.figures), min(p.p99, old.p99)
		}
		l.phases[name] = &p
		return nil
	}
	putNew := func(int) (string, int) { return http.MethodPut, len(contents) }
	get := func(int) (string, int) { return http.MethodGet, r.IntN(n) }
	bucket, err := request(v.url, http.MethodPut, "", 0)
	if err == nil {
		_, err = v.load([]smallRequest{bucket}, 1, 0)
	}
	if err == nil {
		err = run("warm", n/20, 0, putNew)
	}
	if err != nil {
		return err
	}
	alone, err := loneSyncs(s.out, 1000)
	if err == nil {
		err = run("PUT", n, 0, putNew)
	}
	if err != nil {
		return err
	}
	after, err := loneSyncs(s.out, 1000)
	if err != nil {
		return err
	}
	if p := rankOf(append(alone, after...), 99); l.lone == 0 || p < l.lone {
		l.lone = p
	}
	if err := run("GET", n, 0, get); err != nil {
		return err
	}
	if err := run("mixed", n, 0, func(i int) (string, int) {
		if i%10 == 9 {
			return putNew(i)
		}
		return get(i)
	}); err != nil {
		return err
	}
	end := func() (blocks int64, err error) {
		was := v
		v = nil
		f, err := was.end()
		if usage, ok := was.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			blocks = usage.Oublock << 9
		}
		l.rss = max(l.rss, f.rss)
		return blocks, err
	}
	written, err := end()
	if err != nil {
		return err
	}
	stored, err := occupied(dir)
	if err != nil {
		return err
	}
	l.stored = float64(stored) / float64(len(contents)*smallSize)
	if v, err = of.start(s, dir); err != nil {
		return err
	}
	if err := run("GET later", n, 0, get); err != nil {
		return err
	}
	if err := run("paced", n/4, pace, putNew); err != nil {
		return err
	}
	half := rand.New(rand.NewPCG(seed, 'h')).Perm(n)[:n/2]
	if err := run("overwrite", len(half), 0, func(i int) (string, int) { return http.MethodPut, half[i] }); err != nil {
		return err
	}
	more, err := end()
	if err != nil {
		return err
	}
	if of.name == ourGateway.name {
		compact := exec.CommandContext(s.ctx, s.bin, "fleet", "compact", "-q", "--catalog", filepath.Join(dir, gateBucket+".catalog"), "--queue", filepath.Join(dir, "queue.db"), "--grace", "0s")
		if text, err := compact.CombinedOutput(); err != nil {
			return failed(compact.Args, err, text)
		}
		if usage, ok := compact.ProcessState.SysUsage().(*syscall.Rusage); ok {
			more += usage.Oublock << 9
		}
	}
	l.written = float64(written+more) / float64(wrote)
	return nil
}

// occupied is how many bytes of the disk a folder takes.
func occupied(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks << 9
		}
		return err
	})
	return n, err
}

// gateRow compares our gateway with a peer.
func gateRow(peer s3Server, show func(r *row, ours, peer *life, quick bool)) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		r.ours = ourGateway.name
		ours, err := s.life(ourGateway)
		if err != nil {
			return r, err
		}
		var theirs *life
		if peer.missing != "" {
			r.skipped = append(r.skipped, peer.missing)
		} else if r.peer = peer.name; r.peer != "" {
			if theirs, err = s.life(peer); err != nil {
				return r, err
			}
		}
		show(&r, ours, theirs, s.quick)
		return r, nil
	}
}

// gatePhase shows a phase of both lives.
func gatePhase(name string, goals func(p *phase, ours *life) []goal) func(r *row, ours, peer *life, quick bool) {
	return func(r *row, ours, peer *life, quick bool) {
		p, text := ours.phases[name], func(p *phase) string {
			return fmt.Sprintf("%.0f requests/s, %.1f µs of CPU each, p99 %v", float64(p.n)/p.wall.Seconds(), perFile(p.cpu, p.n), p.p99.Round(10*time.Microsecond))
		}
		r.oursTook = &p.figures
		r.notes = append(r.notes, text(p))
		if peer != nil {
			r.peerTook = &peer.phases[name].figures
			r.notes = append(r.notes, "peer "+text(peer.phases[name]))
		}
		r.judge(goals(p, ours), quick)
	}
}

func init() {
	for _, peer := range gatePeers() {
		add := func(what string, show func(r *row, ours, peer *life, quick bool)) {
			comparisons = append(comparisons, comparison{"gateway: " + what + ", against " + peer.name, gateRow(peer, show)})
		}
		late := func(p *phase, ours *life) goal {
			return goal{fmt.Sprintf("p99 ≤ 2.5 × %v, that of a lone fdatasync", ours.lone.Round(10*time.Microsecond)),
				func(_, _ *figures) (bool, bool) { return p.p99 <= ours.lone*5/2, true }}
		}
		add("PUT of 4 KiB, 16 clients", gatePhase("PUT", func(p *phase, ours *life) []goal {
			all := []goal{cpuOfEach(p.n, 150*time.Microsecond), late(p, ours)}
			if peer.name == "MinIO" {
				all = append(all, wallRatio(1./5))
			}
			return all
		}))
		add(fmt.Sprintf("PUT of 4 KiB, 16 clients, %d in a second", pace), gatePhase("paced", func(p *phase, ours *life) []goal { return []goal{late(p, ours)} }))
		for _, g := range []struct{ what, phase string }{{"GET of 4 KiB from the log, 16 clients", "GET"}, {"GET of 4 KiB from archives, 16 clients", "GET later"}} {
			add(g.what, gatePhase(g.phase, func(p *phase, _ *life) []goal { return []goal{cpuOfEach(p.n, 60*time.Microsecond)} }))
		}
		add("nine GETs to a PUT, 16 clients", gatePhase("mixed", func(*phase, *life) []goal { return nil }))
		add("bytes on the disk", func(r *row, ours, peer *life, quick bool) {
			r.notes = append(r.notes, fmt.Sprintf("%.3f × stored, %.3f × written after half was overwritten and compacted; RSS %s", ours.stored, ours.written, mib(ours.rss)))
			if peer != nil {
				r.notes = append(r.notes, fmt.Sprintf("peer %.3f × and %.3f ×; RSS %s", peer.stored, peer.written, mib(peer.rss)))
			}
			r.judge([]goal{{"stored ≤ 1.1 ×", func(_, _ *figures) (bool, bool) { return ours.stored <= 1.1, true }},
				{"written ≤ 2.2 ×", func(_, _ *figures) (bool, bool) { return ours.written <= 2.2, true }}}, quick)
		})
	}
}
