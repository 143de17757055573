package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// defaultSchema is the schema of a catalogue in its database, unless the
// address has the parameter "schema", which is not one of PostgreSQL's own.
const (
	defaultSchema   = "holdall"
	schemaParameter = "schema"
)

// migrating is the key of the advisory lock that is held while a schema is
// created or changed.
const migrating = 0x686f6c6463617400 // "holdcat"

// connections is the maximum number of connections of a catalogue, unless the
// address sets it (pool_max_conns). Half of them may write: code that reads
// while it adds needs a second connection. A read-only catalogue has fewer.
const (
	connections = 16
	forReading  = 4
)

// bounds returns the maximum number of connections, and how many of them may
// write at once. Each worker may spend a long time in the transaction that
// ends its chunk. So there is one more connection for renewing claims, and one
// for reading. The connection on which River listens is not counted.
func (o Options) bounds() (most, writing int) {
	switch {
	case o.ReadOnly:
		return forReading, forReading / 2
	case o.Workers <= 0:
		return connections, connections / 2
	}
	workers := min(o.Workers, 1000)
	return workers + 2, workers + 1
}

// A postgresDB is a catalogue in a schema of a PostgreSQL database.
type postgresDB struct {
	name     string // the address without secrets
	pool     *pgxpool.Pool
	readOnly bool
	wait     time.Duration
	queue    Queue
	writing  chan struct{} // holds a token for each that may write

	now func() time.Time // by which leases end; nil is the database's clock
}

// postgresConfig parses an address. Errors do not contain it, because it may
// have a password, and in an invalid address its place is unknown.
func postgresConfig(address string, o Options) (config *pgxpool.Config, schema, name string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", "", errors.New("postgres database: expected postgres://USER@HOST/DATABASE, found an invalid address")
	}
	q := u.Query()
	schema = cmp.Or(q.Get(schemaParameter), defaultSchema)
	if len(schema) > 63 || schema != words(schema) {
		return nil, "", "", fmt.Errorf("postgres database: schema: expected a name of at most 63 bytes of UTF-8, found %q", schema)
	}
	if q.Has(schemaParameter) {
		q.Del(schemaParameter)
		u.RawQuery = q.Encode()
	}
	pools := q.Has("pool_max_conns")
	if config, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, "", "", errors.New("postgres database: expected postgres://USER@HOST/DATABASE with parameters of PostgreSQL, found an invalid address")
	}
	if most, _ := o.bounds(); !pools {
		config.MaxConns = int32(most)
	}
	c := config.ConnConfig
	// Our names are found without the schema, which may have any name.
	c.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	c.RuntimeParams["application_name"] = cmp.Or(c.RuntimeParams["application_name"], "holdall")
	c.RuntimeParams["lock_timeout"] = strconv.FormatInt(max(o.Wait.Milliseconds(), 1), 10)
	if o.ReadOnly {
		c.RuntimeParams["default_transaction_read_only"] = "on"
	}
	name = "postgres://" + net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database
	if schema != defaultSchema {
		name += "?" + schemaParameter + "=" + schema
	}
	return config, schema, name, nil
}

func connectPostgres(ctx context.Context, address string, o Options) (*postgresDB, string, error) {
	config, schema, name, err := postgresConfig(address, o)
	if err != nil {
		return nil, "", err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	most, writing := o.bounds()
	if int(config.MaxConns) != most { // the address sets the number
		writing = max(int(config.MaxConns)/2, 1)
	}
	db := &postgresDB{name: name, pool: pool, readOnly: o.ReadOnly, wait: o.Wait, queue: o.Queue, writing: tokens(writing)}
	return db, schema, nil
}

// These are the results of schemaVersion for a schema that is not a catalogue.
const (
	schemaAbsent = -3 // or is empty
	schemaOthers = -2 // it has other tables
)

// schemaVersion returns the version of a catalogue's schema, or one of the
// constants above.
func schemaVersion(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, schema string) (version int, err error) {
	// The name of the column distinguishes our table from others.
	const sql = `SELECT count(*), count(*) FILTER (WHERE c.relname = 'catalogue' AND EXISTS (
			SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'holdall_schema'))
		FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1`
	var things, ours int
	if err := q.QueryRow(ctx, sql, schema).Scan(&things, &ours); err != nil {
		return 0, err
	}
	switch {
	case things == 0:
		return schemaAbsent, nil
	case ours == 0:
		return schemaOthers, nil
	}
	err = q.QueryRow(ctx, "SELECT holdall_schema FROM "+pgx.Identifier{schema, "catalogue"}.Sanitize()).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && version < 1 {
		return schemaOthers, nil
	}
	return version, err
}

// lockedVersion is schemaVersion with a lock that keeps others from creating
// or changing a schema.
func lockedVersion(ctx context.Context, tx pgx.Tx, schema string) (int, error) {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrating)); err != nil {
		return 0, err
	}
	return schemaVersion(ctx, tx, schema)
}

// createPostgres makes a catalogue in an existing database.
func createPostgres(ctx context.Context, address string) error {
	db, schema, err := connectPostgres(ctx, address, Options{Wait: time.Minute})
	if err != nil {
		return err
	}
	defer db.pool.Close()
	return db.transact(ctx, func(tx pgx.Tx) error {
		version, err := lockedVersion(ctx, tx, schema)
		if err != nil {
			return err
		} else if version != schemaAbsent {
			return &fs.PathError{Op: "create", Path: db.name, Err: fs.ErrExist}
		}
		var encoding string
		if err := tx.QueryRow(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
			return err
		} else if encoding != "UTF8" {
			return fmt.Errorf("encoding: expected a database of UTF8, found %s", encoding)
		}
		var there bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)", schema).Scan(&there); err != nil {
			return err
		}
		make := "CREATE TABLE catalogue (holdall_schema integer NOT NULL); INSERT INTO catalogue VALUES (0)"
		if !there { // a role that may use a schema may not always create one
			make = "CREATE SCHEMA " + pgx.Identifier{schema}.Sanitize() + "; " + make
		}
		if _, err := tx.Exec(ctx, make, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return migratePostgres(ctx, tx, 0)
	})
}

func migratePostgres(ctx context.Context, tx pgx.Tx, at int) error {
	for ; at < len(postgresMigrations); at++ {
		if _, err := tx.Exec(ctx, postgresMigrations[at]); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "UPDATE catalogue SET holdall_schema = $1", at)
	return err
}

func openPostgres(ctx context.Context, address string, o Options) (engine, error) {
	db, schema, err := connectPostgres(ctx, address, o)
	if err != nil {
		return nil, err
	}
	if err := db.upToDate(ctx, schema); err != nil {
		db.pool.Close()
		return nil, err
	}
	if o.Queue != nil && !o.ReadOnly {
		if err := o.Queue.Open(ctx, db.pool); err != nil {
			db.pool.Close()
			return nil, db.failed(ctx, "write", err)
		}
	}
	return db, nil
}

func (db *postgresDB) upToDate(ctx context.Context, schema string) error {
	found, err := schemaVersion(ctx, db.pool, schema)
	switch known := len(postgresMigrations); {
	case err != nil:
		return db.failed(ctx, "schema", err)
	case found == schemaAbsent:
		return &fs.PathError{Op: "open", Path: db.name, Err: fs.ErrNotExist}
	case found == schemaOthers:
		return fmt.Errorf("%s: schema %s: expected the tables of holdall, found others: it %w", db.name, schema, ErrBroken)
	case found > known || found < known && db.readOnly:
		return &SchemaError{Database: db.name, Found: found, Known: known}
	case found == known:
		return nil
	}
	return db.transact(ctx, func(tx pgx.Tx) error {
		now, err := lockedVersion(ctx, tx, schema)
		if err != nil || now != found { // another process migrated it first
			return err
		}
		return migratePostgres(ctx, tx, found)
	})
}

// acquire takes a connection from the pool. It waits as long as it would for a
// lock.
func (db *postgresDB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, db.wait, ErrBusy)
	defer cancel()
	conn, err := db.pool.Acquire(waiting)
	if err != nil {
		if _, refused := errors.AsType[*pgconn.PgError](err); !refused && waiting.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrAway, err)
		}
		return nil, db.failed(waiting, "connect", err)
	}
	return conn, nil
}

// write calls prepare in the same transaction as do: the staged rows are the
// session's own.
func (db *postgresDB) write(ctx context.Context, prepare, do func(s session) error) error {
	return db.transact(ctx, func(tx pgx.Tx) error {
		s := &postgresSession{db: db, q: tx, tx: tx}
		if prepare != nil {
			if _, err := tx.Exec(ctx, createStaged, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			if err := prepare(s); err != nil {
				return err
			}
		}
		return do(s)
	})
}

// read runs several statements in one transaction, so that they read the same
// snapshot. It begins with the first statement.
func (db *postgresDB) read(ctx context.Context, several bool, do func(s session) error) error {
	conn, err := db.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if several {
		// However do ends, the connection is returned without a transaction.
		defer conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return db.failed(ctx, "read", away(conn, do(&postgresSession{db: db, q: conn, begin: several})))
}

func (db *postgresDB) clock() any {
	if db.now == nil {
		return nil
	}
	return db.now().UnixMicro()
}

// pages returns a small first page. PostgreSQL sends all rows of a query to
// the client, even if it reads only a few, and many callers want only one row.
func (db *postgresDB) pages() (first, most int) { return 16, 4096 }

func (db *postgresDB) dialect() *dialect { return inPostgres }

func (db *postgresDB) check(context.Context, session, func(string)) error { return nil }

func (db *postgresDB) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	if db.readOnly {
		return &fs.PathError{Op: "write", Path: db.name, Err: errors.New("opened read-only")}
	}
	select {
	case <-db.writing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { db.writing <- struct{}{} }()
	conn, err := db.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return db.failed(ctx, "write", away(conn, pgx.BeginFunc(ctx, conn, do)))
}

// away recognises the error of a lost connection.
func away(conn *pgxpool.Conn, err error) error {
	if err != nil && conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return err
}

// close waits for running writes.
func (db *postgresDB) close() error {
	db.pool.Close()
	return nil
}

// failed converts an error of PostgreSQL: it adds the name of the database and
// uses holdall's own errors. The server's messages contain no password.
func (db *postgresDB) failed(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrBusy) {
			return fmt.Errorf("%s: %s: %w: all connections are in use", db.name, op, ErrBusy)
		}
		return context.Cause(ctx)
	}
	if isOurs(err) {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		code := e.Code
		if op == "write" && strings.HasPrefix(code, "42P") {
			code = "" // which can come from a queue's own errors
		}
		switch code {
		case "57P01", "57P02", "57P03": // it ends, it died, it is about to begin
			return fmt.Errorf("%s: %s: %w: %s", db.name, op, ErrAway, e.Message)
		case "55P03", "40P01", "40001", "53300": // a lock, a deadlock, a conflict, too many connections
			return fmt.Errorf("%s: %s: %w: %s", db.name, op, ErrBusy, e.Message)
		case "XX001", "XX002", "42P01", "42703": // damage, or a table or column of the catalogue is missing
			return fmt.Errorf("%s: %s: it %w: %w", db.name, op, ErrBroken, err)
		case "42501":
			return fmt.Errorf("%s: %s: %w: %s", db.name, op, fs.ErrPermission, e.Message)
		}
	}
	if err.Error() == "closed pool" {
		return &fs.PathError{Op: "catalogue", Path: db.name, Err: fs.ErrClosed}
	}
	return fmt.Errorf("%s: %s: %w", db.name, op, err)
}
