package hdf5_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/hdf5"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestObjectsConform(t *testing.T) {
	f := *hdf5.Format
	f.Views = nil // which are about all of a file
	f.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		o.View = "objects"
		return hdf5.Format.Open(ctx, st, name, o)
	}
	f.Verify = func(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
		o.View = "objects"
		return hdf5.Format.Verify(ctx, st, name, o, report)
	}
	for _, name := range []string{"attributes_earliest.h5", "user_block_earliest.h5"} {
		file := testkit.Read(t, "../../hdf5/testdata/"+name)
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, &f, map[string][]byte{name: file}, name)
		})
	}
}

// contents puts the extents of a content together.
func contents(ctx context.Context, st store.Store, r format.Reader, e format.Entry) ([]byte, error) {
	b := make([]byte, e.Size)
	end := int64(0)
	for x, err := range r.Extents(ctx, e, 0, e.Size) {
		if err != nil {
			return nil, err
		}
		if x.At != end || x.Size > e.Size-end {
			return nil, fmt.Errorf("an extent at %d+%d, expected %d of %d", x.At, x.Size, end, e.Size)
		}
		part := b[end:][:x.Size]
		end += x.Size
		switch x.Codec {
		case codec.Zero:
		case codec.Inline:
			made, err := x.Inline(ctx)
			if err != nil {
				return nil, err
			}
			if len(made) != len(part) {
				return nil, fmt.Errorf("an extent of %d bytes has %d", len(part), len(made))
			}
			copy(part, made)
		default:
			o, err := st.Open(ctx, x.Object)
			if err != nil {
				return nil, err
			}
			if err := o.ReadAt(ctx, part, x.Off); err != nil {
				return nil, err
			}
		}
	}
	if end != e.Size {
		return nil, fmt.Errorf("extents end at %d of %d", end, e.Size)
	}
	return b, nil
}

// refers reports whether elements of a type are shown as text, since they say where something
// is.
func refers(t *h5.Datatype) bool {
	return t.Class == h5.Variable || t.Class == h5.Reference || t.Class == h5.Array && refers(t.Base) ||
		slices.ContainsFunc(t.Fields, func(f h5.Field) bool { return refers(f.Type) })
}

// TestObjectsAreTheElements compares each dataset in the view with what package hdf5 reads, which
// is compared with h5py elsewhere.
func TestObjectsAreTheElements(t *testing.T) {
	names, err := filepath.Glob("../../hdf5/testdata/*.h5.gz")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	compared := 0
	for _, name := range names {
		st := &storetest.Mem{}
		st.Put("x.h5", testkit.Read(t, strings.TrimSuffix(name, ".gz")))
		r, err := hdf5.Format.Open(t.Context(), st, "x.h5", format.OpenOptions{View: "objects"})
		if err != nil {
			t.Fatal(name, err)
		}
		defer r.Close()
		obj, err := st.Open(t.Context(), "x.h5")
		if err != nil {
			t.Fatal(err)
		}
		f, err := h5.Open(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(name, err)
			}
			if e.Kind != format.File || e.Fault != nil || e.Size > 1<<30 {
				continue
			}
			o, err := f.Find(t.Context(), e.Name)
			if err != nil {
				t.Fatal(name, e.Name, err)
			}
			var want bytes.Buffer
			if err := o.WriteElements(t.Context(), &want); err != nil {
				t.Fatal(name, e.Name, err)
			}
			got, err := contents(t.Context(), st, r, e)
			if err != nil {
				t.Fatal(name, e.Name, err)
			}
			if want.Len() > 0 && refers(o.Type) {
				scalarText := len(o.Space.Dims) == 0 && o.Type.Class == h5.Variable && o.Type.IsString
				if lines := int64(bytes.Count(got, []byte("\n"))); lines != o.Space.Elements() && !scalarText {
					t.Errorf("%s: %s has %d lines, expected %d", name, e.Name, lines, o.Space.Elements())
				}
				continue
			}
			if compared++; !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s: %s differs", name, e.Name)
			}
		}
	}
	if compared < 350 {
		t.Errorf("%d datasets were compared", compared)
	}
}

// The index of a file is what the map shows of it, in each view.
func TestTheSizeOfTheIndexIsThatOnTheMap(t *testing.T) {
	files, err := filepath.Glob("../../hdf5/testdata/*.h5.gz")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		st := &storetest.Mem{}
		st.Put("x.h5", testkit.Read(t, strings.TrimSuffix(name, ".gz")))
		for _, view := range hdf5.Format.Views {
			r, err := hdf5.Format.Open(t.Context(), st, "x.h5", format.OpenOptions{View: view})
			if err != nil {
				t.Fatal(name, err)
			}
			about, err := r.About(t.Context())
			if err != nil {
				t.Error(name, err)
			}
			var drawn int64
			for x, err := range r.Regions(t.Context()) {
				if err != nil {
					t.Error(name, err)
				}
				if x.Use == format.IndexData {
					drawn += x.Len
				}
			}
			if about.IndexBytes != drawn || drawn == 0 {
				t.Errorf("%s, view %s: %d bytes of index, and %d on the map", filepath.Base(name), view, about.IndexBytes, drawn)
			}
			r.Close()
		}
	}
}
