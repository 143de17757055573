package serve_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/internal/app/serve"
)

// A changed changes the bodies of what a client puts.
type changed struct{ change func(string) string }

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == "PUT" && strings.Count(r.URL.Path, "/") > 1 {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		b = []byte(c.change(string(b)))
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestSignedChunksThatWereChanged(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{Key: key})
	if err := client(t, at, key).MakeBucket(t.Context(), "photos", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("a", 64<<10) + strings.Repeat("b", 64<<10) + "end"
	replace := func(old, to string) func(string) string {
		return func(body string) string {
			if strings.Count(body, old) == 0 {
				t.Fatalf("no %q in the body", old)
			}
			return strings.Replace(body, old, to, 1)
		}
	}
	after := func(mark string, by byte) func(string) string {
		return func(body string) string {
			b, i := []byte(body), strings.LastIndex(body, mark)+len(mark)
			b[i] = by
			return string(b)
		}
	}
	for _, trails := range []bool{false, true} {
		changes := map[string]struct {
			code   string
			change func(string) string
		}{
			"nothing":             {"", func(body string) string { return body }},
			"a byte":              {"SignatureDoesNotMatch", replace("aaaa", "aaab")},
			"a signature":         {"SignatureDoesNotMatch", after("chunk-signature=", 'x')},
			"a size":              {"InvalidRequest", replace("10000;", "fffffffffffffffff;")},
			"no signature":        {"InvalidRequest", replace(";chunk-signature=", ";chunk-signed=")},
			"the end":             {"IncompleteBody", func(body string) string { return body[:len(body)-1] }},
			"the end of a chunk":  {"IncompleteBody", func(body string) string { return body[:70_000] }},
			"more":                {"IncompleteBody", func(body string) string { return body + "x" }},
			"a chunk that is out": {"SignatureDoesNotMatch", func(body string) string { return body[len("10000;chunk-signature=\r\n")+64+(64<<10)+2:] }},
		}
		if trails {
			changes["a checksum"] = struct {
				code   string
				change func(string) string
			}{"SignatureDoesNotMatch", after("x-amz-checksum-crc32c:", 'x')}
			changes["no trailer"] = struct {
				code   string
				change func(string) string
			}{"MalformedTrailerError", func(body string) string { return body[:strings.Index(body, "x-amz-checksum-crc32c:")] + "\r\n" }}
		}
		for name, c := range changes {
			o := &minio.Options{Creds: credentials.NewStaticV4(key.ID, key.Secret, ""), MaxRetries: 1, TrailingHeaders: trails, Transport: changed{c.change}}
			cl, err := minio.New(strings.TrimPrefix(at, "http://"), o)
			if err != nil {
				t.Fatal(err)
			}
			put := minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: false}
			if trails {
				put.Checksum = minio.ChecksumCRC32C
			}
			_, err = cl.PutObject(t.Context(), "photos", "x", strings.NewReader(content), int64(len(content)), put)
			if code := minio.ToErrorResponse(err).Code; code != c.code {
				t.Errorf("trailer %v, %s: %v, expected %q", trails, name, err, c.code)
			}
			if n := len(m.buckets["photos"].objects); (n == 1) != (c.code == "") {
				t.Errorf("%s: %d objects", name, n)
			}
			clear(m.buckets["photos"].objects)
		}
	}
}

func TestChunks(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	const good = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
	for _, c := range []struct{ body, size, trailer, code string }{
		{good, "5", "x-amz-checksum-crc32", ""},
		{strings.Replace(good, "\r\n\r\n", "\r\nx-amz-other:1\r\n\r\n", 1), "5", "x-amz-checksum-crc32, X-Amz-Other", ""},
		{strings.Replace(strings.Replace(good, "Nh", "NH", 1), "\r\n\r\n", "\r\nx-amz-other:1\r\n\r\n", 1), "5", "x-amz-checksum-crc32, X-Amz-Other", "BadDigest"},
		{"2\r\nhe\r\n0003\r\nllo\r\n0\r\nX-Amz-Checksum-CRC32: NhCmhg==\n\r\n\r\n", "5", "x-amz-checksum-crc32", ""},
		{"5\r\nhello\r\n0\r\n\r\n", "5", "", ""}, {"0\r\n\r\n", "0", "", ""},
		{good, "4", "x-amz-checksum-crc32", "IncompleteBody"}, {good, "6", "x-amz-checksum-crc32", "IncompleteBody"},
		{good, "x", "x-amz-checksum-crc32", "MissingContentLength"}, {good, "-1", "x-amz-checksum-crc32", "MissingContentLength"}, {good, "5368709121", "x-amz-checksum-crc32", "EntityTooLarge"},
		{good, "5", "", "MalformedTrailerError"}, {good, "5", "x-amz-checksum-sha1", "MalformedTrailerError"}, {"5\r\nhello\r\n0\r\n\r\n", "5", "x-amz-checksum-crc32", "MalformedTrailerError"},
		{strings.Replace(good, "Nh", "NH", 1), "5", "x-amz-checksum-crc32", "BadDigest"}, {strings.Replace(good, "Nh", "!!", 1), "5", "x-amz-checksum-crc32", "InvalidRequest"},
		{"5\r\nhello!\r\n0\r\n\r\n", "5", "", "InvalidRequest"}, {"\r\n\r\n", "0", "", "InvalidRequest"}, {"-5\r\nhello", "5", "", "InvalidRequest"}, {strings.Repeat("0", 2000) + "\r\n\r\n", "0", "", "InvalidRequest"},
		{"5\r\nhel", "5", "", "IncompleteBody"}, {"5\r\nhello\r\n", "5", "", "IncompleteBody"}, {"5\r\nhello\r\n0\r\n", "5", "", "IncompleteBody"}, {"", "5", "", "IncompleteBody"},
	} {
		clear(m.buckets["b-1"].objects)
		headers := []string{"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length", c.size, "content-encoding", "gzip,aws-chunked"}
		if c.trailer != "" {
			headers = append(headers, "x-amz-trailer", c.trailer)
		}
		answer, got := send(t, "PUT", at+"/b-1/x", c.body, headers...)
		if o, is := m.buckets["b-1"].objects["x"]; is != (c.code == "") || !strings.Contains(got, c.code) || (answer.StatusCode == 200) != is {
			t.Errorf("%q, %s, %s: %s %s, expected %s", c.body, c.size, c.trailer, answer.Status, got, c.code)
		} else if is && (o.headers["content-encoding"] != "gzip" || c.trailer != "" && o.headers["x-amz-checksum-crc32"] != "NhCmhg==") {
			t.Error(o.headers)
		}
	}
	expect(t, 501, "<Code>NotImplemented</Code>", "PUT", at+"/b-1/x", "x", "x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "x-amz-decoded-content-length", "1")
}

// FuzzChunks puts what may be chunks: only as many bytes as were announced may
// become an object.
func FuzzChunks(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 5, true, false)
	f.Add("5;chunk-signature=x\r\nhello\r\n0;chunk-signature=x\r\n\r\n", 5, false, true)
	f.Add("2\r\nhe\r\n3\r\nllo\r\n0\r\n\n\r\n", 5, false, false)
	s3, m := fuzzedKeeper(f)
	f.Fuzz(func(t *testing.T, body string, size int, trails, signed bool) {
		clear(m.buckets["bucket"].objects)
		r := httptest.NewRequest("PUT", "/bucket/x", strings.NewReader(body))
		r.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
		if signed {
			r.Header.Set("X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
		}
		r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(size))
		if trails {
			r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
		}
		w := httptest.NewRecorder()
		s3.ServeHTTP(w, r)
		o, is := m.buckets["bucket"].objects["x"]
		if is != (w.Code == 200) || is && (o.size != int64(size) || size > len(body)) || w.Code >= 500 {
			t.Errorf("%d %s: %+v", w.Code, w.Body, o)
		}
		if is && trails && o.headers["x-amz-checksum-crc32"] == "" {
			t.Error(o.headers)
		}
	})
}

// FuzzDocuments sends documents to every verb that takes one.
func FuzzDocuments(f *testing.F) {
	for _, doc := range []string{"<Delete><Quiet>true</Quiet><Object><Key>x</Key><ETag>y</ETag></Object></Delete>", completion([]string{"<ChecksumSHA1>x</ChecksumSHA1>"}, "00"), "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>", "<CreateBucketConfiguration><LocationConstraint>x</LocationConstraint></CreateBucketConfiguration>", "<!DOCTYPE a [<!ENTITY b \"c\">]><Delete>&b;</Delete>"} {
		for i := range 4 {
			f.Add(doc, i)
		}
	}
	s3, m := fuzzedKeeper(f)
	f.Fuzz(func(t *testing.T, doc string, verb int) {
		m.buckets["bucket"].objects["kept"] = memObject{etag: `"x"`}
		id, err := m.buckets["bucket"].Begin(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.buckets["bucket"].Abandon(t.Context(), "x", id)
		method, path, _ := strings.Cut([]string{"POST /bucket?delete", "POST /bucket/x?uploadId=" + id, "PUT /bucket/x?tagging", "PUT /other-bucket"}[uint(verb)%4], " ")
		w := httptest.NewRecorder()
		s3.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(doc)))
		if w.Code >= 500 {
			t.Error(w.Code, w.Body)
		}
		if _, is := m.buckets["bucket"].objects["kept"]; !is && !strings.Contains(doc, "kept") {
			t.Errorf("%q deleted another object", doc)
		}
	})
}

// TestBodiesThatStall checks that a client that sends slowly is served, that
// one that stops gets an error, and that nothing of what it sent is kept.
func TestBodiesThatStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Minute
		log := slog.New(slog.DiscardHandler)
		set := serve.NewSet(serve.SetOptions{Log: log})
		defer set.Close()
		m := &mem{}
		if err := m.Make(t.Context(), "b-1"); err != nil {
			t.Fatal(err)
		}
		set.AddFolder(serve.Folder{Every: time.Hour, List: m.list})
		site := serve.NewSite(set, serve.SiteOptions{Log: log, Stall: stall})
		srv, l := &http.Server{Handler: serve.NewS3(site, serve.S3Options{Keeper: m})}, make(pipes)
		go srv.Serve(l)
		defer srv.Close()
		put := func(key string, size int) net.Conn {
			ours, theirs := net.Pipe()
			l <- theirs
			fmt.Fprintf(ours, "PUT /b-1/%s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", key, size)
			return ours
		}
		still, slow := put("still", 10), put("slow", 4<<20)
		defer still.Close()
		defer slow.Close()
		for name, conn := range map[string]net.Conn{"still": still, "slow": slow} {
			if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
				t.Fatal(name, line, err)
			}
		}
		go still.Write([]byte("hello"))
		go func() {
			for range 16 {
				time.Sleep(stall * 3 / 4)
				slow.Write(make([]byte, 256<<10))
			}
		}()
		for _, name := range []string{"still", "slow"} { // an answer must be read within the time limit, too
			conn, want := still, 400
			if name == "slow" {
				conn, want = slow, 200
			}
			r := bufio.NewReader(conn)
			if b, err := r.Peek(2); err == nil && string(b) == "\r\n" {
				r.Discard(2) // of the line that asks for the body
			}
			answer, err := http.ReadResponse(r, nil)
			if err != nil || answer.StatusCode != want {
				t.Error(name, answer, err)
			}
		}
		if all := m.buckets["b-1"].objects; len(all) != 1 || all["slow"].size != 4<<20 {
			t.Error(all)
		}
	})
}
