// Mutate changes lines of packages, one at a time, and reports which changes their tests notice.
//
//	go run -C tools ./mutate [-n 60] [-seed 1] [-tests ". ./internal/write/pack"] FOLDER...
//
// The changes are chosen by the seed: of the same code they are always the same. The tree itself
// is not changed: the compiler gets an overlay.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A change replaces the bytes from off to end of a file.
type change struct {
	file     string
	line     int
	off, end int
	with     string
}

func main() {
	n := flag.Int("n", 60, "number of changes")
	seed := flag.Uint64("seed", 1, "seed of the choice")
	tests := flag.String("tests", "", "packages whose tests run, separated by blanks (default the folders)")
	more := flag.String("more", "", "packages whose tests run if those notice nothing")
	flag.Parse()
	if err := run(flag.Args(), *n, *seed, *tests, *more); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(folders []string, n int, seed uint64, tests, more string) error {
	var all []change
	for _, dir := range folders {
		found, err := changesIn(filepath.Join("..", dir))
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	noticed, tried := 0, 0
	for _, c := range all {
		if tried == n {
			break
		}
		outcome, err := try(c, tests, folders)
		if err == nil && outcome == "missed" && more != "" {
			outcome, err = try(c, more, nil)
		}
		if err != nil {
			return err
		}
		if outcome == "does not build" {
			continue
		}
		if tried++; outcome == "noticed" {
			noticed++
		}
		fmt.Printf("%s:%d: %q: %s\n", c.file, c.line, c.with, outcome)
	}
	fmt.Printf("%d of %d changes are noticed\n", noticed, tried)
	return nil
}

// changesIn returns the possible changes in the files of a folder.
func changesIn(dir string) (all []change, _ error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, text, 0)
		if err != nil {
			return nil, err
		}
		add := func(from, to token.Pos, with string) {
			p := fset.Position(from)
			all = append(all, change{file, p.Line, p.Offset, fset.Position(to).Offset, with})
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				add(n.Cond.Pos(), n.Cond.End(), "!("+string(text[fset.Position(n.Cond.Pos()).Offset:fset.Position(n.Cond.End()).Offset])+")")
			case *ast.BinaryExpr:
				if other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+"}[n.Op]; other != "" {
					add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other)
				}
			case *ast.ExprStmt:
				add(n.Pos(), n.End(), "{}") // a call less
			}
			return true
		})
	}
	return all, nil
}

// try runs tests with a change.
func try(c change, tests string, folders []string) (outcome string, _ error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(c.file)
	if err != nil {
		return "", err
	}
	changed := slices.Concat(text[:c.off], []byte(c.with), text[c.end:])
	full, err := filepath.Abs(c.file)
	if err != nil {
		return "", err
	}
	other, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	said, err := json.Marshal(map[string]any{"Replace": map[string]string{full: other}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(other, changed, 0o666); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, said, 0o666); err != nil {
		return "", err
	}
	args := strings.Fields(tests)
	for _, f := range folders {
		if tests == "" {
			args = append(args, "./"+f)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, "./"+filepath.ToSlash(filepath.Dir(c.file))[len("../"):])
	build.Dir = ".."
	if build.Run() != nil {
		return "does not build", nil
	}
	test := exec.Command("go", append([]string{"test", "-overlay", overlay, "-failfast", "-vet=off", "-timeout", "5m"}, args...)...)
	test.Dir = ".."
	if test.Run() != nil {
		return "noticed", nil
	}
	return "missed", nil
}
