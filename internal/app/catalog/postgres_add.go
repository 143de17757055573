package catalog

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// staging is what is known of the staged rows of one archive together. They are
// those with the numbers from+1 to from+rows.
type staging struct {
	from, rows  int64
	sorted      bool // each path is greater than the one before
	first, last string
}

// Rows wait in a table of the connection's own: a path may come
// twice, and what is published is locked for no longer than it must.
const createPostgresStaged = `SET LOCAL client_min_messages = warning;
CREATE TEMP TABLE IF NOT EXISTS staged (
	row bigint NOT NULL, size bigint NOT NULL, "offset" bigint, kind smallint NOT NULL, path bytea NOT NULL, digest bytea) ON COMMIT DELETE ROWS`

// copied copies rows into a table: each of what rows yields becomes the columns that
// row returns, which are used before it is asked again.
func copied[T any](ctx context.Context, tx pgx.Tx, table pgx.Identifier, columns []string, rows iter.Seq2[T, error], row func(T) []any) error {
	next, stop := iter.Pull2(rows)
	defer stop()
	var broken error // which the server would tell us of, as a text
	_, err := tx.CopyFrom(ctx, table, columns, pgx.CopyFromFunc(func() ([]any, error) {
		x, err, more := next()
		if !more || err != nil {
			broken = err
			return nil, err
		}
		return row(x), nil
	}))
	return cmp.Or(broken, err)
}

func (db *postgresDB) add(ctx context.Context, all []Addition) (done []Added, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		staged, err := stagePostgres(ctx, tx, all)
		if err != nil {
			return err
		}
		done, err = publishPostgres(ctx, tx, all, staged)
		return err
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// stagePostgres takes the rows in. It locks nothing that others see.
func stagePostgres(ctx context.Context, tx pgx.Tx, all []Addition) (staged []staging, err error) {
	if _, err := tx.Exec(ctx, createPostgresStaged, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	n := int64(0)
	values := make([]any, 6)
	var digest []byte
	for _, a := range all {
		g := staging{from: n, sorted: true}
		previous := ""
		err := copied(ctx, tx, pgx.Identifier{"pg_temp", "staged"}, []string{"row", "size", "offset", "kind", "path", "digest"}, a.Rows, func(l Location) []any {
			n++
			if g.rows == 0 {
				g.first, g.last = l.Path, l.Path
			} else if l.Path <= previous {
				g.sorted = false
			}
			g.first, g.last, previous = min(g.first, l.Path), max(g.last, l.Path), l.Path
			g.rows++
			values[0], values[1], values[2], values[3], values[4], values[5] = n, l.Size, nil, int16(l.Kind), []byte(l.Path), nil
			if l.Raw {
				values[2] = l.Off
			}
			if l.Digest.Algo != "" {
				digest = append(append(append(digest[:0], l.Digest.Algo...), ':'), l.Digest.Sum...)
				values[5] = digest
			}
			return values
		})
		if err != nil {
			return nil, err
		}
		staged = append(staged, g)
	}
	return staged, nil
}

// publishPostgres makes the staged rows those of archives.
func publishPostgres(ctx context.Context, tx pgx.Tx, all []Addition, staged []staging) (done []Added, err error) {
	// Two that add the same address do so one after the other. In order, so that
	// those who want several never wait for one another.
	var addresses []string
	for _, a := range all {
		addresses = append(addresses, a.Address)
	}
	slices.Sort(addresses)
	for _, address := range addresses {
		if err := lockAddress(ctx, tx, address); err != nil {
			return nil, err
		}
	}
	for i, a := range all {
		d, err := publishOne(ctx, tx, a.Archive, staged[i])
		if err != nil {
			return nil, err
		}
		done = append(done, d)
	}
	return done, nil
}

func lockAddress(ctx context.Context, tx pgx.Tx, address string) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended(encode($1, 'hex') || current_schema(), 0))", []byte(address))
	return err
}

func publishOne(ctx context.Context, tx pgx.Tx, a Archive, g staging) (done Added, err error) {
	if done.Replaced, err = forgetPostgres(ctx, tx, a.Address); err != nil && !isAbsent(err) {
		return done, err
	}
	if a.Same(done.Replaced) && a.Verified.IsZero() {
		a.Verified = done.Replaced.Verified
	}
	a.Added = time.Now().UTC().Truncate(time.Microsecond)
	var verified *int64
	if !a.Verified.IsZero() {
		verified = new(a.Verified.UnixMicro())
	}
	err = tx.QueryRow(ctx, `INSERT INTO archives (address, format, size, version, entries, first, last, added, verified)
		VALUES ($1, $2, $3, $4, 0, $5, $6, $7, $8) RETURNING id`,
		[]byte(a.Address), a.Format, a.Size, []byte(a.Version), []byte(g.first), []byte(g.last), a.Added.UnixMicro(), verified).Scan(&a.ID)
	if err != nil {
		return done, err
	}
	rows := `INSERT INTO locations (path, archive, kind, size, "offset", digest) SELECT path, $1, kind, size, "offset", digest FROM pg_temp.staged WHERE row > $2 AND row <= $3`
	if !g.sorted {
		rows = `INSERT INTO locations (path, archive, kind, size, "offset", digest)
			SELECT DISTINCT ON (path) path, $1, kind, size, "offset", digest FROM pg_temp.staged WHERE row > $2 AND row <= $3 ORDER BY path, row DESC`
	}
	added, err := tx.Exec(ctx, rows, a.ID, g.from, g.from+g.rows)
	if err != nil {
		return done, err
	}
	a.Entries = added.RowsAffected()
	_, err = tx.Exec(ctx, "UPDATE archives SET entries = $2 WHERE id = $1", a.ID, a.Entries)
	done.Archive = a
	return done, err
}

// forgetPostgres removes an archive, and returns it. Its address is locked.
func forgetPostgres(ctx context.Context, tx pgx.Tx, address string) (a Archive, err error) {
	rows, err := tx.Query(ctx, "SELECT "+archiveColumns+" FROM archives AS a WHERE sha256(a.address) = sha256($1)", []byte(address))
	if err != nil {
		return a, err
	}
	all, err := pgx.CollectRows(rows, scanArchive)
	if err == nil && len(all) == 0 {
		return a, absent(address)
	} else if err != nil {
		return a, err
	}
	for _, sql := range []string{
		`DELETE FROM locations WHERE substring(path, 1, 1024) >= (SELECT substring(first, 1, 1024) FROM archives WHERE id = $1)
			AND substring(path, 1, 1024) <= (SELECT substring(last, 1, 1024) FROM archives WHERE id = $1) AND archive = $1`,
		`DELETE FROM archives WHERE id = $1`,
	} {
		if err == nil {
			_, err = tx.Exec(ctx, sql, all[0].ID)
		}
	}
	return all[0], err
}

func (db *postgresDB) remove(ctx context.Context, address string) (a Archive, err error) {
	err = db.write(ctx, func(tx pgx.Tx) error {
		if err := lockAddress(ctx, tx, address); err != nil {
			return err
		}
		a, err = forgetPostgres(ctx, tx, address)
		return err
	})
	return a, err
}

func (db *postgresDB) verified(ctx context.Context, id int64, at time.Time) error {
	return db.write(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE archives SET verified = $2 WHERE id = $1", id, at.UnixMicro())
		return err
	})
}
