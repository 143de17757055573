package lucene

import (
	"encoding/binary"
	"fmt"
)

// A reader reads the values of a file. After the first error, all values are empty.
type reader struct {
	b    []byte
	off  int
	bad  string
	lost bool // there is nothing to be read
}

func (r *reader) ok() bool { return r.bad == "" && !r.lost }

func (r *reader) fail(format string, args ...any) {
	if r.bad == "" {
		r.bad = fmt.Sprintf(format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if !r.ok() || n > len(r.b)-r.off {
		r.fail("offset %d: expected %d more bytes, found %d", r.off, n, len(r.b)-r.off)
		return nil
	}
	r.off += n
	return r.b[r.off-n : r.off]
}

// num reads a number of n bytes, the highest first.
func (r *reader) num(n int) (v int64) {
	b := r.take(n)
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	if n == 4 {
		v = int64(int32(v))
	}
	return v
}

// vint reads a number of 7 bits in each byte, the lowest first.
func (r *reader) vint() int {
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 || v > 1<<31-1 {
		r.fail("offset %d: expected a number of at most 31 bits", r.off)
		return 0
	}
	r.take(n)
	return int(v)
}

func (r *reader) text() string { return string(r.take(r.vint())) }

// texts reads a list whose elements have so many texts.
func (r *reader) texts(each int64) (all []string) {
	for n := r.num(4) * each; n > 0 && r.ok(); n-- {
		all = append(all, r.text())
	}
	return all
}

// header reads what most files begin with: the name and the version of their format.
func (r *reader) header() (name string, version int64) {
	const magic = 0x3fd76c17
	if m := r.num(4); m != magic {
		r.fail("offset %d: expected %x, which begins a header, found %x", r.off-4, magic, uint32(m))
	}
	return r.text(), r.num(4)
}
