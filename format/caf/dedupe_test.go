package caf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestEqualContentsAreStoredOnce(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for what, c := range map[string]struct {
		st     store.Store
		known  bool // digests are, before a content is written
		stored int
	}{
		"known, in a store that rewinds":             {&storetest.Mem{}, true, len(large) + 3},
		"not known, in a store that rewinds":         {&storetest.Mem{}, false, len(large) + 3},
		"known, in a store that does not rewind":     {noRewind{&storetest.Mem{}}, true, len(large) + 3},
		"not known, in a store that does not rewind": {noRewind{&storetest.Mem{}}, false, 3*len(large) + 3},
	} {
		t.Run(what, func(t *testing.T) {
			w, err := create(t.Context(), c.st, "x.caf", format.CreateOptions{Param: map[string]string{"dedupe": "true"}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			want := map[string][]byte{}
			add := func(name string, content []byte) error {
				e := format.Entry{Name: name, Size: int64(len(content))}
				if c.known {
					sum := blake3.Sum256(content)
					e.Digest = format.Digest{Algo: "blake3", Sum: string(sum[:])}
				}
				return w.Add(t.Context(), e, io.MultiReader(bytes.NewReader(content)))
			}
			for i, content := range [][]byte{large, []byte("a"), nil, large, []byte("a"), nil, []byte("bc"), large} {
				want[fmt.Sprint(i)] = content
				if err := add(fmt.Sprint(i), content); err != nil {
					t.Fatal(err)
				}
			}
			if err := add("0", large); err == nil { // what is refused takes no bytes with it
				t.Error("a name came twice")
			}
			sum, err := w.Commit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			index := int(sum.Stored) - c.stored
			if sum.Entries != 8 || sum.Content != int64(3*len(large)+4) || sum.Shared != sum.Content-int64(c.stored) || index < 0 || index > 2000 {
				t.Errorf("%+v, expected %d bytes of content", sum, c.stored)
			}
			r, err := open(t.Context(), c.st, "x.caf", format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			o, err := c.st.Open(t.Context(), "x.caf")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			for name, content := range want {
				e, err := r.Lookup(t.Context(), name)
				if err != nil || e.Size != int64(len(content)) {
					t.Fatalf("%+v, %v", e, err)
				}
				if len(content) == 0 {
					continue
				}
				x, _ := r.Can().Run(e)
				got := make([]byte, x.Len)
				if err := o.ReadAt(t.Context(), got, x.Off); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%s: %d other bytes, %v", name, len(got), err)
				}
			}
			err = verify(t.Context(), c.st, "x.caf", format.OpenOptions{}, func(p format.Problem) {
				if p.Class != "shared" || p.Severity != format.Note || !strings.HasPrefix(p.Message, map[bool]string{true: "3 files", false: "1 files"}[c.stored < 2*len(large)]) {
					t.Errorf("%+v", p)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if p, err := repair(t.Context(), c.st, "x.caf", format.OpenOptions{}, func(format.Problem) {}); err != nil || len(p.Edits) > 0 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// Content that the store copied has not been read, so content that has been read must not be
// replaced by it.
func TestContentThatNobodyHasSeenStandsForNoOther(t *testing.T) {
	st, wrong, right := &storetest.Mem{}, []byte("damaged"), []byte("content")
	if err := storetest.Put(t.Context(), st, "source", wrong); err != nil {
		t.Fatal(err)
	}
	o := storetest.Open(t, st, "source")
	w, err := create(t.Context(), st, "x.caf", format.CreateOptions{Param: map[string]string{"dedupe": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	sum := blake3.Sum256(right)
	e := format.Entry{Size: 7, Digest: format.Digest{Algo: "blake3", Sum: string(sum[:])}}
	s := kit.NewSection(t.Context(), o, 0, 7)
	s.Far, s.Unread = true, true
	for name, r := range []io.Reader{s, bytes.NewReader(right), bytes.NewReader(right), s} {
		e.Name = fmt.Sprint(name)
		if err := w.Add(t.Context(), e, r); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := w.Commit(t.Context()); err != nil || got.Shared != 14 || !bytes.HasPrefix(st.Get("x.caf"), []byte("damagedcontent{")) {
		t.Errorf("%+v, %v", got, err)
	}
}

// An archive with something in front, and without its footer, is repaired, and files share
// their bytes still.
func TestSharedContentsAreRepaired(t *testing.T) {
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.caf", format.CreateOptions{Param: map[string]string{"dedupe": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	contents := []string{"first of all", "the second", "first of all", "the second", "third", "first of all"}
	for i, c := range contents {
		if err := w.Add(t.Context(), format.Entry{Name: fmt.Sprint(i), Size: int64(len(c))}, strings.NewReader(c)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole := st.Get("x.caf")
	for what, damaged := range map[string][]byte{"no footer": whole[:len(whole)-4], "in front": append([]byte("something"), whole...)} {
		p, err := repair(t.Context(), mem(damaged), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		if err != nil || p.Partial || len(p.Lost) > 0 || len(p.Edits) == 0 {
			t.Fatalf("%s: %+v, %v", what, p, err)
		}
		repaired := apply(t, damaged, p)
		r, err := openReader(t.Context(), mem(repaired), "x.caf", format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range contents {
			e, err := r.Lookup(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			if x, ok := r.Run(e); !ok || string(repaired[x.Off:x.Off+x.Len]) != c {
				t.Errorf("%s: %d is at %d", what, i, x.Off)
			}
		}
		if about, err := r.About(t.Context()); err != nil || about.Shared != 34 {
			t.Errorf("%+v, %v", about, err)
		}
	}
}

func TestEqualContentsFitAChunkTogether(t *testing.T) {
	w, err := create(t.Context(), &storetest.Mem{}, "x.caf", format.CreateOptions{ChunkSize: 150, Chunk: &format.Chunk{Number: 1}, Param: map[string]string{"dedupe": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	content := bytes.Repeat([]byte("x"), 100)
	sum := blake3.Sum256(content)
	for i := range 10 {
		e := format.Entry{Name: fmt.Sprint(i), Size: 100, Digest: format.Digest{Algo: "blake3", Sum: string(sum[:])}}
		if err := w.Add(t.Context(), e, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add(t.Context(), format.Entry{Name: "y", Size: 100}, bytes.NewReader(content)); !errors.Is(err, format.ErrFull) {
		t.Errorf("found %v", err)
	}
	if _, err := create(t.Context(), &storetest.Mem{}, "x.caf", format.CreateOptions{NoDigests: true, Param: map[string]string{"dedupe": "true"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("plain: found %v", err)
	}
}

// A failed write to a store that cannot undo it leaves a byte that is not content, and only
// shared contents follow it.
func TestSharedContentsBehindAGapAreRead(t *testing.T) {
	st := noRewind{&storetest.Mem{}}
	w, err := create(t.Context(), st, "x.caf", format.CreateOptions{Param: map[string]string{"dedupe": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	content := bytes.Repeat([]byte("x"), 200_000)
	sum := blake3.Sum256(content)
	e := format.Entry{Name: "a", Size: int64(len(content)), Digest: format.Digest{Algo: "blake3", Sum: string(sum[:])}}
	if err := w.Add(t.Context(), e, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	e.Name = "b"
	if err := w.Add(t.Context(), e, bytes.NewReader(content[1:])); err == nil {
		t.Error("it was short")
	}
	w.(*archiveWriter).Pos++ // as a byte that cannot be taken back
	if _, err := w.(*archiveWriter).out.Write([]byte("-")); err != nil {
		t.Fatal(err)
	}
	e.Name = "c"
	if err := w.Add(t.Context(), e, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := open(t.Context(), st, "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Lookup(t.Context(), "c"); err != nil || e.Fault != nil || e.Size != int64(len(content)) {
		t.Errorf("%+v, %v", e, err)
	}
}
