package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdall/holdall/format"
)

const (
	planColumns  = "id, name, format, target, settings, created, cancelled"
	chunkColumns = `id, plan, number, name, role, state, objects, bytes, first, last, vanished, changed, set_aside,
		attempts, owner, fence, due, started, finished, bytes_done, problem, archive, failures, damaged, proven`
)

// columns returns pointers to the fields, in the order of planColumns.
func (p *Plan) columns() []any {
	return []any{&p.ID, &p.Name, &p.Format, (*blob)(&p.Target), &p.Settings, (*moment)(&p.Created), &p.Cancelled}
}

// columns returns pointers to the fields, in the order of chunkColumns.
func (c *Chunk) columns() []any {
	return []any{&c.ID, &c.Plan, &c.Number, (*blob)(&c.Name), (*role)(c), &c.State, &c.Objects, &c.Bytes, (*blob)(&c.first), (*blob)(&c.last),
		&c.Left.Vanished, &c.Left.Changed, &c.Left.SetAside, &c.Attempts, &c.Owner, &c.Fence, (*due)(c), (*moment)(&c.Started), (*moment)(&c.Finished),
		&c.BytesDone, &c.Problem, &c.Archive, &c.Failures, &c.Left.Damaged, &c.Proven}
}

// These are the bits of chunks.role.
const (
	roleWhole = iota
	rolePart
	roleLast
	roleRewrites
	roleRepairs
)

// A role is a chunk in the form of its role column.
type role Chunk

func (r *role) ScanInt64(n pgtype.Int8) error {
	r.Part, r.Last, r.Rewrites, r.Repairs = n.Int64 == rolePart, n.Int64 == roleLast, n.Int64 == roleRewrites || n.Int64 == roleRepairs, n.Int64 == roleRepairs
	return nil
}

func (n NewChunk) role() int {
	switch {
	case n.Part:
		return rolePart
	case n.Last:
		return roleLast
	case n.Repairs:
		return roleRepairs
	case n.Rewrites:
		return roleRewrites
	}
	return roleWhole
}

// due is a chunk in the form of its due column. Its state must be known.
type due Chunk

func (d *due) ScanInt64(n pgtype.Int8) error {
	d.NotBefore, d.LeaseUntil = time.Time{}, time.Time{}
	switch d.State {
	case ChunkPlanned:
		return (*moment)(&d.NotBefore).ScanInt64(n)
	case ChunkLeased:
		return (*moment)(&d.LeaseUntil).ScanInt64(n)
	}
	return nil
}

// AddPlan records a new plan, and returns it with its added fields. If the
// name exists already, the error wraps fs.ErrExist.
func (c *Catalog) AddPlan(ctx context.Context, p Plan) (Plan, error) {
	if p.Name == "" || p.Name != words(p.Name) || p.Format != words(p.Format) {
		return Plan{}, fmt.Errorf("plan %q of format %q: expected names of UTF-8", p.Name, p.Format)
	}
	if p.Settings == nil {
		p.Settings = []byte{} // as the database returns it
	}
	taken := &fs.PathError{Op: "plan", Path: p.Name, Err: fs.ErrExist}
	return write(ctx, c, nil, func(s session) (Plan, error) {
		return one(ctx, s, (*Plan).columns, taken, "INSERT INTO plans (created, name, format, target, settings) VALUES ("+s.dialect().clock+", $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING "+planColumns,
			c.db.clock(), p.Name, p.Format, blob(p.Target), p.Settings)
	})
}

// Plan returns the plan of a name, or an error that wraps fs.ErrNotExist.
func (c *Catalog) Plan(ctx context.Context, name string) (Plan, error) {
	if name == "" || name != words(name) {
		return Plan{}, Absent(name)
	}
	return readOne(ctx, c, name, (*Plan).columns, "SELECT "+planColumns+" FROM plans WHERE name = $1", name)
}

// Plans returns all plans, the oldest first.
func (c *Catalog) Plans(ctx context.Context) ([]Plan, error) {
	return read(ctx, c, (*Plan).columns, "SELECT "+planColumns+" FROM plans ORDER BY id")
}

// AddChunks adds chunks to a plan, all or none. Their numbers follow the
// plan's last.
func (c *Catalog) AddChunks(ctx context.Context, plan int64, all []NewChunk) ([]Chunk, error) {
	for i, n := range all {
		switch {
		case n.Name == "":
			return nil, fmt.Errorf("chunk %d of %d: expected a name", i+1, len(all))
		case boolean(n.Part)+boolean(n.Last)+boolean(n.Rewrites || n.Repairs) > 1:
			return nil, fmt.Errorf("%s: expected one of a part, the last chunk or a rewrite, found several", format.Escape(n.Name))
		}
	}
	var added []Chunk
	return write(ctx, c, func(s session) (err error) {
		for _, n := range all {
			k := Chunk{Plan: plan, Name: n.Name, Part: n.Part, Last: n.Last, Rewrites: n.Rewrites, Repairs: n.Repairs}
			if k.ID, err = s.nextChunk(ctx); err == nil {
				err = k.list(ctx, s, n.checked)
			}
			if err != nil {
				return err
			}
			added = append(added, k)
		}
		return nil
	}, func(s session) ([]Chunk, error) {
		p, err := one(ctx, s, (*Plan).columns, noPlan(plan), "SELECT "+planColumns+" FROM plans WHERE id = $1"+s.dialect().forUpdate, plan)
		if p.Cancelled {
			err = fmt.Errorf("plan %d: %w", plan, ErrCancelled)
		}
		if err != nil {
			return nil, err
		}
		next, err := one(ctx, s, numberIn, nil, "SELECT coalesce(max(number)+1, 0) FROM chunks WHERE plan = $1", plan)
		if err != nil {
			return nil, err
		}
		listed := int64(0)
		for i := range added {
			k := &added[i]
			k.Number = int(next) + i
			if err := k.insert(ctx, s, all[i].role(), listed); err != nil {
				return nil, err
			}
			listed += k.Objects
		}
		return added, s.due(ctx, added)
	})
}

// list stores the members of a new chunk. If the chunk has an ID, which is not
// visible to others yet, they go into its table; otherwise they wait.
func (c *Chunk) list(ctx context.Context, s session, members iter.Seq2[Member, error]) error {
	var m Member
	table := "members"
	if c.ID == 0 {
		table = "staged_members"
	}
	rows := given(members, &m, func() error {
		if c.Objects == 0 {
			c.first = m.Path
		}
		c.last = m.Path
		c.Objects++
		c.Bytes += m.Size
		return nil
	})
	return s.copy(ctx, table, []string{"chunk", "size", "origin", "path", "version"}, []any{&c.ID, &m.Size, &m.Origin, (*blob)(&m.Path), (*blob)(&m.Version)}, rows)
}

// insert adds a chunk whose members were stored after others.
func (c *Chunk) insert(ctx context.Context, s session, role int, after int64) error {
	var given any
	if c.ID != 0 {
		given = c.ID
	}
	taken := &fs.PathError{Op: "chunk", Path: format.Escape(c.Name), Err: fs.ErrExist}
	id, err := one(ctx, s, numberIn, taken, `INSERT INTO chunks (id, plan, number, name, role, state, objects, bytes, first, last) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT DO NOTHING RETURNING id`, given, c.Plan, c.Number, blob(c.Name), role, int(ChunkPlanned), c.Objects, c.Bytes, blob(c.first), blob(c.last))
	if err == nil && c.ID == 0 {
		_, err = s.exec(ctx, "INSERT INTO members (chunk, path, origin, size, version) SELECT $1, path, origin, size, version FROM staged_members WHERE row > $2 AND row <= $3 ORDER BY row",
			id, after, after+c.Objects)
	}
	c.ID = id
	return err
}

// checked yields the members, and errors for those that are invalid.
func (n NewChunk) checked(yield func(Member, error) bool) {
	if n.Members == nil {
		return
	}
	first, last, bytes := true, "", int64(0)
	for m, err := range n.Members {
		switch {
		case err != nil:
		case !first && m.Path <= last:
			err = fmt.Errorf("%s: %s: expected a path after %s", format.Escape(n.Name), format.Escape(m.Path), format.Escape(last))
		case m.Size < 0 || m.Size > math.MaxInt64-bytes:
			err = fmt.Errorf("%s: %s: expected a size, found %d after %d bytes", format.Escape(n.Name), format.Escape(m.Path), m.Size, bytes)
		case m.Origin < 0 || m.Origin > math.MaxInt32:
			err = fmt.Errorf("%s: %s: expected the number of a source, found %d", format.Escape(n.Name), format.Escape(m.Path), m.Origin)
		}
		first, last, bytes = false, m.Path, bytes+m.Size
		if !yield(m, err) || err != nil {
			return
		}
	}
}

// Chunk returns the current state of a chunk, or an error that wraps
// fs.ErrNotExist.
func (c *Catalog) Chunk(ctx context.Context, id int64) (Chunk, error) {
	return readOne(ctx, c, fmt.Sprintf("chunk %d", id), (*Chunk).columns, "SELECT "+chunkColumns+" FROM chunks WHERE id = $1", id)
}

// Chunks yields the chunks of a plan, by number.
func (c *Catalog) Chunks(ctx context.Context, plan int64) iter.Seq2[Chunk, error] {
	return paged(ctx, c, (*Chunk).columns, func(k Chunk) any { return k.Number + 1 }, "SELECT "+chunkColumns+" FROM chunks WHERE plan = $3 AND number >= $1 ORDER BY number LIMIT CAST($2 AS bigint)", 0, plan)
}

// members returns the first n members of a chunk, starting at the path from.
func (c *Catalog) members(ctx context.Context, chunk int64, from string, n int) (all []Member, err error) {
	err = c.db.read(ctx, true, func(s session) error {
		all, err = rowsOf(ctx, s, (*Member).columns,
			`SELECT m.path, m.origin, m.size, m.version, coalesce(m.outcome, (SELECT CASE state WHEN $4 THEN CAST($5 AS int) ELSE $6 END FROM chunks WHERE id = $3)), coalesce(m.note, ''), coalesce(m.proof, '')
			FROM members AS m WHERE m.chunk = $3 AND `+s.dialect().is("m.path", ">=", "$1")+` ORDER BY m.chunk, `+s.dialect().order("m.path")+` LIMIT CAST($2 AS bigint)`, blob(from), n, chunk, int(ChunkDone), int(Packed), int(Pending))
		if err == nil {
			all, err = withLocations(ctx, s, chunk, from, n, all)
		}
		return err
	})
	return all, err
}

func (m *Member) columns() []any {
	return []any{(*blob)(&m.Path), &m.Origin, &m.Size, (*blob)(&m.Version), &m.Outcome, &m.Note, &m.Proof}
}

// LeftOut yields the members of a plan that are not in its archives, for one
// of these reasons: Vanished, Changed, SetAside, Damaged. It omits those that
// a later chunk has. They come chunk by chunk.
func (c *Catalog) LeftOut(ctx context.Context, plan int64, why ...Outcome) iter.Seq2[Member, error] {
	outcomes := make([]int64, len(why))
	for i, o := range why {
		outcomes[i] = int64(o)
	}
	return func(yield func(Member, error) bool) {
		for k, err := range c.Chunks(ctx, plan) {
			if err == nil && !slices.ContainsFunc(why, func(o Outcome) bool { return k.Left.of(o) > 0 }) {
				continue
			}
			if err != nil {
				yield(Member{}, err)
				return
			}
			for m, err := range paged(ctx, c, (*Member).columns, func(m Member) any { return blob(m.Path + "\x00") },
				`SELECT m.path, m.origin, m.size, m.version, m.outcome, coalesce(m.note, ''), '' FROM members AS m
				WHERE m.chunk = $3 AND `+c.db.dialect().is("m.path", ">=", "$1")+` AND `+c.db.dialect().among("m.outcome", "$4")+`
					AND NOT EXISTS (SELECT 1 FROM chunks AS l JOIN members AS n ON n.chunk = l.id
						WHERE l.plan = $5 AND l.number > $6 AND l.first <= m.path AND l.last >= m.path AND `+c.db.dialect().is("n.path", "=", "m.path")+`)
					AND NOT EXISTS (SELECT 1 FROM chunks AS k JOIN locations AS l ON l.archive = k.archive
						WHERE k.plan = $5 AND k.number > $6 AND k.from_locations = 1 AND k.first <= m.path AND k.last >= m.path AND `+c.db.dialect().is("l.path", "=", "m.path")+` AND `+there+`)
				ORDER BY m.chunk, `+c.db.dialect().order("m.path")+` LIMIT CAST($2 AS bigint)`, blob(""), k.ID, outcomes, plan, k.Number) {
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// Members yields the members of a chunk, in byte order. It reads them from the
// database in pages, so a slow caller does not block anything.
func (c *Catalog) Members(ctx context.Context, chunk int64) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		r := &run{chunk: Chunk{ID: chunk}}
		for {
			more, err := r.fill(ctx, c, pageOf(1))
			if err != nil {
				yield(Member{}, err)
				return
			}
			for _, m := range r.page {
				if !yield(m, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// Claim leases the oldest chunk that is due, or whose lease has ended. It
// returns ErrNone if there is none. A chunk has at most one valid claim.
func (c *Catalog) Claim(ctx context.Context, r Request) (Chunk, error) {
	return write(ctx, c, nil, func(s session) (Chunk, error) {
		// A concurrent claim by another worker skips the chunk that is locked here.
		return one(ctx, s, (*Chunk).columns, ErrNone, `UPDATE chunks SET state = $2, owner = $3, fence = fence+1, attempts = attempts+1, due = `+s.dialect().clock+` + $4, started = `+s.dialect().clock+`, bytes_done = 0
			WHERE id = (SELECT id FROM chunks AS f WHERE state < 2 AND due <= `+s.dialect().clock+` AND (CAST($5 AS bigint) = 0 OR plan = $5) AND (CAST($6 AS bigint) = 0 OR id = $6) AND (NOT CAST($9 AS boolean) OR state = $2)
				AND (role <> $7 OR NOT EXISTS (SELECT 1 FROM chunks WHERE plan = f.plan AND number < f.number AND state <> $8))
				ORDER BY id LIMIT 1`+s.dialect().skipLocked+`)
			RETURNING `+chunkColumns, c.db.clock(), int(ChunkLeased), words(r.Owner), r.Lease.Microseconds(), r.Plan, r.Chunk, roleLast, int(ChunkDone), r.Lapsed)
	})
}

// ifClaimed changes the chunk of a claim if the claim is valid, and calls then
// with the chunk. $1 is used for the clock; the given arguments begin at $5.
func (c *Catalog) ifClaimed(ctx context.Context, claim Chunk, sql string, then func(s session, k Chunk) error, args ...any) error {
	return c.db.write(ctx, nil, func(s session) error {
		k, err := one(ctx, s, (*Chunk).columns, lost(claim), "UPDATE chunks SET "+sql+" WHERE id = $2 AND fence = $3 AND state = $4 RETURNING "+chunkColumns,
			append([]any{c.db.clock(), claim.ID, claim.Fence, int(ChunkLeased)}, args...)...)
		if err != nil {
			return err
		}
		return then(s, k)
	})
}

// Renew extends a claim by lease from now, and records the progress of its
// chunk. A claim whose lease has ended can be renewed as long as no other
// worker has claimed the chunk. Renewing a finished claim is not an error: its
// worker may not have received the answer yet.
func (c *Catalog) Renew(ctx context.Context, claim Chunk, lease time.Duration, bytesDone int64) error {
	err := c.ifClaimed(ctx, claim, "due = "+c.db.dialect().clock+" + $5, bytes_done = $6", func(session, Chunk) error { return nil }, lease.Microseconds(), bytesDone)
	if errors.Is(err, ErrLost) {
		if k, rerr := c.Chunk(ctx, claim.ID); rerr == nil {
			_, err = k.claimed(claim)
		}
	}
	return err
}

// Release gives up a claim: the chunk is due again after a while, or is set
// aside.
func (c *Catalog) Release(ctx context.Context, claim Chunk, problem string, again time.Duration, setAside bool) error {
	state := ChunkPlanned
	if setAside {
		state = ChunkSetAside
	}
	return c.ifClaimed(ctx, claim, "due = "+c.db.dialect().clock+" + $5, state = $6, problem = $7, failures = failures + CASE WHEN $7 <> '' THEN 1 ELSE 0 END, bytes_done = 0", func(s session, k Chunk) error {
		if setAside {
			return nil
		}
		return s.due(ctx, []Chunk{k})
	}, again.Microseconds(), int(state), words(problem))
}

// Finish records in one transaction that a chunk is done: its archive with the
// contents, and the outcomes of its members. left yields the members that were
// not packed, with their Outcome and Note. It may also yield members that were
// packed in another version than planned, as Packed, with their actual Size
// and Version. All other members count as packed: the archive must contain
// each of them and nothing else. If nothing was packed, or if the chunk is a
// part, there is no archive, and a is nil.
//
// If there is an error, nothing is recorded. For a claim that was finished
// already, Finish returns what was recorded then. So it can be called again if
// its answer was lost.
func (c *Catalog) Finish(ctx context.Context, claim Chunk, a *Addition, left iter.Seq2[Member, error]) (Added, error) {
	f := &finishing{Catalog: c}
	defer f.archive.close()
	if a != nil {
		checked, err := a.checked()
		if err != nil {
			return Added{}, err
		}
		f.archive.all = []Addition{checked}
	}
	return write(ctx, c, func(s session) error { return f.stage(ctx, s, left) }, func(s session) (Added, error) { return f.finish(ctx, s, claim) })
}

type finishing struct {
	*Catalog
	archive batch // of one row, or of none
	left    int64 // members that the caller reports as left out, or as changed
}

// stage stores the outcomes of members, and the archive.
func (f *finishing) stage(ctx context.Context, s session, left iter.Seq2[Member, error]) error {
	var m Member
	rows := given(left, &m, func() error {
		if m.Outcome == Pending || m.Outcome > Elsewhere || m.Size < 0 {
			return fmt.Errorf("%s: expected an outcome and a size, found %v and %d", format.Escape(m.Path), m.Outcome, m.Size)
		}
		m.Note, m.Proof = words(m.Note), words(m.Proof)
		f.left++
		return nil
	})
	err := s.copy(ctx, "staged_members", []string{"row", "size", "outcome", "path", "version", "note", "proof"},
		[]any{&f.left, &m.Size, &m.Outcome, (*blob)(&m.Path), (*blob)(&m.Version), &m.Note, &m.Proof}, rows)
	if err == nil {
		err = f.archive.stage(ctx, s)
	}
	if err == nil {
		_, err = s.exec(ctx, s.dialect().knowWaiting)
	}
	return err
}

func (f *finishing) finish(ctx context.Context, s session, claim Chunk) (done Added, err error) {
	k, err := one(ctx, s, (*Chunk).columns, lost(claim), "SELECT "+chunkColumns+" FROM chunks WHERE id = $1"+s.dialect().forUpdate, claim.ID)
	if err != nil {
		return done, err
	}
	finished, err := k.claimed(claim)
	if finished {
		done.Archive, err = one(ctx, s, (*Archive).columns, nil, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.id = $1", k.Archive)
	}
	if err != nil || finished {
		return done, err
	}
	lock := s.dialect().publishing
	if k.Rewrites {
		lock = s.dialect().lockPublishing
	}
	if _, err := s.exec(ctx, lock); err != nil {
		return done, err
	}
	if k.Rewrites {
		if k, err = f.elsewhere(ctx, s, k); err != nil {
			return done, err
		}
	}
	if k.Left, err = f.settle(ctx, s, k); err != nil {
		return done, err
	}
	added, err := f.archive.publish(ctx, s)
	if err != nil {
		return done, err
	}
	if len(added) > 0 {
		done = added[0]
		if others, err := rowsOf(ctx, s, numberIn, "SELECT id FROM chunks WHERE archive = $1 AND archive > 0 LIMIT 1", done.Replaced.ID); err != nil {
			return done, err
		} else if len(others) > 0 {
			return done, &fs.PathError{Op: "chunk", Path: format.Escape(done.Address), Err: fs.ErrExist}
		}
	}
	if _, err := s.exec(ctx, s.dialect().joinAtOnce); err != nil {
		return done, err
	}
	if err := account(ctx, s, k, done.Archive); err != nil {
		return done, err
	}
	if _, err := s.exec(ctx, s.dialect().joinAsEver); err != nil {
		return done, err
	}
	if err := supersede(ctx, s, k, done.Archive); err != nil {
		return done, err
	}
	k, err = one(ctx, s, (*Chunk).columns, nil, `UPDATE chunks SET state = $2, finished = `+s.dialect().clock+`, archive = $3, vanished = $4, changed = $5, set_aside = $6, damaged = $7, proven = $8, bytes_done = bytes, problem = '', due = 0
		WHERE id = $9 RETURNING `+chunkColumns, f.db.clock(), int(ChunkDone), done.ID, k.Left.Vanished, k.Left.Changed, k.Left.SetAside, k.Left.Damaged, words(claim.Proven), k.ID)
	if err == nil {
		err = s.finished(ctx, k)
	}
	return done, err
}

// elsewhere removes members from a rewriting chunk that are not to be in its
// archive.
func (f *finishing) elsewhere(ctx context.Context, s session, k Chunk) (Chunk, error) {
	paths, err := rowsOf(ctx, s, pathIn, "SELECT path FROM staged_members WHERE outcome = $1", int(Elsewhere))
	for _, path := range paths {
		var m memberOf
		if err == nil {
			m, err = one(ctx, s, func(m *memberOf) []any { return []any{&m.chunk, &m.size} }, Absent(path), "SELECT chunk, size FROM members WHERE chunk = $2 AND "+s.dialect().is("path", "=", "$1"), blob(path), k.ID)
		}
		if err == nil {
			err = m.forget(ctx, s, path)
		}
		k.Objects--
	}
	if err == nil && len(paths) > 0 {
		var n int64
		if n, err = s.exec(ctx, "DELETE FROM staged_members WHERE outcome = $1", int(Elsewhere)); err == nil {
			f.left -= n
		}
	}
	return k, err
}

// settle applies the staged outcomes to a chunk's members.
func (f *finishing) settle(ctx context.Context, s session, k Chunk) (l Left, err error) {
	if f.left == 0 {
		return l, nil
	}
	strange, err := rowsOf(ctx, s, pathIn, "SELECT s.path FROM staged_members AS s WHERE NOT EXISTS (SELECT 1 FROM members AS m WHERE m.chunk = $1 AND "+s.dialect().is("m.path", "=", "s.path")+") LIMIT 1", k.ID)
	if len(strange) > 0 {
		err = fmt.Errorf("%s: %s: not a member of the chunk", format.Escape(k.Name), format.Escape(strange[0]))
	}
	// If a path was staged several times, the last row counts.
	const newest = "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY path ORDER BY row DESC) AS nth FROM staged_members) AS n WHERE nth = 1) AS s"
	if err == nil {
		_, err = s.exec(ctx, `UPDATE members AS m SET outcome = s.outcome, note = nullif(s.note, ''), proof = nullif(s.proof, ''),
				size = CASE s.outcome WHEN $2 THEN s.size ELSE m.size END, version = CASE s.outcome WHEN $2 THEN s.version ELSE m.version END
			FROM `+newest+" WHERE m.chunk = $1 AND "+s.dialect().is("m.path", "=", "s.path"), k.ID, int(Packed))
	}
	if err == nil {
		l, err = one(ctx, s, (*Left).columns, nil, "SELECT count(*) FILTER (WHERE outcome = $1), count(*) FILTER (WHERE outcome = $2), count(*) FILTER (WHERE outcome = $3), count(*) FILTER (WHERE outcome = $4) FROM "+newest,
			int(Vanished), int(Changed), int(SetAside), int(Damaged))
	}
	return l, err
}

func (l *Left) columns() []any {
	return []any{&l.Vanished, &l.Changed, &l.SetAside, &l.Damaged}
}

// account checks that an archive contains exactly the members that were to be
// packed. For a last chunk this includes the parts before it.
func account(ctx context.Context, s session, k Chunk, a Archive) error {
	if k.Part {
		if a.ID != 0 {
			return fmt.Errorf("%s: expected no archive for a part, found one", format.Escape(k.Name))
		}
		return nil
	}
	due := k.Objects - k.Left.sum()
	of := []int64{k.ID}
	apart := true // no path is in two of the chunks
	if k.Last {
		apart = k.Objects == 0
		last := ""
		for p, err := range each(ctx, s, (*Chunk).columns, "SELECT "+chunkColumns+" FROM chunks WHERE plan = $1 AND number < $2 AND role = $3 AND archive = 0 ORDER BY first", k.Plan, k.Number, rolePart) {
			if err != nil {
				return err
			}
			due += p.Objects - p.Left.sum()
			apart = apart && (len(of) == 1 || last < p.first)
			of, last = append(of, p.ID), p.last
		}
		if _, err := s.exec(ctx, "UPDATE chunks SET archive = $2 WHERE "+s.dialect().among("id", "$1"), of, a.ID); err != nil {
			return err
		}
	}
	// All members that were to be packed are there. If their number equals the
	// number of paths, the archive has nothing else.
	if apart && due == a.Entries {
		if err := leave(ctx, s, of, a); err != nil {
			return err
		}
	}
	lacking, err := rowsOf(ctx, s, pathIn, "SELECT m.path FROM members AS m WHERE "+s.dialect().among("m.chunk", "$1")+" AND coalesce(m.outcome, $2) = $2 AND NOT EXISTS (SELECT 1 FROM "+s.dialect().listed+" WHERE l.path = m.path) LIMIT 1",
		of, int(Packed), a.ID)
	if err != nil {
		return err
	} else if len(lacking) > 0 {
		return fmt.Errorf("%s: %s: neither in the archive nor with an outcome", format.Escape(k.Name), format.Escape(lacking[0]))
	}
	if !apart {
		if due, err = one(ctx, s, numberIn, nil, "SELECT count(DISTINCT path) FROM members WHERE "+s.dialect().among("chunk", "$1")+" AND coalesce(outcome, $2) = $2", of, int(Packed)); err != nil {
			return err
		}
	}
	if due == a.Entries {
		return nil
	}
	strange, err := rowsOf(ctx, s, pathIn, "SELECT l.path FROM "+s.dialect().listed+" WHERE NOT EXISTS (SELECT 1 FROM members AS m WHERE "+s.dialect().among("m.chunk", "$1")+" AND m.path = l.path AND coalesce(m.outcome, $2) = $2) LIMIT 1",
		of, int(Packed), a.ID)
	switch {
	case err != nil:
		return err
	case len(strange) > 0:
		return fmt.Errorf("%s: %s: not planned: expected %d paths in its archive, found %d", format.Escape(k.Name), format.Escape(strange[0]), due, a.Entries)
	}
	return fmt.Errorf("%s: expected %d planned paths in its archive, found %d", format.Escape(k.Name), due, a.Entries)
}

// CancelPlan ends the work on a plan: it cancels all chunks that are not done.
// All claims of the plan become invalid.
func (c *Catalog) CancelPlan(ctx context.Context, plan int64) error {
	_, err := c.setPlan(ctx, plan, true, "state = $2", ChunkCancelled, ChunkPlanned, ChunkLeased)
	return err
}

// RetryPlan makes chunks that were set aside or cancelled due again, as if
// they were new. It returns their number.
func (c *Catalog) RetryPlan(ctx context.Context, plan int64) (int, error) {
	return c.setPlan(ctx, plan, false, "state = $2, due = 0, attempts = 0, failures = 0, bytes_done = 0", ChunkPlanned, ChunkSetAside, ChunkCancelled)
}

// setPlan sets whether a plan is cancelled, and moves its chunks from two
// states to another one.
func (c *Catalog) setPlan(ctx context.Context, plan int64, cancelled bool, sql string, to, one, other ChunkState) (int, error) {
	return write(ctx, c, nil, func(s session) (int, error) {
		if err := setCancelled(ctx, s, plan, cancelled); err != nil {
			return 0, err
		}
		all, err := rowsOf(ctx, s, (*Chunk).columns, "UPDATE chunks SET "+sql+" WHERE plan = $1 AND state IN ($3, $4) RETURNING "+chunkColumns, plan, int(to), int(one), int(other))
		if err == nil && !cancelled {
			err = s.due(ctx, all)
		}
		return len(all), err
	})
}

func setCancelled(ctx context.Context, s session, plan int64, cancelled bool) error {
	changed, err := s.exec(ctx, "UPDATE plans SET cancelled = $2 WHERE id = $1", plan, cancelled)
	if err == nil && changed == 0 {
		err = noPlan(plan)
	}
	return err
}

// ForgetPlan removes a plan that no worker works on any more, with all records
// of its objects. Its archives stay, also in the catalogue. If ForgetPlan is
// interrupted, the plan is left partly removed and cancelled; calling it again
// removes the rest.
func (c *Catalog) ForgetPlan(ctx context.Context, plan int64) error {
	chunks, err := read(ctx, c, numberIn, "SELECT id FROM chunks WHERE plan = $1 ORDER BY number DESC", plan)
	if err != nil {
		return err
	}
	for _, id := range append(chunks, 0) {
		if _, err := write(ctx, c, nil, func(s session) (int64, error) {
			if err := setCancelled(ctx, s, plan, true); err != nil {
				return 0, err
			}
			open, err := rowsOf(ctx, s, numberIn, "SELECT id FROM chunks WHERE plan = $1 AND state IN ($2, $3) LIMIT 1", plan, int(ChunkPlanned), int(ChunkLeased))
			if err == nil && len(open) > 0 {
				err = fmt.Errorf("plan %d: %w", plan, ErrOpen)
			}
			if err == nil && id == 0 {
				return s.exec(ctx, "DELETE FROM plans WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM chunks WHERE plan = $1)", plan)
			}
			if err == nil {
				_, err = s.exec(ctx, "DELETE FROM members WHERE chunk = $1", id)
			}
			if err == nil {
				_, err = s.exec(ctx, "DELETE FROM chunks WHERE id = $1", id)
			}
			return 0, err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) Totals(ctx context.Context, plan int64) (t Totals, err error) {
	type sums struct {
		state ChunkState
		Tally
		Left
		done int64
	}
	all, err := read(ctx, c, func(s *sums) []any {
		return append([]any{&s.state, &s.Chunks, &s.Objects, &s.Bytes, &s.done}, s.Left.columns()...)
	}, `SELECT state, count(*), CAST(sum(objects) AS bigint), CAST(sum(bytes) AS bigint), CAST(sum(bytes_done) AS bigint),
			CAST(sum(vanished) AS bigint), CAST(sum(changed) AS bigint), CAST(sum(set_aside) AS bigint), CAST(sum(damaged) AS bigint) FROM chunks WHERE plan = $1 GROUP BY state`, plan)
	for _, s := range all {
		if s.state >= chunkStates {
			continue
		}
		t.States[s.state] = s.Tally
		if s.state == ChunkDone {
			t.Outcomes[Packed] += s.Objects - s.Left.sum()
			t.Outcomes[Vanished] += s.Vanished
			t.Outcomes[Changed] += s.Changed
			t.Outcomes[SetAside] += s.SetAside
			t.Outcomes[Damaged] += s.Damaged
			continue
		}
		t.Outcomes[Pending] += s.Objects
		if s.state == ChunkLeased {
			t.BytesDone = s.done
		}
	}
	return t, err
}
