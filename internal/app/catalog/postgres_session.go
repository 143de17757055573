package catalog

import (
	"cmp"
	"context"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Queue takes part in the transactions in which chunks become due and are
// done. So a queue of jobs in the same PostgreSQL database always agrees with
// them. An error rolls the transaction back.
type Queue interface {
	// Open is called first when a catalogue is opened for writing, with its
	// connections. The queue may use them while the catalogue is open, and may
	// create its own tables in the same schema.
	Open(ctx context.Context, pool *pgxpool.Pool) error
	// Enqueue is called with chunks that are due now, or at their NotBefore.
	Enqueue(ctx context.Context, tx pgx.Tx, chunks []Chunk) error
	// Finished is called with a chunk that is done.
	Finished(ctx context.Context, tx pgx.Tx, c Chunk) error
}

// inPostgres is the dialect of PostgreSQL. Its indexes contain only the
// beginnings of paths.
var inPostgres = &dialect{
	// The database's clock, unless a time is given.
	clock:      "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
	address:    "sha256(address) = sha256($1)",
	forUpdate:  " FOR UPDATE",
	skipLocked: " FOR UPDATE SKIP LOCKED",
	// The listed objects, from a table that has statistics.
	listed: "(SELECT path, size, object FROM staged WHERE $3::bigint > 0) AS l",
	etag: `CASE WHEN l.object IS NULL THEN '' WHEN get_byte(l.object, 0) & 8 <> 0
			THEN convert_to('"' || encode(substr(l.object, length(l.object) - 15), 'hex') || '"', 'UTF8') ELSE object_etag(l.object) END`,
	lockAddress: "SELECT pg_advisory_xact_lock(hashtextextended(encode($1, 'hex') || current_schema(), 0))",
	// A newer addition gets its number, and becomes visible, before the next one.
	publishing:     "SELECT pg_advisory_xact_lock_shared(hashtextextended('publishing' || current_schema(), 0))",
	lockPublishing: "SELECT pg_advisory_xact_lock(hashtextextended('publishing' || current_schema(), 0))",
	// PostgreSQL has no statistics of new tables, and its estimates are bad.
	knowWaiting: "ANALYZE pg_temp.staged_members, pg_temp.staged",
	// It may also have no statistics of members that were planned recently. Then it
	// would compare each of them with each listed object.
	joinAtOnce: "SET LOCAL enable_nestloop = off",
	joinAsEver: "SET LOCAL enable_nestloop = on",
	// Without statistics of new locations, it would sort all rows to return the
	// first few.
	inOrder: "SET LOCAL enable_sort = off",
	is: func(path, operator, with string) string {
		loose := strings.Replace(operator+"=", "==", "=", 1) // < becomes <= for the indexed beginnings of paths
		return "substring(" + path + ", 1, 1024) " + loose + " substring(" + with + "::bytea, 1, 1024) AND " + path + " " + operator + " " + with
	},
	order: func(path string) string { return "substring(" + path + ", 1, 1024), " + path },
	among: func(number, list string) string { return number + " = ANY(" + list + ")" },
}

// createStaged creates tables of the connection's own, in which rows are
// staged: a path may occur twice, and the published tables should be locked
// only briefly.
const createStaged = `SET LOCAL client_min_messages = warning;
CREATE TEMP TABLE IF NOT EXISTS staged (
	row bigint NOT NULL, size bigint NOT NULL, "offset" bigint, kind smallint NOT NULL, path bytea NOT NULL, digest bytea, object bytea) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS staged_members (
	row bigint NOT NULL, size bigint NOT NULL, outcome smallint NOT NULL, path bytea NOT NULL, version bytea NOT NULL, note text NOT NULL, proof text NOT NULL) ON COMMIT DELETE ROWS`

// A postgresSession is a connection, in a transaction if it writes.
type postgresSession struct {
	db *postgresDB
	q  interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
		CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	}
	tx     pgx.Tx // nil if it reads
	begin  bool   // with the next statement
	staged int64  // rows of archives
}

func (s *postgresSession) dialect() *dialect { return inPostgres }

func (s *postgresSession) query(ctx context.Context, sql string, args []any) (pgx.Rows, func() error, error) {
	if !s.begin {
		rows, err := s.q.Query(ctx, sql, args...)
		return rows, func() error { return nil }, err
	}
	s.begin = false
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
	b.Queue(sql, args...)
	results := s.q.SendBatch(ctx, b)
	if _, err := results.Exec(); err != nil {
		return nil, results.Close, err
	}
	rows, err := results.Query()
	return rows, results.Close, err
}

func (s *postgresSession) rows(ctx context.Context, sql string, into []any, args ...any) iter.Seq[error] {
	return func(yield func(error) bool) {
		rows, end, err := s.query(ctx, sql, args)
		defer end()
		if err != nil {
			yield(err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(into...); !yield(err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(err)
		}
	}
}

func (s *postgresSession) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	done, err := s.q.Exec(ctx, sql, args...)
	return done.RowsAffected(), err
}

func (s *postgresSession) copy(ctx context.Context, table string, columns []string, values []any, rows iter.Seq[error]) error {
	next, stop := iter.Pull(rows)
	defer stop()
	var broken error // the server would report it, but only as a text
	_, err := s.q.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		err, more := next()
		if !more || err != nil {
			broken = err
			return nil, err
		}
		return values, nil
	}))
	return cmp.Or(broken, err)
}

func (s *postgresSession) nextChunk(ctx context.Context) (int64, error) {
	return one(ctx, s, numberIn, nil, "SELECT nextval(pg_get_serial_sequence('chunks', 'id'))")
}

func (s *postgresSession) stage(ctx context.Context, a Addition, _ int) (*staging, error) {
	g := &staging{from: s.staged}
	var l Location
	var kind int
	var offset pgtype.Int8
	var digest, object []byte
	rows := given(a.Rows, &l, func() error {
		s.staged++
		g.count(l.Path)
		kind, offset, digest = l.marks(), pgtype.Int8{Int64: l.Off, Valid: l.Raw}, digest[:0]
		if digest = append(append(append(digest, l.Digest.Algo...), ':'), l.Digest.Sum...); l.Digest.Algo == "" {
			digest = nil
		}
		if object = appendObject(object[:0], l); len(object) == 0 {
			object = nil
		}
		return nil
	})
	return g, s.copy(ctx, "staged", []string{"row", "size", "offset", "kind", "path", "digest", "object"}, []any{&s.staged, &l.Size, &offset, &kind, (*blob)(&l.Path), &digest, &object}, rows)
}

func (s *postgresSession) publish(ctx context.Context, archive int64, g *staging) (int64, error) {
	which, order := "", ""
	if !g.ordered {
		which, order = "DISTINCT ON (path)", "ORDER BY path, row DESC"
	}
	return s.exec(ctx, `INSERT INTO locations (path, archive, kind, size, "offset", digest, object)
		SELECT `+which+` path, $1, kind, size, "offset", digest, object FROM staged WHERE row > $2 AND row <= $3 `+order, archive, g.from, g.from+g.rows)
}

func (s *postgresSession) due(ctx context.Context, all []Chunk) error {
	if s.db.queue == nil || len(all) == 0 {
		return nil
	}
	return s.db.queue.Enqueue(ctx, s.tx, all)
}

func (s *postgresSession) finished(ctx context.Context, k Chunk) error {
	if s.db.queue == nil {
		return nil
	}
	return s.db.queue.Finished(ctx, s.tx, k)
}
