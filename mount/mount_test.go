//go:build linux

package mount_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/mount"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest"
)

// mounted mounts archives for a test.
func mounted(t *testing.T, o mount.Options, trees ...mount.Tree) string {
	t.Helper()
	_, dir := whole(t, o, trees...)
	return dir
}

// bothWays runs a test where the system says what is opened, and where it does not.
func bothWays(t *testing.T, test func(*testing.T, mount.Options)) {
	testkit.NeedsFUSE(t)
	for way, opens := range map[string]bool{"opening": true, "unopened": false} {
		t.Run(way, func(t *testing.T) { test(t, mount.Opening(mount.Options{}, opens, 0)) })
	}
}

func open(t *testing.T, address string, o holdall.OpenOptions) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// resolved is what a hard link is another name of.
func resolved(t *testing.T, a *holdall.Archive, e holdall.Entry) (holdall.Entry, bool) {
	for range 40 {
		if e.Kind != format.HardLink {
			return e, e.Kind != format.Dir
		}
		next, err := a.Lookup(t.Context(), e.Link)
		if err != nil {
			return e, false
		}
		e = next
	}
	return e, false
}

// same compares a folder of an archive with what is mounted, and what is below it.
func same(t *testing.T, a *holdall.Archive, dir, at string) (files int) {
	t.Helper()
	list, err := os.ReadDir(at)
	there := map[string]fs.DirEntry{}
	for _, d := range list {
		there[d.Name()] = d
	}
	for e, aerr := range a.ReadDir(t.Context(), dir) {
		if aerr != nil {
			if err == nil {
				t.Errorf("%s: %v, but it can be listed", at, aerr)
			}
			return files
		}
		name := strings.TrimPrefix(e.Name, dir+"/")
		show := mount.Shown(dir, e.Name)
		p := filepath.Join(at, show)
		if own, _ := xattr(p, "user.holdall.name"); e.Kind.HasContent() && show != name && own != e.Name {
			t.Errorf("%s: shown as %q, with the name %q", at, show, own)
		}
		d := there[filepath.Base(p)]
		if d == nil {
			t.Errorf("%s: %q is not listed", at, name)
			continue
		}
		delete(there, filepath.Base(p))
		info, err := os.Lstat(p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		was := e
		e, ok := resolved(t, a, e)
		if !ok && was.Kind == format.HardLink {
			if _, err := os.ReadFile(p); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s leads nowhere, but reads as %v", p, err)
			}
			continue
		}
		if d.Type() != info.Mode().Type() {
			t.Errorf("%s: is listed as %v, and is %v", p, d.Type(), info.Mode())
		}
		if want := e.FileMode(); e.Kind != format.Symlink && info.Mode() != want {
			t.Errorf("%s: expected mode %v, found %v", p, want, info.Mode())
		}
		if !e.ModTime.IsZero() && !info.ModTime().Equal(e.ModTime) {
			t.Errorf("%s: expected time %v, found %v", p, e.ModTime, info.ModTime())
		}
		if uid, err := strconv.Atoi(e.Owner); err == nil && st.Uid != uint32(uid) {
			t.Errorf("%s: expected owner %d, found %d", p, uid, st.Uid)
		}
		switch {
		case e.Kind == format.Dir:
			if naming.ValidPath(e.Name) {
				files += same(t, a, e.Name, p)
			}
		case e.Kind == format.Symlink:
			want, _, _ := strings.Cut(e.Link, "\x00")
			if to, err := os.Readlink(p); err != nil || to != want {
				t.Errorf("%s: expected a link to %q, found %q, %v", p, e.Link, to, err)
			}
		case e.Kind.HasContent():
			files++
			if e.Fault == nil && info.Size() != e.Size {
				t.Errorf("%s: expected %d bytes, found %d", p, e.Size, info.Size())
			}
			// Damaged archives claim sizes that nobody has room for.
			want := make([]byte, min(max(e.Size, 0), 8<<20))
			_, werr := a.ReadAt(t.Context(), e, want, 0)
			if e.Size == 0 {
				werr = nil
			}
			got, err := readSome(p, 8<<20)
			if e.Fault != nil && len(got) == 0 && (errors.Is(err, syscall.EIO) || e.Size <= 0) {
				continue
			}
			if (werr == nil) != (err == nil) || err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: expected %d bytes and %v, found %d and %v", p, len(want), werr, len(got), err)
			}
			if err != nil && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: expected an i/o error, found %v", p, err)
			}
			if d, _ := xattr(p, "user.holdall.digest"); d != e.Digest.String() {
				t.Errorf("%s: expected the digest %q, found %q", p, e.Digest, d)
			}
		}
	}
	for name := range there {
		t.Errorf("%s: %q is listed, but is not in the archive", at, name)
	}
	return files
}

func readSome(p string, most int64) ([]byte, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func xattr(p, name string) (string, error) {
	b := make([]byte, 64<<10)
	n, err := unix.Lgetxattr(p, name, b)
	return string(b[:max(n, 0)]), err
}

func TestEveryFormatIsMountedAsItIs(t *testing.T) {
	testkit.Long(t)
	testkit.NeedsFUSE(t)
	var all []string
	for _, pattern := range []string{
		"caf/testdata/fixtures/*", "lindi/testdata/[px]*", "rvn/testdata/*.rvn", "databundle/testdata/*",
		"tar/testdata/*.tar.gz", "zip/testdata/*.zip", "../internal/oak/testdata/*.tar.gz",
	} {
		found, err := filepath.Glob("../format/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d fixtures, %v", pattern, len(found), err)
		}
		all = append(all, found...)
	}
	opened, files := map[string]int{}, 0
	for _, p := range all {
		name := filepath.Base(p)
		if strings.Contains(name, ".expect.json") || strings.Contains(name, "dmg-hdr") || strings.Contains(name, "dmg-trunc") {
			continue
		}
		if strings.Contains(p, "/oak/") {
			if !strings.Contains("datastore types truncated-old-tar empty-store checkpoints", strings.TrimSuffix(name, ".tar.gz")) {
				continue // each has thousands of nodes
			}
			p = filepath.Join(testkit.Unpacked(t, p), "segmentstore")
		}
		a, err := holdall.Open(t.Context(), p, holdall.OpenOptions{})
		if err != nil {
			continue
		}
		for _, view := range views(a.Format(), name) {
			a, err := holdall.Open(t.Context(), p, holdall.OpenOptions{View: view})
			if err != nil {
				continue
			}
			opened[a.Format().Name]++
			t.Run(path.Join(name, view), func(t *testing.T) {
				dir := mounted(t, mount.Options{}, mount.Tree{Name: "x", Archive: a})
				files += same(t, a, ".", dir)
			})
		}
		a.Close()
	}
	for _, f := range format.All() {
		if f.Open != nil && opened[f.Name] == 0 { // others are only written
			t.Errorf("no fixture of %s could be mounted", f.Name)
		}
	}
	if files < 2000 {
		t.Errorf("%d files compared: there were more", files)
	}
	t.Logf("%v, %d files", opened, files)
}

// A wrong bit in each segment of a store costs nothing: the mount shows what the sound one has.
func TestWrongBitsOfASegmentStoreAreHealed(t *testing.T) {
	testkit.NeedsFUSE(t)
	fixture := func() string {
		return filepath.Join(testkit.Unpacked(t, "../internal/oak/testdata/checkpoints.tar.gz"), "segmentstore")
	}
	sound, damaged := fixture(), fixture()
	tar := filepath.Join(damaged, "data00000a.tar")
	b, err := os.ReadFile(tar)
	if err != nil {
		t.Fatal(err)
	}
	testkit.FlipSegments(b)
	if err := os.WriteFile(tar, b, 0o600); err != nil {
		t.Fatal(err)
	}
	healed := 0
	a := open(t, damaged, holdall.OpenOptions{Param: map[string]string{"super": "true"}, OnHeal: func(string) { healed++ }})
	want := open(t, sound, holdall.OpenOptions{Param: map[string]string{"super": "true"}})
	if n := same(t, want, ".", mounted(t, mount.Options{}, mount.Tree{Archive: a})); n == 0 || healed != 1 {
		t.Errorf("%d files, told %d times", n, healed)
	}
}

// views are those in which a fixture is mounted: damaged ones in one.
func views(f *format.Format, name string) []string {
	if strings.HasPrefix(name, "dmg-") || len(f.Views) == 0 {
		return []string{""}
	}
	return f.Views
}

// A tree of all kinds of entries, as tar has them.
func kinds(t *testing.T) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "kinds.tar")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	when := time.Unix(1_700_000_000, 0)
	add := func(h tar.Header, content string) {
		h.ModTime, h.Size = when, int64(len(content))
		if h.Mode == 0 {
			h.Mode = 0o640
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, content)
	}
	add(tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o750}, "")
	add(tar.Header{Name: "dir/file", Uid: 1234, Gid: 2345, Mode: 0o4755}, "content\n")
	add(tar.Header{Name: "dir/other", Typeflag: tar.TypeLink, Linkname: "dir/file"}, "")
	add(tar.Header{Name: "third", Typeflag: tar.TypeLink, Linkname: "dir/other"}, "")
	add(tar.Header{Name: "lost", Typeflag: tar.TypeLink, Linkname: "nowhere"}, "")
	add(tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "dir/file"}, "")
	add(tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}, "")
	add(tar.Header{Name: "empty"}, "")
	add(tar.Header{Name: "../outside"}, "outside")
	add(tar.Header{Name: `back\x2fslash`}, "backslash")
	add(tar.Header{Name: "dir/" + strings.Repeat("long", 100)}, "long")
	add(tar.Header{Name: "implied/a/b"}, "b")
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEntriesOfAllKinds(t *testing.T) { bothWays(t, entriesOfAllKinds) }

func entriesOfAllKinds(t *testing.T, o mount.Options) {
	p := kinds(t)
	a := open(t, p, holdall.OpenOptions{})
	dir := mounted(t, o, mount.Tree{Archive: a})
	stat := func(name string) *syscall.Stat_t {
		t.Helper()
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t)
	}
	one, two, three := stat("dir/file"), stat("dir/other"), stat("third")
	if one.Ino != two.Ino || one.Ino != three.Ino || one.Nlink != 3 || three.Nlink != 3 {
		t.Errorf("three names of a file: inodes %d %d %d, %d links", one.Ino, two.Ino, three.Ino, one.Nlink)
	}
	if one.Uid != 1234 || one.Gid != 2345 || one.Mode&0o7777 != 0o4755 {
		t.Errorf("it is of %d:%d, mode %o", one.Uid, one.Gid, one.Mode)
	}
	if st := stat("pipe"); st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		t.Errorf("a pipe has mode %o", st.Mode)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "lost")); !errors.Is(err, syscall.EIO) {
		t.Errorf("a link to nowhere: %v", err)
	}
	for name, want := range map[string]string{`..\x2foutside`: "outside", `back\x5cx2fslash`: "backslash", "link": "content\n", "third": "content\n", "implied/a/b": "b", "empty": ""} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: expected %q, found %q, %v", name, want, b, err)
		}
	}
	for _, name := range []string{`back\x2fslash`, "nothing", `implied\x2fa`, "dir/nothing", strings.Repeat("x", 255)} {
		for range 2 { // the second time the system knows
			if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	list, err := os.ReadDir(filepath.Join(dir, "dir"))
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	long := ""
	for _, d := range list {
		if strings.HasPrefix(d.Name(), "long") {
			long = filepath.Join(dir, "dir", d.Name())
		}
	}
	if b, err := os.ReadFile(long); err != nil || string(b) != "long" || len(filepath.Base(long)) > 255 {
		t.Errorf("%s: %q, %v", long, b, err)
	}
	if name, err := xattr(long, "user.holdall.name"); err != nil || name != "dir/"+strings.Repeat("long", 100) {
		t.Errorf("%s is of %q, %v", long, name, err)
	}
	file := filepath.Join(dir, "dir", "file")
	if s, err := xattr(file, "user.holdall.stored"); err != nil || s != "kinds.tar:1024+8" {
		t.Errorf("stored %q, %v", s, err)
	}
	if s, err := xattr(file, "user.holdall.codec"); err != nil || s != "raw" {
		t.Errorf("codec %q, %v", s, err)
	}
	b := make([]byte, 1000)
	if n, err := unix.Llistxattr(file, b); err != nil || string(b[:n]) != "user.holdall.stored\x00user.holdall.codec\x00" {
		t.Errorf("attributes %q, %v", b[:max(n, 0)], err)
	}
	for _, err := range []error{
		os.WriteFile(file, nil, 0o666), os.Mkdir(filepath.Join(dir, "new"), 0o777), os.Remove(file), os.Chmod(file, 0o777),
		os.Rename(file, filepath.Join(dir, "x")), os.Symlink("x", filepath.Join(dir, "y")),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("a change: %v", err)
		}
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 || st.Bavail != 0 || st.Namelen != 255 {
		t.Errorf("%+v, %v", st, err)
	}
	// The next mount gives the same numbers, also of a folder, and beside another archive
	// the names are not mixed up.
	again := mounted(t, mount.Options{Owner: &mount.Owner{UID: 7, GID: 8}}, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	info, err := os.Lstat(filepath.Join(again, "dir/file"))
	if err != nil || info.Sys().(*syscall.Stat_t).Ino != one.Ino || info.Sys().(*syscall.Stat_t).Uid != 7 {
		t.Errorf("mounted again: %+v, %v", info, err)
	}
}

func TestSeveralArchives(t *testing.T) {
	testkit.NeedsFUSE(t)
	p := kinds(t)
	dir := mounted(t, mount.Options{}, mount.Tree{Name: "a", Archive: open(t, p, holdall.OpenOptions{})}, mount.Tree{Name: "b", Archive: open(t, p, holdall.OpenOptions{})})
	inos := map[uint64]string{}
	names := 0
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		names++
		inos[info.Sys().(*syscall.Stat_t).Ino] = p
		return nil
	})
	// 12 entries, 2 folders that are implied and the root of each, and the root; two of the
	// names of each are of a file that has another.
	if err != nil || names != 2*15+1 || len(inos) != names-4 {
		t.Errorf("%d names of %d files, %v", names, len(inos), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "b", "third")); err != nil || string(b) != "content\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTheSystemsOwnSuite(t *testing.T) {
	testkit.NeedsFUSE(t)
	a := open(t, "../format/rvn/testdata/deep.rvn", holdall.OpenOptions{})
	var names []string
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if names = append(names, e.Name); len(names) == 20 {
			break
		}
	}
	dir := mounted(t, mount.Options{}, mount.Tree{Archive: a})
	if err := fstest.TestFS(os.DirFS(dir), names...); err != nil {
		t.Error(err)
	}
}

func TestProgramsReadIt(t *testing.T) {
	testkit.NeedsFUSE(t)
	p := kinds(t)
	dir := mounted(t, mount.Options{}, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	run := func(name string, args ...string) string {
		t.Helper()
		testkit.Program(t, name)
		var stderr bytes.Buffer
		cmd := exec.Command(name, args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, stderr.String())
		}
		return string(out)
	}
	if n := strings.Count(run("find", dir, "-type", "f"), "\n"); n != 9 {
		t.Errorf("find: %d files", n)
	}
	// What tar makes of the mount has the same files, one of them under three names.
	out := run("tar", "c", "-C", dir, "--exclude", "lost", ".")
	links, sum := 0, 0
	for r := tar.NewReader(strings.NewReader(out)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		sum += len(b)
		if h.Typeflag == tar.TypeLink {
			links++
		}
		if h.Typeflag == tar.TypeReg && h.Name == "./implied/a/b" && (string(b) != "b" || h.Mode != 0o640 || h.ModTime.Unix() != 1_700_000_000) {
			t.Errorf("%+v, %q", h, b)
		}
	}
	if want := len("content\n" + "outside" + "backslash" + "long" + "b"); links != 2 || sum != want {
		t.Errorf("tar: %d links, %d bytes, expected %d", links, sum, want)
	}
}

func TestGitWorksInIt(t *testing.T) {
	testkit.NeedsFUSE(t)
	testkit.Program(t, "git")
	repo := t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "safe.directory=*", "-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_OPTIONAL_LOCKS=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	git(repo, "init", "-q")
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(repo, fmt.Sprintf("file%d", i)), []byte(strings.Repeat("line\n", i)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git(repo, "add", "-A")
	git(repo, "commit", "-q", "-m", "first")
	git(repo, "gc", "-q")
	p := filepath.Join(t.TempDir(), "repo.tar")
	if out, err := exec.Command("tar", "cf", p, "-C", repo, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := mounted(t, mount.Options{}, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	if s := git(dir, "status", "--porcelain"); s != "" {
		t.Errorf("status: %q", s)
	}
	if s := git(dir, "log", "--oneline"); !strings.HasSuffix(s, "first\n") {
		t.Errorf("log: %q", s)
	}
	git(dir, "fsck", "--strict")
}

// far is an archive of random files in a store that is not near.
func far(t *testing.T, formatName string, files, size int) (*storetest.Mem, map[string][]byte) {
	t.Helper()
	src := t.TempDir()
	all := map[string][]byte{}
	r := rand.NewChaCha8([32]byte{1})
	for i := range files {
		b := make([]byte, size)
		r.Read(b)
		name := fmt.Sprintf("f%03d", i)
		all[name] = b
		if err := os.WriteFile(filepath.Join(src, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	in, err := holdall.Open(t.Context(), src, holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var param map[string]string
	if formatName == "rvn" {
		param = map[string]string{"level": "fastest"} // random bytes do not get smaller
	}
	m := &storetest.Mem{}
	if _, err := holdall.Convert(t.Context(), in, "x", holdall.PackOptions{Store: m, Format: formatName, Param: param}); err != nil {
		t.Fatal(err)
	}
	return m, all
}

func openIn(t *testing.T, st store.Store, o holdall.OpenOptions) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), "x", o.In(st))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Eight read at random while little is cached, and others list. HOLDALL_LONG makes it 30 s.
func TestManyReadAtRandom(t *testing.T) { bothWays(t, manyReadAtRandom) }

func manyReadAtRandom(t *testing.T, o mount.Options) {
	each, files, size := 40, 40, 700_000
	switch {
	case os.Getenv(testkit.LongVar) != "":
		each = 2000
	case testkit.Race():
		each, files, size = 15, 20, 300_000
	}
	for _, formatName := range []string{"caf", "rvn"} {
		t.Run(formatName, func(t *testing.T) {
			t.Parallel()
			st, all := far(t, formatName, files, size)
			dir := mounted(t, o, mount.Tree{Archive: openIn(t, st, holdall.OpenOptions{CacheBytes: 1 << 20})})
			var wg sync.WaitGroup
			var reads atomic.Int64
			for g := range 8 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(g), 1))
					for range each {
						name := fmt.Sprintf("f%03d", r.IntN(len(all)))
						want := all[name]
						f, err := os.Open(filepath.Join(dir, name))
						if err != nil {
							t.Error(err)
							return
						}
						// The pages that the system has it is to read again.
						unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
						var got []byte
						off := 0
						if g%2 == 0 {
							got, err = io.ReadAll(f)
						} else {
							off = r.IntN(len(want))
							got = make([]byte, min(r.IntN(100_000), len(want)-off))
							_, err = f.ReadAt(got, int64(off))
							want = want[off:][:len(got)]
						}
						f.Close()
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("%s from %d: %d bytes, %v", name, off, len(got), err)
							return
						}
						reads.Add(1)
						if r.IntN(10) == 0 {
							if list, err := os.ReadDir(dir); err != nil || len(list) != len(all) {
								t.Errorf("%d entries, %v", len(list), err)
							}
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d reads", reads.Load())
		})
	}
}

func TestAFailingSourceIsAnErrorOfThatRead(t *testing.T) {
	bothWays(t, aFailingSourceIsAnErrorOfThatRead)
}

func aFailingSourceIsAnErrorOfThatRead(t *testing.T, o mount.Options) {
	st, all := far(t, "caf", 8, 300_000)
	var broken atomic.Bool
	wrong := errors.New("the cable is out")
	faulty := storetest.Fault(st, func(op, _ string, off, _ int64) error {
		if broken.Load() && op == "read" {
			return wrong
		}
		return nil
	})
	log := &testkit.Text{}
	a := openIn(t, faulty, holdall.OpenOptions{CacheBytes: 1 << 16})
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	dir := mounted(t, o, mount.Tree{Archive: a})
	if b, err := os.ReadFile(filepath.Join(dir, "f000")); err != nil || !bytes.Equal(b, all["f000"]) {
		t.Fatal(len(b), err)
	}
	broken.Store(true)
	if _, err := os.ReadFile(filepath.Join(dir, "f005")); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if strings.Count(log.String(), "the cable is out") == 0 || strings.Count(log.String(), "entry=f005") == 0 {
		t.Errorf("the log says %s", log.String())
	}
	// What the system has it still has.
	if b, err := os.ReadFile(filepath.Join(dir, "f000")); err != nil || !bytes.Equal(b, all["f000"]) {
		t.Error(len(b), err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 8 {
		t.Error(list, err)
	}
	broken.Store(false)
	if b, err := os.ReadFile(filepath.Join(dir, "f005")); err != nil || !bytes.Equal(b, all["f005"]) {
		t.Error(len(b), err)
	}
}

// A slow store answers nothing, once it is told to, until whoever asks gives up.
type slow struct {
	store.Store
	on      atomic.Bool
	waiting chan struct{}
	givenUp chan error
}

func (*slow) Can() store.Abilities { return store.Abilities{} }

func (s *slow) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return slowObject{o, s}, err
}

type slowObject struct {
	store.Object
	s *slow
}

func (slowObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o slowObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if !o.s.on.Load() {
		return o.Object.ReadAt(ctx, p, off)
	}
	o.s.waiting <- struct{}{}
	<-ctx.Done()
	o.s.givenUp <- ctx.Err()
	return ctx.Err()
}

// Who is waiting for a read can be interrupted at once. The read is cancelled where the
// system tells of it, which it does not of what it reads into its own cache.
func TestAnInterruptedReadIsCancelled(t *testing.T) { bothWays(t, anInterruptedReadIsCancelled) }

func anInterruptedReadIsCancelled(t *testing.T, o mount.Options) {
	testkit.Program(t, "dd")
	st, all := far(t, "caf", 4, 300_000)
	s := &slow{Store: st, waiting: make(chan struct{}, 100), givenUp: make(chan error, 100)}
	dir := mounted(t, o, mount.Tree{Archive: openIn(t, s, holdall.OpenOptions{CacheBytes: 1 << 16})})
	s.on.Store(true)
	for _, args := range [][]string{{"dd", "iflag=direct", "bs=4096", "count=1", "of=/dev/null", "if=" + filepath.Join(dir, "f002")}, {"cat", filepath.Join(dir, "f001")}} {
		cmd := exec.Command(args[0], args[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-s.waiting
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait() // or else it waits for ever
		if args[0] == "cat" {
			break
		}
		if err := <-s.givenUp; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	s.on.Store(false)
	if b, err := os.ReadFile(filepath.Join(dir, "f003")); err != nil || !bytes.Equal(b, all["f003"]) {
		t.Error(len(b), err)
	}
}

// A mount that is to end ends, whoever still waits for a read.
func TestAnUnmountEndsReads(t *testing.T) { bothWays(t, anUnmountEndsReads) }

func anUnmountEndsReads(t *testing.T, o mount.Options) {
	st, _ := far(t, "caf", 4, 300_000)
	s := &slow{Store: st, waiting: make(chan struct{}, 100), givenUp: make(chan error, 100)}
	dir := t.TempDir()
	m, err := mount.New(dir, []mount.Tree{{Archive: openIn(t, s, holdall.OpenOptions{CacheBytes: 1 << 16})}}, o)
	if err != nil {
		t.Fatal(err)
	}
	s.on.Store(true)
	failed := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(filepath.Join(dir, "f002"))
		failed <- err
	}()
	<-s.waiting
	if lazily, err := m.Unmount(); err != nil || lazily {
		t.Errorf("%v, %v", lazily, err)
	}
	if err := <-failed; err == nil {
		t.Error("the read went well")
	}
	if _, err := os.Stat(filepath.Join(dir, "f002")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// rewritten makes a file another one, in place.
func rewritten(t *testing.T, p string, b []byte) {
	t.Helper()
	if err := os.WriteFile(p, b, 0o666); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(time.Hour)
	if err := os.Chtimes(p, when, when); err != nil {
		t.Fatal(err)
	}
}

// versions returns two archives of the same names.
func versions(t *testing.T) (one, two []byte) {
	t.Helper()
	for i := range 2 {
		m := &storetest.Mem{}
		src := t.TempDir()
		files := map[string]string{"same": "same", "changes": strings.Repeat(strconv.Itoa(i), 3_000_000), "dir/x": "x", fmt.Sprintf("only%d", i): "only"}
		if i == 1 {
			files["kind/is now a folder"] = "y"
		} else {
			files["kind"] = "y"
		}
		testkit.Tree(t, src, files)
		in, err := holdall.Open(t.Context(), src, holdall.OpenOptions{Format: "dir"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holdall.Convert(t.Context(), in, "x", holdall.PackOptions{Store: m, Format: "caf"}); err != nil {
			t.Fatal(err)
		}
		in.Close()
		one, two = two, m.Get("x")
	}
	return one, two
}

func TestAnArchiveThatChangedIsStale(t *testing.T) { bothWays(t, anArchiveThatChangedIsStale) }

func anArchiveThatChangedIsStale(t *testing.T, o mount.Options) {
	one, two := versions(t)
	p := filepath.Join(t.TempDir(), "x.caf")
	rewritten(t, p, one)
	log := &testkit.Text{}
	o.Poll = 50 * time.Millisecond
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	dir := mounted(t, o, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	if b, err := os.ReadFile(filepath.Join(dir, "same")); err != nil || string(b) != "same" {
		t.Fatal(string(b), err)
	}
	rewritten(t, p, two[:len(two)-1])
	var err error
	testkit.Until(t, "the change is seen", func() bool {
		var f *os.File
		if f, err = os.Open(filepath.Join(dir, "changes")); err != nil {
			return true
		}
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		_, err = io.ReadAll(f)
		f.Close()
		return err != nil
	})
	if !errors.Is(err, syscall.ESTALE) {
		t.Errorf("%v", err)
	}
	for range 3 {
		if _, err := os.ReadFile(filepath.Join(dir, "dir/x")); !errors.Is(err, syscall.ESTALE) {
			t.Errorf("%v", err)
		}
	}
	// What the system had in memory it is to forget.
	testkit.Until(t, "the system forgets", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "same"))
		if !errors.Is(err, syscall.ESTALE) && (err != nil || string(b) != "same") {
			t.Fatalf("%q, %v", b, err)
		}
		return err != nil
	})
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, log.String())
	}
}

func TestAMountFollowsItsArchive(t *testing.T) {
	testkit.NeedsFUSE(t)
	one, two := versions(t)
	for _, how := range []string{"in place", "by another file"} {
		t.Run(how, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "x.caf")
			rewritten(t, p, one)
			log := &testkit.Text{}
			dir := mounted(t, mount.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Poll: 50 * time.Millisecond}, mount.Tree{
				Archive: open(t, p, holdall.OpenOptions{}),
				Reopen: func(ctx context.Context) (*holdall.Archive, error) {
					return holdall.Open(ctx, p, holdall.OpenOptions{})
				},
				Version: func(ctx context.Context) string {
					info, err := os.Stat(p)
					if err != nil {
						return ""
					}
					return fmt.Sprint(info.ModTime(), info.Size(), info.Sys().(*syscall.Stat_t).Ino)
				},
			})
			at := func(name string) string { return filepath.Join(dir, name) }
			if b, err := os.ReadFile(at("changes")); err != nil || b[0] != '0' {
				t.Fatal(len(b), err)
			}
			old, err := os.Open(at("changes"))
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			for name, there := range map[string]bool{"only0": true, "only1": false, "kind": true, "dir/x": true} {
				if _, err := os.Stat(at(name)); (err == nil) != there {
					t.Errorf("%s: %v", name, err)
				}
			}
			os.ReadDir(dir)
			if how == "in place" {
				rewritten(t, p, two)
			} else {
				rewritten(t, p+".new", two)
				if err := os.Rename(p+".new", p); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Until(t, "it is mounted again", func() bool { return strings.Contains(log.String(), "reopened") })
			testkit.Until(t, "the system believes no more what was there", func() bool {
				for name, there := range map[string]bool{"only0": false, "only1": true, "kind/is now a folder": true, "dir/x": true} {
					if _, err := os.Stat(at(name)); (err == nil) != there {
						return false
					}
				}
				return true
			})
			b, err := os.ReadFile(at("changes"))
			if err != nil || len(b) != 3_000_000 || strings.Trim(string(b), "1") != "" {
				t.Errorf("%d bytes, %v; the log says %s", len(b), err, log.String())
			}
			if _, err := io.ReadAll(old); !errors.Is(err, syscall.ESTALE) && err != nil {
				t.Errorf("what was open reads as %v", err)
			}
			list, err := os.ReadDir(dir)
			var names []string
			for _, d := range list {
				names = append(names, d.Name())
			}
			if got := strings.Join(names, " "); err != nil || got != "changes dir kind only1 same" {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

func TestFoldersThatCannotBeMountedAt(t *testing.T) {
	testkit.NeedsFUSE(t)
	a := open(t, kinds(t), holdall.OpenOptions{})
	defer a.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		filepath.Join(dir, "none"): "expected a folder to mount at, found nothing",
		file:                       "expected a folder to mount at, found a file",
		dir:                        "expected an empty folder to mount at, found file in it",
	} {
		_, err := mount.New(at, []mount.Tree{{Archive: a}}, mount.Options{})
		if err == nil || err.Error() != at+": "+want {
			t.Errorf("%s: %v", at, err)
		}
	}
	m, err := mount.New(dir, []mount.Tree{{Archive: open(t, kinds(t), holdall.OpenOptions{})}}, mount.Options{NonEmpty: true})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "dir/file")); err != nil || string(b) != "content\n" {
		t.Error(err)
	}
	// Somebody is in it.
	f, err := os.Open(filepath.Join(dir, "dir"))
	if err != nil {
		t.Fatal(err)
	}
	if lazily, err := m.Unmount(); !lazily || err != nil {
		t.Errorf("%v, %v", lazily, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	f.Close()
	<-m.Done() // with the last one in it
}

// manyTar writes a tar of n empty files in the folder d, after a file long unless that is empty.
func manyTar(t *testing.T, n int, long []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "many.tar")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if len(long) > 0 {
		err = w.WriteHeader(&tar.Header{Name: "long", Mode: 0o644, Size: int64(len(long))})
		if _, werr := w.Write(long); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d/%06d", i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAFolderOfManyIsListedPageByPage(t *testing.T) {
	testkit.NeedsFUSE(t)
	const n = 20_000
	p := manyTar(t, n, nil)
	dir := mounted(t, mount.Options{}, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			list, err := os.ReadDir(filepath.Join(dir, "d"))
			if err != nil || len(list) != n {
				t.Errorf("%d entries, %v", len(list), err)
			}
			for i, d := range list {
				if d.Name() != fmt.Sprintf("%06d", i) {
					t.Errorf("number %d is %s", i, d.Name())
					return
				}
			}
		})
	}
	wg.Wait()
	d, err := os.Open(filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 { // from the beginning again
		some, err := d.Readdirnames(5000)
		if err != nil || len(some) != 5000 || some[0] != "000000" {
			t.Errorf("%d, %v", len(some), err)
		}
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnotherArchiveTakesItsPlace checks that programs do not notice that an archive is replaced
// by the same one opened by an index, and that the first one is not kept in memory.
func TestAnotherArchiveTakesItsPlace(t *testing.T) {
	bothWays(t, func(t *testing.T, o mount.Options) {
		anotherArchiveTakesItsPlace(t, mount.Rest(o, 10*time.Millisecond))
	})
}

func anotherArchiveTakesItsPlace(t *testing.T, o mount.Options) {
	const n = 3000
	long := testkit.Noise(testkit.Rand(t), 3<<20)
	p := manyTar(t, n, long)
	if _, err := holdall.BuildIndex(t.Context(), p, p+".index", holdall.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	mayGo := make(chan struct{})
	tree := mount.Tree{Archive: open(t, p, holdall.OpenOptions{}), Aside: func(ctx context.Context, _ *holdall.Archive) *holdall.Archive {
		select {
		case <-mayGo:
		case <-ctx.Done():
			return nil
		}
		a, err := holdall.Open(ctx, p, holdall.OpenOptions{Index: holdall.UseIndex{At: p + ".index"}})
		if err != nil {
			t.Error(err)
		}
		return a
	}}
	first := weak.Make(tree.Archive)
	m, dir := whole(t, o, tree)
	tree.Archive = nil
	was, err := os.Stat(filepath.Join(dir, "d", "000007"))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(filepath.Join(dir, "long"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(long))
	if _, err := io.ReadFull(reader, got[:1000]); err != nil {
		t.Fatal(err)
	}
	list, err := os.Open(filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := list.Readdirnames(100)
	if err != nil {
		t.Fatal(err)
	}
	close(mayGo)
	testkit.Until(t, "it is replaced", m.Replaced)
	if _, err := io.ReadFull(reader, got[1000:]); err != nil || !bytes.Equal(got, long) {
		t.Errorf("a file that was open: %v", err)
	}
	rest, err := list.Readdirnames(-1)
	if names = append(names, rest...); err != nil || len(names) != n {
		t.Errorf("a folder that was open: %d names, %v", len(names), err)
	}
	if err := errors.Join(reader.Close(), list.Close()); err != nil {
		t.Fatal(err)
	}
	is, err := os.Stat(filepath.Join(dir, "d", "000007"))
	if err != nil || !os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) || was.Mode() != is.Mode() {
		t.Errorf("%v, %v, %v", was, is, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "long")); err != nil || !bytes.Equal(b, long) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	testkit.Until(t, "the first archive is not in memory any more", func() bool {
		runtime.GC()
		return first.Value() == nil
	})
}

// What is damaged is EIO: small files at their first read, long ones at the end of
// reading them, and from then on.
func TestDamageIsAnError(t *testing.T) {
	testkit.Long(t)
	bothWays(t, func(t *testing.T, o mount.Options) {
		for _, k := range []string{"caf", "rvn", "databundle", "zip"} {
			t.Run(k, func(t *testing.T) {
				rnd := testkit.Rand(t)
				files := map[string]string{}
				for name, n := range map[string]int{"small": 5000, "middle": 200_000, "long": 3 << 20, "sound": 2 << 20} {
					b := make([]byte, n)
					for i := range b {
						b[i] = byte(rnd.Uint32())
					}
					files[name] = string(b)
				}
				p := filepath.Join(t.TempDir(), "x."+k)
				src := testkit.Tree(t, t.TempDir(), files)
				if _, err := holdall.Pack(t.Context(), p, []string{src}, holdall.PackOptions{Format: k}); err != nil {
					t.Fatal(err)
				}
				damage(t, p, "small", "middle", "long")
				dir := mounted(t, o, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
				refused := 0
				for range 2 {
					for name, want := range files {
						b, err := os.ReadFile(filepath.Join(dir, name))
						switch {
						case name == "sound" && (err != nil || string(b) != want):
							t.Errorf("%s: %d bytes, %v", name, len(b), err)
						case err == nil && string(b) == want && (k == "rvn" || k == "databundle"):
							// The damage is in another file of its block.
						case name != "sound" && !errors.Is(err, syscall.EIO):
							t.Errorf("%s: %d bytes, %v", name, len(b), err)
						case name == "small" && len(b) > 0:
							t.Errorf("%s: %d bytes before the error", name, len(b))
						case name != "sound":
							refused++
						}
					}
				}
				if refused < 2 {
					t.Error("no damage was met")
				}
			})
		}
	})
}

// What is damaged of an archive with parity is read as it was, short and long.
func TestDamageIsHealed(t *testing.T) {
	bothWays(t, func(t *testing.T, o mount.Options) {
		for _, k := range []string{"caf", "rvn", "tar"} {
			rnd := testkit.Rand(t)
			files := map[string]string{"small": string(testkit.Noise(rnd, 5000)), "long": string(testkit.Noise(rnd, 1<<20)), "sound": string(testkit.Noise(rnd, 300_000))}
			p := filepath.Join(t.TempDir(), "x."+k)
			if _, err := holdall.Pack(t.Context(), p, []string{testkit.Tree(t, t.TempDir(), files)}, holdall.PackOptions{Format: k}); err != nil {
				t.Fatal(err)
			}
			if _, err := holdall.Protect(t.Context(), []string{p}, p+parity.Suffix, holdall.ProtectOptions{}); err != nil {
				t.Fatal(err)
			}
			damage(t, p, "small", "long")
			dir := mounted(t, o, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
			for range 2 {
				for name, want := range files {
					if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
						t.Errorf("%s of %s: %d bytes, %v", name, k, len(b), err)
					}
				}
			}
		}
	})
}

// Each byte of content is changed, in an archive of its own: no file has a wrong byte in it.
func TestEveryDamagedByteIsAnError(t *testing.T) {
	bothWays(t, func(t *testing.T, o mount.Options) {
		rnd := testkit.Rand(t)
		files := map[string]string{"a": "alpha", "b": strings.Repeat("beta", 8), "c": "gamma" + strings.Repeat("\x00\x01\x02", 8)}
		src := testkit.Tree(t, t.TempDir(), files)
		var trees []mount.Tree
		for _, k := range []string{"caf", "lindi", "rvn", "zip"} {
			p := filepath.Join(t.TempDir(), "x."+k)
			if _, err := holdall.Pack(t.Context(), p, []string{src}, holdall.PackOptions{Format: k}); err != nil {
				t.Fatal(err)
			}
			was, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			for at := range contentOf(t, p) {
				b := bytes.Clone(was)
				b[at] ^= 1 << rnd.IntN(8)
				st := &storetest.Mem{}
				st.Put("x", b)
				a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Format: k})
				if err != nil {
					t.Fatal(err)
				}
				trees = append(trees, mount.Tree{Archive: a, Name: fmt.Sprintf("%s-%d", k, at)})
			}
		}
		dir := mounted(t, o, trees...)
		refused := 0
		for _, tree := range trees {
			for name, want := range files {
				p := filepath.Join(dir, tree.Name, name)
				f, err := os.Open(p)
				if err != nil {
					t.Fatal(err)
				}
				part := make([]byte, 3)
				if _, err := f.ReadAt(part, 2); err != nil {
					refused++
				} else if string(part) != want[2:5] {
					t.Errorf("%s: a part is %q", p, part)
				}
				f.Close()
				if b, err := os.ReadFile(p); err != nil {
					refused++
				} else if string(b) != want {
					t.Errorf("%s: %q", p, b)
				}
			}
		}
		if refused < 2*len(trees) {
			t.Errorf("of %d archives %d reads were refused", len(trees), refused)
		}
	})
}

// contentOf yields the places of an archive where it stores content, each once.
func contentOf(t *testing.T, p string) map[int64]bool {
	t.Helper()
	a := open(t, p, holdall.OpenOptions{})
	defer a.Close()
	all := map[int64]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			for at := range x.Len {
				all[x.Off+at] = all[x.Off+at] || !e.Internal
			}
		}
	}
	maps.DeleteFunc(all, func(_ int64, content bool) bool { return !content })
	return all
}

// damage changes a bit in the middle of what is stored of each file.
func damage(t *testing.T, p string, names ...string) {
	t.Helper()
	a := open(t, p, holdall.OpenOptions{})
	defer a.Close()
	for _, name := range names {
		e, err := a.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var last format.Extent
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if last = x; x.At+x.Size > e.Size/2 {
				break
			}
		}
		f, err := os.OpenFile(filepath.Join(filepath.Dir(p), last.Object), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, at := make([]byte, 1), last.Off+last.Len/2
		_, err = f.ReadAt(b, at)
		b[0] ^= 4
		if _, werr := f.WriteAt(b, at); errors.Join(err, werr, f.Close()) != nil {
			t.Fatal(err, werr)
		}
	}
}
