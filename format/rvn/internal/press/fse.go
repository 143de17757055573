package press

import (
	"math"
	"math/bits"
	"sync"
)

// The three kinds of number that a sequence consists of have codes, which are
// entropy coded with a table for each kind (RFC 8878, section 3.1.1.3.2).
const (
	mostSymbols = 53 // of match lengths, which have the most codes
	mostLog     = 9  // the largest table has 1<<9 states
	leastLog    = 5  // the smallest that a description can name
)

// step is how one symbol changes the state of an encoder, which is from 1<<log up to 2<<log. The
// state sheds bits until it is within the symbol's own range, and next has the new state.
type step struct {
	// bits, added to a state, has the number of bits to shed from bit 16 up.
	bits uint32
	// find, added to the state that has shed them, is an index of next.
	find int32
}

// codeTable is a table of one kind of codes, as an encoder uses it.
type codeTable struct {
	log     int
	symbols int // later ones have no states
	weight  [mostSymbols]int16
	steps   [64]step // of mostSymbols, but any index below 64 is one
	next    [1 << mostLog]uint16
}

// log2 has the logarithms of the possible weights.
var log2 = sync.OnceValue(func() *[1<<mostLog + 1]float64 {
	var t [1<<mostLog + 1]float64
	for i := range t {
		t[i] = math.Log2(float64(i))
	}
	return &t
})

// The tables that a block may use without describing them (section 3.1.1.3.2.2).
var (
	defaultLiterals = newDefault(6, []int16{4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1})
	defaultOffsets  = newDefault(5, []int16{1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1})
	defaultMatches  = newDefault(6, []int16{1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1})
)

func newDefault(log int, weight []int16) *codeTable {
	t := &codeTable{log: log, symbols: len(weight)}
	copy(t.weight[:], weight)
	t.build()
	return t
}

// weigh assigns a share of the states to every code that occurs. There are n codes, at least two
// of them different.
func (t *codeTable) weigh(count []uint32, n, most int) {
	t.symbols = 0
	different := 0
	for i, c := range count {
		t.weight[i] = 0
		if c > 0 {
			t.symbols = i + 1
			different++
		}
	}
	t.log = min(most, max(leastLog, bits.Len(uint(n-1))-2, bits.Len(uint(different))+1))
	size := 1 << t.log
	left := size
	for i, c := range count[:t.symbols] {
		if c > 0 {
			w := max(1, int16(uint64(c)<<t.log/uint64(n)))
			t.weight[i] = w
			left -= int(w)
		}
	}
	log2 := log2()
	// If rounding left something over, it is added where it saves the most bits. If there is too
	// much, it is taken where that costs the fewest.
	for ; left > 0; left-- {
		best, most := 0, -1.0
		for i, c := range count[:t.symbols] {
			if w := t.weight[i]; c > 0 {
				if gain := float64(c) * (log2[w+1] - log2[w]); gain > most {
					best, most = i, gain
				}
			}
		}
		t.weight[best]++
	}
	for ; left < 0; left++ {
		best, least := 0, math.Inf(1)
		for i, c := range count[:t.symbols] {
			if w := t.weight[i]; w > 1 {
				if loss := float64(c) * (log2[w] - log2[w-1]); loss < least {
					best, least = i, loss
				}
			}
		}
		t.weight[best]--
	}
}

// cost returns how many bits the codes take with this table; infinitely many if it lacks one of
// them.
func (t *codeTable) cost(count []uint32) float64 {
	sum, log2 := 0.0, log2()
	for i, c := range count {
		if c > 0 {
			if i >= t.symbols || t.weight[i] == 0 {
				return math.Inf(1)
			}
			sum += float64(c) * (float64(t.log) - log2[max(1, t.weight[i])])
		}
	}
	return sum
}

// build makes steps and next from the weights, which must add up to 1<<log.
func (t *codeTable) build() {
	size := 1 << t.log
	// Spread the symbols over the states as the decoder does: those of weight -1 from the end,
	// one state each, and the others in strides.
	var at [1 << mostLog]uint8
	end := size
	for s, w := range t.weight[:t.symbols] {
		if w < 0 {
			end--
			at[end] = uint8(s)
		}
	}
	stride, i := size>>1+size>>3+3, 0
	for s, w := range t.weight[:t.symbols] {
		for ; w > 0; w-- {
			at[i] = uint8(s)
			for i = (i + stride) & (size - 1); i >= end; {
				i = (i + stride) & (size - 1)
			}
		}
	}
	// next has the states in the order of their symbols.
	var first [mostSymbols]int
	total := 0
	for s, w := range t.weight[:t.symbols] {
		first[s] = total
		n := int(max(w, -w))
		if n > 0 {
			shed := t.log + 1 - bits.Len(uint(n-1)|1)
			t.steps[s] = step{uint32(shed<<16 - n<<shed), int32(total - n)}
		}
		total += n
	}
	for i, s := range at[:size] {
		t.next[first[s]] = uint16(size + i)
		first[s]++
	}
}

// begin returns the encoder's first state, from which the decoder gets the code s. No bits
// precede it.
func (t *codeTable) begin(s uint8) uint32 {
	d := t.steps[s&63]
	shed := (d.bits + 1<<15) >> 16
	return uint32(t.next[int32((shed<<16-d.bits)>>shed)+d.find])
}

// describe appends the weights (section 4.1.1).
func (t *codeTable) describe(b []byte) []byte {
	acc, n := uint64(t.log-leastLog), 4
	left, reach, width := 1<<t.log+1, 1<<t.log, t.log+1
	for s := 0; left > 1; {
		w := int(t.weight[s])
		s++
		// A number can be from 0 to what is left. If these do not use all codes, small numbers
		// take one bit less.
		v, short := w+1, 2*reach-1-left
		left -= max(w, -w)
		k := width
		if v < short {
			k--
		} else if v >= reach {
			v += short
		}
		acc |= uint64(v) << n
		n += k
		for left < reach {
			reach >>= 1
			width--
		}
		if w == 0 {
			run := 0
			for t.weight[s] == 0 {
				s++
				run++
			}
			for ; run >= 3; run -= 3 {
				acc |= 3 << n
				n += 2
				for ; n >= 8; n -= 8 {
					b = append(b, byte(acc))
					acc >>= 8
				}
			}
			acc |= uint64(run) << n
			n += 2
		}
		for ; n >= 8; n -= 8 {
			b = append(b, byte(acc))
			acc >>= 8
		}
	}
	if n > 0 {
		b = append(b, byte(acc))
	}
	return b
}
