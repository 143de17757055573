//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly || solaris

package sysfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const asked = "HOLDALL_TEST_LOCKED"

// TestMain also runs as a second process, which reports who has a lock.
func TestMain(m *testing.M) {
	if name := os.Getenv(asked); name != "" {
		by, err := RecordLocked(name)
		if err != nil {
			by = err.Error()
		}
		os.Stdout.WriteString(by)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func another(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asked+"="+name)
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Whoever asks in the process that has the lock does not take it away by that.
func TestAskingForALockTakesNoneAway(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if by := another(t, name); by != "" {
		t.Errorf("before: %q", by)
	}
	if by, err := LockRecord(f); by != "" || err != nil {
		t.Fatal(by, err)
	}
	if by, err := RecordLocked(name); by != "" || err != nil {
		t.Errorf("its own: %q, %v", by, err)
	}
	if by := another(t, name); !strings.HasPrefix(by, "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("locked: %q", by)
	}
	if err := UnlockRecord(f); err != nil {
		t.Fatal(err)
	}
	if by := another(t, name); by != "" {
		t.Errorf("afterwards: %q", by)
	}
	if _, err := RecordLocked(filepath.Dir(name)); err == nil {
		t.Error("a folder has no lock")
	}
	if _, err := RecordLocked(name + "?"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
