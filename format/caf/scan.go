package caf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/zeebo/blake3"
)

// row is a file in the index. Its slices are valid until the next row.
type row struct {
	name       []byte // without escapes
	start, end int64
	off        int64 // of the row in the object
	odd        oddity
	digest     []byte // 32 bytes; nil if there is none
	object     object
	extra      []byte // unknown JSON members, separated by commas
}

// oddity is a set of unusual properties of a row.
type oddity uint8

const (
	noStart       oddity = 1 << iota // start_byte is missing
	noEnd                            // end_byte is missing
	notInteger                       // an offset is not an integer
	notInt64                         // an offset does not fit 63 bits
	loneSurrogate                    // the name has half of a \u pair
	notUTF8                          // the name has bytes that are not UTF-8
	replaced                         // the name has U+FFFD, because a writer replaced a byte
	badDigest                        // "blake3" is not 64 hexadecimal digits

	unreadable = noStart | noEnd | notInteger | notInt64
)

// topLevel has the members of an index besides its rows.
type topLevel struct {
	version          string
	hasVersion       bool
	hasFiles         bool
	writer           string
	extra            []byte // unknown members, separated by commas
	chunk, chunks    int    // number of the chunk and of its set's last one, as far as they are given; 0 if not
	trailingCommas   int
	duplicateKeys    int
	duplicateKeyOff  int64
	trailingCommaOff int64
	promised         bool   // the head announces a digest of the index at its end
	sum              []byte // the digest
	unproven         bool   // the index does not match its digest
}

// scanner reads an index as a stream: in blocks, in one pass, in memory that depends only on its
// longest row. Nearly all rows are written by known writers in the same way, and are read in one
// step (fastRow).
type scanner struct {
	fetch func(p []byte, off int64) error // nil if buf has the whole input
	end   int64                           // end of the index in the object

	buf   []byte
	block int   // how much is read at a time
	base  int64 // offset of buf[0] in the object
	r     int   // next byte in buf

	maxDepth int
	maxRow   int
	top      topLevel
	row      row
	scratch  []byte // strings without escapes
	digest   [digestLen]byte
	etag     []byte // without escapes
	keyFrom  int    // where the current key begins in buf; moves with the buffer; -1 if there is none

	from   int64          // where the index begins
	hash   *blake3.Hasher // hash of its text from there on; nil if it has no digest
	hashed int64          // offset up to which the text has been hashed

	err   error // the first error, after which nothing is read
	onRow func(*row) error
	// salvage reads the complete rows of an index that is truncated or damaged. damaged has the
	// places that were skipped.
	salvage bool
	damaged []fault
	done    int64 // offset after the closing brace
}

const (
	scanBlock     = 256 << 10 // the first read, which for most indexes is the last
	maxScanBlock  = 2 << 20
	defaultMaxRow = 16 << 20 // a name is at most a path, so this is more than enough
)

// scanBytes returns a scanner for an index in memory, which was found at off.
func scanBytes(b []byte, off int64, maxDepth int, onRow func(*row) error) *scanner {
	return &scanner{from: off, hashed: off, buf: b, base: off, end: off + int64(len(b)), maxDepth: maxDepth, maxRow: defaultMaxRow, keyFrom: -1, onRow: onRow}
}

// scanRange returns a scanner for [off, end) of what fetch reads.
func scanRange(fetch func(p []byte, off int64) error, off, end int64, maxDepth int, onRow func(*row) error) *scanner {
	block := int(min(scanBlock, max(end-off, 2)))
	return &scanner{from: off, hashed: off, fetch: fetch, buf: make([]byte, 0, block), block: block, base: off, end: end, maxDepth: maxDepth, maxRow: defaultMaxRow, keyFrom: -1, onRow: onRow}
}

// more reads the next block after the bytes that are kept. It returns io.EOF at the end.
func (s *scanner) more() error {
	have := s.base + int64(len(s.buf))
	if s.fetch == nil || have >= s.end {
		return io.EOF
	}
	keep := s.r
	if s.keyFrom >= 0 {
		keep = s.keyFrom
	}
	if keep > 0 {
		s.hashTo(keep)
		n := copy(s.buf, s.buf[keep:])
		s.buf = s.buf[:n]
		s.base += int64(keep)
		s.r -= keep
		if s.keyFrom >= 0 {
			s.keyFrom = 0
		}
	}
	if len(s.buf) > s.maxRow {
		return &fault{"index-size", s.base, fmt.Sprintf("index: one row is longer than %d bytes", s.maxRow)}
	}
	if cap(s.buf)-len(s.buf) < s.block/2 {
		grown := make([]byte, len(s.buf), len(s.buf)+s.block)
		copy(grown, s.buf)
		s.buf = grown
	}
	// A long index is read in long blocks, because each request takes a round trip.
	s.block = min(2*s.block, maxScanBlock)
	n := min(int64(cap(s.buf)-len(s.buf)), s.end-have)
	p := s.buf[len(s.buf) : len(s.buf)+int(n)]
	if err := s.fetch(p, have); err != nil {
		return err
	}
	s.buf = s.buf[:len(s.buf)+int(n)]
	return nil
}

// hashTo hashes the text before an offset in the buffer, if the index has a digest.
func (s *scanner) hashTo(r int) {
	if s.hash != nil && s.base+int64(r) > s.hashed {
		s.hash.Write(s.buf[s.hashed-s.base : r])
		s.hashed = s.base + int64(r)
	}
}

// at returns the current offset in the object.
func (s *scanner) at() int64 { return s.base + int64(s.r) }

// fail records what is wrong with the index, unless there was an error before.
func (s *scanner) fail(class, format string, args ...any) {
	if s.err == nil {
		s.err = &fault{class, s.at(), "index: " + fmt.Sprintf(format, args...)}
	}
}

func (s *scanner) badJSON(format string, args ...any) { s.fail("index-json", format, args...) }

// fill ensures that there is a current byte. It returns false at the end of the input and after
// an error.
func (s *scanner) fill() bool {
	for s.err == nil && s.r >= len(s.buf) {
		if err := s.more(); err == io.EOF {
			return false
		} else if err != nil {
			s.err = err
		}
	}
	return s.err == nil
}

// peek returns the current byte without reading it, or 0 after an error.
func (s *scanner) peek() byte {
	if s.fill() {
		return s.buf[s.r]
	}
	s.badJSON("it ends early")
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// space skips white space and returns the current byte without reading it.
func (s *scanner) space() byte {
	c := s.peek()
	for isSpace(c) {
		s.r++
		c = s.peek()
	}
	return c
}

func (s *scanner) want(c byte) {
	if got := s.space(); got != c {
		s.badJSON("expected %q, found %q", c, got)
		return
	}
	s.r++
}

// scan reads the whole index.
func (s *scanner) scan() error {
	if s.space() != '{' {
		// This distinguishes text that is not JSON from JSON that is not an index.
		s.skipValue(1)
		s.nothingMore()
		if s.err == nil {
			s.err = &fault{"index-shape", s.base, "index: expected an object"}
		}
		return s.err
	}
	seen := map[string]bool{}
	s.object(func(key []byte) {
		again := seen[string(key)]
		if again {
			s.duplicateKey()
		} else if len(seen) < 1024 {
			seen[string(key)] = true
		}
		s.topMember(string(key), again)
	})
	if s.err != nil {
		return s.err
	}
	s.done = s.at()
	s.top.unproven = s.top.promised != (s.top.sum != nil) || s.hash != nil && !bytes.Equal(s.top.sum, s.hash.Sum(nil))
	if !s.salvage {
		s.nothingMore()
	}
	switch {
	case s.err != nil:
	case !s.top.hasFiles:
		s.err = &fault{"index-shape", s.base, `index: "files" is missing`}
	case !s.top.hasVersion:
		s.err = &fault{"version", s.base, `index: "format_version" is missing`}
	}
	return s.err
}

// nothingMore checks that only white space follows.
func (s *scanner) nothingMore() {
	for s.fill() {
		if c := s.buf[s.r]; !isSpace(c) {
			s.badJSON("%q after the object", c)
			return
		}
		s.r++
	}
}

func (s *scanner) duplicateKey() {
	if s.top.duplicateKeys == 0 {
		s.top.duplicateKeyOff = s.at()
	}
	s.top.duplicateKeys++
}

// topMember reads the value of a member at the top. If an unknown member occurs several times,
// only one is kept, because it would otherwise be repeated by each rewrite.
func (s *scanner) topMember(key string, again bool) {
	c := s.space()
	switch {
	case key == "files" && c != '{':
		s.wrongShape(`"files"`, "an object")
	case key == "files":
		s.top.hasFiles = true
		s.keyFrom = -1
		s.files()
	case key == "format_version" && c != '"':
		s.wrongShape(`"format_version"`, "a string")
	case key == "format_version":
		if v, _ := s.str(); s.err == nil {
			s.top.version, s.top.hasVersion = string(v), true
		}
	case key == "writer" && c == '"':
		// This is not kept as an unknown member, because the program that rewrites an archive is
		// its writer.
		if v, _ := s.str(); s.err == nil {
			s.top.writer = string(v)
		}
	case key == promiseKey && c == '"':
		v, _ := s.str()
		if s.top.promised = string(v) == promised; s.base == s.from {
			s.hash = blake3.New()
		}
	case key == sumKey && c == '"':
		s.hashTo(s.keyFrom)
		v, _ := s.str()
		s.top.sum, _ = hex.DecodeString(string(v))
		s.top.sum = append([]byte{}, s.top.sum...) // not nil, because there is a digest
	default:
		if s.skipValue(2); s.err == nil && !again && key != "writer" && key != promiseKey && key != sumKey && !s.ofSet(key) {
			s.top.extra = s.appendMember(s.top.extra)
		}
	}
}

// wrongShape reads a value of the wrong kind. If it is not JSON at all, that is the error.
func (s *scanner) wrongShape(what, want string) {
	at := s.at()
	if s.skipValue(2); s.err == nil {
		s.err = &fault{"index-shape", at, fmt.Sprintf("index: %s is not %s", what, want)}
	}
}

// looseComma matches trailing commas, and strings, so that none is found within a string.
var looseComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|,[ \t\r\n]*[}\]]`)

// appendMember appends the member that was just read, as strict JSON.
func (s *scanner) appendMember(to []byte) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	member := bytes.TrimSpace(s.buf[s.keyFrom:s.r])
	if s.top.trailingCommas > 0 {
		member = looseComma.ReplaceAllFunc(member, func(m []byte) []byte {
			if m[0] == ',' {
				m = m[len(m)-1:]
			}
			return m
		})
	}
	return append(to, member...)
}

// object reads an object. It calls member before each value, which member must read. In the
// meantime keyFrom is where the member begins in buf, and the whole member stays in the buffer.
func (s *scanner) object(member func(key []byte)) {
	s.want('{')
	outer := s.keyFrom
	defer func() { s.keyFrom = outer }()
	for first := true; s.err == nil; first = false {
		c := s.space()
		if c == '}' {
			if !first {
				s.trailingComma()
			}
			s.r++
			return
		}
		if c != '"' {
			s.badJSON("expected a name, found %q", c)
		}
		if outer < 0 {
			s.keyFrom = s.r
		}
		key, _ := s.str()
		key = bytes.Clone(key)
		if s.want(':'); s.err == nil {
			member(key)
		}
		if !s.comma('}') {
			return
		}
		if outer < 0 {
			s.keyFrom = -1
		}
	}
}

// comma reads the comma or the closing bracket after a value, and reports whether more may
// follow.
func (s *scanner) comma(closing byte) (more bool) {
	c := s.space()
	if c != ',' && c != closing {
		s.badJSON("expected ',' or %q, found %q", closing, c)
		return false
	}
	s.r++
	return c == ','
}

func (s *scanner) trailingComma() {
	if s.top.trailingCommas == 0 {
		s.top.trailingCommaOff = s.at()
	}
	s.top.trailingCommas++
}

// files reads the object with the rows.
func (s *scanner) files() {
	s.want('{')
	s.rows()
}

// rest reads the remaining rows of an index whose beginning is damaged.
func (s *scanner) rest() error {
	s.salvage = true
	s.err = &fault{"index-shape", s.base, "index: the beginning is damaged"}
	if s.resync() {
		s.rows()
	}
	return s.err
}

func (s *scanner) rows() {
	for first := true; s.err == nil; first = false {
		// As long as possible, rows and commas are read in the fast way.
		for s.fastRow() {
			if s.err = s.onRow(&s.row); s.err != nil {
				return
			}
			first = false
			if s.r < len(s.buf) && s.buf[s.r] == ',' && s.r+1 < len(s.buf) && s.buf[s.r+1] == '"' {
				s.r++
			} else if !s.comma('}') && !s.resync() {
				return
			}
		}
		c := s.space()
		if s.err != nil {
			s.endOfSalvage()
			return
		}
		if c == '}' {
			if !first {
				s.trailingComma()
			}
			s.r++
			return
		}
		if s.slowRow(); s.err == nil {
			if s.err = s.onRow(&s.row); s.err != nil {
				return
			}
		}
		if (s.err != nil || !s.comma('}')) && !s.resync() {
			return
		}
	}
}

// endOfSalvage makes the end of a broken index the end of its rows.
func (s *scanner) endOfSalvage() {
	if f, ok := errors.AsType[*fault](s.err); s.salvage && ok {
		s.damaged = append(s.damaged, *f)
		s.err = errSalvaged
	}
}

// errSalvaged ends a scan that has read all that it could.
var errSalvaged = errors.New("index is truncated")

// resync continues a salvage at the next place that looks like a row. It returns false if there
// was no error, if there is no such place, or if the input cannot be read.
func (s *scanner) resync() bool {
	f, ok := errors.AsType[*fault](s.err)
	if !s.salvage || !ok || len(s.damaged) > 1<<16 {
		s.endOfSalvage()
		return false
	}
	// The place of the damage is only known to be after the last row.
	for {
		if s.r < len(s.buf) {
			i := bytes.Index(s.buf[s.r:], []byte(`},"`))
			if i >= 0 {
				s.r += i + 2
				s.keyFrom = -1
				for len(s.buf)-s.r < len(sumKey)+1 && s.more() == nil {
				}
				if bytes.HasPrefix(s.buf[s.r+1:], []byte(sumKey)) { // the rows have ended
					s.endOfSalvage()
					return false
				}
				s.damaged = append(s.damaged, *f)
				s.err = nil
				return true
			}
			s.r = max(s.r, len(s.buf)-2)
		}
		s.keyFrom = -1
		if err := s.more(); err != nil {
			if err != io.EOF {
				s.err = err
			}
			s.endOfSalvage()
			return false
		}
	}
}

// slowRow reads a row in any form.
func (s *scanner) slowRow() {
	off := s.at()
	if c := s.space(); c != '"' {
		s.badJSON("expected a name, found %q", c)
	}
	name, odd := s.str()
	r := row{name: bytes.Clone(name), off: off, odd: odd | noStart | noEnd}
	s.want(':')
	if s.space() != '{' {
		s.skipValue(3)
		r.odd = odd | notInteger
		s.row = r
		return
	}
	seen := 0
	offset := func(none oddity, to *int64) {
		if r.odd&none == 0 {
			s.duplicateKey()
		}
		r.odd &^= none
		s.offset(&r, to)
	}
	s.object(func(key []byte) {
		switch string(key) {
		case "start_byte":
			offset(noStart, &r.start)
		case "end_byte":
			offset(noEnd, &r.end)
		case "blake3":
			var v []byte
			if s.space() == '"' {
				v, _ = s.str()
			} else {
				s.skipValue(4)
			}
			if len(v) == 2*digestLen {
				if _, err := hex.Decode(s.digest[:], v); err == nil {
					r.digest = s.digest[:]
					return
				}
			}
			r.odd |= badDigest
		default:
			if s.skipValue(4); s.err != nil {
				return
			}
			if string(key) == objectKey {
				// If it occurs again, it is kept as an unknown member.
				if seen++; seen == 1 && r.object.asOurs(s.buf[s.keyFrom:s.r]) {
					return
				}
				if seen == 1 {
					r.object = object{}
				}
			}
			r.extra = s.appendMember(r.extra)
		}
	})
	s.row = r
}

// offset reads the value of start_byte or end_byte. A value that is not an integer makes the row
// invalid but not the archive. A string makes the archive invalid, as in the reference.
func (s *scanner) offset(r *row, to *int64) {
	c := s.space()
	if c == '"' {
		s.wrongShape("an offset", "a number")
		return
	}
	if c != '-' && (c < '0' || c > '9') {
		r.odd |= notInteger
		s.skipValue(4)
		return
	}
	lit := s.number()
	if s.err != nil {
		return
	}
	neg := lit[0] == '-'
	v := uint64(0)
	for _, c := range bytes.TrimPrefix(lit, []byte("-")) {
		if c < '0' || c > '9' {
			r.odd |= notInteger
			return
		}
		if v > (1<<63)/10 {
			r.odd |= notInt64
			return
		}
		if v = v*10 + uint64(c-'0'); v > 1<<63 || v == 1<<63 && !neg {
			r.odd |= notInt64
			return
		}
	}
	*to = int64(v)
	if neg {
		*to = -int64(v)
	}
}
