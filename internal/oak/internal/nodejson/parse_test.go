package nodejson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// The same strings are accepted as by the standard library, except for unpaired surrogates and
// bytes that are not UTF-8, which no export has.
func FuzzStringsAreThoseOfJSON(f *testing.F) {
	for _, s := range []string{``, `a`, `"`, `\`, `\"`, `\\`, `\\"`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\u12`, `\x`, "\n", `\n\t\r\b\f\/`, `é`, `a"b`, "\xff", `\uD83D\uDE00x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := append(append([]byte{'"'}, raw...), '"')
		var want string
		refused := json.Unmarshal(in, &want)
		p := parserOf(in)
		got := p.text()
		p.End()
		err := p.Err
		if err != nil && (!utf8.Valid(in) || strings.Contains(err.Error(), "surrogates")) {
			return
		}
		if (err == nil) != (refused == nil) || got != want && err == nil {
			t.Errorf("%q: %q, %v; encoding/json has %q, %v", in, got, err, want, refused)
		}
	})
}

func TestLinesThatAreNoJSON(t *testing.T) {
	for _, in := range []string{
		``, `{`, `{}x`, `{"path":"/a",}`, `{"path":"/a" "lost":"x"}`, `{"path" "/a"}`, `{,"path":"/a"}`, `{"path":"/a","lost":"x"}}`, `["path"]`,
		`{"path":"/a","properties":{"x":{"type":"Long","multiple":true,"values":["1",]}}}`, `{"path":"/a","properties":{"x":{"type":"Long","multiple":false,"values":[]}}}`,
		`{"path":"/a","path":"/b","lost":"x"}`, `{"path":"/a","property":"x","index":01,"offset":0,"text":"y"}`, `{"path":"/a","property":"x","index":-1,"offset":0,"text":"y"}`,
		`{"path":"/a","property":"x","index":1.5,"offset":0,"text":"y"}`, `{"path":"/a","lost":"x"` + "\x00}",
		`{"path":"/a","properties":{"x":{"type":"Binary","length":3,"base64":"AA\u003d\u003d"}}}`,
	} {
		p := parserOf([]byte(in))
		p.line()
		if p.End(); p.Err == nil {
			t.Errorf("%s: no error", in)
		}
	}
}
