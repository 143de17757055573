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
