//go:build linux

package mount_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/mount"
)

// whole mounts archives for a test that looks into the mount.
func whole(t *testing.T, o mount.Options, trees ...mount.Tree) (*mount.Mount, string) {
	t.Helper()
	testkit.NeedsFUSE(t)
	dir := t.TempDir()
	m, err := mount.New(dir, trees, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if lazily, err := m.Unmount(); lazily || err != nil {
			t.Errorf("unmounted lazily: %v, %v", lazily, err)
		}
	})
	return m, dir
}

// What the system does not ask when files are opened it hears when they are read.
func TestWhatOpeningWouldSay(t *testing.T) {
	p := kinds(t)
	for way, c := range map[string]struct {
		opens, follow bool
		opened        uint64
	}{"unopened": {false, false, 0}, "opening": {true, false, 4}, "following": {false, true, 4}} {
		t.Run(way, func(t *testing.T) {
			tree := mount.Tree{Archive: open(t, p, holdall.OpenOptions{})}
			if c.follow {
				tree.Reopen = func(ctx context.Context) (*holdall.Archive, error) {
					return holdall.Open(ctx, p, holdall.OpenOptions{})
				}
			}
			m, dir := whole(t, mount.Opening(mount.Options{}, c.opens, 0), tree)
			for range 2 {
				for name, want := range map[string]string{"third": "content\n", "empty": ""} {
					if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
						t.Errorf("%s: %q, %v", name, b, err)
					}
				}
			}
			if n := m.Opened(); n != c.opened {
				t.Errorf("%d were opened, expected %d", n, c.opened)
			}
			for _, flag := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC} {
				if _, err := os.OpenFile(filepath.Join(dir, "third"), flag, 0); !errors.Is(err, syscall.EROFS) {
					t.Errorf("opened to write: %v", err)
				}
			}
			if _, err := os.ReadFile(filepath.Join(dir, "dir")); !errors.Is(err, syscall.EISDIR) {
				t.Errorf("a folder: %v", err)
			}
			lost := filepath.Join(dir, "lost")
			info, err := os.Stat(lost)
			if err != nil || info.Size() != 1 {
				t.Errorf("a link to nowhere: %+v, %v", info, err)
			}
			if _, err := os.ReadFile(lost); !errors.Is(err, syscall.EIO) {
				t.Errorf("it is read: %v", err)
			}
			// What does not go by read hears of it too.
			if f, err := os.Open(lost); err == nil {
				defer f.Close()
				r, w, perr := os.Pipe()
				if perr != nil {
					t.Fatal(perr)
				}
				defer r.Close()
				defer w.Close()
				if n, err := unix.Splice(int(f.Fd()), nil, int(w.Fd()), nil, 100, 0); n > 0 || !errors.Is(err, syscall.EIO) {
					t.Errorf("it is spliced: %d bytes, %v", n, err)
				}
			} else if !c.opens && !c.follow {
				t.Error(err)
			}
		})
	}
}

// Files that nobody opens are read ahead too, at several places at once, while the system
// forgets them; nothing is read ahead for ever, and not more than there is room for.
func TestReadingAheadOfFilesThatNobodyOpens(t *testing.T) {
	testkit.NeedsFUSE(t)
	st, all := far(t, "rvn", 80, 600_000)
	// Not so short that a slow machine rests between two reads.
	m, dir := whole(t, mount.Opening(mount.Options{}, false, time.Second), mount.Tree{Archive: openIn(t, st, holdall.OpenOptions{CacheBytes: 4 << 20})})
	half := func(name string) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) // the system is to ask for each
		got := make([]byte, 300_000)
		for off := 0; off < len(got); off += 20_000 {
			if _, err := f.ReadAt(got[off:off+20_000], int64(off)); err != nil {
				t.Errorf("%s from %d: %v", name, off, err)
				return
			}
		}
		if !bytes.Equal(got, all[name][:len(got)]) {
			t.Errorf("%s: not what it is", name)
		}
	}
	half("f000")
	if n, ahead := m.Readings(); n != 1 || ahead != 1 {
		t.Errorf("%d sequences of one file, %d ahead", n, ahead)
	}
	for i := range 80 {
		half(fmt.Sprintf("f%03d", i))
	}
	if n, ahead := m.Readings(); n > mount.MostReadings || ahead == 0 || ahead > 8 {
		t.Errorf("%d sequences, %d ahead", n, ahead)
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range 15 {
				name := fmt.Sprintf("f%03d", r.IntN(3))
				f, err := os.Open(filepath.Join(dir, name))
				if err != nil {
					t.Error(err)
					return
				}
				from := int64(r.IntN(3) * 200_000)
				got, err := io.ReadAll(io.NewSectionReader(f, from, 1<<20))
				f.Close()
				if err != nil || !bytes.Equal(got, all[name][from:]) {
					t.Errorf("%s from %d: %d bytes, %v", name, from, len(got), err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for forgetting := true; forgetting; {
		select {
		case <-done:
			forgetting = false
		case <-time.After(time.Millisecond):
			m.Forget()
		}
	}
	testkit.Until(t, "no sequence goes on for nobody", func() bool {
		n, ahead := m.Readings()
		return n+ahead == 0
	})
}

// A walk that only reads names tells the system of no file. Once files are looked up one by one,
// listings tell of all of them, and no file is looked up any more.
func TestListingsCarryAttributesOnceFilesAreLookedUp(t *testing.T) {
	const folders, files = 40, 150
	testkit.NeedsFUSE(t)
	src := t.TempDir()
	for i := range folders {
		dir := filepath.Join(src, fmt.Sprintf("d%02d", i))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for k := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", k)), []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := filepath.Join(t.TempDir(), "x.caf")
	if _, err := holdall.Pack(t.Context(), p, []string{src + "/."}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	m, dir := whole(t, mount.Options{}, mount.Tree{Archive: open(t, p, holdall.OpenOptions{})})
	walk := func(stat bool) {
		t.Helper()
		n := 0
		err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if n++; stat {
					_, err = d.Info()
				}
			}
			return err
		})
		if err != nil || n != folders*files {
			t.Fatalf("%d files, %v", n, err)
		}
	}
	walk(false)
	if n, want := m.Known(), 1+folders; n != want {
		t.Errorf("the system was told of %d entries, expected %d", n, want)
	}
	if n := m.Looks(); n > 0 {
		t.Errorf("%d files were looked up by a walk that only reads names", n)
	}
	m.Forget()
	m.Looked()
	walk(true)
	if n := m.Looks(); n > 0 {
		t.Errorf("%d files were looked up, though they had been listed", n)
	}
	if n, most := m.Known(), 1+folders*(1+files); n != most {
		t.Errorf("the system was told of %d entries, expected %d", n, most)
	}
}
