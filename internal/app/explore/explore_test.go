package explore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// packed writes a CAF in memory, in the order of names.
func packed(t testing.TB, each func(add func(name, content string))) *storetest.Mem {
	t.Helper()
	m := &storetest.Mem{}
	w, err := caf.Format.Create(t.Context(), m, "x.caf", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	each(func(name, content string) {
		if err := w.Add(t.Context(), holdall.Entry{Name: name, Size: int64(len(content))}, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

var odd = map[string]string{
	"a/one.txt": "one", "a/b/two.txt": "two two", "a/b/three.bin": strings.Repeat("3", 5000), "top": "t",
	"../up": "up", "a//c": "double", "raw\xff\xfe": "bytes", "<i>&\"": "markup", "nul\x00": "nul", "ÀÉ.txt": "accents", `back\x41`: "back",
}

func oddArchive(t testing.TB) *storetest.Mem {
	return packed(t, func(add func(string, string)) {
		for name, content := range odd {
			add(name, content)
		}
	})
}

type site struct {
	t   testing.TB
	h   *explore.Handler
	srv *httptest.Server
}

func serving(t testing.TB, list ...serve.Source) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	set := serve.NewSet(serve.SetOptions{Log: log})
	for _, src := range list {
		set.Add(src)
	}
	return exploring(t, set)
}

// exploring starts an explorer of a set.
func exploring(t testing.TB, set *serve.Set) *site {
	t.Helper()
	h := explore.New(set, explore.Options{Log: slog.New(slog.DiscardHandler)})
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		h.Close()
		set.Close()
	})
	return &site{t, h, srv}
}

// opened returns a source for an archive called x.
func opened(st store.Store, name string, f *format.Format) serve.Source {
	return serve.Source{Name: "x", Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		in, err := holdall.Open(ctx, name, holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{f}})
		return in, "", err
	}}
}

func (s *site) get(path string, args ...string) (int, []byte, http.Header) {
	s.t.Helper()
	q := url.Values{}
	for i := 0; i < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	res, err := http.Get(s.srv.URL + path + "?" + q.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, b, res.Header
}

// ask requests JSON.
func ask[T any](s *site, path string, args ...string) (v T) {
	s.t.Helper()
	code, b, _ := s.get(path, args...)
	if code != http.StatusOK {
		s.t.Fatalf("%s %q: %d %s", path, args, code, b)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		s.t.Fatalf("%s %q: %v: %s", path, args, err, b)
	}
	return v
}

type row struct {
	N     string
	K     string
	S, T  *int64
	C     int64
	Whole bool
	With  []string
}

type page struct {
	Total, Dirs, Files, Pictures, At int64
	Complete                         bool
	Items                            []row
}

func TestOddNamesAreListedAndRead(t *testing.T) {
	s := serving(t, opened(oddArchive(t), "x.caf", caf.Format))
	for p := ask[page](s, "/api/ls", "a", "x"); ; p = ask[page](s, "/api/ls", "a", "x") {
		if !p.Complete {
			continue
		}
		seen := map[string]bool{}
		for _, r := range p.Items {
			if r.K == "dir" {
				continue
			}
			name := naming.Unescape(r.N)
			seen[name] = true
			code, b, _ := s.get("/api/content", "a", "x", "path", r.N)
			if code != http.StatusOK || string(b) != odd[name] {
				t.Errorf("%q reads as %d %.40q, expected %q", name, code, b, odd[name])
			}
			e := ask[struct {
				Path string
				Odd  bool
			}](s, "/api/entry", "a", "x", "path", r.N)
			if wants := name == "../up" || name == "a//c"; e.Odd != wants || e.Path != r.N {
				t.Errorf("%q: odd is %v, its path %q", name, e.Odd, e.Path)
			}
		}
		if want := []string{"top", "../up", "a//c", "raw\xff\xfe", "<i>&\"", "nul\x00", "ÀÉ.txt", `back\x41`}; len(seen) != len(want) {
			t.Errorf("listed %v, expected %q", seen, want)
		}
		return
	}
}

func TestFoldersAreSortedAndPaged(t *testing.T) {
	m := packed(t, func(add func(string, string)) {
		for i := range 5000 {
			add(fmt.Sprintf("d/f%04d", i), strings.Repeat("x", (i*7919)%977))
		}
		add("d/sub/z", "z")
	})
	s := serving(t, opened(m, "x.caf", caf.Format))
	for _, dir := range []string{"asc", "desc"} {
		var last int64 = -1
		if dir == "desc" {
			last = math.MaxInt64
		}
		n := 0
		for off := 0; off < 5001; off += 700 {
			p := ask[page](s, "/api/ls", "a", "x", "path", "d", "sort", "size", "dir", dir, "offset", fmt.Sprint(off), "limit", "700")
			if p.Total != 5001 || p.Dirs != 1 || !p.Complete {
				t.Fatalf("found %+v", p)
			}
			for i, r := range p.Items {
				if off == 0 && i == 0 {
					if r.K != "dir" {
						t.Errorf("the first is %q, expected the folder", r.N)
					}
					n++
					continue
				}
				if dir == "asc" && *r.S < last || dir == "desc" && *r.S > last {
					t.Fatalf("%s: %d comes after %d", dir, *r.S, last)
				}
				last = *r.S
				n++
			}
		}
		if n != 5001 {
			t.Errorf("%d rows, expected 5001", n)
		}
	}
	if p := ask[page](s, "/api/ls", "a", "x", "path", "d", "only", "dirs"); p.Total != 1 || p.Items[0].N != "sub" {
		t.Errorf("folders are %+v", p)
	}
}

// A folder says how much is below it, which file describes it, and which picture comes first. What
// is below it is known once all entries were read, and the list does not wait for that.
func TestAFolderSaysWhatShowsIt(t *testing.T) {
	files := map[string]string{
		"docs/readme": "plain", "docs/README.md": "# better", "docs/README.png": "no", "docs/readme.md.bak": "no",
		"docs/b.jpg": "xx", "docs/a.png": "x", "docs/deep/c.png": "", "docs/deep/d": "four", "other/x": "",
	}
	m := packed(t, func(add func(string, string)) {
		for name, content := range files {
			add(name, content)
		}
	})
	s := serving(t, opened(m, "x.caf", caf.Format))
	type row struct{ N string }
	type told struct {
		All             *struct{ S, C int64 }
		Readme, Picture *row
		Items           []struct {
			N    string
			C, S int64
		}
	}
	ask[struct{}](s, "/api/treemap", "a", "x") // it waits until all entries were read
	docs := ask[told](s, "/api/ls", "a", "x", "path", "docs")
	if docs.Readme == nil || docs.Readme.N != "README.md" || docs.Picture == nil || docs.Picture.N != "README.png" {
		t.Errorf("it is shown by %+v and %+v", docs.Readme, docs.Picture)
	}
	size := int64(0)
	for name, content := range files {
		if strings.HasPrefix(name, "docs/") {
			size += int64(len(content))
		}
	}
	if docs.All == nil || docs.All.S != size || docs.All.C != 8 {
		t.Errorf("below it is %+v, expected %d bytes in 8 files", docs.All, size)
	}
	if deep := docs.Items[0]; deep.N != "deep" || deep.C != 2 || deep.S != 4 {
		t.Errorf("the first row is %+v", deep)
	}
	if root := ask[told](s, "/api/ls", "a", "x"); root.Readme != nil || root.Picture != nil || root.All == nil || root.All.C != 9 {
		t.Errorf("of the root it says %+v", root)
	}
}

func TestPicturesAreListedWithTheirSamples(t *testing.T) {
	m := packed(t, func(add func(string, string)) {
		for i := range 600 {
			for _, ext := range []string{"txt", "PNG", "json"} { // in an order that is not that of names
				add(fmt.Sprintf("d/%03d.%s", i, ext), strings.Repeat("x", 600-i))
			}
		}
		add("d/sub/z", "z")
		add("d/readme", "z")
	})
	s := serving(t, opened(m, "x.caf", caf.Format))
	for off := 0; off < 601; off += 200 {
		p := ask[page](s, "/api/ls", "a", "x", "path", "d", "only", "pictures", "sort", "size", "dir", "desc", "offset", fmt.Sprint(off))
		if p.Total != 601 || p.Dirs != 1 || p.Pictures != 600 || p.Files != 1801 || !p.Complete {
			t.Fatalf("found %+v", p)
		}
		for k, r := range p.Items {
			i := off + k - 1
			if i < 0 {
				if r.K != "dir" || len(r.With) > 0 {
					t.Errorf("the first is %+v, expected the folder", r)
				}
			} else if stem := fmt.Sprintf("%03d.", i); r.N != stem+"PNG" || !slices.Equal(r.With, []string{stem + "json", stem + "txt"}) {
				t.Fatalf("%d is %+v", i, r)
			}
		}
	}
	if p := ask[page](s, "/api/ls", "a", "x", "path", "d", "only", "pictures", "limit", "0", "find", "d/readme"); p.At != -1 {
		t.Errorf("a text is at %d of the pictures", p.At)
	}
	if p := ask[page](s, "/api/ls", "a", "x", "path", "d/sub", "only", "pictures"); p.Total != 0 || p.Pictures != 0 || p.Files != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAMillionRowsTakeLittleMemory(t *testing.T) {
	testkit.Long(t)
	const n = 300_000
	m := packed(t, func(add func(string, string)) {
		for i := range n {
			add(fmt.Sprintf("all/image_%07d.jpeg", i), "")
		}
	})
	s := serving(t, opened(m, "x.caf", caf.Format))
	ask[page](s, "/api/ls", "a", "x") // loads what the archive itself needs for names
	before := testkit.Live()
	if p := ask[page](s, "/api/ls", "a", "x", "path", "all", "sort", "size", "limit", "10"); p.Total != n {
		t.Fatalf("found %d, expected %d", p.Total, n)
	}
	perMillion := float64(int64(testkit.Live())-int64(before)) / n * 1e6
	t.Logf("%.1f MiB for a million rows, in an order", perMillion/(1<<20))
	if perMillion > 60<<20 {
		t.Errorf("%.1f MiB, expected below 60", perMillion/(1<<20))
	}
}

func TestContentsAreSearched(t *testing.T) {
	s := serving(t, opened(packed(t, func(add func(name, content string)) {
		add("a/one.txt", "first\nsecond Needle here\n"+strings.Repeat("needle\n", 20))
		add("a/two.bin", "\x00\x01needle")
		add("b/three.txt", "nothing")
		add("b/four.txt", strings.Repeat("x", 5000)+"NEEDLE"+strings.Repeat("y", 5000))
	}), "x.caf", caf.Format))
	search := func(args ...string) (found []string, end map[string]any) {
		_, b, _ := s.get("/api/grep", append([]string{"a", "x", "q", "needle"}, args...)...)
		for line := range strings.Lines(string(b)) {
			var x map[string]any
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			if p, ok := x["p"].(string); ok {
				found = append(found, fmt.Sprintf("%s:%v", p, x["line"]))
				if text, _ := x["text"].(string); len(text) > 400 || text != "" && !strings.Contains(strings.ToLower(text), "needle") {
					t.Errorf("%s: %q", p, text)
				}
			} else {
				end = x
			}
		}
		return found, end
	}
	found, end := search()
	if want := []string{"a/one.txt:2", "a/one.txt:3", "a/one.txt:4", "a/one.txt:5", "a/one.txt:6", "a/two.bin:<nil>", "b/four.txt:1"}; !slices.Equal(slices.Sorted(slices.Values(found)), want) || end["end"] != true || end["files"] != 4.0 {
		t.Errorf("found %q, %v", found, end)
	}
	if found, end := search("path", "b"); len(found) != 1 || end["files"] != 2.0 {
		t.Errorf("below b: %q, %v", found, end)
	}
	if found, _ := search("limit", "2"); len(found) != 2 {
		t.Errorf("2 at most: %q", found)
	}
	if status, _, _ := s.get("/api/grep", "a", "x", "q", "  "); status != 400 {
		t.Errorf("of nothing: %d", status)
	}
}

// cells reads a map.
func cells(t *testing.T, b []byte) (head struct {
	From, To, Size int64
	Cells          int
	Totals         map[string]int64
	Classes        []string
	ClassTotals    map[string]int64 `json:"class_totals"`
	Parity         string
}, list []byte) {
	t.Helper()
	n := binary.LittleEndian.Uint32(b)
	if err := json.Unmarshal(b[4:4+n], &head); err != nil {
		t.Fatal(err)
	}
	return head, b[4+n:]
}

// TestParityIsShown checks that the page shows an archive's parity.
func TestParityIsShown(t *testing.T) {
	m := oddArchive(t)
	if _, err := holdall.Protect(t.Context(), []string{"x.caf"}, "x.caf"+parity.Suffix, holdall.ProtectOptions{Store: m, To: m}); err != nil {
		t.Fatal(err)
	}
	s := serving(t, opened(m, "x.caf", caf.Format))
	const want = "x.caf.parity: any 5% can be lost (2 of 2 blocks of 4 KiB)"
	_, b, _ := s.get("/api/map", "a", "x", "cells", "7")
	if head, _ := cells(t, b); head.Parity != want {
		t.Errorf("the map says %q", head.Parity)
	}
	if got := ask[struct{ Parity string }](s, "/api/archive", "a", "x", "about", "yes").Parity; got != want {
		t.Errorf("the archive is described as %q", got)
	}
}

func TestTheMapAddsUp(t *testing.T) {
	m := oddArchive(t)
	s := serving(t, opened(m, "x.caf", caf.Format))
	content := int64(0)
	for _, c := range odd {
		content += int64(len(c))
	}
	for _, want := range []string{"1", "7", "1000"} {
		_, b, _ := s.get("/api/map", "a", "x", "cells", want)
		head, list := cells(t, b)
		if len(list) != 8*head.Cells || fmt.Sprint(head.Cells) != want {
			t.Fatalf("%d bytes of %d cells", len(list), head.Cells)
		}
		sum := int64(0)
		for _, n := range head.Totals {
			sum += n
		}
		if head.Totals["content"] != content || sum < head.Size-8 || sum > head.Size+8 {
			t.Errorf("%s cells: totals are %v of %d, expected %d of content", want, head.Totals, head.Size, content)
		}
	}
	for by, want := range map[string]string{"kind": "other", "age": "no timestamp", "packing": "stored uncompressed", "sharing": "one file", "proof": ""} {
		_, b, _ := s.get("/api/map", "a", "x", "cells", "500", "by", by)
		head, list := cells(t, b)
		sum := int64(0)
		for _, n := range head.ClassTotals {
			sum += n
		}
		if head.Totals["content"] != content || sum < content-8 || sum > content+8 || want != "" && head.ClassTotals[want] == 0 {
			t.Errorf("by %s: %v of %d bytes of content", by, head.ClassTotals, content)
		}
		classes := map[byte]bool{}
		for i := 0; i < len(list); i += 8 {
			if c := list[i]; c >= 32 {
				classes[c] = true
			}
		}
		if len(classes) == 0 {
			t.Errorf("by %s: no cell has a class", by)
		}
		for c := range classes {
			if int(c)-32 >= len(head.Classes) || head.ClassTotals[head.Classes[c-32]] == 0 {
				t.Errorf("by %s: a cell has class %d of %q", by, c-32, head.Classes)
			}
		}
	}
	// A name is found at its entry's place.
	for name, c := range odd {
		at := ask[struct{ Spans [][2]int64 }](s, "/api/map/of", "a", "x", "path", format.Escape(name)).Spans
		if len(at) != 1 || at[0][1] != int64(len(c)) {
			t.Fatalf("%q lies at %v", name, at)
		}
		near := ask[struct {
			Count int
			Spans []struct{ Name string }
		}](s, "/api/map/at", "a", "x", "from", fmt.Sprint(at[0][0]), "to", fmt.Sprint(at[0][0]+1))
		if near.Count != 1 || near.Spans[0].Name != format.Escape(name) {
			t.Errorf("at %d is %+v, expected %q", at[0][0], near, name)
		}
	}
}

type box struct {
	Name   string `json:"n"`
	Dir    bool
	Bytes  int64  `json:"s"`
	Stored *int64 `json:"z"`
	Files  int64  `json:"c"`
	Boxes  []*box
	Rest   *box
}

func TestTheTreemapAddsUp(t *testing.T) {
	s := serving(t, opened(oddArchive(t), "x.caf", caf.Format))
	type answer struct {
		Box   box
		Holds map[string]int64
	}
	a := ask[answer](s, "/api/treemap", "a", "x", "path", "a", "limit", "4000").Box
	if a.Bytes != 5010 || a.Files != 3 || len(a.Boxes) != 2 || a.Boxes[0].Name != "b" || a.Boxes[0].Bytes != 5007 || *a.Boxes[0].Stored != 5007 || a.Rest != nil {
		t.Errorf("a has %+v", a)
	}
	if in := a.Boxes[0].Boxes; len(in) == 0 || in[0].Dir {
		t.Errorf("a/b has %+v", in)
	}
	few := ask[answer](s, "/api/treemap", "a", "x", "limit", "2").Box
	if len(few.Boxes) != 1 || few.Boxes[0].Name != "a" || few.Rest == nil || few.Rest.Bytes+few.Boxes[0].Bytes != few.Bytes {
		t.Errorf("the root has %+v", few)
	}
	for _, by := range []string{"size", "stored", "count"} {
		all := ask[answer](s, "/api/treemap", "a", "x", "by", by, "limit", "20")
		var leaves, files int64
		var add func(b *box)
		add = func(b *box) {
			for _, x := range b.Boxes {
				add(x)
			}
			if b.Rest != nil {
				add(b.Rest)
			}
			if !b.Dir {
				leaves, files = leaves+b.Bytes, files+b.Files
			}
		}
		add(&all.Box)
		sum := int64(0)
		for _, n := range all.Holds {
			sum += n
		}
		if leaves != all.Box.Bytes || by == "count" && files != all.Box.Files || sum != all.Box.Bytes {
			t.Errorf("by %s: %d bytes in boxes, %d by what they hold, %d in all; %d files of %d", by, leaves, sum, all.Box.Bytes, files, all.Box.Files)
		}
	}
}

// events reads a check to its end.
func (s *site) events() (kinds []string, last map[string]any, problems []map[string]any) {
	s.t.Helper()
	_, b, head := s.get("/api/verify", "a", "x")
	if head.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("a check is told as %q", head.Get("Content-Type"))
	}
	for event := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		kind, data, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		kinds = append(kinds, kind)
		into := any(&last)
		if kind == "problems" {
			into = &problems
		}
		if err := json.Unmarshal([]byte(data), into); err != nil {
			s.t.Fatalf("%q: %v", event, err)
		}
	}
	return kinds, last, problems
}

func TestDamageIsFoundAndMarked(t *testing.T) {
	m := oddArchive(t)
	b := bytes.Clone(m.Get("x.caf"))
	b[bytes.Index(b, []byte(strings.Repeat("3", 5000)))+2500] ^= 1
	m.Put("x.caf", b)
	s := serving(t, opened(m, "x.caf", caf.Format))
	if _, last, _ := s.events(); last["state"] != "none" || last["health"] != "unknown" {
		t.Errorf("before a check: %v", last)
	}
	res, err := http.Post(s.srv.URL+"/api/verify?a=x", "", nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	_, last, problems := s.events()
	if last["state"] != "complete" || last["health"] != "damaged" || last["counts"].(map[string]any)["error"] != 1.0 {
		t.Errorf("the check ends as %v", last)
	}
	damaged := 0
	for _, p := range problems {
		if p["severity"] == "error" {
			damaged++
			if p["path"] != "a/b/three.bin" {
				t.Errorf("the problem is %v", p)
			}
		}
	}
	if damaged != 1 {
		t.Errorf("problems are %v", problems)
	}
	_, pic, _ := s.get("/api/map", "a", "x", "cells", "500")
	_, list := cells(t, pic)
	marked := 0
	for i := 2; i < len(list); i += 8 {
		marked += int(list[i] >> 1 & 1)
	}
	if marked == 0 {
		t.Error("the map has no mark")
	}
	if a := ask[struct{ Verify struct{ Health string } }](s, "/api/archive", "a", "x"); a.Verify.Health != "damaged" {
		t.Errorf("the archive is told to be %s", a.Verify.Health)
	}
}

func TestPagesOfOtherSitesGetNothing(t *testing.T) {
	s := serving(t, opened(oddArchive(t), "x.caf", caf.Format))
	for _, c := range []struct{ method, path, key, value string }{
		{"GET", "/api/ls?a=x", "Sec-Fetch-Site", "cross-site"}, {"GET", "/api/search?a=x&q=a", "Sec-Fetch-Site", "same-site"},
		{"POST", "/api/verify?a=x", "Sec-Fetch-Site", "cross-site"}, {"POST", "/api/verify?a=x", "Origin", "https://evil.example"},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), c.method, s.srv.URL+c.path, nil)
		r.Header.Set(c.key, c.value)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s with %s: %s is answered with %d", c.method, c.path, c.key, c.value, res.StatusCode)
		}
	}
	if _, last, _ := s.events(); last["state"] != "none" {
		t.Errorf("a check was started: %v", last)
	}
}

func TestBadQuestionsAreAnsweredInOneLine(t *testing.T) {
	s := serving(t, opened(oddArchive(t), "x.caf", caf.Format))
	for _, c := range []struct {
		path string
		args []string
		code int
	}{
		{"/api/ls", nil, 400}, {"/api/ls", []string{"a", "y"}, 404}, {"/api/ls", []string{"a", "x", "path", "no"}, 404}, {"/api/ls", []string{"a", "x", "path", "top"}, 400},
		{"/api/ls", []string{"a", "x", "limit", "-1"}, 400}, {"/api/ls", []string{"a", "x", "limit", "99999"}, 400}, {"/api/ls", []string{"a", "x", "sort", "colour"}, 400},
		{"/api/ls", []string{"a", "x", "view", "no"}, 404}, {"/api/search", []string{"a", "x", "q", strings.Repeat("a", 201)}, 400},
		{"/api/map", []string{"a", "x", "from", "5", "to", "5"}, 400}, {"/api/map", []string{"a", "x", "cells", "0"}, 400}, {"/api/map", []string{"a", "x", "from", "99999999999"}, 400},
		{"/api/content", []string{"a", "x", "path", "top", "n", "99999999"}, 400}, {"/api/content", []string{"a", "x", "path", "a"}, 400}, {"/api/entry", []string{"a", "x", "path", "no"}, 404},
		{"/api/array", []string{"a", "x", "path", "a"}, 400}, {"/api/node", []string{"a", "x"}, 400}, {"/api/history", []string{"a", "x"}, 400}, {"/api/nothing", nil, 404},
	} {
		code, b, head := s.get(c.path, c.args...)
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(b, &e); err != nil || code != c.code || e.Error.Code == "" || e.Error.Message == "" || bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("%s %q: %d %s, expected %d and a line of JSON", c.path, c.args, code, b, c.code)
		}
		if head.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(head.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
			t.Errorf("%s: headers are %v", c.path, head)
		}
	}
}

func TestThePageIsServedWithItsParts(t *testing.T) {
	s := serving(t)
	for path, kind := range map[string]string{"/": "text/html", "/ui/app.js": "text/javascript", "/ui/style.css": "text/css", "/ui/icon.svg": "image/svg+xml"} {
		code, b, head := s.get(path)
		if code != 200 || !strings.HasPrefix(head.Get("Content-Type"), kind) || len(b) == 0 {
			t.Errorf("%s: %d %s of %d bytes", path, code, head.Get("Content-Type"), len(b))
		}
		if bytes.Contains(b, []byte("https://")) {
			t.Errorf("%s names another host", path)
		}
	}
	for _, path := range []string{"/ui/", "/ui/index.html", "/ui/../explore.go", "/elsewhere"} {
		if code, _, _ := s.get(path); code != 404 {
			t.Errorf("%s: %d, expected 404", path, code)
		}
	}
}

func TestArraysAreSampled(t *testing.T) {
	s := serving(t, opened(local.New("../../../format/lindi/testdata"), "p07_from_hdf5.lindi.tar", lindi.Format))
	a := ask[struct {
		Shape   []int64
		Numbers bool
	}](s, "/api/array", "a", "x", "view", "zarr", "path", "gz")
	if len(a.Shape) != 1 || a.Shape[0] != 3000 || !a.Numbers {
		t.Fatalf("gz is %+v", a)
	}
	window := func(args ...string) (kind string, v []float64) {
		code, b, head := s.get("/api/array/data", append([]string{"a", "x", "view", "zarr"}, args...)...)
		var w struct{ Kind, Type string }
		if err := json.Unmarshal([]byte(head.Get("Holdall-Window")), &w); err != nil || code != 200 {
			t.Fatalf("%q: %d %s", args, code, b)
		}
		for ; len(b) > 0 && w.Type == "float32"; b = b[4:] {
			v = append(v, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
		for ; len(b) > 0; b = b[8:] {
			v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		return w.Kind, v
	}
	kind, all := window("path", "gz", "points", "3000")
	if kind != "line" || len(all) != 3000 {
		t.Fatalf("%s of %d", kind, len(all))
	}
	kind, few := window("path", "gz", "points", "100", "from", "10", "to", "2990")
	if kind != "range" || len(few) > 100 {
		t.Fatalf("%s of %d", kind, len(few))
	}
	step := (2980 + 49) / 50
	for i := 0; i < len(few); i += 2 {
		low, high := math.Inf(1), math.Inf(-1)
		for _, v := range all[10+i/2*step : min(2990, 10+(i/2+1)*step)] {
			low, high = min(low, v), max(high, v)
		}
		if few[i] != low || few[i+1] != high {
			t.Fatalf("bucket %d is %v to %v, expected %v to %v", i/2, few[i], few[i+1], low, high)
		}
	}
	if kind, img := window("path", "chunked", "points", "100"); kind != "image" || len(img) == 0 || len(img) > 100 {
		t.Errorf("chunked is %s of %d", kind, len(img))
	}
	if code, _, _ := s.get("/api/array/data", "a", "x", "view", "zarr", "path", "gz", "from", "5", "to", "5"); code != 400 {
		t.Errorf("an empty window is answered with %d", code)
	}
	if list := ask[struct{ Arrays []struct{ Path string } }](s, "/api/arrays", "a", "x", "view", "zarr").Arrays; len(list) < 8 {
		t.Errorf("arrays are %v", list)
	}
}

// recording returns a site with a small NWB file; testdata/session.py shows
// its contents.
func recording(t *testing.T) *site {
	t.Helper()
	m := &storetest.Mem{}
	m.Put("session.nwb", testkit.Read(t, "testdata/session.nwb"))
	return serving(t, opened(m, "session.nwb", hdf5.Format))
}

func TestARecordingSaysWhatItIsAbout(t *testing.T) {
	type told struct {
		NWB *struct {
			Session struct {
				Description  string
				Experimenter []string
			}
			Subject map[string]string
			Series  []struct {
				Path, Unit string
				Shape      []int64
				Duration   float64
			}
			Tables []struct {
				Path string
				Rows int64
			}
		}
		Fault string
	}
	s := recording(t)
	got := ask[told](s, "/api/nwb", "a", "x")
	n := got.NWB
	if n == nil || got.Fault != "" {
		t.Fatalf("the answer has no recording: %q", got.Fault)
	}
	if n.Session.Description != "a session made up, <b>naïve ☃</b>" || len(n.Session.Experimenter) != 2 || n.Subject["species"] != "Mus musculus" {
		t.Errorf("the session is %+v, the subject %v", n.Session, n.Subject)
	}
	if len(n.Series) != 1 || n.Series[0].Path != "acquisition/raw" || n.Series[0].Unit != "volts" || !slices.Equal(n.Series[0].Shape, []int64{3000, 8}) || n.Series[0].Duration != 3 {
		t.Errorf("series are %+v", n.Series)
	}
	if len(n.Tables) != 1 || n.Tables[0].Path != "intervals/trials" || n.Tables[0].Rows != 3 {
		t.Errorf("tables are %+v", n.Tables)
	}
	// The objects are what its people know, so it opens on them, and arrays have the same time there.
	type archive struct {
		Front struct{ View, Tab string }
		Can   []string
	}
	if front := ask[archive](s, "/api/archive", "a", "x").Front; front.View != "objects" || front.Tab != "about" {
		t.Errorf("it opens on %+v", front)
	}
	if can := ask[archive](s, "/api/archive", "a", "x", "view", "objects").Can; !slices.Contains(can, "arrays") {
		t.Errorf("its objects can %q", can)
	}
	if got := ask[told](s, "/api/nwb", "a", "x", "view", "objects"); got.NWB == nil || len(got.NWB.Series) != 1 {
		t.Errorf("its objects are about %+v", got.NWB)
	}
	for _, view := range hdf5.Format.Views {
		a := ask[struct{ Scale struct{ Rate, Start float64 } }](s, "/api/array", "a", "x", "view", view, "path", "acquisition/raw/data")
		if a.Scale.Rate != 1000 || a.Scale.Start != 0.5 {
			t.Errorf("in the view %s, the scale is %+v", view, a.Scale)
		}
	}
	other := serving(t, opened(local.New("../../../format/lindi/testdata"), "p07_from_hdf5.lindi.tar", lindi.Format))
	if code, _, _ := other.get("/api/nwb", "a", "x", "view", "members"); code != 400 {
		t.Errorf("a view without arrays is answered with %d", code)
	}
	if got := ask[told](other, "/api/nwb", "a", "x", "view", "zarr"); got.NWB != nil {
		t.Errorf("another archive is taken for a recording: %+v", got.NWB)
	}
}

func TestArraysThatCannotBeReadSayWhy(t *testing.T) {
	found := map[string]string{}
	for _, a := range ask[struct {
		Arrays []struct{ Path, Fault string }
	}](recording(t), "/api/arrays", "a", "x").Arrays {
		found[a.Path] = a.Fault
	}
	if got := found["intervals/trials/odd"]; got != "elements of type sequence of string are not supported as Zarr" {
		t.Errorf("%q", got)
	}
	if fault, ok := found["acquisition/raw/data"]; !ok || fault != "" {
		t.Errorf("%v, %q", ok, fault)
	}
}

func TestACancelledQuestionEnds(t *testing.T) {
	files := 100_000
	if testkit.Race() {
		files = 20_000
	}
	m := packed(t, func(add func(string, string)) {
		for i := range files {
			add(fmt.Sprintf("f%06d", i), "")
		}
	})
	s := serving(t, opened(m, "x.caf", caf.Format))
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		path := []string{"/api/search?a=x&q=9", "/api/ls?a=x&sort=size", "/api/map?a=x", "/api/treemap?a=x"}[i%4]
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.srv.URL+path, nil)
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
		}
		cancel()
	}
	// The slots of disconnected clients are free again.
	if p := ask[page](s, "/api/ls", "a", "x", "sort", "size"); p.Total != int64(files) {
		t.Errorf("found %d", p.Total)
	}
	ask[struct{}](s, "/api/treemap", "a", "x")
}

func FuzzQuestions(f *testing.F) {
	m := oddArchive(f)
	s := serving(f, opened(m, "x.caf", caf.Format))
	for _, q := range []string{"ls a=x&path=a&offset=1&limit=2&sort=size&dir=desc", "search a=x&q=a b", "map a=x&from=1&to=9&cells=3", "map/at a=x&from=0&to=9", "map/of a=x&path=top", "treemap a=x&limit=1", "entry a=x&path=raw%5Cxff", "content a=x&path=top&off=0&n=5", "archive a=x&about=yes", "array/data a=x&view=zarr&from=1,2", "nwb a=x&view=zarr", "table a=x&view=zarr&path=t&from=1&n=2", "raster a=x&view=zarr&bins=5&start=1&end=2", "attributes a=x&view=zarr&path=t"} {
		path, query, _ := strings.Cut(q, " ")
		f.Add(path, query)
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest(http.MethodGet, "/api/ls", nil)
		r.URL = &url.URL{Path: "/api/" + strings.TrimLeft(path, "/"), RawQuery: query}
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s?%s: %s", path, query, w.Body)
		}
	})
}

// source serves archives that are open and stay so.

// BenchmarkAMillionEntries measures the page's requests for an archive of a
// million entries: the treemap of all of it, and the whole byte map, by the
// kinds of files.
func BenchmarkAMillionEntries(b *testing.B) {
	m := &storetest.Mem{}
	w, err := caf.Format.Create(b.Context(), m, "x.caf", format.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1_000_000 {
		e := holdall.Entry{Name: fmt.Sprintf("set-%02d/part-%03d/%07d.%s", i/50_000, i/1000%50, i, []string{"jpg", "json", "txt"}[i%3]), Size: int64(i * 7919 % 100)}
		if err := w.Add(b.Context(), e, bytes.NewReader(make([]byte, e.Size))); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	s := serving(b, opened(m, "x.caf", caf.Format))
	s.get("/api/treemap", "a", "x") // the archive is gone through
	for name, ask := range map[string][]string{
		"treemap/size":  {"/api/treemap", "a", "x"},
		"treemap/count": {"/api/treemap", "a", "x", "by", "count"},
		"map/use":       {"/api/map", "a", "x", "cells", "12000"},
		"map/kind":      {"/api/map", "a", "x", "cells", "12000", "by", "kind"},
		"map/proof":     {"/api/map", "a", "x", "cells", "12000", "by", "proof"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.get(ask[0], ask[1:]...)
			}
		})
	}
}
