package caf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// scanned is the result of a scan.
type scanned struct {
	rows []scannedRow
	top  topLevel
	err  error
}

type scannedRow struct {
	name, digest, extra string
	object              string
	start, end, off     int64
	odd                 oddity
}

func (r scannedRow) String() string {
	s := fmt.Sprintf("%q:%d-%d", r.name, r.start, r.end)
	for _, o := range []struct {
		bit  oddity
		word string
	}{
		{noStart, "no-start"}, {noEnd, "no-end"}, {notInteger, "not-integer"}, {notInt64, "not-int64"},
		{loneSurrogate, "lone"}, {notUTF8, "not-utf8"}, {replaced, "fffd"}, {badDigest, "bad-digest"},
	} {
		if r.odd&o.bit != 0 {
			s += " " + o.word
		}
	}
	return s
}

// class is the word of the fault that ended the scan, "" if none did.
func (s scanned) class() string {
	if f, ok := errors.AsType[*fault](s.err); ok {
		return f.class
	}
	if s.err != nil {
		return s.err.Error()
	}
	return ""
}

// scanIndex scans an index that is in memory if block is 0, else in blocks.
func scanIndex(index []byte, block int) (got scanned) {
	const at = 1000 // offsets must be the object's, not the buffer's
	onRow := func(r *row) error {
		got.rows = append(got.rows, scannedRow{string(r.name), string(r.digest), string(r.extra), string(r.object.appendTo(nil)), r.start, r.end, r.off - at, r.odd})
		return nil
	}
	s := scanBytes(bytes.Clone(index), at, (format.Limits{}).OrDefault().Depth, onRow)
	if block > 0 {
		fetch := func(p []byte, off int64) error {
			copy(p, index[off-at:])
			return nil
		}
		s = scanRange(fetch, at, at+int64(len(index)), (format.Limits{}).OrDefault().Depth, onRow)
		s.Buf, s.block = nil, block
	}
	got.err = s.scan()
	got.top = s.top
	return got
}

// blocks are sizes that break up every row, most rows, some rows.
var blocks = []int{2, 3, 16, 61, 300}

// wantSameInBlocks checks that how an index is read makes no difference.
func wantSameInBlocks(t *testing.T, index []byte, whole scanned) {
	t.Helper()
	for _, block := range blocks {
		got := scanIndex(index, block)
		if got.class() != whole.class() || !reflect.DeepEqual(got.rows, whole.rows) {
			t.Errorf("in blocks of %d: %q, rows %v; in one piece: %q, rows %v", block, got.class(), got.rows, whole.class(), whole.rows)
		}
		if whole.err == nil && !reflect.DeepEqual(got.top, whole.top) {
			t.Errorf("in blocks of %d: %+v; in one piece: %+v", block, got.top, whole.top)
		}
	}
}

func nest(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestScanAcceptsAndRefuses(t *testing.T) {
	rows := func(s string) string { return `{"format_version":"1.0","files":{` + s + `}}` }
	member := func(s string) string { return `{"format_version":"1.0",` + s + `,"files":{}}` }
	offset := func(s string) string { return rows(`"a":{"start_byte":` + s + `,"end_byte":7}`) }
	const plain = `"a":{"start_byte":0,"end_byte":5}`
	digest := strings.Repeat("0f", 32)
	for _, tt := range []struct {
		what, index string
		rows        string // as scannedRow prints them, with spaces between
		class       string
	}{
		{"no files", rows(""), "", ""},
		{"as known writers have it", rows(plain + `,"b":{"start_byte":5,"end_byte":9}`), `"a":0-5 "b":5-9`, ""},
		{"with a digest", rows(`"a":{"start_byte":0,"end_byte":5,"blake3":"` + digest + `"}`), `"a":0-5`, ""},
		{"white space everywhere", " \t\r\n{ \"format_version\" \n:\t\"1.0\" ,\r\"files\" : { \"a\" : { \"start_byte\" : 0 , \"end_byte\" : 5 } , \"b\":{\"start_byte\":5,\"end_byte\":6}\n} } \n", `"a":0-5 "b":5-6`, ""},
		{"keys in another order", `{"files":{"a":{"end_byte":5,"start_byte":0}},"format_version":"1.0"}`, `"a":0-5`, ""},
		{"unknown members", `{"x":{"y":[1,"2",null,true,{}]},"format_version":"1.0","files":{"a":{"z":1.5e-7,"start_byte":0,"end_byte":5,"q":"w"}},"n":null}`, `"a":0-5`, ""},
		{"empty name", rows(`"":{"start_byte":0,"end_byte":5}`), `"":0-5`, ""},

		{"one trailing comma after a row", rows(plain + ","), `"a":0-5`, ""},
		{"one in a row", rows(`"a":{"start_byte":0,"end_byte":5,}`), `"a":0-5`, ""},
		{"one at the top", `{"format_version":"1.0","files":{},}`, "", ""},
		{"one in an unknown array", member(`"x":[1,2,]`), "", ""},
		{"one in an unknown object", member(`"x":{"y":1,}`), "", ""},
		{"one with space around", rows(plain + " , "), `"a":0-5`, ""},
		{"two after a row", rows(plain + ",,"), `"a":0-5`, "index-json"},
		{"two in an unknown array", member(`"x":[1,,]`), "", "index-json"},
		{"two in an unknown object", member(`"x":{"y":1,,}`), "", "index-json"},
		{"two between rows", rows(plain + `,,"b":{}`), `"a":0-5`, "index-json"},
		{"a leading one", rows(`,` + plain), "", "index-json"},
		{"only one in an object", rows(`,`), "", "index-json"},
		{"only one in an array", member(`"x":[,]`), "", "index-json"},

		{"escapes", rows(`"\u0061\/\"\\\b\f\n\r\t\u00e9\ud83d\ude00":{"start_byte":0,"end_byte":5}`), `"a/\"\\\b\f\n\r\té😀":0-5`, ""},
		{"escaped keys", `{"\u0066ormat_version":"1.0","fi\u006ces":{"a":{"start\u005fbyte":0,"end_byte":5}}}`, `"a":0-5`, ""},
		{"high half alone", rows(`"x\ud800y":{"start_byte":0,"end_byte":5}`), `"x` + "\ufffd" + `y":0-5 lone fffd`, ""},
		{"low half alone", rows(`"\udc00":{"start_byte":0,"end_byte":5}`), `"` + "\ufffd" + `":0-5 lone fffd`, ""},
		{"high half before another escape", rows(`"\ud800\n":{"start_byte":0,"end_byte":5}`), `"` + "\ufffd" + `\n":0-5 lone fffd`, ""},
		{"high half before a pair", rows(`"\ud800\ud83d\ude00":{"start_byte":0,"end_byte":5}`), `"` + "\ufffd" + `😀":0-5 lone fffd`, ""},
		{"halves in the wrong order", rows(`"\ude00\ud83d":{"start_byte":0,"end_byte":5}`), `"` + "\ufffd\ufffd" + `":0-5 lone fffd`, ""},
		{"half an escape", rows(`"\u12":{}`), "", "index-json"},
		{"an escape that is none", rows(`"\x41":{}`), "", "index-json"},
		{"raw bytes that are not UTF-8", rows("\"\xff\xfe\":{\"start_byte\":0,\"end_byte\":5}"), `"\xff\xfe":0-5 not-utf8`, ""},
		{"U+FFFD itself", rows("\"\ufffd\":{\"start_byte\":0,\"end_byte\":5}"), `"` + "\ufffd" + `":0-5 fffd`, ""},
		{"DEL and U+2028 raw", rows("\"\x7f\u2028\":{\"start_byte\":0,\"end_byte\":5}"), `"\x7f\u2028":0-5`, ""},
		{"a newline in a name", rows("\"a\nb\":{}"), "", "index-json"},
		{"a NUL in a name", rows("\"a\x00b\":{}"), "", "index-json"},
		{"a control character in an unknown string", member("\"x\":\"\x1f\""), "", "index-json"},

		{"depth 256 at the top", member(`"x":` + nest(255)), "", ""},
		{"depth 257 at the top", member(`"x":` + nest(256)), "", "index-depth"},
		{"depth 256 in a row", rows(`"a":{"start_byte":0,"end_byte":5,"x":` + nest(253) + `}`), `"a":0-5`, ""},
		{"depth 257 in a row", rows(`"a":{"start_byte":0,"end_byte":5,"x":` + nest(254) + `}`), "", "index-depth"},
		{"depth 256 for a row", rows(`"a":` + nest(254)), `"a":0-0 not-integer`, ""},
		{"depth 257 for a row", rows(`"a":` + nest(255)), "", "index-depth"},
		{"far too deep and never closed", member(`"x":` + strings.Repeat(`{"y":[`, 100_000)), "", "index-depth"},

		{"minus zero", offset("-0"), `"a":0-7`, ""},
		{"negative", offset("-5"), `"a":-5-7`, ""},
		{"2^63-1", offset("9223372036854775807"), `"a":9223372036854775807-7`, ""},
		{"2^63", offset("9223372036854775808"), `"a":0-7 not-int64`, ""},
		{"-2^63", offset("-9223372036854775808"), `"a":-9223372036854775808-7`, ""},
		{"-2^63-1", offset("-9223372036854775809"), `"a":0-7 not-int64`, ""},
		{"2^64", offset("18446744073709551616"), `"a":0-7 not-int64`, ""},
		{"19 digits that fit", offset("1000000000000000000"), `"a":1000000000000000000-7`, ""},
		{"thirty digits", offset(strings.Repeat("9", 30)), `"a":0-7 not-int64`, ""},
		{"1e3", offset("1e3"), `"a":0-7 not-integer`, ""},
		{"1E+3", offset("1E+3"), `"a":0-7 not-integer`, ""},
		{"4.0", offset("4.0"), `"a":0-7 not-integer`, ""},
		{"null", offset("null"), `"a":0-7 not-integer`, ""},
		{"true", offset("true"), `"a":0-7 not-integer`, ""},
		{"an array", offset("[1]"), `"a":0-7 not-integer`, ""},
		{"a string", offset(`"4"`), "", "index-shape"},
		{"leading zero", offset("07"), "", "index-json"},
		{"zero zero", offset("00"), "", "index-json"},
		{"plus", offset("+7"), "", "index-json"},
		{"bare minus", offset("-"), "", "index-json"},
		{"bare point", offset(".5"), "", "index-json"},
		{"nothing after the point", offset("5."), "", "index-json"},
		{"nothing after the e", offset("5e"), "", "index-json"},
		{"hexadecimal", offset("0x10"), "", "index-json"},
		{"NaN", offset("NaN"), "", "index-json"},
		{"nothing", offset(""), "", "index-json"},
		{"5,000 digits", offset(strings.Repeat("9", 5000)), `"a":0-7 not-int64`, ""},
		{"5,000 digits behind a point", offset("1." + strings.Repeat("0", 5000) + "e5"), `"a":0-7 not-integer`, ""},
		{"5,000 digits of a power", offset("1e" + strings.Repeat("9", 5000)), `"a":0-7 not-integer`, ""},
		{"a long number in an unknown member", rows(`"a":{"start_byte":0,"end_byte":5,"x":` + strings.Repeat("9", 300_000) + `}`), `"a":0-5`, ""},
		{"a long number at the top", member(`"x":-` + strings.Repeat("9", 5000)), "", ""},
		{"a long number does not hide other rows", rows(`"a":{"start_byte":` + strings.Repeat("9", 5000) + `,"end_byte":7},"b":{"start_byte":0,"end_byte":5}`), `"a":0-7 not-int64 "b":0-5`, ""},
		{"a long number that begins with zero", offset("0" + strings.Repeat("9", 5000)), "", "index-json"},
		{"a long number that ends early", `{"files":{"a":{"start_byte":` + strings.Repeat("9", 5000), "", "index-json"},
		{"missing start", rows(`"a":{"end_byte":7}`), `"a":0-7 no-start`, ""},
		{"missing end", rows(`"a":{"start_byte":7}`), `"a":7-0 no-end`, ""},
		{"a row that is no object does not hide others", rows(`"a":null,"b":{"start_byte":0,"end_byte":5}`), `"a":0-0 not-integer "b":0-5`, ""},
		{"a digest that is none", rows(`"a":{"start_byte":0,"end_byte":5,"blake3":"xyz"}`), `"a":0-5 bad-digest`, ""},
		{"a digest that is null", rows(`"a":{"start_byte":0,"end_byte":5,"blake3":null}`), `"a":0-5 bad-digest`, ""},

		{"the same name twice", rows(plain + `,"a":{"start_byte":5,"end_byte":6}`), `"a":0-5 "a":5-6`, ""},
		{"the same key twice in a row", rows(`"a":{"start_byte":0,"start_byte":1,"end_byte":5}`), `"a":1-5`, ""},
		{"two files objects", `{"format_version":"1.0","files":{` + plain + `},"files":{"b":{"start_byte":5,"end_byte":6}}}`, `"a":0-5 "b":5-6`, ""},

		{"nothing at all", "", "", "index-json"},
		{"only white space", " \n ", "", "index-json"},
		{"a byte order mark", "\ufeff" + rows(plain), "", "index-json"},
		{"UTF-16", "{\x00\"\x00", "", "index-json"},
		{"text after", rows(plain) + "x", `"a":0-5`, "index-json"},
		{"a second object after", rows(plain) + "{}", `"a":0-5`, "index-json"},
		{"a NUL after", rows(plain) + "\x00", `"a":0-5`, "index-json"},
		{"single quotes", `{'files':{}}`, "", "index-json"},
		{"a key without quotes", `{files:{}}`, "", "index-json"},
		{"a comment", rows(`/* none */`), "", "index-json"},
		{"an equals sign", rows(`"a"={}`), "", "index-json"},
		{"the wrong bracket", member(`"x":[1}`), "", "index-json"},
		{"a literal cut short", member(`"x":tru`), "", "index-json"},
		{"a literal in capitals", member(`"x":True`), "", "index-json"},
		{"an array", `[]`, "", "index-shape"},
		{"null", `null`, "", "index-shape"},
		{"a string", `"files"`, "", "index-shape"},
		{"broken after the wrong shape", `[1`, "", "index-json"},
		{"files are an array", `{"format_version":"1.0","files":[]}`, "", "index-shape"},
		{"files are null", `{"format_version":"1.0","files":null}`, "", "index-shape"},
		{"no files", `{"format_version":"1.0"}`, "", "index-shape"},
		{"files in capitals are not files", `{"format_version":"1.0","Files":{}}`, "", "index-shape"},
		{"the version is a number", `{"format_version":1.0,"files":{}}`, "", "index-shape"},
		{"no version", `{"files":{}}`, "", "version"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			got := scanIndex([]byte(tt.index), 0)
			var list []string
			for _, r := range got.rows {
				list = append(list, r.String())
			}
			if s := strings.Join(list, " "); s != tt.rows || got.class() != tt.class {
				t.Errorf("expected rows %s, %q\nfound    rows %s, %q (%v)", tt.rows, tt.class, s, got.class(), got.err)
			}
			wantSameInBlocks(t, []byte(tt.index), got)
		})
	}
}

// Every place where an index can break off must be found, whatever the blocks.
func TestScanFindsEveryTruncation(t *testing.T) {
	index := []byte(`{"format_version":"1.0","x":[1,{"y":"\ud83d\ude00"}],"files":{"a":{"start_byte":0,"end_byte":5,"blake3":"` +
		strings.Repeat("0f", 32) + `"},"b\u0062":{"start_byte":5,"end_byte":-6,"z":null}}}`)
	for n := range index {
		got := scanIndex(index[:n], 0)
		if got.class() != "index-json" {
			t.Errorf("cut to %d bytes, %q: class %q", n, index[:n], got.class())
		}
		wantSameInBlocks(t, index[:n], got)
	}
}

func TestScanCountsWhatIsOdd(t *testing.T) {
	got := scanIndex([]byte(`{"format_version":"1.0","files":{"a":{"start_byte":0,"start_byte":0,"end_byte":5,},},"x":1,"x":2,}`), 0)
	if got.err != nil || got.top.trailingCommas != 3 || got.top.duplicateKeys != 2 {
		t.Errorf("expected 3 trailing commas, 2 keys twice; found %d, %d, %v", got.top.trailingCommas, got.top.duplicateKeys, got.err)
	}
}

// What we do not know is written again later, so it has to be strict by then.
func TestScanKeepsUnknownMembersAsStrictJSON(t *testing.T) {
	got := scanIndex([]byte(`{"x" : [1,{"y":",}",},] ,"format_version":"1.0","writer":"someone","files":{"a":{"q":{"r":1,},"start_byte":0,"s":"\",]","end_byte":5}},"x":"again"}`), 0)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if want := `"x" : [1,{"y":",}"}]`; string(got.top.extra) != want {
		t.Errorf("top: expected %s, found %s", want, got.top.extra)
	}
	if want := `"q":{"r":1},"s":"\",]"`; got.rows[0].extra != want {
		t.Errorf("row: expected %s, found %s", want, got.rows[0].extra)
	}
}

// A fetch that fails is not an index that breaks off.
func TestScanSurfacesFetchErrors(t *testing.T) {
	index := []byte(`{"format_version":"1.0","x":[1,"\ud800\ud800"],"files":{"a":{"start_byte":0,"end_byte":5},"b":{"start_byte":12,"end_byte":6},"c":!,"d":{"start_byte":0,"end_byte":5}}}`)
	broken := errors.New("broken")
	for _, salvage := range []bool{false, true} {
		for fail := range index[:len(index)-2] {
			fetch := func(p []byte, off int64) error {
				if off+int64(len(p)) > int64(fail) {
					return broken
				}
				copy(p, index[off:])
				return nil
			}
			s := scanRange(fetch, 0, int64(len(index)), 256, func(*row) error { return nil })
			s.Buf, s.block, s.salvage = nil, 2, salvage
			err := s.scan()
			if _, isFault := errors.AsType[*fault](err); isFault && !salvage && int64(fail) > bytesBefore(index, '!') {
				continue // it breaks before the fetch does
			}
			if !errors.Is(err, broken) {
				t.Errorf("salvage %v, fetch fails at %d: %v", salvage, fail, err)
			}
		}
	}
}

func bytesBefore(b []byte, c byte) int64 { return int64(bytes.IndexByte(b, c)) }

// sparse is a store of one object that consists of zeros except for its end.
type sparse struct {
	size int64
	end  []byte
	read int64 // bytes requested
}

func (s *sparse) Can() store.Abilities                               { return store.Abilities{} }
func (s *sparse) Open(context.Context, string) (store.Object, error) { return zeros{s}, nil }

type zeros struct{ *sparse }

func (s zeros) Can() store.ObjectAbilities { return store.ObjectAbilities{} }
func (s zeros) Close() error               { return nil }
func (s zeros) Info(context.Context) (store.Info, error) {
	return store.Info{Name: "x.caf", Size: s.size}, nil
}

func (s zeros) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > s.size {
		return io.ErrUnexpectedEOF
	}
	s.read += int64(len(p))
	clear(p)
	if from := s.size - int64(len(s.end)); off+int64(len(p)) > from {
		copy(p[max(0, from-off):], s.end[max(0, off-from):])
	}
	return nil
}

// What a footer claims must cost nothing before it is found to be true.
func TestClaimsOfAFooterCostNothing(t *testing.T) {
	for _, tt := range []struct {
		what  string
		st    *sparse
		class string
		code  format.Code
	}{
		{"20 bytes, 4 GiB of index", &sparse{size: 20, end: []byte("\xff\xff\xff\xff")}, "index-size", format.BadIndex},
		{"8 GiB, 4 GiB of index", &sparse{size: 8 << 30, end: []byte("\xff\xff\xff\xff")}, "index-size", format.Limit},
		{"3 GiB, 2,900 MiB of index", &sparse{size: 3<<30 + 4, end: []byte("\x00\x00\x40\xb5")}, "index-size", format.Limit},
		{"3 GiB, 900 MiB of index that is none", &sparse{size: 3 << 30, end: []byte("\x00\x00\x40\x38")}, "index-json", format.BadIndex},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var err error
			used := testkit.Allocated(func() { _, err = open(t.Context(), tt.st, "x.caf", format.OpenOptions{}) })
			c, ok := errors.AsType[*format.CorruptError](err)
			if !ok || c.Class != tt.class || c.Code != tt.code {
				t.Errorf("expected %s, %s; found %v", tt.class, tt.code, err)
			}
			if used > 1<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
			if tt.st.read > 1<<20 {
				t.Errorf("%d bytes were read", tt.st.read)
			}
		})
	}
}

// A row that is valid JSON but longer than any name ends the scan before it
// fills the memory.
func TestScanBoundsOneRow(t *testing.T) {
	for _, what := range []string{`{"format_version":"1.0","files":{"`, `{"format_version":"1.0","x":"`, `{"format_version":"1.0","files":{"a":{"x":["`} {
		read := int64(0)
		fetch := func(p []byte, off int64) error {
			read += int64(len(p))
			for i := range p {
				p[i] = 'x'
			}
			if off < int64(len(what)) {
				copy(p, what[off:])
			}
			return nil
		}
		s := scanRange(fetch, 0, 1<<30, 256, func(*row) error { return nil })
		s.maxRow = 100_000
		err := s.scan()
		if f, ok := errors.AsType[*fault](err); !ok || f.class != "index-size" {
			t.Errorf("%s…: expected index-size, found %v", what, err)
		}
		if read > 4*scanBlock {
			t.Errorf("%s…: %d bytes were read", what, read)
		}
	}
}

func TestFooterSaysWhereTheIndexLies(t *testing.T) {
	for _, tt := range []struct {
		tail   string
		size   int64
		off, n int64
		class  string
	}{
		{"", 0, 0, 0, "too-short"},
		{"\x01\x00\x00", 3, 0, 0, "too-short"},
		{"\x00\x00\x00\x00", 4, 0, 0, "no-index"},
		{"\x00\x00\x00\x00", math.MaxInt64, 0, 0, "no-index"},
		{"\x01\x00\x00\x00", 4, 0, 0, "index-size"},
		{"\x01\x00\x00\x00", 5, 0, 1, ""},
		{"xx\x02\x00\x00\x00", 6, 0, 2, ""},
		{"\x02\x00\x00\x00", 6, 0, 2, ""},
		{"\x00\x00\x00\x02", 100, 0, 0, "index-size"},
		{"\xff\xff\xff\xff", 1<<32 + 3, 0, 1<<32 - 1, ""},
		{"\xff\xff\xff\xff", 1<<32 + 2, 0, 0, "index-size"},
		{"\x10\x00\x00\x00", math.MaxInt64, math.MaxInt64 - 20, 16, ""},
	} {
		off, n, f := parseFooter([]byte(tt.tail), tt.size)
		class := ""
		if f != nil {
			class = f.class
		}
		if off != tt.off || n != tt.n || class != tt.class {
			t.Errorf("%q of %d bytes: expected %d+%d %q, found %d+%d %q", tt.tail, tt.size, tt.off, tt.n, tt.class, off, n, class)
		}
	}
}

func TestVersionIsComparedAsNumbers(t *testing.T) {
	for v, want := range map[string]string{
		"1.0": "", "1.00": "", "1.1": "unknown-minor-version", "1.10": "unknown-minor-version", "1.01": "unknown-minor-version",
		"10.0": "version", "2.0": "version", "1": "version", "1.": "version", "": "version", "1.x": "version", "1.0.0": "version", "v1.0": "version", " 1.0": "version", "01.0": "version",
	} {
		got := ""
		if f := checkVersion(v, 0); f != nil {
			got = f.class
		}
		if got != want {
			t.Errorf("%q: expected %q, found %q", v, want, got)
		}
	}
}

// The search for one name and the whole table must tell the same, also of names
// that are not there and of names that come twice.
func TestSearchTellsWhatTheTableTells(t *testing.T) {
	for _, index := range []string{
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":4},"b":{"start_byte":4,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":3},"b":{"start_byte":4,"end_byte":9}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":3},"b":{"start_byte":5,"end_byte":9}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},},}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"a":{"start_byte":0,"end_byte":4},"b":{"start_byte":9,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":10},"a":null,"b":{"start_byte":0,"end_byte":11},"d/e":{"start_byte":-1,"end_byte":3}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":3,"end_byte":2,"x":1},"b":{"start_byte":0,"end_byte":2}}}`,
	} {
		archive := appendFooter(append([]byte("0123456789"), index...), int64(len(index)))
		for _, ends := range []string{"", "inclusive", "exclusive"} {
			o := format.OpenOptions{Param: map[string]string{"ends": ends}}
			for _, name := range []string{"a", "b", "c", "d", "d/e", ".", ""} {
				wantSearchAgrees(t, archive, name, o)
			}
		}
	}
}

// wantSearchAgrees looks name up in both ways.
func wantSearchAgrees(t *testing.T, archive []byte, name string, o format.OpenOptions) {
	t.Helper()
	var found [2]format.Entry
	var errs [2]error
	for i, few := range []bool{false, true} {
		r, err := openReader(t.Context(), mem(archive), "x.caf", o)
		if err != nil {
			t.Fatal(err)
		}
		r.few = few
		found[i], errs[i] = r.Lookup(t.Context(), name)
		if e, err := r.Lookup(t.Context(), name); !reflect.DeepEqual(e, found[i]) || (err == nil) != (errs[i] == nil) {
			t.Errorf("%q again: %+v, %v", name, e, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(found[0], found[1]) || errors.Is(errs[0], fs.ErrNotExist) != errors.Is(errs[1], fs.ErrNotExist) || (errs[0] == nil) != (errs[1] == nil) {
		t.Errorf("%q with %v of %q:\nload   %+v, %v\nsearch %+v, %v", name, o.Param, archive, found[0], errs[0], found[1], errs[1])
	}
}
