package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"zombiezen.com/go/sqlite"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
)

const (
	locationColumns = `l.path, l.archive, l.kind, l.size, l."offset", l.digest, l.object`
	archiveColumns  = "a.id, a.address, a.format, a.size, a.version, a.entries, a.added, a.verified, a.roots, a.dead, a.listed"
)

// These are the bits of locations.kind besides the kind itself.
const (
	kindGone    = 1 << 8
	kindLeaving = 1 << 9
	kindLeft    = 1 << 10
	kindUnseen  = 1 << 11
	kindMissing = 1 << 12

	there = "l.kind & 256 = 0" // it is not gone
)

// marks returns the mark bits of locations.kind.
func (l Location) marks() int {
	n := int(l.Kind)
	if l.Gone {
		n |= kindGone
	}
	if l.Unseen {
		n |= kindUnseen
	}
	if l.Missing {
		n |= kindMissing
	}
	switch l.Original {
	case OriginalLeaving:
		n |= kindLeaving
	case OriginalLeft:
		n |= kindLeft
	}
	return n
}

// marked is a location in the form of its kind column.
type marked Location

func (m *marked) ScanInt64(n pgtype.Int8) error {
	m.Kind, m.Gone, m.Original = format.Kind(n.Int64), n.Int64&kindGone != 0, OriginalStays
	m.Unseen, m.Missing = n.Int64&kindUnseen != 0, n.Int64&kindMissing != 0
	switch {
	case n.Int64&kindLeft != 0:
		m.Original = OriginalLeft
	case n.Int64&kindLeaving != 0:
		m.Original = OriginalLeaving
	}
	return nil
}

// columns returns pointers to the fields, in the order of locationColumns.
func (l *Location) columns() []any {
	return []any{(*blob)(&l.Path), &l.Archive, (*marked)(l), &l.Size, (*stretch)(l), (*digest)(l), (*object)(l)}
}

// A stretch is a location in the form of its offset column. Without an offset,
// the content is not a run of the archive's bytes.
type stretch Location

func (s *stretch) ScanInt64(n pgtype.Int8) error { s.Raw, s.Off = n.Valid, n.Int64; return nil }

// A digest is a location in the form of its digest column, ALGORITHM:SUM.
type digest Location

func (d *digest) ScanBytes(v []byte) error {
	d.Digest.Algo, d.Digest.Sum, _ = strings.Cut(string(v), ":")
	return nil
}

// columns returns pointers to the fields, in the order of archiveColumns.
func (a *Archive) columns() []any {
	return []any{&a.ID, (*blob)(&a.Address), &a.Format, &a.Size, (*blob)(&a.Version), &a.Entries, (*moment)(&a.Added), (*moment)(&a.Verified), (*blob)(&a.Roots), (*moment)(&a.Dead), (*moment)(&a.Listed)}
}

func (f *Found) columns() []any { return append(f.Location.columns(), f.In.columns()...) }

// A staging collects what the rows of one archive have in common until all
// rows have arrived. They may come from a slow source, and no other writer
// should wait for it.
type staging struct {
	rows        int64
	ordered     bool // each path is greater than the one before
	first, last string
	previous    string

	from   int64          // in PostgreSQL, the rows have the numbers from+1 to from+rows
	sorted *sorter.Sorter // in SQLite, it has the rows
}

func (g *staging) count(path string) {
	if g.rows == 0 {
		g.first, g.last, g.ordered = path, path, true
	} else if path <= g.previous {
		g.ordered = false
	}
	g.first, g.last, g.previous = min(g.first, path), max(g.last, path), path
	g.rows++
}

// A batch is a list of archives that are added together.
type batch struct {
	all    []Addition
	staged []*staging
}

func (b *batch) stage(ctx context.Context, s session) error {
	for _, a := range b.all {
		g, err := s.stage(ctx, a, len(b.all))
		if err != nil {
			return err
		}
		b.staged = append(b.staged, g)
	}
	return nil
}

func (b *batch) close() {
	for _, g := range b.staged {
		if g.sorted != nil {
			g.sorted.Close()
		}
	}
	for _, a := range b.all {
		a.headers.close()
	}
}

// publish turns the staged rows into rows of archives.
func (b *batch) publish(ctx context.Context, s session) (done []Added, err error) {
	// Concurrent additions of the same address are serialized. The addresses are
	// locked in order, so that two additions of several archives cannot deadlock.
	var addresses []string
	for _, a := range b.all {
		addresses = append(addresses, a.Address)
	}
	slices.Sort(addresses)
	for _, address := range addresses {
		if _, err := s.exec(ctx, s.dialect().lockAddress, blob(address)); err != nil {
			return nil, err
		}
	}
	for i, a := range b.all {
		if err := a.headers.keep(ctx, s); err != nil {
			return nil, err
		}
		d, err := publish(ctx, s, a.Archive, b.staged[i])
		if err != nil {
			return nil, err
		}
		done = append(done, d)
	}
	return done, nil
}

func publish(ctx context.Context, s session, a Archive, g *staging) (done Added, err error) {
	was, err := one(ctx, s, (*Archive).columns, Absent(a.Address), archiveAt(s.dialect()), blob(a.Address))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, err
	}
	if done.Replaced = was; was.ID != 0 {
		// This lasts until the records of its files have been copied.
		if _, err := s.exec(ctx, "UPDATE archives SET address = $2 WHERE id = $1", was.ID, blob(fmt.Sprintf("\x00replaced %d", was.ID))); err != nil {
			return done, err
		}
		if a.Roots == "" {
			a.Roots = was.Roots
		}
	}
	if a.Same(was) && a.Verified.IsZero() {
		a.Verified = was.Verified
	}
	a.Added = time.Now().UTC().Truncate(time.Microsecond)
	var verified any
	if !a.Verified.IsZero() {
		verified = a.Verified.UnixMicro()
	}
	a.ID, err = one(ctx, s, numberIn, nil, `INSERT INTO archives (address, format, size, version, entries, first, last, added, verified, roots)
		VALUES ($1, $2, $3, $4, 0, $5, $6, $7, $8, $9) RETURNING id`,
		blob(a.Address), a.Format, a.Size, blob(a.Version), blob(g.first), blob(g.last), a.Added.UnixMicro(), verified, blob(a.Roots))
	if err == nil {
		a.Entries, err = s.publish(ctx, a.ID, g)
	}
	if err == nil {
		_, err = s.exec(ctx, "UPDATE archives SET entries = $2 WHERE id = $1", a.ID, a.Entries)
	}
	if err == nil && was.ID != 0 {
		if err = takeOver(ctx, s, was.ID, a.ID, g); err == nil {
			err = remember(ctx, s, was)
		}
		if err == nil {
			err = drop(ctx, s, was.ID)
		}
	}
	done.Archive = a
	return done, err
}

// takeOver copies the marks of files from an archive to its successor at the
// same address: deleted files, and removed and missing originals.
func takeOver(ctx context.Context, s session, was, is int64, g *staging) error {
	marked, err := rowsOf(ctx, s, numberIn, `SELECT 1 FROM locations AS l WHERE l.archive = $1 AND `+s.dialect().is("l.path", ">=", "(SELECT first FROM archives WHERE id = $1)")+` AND `+s.dialect().is("l.path", "<=", "(SELECT last FROM archives WHERE id = $1)")+`
		AND kind & 7936 <> 0 LIMIT 1`, was)
	if err != nil || len(marked) == 0 {
		return err
	}
	_, err = s.exec(ctx, `UPDATE locations AS l SET kind = kind | coalesce((SELECT n.kind & 7936 FROM locations AS n WHERE `+s.dialect().is("n.path", "=", "l.path")+` AND n.archive = $2
			AND n.size = l.size AND (n.digest IS NULL OR l.digest IS NULL OR n.digest = l.digest)), 0)
		WHERE l.archive = $1 AND `+s.dialect().is("l.path", ">=", "$3")+` AND `+s.dialect().is("l.path", "<=", "$4"), is, was, blob(g.first), blob(g.last))
	return err
}

func archiveAt(d *dialect) string {
	return "SELECT " + archiveColumns + " FROM archives AS a WHERE " + d.address
}

// forget removes an archive, and returns its record. The caller must have
// locked its address.
func forget(ctx context.Context, s session, address string) (a Archive, err error) {
	a, err = one(ctx, s, (*Archive).columns, Absent(address), archiveAt(s.dialect()), blob(address))
	if err == nil {
		err = remember(ctx, s, a)
	}
	if err == nil {
		err = drop(ctx, s, a.ID)
	}
	return a, err
}

func drop(ctx context.Context, s session, id int64) error {
	_, err := s.exec(ctx, "DELETE FROM locations WHERE archive = $1 AND "+s.dialect().is("path", ">=", "(SELECT first FROM archives WHERE id = $1)")+" AND "+s.dialect().is("path", "<=", "(SELECT last FROM archives WHERE id = $1)"), id)
	if err == nil {
		_, err = s.exec(ctx, "DELETE FROM archives WHERE id = $1", id)
	}
	return err
}

// Add records archives and their contents in one transaction: all of it or
// nothing is visible to readers. It replaces earlier records of the same
// addresses.
func (c *Catalog) Add(ctx context.Context, all ...Addition) (done []Added, err error) {
	return c.add(ctx, all, nil)
}

// TryAdd does all the work of Add, and then undoes it.
func (c *Catalog) TryAdd(ctx context.Context, all ...Addition) (done []Added, err error) {
	if _, err = c.add(ctx, all, func(would []Added) error { done = would; return errTried }); errors.Is(err, errTried) {
		err = nil
	}
	return done, err
}

// errTried rolls back a transaction that was only to be tried.
var errTried = errors.New("tried")

// add records archives, unless last, if not nil, returns an error.
func (c *Catalog) add(ctx context.Context, all []Addition, last func([]Added) error) (done []Added, err error) {
	b := &batch{all: slices.Clone(all)}
	for i, a := range all {
		if b.all[i], err = a.checked(); err != nil {
			return nil, err
		}
	}
	defer b.close()
	return write(ctx, c, func(s session) error { return b.stage(ctx, s) }, func(s session) ([]Added, error) {
		done, err := b.publish(ctx, s)
		if err == nil && last != nil {
			err = last(done)
		}
		return done, err
	})
}

func (c *Catalog) Remove(ctx context.Context, address string) (Archive, error) {
	return write(ctx, c, nil, func(s session) (Archive, error) {
		if _, err := s.exec(ctx, s.dialect().lockAddress, blob(address)); err != nil {
			return Archive{}, err
		}
		return forget(ctx, s, address)
	})
}

// Verified records that an archive was found sound.
func (c *Catalog) Verified(ctx context.Context, id int64, at time.Time) error {
	return c.db.write(ctx, nil, func(s session) error {
		_, err := s.exec(ctx, "UPDATE archives SET verified = $2 WHERE id = $1", id, at.UnixMicro())
		return err
	})
}

func (c *Catalog) holders() string {
	return "SELECT " + locationColumns + ", " + archiveColumns + " FROM locations AS l JOIN archives AS a ON a.id = l.archive WHERE " + c.db.dialect().is("l.path", "=", "$1") + " AND " + there + " ORDER BY l.archive DESC"
}

// Newest returns where the newest file of that path is, or an error that wraps
// fs.ErrNotExist.
func (c *Catalog) Newest(ctx context.Context, path string) (Found, error) {
	return readOne(ctx, c, path, (*Found).columns, c.holders()+" LIMIT 1", blob(path))
}

// NewestIn is Newest for some archives.
func (c *Catalog) NewestIn(ctx context.Context, path string, in Scope) (Found, error) {
	if in == nil {
		return c.Newest(ctx, path)
	}
	all, err := c.Holders(ctx, path)
	for _, f := range all {
		if in(f.Archive) {
			return f, nil
		}
	}
	return Found{}, cmp.Or(err, Absent(path))
}

// ArchiveOf returns the record of the archive with an ID, or an error that
// wraps fs.ErrNotExist.
func (c *Catalog) ArchiveOf(ctx context.Context, id int64) (Archive, error) {
	return readOne(ctx, c, fmt.Sprintf("archive %d", id), (*Archive).columns, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.id = $1", id)
}

// Holders returns all archives that have a path, the newest first.
func (c *Catalog) Holders(ctx context.Context, path string) ([]Found, error) {
	return read(ctx, c, (*Found).columns, c.holders(), blob(path))
}

// Archive returns the record of the archive at an address, or an error that
// wraps fs.ErrNotExist.
func (c *Catalog) Archive(ctx context.Context, address string) (Archive, error) {
	return readOne(ctx, c, address, (*Archive).columns, archiveAt(c.db.dialect()), blob(address))
}

// Archives returns all archives, the oldest first.
func (c *Catalog) Archives(ctx context.Context) ([]Archive, error) {
	return read(ctx, c, (*Archive).columns, "SELECT "+archiveColumns+" FROM archives AS a ORDER BY a.id")
}

// behind returns the first position after a location.
func behind(l Location) any { return blob(l.Path + "\x00") }

// behindScoped returns a function that gives the position after a location,
// for scans where only some archives count. Older locations of the same path
// come after newer ones, so the path is read again. If one path fills whole
// pages, it is skipped after a few reads.
func behindScoped() func(l Location) any {
	const most = 6
	path, times := "", 0
	return func(l Location) any {
		if l.Path != path {
			path, times = l.Path, 0
		}
		if times++; times > most {
			return behind(l)
		}
		return blob(l.Path)
	}
}

// Locations yields all locations of an archive, in byte order of the paths.
func (c *Catalog) Locations(ctx context.Context, a Archive) iter.Seq2[Location, error] {
	return func(yield func(Location, error) bool) {
		type bounds struct{ first, last string }
		all, err := read(ctx, c, func(s *bounds) []any { return []any{(*blob)(&s.first), (*blob)(&s.last)} }, "SELECT first, last FROM archives WHERE id = $1", a.ID)
		if err != nil {
			yield(Location{}, err)
		}
		for _, b := range all {
			paged(ctx, c, (*Location).columns, behind, "SELECT "+locationColumns+` FROM locations AS l
				WHERE l.archive = $3 AND `+c.db.dialect().is("l.path", ">=", "$1")+` AND `+c.db.dialect().is("l.path", "<=", "$4")+` ORDER BY `+c.db.dialect().order("l.path")+` LIMIT CAST($2 AS bigint)`, blob(b.first), a.ID, blob(b.last))(yield)
		}
	}
}

// Between yields the newest location of each path in [from, before) in the
// archives of a scope, in byte order. If before is empty, there is no upper
// bound. A scan that stops early costs only what it has yielded.
func (c *Catalog) Between(ctx context.Context, from, before string, in Scope) iter.Seq2[Location, error] {
	sql, args := "SELECT "+locationColumns+" FROM locations AS l WHERE "+c.db.dialect().is("l.path", ">=", "$1")+" AND "+there, []any(nil)
	if before != "" {
		sql, args = sql+" AND "+c.db.dialect().is("l.path", "<", "$3"), []any{blob(before)}
	}
	return func(yield func(Location, error) bool) {
		last, any := "", false
		next := behind
		if in != nil {
			next = behindScoped()
		}
		for l, err := range paged(ctx, c, (*Location).columns, next, sql+" ORDER BY "+c.db.dialect().order("l.path")+", l.archive DESC LIMIT CAST($2 AS bigint)", blob(from), args...) {
			if err == nil && (any && l.Path == last || !in.has(l.Archive)) { // in an older archive
				continue
			}
			last, any = l.Path, true
			if !yield(l, err) {
				return
			}
		}
	}
}

// Below yields the newest location of each path that begins with prefix, in byte
// order.
func (c *Catalog) Below(ctx context.Context, prefix string) iter.Seq2[Location, error] {
	return c.Between(ctx, prefix, After(prefix), nil)
}

// Check looks for damage in the database itself, and for archives whose number
// of locations has changed since they were added.
func (c *Catalog) Check(ctx context.Context, report func(problem string)) error {
	err := c.db.read(ctx, true, func(s session) error {
		if err := c.db.check(ctx, s, report); err != nil {
			return err
		}
		for _, sql := range []string{
			`SELECT format('archive %s: expected %s locations, found %s', a.id, a.entries, coalesce(n, 0))
				FROM archives AS a LEFT JOIN (SELECT archive, count(*) AS n FROM locations GROUP BY archive) AS c ON c.archive = a.id
				WHERE coalesce(n, 0) <> a.entries ORDER BY a.id LIMIT 100`,
			`SELECT format('archive %s: expected none, found %s locations', archive, count(*)) FROM locations
				WHERE archive NOT IN (SELECT id FROM archives) GROUP BY archive LIMIT 100`,
		} {
			for problem, err := range each(ctx, s, textIn, sql) {
				if err != nil {
					return err
				}
				report(problem)
			}
		}
		return nil
	})
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultCorrupt {
		report(err.Error())
		return nil // no other field can be relied on
	}
	return err
}
