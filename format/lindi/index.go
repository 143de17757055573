package lindi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/arrays/pyjson"
	"github.com/holdall/holdall/internal/base/blake3"
)

const (
	digestAlgo = "blake3"
	digestLen  = 32
)

// row is a member of the tar, from the index or from a scan of headers.
type row struct {
	name string
	o    int64  // offset of the header
	d    int64  // offset of the content
	s    int64  // size of the content
	sum  string // digest of the content in the index; "" if there is none
}

// end returns where the next header can be.
func (r row) end() int64 { return r.d + padded(r.s) }

// memberTable has the members of a tar. A row takes little more than its name and digest.
type memberTable struct {
	volume string
	size   int64                // of the tar
	rows   columns.Rows[uint64] // where each row is in packed
	packed columns.Strings
	buf    []byte          // the row that is packed
	sum    [digestLen]byte // the digest of the row that is parsed
	extra  []member        // other members at the top of the index
	odd    []oddRow        // the first unusable rows
	odds   int             // number of unusable rows
	found  bool            // by a scan, not by an index
	// recalled means that digests were found in what is left of the index, and lost that members
	// without a digest have lost it.
	recalled, lost bool
	holes          []hole // where the scan found no header

	keep  bool     // texts are needed
	texts []string // of the rows in the index

	bare bool // lindi.json is empty, and exists only because it is required

	proofs [3]textProof // of index, lindi.json and the entry
}

// textProof is the digest of the text of index or lindi.json, which the entry has. The content of
// such a member is the text; the blanks after it only keep room.
type textProof struct {
	d, n int64 // where the content begins, and the length of the text
	sum  string
}

// used returns how much of the room of a member its content takes, and the content's digest.
func (t *memberTable) used(r row) (int64, format.Digest) {
	for _, p := range t.proofs {
		if p.sum != "" && p.d == r.d && p.n <= r.s {
			return p.n, format.Digest{Algo: digestAlgo, Sum: p.sum}
		}
	}
	return r.s, format.Digest{}
}

// lostKey is a member of the index. It says that members without a digest have lost it.
const lostKey = "holdall_lost"

// withoutDigest counts the members with content that have no digest. Those of the archive itself
// have theirs elsewhere.
func (t *memberTable) withoutDigest() (n int) {
	for r := range t.all {
		if r.sum == "" && r.s > 0 && r.name != entryName && r.name != indexName && r.name != rfsName {
			n++
		}
	}
	return n
}

// pack copies a row.
func (t *memberTable) pack(r row) uint64 {
	p := binary.AppendUvarint(t.buf[:0], uint64(len(r.name)))
	p = append(p, r.name...)
	for _, n := range [...]int64{r.o, r.d - r.o, r.s, int64(len(r.sum))} {
		p = binary.AppendUvarint(p, uint64(n))
	}
	t.buf = append(p, r.sum...)
	return t.packed.Add(t.buf)
}

func (t *memberTable) add(r row) { t.rows.Add(t.pack(r)) }

func (t *memberTable) row(i int) (r row) {
	d := t.packed.Decoder(*t.rows.At(i))
	r.name, r.o = d.Text(), int64(d.Number())
	r.d = r.o + int64(d.Number())
	r.s, r.sum = int64(d.Number()), d.Text()
	return r
}

// list returns all rows.
func (t *memberTable) list() []row {
	rows := make([]row, t.Len())
	for i := range rows {
		rows[i] = t.row(i)
	}
	return rows
}

// all yields all rows.
func (t *memberTable) all(yield func(row) bool) {
	for i := range t.Len() {
		if !yield(t.row(i)) {
			return
		}
	}
}

// oddRow is an unusable row of the index.
type oddRow struct {
	at  int64 // offset in the text
	msg string
}

// member is a member of a JSON object, as text: what is between the quotes of the key, and the
// value.
type member struct{ key, value []byte }

func appendMember(p []byte, m member) []byte {
	return append(append(append(append(p, '"'), m.key...), `": `...), m.value...)
}

func (t *memberTable) Len() int { return t.rows.Len() }

func (t *memberTable) Name(i int) string {
	d := t.packed.Decoder(*t.rows.At(i))
	return d.Text()
}

func (t *memberTable) Entry(i int) format.Entry {
	r := t.row(i)
	e := format.Entry{Name: r.name, Size: r.s, Ref: r.d}
	switch r.name {
	case entryName:
		e.Internal = true
		e.Size, e.Digest = t.used(r)
	case indexName, rfsName:
		e.Internal = t.bare || r.name == indexName
		e.Size, e.Digest = t.used(r)
	default:
		e.Digest = r.digest()
	}
	e.Fault = t.fault(r)
	return e
}

// digest returns the digest of a member's content.
func (r row) digest() format.Digest {
	if r.sum == "" {
		return format.Digest{}
	}
	return format.Digest{Algo: digestAlgo, Sum: r.sum}
}

// fault returns why a member cannot be read, or nil if it can.
func (t *memberTable) fault(r row) *format.Problem {
	if r.d <= t.size-r.s {
		return nil
	}
	p := format.Problem{Severity: format.Error, Volume: t.volume, Off: min(r.d, t.size), Entry: r.name, HasEntry: true}
	if r.o < t.size {
		p.Code, p.Message = format.Truncated, fmt.Sprintf("its %d bytes at %d extend beyond the end of the archive at %d", r.s, r.d, t.size)
	} else {
		p.Code, p.Message = format.OutOfBounds, fmt.Sprintf("expected at %d, but the archive has %d bytes", r.d, t.size)
	}
	return &p
}

// parse parses the text of an index, without what is after it. Unusable rows are set aside; it
// fails only if the text is not an index.
func (t *memberTable) parse(s *jsontext.Scanner) error {
	files := false
	for s.Begin('{'); s.Next('}'); {
		key := bytes.Clone(s.Key())
		if t.lost = t.lost || string(key) == lostKey; string(key) != "files" {
			t.extra = append(t.extra, member{key, bytes.Clone(s.Value())})
			continue
		}
		files = true
		t.rows, t.texts, t.odd, t.odds = columns.Rows[uint64]{}, nil, nil, 0 // of equal keys, the last one counts
		for s.Begin('['); s.Next(']'); {
			t.parseRow(s)
		}
	}
	if !files {
		s.Stop(textError(`no "files"`))
	}
	return s.Err
}

func (t *memberTable) parseRow(s *jsontext.Scanner) {
	c := s.Space()
	from := s.Mark()
	r, ok := t.quickRow(s)
	if !ok && c == '{' {
		r, ok = parseRow(s, &t.sum)
	} else if !ok {
		s.Skip()
	}
	s.Release()
	text := s.Since(from)
	switch {
	case s.Err != nil:
	case ok:
		t.add(r)
		if t.keep {
			t.texts = append(t.texts, t.packed.At(t.packed.Add(text), len(text)))
		}
	case c == '{':
		t.strange(from, "%.80q lacks valid d, n, o and s", text)
	default:
		t.strange(from, "%.40q is not a row", text)
	}
}

// layout is what is around the values of a row that was written with sorted keys.
type layout struct{ d, n, o, s, end string }

// The layouts of holdall, after a digest, and of the reference.
var (
	ownLayout   = layout{`"d":`, `,"n":"`, `","o":`, `,"s":`, "}"}
	theirLayout = layout{"\n      \"d\": ", ",\n      \"n\": \"", "\",\n      \"o\": ", ",\n      \"s\": ", "\n    }"}
)

// quickRow parses a row with one of these layouts, as nearly all have. It refuses any other. The row
// shares its name with the text, and its digest with t.
func (t *memberTable) quickRow(s *jsontext.Scanner) (r row, ok bool) {
	b := s.Buf[s.At:]
	const beforeSum, beforeData = len(`{"` + digestAlgo + `":"`), len(`{"`+digestAlgo+`":"`) + 2*digestLen
	l := &theirLayout
	switch {
	case len(b) < beforeData+2 || b[0] != '{':
		return r, false
	case string(b[:beforeSum]) == `{"`+digestAlgo+`":"` && string(b[beforeData:beforeData+2]) == `",`:
		if r.sum = digestAt(b[beforeSum:], &t.sum); r.sum == "" {
			return r, false
		}
		l, b = &ownLayout, b[beforeData+2:]
	default:
		b = b[1:]
	}
	if r.d, b, ok = after(b, l.d); !ok || len(b) < len(l.n) || string(b[:len(l.n)]) != l.n {
		return r, false
	}
	b = b[len(l.n):]
	n, high := jsontext.Plain(b)
	r.name = sharedText(b[:n])
	if r.o, b, ok = after(b[n:], l.o); !ok || high {
		return r, false
	}
	if r.s, b, ok = after(b, l.s); !ok || len(b) < len(l.end) || string(b[:len(l.end)]) != l.end {
		return r, false
	}
	s.At = len(s.Buf) - len(b) + len(l.end)
	return r, true
}

// after parses a text and the number after it.
func after(b []byte, text string) (n int64, rest []byte, ok bool) {
	if len(b) < len(text) || string(b[:len(text)]) != text {
		return 0, nil, false
	}
	b = b[len(text):]
	n, k := jsontext.Digits(b)
	return n, b[k:], k > 0
}

// parseRow parses an object with the place of a member: in the index, or in the entry. It reports
// false if there is no place. The row shares its name with the text, and its digest with sum.
func parseRow(s *jsontext.Scanner, sum *[digestLen]byte) (r row, ok bool) {
	var has [4]bool
	var at int64 // where the name begins
	name := 0    // its length
	escapes := false
	s.Mark()
	for s.Begin('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "o":
			r.o, has[0] = s.Whole()
		case "d":
			r.d, has[1] = s.Whole()
		case "s":
			r.s, has[2] = s.Whole()
		case "n":
			if has[3] = s.Space() == '"'; has[3] {
				name = len(s.String())
				at, escapes = s.Offset()-1-int64(name), s.Escaped
			} else {
				s.Skip()
			}
		case digestAlgo:
			r.sum = ""
			if v := s.Value(); len(v) == 2+2*digestLen && v[0] == '"' {
				r.sum = digestAt(v[1:], sum)
			}
		default:
			s.Skip()
		}
	}
	s.Release()
	if ok = s.Err == nil && has == [4]bool{true, true, true, true}; ok {
		raw := s.Buf[at-s.Base:][:name]
		if r.name = sharedText(raw); escapes {
			r.name = escaped(raw)
		}
	}
	return r, ok
}

// digestAt decodes the digest that begins with these digits into sum. It returns "" if they are
// not valid.
func digestAt(b []byte, sum *[digestLen]byte) string {
	for i := 0; i < digestLen; i += 4 {
		n, ok := eightDigits(binary.BigEndian.Uint64(b[2*i:]))
		if !ok {
			return ""
		}
		binary.BigEndian.PutUint32(sum[i:], n)
	}
	return sharedText(sum[:])
}

// eightDigits decodes eight hexadecimal digits at once, the first one in the highest byte.
func eightDigits(x uint64) (n uint32, ok bool) {
	const each = 0x0101010101010101
	letters := x >> 6 & each
	d := x&(each*0x0f) + 9*letters
	// The digits of the result must be those of x, in lower case. 39 is from '9'+1 to 'a'.
	back := d + each*'0' + 39*((d+each*6)>>4&each)
	if back != x|letters<<5 || d&(each*0xf0) != 0 {
		return 0, false
	}
	d = (d | d>>4) & 0x00ff00ff00ff00ff
	d = (d | d>>8) & 0x0000ffff0000ffff
	return uint32(d | d>>16), true
}

// strange sets a row aside. Only the first ones are kept, because an index may consist of nothing
// else.
func (t *memberTable) strange(at int64, msg string, args ...any) {
	const most = 100
	if t.odds++; t.odds <= most {
		t.odd = append(t.odd, oddRow{at, fmt.Sprintf(msg, args...)})
	}
}

// shared is textOf without a copy if there are no escapes. The text must never change.
func shared(raw []byte) string {
	if !plain(raw) {
		return escaped(raw)
	}
	return sharedText(raw)
}

func sharedText(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// entry is the parsed .tar_entry.json, which says where the index is.
type entry struct {
	o, d, s int64
	// Hints that holdall stores: the lengths of the texts of index and lindi.json, and where
	// lindi.json is. They may be outdated, and only help to fetch both together.
	indexText, rfsAt, rfsText int64
	// BLAKE3 of the two texts; "" if there is none. They are used for texts with holdall's
	// layout, because the reference rewrites both with another layout.
	indexSum, rfsSum string
}

// parseEntry parses the text of .tar_entry.json.
func parseEntry(text []byte, depth int) (e entry, err error) {
	s := scannerOf(text, depth)
	said := false
	for s.Begin('{'); s.Next('}'); {
		switch key := string(s.Key()); {
		case key == "index":
			r, ok := parseRow(s, new([digestLen]byte))
			said = ok && r.name == indexName
			e.o, e.d, e.s = r.o, r.d, r.s
		case key == sumsKey && s.Space() == '[':
			if sums := sums(s); len(sums) == 2 {
				e.indexSum, e.rfsSum = sums[0], sums[1]
			}
		case key == "holdall" && s.Space() == '[':
			if hint := numbers(s); len(hint) == 3 {
				e.indexText, e.rfsAt, e.rfsText = hint[0], hint[1], hint[2]
			}
		default:
			s.Skip()
		}
	}
	switch {
	case s.Err != nil:
	case !said:
		return e, textError(`"index" does not give the place of ` + indexName)
	case e.d != e.o+blockLen || e.o < frontLen:
		return e, textError(fmt.Sprintf("the index cannot be at %d with its header at %d", e.d, e.o))
	}
	s.End()
	return e, s.Err
}

// appendEntry appends the text of the entry. It must fit into commitLen, so that one sector
// contains everything that matters.
func appendEntry(p []byte, e entry) []byte {
	p = fmt.Appendf(p, `{"holdall": [%d, %d, %d], `, e.indexText, e.rfsAt, e.rfsText)
	if e.indexSum+e.rfsSum != "" {
		p = fmt.Appendf(p, `"%s": ["%x", "%x"], `, sumsKey, e.indexSum, e.rfsSum)
	}
	return fmt.Appendf(p, `"index": {"d": %d, "n": "%s", "o": %d, "s": %d}}`, e.d, indexName, e.o, e.s)
}

// sumsKey is the key of the digests of the texts in the entry.
const sumsKey = "holdall_blake3"

// The beginnings of texts that holdall writes, which differ from those of the reference.
const (
	ourIndex = `{"`
	ourRFS   = "{\n \""
)

// theirs is how the texts of the reference begin. It leaves our digests in the entry.
const theirs = "{\n  \""

// sumOf returns the digest of a text that holdall wrote, and "" for any other.
func sumOf(text []byte, begins string) string {
	if !bytes.HasPrefix(text, []byte(begins)) {
		return ""
	}
	sum := blake3.Sum256(text)
	return string(sum[:])
}

// The text of holdall's index has one row on each line.
const (
	indexHead = `{"files": [`
	indexTail = "\n]}"
)

// appendRow appends the text of a row.
func appendRow(p []byte, r row) []byte {
	p = append(p, "\n{"...)
	if r.sum != "" {
		p = append(p, `"`+digestAlgo+`":"`...)
		p = hex.AppendEncode(p, []byte(r.sum))
		p = append(p, `",`...)
	}
	p = append(p, `"d":`...)
	p = strconv.AppendInt(p, r.d, 10)
	p = append(p, `,"n":`...)
	p = pyjson.AppendString(p, r.name)
	p = append(p, `,"o":`...)
	p = strconv.AppendInt(p, r.o, 10)
	p = append(p, `,"s":`...)
	p = strconv.AppendInt(p, r.s, 10)
	return append(p, '}')
}
