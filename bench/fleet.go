package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/local"
)

// fleetChunks is how many archives a fleet packs its objects into.
const fleetChunks = 8

// smallObjects and largeObjects return how many objects a fleet packs, and the size of each.
func smallObjects(z sizes) (int, int64) { return z.sFiles, int64(z.sBytes) }
func largeObjects(z sizes) (int, int64) { return z.sFiles / 100, 5_000_000 }

// fleetWorkers packs all objects of a bucket with two processes. The peer is one process. The time
// is from the start of the workers to the commit of the last archive.
func fleetWorkers(objects func(sizes) (int, int64), far bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		n, size := objects(s.sizes)
		dir, stop, err := s.bucketServer(n, size)
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if far {
			stop, err := delayed(s.ctx)
			if err != nil {
				return row{}, err
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		r.peer, r.ours = "holdall fleet work", "holdall fleet work & holdall fleet work"
		for i := range s.n + 1 {
			for workers, took := range []**figures{&r.peerTook, &r.oursTook} {
				f, err := s.fleetRun(dir, workers+1, int64(n)*size/fleetChunks)
				if err != nil {
					return r, err
				}
				if i > 0 || s.quick {
					*took = (*took).best(f)
				}
			}
			if s.quick {
				break
			}
		}
		r.judge([]goal{wallRatio(1 / 1.7), rssUnder(bucketRSS)}, s.quick)
		r.notes = append(r.notes, fmt.Sprintf("%.0f MB/s", float64(n)*float64(size)/1e6/r.oursTook.wall.Seconds()))
		return r, nil
	}
}

// fleetRun packs a bucket with several processes.
func (s *suite) fleetRun(dir string, workers int, chunk int64) (sum figures, err error) {
	g := s.newFleet("fleet")
	if err := g.remove(); err != nil {
		return sum, err
	}
	old, err := filepath.Glob(filepath.Join(dir, targetName, "*"))
	// The server answers from its metadata of objects, even if the objects are gone.
	old = append(old, filepath.Join(filepath.Dir(dir), "about", targetName))
	if err == nil {
		err = removeAll(old)
	}
	if err == nil {
		err = warm(filepath.Join(dir, sourceName))
	}
	if err == nil {
		_, err = s.measureAll(g.planned("set.caf", "--chunk-size", strconv.FormatInt(chunk, 10)), nil)
	}
	if err != nil {
		return sum, err
	}
	syncDisks()
	all, errs, begun := make([]figures, workers), make([]error, workers), time.Now()
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = s.measure(g.verb("work"), nil) })
	}
	wg.Wait()
	for _, f := range all {
		sum.cpu, sum.rss = sum.cpu+f.cpu, max(sum.rss, f.rss)
	}
	err = g.read(s.ctx, func(b *book.Book) error {
		archives, err := b.Archives(s.ctx)
		if err == nil && len(archives) == 0 {
			err = fs.ErrNotExist
		}
		for _, a := range archives {
			sum.wall = max(sum.wall, a.Added.Sub(begun))
		}
		return err
	})
	return sum, errors.Join(append(errs, err)...)
}

// A packingFleet is a catalogue and a queue on this disk.
type packingFleet struct {
	bin, folder string
	name        string // of the catalogue
	queue       string
}

func (s *suite) newFleet(name string) packingFleet {
	return packingFleet{s.bin, s.out, name + book.Suffix, filepath.Join(s.out, name+".db")}
}

// outputs are all files of a fleet but its archives.
func (g packingFleet) outputs() []string {
	at := filepath.Join(g.folder, g.name)
	return []string{at, at + ".gone", g.queue, g.queue + "-wal", g.queue + "-shm"}
}

func (g packingFleet) remove() error { return removeAll(g.outputs()) }

func (g packingFleet) verb(verb string, args ...string) []string {
	return append([]string{g.bin, "fleet", verb, "-q", "--catalog", filepath.Join(g.folder, g.name), "--queue", g.queue}, args...)
}

func (g packingFleet) plan(target string, args ...string) []string {
	return g.verb("plan", append(args, "-o", "s3://"+targetName+"/"+target, "s3://"+sourceName)...)
}

func (g packingFleet) planned(target string, args ...string) command {
	return command{{g.bin, "catalog", "init", "--catalog", filepath.Join(g.folder, g.name)}, g.plan(target, args...)}
}

// read calls do with the catalogue, which it may change.
func (g packingFleet) read(ctx context.Context, do func(*book.Book) error) error {
	b, err := book.Open(ctx, local.New(g.folder), g.name, book.Options{Write: true})
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.Close())
}

// fleetVerb measures what a verb of a fleet costs for each object, in requests and in time of processors:
// the first plan, a plan that finds nothing new, the packing, the retirement of all originals, or a compaction
// after a third of all objects was deleted. The catalogue is on a disk. most is the goal for the processor's time of
// an object, if there is one.
func fleetVerb(verb string, most time.Duration) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		n, size := s.sizes.sFiles, int64(s.sizes.sBytes)
		if verb == "retire" {
			size++ // it has objects of its own
		}
		dir, stop, err := s.bucketServer(n, size)
		if err != nil {
			return row{}, err
		}
		defer func() {
			if err = errors.Join(err, stop()); verb == "retire" {
				err = errors.Join(err, os.RemoveAll(filepath.Dir(dir)))
			}
		}()
		requests, stopCount, err := counting()
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, stopCount()) }()
		old, err := filepath.Glob(filepath.Join(dir, targetName, "*"))
		if err == nil {
			err = removeAll(append(old, filepath.Join(filepath.Dir(dir), "about", targetName)))
		}
		g := s.newFleet("verb")
		if err == nil {
			err = g.remove()
		}
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, g.remove()) }()
		set := func(more ...string) []string {
			return g.plan("verb.caf", append(more, "--chunk-size", strconv.FormatInt(int64(n)*size/fleetChunks, 10))...)
		}
		for _, step := range []struct {
			verb string
			args []string
		}{{"plan", set()}, {"work", g.verb("work")}, {"plan again", set()}, {"retire", g.verb("retire")}, {"compact", g.verb("compact", "--grace", "0s")}} {
			if step.verb == "retire" && verb != step.verb {
				continue
			}
			if step.verb == "plan" {
				if _, err := s.measure(g.planned("verb.caf")[0], nil); err != nil {
					return row{}, err
				}
			}
			if step.verb == "compact" {
				if err := g.read(s.ctx, func(b *book.Book) error { return deleteThird(s.ctx, b) }); err != nil {
					return row{}, err
				}
			}
			before := requests.Load()
			f, err := s.measure(step.args, nil)
			if err != nil {
				return row{}, err
			}
			if step.verb == verb {
				r.ours, r.oursTook = s.show(command{step.args}), &f
				r.notes = []string{fmt.Sprintf("%.3f requests and %.0f µs of a processor an object", float64(requests.Load()-before)/float64(n), f.cpu.Seconds()*1e6/float64(n))}
				if most > 0 {
					r.judge([]goal{cpuOfEach(n, most)}, s.quick)
				}
				return r, nil
			}
		}
		return r, fmt.Errorf("no verb %s", verb)
	}
}

// deleteThird deletes every third file of a catalogue.
func deleteThird(ctx context.Context, b *book.Book) error {
	_, err := b.Do(ctx, book.Step{Rows: func(yield func(*rows.Row, error) bool) {
		i := 0
		for l, err := range b.Between(ctx, "", "", nil) {
			if i++; i%3 == 0 && !yield(&rows.Row{Name: l.Path, What: rows.Delete}, err) {
				return
			}
		}
	}})
	return err
}

// counting puts a proxy before the server of buckets that counts requests.
func counting() (requests *atomic.Int64, stop func() error, err error) {
	is := os.Getenv("AWS_ENDPOINT_URL_S3")
	to, err := url.Parse(is)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	requests = new(atomic.Int64)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // the host is signed, so it stays
			requests.Add(1)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = to.Scheme, to.Host, r.In.URL.RawQuery
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	go server.Serve(l) // it ends with Close
	return requests, func() error { return errors.Join(server.Close(), os.Setenv("AWS_ENDPOINT_URL_S3", is)) }, os.Setenv("AWS_ENDPOINT_URL_S3", "http://"+l.Addr().String())
}

// fleetQueue measures the overhead of a job: it is handed out, and done, by the queue in a file or in PostgreSQL.
func fleetQueue(postgres bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		db := filepath.Join(s.out, "queue.db")
		if err := removeAll([]string{db, db + "-wal", db + "-shm"}); err != nil {
			return row{}, err
		}
		if postgres {
			if !pgtest.Available() {
				return row{}, fmt.Errorf("%w: $%s is not set", errSkipped, pgtest.Env)
			}
			if db, err = pgtest.New(); err != nil {
				return row{}, err
			}
		}
		q, err := queue.Open(s.ctx, db, queue.Options{})
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, q.Close()) }()
		n := 1000
		if s.quick {
			n = 50
		}
		jobs := make([]queue.Job, n)
		for i := range jobs {
			jobs[i] = queue.Job{Plan: "bench", Kind: "nothing", Name: strconv.Itoa(i)}
		}
		begun := time.Now()
		if _, err := q.Add(s.ctx, jobs...); err != nil {
			return row{}, err
		}
		added := time.Since(begun)
		var done atomic.Int64
		var first time.Time
		var wall time.Duration
		err = q.Work(s.ctx, queue.WorkOptions{Kinds: []string{"nothing"}, Tell: func(e queue.Event) { // not concurrent
			if e.What == queue.Started && first.IsZero() {
				first = time.Now()
			}
			wall = time.Since(first)
		}}, func(context.Context, queue.Job) error {
			done.Add(1)
			return nil
		})
		if err == nil && done.Load() != int64(n) {
			err = fmt.Errorf("%d jobs were done, of %d", done.Load(), n)
		}
		if err != nil {
			return row{}, err
		}
		r.ours = fmt.Sprintf("%d jobs, one at a time", n)
		r.oursTook = &figures{wall: wall}
		r.notes = []string{fmt.Sprintf("%.2f ms a job, and %.2f ms to add it", wall.Seconds()*1e3/float64(n), added.Seconds()*1e3/float64(n))}
		return r, nil
	}
}

// fleetPlan lists a bucket and records its objects. The peer only lists it.
func fleetPlan(most float64, far bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		n := 5 * s.sizes.sFiles
		_, stop, err := s.bucketServer(n, 1)
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if far {
			stop, err := delayed(s.ctx)
			if err != nil {
				return row{}, err
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		g := s.newFleet("plan")
		r, err = s.hold(contest{
			ours:    g.planned("plan.caf"),
			peer:    command{{s.self, peerVerb, "list", "", ""}},
			outputs: g.outputs(),
			goals:   []goal{wallRatio(most), rssUnder(bucketRSS)},
		})
		if err == nil {
			r.notes = append(r.notes, fmt.Sprintf("%.0f objects/s", float64(n)/r.oursTook.wall.Seconds()))
		}
		return r, err
	}
}
