package compact

import "github.com/holdall/holdall/internal/oak/internal/segment"

// known remembers what has become of records, by the segments that they were in. Over
// its limit it forgets the segments that it met first: what they share with others is
// then written twice.
type known struct {
	limit, n int
	m        map[segment.ID]map[int32]place
	order    []segment.ID // of m
	made     []segment.ID // new segments, by their number in a place
	index    map[segment.ID]int32
}

// A place is a record of the new store.
type place struct {
	segment int32 // in made
	record  int32
}

func (k *known) get(id segment.RecordID) (segment.RecordID, bool) {
	p, ok := k.m[id.Segment][id.Number]
	if !ok {
		return segment.RecordID{}, false
	}
	return segment.RecordID{Segment: k.made[p.segment], Number: p.record}, true
}

func (k *known) put(id, is segment.RecordID) {
	number, ok := k.index[is.Segment]
	if !ok {
		number = int32(len(k.made))
		k.index[is.Segment] = number
		k.made = append(k.made, is.Segment)
	}
	records := k.m[id.Segment]
	if records == nil {
		records = map[int32]place{}
		k.m[id.Segment] = records
		k.order = append(k.order, id.Segment)
	}
	records[id.Number] = place{number, is.Number}
	for k.n++; k.n > k.limit && len(k.order) > 1; {
		k.n -= len(k.m[k.order[0]])
		delete(k.m, k.order[0])
		k.order = k.order[1:]
	}
}
