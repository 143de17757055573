package proof

import "github.com/holdall/holdall/internal/oak/internal/segment"

// state is what is known about a record, in two bits.
type state uint8

const (
	unknown state = iota
	good          // everything below it is intact
	bad           // something is lost: in it or below it
	pending       // visited in this walk
)

const (
	pageHead   = 128 // memory of a page in addition to its bits
	sparseSize = 64  // memory of a record that is in no page
)

// marks has the states of records, by segment. When it is full, it forgets the segments that it
// has had longest.
type marks struct {
	limit, used int
	pages       map[segment.ID]*page
	oldest      []*page // first
	last        *page
	sparse      map[segment.RecordID]state // records without a page: numbers with gaps, lost segments
	forgot      bool
	changed     []*page // since settle
}

type page struct {
	id      segment.ID
	bits    []byte
	changed bool
}

func newMarks(limit int) *marks {
	return &marks{limit: limit, pages: map[segment.ID]*page{}, sparse: map[segment.RecordID]state{}}
}

func (m *marks) page(id segment.ID) *page {
	if m.last == nil || m.last.id != id {
		p := m.pages[id]
		if p == nil {
			return nil
		}
		m.last = p
	}
	return m.last
}

func (p *page) has(n int32) bool { return p != nil && n >= 0 && int(n/4) < len(p.bits) }

func (m *marks) get(id segment.RecordID) state {
	if p := m.page(id.Segment); p.has(id.Number) {
		return state(p.bits[id.Number/4] >> (id.Number % 4 * 2) & 3)
	}
	return m.sparse[id]
}

// open makes room for the records of a segment.
func (m *marks) open(id segment.ID, records int) {
	if m.page(id) != nil || records == 0 {
		return
	}
	p := &page{id: id, bits: make([]byte, (records+3)/4)}
	m.pages[id], m.last = p, p
	m.oldest = append(m.oldest, p)
	for m.used += pageHead + len(p.bits); m.used > m.limit && len(m.oldest) > 1; m.forgot = true {
		old := m.oldest[0]
		m.oldest[0], m.oldest = nil, m.oldest[1:]
		delete(m.pages, old.id)
		m.used -= pageHead + len(old.bits)
	}
}

func (m *marks) set(id segment.RecordID, s state) {
	p := m.page(id.Segment)
	if !p.has(id.Number) {
		if len(m.sparse)*sparseSize > m.limit/4 {
			clear(m.sparse)
			m.forgot = true
		}
		m.sparse[id] = s
		return
	}
	shift := id.Number % 4 * 2
	b := &p.bits[id.Number/4]
	*b = *b&^(3<<shift) | byte(s)<<shift
	if !p.changed {
		p.changed = true
		m.changed = append(m.changed, p)
	}
}

// settle changes everything that is pending to another state.
func (m *marks) settle(as state) {
	for _, p := range m.changed {
		p.changed = false
		for i, b := range p.bits {
			both := b & (b >> 1) & 0x55 // a bit where the state is pending
			p.bits[i] = b&^(both*3) | both*byte(as)
		}
	}
	m.changed = m.changed[:0]
	for id, s := range m.sparse {
		if s == pending {
			m.sparse[id] = as
		}
	}
}
