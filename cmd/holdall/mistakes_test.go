package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// mistakes are command lines that a newcomer may type, in a folder with some archives.
const mistakes = `
holdall lss docs.caf
holdall list docs.caf
holdall ls
holdall ls nothing.caf
holdall ls docs
holdall ls docs.caf nothing
holdall ls docs.caf Intro.md
holdall ls docs.caf guide/nothing.txt
holdall ls docs.caf /intro.md
holdall ls text.txt
holdall ls picture.jpg
holdall ls page.html
holdall ls empty
holdall ls cut.caf
holdall ls cut.tar
holdall ls cut.zip
holdall ls damaged.caf
holdall ls docs.tar.gz
holdall ls ftp://example.org/docs.caf
holdall ls s3:/bucket/docs.caf
holdall ls s3://
holdall ls http://
holdall ls http://127.0.0.1:1/docs.caf
holdall ls https:docs.caf
holdall ls file://docs.caf
holdall ls catalog:
holdall ls '*.nothing'
holdall ls --as zap docs.caf
holdall ls --as tar docs.caf
holdall ls -f tar docs.caf
holdall ls --format caf docs.caf
holdall ls --view tree docs.caf
holdall ls --long --recursive --size docs.caf
holdall ls --recurse docs.caf
holdall ls -la docs.caf
holdall ls -h docs.caf
holdall ls -z docs.caf
holdall ls --index nothing.holdall docs.caf
holdall ls --index docs.tar docs.caf
holdall ls --parity nothing docs.caf
holdall ls --password-file nothing docs.zip
holdall ls --max-index tiny docs.caf
holdall ls --max-index 1 docs.caf
holdall ls --color red docs.caf
holdall ls --progress loud docs.caf
holdall ls --trusted nothing.pub docs.caf
holdall ls --trusted RWQ docs.caf
holdall ls --json=maybe docs.caf
holdall ls docs.caf docs.tar
holdall ls age:docs.caf
holdall docs.cafe
holdall docs.caf nothing
holdall nothing
holdall .
holdall -x docs.caf
holdall --xvf docs.tar
holdall -xvf docs.tar
holdall xvf docs.tar
holdall -tf docs.tar
holdall -czf new.tar.gz docs
holdall tar -xf docs.tar
holdall unzip docs.zip
holdall x docs.tar
holdall a new.caf docs
holdall create new.caf docs
holdall compress docs
holdall backup docs
holdall copy docs.caf new.tar
holdall open docs.caf
holdall check docs.caf
holdall test docs.caf
holdall search docs.caf intro
holdall info
holdall info docs.caf docs.tar
holdall info nothing
holdall help nothing
holdall help caf tar
holdall help pakc
holdall --help nothing
holdall --verison
holdall version now
holdall formats zap
holdall pack
holdall pack docs
holdall pack docs docs.caf
holdall pack -o new.caf
holdall pack -o docs.caf docs.caf
holdall pack -o docs docs
holdall pack -o docs/ docs
holdall pack -o new.xyz docs
holdall pack -o - docs
holdall pack -f rar -o new.rar docs
holdall pack -o new.rar docs
holdall pack -o new.7z docs
holdall pack -o new.tar.xz docs
holdall pack -o new.tar.bz2 docs
holdall pack -o new.h5 docs
holdall pack -o new.zarr docs
holdall pack -o new.caf nothing
holdall pack -o nowhere/deep/new.caf docs
holdall pack -o text.txt docs
holdall pack -o text.txt -f caf docs
holdall pack -o new.caf docs nothing
holdall pack -o new.caf docs/intro.md docs/intro.md
holdall pack -o new.caf hollow
holdall pack -o new.caf -C docs .
holdall pack -f new.caf docs
holdall pack -o http://127.0.0.1:1/new.caf docs
holdall pack -o ftp://example.org/new.caf docs
holdall pack -o new.caf ftp://example.org/x
holdall pack -o new.caf --level 9 docs
holdall pack -o new.zip --level 10 docs
holdall pack -o new.zip --level max docs
holdall pack -o new.tar.gz --level 19 docs
holdall pack -o new.caf --chunk-size lots docs
holdall pack -o new.tar --chunk-size 1GB docs
holdall pack -o new.caf --chunk-size 0 docs
holdall pack -o new.caf --exclude '[' docs
holdall pack -o new.caf --exclude '*.none' docs
holdall pack -o new.caf --exclude docs/guide docs
holdall pack -o new.caf --include '*.none' docs
holdall pack -o new.caf --exclude-from nothing docs
holdall pack -o new.caf --files-from nothing
holdall pack -o new.caf --files-from - docs
holdall pack -o new.caf --protect lots docs
holdall pack -o new.caf --protect 200% docs
holdall pack -o new.caf --catalog nothing.db docs
holdall pack -o new.caf --catalog nothing.catalog docs
holdall pack -o new.caf --timestamp yesterday docs
holdall pack -o new.caf --jobs many docs
holdall pack -o new.caf --compression zstd docs
holdall pack -o new.bundle --compression lzma docs
holdall pack -o new.caf --dryrun docs
holdall pack -o new.caf --resume docs
holdall pack -o new.caf --verify --dry-run docs
holdall cat
holdall cat docs.caf
holdall cat docs.caf nothing
holdall cat docs.caf intro
holdall cat docs.caf guide
holdall cat docs.caf '*.none'
holdall cat docs.caf INTRO.MD
holdall cat --range 5 docs.caf intro.md
holdall cat --range 9-5 docs.caf intro.md
holdall cat --range 100-200 docs.caf intro.md
holdall cat --decode docs.caf intro.md
holdall cat --slice 0:1 docs.caf intro.md
holdall cat --decode npz docs.caf intro.md
holdall cat --view meta docs.caf
holdall cat docs.caf -o new.md intro.md
holdall cat damaged.caf intro.md
holdall cat http://127.0.0.1:1/docs.caf intro.md
holdall extract
holdall extract docs.caf out
holdall extract docs.caf -o out
holdall extract docs.caf --to out
holdall extract docs.caf -C text.txt
holdall extract docs.caf nothing -C out
holdall extract docs.caf docs -C out
holdall extract docs.tar --strip-components two -C out
holdall extract damaged.caf -C out
holdall extract nothing.caf -C out
holdall extract docs.caf -C out --exclude
holdall convert docs.caf
holdall convert docs.caf new
holdall convert docs.caf docs.caf
holdall convert docs.caf new.rar
holdall convert docs.caf new.nwb
holdall convert text.txt new.caf
holdall convert nothing new.caf
holdall convert --from zap docs.caf new.tar
holdall convert docs.caf text.txt
holdall convert docs.caf - 
holdall find docs.caf
holdall find docs.caf '['
holdall find docs.caf nothing
holdall find nothing '*.md'
holdall find -name '*.md' docs.caf
holdall find docs.caf --type f
holdall grep docs.caf
holdall grep nothing docs.caf
holdall grep '(' docs.caf
holdall grep docs.caf '('
holdall tree nothing
holdall tree docs.caf --depth deep
holdall diff docs.caf
holdall diff docs.caf nothing
holdall diff docs.caf text.txt
holdall sum docs.caf --algo md4
holdall sum nothing
holdall verify
holdall verify nothing
holdall verify text.txt
holdall verify damaged.caf
holdall verify cut.caf
holdall verify --quick --sample 1% docs.caf
holdall verify --repair damaged.caf
holdall repair damaged.caf
holdall repair damaged.caf fixed.caf
holdall repair -o fixed.caf nothing
holdall repair -o damaged.caf damaged.caf
holdall repair -o text.txt damaged.caf
holdall protect
holdall protect nothing
holdall protect damaged.caf --loss all
holdall protect docs.caf --loss 0
holdall index nothing
holdall index text.txt
holdall sync
holdall sync docs.caf
holdall sync nothing new.caf
holdall sync docs.caf docs.caf
holdall sign docs.caf
holdall sign docs.caf --key nothing.key
holdall lindi mv docs.caf a b
holdall lindi rm docs.caf intro.md
holdall lindi add docs.caf text.txt
holdall add docs.caf text.txt
holdall rm docs.caf intro.md
holdall serve
holdall serve nothing
holdall serve docs.caf --port 80
holdall serve --addr nowhere:port docs.caf
holdall serve --addr 127.0.0.1:99999 docs.caf
holdall browse nothing
holdall mount docs.caf
holdall mount nothing mnt
holdall mount docs.caf text.txt
holdall umount mnt
holdall catalog
holdall catalog ls
holdall catalog add docs.caf
holdall catalog find nothing
holdall catalog init --catalog photos.db
holdall fleet plan docs
holdall fleet plan docs -o new.caf
holdall fleet status
holdall fleet wrok
holdall oak
holdall oak check docs.caf
holdall oak check nothing
holdall oak chekc nothing
holdall cache clean
holdall completion
holdall completion tcsh
holdall man
`

// Each mistake gets one line that says what is wrong and, where there is one, the way out.
func TestMistakes(t *testing.T) {
	testkit.Serial(t)
	table, err := filepath.Abs("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"HOLDALL_CATALOG", "HOLDALL_CACHE", "HOLDALL_QUEUE"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	t.Setenv("HOLDALL_CACHE", "none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("docs/intro.md", "Hello.\n")
	write("docs/guide/a.txt", strings.Repeat("first\n", 200))
	write("docs/guide/b.txt", "second\n")
	write("text.txt", "This is only a text.\n")
	write("page.html", "<!doctype html>\n<title>A page</title>\n")
	write("picture.jpg", "\xff\xd8\xff\xe0\x00\x10JFIF"+strings.Repeat("\x00\x01", 500))
	write("empty", "")
	if err := os.Mkdir("hollow", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, x := range []string{".caf", ".tar", ".zip"} {
		if s := verb(t, "pack", "-q", "-o", "docs"+x, "docs"); s.code != 0 {
			t.Fatal(s.error)
		}
		b, err := os.ReadFile("docs" + x)
		if err != nil {
			t.Fatal(err)
		}
		write("cut"+x, string(b[:len(b)/2]))
		write("damaged"+x, strings.Replace(string(b), "Hello.", "Hallo.", 1))
	}
	var b strings.Builder
	b.WriteString("# What a newcomer may type, and what holdall answers: go test ./cmd/holdall -run Mistakes -update\n")
	bad := regexp.MustCompile(`(?i)goroutine|panic|nil pointer|%!|invalid argument|unexpected EOF|strconv|0x[0-9a-f]{6}|\bEOF\b`)
	n := 0
	for line := range strings.Lines(strings.TrimSpace(mistakes)) {
		line = strings.TrimSpace(line)
		s := verb(t, words(line)[1:]...)
		told := strings.Split(strings.TrimSuffix(strings.ReplaceAll(s.error, dir, "…"), "\n"), "\n")
		fmt.Fprintf(&b, "\n$ %s\n", line)
		for _, l := range told {
			if l != "" {
				fmt.Fprintf(&b, "%s\n", l)
			}
		}
		fmt.Fprintf(&b, "exit code %d\n", s.code)
		n++
		if strings.Contains(s.error, "; the next version") || s.code < 2 {
			continue // a warning, or an answer
		}
		if len(told) != 1 || !strings.HasPrefix(told[0], "holdall: ") || bad.MatchString(told[0]) || len(told[0]) > 300 {
			t.Errorf("%s: expected one line that helps, found\n%s", line, s.error)
		}
	}
	if n < 200 {
		t.Errorf("%d mistakes only", n)
	}
	generated(t, table, b.String())
}

// words splits a command line as a shell does, for quotes of one kind.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
