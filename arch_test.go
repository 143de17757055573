package holdall_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports says which packages of this module a package may import. A package that is
// absent here may not exist: whoever adds one decides where it stands. Imports go down
// only.
var imports = map[string]string{
	"codec":                              "",
	"store":                              "",
	"store/storekit":                     "store",
	"store/storetest":                    "store store/storekit",
	"store/storetest/s3test":             "",
	"store/local":                        "store internal/base/sysfile store/storekit",
	"store/internal/far":                 "store internal/base/sigv4 store/storekit",
	"store/web":                          "store store/internal/far store/storekit",
	"store/bucket":                       "store internal/base/sigv4 store/internal/far store/web store/storekit",
	"store/azure":                        "store store/internal/far store/web store/storekit",
	"store/age":                          "store store/storekit",
	"format":                             "store store/storekit format/kit/sorter",
	"format/caf":                         "format store codec format/internal/finder format/kit format/kit/jsontext format/kit/columns format/kit/naming internal/base/scan store/storekit internal/base/blake3",
	"format/hdf5":                        "format store codec hdf5 zarr format/kit format/kit/sorter internal/arrays/pyjson internal/arrays/zarr3 internal/arrays/zarrkey store/storekit",
	"format/zarr":                        "format store zarr format/kit internal/arrays/zarr3 internal/arrays/zarrkey store/storekit",
	"format/lindi":                       "format store codec zarr format/internal/tarhead format/kit format/kit/columns format/kit/jsontext format/kit/pipe internal/arrays/pyjson internal/arrays/zarr3 internal/arrays/zarrkey format/kit/sorter store/storekit internal/base/blake3",
	"format/tar":                         "format store codec format/internal/charset format/internal/tarhead format/kit format/kit/columns format/kit/naming store/storekit",
	"format/zip":                         "format store codec format/internal/charset format/kit format/kit/columns format/kit/sorter store/storekit",
	"format/rvn":                         "format store codec format/internal/finder format/rvn/internal/press format/rvn/internal/shlib format/rvn/internal/ucl format/kit format/kit/pipe format/kit/naming format/kit/sorter store/storekit internal/base/blake3",
	"format/databundle":                  "format store codec format/internal/finder format/databundle/internal/sstable format/kit/sorter format/kit format/kit/columns format/kit/pipe format/kit/naming store/storekit",
	"format/databundle/internal/sstable": "store format/kit store/storekit internal/base/blake3",
	"format/oak":                         "internal/oak",
	"format/kit":                         "format store format/kit/naming format/kit/sorter store/storekit",
	"internal/arrays/zarr3":              "format store codec zarr internal/arrays/zarrkey format/kit format/kit/pipe format/kit/naming",
	"internal/arrays/zarrkey":            "",
	"format/kit/columns":                 "",
	"format/kit/jsontext":                "",
	"format/rvn/recipe":                  "format/rvn/internal/shlib format/rvn/internal/ucl",
	"format/rvn/internal/press":          "",
	"format/rvn/internal/shlib":          "",
	"format/rvn/internal/ucl":            "",
	"format/formattest":                  "format store codec store/storetest internal/testkit format/kit format/kit/naming format/kit/sorter",
	"format/formattest/ar":               "format store format/kit",
	"format/formattest/tiny":             "format store codec format/kit store/storekit",
	"format/internal/finder":             "",
	"format/internal/tarhead":            "",
	"format/internal/charset":            "format",
	"format/kit/naming":                  "",
	"format/kit/pipe":                    "",
	"internal/testkit":                   "store/storetest",
	"internal/testkit/oaktest":           "internal/testkit",
	"internal/testkit/zarrtest":          "internal/testkit",
	"internal/testkit/archivetest":       "format format/all internal/read/cache internal/read/content store",
	"internal/testkit/fleettest":         " internal/app/catalog store/storetest/s3test internal/app/catalog/book internal/app/fleet/queue store",
	"internal/testkit/pgtest":            "internal/testkit",
	"internal/base/blake3":               "",
	"internal/base/scan":                 "",
	"internal/base/sysfile":              "",
	"internal/write/tree":                "internal/base/glob",
	"internal/base/glob":                 "",
	"internal/base/people":               "",
	"internal/base/screen":               "",
	"internal/base/minisign":             "",
	"internal/base/sigv4":                "",
	"internal/read/root":                 "format format/kit/sorter internal/base/minisign store store/storekit internal/base/blake3",
	"format/kit/sorter":                  "",
	"internal/read/blocks":               "store internal/base/sysfile store/storekit",
	"internal/read/cache":                "store store/storekit",
	"internal/read/detect":               "format format/kit store store/storekit",
	"internal/read/kept":                 "format store codec internal/read/listing internal/read/parity internal/read/root format/kit/pipe format/kit/sorter internal/base/scan internal/base/sysfile format/kit/columns format/kit/naming store/storekit internal/base/blake3",
	"internal/read/digest":               "format store internal/base/meter format/kit internal/base/blake3",
	"internal/base/meter":                "",
	"internal/read/listing":              "format format/kit/naming",
	"internal/read/grep":                 "",
	"internal/read/outside":              "store store/storekit",
	"internal/read/parity":               "format store internal/base/meter internal/read/parity/gf16 format/kit/pipe format/kit/sorter store/storekit internal/base/blake3",
	"internal/read/parity/gf16":          "",
	"internal/read/content":              "format store codec internal/read/blocks internal/read/cache internal/read/digest internal/read/engine internal/read/kept internal/read/listing internal/base/meter internal/read/outside internal/read/parity internal/read/root format/kit/sorter format/kit store/storekit internal/base/blake3",
	"internal/read/union":                "format store format/kit format/kit/pipe internal/read/content store/storekit",
	"internal/write/repairs":             "format store codec internal/read/content format/kit internal/base/meter format/kit/sorter store/storekit",
	"internal/write/output":              "format store internal/read/detect store/storekit",
	"internal/write/pack":                "format store internal/arrays/zarrkey internal/write/output internal/read/content internal/read/digest internal/base/glob internal/read/listing internal/base/meter internal/read/parity internal/base/people format/kit/naming format/kit/pipe format/kit/sorter internal/write/tree format/kit store/storekit",
	"internal/write/sync":                "format store internal/base/meter internal/base/sysfile internal/read/content internal/read/digest format/kit format/kit/pipe",
	"internal/write/bag":                 "format internal/base/meter format/kit/naming internal/read/content internal/read/digest internal/write/unpack store",
	"internal/write/unpack":              "codec format internal/read/content format/kit internal/base/glob internal/read/listing internal/base/meter internal/base/people internal/base/sysfile format/kit/naming",
	"internal/read/engine":               "format store codec format/kit/pipe store/storekit",
	"bytemap":                            "format internal/base/screen",
	"zarr":                               "codec format/kit/jsontext internal/arrays/arraycodec internal/arrays/zarrkey",
	"internal/arrays/arraycodec":         "",
	"hdf5":                               "store internal/arrays/arraycodec format/kit/pipe store/storekit",
	"":                                   "format store internal/read/blocks internal/read/union internal/read/cache internal/read/content internal/read/digest format/kit internal/base/glob internal/read/kept internal/read/listing internal/write/repairs internal/base/meter internal/read/outside internal/write/output internal/write/pack internal/read/parity internal/write/tree internal/write/unpack internal/read/detect internal/read/root store/storekit internal/write/sync",
	"format/all":                         "format format/caf format/databundle format/hdf5 format/lindi format/oak format/rvn format/tar format/zarr format/zip",
	"internal/arrays/pyjson":             "",
	"store/all":                          "store store/age store/azure store/bucket store/local store/web",
	"internal/app/catalog/rows":          "format store format/kit format/kit/sorter internal/base/scan store/storekit internal/base/blake3",
	"internal/app/catalog/book":          "internal/app/catalog internal/app/catalog/rows internal/base/minisign internal/base/scan internal/read/root format store format/kit/naming format/kit/pipe format/kit/sorter store/storekit internal/base/blake3",
	"internal/app/catalog/book/booktest": "internal/app/catalog internal/app/catalog/book store store/storetest",
	"internal/app/catalog/facts":         "internal/app/catalog internal/app/hierarchy format",
	"internal/app/catalog/export":        "internal/app/catalog internal/app/catalog/book internal/app/catalog/facts internal/app/hierarchy format format/kit/naming",
	"internal/app/catalog/survey":        " internal/app/catalog internal/app/catalog/facts internal/app/hierarchy internal/read/parity codec format store format/kit store/storekit",
	"internal/app/catalog/shelf":         " internal/app/catalog internal/app/catalog/survey codec format store format/kit format/kit/naming store/storekit internal/app/catalog/book internal/read/blocks internal/read/root",
	"internal/app/fleet":                 " internal/app/catalog internal/app/catalog/shelf internal/app/catalog/survey format format/kit internal/read/content internal/base/glob internal/base/scan internal/read/kept format/kit/sorter store store/bucket internal/write/pack internal/read/parity internal/base/meter format/kit/pipe store/storekit format/kit/naming internal/app/catalog/book internal/app/catalog/rows internal/app/fleet/parquet internal/app/fleet/queue",
	"internal/app/fleet/parquet":         "codec internal/base/scan",
	"internal/app/fleet/queue":           "format format/kit/naming",
	"internal/app/catalog":               "format format/kit/sorter format/kit",
	"internal/app/fixity":                " format internal/base/minisign internal/base/sysfile store store/local internal/base/blake3",
	"internal/app/hierarchy":             " format/kit/pipe internal/arrays/zarrkey zarr",
	"internal/app/gateway":               " format format/caf format/kit format/kit/pipe format/kit/sorter internal/app/catalog internal/app/catalog/book internal/app/catalog/rows internal/app/catalog/shelf internal/app/catalog/survey internal/app/fleet internal/app/gateway/journal internal/app/gateway/journal/disk internal/app/serve internal/base/sysfile internal/read/kept internal/read/parity store store/local store/storekit internal/base/blake3",
	"internal/app/gateway/journal":       "format format/caf internal/app/gateway/journal/disk internal/base/blake3",
	"internal/app/gateway/journal/disk":  "internal/base/sysfile",
	"internal/testkit/disktest":          "internal/app/gateway/journal/disk",
	"internal/app/autopsy":               " format format/kit format/kit/pipe store store/storekit",
	"internal/app/serve":                 " docs internal/app/autopsy internal/base/sigv4 format format/zip format/kit/sorter store zarr internal/read/cache internal/read/content internal/read/kept internal/read/listing internal/read/parity format/kit store/storekit",
	"mount":                              " format store internal/base/people store/storekit format/kit/naming internal/base/blake3",
	"cmd/holdall":                        " docs format store codec bytemap internal/arrays/zarrkey zarr format/zip mount internal/app/autopsy internal/app/explore internal/app/explore/nodes internal/app/fixity internal/app/hierarchy internal/app/serve internal/app/catalog internal/app/catalog/book internal/app/catalog/export internal/app/catalog/facts internal/app/catalog/survey internal/app/catalog/shelf internal/app/fleet internal/app/gateway internal/base/glob internal/read/grep internal/read/outside format/kit/sorter format/all store/all store/local internal/oak internal/base/sysfile format/rvn/recipe internal/write/bag internal/write/repairs internal/write/output internal/write/pack internal/write/unpack internal/read/detect internal/read/parity internal/base/meter internal/base/screen format/kit/pipe internal/write/tree format/kit format/kit/naming internal/read/kept store/storekit internal/app/fleet/queue internal/base/minisign internal/read/root internal/base/blake3",
	"internal/app/explore":               " bytemap codec format store zarr format/kit format/kit/columns internal/read/grep internal/app/autopsy internal/app/hierarchy internal/app/serve format/kit/naming store/storekit",
	"internal/app/explore/nodes":         " internal/app/explore format format/kit/pipe internal/oak",
	"internal/oak":                       "format store codec format/kit/jsontext format/kit/pipe format/kit/sorter internal/oak/internal/audit internal/oak/internal/cloud internal/oak/internal/compact internal/oak/internal/lucene internal/oak/internal/newstore internal/oak/internal/newtree internal/oak/internal/nodejson internal/oak/internal/proof internal/oak/internal/repo internal/oak/internal/rescue internal/oak/internal/salvage internal/oak/internal/segment internal/oak/internal/sweep internal/oak/internal/tarfile internal/oak/internal/transfer internal/oak/internal/vault format/kit format/kit/columns format/kit/naming store/storekit",
	"internal/oak/internal/cloud":        "store internal/oak/internal/segment internal/oak/internal/tarfile format/kit/pipe store/storekit",
	"internal/oak/internal/tarfile":      "store internal/oak/internal/segment store/storekit",
	"internal/oak/internal/segment":      "",
	"internal/oak/internal/repo":         "store internal/oak/internal/cloud internal/oak/internal/segment internal/oak/internal/tarfile format/kit/pipe store/storekit",
	"internal/oak/internal/compact":      "internal/oak/internal/segment",
	"internal/oak/internal/newtree":      "internal/oak/internal/segment format/kit/sorter internal/base/blake3",
	"internal/oak/internal/lucene":       "",
	"internal/oak/internal/newstore":     "store internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile format/kit store/storekit",
	"internal/oak/internal/nodejson":     "format/kit/jsontext internal/oak/internal/segment",
	"internal/oak/internal/transfer":     "store internal/oak/internal/segment internal/oak/internal/tarfile format/kit/pipe store/storekit",
	"internal/oak/internal/vault":        "format internal/oak/internal/nodejson internal/oak/internal/segment format/kit/sorter",
	"internal/oak/internal/audit":        "format store internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile",
	"internal/oak/internal/proof":        "internal/oak/internal/segment format/kit/pipe",
	"internal/oak/internal/rescue":       "store internal/oak/internal/cloud internal/oak/internal/segment internal/oak/internal/tarfile internal/oak/internal/transfer",
	"internal/oak/internal/salvage":      "internal/oak/internal/compact internal/oak/internal/proof internal/oak/internal/segment",
	"internal/oak/internal/sweep":        "store internal/oak/internal/cloud internal/oak/internal/repo internal/oak/internal/segment internal/oak/internal/tarfile internal/oak/internal/transfer store/storekit",
	"interop/age":                        " format/all store/all",
	"interop/bagit":                      "",
	"interop/oak":                        "",
	"interop/s3":                         "store/bucket store/storetest",
	"interop/fleet":                      " internal/app/catalog internal/testkit/pgtest store/bucket format/all store/all",
	"interop/azure":                      "store/azure store/storetest",
	"interop/hdf5":                       "",
	"interop/lindi":                      "",
	"interop/databundle":                 " format/all store/all format/databundle",
	"interop/rvn":                        " format/all store/all",
	"interop/gateway":                    "",
	"interop/serve":                      " internal/app/explore internal/app/serve format/all store/all",
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
	"internal/app/fleet/queue":    true,
	"internal/app/gateway":        true,
	"internal/app/serve":          true,
	"cmd/holdall":                 true,
	"docs":                        true,
	"interop/age":                 true,
	"interop/azure":               true,
	"interop/bagit":               true,
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

// docs/DESIGN.md puts each package in a room, and gives each room a budget of lines.
func TestRoomsKeepTheirBudgets(t *testing.T) {
	design, err := os.ReadFile("docs/DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	budget, room, in := map[string]int{}, map[string]string{}, ""
	inRow, ofRoom := regexp.MustCompile(`^\| \[(.*?)\]\(`), regexp.MustCompile(`^\| \[(.*?)\]\(#.*?\) \|.*?\| ([0-9,]+) \|`)
	for line := range strings.Lines(string(design)) {
		if m := ofRoom.FindStringSubmatch(line); m != nil {
			if budget[m[1]], err = strconv.Atoi(strings.ReplaceAll(m[2], ",", "")); err != nil {
				t.Fatal(err)
			}
		} else if name, ok := strings.CutPrefix(line, "### "); ok {
			in = strings.TrimSpace(name)
		} else if m := inRow.FindStringSubmatch(line); m != nil && room[m[1]] == "" {
			room[m[1]] = in
		}
	}
	lines := map[string]int{}
	for dir := range imports {
		at := cmp.Or(dir, "holdall")
		for room[at] == "" && strings.Contains(at, "/") {
			at = path.Dir(at)
		}
		if room[at] == "" && !strings.HasPrefix(dir, "interop") && dir != "docs" {
			t.Errorf("%s is in no room of docs/DESIGN.md", dir)
		}
		files, err := filepath.Glob(path.Join(cmp.Or(dir, "."), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines[room[at]] += bytes.Count(b, []byte("\n"))
		}
	}
	all := 0
	for name, most := range budget {
		all += lines[name]
		if t.Logf("%s: %d of %d lines", name, lines[name], most); lines[name] == 0 || lines[name] > most {
			t.Errorf("%s has %d lines, and may have %d", name, lines[name], most)
		}
	}
	if t.Logf("%d lines", all); len(budget) < 5 {
		t.Errorf("found only the rooms %v", budget)
	}
}

// remembered says what formats keep in memory to meet again, and why: where, and by which
// sign it is found.
var remembered = map[string]string{
	"format/databundle/internal/sstable: cache": "a lookup goes through the blocks of several tables, and the next one through most of them again",
	"internal/oak: cache":                       "records refer to others in any segment: each node would read and parse several",
	"internal/oak: pool":                        "nodes as JSON that were written: their room is used again",
	"internal/oak/internal/transfer: pool":      "buffers of 256 KiB, which hold nothing that is met again",
	"internal/oak/internal/segment: cache":      "nodes in a row have few templates, each of many records",
	"format/rvn: pool":                          "encoders, which take long to make and hold nothing that is met again",
}

// Goroutines and channels have no such list.
func TestFormatsStartNoGoroutineAndKeepNoCache(t *testing.T) {
	needed := map[string]bool{}
	skip := func(file string) bool { return file == "format/formattest" || file == "format/kit/pipe" } // the latter waits for what it starts
	for _, dir := range []string{"format", "internal/oak"} {
		eachFile(t, dir, skip, func(file string, set *token.FileSet, f *ast.File) {
			signs(f, func(n ast.Node, sign string) {
				key := path.Dir(file) + ": " + sign
				if needed[key] = true; remembered[key] == "" {
					t.Errorf("%s: a %s: formats start no goroutine and keep no cache (docs/DESIGN.md)", set.Position(n.Pos()), sign)
				}
			})
		})
	}
	for key := range remembered {
		if !needed[key] {
			t.Errorf("%q is not kept any more: take it from the list", key)
		}
	}
}

// A regular expression that is compiled before main begins costs every start of the command.
func TestNoExpressionIsCompiledBeforeItIsUsed(t *testing.T) {
	skip := func(file string) bool {
		return slices.Contains([]string{"bench", "e2e", "interop", "tools", "docs", "python"}, file)
	}
	eachFile(t, ".", skip, func(_ string, set *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if at, ok := call.Fun.(*ast.SelectorExpr); ok && at.Sel.Name == "MustCompile" {
					t.Errorf("%s: an expression that every start compiles: use sync.OnceValue", set.Position(n.Pos()))
				}
			}
			_, function := n.(*ast.FuncDecl)
			_, literal := n.(*ast.FuncLit)
			return !function && !literal
		})
	})
}

// Which library hashes by BLAKE3 is decided in one package.
func TestOnePackageChoosesTheLibraryOfBLAKE3(t *testing.T) {
	const owner = "internal/base/blake3/"
	found := 0
	skip := func(file string) bool { return file == "bench" || file == "interop" } // which compare with them
	eachFile(t, ".", skip, func(file string, set *token.FileSet, f *ast.File) {
		for _, i := range f.Imports {
			if name := strings.Trim(i.Path.Value, `"`); name == "github.com/zeebo/blake3" || strings.HasPrefix(name, "lukechampine.com/blake3") {
				if found++; !strings.HasPrefix(file, owner) {
					t.Errorf("%s: use %s", set.Position(i.Pos()), owner)
				}
			}
		}
	})
	if found != 2 {
		t.Errorf("found %d imports, and expected 2", found)
	}
}

// eachFile parses the files of programs below a folder.
func eachFile(t *testing.T, dir string, skip func(file string) bool, look func(file string, set *token.FileSet, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if file = filepath.ToSlash(file); skip(file) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err == nil {
			look(file, set, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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
