package hierarchy_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
)

// about is the description that pynwb gives of a file, as
// interop/hdf5/about.py prints it.
type about struct {
	Version string
	Session hierarchy.Session
	Subject *hierarchy.Subject
	Devices map[string]hierarchy.Device
	Series  map[string]hierarchy.Series
	Tables  map[string]hierarchy.Table
}

func python(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Needs(t, "HOLDALL_HDF5_PYTHON"), args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &errs)
	}
	return out
}

// TestNWBIsWhatPynwbReads checks that the descriptions of NWB files equal
// those by pynwb, in every form of the files, local and remote.
func TestNWBIsWhatPynwbReads(t *testing.T) {
	dir := t.TempDir()
	scripts := filepath.Join("..", "..", "..", "interop", "hdf5")
	python(t, filepath.Join(scripts, "nwb.py"), dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.nwb"))
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	python(t, append([]string{"-c", "import lindi, sys\nfor f in sys.argv[1:]: lindi.LindiH5pyFile.from_hdf5_file(f, url=f).write_lindi_file(f[:-4] + '" + theirs + "')"}, files...)...)
	truths := json.NewDecoder(bytes.NewReader(python(t, append([]string{filepath.Join(scripts, "about.py")}, files...)...)))
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
	}))
	defer srv.Close()
	for _, file := range files {
		var want about
		if err := truths.Decode(&want); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".nwb")
		for _, form := range formsOf(t, file) {
			for _, address := range []string{form, srv.URL + "/" + filepath.Base(form)} {
				if info, err := os.Stat(form); err != nil || info.IsDir() && address != form {
					continue
				}
				n := say(t, address, &asked)
				same(t, name+" "+filepath.Base(form), n, want)
			}
		}
	}
}

// theirs is the end of the names of files that LINDI's own package made.
const theirs = ".theirs.lindi.json"

// formsOf returns an NWB file in all forms that it can have.
func formsOf(t *testing.T, file string) []string {
	t.Helper()
	base := strings.TrimSuffix(file, ".nwb")
	convert := func(from, view, to string) string {
		a, err := holdall.Open(t.Context(), from, holdall.OpenOptions{View: view})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if _, err := holdall.Convert(t.Context(), a, to, holdall.PackOptions{}); err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		return to
	}
	tar := convert(file, "zarr", base+".lindi.tar")
	folder := base + ".lindi.d"
	return []string{file, base + theirs, tar, convert(file, "zarr", base+".lindi.json"), convert(tar, "", folder), convert(tar, "zarr", base+".caf"), convert(tar, "zarr3", base+".zip")}
}

func say(t *testing.T, address string, asked *atomic.Int64) *hierarchy.NWB {
	t.Helper()
	view := ""
	if strings.Contains(address, ".lindi.") {
		view = "zarr"
	}
	a, err := holdall.Open(t.Context(), address, holdall.OpenOptions{View: view})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	// In a zip, each file has a header before it, which takes a request.
	if asked.Store(0); !strings.HasSuffix(address, ".zip") {
		defer func() {
			if requests := asked.Load(); requests > 6 {
				t.Errorf("%s: %d requests besides those that opened it", address, requests)
			}
		}()
	}
	h, err := hierarchy.Read(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	n, err := h.NWB(t.Context(), 1000)
	if err != nil || n == nil || n.Err != nil {
		t.Fatalf("%s: %v, %v", address, n, err)
	}
	return n
}

// same compares a description with the correct one.
func same(t *testing.T, name string, got *hierarchy.NWB, want about) {
	t.Helper()
	if got.Version != want.Version || !reflect.DeepEqual(got.Session, want.Session) || !reflect.DeepEqual(got.Subject, want.Subject) {
		t.Errorf("%s: %s, %+v, %+v, expected %s, %+v, %+v", name, got.Version, got.Session, got.Subject, want.Version, want.Session, want.Subject)
	}
	if len(got.Devices) != len(want.Devices) || len(got.Series) != len(want.Series) || len(got.Tables) != len(want.Tables) {
		t.Errorf("%s: %d devices, %d series, %d tables; expected %d, %d, %d", name, len(got.Devices), len(got.Series), len(got.Tables), len(want.Devices), len(want.Series), len(want.Tables))
	}
	for _, d := range got.Devices {
		w := want.Devices[d.Name]
		if w.Name = d.Name; d != w {
			t.Errorf("%s: %+v, expected %+v", name, d, w)
		}
	}
	for _, x := range got.Tables {
		w := want.Tables[x.Path]
		if w.Path = x.Path; !reflect.DeepEqual(x, w) {
			t.Errorf("%s: %+v, expected %+v", name, x, w)
		}
	}
	for _, x := range got.Series {
		w := want.Series[x.Path]
		// Version 3 of Zarr records no byte order for types of one byte.
		if x.DType = strings.TrimLeft(x.DType, "<|"); x.Error != "" || x.Type != w.Type || x.DType != strings.TrimLeft(w.DType, "<|") || !slices.Equal(x.Shape, w.Shape) || x.Unit != w.Unit ||
			!near(x.Conversion, w.Conversion) || !near(x.Rate, w.Rate) || !near(x.Start, w.Start) || !near(x.Duration, w.Duration) || !reflect.DeepEqual(x.Timestamps, w.Timestamps) {
			t.Errorf("%s: %s, expected %s", name, text(x), text(w))
		}
	}
}

func text(x hierarchy.Series) string {
	b, _ := json.Marshal(x)
	return string(b)
}

// near compares numbers that were computed in different orders.
func near(x, y *float64) bool {
	if x == nil || y == nil {
		return x == y
	}
	return math.Abs(*x-*y) <= 1e-9*math.Max(1, math.Abs(*y))
}
