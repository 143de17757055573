package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// value reads any value, as encoding/json does with UseNumber. Of equal keys the last one counts.
func value(s *Scanner) any {
	switch c := s.Space(); c {
	case '{':
		m := map[string]any{}
		for s.Begin('{'); s.Next('}'); {
			key := text(s, s.Key())
			m[key] = value(s)
		}
		return m
	case '[':
		list := []any{}
		for s.Begin('['); s.Next(']'); {
			list = append(list, value(s))
		}
		return list
	case '"':
		return text(s, s.String())
	case 't', 'f', 'n', 'N', 'I':
		return map[string]any{"true": true, "false": false, "NaN": json.Number("NaN"), "Infinity": json.Number("Infinity")}[s.Word()]
	}
	return json.Number(s.Number())
}

// text returns the text of a string as encoding/json makes it.
func text(s *Scanner, raw []byte) string {
	if s.Err != nil {
		return ""
	}
	escaped, high := s.Escaped, s.High
	made, _ := AppendText(nil, raw, false)
	if escaped != bytes.Contains(raw, []byte{'\\'}) || !escaped && string(made) != string(raw) {
		panic("escapes that are none")
	}
	if high != bytes.ContainsFunc(raw, func(r rune) bool { return r >= utf8.RuneSelf }) {
		panic("bytes that are not ASCII")
	}
	return string([]rune(string(made)))
}

// blocks returns a scanner that gets a text in blocks. With moved, it gets them in one buffer.
func blocks(in []byte, block int, moved bool) *Scanner {
	s := &Scanner{Depth: 100}
	at := 0
	s.More = func(from int) ([]byte, error) {
		var b []byte
		kept := bytes.Clone(s.Buf[from:])
		if moved {
			for i := range s.Buf {
				s.Buf[i] = '!'
			}
			b = s.Buf[:0]
		}
		n := min(block, len(in)-at)
		b = append(append(b, kept...), in[at:at+n]...)
		at += n
		return b, nil
	}
	return s
}

// FuzzScanner compares with encoding/json: the same texts are accepted, with the same values,
// whatever the blocks.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		``, ` `, `{}`, `[]`, `[1,-0,0.5,1e5,1E-5,-1.5e+05,123456789012345678901234567890]`, `[01]`, `[1.]`, `[.5]`, `[-]`, `[1e]`, `[+1]`, `[-Infinity,NaN]`,
		`{"a":{"b":[true,false,null,{"c":"d"}]},"a":1}`, `{"a" : 1 , "b":[ ] }`, "\t\r\n[\n]\n", `{"a":1,}`, `[1,]`, `[,]`, `{,}`, `{"a"}`, `{"a":}`, `{1:2}`, `[1 2]`, `[1}`, `{} {}`, ` t0`, `nul`, `nulll`, `[tru]`, `true`,
		`"\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"`, `"\ud800"`, `"\ud800\ud800\udc00"`, `"\udc00\ud800x"`, `"\ud800\n"`, `"\u12"`, `"\u123g"`, `"\x"`, `"\`, `"abc`, "\"a\nb\"", "\"\x7f\u2028é\"", "\"\xff\"", "\"eight by\\u0074es 12345678\x01\"",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, block int) {
		read := func(s *Scanner) (any, error) {
			v := value(s)
			s.End()
			return v, s.Err
		}
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber()
		var want any
		refused := d.Decode(&want)
		if _, err := d.Token(); refused == nil && err != io.EOF {
			refused = errors.New("more text after the end")
		}
		whole := &Scanner{Buf: in, Depth: 100}
		got, err := read(whole)
		e, _ := err.(*Error)
		switch {
		case e != nil && e.Deep:
			return
		case (err == nil) != (refused == nil):
			t.Fatalf("%q: %v; encoding/json: %v", in, err, refused)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("%q: %#v; encoding/json: %#v", in, got, want)
		case e != nil && (e.Off < 0 || e.Off > int64(len(in)) || e.Early != (e.Off == int64(len(in)))):
			t.Fatalf("%q: %+v", in, e)
		}
		for _, moved := range []bool{false, true} {
			s := blocks(in, 1+block&0xff, moved)
			if v, berr := read(s); fmt.Sprint(err) != fmt.Sprint(berr) || err == nil && !reflect.DeepEqual(v, got) || err == nil && s.Offset() != int64(len(in)) {
				t.Fatalf("%q: %#v, %v; in blocks %#v, %v", in, got, err, v, berr)
			}
			s = blocks(in, 1+block&0xff, moved)
			v := bytes.Clone(s.Value())
			s.End()
			if (s.Err == nil) != (err == nil) || s.Err == nil && string(v) != strings.Trim(string(in), " \t\r\n") {
				t.Fatalf("%q is skipped as %q, %v; %v", in, v, s.Err, err)
			}
		}
		// What is accepted in addition is accepted only then.
		loose := &Scanner{Buf: in, Depth: 100, Commas: true, Python: true}
		if _, lerr := read(loose); err == nil && (lerr != nil || loose.Trailing > 0) {
			t.Fatalf("%q: %v", in, lerr)
		}
		strict := &Scanner{Buf: in, Depth: 100, UTF8: true}
		if _, serr := read(strict); (serr == nil) != (err == nil && utf8.Valid(in)) {
			t.Fatalf("%q, which must be UTF-8: %v", in, serr)
		}
	})
}

func FuzzDigits(f *testing.F) {
	for _, s := range []string{"", "0", "0,", "00,", "7}", "12345678,", "123456789}xxxxxxxxxxxxxxxxxxxx", "01234567,xxxxxxxxxxxxxxxxxxxxxxx", "999999999999999999,xxxxxxxxxxxxxxxxxx", "1000000000000000000,xxxxxxxxxxxxxxx", "-1,", "1:;/"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, k := Digits(b)
		n, want := 0, int64(0)
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			if want = want*10 + int64(b[n]-'0'); want > math.MaxInt64/100 {
				want = math.MaxInt64 / 100
			}
			n++
		}
		if n == len(b) || n > 18 || n > 1 && b[0] == '0' {
			n, want = 0, 0
		}
		if n > 16 {
			fmt.Sscan(string(b[:n]), &want)
		}
		if v != want || k != n {
			t.Fatalf("%q: %d, %d; expected %d, %d", b, v, k, want, n)
		}
	})
}

func TestErrorsHaveTheirPlace(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1]`:          "expected ',' or '}', found ']' at byte 6 of the text",
		`{"a" 1}`:          "expected ':', found '1' at byte 5 of the text",
		`{a:1}`:            "expected a name, found 'a' at byte 1 of the text",
		`[1,]`:             "expected a value, found ']' at byte 3 of the text",
		`[-x]`:             "expected a digit, found 'x' at byte 2 of the text",
		`["a\x"]`:          `expected an escape, found '\\' at byte 3 of the text`,
		"[\"é\x01\"]":      `expected control characters to be escaped, found '\x01' at byte 4 of the text`,
		"[\"aé\xffb\"]":    `expected UTF-8, found 'ÿ' at byte 5 of the text`,
		`[] x`:             "expected the end, found 'x' at byte 3 of the text",
		`[tr`:              "it ends early at byte 3 of the text",
		`["a\u00`:          "it ends early at byte 7 of the text",
		`[[[[]]]]`:         "too many levels of objects and arrays at byte 3 of the text",
		`{"a":[true,nul]}`: "expected a value, found 'n' at byte 11 of the text",
	} {
		s := &Scanner{Buf: []byte(in), Depth: 3, UTF8: true}
		s.Skip()
		s.End()
		if s.Err == nil || s.Err.Error() != want {
			t.Errorf("%q: %v\nexpected %s", in, s.Err, want)
		}
	}
}

// An error of More is returned, and reading can continue after an error.
func TestReadingContinuesAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	s := &Scanner{Depth: 5, More: func(int) ([]byte, error) { return nil, broken }}
	if s.Skip(); s.Err != broken {
		t.Error(s.Err)
	}
	s = &Scanner{Buf: []byte(`[{"a":!},{"b":2}]`), Depth: 5}
	s.Begin('[')
	s.Next(']')
	if s.Skip(); s.Err == nil || s.Offset() != 6 || s.Next(']') || s.Space() != 0 {
		t.Fatalf("%v at %d", s.Err, s.Offset())
	}
	s.At += 2
	s.Resume(4)
	if !s.Next(']') || string(s.Value()) != `{"b":2}` || s.Next(']') || s.Err != nil || s.Depth != 5 {
		t.Errorf("%+v", s)
	}
}

// A string that is kept as it is means the same if halves of surrogate pairs are kept.
func TestHalvesOfPairsStayDifferent(t *testing.T) {
	for raw, want := range map[string]string{`a\ud800\udc00\udfff\n`: "a\U00010000\xed\xbf\xbf\n", `\ud800\ud801`: "\xed\xa0\x80\xed\xa0\x81", `\u00e9`: "é"} {
		got, half := AppendText(nil, []byte(raw), true)
		if string(got) != want || half != strings.Contains(want, "\xed") {
			t.Errorf("%s: %q, %v", raw, got, half)
		}
	}
}
