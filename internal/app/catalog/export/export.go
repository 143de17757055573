// Package export copies a catalogue in a folder to a database, for programs that speak SQL.
package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
)

// A database runs statements, in which the first parameter is $1.
type database interface {
	exec(ctx context.Context, sql string, args ...any) error
	// texts returns the first column of all rows.
	texts(ctx context.Context, sql string, args ...any) ([]string, error)
	Close() error
}

type sqliteDB struct{ *sqlite.Conn }

func (d sqliteDB) exec(ctx context.Context, sql string, args ...any) error {
	_, err := d.texts(ctx, sql, args...)
	return err
}

func (d sqliteDB) texts(ctx context.Context, sql string, args ...any) (all []string, err error) {
	d.SetInterrupt(ctx.Done())
	err = sqlitex.Execute(d.Conn, strings.ReplaceAll(sql, "$", "?"), &sqlitex.ExecOptions{Args: args, ResultFunc: func(s *sqlite.Stmt) error {
		all = append(all, s.ColumnText(0))
		return nil
	}})
	return all, err
}

type postgresDB struct{ *pgx.Conn }

func (d postgresDB) exec(ctx context.Context, sql string, args ...any) error {
	_, err := d.Exec(ctx, sql, args...)
	return err
}

func (d postgresDB) texts(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, err := d.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (d postgresDB) Close() error { return d.Conn.Close(context.Background()) }

// Is reports whether an address is that of a database.
func Is(address string) bool {
	kind, _, ok := strings.Cut(address, ":")
	return ok && (kind == "sqlite" || kind == "postgres" || kind == "postgresql")
}

func open(ctx context.Context, address string) (database, error) {
	if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
		c, err := sqlite.OpenConn(file, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
		if err != nil {
			return nil, err
		}
		c.SetBusyTimeout(time.Minute)
		return sqliteDB{c}, nil
	}
	c, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return postgresDB{c}, nil
}

var tables = []string{
	`CREATE TABLE archives (id BIGINT PRIMARY KEY, address TEXT NOT NULL, format TEXT NOT NULL, size BIGINT NOT NULL, version TEXT NOT NULL, entries BIGINT NOT NULL, added TEXT NOT NULL)`,
	`CREATE TABLE file_locations (file_path TEXT PRIMARY KEY, caf_file_id BIGINT NOT NULL, kind TEXT NOT NULL, size BIGINT NOT NULL, "offset" BIGINT, digest TEXT NOT NULL, modified TEXT NOT NULL, etag TEXT NOT NULL)`,
	`CREATE INDEX file_locations_of ON file_locations (caf_file_id)`,
	`CREATE TABLE exported (catalog TEXT NOT NULL, number BIGINT NOT NULL)`,
}

// A Done says what an export did.
type Done struct {
	Commit  int64 `json:"commit"`  // that the database now has
	Whole   bool  `json:"whole"`   // it was written anew
	Files   int64 `json:"files"`   // rows of file_locations that were written
	Removed int64 `json:"removed"` // and removed
}

// To brings a database up to the newest commit. What has changed since the last export is found by the
// commits after it. Paths are in the form that format.Escape gives them.
func To(ctx context.Context, b *book.Book, address string) (done Done, err error) {
	d, err := open(ctx, address)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	_, missing := d.texts(ctx, "SELECT file_path FROM recordings WHERE 1 = 0")
	x := &exporter{database: d, facts: missing == nil}
	if err := d.exec(ctx, "BEGIN"); err != nil {
		return done, err
	}
	defer func() {
		if err != nil {
			_ = d.exec(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	// Tables of these names that it has not made are another program's.
	if _, err := d.texts(ctx, "SELECT catalog FROM exported"); err != nil {
		if err := errors.Join(d.exec(ctx, "ROLLBACK"), d.exec(ctx, "BEGIN")); err != nil { // PostgreSQL does nothing more in this one
			return done, err
		}
		for _, sql := range tables {
			if err := d.exec(ctx, sql); err != nil {
				return done, err
			}
		}
	}
	s, err := b.State(ctx)
	if err != nil {
		return done, err
	}
	was, err := d.texts(ctx, "SELECT CAST(number AS TEXT) FROM exported WHERE catalog = $1", s.Catalog)
	if err != nil {
		return done, err
	}
	last := int64(0)
	if len(was) == 1 {
		_, _ = fmt.Sscan(was[0], &last)
	}
	done.Commit = s.Number
	var names map[string]bool
	var dropped []int64
	if last > 0 {
		names, dropped, err = b.ChangedSince(ctx, last)
	}
	switch {
	case last == s.Number:
		return done, d.exec(ctx, "COMMIT")
	case last == 0 || errors.Is(err, fs.ErrNotExist): // the runs of some commits are gone
		done.Whole = true
		for _, sql := range []string{"DELETE FROM file_locations", "DELETE FROM archives", "DELETE FROM exported"} {
			if err := d.exec(ctx, sql); err != nil {
				return done, err
			}
		}
		if err := x.forget(ctx, ""); err != nil {
			return done, err
		}
		for l, err := range b.Below(ctx, "") {
			if err == nil {
				err = x.put(ctx, l)
			}
			if err != nil {
				return done, err
			}
			done.Files++
		}
	case err != nil:
		return done, err
	default:
		for _, id := range dropped {
			of, err := d.texts(ctx, "SELECT file_path FROM file_locations WHERE caf_file_id = $1", id)
			if err != nil {
				return done, err
			}
			for _, n := range of {
				names[naming.Unescape(n)] = true
			}
		}
		for name := range names {
			f, err := b.Newest(ctx, name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				if err = d.exec(ctx, "DELETE FROM file_locations WHERE file_path = $1", format.Escape(name)); err == nil {
					err = x.forget(ctx, " WHERE file_path = $1", format.Escape(name))
				}
				done.Removed++
			case err == nil:
				err = x.put(ctx, f.Location)
				done.Files++
			}
			if err != nil {
				return done, err
			}
		}
		for _, sql := range []string{"DELETE FROM archives", "DELETE FROM exported"} {
			if err := d.exec(ctx, sql); err != nil {
				return done, err
			}
		}
	}
	all, err := b.Archives(ctx)
	if err != nil {
		return done, err
	}
	for _, a := range all {
		if err := d.exec(ctx, "INSERT INTO archives VALUES ($1, $2, $3, $4, $5, $6, $7)", a.ID, format.Escape(a.Address), a.Format, a.Size, format.Escape(a.Version), a.Entries, a.Added.Format(time.RFC3339Nano)); err != nil {
			return done, err
		}
	}
	if err := d.exec(ctx, "INSERT INTO exported VALUES ($1, $2)", s.Catalog, s.Number); err != nil {
		return done, err
	}
	return done, d.exec(ctx, "COMMIT")
}

func (x *exporter) put(ctx context.Context, l catalog.Location) error {
	var off any
	if l.Raw {
		off = l.Off
	}
	modified := ""
	if !l.Modified.IsZero() {
		modified = l.Modified.Format(time.RFC3339Nano)
	}
	err := x.exec(ctx, `INSERT INTO file_locations VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (file_path) DO UPDATE SET
		caf_file_id = excluded.caf_file_id, kind = excluded.kind, size = excluded.size, "offset" = excluded."offset", digest = excluded.digest, modified = excluded.modified, etag = excluded.etag`,
		format.Escape(l.Path), l.Archive, l.Kind.String(), l.Size, off, l.Digest.String(), modified, format.Escape(l.ETag))
	if err == nil {
		err = x.forget(ctx, " WHERE file_path = $1", format.Escape(l.Path))
	}
	if err == nil && l.HasFacts() {
		err = x.say(ctx, l)
	}
	return err
}
