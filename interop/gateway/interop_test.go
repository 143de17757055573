package gateway_test

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

const (
	id     = "interop"
	secret = "a secret of the tests"
)

// gateway starts the command with an empty folder, and returns the host of its buckets.
func gateway(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "holdall")
	if said, err := exec.Command("go", "build", "-o", program, "github.com/holdall/holdall/cmd/holdall").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	cmd := exec.Command(program, "serve", "--s3", "--write", "packed", "--addr", "127.0.0.1:0", "--s3-addr", "127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOLDALL_SERVE_S3_KEY="+id+":"+secret)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if host, is := strings.CutPrefix(lines.Text(), "serving buckets at http://"); is {
			go func() {
				for lines.Scan() {
					t.Log(lines.Text())
				}
			}()
			return host
		}
	}
	t.Fatalf("it serves no buckets: %v", lines.Err())
	return ""
}

// A row of s3tests.tsv.
type row struct{ name, group, expected, reason string }

func table(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("s3tests.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || f[1] == "" || !slices.Contains([]string{"pass", "differs", "outside"}, f[2]) || (f[2] == "pass") != (f[3] == "") {
			t.Fatalf("s3tests.tsv: %q", line)
		}
		rows = append(rows, row{f[0], f[1], f[2], f[3]})
	}
	if !slices.IsSortedFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) }) {
		t.Fatal("s3tests.tsv: expected its lines by name")
	}
	return rows
}

func TestTheTableOfS3Tests(t *testing.T) {
	count := map[string]int{}
	for _, r := range table(t) {
		count[r.expected]++
	}
	if all := count["pass"] + count["differs"]; count["pass"]*100 < all*95 {
		t.Errorf("%d of %d pass, expected 95 in 100", count["pass"], all)
	}
	t.Log(count)
}

var caseName = regexp.MustCompile(`(?m)^def (test_\w+)`)

func TestS3Tests(t *testing.T) {
	checkout, python := testkit.Needs(t, "HOLDALL_S3TESTS"), testkit.Needs(t, "HOLDALL_S3TESTS_PYTHON")
	rows := table(t)
	known := map[string]row{}
	for _, r := range rows {
		known[r.name] = r
	}
	dir := t.TempDir()
	args := []string{"-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "--junitxml", filepath.Join(dir, "said.xml")}
	for _, file := range []string{"test_headers.py", "test_s3.py"} {
		text, err := os.ReadFile(filepath.Join(checkout, "s3tests/functional", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range caseName.FindAllSubmatch(text, -1) {
			if r, is := known[string(name[1])]; !is {
				t.Errorf("%s is not in the table", name[1])
			} else if r.expected != "outside" {
				args = append(args, "s3tests/functional/"+file+"::"+r.name)
			}
		}
	}
	host, port, _ := strings.Cut(gateway(t), ":")
	config := fmt.Sprintf("[DEFAULT]\nhost = %s\nport = %s\nis_secure = False\nssl_verify = False\n[fixtures]\nbucket prefix = holdall-{random}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n", host, port)
	for _, section := range []string{"s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root"} {
		config += fmt.Sprintf("[%s]\ndisplay_name = holdall\nuser_id = holdall\nemail = nobody@example.org\naccess_key = %s\nsecret_key = %s\ntenant = none\n", section, id, secret)
	}
	config += "[webidentity]\n"
	testkit.Tree(t, dir, map[string]string{"s3tests.conf": config})
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Dir, cmd.Env = checkout, append(os.Environ(), "S3TEST_CONF="+filepath.Join(dir, "s3tests.conf"), "AWS_CA_BUNDLE=")
	out, _ := cmd.CombinedOutput() // it fails if a case does
	said, err := os.ReadFile(filepath.Join(dir, "said.xml"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var doc struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(said, &doc); err != nil {
		t.Fatal(err)
	}
	failed, ran := map[string]bool{}, map[string]bool{}
	for _, c := range doc.Cases {
		name, _, _ := strings.Cut(c.Name, "[") // a case may have several parameters
		if c.Skipped == nil {
			ran[name] = true
		}
		failed[name] = failed[name] || c.Failure != nil || c.Error != nil
	}
	for _, r := range rows {
		switch {
		case r.expected != "outside" && !ran[r.name]:
			t.Errorf("%s did not run", r.name)
		case r.expected == "pass" && failed[r.name]:
			t.Errorf("%s fails", r.name)
		case r.expected == "differs" && !failed[r.name]:
			t.Errorf("%s passes: the table expects that it differs, because: %s", r.name, r.reason)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
