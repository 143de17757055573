//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestAWatchGoesOnUntilItIsInterrupted checks that a watch continues as the
// journal grows, and exits cleanly on an interrupt.
func TestAWatchGoesOnUntilItIsInterrupted(t *testing.T) {
	dir := testkit.Unpacked(t, "../../internal/oak/testdata/checkpoints.tar.gz")
	journal := filepath.Join(dir, "segmentstore", "journal.log")
	b := testkit.Read(t, journal)
	lines := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	newest := lines[len(lines)-1] + "\n"
	if err := os.WriteFile(journal, b[:len(b)-len(newest)], 0o666); err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(lines[len(lines)-3], " ")
	cmd := exec.Command(os.Args[0], "oak", "watch", "--interval", "0", "--from", before, "segmentstore")
	cmd.Args[0] = "holdall" // makes the test binary be the command
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	told := bufio.NewScanner(out)
	next := func(line string) {
		t.Helper()
		revision, _, _ := strings.Cut(line, " ")
		for told.Scan() {
			if strings.HasPrefix(told.Text(), revision) {
				return
			}
		}
		t.Fatalf("%s did not come: %s", revision, stderr.String())
	}
	next(lines[len(lines)-2])
	f, err := os.OpenFile(journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(newest); err != nil {
		t.Fatal(err)
	}
	f.Close()
	next(newest)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for told.Scan() {
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
