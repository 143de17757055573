package tar

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/holdall/holdall/format/internal/tarhead"
)

// span is a stored run of content; everything else is a hole.
type span struct{ off, n int64 }

// sparse is a file whose holes are not stored. Its spans are stored consecutively.
type sparse struct {
	at    int64 // where the first span is stored
	spans []span
}

// stored returns the total length of the spans.
func (s *sparse) stored() (n int64) {
	for _, x := range s.spans {
		n += x.n
	}
	return n
}

var errLongMap = fmt.Errorf("sparse map of more than %d bytes", maxSpecial)

// check checks that spans ascend, are within size, and are stored.
func (s *sparse) check(size, stored int64) error {
	var end int64
	for i, x := range s.spans {
		if x.off < end || x.n < 0 || x.n > size-x.off {
			return fmt.Errorf("sparse map: span %d of %d, bytes %d+%d: expected it after %d and within %d bytes", i, len(s.spans), x.off, x.n, end, size)
		}
		end = x.off + x.n
	}
	if n := s.stored(); n > stored {
		return fmt.Errorf("sparse map: spans of %d bytes, but %d are stored", n, stored)
	}
	return nil
}

// oldMap reads the map of GNU's first kind: four spans in the header, and 21 in each further
// block. A span is two numbers of twelve bytes.
func (s *scanner) oldMap(b block) (spans []span, err error) {
	add := func(table []byte) error {
		for i := 0; i+24 <= len(table) && table[i] != 0; i += 24 {
			off, ok1 := tarhead.Number(table[i : i+12])
			n, ok2 := tarhead.Number(table[i+12 : i+24])
			if !ok1 || !ok2 {
				return errors.New("sparse map: span without a number")
			}
			spans = append(spans, span{off, n})
		}
		return nil
	}
	err = add(b[386:482])
	more := b[482] != 0
	for read := 97; more; read += blockSize {
		if read >= maxSpecial {
			return nil, errLongMap
		}
		x, failed := s.src.take(blockSize)
		if failed != nil {
			return nil, failed
		}
		if err == nil {
			err = add(x[:504])
		}
		more = x[504] != 0
	}
	if err != nil {
		return nil, &mapError{err}
	}
	return spans, nil
}

// mapError means that a sparse map cannot be read, but the archive can.
type mapError struct{ error }

// listedMap parses a map of numbers that are separated by commas.
func listedMap(count, list []byte) (spans []span, err error) {
	n, ok := decimal(count)
	for len(list) > 0 {
		var off, length []byte
		var more bool
		if off, list, more = bytes.Cut(list, []byte(",")); !more {
			return nil, &mapError{errors.New("sparse map: offset without a length")}
		}
		length, list, more = bytes.Cut(list, []byte(","))
		x, ok1 := decimal(off)
		y, ok2 := decimal(length)
		if !ok1 || !ok2 || more && len(list) == 0 {
			return nil, &mapError{errors.New("sparse map: span without a number")}
		}
		spans = append(spans, span{x, y})
	}
	if !ok || int64(len(spans)) != n {
		return nil, &mapError{fmt.Errorf("sparse map: %d spans, expected %q", len(spans), count)}
	}
	return spans, nil
}

// leadingMap reads a map at the beginning of the stored content: the number of spans, and their
// numbers, one on each line. It is padded to a block.
func (s *scanner) leadingMap(stored int64) (spans []span, read int64, err error) {
	var line []byte
	var lines, want int64 = 0, 1
	var off int64
	for lines < want {
		if read += blockSize; read > maxSpecial {
			return nil, read - blockSize, &mapError{errLongMap}
		}
		if read > stored {
			return nil, read - blockSize, &mapError{errors.New("sparse map: longer than the stored bytes")}
		}
		b, err := s.src.take(blockSize)
		if err != nil {
			return nil, read, err
		}
		for _, c := range b {
			if lines == want {
				break
			}
			if c != '\n' {
				line = append(line, c)
				continue
			}
			n, ok := decimal(line)
			if !ok || lines == 0 && (n < 0 || n > maxSpecial) {
				return nil, read, &mapError{fmt.Errorf("sparse map: line %d is not a number", lines+1)}
			}
			switch line = line[:0]; {
			case lines == 0:
				want = 1 + 2*n
			case lines%2 == 1:
				off = n
			default:
				spans = append(spans, span{off, n})
			}
			lines++
		}
	}
	return spans, read, nil
}
