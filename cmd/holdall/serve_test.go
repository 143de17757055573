package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agelib "filippo.io/age"

	"github.com/holdall/holdall/internal/testkit"
)

// lineWriter passes on what is written to it line by line.
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

// served is a serve verb that runs in this process.
type served struct {
	stdout, stderr *lineWriter
	interrupt      func()
	code           chan int
	explore        string // the printed address of the explorer
}

func startServing(t *testing.T, args ...string) *served {
	t.Helper()
	s := starting(t, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	if !slices.Contains(args, "--json") {
		s.hasBegun(t)
	}
	return s
}

// starting runs a command line that continues until it is interrupted.
func starting(t *testing.T, args ...string) *served {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &served{stdout: newLines(), stderr: newLines(), interrupt: func() { cancel(errInterrupted) }, code: make(chan int, 1)}
	go func() { s.code <- newApp(nil, s.stdout, s.stderr).run(ctx, args) }()
	t.Cleanup(s.interrupt)
	return s
}

// hasBegun waits until it prints the address of the explorer.
func (s *served) hasBegun(t *testing.T) {
	t.Helper()
	select {
	case line := <-s.stderr.to:
		if s.explore, _, _ = strings.Cut(strings.TrimPrefix(line, "explore at "), " "); !strings.HasPrefix(line, "explore at http") {
			t.Fatalf("says %q", line)
		}
	case code := <-s.code:
		t.Fatalf("exit code %d: %s", code, s.stderr)
	case <-time.After(20 * time.Second):
		t.Fatal("it never began")
	}
}

// url waits for the next address that it prints.
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

// toServe creates a folder and packs it as x.caf beside it.
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

// command runs a command line that must succeed, and returns its results.
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

// TestServeWhatHoldallReads reads an archive in a served archive with holdall
// itself.
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

// TestServeGoesOnWithoutWhatCannotBeOpened checks that one bad archive does not
// stop the others, and is served once it is repaired.
func TestServeGoesOnWithoutWhatCannotBeOpened(t *testing.T) {
	dir := toServe(t)
	x, bad, lost := filepath.Join(dir, "x.caf"), filepath.Join(dir, "bad.caf"), filepath.Join(dir, "lost.caf")
	whole, err := os.ReadFile(x)
	if err == nil {
		err = os.WriteFile(bad, whole[:30], 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := starting(t, "serve", "--addr", "127.0.0.1:0", bad, x, lost)
	for _, says := range []string{"bad.caf", "lost.caf: no such file", "explore at "} {
		select {
		case line := <-s.stderr.to:
			if !strings.Contains(line, says) {
				t.Fatalf("says %q, expected %q", line, says)
			}
		case code := <-s.code:
			t.Fatalf("exit code %d: %s", code, s.stderr)
		}
	}
	url := s.url(t)
	above, is := strings.CutSuffix(url, "x.caf/")
	if answer, body := fetch(t, url+"hello.txt"); !is || answer.StatusCode != 200 || body != "hello, world" {
		t.Errorf("%s: %s, %q", url, answer.Status, body)
	}
	if _, list := fetch(t, above+"?format=json"); strings.Count(list, `"error"`) != 2 || !strings.Contains(list, `{"name":"bad.caf","kind":"dir","error":"the footer says`) {
		t.Error(list)
	}
	if answer, _ := fetch(t, above+"bad.caf/"); answer.StatusCode != 500 {
		t.Error(answer.Status)
	}
	if err := os.WriteFile(bad, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the repaired archive is served", func() bool {
		for len(s.stderr.to) > 0 {
			<-s.stderr.to // each failed request is logged
		}
		answer, body := fetch(t, above+"bad.caf/hello.txt")
		return answer.StatusCode == 200 && body == "hello, world"
	})
	s.end(t)
}

func TestServeSaysWhereForPrograms(t *testing.T) {
	x := filepath.Join(toServe(t), "x.caf")
	s := startServing(t, "--json", x)
	var page struct{ Explore string }
	if err := json.Unmarshal([]byte(<-s.stdout.to), &page); err != nil || !strings.HasPrefix(page.Explore, "http://127.0.0.1:") {
		t.Fatalf("%+v, %v", page, err)
	}
	if answer, body := fetch(t, page.Explore); answer.StatusCode != 200 || !strings.Contains(body, "ui/app.js") {
		t.Error(answer.Status, body)
	}
	var got struct{ Archive, URL string }
	if err := json.Unmarshal([]byte(<-s.stdout.to), &got); err != nil || got.Archive != x {
		t.Fatalf("%+v, %v", got, err)
	}
	if answer, _ := fetch(t, got.URL+"hello.txt"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	s.end(t)
}

// TestServeTellsVersionsApart checks that an entry without a digest gets the
// ETag of its archive's version. It is the same when the archive is served
// again, and different if the archive has changed.
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

// TestServeEndsSoon checks that running requests may finish, and that those
// that do not are ended.
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
	s.end(t) // nothing reads the response any more, so it can only be aborted
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
	if line := <-stderr.to; !strings.Contains(line, "anyone who can reach this machine can read") {
		t.Errorf("says %q", line)
	}
	if line := <-stderr.to; !strings.HasPrefix(line, "explore at http://localhost:") {
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
		cmd.Args[0] = "holdall" // makes the test binary be the command
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		lines := bufio.NewScanner(stderr)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "explore at http://127.0.0.1:") || !lines.Scan() || !strings.HasPrefix(lines.Text(), "serving ") {
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
		if got := archiveName(tt[0]); got != tt[1] {
			t.Errorf("%s: %s, want %s", tt[0], got, tt[1])
		}
	}
}

// TestServeAFolder checks that a folder's archives are served by their names,
// and that links out of the folder are not followed.
func TestServeAFolder(t *testing.T) {
	dir := toServe(t)
	all := filepath.Join(dir, "all")
	if err := os.Mkdir(all, 0o777); err != nil {
		t.Fatal(err)
	}
	x := filepath.Join(dir, "x.caf")
	command(t, "pack", "-o", filepath.Join(all, "one.caf"), filepath.Join(dir, "in"))
	command(t, "pack", "-o", filepath.Join(all, "two.tar"), filepath.Join(dir, "in"))
	for name, content := range map[string]string{"notes.txt": "no archive", "broken.caf": "no archive either"} {
		if err := os.WriteFile(filepath.Join(all, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	linked := os.Symlink(x, filepath.Join(all, "out.caf")) == nil
	s := startServing(t, "--s3", "--s3-addr", "127.0.0.1:0", all)
	url := s.url(t)
	line := <-s.stderr.to
	s3, ok := strings.CutPrefix(line, "serving buckets at ")
	if !ok {
		t.Fatalf("says %q", line)
	}
	for path, want := range map[string]int{"f/one.caf/hello.txt": 200, "f/two.tar/hello.txt": 200, "f/broken.caf/": 500, "f/notes.txt/": 404, "f/out.caf/": 404, "f/x.caf/": 404, "zip/two.tar/d/": 200, "openapi.yaml": 200} {
		if answer, body := fetch(t, url+path); answer.StatusCode != want {
			t.Errorf("%s: %s, %s", path, answer.Status, body)
		}
	}
	if linked {
		if _, list := fetch(t, url); strings.Contains(list, "out.caf") {
			t.Error(list)
		}
	}
	if answer, body := fetch(t, s3+"/two.tar/hello.txt"); answer.StatusCode != 200 || body != "hello, world" {
		t.Error(answer.Status, body)
	}
	command(t, "pack", "-o", filepath.Join(all, "new.caf"), filepath.Join(dir, "in"))
	testkit.Until(t, "a new one appears", func() bool {
		answer, _ := fetch(t, url+"f/new.caf/hello.txt")
		return answer.StatusCode == 200
	})
	s.end(t)
}

// TestServeWithTokenAndTLS checks that with a token and TLS, requests without
// the token are refused, and requests with it are answered.
func TestServeWithTokenAndTLS(t *testing.T) {
	dir := toServe(t)
	cert, key, pool := certificate(t, dir)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a-long-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServing(t, "--token", "@"+token, "--tls-cert", cert, "--tls-key", key, filepath.Join(dir, "x.caf"))
	if first, _, _ := strings.Cut(s.stderr.String(), "\n"); !strings.HasPrefix(s.explore, "https://") || !strings.HasSuffix(first, " (the first time with ?token=...)") || strings.Contains(first, "a-long-token") {
		t.Errorf("says %q", first)
	}
	line := <-s.stderr.to
	at := line[strings.LastIndex(line, " ")+1:]
	if !strings.HasPrefix(at, "https://127.0.0.1:") {
		t.Fatal(line)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for bearer, want := range map[string]int{"": 401, "Bearer wrong-token": 401, "Bearer a-long-token": 200} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", at+"d/big", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", bearer)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want || err != nil || want == 200 && n != 3<<20 || answer.ProtoMajor != 2 {
			t.Errorf("%q: %s, %d bytes, %v, %s", bearer, answer.Status, n, err, answer.Proto)
		}
	}
	client.CloseIdleConnections()
	s.end(t)
}

// TestServedArchivesAreReadByHoldall reads what it serves at every address that people see, as it reads
// the same archives on a disk.
func TestServedArchivesAreReadByHoldall(t *testing.T) {
	dir := toServe(t)
	in, all := filepath.Join(dir, "in"), filepath.Join(dir, "all")
	if err := os.Mkdir(all, 0o777); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(all, name) }
	formats := map[string]string{"x.caf": "", "x.tar": "", "x.zip": "", "x.rvn": "", "x.bundle": "databundle", "x.lindi.tar": "lindi", "store": "oak", "a b%.caf": ""}
	for name, f := range formats {
		command(t, "pack", "-q", "-f", f, "-o", at(name), in)
	}
	command(t, "index", "-q", "--chunk-digests", at("x.zip"))
	command(t, "protect", "-q", at("x.tar"))
	b, err := os.ReadFile(at("x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	b[1<<20] ^= 1 // parity beside it restores this
	if err := errors.Join(os.WriteFile(at("x.tar"), b, 0o666), os.WriteFile(at("secret"), []byte("s"), 0o666)); err != nil {
		t.Fatal(err)
	}
	damaged, err := os.ReadFile(at("x.caf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("damaged.caf"), damaged[:len(damaged)-9], 0o666); err != nil {
		t.Fatal(err)
	}
	s := startServing(t, all)
	url := s.url(t)
	for name, f := range formats {
		escaped := (&neturl.URL{Path: name}).EscapedPath()
		var as []string
		if f == "oak" { // nothing but a list shows that a folder is one
			as = []string{"--as", "oak", "--view", "files"}
		}
		for _, at := range []string{"f/" + escaped, "f/" + escaped + "/", "raw/" + escaped, "#/" + escaped + "/d?tab=map", escaped} {
			big := command(t, append([]string{"cat", url + at, "d/big"}, as...)...)
			list := command(t, append([]string{"ls", "-R", url + at}, as...)...)
			if big != strings.Repeat("x", 3<<20) || list != command(t, append([]string{"ls", "-R", filepath.Join(all, name)}, as...)...) {
				t.Errorf("%s: %d bytes, %s", at, len(big), list)
			}
		}
	}
	repaired := filepath.Join(dir, "repaired.caf")
	if code := newApp(nil, io.Discard, io.Discard).run(t.Context(), []string{"repair", "-o", repaired, url + "f/damaged.caf"}); code != exitNo || command(t, "ls", repaired) == "" {
		t.Errorf("a damaged archive is not read: %d", code)
	}
	for path, want := range map[string]int{"raw/x.zip.holdall": 200, "raw/x.tar.parity": 200, "raw/secret": 404, "raw/store/manifest": 200, "raw/store/nothing": 404, "raw/store": 404, "raw/../secret": 404, "raw/damaged.caf": 200, "raw/": 404} {
		if answer, body := fetch(t, url+path); answer.StatusCode != want {
			t.Errorf("%s: %s, %s", path, answer.Status, body)
		}
	}
	if answer, _ := fetch(t, url+"raw/x.caf", "Host", "example.org"); answer.StatusCode != 403 {
		t.Errorf("a foreign name for this machine: %s", answer.Status)
	}
	s.end(t)
}

// TestServedArchiveIsStoredEncrypted checks that the server decrypts contents, but not the archive.
func TestServedArchiveIsStoredEncrypted(t *testing.T) {
	testkit.Serial(t)
	dir := toServe(t)
	id, err := agelib.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDALL_AGE_RECIPIENTS", id.Recipient().String())
	t.Setenv("HOLDALL_AGE_IDENTITY", filepath.Join(dir, "key"))
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := filepath.Join(dir, "secret.caf")
	command(t, "pack", "-q", "-o", "age:"+x, filepath.Join(dir, "in"))
	want, err := os.ReadFile(x)
	if err != nil {
		t.Fatal(err)
	}
	s := startServing(t, "age:"+x)
	at := s.url(t)
	if _, body := fetch(t, at+"hello.txt"); body != "hello, world" {
		t.Errorf("%q", body)
	}
	raw := strings.Replace(at, "/f/", "/raw/", 1)
	if answer, body := fetch(t, raw); answer.StatusCode != 200 || body != string(want) {
		t.Errorf("%s, %d bytes", answer.Status, len(body))
	}
	if got := command(t, "cat", "age:"+at, "hello.txt"); got != "hello, world" {
		t.Errorf("%q", got)
	}
	var out, errs bytes.Buffer
	if code := newApp(nil, &out, &errs).run(t.Context(), []string{"ls", at}); code != exitFailed || !strings.Contains(errs.String(), "put age: in front of its address") {
		t.Errorf("%d: %s", code, &errs)
	}
	s.end(t)
}

// TestServedArchiveIsNotProvenAsStored checks that a server that trusts keys serves only what they sign.
func TestServedArchiveIsNotProvenAsStored(t *testing.T) {
	dir := toServe(t)
	x, key := filepath.Join(dir, "x.caf"), filepath.Join(dir, "key")
	command(t, "sign", "-q", "--new-key", key)
	command(t, "sign", "-q", "--key", key, x)
	s := startServing(t, "--trusted", key+".pub", x)
	at := s.url(t)
	raw := strings.Replace(at, "/f/", "/raw/", 1)
	for path, want := range map[string]int{at + "hello.txt": 200, raw: 403, strings.TrimSuffix(raw, "/") + ".minisig": 403} {
		if answer, body := fetch(t, path); answer.StatusCode != want {
			t.Errorf("%s: %s, %s", path, answer.Status, body)
		}
	}
	s.end(t)
	s = startServing(t, x)
	if got := command(t, "cat", "--trusted", key+".pub", s.url(t), "hello.txt"); got != "hello, world" {
		t.Errorf("the client's own key: %q", got)
	}
	s.end(t)
}

// TestArchivesOfOtherServersAreReadOrToldWhy reads from servers that do not do all that holdall's does.
func TestArchivesOfOtherServersAreReadOrToldWhy(t *testing.T) {
	dir := toServe(t)
	x, err := os.ReadFile(filepath.Join(dir, "x.caf"))
	if err != nil {
		t.Fatal(err)
	}
	const page = "\ufeff\n<!DOCTYPE html><title>Log in</title>"
	send := func(ctype string, content []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", ctype); w.Write(content) }
	}
	ranges := func(ctype string, content []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ctype)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/whole/x.caf", send("application/octet-stream", x))
	mux.Handle("/html/x.caf", send("text/html", x))
	mux.Handle("/text/x.caf", ranges("text/plain", x))
	mux.Handle("/page/x.caf", send("text/html", []byte(page)))
	mux.Handle("/ranged/x.caf", ranges("text/html; charset=utf-8", []byte(page)))
	mux.Handle("/untold/x.caf", send("application/octet-stream", []byte(page)))
	mux.Handle("/app/x.caf", ranges("application/octet-stream", x))
	mux.Handle("/app/", send("text/html", []byte(page))) // also in the place of index and parity, which are not there
	mux.Handle("/portal/", http.RedirectHandler("/page/x.caf", http.StatusFound))
	mux.Handle("/long/x.caf", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999999") }))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	const told, isPage = "server has no ranges; fetched whole\n", "the server sent a web page, not an archive"
	for path, want := range map[string]string{
		"whole/x.caf": told, "html/x.caf": "", "text/x.caf": "", "app/x.caf": "", "app/y.caf": isPage, "page/x.caf": isPage, "ranged/x.caf": isPage, "untold/x.caf": isPage, "portal/x.tar": isPage, "long/x.caf": "'holdall serve' or nginx",
	} {
		for _, verb := range [][]string{{"cat", srv.URL + "/" + path, "hello.txt"}, {"verify", "-q", srv.URL + "/" + path}, {"ls", "--as", "caf", srv.URL + "/" + path}} {
			var out, errs bytes.Buffer
			code := newApp(nil, &out, &errs).run(t.Context(), verb)
			fails := want != "" && want != told
			if (code != exitOK) != fails || !strings.Contains(errs.String(), want) && verb[0] != "verify" || want == "" && errs.Len() > 0 || strings.Contains(errs.String(), "damage") || verb[0] == "cat" && !fails && out.String() != "hello, world" {
				t.Errorf("%v: exit code %d, %s%s", verb, code, &out, &errs)
			}
			if lines := strings.Count(errs.String(), "\n"); lines > 1 {
				t.Errorf("%v: %d lines: %s", verb, lines, &errs)
			}
		}
	}
}

// TestPythonsServerIsRead checks that the server that most people have at hand is enough.
func TestPythonsServerIsRead(t *testing.T) {
	dir := toServe(t)
	python := testkit.Program(t, "python3")
	cmd := exec.CommandContext(t.Context(), python, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	m := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(line)
	if m == "" {
		t.Fatalf("says %q, %v", line, err)
	}
	var got, errs bytes.Buffer
	if code := newApp(nil, &got, &errs).run(t.Context(), []string{"cat", m + "x.caf", "hello.txt"}); code != exitOK || got.String() != "hello, world" || errs.String() != "holdall: cat: "+m+"x.caf: server has no ranges; fetched whole\n" {
		t.Errorf("exit code %d, %q: %s", code, &got, &errs)
	}
}

// certificate makes a certificate for this machine, and returns files of it
// and its key.
func certificate(t *testing.T, dir string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool = x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	pool.AppendCertsFromPEM(text)
	if err := errors.Join(os.WriteFile(cert, text, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key, pool
}
