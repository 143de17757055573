// Package shlib finds which shared library an ELF file is, and which ones it
// needs, for the metadata of a package.
//
// It is no reader of ELF files in general; that is debug/elf, whose types it
// uses. It does its own reading because debug/elf loads whole sections, of the
// size the file claims: here the file is anybody's, and a name or two is wanted.
package shlib

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
)

// What is taken from one file. Real ones have some forty entries, and need some
// ten libraries; a name is one of a file.
const (
	minSize    = 200 // what is shorter is not looked at, as in the reference
	maxEntries = 1 << 16
	maxNeeded  = 1 << 10
	maxName    = 255
)

// Names returns the SONAME of an ELF executable or shared object, and its
// DT_NEEDED in their order. Either may be missing: a program has no SONAME, and
// a static one or one without section headers has neither. It says false of
// anything else, and of what is damaged or cannot be read.
func Names(r io.ReaderAt, size int64) (soname string, needed []string, ok bool) {
	if size < minSize {
		return "", nil, false
	}
	f := file{r: r, size: uint64(size)}
	table, count, ok := f.header()
	if !ok {
		return "", nil, false
	}
	for i := range uint64(count) {
		s, ok := f.section(table, i)
		if !ok {
			return "", nil, false
		}
		if s.Type != uint32(elf.SHT_DYNAMIC) {
			continue
		}
		if s.Link >= uint32(count) {
			return "", nil, false
		}
		strs, ok := f.section(table, uint64(s.Link))
		if !ok || strs.Type != uint32(elf.SHT_STRTAB) || !f.holds(strs.Off, strs.Size) {
			return "", nil, false
		}
		return f.dynamic(s, strs)
	}
	return "", nil, true
}

type file struct {
	r     io.ReaderAt
	size  uint64
	wide  bool // 64 bits
	order binary.ByteOrder
	buf   [maxName + 1]byte

	section64 elf.Section64 // the one read last, here lest each is allocated
	section32 elf.Section32
}

// header says where the table of sections is, and how many it has: the whole of
// it lies within the file.
func (f *file) header() (table uint64, count uint16, ok bool) {
	ident, ok := f.read(0, elf.EI_NIDENT)
	if !ok || string(ident[:len(elf.ELFMAG)]) != elf.ELFMAG || ident[elf.EI_VERSION] != byte(elf.EV_CURRENT) {
		return 0, 0, false
	}
	switch elf.Data(ident[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		f.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.order = binary.BigEndian
	default:
		return 0, 0, false
	}
	var kind, entry, wantEntry uint16
	switch elf.Class(ident[elf.EI_CLASS]) {
	case elf.ELFCLASS64:
		var h elf.Header64
		ok = f.decode(0, &h)
		kind, table, entry, count = h.Type, h.Shoff, h.Shentsize, h.Shnum
		wantEntry, f.wide = uint16(binary.Size(elf.Section64{})), true
	case elf.ELFCLASS32:
		var h elf.Header32
		ok = f.decode(0, &h)
		kind, table, entry, count = h.Type, uint64(h.Shoff), h.Shentsize, h.Shnum
		wantEntry = uint16(binary.Size(elf.Section32{}))
	default:
		return 0, 0, false
	}
	if t := elf.Type(kind); !ok || t != elf.ET_EXEC && t != elf.ET_DYN {
		return 0, 0, false
	}
	if count > 0 && (entry != wantEntry || !f.holds(table, uint64(count)*uint64(entry))) {
		return 0, 0, false
	}
	return table, count, true
}

func (f *file) section(table, i uint64) (s elf.Section64, ok bool) {
	if f.wide {
		ok = f.decode(table+i*uint64(binary.Size(s)), &f.section64)
		return f.section64, ok
	}
	narrow := &f.section32
	ok = f.decode(table+i*uint64(binary.Size(narrow)), narrow)
	return elf.Section64{Type: narrow.Type, Link: narrow.Link, Off: uint64(narrow.Off), Size: uint64(narrow.Size)}, ok
}

// dynamic goes through the entries of a dynamic section, whose names are in strs.
func (f *file) dynamic(s, strs elf.Section64) (soname string, needed []string, ok bool) {
	word := uint64(4)
	if f.wide {
		word = 8
	}
	entries := s.Size / (2 * word)
	if !f.holds(s.Off, s.Size) || entries > maxEntries {
		return "", nil, false
	}
	for i := range entries {
		pair, ok := f.read(s.Off+i*2*word, int(2*word))
		if !ok {
			return "", nil, false
		}
		switch tag, val := f.word(pair[:word]), f.word(pair[word:]); elf.DynTag(tag) {
		case elf.DT_NULL:
			return soname, needed, true
		case elf.DT_SONAME:
			if soname, ok = f.name(strs, val); !ok {
				return "", nil, false
			}
		case elf.DT_NEEDED:
			name, ok := f.name(strs, val)
			if !ok || len(needed) == maxNeeded {
				return "", nil, false
			}
			if name != "" {
				needed = append(needed, name)
			}
		}
	}
	return soname, needed, true
}

func (f *file) word(b []byte) uint64 {
	if f.wide {
		return f.order.Uint64(b)
	}
	return uint64(f.order.Uint32(b))
}

// name returns the string at a place of strs. It says false if its end is not
// there, or too far.
func (f *file) name(strs elf.Section64, at uint64) (string, bool) {
	if at >= strs.Size {
		return "", false
	}
	b, ok := f.read(strs.Off+at, int(min(strs.Size-at, maxName+1)))
	end := bytes.IndexByte(b, 0)
	if !ok || end < 0 {
		return "", false
	}
	return string(b[:end]), true
}

// holds says whether n bytes at off are within the file.
func (f *file) holds(off, n uint64) bool { return off <= f.size && n <= f.size-off }

// read returns the n bytes at off, at most a name's, until it is called again.
func (f *file) read(off uint64, n int) ([]byte, bool) {
	if !f.holds(off, uint64(n)) {
		return nil, false
	}
	got, _ := f.r.ReadAt(f.buf[:n], int64(off)) // io.EOF may come with the last byte
	return f.buf[:n], got == n
}

func (f *file) decode(off uint64, into any) bool {
	b, ok := f.read(off, binary.Size(into))
	if !ok {
		return false
	}
	_, err := binary.Decode(b, f.order, into)
	return err == nil
}
