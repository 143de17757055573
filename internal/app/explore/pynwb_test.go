package explore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

func python(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Needs(t, "HOLDALL_HDF5_PYTHON"), args...)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &errs)
	}
	return out
}

// TestTablesAreWhatPynwbReads compares tables with those that pynwb reads, in
// HDF5 and in the files that LINDI's own package makes of it.
func TestTablesAreWhatPynwbReads(t *testing.T) {
	testkit.Serial(t)
	dir, scripts := t.TempDir(), filepath.Join("..", "..", "..", "interop", "hdf5")
	python(t, filepath.Join(scripts, "nwb.py"), dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.nwb"))
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	python(t, append([]string{"-c", "import lindi, sys\nfor f in sys.argv[1:]: lindi.LindiH5pyFile.from_hdf5_file(f, url=f).write_lindi_file(f + '.lindi.json')"}, files...)...)
	truths := json.NewDecoder(bytes.NewReader(python(t, append([]string{filepath.Join(scripts, "tables.py")}, files...)...)))
	compared := 0
	for _, file := range files {
		var want map[string]struct {
			IDs     []int64
			Columns map[string][]any
		}
		if err := truths.Decode(&want); err != nil {
			t.Fatal(err)
		}
		for _, form := range []struct {
			name string
			f    *format.Format
		}{{filepath.Base(file), hdf5.Format}, {filepath.Base(file) + ".lindi.json", lindi.Format}} {
			s := serving(t, opened(local.New(dir), form.name, form.f))
			for at, w := range want {
				got := s.tableOf(at)
				if fmt.Sprint(got.IDs) != fmt.Sprint(w.IDs) || got.Fault != "" {
					t.Errorf("%s: the ids of %s are %v, expected %v", form.name, at, got.IDs, w.IDs)
				}
				for i, c := range got.Columns {
					values, ok := w.Columns[c.Name]
					if !ok && strings.Contains(c.Name, " / ") {
						continue // this belongs to a table beside it, which is compared by itself
					}
					if !ok || len(values) != len(got.Cells[i]) || c.Fault != "" {
						t.Errorf("%s: column %s of %s has %d cells, expected %d: %s", form.name, c.Name, at, len(got.Cells[i]), len(values), c.Fault)
						continue
					}
					for k, v := range values {
						if !isCell(got.Cells[i][k], v) {
							t.Errorf("%s: row %d of column %s of %s is %s, expected %v", form.name, k, c.Name, at, got.Cells[i][k], v)
						}
						compared++
					}
				}
				if len(got.Columns) < len(w.Columns) {
					t.Errorf("%s: %s has %d columns, expected %d", form.name, at, len(got.Columns), len(w.Columns))
				}
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d cells were compared", compared)
	}
}

// isCell compares a cell with a value.
func isCell(c cell, v any) bool {
	switch v := v.(type) {
	case []any:
		if c.N == nil || *c.N != int64(len(v)) || len(c.L) != min(8, len(v)) {
			return false
		}
		for i, x := range c.L {
			if !isCell(x, v[i]) {
				return false
			}
		}
		return true
	case float64:
		f, err := strconv.ParseFloat(c.T, 64)
		return err == nil && c.N == nil && math.Abs(f-v) <= 1e-7*math.Abs(v)
	case bool:
		return c.T == strconv.FormatBool(v)
	case map[string]any:
		return c.R != "" && c.R == v["to"]
	case string:
		return c.T == v && c.N == nil && c.F == ""
	}
	return false
}
