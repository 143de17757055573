package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store/storetest"

	"github.com/holdall/holdall"
	"strings"
)

func BenchmarkSmallFile(b *testing.B) {
	m := &storetest.Mem{}
	w, err := caf.Format.Create(b.Context(), m, "x", format.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Add(b.Context(), holdall.Entry{Name: "d/f.bin", Size: 10_000}, strings.NewReader(strings.Repeat("x", 10_000))); err != nil {
		b.Fatal(err)
	}
	if _, err := w.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	set := serve.NewSet(serve.SetOptions{})
	defer set.Close()
	set.Add(sourceOf(m, "x", nil))
	srv := httptest.NewServer(serve.NewSite(set, serve.SiteOptions{}))
	defer srv.Close()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := c.Get(srv.URL + "/f/x/d/f.bin")
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	})
}
