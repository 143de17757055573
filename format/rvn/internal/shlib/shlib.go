// Package shlib finds which shared library an ELF file is, and which ones it needs, for the
// metadata of a package. It does not use the reader of debug/elf, only its types, because that
// reader loads whole sections of whatever size an untrusted file claims.
package shlib

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
)

// Limits of what is read from one file. Real files have some forty entries, and need some ten
// libraries; a name is a file's name.
const (
	minSize    = 200 // what is shorter is not looked at, as in the reference
	maxEntries = 1 << 16
	maxNeeded  = 1 << 10
	maxName    = 255
)

// Names returns the SONAME of an ELF executable or shared object, and its DT_NEEDED entries in
// their order. Either may be missing: a program has no SONAME, and a program that is static or
// has no section headers has neither. ok is false for any other file, and for one that is damaged
// or cannot be read.
func Names(r io.ReaderAt, size int64) (soname string, needed []string, ok bool) {
	f := file{r: r, size: uint64(size), bad: size < minSize}
	table, count := f.header()
	for i := uint64(0); i < count && !f.bad; i++ {
		s := f.section(table, i)
		if s.Type == uint32(elf.SHT_DYNAMIC) {
			strs := f.section(table, uint64(s.Link))
			f.check(uint64(s.Link) < count && strs.Type == uint32(elf.SHT_STRTAB) && f.holds(strs.Off, strs.Size))
			soname, needed = f.dynamic(s, strs)
			break
		}
	}
	if f.bad {
		return "", nil, false
	}
	return soname, needed, true
}

// file is read until something is not valid. Then bad is set, and all further reads return zeros.
type file struct {
	r     io.ReaderAt
	size  uint64
	bad   bool
	wide  bool // 64 bits
	order binary.ByteOrder
	buf   [maxName + 1]byte

	section64 elf.Section64 // the one read last, here lest each is allocated
	section32 elf.Section32
}

func (f *file) check(ok bool) bool {
	f.bad = f.bad || !ok
	return !f.bad
}

// header returns where the table of sections is, and how many sections it has. The whole table is
// within the file.
func (f *file) header() (table, count uint64) {
	ident := f.read(0, elf.EI_NIDENT)
	f.check(string(ident[:len(elf.ELFMAG)]) == elf.ELFMAG && ident[elf.EI_VERSION] == byte(elf.EV_CURRENT))
	class, data := elf.Class(ident[elf.EI_CLASS]), elf.Data(ident[elf.EI_DATA])
	f.check(class == elf.ELFCLASS64 || class == elf.ELFCLASS32)
	f.check(data == elf.ELFDATA2LSB || data == elf.ELFDATA2MSB)
	f.wide, f.order = class == elf.ELFCLASS64, binary.LittleEndian
	if data == elf.ELFDATA2MSB {
		f.order = binary.BigEndian
	}
	var h elf.Header64
	entry := binary.Size(f.section64)
	if f.wide {
		f.decode(0, &h)
	} else {
		var n elf.Header32
		f.decode(0, &n)
		h = elf.Header64{Type: n.Type, Shoff: uint64(n.Shoff), Shentsize: n.Shentsize, Shnum: n.Shnum}
		entry = binary.Size(f.section32)
	}
	f.check(elf.Type(h.Type) == elf.ET_EXEC || elf.Type(h.Type) == elf.ET_DYN)
	f.check(h.Shnum == 0 || int(h.Shentsize) == entry && f.holds(h.Shoff, uint64(h.Shnum)*uint64(entry)))
	return h.Shoff, uint64(h.Shnum)
}

func (f *file) section(table, i uint64) elf.Section64 {
	if f.wide {
		f.decode(table+i*uint64(binary.Size(f.section64)), &f.section64)
		return f.section64
	}
	s := &f.section32
	f.decode(table+i*uint64(binary.Size(s)), s)
	return elf.Section64{Type: s.Type, Link: s.Link, Off: uint64(s.Off), Size: uint64(s.Size)}
}

// dynamic reads the entries of a dynamic section, whose names are in strs.
func (f *file) dynamic(s, strs elf.Section64) (soname string, needed []string) {
	word := uint64(4)
	if f.wide {
		word = 8
	}
	entries := s.Size / (2 * word)
	f.check(f.holds(s.Off, s.Size) && entries <= maxEntries)
	for i := uint64(0); i < entries && !f.bad; i++ {
		pair := f.read(s.Off+i*2*word, int(2*word))
		switch tag, val := f.word(pair[:word]), f.word(pair[word:]); elf.DynTag(tag) {
		case elf.DT_NULL:
			return soname, needed
		case elf.DT_SONAME:
			soname = f.name(strs, val)
		case elf.DT_NEEDED:
			name := f.name(strs, val)
			if f.check(len(needed) < maxNeeded) && name != "" {
				needed = append(needed, name)
			}
		}
	}
	return soname, needed
}

func (f *file) word(b []byte) uint64 {
	if f.wide {
		return f.order.Uint64(b)
	}
	return uint64(f.order.Uint32(b))
}

// name returns the string at an offset of strs. Its end must be there, and not too far away.
func (f *file) name(strs elf.Section64, at uint64) string {
	if !f.check(at < strs.Size) {
		return ""
	}
	name, _, ends := bytes.Cut(f.read(strs.Off+at, int(min(strs.Size-at, maxName+1))), []byte{0})
	f.check(ends)
	return string(name)
}

// holds reports whether n bytes at off are within the file.
func (f *file) holds(off, n uint64) bool { return off <= f.size && n <= f.size-off }

// read returns the n bytes at off, at most the length of a name. They are valid until the next
// call.
func (f *file) read(off uint64, n int) []byte {
	b := f.buf[:n]
	if f.check(f.holds(off, uint64(n))) {
		got, _ := f.r.ReadAt(b, int64(off)) // io.EOF may come with the last byte
		f.check(got == n)
	}
	if f.bad {
		clear(b)
	}
	return b
}

func (f *file) decode(off uint64, into any) {
	binary.Decode(f.read(off, binary.Size(into)), f.order, into)
}
