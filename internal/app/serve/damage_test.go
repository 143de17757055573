package serve_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// TestNoAnswerHasADamagedByte changes each byte of content, one at a time. No
// response that looks complete may have a wrong byte in it, whatever the
// request.
func TestNoAnswerHasADamagedByte(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 10), "d/c": "gamma" + strings.Repeat("\x00\x01\x02", 10)}
	dir := testkit.Tree(t, t.TempDir(), files)
	for k, param := range map[string]map[string]string{"caf": nil, "lindi": nil, "rvn": nil, "databundle": {"align": "1"}, "zip": nil} {
		t.Run(k, func(t *testing.T) {
			rnd := testkit.Rand(t)
			st := &storetest.Mem{}
			if _, err := holdall.Pack(t.Context(), "x", []string{dir}, holdall.PackOptions{Store: st, Format: k, Param: param}); err != nil {
				t.Fatal(err)
			}
			src := serve.Source{Name: "x", Address: "mem:x", Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
				a, err := holdall.Open(ctx, "x", holdall.OpenOptions{Store: st, View: view})
				return a, "v1", err
			}}
			refused := 0
			for _, x := range storedOf(t, st) {
				for at := x.Off; at < x.Off+x.Len; at++ {
					was := st.Get(x.Object)
					b := bytes.Clone(was)
					b[at] ^= 1 << rnd.IntN(8)
					st.Put(x.Object, b)
					refused += askInEveryWay(t, fmt.Sprintf("byte %d of %s", at, x.Object), src, files)
					st.Put(x.Object, was)
				}
			}
			if refused < 100 {
				t.Errorf("%d answers were refused", refused)
			}
		})
	}
}

// storedOf returns where an archive stores contents, each place once.
func storedOf(t *testing.T, st *storetest.Mem) (all []format.Extent) {
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	seen := map[string]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if place := fmt.Sprint(x.Object, x.Off); !seen[place] && !e.Internal {
				seen[place] = true
				all = append(all, x)
			}
		}
	}
	return all
}

// askInEveryWay returns how many responses were errors or were broken off.
func askInEveryWay(t *testing.T, damage string, src serve.Source, files map[string]string) (refused int) {
	t.Helper()
	site, set, at, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, src)
	buckets := httptest.NewServer(serve.NewS3(site, serve.S3Options{}))
	defer set.Close()
	defer buckets.Close()
	for name, want := range files {
		for _, url := range []string{at + "/f/x/" + name, buckets.URL + "/x/" + name} {
			for header, part := range map[string]string{"": want, "bytes=1-3": want[1:4]} {
				var headers []string
				if header != "" {
					headers = []string{"Range", header}
				}
				answer, body, err := ask(t, "GET", url, headers...)
				if err != nil || answer.StatusCode/100 != 2 {
					refused++
				} else if body != part {
					t.Fatalf("%s: %s %s: %q", damage, url, header, body)
				}
			}
		}
	}
	answer, body, err := ask(t, "GET", at+"/zip/x/")
	if err != nil || answer.StatusCode != 200 {
		return refused + 1
	}
	z, err := zip.NewReader(strings.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != files[f.Name] && !strings.HasSuffix(f.Name, "/") {
			t.Fatalf("%s: %s in a zip: %q, %v", damage, f.Name, got, err)
		}
	}
	return refused
}
