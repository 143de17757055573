package ucl

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/testkit"
)

// parsed returns the value of in as JSON.
func parsed(t *testing.T, in string) string {
	t.Helper()
	v, err := Parse([]byte(in))
	if err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	out, err := v.MarshalJSON()
	if err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	return string(out)
}

func TestParseReadsWhatPeopleWrite(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", `{}`},
		{"only comments", "# a\n/* b /* c */ d */\n", `{}`},
		{"byte order mark", "\ufeffa = 1", `{"a":1}`},
		{"nginx", "a b;\nc { d e f; }", `{"a":"b","c":{"d":"e f"}}`},
		{"three assignments", "a = 1\nb: 2\nc 3", `{"a":1,"b":2,"c":3}`},
		{"crlf", "a = x\r\nb {\r\n c = y\r\n}\r\n", `{"a":"x","b":{"c":"y"}}`},
		{"separators", "a=1,b=2;c=3;;,\nd=4", `{"a":1,"b":2,"c":3,"d":4}`},
		{"nothing separates containers", "a{}", ``},
		{"after a brace", "a {b=1} c=2", `{"a":{"b":1},"c":2}`},
		{"brace on the next line", "a \n{ b = 1 }", `{"a":{"b":1}}`},
		{"value on the next line", "\"a\":\n  5", `{"a":5}`},
		{"json", `{"a": [1, -2, "x", {"b": null}, []], "c": {}}`, `{"a":[1,-2,"x",{"b":null},[]],"c":{}}`},
		{"json array", "[1\n2,3]", `[1,2,3]`},
		{"trailing commas", `{"a":[1,2,],}`, `{"a":[1,2]}`},
		{"array by lines", "a [\n  x y\n  \"z\"\n]", `{"a":["x y","z"]}`},
		{"named blocks", "section \"a\" b { k = v }", `{"section":{"a":{"b":{"k":"v"}}}}`},
		{"named blocks repeat", "s a {k=1}\ns b {k=2}", `{"s":[{"a":{"k":1}},{"b":{"k":2}}]}`},
		{"named array", "s a [1, 2]", `{"s":{"a":[1,2]}}`},
		{"braces in a string make no block", "a \"b { c\"\nd ${V}{x}", `{"a":"b { c","d":"${V}{x}"}`},
		{"brackets in a comment make no block", "a b # c {\nd e", `{"a":"b","d":"e"}`},
		{"repeated keys", "k=1\nk=two\nk=[3]", `{"k":[1,"two",[3]]}`},
		{"repeated array", "k=[1]\nk=2", `{"k":[[1],2]}`},
		{"repeated keys among many", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,a=2,j=2,j=3",
			`{"a":[1,2],"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":[1,2,3]}`},
		{"comments between", "a /* c */ = /* d */ 1 # e\nb = x/* f */;c=2", `{"a":1,"b":"x","c":2}`},
		{"quotes hide the end of a comment", `/* "*/" */ a = 1`, `{"a":1}`},
		{"no variables", "a = $ABI/${X}$$", `{"a":"$ABI/${X}$$"}`},
		{"pairs of brackets in a word", "a = f{x}[y]z\nb { c = d }", `{"a":"f{x}[y]z","b":{"c":"d"}}`},
		{"odd keys", "/etc/a.b-c = 1\n\"x y\" = 2\n\"q\\\"\" = 3\nü = 4\n-a = 5", `{"/etc/a.b-c":1,"x y":2,"q\"":3,"ü":4,"-a":5}`},
		{"booleans", "a=[true,YES,On,false,no,OFF,truer]", `{"a":[true,true,true,false,false,false,"truer"]}`},
		{"null", "a=null\nb=NULL", `{"a":null,"b":"NULL"}`},
		{"quoted is a string", `a="1"` + "\nb='true'", `{"a":"1","b":"true"}`},
		{"escapes", `a = "\" \n \f \t \b \r \\ \/ \' \d \u00e9"`, `{"a":"\" \n \u000c \t \u0008 \u000d \\ / ' d é"}`},
		{"surrogates", `a = "\ud83d\ude00"`, `{"a":"😀"}`},
		{"half a surrogate", `a = "\ud83dx\ud83d\u0041"`, `{"a":"\\xed\\xa0\\xbdx\\xed\\xa0\\xbdA"}`},
		{"escapes without quotes", `a = b\;c\,\"d\n`, `{"a":"b;c,\"d\n"}`},
		{"single quotes", "a = 'it\\'s \\n \\\n\"x\"\ny'", `{"a":"it's \\n \"x\"\ny"}`},
		{"control bytes in quotes", "a = \"\x01\x1b\t\"", `{"a":"\u0001\u001b\t"}`},
		{"heredoc", "a = <<EOD\nx \"\\n\n\n  EOD\nEODX\nEOD\nb = 1", `{"a":"x \"\\n\n\n  EOD\nEODX","b":1}`},
		{"heredoc without a line", "a = <<E\nE\n", `{"a":""}`},
		{"heredoc with an empty line", "a = <<E\n\nE", `{"a":""}`},
		{"heredoc before a semicolon", "a <<X\ny\nX; b = [<<X\nz\nX, 1]", `{"a":"y","b":["z",1]}`},
		{"no heredoc", "a = <<eod\nb = << EOD", `{"a":"<<eod","b":"<< EOD"}`},
		{"backslash at the end", `a = b\`, `{"a":"b\\"}`},
		{"floats of the reference", "a: 2.-5\nb: [\n  3.-5\n]\n", `{"a":"2.-5","b":["3.-5"]}`},
		{"times of the reference", "a: 10.000000000s\n", `{"a":10.0}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				if v, err := Parse([]byte(tt.in)); err == nil {
					t.Fatalf("%q: read as %v", tt.in, v)
				}
				return
			}
			if got := parsed(t, tt.in); got != tt.want {
				t.Errorf("%q\n got %s\nwant %s", tt.in, got, tt.want)
			}
		})
	}
}

func TestNumbersHaveTheSuffixesOfLibucl(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-5": "-5", "007": "7", "9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808",
		"0xff": "255", "-0xDEADBEEF": "-3735928559", "0x10b": "267", "0x2k": "2000",
		"1.5": "1.5", "1.": "1.0", "1e3": "1000.0", "-1e-10": "-1e-10", "1E+2": "100.0", "-0.0": "-0.0",
		"5k": "5000", "5M": "5000000", "2g": "2000000000", "1.5k": "1500.0",
		"1kb": "1024", "2Mb": "2097152", "1GB": "1073741824", "1.5kb": "1024",
		"10ms": "0.01", "10mS": "0.01", "0.2s": "0.2", "1s": "1.0", "1min": "60.0", "2h": "7200.0", "1d": "86400.0", "1w": "604800.0", "10y": "315360000.0",
		"1.2.3": `"1.2.3"`, "1_0": `"1_0"`, "111some": `"111some"`, "1e": `"1e"`, "1e5.3": `"1e5.3"`, "0x": `"0x"`, "0xg": `"0xg"`, "0xff.1": `"0xff.1"`,
		"-": `"-"`, "--1": `"--1"`, "+1": `"+1"`, ".5": `".5"`, "1 2": `"1 2"`, "10:20": `"10:20"`, "nan": `"nan"`, "inf": `"inf"`, "1mss": `"1mss"`,
		"99999999999999999999x": `"99999999999999999999x"`,
	} {
		if got := parsed(t, "a = "+in+" # comment"); got != `{"a":`+want+`}` {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	for _, in := range []string{"9223372036854775808", "-9223372036854775809", "0x8000000000000000", "1e999", "9999999999999g", "9007199254740993gb", "1e300gb", "1e308y"} {
		if v, err := Parse([]byte("a = " + in)); !isSyntaxError(err) || !strings.Contains(err.Error(), "64 bits") {
			t.Errorf("%s: got %v, %v; want it to be out of range", in, v, err)
		}
	}
}

func TestParseSaysWhereAndWhatItExpected(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) }
	for _, tt := range []struct{ in, want string }{
		{"a = 1\n  .include \"x\"", `line 2, column 3: expected a key, found macro .include, and macros are not supported`},
		{"a {\n b = }", `line 2, column 6: expected a value, found '}'`},
		{"a = ", `line 1, column 5: expected a value, found the end of the text`},
		{"a\nb = 1", `line 1, column 2: expected '=', ':' or a space after key "a", found the end of the line`},
		{"a \nb = 1", `line 2, column 1: expected a value for key "a", found 'b'`},
		{"a{b=1}", `line 1, column 2: expected '=', ':' or a space after key "a", found '{'`},
		{"a == 1", `line 1, column 4: expected a value, found '='`},
		{"a = \"x\" \"y\"", `line 1, column 9: expected a new line, ',' or ';' after the value, found '"'`},
		{"a = \"x\ny\"", `line 1, column 7: expected '"' for the one of line 1, column 5, found the end of the line`},
		{"a = \"x\\\ny\"", `line 1, column 8: expected '"' for the one of line 1, column 5, found the end of the line`},
		{`a = "x\`, `line 1, column 8: expected '"' for the one of line 1, column 5, found the end of the text`},
		{"a = 'x", `line 1, column 7: expected "'" for the one of line 1, column 5, found the end of the text`},
		{`a = "xy\u12g4"`, `line 1, column 10: expected four hexadecimal digits after \u, found '1'`},
		{`a = C:\users`, `line 1, column 9: expected four hexadecimal digits after \u, found 's'`},
		{"a = <<EOD\nx\n EOD\n", `line 4, column 1: expected a line EOD for the <<EOD of line 1, column 5, found the end of the text`},
		{"a = 1\nb {\n c [\n", `line 4, column 1: expected ']' for the '[' of line 3, column 4, found the end of the text`},
		{"a [1}", `line 1, column 5: expected ']' for the '[' of line 1, column 3, found '}'`},
		{"a [1, }", `line 1, column 7: expected ']' for the '[' of line 1, column 3, found '}'`},
		{"a { b = 1 ]", `line 1, column 11: expected '}' for the '{' of line 1, column 3, found ']'`},
		{"a = 1 }", `line 1, column 7: expected the end of the text, found '}'`},
		{"{a=1}\nb=2", `line 2, column 1: expected the end of the text, found 'b'`},
		{"/* x", `line 1, column 5: expected */ for the /* of line 1, column 1, found the end of the text`},
		{`"" = 1`, `line 1, column 1: expected a key that is not empty, found '"'`},
		{": 1", `line 1, column 1: expected a key, found ':'`},
		{"a = 1\n\x00", `line 2, column 1: expected a key, found byte 0x00`},
		{deep(65), `line 1, column 65: expected at most 64 arrays and objects within each other, found '['`},
		{strings.Repeat("a ", 80) + "{}", `expected at most 64 arrays and objects within each other, found`},
		{strings.Repeat("a {", 40) + strings.Repeat("b {", 23) + "c{}", `expected '=', ':' or a space after key "c", found '{'`},
		{"b=1\n" + strings.Repeat("a {", 62) + " k {}; k {};" + strings.Repeat("}", 62), `those of repeated keys included`},
		{strings.Repeat("x", MaxText+1), `expected at most 524288 bytes, found 524289`},
	} {
		v, err := Parse([]byte(tt.in))
		if !isSyntaxError(err) {
			t.Errorf("%.60q: got %v, %v; want a *SyntaxError", tt.in, v, err)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60q:\n got %v\nwant %s", tt.in, err, tt.want)
		}
	}
	if _, err := Parse([]byte(deep(64) + strings.Repeat("]", 64))); err != nil {
		t.Errorf("64 arrays within each other: %v", err)
	}
}

func isSyntaxError(err error) bool {
	_, ok := errors.AsType[*SyntaxError](err)
	return ok
}

// The reference corrupts floats (1.5 becomes 2.-5), and the number cannot be recovered. So Parse
// returns it as a string, which gets quotes.
var repaired = strings.NewReplacer("2.-5", `"2.-5"`, "3.-5", `"3.-5"`)

func TestTextsOfTheReferenceAreWrittenAsTheyWere(t *testing.T) {
	texts := samples(t, "reference")
	spoilt := 0
	for name, text := range texts {
		v, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := Append([]byte("before "), v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := repaired.Replace(string(text))
		if want != string(text) {
			spoilt++
		}
		if string(got) != "before "+want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
	if len(texts) != 21 || spoilt != 4 {
		t.Errorf("%d texts, %d with floats; want 21 and 4", len(texts), spoilt)
	}
}

func samples(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/" + folder + "/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("testdata/%s: no samples (%v)", folder, err)
	}
	texts := map[string][]byte{}
	for _, name := range names {
		if texts[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

func TestWrittenSamplesAreUnderstood(t *testing.T) {
	texts := samples(t, "written")
	for name, want := range map[string]string{
		"nginx.ucl": `{"namebase":"fixture","version":"1.2.3_4","comment":"A small package for tests",` +
			`"section":[{"first":{"cache":65536,"wait":600.0,"retry":true}},{"second":{"third":{"path":"/usr/local/bin"}}}],` +
			`"users":[["www","mail","with space","single ' quote"],{"extra":31}]}`,
		"plain.json": `{"name":"js","n":-12,"f":1500.0,"big":9223372036854775807,"list":[1,2.25,"x",true,null,{"k":"v"},[]],` +
			`"text":"tab\t, quote \", é, 😀, slash /","nested":{"a":{"b":{"c":{}}}}}`,
		"heredoc.ucl": `{"desc":"line one\n  ${VAR} $VAR \"quoted\" \\n\nEODD","scripts":{"post-install":[{"code":"echo 1","args":"a b"}]}}`,
	} {
		if got := parsed(t, string(texts[name])); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestAppendWritesTheFormOfTheReference(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    Value
		want string
	}{
		{"keys are sorted", Object(Member{"b", Int(1)}, Member{"B", Int(2)}, Member{"a", Object(Member{"z", Int(3)}, Member{"y", Int(4)})}),
			"B: 2\na: {\n  y: 4\n  z: 3\n}\nb: 1\n"},
		{"keys are quoted", Object(Member{"a.b", Int(1)}, Member{"it's", Int(2)}, Member{`q"\`, Int(3)}, Member{"ü", Int(4)}, Member{"-x", Int(5)}, Member{"x-_9", Int(6)}),
			"\"-x\": 5\n\"a.b\": 1\n\"it\\'s\": 2\n\"q\\\"\\\\\": 3\nx-_9: 6\n\"ü\": 4\n"},
		{"strings", Object(Member{"a", String("\"\f\t\b\r\\\x01é\xff")}), "a: \"\\\"\\f\\t\\b\\r\\\\\\u0001é\xff\"\n"},
		{"lines", Object(Member{"a", Array(String("x\ny"))}), "a: [\n  <<EOD\nx\ny\nEOD\n]\n"},
		{"lines that a heredoc would lose", Object(Member{"a", String("x\n")}, Member{"b", String("x\nEOD\ny")}, Member{"c", String("EOD;\nx")}, Member{"d", String("x\nEODx")}),
			"a: \"x\\n\"\nb: \"x\\nEOD\\ny\"\nc: \"EOD;\\nx\"\nd: <<EOD\nx\nEODx\nEOD\n"},
		{"empty", Object(Member{"a", Array()}, Member{"o", Object()}, Member{"s", String("")}), "a: [\n]\no: {\n}\ns: \"\"\n"},
		{"floats", Object(Member{"a", Array(Float(1.5), Float(-2), Float(1e21), Float(5e-324), Float(1.05))}),
			"a: [\n  1.5\n  -2.0\n  1e+21\n  5e-324\n  1.05\n]\n"},
		{"others", Object(Member{"a", Array(Bool(true), Bool(false), Value{}, Int(math.MinInt64))}), "a: [\n  true\n  false\n  null\n  -9223372036854775808\n]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Append(nil, tt.v)
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %q, %v\nwant %q", got, err, tt.want)
			}
			if back, err := Parse(got); err != nil || !same(back, tt.v) {
				t.Errorf("reads back as %v, %v", back, err)
			}
		})
	}
}

func TestAppendRefusesWhatCannotBeReadBack(t *testing.T) {
	deep := func(n int) Value {
		v := Object()
		for range n - 1 {
			v = Object(Member{"d", v})
		}
		return v
	}
	for _, tt := range []struct {
		v    Value
		want string
	}{
		{Array(), `metadata: "": expected an object, found array`},
		{Object(Member{"a", Object(Member{"b\x07", Int(1)})}), `metadata: "a.b\a": expected a key without control bytes, found 0x07`},
		{Object(Member{"a\x7f", Int(1)}), `found 0x7f`},
		{Object(Member{"", Int(1)}), `expected a key, found none`},
		{Object(Member{"a", Int(1)}, Member{"a", Int(2)}), `metadata: "a": expected each key once, found it again`},
		{Object(Member{"a", Array(Float(math.NaN()))}), `metadata: "a": expected a finite number, found NaN`},
		{Object(Member{"a", Float(math.Inf(-1))}), `found -Inf`},
		{deep(65), `expected at most 64 arrays and objects within each other`},
	} {
		got, err := Append([]byte("kept"), tt.v)
		if _, ok := errors.AsType[*ValueError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if string(got) != "kept" {
			t.Errorf("%v: the buffer became %q", err, got)
		}
	}
	text, err := Append(nil, deep(64))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(text); err != nil {
		t.Errorf("64 objects within each other are not read back: %v", err)
	}
}

func TestJSONCanBeTakenBackToTheBytes(t *testing.T) {
	for _, s := range []string{"", "plain", "\xff\xfe", `C:\xampp`, `\x41`, `\\x41`, "é\x80\u2028\ufffd", "a\nb\x00\x1f<>&", `\`, "\xc3\x28"} {
		out, err := json.Marshal(Object(Member{s, Array(String(s))}))
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		var back map[string][]string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %s: %v", s, out, err)
		}
		for key, list := range back {
			if naming.Unescape(key) != s || naming.Unescape(list[0]) != s {
				t.Errorf("%q became %s", s, out)
			}
		}
	}
	if out, err := json.Marshal(Float(math.Inf(1))); err == nil {
		t.Errorf("infinity became %s", out)
	}
	if out, err := json.Marshal(Value{}); err != nil || string(out) != "null" {
		t.Errorf("null became %s, %v", out, err)
	}
}

func TestGettersSayWhetherTheyFoundTheirKind(t *testing.T) {
	v, err := Parse([]byte("a { b = text; n = 7; f = 1.5; t = yes; l = [x, y]; m = [x, 1]; e = [] }"))
	if err != nil {
		t.Fatal(err)
	}
	a := v.Get("a")
	if s, ok := v.Get("a", "b").Str(); s != "text" || !ok {
		t.Errorf("Str: %q, %v", s, ok)
	}
	if _, ok := a.Get("n").Str(); ok {
		t.Error("Str of an integer")
	}
	if n, ok := a.Get("n").Int(); n != 7 || !ok {
		t.Errorf("Int: %d, %v", n, ok)
	}
	if f, ok := a.Get("f").Float(); f != 1.5 || !ok {
		t.Errorf("Float: %v, %v", f, ok)
	}
	if b, ok := a.Get("t").Bool(); !b || !ok {
		t.Errorf("Bool: %v, %v", b, ok)
	}
	for key, want := range map[string][]string{"l": {"x", "y"}, "b": {"text"}, "e": {}} {
		if list, ok := a.Get(key).Strings(); !ok || !slices.Equal(list, want) {
			t.Errorf("Strings of %s: %q, %v", key, list, ok)
		}
	}
	for _, key := range []string{"m", "n", "missing"} {
		if list, ok := a.Get(key).Strings(); ok {
			t.Errorf("Strings of %s: %q", key, list)
		}
	}
	if got := v.Get("a", "b", "c").Kind(); got != KindNull {
		t.Errorf("below a string: %s", got)
	}
}

func TestWithLeavesTheOldTreeAlone(t *testing.T) {
	old := Object(Member{"a", Int(1)})
	changed := old.With("b", Int(2)).With("a", String("x"))
	for _, tt := range []struct {
		v    Value
		want string
	}{{old, `{"a":1}`}, {changed, `{"a":"x","b":2}`}, {Value{}.With("k", Bool(true)), `{"k":true}`}} {
		if got, _ := tt.v.MarshalJSON(); string(got) != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestWithoutNullsCountsThem(t *testing.T) {
	v, err := Parse([]byte("a = null\nb = [null, 1, [null]]\nc { d = null, e = 2 }"))
	if err != nil {
		t.Fatal(err)
	}
	rest, dropped := v.WithoutNulls()
	if got, _ := rest.MarshalJSON(); string(got) != `{"b":[1,[]],"c":{"e":2}}` || dropped != 4 {
		t.Errorf("got %s, %d dropped", got, dropped)
	}
}

// Each of these would take hours, or all memory, if some step were not linear.
func TestLongestTextsTakeLittle(t *testing.T) {
	testkit.Serial(t)
	fill := func(unit string) []byte { return []byte(strings.Repeat(unit, MaxText/len(unit))) }
	for name, text := range map[string][]byte{
		"words":            fill("a "),
		"words in lines":   fill("a b\n"),
		"comments":         fill("/*"),
		"heredocs":         fill("a <<E\n"),
		"one key":          fill("a=1\n"),
		"arrays":           append([]byte("a=["), fill("[]")[:MaxText-4]...),
		"objects":          append([]byte("a=["), fill("{}")[:MaxText-4]...),
		"small objects":    append([]byte("a=["), fill("{a 1}")[:MaxText-8]...),
		"numbers":          append([]byte("a=["), fill("1,")[:MaxText-4]...),
		"digits":           append([]byte("a="), fill("1")[:MaxText-4]...),
		"brackets in word": append([]byte("a=x"), fill("[")[:MaxText-4]...),
		"backslashes":      append([]byte(`a="`), fill(`\`)[:MaxText-4]...),
		"escapes":          append([]byte(`a="`), fill(`\u0001`)[:MaxText-8]...),
		"names":            append(fill("a ")[:120], fill("b ")[:MaxText-120]...),
		"quotes":           append([]byte("a = 1\n"), fill(`"a" `)[:MaxText-8]...),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(text)
			runtime.ReadMemStats(&after)
			if err != nil && !isSyntaxError(err) {
				t.Error(err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 96<<20 {
				t.Errorf("%d bytes allocated for a text of %d", used, len(text))
			}
		})
	}
	var distinct strings.Builder
	for i := 0; distinct.Len() < MaxText-16; i++ {
		distinct.WriteString("k" + string(rune('a'+i%26)) + strings.Repeat("x", i%7) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + "=1\n")
	}
	if _, err := Parse([]byte(distinct.String())); err != nil {
		t.Error(err)
	}
}

// same reports whether two trees are equal, except for the order of keys.
func same(a, b Value) bool {
	switch x := a.v.(type) {
	case []Value:
		return b.Kind() == KindArray && slices.EqualFunc(x, b.Elems(), same)
	case []Member:
		if b.Kind() != KindObject || len(x) != len(b.Members()) {
			return false
		}
		byKey := map[string]Value{}
		for _, m := range b.Members() {
			byKey[m.Key] = m.Value
		}
		for _, m := range x {
			if other, ok := byKey[m.Key]; !ok || !same(m.Value, other) {
				return false
			}
		}
		return true
	case float64:
		f, ok := b.Float()
		return ok && math.Float64bits(f) == math.Float64bits(x)
	}
	return a.v == b.v
}

func FuzzParse(f *testing.F) {
	for _, folder := range []string{"reference", "written"} {
		for _, text := range samples(f, folder) {
			f.Add(text)
		}
	}
	f.Add([]byte("a <<X\n\\u12\nX; 'b' \"\\ud800\\'\" { k -1.5e3kb, [/*\"*/\"*/] }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			fault, ok := errors.AsType[*SyntaxError](err)
			if !ok || fault.Line < 1 || fault.Col < 1 || fault.Expected == "" || fault.Found == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		if out, err := v.MarshalJSON(); err != nil || !json.Valid(out) {
			t.Fatalf("as json: %q, %v", out, err)
		}
		written, err := Append(nil, v)
		if err != nil {
			if _, ok := errors.AsType[*ValueError](err); !ok {
				t.Fatal(err)
			}
			return // a key with control bytes, or an array at the top
		}
		if len(written) > MaxText {
			return
		}
		back, err := Parse(written)
		if err != nil || !same(v, back) {
			t.Fatalf("%q\nwritten as %q\nreads back as %v, %v", text, written, back, err)
		}
		if again, err := Append(nil, back); err != nil || string(again) != string(written) {
			t.Fatalf("%q\nthen %q, %v", written, again, err)
		}
	})
}
