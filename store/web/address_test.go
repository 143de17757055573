package web

import (
	"errors"
	"io/fs"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestAddressIsSplitIntoStoreAndName(t *testing.T) {
	for _, c := range []struct{ address, base, name, object string }{
		{"https://host.test/dir/archive.caf", "https://host.test/dir/", "archive.caf", "https://host.test/dir/archive.caf"},
		{"http://host.test/archive.caf", "http://host.test/", "archive.caf", "http://host.test/archive.caf"},
		{"HTTPS://host.test:8443/a", "https://host.test:8443/", "a", "https://host.test:8443/a"},
		{"https://host.test/d%20d/a%20b%3F.caf", "https://host.test/d%20d/", "a b?.caf", "https://host.test/d%20d/a%20b%3F.caf"},
		{"https://host.test/dir/a%2Fb.caf", "https://host.test/dir/", "a/b.caf", "https://host.test/dir/a%2Fb.caf"},
		{"https://host.test/d%2Fir/a.caf", "https://host.test/d%2Fir/", "a.caf", "https://host.test/d%2Fir/a.caf"},
		{"https://host.test/dir/a.caf?X-Sig=a%2Fb+c&x#frag", "https://host.test/dir/", "a.caf", "https://host.test/dir/a.caf?X-Sig=a%2Fb+c&x"},
		{"https://host.test/#/a%20b.caf/dir?tab=map", "https://host.test/", "a b.caf", "https://host.test/a%20b.caf"},
		{"https://host.test#/a.caf", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://user:pw@host.test/site/index.html?token=t#/a.caf", "https://host.test/site/", "a.caf", "https://host.test/site/a.caf?token=t"},
		{"https://host.test/d%2Fir/#/b.caf", "https://host.test/d%2Fir/", "b.caf", "https://host.test/d%2Fir/b.caf"},
		{"https://host.test/a.caf#/b%2Fc", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://host.test/a.caf#/", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://host.test/a.caf#/..", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://host.test/a.caf#/?tab=map", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://user:pw@host.test/a.caf", "https://host.test/", "a.caf", "https://host.test/a.caf"},
		{"https://host.test", "https://host.test/", "", "https://host.test"},
		{"https://host.test/get/?id=7", "https://host.test/get/", "", "https://host.test/get/?id=7"},
		{"https://host.test/a+b~c.caf", "https://host.test/", "a+b~c.caf", "https://host.test/a+b~c.caf"},
	} {
		st, name, err := Open(t.Context(), c.address)
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if base := st.(*Store).base.String(); base != c.base || name != c.name {
			t.Errorf("%s: expected %s and %q, found %s and %q", c.address, c.base, c.name, base, name)
		}
		if u, err := st.(*Store).resolve(name); err != nil || u.String() != c.object {
			t.Errorf("%s: %q: expected the address %s, found %v, %v", c.address, name, c.object, u, err)
		}
	}
}

func TestSiblingsHaveNoQueryOfTheAddress(t *testing.T) {
	st, _, err := At("https://host.test/d%20d/a.caf?signature=s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.caf.1":        "https://host.test/d%20d/a.caf.1",
		"sub/b c+d?.caf": "https://host.test/d%20d/sub/b%20c%2Bd%3F.caf",
		"100%41":         "https://host.test/d%20d/100%2541",
		"x//y/":          "https://host.test/d%20d/x//y/",
		"a:b":            "https://host.test/d%20d/a:b",
		`a\b`:            "https://host.test/d%20d/a%5Cb",
		"%2e%2e/x":       "https://host.test/d%20d/%252e%252e/x",
		"http://evil/x":  "https://host.test/d%20d/http://evil/x",
		"\x00\n":         "https://host.test/d%20d/%00%0A",
		"...":            "https://host.test/d%20d/...",
	} {
		if u, err := st.resolve(name); err != nil || u.String() != want {
			t.Errorf("%q: expected %s, found %v, %v", name, want, u, err)
		}
	}
}

func TestQueryOfABaseIsSentWithEveryObject(t *testing.T) {
	var s site
	s.put("container/a b", []byte("x"))
	srv := httptest.NewServer(&s)
	defer srv.Close()
	st := below(t, srv.URL+"/container?sv=1&sig=secret", Options{})
	wantRead(t, storetest.Open(t, st, "a b"), 0, "x")
	if got := s.took()[0].URL.String(); got != "/container/a%20b?sv=1&sig=secret" {
		t.Errorf("found %s", got)
	}
}

func TestNamesThatLeadOutOfTheStoreAreRefused(t *testing.T) {
	st := below(t, "https://host.test/dir/", Options{})
	for _, name := range []string{"", "/", "/etc", "..", ".", "../x", "a/../x", "a/./b", "a/..", "//host/x"} {
		if _, err := st.Open(t.Context(), name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: expected fs.ErrInvalid, found %v", name, err)
		}
	}
}

func TestAddressesThatAreNoneAreRefusedWithoutTheirSecrets(t *testing.T) {
	for _, address := range []string{
		"ftp://user:secretpw@host.test/a", "https:///a?secretpw", "https://user:secretpw@/a", "https://",
		"https://user:p%zzsecretpw@host.test/a", "https://user:secretpw/more@host.test/a", "https:user:secretpw@host/x",
		"https://host.test/%zz?sig=secretpw", "https://host.test:port/secretpw", "https://ho st/?secretpw", "://secretpw", "secretpw",
	} {
		st, _, err := Open(t.Context(), address)
		if err == nil || st != nil {
			t.Errorf("%s: expected an error and no store, found %v, %v", address, st, err)
		} else if strings.Contains(err.Error(), "secretpw") {
			t.Errorf("%s: shown in %v", address, err)
		}
	}
	ftp, err := url.Parse("ftp://host.test/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(ftp, Options{}).Open(t.Context(), "a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("store at ftp: expected errors.ErrUnsupported, found %v", err)
	}
}

// Package store/all registers the opener; a test run more than once must not.
var registered = sync.OnceFunc(func() { store.Register("http", Open) })

func TestOpenIsAnOpenerForAddresses(t *testing.T) {
	registered()
	var s site
	s.put("dir/archive", []byte("bytes"))
	srv := httptest.NewServer(&s)
	defer srv.Close()
	st, name, err := store.OpenAddress(t.Context(), srv.URL+"/dir/archive?signature=s")
	if err != nil {
		t.Fatal(err)
	}
	wantRead(t, storetest.Open(t, st, name), 0, "bytes")
	if got := s.took()[0].URL.RawQuery; got != "signature=s" {
		t.Errorf("expected the query of the address, found %q", got)
	}
	s.put("dir/sibling", []byte("other"))
	wantRead(t, storetest.Open(t, st, "sibling"), 0, "other")
	if got := s.took()[0].URL.RawQuery; got != "" {
		t.Errorf("sibling: expected no query, found %q", got)
	}
}

func FuzzAddressesOfPages(f *testing.F) {
	for _, s := range []string{"/a.caf/dir?tab=map", "/a%20b", "/..", "/%2e%2e/x", "/a%2Fb", "/%zz", "a", "", "/?q"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, fragment string) {
		st, name, err := At("http://host.test/dir/#"+fragment, Options{})
		if err != nil {
			return
		}
		if u, err := st.resolve(name); err != nil || u.Host != "host.test" || !strings.HasPrefix(u.Path, "/dir/") || strings.Count(u.Path, "/") != 2 || strings.Contains(u.Path, "/..") && u.Path != "/dir/"+name {
			t.Errorf("%q: %q, %v, %v", fragment, name, u, err)
		}
	})
}
