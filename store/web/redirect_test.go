package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A pair is a host that redirects to a second host, as services do that sign addresses of the
// bucket that they use.
type pair struct {
	front, back site
	store       *Store
	backURL     string
	signature   string
	status      int // of the bucket for a signature that has expired
}

func newPair(t *testing.T) *pair {
	p := &pair{signature: "sig-1", status: http.StatusForbidden}
	p.back.put("bucket/object", []byte("0123456789"))
	back := httptest.NewServer(&p.back)
	t.Cleanup(back.Close)
	p.backURL = back.URL
	p.front.hook = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, back.URL+"/bucket/object?signature="+p.signature, http.StatusFound)
		return true
	}
	p.back.hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("signature") != p.signature {
			w.WriteHeader(p.status)
			return true
		}
		return false
	}
	front := httptest.NewServer(&p.front)
	t.Cleanup(front.Close)
	p.store = below(t, strings.Replace(front.URL, "//", "//user:password@", 1), Options{
		Header: http.Header{"X-Api-Key": {"key-key-key"}, "Cookie": {"session=abc"}, "User-Agent": {"tester"}},
	})
	return p
}

func (p *pair) wantRequests(t *testing.T, front, back int) {
	t.Helper()
	if f, b := len(p.front.took()), len(p.back.took()); f != front || b != back {
		t.Errorf("requests: expected %d to the host and %d to where it redirects, found %d and %d", front, back, f, b)
	}
}

func TestRedirectIsFollowedOnceAndKept(t *testing.T) {
	p := newPair(t)
	o := storetest.Open(t, p.store, "object")
	wantTail(t, o, 3, "789")
	p.wantRequests(t, 1, 1)
	for range 5 {
		wantRead(t, o, 2, "234")
	}
	p.wantRequests(t, 0, 5)
	wantRead(t, storetest.Open(t, p.store, "object"), 0, "0")
	p.wantRequests(t, 1, 1)
}

func TestExpiredRedirectIsRenewedFromTheAddress(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 410} {
		p := newPair(t)
		p.status = status
		o := storetest.Open(t, p.store, "object")
		wantRead(t, o, 0, "012")
		p.wantRequests(t, 1, 1)
		p.signature = "sig-2"
		wantRead(t, o, 3, "345")
		p.wantRequests(t, 1, 2)
		wantRead(t, o, 6, "678")
		p.wantRequests(t, 0, 1)
	}
}

func TestRedirectThatIsRefusedAnewIsAnError(t *testing.T) {
	p := newPair(t)
	o := storetest.Open(t, p.store, "object")
	wantRead(t, o, 0, "012")
	p.wantRequests(t, 1, 1)
	p.back.hook = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	if _, err := read(t, o, 3, 3); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("expected fs.ErrPermission, found %v", err)
	}
	p.wantRequests(t, 1, 2) // the kept address, then the host's anew: once
}

func TestUnreachableRedirectIsRenewedFromTheAddress(t *testing.T) {
	p := newPair(t)
	gone := httptest.NewServer(&p.back)
	p.front.hook = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, gone.URL+"/bucket/object?signature=sig-1", http.StatusTemporaryRedirect)
		return true
	}
	o := storetest.Open(t, p.store, "object")
	wantRead(t, o, 0, "012")
	gone.Close()
	p.front.hook = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, p.backURL+"/bucket/object?signature=sig-1", http.StatusTemporaryRedirect)
		return true
	}
	p.wantRequests(t, 1, 1)
	wantRead(t, o, 3, "345")
	p.wantRequests(t, 1, 1)
}

func TestCredentialsGoToTheOwnHostOnly(t *testing.T) {
	p := newPair(t)
	o := storetest.Open(t, p.store, "object")
	wantRead(t, o, 0, "0")
	wantRead(t, o, 1, "1")
	for _, r := range p.front.took() {
		user, password, _ := r.BasicAuth()
		if user != "user" || password != "password" || r.Header.Get("X-Api-Key") != "key-key-key" || r.Header.Get("Cookie") != "session=abc" {
			t.Errorf("own host: expected the credentials, found %v", r.Header)
		}
	}
	for _, r := range p.back.took() {
		for k, v := range r.Header {
			switch k {
			case "Range", "Accept-Encoding", "User-Agent", "If-Match":
			default:
				t.Errorf("other host: found %s: %v", k, v)
			}
		}
		if r.Header.Get("User-Agent") != "tester" || r.Header.Get("Range") == "" {
			t.Errorf("other host: expected range and user agent, found %v", r.Header)
		}
	}
}

func TestOwnAuthorizationHeaderWinsOverTheUser(t *testing.T) {
	var s site
	s.put("object", []byte("x"))
	srv := httptest.NewServer(&s)
	defer srv.Close()
	st := below(t, strings.Replace(srv.URL, "//", "//user:password@", 1), Options{Header: http.Header{"Authorization": {"Bearer token"}}})
	wantRead(t, storetest.Open(t, st, "object"), 0, "x")
	if got := s.took()[0].Header.Get("Authorization"); got != "Bearer token" {
		t.Errorf("expected the header, found %q", got)
	}
}

func TestHostIsTrustedWithItsOwnCredentials(t *testing.T) {
	for _, c := range []struct {
		base, to string
		want     bool
	}{
		{"https://host.test/", "https://host.test/a", true},
		{"https://host.test/", "https://HOST.test:443/a", true},
		{"http://host.test:8080/", "http://host.test:8080/a", true},
		{"http://host.test/", "https://host.test/a", true},
		{"https://host.test/", "http://host.test/a", false},
		{"http://host.test:8080/", "https://host.test:8443/a", false},
		{"https://host.test/", "https://host.test:8443/a", false},
		{"https://host.test/", "https://sub.host.test/a", false},
		{"https://host.test/", "https://test/a", false},
		{"https://host.test/", "https://host.test.evil.test/a", false},
	} {
		to, err := url.Parse(c.to)
		if err != nil {
			t.Fatal(err)
		}
		if got := below(t, c.base, Options{}).trusts(to); got != c.want {
			t.Errorf("%s to %s: expected %v, found %v", c.base, c.to, c.want, got)
		}
	}
}

func TestRedirectsThatLeadNowhereAreErrors(t *testing.T) {
	for location, want := range map[string]string{
		"/loop":                   "more than 10 redirects",
		"ftp://host.test/object":  "neither http nor https",
		"file:///etc/passwd":      "neither http nor https",
		"http://[secret-sig/":     "malformed address",
		"http://h/%zz?secret-sig": "malformed address",
		"":                        "302 Found",
	} {
		n := 0
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			n++
			w.Header()["Location"] = []string{location}
			w.WriteHeader(http.StatusFound)
			return true
		}}
		_, err := read(t, storetest.Open(t, serve(t, &s), "object"), 0, 1)
		if err == nil || !strings.Contains(err.Error(), want) || storekit.Temporary(err) {
			t.Errorf("%q: expected %q, not temporary, found %v", location, want, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret-sig") {
			t.Errorf("%q: shown in %v", location, err)
		}
		if n > maxRedirects+1 {
			t.Errorf("%q: %d requests", location, n)
		}
	}
}

func TestRedirectPolicyOfTheProgramIsAsked(t *testing.T) {
	p := newPair(t)
	refused := errors.New("refused by policy")
	u := *p.store.base
	st := New(&u, Options{Tries: 1, Client: &http.Client{CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if req.URL.Host != u.Host {
			return refused
		}
		return nil
	}}})
	if _, err := read(t, storetest.Open(t, st, "object"), 0, 1); !errors.Is(err, refused) {
		t.Errorf("expected the program's error, found %v", err)
	}
	p.wantRequests(t, 1, 0)
}
