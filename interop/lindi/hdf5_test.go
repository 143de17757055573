package lindi_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/testkit"
)

const hdf5Var = "HOLDALL_HDF5_PYTHON"

var both = []*format.Format{lindi.Format, hdf5.Format}

// hdf5Batch runs scripts of ../hdf5, which lindi is a part of.
var hdf5Batch = testkit.Batch{Var: hdf5Var, Args: []string{"../hdf5/batch.py"}}

// readsAs lets the reference read an archive, and compares that with the HDF5 file as h5py reads it.
func readsAs(t *testing.T, archive, file string) {
	t.Helper()
	var a answer
	if hdf5Batch.Ask(t, &a, "reads", archive, file); a.Code != 0 {
		t.Errorf("%s: exit code %d\n%s%s", archive, a.Code, a.Stdout, a.Stderr)
	}
}

// The reference finds in archives of ours what h5py finds in the files: where chunks are joined,
// and where objects were added to an archive that had others.
func TestArchivesOfHDF5AreAsTheFiles(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), testkit.Needs(t, hdf5Var), "../hdf5/nwb.py", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.nwb"))
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for i, file := range files {
		from, err := holdall.Open(t.Context(), file, holdall.OpenOptions{Formats: both})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		base := strings.TrimSuffix(file, ".nwb")
		for _, out := range []string{base + ".lindi.tar", base + ".lindi.d"} {
			if _, err := holdall.Convert(t.Context(), from, out, holdall.PackOptions{Formats: both, Param: map[string]string{"consolidate": "100000"}}); err != nil {
				t.Fatal(err)
			}
			readsAs(t, out, file)
		}
		// An archive of a different recording becomes this one, if its own objects are removed
		// first.
		other := strings.TrimSuffix(files[(i+1)%len(files)], ".nwb")
		fresh := base + "-added.lindi.tar"
		another, err := holdall.Open(t.Context(), other+".nwb", holdall.OpenOptions{Formats: both})
		if err != nil {
			t.Fatal(err)
		}
		defer another.Close()
		if _, err := holdall.Convert(t.Context(), another, fresh, holdall.PackOptions{Formats: both, Param: map[string]string{"consolidate": "100000"}}); err != nil {
			t.Fatal(err)
		}
		m, err := holdall.Amend(t.Context(), fresh, holdall.OpenOptions{View: "zarr", Formats: both})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for e, err := range openView(t, fresh, "zarr").Entries(t.Context()) {
			if err == nil && strings.Contains(e.Name, "/") {
				err = m.Remove(t.Context(), e.Name)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if failed, err := m.AddFrom(t.Context(), from, nil, holdall.AddOptions{}); err != nil || failed > 0 {
			t.Fatal(failed, err)
		}
		if _, err := m.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		readsAs(t, fresh, file)
		appendWith(t, fresh, "--seed", "6")
		if found := wrong(t, fresh); len(found) > 0 {
			t.Errorf("%s: %v", fresh, found)
		}
	}
}
