package lindi

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/pyjson"
)

const (
	digestAlgo = "blake3"
	digestLen  = 32
)

// A row is one member of the tar, as the index has it or as a scan of the
// headers found it.
type row struct {
	name string
	o    int64 // header
	d    int64 // content
	s    int64 // bytes of content
	at   uint32
	len  uint32 // of the row's own text in the index; 0 if there is none
	sum  uint32 // where its digest begins in that text, in hexadecimal; 0 if there is none
}

// end returns where the next header can lie.
func (r row) end() int64 { return r.d + padded(r.s) }

// A table is the members of a tar.
type table struct {
	volume string
	size   int64 // of the file
	rows   []row
	text   []byte   // the index's, which rows and names lie in
	extra  []member // what else the index has at its top
	odd    []oddRow // rows that say nothing usable, the first of them
	odds   int      // how many there are
	found  bool     // by a scan, not by an index
	holes  []hole   // where the scan found no header

	bare bool // lindi.json says nothing: it is there because one has to be
}

// An oddRow is a row of the index that cannot be used.
type oddRow struct {
	at  int64 // in the text
	msg string
}

// A member is one of a JSON object's: key and value, as text.
type member struct{ key, value []byte }

func appendMember(p []byte, m member) []byte {
	return append(append(append(p, m.key...), ": "...), m.value...)
}

func (t *table) Len() int          { return len(t.rows) }
func (t *table) Name(i int) string { return t.rows[i].name }

func (t *table) Entry(i int) format.Entry {
	r := t.rows[i]
	e := format.Entry{Name: r.name, Size: r.s, Ref: r}
	switch r.name {
	case entryName, indexName:
		e.Internal = true
	case rfsName:
		e.Internal = t.bare
	default:
		e.Digest = t.digest(r)
	}
	e.Fault = t.fault(r)
	return e
}

// digest returns what the index says of a member's content.
func (t *table) digest(r row) (d format.Digest) {
	if r.sum == 0 {
		return d
	}
	var sum [digestLen]byte
	if _, err := hex.Decode(sum[:], t.text[r.sum:r.sum+2*digestLen]); err == nil {
		d = format.Digest{Algo: digestAlgo, Sum: string(sum[:])}
	}
	return d
}

// fault says why a member cannot be read; nil if it can.
func (t *table) fault(r row) *format.Problem {
	p := format.Problem{Severity: format.Error, Volume: t.volume, Off: min(r.d, t.size), Entry: r.name, HasEntry: true}
	switch {
	case r.d > t.size-r.s && r.o < t.size:
		p.Code, p.Message = format.Truncated, fmt.Sprintf("its %d bytes at %d extend beyond the end of the archive at %d", r.s, r.d, t.size)
	case r.d > t.size-r.s:
		p.Code, p.Message = format.OutOfBounds, fmt.Sprintf("expected at %d, but the archive has %d bytes", r.d, t.size)
	default:
		return nil
	}
	return &p
}

// parseIndex reads the text of an index. Rows that say nothing usable are set
// aside; only a text that is no index is an error.
func parseIndex(text []byte, depth int) (*table, error) {
	t := &table{text: text}
	s := &scanner{b: text, depth: depth}
	files := false
	err := s.members(func(key []byte) error {
		if string(key) != `"files"` {
			v, err := s.value()
			t.extra = append(t.extra, member{key, v})
			return err
		}
		files = true
		t.rows, t.odd, t.odds = make([]row, 0, len(text)/120), nil, 0 // of equal keys the last counts
		return s.elements(func() error { return t.parseRow(s) })
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && !files {
		err = &textError{msg: `no "files"`}
	}
	return t, err
}

func (t *table) parseRow(s *scanner) error {
	if f, ok := fastRowAt(s.b, s.i); ok {
		t.rows = append(t.rows, row{o: f.o, d: f.d, s: f.s, name: sharedText(s.b[f.name[0]:f.name[1]]), at: uint32(s.i), len: uint32(f.end - s.i), sum: uint32(f.sum)})
		s.i = f.end
		return nil
	}
	if s.peek() != '{' {
		at := s.i
		v, err := s.value()
		t.strange(int64(at), "%.40q is not a row", v)
		return err
	}
	at := s.i
	r, ok, err := s.row()
	if err != nil {
		return err
	}
	if !ok {
		t.strange(int64(at), "%.80q lacks valid d, n, o and s", s.b[at:s.i])
		return nil
	}
	r.at, r.len = uint32(at), uint32(s.i-at)
	t.rows = append(t.rows, r)
	return nil
}

// row reads an object that says where a member is: in the index, or in the entry
// of the index itself. It is not ok if it does not say so.
func (s *scanner) row() (r row, ok bool, err error) {
	var name []byte
	var n [3][]byte
	err = s.members(func(key []byte) error {
		v, err := s.value()
		switch string(key) {
		case `"o"`:
			n[0] = v
		case `"d"`:
			n[1] = v
		case `"s"`:
			n[2] = v
		case `"n"`:
			name = v
		case `"` + digestAlgo + `"`:
			r.sum = 0
			if len(v) == 2+2*digestLen && v[0] == '"' {
				r.sum = uint32(s.i - len(v) + 1)
			}
		}
		return err
	})
	ok = len(name) >= 2 && name[0] == '"'
	for i, to := range []*int64{&r.o, &r.d, &r.s} {
		k, isNumber := whole(n[i])
		*to, ok = k, ok && isNumber
	}
	if err == nil && ok {
		r.name = shared(name)
	}
	return r, ok, err
}

// strange sets a row aside. Only some are kept: an index may be nothing else.
func (t *table) strange(at int64, msg string, args ...any) {
	const most = 100
	if t.odds++; t.odds <= most {
		t.odd = append(t.odd, oddRow{at, fmt.Sprintf(msg, args...)})
	}
}

// shared is what a string token means, without a copy where it has no escapes.
// The text must never change.
func shared(token []byte) string {
	if !plain(token) {
		return string(appendString(nil, token))
	}
	return sharedText(token[1 : len(token)-1])
}

func sharedText(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// An entry is what .tar_entry.json says: where the index is.
type entry struct {
	o, d, s int64
	// Hints that we leave for ourselves: how long the texts of index and
	// lindi.json are, and where the latter lies. They may be stale, and only
	// say what to fetch together.
	indexText, rfsAt, rfsText int64
	// BLAKE3 of the two texts, "" where there is none. They are believed of texts that
	// are laid out as ours are: the reference writes both anew, in its own way.
	indexSum, rfsSum string
}

// parseEntry reads the text of .tar_entry.json.
func parseEntry(text []byte, depth int) (e entry, err error) {
	s := &scanner{b: text, depth: depth}
	said := false
	err = s.members(func(key []byte) error {
		switch string(key) {
		case `"index"`:
			if s.peek() != '{' {
				return s.fail("expected an object")
			}
			r, ok, err := s.row()
			said = ok && r.name == indexName
			e.o, e.d, e.s = r.o, r.d, r.s
			return err
		case sumsKey:
			if s.peek() != '[' {
				return s.skip()
			}
			sums, err := s.sums()
			if err == nil && len(sums) == 2 {
				e.indexSum, e.rfsSum = sums[0], sums[1]
			}
			return err
		case `"holdall"`:
			if s.peek() != '[' {
				return s.skip()
			}
			hint, err := s.numbers()
			if len(hint) == 3 {
				e.indexText, e.rfsAt, e.rfsText = hint[0], hint[1], hint[2]
			}
			return err
		}
		return s.skip()
	})
	if err != nil {
		return e, err
	}
	if !said {
		return e, &textError{msg: `"index" does not give the place of ` + indexName + " is"}
	}
	if e.d != e.o+blockLen || e.o < frontLen {
		return e, &textError{msg: fmt.Sprintf("the index cannot be at %d with its header at %d", e.d, e.o)}
	}
	return e, s.end()
}

// appendEntry appends the entry's text. It stays within commitLen, so that one
// sector says all that matters.
func appendEntry(p []byte, e entry) []byte {
	p = fmt.Appendf(p, `{"holdall": [%d, %d, %d], `, e.indexText, e.rfsAt, e.rfsText)
	if e.indexSum+e.rfsSum != "" {
		p = fmt.Appendf(p, `%s: ["%x", "%x"], `, sumsKey, e.indexSum, e.rfsSum)
	}
	return fmt.Appendf(p, `"index": {"d": %d, "n": "%s", "o": %d, "s": %d}}`, e.d, indexName, e.o, e.s)
}

// sumsKey is what the entry calls the digests of the texts.
const sumsKey = `"holdall_blake3"`

// How the texts of ours begin, and those of the reference do not.
const (
	ourIndex = `{"`
	ourRFS   = "{\n \""
)

// sumOf is the digest of a text of ours, "" of any other.
func sumOf(text []byte, begins string) string {
	if !bytes.HasPrefix(text, []byte(begins)) {
		return ""
	}
	sum := blake3.Sum256(text)
	return string(sum[:])
}

// The text of an index of ours: a row a line.
const (
	indexHead = `{"files": [`
	indexTail = "\n]}"
)

// appendRow appends a row's text.
func appendRow(p []byte, name string, o, d, s int64, sum string) []byte {
	p = append(p, "\n{"...)
	if sum != "" {
		p = append(p, `"`+digestAlgo+`":"`...)
		p = hex.AppendEncode(p, []byte(sum))
		p = append(p, `",`...)
	}
	p = append(p, `"d":`...)
	p = strconv.AppendInt(p, d, 10)
	p = append(p, `,"n":`...)
	p = pyjson.AppendString(p, name)
	p = append(p, `,"o":`...)
	p = strconv.AppendInt(p, o, 10)
	p = append(p, `,"s":`...)
	p = strconv.AppendInt(p, s, 10)
	return append(p, '}')
}
