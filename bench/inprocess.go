package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall"
)

const (
	readGoal   = 1.3
	webGoal    = 1.2
	heapGoal   = 150 // bytes per entry, without its name
	webLatency = 20 * time.Millisecond
	webRate    = 125_000_000 // bytes in a second: 1 Gbit/s
	webReaders = 16
)

// place is an entry and the place of its content in the single volume.
type place struct {
	entry    holdall.Entry
	off, len int64
}

// places returns n random entries with content. It repeats entries only if the archive has fewer
// than n.
func places(ctx context.Context, a *holdall.Archive, n int) ([]place, error) {
	var all []holdall.Entry
	for e, err := range a.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if e.Size > 0 {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("an archive of nothing")
	}
	r := random('p', 0)
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	found := make([]place, 0, n)
	for i := range n {
		e := all[i%len(all)]
		p := place{entry: e}
		for x, err := range a.Extents(ctx, e) {
			if err != nil {
				return nil, err
			}
			if p.len > 0 || x.Len != e.Size {
				return nil, fmt.Errorf("%s: expected content in one piece", e.Name)
			}
			p.off, p.len = x.Off, x.Len
		}
		found = append(found, p)
	}
	return found, nil
}

// count returns n, or fewer with -quick.
func (s *suite) count(n int) int {
	if s.quick {
		return n / 20
	}
	return n
}

// randomReads reads complete entries of A. The peer reads the same ranges directly from the file.
func randomReads(s *suite) (r row, err error) {
	archive, err := s.archiveA()
	if err != nil {
		return r, err
	}
	a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
	if err != nil {
		return r, err
	}
	defer a.Close()
	f, err := os.Open(archive)
	if err != nil {
		return r, err
	}
	defer f.Close()
	found, err := places(s.ctx, a, s.count(2000))
	if err != nil {
		return r, err
	}
	if err := warm(archive); err != nil {
		return r, err
	}
	buf, other := make([]byte, maxA), make([]byte, maxA)
	for _, p := range found { // both must return the same bytes
		if _, err := a.ReadAt(s.ctx, p.entry, buf[:p.len], 0); err != nil {
			return r, err
		}
		if _, err := f.ReadAt(other[:p.len], p.off); err != nil {
			return r, err
		}
		if !bytes.Equal(buf[:p.len], other[:p.len]) {
			return r, fmt.Errorf("%s: Archive.ReadAt and File.ReadAt differ", p.entry.Name)
		}
	}
	pass := func(best **figures, read func(place) error) error {
		start := time.Now()
		for _, p := range found {
			if err := read(p); err != nil {
				return err
			}
		}
		*best = (*best).best(figures{wall: time.Since(start)})
		return nil
	}
	for range s.n {
		err := errors.Join(
			pass(&r.peerTook, func(p place) error {
				_, err := f.ReadAt(buf[:p.len], p.off)
				return err
			}),
			pass(&r.oursTook, func(p place) error {
				_, err := a.ReadAt(s.ctx, p.entry, buf[:p.len], 0)
				return err
			}))
		if err != nil {
			return r, err
		}
	}
	r.peer, r.ours = fmt.Sprintf("os.File.ReadAt of %d ranges", len(found)), "holdall.Archive.ReadAt of the entries there"
	r.judge([]goal{wallRatio(readGoal)}, s.quick)
	return r, nil
}

// slowServer serves a folder on 127.0.0.1, delays every response, and counts requests and bytes.
type slowServer struct {
	http.Server
	url      string
	requests atomic.Int64
	bytes    atomic.Int64
	rounds   atomic.Int64 // how often a request came when there was no other
	open     atomic.Int64 // requests that are not answered yet
	done     chan error
	narrow   bool // all responses together have webRate
	mu       sync.Mutex
	free     time.Time // when the link has sent what it was given
}

// counted counts the bytes of a response, and waits for the link.
type counted struct {
	http.ResponseWriter
	server *slowServer
}

func (c counted) Write(p []byte) (int, error) {
	c.server.send(len(p))
	n, err := c.ResponseWriter.Write(p)
	c.server.bytes.Add(int64(n))
	return n, err
}

// send waits until the link has room for n bytes. What it holds back is less than a few milliseconds' worth.
func (v *slowServer) send(n int) {
	if !v.narrow {
		return
	}
	v.mu.Lock()
	now := time.Now()
	if v.free.Before(now) {
		v.free = now
	}
	v.free = v.free.Add(time.Duration(n) * time.Second / webRate)
	wait := v.free.Sub(now)
	v.mu.Unlock()
	if wait > 5*time.Millisecond {
		time.Sleep(wait)
	}
}

func serveSlowly(dir string) (*slowServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &slowServer{url: "http://" + l.Addr().String() + "/", done: make(chan error, 1)}
	files := http.FileServer(http.Dir(dir))
	v.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		v.requests.Add(1)
		if v.open.Add(1) == 1 {
			v.rounds.Add(1)
		}
		defer v.open.Add(-1)
		select {
		case <-time.After(webLatency):
			if fi, err := os.Stat(filepath.Join(dir, filepath.FromSlash(path.Clean("/"+req.URL.Path)))); err == nil {
				w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, fi.ModTime().UnixNano(), fi.Size())) // as servers do, other than Go's
			}
			files.ServeHTTP(counted{w, v}, req)
		case <-req.Context().Done():
		}
	})
	go func() { v.done <- v.Serve(l) }()
	return v, nil
}

func (v *slowServer) stop() error {
	err := v.Close()
	if serveErr := <-v.done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// webReads reads entries of A over HTTP, several at once. Its peer is computed: the least time that
// the round trips take.
func webReads(s *suite) (r row, err error) {
	archive, err := s.archiveA()
	if err != nil {
		return r, err
	}
	v, err := serveSlowly(filepath.Dir(archive))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	f, err := os.Open(archive)
	if err != nil {
		return r, err
	}
	defer f.Close()
	if err := warm(archive); err != nil {
		return r, err
	}
	n := s.count(1000)
	var opening, reading int64
	for range s.n {
		before := v.requests.Load()
		start := time.Now()
		a, err := holdall.Open(s.ctx, v.url+filepath.Base(archive), holdall.OpenOptions{})
		if err != nil {
			return r, err
		}
		opened := time.Since(start)
		opening = v.requests.Load() - before
		found, err := places(s.ctx, a, n)
		if err != nil {
			return r, errors.Join(err, a.Close())
		}
		before = v.requests.Load()
		start = time.Now()
		err = readParallel(s.ctx, a, f, found)
		took := time.Since(start)
		if err := errors.Join(err, a.Close()); err != nil {
			return r, err
		}
		reading = v.requests.Load() - before
		if r.oursTook == nil || took < r.oursTook.wall {
			r.oursTook = &figures{wall: took}
			r.notes = []string{fmt.Sprintf("%d requests for %d entries, %d and %s to open", reading, n, opening, seconds(opened))}
		}
	}
	r.peerTook = &figures{wall: time.Duration(float64(n) / webReaders * float64(webLatency))}
	r.peer = fmt.Sprintf("%d round trips of %v by %d readers", n, webLatency, webReaders)
	r.ours = "holdall.Archive.ReadAt of the entries, each compared"
	r.judge([]goal{wallRatio(webGoal)}, s.quick)
	return r, nil
}

// readParallel reads entries with webReaders goroutines, and compares them with the file.
func readParallel(ctx context.Context, a *holdall.Archive, f *os.File, found []place) error {
	var next atomic.Int64
	errs := make([]error, webReaders)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for {
				k := int(next.Add(1) - 1)
				if k >= len(found) {
					return
				}
				p := found[k]
				got, want := make([]byte, p.len), make([]byte, p.len)
				if _, errs[i] = a.ReadAt(ctx, p.entry, got, 0); errs[i] != nil {
					return
				}
				if _, errs[i] = f.ReadAt(want, p.off); errs[i] != nil {
					return
				}
				if !bytes.Equal(got, want) {
					errs[i] = fmt.Errorf("%s: other bytes than the file's", p.entry.Name)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// heapOfRows measures the live heap of a loaded index.
func heapOfRows(s *suite) (r row, err error) {
	archive, err := s.manyRows()
	if err != nil {
		return r, err
	}
	before := liveHeap()
	a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
	if err != nil {
		return r, err
	}
	entries, names := 0, 0
	last := ""
	for e, err := range a.Entries(s.ctx) {
		if err != nil {
			return r, errors.Join(err, a.Close())
		}
		entries++
		names += len(e.Name)
		last = e.Name
	}
	if _, err := a.Lookup(s.ctx, last); err != nil {
		return r, errors.Join(err, a.Close())
	}
	each := float64(liveHeap()-before) / float64(entries)
	runtime.KeepAlive(last)
	if err := a.Close(); err != nil {
		return r, err
	}
	if entries != s.sizes.rows {
		return r, fmt.Errorf("%d entries, expected %d", entries, s.sizes.rows)
	}
	goalEach := heapGoal + float64(names)/float64(entries)
	r.ours = "live heap after holdall.Open, by the number of entries"
	r.notes = []string{fmt.Sprintf("%.1f bytes an entry", each)}
	r.judge([]goal{{fmt.Sprintf("≤ %.0f bytes", goalEach), func(_, _ *figures) (bool, bool) { return each <= goalEach, true }}}, s.quick)
	return r, nil
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools held during the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
