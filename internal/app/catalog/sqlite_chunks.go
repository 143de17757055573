package catalog

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/format"
)

// Members wait in a table of the connection's own, as locations do: what was listed
// of a chunk, or what became of its members.
const createStagedMembers = `CREATE TEMP TABLE IF NOT EXISTS staged_members (
	row INTEGER PRIMARY KEY, path BLOB NOT NULL, origin INTEGER NOT NULL, size INTEGER NOT NULL, version BLOB NOT NULL, outcome INTEGER NOT NULL, note TEXT NOT NULL)`

const (
	planColumns  = "id, name, format, target, settings, created, cancelled"
	chunkColumns = `k.id, k.plan, k.number, k.name, k.role, k.state, k.objects, k.bytes, k.first, k.last, k.vanished, k.changed, k.set_aside,
		k.attempts, k.owner, k.fence, k.due, k.started, k.finished, k.bytes_done, k.problem, k.archive, k.failures`
)

// What chunks.role says.
const (
	roleWhole = iota
	rolePart
	roleLast
)

func (n NewChunk) role() int {
	switch {
	case n.Part:
		return rolePart
	case n.Last:
		return roleLast
	}
	return roleWhole
}

// instant is a time as databases keep it: microseconds since 1970, 0 is none.
func instant(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}

// due sets what a chunk's column of that name says.
func (c *Chunk) due(micro int64) {
	switch c.State {
	case ChunkPlanned:
		c.NotBefore = instant(micro)
	case ChunkLeased:
		c.LeaseUntil = instant(micro)
	}
}

func planAt(s *sqlite.Stmt) Plan {
	return Plan{ID: s.ColumnInt64(0), Name: s.ColumnText(1), Format: s.ColumnText(2), Target: blob(s, 3), Settings: []byte(blob(s, 4)),
		Created: instant(s.ColumnInt64(5)), Cancelled: s.ColumnBool(6)}
}

func chunkAt(s *sqlite.Stmt) Chunk {
	c := Chunk{ID: s.ColumnInt64(0), Plan: s.ColumnInt64(1), Number: s.ColumnInt(2), Name: blob(s, 3), Part: s.ColumnInt(4) == rolePart, Last: s.ColumnInt(4) == roleLast,
		State: ChunkState(s.ColumnInt(5)), Objects: s.ColumnInt64(6), Bytes: s.ColumnInt64(7), first: blob(s, 8), last: blob(s, 9),
		Left:     Left{Vanished: s.ColumnInt64(10), Changed: s.ColumnInt64(11), SetAside: s.ColumnInt64(12)},
		Attempts: s.ColumnInt(13), Owner: s.ColumnText(14), Fence: s.ColumnInt64(15), Started: instant(s.ColumnInt64(17)), Finished: instant(s.ColumnInt64(18)),
		BytesDone: s.ColumnInt64(19), Problem: s.ColumnText(20), Archive: s.ColumnInt64(21), Failures: s.ColumnInt(22)}
	c.due(s.ColumnInt64(16))
	return c
}

// execute carries out a statement within a transaction, with what reads its rows.
func execute(c *sqlite.Conn, sql string, read func(s *sqlite.Stmt), args ...any) error {
	o := &sqlitex.ExecOptions{Args: args}
	if read != nil {
		o.ResultFunc = func(s *sqlite.Stmt) error { read(s); return nil }
	}
	return sqlitex.Execute(c, sql, o)
}

// one returns the number that a query has as its only column, 0 if it has no row.
func one(c *sqlite.Conn, sql string, args ...any) (n int64, err error) {
	err = execute(c, sql, func(s *sqlite.Stmt) { n = s.ColumnInt64(0) }, args...)
	return n, err
}

// first returns the path that a query finds, if it finds any.
func first(c *sqlite.Conn, sql string, args ...any) (path string, found bool, err error) {
	err = execute(c, sql, func(s *sqlite.Stmt) { path, found = blob(s, 0), true }, args...)
	return path, found, err
}

func (db *sqliteDB) addPlan(ctx context.Context, p Plan) (Plan, error) {
	p.Created, p.Cancelled = db.now().UTC().Truncate(time.Microsecond), false
	err := db.write(ctx, func(c *sqlite.Conn) error {
		err := execute(c, "INSERT INTO plans (name, format, target, settings, created) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING", nil,
			p.Name, p.Format, []byte(p.Target), p.Settings, p.Created.UnixMicro())
		if err == nil && c.Changes() == 0 {
			err = &fs.PathError{Op: "plan", Path: p.Name, Err: fs.ErrExist}
		}
		p.ID = c.LastInsertRowID()
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (db *sqliteDB) plans(ctx context.Context, name string) (all []Plan, err error) {
	for s, err := range db.query(ctx, "SELECT "+planColumns+" FROM plans WHERE ?1 = '' OR name = ?1 ORDER BY id", func(s *sqlite.Stmt) { s.BindText(1, name) }) {
		if err != nil {
			return nil, err
		}
		all = append(all, planAt(s))
	}
	return all, nil
}

// planned is what is known of the staged members of one chunk together.
type planned struct {
	from, rows, bytes int64
	first, last       string
}

// stageMembers takes members in, and returns what it knows of each list of them.
func (db *sqliteDB) stageMembers(ctx context.Context, c *sqlite.Conn, lists ...iter.Seq2[Member, error]) (all []planned, err error) {
	for _, sql := range []string{createStagedMembers, "BEGIN DEFERRED"} {
		if err := sqlitex.ExecuteTransient(c, sql, nil); err != nil {
			return nil, failed(db.name, "stage", err)
		}
	}
	defer func() { err = db.settle(c, err) }()
	insert, err := c.Prepare("INSERT INTO temp.staged_members (path, origin, size, version, outcome, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
	if err != nil {
		return nil, failed(db.name, "stage", err)
	}
	defer insert.Reset()
	from := int64(0)
	var buf []byte
	for _, list := range lists {
		p := planned{from: from}
		for m, err := range list {
			if err != nil {
				return nil, err
			}
			if p.rows&0xfff == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			buf = append(append(buf[:0], m.Path...), m.Version...)
			insert.BindBytes(1, buf[:len(m.Path)])
			insert.BindInt64(2, int64(m.Origin))
			insert.BindInt64(3, m.Size)
			insert.BindBytes(4, buf[len(m.Path):])
			insert.BindInt64(5, int64(m.Outcome))
			insert.BindText(6, m.Note)
			_, err := insert.Step()
			if rerr := insert.Reset(); err == nil {
				err = rerr
			}
			if err != nil {
				return nil, failed(db.name, "stage", err)
			}
			if p.rows == 0 {
				p.first = m.Path
			}
			p.last = m.Path
			p.rows++
			p.bytes += m.Size
		}
		from += p.rows
		all = append(all, p)
	}
	return all, nil
}

func (db *sqliteDB) addChunks(ctx context.Context, plan int64, all []NewChunk) (added []Chunk, err error) {
	err = db.staged(ctx, func(c *sqlite.Conn) error {
		var lists []iter.Seq2[Member, error]
		for _, n := range all {
			lists = append(lists, n.Members)
		}
		known, err := db.stageMembers(ctx, c, lists...)
		if err != nil {
			return err
		}
		return db.transact(ctx, c, func(c *sqlite.Conn) error {
			if err := whole(c, plan); err != nil {
				return err
			}
			next, err := one(c, "SELECT coalesce(max(number)+1, 0) FROM chunks WHERE plan = ?1", plan)
			if err != nil {
				return err
			}
			for i, n := range all {
				p := known[i]
				err := execute(c, `INSERT INTO chunks (plan, number, name, role, state, objects, bytes, first, last) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
					ON CONFLICT (plan, name) DO NOTHING`, nil, plan, next, []byte(n.Name), n.role(), int(ChunkPlanned), p.rows, p.bytes, []byte(p.first), []byte(p.last))
				if err == nil && c.Changes() == 0 {
					err = &fs.PathError{Op: "chunk", Path: format.Escape(n.Name), Err: fs.ErrExist}
				}
				id := c.LastInsertRowID()
				if err == nil {
					err = execute(c, "INSERT INTO members (chunk, path, origin, size, version) SELECT ?1, path, origin, size, version FROM temp.staged_members WHERE row > ?2 AND row <= ?3 ORDER BY row",
						nil, id, p.from, p.from+p.rows)
				}
				if err != nil {
					return err
				}
				added = append(added, Chunk{ID: id, Plan: plan, Number: int(next), Name: n.Name, Part: n.Part, Last: n.Last, Objects: p.rows, Bytes: p.bytes, first: p.first, last: p.last})
				next++
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

// whole returns why nothing may be added to a plan.
func whole(c *sqlite.Conn, plan int64) error {
	found, cancelled := false, false
	err := execute(c, "SELECT cancelled FROM plans WHERE id = ?1", func(s *sqlite.Stmt) { found, cancelled = true, s.ColumnBool(0) }, plan)
	switch {
	case err != nil:
		return err
	case !found:
		return noPlan(plan)
	case cancelled:
		return fmt.Errorf("plan %d: %w", plan, ErrCancelled)
	}
	return nil
}

func (db *sqliteDB) chunk(ctx context.Context, id int64) (all []Chunk, err error) {
	for s, err := range db.query(ctx, "SELECT "+chunkColumns+" FROM chunks AS k WHERE k.id = ?1", func(s *sqlite.Stmt) { s.BindInt64(1, id) }) {
		if err != nil {
			return nil, err
		}
		all = append(all, chunkAt(s))
	}
	return all, nil
}

func (db *sqliteDB) chunks(ctx context.Context, plan int64) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for s, err := range db.query(ctx, "SELECT "+chunkColumns+" FROM chunks AS k WHERE k.plan = ?1 ORDER BY k.number", func(s *sqlite.Stmt) { s.BindInt64(1, plan) }) {
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			if !yield(chunkAt(s), nil) {
				return
			}
		}
	}
}

func (db *sqliteDB) members(ctx context.Context, chunk int64, from string) iter.Seq2[Member, error] {
	const sql = `SELECT m.path, m.origin, m.size, m.version, coalesce(m.outcome, CASE k.state WHEN ?3 THEN ?4 ELSE ?5 END), m.note
		FROM chunks AS k CROSS JOIN members AS m WHERE k.id = ?1 AND m.chunk = ?1 AND m.path >= ?2 ORDER BY m.path`
	return func(yield func(Member, error) bool) {
		for s, err := range db.query(ctx, sql, func(s *sqlite.Stmt) {
			s.BindInt64(1, chunk)
			s.BindBytes(2, []byte(from))
			s.BindInt64(3, int64(ChunkDone))
			s.BindInt64(4, int64(Packed))
			s.BindInt64(5, int64(Pending))
		}) {
			if err != nil {
				yield(Member{}, err)
				return
			}
			if !yield(Member{Path: blob(s, 0), Origin: s.ColumnInt(1), Size: s.ColumnInt64(2), Version: blob(s, 3), Outcome: Outcome(s.ColumnInt(4)), Note: s.ColumnText(5)}, nil) {
				return
			}
		}
	}
}

func (db *sqliteDB) claim(ctx context.Context, r Request) (claimed Chunk, err error) {
	err = db.write(ctx, func(c *sqlite.Conn) error {
		now := db.now()
		id, err := one(c, `SELECT id FROM chunks AS k WHERE state < 2 AND due <= ?1 AND (?2 = 0 OR plan = ?2) AND (?3 = 0 OR id = ?3) AND (NOT ?6 OR state = ?7)
			AND (role <> ?4 OR NOT EXISTS (SELECT 1 FROM chunks WHERE plan = k.plan AND number < k.number AND state <> ?5))
			ORDER BY id LIMIT 1`, now.UnixMicro(), r.Plan, r.Chunk, roleLast, int(ChunkDone), r.Lapsed, int(ChunkLeased))
		if err != nil {
			return err
		} else if id == 0 {
			return ErrNone
		}
		err = execute(c, "UPDATE chunks SET state = ?2, owner = ?3, fence = fence+1, attempts = attempts+1, due = ?4, started = ?5, bytes_done = 0 WHERE id = ?1", nil,
			id, int(ChunkLeased), r.Owner, now.Add(r.Lease).UnixMicro(), now.UnixMicro())
		if err == nil {
			claimed, err = chunkOf(c, id)
		}
		return err
	})
	if err != nil {
		return Chunk{}, err
	}
	return claimed, nil
}

// chunkOf returns the chunk of an ID within a transaction, a zero one if there is none.
func chunkOf(c *sqlite.Conn, id int64) (k Chunk, err error) {
	err = execute(c, "SELECT "+chunkColumns+" FROM chunks AS k WHERE k.id = ?1", func(s *sqlite.Stmt) { k = chunkAt(s) }, id)
	return k, err
}

// ifClaimed changes the chunk of a claim that holds.
func (db *sqliteDB) ifClaimed(ctx context.Context, claim Chunk, sql string, args ...any) error {
	return db.write(ctx, func(c *sqlite.Conn) error {
		err := execute(c, "UPDATE chunks SET "+sql+" WHERE id = ?1 AND fence = ?2 AND state = ?3", nil, append([]any{claim.ID, claim.Fence, int(ChunkLeased)}, args...)...)
		if err == nil && c.Changes() == 0 {
			err = lost(claim)
		}
		return err
	})
}

func (db *sqliteDB) renew(ctx context.Context, claim Chunk, lease time.Duration, bytesDone int64) error {
	return db.ifClaimed(ctx, claim, "due = ?4, bytes_done = ?5", db.now().Add(lease).UnixMicro(), bytesDone)
}

func (db *sqliteDB) releaseChunk(ctx context.Context, claim Chunk, problem string, again time.Duration, setAside bool) error {
	state := ChunkPlanned
	if setAside {
		state = ChunkSetAside
	}
	return db.ifClaimed(ctx, claim, "state = ?4, due = ?5, problem = ?6, failures = failures + (?6 != ''), bytes_done = 0", int(state), db.now().Add(again).UnixMicro(), problem)
}

func (db *sqliteDB) finish(ctx context.Context, claim Chunk, a *Addition, left iter.Seq2[Member, error]) (done Added, err error) {
	err = db.staged(ctx, func(c *sqlite.Conn) error {
		if _, err := db.stageMembers(ctx, c, left); err != nil {
			return err
		}
		var rows *waiting
		if a != nil {
			var err error
			if rows, err = db.stage(ctx, a.Rows, inMemory); err != nil {
				return err
			}
			defer rows.sorted.Close()
		}
		return db.transact(ctx, c, func(c *sqlite.Conn) error {
			k, err := chunkOf(c, claim.ID)
			if err != nil {
				return err
			}
			finished, err := k.claimed(claim)
			if err != nil {
				return err
			}
			if finished {
				return execute(c, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.id = ?1", func(s *sqlite.Stmt) { done.Archive = archiveAt(s, 0) }, k.Archive)
			}
			if k.Left, err = settleMembers(c, k); err != nil {
				return err
			}
			if a != nil {
				if done, err = publish(c, a.Archive, rows); err != nil {
					return err
				}
				if n, err := one(c, "SELECT count(*) FROM chunks WHERE archive = ?1 AND archive > 0", done.Replaced.ID); err != nil {
					return err
				} else if n > 0 {
					return &fs.PathError{Op: "chunk", Path: format.Escape(a.Address), Err: fs.ErrExist}
				}
			}
			if err := db.account(c, k, done.Archive); err != nil {
				return err
			}
			return execute(c, `UPDATE chunks SET state = ?2, finished = ?3, archive = ?4, vanished = ?5, changed = ?6, set_aside = ?7, bytes_done = bytes, problem = '', due = 0 WHERE id = ?1`, nil,
				k.ID, int(ChunkDone), db.now().UnixMicro(), done.ID, k.Left.Vanished, k.Left.Changed, k.Left.SetAside)
		})
	})
	if err != nil {
		return Added{}, err
	}
	return done, nil
}

// settleMembers makes the staged outcomes those of a chunk's members.
func settleMembers(c *sqlite.Conn, k Chunk) (l Left, err error) {
	path, found, err := first(c, "SELECT path FROM temp.staged_members AS s WHERE NOT EXISTS (SELECT 1 FROM members WHERE chunk = ?1 AND path = s.path) LIMIT 1", k.ID)
	if err == nil && found {
		err = noMember(k.Name, path)
	}
	if err == nil { // of several of one path the last one counts
		err = execute(c, `UPDATE members AS m SET outcome = s.outcome, note = nullif(s.note, ''),
				size = iif(s.outcome = ?2, s.size, m.size), version = iif(s.outcome = ?2, s.version, m.version)
			FROM (SELECT path, outcome, note, size, version, max(row) FROM temp.staged_members GROUP BY path) AS s WHERE m.chunk = ?1 AND m.path = s.path`, nil, k.ID, int(Packed))
	}
	if err == nil {
		err = execute(c, "SELECT outcome, count(*) FROM (SELECT outcome, max(row) FROM temp.staged_members GROUP BY path) GROUP BY outcome", func(s *sqlite.Stmt) {
			switch n := s.ColumnInt64(1); Outcome(s.ColumnInt(0)) {
			case Vanished:
				l.Vanished = n
			case Changed:
				l.Changed = n
			case SetAside:
				l.SetAside = n
			}
		})
	}
	return l, err
}

// account compares what was to be packed with what an archive has: neither may have
// more than the other. The last chunk accounts for the parts before it, too.
func (db *sqliteDB) account(c *sqlite.Conn, k Chunk, a Archive) error {
	if k.Part {
		if a.ID != 0 {
			return fmt.Errorf("%s: expected no archive of a part, found one", format.Escape(k.Name))
		}
		return nil
	}
	of := []int64{k.ID}
	due := k.Objects - k.Left.sum()
	apart := true // no path is in two of them
	if k.Last {
		reached, any := "", false
		apart = k.Objects == 0
		err := execute(c, "SELECT id, objects-vanished-changed-set_aside, first, last FROM chunks WHERE plan = ?1 AND number < ?2 AND role = ?3 AND archive = 0 ORDER BY first", func(s *sqlite.Stmt) {
			of = append(of, s.ColumnInt64(0))
			due += s.ColumnInt64(1)
			from, to := blob(s, 2), blob(s, 3)
			apart = apart && (!any || reached < from)
			reached, any = to, true
		}, k.Plan, k.Number, rolePart)
		if err != nil {
			return err
		}
	}
	for _, id := range of {
		path, found, err := first(c, `SELECT m.path FROM members AS m WHERE m.chunk = ?1 AND coalesce(m.outcome, ?3) = ?3
			AND NOT EXISTS (SELECT 1 FROM locations AS l WHERE l.path = m.path AND l.archive = ?2) LIMIT 1`, id, a.ID, int(Packed))
		if err != nil {
			return err
		} else if found {
			return unpacked(k.Name, path)
		}
		if id != k.ID {
			if err := execute(c, "UPDATE chunks SET archive = ?2 WHERE id = ?1", nil, id, a.ID); err != nil {
				return err
			}
		}
	}
	// All that were to be packed are there: if they are as many as there are paths,
	// there is nothing else.
	if !apart {
		var err error
		due, err = one(c, `SELECT count(DISTINCT m.path) FROM chunks AS k JOIN members AS m ON m.chunk = k.id
			WHERE k.plan = ?1 AND (k.id = ?2 OR k.number < ?3 AND k.role = ?4 AND k.archive = ?5) AND coalesce(m.outcome, ?6) = ?6`, k.Plan, k.ID, k.Number, rolePart, a.ID, int(Packed))
		if err != nil {
			return err
		}
	}
	if due == a.Entries {
		return nil
	}
	path, _, err := first(c, `SELECT l.path FROM archives AS a CROSS JOIN locations AS l WHERE a.id = ?2 AND l.path >= a.first AND l.path <= a.last AND l.archive = ?2
		AND NOT EXISTS (SELECT 1 FROM members AS m JOIN chunks AS k ON k.id = m.chunk
			WHERE (m.chunk = ?1 OR k.plan = ?3 AND k.archive = ?2) AND m.path = l.path AND coalesce(m.outcome, ?4) = ?4) LIMIT 1`, k.ID, a.ID, k.Plan, int(Packed))
	return cmp.Or(err, miscounted(k.Name, due, a.Entries, path))
}

func (db *sqliteDB) cancelPlan(ctx context.Context, plan int64) error {
	return db.write(ctx, func(c *sqlite.Conn) error {
		err := execute(c, "UPDATE plans SET cancelled = 1 WHERE id = ?1", nil, plan)
		if err == nil && c.Changes() == 0 {
			err = noPlan(plan)
		}
		if err == nil {
			err = execute(c, "UPDATE chunks SET state = ?2 WHERE plan = ?1 AND state IN (?3, ?4)", nil, plan, int(ChunkCancelled), int(ChunkPlanned), int(ChunkLeased))
		}
		return err
	})
}

func (db *sqliteDB) retryPlan(ctx context.Context, plan int64) (n int, err error) {
	err = db.write(ctx, func(c *sqlite.Conn) error {
		err := execute(c, "UPDATE plans SET cancelled = 0 WHERE id = ?1", nil, plan)
		if err == nil && c.Changes() == 0 {
			err = noPlan(plan)
		}
		if err == nil {
			err = execute(c, "UPDATE chunks SET state = ?2, due = 0, attempts = 0, failures = 0, bytes_done = 0 WHERE plan = ?1 AND state IN (?3, ?4)", nil,
				plan, int(ChunkPlanned), int(ChunkSetAside), int(ChunkCancelled))
			n = c.Changes()
		}
		return err
	})
	return n, err
}

func (db *sqliteDB) totals(ctx context.Context, plan int64) (t Totals, err error) {
	const sql = `SELECT state, count(*), sum(objects), sum(bytes), sum(vanished), sum(changed), sum(set_aside), sum(bytes_done) FROM chunks WHERE plan = ?1 GROUP BY state`
	for s, err := range db.query(ctx, sql, func(s *sqlite.Stmt) { s.BindInt64(1, plan) }) {
		if err != nil {
			return t, err
		}
		t.tally(ChunkState(s.ColumnInt(0)), Tally{s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3)}, Left{s.ColumnInt64(4), s.ColumnInt64(5), s.ColumnInt64(6)}, s.ColumnInt64(7))
	}
	return t, nil
}

// tally takes in what is known of the chunks of one state.
func (t *Totals) tally(state ChunkState, n Tally, l Left, bytesDone int64) {
	if state >= chunkStates {
		return
	}
	t.States[state] = n
	if state == ChunkDone {
		t.Outcomes[Packed] += n.Objects - l.sum()
		t.Outcomes[Vanished] += l.Vanished
		t.Outcomes[Changed] += l.Changed
		t.Outcomes[SetAside] += l.SetAside
		return
	}
	t.Outcomes[Pending] += n.Objects
	if state == ChunkLeased {
		t.BytesDone = bytesDone
	}
}
