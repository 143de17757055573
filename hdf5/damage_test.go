package hdf5

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// HOLDALL_LONG=20000 damages as many files.
func TestDamagedFilesAreReadAsFarAsTheyGo(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	names := []string{"kinds_earliest", "kinds_latest", "links_earliest", "links_v110", "attributes_latest", "chunks_earliest", "chunks_latest", "filters_latest", "user_block_latest", "shared_v108"}
	objects, all := 0, 0
	rounds := testkit.Rounds(t, 300)/len(names) + 1
	for _, name := range names {
		whole := testkit.Read(t, "testdata/"+name+".h5")
		good := exhaust(t, openBytes(t, whole))
		for range rounds {
			b, what := testkit.Damage(rnd, whole)
			all += good
			made := testkit.Allocated(func() {
				f, err := Open(t.Context(), inMemory(t, b))
				if checkKind(t, err); err == nil {
					objects += min(good, exhaust(t, f))
				}
			})
			// What is read, a cache, and what codecs take.
			if made > 256<<20 {
				t.Errorf("%s, %s: made %d bytes", name, what, made)
			}
			if t.Failed() {
				t.Fatal(name, what)
			}
		}
	}
	t.Logf("of %d objects %d were listed", all, objects)
}

// Each structure that has a checksum is changed somewhere.
func TestChecksumsShowDamage(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	kinds := map[string]int{}
	for _, name := range []string{"links_latest", "attributes_latest", "chunks_latest", "paged_latest", "shared_latest"} {
		whole := testkit.Read(t, "testdata/"+name+".h5")
		var regions []Region
		opt := WalkOptions{Chunks: 1 << 20, Seen: func(r Region) { regions = append(regions, r) }}
		for _, err := range openBytes(t, whole).Walk(t.Context(), opt) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range regions {
			if r.What == "B-tree node" || strings.Contains(r.What, "heap") && r.Len != 146 {
				continue // not all of their bytes are summed, but of a fractal heap's header
			}
			if kinds[r.What]++; kinds[r.What] > 60 {
				continue
			}
			b := bytes.Clone(whole)
			at := r.Off + rnd.Int64N(r.Len)
			b[at] ^= byte(1 + rnd.IntN(255))
			if !showsDamage(t, b) {
				t.Errorf("%s: a change at byte %d of %s at %d is not seen", name, at-r.Off, r.What, r.Off)
			}
		}
	}
	for _, what := range []string{"object header", "B-tree header", "fractal heap", "fixed array", "fixed array's page", "extensible array", "extensible array's block"} {
		if kinds[what] == 0 {
			t.Errorf("no %s was changed, only %v", what, kinds)
		}
	}
}

func showsDamage(t *testing.T, b []byte) bool {
	t.Helper()
	f, err := Open(t.Context(), inMemory(t, b))
	if err != nil {
		return ofFile(err) || errors.Is(err, ErrNotHDF5)
	}
	if f.Err != nil {
		return true
	}
	opt := WalkOptions{Chunks: 1 << 20}
	for o, err := range f.Walk(t.Context(), opt) {
		if err != nil {
			t.Fatal(err)
		}
		if o.Err != nil || o.indexErr != nil || slices.ContainsFunc(o.Attributes, func(a Attribute) bool { return a.Err != nil }) {
			return true
		}
	}
	return false
}

func TestErrorsNameFileAndPlace(t *testing.T) {
	b := testkit.Read(t, "testdata/kinds_latest.h5")
	f := openBytes(t, b)
	o, err := f.Find(t.Context(), "/spaces/rank5")
	if err != nil {
		t.Fatal(err)
	}
	b[o.Addr+30] ^= 1
	f = openBytes(t, b)
	_, err = f.Find(t.Context(), "/spaces/scalar")
	if err != nil {
		t.Fatal("another object's damage:", err)
	}
	if o, err = f.Find(t.Context(), "/spaces/rank5"); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if !errors.As(o.Err, &e) || e.Off != o.Addr || !errors.Is(o.Err, ErrChecksum) || !strings.HasPrefix(o.Err.Error(), "x.h5: object header at byte ") {
		t.Errorf("%v", o.Err)
	}
}

// No filter takes the half of a chunk for a chunk.
func TestShortChunksAreRefused(t *testing.T) {
	x := openBytes(t, testkit.Read(t, "testdata/filters_latest.h5"))
	n := 0
	for o, err := range x.Walk(t.Context(), none) {
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range o.Chunks(t.Context()) {
			b := make([]byte, c.Size)
			if err == nil {
				err = x.obj.ReadAt(t.Context(), b, c.Addr)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.Decode(c, b); err != nil {
				t.Fatal(err)
			}
			for _, short := range [][]byte{b[:0], b[:1], b[:len(b)/2]} {
				if _, err := o.Decode(c, short); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: %d of %d bytes: %v", o.Path, len(short), len(b), err)
				}
			}
			n++
			break
		}
	}
	if n < 30 {
		t.Errorf("only %d datasets have chunks", n)
	}
}
