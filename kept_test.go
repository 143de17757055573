package holdall_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// archivesOfOthers are the archives among the test data of formats.
func archivesOfOthers(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"format/caf/testdata/fixtures/*.caf", "format/lindi/testdata/*.lindi.*", "format/rvn/testdata/*.rvn", "format/databundle/testdata/*", "internal/oak/testdata/*", "format/zip/testdata/*.zip", "format/tar/testdata/*.tar*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("found only %q", all)
	}
	return all
}

// entriesOf is what is yielded, without handles, and the words of an error at its end.
func entriesOf(seq iter.Seq2[holdall.Entry, error]) (all []holdall.Entry, failed string) {
	for e, err := range seq {
		if err != nil {
			return all, err.Error()
		}
		e.Ref = nil
		all = append(all, e)
	}
	return all, ""
}

// sameArchives compares all answers of two readers of one archive.
func sameArchives(t *testing.T, got, want *holdall.Archive) {
	t.Helper()
	ctx := t.Context()
	all, failed := entriesOf(want.Entries(ctx))
	found, ferr := entriesOf(got.Entries(ctx))
	if failed != ferr || !reflect.DeepEqual(found, all) {
		t.Fatalf("entries: %d (%s), expected %d (%s)", len(found), ferr, len(all), failed)
	}
	dirs := map[string]bool{".": true, "nothing": true}
	for i, e := range all {
		for at := 0; at < len(e.Name); at++ {
			if e.Name[at] == '/' {
				dirs[e.Name[:at]] = true
			}
		}
		if i%(len(all)/200+1) == 0 {
			dirs[e.Name] = true
			sameEntry(t, got, want, e.Name)
		}
	}
	for dir := range dirs {
		if !format.ValidPath(dir) {
			continue
		}
		a, aerr := entriesOf(got.ReadDir(ctx, dir))
		b, berr := entriesOf(want.ReadDir(ctx, dir))
		byName := func(a, b holdall.Entry) int { return strings.Compare(a.Name, b.Name) }
		slices.SortStableFunc(a, byName) // a tree has an order of its own
		slices.SortStableFunc(b, byName)
		if (aerr == "") != (berr == "") || !reflect.DeepEqual(a, b) { // formats have words of their own
			t.Fatalf("in %q: %v (%s), expected %v (%s)", dir, a, aerr, b, berr)
		}
		a, aerr = entriesOf(got.Below(ctx, dir))
		b, berr = entriesOf(want.Below(ctx, dir))
		if aerr != berr || !reflect.DeepEqual(a, b) {
			t.Fatalf("below %q: %d (%s), expected %d (%s)", dir, len(a), aerr, len(b), berr)
		}
	}
}

func sameEntry(t *testing.T, got, want *holdall.Archive, name string) {
	t.Helper()
	ctx := t.Context()
	a, aerr := got.Lookup(ctx, name)
	b, berr := want.Lookup(ctx, name)
	if aerr != nil || berr != nil {
		t.Fatalf("%q: %v, expected %v", name, aerr, berr)
	}
	extents := func(x *holdall.Archive, e holdall.Entry) (all []format.Extent, failed bool) {
		for x, err := range x.Extents(ctx, e) {
			if err != nil {
				return all, true
			}
			x.Make = nil // what it makes is compared below
			all = append(all, x)
		}
		return all, false
	}
	x, xbad := extents(got, a)
	y, ybad := extents(want, b)
	if xbad != ybad || !reflect.DeepEqual(x, y) {
		t.Fatalf("%q lies in %+v (%v), expected %+v (%v)", name, x, xbad, y, ybad)
	}
	if b.Fault != nil || !b.Kind.HasContent() || b.Size > 1<<20 {
		return
	}
	p, q := make([]byte, a.Size), make([]byte, b.Size)
	_, aerr = got.ReadAt(ctx, a, p, 0)
	_, berr = want.ReadAt(ctx, b, q, 0)
	if (aerr == nil) != (berr == nil) || berr == nil && !bytes.Equal(p, q) {
		t.Fatalf("%q: other content: %v, expected %v", name, aerr, berr)
	}
}

func TestAnArchiveAnswersTheSameByItsIndex(t *testing.T) {
	testkit.Long(t)
	used := 0
	for _, path := range archivesOfOthers(t) {
		plain, err := holdall.Open(t.Context(), path, holdall.OpenOptions{})
		if err != nil {
			continue // damaged beyond opening, or no archive
		}
		views := append([]string{""}, plain.Format().Views...)
		plain.Close()
		for _, view := range views {
			t.Run(filepath.Base(path)+" "+view, func(t *testing.T) {
				o := holdall.OpenOptions{View: view}
				plain, err := holdall.Open(t.Context(), path, o)
				if err != nil {
					t.Skip(err)
				}
				defer plain.Close()
				if _, failed := entriesOf(plain.Entries(t.Context())); failed != "" {
					t.Skip(failed)
				}
				if err := plain.Doubt(); err != nil {
					t.Skip(err) // no index takes names from it
				}
				index := filepath.Join(t.TempDir(), "x"+holdall.IndexSuffix)
				buildIndex(t, path, o, index)
				o.Index.At = index
				byIndex, err := holdall.Open(t.Context(), path, o)
				if err != nil {
					t.Fatal(err)
				}
				defer byIndex.Close()
				if s := byIndex.Index(); s.Used != index {
					t.Fatalf("%+v", s)
				}
				used++
				sameArchives(t, byIndex, plain)
			})
		}
	}
	if used < 30 {
		t.Errorf("compared only %d", used)
	}
}

// packed is a CAF of a few files.
func packed(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	in := testkit.Tree(t, filepath.Join(dir, "in"), files)
	path := filepath.Join(dir, "x.caf")
	if _, err := holdall.Pack(t.Context(), path, []string{in}, holdall.PackOptions{Format: "caf"}); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildIndex(t *testing.T, path string, o holdall.OpenOptions, to string) {
	t.Helper()
	st, name, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	toStore, toName, err := store.OpenAddress(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.BuildIndexStore(t.Context(), st, name, toStore, toName, holdall.IndexOptions{OpenOptions: o}); err != nil {
		t.Fatal(err)
	}
}

func index(t *testing.T, path string) []byte {
	t.Helper()
	buildIndex(t, path, holdall.OpenOptions{}, path+holdall.IndexSuffix)
	b, err := os.ReadFile(path + holdall.IndexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnIndexOfAnotherVersionIsNotBelieved(t *testing.T) {
	path := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/c": "gamma"})
	index(t, path)
	other := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/d": "delta"})
	indexOfOther := index(t, other)
	old := time.Now().Add(-time.Hour)
	for what, change := range map[string]func() error{
		"longer": func() error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(" ")
			return errors.Join(err, f.Close())
		},
		"another time":    func() error { return os.Chtimes(path, old, old) },
		"another archive": func() error { return os.WriteFile(path+holdall.IndexSuffix, indexOfOther, 0o666) },
		"another end": func() error {
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[0] ^= 1
			return errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fi, _ := os.Stat(path)
			defer func() {
				if err := errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
					t.Fatal(err)
				}
				index(t, path)
			}()
			if err := change(); err != nil {
				t.Fatal(err)
			}
			a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Format: "caf", Index: holdall.UseIndex{Beside: true}})
			if err == nil {
				defer a.Close()
			} else if what != "longer" { // which is no CAF any more
				t.Fatal(err)
			}
			if err == nil && (a.Index().Used != "" || a.Index().Why == nil) {
				t.Errorf("%+v", a.Index())
			}
		})
	}
	a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
	if err != nil || a.Index().Used == "" {
		t.Fatalf("the right one: %v, %+v", err, a.Index())
	}
	a.Close()
}

// TestADamagedIndexIsHarmless opens an archive by its index with every byte of that
// damaged, or missing: it answers all the same. Tables have tests of their own.
func TestADamagedIndexIsHarmless(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("d%d/f%d", i%5, i)] = strings.Repeat("x", i)
	}
	path := packed(t, t.TempDir(), files)
	good := index(t, path)
	st := &storetest.Mem{}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st.Put("x.caf", b)
	if _, err := holdall.BuildIndexStore(t.Context(), st, "x.caf", st, "x.caf.holdall", holdall.IndexOptions{NoTable: true}); err != nil {
		t.Fatal(err)
	}
	obj, err := st.Open(t.Context(), "x.caf.holdall")
	if err == nil {
		good = make([]byte, len(good)+1000)
		n, rerr := store.ReadTail(t.Context(), obj, good)
		good, err = good[:n], rerr
	}
	if err != nil {
		t.Fatal(err)
	}
	plain, err := holdall.OpenStore(t.Context(), st, "x.caf", holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	used := 0
	for i := 0; i < len(good); i += 1 + i%4 {
		for _, bad := range [][]byte{good[:i], slices.Concat(good[:i], []byte{good[i] ^ 0x41}, good[i+1:])} {
			st.Put("x.caf.holdall", bad)
			a, err := holdall.OpenStore(t.Context(), st, "x.caf", holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
			if err != nil {
				t.Fatal(err)
			}
			if a.Index().Used != "" {
				used++
			}
			sameArchives(t, a, plain)
			a.Close()
		}
	}
	if used == 0 {
		t.Error("no damage was found after the index was opened")
	}
}

func TestAnArchiveThatIsSlowToOpenIsIndexedForTheNextTime(t *testing.T) {
	path := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/c": "gamma"})
	folder := &holdall.IndexFolder{Dir: filepath.Join(t.TempDir(), "not", "yet"), Expensive: 1}
	o := holdall.OpenOptions{Index: holdall.UseIndex{Folder: folder}}
	for i, want := range []bool{true, false} {
		a, err := holdall.Open(t.Context(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := a.KeepIndex(t.Context(), false)
		if err != nil || kept != want || (a.Index().Used == "") != want {
			t.Errorf("%d: %v, %v, %+v", i, kept, err, a.Index())
		}
		e, err := a.Lookup(t.Context(), "b/c")
		p := make([]byte, 5)
		if err == nil {
			_, err = a.ReadAt(t.Context(), e, p, 0)
		}
		if err != nil && err != io.EOF || string(p) != "gamma" {
			t.Errorf("%q, %v", p, err)
		}
		a.Close()
	}
	all, err := folder.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Entries != 2 || all[0].Archive != path {
		t.Fatalf("%+v, %v", all, err)
	}
	folder.Most = 1 // the next one takes the place of all
	other := packed(t, t.TempDir(), map[string]string{"a": "alpha"})
	a, err := holdall.Open(t.Context(), other, o)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := a.KeepIndex(t.Context(), false); !kept || err != nil {
		t.Error(kept, err)
	}
	a.Close()
	if n, _, err := folder.Clear(); n != 0 || err != nil {
		t.Errorf("%d were left, %v", n, err)
	}
}

func TestALongMemberIsReadFromPointsOn(t *testing.T) {
	testkit.Long(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	contents := map[string][]byte{}
	for i := range uint64(6) {
		var c []byte
		for k := i << 40; len(c) < 4<<20; k++ {
			c = strconv.AppendUint(append(c, ' '), k*k*2654435761, 36)
		}
		name := fmt.Sprintf("d%d/f", i)
		contents[name] = c
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(c))}), errOf(w.Write(c))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	mem := &storetest.Mem{}
	mem.Put("x.tar.gz", b.Bytes())
	var asked atomic.Int64
	st := storetest.Fault(mem, func(op, name string, _, n int64) error {
		if op == "read" && name == "x.tar.gz" {
			asked.Add(n)
		}
		return nil
	})
	if _, err := holdall.BuildIndexStore(t.Context(), st, "x.tar.gz", mem, "x.tar.gz.holdall", holdall.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d5/f", "d0/f", "d3/f"} {
		a, err := holdall.OpenStore(t.Context(), st, "x.tar.gz", holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
		if err != nil || a.Index().Used == "" {
			t.Fatal(err, a.Index())
		}
		e, err := a.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		asked.Store(0)
		p := make([]byte, 1000)
		if _, err := a.ReadAt(t.Context(), e, p, 1<<20); err != nil || !bytes.Equal(p, contents[name][1<<20:][:1000]) {
			t.Errorf("%s: other content, %v", name, err)
		}
		if n := asked.Load(); n > int64(b.Len())/2 {
			t.Errorf("%s: %d bytes of %d were read", name, n, b.Len())
		}
		var whole bytes.Buffer
		if err := a.WriteContent(t.Context(), &whole, e); err != nil || !bytes.Equal(whole.Bytes(), contents[name]) {
			t.Errorf("%s: %d bytes, %v", name, whole.Len(), err)
		}
		a.Close()
	}
}

func errOf(_ int, err error) error { return err }

// manyRows is a CAF of n files of 100 bytes in folders of a thousand, whose contents are
// a hole.
func manyRows(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "many.caf")
	b := []byte(`{"format_version":"1.0","files":{`)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `%q:{"start_byte":%d,"end_byte":%d}`, rowName(i), i*100, i*100+100)
	}
	b = append(b, "}}"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	f, err := os.Create(path)
	if err == nil {
		_, err = f.WriteAt(b, int64(n)*100)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// rowName is a name that tells nothing of the one before.
func rowName(i int) string {
	sum := blake3.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	return fmt.Sprintf("data/%04d/%x", i/1000, sum[:10])
}

func TestOneOfManyByAnIndexIsFourSmallRequests(t *testing.T) {
	testkit.Long(t)
	path := manyRows(t, 200_000)
	buildIndex(t, path, holdall.OpenOptions{}, path+holdall.IndexSuffix)
	var requests, sent atomic.Int64
	files := http.FileServer(http.Dir(filepath.Dir(path)))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		files.ServeHTTP(&counting{w, &sent}, r)
	}))
	defer web.Close()
	a, err := holdall.Open(t.Context(), web.URL+"/many.caf", holdall.OpenOptions{FewLookups: true, Index: holdall.UseIndex{Beside: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p := make([]byte, 100)
	read := func(name string) {
		t.Helper()
		e, err := a.Lookup(t.Context(), name)
		if err == nil {
			_, err = a.ReadAt(t.Context(), e, p, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read(rowName(123_456))
	if requests.Load() > 4 || sent.Load() > 64<<10+100 {
		t.Errorf("%d requests, %d bytes", requests.Load(), sent.Load())
	}
	requests.Store(0)
	sent.Store(0)
	read(rowName(123_457))
	if requests.Load() != 1 || sent.Load() > 120 {
		t.Errorf("another one: %d requests, %d bytes", requests.Load(), sent.Load())
	}
}

// counting counts the bytes of answers.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}
