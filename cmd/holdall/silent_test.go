package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
)

// readingVerbs are the verbs that read an archive, A, and their output: what
// they print, or what they write in the folder OUT. Other tests cover info and
// verify, which report damage in their results.
var readingVerbs = []struct {
	args []string
	made func(t *testing.T, dir string) string
	then []string // prints the files that the verb made
	name bool     // its output has names but no contents
}{
	{args: []string{"ls", "-R", "-l", "A"}, name: true},
	{args: []string{"ls", "-R", "--json", "A"}, name: true},
	{args: []string{"tree", "A"}, name: true},
	{args: []string{"find", "A", "**"}, name: true},
	{args: []string{"grep", "A", "of a"}},
	{args: []string{"cat", "A", "d1/f01", "d2/f02", "long"}},
	{args: []string{"verify", "--sums", "blake3", "A"}},
	{args: []string{"diff", "A", "SOUND"}},
	{args: []string{"extract", "-q", "A", "-C", "OUT"}, made: extracted},
	{args: []string{"extract", "-q", "--keep-damaged", "A", "-C", "OUT"}, made: extracted},
	{args: []string{"convert", "-q", "A", "OUT/x.tar"}, made: converted},
	{args: []string{"convert", "-q", "A", "OUT/x.bundle"}, made: converted},
	{args: []string{"index", "-q", "A", "-o", "OUT/x"}, then: []string{"ls", "-R", "--index", "OUT/x", "A"}, name: true},
}

func extracted(t *testing.T, dir string) (all string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all += fmt.Sprintf("%s %q\n", path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func converted(t *testing.T, dir string) (all string) {
	made, err := filepath.Glob(filepath.Join(dir, "x.*"))
	if err != nil || len(made) == 0 {
		return ""
	}
	a, err := holdall.Open(t.Context(), made[0], holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	err = a.Contents(t.Context(), func(e holdall.Entry) bool { return e.Kind.HasContent() }, func(e holdall.Entry, content io.Reader, err error) error {
		b, rerr := io.ReadAll(content)
		all += fmt.Sprintf("%s %q\n", e.Name, b)
		return rerr
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// spans are the places of contents. Damage elsewhere may change them.
var spans = regexp.MustCompile(`,"spans":\[.*?\]`)

// A said is the outcome of a verb.
type said struct {
	code         int
	shown, error string
}

func verb(t *testing.T, args ...string) said {
	t.Helper()
	var out, errs bytes.Buffer
	code := newApp(strings.NewReader(""), &out, &errs).run(t.Context(), args)
	return said{code, out.String(), errs.String()}
}

// unseen reports whether the damage may be undetectable: a zip's directory has
// no checksum, nor have all the bytes before a tar's members, and a tar may
// end in zeros.
func unseen(format, what string) bool {
	has := func(s string) bool { return strings.Contains(what, s) }
	switch format {
	case "zip":
		return has("bit") || has("byte")
	case "tar":
		return has("bit") || has("byte") || has("cut") && has("zeros")
	}
	return false
}

// TestNoVerbIsSilent damages archives at random, and has each verb read them.
// A verb whose output differs from that for the sound archive must report
// damage on standard error, and exit with 1 or 2.
func TestNoVerbIsSilent(t *testing.T) {
	testkit.Long(t)
	for _, format := range []string{"caf", "lindi.tar", "rvn", "bundle", "tar", "tar.zst", "zip"} {
		t.Run(format, func(t *testing.T) {
			rnd := testkit.Rand(t)
			dir := t.TempDir()
			files := map[string]string{"long": string(testkit.Noise(rnd, 80<<10))}
			for i := range 12 {
				files[fmt.Sprintf("d%d/f%02d", i%3, i)] = strings.Repeat(fmt.Sprintf("line %d of a text\n", rnd.IntN(1000)), rnd.IntN(200)+1)
			}
			in, sound, archive := filepath.Join(dir, "in"), filepath.Join(dir, "sound."+format), filepath.Join(dir, "a."+format)
			testkit.Tree(t, in, files)
			for _, out := range []string{sound, archive} {
				if s := verb(t, "pack", "-q", "-o", out, in); s.code != 0 {
					t.Fatal(s)
				}
			}
			objects := map[string][]byte{}
			var names []string
			err := filepath.WalkDir(archive, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					objects[path], err = os.ReadFile(path)
					names = append(names, path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			all := func() (all []said) {
				for _, v := range readingVerbs {
					n++
					out := filepath.Join(dir, fmt.Sprint("out", n))
					if err := os.Mkdir(out, 0o777); err != nil {
						t.Fatal(err)
					}
					with := func(args []string) (got []string) {
						for _, a := range args {
							switch a {
							case "A":
								a = archive
							case "SOUND":
								a = sound
							}
							got = append(got, strings.Replace(a, "OUT", out, 1))
						}
						return got
					}
					s := verb(t, with(v.args)...)
					switch {
					case v.made != nil:
						s.shown = v.made(t, out)
					case v.then != nil && s.code == 0:
						s = verb(t, with(v.then)...)
					}
					s.shown = spans.ReplaceAllString(strings.ReplaceAll(s.shown, out, "OUT"), "")
					all = append(all, s)
					if err := os.RemoveAll(out); err != nil {
						t.Fatal(err)
					}
				}
				return all
			}
			right := all()
			for i, s := range right {
				if s.code != 0 || s.error != "" {
					t.Fatalf("%q of a sound archive: %+v", readingVerbs[i].args, s)
				}
			}
			for range testkit.Rounds(t, 2) {
				name := names[rnd.IntN(len(names))]
				b, what := testkit.Damage(rnd, objects[name])
				for unseen(format, what) {
					b, what = testkit.Damage(rnd, objects[name])
				}
				if err := os.WriteFile(name, b, 0o666); err != nil {
					t.Fatal(err)
				}
				for i, s := range all() {
					args := readingVerbs[i].args
					switch {
					case format == "tar" && !readingVerbs[i].name: // the contents have no checksum
					case s.code == 0 && s.shown != right[i].shown:
						t.Errorf("%s%s: %q shows something else, and says nothing:\n%.2000s\nexpected\n%.2000s", name, what, args, s.shown, right[i].shown)
					case s.code != 0 && s.error == "" && args[0] != "diff":
						t.Errorf("%s%s: %q ends with %d and says nothing", name, what, args, s.code)
					}
				}
				if err := os.WriteFile(name, objects[name], 0o666); err != nil {
					t.Fatal(err)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}
