package oak

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// decoded is the name of an element of a path, using only what docs/oak.md describes.
func decoded(elem string) string {
	if elem == "%" {
		return ""
	}
	var name strings.Builder
	for i := 0; i < len(elem); i++ {
		if elem[i] == '%' && len(elem)-i > 2 && strings.Trim(elem[i+1:i+3], "0123456789ABCDEF") == "" {
			n, _ := strconv.ParseUint(elem[i+1:i+3], 16, 8)
			if b := byte(n); b < 0x20 || b >= 0x7f || strings.Contains(`%./:\`, string(rune(b))) {
				name.WriteByte(b)
				i += 2
				continue
			}
		}
		name.WriteByte(elem[i])
	}
	return name.String()
}

func TestNamesAreDecodedByTheRuleOfTheDocs(t *testing.T) {
	names := []string{"", ".", "..", "...", "%", "%%", "%41", "%5C", "%5c", "%2F", "%25", "%252F", "%prop", "a%prop", "%lost1", "%lost", "a/b", `a\b`, "c:", "c:d", "jcr:content", "100%", "ä", "%C3%A4", "\xff", "a\x00", "\x7f", "\u0085"}
	for i := range 256 {
		for _, form := range []string{"%s", "a%s", "%s.", "%%%s", "%%2%s"} {
			names = append(names, fmt.Sprintf(form, string([]byte{byte(i)})), fmt.Sprintf(form, fmt.Sprintf("%%%02X", i)))
		}
	}
	rnd := testkit.Rand(t)
	for range 20_000 {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteString([]string{"%", "2", "5", "C", "F", "E", ".", ":", "/", `\`, "a", "prop", "lost", "ä", "\xc3", "\n"}[rnd.IntN(16)])
		}
		names = append(names, b.String())
	}
	seen := map[string]string{}
	for _, name := range names {
		for _, top := range []bool{false, true} {
			elem := writeTreeName(name, top)
			if got := decoded(elem); got != name {
				t.Errorf("%q is written as %q, which is decoded as %q", name, elem, got)
			}
			if other, ok := seen[elem]; ok && other != name {
				t.Errorf("%q and %q are both written as %q", name, other, elem)
			}
			seen[elem] = name
		}
	}
}
