package catalog

import (
	"context"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdall/holdall/format"
)

// postgresLocation is locationColumns as PostgreSQL wants them: offset is a word of its own.
const postgresLocation = `l.path, l.archive, l.kind, l.size, l."offset", l.digest`

// A scannedLocation takes in the columns of postgresLocation.
type scannedLocation struct {
	path, digest  []byte
	archive, size int64
	kind          int16
	offset        *int64
}

func (s *scannedLocation) into() []any {
	return []any{&s.path, &s.archive, &s.kind, &s.size, &s.offset, &s.digest}
}

func (s *scannedLocation) location() Location {
	l := Location{Path: string(s.path), Archive: s.archive, Kind: format.Kind(s.kind), Size: s.size}
	if s.offset != nil {
		l.Raw, l.Off = true, *s.offset
	}
	if s.digest != nil {
		l.Digest.Algo, l.Digest.Sum, _ = strings.Cut(string(s.digest), ":")
	}
	return l
}

func scanLocation(row pgx.CollectableRow) (Location, error) {
	var s scannedLocation
	err := row.Scan(s.into()...)
	return s.location(), err
}

// A scannedArchive takes in archiveColumns.
type scannedArchive struct {
	Archive
	address, version []byte
	added            int64
	verified         *int64
}

func (s *scannedArchive) into() []any {
	return []any{&s.ID, &s.address, &s.Format, &s.Size, &s.version, &s.Entries, &s.added, &s.verified}
}

func (s *scannedArchive) archive() Archive {
	a := s.Archive
	a.Address, a.Version, a.Added = string(s.address), string(s.version), instant(s.added)
	if s.verified != nil {
		a.Verified = instant(*s.verified)
	}
	return a
}

func scanArchive(row pgx.CollectableRow) (Archive, error) {
	var s scannedArchive
	err := row.Scan(s.into()...)
	return s.archive(), err
}

func scanFound(row pgx.CollectableRow) (Found, error) {
	var l scannedLocation
	var a scannedArchive
	err := row.Scan(append(l.into(), a.into()...)...)
	return Found{l.location(), a.archive()}, err
}

// collected returns what a query of few rows has.
func collected[T any](ctx context.Context, db *postgresDB, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	conn, err := db.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, db.failed(ctx, "read", away(conn, err))
	}
	all, err := pgx.CollectRows(rows, row)
	return all, db.failed(ctx, "read", away(conn, err))
}

// firstPage and page are how many rows are asked for at a time: few at first, for many
// want no more than one.
const (
	firstPage = 16
	page      = 4096
)

// paged yields the rows of a query of many, all as they were when it began. PostgreSQL
// sends a client all that a query has, however few it reads: so each page is a query, which
// is told where to go on, and how many rows to return at most.
func paged[T any](ctx context.Context, db *postgresDB, row pgx.RowToFunc[T], sql string, from string, next func(T) string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		conn, err := db.acquire(ctx)
		if err != nil {
			yield(zero, err)
			return
		}
		defer conn.Release()
		for n := firstPage; ; n = min(n*8, page) {
			var all []T
			b := &pgx.Batch{}
			if n == firstPage {
				b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
				// However the loop is left, the connection goes back without a transaction.
				defer conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
			}
			b.Queue(sql, append([]any{[]byte(from), n}, args...)...).Query(func(rows pgx.Rows) (err error) {
				all, err = pgx.CollectRows(rows, row)
				return err
			})
			if err := conn.SendBatch(ctx, b).Close(); err != nil {
				yield(zero, db.failed(ctx, "read", away(conn, err)))
				return
			}
			for _, x := range all {
				if !yield(x, nil) {
					return
				}
			}
			if len(all) < n {
				return
			}
			from = next(all[len(all)-1])
		}
	}
}

const postgresFound = "SELECT " + postgresLocation + ", " + archiveColumns + ` FROM locations AS l JOIN archives AS a ON a.id = l.archive
	WHERE substring(l.path, 1, 1024) = substring($1::bytea, 1, 1024) AND l.path = $1 ORDER BY l.archive DESC`

func (db *postgresDB) newest(ctx context.Context, path string) (Found, error) {
	found, err := collected(ctx, db, scanFound, postgresFound+" LIMIT 1", []byte(path))
	if err == nil && len(found) == 0 {
		return Found{}, absent(path)
	} else if err != nil {
		return Found{}, err
	}
	return found[0], nil
}

func (db *postgresDB) holders(ctx context.Context, path string) ([]Found, error) {
	return collected(ctx, db, scanFound, postgresFound, []byte(path))
}

func (db *postgresDB) archive(ctx context.Context, address string) (Archive, error) {
	all, err := collected(ctx, db, scanArchive, "SELECT "+archiveColumns+" FROM archives AS a WHERE sha256(a.address) = sha256($1)", []byte(address))
	if err == nil && len(all) == 0 {
		return Archive{}, absent(address)
	} else if err != nil {
		return Archive{}, err
	}
	return all[0], nil
}

func (db *postgresDB) archives(ctx context.Context) ([]Archive, error) {
	return collected(ctx, db, scanArchive, "SELECT "+archiveColumns+" FROM archives AS a ORDER BY a.id")
}

// behind returns the first path after that of a location.
func behind(l Location) string { return l.Path + "\x00" }

func (db *postgresDB) scan(ctx context.Context, from, before string) iter.Seq2[Location, error] {
	const head = "SELECT " + postgresLocation + ` FROM locations AS l WHERE substring(l.path, 1, 1024) >= substring($1::bytea, 1, 1024) AND l.path >= $1`
	const bound = ` AND substring(l.path, 1, 1024) <= substring($3::bytea, 1, 1024) AND l.path < $3`
	const tail = " ORDER BY substring(l.path, 1, 1024), l.path, l.archive DESC LIMIT $2"
	sql, args := head+tail, []any{}
	if before != "" {
		sql, args = head+bound+tail, []any{[]byte(before)}
	}
	return func(yield func(Location, error) bool) {
		last, any := "", false
		for l, err := range paged(ctx, db, scanLocation, sql, from, behind, args...) {
			if err == nil {
				if any && l.Path == last { // in an older archive
					continue
				}
				last, any = l.Path, true
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

func (db *postgresDB) all(ctx context.Context, a Archive) iter.Seq2[Location, error] {
	const sql = "SELECT " + postgresLocation + ` FROM locations AS l WHERE l.archive = $3 AND l.path >= $1 AND substring(l.path, 1, 1024) >= substring($1::bytea, 1, 1024)
		AND substring(l.path, 1, 1024) <= (SELECT substring(last, 1, 1024) FROM archives WHERE id = $3) ORDER BY substring(l.path, 1, 1024), l.path LIMIT $2`
	return func(yield func(Location, error) bool) {
		first, err := collected(ctx, db, pgx.RowTo[[]byte], "SELECT first FROM archives WHERE id = $1", a.ID)
		if err != nil {
			yield(Location{}, err)
			return
		}
		if len(first) == 0 {
			return
		}
		for l, err := range paged(ctx, db, scanLocation, sql, string(first[0]), behind, a.ID) {
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

func (db *postgresDB) check(ctx context.Context, report func(string)) error {
	for _, sql := range []string{
		`SELECT format('archive %s: expected %s locations, found %s', a.id, a.entries, coalesce(n, 0))
			FROM archives AS a LEFT JOIN (SELECT archive, count(*) AS n FROM locations GROUP BY archive) AS c ON c.archive = a.id
			WHERE coalesce(n, 0) <> a.entries ORDER BY a.id LIMIT 100`,
		`SELECT format('archive %s: expected none, found %s locations', archive, count(*)) FROM locations
			WHERE archive NOT IN (SELECT id FROM archives) GROUP BY archive LIMIT 100`,
	} {
		found, err := collected(ctx, db, pgx.RowTo[string], sql)
		if err != nil {
			return err
		}
		for _, problem := range found {
			report(problem)
		}
	}
	return nil
}
