// Package jsontext reads JSON from its text, for formats with indexes of JSON: each value with its
// place, in blocks of any size, and without a copy of what needs none.
//
// A Scanner is at one place of the text. Objects and arrays are loops:
//
//	for s.Begin('{'); s.Next('}'); {
//		switch string(s.Key()) {
//		case "size":
//			size = s.Number()
//		default:
//			s.Skip()
//		}
//	}
//	s.End()
//	return s.Err
//
// After an error, nothing is read and all loops end.
package jsontext

import "fmt"

// A Scanner reads one text. What its methods return are parts of Buf, valid until the next call.
type Scanner struct {
	Buf  []byte // the text, or a part of it
	At   int    // the next byte in Buf
	Base int64  // offset of Buf in the text

	// More returns the bytes of Buf from an index on, with more of the text after them. At the end
	// of the text, there are no more. It is nil if Buf has the whole text.
	More func(from int) ([]byte, error)

	Depth  int  // how many objects and arrays may still be opened
	UTF8   bool // strings must be UTF-8
	Python bool // NaN, Infinity and -Infinity are values
	Commas bool // a comma may follow the last member or element

	Escaped   bool  // the last string has escapes
	High      bool  // the last string has bytes that are not ASCII
	Blanks    bool  // white space was skipped
	Trailing  int   // number of commas after the last member or element
	TrailedAt int64 // where the first of them is followed by a closing bracket

	Err error // the first: an *Error, or one of More

	all    []byte // Buf when there was an error
	opened bool   // nothing of an object or array was read
	marks  int    // how many marks there are
	mark   int64  // the first of them, an offset in the text
	open   []byte // closing brackets that Skip expects
}

// An Error is a place where a text is not JSON, or not the JSON that was expected.
type Error struct {
	Off   int64 // in the text
	What  string
	Early bool // the text ends there: with more of it, it might be valid
	Deep  bool // more objects or arrays are open than may be
}

func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d of the text", e.What, e.Off) }

// Offset returns the current place in the text.
func (s *Scanner) Offset() int64 { return s.Base + int64(s.At) }

// Fail sets what is wrong at the current place, unless there was an error before.
func (s *Scanner) Fail(what string) {
	if s.At >= len(s.Buf) {
		s.Stop(&Error{Off: s.Offset(), What: "it ends early", Early: true})
	}
	s.Stop(&Error{Off: s.Offset(), What: what})
}

// Want sets the error that something else was expected at the current place.
func (s *Scanner) Want(what string) {
	if s.At < len(s.Buf) {
		what = fmt.Sprintf("expected %s, found %q", what, s.Buf[s.At])
	}
	s.Fail(what)
}

// Stop sets an error, unless there was one before. As nothing may be read then, the text seems to
// end.
func (s *Scanner) Stop(err error) {
	if s.Err == nil {
		s.Err, s.all, s.Buf = err, s.Buf, s.Buf[:s.At]
	}
}

// Resume continues at the current place after an error, as if at the end of a member, without
// marks. depth is how many objects and arrays may still be opened.
func (s *Scanner) Resume(depth int) {
	if s.Err != nil {
		s.Buf = s.all
	}
	s.Err, s.Depth, s.opened, s.marks, s.open = nil, depth, false, 0, s.open[:0]
}

// Mark keeps the bytes from the current place on in Buf until Release.
func (s *Scanner) Mark() (off int64) {
	s.markAt(s.Offset())
	return s.Offset()
}

func (s *Scanner) markAt(off int64) {
	if s.marks++; s.marks == 1 {
		s.mark = off
	}
}

// Since returns the text from a mark up to the current place, and nil after an error.
func (s *Scanner) Since(off int64) []byte {
	if s.Err != nil {
		return nil
	}
	return s.Buf[off-s.Base : s.At]
}

// Release ends the last Mark.
func (s *Scanner) Release() { s.marks-- }

// Ensure reads until Buf has n bytes from the current place on, if the text has them.
func (s *Scanner) Ensure(n int) bool {
	for len(s.Buf)-s.At < n {
		if s.More == nil || s.Err != nil {
			return false
		}
		from := s.At
		if s.marks > 0 {
			from = int(s.mark - s.Base)
		}
		b, err := s.More(from)
		if err != nil {
			s.Stop(err)
			return false
		}
		had := len(s.Buf) - from
		if s.Buf, s.At, s.Base = b, s.At-from, s.Base+int64(from); len(b) == had {
			return false
		}
	}
	return true
}

// Space skips white space. It returns the next byte without reading it, or 0 at the end.
func (s *Scanner) Space() byte {
	for {
		b, i := s.Buf, s.At
		for i < len(b) && b[i] <= ' ' && IsSpace(b[i]) {
			i++
		}
		if i > s.At {
			s.At, s.Blanks = i, true
		}
		if i < len(b) {
			return b[i]
		}
		if !s.Ensure(1) {
			return 0
		}
	}
}

// IsSpace reports whether c is white space of JSON.
func IsSpace(c byte) bool { return uint64(1<<' '|1<<'\n'|1<<'\r'|1<<'\t')>>c&1 == 1 }

// End checks that only white space follows.
func (s *Scanner) End() {
	if s.Space(); s.At < len(s.Buf) {
		s.Want("the end")
	}
}

// Begin reads an opening bracket, { or [. Next must follow.
func (s *Scanner) Begin(bracket byte) {
	if s.Space() != bracket {
		s.Want(string(quoted(bracket)))
		return
	}
	s.begin()
}

func (s *Scanner) begin() {
	if s.Depth <= 0 {
		s.Stop(&Error{Off: s.Offset(), What: "too many levels of objects and arrays", Deep: true})
		return
	}
	s.Depth--
	s.At++
	s.opened = true
}

func quoted(c byte) []byte { return []byte{'\'', c, '\''} }

// Next reports whether there is another member or element. If not, it has read the closing
// bracket.
func (s *Scanner) Next(closing byte) bool {
	c := byte(0)
	if s.At < len(s.Buf) {
		c = s.Buf[s.At]
	}
	if c <= ' ' {
		if c = s.Space(); s.Err != nil {
			return false
		}
	}
	if s.opened {
		if s.opened = false; c != closing {
			return true
		}
	} else if c == ',' {
		if s.At++; !s.Commas || s.Space() != closing {
			return true
		}
		if s.Trailing++; s.Trailing == 1 {
			s.TrailedAt = s.Offset()
		}
	} else if c != closing {
		s.Want("',' or " + string(quoted(closing)))
		return false
	}
	s.At++
	s.Depth++
	return false
}

// Key reads a member's name and the colon after it. It returns the name like String.
func (s *Scanner) Key() []byte {
	if s.Space() != '"' {
		s.Want("a name")
		return nil
	}
	name := s.str()
	if s.At < len(s.Buf) && s.Buf[s.At] == ':' {
		s.At++
		return name
	}
	from := s.Offset() - int64(len(name)) - 1
	s.markAt(from)
	if s.Space() != ':' {
		s.Want("':'")
		return nil
	}
	s.Release()
	name = s.Buf[from-s.Base:][:len(name)] // More may have moved it
	s.At++
	return name
}

// Value reads any value and returns its text.
func (s *Scanner) Value() []byte {
	s.Space()
	from := s.Mark()
	s.Skip()
	s.Release()
	return s.Since(from)
}

// Skip reads any value. The text cannot make the stack of calls deep.
func (s *Scanner) Skip() {
	level := len(s.open)
	for {
		switch c := s.Space(); c {
		case '{', '[':
			s.begin()
			s.open = append(s.open, c+2) // the closing brackets of ASCII
		case '"':
			s.str()
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			s.number()
		default:
			s.Word()
		}
		for len(s.open) > level && !s.Next(s.open[len(s.open)-1]) {
			s.open = s.open[:len(s.open)-1]
		}
		if s.Err != nil || len(s.open) == level {
			return
		}
		if s.open[len(s.open)-1] == '}' {
			s.Key()
		}
	}
}
