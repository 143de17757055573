//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
)

// TestInterrupt checks that Ctrl-C in the middle leaves no partial files,
// keeps the previous ones, and exits 130.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.Mkdir(big, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "2", "3", "4", "5", "6"} {
		f, err := os.Create(filepath.Join(big, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(8 << 30); err != nil { // takes no space, but long to read
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "small"), []byte("what was packed before"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.Pack(t.Context(), filepath.Join(dir, "x.caf"), []string{filepath.Join(dir, "small")}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(dir, "x.caf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pack", "-o", "x.caf", "big"},
		{"pack", "-o", "set.caf", "--chunk-size", "10GiB", "big"},
		{"pack", "-o", "x.caf", "-"},
		{"ls", "-"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], args...)
			cmd.Args[0] = "holdall" // makes the test binary be the command
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			testkit.Until(t, "it begins", func() bool { return len(temporaries(t, dir)) > 0 })
			cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
				t.Errorf("%v; %s", err, stderr.String())
			}
			if !strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("says %q", stderr.String())
			}
			if left := temporaries(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "x.caf")); !bytes.Equal(b, old) {
				t.Errorf("the old archive is gone: %v", err)
			}
			if made, _ := filepath.Glob(filepath.Join(dir, "set*")); len(made) > 0 {
				t.Errorf("chunks of a set that was not finished: %v", made)
			}
		})
	}
	// When it is killed, it leaves only files that the next run removes.
	cmd := exec.Command(os.Args[0], "pack", "-o", "x.caf", "big")
	cmd.Args[0] = "holdall"
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "it begins", func() bool { return len(temporaries(t, dir)) > 0 })
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	if b, err := os.ReadFile(filepath.Join(dir, "x.caf")); !bytes.Equal(b, old) {
		t.Errorf("the old archive is gone: %v", err)
	}
	cmd = exec.Command(os.Args[0], "pack", "-o", "x.caf", "small")
	cmd.Args[0] = "holdall"
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left := temporaries(t, dir); len(left) > 0 {
		t.Errorf("the next run left %v", left)
	}
}

// temporaries lists the unfinished files of a run.
func temporaries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if strings.Contains(d.Name(), "holdall-") {
			names = append(names, d.Name())
		}
	}
	return names
}
