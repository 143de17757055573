package caf

import (
	"bytes"
	"encoding/hex"

	"github.com/holdall/holdall/format/kit/jsontext"
)

var (
	rowStart  = []byte(`:{"start_byte":`)
	rowEnd    = []byte(`,"end_byte":`)
	rowBlake3 = []byte(`,"blake3":"`)
)

// fastRow reads a row that is completely in the buffer and written as known writers do. Otherwise
// it returns false and reads nothing.
func (s *scanner) fastRow() bool {
	b := s.Buf[s.At:]
	if len(b) < 2 || b[0] != '"' {
		return false
	}
	n, high := jsontext.Plain(b[1:])
	if 1+n >= len(b) || b[1+n] != '"' {
		return false
	}
	name := b[1 : 1+n]
	b = b[n+2:]
	if len(b) < len(rowStart) || !bytes.Equal(b[:len(rowStart)], rowStart) {
		return false
	}
	b = b[len(rowStart):]
	start, k := jsontext.Digits(b)
	if k == 0 {
		return false
	}
	b = b[k:]
	if len(b) < len(rowEnd) || !bytes.Equal(b[:len(rowEnd)], rowEnd) {
		return false
	}
	b = b[len(rowEnd):]
	end, k := jsontext.Digits(b)
	if k == 0 || k >= len(b) {
		return false
	}
	b = b[k:]
	var digest []byte
	if b[0] == ',' && !bytes.HasPrefix(b, rowObject) {
		const long = 11 + 2*digestLen + 2
		if len(b) < long || !bytes.Equal(b[:len(rowBlake3)], rowBlake3) || b[long-2] != '"' {
			return false
		}
		if _, err := hex.Decode(s.digest[:], b[len(rowBlake3):len(rowBlake3)+2*digestLen]); err != nil {
			return false
		}
		digest = s.digest[:]
		b = b[long-1:]
	}
	r := &s.row
	r.object = object{}
	if b[0] == ',' && bytes.HasPrefix(b, rowObject) {
		b = b[len(rowObject):]
		if k, s.etag = r.object.objectIn(b, s.etag); k == 0 || k >= len(b) {
			return false
		}
		b = b[k:]
	}
	if b[0] != '}' {
		return false
	}
	r.odd = 0
	if high {
		r.odd = oddName(name)
	}
	r.name, r.start, r.end, r.off, r.digest, r.extra = name, start, end, s.Offset(), digest, nil
	s.At = len(s.Buf) - len(b) + 1
	return true
}
