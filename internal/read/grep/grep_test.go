package grep

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", longestLine+5) + "needle"
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a\nneedle one\r\nb\n\nno\ntwo needle", "2@2 needle one;6@20 two needle;"},
		{"needle\n", "1@0 needle;"},
		{"\x00\nneedle\nneedle\n", "2@2 needle binary;3@9 needle binary;"},
		{long + "\nneedle", fmt.Sprintf("1@%d xxxxxneedle;2@%d needle;", longestLine, len(long)+1)},
	} {
		got := ""
		for m, err := range Lines(strings.NewReader(c.text), regexp.MustCompile("needle").Match) {
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf("%d@%d %s", m.Line, m.Off, m.Text)
			if m.Binary {
				got += " binary"
			}
			got += ";"
		}
		if got != c.want {
			t.Errorf("%.40q: %.80q, want %.80q", c.text, got, c.want)
		}
	}
	broken := errors.New("broken")
	for _, at := range []int{0, 20, 20_000} {
		in := io.MultiReader(strings.NewReader(strings.Repeat("needle\n", at)), iotest.ErrReader(broken))
		var last error
		n := 0
		for _, err := range Lines(in, regexp.MustCompile("needle").Match) {
			if last = err; err == nil {
				n++
			}
		}
		if !errors.Is(last, broken) {
			t.Errorf("after %d lines of %d: %v", n, at, last)
		}
	}
}
