package serve_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
)

// keeping serves a Keeper beside the archives "one.caf" and "damaged.caf".
func keeping(t *testing.T, o serve.S3Options) (m *mem, at string, log *testkit.Text) {
	t.Helper()
	m = &mem{archive: map[string]bool{"one.caf": true}}
	damaged := packed(t, caf.Format)
	damaged.Put("x", bytes.Replace(damaged.Get("x"), []byte("hello, world"), []byte("hello, wurld"), 1))
	site, set, _, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "one.caf", nil), sourceOf(damaged, "damaged.caf", nil))
	set.AddFolder(serve.Folder{Every: time.Hour, List: m.list})
	o.Keeper = m
	srv := httptest.NewServer(serve.NewS3(site, o))
	t.Cleanup(srv.Close)
	return m, srv.URL, log
}

// send sends a request with a body; headers are KEY, VALUE, ….
func send(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[http.CanonicalHeaderKey(headers[i])] = []string{headers[i+1]}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(b)
}

// expect sends a request, and expects a status and a part of the response.
func expect(t *testing.T, status int, part, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	answer, got := send(t, method, url, body, headers...)
	if answer.StatusCode != status || !strings.Contains(got, part) {
		t.Errorf("%s %s: %s, %s, expected %d, %s", method, url, answer.Status, got, status, part)
	}
	return answer
}

func TestACLsSayThatAllIsTheOwners(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/photos", "")
	expect(t, 200, "", "PUT", at+"/photos/a", "text", "x-amz-acl", "private")
	for _, of := range []string{"/photos?acl", "/photos/a?acl"} {
		_, own := send(t, "GET", at+of, "")
		if strings.Count(own, "<Grant>") != 1 || !strings.Contains(own, "<Permission>FULL_CONTROL</Permission>") {
			t.Errorf("%s: %s", of, own)
		}
		expect(t, 200, "", "PUT", at+of, own)
		expect(t, 200, "", "PUT", at+of, "", "x-amz-acl", "bucket-owner-full-control")
		expect(t, 400, "AccessControlListNotSupported", "PUT", at+of, "", "x-amz-acl", "public-read")
		expect(t, 400, "AccessControlListNotSupported", "PUT", at+of, strings.Replace(own, "FULL_CONTROL", "READ", 1))
		expect(t, 400, "AccessControlListNotSupported", "PUT", at+of, "<AccessControlPolicy/>")
		expect(t, 400, "MissingSecurityHeader", "PUT", at+of, "")
	}
	expect(t, 404, "NoSuchBucket", "GET", at+"/none?acl", "")
	expect(t, 404, "NoSuchBucket", "PUT", at+"/none?acl", "", "x-amz-acl", "private")
	expect(t, 404, "NoSuchKey", "GET", at+"/photos/none?acl", "")
	expect(t, 404, "NoSuchKey", "PUT", at+"/photos/none?acl", "", "x-amz-acl", "private")
	expect(t, 400, "AccessControlListNotSupported", "PUT", at+"/photos/b", "", "x-amz-acl", "public-read")
	expect(t, 400, "InvalidBucketAclWithObjectOwnership", "PUT", at+"/open", "", "x-amz-acl", "public-read")
	expect(t, 501, "NotImplemented", "PUT", at+"/open", "", "x-amz-object-ownership", "ObjectWriter")
	expect(t, 200, "", "PUT", at+"/own", "", "x-amz-object-ownership", "BucketOwnerEnforced", "x-amz-acl", "") // as s3fs sends it
}

func TestErrorsHaveTheIDOfTheirRequest(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	before := ""
	for range 2 {
		answer, text := send(t, "GET", at+"/none/a", "")
		id := answer.Header.Get("X-Amz-Request-Id")
		if id == "" || id == before || !strings.Contains(text, "<RequestId>"+id+"</RequestId>") {
			t.Errorf("%q, %s", id, text)
		}
		before = id
	}
}

func TestListsEchoWhatTheyWereAsked(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/photos", "")
	expect(t, 200, "", "PUT", at+"/photos/a%20b", "text")
	expect(t, 200, "<ContinuationToken></ContinuationToken>", "GET", at+"/photos?list-type=2&continuation-token=", "")
	// Clients decode the prefix of version 2 only.
	expect(t, 200, "<Prefix>a b</Prefix>", "GET", at+"/photos?prefix=a%20b&encoding-type=url", "")
	expect(t, 200, "<Prefix>a%20b</Prefix>", "GET", at+"/photos?list-type=2&prefix=a%20b&encoding-type=url", "")
	expect(t, 400, "InvalidURI", "GET", at+"/photos/%ff", "")
}

func TestWhatMinioWritesIsRead(t *testing.T) {
	for i := range 4 {
		k := []serve.Key{{}, key}[i%2]
		_, at, log := keeping(t, serve.S3Options{Key: k})
		c := client(t, at, k)
		if trails := i >= 2; trails {
			c = trailing(t, at, k)
		}
		if err := c.MakeBucket(t.Context(), "photos", minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.MakeBucket(t.Context(), "photos", minio.MakeBucketOptions{}); err != nil { // as Amazon in us-east-1
			t.Error(err)
		}
		for name, content := range map[string]string{"a/b c+ü": "hello", "empty": "", "/": "slash", "a//b": "two", "../x": "dots", "long": long, "dir/": ""} {
			o := minio.PutObjectOptions{ContentType: "text/x-a", UserMetadata: map[string]string{"Who": "me"}, UserTags: map[string]string{"k": "v/ w", "a": "b"}, CacheControl: "no-store", ContentEncoding: "identity-x", ContentLanguage: "de", DisableMultipart: true}
			if i >= 2 {
				o.Checksum = minio.ChecksumCRC32C
			}
			put, err := c.PutObject(t.Context(), "photos", name, strings.NewReader(content), int64(len(content)), o)
			if sum := fmt.Sprintf("%x", md5.Sum([]byte(content))); err != nil || put.ETag != sum {
				t.Fatalf("%q: %+v, %v, expected %s", name, put, err, sum)
			}
			got, err := c.GetObject(t.Context(), "photos", name, minio.GetObjectOptions{Checksum: true})
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(got)
			if err != nil || string(b) != content {
				t.Fatalf("%q: %q, %v", name, b[:min(len(b), 100)], err)
			}
			info, err := c.StatObject(t.Context(), "photos", name, minio.StatObjectOptions{Checksum: true})
			if err != nil || info.ContentType != "text/x-a" || info.UserMetadata["Who"] != "me" || info.UserTagCount != 2 || info.ETag != put.ETag ||
				info.Metadata.Get("Cache-Control") != "no-store" || info.Metadata.Get("Content-Encoding") != "identity-x" || info.Metadata.Get("Content-Language") != "de" ||
				i >= 2 && content != "" && info.ChecksumCRC32C == "" || info.ChecksumCRC32C != put.ChecksumCRC32C {
				t.Errorf("%q: %+v, %v", name, info.Metadata, err)
			}
			if answer, _ := send(t, "GET", at+"/photos/a//b", "", "If-None-Match", info.ETag, "x-amz-checksum-mode", "ENABLED"); k.ID == "" && name == "a//b" && (answer.StatusCode != 304 || answer.Header.Get("x-amz-checksum-crc32c") != "") {
				t.Error(answer)
			}
			if info, err = c.StatObject(t.Context(), "photos", name, minio.StatObjectOptions{}); err != nil || info.ChecksumCRC32C != "" {
				t.Error(info.ChecksumCRC32C, err)
			}
		}
		var names []string
		for o := range c.ListObjects(t.Context(), "photos", minio.ListObjectsOptions{Recursive: true}) {
			names = append(names, o.Key)
		}
		if want := []string{"../x", "/", "a/b c+ü", "a//b", "dir/", "empty", "long"}; !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%q", names)
		}
		if err := c.RemoveBucket(t.Context(), "photos"); minio.ToErrorResponse(err).Code != "BucketNotEmpty" {
			t.Error(err)
		}
		if err := c.RemoveObject(t.Context(), "photos", "long", minio.RemoveObjectOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := c.StatObject(t.Context(), "photos", "long", minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
			t.Error(err)
		}
		for err := range c.RemoveObjects(t.Context(), "photos", c.ListObjects(t.Context(), "photos", minio.ListObjectsOptions{Recursive: true}), minio.RemoveObjectsOptions{}) {
			t.Error(err)
		}
		if err := c.RemoveBucket(t.Context(), "photos"); err != nil {
			t.Error(err)
		}
		if ok, err := c.BucketExists(t.Context(), "photos"); ok || err != nil {
			t.Error(ok, err)
		}
		if err := c.RemoveObject(t.Context(), "one.caf", "hello.txt", minio.RemoveObjectOptions{}); minio.ToErrorResponse(err).Code != "MethodNotAllowed" {
			t.Error(err)
		}
		if log.String() != "" {
			t.Error(log)
		}
	}
}

// trailing returns a client that sends checksums behind contents.
func trailing(t *testing.T, at string, k serve.Key) *minio.Client {
	t.Helper()
	creds := credentials.NewStaticV4(k.ID, k.Secret, "")
	if k.ID == "" {
		creds = credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	c, err := minio.New(strings.TrimPrefix(at, "http://"), &minio.Options{Creds: creds, MaxRetries: 1, TrailingHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func TestAPutIsComparedWithWhatTheClientSays(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	url := at + "/b-1/x"
	sum := md5.Sum([]byte("hello"))
	const crc32, crc32c, crc64 = "NhCmhg==", "mnG7TA==", "M3eFcAZSQlc="
	for _, c := range []struct {
		status  int
		part    string
		headers []string
	}{
		{200, "", []string{"Content-MD5", b64(sum[:])}},
		{400, "<Code>BadDigest</Code>", []string{"Content-MD5", b64(make([]byte, 16))}},
		{400, "<Code>InvalidDigest</Code>", []string{"Content-MD5", "x"}},
		{400, "<Code>InvalidDigest</Code>", []string{"Content-MD5", ""}},
		{200, "", []string{"x-amz-checksum-crc32", crc32}},
		{200, "", []string{"x-amz-checksum-crc32c", crc32c}},
		{200, "", []string{"x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="}},
		{200, "", []string{"x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}},
		{200, "", []string{"x-amz-checksum-sha512", "m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw=="}},
		{200, "", []string{"x-amz-checksum-md5", b64(sum[:])}},
		{200, "", []string{"x-amz-checksum-xxhash64", "JseCfYifbaM="}},
		{200, "", []string{"x-amz-checksum-xxhash3", "lVXoVVxi3P0="}},
		{200, "", []string{"x-amz-checksum-xxhash128", "tenBrQcbPn/Hec+qXlI4GA=="}},
		{400, "<Message>Checksum algorithm provided is unsupported.", []string{"x-amz-checksum-crc8", "AA=="}},
		{400, "<Code>BadDigest</Code>", []string{"x-amz-checksum-md5", b64(make([]byte, 16))}},
		{400, "<Message>The CRC32 you specified did not match the calculated checksum.</Message>", []string{"x-amz-checksum-crc32", crc32c}},
		{400, "<Code>BadDigest</Code>", []string{"x-amz-checksum-crc64nvme", "AAAAAAAAAAA="}},
		{400, "<Message>Value for x-amz-checksum-crc32 header is invalid.</Message>", []string{"x-amz-checksum-crc32", crc64}},
		{400, "<Message>Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.</Message>", []string{"x-amz-checksum-crc32", crc32, "x-amz-checksum-crc32c", crc32c}},
		{400, "<Message>x-amz-sdk-checksum-algorithm specified, but no corresponding", []string{"x-amz-sdk-checksum-algorithm", "CRC32"}},
		{400, "<Message>Value for x-amz-sdk-checksum-algorithm header is invalid.</Message>", []string{"x-amz-sdk-checksum-algorithm", "SHA1", "x-amz-checksum-crc32", crc32}},
		{400, "<Code>XAmzContentSHA256Mismatch</Code>", []string{"x-amz-content-sha256", strings.Repeat("0", 64)}},
		{400, "<Code>InvalidArgument</Code>", []string{"x-amz-content-sha256", "none"}},
		{400, "<Code>MetadataTooLarge</Code>", []string{"x-amz-meta-a", strings.Repeat("x", 2048)}},
		{200, "", []string{"x-amz-meta-a", strings.Repeat("x", 2047)}},
		{501, "<Code>NotImplemented</Code>", []string{"x-amz-server-side-encryption", "AES256"}},
		{400, "<Code>AccessControlListNotSupported</Code>", []string{"x-amz-acl", "public-read"}},
		{400, "<Code>InvalidStorageClass</Code>", []string{"x-amz-storage-class", "GLACIER"}},
		{400, "<Code>InvalidTag</Code>", []string{"x-amz-tagging", "a=1&a=2"}},
		{400, "<Code>InvalidTag</Code>", []string{"x-amz-tagging", "a=" + strings.Repeat("x", 257)}},
		{400, "<Code>InvalidTag</Code>", []string{"x-amz-tagging", "a%3F=x"}},
		{400, "<Code>BadRequest</Code>", []string{"x-amz-tagging", "a&b&c&d&e&f&g&h&i&j&k"}},
		{400, "<Code>InvalidArgument</Code>", []string{"x-amz-tagging", "%zz"}},
	} {
		m.buckets["b-1"].objects = map[string]memObject{}
		expect(t, c.status, c.part, "PUT", url, "hello", c.headers...)
		if is := len(m.buckets["b-1"].objects); (is == 1) != (c.status == 200) {
			t.Errorf("%q: %d objects", c.headers, is)
		}
	}
	expect(t, 400, "<Code>KeyTooLongError</Code>", "PUT", at+"/b-1/"+strings.Repeat("x", 1025), "hello")
	expect(t, 200, "", "PUT", at+"/b-1/"+strings.Repeat("x", 1024), "hello")
	expect(t, 400, "<Code>InvalidURI</Code>", "PUT", at+"/b-1/%ff", "hello")
	expect(t, 404, "<Code>NoSuchBucket</Code>", "PUT", at+"/b-2/x", "hello")
	expect(t, 405, "<Code>MethodNotAllowed</Code>", "PUT", at+"/one.caf/x", "hello")
	expect(t, 501, "<Code>NotImplemented</Code>", "PUT", url+"?retention", "")
	for _, bad := range []string{"A-b", "ab", "a..b", "1.2.3.4", "xn--a", "a_b", "a-s3alias", "-ab", strings.Repeat("a", 64)} {
		expect(t, 400, "<Code>InvalidBucketName</Code>", "PUT", at+"/"+bad, "")
	}
	location := func(s string) string {
		return `<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>` + s + "</LocationConstraint></CreateBucketConfiguration>"
	}
	expect(t, 400, "<Code>InvalidLocationConstraint</Code>", "PUT", at+"/b-3", location("eu-west-9"))
	expect(t, 400, "<Code>MalformedXML</Code>", "PUT", at+"/b-3", "<a>")
	expect(t, 200, "", "PUT", at+"/b-3", location("us-east-1"))
	expect(t, 409, "<Code>BucketAlreadyExists</Code>", "PUT", at+"/one.caf", "")
	_, other, _ := keeping(t, serve.S3Options{Region: "eu-west-9"})
	expect(t, 200, "", "PUT", other+"/b-3", location("eu-west-9"))
	expect(t, 409, "<Code>BucketAlreadyOwnedByYou</Code>", "PUT", other+"/b-3", "")
	for err, want := range map[error]string{serve.ErrFull: "507 InsufficientStorage", serve.ErrBusy: "503 SlowDown", io.ErrClosedPipe: "500 InternalError"} {
		m.fail = err
		answer, got := send(t, "PUT", url, "hello")
		if status, code, _ := strings.Cut(want, " "); !strings.HasPrefix(answer.Status, status) || !strings.Contains(got, code) || (answer.Header.Get("Retry-After") != "") != (status == "503") {
			t.Error(answer, got)
		}
	}
}

func TestConditionsOfAPut(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	url := at + "/b-1/x"
	expect(t, 404, "<Code>NoSuchKey</Code>", "PUT", url, "1", "If-Match", "*")
	tag := expect(t, 200, "", "PUT", url, "1", "If-None-Match", "*").Header.Get("ETag")
	expect(t, 412, "<Code>PreconditionFailed</Code>", "PUT", url, "2", "If-None-Match", "*")
	expect(t, 412, "<Code>PreconditionFailed</Code>", "PUT", url, "2", "If-Match", `"other"`)
	expect(t, 200, "", "PUT", url, "2", "If-Match", tag)
	expect(t, 412, "<Code>PreconditionFailed</Code>", "DELETE", url, "", "If-Match", tag)
	expect(t, 204, "", "DELETE", url, "", "If-Match", "*")
	expect(t, 204, "", "DELETE", url, "", "If-Match", tag)
	expect(t, 501, "<Code>NotImplemented</Code>", "DELETE", url, "", "x-amz-if-match-size", "1")

	// Of many writers, one creates, and each change follows the one before.
	var created, changed atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if answer, _ := send(t, "PUT", url, "0", "If-None-Match", "*"); answer.StatusCode == 200 {
				created.Add(1)
			}
			for {
				answer, was := send(t, "GET", url, "")
				answer, _ = send(t, "PUT", url, was+string(rune('a'+i)), "If-Match", answer.Header.Get("ETag"))
				if answer.StatusCode == 200 {
					changed.Add(1)
					return
				}
				if answer.StatusCode != 412 {
					t.Error(answer.Status)
					return
				}
			}
		})
	}
	all.Wait()
	b := m.buckets["b-1"]
	if got := b.data.Get(b.objects["x"].version); created.Load() != 1 || changed.Load() != 20 || len(got) != 21 {
		t.Error(created.Load(), changed.Load(), string(got))
	}
}

func TestDeleteObjects(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	for _, name := range []string{"a", "b", "c&d"} {
		expect(t, 200, "", "PUT", at+"/b-1/"+name, name)
	}
	doc := func(inner string) string {
		return `<?xml version="1.0"?><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + inner + "</Delete>"
	}
	expect(t, 200, "<Deleted><Key>a</Key></Deleted><Deleted><Key>none</Key></Deleted><Deleted><Key>c&amp;d</Key></Deleted><Error><Key>b</Key><Code>PreconditionFailed</Code>", "POST", at+"/b-1?delete",
		doc("<Object><Key>a</Key></Object><Object><Key>b</Key><ETag>x</ETag></Object><Object><Key>none</Key></Object><Object><Key>c&amp;d</Key></Object>"))
	expect(t, 200, `DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></DeleteResult>`, "POST", at+"/b-1?delete", doc("<Quiet>true</Quiet><Object><Key>b</Key><VersionId>null</VersionId></Object>"))
	if n := len(m.buckets["b-1"].objects); n != 0 {
		t.Error(n)
	}
	one := "<Object><Key>a</Key></Object>"
	for _, bad := range []string{"", "<Delete>", doc(""), doc("<Object></Object>"), doc(strings.Repeat(one, 1001)), doc(strings.Repeat(one, 10_001)), doc("<Object><Key>&x;</Key></Object>"), "<Other>" + one + "</Other>"} {
		expect(t, 400, "<Code>MalformedXML</Code>", "POST", at+"/b-1?delete", bad)
	}
	expect(t, 200, "<Code>NoSuchVersion</Code>", "POST", at+"/b-1?delete", doc("<Object><Key>a</Key><VersionId>7</VersionId></Object>"))
	expect(t, 200, "<Code>KeyTooLongError</Code>", "POST", at+"/b-1?delete", doc("<Object><Key>"+strings.Repeat("x", 1025)+"</Key></Object>"))
	expect(t, 200, "<Deleted>", "POST", at+"/b-1?delete", doc(strings.Repeat(one, 1000)))
	expect(t, 400, "<Code>MaxMessageLengthExceeded</Code>", "POST", at+"/b-1?delete", string(bytes.Repeat([]byte(" "), 5<<20)))
	expect(t, 400, "<Code>BadDigest</Code>", "POST", at+"/b-1?delete", doc(one), "Content-MD5", b64(make([]byte, 16)))
}

// TestWhatIsNotKnownIsNotDone checks that no request for a part of a bucket or
// object that this server does not have is taken for one for all of it.
func TestWhatIsNotKnownIsNotDone(t *testing.T) {
	m, at, _ := keeping(t, serve.S3Options{})
	expect(t, 200, "", "PUT", at+"/b-1", "")
	expect(t, 200, "", "PUT", at+"/b-1/x", "hello")
	expect(t, 200, "", "PUT", at+"/b-2", "")
	for _, sub := range []string{"versioning", "location", "policy", "cors", "lifecycle", "tagging", "retention", "acl&tagging", "metadataTable", "unknown=1", "uploads&uploadId=1"} {
		for _, path := range []string{"/b-1", "/b-2", "/b-3", "/b-1/x"} {
			for _, method := range []string{"PUT", "DELETE", "POST"} {
				if path == "/b-1/x" && (sub == "tagging" || method == "POST") {
					continue
				}
				expect(t, 501, "<Code>NotImplemented</Code>", method, at+path+"?"+sub, "<a/>")
			}
		}
	}
	expect(t, 405, "<Code>MethodNotAllowed</Code>", "PATCH", at+"/b-1/x", "")
	expect(t, 405, "<Code>MethodNotAllowed</Code>", "DELETE", at+"/", "")
	expect(t, 400, "<Code>InvalidArgument</Code>", "DELETE", at+"/b-1/x?versionId=1", "")
	expect(t, 403, "<Code>AccessDenied</Code>", "DELETE", at+"/b-1/x", "", "x-amz-expected-bucket-owner", "123456789012")
	if len(m.buckets) != 2 || len(m.buckets["b-1"].objects) != 1 {
		t.Error(m.buckets)
	}
	expect(t, 204, "", "DELETE", at+"/b-1/x?versionId=null&x-id=DeleteObject", "")
}

func TestListsOfBucketsAndVersions(t *testing.T) {
	_, at, _ := keeping(t, serve.S3Options{})
	for _, name := range []string{"b-2", "b-1"} {
		expect(t, 200, "", "PUT", at+"/"+name, "")
	}
	expect(t, 200, "<Bucket><Name>b-1</Name><CreationDate>2024-02-29T12:30:45.000Z</CreationDate></Bucket></Buckets><ContinuationToken>b-1</ContinuationToken>", "GET", at+"/?max-buckets=1", "")
	expect(t, 200, "</Owner><Buckets><Bucket><Name>b-2</Name><CreationDate>2024-02-29T12:30:45.000Z</CreationDate></Bucket></Buckets><Prefix>b-</Prefix></", "GET", at+"/?max-buckets=1&prefix=b-&continuation-token=b-1", "")
	expect(t, 400, "<Code>InvalidArgument</Code>", "GET", at+"/?max-buckets=0", "")
	for _, name := range []string{"a", "d/1", "d/2", "e"} {
		expect(t, 200, "", "PUT", at+"/b-1/"+name, "")
	}
	expect(t, 200, "<Key>d/2</Key><VersionId>null</VersionId><IsLatest>true</IsLatest>", "GET", at+"/b-1?versions", "")
	expect(t, 200, "<KeyMarker>a</KeyMarker><VersionIdMarker></VersionIdMarker><NextKeyMarker>d/</NextKeyMarker><MaxKeys>1</MaxKeys><Delimiter>/</Delimiter><IsTruncated>true</IsTruncated><CommonPrefixes>", "GET", at+"/b-1?versions&max-keys=1&delimiter=/&key-marker=a", "")
	expect(t, 200, "<MaxKeys>1</MaxKeys><Delimiter>/</Delimiter><IsTruncated>false</IsTruncated><Version><Key>e</Key>", "GET", at+"/b-1?versions&max-keys=1&delimiter=/&key-marker=d/", "")
}
