package tar

import (
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/columns"
	"github.com/holdall/holdall/internal/formatkit"
)

// row is a member in memory: 56 bytes, and its name followed by its link.
type row struct {
	name             uint64
	at, size         int64
	sec              int64
	nameLen, linkLen uint32
	nsec             int32
	owner, group     uint32 // numbers in table.people
	mode             uint16
	kind             format.Kind
	flags            uint8
}

const (
	hasFault  = 1 << iota // the fault is in table.faults
	hasSparse             // the map is in table.sparse
)

// table has the members as columns, because a million members must not take a million
// allocations.
type table struct {
	volume string
	rows   columns.Rows[row]
	names  columns.Strings
	people columns.Words // owners and groups
	faults map[int]*format.Problem
	sparse map[int]*sparse
	both   []byte
}

// costOf returns the memory that a member takes, with its share of the order of names.
func costOf(m *member) (n int64) {
	const row, index, fault = 56, 4, 300
	n = row + index + int64(len(m.name)+len(m.link))
	if m.sparse != nil {
		n += 100 + 16*int64(len(m.sparse.spans))
	}
	if m.fault != nil {
		n += fault
	}
	return n
}

func (t *table) add(m *member) {
	i := t.rows.Len()
	x := row{at: m.at, size: m.size, sec: m.sec, nsec: m.nsec, mode: m.mode, kind: m.kind,
		nameLen: uint32(len(m.name)), linkLen: uint32(len(m.link)), owner: t.people.ID(m.owner), group: t.people.ID(m.group)}
	t.both = append(append(t.both[:0], m.name...), m.link...)
	x.name = t.names.Add(t.both)
	if m.fault != nil {
		columns.Rare(&t.faults, i, m.fault)
		x.flags |= hasFault
	}
	if m.sparse != nil {
		columns.Rare(&t.sparse, i, m.sparse)
		x.flags |= hasSparse
	}
	t.rows.Add(x)
}

func (t *table) Len() int { return t.rows.Len() }

func (t *table) Name(i int) string {
	x := t.rows.At(i)
	return t.names.At(x.name, int(x.nameLen))
}

func (t *table) Entry(i int) format.Entry {
	x := t.rows.At(i)
	e := format.Entry{Name: t.names.At(x.name, int(x.nameLen)), Kind: x.kind, Size: x.size, Mode: formatkit.ModeOfUnix(uint32(x.mode)), HasMode: true,
		ModTime: time.Unix(x.sec, int64(x.nsec)).UTC(), Owner: t.people.At(x.owner), Group: t.people.At(x.group),
		Link: t.names.At(x.name+uint64(x.nameLen), int(x.linkLen)), Ref: x.at}
	if x.flags != 0 {
		finish(&e, t.volume, t.faults[i], t.sparse[i])
	}
	return e
}

// finish sets fields of an entry that few entries have.
func finish(e *format.Entry, volume string, fault *format.Problem, holes *sparse) {
	if holes != nil {
		e.Ref = holes
	}
	if fault != nil {
		p := *fault
		p.Volume, p.Entry, p.HasEntry = volume, e.Name, true
		e.Fault = &p
	}
}

// entry returns the entry of a member that is not kept.
func (m *member) entry(volume string, p *columns.Words) format.Entry {
	if p.Len() > mostPeople {
		*p = columns.Words{}
	}
	e := format.Entry{Name: string(m.name), Kind: m.kind, Size: m.size, Mode: formatkit.ModeOfUnix(uint32(m.mode)), HasMode: true,
		ModTime: time.Unix(m.sec, int64(m.nsec)).UTC(), Owner: p.At(p.ID(m.owner)), Group: p.At(p.ID(m.group)), Link: string(m.link), Ref: m.at}
	finish(&e, volume, m.fault, m.sparse)
	return e
}

// mostPeople is the number of owners and groups that are remembered for members that are not
// kept.
const mostPeople = 1 << 12
