package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

var servedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// plain answers as net/http does.
func plain(w http.ResponseWriter, r *http.Request, content string) {
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(w, r, "", servedAt, strings.NewReader(content))
}

// whole answers with the whole object, whatever was asked for.
func whole(w http.ResponseWriter, content string) {
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	io.WriteString(w, content)
}

// partial answers with bytes from off on, told to be of an object of that size.
func partial(w http.ResponseWriter, off int, body, size string) {
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%s", off, off+len(body)-1, size))
	w.WriteHeader(http.StatusPartialContent)
	io.WriteString(w, body)
}

// isSuffix reports whether r asks for the last n bytes.
func isSuffix(r *http.Request) (n int, ok bool) {
	_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=-%d", &n)
	return n, err == nil
}

func isRange(r *http.Request) (first, last int) {
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
		panic("not a plain range: " + r.Header.Get("Range"))
	}
	return first, last
}

func TestTailWhateverTheServerMakesOfASuffix(t *testing.T) {
	const content = "0123456789"
	for _, c := range []struct {
		name    string
		content string
		n       int
		answer  func(w http.ResponseWriter, r *http.Request, content string)
		want    []string // the first tail's requests
		next    []string // those of a second object's tail, when the server is known
	}{
		{"answered", content, 4, plain, []string{"-4"}, []string{"-4"}},
		{"answered, longer than the object", content, 40, plain, []string{"-40"}, []string{"-40"}},
		{"answered, of an empty object by bytes 0--1/0", "", 4, plain, []string{"-4"}, []string{"-4"}},
		{"416 with the size if longer than the object", content, 40, tooLong(true), []string{"-40", "0-9"}, []string{"-40", "0-9"}},
		{"416 without the size if longer than the object", content, 40, tooLong(false), []string{"-40", "0-0", "0-9"}, []string{"-40", "0-0", "0-9"}},
		{"416 with the size of an empty object", "", 4, tooLong(true), []string{"-4"}, []string{"-4"}},
		{"416 without the size of an empty object", "", 4, tooLong(false), []string{"-4", "0-0"}, []string{"-4", "0-0"}},
		{"400", content, 4, refusing(400), []string{"-4", "0-0", "6-9"}, []string{"0-0", "6-9"}},
		{"400, object shorter", content, 40, refusing(400), []string{"-40", "0-0", "0-9"}, []string{"0-0", "0-9"}},
		{"400, object empty", "", 4, refusing(400), []string{"-4", "0-0"}, []string{"0-0"}},
		{"501", content, 4, refusing(501), []string{"-4", "0-0", "6-9"}, []string{"0-0", "6-9"}},
		{"405", content, 4, refusing(405), []string{"-4", "0-0", "6-9"}, []string{"0-0", "6-9"}},
		{"ignored: 200, whose length tells the size", content, 4, ignoring(true), []string{"-4"}, []string{"-4"}},
		{"ignored: 200, no longer than asked for", content, 10, ignoring(true), []string{"-10"}, []string{"-10"}},
		{"ignored: 200 of an empty object", "", 10, ignoring(true), []string{"-10"}, []string{"-10"}},
		{"ignored: 200 of unknown length", content, 4, ignoring(false), []string{"-4"}, []string{"-4"}},
		{"taken for 0-N", content, 4, func(w http.ResponseWriter, r *http.Request, content string) {
			if n, ok := isSuffix(r); ok {
				r.Header.Set("Range", fmt.Sprintf("bytes=0-%d", n))
			}
			plain(w, r, content)
		}, []string{"-4", "6-9"}, []string{"0-0", "6-9"}},
		{"answered with the total unknown", content, 4, starred, []string{"-4"}, []string{"-4"}},
		{"answered with the total unknown, longer than the object", content, 40, starred, []string{"-40"}, []string{"-40"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
				c.answer(w, r, c.content)
				return true
			}}
			st := serve(t, &s)
			for i, want := range [][]string{c.want, c.next} {
				o := storetest.Open(t, st, fmt.Sprint("object", i))
				wantTail(t, o, c.n, c.content[max(0, len(c.content)-c.n):])
				s.wantRanges(t, want...)
				wantSize(t, o, int64(len(c.content)))
				s.wantRanges(t)
			}
		})
	}
}

func tooLong(tell bool) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, content string) {
		n, ok := isSuffix(r)
		if ok && n > len(content) || content == "" {
			if tell {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(content)))
			}
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		plain(w, r, content)
	}
}

func refusing(status int) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, content string) {
		if _, ok := isSuffix(r); ok {
			http.Error(w, "no such range", status)
			return
		}
		plain(w, r, content)
	}
}

func ignoring(tell bool) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, content string) {
		switch _, ok := isSuffix(r); {
		case ok && tell:
			whole(w, content)
		case ok:
			w.(http.Flusher).Flush() // chunked from here on
			io.WriteString(w, content)
		default:
			plain(w, r, content)
		}
	}
}

// starred tells of no answer how big the object is.
func starred(w http.ResponseWriter, r *http.Request, content string) {
	if n, ok := isSuffix(r); ok {
		off := max(0, len(content)-n)
		partial(w, off, content[off:], "*")
		return
	}
	first, last := isRange(r)
	if first >= len(content) {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	partial(w, first, content[first:min(last+1, len(content))], "*")
}

func TestSizeIsFoundWhereNoAnswerTellsIt(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		starred(w, r, "0123456789")
		return true
	}}
	st := serve(t, &s)
	o := storetest.Open(t, st, "object")
	wantSize(t, o, 10)
	s.wantRanges(t, "0-0", "-1")

	o = storetest.Open(t, st, "object")
	wantRead(t, o, 2, "234")
	p := make([]byte, 20)
	if n, err := storekit.ReadHead(t.Context(), o, p); err != nil || string(p[:n]) != "0123456789" {
		t.Errorf("head 20: found %q, %v", p[:n], err)
	}
	// The answer was short, which may mean the end or not: the rest is asked for.
	s.wantRanges(t, "2-4", "0-19", "10-19")
	wantSize(t, o, 10)
	s.wantRanges(t)
}

func TestEmptyObjectThatIsAnsweredWithAnEmptyRange(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
		partial(w, 0, "", "0")
		return true
	}}
	st := serve(t, &s)
	wantSize(t, storetest.Open(t, st, "empty"), 0)
	wantTail(t, storetest.Open(t, st, "empty"), 3, "")
	if n, err := storekit.ReadHead(t.Context(), storetest.Open(t, st, "empty"), make([]byte, 3)); n != 0 || err != nil {
		t.Errorf("head 3: expected 0, nil, found %d, %v", n, err)
	}
	if _, err := read(t, storetest.Open(t, st, "empty"), 0, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read: expected io.ErrUnexpectedEOF, found %v", err)
	}
}

func TestSizeThatNobodyTellsIsAnError(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if _, ok := isSuffix(r); ok {
			w.WriteHeader(http.StatusBadRequest)
		} else {
			starred(w, r, "0123456789")
		}
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	wantRead(t, o, 2, "234")
	if _, err := o.Info(t.Context()); !errors.Is(err, errNoSize) {
		t.Errorf("info: expected that the size is not told, found %v", err)
	}
	if _, err := storekit.ReadTail(t.Context(), o, make([]byte, 4)); !errors.Is(err, errNoSize) {
		t.Errorf("tail: expected that the size is not told, found %v", err)
	}
	// A read beyond the end nevertheless fails with io.ErrUnexpectedEOF.
	for _, x := range [][2]int{{8, 3}, {10, 1}, {11, 1}} {
		o := storetest.Open(t, serve(t, &s), "object")
		if _, err := read(t, o, int64(x[0]), x[1]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read at %d+%d: expected io.ErrUnexpectedEOF, found %v", x[0], x[1], err)
		}
		if info, err := o.Info(t.Context()); err == nil && info.Size != 10 {
			t.Errorf("read at %d+%d: taken for the size of %d", x[0], x[1], info.Size)
		}
	}
}

func TestTailThatIsNotWhatWasAskedForIsRefused(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"Content-Encoding": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			partial(w, 6, "6789", "10")
		},
		"malformed Content-Range": func(w http.ResponseWriter) { partial(w, 7, "6789", "10") },
		"goes on after": func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 6-9/10")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			io.WriteString(w, "6789abc")
		},
	} {
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w)
			return true
		}}
		_, err := storekit.ReadTail(t.Context(), storetest.Open(t, serve(t, &s), "object"), make([]byte, 4))
		if err == nil || !strings.Contains(err.Error(), name) || storekit.Temporary(err) {
			t.Errorf("expected an error with %q, found %v", name, err)
		}
		s.wantRanges(t, "-4")
	}
}

func TestTailThatBreaksOffIsResumed(t *testing.T) {
	content := text(1000)
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		if n, ok := isSuffix(r); ok {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-999/1000", 1000-n))
			w.Header().Set("Content-Length", fmt.Sprint(n))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, content[1000-n:][:123])
			breakOff(w)
		}
		plain(w, r, content)
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	wantTail(t, o, 500, content[500:])
	s.wantRanges(t, "-500", "623-999")
}
