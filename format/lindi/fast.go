package lindi

import "encoding/binary"

// Nearly all of an index is rows of four or five members, and nearly all of a
// long lindi.json is references of three elements. These functions read just
// those, in the words of the reference and of ours alike, and say no to anything
// else, which the scanner then reads.

// A fastRow is a row of the index as it lies in the text.
type fastRow struct {
	o, d, s int64
	name    [2]int // range of the text, without quotes
	sum     int    // where the digest's digits begin; 0 if there is none
	end     int
	has     uint8 // one bit each for o, d, s and n
}

// The words of our own rows, in their order: see appendRow.
const (
	ownSum  = `{"` + digestAlgo + `":"`
	ownData = `","d":`
	ownName = `,"n":`
	ownHead = `,"o":`
	ownSize = `,"s":`
)

// ownRowAt reads a row with a digest exactly as we write it.
func ownRowAt(b []byte, i int) (r fastRow, ok bool) {
	sum := i + len(ownSum)
	at := sum + 2*digestLen
	if at+len(ownData) > len(b) || string(b[i:sum]) != ownSum || string(b[at:at+len(ownData)]) != ownData || !plainSum(b[sum:at]) {
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

// plainSum reports whether what should be the digits of a digest are plain
// characters at least, eight at a time.
func plainSum(b []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	odd := uint64(0)
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		quote, slash := x^ones*'"', x^ones*'\\'
		odd |= x | (x-ones*' ')&^x | (quote-ones)&^quote | (slash-ones)&^slash
	}
	return odd&tops == 0
}

// number reads a number and the words behind it.
func (r *fastRow) number(b []byte, at int, then string, n *int64) (next int, ok bool) {
	k, end := digitsAt(b, at)
	*n, next = k, end+len(then)
	return next, end > at && next <= len(b) && string(b[end:next]) == then
}

// fastRowAt reads the row that begins at b[i].
func fastRowAt(b []byte, i int) (r fastRow, ok bool) {
	if r, ok := ownRowAt(b, i); ok {
		return r, true
	}
	if i >= len(b) || b[i] != '{' {
		return r, false
	}
	for {
		i = past(b, i+1)
		if i+4 >= len(b) || b[i] != '"' {
			return r, false
		}
		key := b[i+1]
		if b[i+2] == '"' {
			i += 3
		} else if key == 'b' && i+8 < len(b) && string(b[i:i+8]) == `"`+digestAlgo+`"` {
			i += 8
		} else {
			return r, false
		}
		if i = past(b, i); i >= len(b) || b[i] != ':' {
			return r, false
		}
		i = past(b, i+1)
		switch key {
		case 'o', 'd', 's':
			n, next := digitsAt(b, i)
			if next == i {
				return r, false
			}
			i = next
			switch key {
			case 'o':
				r.o, r.has = n, r.has|1
			case 'd':
				r.d, r.has = n, r.has|2
			default:
				r.s, r.has = n, r.has|4
			}
		case 'n':
			end := plainAt(b, i)
			if end < 0 {
				return r, false
			}
			r.name, r.has = [2]int{i + 1, end - 1}, r.has|8
			i = end
		case 'b':
			// Whether these are digits shows when they are decoded.
			end := i + 2 + 2*digestLen
			if end > len(b) || b[i] != '"' || b[end-1] != '"' || !plainSum(b[i+1:end-1]) {
				return r, false
			}
			r.sum = i + 1
			i = end
		default:
			return r, false
		}
		if i = past(b, i); i >= len(b) {
			return r, false
		}
		if b[i] == '}' {
			r.end = i + 1
			return r, r.has == 15
		}
		if b[i] != ',' {
			return r, false
		}
	}
}

// past returns where the next byte is that is no blank.
func past(b []byte, i int) int {
	for i < len(b) && isBlank[b[i]] {
		i++
	}
	return i
}

// digitsAt reads a whole number, of at most 18 digits; next is i if there is none.
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

// plainAt returns the end of the string at b[i] if nothing in it needs a second
// look; -1 otherwise.
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

// fastRefAt returns the end of the reference that begins at b[i], -1 if it is
// none, or not plainly one.
func fastRefAt(b []byte, i int) int {
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	if i = plainAt(b, past(b, i+1)); i < 0 {
		return -1
	}
	for range 2 {
		if i = past(b, i); i >= len(b) || b[i] != ',' {
			return -1
		}
		i = past(b, i+1)
		_, next := digitsAt(b, i)
		if next == i {
			return -1
		}
		i = next
	}
	if i = past(b, i); i >= len(b) || b[i] != ']' {
		return -1
	}
	return i + 1
}
