package tar

import (
	"encoding/binary"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/columns"
	"github.com/holdall/holdall/internal/formatkit"
)

// table has the members as columns, because a million members must not take a million
// allocations.
type table struct {
	volume string
	rows   columns.Rows[uint64] // where each member is in packed
	packed columns.Strings
	people columns.Words // owners and groups
	faults map[int]*format.Problem
	sparse map[int]*sparse
	row    []byte
}

// add adds a member, and returns the memory that it takes, with its share of the order of names.
// It is packed: its name, its numbers and its link.
func (t *table) add(m *member) (n int64) {
	const place, index, fault, spans, span = 8, 4, 300, 100, 16
	b := binary.AppendUvarint(t.row[:0], uint64(len(m.name)))
	b = append(append(b, m.name...), byte(m.kind))
	for _, v := range [...]uint64{uint64(m.mode), uint64(t.people.ID(m.owner)), uint64(t.people.ID(m.group)),
		uint64(m.at), uint64(m.size), uint64(m.sec), uint64(m.nsec), uint64(len(m.link))} {
		b = binary.AppendUvarint(b, v)
	}
	t.row = append(b, m.link...)
	i := t.rows.Len()
	t.rows.Add(t.packed.Add(t.row))
	n = place + index + int64(len(t.row))
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
	name, _ := t.nameOf(i)
	return name
}

// nameOf returns the name of a member, and where the rest of its row is.
func (t *table) nameOf(i int) (name string, at uint64) {
	at = *t.rows.At(i)
	p := packed{b: t.packed.From(at)}
	n := p.next()
	at += uint64(p.at)
	return t.packed.At(at, int(n)), at + n
}

// packed decodes numbers. Most have one byte.
type packed struct {
	b  []byte
	at int
}

func (p *packed) next() uint64 {
	if v := p.b[p.at]; v < 0x80 {
		p.at++
		return uint64(v)
	}
	return p.long()
}

func (p *packed) long() uint64 {
	v, n := binary.Uvarint(p.b[p.at:])
	p.at += n
	return v
}

func (t *table) Entry(i int) format.Entry {
	name, at := t.nameOf(i)
	p := packed{b: t.packed.From(at), at: 1}
	e := format.Entry{Name: name, Kind: format.Kind(p.b[0]), HasMode: true}
	e.Mode = formatkit.ModeOfUnix(uint32(p.next()))
	e.Owner, e.Group = t.people.At(uint32(p.next())), t.people.At(uint32(p.next()))
	e.Ref, e.Size = int64(p.next()), int64(p.next())
	e.ModTime = time.Unix(int64(p.next()), int64(p.next())).UTC()
	n := int(p.next())
	e.Link = t.packed.At(at+uint64(p.at), n)
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
	e := format.Entry{Name: string(m.name), Kind: m.kind, Size: m.size, Mode: formatkit.ModeOfUnix(uint32(m.mode)), HasMode: true,
		ModTime: time.Unix(m.sec, int64(m.nsec)).UTC(), Owner: p.At(p.ID(m.owner)), Group: p.At(p.ID(m.group)), Link: string(m.link), Ref: m.at}
	finish(&e, volume, m.fault, m.sparse)
	return e
}

// mostPeople is the number of owners and groups that are remembered for members that are not
// kept.
const mostPeople = 1 << 12
