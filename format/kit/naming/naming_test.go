package naming

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
)

func TestNameFault(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"a", ""}, {"a/b.txt", ""}, {"..a/b", ""}, {"a..b", ""}, {`dir\file.txt`, ""}, {"Ünï/©", ""}, {"∕etc", ""},
		{"", "name-empty"}, {".", "name-empty"},
		{"a\x00b", "name-nul"},
		{"/abs", "name-absolute"}, {"//server/share", "name-absolute"}, {`\abs`, ""},
		{"..", "name-traversal"}, {"../x", "name-traversal"}, {"a/../b", "name-traversal"}, {`a\..\..\b`, "name-traversal"}, {"a/..", "name-traversal"},
		{`C:\x`, "name-drive"}, {`c:\`, "name-drive"}, {`1:\x`, ""}, {"C:", ""}, {"c:x", ""}, {"a:b/c", ""}, {"C:/x", ""}, {"b/a:c", ""},
		{"a//b", "name-unclean"}, {"./x", "name-unclean"}, {"dir/", "name-unclean"}, {"a/./b", "name-unclean"}, {`a\\b`, ""},
	} {
		if got := nameFaultOn(false, tt.name); got != tt.want {
			t.Errorf("NameFault(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
	for name, want := range map[string]string{`\abs`: "name-absolute", `a\\b`: "name-unclean", `a\b`: ""} {
		if got := nameFaultOn(true, name); got != want {
			t.Errorf("NameFault(%q) on Windows = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"C:", `C:\x`, "c:x", "C:/x"} {
		if got := nameFaultOn(true, name); got != "name-drive" {
			t.Errorf("NameFault(%q) on Windows = %q", name, got)
		}
	}
	long := make([]byte, 256)
	for i := range long {
		long[i] = 'x'
	}
	if got := Fault("a/" + string(long)); got != "name-too-long" {
		t.Errorf("element of 256 bytes: %q", got)
	}
	if got := Fault(string(long[:255])); got != "" {
		t.Errorf("element of 255 bytes: %q", got)
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"plain", "a\nb", "\xff\xfe", `\x41`, `\`, `\\x00`, "\u202e", "�", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := format.Escape(s)
		if !utf8.ValidString(e) {
			t.Fatalf("Escape(%q) = %q is not UTF-8", s, e)
		}
		for _, r := range e {
			if r < 0x20 || r == 0x7f {
				t.Fatalf("Escape(%q) = %q keeps a control character", s, e)
			}
		}
		if got := Unescape(e); got != s {
			t.Fatalf("Unescape(Escape(%q)) = %q by way of %q", s, got, e)
		}
	})
}

func TestValidPathLooksAtEachElement(t *testing.T) {
	elements := []string{"", ".", "..", "a", "...", "b\xff", ".c"}
	for _, first := range elements {
		for _, second := range append(elements, "none") {
			for _, third := range append(elements, "none") {
				path := []string{first}
				for _, e := range []string{second, third} {
					if e != "none" {
						path = append(path, e)
					}
				}
				name := strings.Join(path, "/")
				valid := name == "." || !slices.ContainsFunc(path, func(e string) bool { return e == "" || e == "." || e == ".." })
				if got := ValidPath(name); got != valid {
					t.Errorf("ValidPath(%q) is %v", name, got)
				}
			}
		}
	}
}
