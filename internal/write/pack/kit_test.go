package pack_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/tar"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// TestMain sets what s3test.Setenv sets, once for all tests, so that they can run in parallel.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pack")
	if err != nil {
		log.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.Secret,
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": none,
		"AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "HOLDALL_S3_ANONYMOUS": "", "HOLDALL_S3_PATH_STYLE": "",
	} {
		os.Setenv(k, v)
	}
	testkit.Main(m, func() error { return os.RemoveAll(dir) })
}

// buckets serves the buckets source and target, and returns stores of both.
func buckets(t *testing.T) (s *s3test.Server, source, target *bucket.Store) {
	t.Helper()
	s, open := served(t)
	o := bucket.Options{Tries: 2}
	return s, open("source", o), open("target", o)
}

// served serves the buckets source and target, and returns a function that opens them.
func served(t *testing.T) (s *s3test.Server, open func(name string, o bucket.Options) *bucket.Store) {
	t.Helper()
	s = s3test.New("source", "target")
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, func(name string, o bucket.Options) *bucket.Store {
		t.Helper()
		o.Endpoint, o.Client = srv.URL, srv.Client()
		st, err := bucket.New(name, "", o)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

var objectFormats = []*format.Format{caf.Format, tar.Format}

// numbered is n bytes in which every place can be told from others, and from those of
// other seeds.
func numbered(n, seed int) []byte {
	p := make([]byte, n+3)
	for i := 0; i < n; i += 4 {
		binary.BigEndian.PutUint32(p[i:], uint32(i/4)^uint32(seed)<<24)
	}
	return p[:n]
}

// objectsOf are objects of one store, by the names that they have there.
func objectsOf(st store.Store, listed iter.Seq2[store.Info, error]) iter.Seq2[pack.Object, error] {
	return func(yield func(pack.Object, error) bool) {
		for info, err := range listed {
			if !yield(pack.Object{From: st, Info: info, Name: info.Name}, err) {
				return
			}
		}
	}
}

// holds wants an archive to have just these contents, and to be sound.
func holds(t *testing.T, st store.Store, name string, want map[string][]byte) *content.Source {
	t.Helper()
	src := archivetest.Open(t, st, name)
	all := archivetest.Entries(t, src)
	for _, e := range all {
		if got, err := archivetest.Read(t, src, e); err != nil || !bytes.Equal(got, want[e.Name]) {
			t.Errorf("%s: expected its bytes, found %d others or %v", e.Name, len(got), err)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d entries, expected %d", len(all), len(want))
	}
	archivetest.Sound(t, src, format.Note)
	return src
}

// traffic are the bytes that were asked for of each object of a bucket.
func traffic(s *s3test.Server, bucket string) map[string]int {
	read := map[string]int{}
	for _, r := range s.Took() {
		var first, last int
		method, rest, _ := strings.Cut(r, " ")
		path, span, _ := strings.Cut(rest, " ")
		if name, ok := strings.CutPrefix(path, "/"+bucket+"/"); ok && method == http.MethodGet {
			if _, err := fmt.Sscanf(span, "bytes=%d-%d", &first, &last); err == nil {
				read[name] += last - first + 1
			}
		}
	}
	return read
}

// copying counts the requests for copies.
func copying(s *s3test.Server, do func(n int32, w http.ResponseWriter, r *http.Request) bool) *atomic.Int32 {
	var n atomic.Int32
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Copy-Source") == "" {
			return false
		}
		k := n.Add(1)
		return do != nil && do(k, w, r)
	}
	return &n
}
