package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdall/holdall/format"
)

// A Queue takes part in the transactions in which chunks become due and are done, so
// that a queue of jobs in the same PostgreSQL database always agrees with them. An error
// takes everything back.
type Queue interface {
	// Open is told of the connections of a catalogue that is opened to be written,
	// before anything else. The queue may use them as long as the catalogue is open, and
	// make tables of its own where their search path leads, among the catalogue's.
	Open(ctx context.Context, pool *pgxpool.Pool) error
	// Enqueue is told of chunks that are due, now or at their NotBefore.
	Enqueue(ctx context.Context, tx pgx.Tx, chunks []Chunk) error
	// Finished is told of a chunk that is done.
	Finished(ctx context.Context, tx pgx.Tx, c Chunk) error
}

const createPostgresStagedMembers = `SET LOCAL client_min_messages = warning;
CREATE TEMP TABLE IF NOT EXISTS staged_members (
	row bigint NOT NULL, size bigint NOT NULL, outcome smallint NOT NULL, path bytea NOT NULL, version bytea NOT NULL, note text NOT NULL) ON COMMIT DELETE ROWS`

// clock is the time now as a statement has it: that of the database, unless it was
// told one.
const clock = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"

// clock returns the time that statements are told, nil for the database's.
func (db *postgresDB) clock() *int64 {
	if db.now == nil {
		return nil
	}
	return new(db.now().UnixMicro())
}

func scanPlan(row pgx.CollectableRow) (Plan, error) {
	var p Plan
	var target []byte
	var created int64
	err := row.Scan(&p.ID, &p.Name, &p.Format, &target, &p.Settings, &created, &p.Cancelled)
	p.Target, p.Created = string(target), instant(created)
	return p, err
}

func scanChunk(row pgx.CollectableRow) (Chunk, error) {
	var c Chunk
	var name, first, last []byte
	var role, state int
	var due, started, finished int64
	err := row.Scan(&c.ID, &c.Plan, &c.Number, &name, &role, &state, &c.Objects, &c.Bytes, &first, &last, &c.Left.Vanished, &c.Left.Changed, &c.Left.SetAside,
		&c.Attempts, &c.Owner, &c.Fence, &due, &started, &finished, &c.BytesDone, &c.Problem, &c.Archive, &c.Failures)
	c.Name, c.first, c.last, c.Part, c.Last, c.State = string(name), string(first), string(last), role == rolePart, role == roleLast, ChunkState(state)
	c.Started, c.Finished = instant(started), instant(finished)
	c.due(due)
	return c, err
}

func scanMember(row pgx.CollectableRow) (Member, error) {
	var m Member
	var path, version []byte
	var note *string
	err := row.Scan(&path, &m.Origin, &m.Size, &version, &m.Outcome, &note)
	m.Path, m.Version = string(path), string(version)
	if note != nil {
		m.Note = *note
	}
	return m, err
}

// rowsOf returns what a statement within a transaction has.
func rowsOf[T any](ctx context.Context, tx pgx.Tx, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, row)
}

// pathIn returns the path that a query finds, if it finds any.
func pathIn(ctx context.Context, tx pgx.Tx, sql string, args ...any) (path string, found bool, err error) {
	all, err := rowsOf(ctx, tx, pgx.RowTo[[]byte], sql, args...)
	if err != nil || len(all) == 0 {
		return "", false, err
	}
	return string(all[0]), true, nil
}

func (db *postgresDB) addPlan(ctx context.Context, p Plan) (Plan, error) {
	p.Cancelled = false
	err := db.write(ctx, func(tx pgx.Tx) error {
		var created int64
		err := tx.QueryRow(ctx, "INSERT INTO plans (created, name, format, target, settings) VALUES ("+clock+", $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING id, created",
			db.clock(), p.Name, p.Format, []byte(p.Target), p.Settings).Scan(&p.ID, &created)
		if errors.Is(err, pgx.ErrNoRows) {
			err = &fs.PathError{Op: "plan", Path: p.Name, Err: fs.ErrExist}
		}
		p.Created = instant(created)
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (db *postgresDB) plans(ctx context.Context, name string) ([]Plan, error) {
	return collected(ctx, db, scanPlan, "SELECT "+planColumns+" FROM plans WHERE $1::text = '' OR name = $1 ORDER BY id", name)
}

func (db *postgresDB) addChunks(ctx context.Context, plan int64, all []NewChunk) (added []Chunk, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		// The members first: a listing may take its time, and nobody waits for it.
		values := make([]any, 5)
		for _, n := range all {
			k := Chunk{Plan: plan, Name: n.Name, Part: n.Part, Last: n.Last}
			if err := tx.QueryRow(ctx, "SELECT nextval(pg_get_serial_sequence('chunks', 'id'))").Scan(&k.ID); err != nil {
				return err
			}
			err := copied(ctx, tx, pgx.Identifier{"members"}, []string{"chunk", "size", "origin", "path", "version"}, n.Members, func(m Member) []any {
				if k.Objects == 0 {
					k.first = m.Path
				}
				k.last = m.Path
				k.Objects++
				k.Bytes += m.Size
				values[0], values[1], values[2], values[3], values[4] = k.ID, m.Size, int32(m.Origin), []byte(m.Path), []byte(m.Version)
				return values
			})
			if err != nil {
				return err
			}
			added = append(added, k)
		}
		cancelled, err := rowsOf(ctx, tx, pgx.RowTo[bool], "SELECT cancelled FROM plans WHERE id = $1 FOR UPDATE", plan)
		switch {
		case err != nil:
			return err
		case len(cancelled) == 0:
			return noPlan(plan)
		case cancelled[0]:
			return fmt.Errorf("plan %d: %w", plan, ErrCancelled)
		}
		var next int
		if err := tx.QueryRow(ctx, "SELECT coalesce(max(number)+1, 0) FROM chunks WHERE plan = $1", plan).Scan(&next); err != nil {
			return err
		}
		for i := range added {
			k := &added[i]
			k.Number = next + i
			done, err := tx.Exec(ctx, `INSERT INTO chunks (id, plan, number, name, role, state, objects, bytes, first, last) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
				ON CONFLICT DO NOTHING`, k.ID, plan, k.Number, []byte(k.Name), all[i].role(), int(ChunkPlanned), k.Objects, k.Bytes, []byte(k.first), []byte(k.last))
			if err == nil && done.RowsAffected() == 0 {
				err = &fs.PathError{Op: "chunk", Path: format.Escape(k.Name), Err: fs.ErrExist}
			}
			if err != nil {
				return err
			}
		}
		return db.enqueue(ctx, tx, added)
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

func (db *postgresDB) enqueue(ctx context.Context, tx pgx.Tx, all []Chunk) error {
	if db.queue == nil || len(all) == 0 {
		return nil
	}
	return db.queue.Enqueue(ctx, tx, all)
}

func (db *postgresDB) chunk(ctx context.Context, id int64) ([]Chunk, error) {
	return collected(ctx, db, scanChunk, "SELECT "+chunkColumns+" FROM chunks AS k WHERE k.id = $1", id)
}

func (db *postgresDB) chunks(ctx context.Context, plan int64) iter.Seq2[Chunk, error] {
	// A page's end is a number here.
	return func(yield func(Chunk, error) bool) {
		all, err := collected(ctx, db, scanChunk, "SELECT "+chunkColumns+" FROM chunks AS k WHERE k.plan = $1 ORDER BY k.number", plan)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		for _, k := range all {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func (db *postgresDB) members(ctx context.Context, chunk int64, from string) iter.Seq2[Member, error] {
	const sql = `SELECT m.path, m.origin, m.size, m.version, coalesce(m.outcome, CASE k.state WHEN $4::int THEN $5::int ELSE $6::int END), m.note
		FROM members AS m JOIN chunks AS k ON k.id = m.chunk
		WHERE m.chunk = $3 AND substring(m.path, 1, 1024) >= substring($1::bytea, 1, 1024) AND m.path >= $1 ORDER BY m.chunk, substring(m.path, 1, 1024), m.path LIMIT $2`
	return paged(ctx, db, scanMember, sql, from, func(m Member) string { return m.Path + "\x00" }, chunk, int(ChunkDone), int(Packed), int(Pending))
}

func (db *postgresDB) claim(ctx context.Context, r Request) (claimed Chunk, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		// Who claims at the same time goes past the chunk that we have locked.
		all, err := rowsOf(ctx, tx, scanChunk, `UPDATE chunks AS k SET state = $2, owner = $3, fence = fence+1, attempts = attempts+1, due = `+clock+` + $4::bigint, started = `+clock+`, bytes_done = 0
			WHERE id = (SELECT id FROM chunks AS f WHERE state < 2 AND due <= `+clock+` AND ($5::bigint = 0 OR plan = $5) AND ($6::bigint = 0 OR id = $6) AND (NOT $9::bool OR state = $2)
				AND (role <> $7 OR NOT EXISTS (SELECT 1 FROM chunks WHERE plan = f.plan AND number < f.number AND state <> $8))
				ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING `+chunkColumns, db.clock(), int(ChunkLeased), r.Owner, r.Lease.Microseconds(), r.Plan, r.Chunk, roleLast, int(ChunkDone), r.Lapsed)
		if err == nil && len(all) == 0 {
			err = ErrNone
		}
		if err == nil {
			claimed = all[0]
		}
		return err
	})
	if err != nil {
		return Chunk{}, err
	}
	return claimed, nil
}

// ifClaimed changes the chunk of a claim that holds, and returns it. $1 is for the
// clock, what is given begins at $5.
func (db *postgresDB) ifClaimed(ctx context.Context, claim Chunk, sql string, then func(tx pgx.Tx, k Chunk) error, args ...any) error {
	return db.write(ctx, func(tx pgx.Tx) error {
		all, err := rowsOf(ctx, tx, scanChunk, "UPDATE chunks AS k SET "+sql+" WHERE id = $2 AND fence = $3 AND state = $4 RETURNING "+chunkColumns,
			append([]any{db.clock(), claim.ID, claim.Fence, int(ChunkLeased)}, args...)...)
		if err == nil && len(all) == 0 {
			err = lost(claim)
		}
		if err != nil || then == nil {
			return err
		}
		return then(tx, all[0])
	})
}

func (db *postgresDB) renew(ctx context.Context, claim Chunk, lease time.Duration, bytesDone int64) error {
	return db.ifClaimed(ctx, claim, "due = "+clock+" + $5::bigint, bytes_done = $6", nil, lease.Microseconds(), bytesDone)
}

func (db *postgresDB) releaseChunk(ctx context.Context, claim Chunk, problem string, again time.Duration, setAside bool) error {
	state := ChunkPlanned
	if setAside {
		state = ChunkSetAside
	}
	return db.ifClaimed(ctx, claim, "due = "+clock+" + $5::bigint, state = $6, problem = $7, failures = failures + ($7 <> '')::int, bytes_done = 0", func(tx pgx.Tx, k Chunk) error {
		if setAside {
			return nil
		}
		return db.enqueue(ctx, tx, []Chunk{k})
	}, again.Microseconds(), int(state), problem)
}

func (db *postgresDB) finish(ctx context.Context, claim Chunk, a *Addition, left iter.Seq2[Member, error]) (done Added, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, createPostgresStagedMembers, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		n := int64(0)
		values := make([]any, 6)
		err := copied(ctx, tx, pgx.Identifier{"pg_temp", "staged_members"}, []string{"row", "size", "outcome", "path", "version", "note"}, left, func(m Member) []any {
			n++
			values[0], values[1], values[2], values[3], values[4], values[5] = n, m.Size, int16(m.Outcome), []byte(m.Path), []byte(m.Version), m.Note
			return values
		})
		if err != nil {
			return err
		}
		var all []Addition
		if a != nil {
			all = []Addition{*a}
		}
		staged, err := stagePostgres(ctx, tx, all)
		if err != nil {
			return err
		}
		// PostgreSQL knows nothing of new tables, and guesses badly.
		if _, err := tx.Exec(ctx, "ANALYZE pg_temp.staged_members, pg_temp.staged"); err != nil {
			return err
		}
		chunks, err := rowsOf(ctx, tx, scanChunk, "SELECT "+chunkColumns+" FROM chunks AS k WHERE id = $1 FOR UPDATE", claim.ID)
		if err != nil {
			return err
		} else if len(chunks) == 0 {
			return lost(claim)
		}
		k := chunks[0]
		finished, err := k.claimed(claim)
		if err != nil {
			return err
		}
		if finished {
			archives, err := rowsOf(ctx, tx, scanArchive, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.id = $1", k.Archive)
			if err == nil && len(archives) > 0 {
				done.Archive = archives[0]
			}
			return err
		}
		if k.Left, err = settlePostgres(ctx, tx, k, n > 0); err != nil {
			return err
		}
		if a != nil {
			added, err := publishPostgres(ctx, tx, all, staged)
			if err != nil {
				return err
			}
			done = added[0]
			if done.Replaced.ID != 0 {
				var others bool
				if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM chunks WHERE archive = $1)", done.Replaced.ID).Scan(&others); err != nil {
					return err
				} else if others {
					return &fs.PathError{Op: "chunk", Path: format.Escape(a.Address), Err: fs.ErrExist}
				}
			}
		}
		if err := accountPostgres(ctx, tx, k, done.Archive); err != nil {
			return err
		}
		ended, err := rowsOf(ctx, tx, scanChunk, `UPDATE chunks AS k SET state = $2, finished = `+clock+`, archive = $3, vanished = $4, changed = $5, set_aside = $6, bytes_done = bytes, problem = '', due = 0
			WHERE id = $7 RETURNING `+chunkColumns, db.clock(), int(ChunkDone), done.ID, k.Left.Vanished, k.Left.Changed, k.Left.SetAside, k.ID)
		if err != nil || db.queue == nil {
			return err
		}
		return db.queue.Finished(ctx, tx, ended[0])
	})
	if err != nil {
		return Added{}, err
	}
	return done, nil
}

// settlePostgres makes the staged outcomes those of a chunk's members.
func settlePostgres(ctx context.Context, tx pgx.Tx, k Chunk, any bool) (l Left, err error) {
	if !any {
		return l, nil
	}
	path, found, err := pathIn(ctx, tx, `SELECT s.path FROM pg_temp.staged_members AS s WHERE NOT EXISTS (SELECT 1 FROM members AS m
		WHERE m.chunk = $1 AND substring(m.path, 1, 1024) = substring(s.path, 1, 1024) AND m.path = s.path) LIMIT 1`, k.ID)
	if err == nil && found {
		err = noMember(k.Name, path)
	}
	const newest = "(SELECT DISTINCT ON (path) * FROM pg_temp.staged_members ORDER BY path, row DESC) AS s" // of several of one path the last one counts
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE members AS m SET outcome = s.outcome, note = nullif(s.note, ''),
				size = CASE s.outcome WHEN $2 THEN s.size ELSE m.size END, version = CASE s.outcome WHEN $2 THEN s.version ELSE m.version END
			FROM `+newest+` WHERE m.chunk = $1 AND substring(m.path, 1, 1024) = substring(s.path, 1, 1024) AND m.path = s.path`, k.ID, int(Packed))
	}
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE outcome = $1), count(*) FILTER (WHERE outcome = $2), count(*) FILTER (WHERE outcome = $3) FROM `+newest,
			int(Vanished), int(Changed), int(SetAside)).Scan(&l.Vanished, &l.Changed, &l.SetAside)
	}
	return l, err
}

// accountPostgres compares what was to be packed with what is staged: neither may have more
// than the other. The last chunk accounts for the parts before it, too.
func accountPostgres(ctx context.Context, tx pgx.Tx, k Chunk, a Archive) error {
	if k.Part {
		if a.ID != 0 {
			return fmt.Errorf("%s: expected no archive of a part, found one", format.Escape(k.Name))
		}
		return nil
	}
	due := k.Objects - k.Left.sum()
	of := []int64{k.ID}
	apart := true // no path is in two of them
	if k.Last {
		parts, err := rowsOf(ctx, tx, scanChunk, "SELECT "+chunkColumns+" FROM chunks AS k WHERE plan = $1 AND number < $2 AND role = $3 AND archive = 0 ORDER BY first", k.Plan, k.Number, rolePart)
		if err != nil {
			return err
		}
		apart = k.Objects == 0
		for i, p := range parts {
			of = append(of, p.ID)
			due += p.Objects - p.Left.sum()
			apart = apart && (i == 0 || parts[i-1].last < p.first)
		}
		if _, err := tx.Exec(ctx, "UPDATE chunks SET archive = $2 WHERE id = ANY($1)", of, a.ID); err != nil {
			return err
		}
	}
	path, found, err := pathIn(ctx, tx, `SELECT m.path FROM members AS m WHERE m.chunk = ANY($1) AND coalesce(m.outcome, $2) = $2
		AND NOT EXISTS (SELECT 1 FROM pg_temp.staged AS s WHERE s.path = m.path) LIMIT 1`, of, int(Packed))
	if err != nil {
		return err
	} else if found {
		return unpacked(k.Name, path)
	}
	// All that were to be packed are there: if they are as many as there are paths,
	// there is nothing else.
	if !apart {
		if err := tx.QueryRow(ctx, "SELECT count(DISTINCT path) FROM members WHERE chunk = ANY($1) AND coalesce(outcome, $2) = $2", of, int(Packed)).Scan(&due); err != nil {
			return err
		}
	}
	if due == a.Entries {
		return nil
	}
	path, _, err = pathIn(ctx, tx, `SELECT s.path FROM pg_temp.staged AS s WHERE NOT EXISTS (SELECT 1 FROM members AS m
		WHERE m.chunk = ANY($1) AND m.path = s.path AND coalesce(m.outcome, $2) = $2) LIMIT 1`, of, int(Packed))
	return cmp.Or(err, miscounted(k.Name, due, a.Entries, path))
}

func (db *postgresDB) cancelPlan(ctx context.Context, plan int64) error {
	return db.write(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE plans SET cancelled = true WHERE id = $1", plan)
		if err == nil && done.RowsAffected() == 0 {
			err = noPlan(plan)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE chunks SET state = $2 WHERE plan = $1 AND state IN ($3, $4)", plan, int(ChunkCancelled), int(ChunkPlanned), int(ChunkLeased))
		}
		return err
	})
}

func (db *postgresDB) retryPlan(ctx context.Context, plan int64) (n int, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE plans SET cancelled = false WHERE id = $1", plan)
		if err == nil && done.RowsAffected() == 0 {
			err = noPlan(plan)
		}
		if err != nil {
			return err
		}
		all, err := rowsOf(ctx, tx, scanChunk, "UPDATE chunks AS k SET state = $2, due = 0, attempts = 0, failures = 0, bytes_done = 0 WHERE plan = $1 AND state IN ($3, $4) RETURNING "+chunkColumns,
			plan, int(ChunkPlanned), int(ChunkSetAside), int(ChunkCancelled))
		if err != nil {
			return err
		}
		n = len(all)
		return db.enqueue(ctx, tx, all)
	})
	return n, err
}

func (db *postgresDB) totals(ctx context.Context, plan int64) (t Totals, err error) {
	type sums struct {
		state int
		n     Tally
		l     Left
		done  int64
	}
	all, err := collected(ctx, db, func(row pgx.CollectableRow) (s sums, err error) {
		err = row.Scan(&s.state, &s.n.Chunks, &s.n.Objects, &s.n.Bytes, &s.l.Vanished, &s.l.Changed, &s.l.SetAside, &s.done)
		return s, err
	}, `SELECT state, count(*), sum(objects)::bigint, sum(bytes)::bigint, sum(vanished)::bigint, sum(changed)::bigint, sum(set_aside)::bigint, sum(bytes_done)::bigint
		FROM chunks WHERE plan = $1 GROUP BY state`, plan)
	for _, s := range all {
		t.tally(ChunkState(s.state), s.n, s.l, s.done)
	}
	return t, err
}
