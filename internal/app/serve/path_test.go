package serve

import (
	"net/url"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func TestLinksOfLists(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "a b": "a b", " a ": "%20a%20", "ünï": "ünï", "x/y.z~_-": "x/y.z~_-", "a:b": "a%3Ab", "a b:c": "a b%3Ac", "f/10:30": "f/10:30",
		"http": "%68ttp", "f/http": "f/http", "a?b#c%d&e": "a%3Fb%23c%25d%26e", "q\"'": "q%22%27", "a\tb": "a%09b", "a\xff": "a%FF", "\ufffd": "%EF%BF%BD", "\u00a0": "%C2%A0", "(1)+[2]": "(1)+[2]",
	} {
		if got := href(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	// Whatever the name, the link leads to it.
	const odd = " :?#%&'\"<>\\ahtp/.\x00\t\xc3\xa9"
	rnd := testkit.Rand(t)
	for range 2000 {
		b := make([]byte, 1+rnd.IntN(12))
		for i := range b {
			b[i] = odd[rnd.IntN(len(odd))]
		}
		name := string(b)
		if !isPath(name) {
			continue
		}
		base := &url.URL{Scheme: "http", Host: "h", Path: "/z/x/"}
		to, err := base.Parse(href(name))
		if err != nil || to.Path != "/z/x/"+name || to.Host != "h" {
			t.Errorf("%q: %q leads to %v, %v", name, href(name), to, err)
		}
	}
}
