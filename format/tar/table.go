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
	rows   columns.Rows[uint64] // where each member is in packed
	packed columns.Strings
	people columns.Words // owners and groups
	faults map[int]*format.Problem
	sparse map[int]*sparse
	row    []byte
}

// add adds a member, and returns the memory that it takes, with its share of the order of names.
// It is packed: its name, its link and its numbers.
func (t *table) add(m *member) (n int64) {
	const place, index, fault, spans, span = 8, 4, 300, 100, 16
	b := append(binary.AppendUvarint(t.row[:0], uint64(len(m.name))), m.name...)
	b = append(binary.AppendUvarint(b, uint64(len(m.link))), m.link...)
	for _, v := range [...]uint64{uint64(m.kind), uint64(m.mode), uint64(t.people.ID(m.owner)), uint64(t.people.ID(m.group)),
		uint64(m.at), uint64(m.size), uint64(m.sec), uint64(m.nsec)} {
		b = binary.AppendUvarint(b, v)
	}
	t.row = b
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
	d := t.packed.Decoder(*t.rows.At(i))
	return d.Text()
}

func (t *table) Entry(i int) format.Entry {
	d := t.packed.Decoder(*t.rows.At(i))
	e := format.Entry{Name: d.Text(), Link: d.Text(), Kind: format.Kind(d.Number()), HasMode: true, Mode: kit.ModeOfUnix(uint32(d.Number()))}
	e.Owner, e.Group = t.people.At(uint32(d.Number())), t.people.At(uint32(d.Number()))
	e.Ref, e.Size = int64(d.Number()), int64(d.Number())
	e.ModTime = time.Unix(int64(d.Number()), int64(d.Number())).UTC()
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
