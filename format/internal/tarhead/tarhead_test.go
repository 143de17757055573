package tarhead

import "testing"

func TestOctal(t *testing.T) {
	for field, want := range map[string]int64{
		"0000016\x00": 14, "     16 ": 14, "16 \x00\x00\x00\x00\x00": 14, "00000016": 14, "\x00    16\x00": 14, "16\x0077777": 14,
		"\x00\x00\x000016": 0, "        ": 0, "\x00\x00\x00\x00\x00\x00\x00\x00": 0, "": 0,
	} {
		if n, ok := Octal([]byte(field)); n != want || !ok {
			t.Errorf("%q: %d, %t", field, n, ok)
		}
	}
	for _, field := range []string{"1 6", "8", "-1", "x"} {
		if n, ok := Octal([]byte(field)); ok {
			t.Errorf("%q: %d", field, n)
		}
	}
}
