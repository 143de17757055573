package zip

import (
	"encoding/binary"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
)

// item is an entry in memory: 72 bytes, and its name.
type item struct {
	name         uint64
	off          int64 // offset of its header
	stored       int64 // stored size
	size         int64
	sec          int64
	nsec         int32
	nameLen      uint32
	owner, group uint32 // numbers in table.people
	crc          uint32
	mode         fs.FileMode
	kind         format.Kind
	method       uint8 // a supported method
	flags        uint8
}

const (
	hasMode = 1 << iota
	hasTime
	isRare // in table.faults or links
	isOpen // a decoder may read beyond the end of what is stored
	isUnsummed
)

// costOfEntry is the memory that an entry takes besides its name, with its share of the order of
// names.
const costOfEntry = 72 + 4

// table has the directory as columns, because a million entries must not take a million
// allocations.
type table struct {
	items  columns.Rows[item]
	names  columns.Strings
	people columns.Words // owners and groups
	faults map[int]*format.Problem
	links  map[int]string
}

func (t *table) Len() int { return t.items.Len() }

func (t *table) Name(i int) string { return t.nameOf(t.items.At(i)) }

func (t *table) nameOf(x *item) string { return t.names.At(x.name, int(x.nameLen)) }

func (t *table) Entry(i int) format.Entry {
	x := t.items.At(i)
	e := format.Entry{Name: t.nameOf(x), Kind: x.kind, Mode: x.mode, HasMode: x.flags&hasMode != 0,
		Owner: t.people.At(x.owner), Group: t.people.At(x.group), Ref: i}
	if x.flags&hasTime != 0 {
		e.ModTime = time.Unix(x.sec, int64(x.nsec)).UTC()
	}
	if x.kind == format.File {
		e.Size = x.size
	}
	if x.kind == format.File && x.flags&isUnsummed == 0 {
		var sum [4]byte
		binary.BigEndian.PutUint32(sum[:], x.crc)
		e.Digest = format.Digest{Algo: "crc32", Sum: string(sum[:])}
	}
	if x.flags&isRare != 0 {
		e.Link, e.Fault = t.links[i], t.faults[i]
	}
	return e
}

func (t *table) fault(i int, p *format.Problem) {
	columns.Rare(&t.faults, i, p)
	t.items.At(i).flags |= isRare
}

func (t *table) link(i int, to string) {
	columns.Rare(&t.links, i, to)
	t.items.At(i).flags |= isRare
}

// readable reports whether there is content, or a link's target, that can be read.
func (t *table) readable(i int) bool {
	x := t.items.At(i)
	return x.kind != format.Dir && (x.flags&isRare == 0 || t.faults[i] == nil)
}

// codec returns the codec of the entry's compression.
func (x *item) codec() string { return methods[uint16(x.method)] }
