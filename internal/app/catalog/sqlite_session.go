package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/format/kit/sorter"
)

// inSQLite is the dialect of SQLite. Only one connection writes, so no other
// locks are needed. SQLite has no lists, so lists are JSON.
var inSQLite = &dialect{
	clock:   "$1",
	address: "address = $1",
	listed: `(SELECT path, size, object FROM locations WHERE archive = $3 AND path >= (SELECT first FROM archives WHERE id = $3)
			AND path <= (SELECT last FROM archives WHERE id = $3)) AS l`,
	etag:  "object_etag(l.object)",
	is:    func(path, operator, with string) string { return path + " " + operator + " " + with },
	order: func(path string) string { return path },
	among: func(number, list string) string { return number + " IN (SELECT value FROM json_each(" + list + "))" },
}

// createStagedMembers creates a table of the connection's own, in which
// members are staged: the listed members of a chunk, or their outcomes.
const createStagedMembers = `CREATE TEMP TABLE IF NOT EXISTS staged_members (
	row INTEGER PRIMARY KEY, chunk INTEGER, path BLOB NOT NULL, origin INTEGER, size INTEGER NOT NULL, version BLOB NOT NULL, outcome INTEGER, note TEXT, proof TEXT)`

const dropStaged = "DROP TABLE IF EXISTS temp.staged_members;"

type sqliteSession struct {
	db   *sqliteDB
	conn *sqlite.Conn
	buf  []byte
}

func (s *sqliteSession) rows(ctx context.Context, sql string, into []any, args ...any) iter.Seq[error] {
	return func(yield func(error) bool) {
		stmt, err := s.prepare(sql, args)
		if err != nil {
			yield(err)
			return
		}
		defer stmt.Reset()
		for n := 1; ; n++ {
			more, err := stmt.Step()
			if err == nil && more {
				err = scan(stmt, into)
			}
			if err == nil && n&0xfff == 0 {
				err = context.Cause(ctx)
			}
			if err == nil && !more || !yield(err) || err != nil {
				return
			}
		}
	}
}

func (s *sqliteSession) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if sql == "" {
		return 0, nil
	}
	for err := range s.rows(ctx, sql, nil, args...) {
		if err != nil {
			return 0, err
		}
	}
	return int64(s.conn.Changes()), nil
}

func (s *sqliteSession) prepare(sql string, args []any) (*sqlite.Stmt, error) {
	stmt, err := s.conn.Prepare(strings.ReplaceAll(sql, "$", "?")) // $2 is a name there
	for i, a := range args {
		if err == nil {
			err = s.bind(stmt, i+1, a)
		}
	}
	return stmt, err
}

// bind binds a value to a parameter. If value is a pointer, bind uses what it
// points to.
func (s *sqliteSession) bind(stmt *sqlite.Stmt, i int, value any) error {
	switch x := value.(type) {
	case nil:
		stmt.BindNull(i)
	case bool:
		stmt.BindBool(i, x)
	case int:
		stmt.BindInt64(i, int64(x))
	case *int:
		stmt.BindInt64(i, int64(*x))
	case int64:
		stmt.BindInt64(i, x)
	case *int64:
		stmt.BindInt64(i, *x)
	case *Outcome:
		stmt.BindInt64(i, int64(*x))
	case string:
		stmt.BindText(i, x)
	case *string:
		stmt.BindText(i, *x)
	case []byte:
		stmt.BindBytes(i, x)
	case blob:
		stmt.BindBytes(i, []byte(x))
	case *blob:
		s.buf = append(s.buf[:0], *x...)
		stmt.BindBytes(i, s.buf)
	case []int64:
		list, err := json.Marshal(x)
		stmt.BindText(i, string(list))
		return err
	default:
		return fmt.Errorf("parameter %d: SQLite cannot store a %T", i, value)
	}
	return nil
}

func scan(stmt *sqlite.Stmt, into []any) error {
	for i, to := range into {
		switch x := to.(type) {
		case *blob:
			*x = blob(blobAt(stmt, i))
		case *int64:
			*x = stmt.ColumnInt64(i)
		case *int:
			*x = stmt.ColumnInt(i)
		case *Outcome:
			*x = Outcome(stmt.ColumnInt64(i))
		case *ChunkState:
			*x = ChunkState(stmt.ColumnInt64(i))
		case *bool:
			*x = stmt.ColumnBool(i)
		case *string:
			*x = stmt.ColumnText(i)
		case *[]byte:
			*x = []byte(blobAt(stmt, i))
		case pgtype.BytesScanner:
			if err := x.ScanBytes([]byte(blobAt(stmt, i))); err != nil {
				return err
			}
		case pgtype.Int64Scanner:
			if err := x.ScanInt64(pgtype.Int8{Int64: stmt.ColumnInt64(i), Valid: !stmt.ColumnIsNull(i)}); err != nil {
				return err
			}
		default:
			return fmt.Errorf("column %d: SQLite has no value for a %T", i, to)
		}
	}
	return nil
}

func blobAt(s *sqlite.Stmt, col int) string {
	var b strings.Builder
	s.ColumnReader(col).WriteTo(&b)
	return b.String()
}

func inserted(insert *sqlite.Stmt) error {
	_, err := insert.Step()
	if rerr := insert.Reset(); err == nil {
		err = rerr
	}
	return err
}

func (s *sqliteSession) copy(ctx context.Context, table string, columns []string, values []any, rows iter.Seq[error]) (err error) {
	for _, sql := range []string{createStagedMembers, "BEGIN DEFERRED"} {
		if err := sqlitex.ExecuteTransient(s.conn, sql, nil); err != nil {
			return failed(s.db.name, "stage", err)
		}
	}
	defer func() { err = s.db.settle(s.conn, err) }()
	insert, err := s.conn.Prepare("INSERT INTO temp." + table + " (" + strings.Join(columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(columns)-1) + ")")
	if err != nil {
		return failed(s.db.name, "stage", err)
	}
	defer insert.Reset()
	n := 0
	for err := range rows {
		if n++; err == nil && n&0xfff == 0 {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for i, v := range values {
			err = errors.Join(err, s.bind(insert, i+1, v))
		}
		if err == nil {
			err = inserted(insert)
		}
		if err != nil {
			return failed(s.db.name, "stage", err)
		}
	}
	return nil
}

func (s *sqliteSession) nextChunk(context.Context) (int64, error) { return 0, nil }

// inMemory is how many bytes of rows one call stages in memory. One call may
// add hundreds of archives.
const inMemory = 32 << 20

func (s *sqliteSession) stage(ctx context.Context, a Addition, of int) (_ *staging, err error) {
	g := &staging{sorted: sorter.New(sorter.Options{
		Memory:    max(inMemory/int64(of), 64<<10),
		Scratch:   sorter.TempFile,
		Duplicate: func([]byte) error { return nil }, // the last duplicate counts
	})}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.sorted.Close())
		}
	}()
	var path, value []byte
	for l, err := range a.Rows {
		if err != nil {
			return nil, err
		}
		if g.rows&0xfff == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		path, value = append(path[:0], l.Path...), appendRow(value[:0], l)
		if err := g.sorted.Add(path, value); err != nil {
			return nil, failed(s.db.name, "stage", err)
		}
		g.count(l.Path)
	}
	return g, nil
}

// appendRow appends a staged row: its kind, its size, its offset + 1 or 0 for
// none, the length of its digest, the digest, and the attributes from its
// bucket.
func appendRow(b []byte, l Location) []byte {
	off := uint64(0)
	if l.Raw {
		off = uint64(l.Off) + 1
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.marks())), uint64(l.Size))
	b = binary.AppendUvarint(b, off)
	digest := digestLen(l.Digest)
	b = binary.AppendUvarint(b, uint64(digest))
	if digest > 0 {
		b = append(append(append(b, l.Digest.Algo...), ':'), l.Digest.Sum...)
	}
	return appendObject(b, l)
}

// bindRow binds the columns in b, which appendRow wrote, to the parameters
// from 3 on.
func bindRow(s *sqlite.Stmt, b []byte) error {
	for i := range 4 {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[k:]
		switch {
		case i == 0 || i == 1:
			s.BindInt64(3+i, int64(n))
		case i == 2 && n == 0:
			s.BindNull(5)
		case i == 2:
			s.BindInt64(5, int64(n-1))
		case n > uint64(len(b)):
			return io.ErrUnexpectedEOF
		default:
			bindSome(s, 6, b[:n])
			bindSome(s, 7, b[n:])
		}
	}
	return nil
}

// bindSome binds bytes. Empty bytes become NULL.
func bindSome(s *sqlite.Stmt, i int, b []byte) {
	if s.BindNull(i); len(b) > 0 {
		s.BindBytes(i, b)
	}
}

// publish adds the locations of an archive in their order. Then pages are filled
// from front to back, which is many times as fast as any other order.
func (s *sqliteSession) publish(_ context.Context, archive int64, g *staging) (n int64, err error) {
	insert, err := s.conn.Prepare("INSERT INTO locations (path, archive, kind, size, offset, digest, object) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
	if err != nil {
		return 0, err
	}
	defer insert.Reset()
	for row, err := range g.sorted.Sorted() {
		if err != nil {
			return n, err
		}
		insert.BindBytes(1, row.Key)
		insert.BindInt64(2, archive)
		if err := bindRow(insert, row.Value); err != nil {
			return n, err
		}
		if err := inserted(insert); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (s *sqliteSession) dialect() *dialect { return inSQLite }

// A file has no queue.
func (s *sqliteSession) due(context.Context, []Chunk) error    { return nil }
func (s *sqliteSession) finished(context.Context, Chunk) error { return nil }
