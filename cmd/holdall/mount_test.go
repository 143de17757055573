//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// mountIn starts holdall in a folder with x.caf and an empty folder mnt, and
// waits until it has mounted or ended.
func mountIn(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, text *testkit.Text, ended chan error) {
	t.Helper()
	text = &testkit.Text{}
	cmd = exec.Command(os.Args[0], args...)
	cmd.Args[0] = "holdall" // makes the test binary be the command
	cmd.Dir, cmd.Stderr = dir, text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		_ = syscall.Unmount(filepath.Join(dir, "mnt"), syscall.MNT_DETACH)
	})
	testkit.Until(t, "it begins", func() bool {
		return strings.Contains(text.String(), "mounted ") || len(ended) > 0
	})
	return cmd, text, ended
}

func toMount(t *testing.T) string {
	t.Helper()
	testkit.NeedsFUSE(t)
	dir := t.TempDir()
	src := filepath.Join(dir, "src", "sub")
	err := errors.Join(os.MkdirAll(src, 0o777), os.Mkdir(filepath.Join(dir, "mnt"), 0o777),
		os.WriteFile(filepath.Join(src, "file"), []byte("content\n"), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.caf", "y.rvn"} {
		holdallIn(t, dir, "pack", "-q", "-o", name, "src")
	}
	return dir
}

func holdallIn(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Args[0] = "holdall"
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestMountEndsCleanly(t *testing.T) {
	dir := toMount(t)
	file := filepath.Join(dir, "mnt", "sub", "file")
	for _, c := range []struct {
		name string
		end  func(*exec.Cmd) error
		code int
		says string
	}{
		{"by Ctrl-C", func(c *exec.Cmd) error { return c.Process.Signal(os.Interrupt) }, 130, "interrupted"},
		{"by SIGTERM", func(c *exec.Cmd) error { return c.Process.Signal(syscall.SIGTERM) }, 130, "interrupted"},
		{"from outside", func(*exec.Cmd) error { return exec.Command("umount", filepath.Join(dir, "mnt")).Run() }, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, text, ended := mountIn(t, dir, "mount", "x.caf", "mnt")
			if b, err := os.ReadFile(file); err != nil || string(b) != "content\n" {
				t.Errorf("%q, %v; %s", b, err, text)
			}
			if err := c.end(cmd); err != nil {
				t.Fatal(err)
			}
			<-ended
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(text.String(), c.says) {
				t.Errorf("exit code %d, says %q", got, text)
			}
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("while in use", func(t *testing.T) {
		cmd, text, ended := mountIn(t, dir, "mount", "x.caf", "y.rvn", "mnt")
		if b, err := os.ReadFile(filepath.Join(dir, "mnt", "y.rvn", "sub", "file")); err != nil || string(b) != "content\n" {
			t.Errorf("%q, %v; %s", b, err, text)
		}
		d, err := os.Open(filepath.Join(dir, "mnt", "x.caf"))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		cmd.Process.Signal(os.Interrupt)
		<-ended
		if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(text.String(), "mnt is in use: it is detached") {
			t.Errorf("exit code %d, says %q", got, text)
		}
		if list, err := os.ReadDir(filepath.Join(dir, "mnt")); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		cmd, _, ended := mountIn(t, dir, "mount", "x.caf", "mnt")
		cmd.Process.Kill()
		<-ended
		_, text, code := holdallIn(t, dir, "mount", "x.caf", "mnt")
		if code != 2 || !strings.Contains(text, " mnt clears it\n") || !strings.Contains(text, "mnt is a mount point whose process has ended: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("exit code %d, says %q", code, text)
		}
	})
}

func TestMountInTheBackground(t *testing.T) {
	dir := toMount(t)
	at := filepath.Join(dir, "mnt")
	// A reader of the command's output must not have to wait for the daemon.
	out, text, code := holdallIn(t, dir, "mount", "--json", "--daemon", "--log", "log", "x.caf", "mnt")
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	var m mountedJSON
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil || m.Archive != "x.caf" || m.Dir != "mnt" {
		t.Fatalf("exit code %d, %v, prints %q, says %q", code, err, out, text)
	}
	if b, err := os.ReadFile(filepath.Join(at, "sub", "file")); err != nil || string(b) != "content\n" {
		t.Errorf("%q, %v", b, err)
	}
	// Its log is a file.
	f, err := os.OpenFile(filepath.Join(dir, "x.caf"), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("C"), 0)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "it begins", func() bool {
		f, err := os.Open(filepath.Join(at, "sub", "file"))
		if err == nil {
			_, err = io.ReadAll(f)
			f.Close()
		}
		b, _ := os.ReadFile(filepath.Join(dir, "log"))
		return errors.Is(err, syscall.ESTALE) && bytes.Contains(b, []byte("the archive has changed"))
	})
	if err := exec.Command("umount", at).Run(); err != nil {
		t.Error(err)
	}
	out, text, code = holdallIn(t, dir, "mount", "--daemon", "x.caf", "none")
	if code != 2 || !strings.Contains(text, "none: expected a folder to mount at, found nothing") {
		t.Errorf("exit code %d, prints %q, says %q", code, out, text)
	}
	out, text, code = holdallIn(t, dir, "mount", "--daemon", "x.caf", "y.rvn", "mnt")
	if code != 0 || out != "" || strings.Count(text, "mounted ") != 2 {
		t.Errorf("exit code %d, prints %q, says %q", code, out, text)
	}
	if err := exec.Command("umount", at).Run(); err != nil {
		t.Error(err)
	}
}

func TestMountGoesOnWithoutWhatCannotBeOpened(t *testing.T) {
	dir := toMount(t)
	if err := os.WriteFile(filepath.Join(dir, "bad.caf"), []byte("no archive"), 0o666); err != nil {
		t.Fatal(err)
	}
	mounted := func() {
		t.Helper()
		// x.caf is where it would be if all were mounted.
		if list, err := os.ReadDir(filepath.Join(dir, "mnt")); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "mnt", "x.caf", "sub", "file")); err != nil || string(b) != "content\n" {
			t.Errorf("%q, %v", b, err)
		}
	}
	cmd, text, ended := mountIn(t, dir, "mount", "bad.caf", "x.caf", "lost.caf", "mnt")
	mounted()
	cmd.Process.Signal(os.Interrupt)
	<-ended
	if said := text.String(); cmd.ProcessState.ExitCode() != 130 || strings.Count(said, "bad.caf") != 1 || strings.Count(said, "lost.caf: no such file") != 1 || strings.Count(said, "mounted ") != 1 {
		t.Errorf("exit code %d, says %q", cmd.ProcessState.ExitCode(), said)
	}
	out, said, code := holdallIn(t, dir, "mount", "--daemon", "--json", "bad.caf", "x.caf", "mnt")
	mounted()
	if err := exec.Command("umount", filepath.Join(dir, "mnt")).Run(); err != nil {
		t.Error(err)
	}
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], `{"archive":"bad.caf","error":{"code":`) || lines[1] != `{"archive":"x.caf","dir":"mnt/x.caf"}` {
		t.Errorf("exit code %d, %q, says %q", code, out, said)
	}
	if _, said, code := holdallIn(t, dir, "mount", "bad.caf", "lost.caf", "mnt"); code != 2 || !strings.Contains(said, "bad.caf") || !strings.Contains(said, "lost.caf") {
		t.Errorf("exit code %d, says %q", code, said)
	}
}

func TestMountSaysWhatIsWrong(t *testing.T) {
	dir := toMount(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"x.caf"}, "expected an archive and a folder, found 1 argument"},
		{[]string{"x.caf", "x.caf"}, "x.caf: expected a folder to mount at, found a file"},
		{[]string{"x.caf", "src"}, "src: expected an empty folder to mount at, found sub in it"},
		{[]string{"nothing.caf", "mnt"}, "nothing.caf"},
		{[]string{"--log", "l", "x.caf", "mnt"}, "--log needs --daemon"},
		{[]string{"--owner", "me", "x.caf", "mnt"}, "expected two numbers, UID:GID"},
	} {
		_, text, code := holdallIn(t, dir, append([]string{"mount"}, c.args...)...)
		if code != 2 || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit code %d, says %q", c.args, code, text)
		}
	}
}
