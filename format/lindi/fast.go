package lindi

// Nearly all rows of an index have four or five members, and nearly all references in a long
// lindi.json have three elements. The functions below parse only these, as the reference or
// holdall writes them. They refuse anything else, which the scanner then parses.

// fastRow is a row of the index as ranges of the text.
type fastRow struct {
	o, d, s int64
	name    [2]int // range in the text, without quotes
	sum     int    // where the digits of the digest begin; 0 if there is none
	end     int
	has     uint8 // a bit each for o, d, s and n
}

// The keys of rows that holdall writes, in their order: see appendRow.
const (
	ownSum  = `{"` + digestAlgo + `":"`
	ownData = `","d":`
	ownName = `,"n":`
	ownHead = `,"o":`
	ownSize = `,"s":`
)

// ownRowAt parses a row with a digest exactly as holdall writes it. It does not look at the digits.
func ownRowAt(b []byte, i int) (r fastRow, ok bool) {
	sum := i + len(ownSum)
	at := sum + 2*digestLen
	if at+len(ownData) > len(b) || string(b[i:sum]) != ownSum || string(b[at:at+len(ownData)]) != ownData {
		return r, false
	}
	r.sum = sum
	if at, ok = r.number(b, at+len(ownData), ownName, &r.d); !ok {
		return r, false
	}
	end := plainAt(b, at)
	if end < 0 || end+len(ownHead) > len(b) || string(b[end:end+len(ownHead)]) != ownHead {
		return r, false
	}
	r.name = [2]int{at + 1, end - 1}
	if at, ok = r.number(b, end+len(ownHead), ownSize, &r.o); !ok {
		return r, false
	}
	r.end, ok = r.number(b, at, "}", &r.s)
	return r, ok
}

// number parses a number and the text after it.
func (r *fastRow) number(b []byte, at int, then string, n *int64) (next int, ok bool) {
	k, end := digitsAt(b, at)
	*n, next = k, end+len(then)
	return next, end > at && next <= len(b) && string(b[end:next]) == then
}

// fastRowAt parses the row at b[i], and returns its end, or i if it cannot. The row shares its name
// with b, and its digest with sum.
func fastRowAt(b []byte, i int, sum *[digestLen]byte) (r row, end int, ok bool) {
	f, ok := ownRowAt(b, i)
	if ok {
		r.sum = digestAt(b[f.sum:], sum)
	}
	if !ok || r.sum == "" {
		if f, ok = plainRowAt(b, i); !ok {
			return r, i, false
		}
		if f.sum > 0 {
			r.sum = digestAt(b[f.sum:], sum)
		}
	}
	r.o, r.d, r.s, r.name = f.o, f.d, f.s, sharedText(b[f.name[0]:f.name[1]])
	return r, f.end, true
}

// plainRowAt parses a row with its members in any order.
func plainRowAt(b []byte, i int) (r fastRow, ok bool) {
	q := quick{b: b, i: i}
	q.want('{')
	for {
		from, to := q.text()
		key := b[from:to]
		q.want(':')
		switch string(key) {
		case "o":
			r.o, r.has = q.number(), r.has|1
		case "d":
			r.d, r.has = q.number(), r.has|2
		case "s":
			r.s, r.has = q.number(), r.has|4
		case "n":
			from, to = q.text()
			r.name, r.has = [2]int{from, to}, r.has|8
		case digestAlgo:
			// Invalid digits are detected when they are decoded.
			from, to = q.text()
			r.sum, q.bad = from, q.bad || to-from != 2*digestLen
		default:
			return r, false
		}
		if q.bad {
			return r, false
		}
		if past(b, q.i) < len(b) && b[past(b, q.i)] == '}' {
			r.end = past(b, q.i) + 1
			return r, r.has == 15
		}
		q.want(',')
	}
}

// quick parses plain JSON. After it has found anything else, it is bad and does not move.
type quick struct {
	b   []byte
	i   int
	bad bool
}

func (q *quick) want(c byte) {
	if q.i = past(q.b, q.i); q.bad || q.i >= len(q.b) || q.b[q.i] != c {
		q.bad = true
		return
	}
	q.i++
}

func (q *quick) number() int64 {
	q.i = past(q.b, q.i)
	n, next := digitsAt(q.b, q.i)
	q.bad = q.bad || next == q.i
	q.i = next
	return n
}

// text returns the range between two quotes.
func (q *quick) text() (from, to int) {
	q.i = past(q.b, q.i)
	end := plainAt(q.b, q.i)
	if q.bad = q.bad || end < 0; q.bad {
		return 0, 0
	}
	from, q.i = q.i+1, end
	return from, end - 1
}

// past returns the position of the next byte that is not a blank.
func past(b []byte, i int) int {
	for i < len(b) && isBlank[b[i]] {
		i++
	}
	return i
}

// digitsAt parses an integer of at most 18 digits; next is i if there is none.
func digitsAt(b []byte, i int) (n int64, next int) {
	at := i
	for i < len(b) && b[i]-'0' <= 9 {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	if i-at > 18 || i-at > 1 && b[at] == '0' || i < len(b) && (b[i] == '.' || b[i] == 'e' || b[i] == 'E') {
		return 0, at
	}
	return n, i
}

// plainAt returns the end of the string at b[i], or -1 if the string is not plain.
func plainAt(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	i++
	for i < len(b) && isPlain[b[i]] {
		i++
	}
	if i < len(b) && b[i] == '"' {
		return i + 1
	}
	return -1
}

// fastRefAt returns the end of the reference at b[i], or -1 if there is none or it is not plain.
func fastRefAt(b []byte, i int) int {
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	q := quick{b: b, i: i + 1}
	q.text()
	q.want(',')
	q.number()
	q.want(',')
	q.number()
	if q.want(']'); q.bad {
		return -1
	}
	return q.i
}
