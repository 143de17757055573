//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/store/storekit"
)

// crashAt makes the test binary a writer that stops at a place and waits to be
// killed, or for a line that lets it go on.
const crashAt = "HOLDALL_LOCAL_CRASH_AT"

func TestMain(m *testing.M) {
	if place := os.Getenv(crashAt); place != "" {
		if err := writeUntil(place, os.Getenv("HOLDALL_LOCAL_CRASH_DIR")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const crashSize = 10 << 20

func writeUntil(place, dir string) error {
	stop := func(here string) {
		if here == place {
			fmt.Println("stopped")
			bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	ctx := context.Background()
	st := New(dir)
	if place == "amending" {
		a, err := st.Amend(ctx, "x")
		if err != nil {
			return err
		}
		stop("amending")
		return a.Close()
	}
	st.beforeRename = func() { stop("rename") }
	w, err := storekit.Create(ctx, st, "sub/x")
	if err != nil {
		return err
	}
	stop("created")
	for range crashSize >> 20 / 2 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	stop("writing")
	for range crashSize >> 20 / 2 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	stop("written")
	if _, err := w.Commit(ctx); err != nil {
		return err
	}
	stop("committed")
	return nil
}

// startWriter starts a process that writes sub/x in dir until it reaches place.
func startWriter(t *testing.T, dir, place string) (cmd *exec.Cmd, goOn io.WriteCloser) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashAt+"="+place, "HOLDALL_LOCAL_CRASH_DIR="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "stopped\n" {
		t.Fatalf("%s: expected it to stop, found %q, %v", place, line, err)
	}
	return cmd, in
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("expected the writer to be killed, but it ended by itself")
	}
}

func TestKilledWriterLeavesTheOldObjectAndOneFileThatTheNextRemoves(t *testing.T) {
	for _, place := range []string{"created", "writing", "written", "rename", "committed"} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "sub/x", "old")
			sub := filepath.Join(dir, "sub")
			cmd, _ := startWriter(t, dir, place)
			kill(t, cmd)
			st := New(dir)
			if place == "committed" {
				wantFiles(t, sub, "x")
				wantContent(t, st, "sub/x", strings.Repeat("\x00", crashSize))
				return
			}
			wantContent(t, st, "sub/x", "old")
			left := slices.DeleteFunc(filesIn(t, sub), func(name string) bool { return name == "x" })
			if len(left) != 1 || !isTemp(left[0]) {
				t.Fatalf("expected one temporary file, found %q", left)
			}
			if got := listed(t, st, ""); !slices.Equal(got, []string{"sub/x"}) {
				t.Errorf("listed: %q", got)
			}
			written(t, st, "sub/y", "another name is not concerned")
			if got := filesIn(t, sub); len(got) != 3 {
				t.Errorf("expected x, y and the temporary file of x, found %q", got)
			}
			written(t, st, "sub/x", "new")
			wantContent(t, st, "sub/x", "new")
			wantFiles(t, sub, "x", "y")
		})
	}
}

func TestLivingWritersFileIsNotRemoved(t *testing.T) {
	for _, place := range []string{"created", "writing", "rename"} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "sub/x", "old")
			cmd, goOn := startWriter(t, dir, place)
			st := New(dir)
			written(t, st, "sub/x", "from between")
			wantContent(t, st, "sub/x", "from between")
			if got := filesIn(t, filepath.Join(dir, "sub")); len(got) != 2 {
				t.Errorf("expected x and the other writer's file, found %q", got)
			}
			if _, err := io.WriteString(goOn, "\n"); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			wantContent(t, st, "sub/x", strings.Repeat("\x00", crashSize))
			wantFiles(t, filepath.Join(dir, "sub"), "x")
		})
	}
}

// When creating and removing files coincide, a writer could lose its file to a second writer that
// takes the first for dead.
func TestManyWritersOfANameDoNotLoseTheirFiles(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error)
	for g := range 8 {
		go func() {
			st := New(dir)
			st.NoSync = true
			for i := range 50 {
				w, err := storekit.Create(t.Context(), st, "x")
				if err == nil {
					_, err = fmt.Fprintf(w, "%d of %d", i, g)
				}
				if err == nil {
					_, err = w.Commit(t.Context())
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wantFiles(t, dir, "x")
}
