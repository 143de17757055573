package holdall_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update-api", false, "rewrite testdata/api.txt")

// TestTheAPIIsTheOneWrittenDown compares the exported names of the public packages with
// testdata/api.txt, so that no change of the API goes unnoticed. If a line is removed or changed,
// docs/compatibility.md says which version number must increase.
func TestTheAPIIsTheOneWrittenDown(t *testing.T) {
	const file = "testdata/api.txt"
	got := api(t)
	if *updateAPI {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for _, line := range want {
		if _, ok := slices.BinarySearch(got, line); !ok {
			t.Errorf("removed or changed: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if this is intended: go test -run API . -update-api, and a line in CHANGELOG.md")
	}
}

// api returns a line for each exported name, field and method of the public packages, sorted.
func api(t *testing.T) []string {
	lines := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, merr := os.Stat(filepath.Join(path, "go.mod"))
			switch name := d.Name(); {
			case path == ".":
			case merr == nil, strings.HasPrefix(name, "."), slices.Contains([]string{"cmd", "docs", "internal", "interop", "python", "testdata"}, name):
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil && f.Name.Name != "main" {
			for _, line := range exported(t, f) {
				lines[filepath.ToSlash(filepath.Join("holdall", filepath.Dir(path)))+": "+line] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(lines))
}

// exported returns what a file exports. Files for different systems may export the same.
func exported(t *testing.T, f *ast.File) (lines []string) {
	text := func(node any) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, token.NewFileSet(), node); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			recv := ""
			if d.Recv != nil {
				recv = text(d.Recv.List[0].Type)
			}
			if d.Name.IsExported() && (recv == "" || ast.IsExported(strings.TrimLeft(recv, "*"))) {
				if recv != "" {
					recv = "(" + recv + ") "
				}
				add("func", recv+d.Name.Name+strings.TrimPrefix(text(d.Type), "func"))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() && s.Type != nil {
							add(d.Tok.String(), name.Name, text(s.Type))
						} else if name.IsExported() {
							add(d.Tok.String(), name.Name)
						}
					}
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						lines = append(lines, typeLines(s, text)...)
					}
				}
			}
		}
	}
	return lines
}

// typeLines returns a type without its fields or methods, and then a line for each of them that is
// exported.
func typeLines(s *ast.TypeSpec, text func(any) string) (lines []string) {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		var params []string
		for _, p := range s.TypeParams.List {
			for _, n := range p.Names {
				params = append(params, n.Name+" "+text(p.Type))
			}
		}
		name += "[" + strings.Join(params, ", ") + "]"
	}
	var members *ast.FieldList
	switch x := s.Type.(type) {
	case *ast.StructType:
		lines, members = append(lines, name+" struct"), x.Fields
	case *ast.InterfaceType:
		lines, members = append(lines, name+" interface"), x.Methods
	default:
		if s.Assign.IsValid() {
			name += " ="
		}
		return append(lines, name+" "+text(s.Type))
	}
	for _, m := range members.List {
		tag := ""
		if m.Tag != nil {
			tag = " " + m.Tag.Value
		}
		for _, field := range m.Names {
			if field.IsExported() {
				lines = append(lines, name+", "+field.Name+" "+strings.TrimPrefix(text(m.Type), "func")+tag)
			}
		}
		if len(m.Names) == 0 { // embedded
			lines = append(lines, name+", "+text(m.Type)+tag)
		}
	}
	return lines
}

// mostNames is how many names the packages holdall, format and store may export together: types,
// functions, variables and constants, where the constants of a type count as one with it. It is
// changed on purpose only. What authors of formats need is in format/kit, what is done with any
// store in store/storekit, and what only this module needs in internal packages.
const mostNames = 117

func TestTheNamesOfTheMainPackagesStayFew(t *testing.T) {
	all := 0
	for _, dir := range []string{".", "format", "store"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				names = append(names, namesOf(f)...)
			}
		}
		t.Logf("%s: %d names: %s", dir, len(names), strings.Join(names, " "))
		all += len(names)
	}
	if all != mostNames {
		t.Errorf("%d names, expected %d", all, mostNames)
	}
}

// namesOf returns the exported names of a file, without methods and the constants of types.
func namesOf(f *ast.File) (names []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			typed := false // a constant without a value has the type of the one before
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					if typed = s.Type != nil || typed && len(s.Values) == 0; !typed || d.Tok == token.VAR {
						add(s.Names...)
					}
				}
			}
		}
	}
	return names
}
