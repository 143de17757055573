package caf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/base/blake3"
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
	log              string // ID of the log of which the archive is a sealed segment; "" if it is none
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
	jsontext.Scanner
	fetch func(p []byte, off int64) error // nil if Buf has the whole input
	end   int64                           // end of the index in the object
	block int                             // how much is read at a time

	maxDepth int
	maxRow   int
	top      topLevel
	row      row
	scratch  []byte // strings without escapes
	digest   [digestLen]byte
	etag     []byte // without escapes
	member   int64  // where the member that is read begins

	from   int64          // where the index begins
	hash   *blake3.Hasher // hash of its text from there on; nil if it has no digest
	hashed int64          // offset up to which the text has been hashed

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
	s := &scanner{from: off, hashed: off, end: off + int64(len(b)), maxDepth: maxDepth, maxRow: defaultMaxRow, onRow: onRow}
	s.Scanner = jsontext.Scanner{Buf: b, Base: off, Depth: maxDepth, Commas: true}
	return s
}

// scanRange returns a scanner for [off, end) of what fetch reads.
func scanRange(fetch func(p []byte, off int64) error, off, end int64, maxDepth int, onRow func(*row) error) *scanner {
	s := scanBytes(nil, off, maxDepth, onRow)
	s.fetch, s.end, s.block = fetch, end, int(min(scanBlock, max(end-off, 2)))
	s.Buf, s.More = make([]byte, 0, s.block), s.more
	return s
}

// more reads the next block after the bytes from an index on.
func (s *scanner) more(from int) ([]byte, error) {
	have := s.Base + int64(len(s.Buf))
	b := s.Buf[from:]
	if have >= s.end {
		return b, nil
	}
	if len(b) > s.maxRow {
		return nil, &fault{"index-size", s.Base, fmt.Sprintf("index: one row is longer than %d bytes", s.maxRow)}
	}
	s.hashTo(s.Base + int64(from))
	b = append(s.Buf[:0], b...)
	if cap(b)-len(b) < s.block/2 {
		grown := make([]byte, len(b), len(b)+s.block)
		copy(grown, b)
		b = grown
	}
	// A long index is read in long blocks, because each request takes a round trip.
	s.block = min(2*s.block, maxScanBlock)
	n := len(b)
	b = b[:n+int(min(int64(cap(b)-n), s.end-have))]
	return b, s.fetch(b[n:], have)
}

// hashTo hashes the text before an offset, if the index has a digest.
func (s *scanner) hashTo(off int64) {
	if s.hash != nil && off > s.hashed {
		s.hash.Write(s.Buf[s.hashed-s.Base : off-s.Base])
		s.hashed = off
	}
}

// shape sets the error that the index has another shape.
func (s *scanner) shape(class string, off int64, msg string) {
	s.Stop(&fault{class, off, "index: " + msg})
}

// fault returns what is wrong with the text, if that was the error.
func (s *scanner) fault() (*fault, bool) {
	if e, ok := s.Err.(*jsontext.Error); ok {
		class := "index-json"
		if e.Deep {
			class = "index-depth"
		}
		return &fault{class, e.Off, "index: " + e.What}, true
	}
	return errors.AsType[*fault](s.Err)
}

// scan reads the whole index.
func (s *scanner) scan() error {
	if s.Space() != '{' {
		// This distinguishes text that is not JSON from JSON that is not an index.
		s.Skip()
		s.End()
		s.shape("index-shape", s.Base, "expected an object")
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
	if s.top.trailingCommas, s.top.trailingCommaOff = s.Trailing, s.TrailedAt; s.Err == nil {
		s.done = s.Offset()
		s.top.unproven = s.top.promised != (s.top.sum != nil) || s.hash != nil && !bytes.Equal(s.top.sum, s.hash.Sum(nil))
		if !s.salvage {
			s.End()
		}
		if !s.top.hasFiles {
			s.shape("index-shape", s.Base, `"files" is missing`)
		} else if !s.top.hasVersion {
			s.shape("version", s.Base, `"format_version" is missing`)
		}
	}
	if f, ok := s.fault(); ok {
		return f
	}
	return s.Err
}

func (s *scanner) duplicateKey() {
	if s.top.duplicateKeys == 0 {
		s.top.duplicateKeyOff = s.Offset()
	}
	s.top.duplicateKeys++
}

// topMember reads the value of a member at the top. If an unknown member occurs several times,
// only one is kept, because it would otherwise be repeated by each rewrite.
func (s *scanner) topMember(key string, again bool) {
	c := s.Space()
	switch {
	case key == "files" && c != '{':
		s.wrongShape(`"files"`, "an object")
	case key == "files":
		s.top.hasFiles = true
		s.Release() // rows need not stay
		s.Begin('{')
		s.rows()
		s.Mark()
	case key == "format_version" && c != '"':
		s.wrongShape(`"format_version"`, "a string")
	case key == "format_version":
		if v, _ := s.text(s.String()); s.Err == nil {
			s.top.version, s.top.hasVersion = string(v), true
		}
	case key == "writer" && c == '"':
		// This is not kept as an unknown member, because the program that rewrites an archive is
		// its writer.
		if v, _ := s.text(s.String()); s.Err == nil {
			s.top.writer = string(v)
		}
	case key == promiseKey && c == '"':
		v, _ := s.text(s.String())
		if s.top.promised = string(v) == promised; s.Base == s.from {
			s.hash = blake3.New()
		}
	case key == sumKey && c == '"':
		s.hashTo(s.member)
		v, _ := s.text(s.String())
		s.top.sum, _ = hex.DecodeString(string(v))
		s.top.sum = append([]byte{}, s.top.sum...) // not nil, because there is a digest
	default:
		if s.Skip(); s.Err == nil && !again && key != "writer" && key != promiseKey && key != sumKey && !s.ofSet(key) {
			s.top.extra = s.appendMember(s.top.extra)
		}
	}
}

// wrongShape reads a value of the wrong kind. If it is not JSON at all, that is the error.
func (s *scanner) wrongShape(what, want string) {
	at := s.Offset()
	s.Skip()
	s.shape("index-shape", at, what+" is not "+want)
}

// text returns the text of a string that was read, and what is unusual about it. It is valid until
// the next call.
func (s *scanner) text(raw []byte) (_ []byte, odd oddity) {
	if s.Escaped {
		half := false
		if s.scratch, half = jsontext.AppendText(s.scratch[:0], raw, false); half {
			odd = loneSurrogate
		}
		raw = s.scratch
	}
	return raw, odd | oddName(raw)
}

func oddName(name []byte) (odd oddity) {
	if !utf8.Valid(name) {
		odd |= notUTF8
	}
	if bytes.Contains(name, []byte("�")) {
		odd |= replaced
	}
	return odd
}

// looseComma matches trailing commas, and strings, so that none is found within a string.
var looseComma = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"|,[ \t\r\n]*[}\]]`) })

// appendMember appends the member that was just read, as strict JSON.
func (s *scanner) appendMember(to []byte) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	member := bytes.TrimSpace(s.Since(s.member))
	if s.Trailing > 0 {
		member = looseComma().ReplaceAllFunc(member, func(m []byte) []byte {
			if m[0] == ',' {
				m = m[len(m)-1:]
			}
			return m
		})
	}
	return append(to, member...)
}

// object reads an object. It calls member before each value, which member must read. In the
// meantime the whole member stays in the buffer, and begins at s.member.
func (s *scanner) object(member func(key []byte)) {
	for s.Begin('{'); s.Next('}'); s.Release() {
		s.Space()
		s.member = s.Mark()
		key, _ := s.text(s.Key())
		key = bytes.Clone(key)
		if s.Space(); s.Err == nil {
			member(key)
		}
	}
}

// rest reads the remaining rows of an index whose beginning is damaged.
func (s *scanner) rest() error {
	s.salvage = true
	s.shape("index-shape", s.Base, "the beginning is damaged")
	s.rows()
	return s.Err
}

// rows reads the rows up to the end of their object.
func (s *scanner) rows() {
	for {
		if !s.Next('}') {
			if !s.resync() {
				return
			}
			continue
		}
		// As long as possible, rows and commas are read in the fast way.
		for next := true; next; {
			if !s.fastRow() {
				s.slowRow()
			}
			if s.Err != nil {
				break
			}
			if err := s.onRow(&s.row); err != nil {
				s.Stop(err)
				return
			}
			if next = s.At+1 < len(s.Buf) && s.Buf[s.At] == ',' && s.Buf[s.At+1] == '"'; next {
				s.At++
			}
		}
	}
}

// endOfSalvage makes the end of a broken index the end of its rows.
func (s *scanner) endOfSalvage() {
	if f, ok := s.fault(); s.salvage && ok {
		s.damaged = append(s.damaged, *f)
		s.Err = errSalvaged
	}
}

// errSalvaged ends a scan that has read all that it could.
var errSalvaged = errors.New("index is truncated")

// resync continues a salvage at the comma before the next place that looks like a row. It returns
// false if there was no error, if there is no such place, or if the input cannot be read.
func (s *scanner) resync() bool {
	f, ok := s.fault()
	if !s.salvage || !ok || len(s.damaged) > 1<<16 {
		s.endOfSalvage()
		return false
	}
	// The place of the damage is only known to be after the last row.
	s.Resume(s.maxDepth - 2)
	for {
		if i := bytes.Index(s.Buf[s.At:], []byte(`},"`)); i >= 0 {
			s.At += i + 1
			if s.Ensure(len(sumKey) + 2); s.Err == nil && !bytes.HasPrefix(s.Buf[s.At+2:], []byte(sumKey)) {
				s.damaged = append(s.damaged, *f)
				return true
			}
			break // the rows have ended
		}
		s.At = max(s.At, len(s.Buf)-2)
		if !s.Ensure(len(s.Buf) - s.At + 1) {
			break
		}
	}
	s.Stop(f)
	s.endOfSalvage()
	return false
}

// slowRow reads a row in any form.
func (s *scanner) slowRow() {
	s.Space()
	off := s.Offset()
	name, odd := s.text(s.Key())
	r := row{name: bytes.Clone(name), off: off, odd: odd | noStart | noEnd}
	if s.Space() != '{' {
		s.Skip()
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
			if s.Space() == '"' {
				v, _ = s.text(s.String())
			} else {
				s.Skip()
			}
			if len(v) == 2*digestLen {
				if _, err := hex.Decode(s.digest[:], v); err == nil {
					r.digest = s.digest[:]
					return
				}
			}
			r.odd |= badDigest
		default:
			if s.Skip(); s.Err != nil {
				return
			}
			if string(key) == objectKey {
				// If it occurs again, it is kept as an unknown member.
				if seen++; seen == 1 && r.object.asOurs(s.Since(s.member)) {
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
	c := s.Space()
	if c == '"' {
		s.wrongShape("an offset", "a number")
		return
	}
	if c != '-' && (c < '0' || c > '9') {
		r.odd |= notInteger
		s.Skip()
		return
	}
	lit := s.Number()
	if s.Err != nil {
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
