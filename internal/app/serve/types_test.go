package serve

import "testing"

func TestTextIsToldByItsBytes(t *testing.T) {
	for text, want := range map[string]string{
		"package main\n": plainText, "naïve ✓\r\n\ttab": plainText, "\x1b[31mred": plainText,
		"a\x00b": unknownType, "\x7fELF": unknownType, "\xff\xfe": unknownType, "caf\xe9": unknownType,
	} {
		if got := sniffed([]byte(text), true); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := sniffed([]byte("cut in a sign \xf0\x9f\x98"), false); got != plainText {
		t.Errorf("the beginning of a text is %s", got)
	}
	for name, want := range map[string]string{"cmd/main.go": plainText, "README": plainText, "a/Makefile": plainText, "x.GO": plainText, "x.unknown": unknownType, ".gitignore": plainText} {
		if got := typeOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestOnlyTakesPathsAndWhatIsBelowThem(t *testing.T) {
	only := map[string]bool{"a": true, "b/c": true}
	for name, want := range map[string]bool{"a": true, "a/x": true, "a/x/y": true, "ab": false, "b": false, "b/c": true, "b/c/": true, "b/cd": false, "": false} {
		if got := among(only, name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
