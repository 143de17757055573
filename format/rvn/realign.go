package rvn

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/holdall/holdall/format/kit"
)

// realign finds names that belong to no record, because the reference dropped files but kept
// their names, and removes them. It returns a description of what it did.
//
// The names of a directory's files are stored in order. So names that are cut in the wrong places
// are out of order or contain impossible bytes. The best way to
// omit the surplus bytes leaves the fewest files out of order and omits bytes in the fewest places.
func (m *repairer) realign() string {
	x := m.a.index
	rest := x.names[x.namesUsed:]
	surplus := len(rest) - trailingZeros(rest)
	n := x.Len()
	if surplus == 0 || n == 0 || len(x.lost) > 0 {
		return ""
	}
	if int64(surplus)*int64(surplus)*int64(n) > maxAlignment || surplus >= 1<<16 {
		m.lose("%d bytes of names belong to no file, and their place is unknown: names may be shifted", surplus)
		return ""
	}
	skips, sure := x.align(surplus)
	if !sure {
		m.lose("%d bytes of names belong to no file, and there are several ways to read the others", surplus)
		return ""
	}
	var names []byte
	at := 0
	for i := range n {
		at += skips[i]
		k := x.rec(i).nameLen()
		names = append(names, x.names[at:at+k]...)
		at += k
	}
	x.names = pad(names)
	x.total = 0
	clear(x.late) // nothing is lost
	if err := x.resolve(m.a.limits.Index); err != nil {
		return ""
	}
	m.a.byName = kit.NewIndex(x)
	return fmt.Sprintf("removed %d bytes of names that belonged to no file, and realigned the names after them", surplus)
}

// maxAlignment limits what realign tries: the number of records times the square of the surplus
// bytes.
const maxAlignment = 256 << 20

// Costs of an alignment.
const (
	costSkip   = 3  // omitting bytes in one place
	costMisfit = 4  // omitting bytes that do not fit as a name between their neighbours
	costOrder  = 10 // a name that comes before its sibling
	costNever  = 1 << 28
)

// align returns how many bytes to omit before the name of each record, and whether no other way
// is as good.
func (x *index) align(surplus int) (skips []int, sure bool) {
	n := x.Len()
	width := surplus + 1
	from := make([]uint16, n*width) // bytes omitted directly before the name of this record
	cost, next := make([]int32, width), make([]int32, width)
	several, nextSeveral := make([]bool, width), make([]bool, width)
	for s := range cost {
		cost[s] = costNever
	}
	cost[0] = 0
	at := 0
	for i := range n {
		k := x.rec(i).nameLen()
		for s := range width {
			next[s], nextSeveral[s] = costNever, false
			if !plausibleName(x.names, at+s, k) {
				continue
			}
			for f := range s + 1 {
				if cost[f] >= costNever {
					continue
				}
				switch c := cost[f] + x.step(i, at+f, at+s); {
				case c < next[s]:
					next[s], nextSeveral[s], from[i*width+s] = c, several[f], uint16(s-f)
				case c == next[s]:
					nextSeveral[s] = true
				}
			}
		}
		cost, next, several, nextSeveral = next, cost, nextSeveral, several
		at += k
	}
	// Bytes omitted after the last name count as a place too.
	end, best, also := surplus, cost[surplus], several[surplus]
	for s := range surplus {
		c := cost[s] + costSkip
		if n > 0 && bytes.Compare(x.names[at+s:at+surplus], x.names[at+s-x.rec(n-1).nameLen():at+s]) <= 0 {
			c += costMisfit
		}
		if c < best {
			end, best, also = s, c, several[s]
		} else if c == best {
			also = true
		}
	}
	if best >= costNever {
		return nil, false
	}
	skips = make([]int, n)
	for i, s := n-1, end; i >= 0; i-- {
		skips[i] = int(from[i*width+s])
		s -= skips[i]
	}
	return skips, !also
}

// step returns the cost of having the name of record i at off, if that of the previous record
// ends at end.
func (x *index) step(i, end, off int) int32 {
	cost := int32(0)
	if off > end {
		cost = costSkip
	}
	if i == 0 {
		return cost
	}
	r, before := x.rec(i), x.rec(i-1)
	if before.parent() != r.parent() || (before.kind() == typeDir) != (r.kind() == typeDir) {
		return cost
	}
	last, name := x.names[end-before.nameLen():end], x.names[off:off+r.nameLen()]
	if bytes.Compare(last, name) >= 0 {
		cost += costOrder
	}
	if skipped := x.names[end:off]; len(skipped) > 0 && (bytes.Compare(skipped, last) <= 0 || bytes.Compare(skipped, name) >= 0) {
		cost += costMisfit
	}
	return cost
}

// plausibleName reports whether k bytes at off can be a name.
func plausibleName(names []byte, off, k int) bool {
	return off+k <= len(names) && !slices.ContainsFunc(names[off:off+k], func(c byte) bool { return c == 0 || c == '/' })
}
