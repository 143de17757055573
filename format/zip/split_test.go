package zip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// splitByZip has the parts of an archive that zip made; see testdata/README.md.
func splitByZip(t *testing.T) *storetest.Mem {
	st := &storetest.Mem{}
	for _, name := range []string{"split.z01", "split.z02", "split.zip"} {
		st.Put(name, testkit.Read(t, "testdata/split/"+name))
	}
	return st
}

var only = holdall.OpenOptions{Formats: []*format.Format{Format}}

func TestPartsOfZipAreReadTogether(t *testing.T) {
	st := splitByZip(t)
	check := func(what string, o holdall.OpenOptions) {
		o.Formats = only.Formats
		a, err := holdall.Open(t.Context(), "split.zip", o.In(st))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer a.Close()
		for name, want := range map[string]struct {
			size int64
			unit string
		}{"d/zeros": {80_000_000, "\x00"}, "d/stored.txt": {90_000, "a line of text\n"}, "d/small": {6, "small\n"}} {
			e, err := a.Lookup(t.Context(), name)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			n, unit := int64(0), []byte(want.unit)
			r, err := a.OpenEntry(t.Context(), e)
			if err != nil {
				t.Fatalf("%s: %s: %v", what, name, err)
			}
			buf := make([]byte, len(unit)*4096)
			for {
				k, err := io.ReadFull(r, buf)
				if !bytes.Equal(buf[:k], bytes.Repeat(unit, 4096)[:k]) {
					t.Errorf("%s: %s: other bytes after %d", what, name, n)
				}
				if n += int64(k); err == io.EOF || err == io.ErrUnexpectedEOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %s: %v", what, name, err)
				}
			}
			if r.Close(); n != want.size {
				t.Errorf("%s: %s: %d bytes, expected %d", what, name, n, want.size)
			}
		}
		if v, err := a.Volumes(t.Context()); err != nil || o.Index == (holdall.UseIndex{}) && !slices.Equal(v, []string{"split.z01", "split.z02", "split.zip"}) {
			t.Errorf("%s: volumes %q, %v", what, v, err)
		}
	}
	check("by itself", holdall.OpenOptions{})
	if _, err := holdall.Protect(t.Context(), []string{"split.zip"}, "", holdall.ProtectOptions{Store: st}); err != nil {
		t.Fatal(err)
	}
	check("with parity of its last part", holdall.OpenOptions{})
	if _, err := holdall.BuildIndex(t.Context(), "split.zip", "", holdall.IndexOptions{OpenOptions: only.In(st)}); err != nil {
		t.Fatal(err)
	}
	check("with an index", holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
	if sum, err := holdall.Verify(t.Context(), "split.zip", holdall.VerifyOptions{OpenOptions: only.In(st)}, func(p holdall.Problem) { t.Log(p) }); err != nil || sum.Errors+sum.Warnings > 0 {
		t.Errorf("verify: %+v, %v", sum, err)
	}
}

func TestAMissingPartIsNamed(t *testing.T) {
	for gone, want := range map[string]string{"split.z01": "part 1 of 3 of this split zip is missing: split.z01", "split.z02": "part 2 of 3 of this split zip is missing: split.z02"} {
		st := splitByZip(t)
		if err := st.Remove(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		_, err := holdall.Open(t.Context(), "split.zip", only.In(st))
		if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Code != format.MissingVolume || c.Message != want {
			t.Errorf("without %s: %v", gone, err)
		}
	}
}

func TestAPartAloneSaysWhatItIs(t *testing.T) {
	st := splitByZip(t)
	st.Put("other name", st.Get("split.z01"))
	for name, want := range map[string]string{
		"split.z01":  "part 1 of a split zip: open split.zip, its last part, which has the directory",
		"split.z02":  "part 2 of a split zip: open split.zip, its last part, which has the directory",
		"other name": "the first part of a split zip: open its last part, which has the directory",
	} {
		_, err := holdall.Open(t.Context(), name, only.In(st))
		if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Code != format.MissingVolume || c.Message != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesOfParts(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int
		part   string
	}{{"a/x.zip", 1, "a/x.z01"}, {"X.ZIP", 7, "X.Z07"}, {"x.zip", 99, "x.z99"}, {"x.zip", 100, "x.z100"}} {
		if got := partName(c.name, c.number); got != c.part {
			t.Errorf("part %d of %s: %s", c.number, c.name, got)
		}
		if n, of := partNumber(c.part); n != c.number || of != c.name {
			t.Errorf("%s: part %d of %s", c.part, n, of)
		}
	}
	for _, name := range []string{"x.z", "x.z1", "x.zip", "x.z00", "x.z001", "x.z-1", "x", "x.z99999", "x.zst"} {
		if n, of := partNumber(name); n != 0 {
			t.Errorf("%s: part %d of %s", name, n, of)
		}
	}
}

// cut makes a split archive of a whole one, whose rows have short numbers, with parts that begin at
// the given offsets.
func cut(b []byte, long bool, at ...int) map[string][]byte {
	le := binary.LittleEndian
	at = append([]int{0}, at...)
	place := func(off int) (part, in int) {
		for part = len(at) - 1; at[part] > off; part-- {
		}
		return part, off - at[part]
	}
	b = bytes.Clone(b)
	i := findEnd(b)
	e := parseEnd(b[i:])
	for off := int(e.off); off < int(e.off+e.size); {
		_, n, _ := parseRow(b[off:], nil)
		part, in := place(int(le.Uint32(b[off+42:])))
		le.PutUint16(b[off+34:], uint16(part))
		le.PutUint32(b[off+42:], uint32(in))
		off += n
	}
	last := len(at) - 1
	part, in := place(int(e.off))
	if long {
		e64part, e64in := place(i)
		b = appendEnd(b[:i], end{count: math.MaxUint16, size: e.size, off: uint64(in)})
		le.PutUint64(b[i+24:], e.count)
		le.PutUint64(b[i+32:], e.count)
		le.PutUint32(b[i+16:], uint32(last))
		le.PutUint32(b[i+20:], uint32(part))
		le.PutUint32(b[i+end64Len+4:], uint32(e64part))
		le.PutUint64(b[i+end64Len+8:], uint64(e64in))
		le.PutUint32(b[i+end64Len+16:], uint32(len(at)))
		i += end64Len + locatorLen
		last, part, in = math.MaxUint16, math.MaxUint16, math.MaxUint32
	}
	le.PutUint16(b[i+4:], uint16(last))
	le.PutUint16(b[i+6:], uint16(part))
	le.PutUint32(b[i+16:], uint32(in))
	all := map[string][]byte{}
	for part, from := range at {
		if part == len(at)-1 {
			all["x.zip"] = b[from:]
			break
		}
		all[partName("x.zip", part+1)] = b[from:at[part+1]]
	}
	return all
}

// whole has stored files, so that each byte lies in a part.
func whole(t testing.TB) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range []string{"a", "b", "c"} {
		out, err := w.CreateRaw(&zip.FileHeader{Name: name, CRC32: 0xd0c4b884, CompressedSize64: 300, UncompressedSize64: 300})
		if err == nil {
			_, err = io.WriteString(out, strings.Repeat("abc", 100))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSplitZipsConform(t *testing.T) {
	b := whole(t)
	dir := int(parseEnd(b[findEnd(b):]).off)
	for what, at := range map[string][]int{"within contents": {100, 500}, "within a header": {345}, "within the directory": {150, dir + 20}, "an empty part": {200, 200, 300}} {
		for _, long := range []bool{false, true} {
			all := cut(b, long, at...)
			t.Run(fmt.Sprintf("%s, long %t", what, long), func(t *testing.T) {
				st := &storetest.Mem{}
				for name, part := range all {
					st.Put(name, part)
				}
				r, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				r.Close()
				formattest.RunArchive(t, Format, all, "x.zip")
			})
		}
	}
}

// The number of parts in an end record is nothing else than that in a sound archive, so damage there
// costs nothing.
func TestAWrongNumberOfPartsCostsNothing(t *testing.T) {
	b := whole(t)
	i := findEnd(b)
	for _, field := range []int{4, 5, 6} {
		x := bytes.Clone(b)
		x[i+field] ^= 1
		st := &storetest.Mem{}
		st.Put("x.zip", x)
		r, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
		if err != nil {
			t.Fatalf("byte %d: %v", field, err)
		}
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil || e.Fault != nil || string(content(t, r, x, e)) != strings.Repeat("abc", 100) {
				t.Errorf("byte %d: %+v, %v", field, e, err)
			}
			n++
		}
		if r.Close(); n != 3 {
			t.Errorf("byte %d: %d entries", field, n)
		}
	}
}

func TestASplitZipIsNotRepairedInPlace(t *testing.T) {
	all := cut(whole(t), false, 100, 500)
	st := &storetest.Mem{}
	for name, part := range all {
		st.Put(name, part)
	}
	p, err := repair(t.Context(), st, "x.zip", format.OpenOptions{}, func(format.Problem) {})
	if err != nil || len(p.Edits) > 0 {
		t.Errorf("sound: %+v, %v", p, err)
	}
	all["x.z01"][0] = 'Q'
	st.Put("x.z01", all["x.z01"])
	if _, err = repair(t.Context(), st, "x.zip", format.OpenOptions{}, func(format.Problem) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("damaged: %v", err)
	}
}

func FuzzSplit(f *testing.F) {
	b := whole(f)
	for _, long := range []bool{false, true} {
		all := cut(b, long, 100, 500)
		f.Add(all["x.z01"], all["x.z02"], all["x.zip"])
	}
	f.Fuzz(func(t *testing.T, first, second, last []byte) {
		st := &storetest.Mem{}
		for name, part := range map[string][]byte{"x.z01": first, "x.z02": second, "x.zip": last} {
			st.Put(name, part)
		}
		o := format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}
		if err := verify(t.Context(), st, "x.zip", o, func(format.Problem) {}); err != nil {
			t.Fatal(err)
		}
		r, err := open(t.Context(), st, "x.zip", o)
		if err != nil {
			return
		}
		defer r.Close()
		sizes := map[string]int64{"x.z01": int64(len(first)), "x.z02": int64(len(second)), "x.zip": int64(len(last))}
		if p := r.(*reader).parts; p != nil {
			sizes[r.(*reader).joined()] = p.starts[len(p.objs)]
		}
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if size, ok := sizes[x.Object]; err == nil && (!ok || x.Off < 0 || x.Len > size-x.Off) {
					t.Fatalf("%s: %+v of %v", e.Name, x, sizes)
				}
			}
		}
	})
}
