package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestMinisign has minisign make keys and signatures for holdall, and the reverse.
func TestMinisign(t *testing.T) {
	testkit.Serial(t)
	program, dir := testkit.Program(t, "minisign"), t.TempDir()
	minisign := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("minisign %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	holdall := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := newApp(strings.NewReader(""), &out, &errs).run(t.Context(), args); code != 0 {
			t.Fatalf("holdall %v: %d: %s%s", args, code, &out, &errs)
		}
		return out.String()
	}
	put("a.txt", "a text\n")
	put("password", "secret\n")
	holdall("pack", "-q", "-o", at("x.tar"), at("a.txt"))
	minisign("", "-G", "-W", "-p", "plain.pub", "-s", "plain")
	minisign("secret\nsecret\n", "-G", "-p", "hidden.pub", "-s", "hidden")
	holdall("sign", "-q", "--new-key", at("ours"))
	os.Rename(at("ours.pub"), at("o.pub"))
	for key, public := range map[string]string{"plain": "plain.pub", "hidden": "hidden.pub", "ours": "o.pub"} {
		args := []string{"sign", "-q", at("x.tar"), "--key", at(key)}
		if key == "hidden" {
			args = append(args, "--key-password-file", at("password"))
		}
		holdall(args...)
		put("roots", holdall("sum", "--root", at("x.tar")))
		if out := minisign("", "-V", "-m", "roots", "-x", "x.tar.minisig", "-p", public); !strings.Contains(out, "file:x.tar") {
			t.Errorf("%s: %s", key, out)
		}
		comment := strings.ReplaceAll(strings.TrimSpace(holdall("sum", "--root", at("x.tar"))), "\n", ", ") + "; by minisign"
		stdin := map[bool]string{true: "secret\n"}[key == "hidden"]
		minisign(stdin, "-S", "-m", "roots", "-x", "x.tar.minisig", "-s", key, "-t", comment)
		if got := holdall("--trusted", at(public), "cat", at("x.tar"), "a.txt"); got != "a text\n" {
			t.Errorf("%s: %q", key, got)
		}
	}
}
