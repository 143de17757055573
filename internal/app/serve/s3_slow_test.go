package serve_test

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/internal/app/serve"
)

// TestClientsWaitWithoutGivingUp checks that what takes long sends a byte every 10 seconds, that what comes then is the
// answer or an error, and that what is done at once is answered as ever.
func TestClientsWaitWithoutGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		set := serve.NewSet(serve.SetOptions{Log: log})
		defer set.Close()
		m := &mem{}
		if err := m.Make(t.Context(), "b-1"); err != nil {
			t.Fatal(err)
		}
		set.AddFolder(serve.Folder{Every: time.Hour, List: m.list})
		site := serve.NewSite(set, serve.SiteOptions{Log: log, Stall: 15 * time.Second})
		srv, l := &http.Server{Handler: serve.NewS3(site, serve.S3Options{Keeper: m})}, make(pipes)
		go srv.Serve(l)
		defer srv.Close()
		ours, theirs := net.Pipe()
		l <- theirs
		defer ours.Close()
		in := bufio.NewReader(ours)
		// It returns the answer, when its first byte came, and when all of it was there.
		ask := func(method, path, body string, headers ...string) (a *http.Response, text string, first, last time.Duration) {
			t.Helper()
			start := time.Now()
			fmt.Fprintf(ours, "%s /b-1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", method, path, len(body), strings.Join(headers, ""), body)
			a, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			first = time.Since(start)
			b, err := io.ReadAll(a.Body)
			if err != nil {
				t.Fatal(err)
			}
			return a, string(b), first, time.Since(start)
		}
		const source, none = "x-amz-copy-source: b-1/source\r\n", "If-None-Match: *\r\n"
		ask("PUT", "source", "content")
		up := func(key string) string {
			_, text, _, _ := ask("POST", key+"?uploads", "")
			var doc struct{ UploadId string }
			if err := xml.Unmarshal([]byte(text), &doc); err != nil || doc.UploadId == "" {
				t.Fatal(text, err)
			}
			return key + "?uploadId=" + doc.UploadId
		}
		whole := up("whole")
		a, _, _, _ := ask("PUT", whole+"&partNumber=1", "content")
		doc := completion(nil, a.Header.Get("ETag"))
		for _, c := range []struct {
			method, path, body string
			headers            []string
			status             int
			root, code         string
		}{
			{"PUT", "copy", "", []string{source}, 200, "CopyObjectResult", ""},
			{"PUT", "copy", "", []string{source, none}, 412, "Error", "PreconditionFailed"},
			{"PUT", up("part") + "&partNumber=2", "", []string{source}, 200, "CopyPartResult", ""},
			{"POST", whole, doc, []string{"If-Match: x\r\n"}, 404, "Error", "NoSuchKey"},
			{"POST", whole, doc, nil, 200, "CompleteMultipartUploadResult", ""},
		} {
			for _, takes := range []time.Duration{9 * time.Second, 10*time.Second + 1, 35 * time.Second} {
				if c.code == "" && c.path == whole && takes < 35*time.Second { // it can be done once
					continue
				}
				m.takes = takes
				a, text, first, last := ask(c.method, c.path, c.body, c.headers...)
				status, spaces, begins := c.status, 0, takes
				if takes > 10*time.Second {
					status, spaces, begins = 200, int(takes/(10*time.Second)), 10*time.Second
				}
				want := xml.Header + strings.Repeat(" ", spaces) + "<" + c.root
				var is struct {
					XMLName    xml.Name
					Code, ETag string
				}
				err := xml.Unmarshal([]byte(text), &is)
				if a.StatusCode != status || !strings.HasPrefix(text, want) || err != nil || is.XMLName.Local != c.root || is.Code != c.code || (is.ETag == "") == (c.code == "") || a.Header.Get("Content-Type") != "application/xml" {
					t.Errorf("%s after %v: %s %q %v", c.path, takes, a.Status, text, err)
				}
				if first != begins || last != takes {
					t.Errorf("%s after %v: the first byte came after %v, the last one after %v", c.path, takes, first, last)
				}
			}
		}
		m.takes = 0
		if _, text, _, _ := ask("GET", "whole", ""); text != "content" {
			t.Errorf("%q", text)
		}
	})
}
