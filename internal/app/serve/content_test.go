package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

func TestRanges(t *testing.T) {
	size := len(long)
	for _, f := range []*format.Format{caf.Format, tiny.Format} {
		s := serving(t, open(t, packed(t, f), "x"), options{})
		for _, tt := range []struct {
			path, ask string
			code      int
			from, to  int // of the content
			is        string
		}{
			{"hello.txt", "bytes=0-4", 206, 0, 5, "bytes 0-4/12"},
			{"hello.txt", "bytes=7-", 206, 7, 12, "bytes 7-11/12"},
			{"hello.txt", "bytes=-5", 206, 7, 12, "bytes 7-11/12"},
			{"hello.txt", "bytes=-500", 206, 0, 12, "bytes 0-11/12"},
			{"hello.txt", "bytes=5-500", 206, 5, 12, "bytes 5-11/12"},
			{"hello.txt", "bytes=11-11", 206, 11, 12, "bytes 11-11/12"},
			{"hello.txt", "bytes=12-", 416, 0, 0, "bytes */12"},
			{"hello.txt", "bytes=5-4", 416, 0, 0, ""},
			{"hello.txt", "bytes=x", 416, 0, 0, ""},
			{"hello.txt", "bytes=99999999999999999999-", 416, 0, 0, ""},
			{"hello.txt", "bytes=0-9,0-9,0-9", 200, 0, 12, ""}, // more than there is
			{"empty", "bytes=0-4", 200, 0, 0, ""},
			{"long.bin", "bytes=0-", 206, 0, size, fmt.Sprintf("bytes 0-%d/%d", size-1, size)},
			{"long.bin", "bytes=1-", 206, 1, size, fmt.Sprintf("bytes 1-%d/%d", size-1, size)},
			{"long.bin", "bytes=1000003-1000018", 206, 1000003, 1000019, fmt.Sprintf("bytes 1000003-1000018/%d", size)},
			{"long.bin", "bytes=5-2500003", 206, 5, 2500004, fmt.Sprintf("bytes 5-2500003/%d", size)},
			{"long.bin", "bytes=-2000000", 206, size - 2000000, size, fmt.Sprintf("bytes %d-%d/%d", size-2000000, size-1, size)},
		} {
			answer, body := get(t, s.url+"/"+tt.path, "Range", tt.ask)
			if answer.StatusCode != tt.code || answer.Header.Get("Content-Range") != tt.is {
				t.Errorf("%s %s: %s, %s", tt.path, tt.ask, answer.Status, answer.Header.Get("Content-Range"))
				continue
			}
			if want := contents[tt.path][tt.from:tt.to]; tt.code < 300 && (body != want || answer.ContentLength != int64(len(want))) {
				t.Errorf("%s %s: %d bytes, want %d", tt.path, tt.ask, len(body), len(want))
			}
		}
		if s.log.String() != "" {
			t.Error(s.log)
		}
	}
}

func TestSeveralRangesComeInParts(t *testing.T) {
	s := serving(t, open(t, packed(t, caf.Format), "x"), options{})
	answer, body := get(t, s.url+"/long.bin", "Range", "bytes=0-3,100000-199999,-2")
	kind, params, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.StatusCode != 206 || err != nil || kind != "multipart/byteranges" {
		t.Fatal(answer.Status, answer.Header)
	}
	parts := multipart.NewReader(strings.NewReader(body), params["boundary"])
	for _, want := range []string{long[:4], long[100000:200000], long[len(long)-2:]} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(part); err != nil || string(got) != want || part.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%d bytes, want %d; %v", len(got), len(want), part.Header)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Error("more parts than ranges")
	}
	many := "bytes=0-0" + strings.Repeat(",5-5", 100)
	if answer, body := get(t, s.url+"/long.bin", "Range", many); answer.StatusCode != 200 || body != long {
		t.Errorf("too many ranges: %s", answer.Status)
	}
}

func TestConditions(t *testing.T) {
	digested := open(t, packed(t, caf.Format), "x")
	dated := open(t, packed(t, tiny.Format), "x")
	e, err := digested.Lookup(t.Context(), "hello.txt")
	if err != nil {
		t.Fatal(err)
	}
	cafTag := `"` + e.Digest.String() + `"`
	date, before, after := kept.Format(http.TimeFormat), kept.Add(-time.Second).Format(http.TimeFormat), kept.Add(time.Second).Format(http.TimeFormat)
	s := serving(t, digested, options{Version: "v1"})
	bySize := serving(t, dated, options{Version: "v1"})
	answer, _ := get(t, bySize.url+"/hello.txt")
	tinyTag := answer.Header.Get("ETag")
	bare := serving(t, dated, options{})
	for _, tt := range []struct {
		site    site
		headers []string
		code    int
		body    string
		etag    string
		date    string
	}{
		{s, nil, 200, "hello, world", cafTag, ""},
		{s, []string{"If-None-Match", cafTag}, 304, "", cafTag, ""},
		{s, []string{"If-None-Match", `"other", ` + cafTag}, 304, "", cafTag, ""},
		{s, []string{"If-None-Match", "W/" + cafTag}, 304, "", cafTag, ""},
		{s, []string{"If-None-Match", `"other"`}, 200, "hello, world", cafTag, ""},
		{s, []string{"If-Match", `"other"`}, 412, "", cafTag, ""},
		{s, []string{"If-Match", cafTag}, 200, "hello, world", cafTag, ""},
		{s, []string{"Range", "bytes=0-4", "If-Range", cafTag}, 206, "hello", cafTag, ""},
		{s, []string{"Range", "bytes=0-4", "If-Range", `"other"`}, 200, "hello, world", cafTag, ""},
		{s, []string{"Range", "bytes=0-4", "If-Range", "W/" + cafTag}, 200, "hello, world", cafTag, ""},
		{bySize, []string{"If-None-Match", tinyTag}, 304, "", tinyTag, ""},
		{bySize, []string{"Range", "bytes=0-4", "If-Range", tinyTag}, 206, "hello", tinyTag, date},
		{bare, nil, 200, "hello, world", "", date},
		{bare, []string{"If-Modified-Since", date}, 304, "", "", date},
		{bare, []string{"If-Modified-Since", before}, 200, "hello, world", "", date},
		{bare, []string{"If-Unmodified-Since", before}, 412, "", "", date},
		{bare, []string{"If-Unmodified-Since", after}, 200, "hello, world", "", date},
		{bare, []string{"Range", "bytes=0-4", "If-Range", date}, 206, "hello", "", date},
		{bare, []string{"Range", "bytes=0-4", "If-Range", before}, 200, "hello, world", "", date},
	} {
		answer, body := get(t, tt.site.url+"/hello.txt", tt.headers...)
		if answer.StatusCode != tt.code || body != tt.body || answer.Header.Get("ETag") != tt.etag || answer.Header.Get("Last-Modified") != tt.date {
			t.Errorf("%v: %s, %q, %v", tt.headers, answer.Status, body, answer.Header)
		}
	}
	if len(tinyTag) != 34 {
		t.Errorf("ETag %q", tinyTag)
	}
}

// TestETagsDiffer checks that ETags made from the archive's version differ if
// the archive, the name or the size differs.
func TestETagsDiffer(t *testing.T) {
	a := open(t, packed(t, tiny.Format), "x")
	seen := map[string]string{}
	for _, version := range []string{"v1", "v2"} {
		s := serving(t, a, options{Version: version})
		for name := range contents {
			answer, _, err := ask(t, "HEAD", s.url+"/"+escape(name))
			if err != nil {
				t.Fatal(err)
			}
			tag := answer.Header.Get("ETag")
			if other, taken := seen[tag]; taken || tag == "" {
				t.Errorf("%q of %s has the ETag %q of %q", name, version, tag, other)
			}
			seen[tag] = name
		}
	}
}

// damaged returns a store with an archive x that has one changed byte in the
// content of name, near its end.
func damaged(t *testing.T, name string) *storetest.Mem {
	t.Helper()
	m := packed(t, caf.Format)
	a := open(t, m, "x")
	e, err := a.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	b := m.Get("x")
	for x, err := range a.Extents(t.Context(), e) {
		if err != nil {
			t.Fatal(err)
		}
		b[x.Off+x.Len-2] ^= 1
	}
	out := &storetest.Mem{}
	out.Put("x", b)
	return out
}

func TestDamageIsNeverAWholeAnswer(t *testing.T) {
	s := serving(t, open(t, damaged(t, "hello.txt"), "x"), options{})
	answer, body := get(t, s.url+"/hello.txt")
	if answer.StatusCode != 500 || !strings.Contains(body, "content is damaged") || answer.Header.Get("ETag") != "" || strings.Contains(body, "hello,") {
		t.Errorf("%s, %q, %v", answer.Status, body, answer.Header)
	}
	if !strings.Contains(s.log.String(), "content is damaged") || !strings.Contains(s.log.String(), "path=/hello.txt") {
		t.Errorf("logged: %s", s.log)
	}
	s = serving(t, open(t, damaged(t, "long.bin"), "x"), options{})
	for _, headers := range [][]string{nil, {"Range", "bytes=0-"}} {
		answer, body, err := ask(t, "GET", s.url+"/long.bin", headers...)
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(body) >= len(long) || answer.ContentLength != int64(len(long)) {
			t.Errorf("%d bytes of %d, %v", len(body), len(long), err)
		}
	}
	if !strings.Contains(s.log.String(), "content is damaged") {
		t.Errorf("logged: %s", s.log)
	}
}

func TestFaultyEntriesAreErrors(t *testing.T) {
	st := local.New(filepath.Join("..", "..", "..", "format", "caf", "testdata", "fixtures"))
	s := serving(t, open(t, st, "r-negative.caf"), options{})
	for _, method := range []string{"GET", "HEAD"} {
		answer, body, err := ask(t, method, s.url+"/n")
		if err != nil || answer.StatusCode != 500 || method == "GET" && !strings.Contains(body, "bytes 50 to 20 are not a range") {
			t.Errorf("%s: %s, %q, %v", method, answer.Status, body, err)
		}
	}
	if _, page := get(t, s.url+"/"); !strings.Contains(page, "unreadable: bytes 50 to 20 are not a range") {
		t.Error(page)
	}
	if _, list := get(t, s.url+"/?format=json"); !strings.Contains(list, `"name":"n","kind":"file","error":"bytes 50 to 20 are not a range"`) {
		t.Error(list)
	}
}

// TestFixturesAreServedAsTheyAreRead checks that each fixture is served with
// the bytes that are read from it, and that none breaks the server.
func TestFixturesAreServedAsTheyAreRead(t *testing.T) {
	testkit.Serial(t)
	dir := filepath.Join("..", "..", "..", "format", "caf", "testdata", "fixtures")
	names, err := filepath.Glob(filepath.Join(dir, "*.caf"))
	if err != nil || len(names) < 40 {
		t.Fatalf("%d fixtures, %v", len(names), err)
	}
	served := 0
	for _, file := range names {
		a, err := holdall.Open(t.Context(), filepath.Base(file), holdall.OpenOptions{Store: local.New(dir), Formats: []*format.Format{caf.Format}})
		if err != nil {
			continue
		}
		s := serving(t, a, options{})
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			readable := a.WriteContent(t.Context(), &want, e) == nil
			answer, body, err := ask(t, "GET", s.url+"/"+escape(e.Name))
			if err != nil {
				t.Errorf("%s: %q: %v", file, e.Name, err)
			} else if answer.StatusCode == 200 && answer.Header.Get("Accept-Ranges") != "" && (!readable || body != want.String()) {
				t.Errorf("%s: %q: %d bytes, but it is read as %d", file, e.Name, len(body), want.Len())
			}
			if answer.StatusCode == 200 {
				served++
			}
		}
		a.Close()
	}
	if served < 100 {
		t.Errorf("only %d entries were served", served)
	}
}

// A wrong bit in each segment of a store costs nothing.
func TestWrongBitsOfASegmentStoreAreHealed(t *testing.T) {
	sound := &storetest.Mem{}
	testkit.Put(sound, testkit.Untar(t, filepath.Join("..", "..", "oak", "testdata", "checkpoints.tar.gz")), "segmentstore/", "s/")
	st := sound.Clone()
	b := bytes.Clone(st.Get("s/data00000a.tar"))
	testkit.FlipSegments(b)
	st.Put("s/data00000a.tar", b)
	super, healed, served := map[string]string{"super": "true"}, 0, 0
	opened := func(st store.Store, told func(string)) *holdall.Archive {
		a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, Param: super, OnHeal: told})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a
	}
	want := opened(sound, nil)
	s := serving(t, opened(st, func(string) { healed++ }), options{})
	for e, err := range want.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !e.Kind.HasContent() {
			continue
		}
		var b bytes.Buffer
		if err := want.WriteContent(t.Context(), &b, e); err != nil {
			t.Fatal(err)
		}
		if answer, body := get(t, s.url+"/"+escape(e.Name)); answer.StatusCode != 200 || body != b.String() {
			t.Errorf("%s: %s, %d bytes of %d", e.Name, answer.Status, len(body), b.Len())
		}
		served++
	}
	if served == 0 || healed != 1 {
		t.Errorf("%d entries, told %d times", served, healed)
	}
}

// shaky returns a store that looks remote and, after a call of fail, returns
// an error from each read.
func shaky(t *testing.T, st store.Store) (_ store.Store, fail func(after int64, err error)) {
	var armed atomic.Bool
	var reads atomic.Int64
	var with error
	return storetest.Fault(st, func(op, _ string, _, n int64) error {
			if armed.Load() && op == "read" && n > 0 && reads.Add(-1) < 0 {
				return with
			}
			return nil
		}), func(after int64, err error) {
			with = err
			reads.Store(after)
			armed.Store(true)
		}
}

func TestSourceThatFailsIsNoWholeAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, path, ask string
		after           int64
		err             error
		code            int // 0: broken off
	}{
		{"small, changed", "hello.txt", "", 0, store.ErrChanged, 503}, // the next request opens it again
		{"small range, changed", "hello.txt", "bytes=3-5", 0, store.ErrChanged, 503},
		{"small, gone", "hello.txt", "", 0, os.ErrNotExist, 500}, // it is there: its bytes are not
		{"small, busy", "hello.txt", "", 0, &store.Error{Op: "read", Name: "x", Off: -1, Err: errors.New("slow down"), Retry: true}, 503},
		{"long, at once", "long.bin", "", 0, errors.New("disk on fire"), 500},
		{"long range, at once", "long.bin", "bytes=5-2500000", 0, errors.New("disk on fire"), 500},
		{"long, midway", "long.bin", "", 2, errors.New("disk on fire"), 0},
		{"long range, midway", "long.bin", "bytes=5-2500000", 1, errors.New("disk on fire"), 0},
		{"end of long, midway", "long.bin", "bytes=5-", 2, errors.New("disk on fire"), 0},
		{"parts", "long.bin", "bytes=0-5,7-200000", 0, errors.New("disk on fire"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := packed(t, tiny.Format) // without digests: nothing else would detect the damage
			st, fail := shaky(t, near{m})
			s := serving(t, open(t, st, "x"), options{})
			fail(tt.after, tt.err)
			var headers []string
			if tt.ask != "" {
				headers = []string{"Range", tt.ask}
			}
			answer, body, err := ask(t, "GET", s.url+"/"+tt.path, headers...)
			if tt.code != 0 {
				if err != nil || answer.StatusCode != tt.code || strings.Contains(body, tt.err.Error()) || answer.Header.Get("Content-Range") != "" || (tt.code == 503) != (answer.Header.Get("Retry-After") != "") {
					t.Errorf("%v, %v: %s", answer, err, body)
				}
			} else if err == nil {
				t.Errorf("%v, %d bytes", answer.Status, len(body))
			}
			if !strings.Contains(s.log.String(), tt.err.Error()) {
				t.Errorf("logged: %s", s.log)
			}
		})
	}
}

// near makes a store near, so that nothing of it is cached.
type near struct{ store.Store }

func (near) Can() store.Abilities { return store.Abilities{Near: true} }

func TestChangedArchiveIsAnError(t *testing.T) {
	dir := t.TempDir()
	st := local.New(dir)
	if err := os.WriteFile(filepath.Join(dir, "x"), packed(t, caf.Format).Get("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := serving(t, open(t, st, "x"), options{})
	if answer, _ := get(t, s.url+"/long.bin"); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	if err := os.Truncate(filepath.Join(dir, "x"), 3); err != nil {
		t.Fatal(err)
	}
	answer, body := get(t, s.url+"/hello.txt")
	if answer.StatusCode != 503 || strings.Contains(body, dir) {
		t.Errorf("%s, %q", answer.Status, body)
	}
	if !strings.Contains(s.log.String(), store.ErrChanged.Error()) {
		t.Errorf("logged: %s", s.log)
	}
}

// TestLargeContentOfAFile checks content that is verified when it is first
// read as a whole. After that, and for ranges, the system copies it from the
// file. The client must not see a difference.
func TestLargeContentOfAFile(t *testing.T) {
	testkit.Serial(t)
	want := make([]byte, 13<<20+17)
	rand.NewChaCha8([32]byte{9}).Read(want)
	serveFile := func(b []byte) (url, p string) {
		p = filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
		return serving(t, open(t, local.New(filepath.Dir(p)), "x"), options{}).url + "/big", p
	}
	in := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(in, want, 0o666); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x.caf")
	if _, err := holdall.Pack(t.Context(), "x.caf", []string{in}, holdall.PackOptions{Store: local.New(filepath.Dir(out)), Formats: []*format.Format{caf.Format}}); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	url, p := serveFile(archive)
	for i := range 3 {
		if _, body := get(t, url); body != string(want) {
			t.Errorf("request %d: %d bytes, not the content", i+1, len(body))
		}
	}
	for _, r := range [][2]int{{0, 6 << 20}, {5_000_001, len(want) - 1}, {1, 4<<20 + 1}, {len(want) - 5<<20, len(want) - 1}} {
		answer, body := get(t, url, "Range", fmt.Sprintf("bytes=%d-%d", r[0], r[1]))
		if answer.StatusCode != 206 || body != string(want[r[0]:r[1]+1]) {
			t.Errorf("bytes %d to %d: %s, %d bytes", r[0], r[1], answer.Status, len(body))
		}
	}
	if answer, body, err := ask(t, "HEAD", url); err != nil || answer.ContentLength != int64(len(want)) || body != "" {
		t.Errorf("HEAD: %+v, %q, %v", answer, body, err)
	}
	if err := os.Truncate(p, 7<<20); err != nil {
		t.Fatal(err)
	}
	if answer, body, err := ask(t, "GET", url); err == nil && answer.StatusCode == 200 {
		t.Errorf("of a file that became shorter: 200, %d bytes", len(body))
	}

	damaged := bytes.Clone(archive)
	damaged[8<<20] ^= 1
	url, _ = serveFile(damaged)
	for i := range 3 {
		if answer, body, err := ask(t, "GET", url); err == nil && answer.StatusCode == 200 {
			t.Errorf("damaged, request %d: 200, %d bytes", i+1, len(body))
		}
	}
}

// huge is a store of one CAF with one entry of 10 GiB of zeros, which are not
// stored anywhere.
type huge struct {
	tail []byte
	far  bool
	mu   sync.Mutex
	read int64 // content bytes
}

const hugeSize = 10 << 30

func newHuge(far bool) *huge {
	index := fmt.Sprintf(`{"format_version":"1.0","writer":"holdall","files":{"big":{"start_byte":0,"end_byte":%d}}}`, int64(hugeSize))
	return &huge{tail: binary.LittleEndian.AppendUint32([]byte(index), uint32(len(index))), far: far}
}

func (h *huge) Can() store.Abilities                               { return store.Abilities{Near: !h.far} }
func (h *huge) Open(context.Context, string) (store.Object, error) { return hugeObject{h}, nil }

type hugeObject struct{ *huge }

func (h hugeObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }
func (h hugeObject) Close() error               { return nil }

func (h hugeObject) Info(context.Context) (store.Info, error) {
	return store.Info{Name: "x", Size: hugeSize + int64(len(h.tail)), Version: "1"}, nil
}

func (h hugeObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	clear(p)
	end := off + int64(len(p))
	if end > hugeSize {
		at := max(0, hugeSize-off)
		copy(p[at:], h.tail[off+at-hugeSize:])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := min(end, hugeSize) - off; n > 0 && ctx.Err() == nil {
		h.read += n
	}
	return ctx.Err()
}

func TestNoMoreIsReadThanAskedFor(t *testing.T) {
	for _, far := range []bool{false, true} {
		for _, tt := range []struct {
			method, ask string
			bytes       int64
		}{
			{"HEAD", "", 0},
			{"GET", "bytes=0-9", 10},
			{"GET", "bytes=5000000000-5000000999", 1000},
			{"GET", "bytes=5000000000-5003000000", 3000001},
			{"GET", "bytes=-100", 100},
			{"GET", "bytes=0-99,7000000000-7000000099", 200},
		} {
			h := newHuge(far)
			a := open(t, h, "x")
			before := h.read // opening looks at the beginning and the end
			s := serving(t, a, options{Version: "1"})
			var headers []string
			if tt.ask != "" {
				headers = []string{"Range", tt.ask}
			}
			answer, body, err := ask(t, tt.method, s.url+"/big", headers...)
			if err != nil || answer.StatusCode >= 300 || int64(len(body)) < tt.bytes {
				t.Errorf("%s %s: %v, %v, %d bytes", tt.method, tt.ask, answer, err, len(body))
			}
			h.mu.Lock()
			if got := h.read - before; got > tt.bytes {
				t.Errorf("far is %v: %s %s: %d bytes of content were read for %d", far, tt.method, tt.ask, got, tt.bytes)
			}
			h.mu.Unlock()
		}
	}
}

// TestNobodyReadsForAClientThatLeft checks that reading ends when the client
// disconnects.
func TestNobodyReadsForAClientThatLeft(t *testing.T) {
	for _, far := range []bool{false, true} {
		h := newHuge(far)
		ended := make(chan struct{})
		inner, _, _, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(h, "x", nil))
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			inner.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/f/x/big", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(answer.Body, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		cancel()
		answer.Body.Close()
		<-ended
		h.mu.Lock()
		if h.read > 256<<20 { // buffers on the way take some of it
			t.Errorf("far is %v: %d bytes were read for a client that took 1 MiB", far, h.read)
		}
		h.mu.Unlock()
		srv.Close()
	}
}

// changedFormat is tiny with changed extents.
func changedFormat(change func(*format.Extent)) *format.Format {
	f := *tiny.Format
	f.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		r, err := tiny.Format.Open(ctx, st, name, o)
		return changedReader{r, change}, err
	}
	return &f
}

type changedReader struct {
	format.Reader
	change func(*format.Extent)
}

func (r changedReader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		for x, err := range r.Reader.Extents(ctx, e, off, n) {
			if r.change(&x); !yield(x, err) {
				return
			}
		}
	}
}

// TestContentFromElsewhereHasNoETag checks content outside the archive, which
// the archive's version does not cover.
func TestContentFromElsewhereHasNoETag(t *testing.T) {
	f := changedFormat(func(x *format.Extent) { x.External = true })
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: packed(t, tiny.Format), Formats: []*format.Format{f}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := serving(t, a, options{Version: "v1"})
	if answer, _, err := ask(t, "HEAD", s.url+"/hello.txt"); err != nil || answer.StatusCode != 200 || answer.Header.Get("ETag") != "" {
		t.Errorf("%v, %v", answer, err)
	}
}

// decoded counts the bytes given to codec serve-test, which changes nothing.
var decoded atomic.Int64

func init() {
	codec.Register(codec.Codec{Name: "serve-test", Decode: func(r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(io.TeeReader(r, countingWriter{&decoded})), nil
	}})
}

// TestDecodedContentIsNotDecodedAgainAndAgain checks that a long range of
// content that must be decoded from its start is decoded once.
func TestDecodedContentIsNotDecodedAgainAndAgain(t *testing.T) {
	f := changedFormat(func(x *format.Extent) { x.Codec = "serve-test" })
	for _, far := range []bool{false, true} {
		var st store.Store = packed(t, tiny.Format)
		if !far {
			st = near{st}
		}
		a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Formats: []*format.Format{f}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		s := serving(t, a, options{})
		decoded.Store(0)
		if answer, body := get(t, s.url+"/long.bin", "Range", "bytes=5-2500003"); answer.StatusCode != 206 || body != long[5:2500004] {
			t.Errorf("%s, %d bytes", answer.Status, len(body))
		}
		if n := decoded.Load(); n > int64(len(long)) {
			t.Errorf("far is %v: %d bytes were decoded of %d", far, n, len(long))
		}
	}
}

type countingWriter struct{ n *atomic.Int64 }

func (c countingWriter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func TestFoldersHaveNoValidators(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f.txt"), []byte("one"), 0o666); err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(t.Context(), dir, holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := serving(t, a, options{Version: "v"})
	answer, body := get(t, s.url+"/f.txt")
	if body != "one" || answer.Header.Get("ETag") != "" || answer.Header.Get("Last-Modified") != "" {
		t.Errorf("%q, %v: it may change at any time", body, answer.Header)
	}
}
