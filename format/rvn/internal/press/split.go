package press

import "math"

const (
	// piece is the smallest size of a block. With twice as much, the result is up to 0.1 %
	// larger.
	piece  = 4 << 10
	pieces = mostBlock / piece
)

// tally has the counts of everything in a block before some place.
type tally struct {
	src, literals, sequences int
	literal                  [256]uint32
	run                      [len(literalBase)]uint32
	match                    [len(matchBase)]uint32
	offset                   [32]uint32
}

// splitter finds places where a block should be divided, because what follows differs from what
// precedes.
type splitter struct {
	tallies [pieces + 1]tally
	cost    [pieces + 1]int64 // the least, of all before
	from    [pieces + 1]int   // where the last block of that begins
}

// split counts a block of n bytes, whose sequences have codes, and sets from. It returns the
// number of the last tally.
func (s *splitter) split(n int, seqs []sequence, literals []byte) int {
	last := 0
	t := &s.tallies[0]
	*t = tally{}
	next := func() *tally {
		last++
		s.tallies[last] = *t
		return &s.tallies[last]
	}
	t = next()
	for i := range seqs {
		q := &seqs[i]
		for _, c := range literals[t.literals : t.literals+int(q.literals)] {
			t.literal[c]++
		}
		t.run[q.lc]++
		t.match[q.mc]++
		t.offset[q.oc&31]++
		t.literals += int(q.literals)
		t.src += int(q.literals + q.match)
		t.sequences++
		if t.src-s.tallies[last-1].src >= piece && n-t.src >= piece {
			t = next()
		}
	}
	for _, c := range literals[t.literals:] {
		t.literal[c]++
	}
	t.literals = len(literals)
	t.src = n
	for j := 1; j <= last; j++ {
		s.cost[j] = math.MaxInt64
		for i := range j {
			if c := s.cost[i] + s.tallies[j].since(&s.tallies[i]); c < s.cost[j] {
				s.cost[j] = c
				s.from[j] = i
			}
		}
	}
	return last
}

// since returns about how much a block takes of what is in t but not in u. It omits the extra
// bits after codes, which no split changes.
func (t *tally) since(u *tally) int64 {
	const headers = 20 * 8 * bit
	return headers +
		min(entropy(t.literal[:], u.literal[:], 3*bit), int64(t.literals-u.literals)*8*bit) +
		entropy(t.run[:], u.run[:], 5*bit) +
		entropy(t.match[:], u.match[:], 5*bit) +
		entropy(t.offset[:], u.offset[:], 5*bit)
}

// entropy returns the size of the codes that were counted in t but not in u, and of a table
// in which every one of them takes each.
func entropy(t, u []uint32, each int64) (sum int64) {
	n := uint32(0)
	u = u[:len(t)]
	for i, c := range t {
		if c -= u[i]; c > 0 {
			n += c
			sum += each - int64(c)*int64(logOf(c))
		}
	}
	if n > 0 {
		sum += int64(n) * int64(logOf(n))
	}
	return sum
}

// blocks appends src, given as literals and sequences with codes, as one or more blocks, and
// returns where the last one begins.
func (c *coder) blocks(dst, src []byte, s *splitter) (_ []byte, last int) {
	seqs, literals := c.sequences, c.literals
	// from is followed from the end; the places on the way are stored in ends.
	var ends [pieces + 1]int
	k := len(ends)
	for j := s.split(len(src), seqs, literals); j > 0; j = s.from[j] {
		k--
		ends[k] = j
	}
	t := &s.tallies[0]
	for _, j := range ends[k:] {
		u := &s.tallies[j]
		c.sequences = seqs[t.sequences:u.sequences]
		c.literals = literals[t.literals:u.literals]
		last = len(dst)
		dst = c.block(dst, src[t.src:u.src])
		t = u
	}
	c.sequences, c.literals = seqs, literals
	return dst, last
}
