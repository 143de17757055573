package charset

import (
	"errors"
	"io/fs"
	"testing"
)

func decoder(t testing.TB, name string) func(string) string {
	t.Helper()
	d, err := Of("zip", map[string]string{"charset": name})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNamesAreDecoded(t *testing.T) {
	for _, c := range []struct{ set, bytes, want string }{
		{"cp932", "\x93\xfa\x96{.txt", "日本.txt"},
		{"Shift_JIS", "\x95\\", "表"}, // its second byte is a backslash
		{"cp437", "\x81ber", "über"},
		{"cp850", "\xb5", "Á"},
		{"CP1252", "\x80", "€"},
		{"gbk", "\xd6\xd0", "中"},
		{"cp949", "\xb0\xa1", "가"},
		{"cp950", "\xa4\xa4", "中"},
		{"cp932", "\xff\xff", "\xff\xff"}, // not of this set
		{"cp932", "plain", "plain"},
	} {
		if got := decoder(t, c.set)(c.bytes); got != c.want {
			t.Errorf("%q in %s is %q, expected %q", c.bytes, c.set, got, c.want)
		}
	}
	if d, err := Of("zip", nil); d != nil || err != nil {
		t.Errorf("without the parameter: %v", err)
	}
	for _, name := range []string{"x", "cp", "utf-99"} {
		if _, err := Of("zip", map[string]string{"charset": name}); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
