package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// namesIn is what lies in a folder, of all kinds.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// stagePut writes an object through a stage.
func stagePut(t *testing.T, st *storekit.Stage, name, text string) {
	t.Helper()
	w, err := storekit.Create(t.Context(), st, name)
	if err == nil {
		if _, err = w.Write([]byte(text)); err == nil {
			_, err = w.Commit(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFolderAppearsWhole(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	stage := storekit.NewStage(s)
	if err := stage.Vacant(t.Context(), "new/x.d/"); err != nil {
		t.Fatal(err)
	}
	stagePut(t, stage, "new/x.d/a", "alpha")
	stagePut(t, stage, "new/x.d/sub/b", "beta")
	if got := namesIn(t, filepath.Join(dir, "new")); len(got) != 1 || !isTemp(got[0]) {
		t.Fatalf("before it is published: %q", got)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("%s is listed, %v", info.Name, err)
	}
	inner := filepath.Join(dir, "new", namesIn(t, filepath.Join(dir, "new"))[0], "sub", "b")
	beside := filepath.Join(filepath.Dir(inner), tempStem("b")+"0123456789abcdef"+tempEnd) // a file that is being written
	if !s.Owns(beside, "new/x.d") {
		t.Errorf("%s is not its own", beside)
	}
	if !s.Owns(inner, "new/x.d") || s.Owns(filepath.Join(dir, "new", "y", "b"), "new/x.d") {
		t.Error("what is written aside is not known as its own")
	}
	if err := stage.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	stage.Discard()
	if got := namesIn(t, filepath.Join(dir, "new")); !slices.Equal(got, []string{"x.d"}) {
		t.Errorf("found %q", got)
	}
	if got := namesIn(t, filepath.Join(dir, "new", "x.d")); !slices.Equal(got, []string{"a", "sub"}) {
		t.Errorf("found %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "new", "x.d", "sub", "b")); string(b) != "beta" {
		t.Errorf("%q, %v", b, err)
	}
	if err := stage.Vacant(t.Context(), "new/x.d"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it is replaced: %v", err)
	}
}

// What is discarded leaves nothing, not even the folders above.
func TestAFolderThatIsDiscardedIsGone(t *testing.T) {
	dir := t.TempDir()
	stage := storekit.NewStage(New(dir))
	if err := stage.Vacant(t.Context(), "new/x.d"); err != nil {
		t.Fatal(err)
	}
	stagePut(t, stage, "new/x.d/a", "alpha")
	w, err := storekit.Create(t.Context(), stage, "new/x.d/b")
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if err := stage.Discard(); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, dir); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// A folder whose writer was killed is taken away by the next writer of the name; one that
// is being written is not.
func TestWhatAKilledWriterOfAFolderLeavesIsTakenAway(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	dead := filepath.Join(dir, tempStem("x.d")+"0123456789abcdef"+tempEnd)
	if err := os.MkdirAll(filepath.Join(dead, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "sub", "a"), []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	alive, err := s.Folder(t.Context(), "x.d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !onWindows && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	second, err := s.Folder(t.Context(), "x.d")
	if err != nil {
		t.Fatal(err)
	}
	w, err := alive.Create(t.Context(), "x.d/a", store.Wishes{})
	if err == nil {
		_, err = w.Commit(t.Context())
	}
	if err == nil {
		err = alive.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// The other one finds a folder with something in it.
	if err := second.Commit(t.Context()); err == nil || strings.Contains(err.Error(), tempMark) {
		t.Errorf("a second folder of the name: %v", err)
	}
	if got := namesIn(t, dir); !slices.Equal(got, []string{"x.d"}) {
		t.Errorf("left: %q", got)
	}
	// One that is there, empty or not, is left to others.
	os.Mkdir(filepath.Join(dir, "empty"), 0o777)
	for _, name := range []string{"x.d", "empty"} {
		if _, err := s.Folder(t.Context(), name); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If a name is not written again, Tidy removes by name what a killed writer has left of it.
func TestTidyTakesAwayWhatHasNoWriter(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	dead := []string{"x/.a.holdall-0123456789abcdef.tmp", "x/y/.b.holdall-0123456789abcdef.tmp", "x/.c.holdall-0123456789abcdef.tmp/d"}
	stay := []string{"x/a", "x/.a.tmp", "x/.a.holdall-lock", ".x.holdall-0123456789abcdef.tmp"}
	for _, name := range append(dead, stay...) {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o777), os.WriteFile(p, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := storekit.Create(t.Context(), s, "x/alive")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := s.Tidy("x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range dead {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	for _, name := range stay {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Errorf("what somebody writes is gone: %v", err)
	}
}
