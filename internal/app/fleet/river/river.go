// Package river uses River, a queue of jobs in PostgreSQL, to notify the workers of a fleet about
// chunks that are due, and to show the progress of the fleet. It is optional, and requires a
// catalogue in PostgreSQL: the catalogue alone decides what is to be done and by which worker.
//
// A job is added and ended by the transaction that makes a chunk due or done. It is only a
// message: River cannot distinguish a dead worker from a slow one, nor refuse a late result. A
// missing or additional job only changes when a worker looks for work.
package river

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
)

const kind = "holdall_chunk"

type arguments struct {
	Chunk int64 `json:"chunk"`
	// Fence is that of the claim before, so that no two jobs of a chunk are equal.
	Fence int64  `json:"fence"`
	Name  string `json:"name"` // of the archive, for people
}

func (arguments) Kind() string { return kind }

const (
	// longest is how long River waits for a chunk. There must be a limit, and it
	// must be longer than any chunk takes: beyond it River would assume that the
	// worker is dead.
	longest = 48 * time.Hour
	// look is how often to look for chunks that no notification announced.
	look = 5 * time.Second
	// cooldown is how long River waits for further jobs before it fetches them.
	cooldown = 20 * time.Millisecond
	// stopping is how long running jobs have to end after all were told to stop.
	stopping = 20 * time.Second
)

// A Queue is a River queue in a catalogue's schema. It is both a catalog.Queue
// and a fleet.Feed. Its zero value is ready to use.
type Queue struct {
	// Log, if not nil, receives River's log.
	Log *slog.Logger

	pool   *pgxpool.Pool
	schema string
	insert *river.Client[pgx.Tx]
}

func (q *Queue) log() *slog.Logger {
	if q.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return q.Log
}

// A VersionError reports that River's tables have another version than this
// holdall supports.
type VersionError struct{ Found, Known int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("tables of River: expected at most version %d, found %d: written by a newer holdall", e.Known, e.Found)
}

// Open creates River's tables if they are missing, and migrates older ones.
func (q *Queue) Open(ctx context.Context, pool *pgxpool.Pool) error {
	q.pool = pool
	if err := pool.QueryRow(ctx, "SELECT current_schema()").Scan(&q.schema); err != nil {
		return err
	}
	var err error
	// River reports here if it cannot use a schema of that name.
	if q.insert, err = river.NewClient(riverpgxv5.New(nil), &river.Config{Schema: q.schema, Logger: q.log()}); err != nil {
		return fmt.Errorf("schema %s: River: %w", q.schema, err)
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: q.schema, Logger: q.log()})
	if err != nil {
		return err
	}
	known := 0
	for _, v := range m.AllVersions() {
		known = max(known, v.Version)
	}
	found, err := version(ctx, pool)
	if err == nil && found > known {
		err = &VersionError{found, known}
	}
	if err != nil || found == known {
		return err
	}
	// Only one process migrates at a time. Each of River's steps is a transaction
	// of its own, so the next process continues an interrupted migration.
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const lock = "hashtextextended('holdall river ' || current_schema(), 0)"
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock("+lock+")"); err != nil {
		return err
	}
	defer func() {
		// If the unlock fails, the connection must not be used again.
		if _, err := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock("+lock+")"); err != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}()
	if found, err = version(ctx, pool); err != nil || found >= known {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// version returns the version of River's tables, or 0 if there are none.
func version(ctx context.Context, pool *pgxpool.Pool) (v int, err error) {
	var there bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass('river_migration') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM river_migration").Scan(&v)
	return v, err
}

// queueOf returns the name of the queue for a plan's jobs. Each plan has its
// own, because some workers serve one plan only.
func queueOf(plan int64) string { return "plan_" + strconv.FormatInt(plan, 10) }

// Enqueue inserts a job for each chunk.
func (q *Queue) Enqueue(ctx context.Context, tx pgx.Tx, chunks []catalog.Chunk) error {
	jobs := make([]river.InsertManyParams, len(chunks))
	for i, k := range chunks {
		// The catalogue counts tries.
		jobs[i] = river.InsertManyParams{Args: arguments{k.ID, k.Fence, format.Escape(k.Name)}, InsertOpts: &river.InsertOpts{Queue: queueOf(k.Plan), MaxAttempts: 1, ScheduledAt: k.NotBefore}}
	}
	_, err := q.insert.InsertManyFastTx(ctx, tx, jobs)
	return err
}

// Finished ends all jobs of a chunk: the one of the worker that packed it, and
// those of workers that died.
func (q *Queue) Finished(ctx context.Context, tx pgx.Tx, k catalog.Chunk) error {
	_, err := tx.Exec(ctx, `UPDATE river_job SET state = 'completed', finalized_at = now()
		WHERE kind = $1 AND args @> jsonb_build_object('chunk', $2::bigint) AND finalized_at IS NULL`, kind, k.ID)
	return err
}

type doer struct {
	river.WorkerDefaults[arguments]
	work func(ctx context.Context, chunk int64) (again time.Duration, err error)
}

func (*doer) Timeout(*river.Job[arguments]) time.Duration { return longest }

func (d *doer) Work(ctx context.Context, job *river.Job[arguments]) error {
	again, err := d.work(ctx, job.Args.Chunk)
	switch {
	case errors.Is(err, catalog.ErrCancelled), errors.Is(err, catalog.ErrLost), errors.Is(err, context.Canceled):
		return river.JobCancel(err) // the chunk has no fault
	case err != nil:
		return err
	case again > 0:
		return river.JobSnooze(again)
	}
	return nil
}

// Feed calls work with chunks as River announces them.
func (q *Queue) Feed(ctx context.Context, plan int64, n int, work func(ctx context.Context, chunk int64) (again time.Duration, err error)) (stop func(), err error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &doer{work: work}); err != nil {
		return nil, err
	}
	// Workers for any plan add queues when they have jobs. River requires one to
	// begin with, which may belong to a plan that cannot exist.
	queues := map[string]river.QueueConfig{queueOf(plan): {MaxWorkers: n}}
	c, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		Schema: q.schema, Logger: q.log(), Workers: workers, Queues: queues,
		FetchCooldown: cooldown, FetchPollInterval: look,
		JobTimeout: longest, RescueStuckJobsAfter: longest + time.Hour,
	})
	if err != nil {
		return nil, err
	}
	// When a worker is told to stop, it has to end its jobs first.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := c.Start(running); err != nil {
		cancel()
		return nil, err
	}
	var wg sync.WaitGroup
	if plan == 0 {
		wg.Go(func() { q.join(running, c, n) })
	}
	return func() {
		soon, done := context.WithTimeout(running, stopping)
		defer done()
		if c.Stop(soon) != nil {
			_ = c.StopAndCancel(soon) // jobs that have not reported are found when their leases end
		}
		cancel()
		wg.Wait()
	}, nil
}

// join has a client work on the queues that have jobs.
func (q *Queue) join(ctx context.Context, c *river.Client[pgx.Tx], n int) {
	known := map[string]bool{}
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		// Errors are ignored: workers find chunks without the feed.
		rows, err := q.pool.Query(ctx, "SELECT DISTINCT queue FROM river_job WHERE state IN ('available', 'scheduled')")
		if err == nil {
			var all []string
			all, err = pgx.CollectRows(rows, pgx.RowTo[string])
			for _, name := range all {
				if !known[name] && ctx.Err() == nil {
					known[name] = c.Queues().Add(name, river.QueueConfig{MaxWorkers: n}) == nil
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			q.log().WarnContext(ctx, "queues of River", "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
