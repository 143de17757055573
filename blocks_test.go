package holdall_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
)

// A program that opens an archive again sends one request, whose answer has the version.
func TestBlocksAreReadFromTheDisk(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("content ", 100_000)
	in := testkit.Tree(t, filepath.Join(dir, "in"), map[string]string{"a/big": big, "b": "small"})
	if _, err := holdall.Pack(t.Context(), filepath.Join(dir, "x.caf"), []string{in}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	archive := testkit.Read(t, filepath.Join(dir, "x.caf"))
	var requests atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/x.caf" {
			http.NotFound(w, r)
			return
		}
		requests.Add(1)
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(archive))
	}))
	defer web.Close()
	c := &holdall.BlockCache{Dir: filepath.Join(dir, "blocks"), Size: 16 << 20}
	for pass := range 2 {
		requests.Store(0)
		a, err := holdall.Open(t.Context(), web.URL+"/x.caf", holdall.OpenOptions{Blocks: c})
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Get(t.Context(), "a/big", 1<<20)
		if err != nil || string(got) != big {
			t.Error(len(got), err)
		}
		if n := requests.Load(); pass == 1 && n != 1 {
			t.Errorf("%d requests", n)
		}
		a.Close()
	}
	if u, err := c.Usage(t.Context()); err != nil || u.Blocks == 0 {
		t.Error(u, err)
	}
}
