package holdall_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// imports says which packages of this module a package may import. A package that is
// absent here may not exist: whoever adds one decides where it stands. Imports go down
// only.
var imports = map[string]string{
	"codec":                              "",
	"store":                              "",
	"store/storetest":                    "store",
	"store/storetest/s3test":             "",
	"store/local":                        "store internal/sysfile",
	"store/internal/far":                 "store",
	"store/web":                          "store store/internal/far",
	"store/bucket":                       "store store/internal/far store/web",
	"store/azure":                        "store store/internal/far store/web",
	"format":                             "store internal/sorter",
	"format/caf":                         "format store codec internal/formatkit internal/columns",
	"format/hdf5":                        "format store codec hdf5 internal/formatkit internal/pyjson internal/zarr3",
	"format/lindi":                       "format store codec zarr internal/formatkit internal/columns internal/pipe internal/pyjson internal/zarr3",
	"format/tar":                         "format store codec internal/formatkit internal/columns",
	"format/zip":                         "format store codec internal/formatkit internal/columns",
	"format/rvn":                         "format store codec format/rvn/internal/press format/rvn/internal/shlib format/rvn/internal/ucl internal/formatkit internal/pipe",
	"format/databundle":                  "format store codec format/databundle/internal/sstable internal/sorter internal/formatkit internal/columns internal/pipe",
	"format/databundle/internal/sstable": "store internal/formatkit",
	"format/oak":                         "internal/oak",
	"internal/formatkit":                 "format store",
	"internal/zarr3":                     "format store codec zarr internal/formatkit internal/pipe",
	"internal/columns":                   "",
	"format/rvn/recipe":                  "format/rvn/internal/shlib format/rvn/internal/ucl",
	"format/rvn/internal/press":          "",
	"format/rvn/internal/shlib":          "",
	"format/rvn/internal/ucl":            "",
	"format/formattest":                  "format store codec store/storetest internal/testkit",
	"format/formattest/tiny":             "format store codec",
	"internal/pipe":                      "",
	"internal/testkit":                   "store store/storetest",
	"internal/testkit/oaktest":           "internal/testkit",
	"internal/testkit/archivetest":       "format format/all internal/cache internal/content store",
	"internal/testkit/fleettest":         " internal/app/catalog store/storetest/s3test",
	"internal/testkit/pgtest":            "internal/testkit",
	"internal/sysfile":                   "",
	"internal/tree":                      "internal/glob",
	"internal/glob":                      "",
	"internal/people":                    "",
	"internal/sorter":                    "",
	"internal/cache":                     "store",
	"internal/kept":                      "format store codec internal/listing internal/pipe internal/sorter internal/sysfile internal/columns",
	"internal/digest":                    "format store internal/meter",
	"internal/meter":                     "",
	"internal/listing":                   "format",
	"internal/grep":                      "",
	"internal/outside":                   "store",
	"internal/parity":                    "format store internal/meter internal/parity/gf16 internal/pipe internal/sorter",
	"internal/parity/gf16":               "",
	"internal/content":                   "format store codec internal/cache internal/digest internal/engine internal/kept internal/listing internal/meter internal/outside internal/parity internal/sorter",
	"internal/repairs":                   "format store codec internal/content internal/formatkit internal/meter internal/sorter",
	"internal/output":                    "format store",
	"internal/pack":                      "format store internal/output internal/content internal/digest internal/glob internal/listing internal/meter internal/parity internal/people internal/pipe internal/sorter internal/tree",
	"internal/unpack":                    "codec format internal/content internal/formatkit internal/glob internal/listing internal/meter internal/people internal/sysfile",
	"internal/engine":                    "format store codec internal/pipe",
	"bytemap":                            "format",
	"zarr":                               "codec internal/arraycodec",
	"internal/arraycodec":                "",
	"hdf5":                               "store internal/arraycodec internal/pipe",
	"":                                   "format store internal/cache internal/content internal/digest internal/formatkit internal/glob internal/kept internal/listing internal/repairs internal/meter internal/outside internal/output internal/pack internal/parity internal/tree internal/unpack",
	"format/all":                         "format format/caf format/databundle format/hdf5 format/lindi format/oak format/rvn format/tar format/zip",
	"internal/pyjson":                    "",
	"store/all":                          "store store/azure store/bucket store/local store/web",
	"internal/app/catalog/survey":        " internal/app/catalog codec format store",
	"internal/app/catalog/shelf":         " internal/app/catalog internal/app/catalog/survey codec format store",
	"internal/app/fleet":                 " internal/app/catalog internal/app/catalog/shelf internal/app/catalog/survey format internal/content internal/glob internal/kept internal/sorter store store/bucket internal/pack internal/parity internal/meter internal/pipe",
	"internal/app/fleet/river":           "internal/app/catalog format",
	"internal/app/catalog":               "format internal/sorter",
	"internal/app/hierarchy":             " internal/pipe zarr",
	"internal/app/serve":                 " docs format format/zip internal/sorter store zarr internal/content internal/listing",
	"mount":                              " format store internal/people",
	"cmd/holdall":                        " docs format store codec bytemap zarr format/zip mount internal/app/explore internal/app/explore/nodes internal/app/hierarchy internal/app/serve internal/app/catalog internal/app/catalog/survey internal/app/catalog/shelf internal/app/fleet internal/app/fleet/river internal/glob internal/grep internal/sorter format/all store/all store/local internal/oak internal/sysfile format/rvn/recipe internal/repairs internal/output internal/pack internal/parity internal/meter internal/pipe internal/tree",
	"internal/app/explore":               " bytemap codec format store zarr internal/columns internal/grep internal/app/hierarchy internal/app/serve",
	"internal/app/explore/nodes":         " internal/app/explore format internal/oak",
	"internal/oak":                       "format store codec internal/pipe internal/sorter internal/oak/internal/audit internal/oak/internal/cloud internal/oak/internal/compact internal/oak/internal/newstore internal/oak/internal/newtree internal/oak/internal/nodejson internal/oak/internal/proof internal/oak/internal/repo internal/oak/internal/rescue internal/oak/internal/segment internal/oak/internal/sweep internal/oak/internal/tarfile internal/oak/internal/vault internal/formatkit internal/columns",
	"internal/oak/internal/cloud":        "store internal/oak/internal/segment internal/oak/internal/tarfile internal/pipe",
	"internal/oak/internal/tarfile":      "store internal/oak/internal/segment",
	"internal/oak/internal/segment":      "",
	"internal/oak/internal/repo":         "store internal/oak/internal/cloud internal/oak/internal/segment internal/oak/internal/tarfile internal/pipe",
	"internal/oak/internal/compact":      "internal/oak/internal/segment",
	"internal/oak/internal/newtree":      "internal/oak/internal/segment internal/sorter",
	"internal/oak/internal/newstore":     "store internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile internal/formatkit",
	"internal/oak/internal/nodejson":     "internal/oak/internal/segment",
	"internal/oak/internal/vault":        "format internal/oak/internal/nodejson internal/oak/internal/segment internal/sorter",
	"internal/oak/internal/audit":        "format store internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile",
	"internal/oak/internal/proof":        "internal/oak/internal/segment internal/pipe",
	"internal/oak/internal/rescue":       "store internal/oak/internal/segment internal/oak/internal/tarfile",
	"internal/oak/internal/sweep":        "store internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile",
	"interop/oak":                        "",
	"interop/s3":                         "store store/bucket store/storetest",
	"interop/fleet":                      " internal/app/catalog internal/testkit/pgtest store store/bucket format/all store/all",
	"interop/azure":                      "store store/azure store/storetest",
	"interop/hdf5":                       "",
	"interop/lindi":                      "",
	"interop/databundle":                 " format store format/all store/all format/databundle",
	"interop/rvn":                        " format store format/all store/all",
	"interop/serve":                      " internal/app/serve format/all store/all",
	"interop/zarr":                       " internal/app/serve zarr format/all store/all",
	"docs":                               "",
}

// offThePath are packages that need not build for a browser and may use what the
// others must not.
var offThePath = map[string]bool{
	"internal/app/catalog":        true,
	"internal/testkit/fleettest":  true,
	"internal/testkit/pgtest":     true,
	"internal/app/catalog/survey": true,
	"internal/app/catalog/shelf":  true,
	"internal/app/explore":        true,
	"internal/app/explore/nodes":  true,
	"internal/app/fleet":          true,
	"internal/app/fleet/river":    true,
	"internal/app/serve":          true,
	"cmd/holdall":                 true,
	"docs":                        true,
	"interop/azure":               true,
	"interop/databundle":          true,
	"interop/fleet":               true,
	"interop/hdf5":                true,
	"interop/lindi":               true,
	"interop/oak":                 true,
	"interop/rvn":                 true,
	"interop/s3":                  true,
	"interop/serve":               true,
	"interop/zarr":                true,
	"mount":                       true,
	"store/all":                   true,
	"store/azure":                 true,
	"store/bucket":                true,
	"store/internal/far":          true,
	"store/local":                 true,
	"store/storetest/s3test":      true,
	"store/web":                   true,
}

// forbidden keeps what reads archives small: no network, no database, no system
// calls of one system.
var forbidden = []string{"syscall/js", "golang.org/x/sys", "database/sql", "net/http"}

func TestImportsGoOnlyDownwards(t *testing.T) {
	const mod = "github.com/holdall/holdall"
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, mod), "/")
		may, ok := imports[pkg]
		if !ok {
			t.Errorf("%s: a new package; say in arch_test.go what it may import", pkg)
			continue
		}
		for _, imp := range p.Imports {
			below, ours := strings.CutPrefix(imp, mod)
			if below = strings.TrimPrefix(below, "/"); ours && !opens(may, below) {
				t.Errorf("%q must not import %q; it may import: %s", pkg, below, may)
			}
			for _, f := range forbidden {
				if strings.HasPrefix(imp, f) && !offThePath[pkg] {
					t.Errorf("%s is on the read path and must not import %s", pkg, imp)
				}
			}
		}
	}
}

// opens reports whether may, a list of packages, has the one below. The root has
// no name, so a leading space stands for it.
func opens(may, below string) bool {
	if below == "" {
		return strings.HasPrefix(may, " ")
	}
	return strings.Contains(" "+may+" ", " "+below+" ")
}

// kept says what formats keep in memory to meet again, and why: where, and by which
// sign it is found.
var kept = map[string]string{
	"format/databundle/internal/sstable: cache": "a lookup goes through the blocks of several tables, and the next one through most of them again",
	"internal/oak: cache":                       "records refer to others in any segment: each node would read and parse several",
	"internal/oak: pool":                        "buffers of 256 KiB, which hold nothing that is met again",
	"internal/oak/internal/segment: cache":      "nodes in a row have few templates, each of many records",
	"format/rvn: pool":                          "encoders, which take long to make and hold nothing that is met again",
}

// Goroutines and channels have no such list.
func TestFormatsStartNoGoroutineAndKeepNoCache(t *testing.T) {
	needed := map[string]bool{}
	look := func(file string, d fs.DirEntry, err error) error {
		file = filepath.ToSlash(file)
		if file == "format/formattest" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		signs(f, func(n ast.Node, sign string) {
			key := path.Dir(file) + ": " + sign
			if needed[key] = true; kept[key] == "" {
				t.Errorf("%s: a %s: formats start no goroutine and keep no cache (docs/DESIGN.md)", set.Position(n.Pos()), sign)
			}
		})
		return nil
	}
	for _, dir := range []string{"format", "internal/oak", "internal/formatkit"} {
		if err := filepath.WalkDir(dir, look); err != nil {
			t.Fatal(err)
		}
	}
	for key := range kept {
		if !needed[key] {
			t.Errorf("%q is not kept any more: take it from the list", key)
		}
	}
}

// The race detector is for packages that start goroutines, or whose values several goroutines
// share. ./check runs them with it, and finds them here.
func TestWhatTheRaceDetectorIsFor(t *testing.T) {
	found := 0
	for dir := range imports {
		files, err := filepath.Glob(path.Join(cmp.Or(dir, "."), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		shared := false
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				shared = shared || i.Path.Value == `"sync"` || i.Path.Value == `"sync/atomic"`
			}
			signs(f, func(_ ast.Node, sign string) { shared = shared || sign == "goroutine" || sign == "channel" })
		}
		if shared {
			found++
			t.Logf("race: ./%s", dir)
		}
	}
	if found < 20 {
		t.Errorf("found only %d packages", found)
	}
}

// signs reports what a file has of goroutines and of caches:
//
//   - goroutine: a go statement, and a call of a method Go, as a WaitGroup and an
//     errgroup have;
//   - channel: its type, a send, a receive, and a select;
//   - pool: sync.Pool, and sync.Map;
//   - cache: whatever is declared with "cache" in its name, and an import of
//     container/list, by which it is known what was used last.
func signs(f *ast.File, report func(n ast.Node, sign string)) {
	named := func(names ...*ast.Ident) {
		for _, n := range names {
			if strings.Contains(strings.ToLower(n.Name), "cache") {
				report(n, "cache")
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "goroutine")
		case *ast.CallExpr:
			if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" {
				report(n, "goroutine")
			}
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			report(n, "channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n, "channel")
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && of.Name == "sync" && (n.Sel.Name == "Pool" || n.Sel.Name == "Map") {
				report(n, "pool")
			}
		case *ast.ImportSpec:
			if n.Path.Value == `"container/list"` {
				report(n, "cache")
			}
		case *ast.TypeSpec:
			named(n.Name)
		case *ast.ValueSpec:
			named(n.Names...)
		case *ast.Field:
			named(n.Names...)
		}
		return true
	})
}

func TestSignsOfGoroutinesAndCachesAreFound(t *testing.T) {
	for code, want := range map[string]string{
		"func f() { go f() }":                             "goroutine",
		"func f(g *sync.WaitGroup) { g.Go(nil) }":         "goroutine",
		"func f(c *int) { for { select {} } }":            "channel",
		"func f(c any) { c.(chan int) <- 1 }":             "channel channel",
		"var x = <-y":                                     "channel",
		"type x struct { Cached, b int; c sync.Pool }":    "cache pool",
		"var x sync.Map":                                  "pool",
		"type xCache int":                                 "cache",
		"func f(blockCache int) {}":                       "cache",
		"import x \"container/list\"":                     "cache",
		"func f() { _ = caching(x.Cache, sync.Mutex{}) }": "",
		"import \"container/heap\"; var x = y.GoString()": "",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		signs(f, func(_ ast.Node, sign string) { got = append(got, sign) })
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, expected %q", code, got, want)
		}
	}
}
