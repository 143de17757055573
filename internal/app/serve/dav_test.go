package serve_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/app/serve"
)

type multistatus struct {
	Responses []struct {
		Href string `xml:"DAV: href"`
		Prop struct {
			Collection *struct{} `xml:"DAV: resourcetype>collection"`
			Length     *int64    `xml:"DAV: getcontentlength"`
			Modified   string    `xml:"DAV: getlastmodified"`
			Tag        string    `xml:"DAV: getetag"`
		} `xml:"DAV: propstat>prop"`
	} `xml:"DAV: response"`
}

func propfind(t *testing.T, at, depth, body string, headers ...string) (*http.Response, multistatus) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "PROPFIND", at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if depth != "" {
		r.Header.Set("Depth", depth)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var m multistatus
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusMultiStatus {
		if err := xml.Unmarshal(b, &m); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
	}
	return answer, m
}

// Whoever walks through all folders by WebDAV finds each file that a path leads to, with its size, and reads it at the
// address that it has found.
func TestWebDAV(t *testing.T) {
	more := []holdall.Entry{
		{Name: "dir", Kind: format.Dir, ModTime: kept}, {Name: "dir/vacant", Kind: format.Dir}, {Name: "dir/link", Kind: format.Symlink, Link: "../hello.txt"}, {Name: "dir/loop", Kind: format.Symlink, Link: "loop"},
		{Name: "dir/ünï %#<&>\"", Kind: format.File, ModTime: kept}, {Name: "hard", Kind: format.HardLink, Link: "hello.txt"}, {Name: "../evil", Kind: format.File}, {Name: "pipe", Kind: format.Fifo}, {Name: "bad\x01\xff", Kind: format.File},
	}
	_, _, at, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, tiny.Format, more...), "x y", nil))
	var files []string
	var walk func(path string)
	walk = func(path string) {
		answer, m := propfind(t, at+path, "1", `<?xml version="1.0"?><propfind xmlns="DAV:"><allprop/></propfind>`)
		if answer.StatusCode != 207 || len(m.Responses) == 0 || m.Responses[0].Href != path || m.Responses[0].Prop.Collection == nil {
			t.Fatalf("%s: %s, %+v", path, answer.Status, m)
		}
		if answer, m := propfind(t, at+path, "0", ""); answer.StatusCode != 207 || len(m.Responses) != 1 || m.Responses[0].Href != path {
			t.Errorf("%s alone: %s, %+v", path, answer.Status, m)
		}
		for _, r := range m.Responses[1:] {
			if !strings.HasPrefix(r.Href, path) {
				t.Fatalf("%s is in %s", r.Href, path)
			}
			if r.Prop.Collection != nil {
				walk(r.Href)
				continue
			}
			answer, body := get(t, at+r.Href)
			if answer.StatusCode != 200 || r.Prop.Length == nil || int64(len(body)) != *r.Prop.Length {
				t.Errorf("%s: %s, %d bytes, %v", r.Href, answer.Status, len(body), r.Prop.Length)
			}
			if _, m := propfind(t, at+r.Href, "0", ""); len(m.Responses) != 1 || m.Responses[0].Href != r.Href || *m.Responses[0].Prop.Length != int64(len(body)) || m.Responses[0].Prop.Tag != answer.Header.Get("ETag") {
				t.Errorf("%s alone: %+v", r.Href, m)
			}
			name, err := url.PathUnescape(strings.TrimPrefix(r.Href, "/f/x%20y/"))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, name)
		}
	}
	walk("/")
	want := []string{"dir/link", "dir/ünï %#<&>\"", "hard", "bad\x01\xff"}
	for name := range contents {
		want = append(want, name)
	}
	slices.Sort(want)
	slices.Sort(files)
	if !slices.Equal(files, want) {
		t.Errorf("%q, expected %q", files, want)
	}
	for depth, path := range map[string]string{"": "/f/", "infinity": "/f/x%20y/"} {
		if answer, _ := propfind(t, at+path, depth, ""); answer.StatusCode != 403 {
			t.Errorf("depth %q: %s", depth, answer.Status)
		}
	}
	for path, code := range map[string]int{"/f/none/": 404, "/f/x%20y/none": 404, "/f/x%20y/pipe": 404, "/z/x%20y/": 405, "/zip/x%20y/": 405} {
		if answer, _ := propfind(t, at+path, "1", ""); answer.StatusCode != code {
			t.Errorf("%s: %s, expected %d", path, answer.Status, code)
		}
	}
	if answer, _ := propfind(t, at+"/f/", "1", strings.Repeat("x", 1<<20)); answer.StatusCode != 413 {
		t.Error(answer.Status)
	}
	if answer, _, err := ask(t, "OPTIONS", at+"/f/x%20y/"); err != nil || answer.StatusCode != 204 || answer.Header.Get("DAV") != "1" {
		t.Error(answer, err)
	}
	for _, method := range []string{"PUT", "MKCOL", "LOCK", "PROPPATCH", "DELETE"} {
		if answer, _, err := ask(t, method, at+"/f/x%20y/hello.txt"); err != nil || answer.StatusCode != 405 {
			t.Error(method, answer.Status, err)
		}
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// A client that knows passwords sends the token as one.
func TestWebDAVWithAToken(t *testing.T) {
	_, _, at, _ := siteOf(t, serve.SiteOptions{Token: "correct horse-battery"}, serve.SetOptions{}, sourceOf(packed(t, tiny.Format), "x", nil))
	if answer, _ := propfind(t, at+"/f/", "1", ""); answer.StatusCode != 401 || !strings.Contains(strings.Join(answer.Header["Www-Authenticate"], ","), "Basic ") {
		t.Error(answer.Status, answer.Header)
	}
	r, _ := http.NewRequest("", "", nil)
	for password, code := range map[string]int{"correct horse-battery": 207, "wrong": 401, "": 401} {
		r.SetBasicAuth("anyone", password)
		if answer, _ := propfind(t, at+"/f/", "1", "", "Authorization", r.Header.Get("Authorization")); answer.StatusCode != code {
			t.Errorf("%q: %s", password, answer.Status)
		}
	}
}
