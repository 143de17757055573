package caf

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/store/storekit"
)

// A row of holdall's may have what a bucket stored with the object that became the file:
//
//	"object":{"modified":"TIME","etag":"ETAG","headers":{"NAME":"VALUE",…}}
//
// Members without a value are omitted. If it is written in any other way, it is kept as an
// unknown field.
const objectKey = "object"

var rowObject = []byte(`,"` + objectKey + `":`)

// object is the parsed field. Its slices are valid as long as the row.
type object struct {
	there   bool
	written int64  // nanoseconds since 1970, or noTime
	etag    []byte // without escapes
	headers []byte // a JSON object, sorted by name
}

// noTime means that there is no time.
const noTime = math.MinInt64

const mostTime = len("2006-01-02T15:04:05.000000000Z")

// timeOf converts a time to that of the columns. Nanoseconds can represent the years 1678 to
// 2262.
func timeOf(t time.Time) int64 {
	if n := t.UnixNano(); !t.IsZero() && n != noTime && time.Unix(0, n).Equal(t) {
		return n
	}
	return noTime
}

// appendObject appends the field of e, beginning with a comma. It appends nothing if e was not an
// object of a bucket.
func appendObject(b []byte, e format.Entry) []byte {
	if len(e.Attr) == 0 {
		return b
	}
	var x object
	var headers []byte
	for _, name := range slices.Sorted(maps.Keys(e.Attr)) {
		switch {
		case name == kit.ETagAttr:
			x.etag = []byte(e.Attr[name])
		case storekit.IsHeader(name):
			headers = append(headers, "{,"[min(len(headers), 1)])
			headers = appendString(append(appendString(headers, name), ':'), e.Attr[name])
		}
	}
	if len(headers) > 0 {
		x.headers = append(headers, '}')
	}
	x.written, x.there = timeOf(e.ModTime), len(x.etag)+len(x.headers) > 0
	return x.appendTo(b)
}

// appendTo appends the field, beginning with a comma.
func (x object) appendTo(b []byte) []byte {
	if !x.there {
		return b
	}
	b = append(append(b, rowObject...), '{')
	first := len(b)
	member := func(name string) {
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
	}
	if x.written != noTime {
		member("modified")
		b = append(time.Unix(0, x.written).UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
	}
	if len(x.etag) > 0 {
		member("etag")
		b = appendString(b, unsafe.String(&x.etag[0], len(x.etag)))
	}
	if len(x.headers) > 0 {
		member("headers")
		b = append(b, x.headers...)
	}
	return append(b, '}')
}

// objectIn parses a value of the field at the beginning of b, if it is written as holdall does.
// It returns its length, or 0 if it is not written like that or b ends within it. The unescaped
// ETag is in scratch, which is returned.
func (x *object) objectIn(b, scratch []byte) (n int, _ []byte) {
	*x = object{written: noTime}
	s := jsontext.Scanner{Buf: b, Depth: 2}
	member := -1
	for s.Begin('{'); s.Next('}'); {
		before := member
		member = slices.Index([]string{"modified", "etag", "headers"}, string(s.Key()))
		ok := true
		switch member {
		case 0:
			var t time.Time
			v := s.String()
			ok = len(v) <= mostTime && bytes.HasSuffix(v, []byte{'Z'}) && t.UnmarshalText(v) == nil && timeOf(t) != noTime
			x.written = timeOf(t)
		case 1:
			scratch, ok = appendText(scratch[:0], &s)
			x.etag = scratch
		case 2:
			from := s.At
			ok = headersIn(&s)
			x.headers = b[from:s.At]
		}
		if !ok || member <= before {
			return 0, scratch
		}
	}
	if x.there = len(x.etag)+len(x.headers) > 0; !x.there || s.Err != nil || s.Blanks {
		return 0, scratch
	}
	return s.At, scratch
}

// headersIn reads an object of headers. It reports whether it is written as holdall does.
func headersIn(s *jsontext.Scanner) (ok bool) {
	var last []byte
	for s.Begin('{'); s.Next('}'); {
		name := s.Key()
		if len(name) == 0 || s.Escaped || bytes.Compare(name, last) <= 0 || !storekit.IsHeader(unsafe.String(&name[0], len(name))) {
			return false
		}
		if _, ok := appendText(nil, s); !ok && s.Escaped {
			return false
		}
		last = name
	}
	return last != nil
}

// appendText reads a string and appends its text. It reports false if the text is empty or has
// half of a surrogate pair.
func appendText(p []byte, s *jsontext.Scanner) (_ []byte, ok bool) {
	raw := s.String()
	p, half := jsontext.AppendText(p, raw, false)
	return p, len(raw) > 0 && !half
}

// asOurs parses a member that has been read completely, with any white space, as the field.
func (x *object) asOurs(member []byte) bool {
	_, value, _ := bytes.Cut(member, []byte{':'})
	var strict bytes.Buffer
	if json.Compact(&strict, value) != nil {
		return false
	}
	n, _ := x.objectIn(strict.Bytes(), nil)
	return n > 0 && n == strict.Len()
}

// objects are the columns of the field: 24 bytes for each row, and its ETag. Most objects share a
// few sets of headers.
type objects struct {
	rows  []objectRow // one for each row of the table; empty if no row has the field
	etags []byte
	text  []byte      // all sets of headers
	sets  [][2]uint64 // the range of each set in text
	slots []uint32    // hash table of sets; 0 is free, others are the number of the set plus 1
	seed  maphash.Seed
}

type objectRow struct {
	written int64
	etagAt  uint64
	etagLen uint32
	set     uint32 // number of the set of headers plus 1; 0 means none
}

var noObject = objectRow{written: noTime}

// add appends the field of row n.
func (o *objects) add(n int, x *object) {
	switch {
	case !x.there && len(o.rows) == 0:
		return
	case !x.there:
		o.rows = append(o.rows, noObject)
		return
	case len(o.rows) < n:
		o.rows = append(make([]objectRow, 0, max(n+1, 64)), slices.Repeat([]objectRow{noObject}, n)...)
	}
	r := objectRow{written: x.written, etagAt: uint64(len(o.etags)), etagLen: uint32(len(x.etag))}
	o.etags = append(o.etags, x.etag...)
	if len(x.headers) > 0 {
		r.set = o.intern(x.headers)
	}
	o.rows = append(o.rows, r)
}

func (o *objects) set(i uint32) []byte { return o.text[o.sets[i-1][0]:o.sets[i-1][1]] }

// slot returns the slot of a set of headers, or the slot where it would be.
func (o *objects) slot(headers []byte) *uint32 {
	mask := uint64(len(o.slots) - 1)
	for h := maphash.Bytes(o.seed, headers); ; h++ {
		if at := &o.slots[h&mask]; *at == 0 || bytes.Equal(o.set(*at), headers) {
			return at
		}
	}
}

func (o *objects) intern(headers []byte) uint32 {
	if 4*(len(o.sets)+1) > 3*len(o.slots) {
		if o.slots == nil {
			o.seed = maphash.MakeSeed()
		}
		o.slots = make([]uint32, max(64, 2*len(o.slots)))
		for i := range o.sets {
			*o.slot(o.set(uint32(i + 1))) = uint32(i + 1)
		}
	}
	at := o.slot(headers)
	if *at == 0 {
		from := uint64(len(o.text))
		o.text = append(o.text, headers...)
		o.sets = append(o.sets, [2]uint64{from, uint64(len(o.text))})
		*at = uint32(len(o.sets))
	}
	return *at
}

// finish releases what only add needs.
func (o *objects) finish() {
	o.slots = nil
	if cap(o.rows) > len(o.rows)*5/4 {
		o.rows = slices.Clone(o.rows)
	}
	if cap(o.etags) > len(o.etags)*5/4 {
		o.etags = slices.Clone(o.etags)
	}
}

// pick keeps the given rows, in that order.
func (o *objects) pick(order []uint32) {
	if len(o.rows) == 0 {
		return
	}
	rows := make([]objectRow, 0, len(order))
	for _, i := range order {
		rows = append(rows, o.rows[i])
	}
	o.rows = rows
}

// at returns the field of row i.
func (o *objects) at(i int) (x object) {
	if i >= len(o.rows) || o.rows[i] == noObject {
		return object{written: noTime}
	}
	r := o.rows[i]
	x = object{there: r.etagLen > 0 || r.set > 0, written: r.written, etag: o.etags[r.etagAt:][:r.etagLen]}
	if r.set > 0 {
		x.headers = o.set(r.set)
	}
	return x
}

// forgetETag removes the ETag of a row whose content is no longer that of the object.
func (o *objects) forgetETag(i int) {
	if i < len(o.rows) {
		o.rows[i].etagLen = 0
	}
}

// tell sets the attributes of an entry. The ETag is not copied, because nothing changes after the
// table is finished.
func (x object) tell(e *format.Entry) {
	if !x.there {
		return
	}
	if x.written != noTime {
		e.ModTime = time.Unix(0, x.written).UTC()
	}
	if e.Attr == nil {
		e.Attr = map[string]string{}
	}
	if len(x.etag) > 0 {
		e.Attr[kit.ETagAttr] = unsafe.String(&x.etag[0], len(x.etag))
	}
	if len(x.headers) == 0 {
		return
	}
	s := jsontext.Scanner{Buf: x.headers, Depth: 1}
	for s.Begin('{'); s.Next('}'); {
		name := string(s.Key())
		value, _ := appendText(nil, &s)
		e.Attr[name] = string(value)
	}
}
