package caf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// hundreds has n rows of 100 bytes each, or, shuffled, in an order that is not theirs.
func hundreds(n int, shuffled bool) *sparse {
	b := appendHead(nil, "", false)
	for i := range n {
		at := int64(i)
		if shuffled {
			at = int64(i ^ 1)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, fmt.Sprintf("object-%07d", at), at*100, at*100+100, fmt.Sprintf("%032d", at), `"mime":"x"`, nil)
	}
	b = ended(b, false)
	return &sparse{size: int64(n)*100 + int64(len(b)), end: b}
}

func entriesOf(t *testing.T, s store.Store, o format.OpenOptions) (all []format.Entry) {
	t.Helper()
	r, err := open(t.Context(), s, "x.caf", o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := r.Can().Run(e); !ok || x.Len != 100 {
			t.Fatalf("%q: %+v, %v", e.Name, x, ok)
		}
		all = append(all, e)
	}
	return all
}

// near is sparse on a disk.
type near struct{ *sparse }

func (n near) Can() store.Abilities {
	can := n.sparse.Can()
	can.Near = true
	return can
}

func TestStreamedRowsAreTheLoadedOnes(t *testing.T) {
	testkit.Serial(t)
	for _, shuffled := range []bool{false, true} {
		s := near{hundreds(40_000, shuffled)}
		loaded := entriesOf(t, s, format.OpenOptions{})
		if len(loaded) != 40_000 {
			t.Errorf("shuffled %v: %d entries", shuffled, len(loaded))
		}
		for _, o := range []format.OpenOptions{{Once: true}, {FewLookups: true}} {
			if streamed := entriesOf(t, s, o); !reflect.DeepEqual(streamed, loaded) {
				t.Errorf("shuffled %v, %+v: %d streamed entries differ from those that are loaded", shuffled, o, len(streamed))
			}
		}
	}
}

// Entries with FewLookups yields the last row of a name only, as without it.
func TestRepeatedNamesAreNotStreamed(t *testing.T) {
	testkit.Serial(t)
	text, size := hundreds(40_000, false).end, 40_000*100
	s := near{&sparse{size: int64(size + len(text)), end: bytes.Replace(text, []byte("object-0000007"), []byte("object-0039999"), 1)}}
	o := format.OpenOptions{Param: map[string]string{"ends": "exclusive"}}
	want := entriesOf(t, s, o)
	o.FewLookups = true
	if got := entriesOf(t, s, o); len(got) != 39_999 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d entries, expected %d", len(got), len(want))
	}
}

// Sequential reading takes as much memory after the last row as after the first few.
func TestStreamedRowsAreNotKept(t *testing.T) {
	testkit.Serial(t)
	const n = 200_000
	r, err := open(t.Context(), hundreds(n, false), "x.caf", format.OpenOptions{Once: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count, early := 0, uint64(0)
	for e, err := range r.Entries(t.Context()) {
		if err != nil || e.Digest.Sum == "" {
			t.Fatal(e, err)
		}
		switch count++; count {
		case n / 2: // the block that is read at once has its full length
			early = testkit.Live()
		case n:
			if late := testkit.Live(); late > early+1<<20 {
				t.Errorf("%d bytes behind %d rows, %d behind %d", early, n/2, late, n)
			}
		}
	}
	if count != n {
		t.Errorf("%d rows, expected %d", count, n)
	}
	if e, err := r.Lookup(t.Context(), "object-0000017"); err != nil || e.Size != 100 {
		t.Errorf("%+v, %v", e, err)
	}
}

func BenchmarkOnce(b *testing.B) {
	eachMillion(b, func(b *testing.B, st store.Store) {
		for b.Loop() {
			r, err := open(b.Context(), st, "x.caf", format.OpenOptions{Once: true})
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range r.Entries(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
			}
			r.Close()
		}
	})
}

// ended is an index with its end and the footer.
func ended(b []byte, plain bool) (whole []byte) {
	text := newIndexText(plain, func(b []byte) error {
		whole = append(whole, b...)
		return nil
	})
	if err := errors.Join(text.add(b), text.end()); err != nil {
		panic(err)
	}
	return whole
}

// An index over the limit is never in memory: on a disk, it is read as a stream.
func TestALongIndexIsStreamed(t *testing.T) {
	testkit.Serial(t)
	s := near{hundreds(40_000, false)}
	loaded := entriesOf(t, s, format.OpenOptions{})
	few := format.OpenOptions{FewLookups: true, Limits: format.Limits{Index: 1 << 20}}
	tooLong := func(what string, err error) {
		t.Helper()
		if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Code != format.Limit {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, o := range map[string]struct {
		s store.Store
		o format.OpenOptions
	}{"loaded": {s, format.OpenOptions{Limits: few.Limits}}, "far": {s.sparse, few}} {
		_, err := open(t.Context(), o.s, "x.caf", o.o)
		tooLong(what, err)
	}
	r, err := open(t.Context(), s, "x.caf", few)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 { // before the entries are listed, and after
		for _, i := range []int{0, 7, 39_999} {
			if e, err := r.Lookup(t.Context(), loaded[i].Name); err != nil || !reflect.DeepEqual(e, loaded[i]) {
				t.Errorf("%+v, %v, expected %+v", e, err, loaded[i])
			}
		}
		for _, name := range []string{"a", "object-0000007/x", "object-00000070", "z", ""} {
			if _, err := r.Lookup(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %v", name, err)
			}
		}
		_, err = r.Lookup(t.Context(), ".")
		tooLong("a folder", err)
		_, err = r.About(t.Context())
		tooLong("about", err)
		if carry, err := r.Can().Carry(t.Context()); err != nil || len(carry) != 0 {
			t.Errorf("%v, %v", carry, err)
		}
		if all := entriesOf(t, s, few); !reflect.DeepEqual(all, loaded) {
			t.Errorf("%d entries", len(all))
		}
		for range r.Entries(t.Context()) {
			break
		}
	}
	r, err = open(t.Context(), near{hundreds(40_000, true)}, "x.caf", few)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Entries(t.Context()) {
		tooLong("rows in another order", err)
		break
	}
}
