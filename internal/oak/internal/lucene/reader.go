package lucene

import (
	"encoding/binary"
	"fmt"
)

// A reader reads the values of a file. After the first error, all values are empty.
type reader struct {
	b   []byte
	off int
	err string
}

func (r *reader) fail(format string, args ...any) {
	if r.err == "" {
		r.err = fmt.Sprintf(format, args...)
	}
}

// take returns the next n bytes, or nil.
func (r *reader) take(n int) []byte {
	if r.err != "" || n > len(r.b)-r.off {
		r.fail("offset %d: expected %d more bytes, found %d", r.off, n, len(r.b)-r.off)
		return nil
	}
	r.off += n
	return r.b[r.off-n : r.off]
}

func (r *reader) byte() (v byte) {
	if b := r.take(1); b != nil {
		v = b[0]
	}
	return v
}

func (r *reader) int() (v int32) {
	if b := r.take(4); b != nil {
		v = int32(binary.BigEndian.Uint32(b))
	}
	return v
}

func (r *reader) long() (v int64) {
	if b := r.take(8); b != nil {
		v = int64(binary.BigEndian.Uint64(b))
	}
	return v
}

// vint reads a number that is not negative.
func (r *reader) vint() int {
	at, v := r.off, uint64(0)
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if v > 1<<31-1 {
		r.fail("offset %d: expected a number of 31 bits", at)
		return 0
	}
	return int(v)
}

func (r *reader) string() string { return string(r.take(r.vint())) }

// header reads what most files begin with: the name and the version of their format.
func (r *reader) header() (name string, version int32) {
	if at, m := r.off, r.int(); r.err == "" && m != magic {
		r.fail("offset %d: expected %x, which begins a header, found %x", at, magic, uint32(m))
	}
	return r.string(), r.int()
}

func (r *reader) set() (all []string) {
	for n := r.int(); n > 0 && r.err == ""; n-- {
		all = append(all, r.string())
	}
	return all
}

// skipPairs skips pairs of texts.
func (r *reader) skipPairs() {
	for n := r.int(); n > 0 && r.err == ""; n-- {
		r.string()
		r.string()
	}
}

// end fails unless all was read.
func (r *reader) end() {
	if r.off != len(r.b) {
		r.fail("offset %d: expected the end, found %d more bytes", r.off, len(r.b)-r.off)
	}
}
