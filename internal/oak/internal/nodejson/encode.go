package nodejson

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Limits of what is in one line.
const (
	lineBytes   = 1 << 20   // by default, a line ends as soon as possible after this
	inlineBytes = 64 << 10  // of a binary
	pieceBytes  = 192 << 10 // of what follows; three bytes are four of base64
	arrayValues = 10_000
)

// Lost describes what is lost because of damage.
type Lost struct {
	What    string
	Segment string // empty if the damage is in no segment
	Tar     string // empty if none has the segment
}

func (l *Lost) Error() string { return l.What }

// Options say how nodes are written.
type Options struct {
	// Name returns the written form of a property's name, as UTF-8.
	Name func(string) string
	// Lost returns the damage that an error reports. Any other error ends the writing.
	Lost func(error) (Lost, bool)
	// NoBinaries omits the contents of binaries.
	NoBinaries bool
	// Limit is about how long a line may be; 0 is a megabyte.
	Limit int
}

// An Encoder writes nodes with the lines that follow them. It is not for parallel use.
type Encoder struct {
	w    io.Writer
	o    Options
	form form
	most int // length of a line
	path string
	b    []byte // the line
	text []byte // a value, or a piece of one, not to be changed
	room []byte // for text that is not in a record
	rest []rest // what follows the line
	lost int64
	err  error // the first; nothing is written after it
}

// form is the purpose for which an Encoder writes values.
type form uint8

const (
	lines  form = iota // what does not fit follows
	object             // what does not fit is left out
)

// rest is what does not fit into a line: value i of a property, or all of them.
type rest struct {
	p     segment.Property
	value segment.Value
	i     int // -1 for all
}

func NewEncoder(w io.Writer, o Options) *Encoder {
	return &Encoder{w: w, o: o, most: cmp.Or(o.Limit, lineBytes)}
}

func (e *Encoder) Lost() int64 { return e.lost }

func (e *Encoder) Node(ctx context.Context, path string, n segment.Node) error {
	e.begin(path)
	e.b = append(e.b, `,"properties":{`...)
	for p, err := range n.Properties(ctx) {
		if len(e.b) > e.most {
			e.b = append(e.b, '}')
			e.end(ctx)
			e.begin(path)
			e.b = append(e.b, `,"more":true,"properties":{`...)
		}
		if e.b[len(e.b)-1] != '{' {
			e.b = append(e.b, ',')
		}
		if e.property(ctx, p, err); e.err != nil {
			break
		}
	}
	e.b = append(e.b, '}')
	e.end(ctx)
	return e.err
}

func (e *Encoder) LostNode(path string, l Lost) error {
	e.begin(path)
	e.b = append(e.b, ',')
	e.lose(l)
	e.end(context.Background())
	return e.err
}

// AppendProperties appends a node's properties as an object, except for what is too long.
func AppendProperties(ctx context.Context, b []byte, n segment.Node, o Options) (_ []byte, lost int64, _ error) {
	e := Encoder{o: o, form: object, b: append(b, '{')}
	start := len(e.b)
	e.most = start + cmp.Or(o.Limit, lineBytes)
	for p, err := range n.Properties(ctx) {
		if len(e.b) > start {
			e.b = append(e.b, ',')
		}
		if e.property(ctx, p, err); e.err != nil {
			break
		}
	}
	return append(e.b, '}'), e.lost, e.err
}

// AppendProperty appends a property as an object without its name, if it is not too long.
func AppendProperty(ctx context.Context, b []byte, p segment.Property, lost error, o Options) ([]byte, int64, error) {
	e := Encoder{o: o, form: object, b: b, most: len(b) + cmp.Or(o.Limit, lineBytes)}
	e.body(ctx, p, lost)
	return e.b, e.lost, e.err
}

func (e *Encoder) begin(path string) {
	e.path = path
	e.b = append(e.b[:0], `{"path":`...)
	e.b = AppendString(e.b, path)
}

// end ends a line, writes it, and then writes what follows it.
func (e *Encoder) end(ctx context.Context) {
	e.write()
	// What follows has lines of its own, which may announce more lines.
	announced := e.rest
	e.rest = nil
	for _, r := range announced {
		follow := e.pieces
		if r.i < 0 {
			follow = e.values
		}
		follow(ctx, r)
	}
	if e.rest == nil {
		clear(announced)
		e.rest = announced[:0]
	}
}

func (e *Encoder) write() {
	e.b = append(e.b, "}\n"...)
	if e.err == nil {
		_, e.err = e.w.Write(e.b)
	}
}

// AppendMembers appends what is lost because of damage, as members of an object.
func (l *Lost) AppendMembers(b []byte) []byte {
	b = AppendString(append(b, `"lost":`...), l.What)
	if l.Segment != "" {
		b = AppendString(append(b, `,"segment":`...), l.Segment)
	}
	if l.Tar != "" {
		b = AppendString(append(b, `,"tar":`...), l.Tar)
	}
	return b
}

func (e *Encoder) lose(l Lost) {
	e.lost++
	e.b = l.AppendMembers(e.b)
}

// damage appends what an error reports as lost. Other errors end the writing.
func (e *Encoder) damage(err error) {
	if l, ok := e.o.Lost(err); ok {
		e.lose(l)
	} else {
		e.fail(err)
	}
}

func (e *Encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *Encoder) property(ctx context.Context, p segment.Property, lost error) {
	e.b = AppendString(e.b, e.o.Name(p.Name))
	e.b = append(e.b, ':')
	e.body(ctx, p, lost)
}

func (e *Encoder) body(ctx context.Context, p segment.Property, lost error) {
	e.b = append(append(append(e.b, `{"type":"`...), p.Type.String()...), '"', ',')
	if p.Multi {
		e.b = append(e.b, `"multiple":true,`...)
	}
	switch {
	case lost != nil:
		e.damage(lost)
	case p.Multi:
		e.array(ctx, p)
	default:
		v, lost := p.At(ctx, 0)
		e.value(ctx, p, 0, v, lost, true)
	}
	e.b = append(e.b, '}')
}

// array appends all values if they fit into the line.
func (e *Encoder) array(ctx context.Context, p segment.Property) {
	start, follow, lost := len(e.b), len(e.rest), e.lost
	if p.Len() <= arrayValues {
		e.b = append(e.b, `"values":[`...)
		if e.some(ctx, p, 0, max(e.most, start+e.least())) == p.Len() {
			e.b = append(e.b, ']')
			return
		}
	}
	e.b, e.rest, e.lost = e.b[:start], e.rest[:follow], lost
	e.b = strconv.AppendInt(append(e.b, `"count":`...), int64(p.Len()), 10)
	if e.form == lines {
		e.b = append(e.b, `,"follows":true`...)
		e.rest = append(e.rest, rest{p: p, i: -1})
	}
}

// some appends at least one value, until the line has a certain length, and returns where it
// stopped.
func (e *Encoder) some(ctx context.Context, p segment.Property, from, limit int) (i int) {
	for i = from; e.err == nil && i < p.Len() && i < from+arrayValues && (i == from || len(e.b) < limit); i++ {
		if i > from {
			e.b = append(e.b, ',')
		}
		v, lost := p.At(ctx, i)
		e.value(ctx, p, i, v, lost, false)
	}
	e.fail(ctx.Err())
	return i
}

// value appends a value. A single one becomes members of its property's object, others become
// elements.
func (e *Encoder) value(ctx context.Context, p segment.Property, i int, v segment.Value, lost error, alone bool) {
	if lost == nil && p.Type != segment.Binary && !e.tooLong(v) {
		if lost = e.read(ctx, v, 0, v.Len()); lost == nil && utf8.Valid(e.text) {
			if alone {
				e.b = append(e.b, `"value":`...)
			}
			e.b = AppendString(e.b, e.text)
			return
		}
	}
	if !alone {
		e.b = append(e.b, '{')
	}
	e.members(ctx, p, i, v, lost)
	if !alone {
		e.b = append(e.b, '}')
	}
}

// tooLong reports whether a text is not for the line.
func (e *Encoder) tooLong(v segment.Value) bool {
	return v.Len() > int64(max(e.least(), e.most-len(e.b)))
}

// least is the length up to which a value is always in the line.
func (e *Encoder) least() int {
	if e.form == object {
		return min(inlineBytes, cmp.Or(e.o.Limit, inlineBytes))
	}
	return inlineBytes
}

// members appends a value that is not plain text.
func (e *Encoder) members(ctx context.Context, p segment.Property, i int, v segment.Value, lost error) {
	switch {
	case lost != nil:
		e.damage(lost)
	case v.External():
		e.blob(ctx, v)
	case p.Type == segment.Binary && e.o.NoBinaries:
		e.b = strconv.AppendInt(append(e.b, `"length":`...), v.Len(), 10)
	case p.Type == segment.Binary && v.Len() > int64(e.least()), p.Type != segment.Binary && e.tooLong(v):
		e.b = strconv.AppendInt(append(e.b, `"length":`...), v.Len(), 10)
		if e.form == lines {
			e.b = append(e.b, `,"follows":true`...)
			e.rest = append(e.rest, rest{p, v, i})
		}
	default:
		if p.Type == segment.Binary {
			if err := e.read(ctx, v, 0, v.Len()); err != nil {
				e.damage(err)
				return
			}
			e.b = strconv.AppendInt(append(e.b, `"length":`...), v.Len(), 10)
			e.b = append(e.b, ',')
		}
		e.bytes()
	}
}

// mostBlobID bounds the names of content in data stores, which have a hundred bytes.
const mostBlobID = 64 << 10

func (e *Encoder) blob(ctx context.Context, v segment.Value) {
	id, err := v.BlobID(ctx, mostBlobID)
	switch {
	case err != nil:
		e.damage(err)
	case utf8.ValidString(id):
		e.b = AppendString(append(e.b, `"blob":`...), id)
	default:
		e.b = append(e.b, `"blob_base64":"`...)
		e.b = append(base64.StdEncoding.AppendEncode(e.b, []byte(id)), '"')
	}
}

// bytes appends the bytes that were read as base64.
func (e *Encoder) bytes() {
	e.b = append(e.b, `"base64":"`...)
	e.b = append(base64.StdEncoding.AppendEncode(e.b, e.text), '"')
}

// read reads bytes of a value, which are few.
func (e *Encoder) read(ctx context.Context, v segment.Value, off, n int64) error {
	if b, ok := v.Inline(); ok {
		e.text = b[off:][:n]
		return nil
	}
	if int64(cap(e.room)) < n {
		e.room = make([]byte, n)
	}
	e.text = e.room[:n]
	return v.ReadAt(ctx, e.text, off)
}

func (e *Encoder) values(ctx context.Context, r rest) {
	for from := 0; e.err == nil && from < r.p.Len(); {
		e.of(r.p)
		e.b = strconv.AppendInt(append(e.b, `,"from":`...), int64(from), 10)
		e.b = append(e.b, `,"values":[`...)
		from = e.some(ctx, r.p, from, e.most)
		e.b = append(e.b, ']')
		e.end(ctx)
	}
}

// of begins a line that follows a node's.
func (e *Encoder) of(p segment.Property) {
	e.begin(e.path)
	e.b = AppendString(append(e.b, `,"property":`...), e.o.Name(p.Name))
}

func (e *Encoder) pieces(ctx context.Context, r rest) {
	for off := int64(0); e.err == nil && off < r.value.Len(); {
		e.fail(ctx.Err())
		n := min(pieceBytes, r.value.Len()-off)
		lost := e.read(ctx, r.value, off, n)
		e.of(r.p)
		e.b = strconv.AppendInt(append(e.b, `,"index":`...), int64(r.i), 10)
		e.b = strconv.AppendInt(append(e.b, `,"offset":`...), off, 10)
		e.b = append(e.b, ',')
		switch {
		case lost != nil:
			e.b = strconv.AppendInt(append(e.b, `"length":`...), n, 10)
			e.b = append(e.b, ',')
			e.damage(lost)
		case r.p.Type != segment.Binary && e.wholeRunes(off+n == r.value.Len()):
			n = int64(len(e.text))
			e.b = AppendString(append(e.b, `"text":`...), e.text)
		default:
			e.bytes()
		}
		e.write()
		off += n
	}
}

// wholeRunes reports whether the bytes that were read are UTF-8, and removes an incomplete rune
// at their end.
func (e *Encoder) wholeRunes(last bool) bool {
	b := e.text
	for cut := 0; !last && cut < utf8.UTFMax-1 && len(b) > 1; cut++ {
		if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n != 1 {
			break
		}
		b = b[:len(b)-1]
	}
	if !utf8.Valid(b) {
		return false
	}
	e.text = b
	return true
}

// escaped are the bytes that must be escaped in a JSON string.
var escaped = func() (t [256]bool) {
	for c := range ' ' {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// AppendString appends UTF-8 as a JSON string.
func AppendString[S string | []byte](b []byte, s S) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0 // nearly always the whole string is plain
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !escaped[c] {
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}
