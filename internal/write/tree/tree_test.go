package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/base/glob"
)

// plant makes files, folders ("name/") and symlinks ("name -> target") in a new
// folder.
func plant(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		name, target, link := strings.Cut(n, " -> ")
		p := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(p), 0o777)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o777)
		default:
			err = os.WriteFile(p, []byte("content of "+name), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// walk returns what a walk finds, a word each: its name, and what it is if it
// is no plain file.
func walk(t *testing.T, roots []Root, o Options) string {
	t.Helper()
	var got []string
	for n := range Walk(t.Context(), roots, o) {
		s := n.Name
		switch {
		case n.Type.IsDir() && n.Bare:
			s += "/ bare"
		case n.Type.IsDir():
			s += "/"
		case n.Type != 0:
			s += " " + n.Type.String()[:1]
		}
		if n.Link != "" {
			s += ">" + n.Link
		}
		if n.Err != nil {
			s += " error"
		}
		got = append(got, s)
	}
	return strings.Join(got, ", ")
}

func TestWalkNamesThingsInOneOrder(t *testing.T) {
	dir := plant(t, "b/2", "b/1", "b/c/", "a", "b.txt", "b-x", "B", "ü", "with space", ".hidden", "empty/")
	const inside = ".hidden, B, a, b/, b/1, b/2, b/c/ bare, b-x, b.txt, empty/ bare, with space, ü"
	found := walk(t, []Root{{Path: dir}}, Options{})
	// By name means the names of one folder: b comes before b-x.
	if found != inside {
		t.Errorf("expected %s\nfound    %s", inside, found)
	}
	if again := walk(t, []Root{{Path: dir}}, Options{Stat: true}); again != found {
		t.Errorf("with Stat: %s", again)
	}
	if got, want := walk(t, []Root{{Path: filepath.Join(dir, "b"), Name: "as/this"}}, Options{}), "as/this/, as/this/1, as/this/2, as/this/c/ bare"; got != want {
		t.Errorf("expected %s, found %s", want, got)
	}
	if got, want := walk(t, []Root{{Path: filepath.Join(dir, "a"), Name: "x"}, {Path: filepath.Join(dir, "b"), Name: "y", Flat: true}}, Options{}), "x, y/"; got != want {
		t.Errorf("expected %s, found %s", want, got)
	}
}

func TestRootsAreNamedByHowTheyAreGiven(t *testing.T) {
	dir := plant(t, "a/1", "b", "link -> a")
	t.Chdir(dir)
	for _, c := range []struct {
		paths  []string
		listed bool
		want   string
	}{
		{[]string{"a"}, false, "[{a  false}]"},
		{[]string{"a/"}, false, "[{a/  false}]"},
		{[]string{"link"}, false, "[{link  false}]"},
		{[]string{"b"}, false, "[{b b false}]"},
		{[]string{"a/1"}, false, "[{a/1 1 false}]"},
		{[]string{"a", "b"}, false, "[{a a false} {b b false}]"},
		{[]string{"./a/../b", "a/"}, false, "[{./a/../b b false} {a/ a false}]"},
		{[]string{"a/1", "./b"}, true, "[{a/1 a/1 true} {./b b true}]"},
		{[]string{"a"}, true, "[{a a true}]"},
		{[]string{"a", "b", "./a/", "a"}, false, "[{a a false} {b b false} ./a/ a again]"},
		{[]string{"a", "a/"}, false, "[{a  false} a/ again]"},
		{[]string{"b", "a/1", "b"}, true, "[{b b true} {a/1 a/1 true} b again]"},
		{[]string{"b", "a/../b"}, false, "[{b b false} {a/../b b false}]"},
		{[]string{"../x/y", "/etc/z", "..", "."}, true, "[{../x/y x/y true} {/etc/z etc/z true} {..  true} {.  true}]"},
	} {
		roots, again, err := Roots(c.paths, c.listed)
		var got []string
		for _, r := range roots {
			got = append(got, fmt.Sprintf("{%s %s %v}", r.Path, r.Name, r.Flat))
		}
		if len(again) > 0 {
			got = append(got, strings.Join(again, " ")+" again")
		}
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q, listed %v: expected %s, found %v, %v", c.paths, c.listed, c.want, got, err)
		}
	}
	if _, _, err := Roots([]string{"nothing"}, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, _, err := Roots([]string{"a", "nothing"}, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one of two that is not there: %v", err)
	}
	if got := walk(t, []Root{{Path: "nothing", Name: "n", Flat: true}}, Options{}); got != "n error" {
		t.Errorf("listed, but not there: %s", got)
	}
}

// Of two inputs with the same names, folders become one, and the first of any other nodes counts.
func TestInputsOfTheSameName(t *testing.T) {
	dir := plant(t, "x/in/a", "x/in/sub/b", "y/in/a", "y/in/sub/c", "z/in/n/m", "w/in/n")
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{"x/in", "y/in"}, "in/, in/a, in/sub/, in/sub/b, in/a error, in/sub/c"},
		{[]string{"w/in", "z/in"}, "in/, in/n, in/n/ error, in/n/m error"},
		{[]string{"z/in", "w/in"}, "in/, in/n/, in/n/m, in/n error"},
	} {
		for i, p := range c.paths {
			c.paths[i] = filepath.Join(dir, filepath.FromSlash(p))
		}
		roots, again, err := Roots(c.paths, false)
		if err != nil || again != nil {
			t.Fatal(again, err)
		}
		if got := walk(t, roots, Options{}); got != c.want {
			t.Errorf("%s: expected %s", got, c.want)
		}
	}
}

func TestExcludedIsNotEnteredEither(t *testing.T) {
	dir := plant(t, "a.o", "a.c", "sub/a.o", "sub/b.c", "sub/deep/a.o", "build/out", "sub/build/out", "[x]", ".git/config", "ü.o")
	all := "[x], a.c, sub/, sub/b.c, "
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{[]string{"*.o", "build", ".git", "deep"}, "[x], a.c, sub/, sub/b.c"},
		{[]string{"/build", "*.o", ".git", "deep"}, all + "sub/build/, sub/build/out"},
		{[]string{"build/", "*.o", ".git", "deep"}, all + "sub/build/, sub/build/out"},
		{[]string{"sub/*.o", "sub/deep", "build", ".git", "?.o"}, "[x], a.c, sub/, sub/b.c"},
		{[]string{"sub/*", "build", ".*", "*.o"}, "[x], a.c, sub/"},
		{[]string{"sub", "build", ".g*", `\[x\]`}, "a.c, a.o, ü.o"},
		{[]string{"*"}, ""},
	} {
		names, err := glob.NewFilter(nil, c.patterns)
		if err != nil {
			t.Errorf("%q: %v", c.patterns, err)
		}
		if got := walk(t, []Root{{Path: dir}}, Options{Names: names}); got != c.want {
			t.Errorf("%q: expected %s\nfound    %s", c.patterns, c.want, got)
		}
	}
}

func TestIncludedIsFoundAnywhere(t *testing.T) {
	dir := plant(t, "a.c", "a.h", "sub/b.c", "sub/deep/x", "build/b.c")
	for _, c := range []struct {
		include, exclude []string
		want             string
	}{
		{[]string{"*.c"}, nil, "a.c, build/b.c, sub/b.c"},
		{[]string{"*.c"}, []string{"build"}, "a.c, sub/b.c"},
		{[]string{"sub"}, []string{"deep"}, "sub/, sub/b.c"},
		{[]string{"sub/deep", "*.h"}, nil, "a.h, sub/deep/, sub/deep/x"},
		{[]string{"nothing"}, nil, ""},
	} {
		names, err := glob.NewFilter(c.include, c.exclude)
		if err != nil {
			t.Fatal(err)
		}
		if got := walk(t, []Root{{Path: dir}}, Options{Names: names}); got != c.want {
			t.Errorf("%q without %q: expected %s\nfound    %s", c.include, c.exclude, c.want, got)
		}
	}
	names, _ := glob.NewFilter(nil, []string{"*.h"})
	roots := []Root{{Path: filepath.Join(dir, "a.c"), Name: "a.c"}, {Path: filepath.Join(dir, "a.h"), Name: "a.h"}}
	if got := walk(t, roots, Options{Names: names}); got != "a.c" {
		t.Errorf("a root that is excluded: found %s", got)
	}
}

func TestSymlinksAreFoundNotFollowed(t *testing.T) {
	dir := plant(t, "file", "folder/x", "to file -> file", "to folder -> folder", "to nothing -> nowhere", "up -> ..", "folder/round -> ../folder", "self -> self")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "file, folder/, folder/round L, folder/x, self L, to file L, to folder L, to nothing L, up L"},
		{Options{Stat: true}, "file, folder/, folder/round L>../folder, folder/x, self L>self, to file L>file, to folder L>folder, to nothing L>nowhere, up L>.."},
		{Options{Follow: true}, "file, folder/, folder/round L, folder/x, self L, to file, to folder L, to nothing L, up L"},
		{Options{Follow: true, Stat: true}, "file, folder/, folder/round L>../folder, folder/x, self L>self, to file, to folder L>folder, to nothing L>nowhere, up L>.."},
	} {
		if got := walk(t, []Root{{Path: dir}}, c.o); got != c.want {
			t.Errorf("%+v: expected %s\nfound    %s", c.o, c.want, got)
		}
	}
	// A link that is a root is meant.
	if got, want := walk(t, []Root{{Path: filepath.Join(dir, "to folder"), Name: "r"}}, Options{}), "r/, r/round L, r/x"; got != want {
		t.Errorf("root: expected %s, found %s", want, got)
	}
	buf := make([]byte, 100)
	if _, _, _, err := Load(filepath.Join(dir, "to file"), buf, false); err == nil {
		t.Error("a link is loaded that should not be followed")
	}
	if _, n, _, err := Load(filepath.Join(dir, "to file"), buf, true); err != nil || string(buf[:n]) != "content of file" {
		t.Errorf("a link to be followed: %q, %v", buf[:n], err)
	}
}

// Opening something that is not a regular file must not block.
func TestWhatIsNoFileIsFoundAndDoesNotBlock(t *testing.T) {
	dir := plant(t, "file", "folder/")
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	want := []string{"file", "folder/ bare"}
	if mkfifo(fifo) == nil {
		want = append(want, "fifo p")
	}
	if l, err := net.Listen("unix", socket); err == nil {
		defer l.Close()
		want = append(want, "socket S")
	}
	slices.Sort(want)
	if got := walk(t, []Root{{Path: dir}}, Options{Stat: true}); got != strings.Join(want, ", ") {
		t.Errorf("expected %s, found %s", strings.Join(want, ", "), got)
	}
	for _, p := range []string{fifo, socket, filepath.Join(dir, "folder"), os.DevNull} {
		if _, err := os.Lstat(p); err != nil {
			continue
		}
		done := make(chan error, 1)
		go func() {
			_, _, rest, err := Load(p, make([]byte, 10), true)
			if rest != nil {
				rest.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Path != p {
				t.Errorf("%s: expected an *fs.PathError with its path, found %v", p, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: still waiting", p)
		}
	}
}

func TestWhatCannotBeReadIsReportedAndTheRestFound(t *testing.T) {
	dir := plant(t, "a", "locked/x", "vanished/x", "z")
	if err := os.Chmod(filepath.Join(dir, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "locked"), 0o777) })
	_, locked := os.ReadDir(filepath.Join(dir, "locked")) // nil for root
	errs := map[string]error{}
	var names []string
	for n := range Walk(t.Context(), []Root{{Path: dir}}, Options{}) {
		if n.Name == "a" {
			// Between the listing of its parent and its own.
			if err := os.RemoveAll(filepath.Join(dir, "vanished")); err != nil {
				t.Fatal(err)
			}
		}
		names, errs[n.Name] = append(names, n.Name), n.Err
	}
	if !errors.Is(errs["vanished"], fs.ErrNotExist) {
		t.Errorf("vanished: %v", errs["vanished"])
	}
	if (errs["locked"] != nil) != (locked != nil) {
		t.Errorf("locked: %v, expected %v", errs["locked"], locked)
	}
	if errs["a"] != nil || errs["z"] != nil || !slices.Contains(names, "z") {
		t.Errorf("the others: %q, %v", names, errs)
	}
}

func TestWalkStopsWhenToldOrCancelled(t *testing.T) {
	dir := plant(t, "a/1", "a/2", "b/1", "c")
	n := 0
	for range Walk(t.Context(), []Root{{Path: dir}, {Path: dir}}, Options{}) {
		if n++; n == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range Walk(ctx, []Root{{Path: dir}, {Path: dir}}, Options{}) {
		cancel()
		n++
	}
	if n != 3 {
		t.Errorf("%d nodes, expected 2 and 1", n)
	}
}

func TestLoadAroundTheSizeOfItsBuffer(t *testing.T) {
	p := filepath.Join(t.TempDir(), "file")
	for _, room := range []int{0, 1, 100, 4096} {
		for size := max(0, room-2); size <= room+2; size++ {
			content := bytes.Repeat([]byte("x"), size)
			if err := os.WriteFile(p, content, 0o640); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, room)
			m, n, rest, err := Load(p, buf, false)
			if err != nil {
				t.Fatalf("%d bytes into %d: %v", size, room, err)
			}
			got := buf[:n]
			if rest != nil {
				if got, err = io.ReadAll(rest); err != nil || n != 0 {
					t.Errorf("%d bytes into %d: %d read, then %v", size, room, n, err)
				}
				rest.Close()
			} else if size >= room {
				t.Errorf("%d bytes fit %d, and one more to see the end does too", size, room)
			}
			if !bytes.Equal(got, content) || m.Size != int64(size) || m.Mode != 0o640 || m.ModTime.IsZero() {
				t.Errorf("%d bytes into %d: %d, %+v", size, room, len(got), m)
			}
		}
	}
	if _, _, _, err := Load(p+" is not there", nil, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not there: %v", err)
	}
}

// A file that grows or shrinks while it is read gives an error or one of its
// sizes, never a mixture.
func TestLoadOfAFileThatChangesIsAnErrorOrWhole(t *testing.T) {
	p := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- f.Close()
				return
			default:
			}
			for _, n := range []int64{10, 100_000, 0, 50_000} {
				if err := f.Truncate(n); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	buf := make([]byte, 200_000)
	changed := 0
	for range 3000 {
		m, n, rest, err := Load(p, buf, false)
		switch {
		case rest != nil:
			rest.Close()
			t.Fatal("a file that fits is left to be read")
		case errors.Is(err, ErrChanged):
			changed++
		case err != nil || int64(n) != m.Size || !slices.Contains([]int64{0, 10, 50_000, 100_000}, m.Size):
			t.Errorf("%d bytes, %+v, %v", n, m, err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d of 3000 changed while they were read", changed)
}

// The kernel says that these have no bytes, and then gives some.
func TestLoadOfAFileLongerThanItSaysIsAnError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	if _, n, _, err := Load("/proc/self/status", make([]byte, 1000), false); !errors.Is(err, ErrChanged) {
		t.Errorf("expected ErrChanged, found %d bytes, %v", n, err)
	}
}
