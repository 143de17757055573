package catalog

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// An engine is one kind of database. The code above it, with all queries, is
// the same for each kind.
type engine interface {
	// read calls do with a session for reading: for one statement, or, with
	// several, for statements that read the same snapshot. Several calls may run
	// at the same time, also nested.
	read(ctx context.Context, several bool, do func(s session) error) error
	// write calls do in a transaction. Before that it calls prepare, if not nil,
	// to stage rows in tables and files of the session's own. prepare may take as
	// long as it needs: it blocks no other writer.
	write(ctx context.Context, prepare, do func(s session) error) error
	// clock returns the time by which leases end, or nil for the database's own
	// clock.
	clock() any
	// pages returns how many rows of a large query to request first, and at most,
	// at a time. -1 means all, for databases where rows that are not read cost
	// nothing.
	pages() (first, most int)
	// check looks for damage that ordinary statements do not find.
	check(ctx context.Context, s session, report func(string)) error
	close() error
	dialect() *dialect
}

// A session executes statements, one after the other.
type session interface {
	// rows runs a statement. For each row it stores the columns through the
	// pointers in into, and yields nil. An error is the last value that it yields.
	rows(ctx context.Context, sql string, into []any, args ...any) iter.Seq[error]
	// exec runs a statement, and returns how many rows it changed. If a statement
	// is empty, exec does nothing.
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	// copy adds rows to a staging table of members. Each time rows yields nil,
	// values point to the columns of a row.
	copy(ctx context.Context, table string, columns []string, values []any, rows iter.Seq[error]) error
	// nextChunk returns the ID for a chunk to be added, or 0 if the database
	// assigns it only on insertion.
	nextChunk(ctx context.Context) (int64, error)
	// stage stores the rows of one of several archives.
	stage(ctx context.Context, a Addition, of int) (*staging, error)
	// publish turns staged rows into rows of an archive, and returns their number.
	publish(ctx context.Context, archive int64, g *staging) (int64, error)
	// due and finished notify a queue of chunks, if there is one.
	due(ctx context.Context, all []Chunk) error
	finished(ctx context.Context, k Chunk) error
	dialect() *dialect
}

// A dialect is what statements for one kind of database have in place of the
// common subset of SQL. Parameters are called $1.
type dialect struct {
	clock      string // the current time; its $1 is engine.clock
	address    string // that the address is $1
	forUpdate  string // after a SELECT: no other transaction changes these rows
	skipLocked string // the same, without rows that another one locks
	listed     string // the objects of the archive $3, as l
	etag       string // of l.object

	// These are statements. If one is empty, the database needs none.
	lockAddress    string // no other transaction adds or removes an archive at $1
	publishing     string // held by those that add archives; several can hold it
	lockPublishing string // no other transaction holds publishing
	knowWaiting    string // rows have been staged
	joinAtOnce     string // joins of staged rows follow
	joinAsEver     string // they are done
	inOrder        string // the first few rows of many follow

	is    func(path, operator, with string) string // a comparison of paths
	order func(path string) string                 // what to sort by
	among func(number, list string) string         // that a number is in a list
}

// each yields the rows of a statement. columns returns pointers to the fields
// of a T.
func each[T any](ctx context.Context, s session, columns func(*T) []any, sql string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var x T
		for err := range s.rows(ctx, sql, columns(&x), args...) {
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// rowsOf returns the rows of a statement that has few.
func rowsOf[T any](ctx context.Context, s session, columns func(*T) []any, sql string, args ...any) (found []T, err error) {
	for x, err := range each(ctx, s, columns, sql, args...) {
		if err != nil {
			return nil, err
		}
		found = append(found, x)
	}
	return found, nil
}

// one returns the last row of a statement. If there is no row, it returns the
// error none.
func one[T any](ctx context.Context, s session, columns func(*T) []any, none error, sql string, args ...any) (x T, err error) {
	found, err := rowsOf(ctx, s, columns, sql, args...)
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	return x, cmp.Or(err, none)
}

// write returns the result of do in a transaction; see engine.
func write[T any](ctx context.Context, c *Catalog, prepare func(s session) error, do func(s session) (T, error)) (x T, err error) {
	err = c.db.write(ctx, prepare, func(s session) (err error) {
		x, err = do(s)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return x, nil
}

// given adapts rows for a session's copy: it stores each value in row, and
// calls take.
func given[T any](all iter.Seq2[T, error], row *T, take func() error) iter.Seq[error] {
	return func(yield func(error) bool) {
		if all == nil {
			return
		}
		for next, err := range all {
			if *row = next; err == nil {
				err = take()
			}
			if !yield(err) {
				return
			}
		}
	}
}

// read returns the rows of a query that has few.
func read[T any](ctx context.Context, c *Catalog, columns func(*T) []any, sql string, args ...any) (found []T, err error) {
	err = c.db.read(ctx, false, func(s session) error {
		found, err = rowsOf(ctx, s, columns, sql, args...)
		return err
	})
	return found, err
}

// readOne returns the row of a query. If there is none, the error says that
// there is nothing with the name.
func readOne[T any](ctx context.Context, c *Catalog, name string, columns func(*T) []any, sql string, args ...any) (x T, err error) {
	err = c.db.read(ctx, false, func(s session) error {
		x, err = one(ctx, s, columns, Absent(name), sql, args...)
		return err
	})
	return x, err
}

// paged yields the rows of a large query, all from the state when it began. In
// the query, $1 is the place to begin, and $2 is the maximum number of rows.
// next returns the place after a row. SQLite would prepare the query again for
// each LIMIT $2, so $2 is within a CAST.
func paged[T any](ctx context.Context, c *Catalog, columns func(*T) []any, next func(T) any, sql string, from any, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false
		err := c.db.read(ctx, true, func(s session) error {
			n, most := c.db.pages()
			for ; ; n = min(n*8, most) {
				found := 0
				for x, err := range each(ctx, s, columns, sql, append([]any{from, n}, args...)...) {
					if err != nil {
						return err
					}
					if found++; found == n {
						from = next(x)
					}
					if left = !yield(x, nil); left {
						return nil
					}
				}
				if n < 0 || found < n {
					return nil
				}
			}
		})
		if err != nil && !left {
			var none T
			yield(none, err)
		}
	}
}

// A blob is a string of any bytes.
type blob string

// ScanBytes and ScanInt64 implement the interfaces by which pgx and our SQLite
// code pass column values to types.
func (b *blob) ScanBytes(v []byte) error { *b = blob(v); return nil }

func (b blob) BytesValue() ([]byte, error) { return []byte(b), nil }

// A moment is a time as databases store it: microseconds since 1970. Zero and
// NULL mean no time.
type moment time.Time

func (m *moment) ScanInt64(n pgtype.Int8) error {
	*m = moment{}
	if n.Int64 != 0 {
		*m = moment(time.UnixMicro(n.Int64).UTC())
	}
	return nil
}

// numberIn and textIn are the columns of statements that have one.
func numberIn(n *int64) []any { return []any{n} }

func textIn(s *string) []any { return []any{s} }

func pathIn(p *string) []any { return []any{(*blob)(p)} }

// isOurs reports whether an error is one of this package's own, which need no
// further explanation.
func isOurs(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrNotExist, fs.ErrExist, ErrBroken, ErrBusy, ErrNone, ErrLost, ErrCancelled, ErrOpen}, func(ours error) bool { return errors.Is(err, ours) })
}
