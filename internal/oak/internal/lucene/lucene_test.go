package lucene

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// files are the files of an index, by name.
type files map[string][]byte

// indexes reads the indexes that testdata/Make.java made: of two segments with three documents, of
// which one is deleted. In the one with single files, a value of another document was updated.
func indexes(t testing.TB) (compound, single files) {
	t.Helper()
	f, err := os.Open("testdata/indexes.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]files{"compound": {}, "single": {}}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[path.Dir(h.Name)][path.Base(h.Name)] = b
	}
	return all["compound"], all["single"]
}

func (f files) check(t testing.TB) (docs int64, unused map[string]bool, faults []string) {
	t.Helper()
	d := Dir{Files: map[string]int64{}}
	for name, b := range f {
		d.Files[name] = int64(len(b))
	}
	d.Read = func(_ context.Context, name string, off, n int64) ([]byte, error) {
		if off < 0 || n < 0 || off+n > int64(len(f[name])) {
			t.Fatalf("%s: %d bytes at %d, of %d", name, n, off, len(f[name]))
		}
		return f[name][off : off+n], nil
	}
	docs, unused, err := Check(t.Context(), d, func(file, what string) { faults = append(faults, file+": "+what) })
	if err != nil {
		t.Fatal(err)
	}
	return docs, unused, faults
}

func TestIndexesOfLuceneAreSound(t *testing.T) {
	compound, single := indexes(t)
	for _, f := range []files{compound, single} {
		if docs, unused, faults := f.check(t); docs != 5 || len(unused) > 0 || len(faults) > 0 {
			t.Errorf("%d documents, %v, %q", docs, unused, faults)
		}
	}
}

func TestEachFileThatIsMissingIsFound(t *testing.T) {
	compound, single := indexes(t)
	for _, f := range []files{compound, single} {
		for name := range f {
			less := maps.Clone(f)
			delete(less, name)
			_, unused, faults := less.check(t)
			switch {
			case name == segmentsGen:
				if len(faults) > 0 {
					t.Errorf("without %s: %q", name, faults)
				}
			case strings.HasPrefix(name, "segments"):
				if len(faults) != 1 || !strings.HasPrefix(faults[0], ": no file segments_N") || len(unused) > 0 {
					t.Errorf("without %s: %q", name, faults)
				}
			case len(faults) != 1 || !strings.HasPrefix(faults[0], name+": missing, but "):
				t.Errorf("without %s: %q", name, faults)
			}
		}
	}
}

// A file is found that is empty, or that has the content of another one.
func TestEachFileWithAnotherContentIsFound(t *testing.T) {
	compound, single := indexes(t)
	for _, f := range []files{compound, single} {
		for name := range f {
			for other := range f {
				if _, known := headers[path.Ext(name)]; path.Ext(name) == path.Ext(other) || !known && name != segmentsGen && !strings.HasPrefix(name, "segments") {
					continue
				}
				// Vectors have the words of stored fields in their header.
				if pair := path.Ext(name) + path.Ext(other); slices.Contains([]string{".fdt.tvd", ".fdx.tvx", ".tvx.fdx"}, pair) {
					continue
				}
				changed := maps.Clone(f)
				changed[name] = f[other]
				if _, _, faults := changed.check(t); len(faults) == 0 {
					t.Errorf("%s with the content of %s: nothing found", name, other)
				}
			}
			changed := maps.Clone(f)
			changed[name] = nil
			if _, known := headers[path.Ext(name)]; known || name == segmentsGen || strings.HasPrefix(name, "segments") {
				if _, _, faults := changed.check(t); len(faults) == 0 || !strings.HasPrefix(faults[0], name+": ") {
					t.Errorf("%s is empty: %q", name, faults)
				}
			}
		}
	}
}

func TestEachBitOfACommitCounts(t *testing.T) {
	compound, _ := indexes(t)
	for i := range compound["segments_3"] {
		changed := maps.Clone(compound)
		changed["segments_3"] = bytes.Clone(compound["segments_3"])
		changed["segments_3"][i] ^= 1 << (i % 8)
		if _, _, faults := changed.check(t); len(faults) == 0 {
			t.Errorf("byte %d: nothing found", i)
		}
	}
}

func TestCompoundFileThatIsCutOffIsFound(t *testing.T) {
	compound, _ := indexes(t)
	compound["_1.cfs"] = compound["_1.cfs"][:len(compound["_1.cfs"])-1]
	if _, _, faults := compound.check(t); len(faults) != 1 || !strings.HasPrefix(faults[0], "_1.cfe: expected each file once and in the 1295 bytes of _1.cfs") {
		t.Errorf("%q", faults)
	}
}

func TestWhatNothingRefersToIsUnused(t *testing.T) {
	compound, _ := indexes(t)
	compound["_7.cfs"], compound["segments_2"], compound["segments_0x"] = []byte("old"), []byte("old"), nil
	_, unused, faults := compound.check(t)
	if len(faults) > 0 || !maps.Equal(unused, map[string]bool{"_7.cfs": true, "segments_0x": true, "segments_2": true}) {
		t.Errorf("%v, %q", unused, faults)
	}
}

func TestNewerCommitCounts(t *testing.T) {
	compound, _ := indexes(t)
	compound["segments_10"] = nil
	if _, unused, faults := compound.check(t); len(unused) > 0 || len(faults) != 1 || !strings.HasPrefix(faults[0], "segments_10: ") {
		t.Errorf("%v, %q", unused, faults)
	}
	delete(compound, "segments_10")
	compound[segmentsGen] = bytes.Clone(compound[segmentsGen])
	compound[segmentsGen][11], compound[segmentsGen][19] = 36, 36
	if _, _, faults := compound.check(t); len(faults) != 1 || !strings.Contains(faults[0], "names segments_10") {
		t.Errorf("%q", faults)
	}
}

func TestVersionsThatOakCannotReadAreFound(t *testing.T) {
	compound, _ := indexes(t)
	b := bytes.Clone(compound["segments_3"])
	b[16] = 3 // the version, after 4 + 1 + 8 bytes
	compound["segments_3"] = b
	if _, _, faults := compound.check(t); len(faults) != 1 || faults[0] != "segments_3: expected at most version 1, which Oak can read, found 3" {
		t.Errorf("%q", faults)
	}
}

func TestDeletionsMustFit(t *testing.T) {
	compound, _ := indexes(t)
	b := bytes.Clone(compound["segments_3"])
	at := bytes.Index(b, []byte("Lucene46")) + len("Lucene46") + 8
	binary.BigEndian.PutUint32(b[at:], 4)
	binary.BigEndian.PutUint64(b[len(b)-8:], uint64(crc32.ChecksumIEEE(b[:len(b)-8])))
	compound["segments_3"] = b
	if _, _, faults := compound.check(t); len(faults) != 1 || !strings.HasPrefix(faults[0], "_0.si: it has 3 documents, but segments_3 says that 4 of them are deleted") {
		t.Errorf("%q", faults)
	}
}

func TestErrorsOfReadingEndTheCheck(t *testing.T) {
	compound, _ := indexes(t)
	failed := errors.New("disk")
	for _, fail := range []error{failed, nil} { // with nil, the file is lost
		for bad := range compound {
			d := Dir{Files: map[string]int64{}}
			for name, b := range compound {
				d.Files[name] = int64(len(b))
			}
			d.Read = func(_ context.Context, name string, off, n int64) ([]byte, error) {
				if name == bad {
					return nil, fail
				}
				return compound[name][off : off+n], nil
			}
			_, _, err := Check(t.Context(), d, func(file, what string) { t.Errorf("%s: %s", file, what) })
			if err != fail {
				t.Errorf("%s: %v, want %v", bad, err, fail)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	compound, single := indexes(f)
	for _, x := range []files{compound, single} {
		for name, b := range x {
			f.Add(name, b, false)
			f.Add(name, b, true)
		}
	}
	f.Add("segments_5", []byte("\x3f\xd7\x6c\x17\x08segments\x00\x00\x00\x01"), true)
	f.Fuzz(func(t *testing.T, name string, b []byte, sum bool) {
		for _, x := range []files{compound, single} {
			x = maps.Clone(x)
			if strings.HasPrefix(name, "segments_") && sum && len(b) >= 8 {
				b = bytes.Clone(b)
				binary.BigEndian.PutUint64(b[len(b)-8:], uint64(crc32.ChecksumIEEE(b[:len(b)-8])))
			}
			x[name] = b
			x.check(t)
		}
	})
}
