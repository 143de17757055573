package explore

import "testing"

func TestKindsOfNames(t *testing.T) {
	for name, want := range map[string]kind{
		"a.jpg": pictureKind, "a/B.JPG": pictureKind, "aac": otherKind, "a.aac": soundKind, "x/go": otherKind, "main.go": codeKind, "Makefile": codeKind, "README": textKind,
		"0.1.2": arrayKind, "lib.so.6": programKind, ".zattrs": dataKind, "": otherKind,
	} {
		if got := kindOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, kindNames[got], kindNames[want])
		}
	}
}
