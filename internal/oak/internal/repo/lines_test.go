package repo

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

var lineEnd = regexp.MustCompile("\r\n|\r|\n")

// forwards reads lines the other way.
func forwards(b []byte) (all []string) {
	at := 0
	for _, m := range lineEnd.FindAllIndex(b, -1) {
		all = append(all, fmt.Sprint(at, string(b[at:min(m[0], at+maxText)]), false))
		at = m[1]
	}
	if at < len(b) {
		all = append(all, fmt.Sprint(at, string(b[at:min(len(b), at+maxText)]), true))
	}
	slices.Reverse(all)
	return all
}

func sameLines(t *testing.T, b []byte) {
	t.Helper()
	var got []string
	for l, err := range backwards(t.Context(), object(t, b)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(l.off, string(l.text), l.torn))
	}
	want := forwards(b)
	// A first line without bytes is nothing to anyone.
	if n := len(want); n > 0 && want[n-1] == fmt.Sprint(0, "", false) {
		want = want[:n-1]
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%.200q: %d lines, expected %d", b, len(got), len(want))
	}
}

func TestLinesBackwardsAreThoseForwards(t *testing.T) {
	testkit.Serial(t)
	for _, s := range []string{"", "\n", "a", "a\n", "\na", "a\r\n", "a\rb", "a\n\n", "a\r\n\r\nb", "a\r\r\nb\n\r", "\r\n"} {
		sameLines(t, []byte(s))
	}
	r := testkit.Rand(t)
	ends := []string{"\n", "\n", "\n", "\r\n", "\r", "\n\n"}
	for range 8 {
		var b bytes.Buffer
		longest := []int{3, 80, maxText + 10, 3 * window}[r.IntN(4)]
		for b.Len() < window+5*longest {
			b.WriteString(strings.Repeat("x", r.IntN(longest)))
			b.WriteString(ends[r.IntN(len(ends))])
		}
		sameLines(t, b.Bytes()[:b.Len()-r.IntN(3)])
	}
	// Both bytes of an end in two windows.
	for n := window - 3; n < window+3; n++ {
		sameLines(t, []byte("first\r\n"+strings.Repeat("x", n)+"\n"))
	}
}

func FuzzLinesBackwards(f *testing.F) {
	f.Add([]byte("a\r\n\nb"))
	f.Fuzz(func(t *testing.T, b []byte) { sameLines(t, b) })
}

func TestJournalIsReadFromItsEnd(t *testing.T) {
	var b bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&b, "486aa03b-5c65-4d55-ad28-72210ab8c5e7:%d root 1795220663942\n", i)
	}
	st := &storetest.Mem{}
	st.Put(Journal, b.Bytes())
	var requests strings.Builder
	traced := storetest.Trace(st, &requests)
	for e, err := range Entries(t.Context(), opened(t, traced, Journal)) {
		if err != nil || e.Number != 199_999 {
			t.Fatal(e, err)
		}
		break
	}
	if want := fmt.Sprintf("info %s\nread %s at %d+%d\n", Journal, Journal, b.Len()-window, window); requests.String() != want {
		t.Errorf("requests %q, expected %q", requests.String(), want)
	}
}
