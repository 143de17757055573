package ar

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// header returns a header; fields that are not given are as ar -D writes them.
func header(name string, size int) string {
	return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 1700000000, 1000, 100, "100755", size)
}

// What GNU's ar and LLVM's, as BSD, write of the same files.
var (
	gnu = magic + header("/", 4) + "\x00\x00\x00\x00" +
		"//                                              32        `\na_very_long_name_of_a_file.txt/\n" +
		header("a.txt/", 5) + "hello\n" + header("/0", 2) + "xx" + header("two words/", 1) + "y\n"
	bsd = magic + header("#1/12", 16) + "__.SYMDEF\x00\x00\x00\x00\x00\x00\x00" +
		header("a.txt", 5) + "hello\n" + header("#1/30", 32) + "a_very_long_name_of_a_file.txt" + "xx" + header("#1/12", 13) + "two words\x00\x00\x00" + "y\n"
)

func TestBothVariantsAreRead(t *testing.T) {
	for what, b := range map[string]string{"gnu": gnu, "bsd": bsd} {
		formattest.RunArchive(t, Format, map[string][]byte{"x.a": []byte(b)}, "x.a")
		st := &storetest.Mem{}
		st.Put("x.a", []byte(b))
		r, err := Format.Open(t.Context(), st, "x.a", format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var found []string
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprintf("%s %d %v %s:%s %d", e.Name, e.Size, e.Mode, e.Owner, e.Group, e.ModTime.Unix()))
		}
		const rest = " -rwxr-xr-x 1000:100 1700000000"
		want := []string{"a.txt 5" + rest, "a_very_long_name_of_a_file.txt 2" + rest, "two words 1" + rest}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%s: %q, expected %q", what, found, want)
		}
	}
}

func TestDamageIsNamed(t *testing.T) {
	for what, want := range map[string]format.Code{
		"!<arcx>\n":                          format.BadMagic,
		magic + "\n":                         format.Truncated,
		magic + header("a", 5) + "hell":      format.Truncated,
		magic + strings.Repeat("x", 60):      format.BadHeader,
		magic + header("#1/9", 5) + "hello":  format.BadHeader,
		magic + header("#1/-9", 5) + "hello": format.Truncated,
		magic + header("/9", 1) + "x":        format.BadHeader,
	} {
		st := &storetest.Mem{}
		st.Put("x.a", []byte(what))
		_, err := Format.Open(t.Context(), st, "x.a", format.OpenOptions{})
		if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Code != want {
			t.Errorf("%q: expected %s, found %v", what, want, err)
		}
	}
}

// GNU's ar reads what Create writes, and Open reads what it writes.
func TestGNUReadsAndWritesTheSame(t *testing.T) {
	program := testkit.Program(t, "ar")
	dir := t.TempDir()
	names := []string{"a.txt", "a_very_long_name_of_a_file.txt", "two words"}
	st := &storetest.Mem{}
	w, err := kit.Create(t.Context(), Format, st, "x.a", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		content := strings.Repeat("x", i+1)
		if err := os.WriteFile(filepath.Join(dir, n), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), format.Entry{Name: n, Size: int64(len(content))}, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ar %q: %v: %s", args, err, out)
		}
		return out
	}
	if err := os.WriteFile(filepath.Join(dir, "ours.a"), st.Get("x.a"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run("t", "ours.a"); string(out) != strings.Join(names, "\n")+"\n" {
		t.Errorf("ar lists %q", out)
	}
	for i, n := range names {
		if out := run("p", "ours.a", n); len(out) != i+1 {
			t.Errorf("ar reads %q of %s", out, n)
		}
	}
	run(append([]string{"rc", "theirs.a"}, names...)...)
	theirs, err := os.ReadFile(filepath.Join(dir, "theirs.a"))
	if err != nil {
		t.Fatal(err)
	}
	formattest.RunArchive(t, Format, map[string][]byte{"theirs.a": theirs}, "theirs.a")
	if !bytes.Contains(theirs, []byte("a_very_long")) {
		t.Errorf("%q", theirs)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(gnu))
	f.Add([]byte(bsd))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.a", b)
		r, err := Format.Open(t.Context(), st, "x.a", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}})
		if _, damaged := errors.AsType[*format.CorruptError](err); err != nil && !damaged {
			t.Fatal(err)
		} else if err != nil {
			return
		}
		for e := range r.Entries(t.Context()) {
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if err != nil || x.Off < 0 || x.Len < 0 || x.Off+x.Len > int64(len(b)) {
					t.Fatalf("%q: %+v, %v", e.Name, x, err)
				}
			}
		}
	})
}
