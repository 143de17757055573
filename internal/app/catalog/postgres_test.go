package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// The tests below are about PostgreSQL.

// madePostgres creates a catalogue, and returns its address and a direct
// connection.
func madePostgres(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	at := pgtest.Database(t)
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	return at, past(t, at)
}

func past(t *testing.T, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func must(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresSchemasOfOthersAreRefusedAndNotTouched(t *testing.T) {
	testkit.Serial(t)
	at := pgtest.Database(t)
	if _, err := Open(t.Context(), at, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	conn := past(t, at)
	var things int
	count := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	must(t, conn, `CREATE SCHEMA holdall; CREATE TABLE holdall.catalogue (version int); CREATE SCHEMA "of'""theirs"; CREATE TABLE "of'""theirs".t (x int)`)
	things = count()
	for _, a := range []string{at, at + "?schema=of%27%22theirs"} {
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if _, err := Open(t.Context(), a, o); !errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v", a, err)
			}
		}
		if err := Create(t.Context(), a); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", a, err)
		}
	}
	if n := count(); n != things {
		t.Errorf("%d tables and indexes, there were %d", n, things)
	}
	// An empty schema may be used.
	must(t, conn, `CREATE SCHEMA "a ""schema'"`)
	if err := Create(t.Context(), at+"?schema=a+%22schema%27"); err != nil {
		t.Error(err)
	}
	c := open(t, at+"?schema=a+%22schema%27")
	add(t, c, Archive{Address: "x"}, files("a"))
	sound(t, c)
}

func TestPostgresSeveralCreateOneCatalogue(t *testing.T) {
	testkit.Serial(t)
	at := pgtest.Database(t)
	createdOnce(t, at)
	open(t, at)
}

func TestPostgresNewerSchemaIsRefused(t *testing.T) {
	testkit.Serial(t)
	at, conn := madePostgres(t)
	must(t, conn, "UPDATE holdall.catalogue SET holdall_schema = 99")
	for _, o := range []Options{{}, {ReadOnly: true}} {
		_, err := Open(t.Context(), at, o)
		if s, ok := errors.AsType[*SchemaError](err); !ok || s.Found != 99 || s.Known != len(postgresMigrations) {
			t.Error(err)
		}
	}
}

func TestPostgresReadOnlyWritesNothing(t *testing.T) {
	testkit.Serial(t)
	at, _ := madePostgres(t)
	c, err := Open(t.Context(), at, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Add(t.Context(), Addition{Archive: Archive{Address: "x"}, Rows: files("a")}); err == nil {
		t.Error("added")
	}
	if _, err := c.db.(*postgresDB).pool.Exec(t.Context(), "DELETE FROM archives"); err == nil {
		t.Error("the server lets it write")
	}
}

// TestPostgresQueriesOfOlderCataloguesRunAsTheyStand checks that unchanged
// queries find a path through an index, and that no path breaks them.
func TestPostgresQueriesOfOlderCataloguesRunAsTheyStand(t *testing.T) {
	testkit.Serial(t)
	at, conn := madePostgres(t)
	c := open(t, at)
	odd := []string{"dir/a", "dir/é", "back\\slash", "bad\xff", "nul\x00", strings.Repeat("long", 5000), "'"}
	add(t, c, Archive{Address: "x"}, files(odd...))
	newer := add(t, c, Archive{Address: "y"}, files(odd...))
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("many/%05d", i))
	}
	add(t, c, Archive{Address: "z"}, files(many...))
	// This is the statement in docs/catalog.md.
	must(t, conn, "CREATE INDEX locations_text ON holdall.locations USING hash (holdall.path_text(path))")
	must(t, conn, "SET search_path = holdall; ANALYZE locations")
	for path, text := range map[string]string{"dir/a": "dir/a", "dir/é": "dir/é", "back\\slash": "back\\slash", "bad\xff": "bad\\377", "nul\x00": "nul\\000", odd[5]: odd[5], "'": "'"} {
		var id string
		if err := conn.QueryRow(t.Context(), "SELECT caf_file_id FROM file_locations WHERE file_path = $1", text).Scan(&id); err != nil || id != fmt.Sprint(newer.ID) {
			t.Errorf("%q: %q, %v", path, id, err)
		}
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN SELECT caf_file_id FROM file_locations WHERE file_path = 'many/00007'")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if all := strings.Join(plan, "\n"); err != nil || !strings.Contains(all, "locations_text") || strings.Contains(all, "Seq Scan") {
		t.Errorf("%s, %v", all, err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM file_locations").Scan(&n); err != nil || n != len(odd)+len(many) {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestPostgresRowsThatAreMissingAreFound(t *testing.T) {
	testkit.Serial(t)
	at, conn := madePostgres(t)
	c := open(t, at)
	add(t, c, Archive{Address: "x"}, files("a", "b"))
	must(t, conn, `DELETE FROM holdall.locations WHERE path = 'a'; INSERT INTO holdall.locations (path, archive, kind, size) VALUES ('q', 99, 0, 0)`)
	var found []string
	if err := c.Check(t.Context(), func(p string) { found = append(found, p) }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0] != "archive 1: expected 2 locations, found 1" || found[1] != "archive 99: expected none, found 1 locations" {
		t.Errorf("%q", found)
	}
}

// TestPostgresAQueueTakesPartInWhatIsWritten checks that a job queue sees
// exactly what is committed, and can roll it back.
func TestPostgresAQueueTakesPartInWhatIsWritten(t *testing.T) {
	testkit.Serial(t)
	at, conn := madePostgres(t)
	must(t, conn, "CREATE TABLE public.jobs (chunk bigint, what text)")
	q := &jobs{}
	c, err := Open(t.Context(), at, Options{Queue: q})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if q.pool == nil {
		t.Error("the queue was not told of the connections")
	}
	q.err = errors.New("tables of a newer queue")
	if _, err := Open(t.Context(), at, Options{Queue: q}); !errors.Is(err, q.err) {
		t.Error(err)
	}
	q.err = nil
	expect := func(want string) {
		t.Helper()
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(what, ' ' ORDER BY chunk, what), '') FROM public.jobs").Scan(&got); err != nil || got != want {
			t.Errorf("%q, want %q, %v", got, want, err)
		}
	}
	p := newPlan(t, c, "a")
	q.err = errors.New("the queue is full")
	if _, err := c.AddChunks(t.Context(), p.ID, []NewChunk{{Name: "0", Members: members("a")}}); !errors.Is(err, q.err) {
		t.Error(err)
	}
	expect("")
	q.err = nil
	addChunks(t, c, p, NewChunk{Name: "0", Members: members("a")}, NewChunk{Name: "1"})
	expect("due due")
	k := claim(t, c, Request{})
	if err := c.Release(t.Context(), k, "", 0, false); err != nil {
		t.Fatal(err)
	}
	expect("due due due")
	k = claim(t, c, Request{})
	q.err = errors.New("the job is gone")
	if _, err := c.Finish(t.Context(), k, into(k, "a"), nil); !errors.Is(err, q.err) {
		t.Error(err)
	}
	if _, err := c.Newest(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	q.err = nil
	if _, err := c.Finish(t.Context(), k, into(k, "a"), nil); err != nil {
		t.Fatal(err)
	}
	expect("done due due due")
	if err := c.CancelPlan(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RetryPlan(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	expect("done due due due due")
	if _, err := Open(t.Context(), t.TempDir()+"/x", Options{Queue: q}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// jobs is a queue that records its calls in a table.
type jobs struct {
	err  error
	pool *pgxpool.Pool
}

func (j *jobs) Open(ctx context.Context, pool *pgxpool.Pool) error {
	j.pool = pool
	return errors.Join(j.err, pool.Ping(ctx))
}

func (j *jobs) Enqueue(ctx context.Context, tx pgx.Tx, all []Chunk) error {
	for _, k := range all {
		if _, err := tx.Exec(ctx, "INSERT INTO public.jobs VALUES ($1, 'due')", k.ID); err != nil {
			return err
		}
	}
	return j.err
}

func (j *jobs) Finished(ctx context.Context, tx pgx.Tx, k Chunk) error {
	if k.State != ChunkDone || k.Archive == 0 {
		return fmt.Errorf("chunk %d: %v", k.ID, k.State)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO public.jobs VALUES ($1, 'done')", k.ID); err != nil {
		return err
	}
	return j.err
}

// TestPostgresAddressesAreNotRepeatedWithTheirPasswords checks that no error
// contains a password, wherever in the address it is.
func TestPostgresAddressesAreNotRepeatedWithTheirPasswords(t *testing.T) {
	testkit.Serial(t)
	for _, bad := range []string{
		"postgres://u:hush@127.0.0.1:1/d", "postgres://u@127.0.0.1:1/d?password=hush", "postgres://u:hush@127.0.0.1:x/d", "postgres://u:hu%zzhush@h/d",
		"postgres://u:hush@127.0.0.1:1/d?sslmode=none", "postgres://u:hush@127.0.0.1:1/d?pool_max_conns=hush", "postgres:hush", "postgresql://u:hush@127.0.0.1:1/d?sslrootcert=/hush",
		"postgres://u:hush@127.0.0.1:1/d?schema=%ff", "postgres://u:hush@127.0.0.1:1/d?schema=" + strings.Repeat("x", 64),
	} {
		for _, err := range []error{Create(t.Context(), bad), second(Open(t.Context(), bad, Options{}))} {
			if err == nil || strings.Contains(err.Error(), "hush") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func TestPostgresConnectionsAreBounded(t *testing.T) {
	testkit.Serial(t)
	for _, c := range []struct {
		query         string
		o             Options
		most, writing int
	}{
		{"", Options{}, 16, 8},
		{"", Options{ReadOnly: true}, 4, 2},
		{"", Options{Workers: 1}, 3, 2},
		{"", Options{Workers: 4}, 6, 5},
		{"?pool_max_conns=7", Options{Workers: 4}, 7, 3},
		{"?pool_max_conns=1", Options{ReadOnly: true}, 1, 1},
	} {
		db, _, err := connectPostgres(t.Context(), "postgres://nobody@127.0.0.1:1/none"+c.query, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if most := int(db.pool.Config().MaxConns); most != c.most || cap(db.writing) != c.writing {
			t.Errorf("%q %+v: %d connections, %d of which write; expected %d and %d", c.query, c.o, most, cap(db.writing), c.most, c.writing)
		}
		db.pool.Close()
	}
}
