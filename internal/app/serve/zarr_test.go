package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// hierarchyOf returns a LINDI archive, with the view for requests that name
// none.
func hierarchyOf(st store.Store, name, view string) serve.Source {
	return serve.Source{Name: "rec", View: view, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		a, err := holdall.Open(ctx, name, holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{lindi.Format}})
		return a, "v1 " + view, err
	}}
}

const linksTar = "../../../format/lindi/testdata/p06_attrs_groups_links.lindi.tar"

func fixture(t *testing.T, view string) serve.Source {
	t.Helper()
	st, name, err := local.Open(t.Context(), linksTar)
	if err != nil {
		t.Fatal(err)
	}
	return hierarchyOf(st, name, view)
}

func TestZarrViews(t *testing.T) {
	_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, fixture(t, ""))
	answer, text := get(t, url+"/z/rec/.zmetadata")
	var all struct {
		Metadata map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s, %v\n%s", answer.Status, err, text)
	}
	for _, key := range []string{".zgroup", ".zattrs", "a/b/c/vals/.zarray", "a/link_to_vals/.zarray", "a/link_to_c/vals/.zattrs"} {
		if all.Metadata[key] == nil {
			t.Errorf("no %s in\n%s", key, text)
		}
	}
	tag := answer.Header.Get("ETag")
	if again, body := get(t, url+"/z/rec/.zmetadata", "If-None-Match", tag); tag == "" || again.StatusCode != 304 || body != "" {
		t.Errorf("%q: %s", tag, again.Status)
	}
	if part, body := get(t, url+"/z/rec/.zmetadata", "Range", "bytes=2-9"); part.StatusCode != 206 || body != text[2:10] {
		t.Errorf("%s, %q", part.Status, body)
	}
	for path, want := range map[string]int{
		"/z3/rec/zarr.json": 200, "/z3/rec/a/zarr.json": 200, "/z3/rec/.zgroup": 404, "/z3/rec/words/0": 404, "/z3/rec/words/c.0": 200, "/z3/rec/words/c.1": 404, "/z3/rec/flags/0": 200, "/z3/rec/.zmetadata": 404,
		"/z/rec/zarr.json": 200, "/z/rec/words/c.0": 200, "/z/rec/words/0": 200, "/z/rec/a/.zmetadata": 404, "/z/rec/none/zarr.json": 404, "/z3/rec": 200, "/z3/": 200, "/f/rec/zarr.json": 404, "/f/rec/.zmetadata": 404, "/z/rec//": 200,
	} {
		if answer, body := get(t, url+path); answer.StatusCode != want {
			t.Errorf("%s: %s, %.100s", path, answer.Status, body)
		}
	}
	_, old := get(t, url+"/z/rec/flags/0")
	if _, body := get(t, url+"/z3/rec/flags/0"); body != old || old == "" {
		t.Error("a chunk is another one in version 3")
	}
	if part, body := get(t, url+"/z3/rec/flags/0", "Range", "bytes=1-3"); part.StatusCode != 206 || body != old[1:4] {
		t.Errorf("%s, %q", part.Status, body)
	}
	if _, body := get(t, url+"/z/rec/?format=json"); !strings.Contains(body, `"name":".zgroup","kind":"file","size":18}`+",\n"+`{"name":".zmetadata","kind":"file"`) {
		t.Error(body)
	}
	if _, body := get(t, url+"/z3/rec/words/"); !strings.Contains(body, `href="c.0"`) || !strings.Contains(body, `href="zarr.json"`) || strings.Contains(body, ".zarray") {
		t.Error(body)
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// TestOwnZmetadata checks that an archive's own .zmetadata is served.
func TestOwnZmetadata(t *testing.T) {
	m := &storetest.Mem{}
	w, err := lindi.Format.Create(t.Context(), m, "x.lindi.tar", format.CreateOptions{Param: map[string]string{"as": "zarr"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, e := range [][2]string{{".zgroup", `{"zarr_format": 2}`}, {".zmetadata", `{"own": 1}`}} {
		if err := w.Add(t.Context(), format.Entry{Name: e[0], Size: int64(len(e[1]))}, strings.NewReader(e[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, hierarchyOf(m, "x.lindi.tar", ""))
	if answer, body := get(t, url+"/z/rec/.zmetadata"); answer.StatusCode != 200 || body != `{"own": 1}` {
		t.Errorf("%s, %s", answer.Status, body)
	}
	if _, body := get(t, url+"/z/rec/?format=json"); strings.Count(body, ".zmetadata") != 1 {
		t.Error(body)
	}
}

// TestZmetadataIsMadeOnce has many concurrent requests, while idle archives
// drop their data.
func TestZmetadataIsMadeOnce(t *testing.T) {
	_, set, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{Idle: 1}, fixture(t, ""))
	_, want := get(t, url+"/z/rec/.zmetadata")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				answer, err := http.Get(url + "/z/rec/.zmetadata")
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || string(b) != want {
					t.Errorf("%v, %d bytes", err, len(b))
				}
				a, err := set.Use(t.Context(), "rec", "zarr")
				if err != nil {
					t.Error(err)
					return
				}
				a.Stale()
				a.Release()
			}
		})
	}
	group.Wait()
	if log.String() != "" {
		t.Error(log)
	}
}

// TestTheUsualViewMayBeZarr checks that a format's usual view is served as if
// it had been requested.
func TestTheUsualViewMayBeZarr(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("kinds.h5", testkit.Read(t, "../../../hdf5/testdata/kinds_latest.h5"))
	site, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, serve.Source{Name: "kinds.h5", Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		a, err := holdall.Open(ctx, "kinds.h5", holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{hdf5.Format}})
		return a, "v1 " + view, err
	}})
	srv := httptest.NewServer(serve.NewS3(site, serve.S3Options{}))
	defer srv.Close()
	for _, key := range []string{".zgroup", ".zmetadata", "zarr.json"} {
		answer, want := get(t, url+"/z/kinds.h5/"+key)
		if answer.StatusCode != 200 || want == "" {
			t.Errorf("%s: %s", key, answer.Status)
		}
		if answer, got := get(t, srv.URL+"/kinds.h5/"+key); answer.StatusCode != 200 || got != want {
			t.Errorf("%s of the bucket: %s, %d bytes, expected %d", key, answer.Status, len(got), len(want))
		}
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// TestZarrViewsAsBuckets checks that S3 clients get the same keys.
func TestZarrViewsAsBuckets(t *testing.T) {
	for view, want := range map[string][]string{"zarr": {".zattrs", ".zgroup", ".zmetadata"}, "zarr3": {"zarr.json"}} {
		site, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, fixture(t, view))
		srv := httptest.NewServer(serve.NewS3(site, serve.S3Options{}))
		defer srv.Close()
		c := client(t, srv.URL, serve.Key{})
		var keys []string
		for o := range c.ListObjects(t.Context(), "rec", minio.ListObjectsOptions{}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if !strings.HasSuffix(o.Key, "/") {
				keys = append(keys, o.Key)
				if info, err := c.StatObject(t.Context(), "rec", o.Key, minio.StatObjectOptions{}); err != nil || info.Size != o.Size || info.ETag != o.ETag {
					t.Errorf("%s: %+v, listed as %+v: %v", o.Key, info, o, err)
				}
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("%s: %q, want %q", view, keys, want)
		}
		route := map[string]string{"zarr": "/z/rec/", "zarr3": "/z3/rec/"}[view]
		for _, key := range append(want, "zarr.json", "words/c.0", "flags/0") {
			o, err := c.GetObject(t.Context(), "rec", key, minio.GetObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(o)
			if _, body := get(t, url+route+key); err != nil || string(got) != body || body == "" {
				t.Errorf("%s: %s: %v, %d bytes", view, key, err, len(got))
			}
		}
		for o := range c.ListObjects(t.Context(), "rec", minio.ListObjectsOptions{Prefix: ".zm", Recursive: true}) {
			if o.Key != ".zmetadata" || view != "zarr" {
				t.Errorf("%s: %q", view, o.Key)
			}
		}
	}
}
