package holdall_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// An object, a store or a writer that wraps another one must say itself what it can do. If it embeds
// the other and has no Can, or returns the other's abilities with some of them replaced, then an
// ability that it forgets, and each that is added later, bypasses it. So a wrapper begins with none
// and names those that it has: one that it forgets is absent.
func TestNoAbilityBypassesAWrapper(t *testing.T) {
	testkit.Serial(t)
	all := listed(t)
	found := 0
	for _, p := range all {
		if !p.ours() || !slices.Contains(p.Imports, storePackage) && p.ImportPath != storePackage {
			continue
		}
		var files []string
		for _, f := range p.GoFiles {
			files = append(files, filepath.Join(p.Dir, f))
		}
		for _, wrong := range bypasses(t, p.ImportPath, files, nil, exports(all)) {
			t.Error(wrong)
		}
		found++
	}
	if found < 40 {
		t.Errorf("found only %d packages that use stores", found)
	}
}

const storePackage = "github.com/holdall/holdall/store"

type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

func (p listedPackage) ours() bool {
	return strings.HasPrefix(p.ImportPath, "github.com/holdall/holdall")
}

func listed(t *testing.T) (all []listedPackage) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// exports returns the compiled packages.
func exports(all []listedPackage) func(path string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		for _, p := range all {
			if p.ImportPath == path {
				return os.Open(p.Export)
			}
		}
		return nil, fmt.Errorf("no package %s", path)
	}
}

// bypasses returns where the code of a package lets abilities bypass a wrapper.
func bypasses(t *testing.T, path string, names []string, code any, exports importer.Lookup) (wrong []string) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(set, name, code, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	check := types.Config{Importer: importer.ForCompiler(set, "gc", exports)}
	pkg, err := check.Check(path, set, files, info)
	if err != nil {
		t.Fatal(err)
	}
	say := func(at token.Pos, msg string, args ...any) {
		p := set.Position(at)
		wrong = append(wrong, fmt.Sprintf("%s:%d: ", filepath.Base(p.Filename), p.Line)+fmt.Sprintf(msg, args...))
	}
	for _, obj := range info.Defs {
		name, ok := obj.(*types.TypeName)
		if !ok || name.IsAlias() || types.IsInterface(name.Type()) {
			continue
		}
		can, index, _ := types.LookupFieldOrMethod(types.NewPointer(name.Type()), true, pkg, "Can")
		f, ok := can.(*types.Func)
		if ok && len(index) > 1 && isAbilities(f.Signature().Results()) {
			say(name.Pos(), "%s has the abilities of what it embeds: give it a Can of its own", name.Name())
		}
	}
	for _, f := range files {
		wholeAbilities(f, info, say)
	}
	slices.Sort(wrong)
	return wrong
}

// isAbilities reports whether a function returns the abilities of a store, an object or a writer.
func isAbilities(results *types.Tuple) bool {
	if results.Len() != 1 {
		return false
	}
	named, ok := results.At(0).Type().(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == storePackage && strings.HasSuffix(named.Obj().Name(), "Abilities")
}

// wholeAbilities finds results of Can of which more is used than single abilities.
func wholeAbilities(f *ast.File, info *types.Info, say func(token.Pos, string, ...any)) {
	var above []ast.Node
	held := map[types.Object]bool{} // variables that are results of Can
	ask := func(e ast.Expr) bool {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "Can" {
			return false
		}
		sig, ok := info.Types[call.Fun].Type.(*types.Signature)
		return ok && isAbilities(sig.Results())
	}
	const advice = "the abilities of another are passed on as a whole: name those that are passed on"
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if e, ok := n.(ast.Expr); ok && ask(e) {
			switch up := above[len(above)-1].(type) {
			case *ast.SelectorExpr:
			case *ast.AssignStmt:
				i := slices.Index(up.Rhs, e)
				if v, ok := up.Lhs[i].(*ast.Ident); ok && up.Tok == token.DEFINE {
					held[info.Defs[v]] = true
				} else {
					say(e.Pos(), advice)
				}
			default:
				say(e.Pos(), advice)
			}
		}
		above = append(above, n)
		return true
	})
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if v, ok := n.(*ast.Ident); ok && held[info.Uses[v]] {
			field, ok := above[len(above)-1].(*ast.SelectorExpr)
			set, assigns := ast.Node(nil), false
			if len(above) > 1 {
				set = above[len(above)-2]
			}
			if a, is := set.(*ast.AssignStmt); is && ok {
				assigns = slices.Contains(a.Lhs, ast.Expr(field))
			}
			if !ok || assigns {
				say(v.Pos(), advice)
			}
		}
		above = append(above, n)
		return true
	})
}

func TestWrappersThatAreBypassedAreFound(t *testing.T) {
	testkit.Serial(t)
	all := listed(t)
	for code, want := range map[string]string{
		"type w struct{ store.Store }":                                                                                                              "has the abilities",
		"type w struct{ store.Object }":                                                                                                             "has the abilities",
		"type w struct{ n int; *in }; type in struct{ store.Writer }":                                                                               "has the abilities has the abilities",
		"type w struct{ store.Store }; func (x w) Can() store.Abilities { return x.Store.Can() }":                                                   "as a whole",
		"type w struct{ store.Store }; func (x *w) Can() store.Abilities { c := x.Store.Can(); return c }":                                          "as a whole",
		"type w struct{ store.Store }; func (x *w) Can() store.Abilities { c := x.Store.Can(); c.List = nil; return c }":                            "as a whole as a whole",
		"type w struct{ store.Writer }; func (x w) Can() (c store.WriterAbilities) { c = x.Writer.Can(); return }":                                  "as a whole",
		"func f(st store.Store) { g(st.Can()) }; func g(store.Abilities) {}":                                                                        "as a whole",
		"func f(st store.Store) *store.Abilities { c := st.Can(); return &c }":                                                                      "as a whole",
		"type w struct{ store.Store }; func (x w) Can() store.Abilities { return store.Abilities{} }":                                               "",
		"type w struct{ store.Store }; func (x w) Can() store.Abilities { c := x.Store.Can(); return store.Abilities{Near: c.Near, List: c.List} }": "",
		"type w struct{ store.Store; can store.Abilities }; func (x w) Can() store.Abilities { return x.can }":                                      "",
		"func f(st store.Store) bool { return st.Can().Near }":                                                                                      "",
		"type w struct{ in store.Store }":                                                                                                           "",
		"type w interface{ store.Store }":                                                                                                           "",
	} {
		got := bypasses(t, "planted", []string{"planted.go"}, "package planted; import \"github.com/holdall/holdall/store\"; "+code+"; var _ store.Info", exports(all))
		if n := len(strings.Fields(want)) / 3; len(got) != n && want != "" || want == "" && len(got) > 0 {
			t.Errorf("%s: %q, expected %d times %q", code, got, n, want)
		}
		for _, g := range got {
			if !strings.Contains(g, "has the abilities") && !strings.Contains(g, "as a whole") {
				t.Errorf("%s: %s", code, g)
			}
		}
	}
}
