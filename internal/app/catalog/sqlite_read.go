package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/format"
)

const (
	locationColumns = "l.path, l.archive, l.kind, l.size, l.offset, l.digest"
	archiveColumns  = "a.id, a.address, a.format, a.size, a.version, a.entries, a.added, a.verified"
)

// blob returns the bytes of a column.
func blob(s *sqlite.Stmt, col int) string {
	var b strings.Builder
	s.ColumnReader(col).WriteTo(&b)
	return b.String()
}

func locationAt(s *sqlite.Stmt) Location {
	l := Location{Path: blob(s, 0), Archive: s.ColumnInt64(1), Kind: format.Kind(s.ColumnInt64(2)), Size: s.ColumnInt64(3)}
	if !s.ColumnIsNull(4) {
		l.Raw, l.Off = true, s.ColumnInt64(4)
	}
	if !s.ColumnIsNull(5) {
		l.Digest.Algo, l.Digest.Sum, _ = strings.Cut(blob(s, 5), ":")
	}
	return l
}

// archiveAt reads archiveColumns from column col on.
func archiveAt(s *sqlite.Stmt, col int) Archive {
	a := Archive{ID: s.ColumnInt64(col), Address: blob(s, col+1), Format: s.ColumnText(col + 2), Size: s.ColumnInt64(col + 3),
		Version: blob(s, col+4), Entries: s.ColumnInt64(col + 5), Added: time.UnixMicro(s.ColumnInt64(col + 6)).UTC()}
	if !s.ColumnIsNull(col + 7) {
		a.Verified = time.UnixMicro(s.ColumnInt64(col + 7)).UTC()
	}
	return a
}

// query yields the rows of a query, which each must have read before the next. It
// may be left early. Whoever handles a row may ask the catalogue other things: that
// goes over another connection.
func (db *sqliteDB) query(ctx context.Context, sql string, bind func(s *sqlite.Stmt)) iter.Seq2[*sqlite.Stmt, error] {
	return func(yield func(*sqlite.Stmt, error) bool) {
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		c, err := db.reader()
		if err != nil {
			yield(nil, err)
			return
		}
		defer db.release(c)
		s, err := c.Prepare(sql)
		if err != nil {
			yield(nil, failed(db.name, "read", err))
			return
		}
		defer s.Reset()
		bind(s)
		for n := 1; ; n++ {
			more, err := s.Step()
			if err != nil {
				yield(nil, failed(db.name, "read", err))
				return
			}
			if !more || !yield(s, nil) {
				return
			}
			if n&0xfff == 0 && ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

func (db *sqliteDB) newest(ctx context.Context, path string) (Found, error) {
	const sql = "SELECT " + locationColumns + ", " + archiveColumns + ` FROM locations AS l JOIN archives AS a ON a.id = l.archive
		WHERE l.path = ?1 ORDER BY l.archive DESC LIMIT 1`
	found, err := db.found(ctx, sql, path)
	if err == nil && len(found) == 0 {
		return Found{}, absent(path)
	} else if err != nil {
		return Found{}, err
	}
	return found[0], nil
}

func (db *sqliteDB) holders(ctx context.Context, path string) ([]Found, error) {
	const sql = "SELECT " + locationColumns + ", " + archiveColumns + ` FROM locations AS l JOIN archives AS a ON a.id = l.archive
		WHERE l.path = ?1 ORDER BY l.archive DESC`
	return db.found(ctx, sql, path)
}

func (db *sqliteDB) found(ctx context.Context, sql, path string) (found []Found, err error) {
	for s, err := range db.query(ctx, sql, func(s *sqlite.Stmt) { s.BindBytes(1, []byte(path)) }) {
		if err != nil {
			return nil, err
		}
		found = append(found, Found{locationAt(s), archiveAt(s, 6)})
	}
	return found, nil
}

func (db *sqliteDB) archive(ctx context.Context, address string) (Archive, error) {
	for s, err := range db.query(ctx, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.address = ?1", func(s *sqlite.Stmt) { s.BindBytes(1, []byte(address)) }) {
		if err != nil {
			return Archive{}, err
		}
		return archiveAt(s, 0), nil
	}
	return Archive{}, absent(address)
}

func (db *sqliteDB) archives(ctx context.Context) (all []Archive, err error) {
	for s, err := range db.query(ctx, "SELECT "+archiveColumns+" FROM archives AS a ORDER BY a.id", func(*sqlite.Stmt) {}) {
		if err != nil {
			return nil, err
		}
		all = append(all, archiveAt(s, 0))
	}
	return all, nil
}

func (db *sqliteDB) scan(ctx context.Context, from, before string) iter.Seq2[Location, error] {
	const unbounded = "SELECT " + locationColumns + " FROM locations AS l WHERE l.path >= ?1 ORDER BY l.path, l.archive DESC"
	const bounded = "SELECT " + locationColumns + " FROM locations AS l WHERE l.path >= ?1 AND l.path < ?2 ORDER BY l.path, l.archive DESC"
	return func(yield func(Location, error) bool) {
		sql, bind := unbounded, func(s *sqlite.Stmt) { s.BindBytes(1, []byte(from)) }
		if before != "" {
			sql, bind = bounded, func(s *sqlite.Stmt) {
				s.BindBytes(1, []byte(from))
				s.BindBytes(2, []byte(before))
			}
		}
		last, any := "", false
		for s, err := range db.query(ctx, sql, bind) {
			if err != nil {
				yield(Location{}, err)
				return
			}
			l := locationAt(s)
			if any && l.Path == last { // in an older archive
				continue
			}
			last, any = l.Path, true
			if !yield(l, nil) {
				return
			}
		}
	}
}

func (db *sqliteDB) all(ctx context.Context, a Archive) iter.Seq2[Location, error] {
	const sql = "SELECT " + locationColumns + ` FROM archives AS a CROSS JOIN locations AS l
		WHERE a.id = ?1 AND l.path >= a.first AND l.path <= a.last AND l.archive = ?1 ORDER BY l.path`
	return func(yield func(Location, error) bool) {
		for s, err := range db.query(ctx, sql, func(s *sqlite.Stmt) { s.BindInt64(1, a.ID) }) {
			if err != nil {
				yield(Location{}, err)
				return
			}
			if !yield(locationAt(s), nil) {
				return
			}
		}
	}
}

func (db *sqliteDB) check(ctx context.Context, report func(string)) error {
	c, err := db.reader()
	if err != nil {
		return err
	}
	c.SetInterrupt(ctx.Done())
	defer func() {
		c.SetInterrupt(nil)
		db.release(c)
	}()
	tell := func(s *sqlite.Stmt) error {
		if text := s.ColumnText(0); text != "ok" {
			report(text)
		}
		return nil
	}
	for _, sql := range []string{
		"PRAGMA quick_check(100)",
		`SELECT format('archive %d: expected %d locations, found %d', a.id, a.entries, coalesce(n, 0))
			FROM archives AS a LEFT JOIN (SELECT archive, count(*) AS n FROM locations GROUP BY archive) AS c ON c.archive = a.id
			WHERE coalesce(n, 0) <> a.entries ORDER BY a.id LIMIT 100`,
		`SELECT format('archive %d: expected none, found %d locations', archive, count(*)) FROM locations
			WHERE archive NOT IN (SELECT id FROM archives) GROUP BY archive LIMIT 100`,
	} {
		err := sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: tell})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultCorrupt:
			report(fmt.Sprint(failed(db.name, "read", err)))
			return nil // nothing else that it says can be relied upon
		case err != nil:
			return failed(db.name, "read", err)
		}
	}
	return nil
}

// isAbsent reports whether err says that something is not in the catalogue.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
