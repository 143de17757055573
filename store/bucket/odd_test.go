package bucket

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// Slashes in front and side by side belong to a key, and so do dots between slashes.
func TestKeysAreAsTheyAre(t *testing.T) {
	testkit.Serial(t)
	quiet(t)
	s := s3test.New("bucket", "other")
	st := serve(t, s, "", Options{})
	long := testkit.Numbered(minPart + 7)
	keys := []string{"/a", "//a", "a//b", "a///", "/", "../x", "./y", "a/../b", "a/./b", "..", ".", "a/..", "/../x y+%2E", "..a/b..", ".../c"}
	for i, key := range keys {
		s.Put("bucket", key, append(bytes.Clone(long), byte(i)))
	}
	i := map[string]int{}
	for j, key := range keys {
		i[key] = j
	}
	found := 0
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		found++
		o, err := st.OpenAs(t.Context(), info)
		if err != nil {
			t.Errorf("%q: %v", info.Name, err)
			continue
		}
		p := make([]byte, 1)
		if err := o.ReadAt(t.Context(), p, int64(len(long))); err != nil || int(p[0]) != i[info.Name] {
			t.Errorf("%q: found the bytes of %d, %v", info.Name, p[0], err)
		}
		if _, err := o.Can().Sums(t.Context()); err != nil {
			t.Errorf("%q: %v", info.Name, err)
		}
		w, err := storekit.Create(t.Context(), st, "copy")
		if err == nil {
			defer w.Abort()
			if err = w.Can().WriteRange(t.Context(), o, 0, info.Size); err == nil {
				_, err = w.Commit(t.Context())
			}
		}
		if got := s.Get("bucket", "copy"); err != nil || len(got) != len(long)+1 || int(got[len(long)]) != i[info.Name] {
			t.Errorf("%q: copied %d bytes, %v", info.Name, len(got), err)
		}
		s.Remove("bucket", "copy")
		o.Close()
	}
	if found != len(keys) {
		t.Errorf("%d keys of %d were listed", found, len(keys))
	}
	for _, line := range s.Took() {
		at, _, _ := strings.Cut(strings.SplitN(line, " ", 3)[1], "?")
		for part := range strings.SplitSeq(at, "/") {
			if part == "." || part == ".." {
				t.Errorf("%s can be resolved on the way", line)
			}
		}
	}
}

// A key that is resolved on the way leads to a different object, with a different version.
func TestKeysThatAreResolvedOnTheWayAreNotRead(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Public = true
	s.Put("bucket", "a/../b", []byte("meant"))
	s.Put("bucket", "b", []byte("other"))
	st := serve(t, s, "", Options{Anonymous: true})
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = strings.ReplaceAll(r.URL.Path, "/a/..", "")
		return false
	}
	for info, err := range st.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		o, err := st.OpenAs(t.Context(), info)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 5)
		if err := o.ReadAt(t.Context(), p, 0); !errors.Is(err, store.ErrChanged) {
			t.Errorf("read %q, %v", p, err)
		}
		for _, less := range []store.Info{{Name: info.Name}, {Name: info.Name, Version: info.Version}, {Name: info.Name, Size: 5}} {
			_, err := st.OpenAs(t.Context(), less)
			if _, dots := errors.AsType[*far.DotsError](err); !dots || !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("by less than its version: %v", err)
			}
		}
	}
}
