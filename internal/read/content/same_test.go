package content_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A fixture is an archive among the test data of formats.
type fixture struct {
	st     store.Store
	name   string
	format *format.Format
}

func archivesOfOthers(t *testing.T) (all []fixture) {
	t.Helper()
	for pattern, kind := range map[string]string{
		"format/caf/testdata/fixtures/*.caf": "caf", "format/lindi/testdata/*.lindi.*": "lindi", "format/rvn/testdata/*.rvn": "rvn",
		"format/databundle/testdata/*": "databundle", "internal/oak/testdata/*": "oak", "format/zip/testdata/*.zip": "zip", "format/tar/testdata/*.tar*": "tar",
	} {
		found, err := filepath.Glob(filepath.Join("..", "..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			all = append(all, fixture{local.New(filepath.Dir(path)), filepath.Base(path), formatNamed(t, kind)})
		}
	}
	if len(all) < 20 {
		t.Fatalf("found only %d", len(all))
	}
	slices.SortFunc(all, func(a, b fixture) int { return strings.Compare(a.name, b.name) })
	return all
}

// entriesOf is what is yielded, without handles, and the words of an error at its end.
func entriesOf(seq iter.Seq2[content.Entry, error]) (all []content.Entry, failed string) {
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
func sameArchives(t *testing.T, got, want *content.Source) {
	t.Helper()
	ctx := t.Context()
	all, failed := entriesOf(want.Reader.Entries(ctx))
	found, ferr := entriesOf(got.Reader.Entries(ctx))
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
		if !naming.ValidPath(dir) {
			continue
		}
		a, aerr := entriesOf(got.Reader.ReadDir(ctx, dir))
		b, berr := entriesOf(want.Reader.ReadDir(ctx, dir))
		byName := func(a, b content.Entry) int { return strings.Compare(a.Name, b.Name) }
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

func sameEntry(t *testing.T, got, want *content.Source, name string) {
	t.Helper()
	ctx := t.Context()
	a, aerr := got.Reader.Lookup(ctx, name)
	b, berr := want.Reader.Lookup(ctx, name)
	if aerr != nil || berr != nil {
		t.Fatalf("%q: %v, expected %v", name, aerr, berr)
	}
	extents := func(s *content.Source, e content.Entry) (all []content.Extent, failed bool) {
		for x, err := range s.Extents(ctx, e) {
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

// Test data of all formats answers the same in all its views by an index. An eighth of it is tried,
// chosen at random, and all with HOLDALL_LONG=8.
func TestAnArchiveAnswersTheSameByItsIndex(t *testing.T) {
	testkit.Long(t)
	used := 0
	rnd := testkit.Rand(t)
	share := min(testkit.Rounds(t, 1), 8)
	for _, a := range archivesOfOthers(t) {
		for _, view := range append([]string{""}, a.format.Views...) {
			if rnd.IntN(8) >= share {
				continue
			}
			t.Run(a.name+" "+view, func(t *testing.T) {
				w := way{open: format.OpenOptions{View: view}}
				plain, err := tryOpen(t.Context(), a.st, a.name, a.format, w)
				if err != nil {
					t.Skip(err) // damaged beyond opening, or no archive
				}
				defer plain.Close()
				if _, failed := entriesOf(plain.Reader.Entries(t.Context())); failed != "" {
					t.Skip(failed)
				}
				if err := plain.Doubt(); err != nil {
					t.Skip(err) // no index takes names from it
				}
				to := local.New(t.TempDir())
				writeIndex(t, plain, to, "x.holdall", content.IndexOptions{View: view, Points: true})
				w.index.At = storekit.AddressOf(to, "x.holdall")
				used++
				sameArchives(t, openAs(t, a.st, a.name, a.format.Name, w), plain)
			})
		}
	}
	if used < 4*share {
		t.Errorf("compared only %d", used)
	}
}

// An archive is opened by its index with bytes of that damaged, or missing: it answers all the same.
// Tables have tests of their own.
func TestADamagedIndexIsHarmless(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("d%d/f%d", i%5, i)] = strings.Repeat("x", i)
	}
	st := packedAs(t, "caf", nil, files)
	plain := openAs(t, st, "x", "caf", way{})
	writeIndex(t, plain, st, "x"+kept.Suffix, content.IndexOptions{})
	good := st.Get("x" + kept.Suffix)
	rnd := testkit.Rand(t)
	step := max(20/testkit.Rounds(t, 1), 4)
	used := 0
	for i := rnd.IntN(step); i < len(good); i += 1 + rnd.IntN(step) {
		for _, bad := range [][]byte{good[:i], flipped(flipped(good, int64(i), 0), int64(i), 6)} {
			st.Put("x"+kept.Suffix, bad)
			s, err := tryOpen(t.Context(), st, "x", plain.Format, beside)
			if errors.Is(err, errNoIndex) {
				continue // it is not used at all
			} else if err != nil {
				t.Fatal(err)
			}
			used++
			sameArchives(t, s, plain)
			s.Close()
		}
	}
	if used == 0 {
		t.Error("no damage was found after the index was opened")
	}
}

func TestALongMemberIsReadFromPointsOn(t *testing.T) {
	testkit.Long(t)
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w := tar.NewWriter(z)
	contents := map[string][]byte{}
	for i := range uint64(6) {
		var c []byte
		for k := i << 40; len(c) < 4<<20; k++ {
			c = strconv.AppendUint(append(c, ' '), k*k*2654435761, 36)
		}
		name := fmt.Sprintf("d%d/f", i)
		contents[name] = c
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(c))})
		if err == nil {
			_, err = w.Write(c)
		}
		if err != nil {
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
	writeIndex(t, openAs(t, st, "x.tar.gz", "tar", way{}), mem, "x.tar.gz"+kept.Suffix, content.IndexOptions{Points: true})
	for _, name := range []string{"d5/f", "d0/f", "d3/f"} {
		s := openAs(t, st, "x.tar.gz", "tar", beside)
		e := lookup(t, s, name)
		asked.Store(0)
		p := make([]byte, 1000)
		if _, err := s.ReadAt(t.Context(), e, p, 1<<20); err != nil || !bytes.Equal(p, contents[name][1<<20:][:1000]) {
			t.Errorf("%s: other content, %v", name, err)
		}
		if n := asked.Load(); n > int64(b.Len())/2 {
			t.Errorf("%s: %d bytes of %d were read", name, n, b.Len())
		}
		if whole, err := copyOf(t, s, e); err != nil || whole != string(contents[name]) {
			t.Errorf("%s: %d bytes, %v", name, len(whole), err)
		}
	}
}
