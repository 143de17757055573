package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lineWriter hands on what is written to it line by line.
type lineWriter struct {
	mu   sync.Mutex
	all  bytes.Buffer
	rest []byte
	to   chan string
}

func newLines() *lineWriter { return &lineWriter{to: make(chan string, 100)} }

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.to <- string(line)
		l.rest = rest
	}
}

func (l *lineWriter) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// served is a serve verb at work in this process.
type served struct {
	stdout, stderr *lineWriter
	interrupt      func()
	code           chan int
}

func startServing(t *testing.T, args ...string) *served {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &served{newLines(), newLines(), func() { cancel(errInterrupted) }, make(chan int, 1)}
	go func() {
		s.code <- newApp(nil, s.stdout, s.stderr).run(ctx, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...))
	}()
	t.Cleanup(s.interrupt)
	return s
}

// url waits for the next address that is served.
func (s *served) url(t *testing.T) string {
	t.Helper()
	select {
	case line := <-s.stderr.to:
		m := regexp.MustCompile(`^serving .* at (http://127\.0\.0\.1:\d+/.*)$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("says %q", line)
		}
		return m[1]
	case code := <-s.code:
		t.Fatalf("exit code %d: %s", code, s.stderr)
	case <-time.After(20 * time.Second):
		t.Fatal("it never began")
	}
	return ""
}

func (s *served) end(t *testing.T) {
	t.Helper()
	s.interrupt()
	select {
	case code := <-s.code:
		if code != exitInterrupted || !strings.HasSuffix(s.stderr.String(), "holdall: interrupted\n") {
			t.Errorf("exit code %d: %s", code, s.stderr)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
}

// toServe makes a folder and packs it as x.caf beside it.
func toServe(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.MkdirAll(filepath.Join(in, "d"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"hello.txt": "hello, world", "d/big": strings.Repeat("x", 3<<20)} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "pack", "-o", filepath.Join(dir, "x.caf"), in)
	return dir
}

// command runs a command line that succeeds, and returns its results.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != exitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
	}
	return out.String()
}

func fetch(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

func TestServeOneArchive(t *testing.T) {
	dir := toServe(t)
	s := startServing(t, filepath.Join(dir, "x.caf"))
	url := s.url(t)
	answer, body := fetch(t, url+"hello.txt", "Range", "bytes=7-")
	if answer.StatusCode != 206 || body != "world" || answer.Header.Get("ETag") == "" {
		t.Errorf("%s, %q, %v", answer.Status, body, answer.Header)
	}
	if answer, _ := fetch(t, url+"hello.txt", "Host", "evil.example"); answer.StatusCode != 403 {
		t.Errorf("asked as evil.example: %s", answer.Status)
	}
	if answer, _ := fetch(t, url, "Origin", "https://example.org"); answer.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without --cors: %v", answer.Header)
	}
	s.end(t)
	if _, err := http.Get(url); err == nil {
		t.Error("it still answers")
	}
}

// An archive in an archive is read through the server by holdall itself.
func TestServeWhatHoldallReads(t *testing.T) {
	dir := toServe(t)
	outer := filepath.Join(dir, "outer.caf")
	command(t, "pack", "-o", outer, filepath.Join(dir, "x.caf"), filepath.Join(dir, "in"))
	s := startServing(t, outer)
	url := s.url(t)
	if got := command(t, "ls", "-R", url+"x.caf"); got != "d/big\nhello.txt\n" {
		t.Errorf("ls: %q", got)
	}
	if got := command(t, "cat", url+"x.caf", "hello.txt"); got != "hello, world" {
		t.Errorf("cat: %q", got)
	}
	if got := command(t, "verify", url+"x.caf"); !strings.Contains(got, "sound; 2 entries") {
		t.Errorf("verify: %q", got)
	}
	s.end(t)
}

func TestServeSeveralBelowTheirNames(t *testing.T) {
	dir := toServe(t)
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o777); err != nil {
		t.Fatal(err)
	}
	x, other := filepath.Join(dir, "x.caf"), filepath.Join(dir, "other", "x.caf")
	command(t, "pack", "-o", other, x)
	s := startServing(t, "--cors", "--files", x, other, filepath.Join(dir, "in")+"/")
	for _, want := range []struct{ below, file, content string }{{"/x.caf/", "hello.txt", "hello, world"}, {"/x.caf-2/", "x.caf", ""}, {"/in/", "hello.txt", "hello, world"}} {
		url := s.url(t)
		if !strings.HasSuffix(url, want.below) {
			t.Errorf("%s, want it below %s", url, want.below)
		}
		answer, body := fetch(t, url+want.file)
		if answer.StatusCode != 200 || want.content != "" && body != want.content || answer.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %s, %v", url, answer.Status, answer.Header)
		}
	}
	s.end(t)
}

func TestServeSaysWhereForPrograms(t *testing.T) {
	x := filepath.Join(toServe(t), "x.caf")
	s := startServing(t, "--json", x)
	var got struct{ Archive, URL string }
	if err := json.Unmarshal([]byte(<-s.stdout.to), &got); err != nil || got.Archive != x {
		t.Fatalf("%+v, %v", got, err)
	}
	if answer, _ := fetch(t, got.URL+"hello.txt"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	s.end(t)
}

// An entry without a digest has the ETag of its archive's version: the same when
// it is served again, another when the archive is another.
func TestServeTellsVersionsApart(t *testing.T) {
	dir := toServe(t)
	x := filepath.Join(dir, "x.caf")
	tag := func() string {
		s := startServing(t, x)
		answer, _ := fetch(t, s.url(t)+"hello.txt")
		s.end(t)
		return answer.Header.Get("ETag")
	}
	command(t, "pack", "--plain", "-o", x, filepath.Join(dir, "in"))
	first, again := tag(), tag()
	command(t, "pack", "--plain", "-o", x, filepath.Join(dir, "in"))
	if changed := tag(); first == "" || again != first || changed == first {
		t.Errorf("%s, again %s, changed %s", first, again, changed)
	}
}

// Requests that are under way may end; those that do not are ended.
func TestServeEndsSoon(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(64 << 30); err != nil {
		t.Skip("no sparse files here:", err)
	}
	f.Close()
	s := startServing(t, "--files", dir)
	answer, err := http.Get(s.url(t) + "sparse")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadFull(answer.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.end(t) // nobody reads any more: it can only be broken off
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it ended after %v", d)
	}
	if n, err := io.Copy(io.Discard, answer.Body); err == nil || n > 1<<30 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestServeWarnsWhereOthersCanRead(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stderr := newLines()
	code := make(chan int, 1)
	x := filepath.Join(toServe(t), "x.caf")
	go func() {
		code <- newApp(nil, io.Discard, stderr).run(ctx, []string{"serve", "--addr", "0.0.0.0:0", x})
	}()
	if line := <-stderr.to; !strings.Contains(line, "whoever reaches this machine can read") {
		t.Errorf("says %q", line)
	}
	if line := <-stderr.to; !strings.Contains(line, " at http://localhost:") {
		t.Errorf("says %q", line)
	}
	cancel(errInterrupted)
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit code %d", c)
	}
}

func TestServeEndsWithTheProcessSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	x := filepath.Join(toServe(t), "x.caf")
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := exec.Command(os.Args[0], "serve", "--addr", "127.0.0.1:0", x)
		cmd.Args[0] = "holdall" // what the test binary takes as: be the command
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		lines := bufio.NewScanner(stderr)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "serving ") {
			t.Fatalf("says %q", lines.Text())
		}
		url := lines.Text()[strings.LastIndex(lines.Text(), " ")+1:]
		if _, body := fetch(t, url+"hello.txt"); body != "hello, world" {
			t.Errorf("%q", body)
		}
		cmd.Process.Signal(signal)
		if !lines.Scan() || lines.Text() != "holdall: interrupted" {
			t.Errorf("%v: says %q", signal, lines.Text())
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
			t.Errorf("%v: %v", signal, err)
		}
	}
}

func TestMountNamesAreTheLastElements(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range [][2]string{
		{"a/x.caf", "x.caf"}, {"https://me:pw@example.org/data/y.caf?sig=1", "y.caf"}, {"s3://b/data/", "data"},
		{"https://example.org", "example.org"}, {"file:///data/z.caf", "z.caf"}, {"dir/", "dir"}, {".", filepath.Base(here)}, {"/", "archive"},
	} {
		if got := mountName(tt[0]); got != tt[1] {
			t.Errorf("%s: %s, want %s", tt[0], got, tt[1])
		}
	}
}
