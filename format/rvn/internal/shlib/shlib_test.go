package shlib

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A shape is an ELF file with a null section, a dynamic section and its strings.
type shape struct {
	class elf.Class
	order binary.ByteOrder
	kind  elf.Type
	dyn   []tag
	strs  string
}

type tag struct {
	tag elf.DynTag
	val uint64
}

// An image is a file of that shape, and where its parts are, to be damaged.
type image struct {
	bytes         []byte
	order         binary.ByteOrder
	dynamic, strs int // section headers
	entries, text int // what they speak of
}

func (s shape) build(t testing.TB) image {
	t.Helper()
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, s.order, v); err != nil {
			t.Fatal(err)
		}
	}
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(s.class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	if s.order == binary.ByteOrder(binary.BigEndian) {
		ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	header, section, entry := 64, 64, 16
	if s.class == elf.ELFCLASS32 {
		header, section, entry = 52, 40, 8
	}
	im := image{order: s.order, dynamic: header + section, strs: header + 2*section, entries: header + 3*section}
	im.text = im.entries + entry*len(s.dyn)
	strs := s.strs + strings.Repeat("\x00", 64) // to be long enough to be looked at
	if s.class == elf.ELFCLASS32 {
		put(elf.Header32{Ident: ident, Type: uint16(s.kind), Version: 1, Shoff: uint32(header), Ehsize: 52, Shentsize: 40, Shnum: 3})
		put(elf.Section32{})
		put(elf.Section32{Type: uint32(elf.SHT_DYNAMIC), Off: uint32(im.entries), Size: uint32(entry * len(s.dyn)), Link: 2, Entsize: 8})
		put(elf.Section32{Type: uint32(elf.SHT_STRTAB), Off: uint32(im.text), Size: uint32(len(strs))})
		for _, d := range s.dyn {
			put(elf.Dyn32{Tag: int32(d.tag), Val: uint32(d.val)})
		}
	} else {
		put(elf.Header64{Ident: ident, Type: uint16(s.kind), Version: 1, Shoff: uint64(header), Ehsize: 64, Shentsize: 64, Shnum: 3})
		put(elf.Section64{})
		put(elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: uint64(im.entries), Size: uint64(entry * len(s.dyn)), Link: 2, Entsize: 16})
		put(elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(im.text), Size: uint64(len(strs))})
		for _, d := range s.dyn {
			put(elf.Dyn64{Tag: int64(d.tag), Val: d.val})
		}
	}
	b.WriteString(strs)
	im.bytes = b.Bytes()
	return im
}

var library = shape{elf.ELFCLASS64, binary.LittleEndian, elf.ET_DYN,
	[]tag{{elf.DT_NEEDED, 1}, {elf.DT_SONAME, 21}, {elf.DT_NEEDED, 11}, {elf.DT_RUNPATH, 1}, {elf.DT_NULL, 0}, {elf.DT_NEEDED, 21}},
	"\x00libz.so.1\x00libc.so.6\x00libfix.so.1\x00"}

func names(b []byte) (string, []string, bool) { return Names(bytes.NewReader(b), int64(len(b))) }

func TestNamesAreFoundInEveryClassAndByteOrder(t *testing.T) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			for _, kind := range []elf.Type{elf.ET_EXEC, elf.ET_DYN} {
				s := library
				s.class, s.order, s.kind = class, order, kind
				b := s.build(t).bytes
				soname, needed, ok := names(b)
				if soname != "libfix.so.1" || !slices.Equal(needed, []string{"libz.so.1", "libc.so.6"}) || !ok {
					t.Errorf("%s, %s, %s: %q, %q, %v", class, order, kind, soname, needed, ok)
				}
			}
		}
	}
}

// debug/elf is used as the reference for undamaged files.
func TestNamesAgreeWithDebugELFOnFilesOfThisSystem(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{self}
	for _, pattern := range []string{"/lib/*/lib*.so.*", "/usr/lib/lib*.so*", "/usr/bin/[a-d]*", "/usr/lib/*/lib*.a"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found[:min(len(found), 60)]...)
	}
	libraries := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil || !st.Mode().IsRegular() || st.Size() < minSize {
			continue
		}
		soname, needed, ok := Names(f, st.Size())
		ef, err := elf.NewFile(f)
		if err != nil || ef.Type != elf.ET_EXEC && ef.Type != elf.ET_DYN {
			if ok {
				t.Errorf("%s is taken for an ELF file", name)
			}
			continue
		}
		wantNeeded, err := ef.ImportedLibraries()
		if err != nil {
			t.Logf("%s: debug/elf: %v", name, err)
			continue
		}
		wantSoname, _ := ef.DynString(elf.DT_SONAME)
		if !ok || !slices.Equal(needed, wantNeeded) || soname != strings.Join(wantSoname, "") {
			t.Errorf("%s: %q, %q, %v; debug/elf has %q, %q", name, soname, needed, ok, wantSoname, wantNeeded)
		}
		if soname != "" && len(needed) > 0 {
			libraries++
		}
	}
	if libraries == 0 {
		t.Skip("no shared library on this system")
	}
	t.Logf("%d shared libraries", libraries)
}

func TestFilesWithoutNamesAreTold(t *testing.T) {
	static := library
	static.dyn = []tag{{elf.DT_NULL, 0}}
	bare := library.build(t)
	bare.order.PutUint64(bare.bytes[40:], 0) // e_shoff
	bare.order.PutUint16(bare.bytes[60:], 0) // e_shnum
	object := library
	object.kind = elf.ET_REL
	core := library
	core.kind = elf.ET_CORE
	for _, tt := range []struct {
		name string
		in   []byte
		want bool
	}{
		{"no tags", static.build(t).bytes, true},
		{"no section headers", bare.bytes, true},
		{"object file", object.build(t).bytes, false},
		{"core file", core.build(t).bytes, false},
		{"empty", nil, false},
		{"text", []byte(strings.Repeat("#!/bin/sh\n", 40)), false},
		{"magic alone", append([]byte(elf.ELFMAG), make([]byte, 400)...), false},
		{"short", library.build(t).bytes[:minSize-1], false},
	} {
		soname, needed, ok := names(tt.in)
		if soname != "" || needed != nil || ok != tt.want {
			t.Errorf("%s: %q, %q, %v; want nothing and %v", tt.name, soname, needed, ok, tt.want)
		}
	}
}

func TestDamageIsNotTakenForNames(t *testing.T) {
	put64 := func(at func(image) int, v uint64) func(*image) {
		return func(im *image) { im.order.PutUint64(im.bytes[at(*im):], v) }
	}
	put32 := func(at func(image) int, v uint32) func(*image) {
		return func(im *image) { im.order.PutUint32(im.bytes[at(*im):], v) }
	}
	header := func(off int) func(image) int { return func(image) int { return off } }
	dynamic := func(off int) func(image) int { return func(im image) int { return im.dynamic + off } }
	strs := func(off int) func(image) int { return func(im image) int { return im.strs + off } }
	for name, damage := range map[string]func(*image){
		"unknown class":                func(im *image) { im.bytes[elf.EI_CLASS] = 3 },
		"unknown byte order":           func(im *image) { im.bytes[elf.EI_DATA] = 0 },
		"unknown version":              func(im *image) { im.bytes[elf.EI_VERSION] = 2 },
		"sections past the end":        put64(header(40), 1<<20),
		"sections past all numbers":    put64(header(40), 1<<64-8),
		"more sections than fit":       func(im *image) { im.order.PutUint16(im.bytes[60:], 65535) },
		"section headers of odd size":  func(im *image) { im.order.PutUint16(im.bytes[58:], 63) },
		"dynamic section past the end": put64(dynamic(24), 1<<40),
		"dynamic section too long":     put64(dynamic(32), 1<<20),
		"dynamic section wraps around": put64(dynamic(32), 1<<64-1),
		"strings missing":              put32(dynamic(40), 3),
		"strings are no strings":       put32(strs(4), uint32(elf.SHT_PROGBITS)),
		"strings past the end":         put64(strs(24), 1<<63),
		"strings longer than the file": put64(strs(32), 1<<30),
		"strings cut before the names": put64(strs(32), 5),
		"name past the strings":        func(im *image) { im.order.PutUint64(im.bytes[im.entries+8:], 1<<32) },
		"name without an end":          func(im *image) { im.order.PutUint64(im.bytes[im.strs+32:], 30) },
		"name past all numbers":        func(im *image) { im.order.PutUint64(im.bytes[im.entries+8:], 1<<64-1) },
		"strings cut off":              func(im *image) { im.bytes = im.bytes[:im.text] },
	} {
		im := library.build(t)
		damage(&im)
		if soname, needed, ok := names(im.bytes); soname != "" || needed != nil || ok {
			t.Errorf("%s: %q, %q, %v", name, soname, needed, ok)
		}
	}
	long := library
	long.strs = "\x00" + strings.Repeat("x", maxName) + "\x00" + strings.Repeat("y", maxName+1) + "\x00"
	long.dyn = []tag{{elf.DT_NEEDED, 1}}
	if _, needed, ok := names(long.build(t).bytes); !ok || len(needed) != 1 || len(needed[0]) != maxName {
		t.Errorf("a name of %d bytes: %v", maxName, ok)
	}
	long.dyn = []tag{{elf.DT_SONAME, 1}, {elf.DT_NEEDED, maxName + 2}}
	if soname, needed, ok := names(long.build(t).bytes); ok || soname != "" || needed != nil {
		t.Errorf("a name of %d bytes: %q, %q", maxName+1, soname, needed)
	}
}

func TestEveryTruncationIsTold(t *testing.T) {
	whole := library.build(t)
	for n := range whole.bytes {
		soname, needed, ok := names(whole.bytes[:n])
		if ok || soname != "" || needed != nil {
			t.Errorf("cut to %d of %d bytes: %q, %q, %v", n, len(whole.bytes), soname, needed, ok)
		}
	}
}

// sparse is a file of any size with something at its beginning, that counts what
// is read of it.
type sparse struct {
	head []byte
	read int64
}

func (s *sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(s.head)) {
		copy(p, s.head[off:])
	}
	s.read += int64(len(p))
	return len(p), nil
}

func TestGreatClaimsCostLittle(t *testing.T) {
	const size = 1 << 50
	endless := library // every entry needs the same library, or none
	endless.dyn = slices.Repeat([]tag{{elf.DT_NEEDED, 1}}, maxNeeded+1)
	idle := library
	idle.dyn = slices.Repeat([]tag{{elf.DT_DEBUG, 1}}, maxEntries+1)
	sections := library.build(t)
	sections.order.PutUint16(sections.bytes[60:], 65535)
	sections.order.PutUint32(sections.bytes[sections.dynamic+4:], uint32(elf.SHT_NOTE))
	huge := library.build(t)
	huge.order.PutUint64(huge.bytes[huge.dynamic+32:], size/2)
	strs := library.build(t)
	strs.order.PutUint64(strs.bytes[strs.strs+32:], size/2)
	for _, tt := range []struct {
		name string
		in   []byte
		want bool
	}{
		{"needs too many", endless.build(t).bytes, false},
		{"too many entries", idle.build(t).bytes, false},
		{"dynamic section of half a PiB", huge.bytes, false},
		{"strings of half a PiB", strs.bytes, true},
		{"65535 sections", sections.bytes, true},
	} {
		f := &sparse{head: tt.in}
		var ok bool
		used := testkit.Allocated(func() { _, _, ok = Names(f, size) })
		if ok != tt.want || used > maxAlloc || f.read > maxRead {
			t.Errorf("%s: %v, %d bytes allocated, %d read", tt.name, ok, used, f.read)
		}
	}
}

// The most that one file may cost: maxNeeded names, and every section header and
// entry read once.
const (
	maxAlloc = 1 << 20
	maxRead  = 65536*64 + maxEntries*16 + (maxNeeded+2)*(maxName+1)
)

func TestReadErrorsAreNotTakenForELF(t *testing.T) {
	whole := library.build(t).bytes
	for n := range 8 {
		f := &failing{io.NewSectionReader(bytes.NewReader(whole), 0, int64(len(whole))), n}
		if soname, needed, ok := Names(f, int64(len(whole))); ok || soname != "" || needed != nil {
			t.Errorf("read %d fails: %q, %q, %v", n, soname, needed, ok)
		}
	}
}

type failing struct {
	io.ReaderAt
	left int
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, fmt.Errorf("byte %d: device is gone", off)
	}
	return f.ReaderAt.ReadAt(p, off)
}

func FuzzNames(f *testing.F) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			s := library
			s.class, s.order = class, order
			f.Add(s.build(f).bytes, int64(0))
			f.Add(s.build(f).bytes, int64(1<<50))
		}
	}
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		if size < int64(len(head)) {
			size = int64(len(head))
		}
		r := &sparse{head: head}
		var soname string
		var needed []string
		var ok bool
		if used := testkit.Allocated(func() { soname, needed, ok = Names(r, size) }); used > maxAlloc || r.read > maxRead {
			t.Errorf("%d bytes allocated, %d read", used, r.read)
		}
		if !ok && (soname != "" || needed != nil) {
			t.Errorf("%q, %q of what is no ELF file", soname, needed)
		}
		if len(needed) > maxNeeded {
			t.Errorf("%d libraries needed", len(needed))
		}
		for _, name := range append(needed, soname) {
			if len(name) > maxName || strings.Contains(name, "\x00") {
				t.Errorf("name %q", name)
			}
		}
	})
}
