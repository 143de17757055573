package serve_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store/storetest"
)

// smallFile is a site with an archive x of one file, d/f.bin.
func smallFile(b *testing.B, size int) *serve.Site {
	m := &storetest.Mem{}
	w, err := caf.Format.Create(b.Context(), m, "x", format.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Add(b.Context(), holdall.Entry{Name: "d/f.bin", Size: int64(size)}, strings.NewReader(strings.Repeat("x", size))); err != nil {
		b.Fatal(err)
	}
	if _, err := w.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	set := serve.NewSet(serve.SetOptions{})
	b.Cleanup(set.Close)
	set.Add(sourceOf(m, "x", nil))
	return serve.NewSite(set, serve.SiteOptions{})
}

func BenchmarkSmallFile(b *testing.B) {
	srv := httptest.NewServer(smallFile(b, 10_000))
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

// discarded is a response that no client receives.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(code int)        { d.code = code }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkFile answers requests for a file of 10 kB, without HTTP itself.
func BenchmarkFile(b *testing.B) {
	site := smallFile(b, 10_000)
	r := httptest.NewRequest(http.MethodGet, "/f/x/d/f.bin", nil)
	b.ReportAllocs()
	for b.Loop() {
		w := &discarded{header: http.Header{}}
		if site.ServeHTTP(w, r); w.code != http.StatusOK {
			b.Fatal(w.code)
		}
	}
}

// BenchmarkS3Object answers signed requests for an object of 4 KiB, without
// HTTP itself.
func BenchmarkS3Object(b *testing.B) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		b.Run(method, func(b *testing.B) {
			s3 := serve.NewS3(smallFile(b, 4096), serve.S3Options{Key: key})
			r := httptest.NewRequest(method, "/x/d/f.bin", nil)
			r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			r = signer.SignV4(*r, key.ID, key.Secret, "", "us-east-1")
			b.ReportAllocs()
			for b.Loop() {
				w := &discarded{header: http.Header{}}
				if s3.ServeHTTP(w, r); w.code != http.StatusOK {
					b.Fatal(w.code)
				}
			}
		})
	}
}

// BenchmarkPut is what the protocol of a PUT of 4 KiB costs, signed and with a
// checksum, without network, and with a Keeper in memory.
func BenchmarkPut(b *testing.B) {
	set := serve.NewSet(serve.SetOptions{})
	defer set.Close()
	m := &mem{}
	if err := m.Make(b.Context(), "bucket"); err != nil {
		b.Fatal(err)
	}
	s3 := serve.NewS3(serve.NewSite(set, serve.SiteOptions{}), serve.S3Options{Keeper: m, Key: key})
	content := bytes.Repeat([]byte("x"), 4<<10)
	r := httptest.NewRequest("PUT", "http://localhost/bucket/x", nil)
	sum := sha256.Sum256(content)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	r.Header.Set("X-Amz-Checksum-Crc32", b64(crcBytes(uint64(crc32.ChecksumIEEE(content)), 4)))
	r = signer.SignV4(*r, key.ID, key.Secret, "", "us-east-1")
	r.ContentLength = int64(len(content))
	b.ReportAllocs()
	for b.Loop() {
		r.Body = io.NopCloser(bytes.NewReader(content))
		w := httptest.NewRecorder()
		if s3.ServeHTTP(w, r); w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}
