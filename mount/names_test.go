package mount

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNamesAreShownSoThatTheyCanBeTakenBack(t *testing.T) {
	long := strings.Repeat("é", 127) + "xé" // 257 bytes
	for _, c := range []struct{ dir, name, want string }{
		{".", "a", "a"},
		{".", "a b\n\xff", "a b\n\xff"},
		{"d", "d/a", "a"},
		{"d", `d/a\b`, `a\b`},
		{"d", `d/a\x2f`, `a\x5cx2f`},
		{".", `\x`, `\x5cx`},
		{".", "", `\x`},
		{".", "..", `\x2e\x2e`},
		{".", "../x", `..\x2fx`},
		{".", "/etc/passwd", `\x2fetc\x2fpasswd`},
		{".", "a//b", `a\x2f\x2fb`},
		{"d", "d/\xff", "\xff"},
		{".", "a\x00b", `a\x00b`},
		{".", `..\x2fx`, `..\x5cx2fx`},
	} {
		got := shown(c.dir, c.name)
		if got != c.want {
			t.Errorf("%q in %s: expected %q, found %q", c.name, c.dir, c.want, got)
		}
		if back, ok := named(c.dir, got); !ok || back != c.name {
			t.Errorf("%q in %s is taken back as %q, %v", got, c.dir, back, ok)
		}
	}
	for _, s := range []string{`\x41`, `a\x2`, `\x5c`, `a\x2fb`} {
		if name, ok := named(".", s); ok {
			t.Errorf("%q stands for %q, though that is never shown so", s, name)
		}
	}
	for _, name := range []string{long, "../" + strings.Repeat("/", 90), strings.Repeat(`\x`, 60) + strings.Repeat("y", 200)} {
		s := shown(".", name)
		if len(s) > mostName || !utf8.ValidString(s) || !isCut(s) || s == shown(".", name+"z") {
			t.Errorf("%q is shown as %q", name, s)
		}
	}
	if isCut(shown(".", `\x~`+strings.Repeat("0", 32)+"y")) {
		t.Error("a name that looks as if it were cut is taken for one")
	}
}

func FuzzNames(f *testing.F) {
	f.Add(".", "../x")
	f.Add("d", `d/\x2f`)
	f.Fuzz(func(t *testing.T, dir, name string) {
		s := shown(".", name)
		if s == "" || s == "." || s == ".." || len(s) > mostName || strings.ContainsAny(s, "/\x00") {
			t.Fatalf("%q is shown as %q", name, s)
		}
		if back, ok := named(".", s); !isCut(s) && ok && back != name {
			t.Fatalf("%q is shown as %q, which stands for %q", name, s, back)
		}
	})
}
