package screen

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "a/b.txt": 7, "é": 1, "e\u0301": 1, "日本語": 6, "✅": 2, "😀": 2, "…": 1, "ｱ": 1, "Ａ": 2, "한글": 4, "נ\u05b8": 1,
	} {
		if got := Width(s); got != want {
			t.Errorf("%q takes %d columns, not %d", s, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		s       string
		columns int
		want    string
	}{
		{"abc", 3, "abc"}, {"abcdefgh", 8, "abcdefgh"}, {"abcdefgh", 7, "abc…fgh"}, {"abcdefgh", 6, "abc…gh"}, {"abcdefgh", 3, "a…h"}, {"abcdefgh", 2, "…"},
		{"日本語日本語", 7, "日…語"}, {"日本語日本語", 8, "日本…語"},
		{"e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"}, {"e\u0301e\u0301e\u0301e\u0301", 4, "e\u0301e\u0301e\u0301e\u0301"},
		{"abcd日\u0301", 4, "ab…"}, // the sign that combines goes with what it combines with
	} {
		if got := Shorten(tt.s, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns is %q, not %q", tt.s, tt.columns, got, tt.want)
		}
	}
	name := strings.Repeat("e\u0301", 60) + strings.Repeat("名", 40) + ".tar.gz"
	if got := Shorten(name, 80); Width(got) > 80 || Width(got) < 78 || !strings.HasSuffix(got, ".tar.gz") {
		t.Errorf("%q takes %d columns", got, Width(got))
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("a日e\u0301😀", 4)
	f.Fuzz(func(t *testing.T, s string, columns int) {
		got := Shorten(s, columns)
		if n := Width(got); n > max(columns, 1) {
			t.Fatalf("%q in %d columns takes %d", s, columns, n)
		}
		_, after, cut := strings.Cut(got, "…")
		if r, _ := utf8.DecodeRuneInString(after); cut && !strings.Contains(s, "…") && unicode.Is(unicode.Mn, r) {
			t.Fatalf("%q in %d columns is %q, which begins a part with a mark", s, columns, got)
		}
	})
}
