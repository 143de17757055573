// Package queue hands out work with River, a queue of jobs in a database: a file of SQLite for the
// processes of one machine, with nothing to install, or PostgreSQL for many machines. The tables
// are River's alone, so its own UI and metrics work on them.
//
// River is at least once. Two living workers never have the same job while both are within its
// time. When a worker dies, its job is handed out again: River knows of it by the job's age only.
// So a job says how long it may take (Job.Long), and is cut to take a minute or less. A job of at
// most 60 seconds whose worker is killed is taken over within 150 seconds: its own time and grace
// (20 s), then River's rescuer, which looks every 30 s (this cannot be set) or after a new leader
// is elected (up to 22 s), then its scheduler (5 s) and the next look for jobs (1 s).
//
// Whoever does a job must therefore do no harm if it was done before.
package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

// A Job is work that is handed out.
type Job struct {
	// Plan is a group of jobs that workers may choose. It is a queue of River.
	Plan string
	// Kind says what is to be done. It is River's kind: 2 to 100 letters, digits, and -_.:+/
	Kind string
	// Name is unique among the unfinished jobs of a plan, and those set aside.
	Name string
	Args json.RawMessage
	// Long is how long the job may take; 0 means a minute. Beyond it, the job is cancelled, and
	// tried again with twice the time.
	Long time.Duration
	// Attempt is set when the job is handed out, from 1. An attempt that was given back does not
	// count.
	Attempt int
}

// These limit what comes from outside.
const (
	maxArgs = 64 << 10
	maxName = 4 << 10
	maxLong = 24 * time.Hour
)

var kindRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][-A-Za-z0-9_.:+/]{1,99}$`) })

// Status says what becomes of a job.
type Status string

const (
	Waiting  Status = "waiting"
	Running  Status = "running"
	Failed   Status = "failed"    // it will be tried again
	SetAside Status = "set aside" // it will not be tried again, unless by Retry
)

// A State is a job as it stands.
type State struct {
	Job     // without Args; Attempt is the last one
	Status  Status
	Problem string // of the last attempt that failed
	Since   time.Time
}

// Options are options for a queue.
type Options struct {
	// Log, if not nil, receives River's log.
	Log *slog.Logger
	// Pause is how long after its first failure a job is tried again; 0 means 5 seconds. Look is how often
	// to look for jobs; 0 means about a second. Grace is how long after its time the job of a worker that
	// died is handed out again; 0 means 20 seconds.
	Pause, Look, Grace time.Duration
	// Space separates plans from those of others with the same names: it belongs to their names.
	Space string
}

// A Queue is a database of River. Its methods may be called concurrently.
type Queue struct {
	name   string  // the address without secrets
	space  string  // begins the names of River's queues
	db     *sql.DB // for what River's API lacks
	engine engine
	client client
	log    *slog.Logger
	clock  atomic.Pointer[reading]

	// Tests make these shorter.
	grace, look, poll, pause, idle time.Duration
	follower                       bool // never leads River's maintenance
}

// An engine is the part that depends on the database.
type engine interface {
	// client returns a client of River. If wrap is not nil, the client uses what it returns.
	client(c *river.Config, wrap func(riverdriver.Executor) riverdriver.Executor) (client, error)
	executor() riverdriver.Executor
	migrate(ctx context.Context, log *slog.Logger) error
	// now returns the time of the database's clock, or zero if it is this machine's.
	now(ctx context.Context) (time.Time, error)
	// lasting reports whether an error remains if the same is done again.
	lasting(err error) bool
	close() error
}

// A client is a river.Client of either database.
type client interface {
	Start(ctx context.Context) error
	StopAndCancel(ctx context.Context) error
	Queues() *river.QueueBundle
	InsertMany(ctx context.Context, params []river.InsertManyParams) ([]*rivertype.JobInsertResult, error)
	JobList(ctx context.Context, params *river.JobListParams) (*river.JobListResult, error)
	JobDeleteMany(ctx context.Context, params *river.JobDeleteManyParams) (*river.JobDeleteManyResult, error)
	JobCancel(ctx context.Context, id int64) (*rivertype.JobRow, error)
}

// A VersionError reports that River's tables have another version than this holdall supports.
type VersionError struct {
	Queue        string
	Found, Known int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: tables of River: expected at most version %d, found %d: written by a newer holdall", e.Queue, e.Known, e.Found)
}

// Open opens a queue: a file, sqlite:FILE, or postgres://USER@HOST/DATABASE, where it is in the
// schema holdall_queue unless the address has a parameter "schema". What is missing is created,
// but for the database. Tables of an older River are migrated, those of a newer one are refused.
// A pooler between holdall and PostgreSQL must keep sessions, since River listens.
func Open(ctx context.Context, address string, o Options) (*Queue, error) {
	q := &Queue{log: o.Log, grace: cmp.Or(o.Grace, 20*time.Second), look: cmp.Or(o.Look, 500*time.Millisecond), poll: cmp.Or(o.Look, 900*time.Millisecond), pause: cmp.Or(o.Pause, 5*time.Second), idle: time.Minute}
	if o.Space != "" {
		sum := sha256.Sum256([]byte(o.Space))
		q.space = hex.EncodeToString(sum[:6]) + "-"
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		err = q.openPostgres(ctx, address)
	} else {
		err = q.openFile(ctx, strings.TrimPrefix(address, "sqlite:"))
	}
	if err != nil {
		return nil, err
	}
	err = q.engine.migrate(ctx, q.log)
	if err == nil {
		err = q.readClock(ctx)
	}
	if err == nil {
		q.client, err = q.engine.client(&river.Config{Logger: q.log, FetchCooldown: cooldown}, nil)
	}
	if err != nil {
		_ = q.Close()
		return nil, q.failed(err)
	}
	return q, nil
}

// Close must be called after all Works have returned.
func (q *Queue) Close() error { return errors.Join(q.db.Close(), q.engine.close()) }

// failed makes one line of an error.
func (q *Queue) failed(err error) error {
	if _, ours := errors.AsType[*VersionError](err); err == nil || ours {
		return err
	}
	return &lineError{q.name, err}
}

type lineError struct {
	name string
	err  error
}

func (e *lineError) Error() string {
	lines := strings.Split(e.err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return e.name + ": " + strings.Join(slices.Compact(lines), " ") // pgx says the same for each attempt
}

func (e *lineError) Unwrap() error { return e.err }

// A reading is what the database's clock said, and when.
type reading struct{ theirs, ours time.Time }

// readClock reads the database's clock. Times of jobs are by that clock, and no machine's clock
// decides how old a job is.
func (q *Queue) readClock(ctx context.Context) error {
	asked := time.Now()
	theirs, err := q.engine.now(ctx)
	if err == nil && !theirs.IsZero() {
		q.clock.Store(&reading{theirs.Add(time.Since(asked) / 2), time.Now()})
	}
	return err
}

// now returns the time of the database's clock.
func (q *Queue) now() time.Time {
	if r := q.clock.Load(); r != nil {
		return r.theirs.Add(time.Since(r.ours))
	}
	return time.Now()
}

// ourTime is River's clock.
type ourTime struct{ q *Queue }

func (t ourTime) Now() time.Time       { return t.q.now() }
func (t ourTime) NowOrNil() *time.Time { return nil } // the database's own

// queueOf returns the name of the queue of a plan: letters, digits and hyphens that people can
// recognise, and a digest of the name.
func (q *Queue) queueOf(plan string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(plan) {
		switch {
		case b.Len() >= 24:
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	sum := sha256.Sum256([]byte(plan))
	return q.space + strings.TrimLeft(strings.TrimSuffix(b.String(), "-")+"-", "-") + hex.EncodeToString(sum[:12])
}

// arguments are what River keeps of a job, beside its kind and queue.
type arguments struct {
	Plan string          `json:"plan"` // escaped, as Name
	Name string          `json:"name" river:"unique"`
	Long time.Duration   `json:"long_ns"`
	Args json.RawMessage `json:"args,omitempty"` // or a string of it, if the database would not take it

	kind  string
	again time.Duration // when to try again, after Work has run
}

func (a arguments) Kind() string { return a.kind }

// unfinished are the states in which no other job may have the name.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
	rivertype.JobStateRetryable, rivertype.JobStateScheduled, rivertype.JobStateDiscarded,
}

// endless is the number of attempts after which River gives up by itself. Workers set jobs aside
// much earlier; this is for a job whose workers all died.
const endless = 1000

func (q *Queue) params(j Job) (river.InsertManyParams, error) {
	a := arguments{Plan: format.Escape(j.Plan), Name: format.Escape(j.Name), Long: cmp.Or(j.Long, time.Minute), Args: bytes.TrimSpace(j.Args), kind: j.Kind}
	switch {
	case j.Plan == "" || len(j.Plan) > maxName:
		return river.InsertManyParams{}, fmt.Errorf("plan: expected a name of 1 to %d bytes, found %d", maxName, len(j.Plan))
	case j.Name == "" || len(j.Name) > maxName:
		return river.InsertManyParams{}, fmt.Errorf("name: expected 1 to %d bytes, found %d", maxName, len(j.Name))
	case !kindRE().MatchString(j.Kind):
		return river.InsertManyParams{}, fmt.Errorf("kind: expected 2 to 100 letters, digits, and -_.:+/, found %q", j.Kind)
	case j.Long < 0 || j.Long > maxLong:
		return river.InsertManyParams{}, fmt.Errorf("time: expected at most %s, found %s", maxLong, j.Long)
	case len(j.Args) > maxArgs:
		return river.InsertManyParams{}, fmt.Errorf("arguments: expected at most %d bytes, found %d", maxArgs, len(j.Args))
	case len(j.Args) > 0 && !(json.Valid(j.Args) && utf8.Valid(j.Args)):
		return river.InsertManyParams{}, errors.New("arguments: expected JSON in UTF-8, found something else")
	case len(j.Args) > 0 && (a.Args[0] == '"' || bytes.Contains(a.Args, []byte(`\u`))):
		// PostgreSQL takes no NUL and no half of a surrogate.
		a.Args, _ = json.Marshal(string(a.Args))
	}
	return river.InsertManyParams{Args: a, InsertOpts: &river.InsertOpts{
		Queue: q.queueOf(j.Plan), MaxAttempts: endless,
		UniqueOpts: river.UniqueOpts{ByArgs: true, ByQueue: true, ExcludeKind: true, ByState: unfinished},
	}}, nil
}

// job is the inverse of params.
func (a arguments) job(row *rivertype.JobRow) Job {
	args := a.Args
	if len(args) > 0 && args[0] == '"' {
		var s string
		_ = json.Unmarshal(args, &s) // it is part of what was decoded already
		args = json.RawMessage(s)
	}
	return Job{Plan: naming.Unescape(a.Plan), Kind: row.Kind, Name: naming.Unescape(a.Name), Args: args, Long: a.Long, Attempt: row.Attempt}
}

// These are how much one statement adds.
const (
	batchJobs  = 1000
	batchBytes = 4 << 20
)

// Add adds jobs, and returns how many are new: one whose name an unfinished job of the plan has is
// left out. If it fails, as many jobs were added as it says, and it may be repeated. Jobs may add
// jobs while they run.
func (q *Queue) Add(ctx context.Context, jobs ...Job) (added int, err error) {
	params := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		if params[i], err = q.params(j); err != nil {
			return 0, q.failed(fmt.Errorf("job %s: %w", format.Escape(j.Name), err))
		}
	}
	for len(params) > 0 {
		var batch []river.InsertManyParams
		there, size := map[[2]string]bool{}, 0
		for len(params) > 0 && len(batch) < batchJobs && size < batchBytes {
			a := params[0].Args.(arguments)
			if key := [2]string{a.Plan, a.Name}; !there[key] {
				there[key] = true
				batch = append(batch, params[0])
				size += len(a.Args) + len(a.Name)
			}
			params = params[1:]
		}
		done, err := q.client.InsertMany(ctx, batch)
		if err != nil {
			return added, q.failed(fmt.Errorf("%d jobs added: %w", added, err))
		}
		for _, d := range done {
			if !d.UniqueSkippedAsDuplicate {
				added++
			}
		}
	}
	return added, nil
}

func status(row *rivertype.JobRow) Status {
	switch row.State {
	case rivertype.JobStateRunning:
		return Running
	case rivertype.JobStateDiscarded:
		return SetAside
	}
	if row.Attempt > 0 {
		return Failed
	}
	return Waiting
}

// pageJobs is how many jobs are read at once. The database may sort all of a plan for each page.
const pageJobs = 2000

func (q *Queue) list(plan string, states ...rivertype.JobState) *river.JobListParams {
	return river.NewJobListParams().Queues(q.queueOf(plan)).States(states...).OrderBy(river.JobListOrderByID, river.SortOrderAsc).First(pageJobs)
}

// Jobs returns the jobs of a plan that are not done, in the order in which they were added.
func (q *Queue) Jobs(ctx context.Context, plan string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		p := q.list(plan, unfinished...)
		for {
			page, err := q.client.JobList(ctx, p)
			if err != nil {
				yield(State{}, q.failed(err))
				return
			}
			for _, row := range page.Jobs {
				if !yield(stateOf(row), nil) {
					return
				}
			}
			if len(page.Jobs) < pageJobs {
				return
			}
			p = p.After(page.LastCursor)
		}
	}
}

func stateOf(row *rivertype.JobRow) State {
	var a arguments
	_ = json.Unmarshal(row.EncodedArgs, &a) // what others inserted has no name
	s := State{Job: a.job(row), Status: status(row), Since: row.CreatedAt}
	s.Args = nil
	if n := len(row.Errors); n > 0 {
		s.Problem, s.Since = row.Errors[n-1].Error, row.Errors[n-1].At
	}
	if s.Status == Running {
		s.Since = *row.AttemptedAt
	}
	return s
}

// Counts counts the jobs of a plan that are not done by kind and status. The database counts them.
func (q *Queue) Counts(ctx context.Context, plan string) (map[string]map[Status]int, error) {
	rows, err := q.db.QueryContext(ctx, `SELECT kind, CASE WHEN state = 'running' THEN 'running' WHEN state = 'discarded' THEN 'set aside'
			WHEN attempt > 0 THEN 'failed' ELSE 'waiting' END AS status, count(*)
		FROM river_job WHERE queue = '`+q.queueOf(plan)+`' AND state IN ('available', 'pending', 'running', 'retryable', 'scheduled', 'discarded') GROUP BY 1, 2`)
	if err != nil {
		return nil, q.failed(err)
	}
	defer rows.Close()
	all := map[string]map[Status]int{}
	for rows.Next() {
		var kind string
		var s Status
		var n int
		if err := rows.Scan(&kind, &s, &n); err != nil {
			return nil, q.failed(err)
		}
		if all[kind] == nil {
			all[kind] = map[Status]int{}
		}
		all[kind][s] = n
	}
	return all, q.failed(rows.Err())
}

// live returns the queues that have jobs that are or could become due. It reads one entry of an
// index for each state and queue.
func (q *Queue) live(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	for last := ""; ; {
		var next sql.NullString
		parts := make([]string, 0, len(unfinished))
		for _, s := range unfinished {
			if s != rivertype.JobStateDiscarded {
				parts = append(parts, fmt.Sprintf("SELECT min(queue) AS m FROM river_job WHERE state = '%s' AND queue > '%s'", s, last))
			}
		}
		if err := q.db.QueryRowContext(ctx, "SELECT min(m) FROM ("+strings.Join(parts, " UNION ALL ")+") AS all_states").Scan(&next); err != nil {
			return nil, err
		}
		if !next.Valid {
			return all, nil
		}
		if strings.HasPrefix(next.String, q.space) {
			all[next.String] = true
		}
		last = strings.ReplaceAll(next.String, "'", "''")
	}
}

// Retry makes jobs of a plan due that were set aside, with all their attempts.
func (q *Queue) Retry(ctx context.Context, plan string) (n int, err error) {
	for {
		some, err := q.retrySome(ctx, plan)
		n += some
		if err != nil || some == 0 {
			return n, q.failed(err)
		}
	}
}

func (q *Queue) retrySome(ctx context.Context, plan string) (n int, err error) {
	page, err := q.client.JobList(ctx, q.list(plan, rivertype.JobStateDiscarded))
	if err != nil || len(page.Jobs) == 0 {
		return 0, err
	}
	tx, err := q.engine.executor().Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing, after Commit
	for _, row := range page.Jobs {
		if _, err = tx.JobRetry(ctx, &riverdriver.JobRetryParams{ID: row.ID}); err == nil {
			_, err = tx.JobUpdateFull(ctx, &riverdriver.JobUpdateFullParams{ID: row.ID, AttemptDoUpdate: true})
		}
		if err != nil && !errors.Is(err, rivertype.ErrNotFound) {
			return 0, err
		}
	}
	return len(page.Jobs), tx.Commit(ctx)
}

// Cancel removes the jobs of a plan that are not done, also those set aside, and returns how many.
// The context of those that are running ends within a second or two, in other processes too.
// Until they have ended, their names are not free, and they may add jobs: all is removed when
// Jobs returns none.
func (q *Queue) Cancel(ctx context.Context, plan string) (n int, err error) {
	waiting := slices.DeleteFunc(slices.Clone(unfinished), func(s rivertype.JobState) bool { return s == rivertype.JobStateRunning })
	for {
		gone, err := q.client.JobDeleteMany(ctx, river.NewJobDeleteManyParams().Queues(q.queueOf(plan)).States(waiting...).First(pageJobs))
		if err != nil {
			return n, q.failed(err)
		}
		n += len(gone.Jobs)
		running, err := q.client.JobList(ctx, q.list(plan, rivertype.JobStateRunning).First(10_000))
		if err != nil {
			return n, q.failed(err)
		}
		for _, row := range running.Jobs {
			if cancelled(row) {
				continue
			}
			if _, err := q.client.JobCancel(ctx, row.ID); err != nil && !errors.Is(err, rivertype.ErrNotFound) {
				return n, q.failed(err)
			}
			n++
		}
		if len(gone.Jobs) == 0 {
			return n, nil
		}
	}
}

// cancelled reports whether a running job was told to stop.
func cancelled(row *rivertype.JobRow) bool {
	var m map[string]any
	return json.Unmarshal(row.Metadata, &m) == nil && m["cancel_attempted_at"] != nil
}
