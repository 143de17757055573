package web

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// An edition is what a server has for an object at some moment.
type edition struct {
	etag    string
	mod     time.Time
	content string
	deaf    bool // ignores conditions
}

func (e edition) answer(w http.ResponseWriter, r *http.Request) {
	if e.etag != "" {
		w.Header().Set("ETag", e.etag)
	}
	if e.deaf {
		r.Header.Del("If-Match")
		r.Header.Del("If-Unmodified-Since")
	}
	http.ServeContent(w, r, "", e.mod, strings.NewReader(e.content))
}

func TestAnotherVersionIsNoticedByWhateverTheServerTells(t *testing.T) {
	later := servedAt.Add(time.Hour)
	var none time.Time
	for _, c := range []struct {
		name        string
		first, then edition
		condition   string // that the second request sends
		changed     bool
	}{
		{"ETag, 412", edition{`"a"`, servedAt, "0123456789", false}, edition{`"b"`, servedAt, "abcdefghij", false}, `If-Match: "a"`, true},
		{"ETag, If-Match ignored", edition{`"a"`, none, "0123456789", true}, edition{`"b"`, none, "abcdefghij", true}, `If-Match: "a"`, true},
		{"ETag same, time another", edition{`"a"`, servedAt, "0123456789", false}, edition{`"a"`, later, "0123456789", false}, `If-Match: "a"`, false},
		{"time, 412", edition{"", servedAt, "0123456789", false}, edition{"", later, "abcdefghij", false}, "If-Unmodified-Since: Fri, 02 Jan 2026 03:04:05 GMT", true},
		{"time, condition ignored", edition{"", servedAt, "0123456789", true}, edition{"", later, "abcdefghij", true}, "If-Unmodified-Since: Fri, 02 Jan 2026 03:04:05 GMT", true},
		{"time that went back", edition{"", later, "0123456789", true}, edition{"", servedAt, "abcdefghij", true}, "If-Unmodified-Since: Fri, 02 Jan 2026 04:04:05 GMT", true},
		{"weak ETag, time", edition{`W/"a"`, servedAt, "0123456789", false}, edition{`W/"b"`, later, "abcdefghij", false}, "If-Unmodified-Since: Fri, 02 Jan 2026 03:04:05 GMT", true},
		{"weak ETag another, all else the same", edition{`W/"a"`, servedAt, "0123456789", false}, edition{`W/"b"`, servedAt, "0123456789", false}, "If-Unmodified-Since: Fri, 02 Jan 2026 03:04:05 GMT", false},
		{"size alone", edition{"", none, "0123456789", false}, edition{"", none, "0123456789a", false}, "", true},
		{"size alone, smaller than what is read", edition{"", none, "0123456789", false}, edition{"", none, "0", false}, "", true},
		{"nothing told, same size", edition{"", none, "0123456789", false}, edition{"", none, "0123456789", false}, "", false},
		{"ETag disappears", edition{`"a"`, servedAt, "0123456789", true}, edition{"", servedAt, "0123456789", true}, `If-Match: "a"`, false},
		{"ETag appears", edition{"", servedAt, "0123456789", false}, edition{`"a"`, servedAt, "0123456789", false}, "If-Unmodified-Since: Fri, 02 Jan 2026 03:04:05 GMT", false},
		{"ETag disappears, time another", edition{`"a"`, servedAt, "0123456789", true}, edition{"", later, "0123456789", true}, `If-Match: "a"`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := c.first
			s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
				now.answer(w, r)
				return true
			}}
			o := storetest.Open(t, serve(t, &s), "object")
			wantRead(t, o, 0, "012")
			if r := s.took()[0]; conditional(r) {
				t.Errorf("a first request with a condition: %v", r.Header)
			}
			now = c.then
			got, err := read(t, o, 5, 3)
			if c.changed && !errors.Is(err, store.ErrChanged) || !c.changed && (err != nil || got != "567") {
				t.Errorf("expected changed %v, found %q, %v", c.changed, got, err)
			}
			if storekit.Temporary(err) {
				t.Errorf("%v: does not pass", err)
			}
			reqs := s.took()
			if len(reqs) != 1 {
				t.Fatalf("expected 1 request, found %d", len(reqs))
			}
			sent := ""
			for _, k := range []string{"If-Match", "If-Unmodified-Since", "If-Range", "If-None-Match"} {
				if v := reqs[0].Header.Get(k); v != "" {
					sent += k + ": " + v
				}
			}
			if sent != c.condition {
				t.Errorf("condition: expected %q, found %q", c.condition, sent)
			}
		})
	}
}

// One of the replicas of a name may have no ETag. If a request requires a match with one, it
// answers 412 although nothing changed.
func TestReplicasWithAndWithoutETagAreOneVersion(t *testing.T) {
	replicas := []edition{
		{`"a"`, servedAt, "0123456789", false},
		{"", servedAt, "0123456789", true},
		{"", servedAt, "0123456789", false},
		{`"a"`, servedAt, "0123456789", false},
	}
	turn := 0
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		replicas[turn].answer(w, r)
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	for turn = range replicas {
		wantRead(t, o, int64(turn), "0123456789"[turn:turn+3])
	}
	replicas[3].etag = `"b"`
	if _, err := read(t, o, 0, 1); !errors.Is(err, store.ErrChanged) {
		t.Errorf("another ETag: expected ErrChanged, found %v", err)
	}
}

func TestWhatGrowsIsReadAsItWas(t *testing.T) {
	now := edition{`"a"`, servedAt, "0123456789", false}
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		now.answer(w, r)
		return true
	}}
	o, err := storekit.OpenGrowing(t.Context(), serve(t, &s), "object")
	if err != nil {
		t.Fatal(err)
	}
	wantRead(t, o, 2, "234")
	now.etag, now.content = `"b"`, "0123456789abc"
	wantRead(t, o, 5, "56789")
	end := make([]byte, 4)
	if n, err := storekit.ReadTail(t.Context(), o, end); err != nil || string(end[:n]) != "6789" {
		t.Errorf("end: %q, %v", end[:n], err)
	}
	if info, err := o.Info(t.Context()); err != nil || info.Size != 10 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := read(t, o, 8, 4); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past its end: %v", err)
	}
	now.content = "01234567"
	if _, err := read(t, o, 0, 4); !errors.Is(err, store.ErrChanged) {
		t.Errorf("shorter: expected ErrChanged, found %v", err)
	}
}

func TestChangeBetweenAttemptsNeverMixesVersions(t *testing.T) {
	first := true
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if first {
			first = false
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Content-Range", "bytes 0-9/10")
			w.Header().Set("ETag", `"a"`)
			w.WriteHeader(http.StatusPartialContent)
			w.Write([]byte("01234"))
			breakOff(w)
		}
		edition{`"b"`, servedAt, "abcdefghij", false}.answer(w, r)
		return true
	}}
	if got, err := read(t, storetest.Open(t, serve(t, &s), "object"), 0, 10); !errors.Is(err, store.ErrChanged) {
		t.Errorf("expected ErrChanged, found %q, %v", got, err)
	}
	s.wantRanges(t, "0-9", "5-9")
}

func TestUnsatisfiedRangeWithinTheSizeMeansAChange(t *testing.T) {
	for name, size := range map[string]string{
		"no size told":      "",
		"empty now":         "bytes */0",
		"smaller size told": "bytes */3",
		"same size told":    "bytes */10",
		"larger size told":  "bytes */100",
	} {
		first := true
		s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
			if first {
				first = false
				edition{"", time.Time{}, "0123456789", true}.answer(w, r)
				return true
			}
			if size != "" {
				w.Header().Set("Content-Range", size)
			}
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return true
		}}
		o := storetest.Open(t, serve(t, &s), "object")
		wantRead(t, o, 0, "012")
		if _, err := read(t, o, 5, 3); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: expected ErrChanged, found %v", name, err)
		}
		s.wantRanges(t, "0-2", "5-7")
	}
}

func TestSizeSmallerThanWhatCameMeansAChange(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if first, _ := isRange(r); first == 0 {
			partial(w, 0, "01234", "*")
		} else {
			w.Header().Set("Content-Range", "bytes */3")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}
		return true
	}}
	if _, err := storekit.ReadHead(t.Context(), storetest.Open(t, serve(t, &s), "object"), make([]byte, 10)); !errors.Is(err, store.ErrChanged) {
		t.Errorf("expected ErrChanged, found %v", err)
	}
}

func TestVersionIsTheStrongETagOrElseDateAndSize(t *testing.T) {
	for _, c := range []struct {
		have edition
		want string
	}{
		{edition{`"a"`, servedAt, "0123456789", false}, `"a"`},
		{edition{`W/"a"`, servedAt, "0123456789", false}, "Fri, 02 Jan 2026 03:04:05 GMT; 10 bytes"},
		{edition{"", time.Time{}, "0123456789", false}, ""},
	} {
		s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
			c.have.answer(w, r)
			return true
		}}
		info, err := storetest.Open(t, serve(t, &s), "object").Info(t.Context())
		if err != nil || info.Version != c.want || !info.ModTime.Equal(c.have.mod) {
			t.Errorf("%+v: expected version %q, found %+v, %v", c.have, c.want, info, err)
		}
	}
}
