package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const defaultSchema = "holdall_queue"

// connections is the maximum number of connections of a process, unless the address sets it
// (pool_max_conns). On one of them a worker listens.
const connections = 4

// A server is a queue in a schema of a PostgreSQL database.
type server struct {
	q      *Queue
	pool   *pgxpool.Pool
	driver *riverpgxv5.Driver
	schema string
}

// openPostgres does not repeat the address in errors: it may have a password.
func (q *Queue) openPostgres(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("queue: expected postgres://USER@HOST/DATABASE, found an invalid address")
	}
	params := u.Query()
	schema := cmp.Or(params.Get("schema"), defaultSchema)
	params.Del("schema")
	u.RawQuery = params.Encode()
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return errors.New("queue: expected postgres://USER@HOST/DATABASE with parameters of PostgreSQL, found an invalid address")
	}
	if !params.Has("pool_max_conns") {
		config.MaxConns = connections
	}
	c := config.ConnConfig
	c.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	c.RuntimeParams["application_name"] = cmp.Or(c.RuntimeParams["application_name"], "holdall")
	q.name = "postgres://" + net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database
	if schema != defaultSchema {
		q.name += "?schema=" + url.QueryEscape(schema)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return q.failed(err)
	}
	q.db = stdlib.OpenDBFromPool(pool)
	q.engine = &server{q, pool, riverpgxv5.New(pool), schema}
	return nil
}

func (s *server) client(c *river.Config, wrap func(riverdriver.Executor) riverdriver.Executor) (client, error) {
	c.Schema = s.schema
	return newClient(s.driver, c, wrap)
}

func (s *server) executor() riverdriver.Executor { return s.driver.GetExecutor() }

func (s *server) migrate(ctx context.Context, log *slog.Logger) error {
	// River reports here if it cannot use a schema of that name.
	if _, err := s.client(&river.Config{Logger: log}, nil); err != nil {
		return fmt.Errorf("schema %q: River: %w", s.schema, err)
	}
	m, err := rivermigrate.New(s.driver, &rivermigrate.Config{Schema: s.schema, Logger: log})
	if err != nil {
		return err
	}
	if done, err := s.upToDate(ctx, m); done || err != nil {
		return err
	}
	// Only one process migrates at a time. Each of River's steps is a transaction of its own, so
	// the next process continues what another one has begun.
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const lock = "hashtextextended('holdall queue ' || $1, 0)"
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock("+lock+")", s.schema); err != nil {
		return err
	}
	defer func() {
		// If the unlock fails, the connection must not be used again.
		if _, err := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock("+lock+")", s.schema); err != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}()
	if done, err := s.upToDate(ctx, m); done || err != nil {
		return err
	}
	// A role that may use a schema may not always create one.
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)", s.schema).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{s.schema}.Sanitize()); err != nil {
			return err
		}
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (s *server) upToDate(ctx context.Context, m *rivermigrate.Migrator[pgx.Tx]) (bool, error) {
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT to_regclass('river_migration') IS NOT NULL").Scan(&there); err != nil || !there {
		return false, err
	}
	var found int
	if err := s.pool.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM river_migration").Scan(&found); err != nil {
		return false, err
	}
	return upToDate(s.q.name, found, m.AllVersions())
}

// upToDate reports whether tables of a version need no migration, or an error if they are newer.
func upToDate(name string, found int, all []rivermigrate.Migration) (bool, error) {
	known := all[len(all)-1].Version // they are sorted
	if found > known {
		return false, &VersionError{name, found, known}
	}
	return found == known, nil
}

func (s *server) now(ctx context.Context) (t time.Time, err error) {
	err = s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t)
	return t, err
}

func (s *server) lasting(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch {
	case strings.HasPrefix(e.Code, "28"), strings.HasPrefix(e.Code, "42"), e.Code == "3D000", e.Code == "3F000":
		return true // a password, a permission, a table, a database, a schema
	}
	return false
}

func (s *server) close() error {
	s.pool.Close()
	return nil
}
