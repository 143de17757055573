package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A file is a queue in an SQLite file.
type file struct {
	q      *Queue
	driver *riversqlite.Driver
}

func (q *Queue) openFile(ctx context.Context, name string) error {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("queue: expected the name of a file, or postgres://USER@HOST/DATABASE, found %q", name)
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	// SQLite would only say that it could not open it.
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	q.name = name
	// A transaction takes the turn to write when it begins: one that has read already could not
	// wait for it. Commits are synced, so that no job is lost.
	u := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(name), "/"), RawQuery: "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"}
	if q.db, err = sql.Open("sqlite", u.String()); err != nil {
		return err
	}
	q.db.SetMaxOpenConns(1) // as River's driver advises
	q.engine = &file{q, riversqlite.New(q.db)}
	return nil
}

func (f *file) client(c *river.Config, wrap func(riverdriver.Executor) riverdriver.Executor) (client, error) {
	return newClient(f.driver, c, wrap)
}

func (f *file) executor() riverdriver.Executor { return f.driver.GetExecutor() }

func (f *file) migrate(ctx context.Context, log *slog.Logger) error {
	m, err := rivermigrate.New(f.driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return err
	}
	for last := -1; ; {
		found, err := f.version(ctx)
		if err != nil {
			return err
		}
		if done, err := upToDate(f.q.name, found, m.AllVersions()); done || err != nil {
			return err
		}
		// Each of River's steps is a transaction. One may fail because another process has just
		// done it.
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err == nil || found == last {
			return err
		}
		last = found
	}
}

// version returns the version of River's tables, or 0 if there are none.
func (f *file) version(ctx context.Context) (v int, err error) {
	var tables, ours int
	if err := f.q.db.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(name = 'river_migration'), 0) FROM sqlite_master WHERE type = 'table'").Scan(&tables, &ours); err != nil {
		return 0, err
	}
	if tables > 0 && ours == 0 {
		return 0, errors.New("expected the tables of River, found others: this is no queue")
	}
	if ours > 0 {
		err = f.q.db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM river_migration").Scan(&v)
	}
	return v, err
}

func (f *file) now(context.Context) (t time.Time, err error) { return t, nil }

func (f *file) lasting(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return true
	}
	return strings.Contains(e.Error(), "no such table")
}

func (f *file) close() error { return nil }
