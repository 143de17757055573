package holdall_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// floors says which rooms of the house a room may open. A room absent here may
// not exist: whoever adds one decides where it stands. Arrows go down only.
var floors = map[string]string{
	"codec":                              "",
	"store":                              "",
	"store/storetest":                    "store",
	"store/local":                        "store",
	"store/web":                          "store",
	"store/bucket":                       "store store/web",
	"store/bucket/s3test":                "",
	"store/azure":                        "store store/web",
	"format":                             "store",
	"format/caf":                         "format store codec",
	"format/lindi":                       "format store codec",
	"format/tar":                         "format store codec",
	"format/zip":                         "format store codec",
	"format/rvn":                         "format store codec format/rvn/internal/press format/rvn/internal/shlib format/rvn/internal/ucl",
	"format/databundle":                  "format store codec format/databundle/internal/sstable internal/sorter",
	"format/databundle/internal/sstable": "store",
	"format/rvn/recipe":                  "format/rvn/internal/shlib format/rvn/internal/ucl",
	"format/rvn/internal/press":          "",
	"format/rvn/internal/shlib":          "",
	"format/rvn/internal/ucl":            "",
	"format/formattest":                  "format store codec store/storetest",
	"format/formattest/tiny":             "format store codec",
	"internal/pipe":                      "",
	"internal/tree":                      "",
	"internal/people":                    "",
	"internal/sorter":                    "",
	"internal/cache":                     "store",
	"internal/kept":                      "format store codec internal/pipe internal/sorter",
	"internal/engine":                    "format store codec internal/pipe",
	"bytemap":                            "format",
	"zarr":                               "",
	"":                                   "format store codec internal/engine internal/cache internal/kept internal/people internal/pipe internal/tree internal/sorter",
	"format/all":                         "format format/caf format/databundle format/lindi format/oak format/rvn format/tar format/zip",
	"store/all":                          "store store/azure store/bucket store/local store/web",
	"app/catalog/survey":                 " app/catalog codec format store",
	"app/fleet":                          " app/catalog app/catalog/survey format internal/tree store",
	"app/fleet/river":                    "app/catalog format",
	"app/catalog":                        "format internal/sorter",
	"app/catalog/pgtest":                 "",
	"app/serve":                          " docs format internal/sorter store",
	"mount":                              " format store internal/people",
	"cmd/holdall":                        " format store codec bytemap zarr mount app/explore app/explore/nodes app/serve app/catalog app/catalog/survey app/fleet app/fleet/river format/all store/all store/local format/oak format/rvn/recipe",
	"app/explore":                        " bytemap codec format store zarr",
	"app/explore/nodes":                  " app/explore format format/oak",
	"format/oak":                         "format store codec internal/sorter format/oak/internal/audit format/oak/internal/compact format/oak/internal/newstore format/oak/internal/newtree format/oak/internal/nodejson format/oak/internal/proof format/oak/internal/repo format/oak/internal/rescue format/oak/internal/segment format/oak/internal/sweep format/oak/internal/tarfile",
	"format/oak/internal/tarfile":        "store format/oak/internal/segment",
	"format/oak/internal/segment":        "",
	"format/oak/internal/repo":           "store format/oak/internal/segment format/oak/internal/tarfile internal/pipe",
	"format/oak/internal/compact":        "format/oak/internal/segment",
	"format/oak/internal/newtree":        "format/oak/internal/segment internal/sorter",
	"format/oak/internal/newstore":       "store format/oak/internal/repo format/oak/internal/segment format/oak/internal/tarfile",
	"format/oak/internal/nodejson":       "format/oak/internal/segment",
	"format/oak/internal/audit":          "store format/oak/internal/repo format/oak/internal/segment format/oak/internal/tarfile",
	"format/oak/internal/proof":          "format/oak/internal/segment",
	"format/oak/internal/rescue":         "store format/oak/internal/segment format/oak/internal/tarfile",
	"format/oak/internal/sweep":          "store format/oak/internal/repo format/oak/internal/segment format/oak/internal/tarfile",
	"interop/oak":                        "",
	"interop/s3":                         "store store/bucket store/storetest",
	"interop/fleet":                      " app/catalog app/catalog/pgtest store store/bucket format/all store/all",
	"interop/azure":                      "store store/azure store/storetest",
	"interop/lindi":                      "",
	"interop/databundle":                 " format store format/all store/all format/databundle",
	"interop/rvn":                        " format store format/all store/all",
	"interop/serve":                      " app/serve format/all store/all",
	"bench":                              " app/catalog app/catalog/pgtest format store format/all store/all store/local",
	"docs":                               "",
}

// offThePath are rooms that need not build for a browser and may use what the
// others must not.
var offThePath = map[string]bool{
	"app/catalog":         true,
	"app/catalog/pgtest":  true,
	"app/catalog/survey":  true,
	"app/explore":         true,
	"app/explore/nodes":   true,
	"app/fleet":           true,
	"app/fleet/river":     true,
	"app/serve":           true,
	"bench":               true,
	"cmd/holdall":         true,
	"docs":                true,
	"interop/azure":       true,
	"interop/databundle":  true,
	"interop/fleet":       true,
	"interop/lindi":       true,
	"interop/oak":         true,
	"interop/rvn":         true,
	"interop/s3":          true,
	"interop/serve":       true,
	"mount":               true,
	"store/all":           true,
	"store/azure":         true,
	"store/bucket":        true,
	"store/bucket/s3test": true,
	"store/local":         true,
	"store/web":           true,
}

// forbidden keeps what reads archives small: no network, no database, no system
// calls of one system.
var forbidden = []string{"syscall/js", "golang.org/x/sys", "database/sql", "net/http"}

func TestRoomsOpenOnlyDownwards(t *testing.T) {
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
		room := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, mod), "/")
		may, ok := floors[room]
		if !ok {
			t.Errorf("%s: a new room; give it a floor in arch_test.go", room)
			continue
		}
		for _, imp := range p.Imports {
			below, ours := strings.CutPrefix(imp, mod)
			if below = strings.TrimPrefix(below, "/"); ours && !opens(may, below) {
				t.Errorf("%q must not open %q; it may open: %s", room, below, may)
			}
			for _, f := range forbidden {
				if strings.HasPrefix(imp, f) && !offThePath[room] {
					t.Errorf("%s is on the read path and must not import %s", room, imp)
				}
			}
		}
	}
}

// opens reports whether may, a list of rooms, has the room below. The root has
// no name, so a leading space stands for it.
func opens(may, below string) bool {
	if below == "" {
		return strings.HasPrefix(may, " ")
	}
	return strings.Contains(" "+may+" ", " "+below+" ")
}
