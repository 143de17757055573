package catalog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// These are offsets in the header of an SQLite file and their values. See
// SQLite's file format, 1.3.
const (
	headerLen   = 100
	magic       = "SQLite format 3\x00"
	idOffset    = 68
	application = 0x686f6c63 // "holc", in the application id: a catalogue of ours
)

// readerCache and writerCache are how many KiB of pages a connection keeps. The
// rows of an archive are in many pages if other archives have paths in between.
const (
	readerCache = 8 << 10
	writerCache = 64 << 10
)

// A sqliteDB is a catalogue in an SQLite file. One connection writes. Any
// number of connections read, each from the state that was committed when its
// query began.
type sqliteDB struct {
	name     string
	readOnly bool
	wait     time.Duration

	mu     sync.Mutex
	idle   []*sqlite.Conn // for reading
	closed bool

	writing chan struct{}  // holds a token for each connection that may be opened for writing
	staging chan struct{}  // the same for large writes: small ones may come in between at any time
	turns   chan struct{}  // holds one token: the turn to write, for all writers
	spare   []*sqlite.Conn // for writing

	now  func() time.Time // by which leases end
	once sync.Once        // closes it
}

// maxIdle is the maximum number of idle connections for reading, and writers
// that of connections that write.
const (
	maxIdle = 8
	writers = 4
)

func tokens(n int) chan struct{} {
	c := make(chan struct{}, n)
	for range n {
		c <- struct{}{}
	}
	return c
}

// inspect checks a file before SQLite opens it: SQLite may write to a file in
// order to read it, and the file may not be a catalogue.
func inspect(name string) error {
	info, err := os.Stat(name) // opening a pipe would wait for its writer
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: expected a file, found something else: it %w", name, ErrBroken)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, headerLen)
	if n, err := io.ReadFull(f, header); err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%s: header: expected %d bytes, found %d: it %w", name, headerLen, n, ErrBroken)
	} else if err != nil {
		return err
	}
	if string(header[:len(magic)]) != magic {
		return fmt.Errorf("%s: header: expected that of an SQLite file, found %q: it %w", name, header[:len(magic)], ErrBroken)
	}
	if id := binary.BigEndian.Uint32(header[idOffset:]); id != application {
		return fmt.Errorf("%s: at %d: expected application id %#x, found %#x: it %w", name, idOffset, application, id, ErrBroken)
	}
	return nil
}

// IsFile reports whether a file is a catalogue in SQLite.
func IsFile(name string) bool { return inspect(name) == nil }

func createFile(ctx context.Context, name string) (err error) {
	name, err = filepath.Abs(name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(name); err == nil {
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	// Create the file under a temporary name beside its final one: two programs
	// may create the same catalogue, and neither must see a partial one.
	tmp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".holdall-"+rand.Text()[:12])
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		for _, with := range []string{"", "-wal", "-shm"} {
			os.Remove(tmp + with)
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	c, err := sqlite.OpenConn(tmp, sqlite.OpenReadWrite)
	if err != nil {
		return failed(name, "create", err)
	}
	err = sqlitex.ExecuteTransient(c, "PRAGMA application_id = "+strconv.Itoa(application), nil)
	if err == nil {
		err = sqlitex.ExecuteTransient(c, "PRAGMA journal_mode = wal", nil)
	}
	if err == nil {
		err = migrate(c, migrations)
	}
	// Closing the last connection merges the journal into the file and removes it.
	if err = errors.Join(err, c.Close()); err != nil {
		return failed(name, "create", err)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := os.Link(tmp, name); !errors.Is(err, fs.ErrExist) && err != nil {
		// This file system has no links. If two programs create the file at the same
		// moment, both succeed, but each gets a complete file.
		if _, err := os.Lstat(name); err == nil {
			return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
		return os.Rename(tmp, name)
	} else if err != nil {
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	return nil
}

func openFile(ctx context.Context, name string, o Options) (engine, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if err := inspect(name); err != nil {
		return nil, err
	}
	db := &sqliteDB{name: name, readOnly: o.ReadOnly, wait: o.Wait, writing: tokens(writers), staging: tokens(writers - 1), turns: tokens(1), now: time.Now}
	if err := db.upToDate(ctx); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

func (db *sqliteDB) upToDate(ctx context.Context) error {
	c, err := db.reader()
	if err != nil {
		return err
	}
	found, err := schemaOf(c)
	db.release(c)
	switch {
	case err != nil:
		return failed(db.name, "schema", err)
	case found > len(migrations) || found < len(migrations) && db.readOnly:
		return &SchemaError{Database: db.name, Found: found, Known: len(migrations)}
	case found == len(migrations):
		return nil
	}
	return db.connected(ctx, func(c *sqlite.Conn) error {
		return db.transact(ctx, c, func() error {
			if now, err := schemaOf(c); err != nil || now != found { // another process migrated it first
				return err
			}
			return migrate(c, migrations)
		})
	}, "")
}

func schemaOf(c *sqlite.Conn) (int, error) {
	n, err := sqlitex.ResultInt(c.Prep("PRAGMA user_version"))
	if err == nil && n < 0 {
		err = fmt.Errorf("expected a version, found %d: it %w", n, ErrBroken)
	}
	return n, err
}

// migrate carries out the missing steps, within the transaction that c is in,
// or without one in a new file.
func migrate(c *sqlite.Conn, steps []string) error {
	at, err := schemaOf(c)
	for ; err == nil && at < len(steps); at++ {
		if err = sqlitex.ExecuteScript(c, steps[at], nil); err == nil {
			err = sqlitex.ExecuteTransient(c, "PRAGMA user_version = "+strconv.Itoa(at+1), nil)
		}
	}
	return err
}

func (db *sqliteDB) connect(settings ...string) (*sqlite.Conn, error) {
	// Never with OpenCreate: a file that was removed must not come back empty.
	c, err := sqlite.OpenConn(db.name, sqlite.OpenReadWrite)
	if err != nil {
		return nil, failed(db.name, "open", err)
	}
	c.SetBusyTimeout(db.wait) // readers wait only while a crash of others is repaired
	for _, s := range settings {
		if err := sqlitex.ExecuteTransient(c, "PRAGMA "+s, nil); err != nil {
			c.Close()
			return nil, failed(db.name, "open", err)
		}
	}
	if err := c.CreateFunction("object_etag", &sqlite.FunctionImpl{NArgs: 1, Deterministic: true, Scalar: etagOf}); err != nil {
		c.Close()
		return nil, failed(db.name, "open", err)
	}
	return c, nil
}

// etagOf is the ETag in a location's object.
func etagOf(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
	var o object
	err := o.ScanBytes(args[0].Blob())
	return sqlite.BlobValue([]byte(o.ETag)), err
}

// reader returns a connection for reading, which must be released.
func (db *sqliteDB) reader() (*sqlite.Conn, error) {
	db.mu.Lock()
	n, closed := len(db.idle), db.closed
	if n > 0 {
		c := db.idle[n-1]
		db.idle = db.idle[:n-1]
		db.mu.Unlock()
		return c, nil
	}
	db.mu.Unlock()
	if closed {
		return nil, db.errClosed()
	}
	return db.connect("query_only = on", "cache_size = -"+strconv.Itoa(readerCache))
}

func (db *sqliteDB) release(c *sqlite.Conn) {
	c.SetInterrupt(nil)
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.idle) < maxIdle && !db.closed {
		db.idle = append(db.idle, c)
		return
	}
	c.Close()
}

func (db *sqliteDB) dialect() *dialect { return inSQLite }

func (db *sqliteDB) take(ctx context.Context, from chan struct{}) error {
	select {
	case _, open := <-from:
		if !open {
			return db.errClosed()
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connected calls do with a connection for writing, and then runs the script
// undo to clean up.
func (db *sqliteDB) connected(ctx context.Context, do func(c *sqlite.Conn) error, undo string) error {
	if db.readOnly {
		return &fs.PathError{Op: "write", Path: db.name, Err: errors.New("opened read-only")}
	}
	if err := db.take(ctx, db.writing); err != nil {
		return err
	}
	defer func() { db.writing <- struct{}{} }()
	var c *sqlite.Conn
	db.mu.Lock()
	if n := len(db.spare); n > 0 {
		c, db.spare = db.spare[n-1], db.spare[:n-1]
	}
	db.mu.Unlock()
	if c == nil {
		// Commits must survive a loss of power. There is one commit for each archive,
		// so this costs little.
		var err error
		c, err = db.connect("synchronous = full", "cache_size = -"+strconv.Itoa(writerCache), "journal_size_limit = 67108864")
		if err != nil {
			return err
		}
	}
	c.SetInterrupt(ctx.Done())
	err := do(c)
	c.SetInterrupt(nil)
	if undo != "" && sqlitex.ExecuteScript(c, undo, nil) != nil {
		c.Close() // the result stays the same in any case
	} else {
		db.mu.Lock()
		db.spare = append(db.spare, c)
		db.mu.Unlock()
	}
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	return err
}

// write calls prepare on the connection that then writes. This locks nothing.
func (db *sqliteDB) write(ctx context.Context, prepare, do func(s session) error) error {
	undo := ""
	if prepare != nil {
		if err := db.take(ctx, db.staging); err != nil {
			return err
		}
		defer func() { db.staging <- struct{}{} }()
		undo = dropStaged
	}
	return db.connected(ctx, func(c *sqlite.Conn) error {
		s := &sqliteSession{db: db, conn: c}
		if prepare != nil {
			if err := prepare(s); err != nil {
				return err
			}
		}
		return db.transact(ctx, c, func() error { return do(s) })
	}, undo)
}

func (db *sqliteDB) read(ctx context.Context, several bool, do func(s session) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c, err := db.reader()
	if err != nil {
		return err
	}
	defer db.release(c)
	if several {
		if err := sqlitex.ExecuteTransient(c, "BEGIN DEFERRED", nil); err != nil {
			return failed(db.name, "read", err)
		}
		defer func() {
			c.SetInterrupt(nil)
			_ = db.settle(c, context.Canceled) // there is nothing to commit
		}()
	}
	if err = do(&sqliteSession{db: db, conn: c}); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed(db.name, "read", err)
}

func (db *sqliteDB) clock() any { return db.now().UnixMicro() }

func (db *sqliteDB) pages() (first, most int) { return -1, -1 }

func (db *sqliteDB) check(ctx context.Context, s session, report func(string)) error {
	s.(*sqliteSession).conn.SetInterrupt(ctx.Done())
	for text, err := range each(ctx, s, textIn, "PRAGMA quick_check(100)") {
		if err != nil {
			return err
		}
		if text != "ok" {
			report(text)
		}
	}
	return nil
}

// turn is how long SQLite waits for a lock at a time: it cannot be interrupted while
// it does.
const turn = 50 * time.Millisecond

// transact locks the file for writing, calls do, and commits.
func (db *sqliteDB) transact(ctx context.Context, c *sqlite.Conn, do func() error) error {
	if err := db.take(ctx, db.turns); err != nil {
		return err
	}
	defer func() { db.turns <- struct{}{} }()
	c.SetBusyTimeout(turn)
	defer c.SetBusyTimeout(db.wait)
	for end := time.Now().Add(db.wait); ; {
		err := sqlitex.ExecuteTransient(c, "BEGIN IMMEDIATE", nil)
		if err == nil {
			break
		}
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || ctx.Err() != nil || time.Now().After(end) {
			return failed(db.name, "lock", err)
		}
	}
	return db.settle(c, failed(db.name, "write", do()))
}

// settle ends a transaction: it commits if there was no error, and otherwise
// rolls back.
func (db *sqliteDB) settle(c *sqlite.Conn, err error) error {
	if err == nil {
		if err = sqlitex.ExecuteTransient(c, "COMMIT", nil); err == nil {
			return nil
		}
		err = failed(db.name, "commit", err)
	}
	// Some errors have ended the transaction already. An interrupt must not
	// prevent the rollback of the others.
	if !c.AutocommitEnabled() {
		c.SetInterrupt(nil)
		if rerr := sqlitex.ExecuteTransient(c, "ROLLBACK", nil); rerr != nil {
			err = errors.Join(err, failed(db.name, "roll back", rerr))
		}
	}
	return err
}

func (db *sqliteDB) close() (err error) {
	db.once.Do(func() {
		for range writers {
			<-db.writing
		}
		close(db.writing)
		db.mu.Lock()
		defer db.mu.Unlock()
		var errs []error
		for _, c := range append(db.idle, db.spare...) {
			errs = append(errs, c.Close())
		}
		db.idle, db.spare, db.closed = nil, nil, true
		err = errors.Join(errs...)
	})
	return err
}

func (db *sqliteDB) errClosed() error {
	return &fs.PathError{Op: "catalogue", Path: db.name, Err: fs.ErrClosed}
}

// failed gives an error of SQLite the name of the file, and our words.
func failed(name, op string, err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultOK:
		return nil
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return fmt.Errorf("%s: %s: %w", name, op, ErrBusy)
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return fmt.Errorf("%s: %s: it %w: %w", name, op, ErrBroken, err)
	}
	if isOurs(err) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", name, op, err)
}
