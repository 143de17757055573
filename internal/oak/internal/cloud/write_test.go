package cloud

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// leased is a view of a container, under its lock, and what it lists.
func leased(t testing.TB, st store.Store) store.Store {
	t.Helper()
	l, release, err := Lease(t.Context(), st, "s/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return View(l, "s/", listed(t, st))
}

func listed(t testing.TB, st store.Store) *Listing {
	t.Helper()
	l := &Listing{}
	for info, err := range storekit.ListHeaders(t.Context(), st, "s/") {
		if err == nil {
			_, err = l.Add(strings.TrimPrefix(info.Name, "s/"), info.Size, info.Headers)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Settle()
	return l
}

// tarOf is a tar with n bulk segments of some bytes.
func tarOf(t testing.TB, name string, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tarfile.NewWriter(&out, name, func() time.Time { return time.Unix(1, 0) })
	for i := range n {
		if err := w.Add(idOf(i, false), segment.Generation{}, bytes.Repeat([]byte{byte(i)}, 1+i*700), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(t testing.TB, st store.Store, name string) []byte {
	t.Helper()
	o, info, err := storekit.OpenInfo(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b := make([]byte, info.Size)
	if err := o.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func write(ctx context.Context, st store.Store, name string, b []byte) error {
	_, err := storekit.Write(ctx, st, name, func(w store.Writer) error {
		for some := range slices.Chunk(b, 1000) {
			if _, err := w.Write(some); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// A tar becomes an archive, which is presented as the same tar, but for checksums and times. What
// a killed writer has left does not get into it.
func TestATarBecomesAnArchive(t *testing.T) {
	const name = "data00003b.tar"
	for _, n := range []int{1, 2, 16, 17, 40} {
		st := &storetest.Container{}
		v, b := leased(t, st), tarOf(t, name, n)
		if err := write(t.Context(), v, "s/data00003a.tar", tarOf(t, "data00003a.tar", 1)); err != nil {
			t.Fatal(err)
		}
		st.Put("s/"+name+"/0007."+idOf(99, true).String(), []byte("left"))
		if err := write(t.Context(), v, "s/"+name, b); err != nil {
			t.Fatal(err)
		}
		for what, v := range map[string]store.Store{"written": v, "listed": View(st, "s/", listed(t, st))} {
			got := read(t, v, "s/"+name)
			if len(got) != len(b) || !bytes.Equal(got[512:1024], b[512:1024]) {
				t.Fatalf("%d segments, %s: %d bytes, expected %d", n, what, len(got), len(b))
			}
		}
		if a := listed(t, st).Archive(name); len(a.Entries()) != n || a.Unseen+a.Ignored > 0 || a.Gap >= 0 || !a.Closed {
			t.Errorf("%+v", a)
		}
		for _, other := range [...][]byte{tarOf(t, name, n/2+1), tarOf(t, name, n+1), bytes.Replace(b, b[512:1024], bytes.Repeat([]byte{9}, 512), 1)} {
			before := st.Clone()
			if err := write(t.Context(), v, "s/"+name, other); err == nil && !bytes.Equal(other, b) {
				t.Error("an archive was replaced")
			}
			wantBlobs(t, st, before)
		}
		// It gets what it lacks.
		before := st.Clone()
		for _, lost := range [...]string{Closed, name + Graph} {
			if err := st.Remove(t.Context(), "s/"+name+"/"+lost); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(t.Context(), View(v, "s/", listed(t, st)), "s/"+name, b); err != nil {
			t.Error(err)
		}
		wantBlobs(t, st, before)
		if err := storekit.Remove(t.Context(), v, "s/"+name); err != nil || listed(t, st).Archive(name) != nil {
			t.Errorf("it is still there: %v", err)
		}
	}
}

func wantBlobs(t *testing.T, st, want *storetest.Container) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range [...]*storetest.Container{st, want} {
		for info, err := range c.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names[info.Name] = true
		}
	}
	for name := range names {
		if is, want := st.Get(name), want.Get(name); !bytes.Equal(is, want) || (is == nil) != (want == nil) {
			t.Errorf("%s: %d bytes, expected %d", name, len(is), len(want))
		}
	}
}

func journalOf(from, to int) []byte {
	var b []byte
	for i := from; i < to; i++ {
		b = fmt.Appendf(b, "line %d\n", i)
	}
	return b
}

// A journal is appended to, or replaced in one step.
func TestAJournalIsAppendedToOrReplaced(t *testing.T) {
	st := &storetest.Container{}
	v := leased(t, st)
	is := func(what string, want []byte, parts ...int) {
		t.Helper()
		for _, v := range []store.Store{v, View(st, "s/", listed(t, st))} {
			if got := read(t, v, "s/journal.log"); !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, expected %d", what, len(got), len(want))
			}
		}
		var numbers []int
		for _, p := range listed(t, st).Parts {
			numbers = append(numbers, PartNumber(p.Name))
		}
		if !slices.Equal(numbers, parts) {
			t.Errorf("%s: parts %d, expected %d", what, numbers, parts)
		}
	}
	add := func(p []byte) {
		t.Helper()
		a, err := storekit.Amend(t.Context(), v, "s/journal.log")
		if err == nil {
			err = a.WriteAt(t.Context(), p, a.Size())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace := func(b []byte) {
		t.Helper()
		if err := write(t.Context(), v, "s/journal.log", b); err != nil {
			t.Fatal(err)
		}
	}
	replace(journalOf(0, 3))
	is("new", journalOf(0, 3), 1)
	add(journalOf(3, 5))
	is("appended", journalOf(0, 5), 1)
	replace(journalOf(0, 6))
	is("longer", journalOf(0, 6), 1)
	replace(journalOf(0, 6))
	is("the same", journalOf(0, 6), 1)
	replace(journalOf(0, 2))
	is("shorter", journalOf(0, 2), 2)
	replace(journalOf(1, PartLines+3))
	is("another", journalOf(1, PartLines+3), 3, 4)
	add(journalOf(0, PartLines))
	is("a part is full", append(journalOf(1, PartLines+3), journalOf(0, PartLines)...), 3, 4, 5)
	// Oak has the last line of the last part in its metadata, too.
	name := JournalPart(5)
	st.SetHeaders("s/"+name, map[string]string{lastEntry: "line"})
	v = View(v.(*view).Store, "s/", listed(t, st))
	add([]byte("last\n"))
	if l := listed(t, st); len(l.Parts) != 4 {
		t.Errorf("%+v", l.Parts)
	}
}

// gc.log is never without its last line.
func TestTheLogIsOnlyAppendedTo(t *testing.T) {
	for _, c := range [][3]string{
		{"", "a\n", "a\n"}, {"a\n", "a\nb\n", "a\nb\n"}, {"a\nb\n", "a\n", "a\nb\na\n"}, {"a\nb\n", "b\n", "a\nb\n"}, {"a\nb", "c\nd\n", "a\nb\nd\n"}, {"a\n", "a\n", "a\n"},
	} {
		st := &storetest.Container{}
		if c[0] != "" {
			st.Put("s/gc.log", []byte(c[0]))
		}
		if err := write(t.Context(), leased(t, st), "s/gc.log", []byte(c[1])); err != nil || string(st.Get("s/gc.log")) != c[2] {
			t.Errorf("%q: %q, %v", c, st.Get("s/gc.log"), err)
		}
	}
	st := &storetest.Container{}
	st.Put("s/gc.log", []byte("a\n"))
	if err := write(t.Context(), leased(t, st), "s/gc.log", nil); err != nil || st.Get("s/gc.log") != nil {
		t.Errorf("%q, %v", st.Get("s/gc.log"), err)
	}
}

// FuzzArchive writes anything as a tar. What is accepted is an archive as Oak writes it, and what is
// not leaves nothing.
func FuzzArchive(f *testing.F) {
	const name = "data00000a.tar"
	for _, n := range []int{1, 3} {
		b := tarOf(f, name, n)
		f.Add(b, 512)
		f.Add(b[:len(b)-1024], 100)
		b = bytes.Clone(b)
		b[600] ^= 1
		f.Add(b, 1<<20)
	}
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		st := &storetest.Container{}
		v := leased(t, st)
		w, err := storekit.Create(t.Context(), v, "s/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for some := range slices.Chunk(b, max(1, piece)) {
			if _, err = w.Write(some); err != nil {
				break
			}
		}
		if err == nil {
			_, err = w.Commit(t.Context())
		}
		if aerr := w.Abort(); aerr != nil {
			t.Fatal(aerr)
		}
		l := listed(t, st)
		a := l.Archive(name)
		if err != nil {
			if left := names(t, st); len(left) > 1 { // the lock
				t.Errorf("%v; left %q", err, left)
			}
			return
		}
		if a == nil || !a.Closed || a.Gap >= 0 || a.Unseen+a.Ignored > 0 {
			t.Fatalf("%+v", a)
		}
		if got := read(t, v, "s/"+name); len(got) > len(b)+1024 { // the zeros at the end may be missing
			t.Errorf("%d bytes, of %d", len(got), len(b))
		}
	})
}

func names(t testing.TB, st store.Store) (all []string) {
	t.Helper()
	for info, err := range storekit.List(t.Context(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}
