package explore_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/tar"
	"github.com/holdall/holdall/store/storetest"
)

type results struct {
	Total, Found int64
	Complete     bool
	Error        string
	Items        []row
}

// found searches until the results are complete.
func (s *site) found(args ...string) (names []string, r results) {
	s.t.Helper()
	for !r.Complete {
		r = ask[results](s, "/api/search", append([]string{"a", "x"}, args...)...)
	}
	for _, x := range r.Items {
		names = append(names, x.N)
	}
	return names, r
}

func TestSearchFindsWordsOfAnyCase(t *testing.T) {
	s := serving(t, opened(oddArchive(t), "x.caf", caf.Format))
	for round := range 2 { // from the archive, and then from the survey
		for q, want := range map[string]string{"TWO": "a/b/two.txt", "b thr": "a/b/three.bin", "àé": "ÀÉ.txt", `raw\xff`: `raw\xff\xfe`} {
			q += strings.Repeat(" ", round) // not what is kept of the first
			if names, r := s.found("q", q); !slices.Equal(names, []string{want}) || r.Total != 1 || r.Found != 1 {
				t.Errorf("round %d: %q finds %q, expected %q", round, q, names, want)
			}
		}
		if names, r := s.found("q", "nothing has this"+strings.Repeat(" ", round)); len(names) != 0 || r.Found != 0 {
			t.Errorf("it finds %q", names)
		}
		if names, _ := s.found("q", "two"+strings.Repeat(" ", round), "path", "a/b"); !slices.Equal(names, []string{"two.txt"}) {
			t.Errorf("below a/b it finds %q", names)
		}
		ask[struct{}](s, "/api/treemap", "a", "x") // has the archive surveyed
	}
}

var firstDay = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// collection has n pictures and texts of different sizes and days.
func collection(t testing.TB, n int) *storetest.Mem {
	t.Helper()
	m := &storetest.Mem{}
	w, err := tar.Format.Create(t.Context(), m, "x.tar", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		content := strings.Repeat("x", i%100)
		e := holdall.Entry{Name: fmt.Sprintf("set-%d/item-%06d.%s", i%7, i, []string{"png", "txt"}[i%2]), Size: int64(len(content)), ModTime: firstDay.AddDate(0, 0, i%10)}
		if i%11 == 0 {
			e.ModTime = time.Time{}
		}
		if err := w.Add(t.Context(), e, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add(t.Context(), holdall.Entry{Name: "item-folder", Kind: format.Dir}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnyRangeOfResults pages through results in each order, before and after
// the archive is surveyed.
func TestAnyRangeOfResults(t *testing.T) {
	const n = 5000
	s := serving(t, opened(collection(t, n), "x.tar", tar.Format))
	for round := range 2 {
		q := "item" + strings.Repeat(" ", round)
		for _, by := range []string{"name", "size", "time"} {
			for _, dir := range []string{"asc", "desc"} {
				var rows []row
				for len(rows) < n+1 {
					_, r := s.found("q", q, "sort", by, "dir", dir, "offset", strconv.Itoa(len(rows)), "limit", "1999")
					if r.Total != n+1 || r.Found != n+1 || len(r.Items) != min(1999, n+1-len(rows)) {
						t.Fatalf("%s %s from %d: %d of %d", by, dir, len(rows), len(r.Items), r.Total)
					}
					rows = append(rows, r.Items...)
				}
				seen := map[string]bool{}
				value := func(r row) string {
					switch {
					case by == "name":
						return r.N
					case by == "size":
						return fmt.Sprintf("%020d", *r.S)
					case r.T == nil:
						return ""
					}
					return fmt.Sprintf("%020d", *r.T)
				}
				for i, r := range rows {
					if seen[r.N] = true; i < 2 {
						continue // the folder is the first
					}
					if a, b := value(rows[i-1]), value(r); dir == "asc" && a > b || dir == "desc" && a < b {
						t.Fatalf("%s %s: %q is before %q", by, dir, a, b)
					}
				}
				if len(seen) != n+1 || rows[0].N != "item-folder" {
					t.Errorf("%s %s: %d results, the first is %q", by, dir, len(seen), rows[0].N)
				}
			}
		}
		ask[struct{}](s, "/api/treemap", "a", "x")
	}
}

// TestResultsAreFiltered compares filters with a look at each entry.
func TestResultsAreFiltered(t *testing.T) {
	const n = 1000
	s := serving(t, opened(collection(t, n), "x.tar", tar.Format))
	day := func(i int) string { return strconv.FormatInt(firstDay.AddDate(0, 0, i).UnixMilli(), 10) }
	for _, c := range []struct {
		args []string
		want func(i int) bool
		dirs int
	}{
		{[]string{"kind", "pictures"}, func(i int) bool { return i%2 == 0 }, 0},
		{[]string{"kind", "pictures,folders"}, func(i int) bool { return i%2 == 0 }, 1},
		{[]string{"q", "item-00099", "kind", "text"}, func(i int) bool { return i >= 990 && i%2 == 1 }, 0},
		{[]string{"min", "98"}, func(i int) bool { return i%100 >= 98 }, 0},
		{[]string{"min", "10", "max", "12"}, func(i int) bool { return i%100 >= 10 && i%100 <= 12 }, 0},
		{nil, func(i int) bool { return true }, 1},
		{[]string{"max", "0"}, func(i int) bool { return i%100 == 0 }, 0},
		{[]string{"since", day(8)}, func(i int) bool { return i%11 != 0 && i%10 >= 8 }, 0},
		{[]string{"since", day(2), "until", day(4)}, func(i int) bool { return i%11 != 0 && (i%10 == 2 || i%10 == 3) }, 0},
		{[]string{"q", `ITEM-0+[0-8]\.(png|txt)$`, "match", "regexp"}, func(i int) bool { return i < 9 }, 0},
		{[]string{"q", "^item-f", "match", "regexp"}, func(i int) bool { return false }, 1},
		{[]string{"q", "item", "match", "regexp", "kind", "text", "min", "50", "since", day(9)}, func(i int) bool { return i%11 != 0 && i%2 == 1 && i%100 >= 50 && i%10 == 9 }, 0},
	} {
		want := c.dirs
		for i := range n {
			if c.want(i) {
				want++
			}
		}
		if _, r := s.found(c.args...); r.Found != int64(want) {
			t.Errorf("%q finds %d, expected %d", c.args, r.Found, want)
		}
	}
	for _, args := range [][]string{{"kind", "nonsense"}, {"q", "(", "match", "regexp"}, {"q", "x", "match", "glob"}, {"q", "x", "min", "-1"}, {"q", "x", "since", "then"}, {"q", strings.Repeat("a", 201)}} {
		if status, b, _ := s.get("/api/search", append([]string{"a", "x"}, args...)...); status != 400 || bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("%q: %d %s", args, status, b)
		}
	}
}

// TestResultsAreOneZip unpacks what a search finds.
func TestResultsAreOneZip(t *testing.T) {
	s := serving(t, opened(collection(t, 300), "x.tar", tar.Format))
	status, b, head := s.get("/api/search.zip", "a", "x", "q", "item-00029", "kind", "text")
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if status != 200 || err != nil || !strings.Contains(head.Get("Content-Disposition"), "x.zip") {
		t.Fatalf("%d: %v: %v", status, err, head)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, fmt.Sprintf("%s %d", f.Name, f.UncompressedSize64))
	}
	slices.Sort(names)
	want := []string{}
	for i := 291; i < 300; i += 2 {
		want = append(want, fmt.Sprintf("set-%d/item-%06d.txt %d", i%7, i, i%100))
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("it has %q, expected %q", names, want)
	}
	if status, _, _ := s.get("/api/search.zip", "a", "x", "q", "(", "match", "regexp"); status != 400 {
		t.Errorf("of an expression that is wrong: %d", status)
	}
}
