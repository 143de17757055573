package tar

import (
	"encoding/binary"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
)

// table has the members as columns, because a million members must not take a million
// allocations.
type table struct {
	volume string
	rows   columns.Places // where each member is in packed
	packed columns.Strings
	people columns.Words // owners and groups
	shapes []shape
	ids    map[shape]int
	last   int   // the shape of the last member
	sec    int64 // of the first member, since most are not much older or newer
	faults map[int]*format.Problem
	sparse map[int]*sparse
	row    []byte
}

// A shape is what many members have in common.
type shape struct {
	kind         format.Kind
	mode         uint16
	owner, group uint32
	// These are true for few members.
	link, nsec bool // it has one
	odd        bool // its content does not begin with a block
}

// shapeOf returns the number of a shape, and the memory that it takes if it is new.
func (t *table) shapeOf(s shape) (id int, n int64) {
	const room = 100
	if t.last < len(t.shapes) && t.shapes[t.last] == s {
		return t.last, 0
	}
	id, ok := t.ids[s]
	if !ok {
		id, n = len(t.shapes), room
		t.shapes = append(t.shapes, s)
		columns.Rare(&t.ids, s, id)
	}
	t.last = id
	return id, n
}

// add adds a member, and returns the memory that it takes, with its share of the order of names.
// It is packed: its name, its shape and the rest.
func (t *table) add(m *member) (n int64) {
	const place, index, fault, spans, span = 3, 4, 300, 100, 16
	i := t.rows.Len()
	if i == 0 {
		t.sec = m.sec
	}
	odd := m.at%blockSize != 0
	id, more := t.shapeOf(shape{m.kind, m.mode, t.people.ID(m.owner), t.people.ID(m.group), len(m.link) > 0, m.nsec != 0, odd})
	b := append(binary.AppendUvarint(t.row[:0], uint64(len(m.name))), m.name...)
	b = binary.AppendUvarint(b, uint64(id))
	if len(m.link) > 0 {
		b = append(binary.AppendUvarint(b, uint64(len(m.link))), m.link...)
	}
	if m.nsec != 0 {
		b = binary.AppendUvarint(b, uint64(m.nsec))
	}
	at := uint64(m.at)
	if !odd {
		at /= blockSize
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, at), uint64(m.size))
	t.row = binary.AppendVarint(b, m.sec-t.sec)
	more += t.rows.Add(t.packed.Add(t.row))
	n = place + index + int64(len(t.row)) + more
	if m.fault != nil {
		columns.Rare(&t.faults, i, m.fault)
		n += fault
	}
	if m.sparse != nil {
		columns.Rare(&t.sparse, i, m.sparse)
		n += spans + span*int64(len(m.sparse.spans))
	}
	return n
}

func (t *table) Len() int { return t.rows.Len() }

func (t *table) Name(i int) string {
	d := t.packed.Decoder(t.rows.At(i))
	return d.Text()
}

func (t *table) Entry(i int) format.Entry {
	d := t.packed.Decoder(t.rows.At(i))
	e := format.Entry{Name: d.Text(), HasMode: true}
	s := &t.shapes[d.Number()]
	e.Kind, e.Mode = s.kind, kit.ModeOfUnix(uint32(s.mode))
	e.Owner, e.Group = t.people.At(s.owner), t.people.At(s.group)
	if s.link {
		e.Link = d.Text()
	}
	var nsec uint64
	if s.nsec {
		nsec = d.Number()
	}
	at := int64(d.Number())
	if !s.odd {
		at *= blockSize
	}
	e.Ref, e.Size = at, int64(d.Number())
	e.ModTime = time.Unix(t.sec+d.Signed(), int64(nsec)).UTC()
	if len(t.faults)+len(t.sparse) > 0 {
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
	e := format.Entry{Name: string(m.name), Kind: m.kind, Size: m.size, Mode: kit.ModeOfUnix(uint32(m.mode)), HasMode: true,
		ModTime: time.Unix(m.sec, int64(m.nsec)).UTC(), Owner: p.At(p.ID(m.owner)), Group: p.At(p.ID(m.group)), Link: string(m.link), Ref: m.at}
	finish(&e, volume, m.fault, m.sparse)
	return e
}

// mostPeople is the number of owners and groups that are remembered for members that are not
// kept.
const mostPeople = 1 << 12
