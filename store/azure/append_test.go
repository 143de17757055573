package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
)

func isAppend(r *http.Request) bool { return r.URL.Query().Get("comp") == "appendblock" }

func TestWhatIsAppendedIsThereOnce(t *testing.T) {
	for name, fault := range map[string]func(d *double){
		"":     func(*double) {},
		"busy": func(d *double) { d.hook = nth(1, isAppend, busy) },
		"the answer is lost": func(d *double) {
			d.hook = nth(1, isAppend, func(w http.ResponseWriter, r *http.Request) bool {
				d.hook = nil
				d.ServeHTTP(discard{http.Header{}}, r)
				panic(http.ErrAbortHandler)
			})
		},
	} {
		d := &double{}
		st := serve(t, d, "p/")
		fault(d)
		long := bytes.Repeat([]byte("0123456789abcdef"), appendBlock/16+1)
		if err := errors.Join(st.Append(t.Context(), "log", []byte("one\n"), 0), st.Append(t.Context(), "log", []byte("two\n"), 4), st.Append(t.Context(), "log", long, 8)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := d.blobs["p/log"].content; !bytes.Equal(got, append([]byte("one\ntwo\n"), long...)) {
			t.Errorf("%s: %d bytes, %.20q", name, len(got), got)
		}
		// Somebody else has appended, or it is no blob to append to.
		if err := st.Append(t.Context(), "log", []byte("x"), 4); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: behind another: %v", name, err)
		}
		if err := st.Append(t.Context(), "log", []byte("x"), 0); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: at the beginning: %v", name, err)
		}
		if err := st.Append(t.Context(), "none", []byte("x"), 4); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: to nothing: %v", name, err)
		}
		d.set("p/block", nil, "")
		if err := st.Append(t.Context(), "block", []byte("x"), 0); err == nil || !strings.Contains(err.Error(), "InvalidBlobType") {
			t.Errorf("%s: to another kind: %v", name, err)
		}
	}
}

// discard takes a response that is sent to no client.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func TestALeaseIsHeldByOne(t *testing.T) {
	defer func(every time.Duration) { leaseRenewed = every }(leaseRenewed)
	leaseRenewed = time.Millisecond
	d := &double{}
	st := serve(t, d, "")
	held, release, err := st.Lease(t.Context(), "repo.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.Lease(t.Context(), "repo.lock"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second lease: %v", err)
	}
	if err := st.Remove(t.Context(), "repo.lock"); err == nil {
		t.Error("it was removed while it was leased")
	}
	if held.Err() != nil {
		t.Error(context.Cause(held))
	}
	if err := errors.Join(release(), release()); err != nil {
		t.Error(err)
	}
	if d.blobs["repo.lock"] != nil || held.Err() == nil {
		t.Error("it is held after its end")
	}
	// Somebody breaks it.
	held, release, err = st.Lease(t.Context(), "repo.lock")
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.blobs["repo.lock"].lease = "another's"
	d.mu.Unlock()
	<-held.Done()
	if err := context.Cause(held); !errors.Is(err, errLeaseLost) {
		t.Errorf("a lease that is lost: %v", err)
	}
	if err := release(); err == nil || d.blobs["repo.lock"] == nil {
		t.Errorf("another's lock was taken away: %v", err)
	}
}

func TestHeadersThatAreWishedForAreListed(t *testing.T) {
	d := &double{page: 2}
	st := serve(t, d, "p/")
	for _, name := range []string{"a", "b", "c"} {
		w, err := st.CreateAs(t.Context(), name, store.Wishes{Headers: map[string]string{"x-amz-meta-fullGeneration": name + "&", "content-type": "text/plain"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The name has the capitals that it was sent with.
		if h := d.blobs["p/"+name].headers; h["x-ms-meta-fullGeneration"] == "" && h["X-Ms-Meta-Fullgeneration"] == "" {
			t.Errorf("%s: %v", name, h)
		}
	}
	d.set("p/d", []byte("x"), "")
	n := 0
	for h, err := range st.ListHeaders(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		if h.Name != "d" {
			want = map[string]string{"x-amz-meta-fullgeneration": h.Name + "&"}
		}
		if n++; !maps.Equal(h.Headers, want) {
			t.Errorf("%s: %v, expected %v", h.Name, h.Headers, want)
		}
	}
	if n != 4 {
		t.Errorf("%d of 4 listed", n)
	}
}

// A store of 5,000 segments takes one request, and one for what is beside them.
func TestFiveThousandAreListedAtOnce(t *testing.T) {
	d := &double{}
	st := serve(t, d, "p/")
	for i := range 5002 {
		d.set(fmt.Sprintf("p/%05d", i), nil, "")
	}
	n := 0
	for _, err := range st.ListHeaders(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5002 || len(d.took) != 2 {
		t.Errorf("%d listed by %d requests", n, len(d.took))
	}
}
