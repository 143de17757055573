// Package docs_test checks the pages of this folder: links must have a target, every code, verb
// and flag must be described, commands must run, and the programs must compile.
package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) {
	if do := standIns[filepath.Base(os.Args[0])]; do != nil {
		if err := do(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.SerialPackage(m)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors returns what the headings of a page are called in links.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return found
}

// allPages returns the pages of this folder, and of bytes.
func allPages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("*.md")
	layouts, err2 := filepath.Glob("bytes/*.md")
	if err := errors.Join(err, err2); err != nil || len(pages) < 6 || len(layouts) < 4 {
		t.Fatalf("%d pages, %d of bytes, %v", len(pages), len(layouts), err)
	}
	return append(pages, layouts...)
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages := allPages(t)
	for _, name := range []string{"../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md", "../examples/README.md"} {
		if _, err := os.Stat(name); err == nil {
			pages = append(pages, name)
		}
	}
	links := 0
	for _, page := range pages {
		text := fence.ReplaceAllString(read(t, page), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // somewhere else
			}
			links++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links found: they are written in another way now", links)
	}
}

// parseDir parses the Go files of a folder, without its tests.
func parseDir(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// text returns what a string literal says, "" if x is none.
func text(x ast.Expr) string {
	if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

func inspect(files []*ast.File, look func(ast.Node)) {
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			look(n)
			return true
		})
	}
}

// codeWords returns the words of format.Code by the names of their constants.
func codeWords(t *testing.T) map[string]string {
	words := map[string]string{}
	inspect(parseDir(t, "../format"), func(n ast.Node) {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != len(v.Names) {
			return
		}
		if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return
		}
		for i, name := range v.Names {
			words[name.Name] = text(v.Values[i])
		}
	})
	if len(words) < 16 {
		t.Fatalf("only %d codes found in package format", len(words))
	}
	return words
}

// classes returns CAF's own words, each with its code: the codes map.
func classes(t *testing.T, files []*ast.File, words map[string]string) map[string]string {
	found := map[string]string{}
	inspect(files, func(n ast.Node) {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || v.Names[0].Name != "codes" || len(v.Values) != 1 {
			return
		}
		table, ok := v.Values[0].(*ast.CompositeLit)
		if !ok {
			return
		}
		for _, e := range table.Elts {
			kv := e.(*ast.KeyValueExpr)
			code, ok := kv.Value.(*ast.SelectorExpr)
			if !ok || words[code.Sel.Name] == "" || text(kv.Key) == "" {
				t.Fatalf("codes: %v is no word of package format", kv.Value)
			}
			found[text(kv.Key)] = words[code.Sel.Name]
		}
	})
	if len(found) < 20 {
		t.Fatalf("only %d classes found in package caf", len(found))
	}
	return found
}

func TestEveryCodeIsExplained(t *testing.T) {
	page := read(t, "problems.md")
	for _, word := range codeWords(t) {
		if !strings.Contains(page, "\n| `"+word+"` | ") {
			t.Errorf("problems.md has no row for code %s", word)
		}
	}
}

func TestEveryClassIsExplainedWithItsCode(t *testing.T) {
	page := read(t, "problems.md")
	files := parseDir(t, "../format/caf")
	known := classes(t, files, codeWords(t))
	for class, code := range known {
		if !strings.Contains(page, "\n| `"+class+"` | `"+code+"` | ") {
			t.Errorf("problems.md has no row for class %s with code %s", class, code)
		}
	}
	// What the code reports by a literal must be one of these, or a word for a
	// name that is not extracted.
	used := map[string]bool{}
	inspect(files, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if typ, ok := n.Type.(*ast.Ident); ok && typ.Name == "fault" && len(n.Elts) > 0 {
				used[text(n.Elts[0])] = true
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "report" && len(n.Args) > 2 {
				used[text(n.Args[2])] = true
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Class" {
				used[text(n.Value)] = true
			}
		}
	})
	delete(used, "") // no literal
	if len(used) < 20 {
		t.Fatalf("only %d classes are reported by package caf", len(used))
	}
	for _, class := range slices.Sorted(maps.Keys(used)) {
		if known[class] == "" && !strings.HasPrefix(class, "name-") {
			t.Errorf("package caf reports %s, which its codes do not have", class)
		}
	}
}

func TestEveryNameFaultIsExplained(t *testing.T) {
	page := read(t, "problems.md")
	words := map[string]bool{}
	inspect(append(parseDir(t, "../format/kit/naming"), parseDir(t, "../internal/write/unpack")...), func(n ast.Node) {
		if x, ok := n.(ast.Expr); ok {
			if s := text(x); strings.HasPrefix(s, "name-") || strings.HasPrefix(s, "link-") {
				words[s] = true
			}
		}
	})
	if len(words) < 9 {
		t.Fatalf("only %d words found for names: %v", len(words), words)
	}
	for word := range words {
		if !strings.Contains(page, "\n| `"+word+"` | ") {
			t.Errorf("problems.md has no row for %s", word)
		}
	}
}

var program = regexp.MustCompile("(?ms)^```go\n(package .*?)^```")

func TestProgramsCompileAndPackSaysWhatIsLeftOut(t *testing.T) {
	found := program.FindAllStringSubmatch(read(t, "library.md")+read(t, "extending.md"), -1)
	if len(found) < 4 {
		t.Fatalf("only %d programs found in library.md and extending.md", len(found))
	}
	// They are a module beside this one, with the same dependencies.
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o777)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/holdall/holdall"
	mod, own := strings.CutPrefix(read(t, "../go.mod"), "module "+module+"\n")
	if !own {
		t.Fatal("go.mod begins with another line")
	}
	write("go.mod", "module programs\n"+mod+"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+strconv.Quote(root)+"\n")
	write("go.sum", read(t, "../go.sum"))
	for i, m := range found {
		write(filepath.Join("program"+strconv.Itoa(i+1), "main.go"), m[1])
	}
	vet := exec.Command("go", "vet", "-mod=mod", "./...")
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("library.md, extending.md: %v\n%s", err, out)
	}
	// The one that packs says what is not in the archive.
	pack := slices.IndexFunc(found, func(m []string) bool { return strings.Contains(m[1], "holdall.Pack(") })
	if pack < 0 {
		t.Fatal("no program of library.md packs")
	}
	write("docs/a", "text")
	err = errors.Join(os.Mkdir(filepath.Join(dir, "docs/empty"), 0o777), os.Symlink("a", filepath.Join(dir, "docs/link")))
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("go", "run", "-mod=mod", "./program"+strconv.Itoa(pack+1))
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "1 files, ") || !strings.Contains(string(out), "2 left out") {
		t.Errorf("library.md: %v\n%s", err, out)
	}
}
