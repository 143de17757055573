package main

import (
	"encoding/json"
	"testing"
)

func FuzzJSONString(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c", "\x00\x1f\x7f", "ü€😀", "x\u2028y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s, _ = shown(s) // always UTF-8, as all that is printed
		var got string
		if b := appendJSONString(nil, s); json.Unmarshal(b, &got) != nil || got != s {
			t.Fatalf("%q came back as %q from %s", s, got, b)
		}
	})
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "30GB": 30_000_000_000, "30gb": 30_000_000_000, "512MiB": 512 << 20, "1.5K": 1536, "2 TiB": 2 << 40, "7b": 7,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "GB", "-1", "1e30", "NaN", "12 parsecs", "1XB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q is %d", in, got)
		}
	}
}

func TestByteRange(t *testing.T) {
	for _, tt := range []struct {
		in     string
		off, n int64 // of a file of 10 bytes
	}{
		{"0-5", 0, 5}, {"3-", 3, 7}, {"-4", 6, 4}, {"-40", 0, 10}, {"5-5", 5, 0}, {"8-100", 8, 2}, {"20-30", 10, 0}, {"20-", 10, 0}, {"-0", 10, 0},
	} {
		var r byteRange
		if err := r.Set(tt.in); err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if off, n := r.of(10); off != tt.off || n != tt.n {
			t.Errorf("%s: %d+%d, want %d+%d", tt.in, off, n, tt.off, tt.n)
		}
	}
	for _, in := range []string{"", "-", "x", "1", "3-1", "a-b", "1-b", "--3"} {
		if (&byteRange{}).Set(in) == nil {
			t.Errorf("%q is taken", in)
		}
	}
}
