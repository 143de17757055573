package serve_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall/internal/app/serve"
)

// form is the body of a form, with its type. Fields are NAME, VALUE, ….
func form(content string, fields ...string) (body, ctype string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		w.WriteField(fields[i], fields[i+1])
	}
	f, err := w.CreateFormFile("file", "dir/a b.txt")
	if err != nil {
		panic(err)
	}
	io.WriteString(f, content)
	w.Close()
	return b.String(), w.FormDataContentType()
}

func postForm(t *testing.T, status int, part, url, content string, fields ...string) *http.Response {
	t.Helper()
	body, ctype := form(content, fields...)
	return expect(t, status, part, "POST", url, body, "Content-Type", ctype)
}

func TestForms(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	url := at + "/b-1"
	expect(t, 200, "", "PUT", url, "")
	answer := postForm(t, 204, "", url, "hello", "key", "up/${filename}", "Content-Type", "x/y", "x-amz-meta-A", "1", "tagging", "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>", "acl", "private")
	if answer.Header.Get("ETag") != `"5d41402abc4b2a76b9719d911017c592"` || answer.Header.Get("Location") != url+"/up/a%20b.txt" {
		t.Error(answer.Header)
	}
	answer = expect(t, 200, "hello", "GET", url+"/up/a%20b.txt", "")
	if head := answer.Header; head.Get("Content-Type") != "x/y" || head.Get("x-amz-meta-a") != "1" || head.Get("x-amz-tagging-count") != "1" {
		t.Error(head)
	}
	postForm(t, 200, "", url, "", "key", "x", "success_action_status", "200")
	postForm(t, 204, "", url, "", "key", "x", "success_action_status", "404")
	postForm(t, 201, "<PostResponse><Location>"+url+"/x</Location><Bucket>b-1</Bucket><Key>x</Key><ETag>&#34;5d41402abc4b2a76b9719d911017c592&#34;</ETag></PostResponse>", url, "hello", "key", "x", "success_action_status", "201")
	if answer = postForm(t, 303, "", url, "hello", "key", "x&y", "success_action_redirect", "http://a.example/b?c=d"); answer.Header.Get("Location") != "http://a.example/b?c=d&bucket=b-1&key=x%26y&etag=%225d41402abc4b2a76b9719d911017c592%22" {
		t.Error(answer.Header)
	}
	if answer = postForm(t, 204, "", url, "hello", "key", "x", "redirect", "javascript:alert(1)"); answer.Header.Get("Location") != url+"/x" {
		t.Error(answer.Header)
	}
	postForm(t, 204, "", url, long, "key", "long")
	if _, got := send(t, "GET", url+"/long", ""); got != long {
		t.Error(len(got))
	}
	postForm(t, 400, "must contain a field named &#39;key&#39;", url, "hello", "x", "y")
	postForm(t, 400, "<Code>MalformedPOSTRequest</Code>", url, "hello", "key", "x", "key", "y")
	postForm(t, 400, "<Code>KeyTooLongError</Code>", url, "hello", "key", strings.Repeat("x", 1025))
	postForm(t, 400, "<Code>InvalidArgument</Code>", url, "hello", "key", "x", "x-amz-meta-a", "a\nb")
	postForm(t, 400, "<Code>MaxPostPreDataLengthExceededError</Code>", url, "hello", "key", "x", "y", strings.Repeat("x", 70<<10))
	postForm(t, 400, "<Code>BadDigest</Code>", url, "hello", "key", "x", "x-amz-checksum-crc32", "AAAAAA==")
	postForm(t, 400, "<Code>AccessControlListNotSupported</Code>", url, "hello", "key", "x", "acl", "public-read")
	postForm(t, 404, "<Code>NoSuchBucket</Code>", at+"/none", "hello", "key", "x")
	body, ctype := form("hello", "key", "x")
	expect(t, 400, "<Code>IncompleteBody</Code>", "POST", url, body[:len(body)-10], "Content-Type", ctype)
	expect(t, 400, "<Code>InvalidArgument</Code>", "POST", url, "--x--\r\n", "Content-Type", "multipart/form-data; boundary=x")
	expect(t, 400, "<Code>MalformedPOSTRequest</Code>", "POST", url, "", "Content-Type", "multipart/form-data; boundary=x")
	expect(t, 412, "<Code>PreconditionFailed</Code>", "POST", url, "a=b", "Content-Type", "application/x-www-form-urlencoded")
	if n := len(m.buckets["b-1"].objects); n != 4 {
		t.Error(m.buckets["b-1"].objects)
	}
}

func TestSignedForms(t *testing.T) {
	now := time.Now()
	_, at, _ := keeping(t, serve.S3Options{Key: key})
	c := client(t, at, key)
	if err := c.MakeBucket(t.Context(), "b-1", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	p := minio.NewPostPolicy()
	p.SetBucket("b-1")
	p.SetKeyStartsWith("up/")
	p.SetExpires(now.Add(time.Hour))
	p.SetContentLengthRange(2, 10)
	p.SetContentType("x/y")
	url, signed, err := c.PresignedPostPolicy(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	at = strings.TrimSuffix(url.String(), "/")
	with := func(change ...string) (all []string) {
		fields := map[string]string{}
		for name, value := range signed {
			fields[name] = value
		}
		fields["key"] = "up/x"
		for i := 0; i < len(change); i += 2 {
			if fields[change[i]] = change[i+1]; change[i+1] == "" {
				delete(fields, change[i])
			}
		}
		for name, value := range fields {
			all = append(all, name, value)
		}
		return all
	}
	postForm(t, 204, "", at, "hello", with()...)
	postForm(t, 204, "", at, "hello", with("x-ignore-a", "b")...)
	postForm(t, 400, "<Code>EntityTooLarge</Code>", at, "hello, world", with()...)
	postForm(t, 400, "<Code>EntityTooSmall</Code>", at, "h", with()...)
	postForm(t, 403, "Invalid according to Policy: Policy Condition failed: [&#34;starts-with&#34;,&#34;$key&#34;,&#34;up/&#34;]", at, "hello", with("key", "x")...)
	postForm(t, 403, "Invalid according to Policy: Extra input fields: x-amz-meta-a", at, "hello", with("x-amz-meta-a", "1")...)
	postForm(t, 403, "<Code>AccessDenied</Code>", at, "hello", with("Content-Type", "p/q")...)
	postForm(t, 403, "<Code>AccessDenied</Code>", at, "hello", with("policy", "")...)
	postForm(t, 403, "<Code>AccessDenied</Code>", at, "hello", "key", "x")
	postForm(t, 403, "<Code>SignatureDoesNotMatch</Code>", at, "hello", with("x-amz-signature", strings.Repeat("0", 64))...)
	postForm(t, 400, "must contain a field named &#39;x-amz-signature&#39;", at, "hello", with("x-amz-signature", "")...)
	// A form is no way around the signature of other requests.
	body, ctype := form("hello", "key", "x")
	for _, other := range []string{"POST /b-1?delete", "POST /b-1/x?uploads", "PUT /b-1/x", "PUT /b-2", "DELETE /b-1/up/x", "POST /b-1?uploads"} {
		method, path, _ := strings.Cut(other, " ")
		expect(t, 403, "<Code>AccessDenied</Code>", method, strings.TrimSuffix(at, "/b-1")+path, body, "Content-Type", ctype)
	}

	for _, c := range []struct {
		status       int
		part, policy string
	}{
		{204, "", `{"expiration":"2100-01-01T00:00:00Z","conditions":[{"bUcKet":"b-1"},["starts-with","$KeY",""]]}`},
		{204, "", `{"expiration":"2100-01-01T00:00:00Z","conditions":[["eq","$key","x"]]}`},
		{403, "Policy expired.", `{"expiration":"2001-01-01T00:00:00Z","conditions":[{"bucket":"b-1"},["starts-with","$key",""]]}`},
		{403, "Policy Condition failed", `{"expiration":"2100-01-01T00:00:00Z","conditions":[{"bucket":"b-2"},["starts-with","$key",""]]}`},
		{403, "Policy Condition failed", `{"expiration":"2100-01-01T00:00:00Z","conditions":[{"bucket":"b-1"},["eq","$other",""],["starts-with","$key",""]]}`},
		{403, "Extra input fields: key", `{"expiration":"2100-01-01T00:00:00Z","conditions":[]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"EXPIRATION":"2100-01-01T00:00:00Z","conditions":[]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z"}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"tomorrow","conditions":[]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[{}]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[["content-length-range",5]]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[["content-length-range",-1,5]]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[["matches","$key","x"]]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[["eq","key","x"]]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `{"expiration":"2100-01-01T00:00:00Z","conditions":[[null,null,null]]}`},
		{400, "<Code>InvalidPolicyDocument</Code>", `[]`},
	} {
		policy := base64.StdEncoding.EncodeToString([]byte(c.policy))
		m := hmac.New(sha1.New, []byte(key.Secret))
		io.WriteString(m, policy)
		postForm(t, c.status, c.part, at, "hello", "key", "x", "AWSAccessKeyId", key.ID, "policy", policy, "signature", b64(m.Sum(nil)))
		postForm(t, 403, "<Code>InvalidAccessKeyId</Code>", at, "hello", "key", "x", "AWSAccessKeyId", "other", "policy", policy, "signature", b64(m.Sum(nil)))
		postForm(t, 403, "<Code>SignatureDoesNotMatch</Code>", at, "hello", "key", "x", "AWSAccessKeyId", key.ID, "policy", policy, "signature", b64([]byte("x")))
	}
}

// TestPagesOfOtherSitesWriteNothing checks that a server without a key, which
// serves this machine, is not open to every page that a browser here shows.
func TestPagesOfOtherSitesWriteNothing(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	expect(t, 200, "", "PUT", at+"/b-1/x", "hello")
	body, ctype := form("hello", "key", "y")
	for _, from := range [][]string{{"Origin", "https://a.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		expect(t, 403, "<Code>AccessDenied</Code>", "POST", at+"/b-1", body, append(from, "Content-Type", ctype)...)
		expect(t, 403, "<Code>AccessDenied</Code>", "POST", at+"/b-1?delete", "<Delete><Object><Key>x</Key></Object></Delete>", from...)
		expect(t, 403, "<Code>AccessDenied</Code>", "DELETE", at+"/b-1/x", "", from...)
	}
	if len(m.buckets["b-1"].objects) != 1 {
		t.Error(m.buckets["b-1"].objects)
	}
	expect(t, 204, "", "POST", at+"/b-1", body, "Content-Type", ctype, "Origin", at)
}

// FuzzForm sends forms with a policy that nobody has signed: it must not be
// taken for one that allows more.
func FuzzForm(f *testing.F) {
	for _, policy := range []string{`{"expiration":"2100-01-01T00:00:00Z","conditions":[{"bucket":"x"},["starts-with","$key",""],["content-length-range",1,"5"]]}`, `{"expiration":"2100-01-01T00:00:00Z","conditions":[{}]}`, `[`} {
		body, _ := form("hello", "key", "a", "policy", b64([]byte(policy)))
		boundary, _, _ := strings.Cut(body, "\r\n")
		f.Add(strings.ReplaceAll(body, boundary, "--x"))
	}
	s3, m := fuzzedKeeper(f)
	f.Fuzz(func(t *testing.T, body string) {
		m.buckets["bucket"].objects = map[string]memObject{}
		r := httptest.NewRequest("POST", "/bucket", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		w := httptest.NewRecorder()
		s3.ServeHTTP(w, r)
		for name, o := range m.buckets["bucket"].objects {
			if len(name) > 1024 || o.size > int64(len(body)) || w.Code >= 400 {
				t.Errorf("%d: %q: %+v", w.Code, name, o)
			}
		}
		if w.Code >= 500 {
			t.Error(w.Code, w.Body)
		}
	})
}

// fuzzedKeeper returns a server without a key that has an empty bucket called
// "bucket".
func fuzzedKeeper(f *testing.F) (*serve.S3, *mem) {
	set := serve.NewSet(serve.SetOptions{})
	f.Cleanup(set.Close)
	m := &mem{}
	if err := m.Make(f.Context(), "bucket"); err != nil {
		f.Fatal(err)
	}
	set.AddFolder(serve.Folder{Every: time.Hour, List: m.list})
	return serve.NewS3(serve.NewSite(set, serve.SiteOptions{}), serve.S3Options{Keeper: m, Clock: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}), m
}

// tarred is a tar of files: NAME, CONTENT, …. The content of a folder is "".
func tarred(files ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(h.Name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		io.WriteString(w, files[i+1])
	}
	w.Close()
	return b.Bytes()
}

func TestTheFilesOfATarBecomeObjects(t *testing.T) {
	m, at, log := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	files := []string{"./a", "1", "dir/", "", "dir/b", "2", "/c", "", "a", "3", "long", long}
	for i := range 100 {
		files = append(files, fmt.Sprintf("many/%d", i), fmt.Sprint(i))
	}
	plain := tarred(files...)
	var zipped, zstded bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain)
	z.Close()
	zs, err := zstd.NewWriter(&zstded)
	if err != nil {
		t.Fatal(err)
	}
	zs.Write(plain)
	zs.Close()
	b := m.buckets["b-1"]
	for name, body := range map[string]string{"plain": string(plain), "gzip": zipped.String(), "zstd": zstded.String()} {
		for _, more := range [][]string{nil, {"x-amz-meta-minio-snowball-prefix", "/p/", "x-amz-meta-minio-snowball-ignore-dirs", "true"}} {
			b.objects = map[string]memObject{}
			expect(t, 200, "", "PUT", at+"/b-1/x.tar", body, append(more, "x-amz-meta-snowball-auto-extract", "true")...)
			want := map[string]string{"a": "3", "dir/b": "2", "c": "", "long": long, "dir/": ""}
			for i := range 100 {
				want[fmt.Sprintf("many/%d", i)] = fmt.Sprint(i)
			}
			if more != nil {
				delete(want, "dir/")
			}
			for key, content := range want {
				if more != nil {
					key = "p/" + key
				}
				if got := string(b.data.Get(b.objects[key].version)); b.objects[key].etag == "" || got != content {
					t.Errorf("%s, %s: %d bytes, expected %d", name, key, len(got), len(content))
				}
			}
			if len(b.objects) != len(want) {
				t.Errorf("%s: %d objects, expected %d", name, len(b.objects), len(want))
			}
		}
	}
	if log.String() != "" {
		t.Error(log)
	}
	bad := "x-amz-meta-snowball-auto-extract"
	expect(t, 400, "<Code>InvalidArgument</Code>", "PUT", at+"/b-1/x.tar", strings.Repeat("x", 2048), bad, "true")
	expect(t, 400, "<Code>IncompleteBody</Code>", "PUT", at+"/b-1/x.tar", zipped.String()[:1000], bad, "true")
	expect(t, 400, "<Code>IncompleteBody</Code>", "PUT", at+"/b-1/x.tar", zstded.String()[:1000], bad, "true")
	expect(t, 400, "<Code>KeyTooLongError</Code>", "PUT", at+"/b-1/x.tar", string(tarred(strings.Repeat("x", 1025), "1")), bad, "true")
	expect(t, 200, "", "PUT", at+"/b-1/x.tar", string(tarred(strings.Repeat("x", 1025), "1", "y", "2")), bad, "true", "x-amz-meta-minio-snowball-ignore-errors", "true")
	expect(t, 200, "2", "GET", at+"/b-1/y", "")
	expect(t, 400, "<Code>BadDigest</Code>", "PUT", at+"/b-1/x.tar", string(plain), bad, "true", "Content-MD5", b64(make([]byte, 16)))
	m.fail = serve.ErrFull
	expect(t, 507, "<Code>InsufficientStorage</Code>", "PUT", at+"/b-1/x.tar", string(plain), bad, "true")
}
