package docs_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// TestCommandsOfPagesRun runs the commands of each page, as they stand, one after the other: blocks of the language sh.
//
//   - A page begins in an empty folder with an empty HOME, and with what its start makes. A section with a start of its own
//     begins anew, as if it was a page.
//   - Each command must end with exit code 0, or with N if its comment says "exit code N".
//   - A server runs until the next one begins, or the page ends.
//   - A block of the language text that directly follows is what the commands print. There, … stands for anything.
func TestCommandsOfPagesRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no SSL_CERT_FILE")
	}
	for _, name := range []string{"sh", "curl", "openssl"} {
		testkit.Program(t, name)
	}
	pages := append(allPages(t), "../README.md")
	programs := t.TempDir()
	for name, source := range built {
		if said, err := exec.Command("go", "build", "-o", filepath.Join(programs, name), source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range standIns {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	parts, ran, left := 0, 0, notRun
	for _, name := range pages {
		if elsewhere[name] != "" {
			continue
		}
		blocks := slices.DeleteFunc(blocksOf(t, name), func(b block) bool {
			i := slices.IndexFunc(left, func(x absent) bool { return x.page == name && strings.HasPrefix(b.text, x.begins) })
			if i < 0 {
				return false
			}
			t.Logf("%s:%d is not run: %s", name, b.line, left[i].why)
			left = slices.Delete(slices.Clone(left), i, i+1)
			return true
		})
		for _, begin := range starts {
			if begin.page != name {
				continue
			}
			var some []block
			blocks = slices.DeleteFunc(blocks, func(b block) bool {
				is := begin.section == "" || begin.section == b.section
				if is {
					some = append(some, b)
				}
				return is
			})
			if len(some) == 0 {
				t.Errorf("%s has no commands for the start of section %q", name, begin.section)
			}
			for len(some) > 0 {
				n, section := len(some), begin.section
				if begin.apart {
					section = some[0].section
					n = slices.IndexFunc(append(some, block{}), func(b block) bool { return b.section != section })
				}
				part := some[:n]
				some = some[n:]
				parts++
				t.Run(strings.TrimSuffix(name+"#"+section, "#"), func(t *testing.T) { ran += runBlocks(t, programs, begin, part) })
			}
		}
		for _, b := range blocks {
			t.Errorf("%s:%d: the table starts has none for these commands", name, b.line)
		}
	}
	for _, begin := range starts {
		if elsewhere[begin.page] != "" || !slices.Contains(pages, begin.page) {
			t.Errorf("%s has a start, but is not run", begin.page)
		}
	}
	for _, x := range left {
		t.Errorf("%s has no block that begins with %q", x.page, x.begins)
	}
	t.Logf("%d blocks of %d pages and sections have run, %d have not", ran, parts, len(notRun)-len(left))
	for _, page := range slices.Sorted(maps.Keys(elsewhere)) {
		if !slices.Contains(pages, page) {
			t.Errorf("%s does not exist", page)
		}
		t.Logf("%s is not run: %s", page, elsewhere[page])
	}
}

// A block has commands of a page.
type block struct {
	line          int // of the first command
	section, text string
	shown         string // the text that directly follows, "" if there is none
}

var (
	blockOf  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?")
	headline = regexp.MustCompile(`(?m)^###? (.+)$`)
	commands = regexp.MustCompile(`(?m)^(\$ )?holdall [a-z-]+ `)
)

// blocksOf returns the blocks with commands of a page. Only blocks of the language sh may have any.
func blocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	text := read(t, page)
	for _, m := range blockOf.FindAllStringSubmatchIndex(text, -1) {
		b := block{line: strings.Count(text[:m[4]], "\n") + 1, text: text[m[4]:m[5]]}
		switch lang := text[m[2]:m[3]]; {
		case lang == "":
			t.Errorf("%s:%d: a block needs a language: sh for commands, text for anything else", page, b.line)
		case lang == "text" && commands.MatchString(b.text):
			t.Errorf("%s:%d: commands need a block of the language sh", page, b.line)
		}
		if text[m[2]:m[3]] != "sh" {
			continue
		}
		if m[6] >= 0 {
			b.shown = text[m[6]:m[7]]
		}
		if all := headline.FindAllStringSubmatch(text[:m[0]], -1); all != nil {
			b.section = all[len(all)-1][1]
		}
		blocks = append(blocks, b)
	}
	return blocks
}

var (
	exitCode = regexp.MustCompile(`#.*\bexit code (\d+)`)
	lines    = regexp.MustCompile(`(?m)^…$`)
	comment  = regexp.MustCompile(`\s+# .*`)
	serving  = regexp.MustCompile(`^holdall (serve|browse) `)
	endless  = regexp.MustCompile(`^holdall (mount|oak watch|fleet work.* --stay) `)
	ends     = regexp.MustCompile(` --(static|single|daemon|once) `)
)

// runBlocks runs blocks, and returns how many have run.
func runBlocks(t *testing.T, programs string, begin start, blocks []block) int {
	if begin.fuse {
		testkit.NeedsFUSE(t)
		testkit.Program(t, "fusermount3")
	}
	s := newShell(t, programs)
	if code := s.run(t, begin.commands); code != "0" {
		t.Fatalf("the start ended with %s\n%s", code, s.said())
	}
	ports := strings.NewReplacer("127.0.0.1:7070", s.http, "0.0.0.0:7070", s.http, "127.0.0.1:7071", s.s3, "0.0.0.0:7071", s.s3)
	for _, b := range blocks {
		line, said := b.line, ""
		for command := range strings.SplitSeq(strings.TrimSuffix(strings.ReplaceAll(b.text, "\\\n", "\\\r"), "\n"), "\n") {
			at := fmt.Sprintf("%s:%d", begin.page, line)
			line += 1 + strings.Count(command, "\r")
			command = ports.Replace(strings.ReplaceAll(command, "\r", "\n"))
			if !ends.MatchString(command) && serving.MatchString(command) {
				s.serve(t, at, strings.TrimSuffix(comment.ReplaceAllString(command, ""), " &"))
				continue
			}
			if !ends.MatchString(command) && endless.MatchString(command) {
				t.Errorf("%s: %s\nnever ends: use --daemon or --once", at, command)
				continue
			}
			want := "0"
			if m := exitCode.FindStringSubmatch(command); m != nil {
				want = m[1]
			}
			code := s.run(t, command)
			said += s.said()
			if code != want {
				t.Errorf("%s: %s\nended with %s, expected %s\n%s", at, command, code, want, s.said())
			}
		}
		if b.shown != "" && !shows(b.shown, said) {
			t.Errorf("%s:%d: the commands print\n%s", begin.page, b.line, said)
		}
	}
	if code := s.run(t, begin.after); code != "0" {
		t.Errorf("%s: afterwards, %s ended with %s\n%s", begin.page, begin.after, code, s.said())
	}
	return len(blocks)
}

// shows reports whether a text of a page is what commands have printed.
func shows(text, said string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(text))
	pattern = lines.ReplaceAllString(pattern, "(?s:.*)")
	return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "$").MatchString(strings.TrimSpace(said))
}

func TestShownTextIsCompared(t *testing.T) {
	for text, same := range map[string]bool{
		"a: sound; 3 entries\n": true, "a: sound; … entries\n": true, "…\n": true, "a: sound\n": false, "a: sound; 3 entries\nb\n": false, "a. sound; 3 entries": false,
	} {
		if shows(text, "a: sound; 3 entries\n") != same {
			t.Errorf("%q: not %v", text, same)
		}
	}
	if !shows("a\n…\nd", "a\nb\nc\nd\n") || shows("a\n…\nd", "a\nb\nc\n") {
		t.Error("… is not any lines")
	}
}

// A shell runs commands one after the other.
type shell struct {
	dir, file string
	env       []string
	in        io.Writer
	out       *bufio.Reader
	http, s3  string // addresses for servers
	stop      func()
}

const shellProgram = `while IFS= read -r file <&3; do . "$file" >"$file.said" 2>&1 </dev/null 3<&- 4>&-; echo $? >&4; done`

func newShell(t *testing.T, programs string) *shell {
	top := t.TempDir()
	s := &shell{dir: filepath.Join(top, "here"), file: filepath.Join(top, "command"), stop: func() {}}
	for _, dir := range []string{"here", "home", "tmp", "web"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range []*string{&s.http, &s.s3} {
		var err error
		if *addr, err = testkit.FreeAddr(); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	proxy, certificate := web(t, filepath.Join(top, "web"))
	authority := filepath.Join(top, "authority.pem")
	if err := os.WriteFile(authority, certificate, 0o666); err != nil {
		t.Fatal(err)
	}
	s.env = []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(top, "home"), "TMPDIR=" + filepath.Join(top, "tmp"),
		"CLONE=" + root, "WEB=" + filepath.Join(top, "web"), "HTTPS_PROXY=" + proxy, "HTTP_PROXY=" + proxy, "SSL_CERT_FILE=" + authority, "HOLDALL_BROWSER=none",
		"AWS_ENDPOINT_URL_S3=" + bucketsOf(t), "AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.Secret,
	}
	read3, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write4, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-u", "-c", shellProgram)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = s.dir, s.env, []*os.File{read3, write4}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read3.Close()
	write4.Close()
	s.in, s.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		s.stop()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		out.Close()
	})
	return s
}

// run runs a command, and returns its exit code.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	err := os.WriteFile(s.file, []byte(command+"\n"), 0o666)
	if err == nil {
		_, err = fmt.Fprintln(s.in, s.file)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s\nhas ended the shell: %s", command, s.said())
	}
	return strings.TrimSpace(code)
}

// said returns what the last command has printed.
func (s *shell) said() string {
	b, _ := os.ReadFile(s.file + ".said")
	return string(b)
}

// serve ends the server that runs, and starts another with what the shell has exported.
func (s *shell) serve(t *testing.T, at, command string) {
	t.Helper()
	s.stop()
	if !strings.HasPrefix(command, "holdall browse ") && !strings.Contains(command, "--addr ") {
		command += " --addr " + s.http
	}
	if strings.Contains(command, "--s3 ") && !strings.Contains(command, "--s3-addr ") {
		command += " --s3-addr " + s.s3
	}
	if code := s.run(t, "env -0"); code != "0" {
		t.Fatal(s.said())
	}
	var said testkit.Text
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir, cmd.Env = s.dir, strings.Split(strings.TrimSuffix(s.said(), "\x00"), "\x00")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() // it is killed
		close(ended)
	}()
	s.stop = func() {
		cmd.Process.Kill() // it may have ended
		<-ended
	}
	testkit.Until(t, at+": it listens", func() bool {
		select {
		case <-ended:
			t.Errorf("%s: %s\nended\n%s", at, command, said.String())
			return true
		default:
			return strings.Contains(said.String(), " at http")
		}
	})
}

// bucketsOf serves the buckets of pages.
func bucketsOf(t *testing.T) string {
	var names []string
	for name := range buckets {
		names = append(names, name)
	}
	s := s3test.New(names...)
	for name, objects := range buckets {
		for key, content := range objects {
			s.Put(name, key, []byte(content))
		}
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// web serves a folder as all servers of pages. It returns the address of a proxy that leads to them,
// and the certificate of their authority.
func web(t *testing.T, dir string) (address string, certificate []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.FileServer(http.Dir(dir)))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients may close what they do not need
	server.StartTLS()
	t.Cleanup(server.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "pages have servers with https only", http.StatusBadGateway)
			return
		}
		there, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			there.Close()
			return
		}
		fmt.Fprint(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			io.Copy(there, here) // until one of them ends it
			there.Close()
		}()
		io.Copy(here, there) // as above
		here.Close()
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
