package serve_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

var key = serve.Key{ID: "me/too", Secret: "a secret + more="}

// bucketsOf serves sources as buckets.
func bucketsOf(t *testing.T, o serve.S3Options, sources ...serve.Source) (at string, log *testkit.Text) {
	t.Helper()
	site, _, _, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sources...)
	srv := httptest.NewServer(serve.NewS3(site, o))
	t.Cleanup(srv.Close)
	return srv.URL, log
}

func client(t *testing.T, at string, k serve.Key) *minio.Client {
	t.Helper()
	creds := credentials.NewStaticV4(k.ID, k.Secret, "")
	if k.ID == "" {
		creds = credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	c, err := minio.New(strings.TrimPrefix(at, "http://"), &minio.Options{Creds: creds, MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// odd returns names for which the order of directories differs from that of
// keys.
func odd() (entries []holdall.Entry, keys []string) {
	for _, name := range []string{"a-b", "a/x", "a.b", "a/y/z", "a", "a!", "b/c-d", "b/c/d", "b/c.e", "b/c", "ü/ö", "z z/+&%", "a0"} {
		e := holdall.Entry{Name: "o/" + name}
		entries = append(entries, e)
		keys = append(keys, e.Name)
	}
	entries = append(entries, holdall.Entry{Name: "o/vacant", Kind: format.Dir}, holdall.Entry{Name: "o/b", Kind: format.Dir},
		holdall.Entry{Name: "o/soft", Kind: format.Symlink, Link: "../hello.txt"}, holdall.Entry{Name: "o/out", Kind: format.Symlink, Link: "../../x"}, holdall.Entry{Name: "o/todir", Kind: format.Symlink, Link: "b"})
	keys = append(keys, "o/soft")
	for name := range contents {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	return entries, keys
}

func TestBucketsAsMinioSeesThem(t *testing.T) {
	more, keys := odd()
	for _, k := range []serve.Key{{}, key} {
		at, log := bucketsOf(t, serve.S3Options{Key: k}, sourceOf(packed(t, tiny.Format, more...), "tiny.x", nil), sourceOf(packed(t, caf.Format), "one.caf", nil))
		c := client(t, at, k)
		buckets, err := c.ListBuckets(t.Context())
		if err != nil || len(buckets) != 2 || buckets[1].Name != "tiny.x" || !buckets[1].CreationDate.Equal(kept) {
			t.Fatal(buckets, err)
		}
		if ok, err := c.BucketExists(t.Context(), "tiny.x"); !ok || err != nil {
			t.Error(ok, err)
		}
		if ok, err := c.BucketExists(t.Context(), "none"); ok || err != nil {
			t.Error(ok, err)
		}
		if region, err := c.GetBucketLocation(t.Context(), "tiny.x"); region != "us-east-1" || err != nil {
			t.Error(region, err)
		}
		for _, v1 := range []bool{false, true} {
			for _, prefix := range []string{"", "o", "o/", "o/a", "o/a/", "o/b/c", "nothing", "z"} {
				for _, deep := range []bool{true, false} {
					var want []string
					for _, name := range keys {
						rest, ok := strings.CutPrefix(name, prefix)
						if !ok {
							continue
						}
						if i := strings.IndexByte(rest, '/'); i >= 0 && !deep {
							name = prefix + rest[:i+1]
						}
						if len(want) == 0 || want[len(want)-1] != name {
							want = append(want, name)
						}
					}
					for _, most := range []int{1, 3, 1000} {
						if most == 1 && (v1 || k.ID != "" || prefix == "") {
							continue
						}
						got := []string{}
						tags := map[string]string{}
						for o := range c.ListObjects(t.Context(), "tiny.x", minio.ListObjectsOptions{Prefix: prefix, Recursive: deep, MaxKeys: most, UseV1: v1}) {
							if o.Err != nil {
								t.Fatal(o.Err)
							}
							got = append(got, o.Key)
							tags[o.Key] = o.ETag
						}
						// In a page, keys come before prefixes: the client does not merge them.
						slices.Sort(got)
						if !slices.Equal(got, want) {
							t.Fatalf("v1 %v, prefix %q, all below %v, by %d:\n%q\nwant\n%q", v1, prefix, deep, most, got, want)
						}
						for name, tag := range tags {
							if strings.HasSuffix(name, "/") || most != 3 || name == "raw\xff\xfe" { // the client accepts only UTF-8
								continue
							}
							info, err := c.StatObject(t.Context(), "tiny.x", name, minio.StatObjectOptions{})
							if err != nil || info.ETag != tag {
								t.Errorf("%q: %q listed, %q, %v", name, tag, info.ETag, err)
							}
						}
					}
				}
			}
		}
		for name, want := range contents {
			if name == "raw\xff\xfe" {
				continue
			}
			o, err := c.GetObject(t.Context(), "one.caf", name, minio.GetObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(o); err != nil || string(got) != want {
				t.Errorf("%q: %d bytes, %v", name, len(got), err)
			}
			o.Close()
		}
		var ranged minio.GetObjectOptions
		ranged.SetRange(7, 8)
		o, err := c.GetObject(t.Context(), "one.caf", "hello.txt", ranged)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o); err != nil || string(got) != "wo" {
			t.Errorf("%q, %v", got, err)
		}
		for name, code := range map[string]string{"none": "NoSuchKey", "dir": "NoSuchKey", "dir/": "NoSuchKey", "a//b": "NoSuchKey"} {
			if _, err := c.StatObject(t.Context(), "tiny.x", name, minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != code {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.PutObject(t.Context(), "one.caf", "new", strings.NewReader("x"), 1, minio.PutObjectOptions{}); err == nil {
			t.Error("it can be written to")
		}
		if log.String() != "" {
			t.Error(log)
		}
	}
}

func TestBucketsSayNoAsAmazonDoes(t *testing.T) {
	at, _ := bucketsOf(t, serve.S3Options{}, sourceOf(packed(t, caf.Format), "x", nil))
	for _, tt := range []struct {
		method, path string
		headers      []string
		status       int
		code         string
	}{
		{"GET", "/none/", nil, 404, "NoSuchBucket"}, {"GET", "/none/k", nil, 404, "NoSuchBucket"}, {"GET", "//k", nil, 404, "NoSuchBucket"}, {"GET", "/x/none", nil, 404, "NoSuchKey"},
		{"PUT", "/x/hello.txt", nil, 405, "MethodNotAllowed"}, {"DELETE", "/x/hello.txt", nil, 405, "MethodNotAllowed"}, {"POST", "/x?delete", nil, 405, "MethodNotAllowed"},
		{"GET", "/x?uploads", nil, 501, "NotImplemented"}, {"GET", "/x?policy", nil, 501, "NotImplemented"}, {"GET", "/x/hello.txt?acl", nil, 501, "NotImplemented"},
		{"GET", "/x?list-type=3", nil, 400, "InvalidArgument"}, {"GET", "/x?max-keys=-1", nil, 400, "InvalidArgument"}, {"GET", "/x?max-keys=x", nil, 400, "InvalidArgument"},
		{"GET", "/x?list-type=2&continuation-token=%25", nil, 400, "InvalidArgument"}, {"GET", "/x?encoding-type=x", nil, 400, "InvalidArgument"}, {"GET", "/x?a;b", nil, 400, "InvalidURI"},
		{"GET", "/x/hello.txt", []string{"Range", "bytes=12-"}, 416, "InvalidRange"}, {"GET", "/x/empty", []string{"Range", "bytes=0-"}, 416, "InvalidRange"},
		{"GET", "/x/hello.txt", []string{"If-Match", `"other"`}, 412, "PreconditionFailed"}, {"GET", "/x/..%2fhello.txt", nil, 404, "NoSuchKey"},
	} {
		answer, body, err := ask(t, tt.method, at+tt.path, tt.headers...)
		if err != nil || answer.StatusCode != tt.status || !strings.Contains(body, "<Code>"+tt.code+"</Code>") || answer.Header.Get("Content-Type") != "application/xml" {
			t.Errorf("%s %s: %v, %v, %q", tt.method, tt.path, answer.Status, err, body)
		}
	}
	answer, body := get(t, at+"/x/hello.txt", "Range", "bytes=0-1,3-4")
	if answer.StatusCode != 200 || body != "hello, world" {
		t.Error(answer.Status, body)
	}
	if answer, _ := get(t, at+"/x/hello.txt", "If-None-Match", answer.Header.Get("Etag")); answer.StatusCode != 304 {
		t.Error(answer.Status)
	}
	if answer, body := get(t, at+"/x?max-keys=0"); answer.StatusCode != 200 || !strings.Contains(body, "<IsTruncated>false</IsTruncated>") {
		t.Error(answer.Status, body)
	}
	if _, body := get(t, at+"/x?list-type=2&prefix=nul&encoding-type=url"); !strings.Contains(body, "<Key>nul%00</Key>") {
		t.Error(body)
	}
}

func TestSignaturesAreCompared(t *testing.T) {
	now := time.Now()
	at, _ := bucketsOf(t, serve.S3Options{Key: key, Clock: func() time.Time { return now }}, sourceOf(packed(t, caf.Format), "x.caf", nil))
	good := client(t, at, key)
	if _, err := good.StatObject(t.Context(), "x.caf", "dir/a b?#%.txt", minio.StatObjectOptions{}); err != nil {
		t.Error(err)
	}
	for want, k := range map[string]serve.Key{"AccessDenied": {}, "InvalidAccessKeyId": {ID: "you", Secret: key.Secret}, "SignatureDoesNotMatch": {ID: key.ID, Secret: "another"}} {
		c := client(t, at, k)
		for o := range c.ListObjects(t.Context(), "x.caf", minio.ListObjectsOptions{}) {
			if got := minio.ToErrorResponse(o.Err).Code; got != want {
				t.Errorf("%v: %v, want %s", k, o.Err, want)
			}
		}
	}
	link, err := good.PresignedGetObject(t.Context(), "x.caf", "dir/a b?#%.txt", time.Minute, url.Values{"response-content-type": {"text/x"}})
	if err != nil {
		t.Fatal(err)
	}
	if answer, body := get(t, link.String()); answer.StatusCode != 200 || body != "odd" {
		t.Error(answer.Status, body)
	}
	for from, to := range map[string]string{"dir/": "dir2/", "text%2Fx": "text%2Fy", "Expires=60": "Expires=600", "X-Amz-Signature=": "X-Amz-Signature=00", "Algorithm=AWS4-HMAC-SHA256": "Algorithm=none"} {
		changed := strings.Replace(link.String(), from, to, 1)
		if answer, _ := get(t, changed); answer.StatusCode != 403 && answer.StatusCode != 400 || changed == link.String() {
			t.Errorf("%s for %s: %s", to, from, answer.Status)
		}
	}
	now = now.Add(2 * time.Minute)
	if answer, body := get(t, link.String()); answer.StatusCode != 403 || !strings.Contains(body, "AccessDenied") {
		t.Error(answer.Status, body)
	}
	now = now.Add(time.Hour)
	if _, err := good.ListBuckets(t.Context()); minio.ToErrorResponse(err).Code != "RequestTimeTooSkewed" {
		t.Error(err)
	}
}

// describedObjects returns the objects of a bucket as packed, with the
// attributes that the bucket kept.
func describedObjects(t *testing.T, kept map[string]map[string]string) (packed *storetest.Mem, tags map[string]string, at time.Time) {
	t.Helper()
	s3test.Setenv(t, "")
	s := s3test.New("source")
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	at = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for name, headers := range kept {
		s.Put("source", name, []byte(strings.Repeat(name, len(name)%7*100)))
		s.Touch("source", name, at)
		s.Describe("source", name, headers)
	}
	st, err := bucket.New("source", "", bucket.Options{Endpoint: srv.URL, Client: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	packed, tags = &storetest.Mem{}, map[string]string{}
	if _, err := pack.Objects(t.Context(), packed, "x", func(yield func(pack.Object, error) bool) {
		for info, err := range st.List(t.Context(), "") {
			tags[info.Name] = info.Version
			if !yield(pack.Object{From: st, Info: info, Name: info.Name}, err) {
				return
			}
		}
	}, pack.Options{Format: "caf", Formats: []*format.Format{caf.Format}}); err != nil {
		t.Fatal(err)
	}
	return packed, tags, at
}

func TestBucketsAnswerAsThoseThatWerePacked(t *testing.T) {
	kept := map[string]map[string]string{
		"photo": {"content-type": "image/jpeg", "cache-control": "max-age=60", "content-disposition": `attachment; filename="a.jpg"`, "content-language": "fi",
			"expires": "Fri, 01 May 2026 10:00:00 GMT", "x-amz-meta-who": "me", "x-amz-meta-why": "ü"},
		"log.txt.gz": {"content-type": "text/plain", "content-encoding": "gzip"},
		"sevenof":    {"content-type": "text/html", "x-amz-meta-empty": "yes"}, // is empty
		"plain.txt":  {},
	}
	mem, tags, at := describedObjects(t, kept)
	url, log := bucketsOf(t, serve.S3Options{}, sourceOf(mem, "one.caf", nil))
	c := client(t, url, serve.Key{})
	for o := range c.ListObjects(t.Context(), "one.caf", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil || `"`+o.ETag+`"` != tags[o.Key] || !o.LastModified.Equal(at) {
			t.Errorf("%+v, expected %s", o, tags[o.Key])
		}
	}
	for name, headers := range kept {
		info, err := c.StatObject(t.Context(), "one.caf", name, minio.StatObjectOptions{})
		if err != nil || `"`+info.ETag+`"` != tags[name] || !info.LastModified.Equal(at) || info.Size != int64(len(name)*(len(name)%7*100)) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		if headers["content-type"] == "" {
			headers["content-type"] = "binary/octet-stream" // the service's default
		}
		for _, method := range []string{"GET", "HEAD"} {
			answer, body, err := ask(t, method, url+"/one.caf/"+name, "Accept-Encoding", "identity")
			if err != nil || answer.StatusCode != 200 || answer.ContentLength != info.Size || method == "GET" && len(body) != int(info.Size) {
				t.Errorf("%s %s: %v, %d of %d bytes, %v", method, name, answer.Status, len(body), answer.ContentLength, err)
			}
			for key, value := range headers {
				if got := answer.Header.Get(key); got != value {
					t.Errorf("%s %s: %s is %q, expected %q", method, name, key, got, value)
				}
			}
		}
	}
	answer, body, err := ask(t, "GET", url+"/one.caf/photo", "If-Match", `"x"`)
	if err != nil || answer.StatusCode != 412 || !strings.Contains(body, "PreconditionFailed") || answer.Header.Get("Cache-Control") != "no-cache" ||
		answer.Header.Get("Expires")+answer.Header.Get("X-Amz-Meta-Who")+answer.Header.Get("Content-Disposition") != "" {
		t.Errorf("%v, %q, %v", answer.Header, body, err)
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// TestFilesOfBucketsHaveTheirTypesAndDoNoHarm checks that files have their
// original types, and that no type lets a browser do more.
// TestObjectsAnswerAsAmazonDoes is about requests that HTTP and Amazon take for something else, and about those of
// which Amazon knows more.
func TestObjectsAnswerAsAmazonDoes(t *testing.T) {
	mem, tags, _ := describedObjects(t, map[string]map[string]string{"photo": {"content-type": "image/jpeg", "x-amz-meta-who_is": "me", "x-amz-tagging": "b=2&a=x%2Fy+z"}, "sevenof": {}})
	at, _ := bucketsOf(t, serve.S3Options{}, sourceOf(mem, "x", nil))
	whole, tag := strings.Repeat("photo", 500), tags["photo"]
	signed := []string{"Authorization", "AWS4-HMAC-SHA256 of someone"}
	for _, tt := range []struct {
		query   string
		headers []string
		want    string // status, code or content, and a header
	}{
		{"", nil, "200 " + whole},
		{"", []string{"Range", "bytes=-0"}, "416 InvalidRange"},
		{"", []string{"Range", "bytes=2500-"}, "416 InvalidRange"},
		{"", []string{"Range", "bytes=-3"}, "206 oto"},
		{"", []string{"Range", "bytes=0-4"}, "206 photo"},
		{"", []string{"Range", "bytes=3-1"}, "200 " + whole},
		{"", []string{"Range", "bytes=abc"}, "200 " + whole},
		{"", []string{"Range", "items=0-1"}, "200 " + whole},
		{"", []string{"Range", "bytes=0-1,3-4"}, "200 " + whole},
		{"", []string{"Range", "bytes=99999999999999999999-"}, "200 " + whole},
		{"", []string{"If-Match", strings.Trim(tag, `"`)}, "200 " + whole},
		{"", []string{"If-Match", "other, " + strings.Trim(tag, `"`)}, "200 " + whole},
		{"", []string{"If-Match", "other"}, "412 PreconditionFailed"},
		{"", []string{"If-None-Match", strings.Trim(tag, `"`)}, "304 "},
		{"", []string{"If-None-Match", "*"}, "304 "},
		{"versionId=null", nil, "200 " + whole},
		{"versionId=3HL4kqtJlcpXroDTDmJ", nil, "400 InvalidArgument"},
		{"versionId=", nil, "400 InvalidArgument"},
		{"partNumber=1", nil, "206 " + whole},
		{"partNumber=2", nil, "416 InvalidPartNumber"},
		{"partNumber=0", nil, "400 InvalidArgument"},
		{"partNumber=1", []string{"Range", "bytes=0-1"}, "400 InvalidRequest"},
		{"response-content-type=text%2Fcsv", nil, "400 InvalidRequest"},
		{"response-content-type=text%2Fcsv&response-content-disposition=attachment", signed, "200 " + whole},
		{"response-x=y", signed, "400 InvalidArgument"},
		{"legal-hold", nil, "501 NotImplemented"},
		{"retention", nil, "501 NotImplemented"},
		{"torrent", nil, "501 NotImplemented"},
		{"uploads", nil, "501 NotImplemented"},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			answer, body, err := ask(t, method, at+"/x/photo?"+tt.query, tt.headers...)
			if err != nil {
				t.Fatal(err)
			}
			if _, code, ok := strings.Cut(body, "<Code>"); ok {
				body, _, _ = strings.Cut(code, "<")
			}
			want := tt.want
			if method == "HEAD" {
				want = want[:4]
			}
			if got := fmt.Sprint(answer.StatusCode, " ", body); got != want {
				t.Errorf("%s %s %q: %.60q, want %.60q", method, tt.query, tt.headers, got, want)
			}
			if tt.headers != nil && tt.headers[0] == "Authorization" && answer.StatusCode == 200 && (answer.Header.Get("Content-Type") != "text/csv" || answer.Header.Get("Content-Disposition") != "attachment") {
				t.Errorf("%s: %v", tt.query, answer.Header)
			}
		}
	}
	const set = `<TagSet><Tag><Key>a</Key><Value>x/y z</Value></Tag><Tag><Key>b</Key><Value>2</Value></Tag></TagSet>`
	if answer, body := get(t, at+"/x/photo?tagging"); answer.StatusCode != 200 || !strings.Contains(body, set) {
		t.Error(answer.Status, body)
	}
	if answer, body := get(t, at+"/x/sevenof?tagging"); answer.StatusCode != 200 || !strings.Contains(body, "<TagSet></TagSet>") {
		t.Error(answer.Status, body)
	}
	if answer, _ := get(t, at+"/x/photo"); answer.Header.Get("X-Amz-Tagging-Count") != "2" || answer.Header.Get("X-Amz-Tagging") != "" {
		t.Error(answer.Header)
	}
	if answer, _ := get(t, at+"/x?tagging"); answer.StatusCode != 501 {
		t.Error(answer.Status)
	}
	for _, query := range []string{"partNumber=1", ""} {
		if answer, body := get(t, at+"/x/sevenof?"+query); answer.StatusCode != 200 || body != "" {
			t.Error(query, answer.Status, body)
		}
	}
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		r, err := http.NewRequestWithContext(t.Context(), method, at+"/x/photo", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 405 || !strings.Contains(string(body), "<Code>MethodNotAllowed</Code>") {
			t.Error(method, answer.Status, string(body))
		}
	}
	// Clients take the names of metadata as they come.
	conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HEAD /x/photo HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if head, err := io.ReadAll(conn); err != nil || !strings.Contains(string(head), "\r\nx-amz-meta-who_is: me\r\n") {
		t.Errorf("%s, %v", head, err)
	}
}

func TestFilesOfBucketsHaveTheirTypesAndDoNoHarm(t *testing.T) {
	kept := map[string]map[string]string{
		"page": {"content-type": "TEXT/HTML"}, "xml.jpg": {"content-type": "application/xml"}, "mixed": {"content-type": "multipart/x-mixed-replace; boundary=x"},
		"bad.png": {"content-type": "image/png, text/html"}, "image": {"content-type": "image/png", "cache-control": "public, max-age=9", "x-amz-meta-a": "b"},
		"zip.txt": {"content-type": "text/html", "content-encoding": "gzip", "content-disposition": "inline", "expires": "Fri, 01 May 2026 10:00:00 GMT"},
	}
	mem, _, at := describedObjects(t, kept)
	for _, token := range []string{"", "a secret of the test"} {
		_, _, url, _ := siteOf(t, serve.SiteOptions{Token: token}, serve.SetOptions{}, sourceOf(mem, "x", nil))
		for name := range kept {
			answer, _, err := ask(t, "GET", url+"/f/x/"+name, "Authorization", "Bearer "+token)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(name, answer.Status, err)
			}
			head := answer.Header
			if sandboxed := strings.HasPrefix(head.Get("Content-Security-Policy"), "sandbox;"); sandboxed == slices.Contains([]string{"image", "zip.txt"}, name) {
				t.Errorf("%s: %v", name, head)
			}
			if head.Get("Content-Disposition")+head.Get("Content-Encoding") != "" || head.Get("Last-Modified") != at.Format(http.TimeFormat) || head.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %v", name, head)
			}
			switch {
			case name == "zip.txt" && (head.Get("Content-Type") != "text/plain; charset=utf-8" || (head.Get("Expires") != "") != (token == "")),
				name == "image" && (head.Get("Content-Type") != "image/png" || head.Get("X-Amz-Meta-A") != "b" || (head.Get("Cache-Control") == "public, max-age=9") != (token == "")):
				t.Errorf("%s: %v", name, head)
			}
		}
	}
}

// FuzzQueries checks that no query breaks the server, and that each page is
// followed by the next.
func FuzzQueries(f *testing.F) {
	for _, q := range []string{"", "format=json&limit=2&after=YQ", "list-type=2&max-keys=1&delimiter=/&prefix=a", "continuation-token=YQ&list-type=2", "marker=a/&delimiter=/", "encoding-type=url&start-after=%ff", "a;b", "limit=-1"} {
		f.Add(q)
	}
	entries := kit.Entries{{Name: "a"}, {Name: "a/b"}, {Name: "a-b"}, {Name: "\xff"}, {Name: "c/\xff/d"}}
	h, s3 := fuzzed(f, entries)
	f.Fuzz(func(t *testing.T, q string) {
		for path, to := range map[string]http.Handler{"/f/x/": h, "/x": s3} {
			r := httptest.NewRequest("GET", path, nil)
			r.URL.RawQuery = q
			w := httptest.NewRecorder()
			to.ServeHTTP(w, r)
			if w.Code != 200 && w.Code != 400 && w.Code != 501 {
				t.Fatalf("%s?%s: %d %s", path, q, w.Code, w.Body)
			}
		}
	})
}

func FuzzSignatures(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=me/too/20260102/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("0", 64), "20260102T030405Z", "")
	f.Add("", "", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=me%2Ftoo%2F20260102%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature="+strings.Repeat("0", 64))
	_, s3 := fuzzed(f, kit.Entries{{Name: "a"}})
	f.Fuzz(func(t *testing.T, auth, date, q string) {
		r := httptest.NewRequest("GET", "/x/a", nil)
		r.URL.RawQuery = q
		r.Header["Authorization"], r.Header["X-Amz-Date"] = []string{auth}, []string{date}
		w := httptest.NewRecorder()
		s3.ServeHTTP(w, r)
		if w.Code != 400 && w.Code != 403 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}

// fuzzed returns handlers of one archive with entries. The S3 handler requires
// a signature if there is exactly one entry.
func fuzzed(f *testing.F, entries kit.Entries) (http.Handler, http.Handler) {
	set := serve.NewSet(serve.SetOptions{})
	f.Cleanup(set.Close)
	set.Add(indexed("x", kit.NewIndex(entries)))
	site := serve.NewSite(set, serve.SiteOptions{})
	o := serve.S3Options{Clock: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
	if len(entries) == 1 {
		o.Key = key
	}
	return site, serve.NewS3(site, o)
}

func TestAListOfAMillionKeysIsInOrder(t *testing.T) {
	testkit.Long(t)
	x := kit.NewIndex(million{})
	at, _ := bucketsOf(t, serve.S3Options{}, indexed("mil", x))
	c := client(t, at, serve.Key{})
	n := 600_000
	for o := range c.ListObjects(t.Context(), "mil", minio.ListObjectsOptions{Recursive: true, StartAfter: fmt.Sprintf("d/%07d", n-1)}) {
		if o.Err != nil || o.Key != fmt.Sprintf("d/%07d", n) || o.Size != int64(n) {
			t.Fatalf("%+v, expected number %d", o, n)
		}
		if n++; n == 603_000 {
			break
		}
	}
}
