package lindi

import (
	"bytes"
	"encoding/hex"
	"slices"

	"github.com/holdall/holdall/internal/base/blake3"
)

// A lindi.json that is an object of its own has its digest in itself: the last member of
// "generationMetadata", which comes last, is the BLAKE3 of all text before the digest. The reference
// does not use it.
const (
	noteKey = "generationMetadata"
	sealEnd = "\"}\n}"
)

// laidOut returns the text of a lindi.json for a tar, which has the digest elsewhere. It begins as
// holdall's texts do, so that the digest counts.
func laidOut(text []byte, depth int) ([]byte, error) {
	if bytes.Contains(text, []byte(sumsKey)) {
		x, err := parseRFS(text, depth)
		if err != nil {
			return nil, err
		}
		return append(x.open(nil), "\n}"...), nil
	}
	if bytes.HasPrefix(text, []byte(ourRFS)) || len(text) == 0 {
		return text, nil
	}
	return append([]byte("{\n "), bytes.TrimLeft(text[1:], " \t\r\n")...), nil
}

// sealed returns a text of lindi.json with its digest. If "generationMetadata" is not an object, it
// returns the text itself.
func sealed(text []byte, depth int) ([]byte, error) {
	x, err := parseRFS(text, depth)
	if err != nil {
		return nil, err
	}
	notes := []byte{'{'}
	if was := x.member(noteKey); was != nil {
		if was[0] != '{' {
			return text, nil // there is no place for it
		}
		if notes = bytes.TrimRight(bytes.Clone(was[:len(was)-1]), " \t\r\n"); len(notes) > 1 {
			notes = append(notes, ", "...)
		}
	}
	x.top = slices.DeleteFunc(x.top, func(m member) bool { return textOf(m.key) == noteKey })
	out := append(x.open(nil), ",\n \""+noteKey+"\": "...)
	out = append(append(out, notes...), `"`+sumsKey+`": "`...)
	sum := blake3.Sum256(out)
	return append(hex.AppendEncode(out, sum[:]), sealEnd...), nil
}

// open appends the text without its last bracket.
func (x *rfs) open(p []byte) []byte {
	p = append(p, '{')
	for _, m := range x.top {
		p = append(appendMember(append(p, "\n "...), m), ',')
	}
	return append(append(p, "\n \"refs\": "...), x.body...)
}

// withoutSeal returns a value of "generationMetadata" without the digest, or nil if it had nothing
// else. A value without a digest stays as it is.
func withoutSeal(value []byte, depth int) []byte {
	if !bytes.Contains(value, []byte(sumsKey)) {
		return value
	}
	out := []byte{'{'}
	s := scannerOf(value, depth)
	for s.Begin('{'); s.Next('}'); {
		m := member{s.Key(), s.Value()}
		if textOf(m.key) == sumsKey {
			continue
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = appendMember(out, m)
	}
	switch s.End(); {
	case s.Err != nil:
		return value // not an object
	case len(out) == 1:
		return nil
	}
	return append(out, '}')
}

// checkSeal compares a lindi.json that is an object of its own with its digest, if it has one. A
// damaged text adds a note; it is used nevertheless.
func (a *archive) checkSeal(text []byte) {
	at := len(text) - len(sealEnd) - hex.EncodedLen(32)
	if at < 0 || !bytes.HasSuffix(text, []byte(sealEnd)) || !bytes.HasSuffix(text[:at], []byte(`"`+sumsKey+`": "`)) {
		return
	}
	sum := blake3.Sum256(text[:at])
	a.rfsSummed = string(hex.AppendEncode(nil, sum[:])) == string(text[at:len(text)-len(sealEnd)])
	if a.rfsWrong = !a.rfsSummed; a.rfsWrong {
		a.damaged(0, rfsName)
	}
}
