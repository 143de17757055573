package hdf5_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// views are all ways in which a file is read.
var views = append([]string{""}, hdf5.Format.Views...)

// exhaust does all that can be done with a file that may be damaged. Nothing may panic, and every
// error must say that something is damaged or not supported. It returns how many contents were read.
func exhaust(t *testing.T, b []byte) (read int) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	st := &storetest.Mem{}
	st.Put("x.h5", b)
	for _, view := range views {
		o := format.OpenOptions{View: view}
		check("verify", hdf5.Format.Verify(ctx, st, "x.h5", o, func(p format.Problem) {
			if p.Code == "" || p.Message == "" || p.Off > int64(len(b)) {
				t.Errorf("a problem that says too little: %+v", p)
			}
		}))
		r, err := hdf5.Format.Open(ctx, st, "x.h5", o)
		if check("open", err); err != nil {
			continue
		}
		for e, err := range r.Entries(ctx) {
			if check(view+" entries", err); err != nil {
				break
			}
			if e.Fault != nil || !e.Kind.HasContent() || e.Size > 1<<20 {
				continue
			}
			_, err := contents(ctx, st, r, e)
			if check(view+" "+e.Name, err); err == nil {
				read++
			}
		}
		for _, err := range r.Regions(ctx) {
			check(view+" regions", err)
		}
		_, err = r.About(ctx)
		check(view+" about", err)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	return read
}

func TestDamagedFilesAreReadAsFarAsTheyGo(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	names := []string{"kinds_earliest", "kinds_latest", "links_earliest", "links_v110", "attributes_latest", "chunks_earliest", "chunks_latest", "filters_latest", "user_block_latest", "shared_v108"}
	rounds := testkit.Rounds(t, 100)/len(names) + 1
	read, all := 0, 0
	for _, name := range names {
		whole := testkit.Read(t, "../../hdf5/testdata/"+name+".h5")
		good := exhaust(t, whole)
		for range rounds {
			b, what := testkit.Damage(rnd, whole)
			all += good
			if made := testkit.Allocated(func() { read += exhaust(t, b) }); made > 1<<30 {
				t.Errorf("%d bytes were made", made)
			}
			if t.Failed() {
				t.Fatal(name, what)
			}
		}
	}
	t.Logf("of %d contents %d were read", all, read)
}

// Whatever a file contains, all views of it end, and are consistent.
func FuzzViews(f *testing.F) {
	names, err := filepath.Glob("../../hdf5/testdata/*.h5.gz")
	if err != nil || len(names) == 0 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		if b := testkit.Read(f, strings.TrimSuffix(name, ".gz")); len(b) < 16<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 1<<20 {
			exhaust(t, b)
		}
	})
}
