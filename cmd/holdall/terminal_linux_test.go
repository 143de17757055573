package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdall/holdall/internal/base/screen"
	"github.com/holdall/holdall/internal/testkit"
)

// onTerminal runs a verb with its output on a terminal of that many columns.
func onTerminal(t *testing.T, columns int, args ...string) (code int, shown string) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Missing(t, "terminals", err.Error())
	}
	defer m.Close()
	fd := int(m.Fd())
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)})
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(m) // it ends with an error when the other side is closed
		read <- strings.ReplaceAll(string(b), "\r\n", "\n")
	}()
	code = newApp(strings.NewReader(""), s, s).run(t.Context(), args)
	s.Close()
	return code, <-read
}

func TestOnATerminal(t *testing.T) {
	plainly(t)
	t.Chdir(t.TempDir())
	long := strings.Repeat("e\u0301", 20) + "/" + strings.Repeat("名前", 15) + "/" + strings.Repeat("folder/", 9) + "x\x1b[31m.txt"
	testkit.Tree(t, "in", map[string]string{long: "the content of a file", "b.txt": "foo and foo\n"})
	if s := verb(t, "pack", "-q", "-o", "x.caf", "in"); s.code != 0 {
		t.Fatal(s)
	}
	b, err := os.ReadFile("x.caf")
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(string(b), "the content", "The content", 1))
	archive := strings.Repeat("a-long-name-", 8) + ".caf"
	if err := os.WriteFile(archive, b, 0o666); err != nil {
		t.Fatal(err)
	}
	pipe := verb(t, "verify", archive)
	for _, columns := range []int{80, 60, 120} {
		code, shown := onTerminal(t, columns, "verify", archive)
		lines := strings.Split(onlyColour.ReplaceAllString(shown, ""), "\n")
		if code != 1 || len(lines) < 4 || !strings.HasPrefix(lines[0], "error: ") || !strings.HasSuffix(lines[0], "x\\x1b[31m.txt: bad-checksum") || !strings.HasPrefix(lines[1], "    expected blake3:") {
			t.Fatalf("in %d columns: %d\n%s", columns, code, shown)
		}
		for _, line := range lines {
			if n := screen.Width(line); n > columns && !strings.HasPrefix(line, archive) {
				t.Errorf("%d columns instead of %d: %s", n, columns, line)
			}
		}
		if columns == 80 && (len(lines) != 5 || strings.Count(lines[1], "…") != 2 || screen.Width(lines[0]) < 78) {
			t.Errorf("in 80 columns:\n%s", shown)
		}
		if !strings.Contains(shown, "\x1b[01;31merror:\x1b[0m") || !strings.Contains(shown, "\x1b[01;31m1 error\x1b[0m") {
			t.Errorf("errors are not red:\n%q", shown)
		}
	}
	if _, shown := onTerminal(t, 80, "verify", "-v", archive); onlyColour.ReplaceAllString(shown, "") != pipe.shown {
		t.Errorf("with -v, a terminal gets\n%s, and a pipe\n%s", shown, pipe.shown)
	}
	if _, shown := onTerminal(t, 80, "verify", "--json", archive); shown != verb(t, "verify", "--json", archive).shown {
		t.Errorf("with --json:\n%s", shown)
	}
	if code, shown := onTerminal(t, 80, "verify", "x.caf"); code != 0 || !strings.HasPrefix(shown, "x.caf: \x1b[01;32msound\x1b[0m; ") {
		t.Errorf("sound: %q", shown)
	}
	for _, tt := range []struct{ args, want string }{
		{"ls x.caf", "b.txt\n\x1b[01;34m" + strings.Repeat("e\u0301", 20) + "\x1b[0m/\n"},
		{"grep x.caf foo", "\x1b[35mb.txt\x1b[m\x1b[36m:\x1b[m\x1b[32m1\x1b[m\x1b[36m:\x1b[m\x1b[01;31mfoo\x1b[m and \x1b[01;31mfoo\x1b[m\n"},
		{"ls none.caf", "\x1b[01;31mholdall: ls:\x1b[0m open none.caf: no such file or directory\n"},
	} {
		if _, shown := onTerminal(t, 80, strings.Fields(tt.args)...); shown != tt.want {
			t.Errorf("%s: %q, not %q", tt.args, shown, tt.want)
		}
	}
	for _, v := range []string{"NO_COLOR=1", "TERM=dumb", "HOLDALL_COLOR=never", "HOLDALL_JSON=true"} {
		t.Run(v, func(t *testing.T) {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
			if _, shown := onTerminal(t, 80, "ls", "x.caf"); strings.Contains(shown, "\x1b") || shown == "" {
				t.Errorf("%q", shown)
			}
		})
	}
}
