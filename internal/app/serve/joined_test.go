package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store/storetest"
)

func TestResponsesOfAllSizesAreWholeOnConnectionsThatHoldTheirBeginning(t *testing.T) {
	m := &storetest.Mem{}
	w, err := caf.Format.Create(t.Context(), m, "x", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 511, 512, 2047, 2048, 2049, 4096, 8191, 8192, 9000, 70_000, 300_000, 1<<20 + 1}
	for size := 3300; size < 4100; size += 7 { // with their headers, about a buffer of net/http
		sizes = append(sizes, size)
	}
	text := func(size int) string { return strings.Repeat("0123456789\n", size/11+1)[:size] }
	for _, size := range sizes {
		if err := w.Add(t.Context(), holdall.Entry{Name: fmt.Sprint("f", size), Size: int64(size)}, strings.NewReader(text(size))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"HTTP", "HTTPS", "HTTP/2"} {
		t.Run(kind, func(t *testing.T) {
			set := serve.NewSet(serve.SetOptions{})
			t.Cleanup(set.Close)
			set.Add(sourceOf(m, "x", nil))
			srv := httptest.NewUnstartedServer(serve.NewSite(set, serve.SiteOptions{}))
			srv.Listener, srv.Config.ConnContext, srv.EnableHTTP2 = serve.Joined(srv.Listener), serve.JoinedContext, kind == "HTTP/2"
			if kind == "HTTP" {
				srv.Start()
			} else {
				srv.StartTLS()
			}
			t.Cleanup(srv.Close)
			for _, size := range sizes {
				for _, as := range []struct {
					method, part string
					code         int
				}{{http.MethodGet, "", 200}, {http.MethodHead, "", 200}, {http.MethodGet, "bytes=1-", 206}, {http.MethodGet, "", 200}} {
					r, err := http.NewRequest(as.method, fmt.Sprintf("%s/f/x/f%d", srv.URL, size), nil)
					if err != nil {
						t.Fatal(err)
					}
					want, code, ctype := text(size), as.code, "text/plain; charset=utf-8"
					if as.part != "" {
						if size < 2 {
							continue
						}
						r.Header.Set("Range", as.part)
						want = want[1:]
					}
					if as.method == http.MethodHead {
						want = ""
					}
					if size == 0 || size > 1<<20 {
						ctype = "application/octet-stream"
					}
					answer, err := srv.Client().Do(r)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					if err != nil || string(got) != want || answer.StatusCode != code || answer.Header.Get("Content-Type") != ctype {
						t.Errorf("%s %s of %d bytes: %d of %q with %d bytes, %v", as.method, as.part, size, answer.StatusCode, answer.Header.Get("Content-Type"), len(got), err)
					}
				}
			}
		})
	}
}
