package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// unranged sends all of an object whatever is requested of it, with its length or without.
func unranged(told bool) func(w http.ResponseWriter, content string) {
	return func(w http.ResponseWriter, content string) {
		if !told {
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, content)
	}
}

// telling returns a context, and a function that returns what stores have told in it.
func telling(t *testing.T) (context.Context, func() []string) {
	var mu sync.Mutex
	var lines []string
	ctx := storekit.Telling(t.Context(), func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	})
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
}

func TestObjectOfAServerWithoutRangesIsFetchedOnce(t *testing.T) {
	content := text(100_000)
	for _, told := range []bool{true, false} {
		for name, serve := range map[string]func(*testing.T, http.Handler) *Store{"HTTP/1.1": serve, "HTTP/2.0": serveHTTP2} {
			s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
				unranged(told)(w, content)
				return true
			}}
			ctx, lines := telling(t)
			st := serve(t, &s)
			o := storetest.Open(t, st, "object")
			p := make([]byte, 1000)
			n, err := storekit.ReadTail(ctx, o, p)
			if err != nil || string(p[:n]) != content[99_000:] {
				t.Errorf("%s, length told %v: found %q, %v", name, told, p[:n], err)
			}
			for _, x := range [][2]int{{0, 9}, {1, 9}, {99_999, 1}, {0, 100_000}} {
				wantRead(t, o, int64(x[0]), content[x[0]:x[0]+x[1]])
			}
			for _, off := range []int64{99_999, 100_000, 200_000} {
				if _, err := read(t, o, off, 2); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("read past the end: %v", err)
				}
			}
			wantSize(t, o, 100_000)
			s.wantRanges(t, "-1000")
			if got := lines(); len(got) != 1 || got[0] != st.Address("object")+": server has no ranges; fetched whole" {
				t.Errorf("told %q", got)
			}
			wantRead(t, storetest.Open(t, st, "object"), 7, content[7:10])
			s.wantRanges(t, "7-9")
		}
	}
}

// What was requested was sent, so there is nothing to tell. A page of a server that is no archive is not told as one.
func TestNothingIsToldOfWhatWasRequested(t *testing.T) {
	for ctype, want := range map[string]int64{"text/plain": 10, "text/html; charset=utf-8": 2} {
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", ctype)
			io.WriteString(w, "0123456789")
			return true
		}}
		ctx, lines := telling(t)
		o := storetest.Open(t, serve(t, &s), "object")
		if n, err := storekit.ReadHead(ctx, o, make([]byte, want)); n != int(want) || err != nil {
			t.Error(n, err)
		}
		if got := lines(); len(got) != 0 {
			t.Errorf("%s: told %q", ctype, got)
		}
	}
}

// Only a request for the size does not fetch the object.
func TestSizeIsLearntWithoutTheObject(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
		whole(w, "0123456789")
		return true
	}}
	ctx, lines := telling(t)
	st := serve(t, &s)
	o := storetest.Open(t, st, "object")
	if info, err := o.Info(ctx); err != nil || info.Size != 10 {
		t.Error(info, err)
	}
	if len(lines()) != 0 || st.whole.n != 0 {
		t.Errorf("told %q, %d bytes are held", lines(), st.whole.n)
	}
}

// A body whose end is that of the connection may be a part of it.
func TestBodyWithoutAnEndIsNotTakenForTheWhole(t *testing.T) {
	s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
		conn, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		defer conn.Close()
		fmt.Fprint(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789")
		out.Flush()
		return true
	}}
	_, err := read(t, storetest.Open(t, serve(t, &s), "object"), 2, 3)
	if !errors.Is(err, ErrNoRange) || !strings.Contains(err.Error(), "nothing shows whether all has arrived") {
		t.Errorf("expected ErrNoRange, found %v", err)
	}
}

// A body that is cut off, or longer than the server says, is an error and never an object.
func TestServerWithoutRangesThatLiesAboutLengths(t *testing.T) {
	for _, told := range []int{5, 20} {
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(told))
			io.WriteString(w, "0123456789"[:min(told, 10)])
			return true
		}}
		o := storetest.Open(t, serve(t, &s), "object")
		got, err := read(t, o, 2, 3)
		if told == 5 && (err != nil || got != "234") || told == 20 && (!storekit.Temporary(err) || !strings.Contains(err.Error(), "body broke off after 10 of 20 bytes")) {
			t.Errorf("%d bytes told: found %q, %v", told, got, err)
		}
	}
}

func TestObjectsOverTheLimitAreNotFetchedWhole(t *testing.T) {
	for _, told := range []bool{true, false} {
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			if told {
				w.Header().Set("Content-Length", fmt.Sprint(mostWhole+1))
			}
			block := make([]byte, 1<<20)
			for range mostWhole >> 20 {
				w.Write(block)
			}
			w.Write(block[:1])
			return true
		}}
		st := serve(t, &s)
		_, err := read(t, storetest.Open(t, st, "object"), 5, 3)
		if !errors.Is(err, ErrNoRange) || storekit.Temporary(err) || !strings.Contains(err.Error(), "more than the 64 MiB") || !strings.Contains(err.Error(), "'holdall serve' or nginx") {
			t.Errorf("length told %v: %v", told, err)
		}
		if st.whole.n != 0 {
			t.Errorf("%d bytes are held", st.whole.n)
		}
	}
}

// Objects in memory have a limit together. One that is fetched again must be the same.
func TestWholeObjectsShareTheirMemory(t *testing.T) {
	contents := map[string][]byte{}
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		b := contents[r.URL.Path]
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b)
		return true
	}}
	for _, name := range []string{"/a", "/b", "/c"} {
		contents[name] = bytes.Repeat([]byte(name[1:]), mostWhole*2/5)
	}
	st := serve(t, &s)
	a, b, c := storetest.Open(t, st, "a"), storetest.Open(t, st, "b"), storetest.Open(t, st, "c")
	for range 2 {
		wantRead(t, a, 1, "aaa")
		wantRead(t, b, 1, "bbb")
	}
	s.wantRanges(t, "1-3", "1-3")
	wantRead(t, c, 1, "ccc")
	wantRead(t, a, 1, "aaa")
	s.wantRanges(t, "1-3", "1-3")
	if st.whole.n > mostWhole || len(st.whole.held) != 2 {
		t.Errorf("%d objects with %d bytes are held", len(st.whole.held), st.whole.n)
	}
	contents["/b"] = bytes.Repeat([]byte("x"), mostWhole*2/5)
	if _, err := read(t, b, 1, 3); !errors.Is(err, store.ErrChanged) {
		t.Errorf("another version: %v", err)
	}
	for _, o := range []store.Object{a, b, c} {
		o.Close()
	}
	if st.whole.n != 0 || len(st.whole.held) != 0 {
		t.Errorf("%d bytes are held by closed objects", st.whole.n)
	}
}

// An object that changes between its first answer and the one with all bytes is not a mix of both.
func TestObjectWithoutRangesThatChanges(t *testing.T) {
	n := 0
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		n++
		w.Header().Set("Last-Modified", servedAt.Add(time.Duration(n)*time.Hour).UTC().Format(http.TimeFormat))
		whole(w, text(1000+n))
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	wantSize(t, o, 1001)
	if _, err := read(t, o, 1, 3); !errors.Is(err, store.ErrChanged) {
		t.Errorf("found %v", err)
	}
}
