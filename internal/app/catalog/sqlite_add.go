package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/holdall/holdall/internal/sorter"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// waiting is the rows of one archive, sorted, and what is known of them together. They
// wait until all are there: where they come from may be far away, and nobody shall wait
// for that.
type waiting struct {
	sorted      *sorter.Sorter
	rows        int64
	first, last string
}

const dropStaged = "DROP TABLE IF EXISTS temp.staged_members;"

// staged calls do with a connection on which rows may be staged, which takes as long
// as it takes: nobody waits for it before the transaction that publishes them.
func (db *sqliteDB) staged(ctx context.Context, do func(c *sqlite.Conn) error) error {
	if err := db.take(ctx, db.staging); err != nil {
		return err
	}
	defer func() { db.staging <- struct{}{} }()
	return db.connected(ctx, do, dropStaged)
}

func (db *sqliteDB) add(ctx context.Context, all []Addition) (done []Added, err error) {
	err = db.staged(ctx, func(c *sqlite.Conn) error {
		var ready []*waiting
		defer func() {
			for _, g := range ready {
				g.sorted.Close()
			}
		}()
		for _, a := range all {
			g, err := db.stage(ctx, a.Rows, inMemory/int64(len(all)))
			if err != nil {
				return err
			}
			ready = append(ready, g)
		}
		return db.transact(ctx, c, func(c *sqlite.Conn) error {
			done = done[:0]
			for i, a := range all {
				d, err := publish(c, a.Archive, ready[i])
				if err != nil {
					return err
				}
				done = append(done, d)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// inMemory is how much of the rows of one call waits in memory. A set of archives may
// have hundreds of them.
const inMemory = 32 << 20

// stage takes the rows of an archive in. It locks nothing.
func (db *sqliteDB) stage(ctx context.Context, rows iter.Seq2[Location, error], memory int64) (_ *waiting, err error) {
	g := &waiting{sorted: sorter.New(sorter.Options{
		Memory:    max(memory, 64<<10),
		Scratch:   sorter.TempFile,
		Duplicate: func([]byte) error { return nil }, // the last of several counts
	})}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.sorted.Close())
		}
	}()
	var path, value []byte
	for l, err := range rows {
		if err != nil {
			return nil, err
		}
		if g.rows&0xfff == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		path, value = append(path[:0], l.Path...), appendRow(value[:0], l)
		if err := g.sorted.Add(path, value); err != nil {
			return nil, failed(db.name, "stage", err)
		}
		if g.rows == 0 {
			g.first, g.last = l.Path, l.Path
		}
		g.first, g.last = min(g.first, l.Path), max(g.last, l.Path)
		g.rows++
	}
	return g, nil
}

// A row waits as kind, size, its offset + 1 or 0 for none, and the digest.
func appendRow(b []byte, l Location) []byte {
	off := uint64(0)
	if l.Raw {
		off = uint64(l.Off) + 1
	}
	b = binary.AppendUvarint(append(b, byte(l.Kind)), uint64(l.Size))
	b = binary.AppendUvarint(b, off)
	if l.Digest.Algo != "" {
		b = append(append(append(b, l.Digest.Algo...), ':'), l.Digest.Sum...)
	}
	return b
}

// bindRow binds what appendRow wrote to the parameters from 3 on.
func bindRow(s *sqlite.Stmt, b []byte) error {
	if len(b) == 0 {
		return io.ErrUnexpectedEOF
	}
	kind, b := b[0], b[1:]
	size, n := binary.Uvarint(b)
	off, m := uint64(0), 0
	if n > 0 {
		off, m = binary.Uvarint(b[n:])
	}
	if n <= 0 || m <= 0 {
		return io.ErrUnexpectedEOF
	}
	s.BindInt64(3, int64(kind))
	s.BindInt64(4, int64(size))
	if s.BindNull(5); off > 0 {
		s.BindInt64(5, int64(off-1))
	}
	if s.BindNull(6); len(b) > n+m {
		s.BindBytes(6, b[n+m:])
	}
	return nil
}

// publish makes the staged rows those of an archive, within a transaction.
func publish(c *sqlite.Conn, a Archive, g *waiting) (done Added, err error) {
	if done.Replaced, err = forget(c, a.Address); err != nil && !isAbsent(err) {
		return done, err
	}
	if a.Same(done.Replaced) && a.Verified.IsZero() {
		a.Verified = done.Replaced.Verified
	}
	a.Added = time.Now().UTC().Truncate(time.Microsecond)
	var verified any
	if !a.Verified.IsZero() {
		verified = a.Verified.UnixMicro()
	}
	err = sqlitex.Execute(c, `INSERT INTO archives (address, format, size, version, entries, first, last, added, verified)
		VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8)`, &sqlitex.ExecOptions{
		Args: []any{[]byte(a.Address), a.Format, a.Size, []byte(a.Version), []byte(g.first), []byte(g.last), a.Added.UnixMicro(), verified}})
	if err != nil {
		return done, err
	}
	a.ID = c.LastInsertRowID()
	if a.Entries, err = insertRows(c, a.ID, g); err != nil {
		return done, err
	}
	err = sqlitex.Execute(c, "UPDATE archives SET entries = ?2 WHERE id = ?1", &sqlitex.ExecOptions{Args: []any{a.ID, a.Entries}})
	done.Archive = a
	return done, err
}

// insertRows adds the locations of an archive. Pages are filled from front to back if
// rows come in their order: that is many times as fast as any other.
func insertRows(c *sqlite.Conn, archive int64, g *waiting) (n int64, err error) {
	insert, err := c.Prepare("INSERT INTO locations (path, archive, kind, size, offset, digest) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
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
		_, err := insert.Step()
		if rerr := insert.Reset(); err == nil {
			err = rerr
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// forget removes an archive within a transaction, and returns it.
func forget(c *sqlite.Conn, address string) (a Archive, err error) {
	found := false
	err = sqlitex.Execute(c, "SELECT "+archiveColumns+" FROM archives AS a WHERE a.address = ?1", &sqlitex.ExecOptions{
		Args: []any{[]byte(address)}, ResultFunc: func(s *sqlite.Stmt) error {
			a, found = archiveAt(s, 0), true
			return nil
		}})
	if err == nil && !found {
		return a, absent(address)
	}
	for _, sql := range []string{
		`DELETE FROM locations WHERE path >= (SELECT first FROM archives WHERE id = ?1) AND path <= (SELECT last FROM archives WHERE id = ?1) AND archive = ?1`,
		`DELETE FROM archives WHERE id = ?1`,
	} {
		if err == nil {
			err = sqlitex.Execute(c, sql, &sqlitex.ExecOptions{Args: []any{a.ID}})
		}
	}
	return a, err
}

func (db *sqliteDB) remove(ctx context.Context, address string) (a Archive, err error) {
	err = db.write(ctx, func(c *sqlite.Conn) error {
		a, err = forget(c, address)
		return err
	})
	return a, err
}

func (db *sqliteDB) verified(ctx context.Context, id int64, at time.Time) error {
	return db.write(ctx, func(c *sqlite.Conn) error {
		return sqlitex.Execute(c, "UPDATE archives SET verified = ?2 WHERE id = ?1", &sqlitex.ExecOptions{Args: []any{id, at.UnixMicro()}})
	})
}
