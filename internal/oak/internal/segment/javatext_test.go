package segment

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// What Java 17 makes of bytes that are not UTF-8: new String(b, UTF_8), again as
// bytes, and its hashCode.
var javaReads = []struct {
	bytes, read string
	hash        int32
}{
	{"efbf8f8f", "efbf8fefbfbd", 2095630},
	{"e0ffedc0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"e1f480", "efbfbdefbfbd", 2097056},
	{"bf8080f0f5", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"e0c2f1", "efbfbdefbfbdefbfbd", 65074269},
	{"f0c2ee", "efbfbdefbfbdefbfbd", 65074269},
	{"9f9ff0a0", "efbfbdefbfbdefbfbd", 65074269},
	{"fff0edbff5", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"90e19f90", "efbfbde19f90", 2037619},
	{"418fff", "41efbfbdefbfbd", 2159521},
	{"dfc0e0", "efbfbdefbfbdefbfbd", 65074269},
	{"edf590df", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"fff49f80c0", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"bfee80eec0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"c2eeefc0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"8fbfe0bf", "efbfbdefbfbdefbfbd", 65074269},
	{"eee1f5e1", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"f0efe1c0c0", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"909f8fa0e1", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"e0a0ed", "efbfbdefbfbd", 2097056},
	{"80f19f41ef", "efbfbdefbfbd41efbfbd", 2015338364},
	{"e0a0f5bf80", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"efe1f5c0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"80bf8fdfff", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"df8ff0", "df8fefbfbd", 127502},
	{"f480ee8fa0", "efbfbdee8fa0", 2089859},
	{"8f80a09f", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"eec0efbf", "efbfbdefbfbdefbfbd", 65074269},
	{"9fc0f4df", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"a0bf41c0c0", "efbfbdefbfbd41efbfbdefbfbd", -1948954623},
	{"dfefa0f1", "efbfbdefbfbdefbfbd", 65074269},
	{"8ff5ffc2ee", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"e1ff8f", "efbfbdefbfbdefbfbd", 65074269},
	{"dfff", "efbfbdefbfbd", 2097056},
	{"8ff19fa0", "efbfbdefbfbd", 2097056},
	{"8fee", "efbfbdefbfbd", 2097056},
	{"c0f4f1e0e1", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"80f0a0e0", "efbfbdefbfbdefbfbd", 65074269},
	{"f5ffbfede0", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"f0f4f4", "efbfbdefbfbdefbfbd", 65074269},
	{"ef9ff4c2", "efbfbdefbfbdefbfbd", 65074269},
	{"f1df80", "efbfbddf80", 2033507},
	{"efefa0", "efbfbdefbfbd", 2097056},
	{"f48f80edf1", "efbfbdefbfbdefbfbd", 65074269},
	{"80c0eff5e0", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
	{"bff1ed41c0", "efbfbdefbfbdefbfbd41efbfbd", -1888069383},
	{"f0f0f5a0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"41c0ff8fe1", "41efbfbdefbfbdefbfbdefbfbd", 2077396737},
	{"f5f5ee", "efbfbdefbfbdefbfbd", 65074269},
	{"a0c2df", "efbfbdefbfbdefbfbd", 65074269},
	{"f5ffdff4", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"f09f90bff1", "f09f90bfefbfbd", 55011483},
	{"ff9fef41", "efbfbdefbfbdefbfbd41", 2017302404},
	{"dffff5f0", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"bfc0ed", "efbfbdefbfbdefbfbd", 65074269},
	{"edf0edf5", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"eda0df", "efbfbdefbfbd", 2097056},
	{"f1e0eff441", "efbfbdefbfbdefbfbdefbfbd41", -1886105343},
	{"90f1c2ee", "efbfbdefbfbdefbfbdefbfbd", 2017367872},
	{"c0f1fff0ee", "efbfbdefbfbdefbfbdefbfbdefbfbd", -1886039875},
}

func TestFaultyTextReadsAsInJava(t *testing.T) {
	for _, c := range javaReads {
		b, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString([]byte(asJava(string(b)))); got != c.read || javaHash(string(b)) != c.hash {
			t.Errorf("%s: %s, hash %d; expected %s, %d", c.bytes, got, javaHash(string(b)), c.read, c.hash)
		}
	}
}

func TestTextIsHashedAndOrderedByUTF16(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	runes := []rune{'a', 'b', 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffee, 0xffff, 0x10000, 0x1f600, 0x10ffff}
	text := func() string {
		var b strings.Builder
		for range r.IntN(5) {
			b.WriteRune(runes[r.IntN(len(runes))])
		}
		return b.String()
	}
	for range 20000 {
		a, b := text(), text()
		x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
		if got, want := compareUTF16(a, b), slices.Compare(x, y); got != want {
			t.Fatalf("%q, %q: %d, expected %d", a, b, got, want)
		}
		var h int32
		for _, u := range x {
			h = 31*h + int32(u)
		}
		if javaHash(a) != h {
			t.Fatalf("%q: %d, expected %d", a, javaHash(a), h)
		}
	}
	for text, want := range map[string]int32{"": 0, "Aa": 2112, "BB": 2112, "jcr:primaryType": 1317115067} {
		if got := javaHash(text); got != want {
			t.Errorf("%q: %d, expected %d", text, got, want)
		}
	}
}
