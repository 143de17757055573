package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// fleetChunks is how many archives a fleet packs its objects into.
const fleetChunks = 8

// smallObjects and largeObjects return how many objects a fleet packs, and the size of each.
func smallObjects(z sizes) (int, int64) { return z.sFiles, int64(z.sBytes) }
func largeObjects(z sizes) (int, int64) { return z.sFiles / 100, 5_000_000 }

// fleetWorkers packs all objects of a bucket with two processes. The peer is one process. The time
// is from the start of the first chunk to the end of the last one.
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
	db := filepath.Join(s.out, "fleet.db")
	if err := removeAll([]string{db, db + "-wal", db + "-shm"}); err != nil {
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
		_, err = s.measureAll(command{{s.bin, "catalog", "init", "--db", db},
			{s.bin, "fleet", "plan", "-q", "--db", db, "--chunk-size", strconv.FormatInt(chunk, 10), "-o", "s3://" + targetName + "/set.caf", "s3://" + sourceName}}, nil)
	}
	if err != nil {
		return sum, err
	}
	syncDisks()
	all, errs := make([]figures, workers), make([]error, workers)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = s.measure([]string{s.bin, "fleet", "work", "-q", "--db", db}, nil) })
	}
	wg.Wait()
	for _, f := range all {
		sum.cpu, sum.rss = sum.cpu+f.cpu, max(sum.rss, f.rss)
	}
	wall, err := fleetTook(s.ctx, db)
	sum.wall = wall
	return sum, errors.Join(append(errs, err)...)
}

// fleetTook returns the time from the start of the first chunk of a catalogue's plan to the end of
// the last one.
func fleetTook(ctx context.Context, db string) (time.Duration, error) {
	c, err := catalog.Open(ctx, db, catalog.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	plans, err := c.Plans(ctx)
	if err != nil || len(plans) == 0 {
		return 0, errors.Join(err, fs.ErrNotExist)
	}
	var from, to time.Time
	for k, err := range c.Chunks(ctx, plans[0].ID) {
		if err != nil {
			return 0, err
		}
		if k.State != catalog.ChunkDone {
			return 0, fmt.Errorf("%s: expected it to be done, found it %v: %s", k.Name, k.State, k.Problem)
		}
		if from.IsZero() || k.Started.Before(from) {
			from = k.Started
		}
		if k.Finished.After(to) {
			to = k.Finished
		}
	}
	return to.Sub(from), nil
}

// fleetQueue measures the overhead of a chunk: it is claimed, renewed once and recorded in a SQLite
// or PostgreSQL database.
func fleetQueue(postgres bool) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		db := filepath.Join(s.out, "queue.db")
		if postgres {
			if !pgtest.Available() {
				return row{}, fmt.Errorf("%w: $%s is not set", errSkipped, pgtest.Env)
			}
			if db, err = pgtest.New(); err != nil {
				return row{}, err
			}
		}
		ctx := s.ctx
		if err := catalog.Create(ctx, db); err != nil {
			return row{}, err
		}
		c, err := catalog.Open(ctx, db, catalog.Options{})
		if err != nil {
			return row{}, err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		chunks := 1000
		if s.quick {
			chunks = 50
		}
		p, err := c.AddPlan(ctx, catalog.Plan{Name: "queue", Format: "caf", Target: "queue.caf"})
		if err != nil {
			return row{}, err
		}
		var all []catalog.NewChunk
		for i := range chunks {
			all = append(all, catalog.NewChunk{Name: fmt.Sprintf("queue-%05d.caf", i), Members: one(catalog.Member{Path: fmt.Sprintf("f%05d", i), Size: 1})})
		}
		if _, err := c.AddChunks(ctx, p.ID, all); err != nil {
			return row{}, err
		}
		begun := time.Now()
		for range chunks {
			k, err := c.Claim(ctx, catalog.Request{Owner: "bench", Lease: time.Minute})
			if err == nil {
				err = c.Renew(ctx, k, time.Minute, 0)
			}
			if err == nil {
				_, err = c.Finish(ctx, k, &catalog.Addition{
					Archive: catalog.Archive{Address: k.Name, Format: "caf", Size: 100},
					Rows:    one(catalog.Location{Path: fmt.Sprintf("f%05d", k.Number), Size: 1}),
				}, nil)
			}
			if err != nil {
				return row{}, err
			}
		}
		wall := time.Since(begun)
		r.ours = fmt.Sprintf("Claim, Renew and Finish of %d chunks", chunks)
		r.oursTook = &figures{wall: wall}
		r.notes = []string{fmt.Sprintf("%.2f ms a chunk", wall.Seconds()*1e3/float64(chunks))}
		return r, nil
	}
}

// one yields one value.
func one[T any](x T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(x, nil) }
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
		db := filepath.Join(s.out, "plan.db")
		r, err = s.hold(contest{
			ours: command{{s.bin, "catalog", "init", "--db", db},
				{s.bin, "fleet", "plan", "-q", "--db", db, "-o", "s3://" + targetName + "/plan.caf", "s3://" + sourceName}},
			peer:    command{{s.self, peerVerb, "list", "", ""}},
			outputs: []string{db, db + "-wal", db + "-shm"},
			goals:   []goal{wallRatio(most), rssUnder(bucketRSS)},
		})
		if err == nil {
			r.notes = append(r.notes, fmt.Sprintf("%.0f objects/s", float64(n)/r.oursTook.wall.Seconds()))
		}
		return r, err
	}
}
