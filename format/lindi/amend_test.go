package lindi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// snapshot reads all of an archive: its members and, marked, its keys.
func snapshot(ctx context.Context, st store.Store, name string) (map[string]string, error) {
	all := map[string]string{}
	for _, view := range []string{membersView, zarrView} {
		r, err := Format.Open(ctx, st, name, format.OpenOptions{View: view})
		if err != nil {
			return nil, err
		}
		for e, err := range r.Entries(ctx) {
			if err != nil {
				return nil, err
			}
			if e.Internal || e.Name == rfsName {
				continue
			}
			if e.Fault != nil {
				return nil, &format.CorruptError{Format: "lindi", Problem: *e.Fault}
			}
			b, err := content(ctx, st, r, e, func(a string) string { return a })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name, err)
			}
			if view == zarrView {
				all["zarr:"+e.Name] = hashOf(b)
			} else if !strings.HasPrefix(e.Name, blobDir) {
				all[e.Name] = hashOf(b)
			}
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func put(ctx context.Context, m format.Amender, name string, content []byte) error {
	return m.Put(ctx, format.Entry{Name: name, Size: int64(len(content))}, bytes.NewReader(content))
}

// noise is content that does not compress.
func noise(seed uint64, n int) []byte { return testkit.Noise(rand.New(rand.NewPCG(seed, 1)), n) }

// sessions are the amendments in the crash tests, each with one commit.
var sessions = []struct {
	name string
	view string
	do   func(ctx context.Context, m format.Amender) error
}{
	{"a member", membersView, func(ctx context.Context, m format.Amender) error {
		return put(ctx, m, "notes.txt", noise(1, 700))
	}},
	{"keys, inline and not", zarrView, func(ctx context.Context, m format.Amender) error {
		return errors.Join(
			put(ctx, m, "new/.zarray", []byte(`{"chunks":[2000],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[4000],"zarr_format":2}`)),
			put(ctx, m, "new/0", noise(2, 2000)),
			put(ctx, m, "new/1", noise(3, 2000)),
			put(ctx, m, ".zattrs", []byte(`{"title": "changed", "x": [1, 2.5, null]}`)))
	}},
	{"a chunk again, and one removed", zarrView, func(ctx context.Context, m format.Amender) error {
		return errors.Join(put(ctx, m, "new/0", noise(4, 2000)), m.Remove(ctx, "new/1"))
	}},
	{"so much that all must move", zarrView, func(ctx context.Context, m format.Amender) error {
		return put(ctx, m, "long/.zattrs", append(append([]byte(`{"a": "`), bytes.Repeat([]byte("much "), 6000)...), `"}`...))
	}},
	{"names", membersView, func(ctx context.Context, m format.Amender) error {
		return errors.Join(m.Rename(ctx, "notes.txt", "docs/readme.txt"), put(ctx, m, "other", noise(5, 100)))
	}},
	{"small again", zarrView, func(ctx context.Context, m format.Amender) error {
		return errors.Join(m.Remove(ctx, "long/.zattrs"), m.Rename(ctx, "new/0", "new/1"))
	}},
}

// session carries one of them out.
func session(ctx context.Context, st store.Store, name, view string, do func(context.Context, format.Amender) error) error {
	m, err := Format.Amend(ctx, st, name, format.OpenOptions{View: view})
	if err != nil {
		return err
	}
	err = do(ctx, m)
	if err == nil {
		_, err = m.Commit(ctx)
	}
	return errors.Join(err, m.Close())
}

// After a crash at any write, the archive opens in the old or the new state, and can be amended
// again.
func TestAmendIsSafeAtEveryWrite(t *testing.T) {
	testkit.Serial(t)
	seed := testkit.Seed(t)
	for _, name := range []string{"p02_few_blobs.lindi.tar", "p01_empty.lindi.tar", "p05_rewritten.lindi.tar"} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			st := fixtureStore(t, name)
			before, err := snapshot(ctx, st, name)
			if err != nil {
				t.Fatal(err)
			}
			states := 0
			for _, s := range sessions {
				j := storetest.NewJournal(st.Clone())
				if err := session(ctx, j, name, s.view, s.do); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				after, err := snapshot(ctx, j, name)
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if maps.Equal(before, after) {
					t.Fatalf("%s: nothing changed", s.name)
				}
				for _, p := range problems(t, j.Mem, name) {
					if p.Severity > format.Note && p.Entry != "grid" {
						t.Errorf("%s: %s %s: %s", s.name, p.Code, p.Entry, p.Message)
					}
				}
				for label, b := range j.States(seed) {
					states++
					left := st.Clone()
					left.Put(name, b)
					got, err := snapshot(ctx, left, name)
					if err != nil {
						t.Fatalf("%s: %s: %v", s.name, label, err)
					}
					if !maps.Equal(got, before) && !maps.Equal(got, after) {
						t.Fatalf("%s: %s: neither as it was nor as it was to be", s.name, label)
					}
					goesOn(t, left, name, s.name+": "+label, got)
				}
				st.Put(name, j.Get(name))
				before = after
			}
			t.Logf("%d states", states)
		})
	}
}

// goesOn amends the archive after a crash, and checks that nothing of the crash is left.
func goesOn(t *testing.T, st *storetest.Mem, name, label string, was map[string]string) {
	t.Helper()
	ctx := t.Context()
	err := session(ctx, st, name, membersView, func(ctx context.Context, m format.Amender) error {
		return put(ctx, m, "after the crash", noise(9, 1500))
	})
	if err != nil {
		t.Fatalf("%s: then: %v", label, err)
	}
	got, err := snapshot(ctx, st, name)
	if err != nil {
		t.Fatalf("%s: then: %v", label, err)
	}
	delete(got, "after the crash")
	if !maps.Equal(got, was) {
		t.Fatalf("%s: a later change changed more than it was to", label)
	}
	for _, p := range problems(t, st, name) {
		if p.Severity > format.Note && p.Entry != "grid" && p.Code != format.BadHeader {
			t.Errorf("%s: then: %s %s: %s", label, p.Code, p.Entry, p.Message)
		}
	}
}

// Places are used again: many small changes do not make an archive long.
func TestManyCommitsStaySmall(t *testing.T) {
	testkit.Serial(t)
	const name = "p01_empty.lindi.tar"
	st := fixtureStore(t, name)
	m, err := Format.Amend(t.Context(), st, name, format.OpenOptions{View: zarrView})
	if err != nil {
		t.Fatal(err)
	}
	const n, size = 200, 1000
	for i := range n {
		if err := put(t.Context(), m, fmt.Sprintf("a/%d", i), noise(uint64(i), size)); err != nil {
			t.Fatal(err)
		}
		if sum, err := m.Commit(t.Context()); err != nil || sum.Added != 1 {
			t.Fatal(err, sum)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	blobs := n * (blockLen + 1024)
	if got := len(st.Get(name)); got > blobs+600_000 {
		t.Errorf("%d bytes, of which %d are blobs", got, blobs)
	}
	for _, p := range problems(t, st, name) {
		if p.Severity > format.Note {
			t.Errorf("%s %s: %s", p.Code, p.Entry, p.Message)
		}
	}
}

func TestAmendRefuses(t *testing.T) {
	const name = "p02_few_blobs.lindi.tar"
	ctx := t.Context()
	st := fixtureStore(t, name)
	before := st.Get(name)
	m, err := Format.Amend(ctx, st, name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Format.Amend(ctx, st, name, format.OpenOptions{}); err == nil {
		t.Error("two change it at once")
	} else if _, ok := errors.AsType[*store.LockedError](err); !ok {
		t.Errorf("a second one: %v", err)
	}
	for what, err := range map[string]error{
		"a name that is too long":      put(ctx, m, strings.Repeat("x", 101), nil),
		"the index":                    put(ctx, m, indexName, nil),
		"a name that is not UTF-8":     put(ctx, m, "a\xff", nil),
		"no lindi.json":                put(ctx, m, rfsName, []byte("{}")),
		"removing what keys lead to":   m.Remove(ctx, "blobs/a/0"),
		"removing lindi.json":          m.Remove(ctx, rfsName),
		"renaming to the entry's name": m.Rename(ctx, "blobs/a/0", entryName),
	} {
		if e, ok := errors.AsType[kit.EntryError](err); !ok {
			t.Errorf("%s: %v (%v)", what, err, e)
		}
	}
	if err := m.Remove(ctx, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := m.Rename(ctx, "blobs/a/0", "blobs/grid/0.0"); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if err := m.Put(ctx, format.Entry{Name: "short", Size: 5}, strings.NewReader("abc")); err == nil {
		t.Error("content shorter than said is taken")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(st.Get(name), before) {
		t.Error("what was not committed changed the archive")
	}
	if _, err := Format.Amend(ctx, fixtureStore(t, "x08_crash_entry_not_updated.lindi.tar"), "x08_crash_entry_not_updated.lindi.tar", format.OpenOptions{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a damaged archive: %v", err)
	}
}

// Renaming a member takes the keys that lead to it along.
func TestRenamedMembersAreStillFound(t *testing.T) {
	const name = "p02_few_blobs.lindi.tar"
	ctx := t.Context()
	st := fixtureStore(t, name)
	before, err := snapshot(ctx, st, name)
	if err != nil {
		t.Fatal(err)
	}
	err = session(ctx, st, name, membersView, func(ctx context.Context, m format.Amender) error {
		return m.Rename(ctx, "blobs/a/0", "blobs/moved")
	})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := snapshot(ctx, st, name); err != nil || !maps.Equal(before, after) {
		t.Error(err, after)
	}
	if ps := problems(t, st, name); slices.ContainsFunc(ps, func(p format.Problem) bool { return p.Severity > format.Note && p.Entry != "grid" }) {
		t.Error(ps)
	}
}

// A change leaves digests of index and lindi.json in the entry, as a new archive has them:
// each bit of both is proven.
func TestTheTextsOfAChangedArchiveAreProven(t *testing.T) {
	testkit.Long(t)
	const name = "x.lindi.tar"
	ctx := t.Context()
	st := &storetest.Mem{}
	w, err := Format.Create(ctx, st, name, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(ctx, format.Entry{Name: ".zgroup", Size: 2}, strings.NewReader("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for _, view := range []string{membersView, zarrView} {
		err := session(ctx, st, name, view, func(ctx context.Context, m format.Amender) error { return put(ctx, m, "a/0", noise(1, 40)) })
		if err != nil {
			t.Fatal(err)
		}
		a, err := openArchive(ctx, st, name, format.OpenOptions{})
		if err == nil {
			err = a.loadRFS(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.close()
		was := st.Get(name)
		for _, text := range [][2]int64{{a.entry.d, a.entry.indexText}, {a.entry.rfsAt, a.entry.rfsText}} {
			if text[1] < 30 {
				t.Fatalf("%+v", a.entry)
			}
			for i := range text[1] * 8 {
				b := bytes.Clone(was)
				b[text[0]+i/8] ^= 1 << (i % 8)
				st.Put(name, b)
				if !slices.ContainsFunc(problems(t, st, name), func(p format.Problem) bool { return p.Severity == format.Error }) {
					t.Errorf("%s: bit %d of %d in the text at %d: nobody tells", view, i, text[1]*8, text[0])
				}
			}
		}
		st.Put(name, was)
	}
}

// The torn tails that the reference and other tars leave are repaired by the next
// change.
func TestAmendMendsTails(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{"x02_no_terminator.lindi.tar", "x09_killed_before_flush.lindi.tar"} {
		st := fixtureStore(t, name)
		before, err := snapshot(ctx, st, name)
		if err != nil {
			t.Fatal(err)
		}
		goesOn(t, st, name, name, before)
	}
	const name = "p02_few_blobs.lindi.tar"
	st := fixtureStore(t, name)
	b := st.Get(name)
	b = append(b, make([]byte, 9000)...)
	st.Put(name, b)
	before, _ := snapshot(ctx, st, name)
	goesOn(t, st, name, "zeros behind the end", before)

	// What tar -r appends has a time and an owner.
	st = fixtureStore(t, name)
	b = st.Get(name)
	h := appendHeader(nil, "by another tar", 5)
	copy(h[timeAt:], "14000000000\x00")
	copy(h[userAt:], "me")
	putChecksum(h)
	b = append(append(append(b[:len(b)-terminatorLen], h...), "hello"...), make([]byte, 507+9*1024)...)
	st.Put(name, b)
	err := session(ctx, st, name, membersView, func(context.Context, format.Amender) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := Format.Open(ctx, st, name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Lookup(ctx, "by another tar"); err != nil || e.Size != 5 {
		t.Error(err, e)
	}
}

func TestLooseFormsAreAmended(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{"p09_directory.lindi.d", "p08_from_hdf5.lindi.json"} {
		st := fixtureStore(t, name)
		for _, s := range sessions {
			if s.view == membersView && formOf(name) == jsonForm {
				continue
			}
			if err := session(ctx, st, name, s.view, s.do); err != nil {
				t.Fatalf("%s: %s: %v", name, s.name, err)
			}
			for _, p := range problems(t, st, name) {
				if p.Severity > format.Note && p.Code != format.Gap {
					t.Errorf("%s: %s: %s %s: %s", name, s.name, p.Code, p.Entry, p.Message)
				}
			}
		}
		k, err := Format.Open(ctx, st, name, format.OpenOptions{View: zarrView})
		if err != nil {
			t.Fatal(err)
		}
		e, err := k.Lookup(ctx, "new/1")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := content(ctx, st, k, e, nil); err != nil || !bytes.Equal(b, noise(4, 2000)) {
			t.Errorf("%s: new/1 has %d bytes, %v", name, len(b), err)
		}
		k.Close()
	}
}
