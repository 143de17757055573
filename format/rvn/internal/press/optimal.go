package press

import (
	"math"
	"math/bits"
)

const (
	// stretch is the maximum number of bytes that are parsed together.
	stretch = 4096
	// renewal is for how many bytes prices are used, or a stretch more.
	renewal = 1024
	// hardly is how much cheaper than the next place a place must be for a match to be searched
	// there. Half a bit makes the output 0.7 % smaller, on a Go tree, and takes half as long
	// again.
	hardly = 2 * bit
)

// way is the last step to a place: a match or, if its length is 0, a literal.
type way struct {
	length, offset uint32
}

// reached is what is known about a place once the cheapest way to it has been found.
type reached struct {
	rep      repeats
	literals uint32 // since the last match
}

// optimal selects matches by price. It processes a stretch from left to right. At each place the
// cheapest way to it is known, and each match that begins there may be the cheapest way to a
// later place. A stretch ends where no match crosses its end, or with a match that is so long
// that it is used at once.
type optimal struct {
	seeker
	prices
	splitter
	price  [stretch + 1]int32
	ways   [stretch + 1]way
	places [stretch + 1]reached
	path   [stretch / leastMatch]int
}

// forget readies o for a section.
func (o *optimal) forget(src []byte) {
	o.seeker.forget(len(src))
	o.prices.forget(src[:min(len(src), mostBlock)])
}

// parseOptimal divides src[from:to] into sequences.
func (e *Encoder) parseOptimal(src []byte, from, to int) {
	o := e.optimal
	e.sequences = e.sequences[:0]
	e.literals = e.literals[:0]
	b := src[:to:to]
	r := e.rep
	begin := from // of the literals
	take := func(at int, w way) {
		run := b[begin:at]
		e.literals = append(e.literals, run...)
		q := sequence{literals: uint32(len(run)), match: w.length, offset: w.offset}
		q.lc = literalCode(q.literals)
		q.mc = matchCode(q.match - leastMatch)
		q.oc = uint8(bits.Len32(r.number(q.offset, q.literals)) - 1)
		e.sequences = append(e.sequences, q)
		o.count(run, &q)
		begin = at + int(w.length)
	}
	o.fade()
	renew := from
	for i := max(from, 1); i < to-reach; {
		if i >= renew {
			o.set()
			renew = i + renewal
		}
		list := o.seek(b, i, &r, uint32(i-begin))
		if len(list) == 0 {
			i += 1 + (i-begin)>>8
			continue
		}
		o.places[0] = reached{r, uint32(i - begin)}
		n, last := o.stretch(b, i, list)
		k := len(o.path)
		for at := n; at > 0; {
			w := o.ways[at]
			if w.length == 0 {
				at--
				continue
			}
			k--
			o.path[k] = at
			at -= int(w.length)
		}
		for _, at := range o.path[k:] {
			w := o.ways[at]
			take(i+at-int(w.length), w)
		}
		i += n
		if last.length > 0 {
			take(i, last)
			i = begin
		}
	}
	e.literals = append(e.literals, b[begin:]...)
	o.countLiterals(b[begin:])
}

// stretch finds the cheapest way from i to the end of a stretch, n bytes later, and the match
// that must be used there, if any. list has the matches at i.
func (o *optimal) stretch(b []byte, i int, list []candidate) (n int, last way) {
	o.price[0] = 0
	end := 0 // the furthest place to which there is a way
	for at := 0; ; {
		if len(list) > 0 {
			c := list[len(list)-1]
			if c.length > longest || at+int(c.length) > stretch {
				return at, way{c.length, c.offset}
			}
			end = o.extend(list, at, end)
		}
		at++
		was, here := &o.places[at-1], &o.places[at]
		p := o.price[at-1] + o.literal[b[i+at-1]] + o.literals(was.literals+1) - o.literals(was.literals)
		if p <= o.price[at] {
			o.price[at] = p
			o.ways[at] = way{}
			*here = reached{was.rep, was.literals + 1}
		} else {
			w := o.ways[at]
			was = &o.places[at-int(w.length)]
			here.rep = was.rep
			here.rep.number(w.offset, was.literals)
			here.literals = 0
		}
		if at == end {
			return at, way{}
		}
		list = nil
		if o.price[at+1] > o.price[at]+hardly && i+at < len(b)-reach {
			list = o.seek(b, i+at, &here.rep, here.literals)
		}
	}
}

// extend records the matches in list where they are the cheapest way from at. end is the furthest
// place to which there was a way; extend returns the new one.
func (o *optimal) extend(list []candidate, at, end int) int {
	for far := at + int(list[len(list)-1].length); end < far; {
		end++
		o.price[end] = math.MaxInt32
	}
	base := o.price[at] + o.run[0]
	from := leastMatch
	for _, c := range list {
		// A shorter match is cheaper with the previous candidate. If the whole match is not the
		// cheapest, its parts rarely are; trying them all makes the output 0.2 % smaller.
		n := min(int(c.length), longest) + 1
		match := o.match[from:n]
		price := o.price[at+from : at+n][:len(match)]
		ways := o.ways[at+from : at+n][:len(match)]
		p := base + o.offset[c.code&31]
		for k := len(match) - 1; k >= 0; k-- {
			q := p + match[k]
			if q >= price[k] {
				break
			}
			price[k] = q
			ways[k] = way{uint32(from + k), c.offset}
		}
		from = n
	}
	return end
}
