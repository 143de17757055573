package web

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestContentRangeIsParsedOrRefused(t *testing.T) {
	for s, want := range map[string]contentRange{
		"bytes 0-9/10":        {0, 9, 10},
		"bytes 3-3/10":        {3, 3, 10},
		"bytes 3-5/*":         {3, 5, -1},
		"bytes */10":          {-1, -1, 10},
		"bytes */0":           {-1, -1, 0},
		"bytes 0--1/0":        {0, -1, 0},
		"bytes 10-9/10":       {10, 9, 10},
		"Bytes 0-9/10":        {0, 9, 10},
		" bytes  0-9/10 ":     {0, 9, 10},
		"bytes 007-9/0000010": {7, 9, 10},
	} {
		if got, err := parseContentRange(s); err != nil || got != want {
			t.Errorf("%q: expected %v, found %v, %v", s, want, got, err)
		}
	}
	for _, s := range []string{
		"", "bytes", "bytes ", "bytes /", "bytes */*", "bytes 0-9", "0-9/10", "items 0-9/10", "bytes=0-9/10",
		"bytes 5-4/10", "bytes 0-10/10", "bytes -1-4/10", "bytes +1-4/10", "bytes 1-+4/10", "bytes 0x1-4/10",
		"bytes 1-/10", "bytes -4/10", "bytes 10-8/10", "bytes 11-10/10", "bytes 10-9/*", "bytes 0--1/1", "bytes 0--1/*", "bytes 0-9/-1", "bytes 0-9/ 10", "bytes 0 - 9/10",
		"bytes 0-9/10/10", "bytes 0-9,20-29/30",
		"bytes 0-9223372036854775807/*", "bytes 0-9/9223372036854775807", "bytes 0-9/9223372036854775808",
		"bytes 99999999999999999999-99999999999999999999/*",
	} {
		if got, err := parseContentRange(s); err == nil {
			t.Errorf("%q: expected an error, found %v", s, got)
		}
	}
}

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes 10-9/10", "bytes 3-5/*", "bytes */10", "bytes 0--1/0", "bytes 5-4/10", "bytes 0-9223372036854775807/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cr, err := parseContentRange(s)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var again string
		switch {
		case cr.first < 0:
			again = fmt.Sprintf("bytes */%d", cr.size)
			if cr != (contentRange{-1, -1, cr.size}) || cr.size < 0 {
				t.Errorf("%q: %v", s, cr)
			}
		case cr.size < 0:
			again = fmt.Sprintf("bytes %d-%d/*", cr.first, cr.last)
		default:
			again = fmt.Sprintf("bytes %d-%d/%d", cr.first, cr.last, cr.size)
		}
		if n := cr.last - cr.first + 1; cr.first >= 0 && (n < 0 || n == 0 && cr.first != cr.size || cr.size >= 0 && cr.last >= cr.size) {
			t.Errorf("%q: %v", s, cr)
		}
		if got, err := parseContentRange(again); err != nil || got != cr {
			t.Errorf("%q: %v, written %q, read again %v, %v", s, cr, again, got, err)
		}
	})
}

func TestAnswerThatIsNotWhatWasAskedForIsRefused(t *testing.T) {
	const content = "0123456789"
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		want   string // in the error
	}{
		{"another start", func(w http.ResponseWriter, _ *http.Request) { partial(w, 3, content[3:6], "10") }, "requested bytes=2-4"},
		{"more than was asked for", func(w http.ResponseWriter, _ *http.Request) { partial(w, 2, content[2:6], "10") }, "requested bytes=2-4"},
		{"all of it as a range", func(w http.ResponseWriter, _ *http.Request) { partial(w, 0, content, "10") }, "requested bytes=2-4"},
		{"no Content-Range", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, content[2:5])
		}, "without a Content-Range"},
		{"malformed Content-Range", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 2-1/10")
			w.WriteHeader(http.StatusPartialContent)
		}, "malformed Content-Range"},
		{"Content-Range of a 416", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes */10")
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, content[2:5])
		}, "206 with Content-Range"},
		{"Content-Length of another range", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			partial(w, 2, content[2:5], "10")
		}, "Content-Length of 4"},
		{"a body that goes on", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 2-4/10")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush() // chunked, of no length told
			io.WriteString(w, content[2:9])
		}, "goes on after the 3 bytes"},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			partial(w, 2, content[2:5], "10")
		}, "Content-Encoding"},
		{"compressed as a whole", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			whole(w, content[:3])
		}, "Content-Encoding"},
		{"several parts", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "multipart/byteranges; boundary=x")
			partial(w, 2, content[2:5], "10")
		}, "multipart/byteranges"},
		{"416 within the size that it tells", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes */10")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, "416 for a range within"},
		{"304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "304 Not Modified"},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "204 No Content"},
		{"412 though nothing was required", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPreconditionFailed)
		}, "412 Precondition Failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
				c.answer(w, r)
				return true
			}}
			o := storetest.Open(t, serve(t, &s), "object")
			_, err := read(t, o, 2, 3)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("expected an error with %q, found %v", c.want, err)
			}
			for _, wrong := range []error{io.EOF, io.ErrUnexpectedEOF, fs.ErrNotExist, store.ErrChanged} {
				if errors.Is(err, wrong) {
					t.Errorf("%v: must not be taken for %v", err, wrong)
				}
			}
			if storekit.Temporary(err) {
				t.Errorf("%v: nothing that passes", err)
			}
			s.wantRanges(t, "2-4") // and no more
		})
	}
}

// A body that is cut, and says so itself, is asked for again.
func TestAShortBodyIsAskedForAgain(t *testing.T) {
	const content = "0123456789"
	var n atomic.Int64
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if n.Add(1) == 1 {
			w.Header().Set("Content-Length", "1")
		}
		partial(w, 2, content[2:5], "10")
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	if got, err := read(t, o, 2, 3); err != nil || string(got) != content[2:5] {
		t.Errorf("%q, %v", got, err)
	}
	s.wantRanges(t, "2-4", "2-4")
}

func TestServerWithoutRangesIsToldByName(t *testing.T) {
	// The object is endless: reading it would never end.
	var sent atomic.Int64
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<50))
		block := make([]byte, 64<<10)
		for {
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return true
			}
		}
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	for _, off := range []int64{0, 100} {
		_, err := read(t, o, off, 10)
		if !errors.Is(err, ErrNoRange) || storekit.Temporary(err) {
			t.Errorf("read at %d: expected ErrNoRange, not temporary, found %v", off, err)
		}
	}
	if _, err := storekit.ReadTail(t.Context(), o, make([]byte, 10)); !errors.Is(err, ErrNoRange) {
		t.Errorf("tail: expected ErrNoRange, found %v", err)
	}
	wantSize(t, o, 1<<50)
	s.wantRanges(t, "0-9", "100-109", "1125899906842614-1125899906842623")

	fresh := storetest.Open(t, serve(t, &s), "object")
	wantSize(t, fresh, 1<<50)
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were downloaded", n)
	}
}

func TestAnswerShorterThanAskedForIsContinued(t *testing.T) {
	const step = 100_000
	content := text(350_000)
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		first, last := isRange(r)
		partial(w, first, content[first:min(first+step, last+1)], fmt.Sprint(len(content)))
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	wantRead(t, o, 1, content[1:])
	s.wantRanges(t, "1-349999", "100001-349999", "200001-349999", "300001-349999")
}

func TestAnswersThatNeverEndTheRangeAreGivenUp(t *testing.T) {
	content := text(1000)
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		first, _ := isRange(r)
		partial(w, first, content[first:first+1], "1000")
		return true
	}}
	_, err := read(t, storetest.Open(t, serve(t, &s), "object"), 0, 1000)
	if err == nil || !strings.Contains(err.Error(), "sent only 1 of") {
		t.Errorf("expected an error that tells how little came, found %v", err)
	}
	if n := len(s.took()); n != far.DefaultTries {
		t.Errorf("expected %d requests, found %d", far.DefaultTries, n)
	}
}
