package storetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// plainNames are names that become other names, or none, if a store takes them for a pattern, a
// URL or a shell word. Many are equal to a neighbour if they are misread.
var plainNames = []string{
	"with space", "with%20space", "with+space", "withspace",
	"percent%", "percent%41", "percentA", "percent%zz",
	"quest", "quest?ion", "quest?", "star*", "[a-z]",
	"hash", "hash#mark", "hash#",
	"amp&eq=1", "semi;colon", "comma,", "quote'", `quote"`, "at@sign", "colon:name", "tilde~", "$dollar",
	"ünïcode", "日本/資料.caf", "🙂",
	"dir/in?ner #1/100%.caf", "...", "a..b", ".hidden", "-dash",
	`back\slash`,
}

func testNames(t *testing.T, s *suite) {
	held := s.putNames(t, "")
	if len(held) < len(plainNames)/2 {
		t.Errorf("expected a store that accepts most names, found only %q", held)
	}
	for _, name := range held {
		s.wantContent(t, name, []byte(name))
		if info, err := s.open(t, name).Info(t.Context()); err != nil || info.Name != name {
			t.Errorf("info %q: found name %q, %v", name, info.Name, err)
		}
	}
}

// putNames creates objects with all names below a prefix that can exist. Each contains its name.
func (s *suite) putNames(t *testing.T, prefix string) (held []string) {
	for _, name := range plainNames {
		name = prefix + name
		if err := s.putFunc(name, []byte(name)); errors.Is(err, errors.ErrUnsupported) {
			t.Logf("%q is not possible here", name)
		} else if err != nil {
			t.Errorf("put %q: %v", name, err)
		} else {
			held = append(held, name)
		}
	}
	return held
}

func testWriters(t *testing.T, s *suite) {
	if s.st.Can().Create == nil {
		t.Skip("this store does not create")
	}
	s.run(t, []check{
		{"object is invisible until commit", testInvisible},
		{"old object stays whole until commit", testOldWhole},
		{"abort leaves nothing new, and the old object whole", testAbort},
		{"abort after commit does nothing", testAbortAfterCommit},
		{"object without writes is empty", testCreateEmpty},
		{"big object written in odd pieces is whole", testCreateBig},
		{"of two writers of a name the last to commit wins whole", testTwoWriters},
		{"names are plain text", testCreateNames},
		{"rewind takes back the end", testRewind},
		{"range of another object is appended", testWriteRange},
		{"patches change written bytes", testPatch},
		{"an object created once replaces none", testOnce},
		{"of many writers that create an object once, one succeeds", testOnceRace},
		{"a kept upload is continued", testResume},
		{"a finished upload is committed unchanged", testFinish},
	})
}

func (s *suite) create(t *testing.T, name string) store.Writer {
	t.Helper()
	w, err := storekit.Create(t.Context(), s.st, name)
	if err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	abortAtEnd(t, w, name)
	return w
}

// abortAtEnd aborts a writer at the end of the test, which does nothing if it was committed.
func abortAtEnd(t *testing.T, w store.Writer, name string) {
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort %q: %v", name, err)
		}
	})
}

func write(t *testing.T, w store.Writer, p []byte) {
	t.Helper()
	if n, err := w.Write(p); n != len(p) || err != nil {
		t.Fatalf("write %d bytes: wrote %d, %v", len(p), n, err)
	}
}

// commit commits w and checks that the result describes what a reader sees.
func (s *suite) commit(t *testing.T, w store.Writer, name string, want []byte) {
	t.Helper()
	info, err := w.Commit(t.Context())
	if err != nil {
		t.Fatalf("commit %q: %v", name, err)
	}
	if info.Name != name || info.Size != int64(len(want)) {
		t.Errorf("commit %q: expected its name and size %d, found %q and %d", name, len(want), info.Name, info.Size)
	}
	s.wantContent(t, name, want)
	if read, err := s.open(t, name).Info(t.Context()); err != nil || info.Version != "" && read.Version != info.Version {
		t.Errorf("version of %q: commit gave %q, info gives %q, %v", name, info.Version, read.Version, err)
	}
}

func testInvisible(t *testing.T, s *suite) {
	const name = "invisible/new object"
	w := s.create(t, name)
	write(t, w, []byte("0123"))
	s.wantMissing(t, name)
	write(t, w, []byte("456789"))
	s.wantMissing(t, name)
	if slices.Contains(s.list(t, name), name) {
		t.Error("listed before commit")
	}
	s.commit(t, w, name, []byte("0123456789"))
}

func testOldWhole(t *testing.T, s *suite) {
	const name = "old"
	s.put(t, name, []byte("old bytes"))
	w := s.create(t, name)
	s.wantContent(t, name, []byte("old bytes"))
	write(t, w, []byte("new"))
	s.wantContent(t, name, []byte("old bytes"))
	s.commit(t, w, name, []byte("new"))
}

func testAbort(t *testing.T, s *suite) {
	s.put(t, "abort/old", []byte("old bytes"))
	for _, name := range []string{"abort/old", "abort/new", "abort/deep/er/new"} {
		w := s.create(t, name)
		write(t, w, []byte("new"))
		if err := w.Abort(); err != nil {
			t.Errorf("abort %q: %v", name, err)
		}
	}
	s.wantContent(t, "abort/old", []byte("old bytes"))
	s.wantMissing(t, "abort/new")
	s.wantMissing(t, "abort/deep/er/new")
	if s.st.Can().List != nil {
		if got := s.list(t, "abort/"); !slices.Equal(got, []string{"abort/old"}) {
			t.Errorf("list: expected only the old object, found %q", got)
		}
	}
}

func testAbortAfterCommit(t *testing.T, s *suite) {
	const name = "committed"
	w := s.create(t, name)
	write(t, w, []byte("bytes"))
	s.commit(t, w, name, []byte("bytes"))
	if err := w.Abort(); err != nil {
		t.Errorf("abort after commit: %v", err)
	}
	s.wantContent(t, name, []byte("bytes"))
}

func testCreateEmpty(t *testing.T, s *suite) {
	s.commit(t, s.create(t, "empty"), "empty", nil)
}

func testCreateBig(t *testing.T, s *suite) {
	r := seeded(t)
	want := noise(r, 7<<20+13)
	w := s.create(t, "big")
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(1<<20))
		p := bytes.Clone(rest[:n])
		write(t, w, p)
		clear(p) // an io.Writer must not keep it
		rest = rest[n:]
	}
	s.commit(t, w, "big", want)
}

func testTwoWriters(t *testing.T, s *suite) {
	const name = "contended"
	a, b := s.create(t, name), s.create(t, name)
	write(t, a, []byte("aaaaaaaa"))
	write(t, b, []byte("bbb"))
	write(t, a, []byte("AAAA"))
	s.commit(t, b, name, []byte("bbb"))
	s.commit(t, a, name, []byte("aaaaaaaaAAAA"))
}

func testCreateNames(t *testing.T, s *suite) {
	for _, name := range s.putNames(t, "names/") {
		w := s.create(t, name)
		write(t, w, []byte("new "+name))
		s.commit(t, w, name, []byte("new "+name))
	}
}

func testRewind(t *testing.T, s *suite) {
	const name = "rewound"
	w := s.create(t, name)
	rewind := w.Can().Rewind
	if rewind == nil {
		t.Skip("this store's writers do not rewind")
	}
	write(t, w, []byte("0123456789"))
	for _, step := range []struct {
		to   int64
		then string
	}{{10, "abc"}, {11, "xyz"}, {0, ""}, {0, "012345"}, {3, "abcdefgh"}} {
		if err := rewind(step.to); errors.Is(err, errors.ErrUnsupported) {
			t.Skip("this store's writers do not rewind")
		} else if err != nil {
			t.Fatalf("rewind to %d: %v", step.to, err)
		}
		write(t, w, []byte(step.then))
	}
	for _, to := range []int64{12, -1} {
		if err := rewind(to); err == nil {
			t.Errorf("rewind of 11 bytes to %d: expected an error", to)
		}
	}
	s.commit(t, w, name, []byte("012abcdefgh"))
}

func testWriteRange(t *testing.T, s *suite) {
	src := noise(seeded(t), 3<<20)
	s.put(t, "source", src)
	from := s.open(t, "source")
	w := s.create(t, "ranges")
	var want []byte
	add := func(p []byte) {
		write(t, w, p)
		want = append(want, p...)
	}
	for _, x := range [][2]int{{100, 50}, {0, 1}, {7, 0}, {5, 2<<20 + 1}, {len(src) - 9, 9}} {
		add([]byte("between"))
		if err := storekit.WriteRange(t.Context(), w, from, int64(x[0]), int64(x[1])); err != nil {
			t.Fatalf("write range %d+%d: %v", x[0], x[1], err)
		}
		want = append(want, src[x[0]:x[0]+x[1]]...)
	}
	if writeRange := w.Can().WriteRange; writeRange != nil {
		switch err := writeRange(t.Context(), from, 1000, 500); {
		case errors.Is(err, errors.ErrUnsupported): // nothing may have been written
		case err != nil:
			t.Errorf("write range 1000+500: %v", err)
		default:
			want = append(want, src[1000:1500]...)
		}
	}
	add([]byte("end"))
	s.commit(t, w, "ranges", want)

	w = s.create(t, "past the end")
	if err := storekit.WriteRange(t.Context(), w, from, int64(len(src))-5, 6); err == nil {
		t.Error("write range past the end of its source: expected an error")
	}
}

// list returns the names below prefix and checks each Info. It returns none if the store does not
// list.
func (s *suite) list(t *testing.T, prefix string) (names []string) {
	t.Helper()
	if s.st.Can().List == nil {
		return nil
	}
	for info, err := range storekit.List(t.Context(), s.st, prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		if got := int64(len(s.content(t, info.Name))); got != info.Size {
			t.Errorf("list %q: %q: listed with size %d, holds %d bytes", prefix, info.Name, info.Size, got)
		}
		names = append(names, info.Name)
	}
	return names
}

func testLister(t *testing.T, s *suite) {
	if s.st.Can().List == nil {
		t.Skip("this store does not list")
	}
	t.Run("empty store lists nothing", func(t *testing.T) {
		if got := s.list(t, ""); len(got) != 0 {
			t.Errorf("expected nothing, found %q", got)
		}
	})
	// Walking from directory to directory yields another order, with a/x before a-b.
	names := []string{"a/x", "a-b", "a.b", "a/b/c", "ab", "b", "a/x y", "B", "ü", "a/b-c"}
	for i, name := range names {
		s.put(t, name, bytes.Repeat([]byte("x"), i))
	}
	slices.Sort(names)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "a-b", "B", "ü", "nothing", "a/x ", "/"} {
		t.Run("sorted by name below prefix "+strings.ReplaceAll(prefix, "/", "|"), func(t *testing.T) {
			var want []string
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			if got := s.list(t, prefix); !slices.Equal(got, want) {
				t.Errorf("expected %q, found %q", want, got)
			}
		})
	}
	t.Run("may be left early", func(t *testing.T) {
		n := 0
		for _, err := range storekit.List(t.Context(), s.st, "a") {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("expected 2 names, found %d", n)
		}
	})
}

func testRemover(t *testing.T, s *suite) {
	if s.st.Can().Remove == nil {
		t.Skip("this store does not remove")
	}
	remove := func(name string) error { return storekit.Remove(t.Context(), s.st, name) }
	for _, name := range []string{"dir/object", "dir/object 2", "object"} {
		s.put(t, name, []byte(name))
	}
	t.Run("removed object is gone, its neighbours stay", func(t *testing.T) {
		if err := remove("dir/object"); err != nil {
			t.Fatal(err)
		}
		s.wantMissing(t, "dir/object")
		if slices.Contains(s.list(t, "dir/"), "dir/object") {
			t.Error("still listed")
		}
		s.wantContent(t, "dir/object 2", []byte("dir/object 2"))
		s.wantContent(t, "object", []byte("object"))
	})
	t.Run("missing object is fs.ErrNotExist", func(t *testing.T) {
		for _, name := range []string{"dir/object", "dir/objec", "missing"} {
			if err := remove(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("remove %q: expected an error wrapping fs.ErrNotExist, found %v", name, err)
			}
		}
	})
	t.Run("removed name can be used again", func(t *testing.T) {
		if err := remove("object"); err != nil {
			t.Fatal(err)
		}
		s.put(t, "object", []byte("again"))
		s.wantContent(t, "object", []byte("again"))
	})
}

func testRemoverAs(t *testing.T, s *suite) {
	if s.st.Can().RemoveAs == nil {
		t.Skip("this store cannot remove one version")
	}
	t.Run("as", func(t *testing.T) { testRemoves(t, s, storekit.RemoveAs, false) })
	t.Run("if", func(t *testing.T) { testRemoves(t, s, storekit.RemoveIf, true) })
}

func testRemoves(t *testing.T, s *suite, removeAs func(context.Context, store.Store, store.Info) error, oneRequest bool) {
	infos := func() map[string]store.Info {
		all := map[string]store.Info{}
		for info, err := range storekit.List(t.Context(), s.st, "dir/") {
			if err != nil {
				t.Fatal(err)
			}
			all[info.Name] = info
		}
		return all
	}
	remove := func(info store.Info) error { return removeAs(t.Context(), s.st, info) }
	for _, name := range []string{"dir/object", "dir/object 2", "dir/other"} {
		s.put(t, name, []byte(name))
	}
	s.put(t, "dir/empty", nil)
	before := infos()
	t.Run("the current version is removed, its neighbours stay", func(t *testing.T) {
		for _, name := range []string{"dir/object", "dir/empty"} {
			if err := remove(before[name]); err != nil {
				t.Fatal(err)
			}
			s.wantMissing(t, name)
		}
		s.wantContent(t, "dir/object 2", []byte("dir/object 2"))
	})
	t.Run("missing object is fs.ErrNotExist", func(t *testing.T) {
		err := remove(before["dir/object"])
		if oneRequest && (err == nil || errors.Is(err, store.ErrChanged)) { // some servers say no more
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("expected an error wrapping fs.ErrNotExist, found %v", err)
		}
	})
	t.Run("other versions stay", func(t *testing.T) {
		for name, content := range map[string]string{"dir/object": "of another length", "dir/object 2": "DIR/OBJECT 2"} {
			s.put(t, name, []byte(content))
			if err := remove(before[name]); !errors.Is(err, store.ErrChanged) {
				t.Errorf("remove %q: expected ErrChanged, found %v", name, err)
			}
			s.wantContent(t, name, []byte(content))
			if err := remove(infos()[name]); err != nil {
				t.Error(err)
			}
			s.wantMissing(t, name)
		}
	})
	t.Run("without a version nothing is removed", func(t *testing.T) {
		info := before["dir/other"]
		info.Version = ""
		if err := remove(info); err == nil {
			t.Error("expected an error")
		}
		s.wantContent(t, "dir/other", []byte("dir/other"))
	})
}
