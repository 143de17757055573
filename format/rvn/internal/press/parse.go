package press

import "math/bits"

// leastFind is the shortest match that is searched for.
const leastFind = 4

type match struct {
	length, offset int
	gain           int // in bits, or so: a byte saves 4, if it was not copied
}

// best returns the match at i that gains more than all others, and more than least. The literals
// since begin precede it.
func (e *Encoder) best(b []byte, i, begin, least int, r *repeats) (m match) {
	m.gain = least
	v := load32(b, i)
	k := 0
	if i == begin {
		k = 1 // without literals the last offset has no short number
	}
	for ; k < len(r); k++ {
		o := int(r[k])
		if o != 0 && load32(b, i-o) == v {
			n := 4 + common(b, i+4, i-o+4)
			if g := 4*n - 1 - k; g > m.gain {
				m = match{n, o, g}
			}
		}
	}
	floor := max(leastFind-1, (m.gain+3)/4) // an offset takes 3 bits or more
	if n, o := e.search(b, i, floor); n > 0 {
		if g := 4*n - bits.Len(uint(o+3)); g > m.gain {
			m = match{n, o, g}
		}
	}
	return m
}

// parse divides src[from:to] into sequences.
func (e *Encoder) parse(src []byte, from, to int) {
	e.sequences = e.sequences[:0]
	e.literals = e.literals[:0]
	b := src[:to:to]
	r := e.rep
	begin := from // of the literals
	i := max(from, 1)
	for i < to-reach {
		m := e.best(b, i, begin, 0, &r)
		if m.length == 0 {
			i += 1 + (i-begin)>>6
			continue
		}
		// A match one byte later may be better by more than the literal it costs. Trying two
		// bytes makes the output 1 % smaller and takes a quarter longer.
		at := i
		for i < to-reach-1 {
			i++
			n := e.best(b, i, begin, m.gain+4, &r)
			if n.length == 0 {
				break
			}
			m, at = n, i
		}
		for at > begin && at > m.offset && b[at-1] == b[at-m.offset-1] {
			at--
			m.length++
		}
		e.literals = append(e.literals, b[begin:at]...)
		o := uint32(m.offset)
		e.sequences = append(e.sequences, sequence{literals: uint32(at - begin), match: uint32(m.length), offset: o})
		r.number(o, uint32(at-begin))
		i = at + m.length
		begin = i
	}
	e.literals = append(e.literals, b[begin:]...)
}
