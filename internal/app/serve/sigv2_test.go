package serve_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/internal/app/serve"
)

func TestLinksOfVersion2(t *testing.T) {
	now := time.Now()
	_, at, _ := keeping(t, serve.S3Options{Key: key, Clock: func() time.Time { return now }})
	if err := client(t, at, key).MakeBucket(t.Context(), "b-1", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	link := func(id, secret, method, name string, q url.Values) string {
		c, err := minio.New(strings.TrimPrefix(at, "http://"), &minio.Options{Creds: credentials.NewStaticV2(id, secret, ""), Region: "us-east-1"})
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.Presign(t.Context(), method, "b-1", name, time.Minute, q)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(u.RawQuery, "X-Amz-") {
			t.Fatal(u)
		}
		return u.String()
	}
	put := link(key.ID, key.Secret, "PUT", "a ü+b", nil)
	get := link(key.ID, key.Secret, "GET", "a ü+b", url.Values{"response-content-type": {"text/x"}})
	expect(t, 200, "", "PUT", put, "hello")
	if answer := expect(t, 200, "hello", "GET", get, ""); answer.Header.Get("Content-Type") != "text/x" {
		t.Error(answer.Header)
	}
	for _, c := range []struct {
		code, method, url string
		headers           []string
	}{
		{"SignatureDoesNotMatch", "GET", put, nil},
		{"SignatureDoesNotMatch", "GET", strings.Replace(get, "text%2Fx", "text%2Fy", 1), nil},
		{"SignatureDoesNotMatch", "GET", strings.Replace(get, "/b-1/", "/b-2/", 1), nil},
		{"SignatureDoesNotMatch", "GET", strings.Replace(get, "Expires=", "Expires=9", 1), nil},
		{"SignatureDoesNotMatch", "PUT", put, []string{"x-amz-meta-a", "b"}},
		{"SignatureDoesNotMatch", "PUT", put + "&x-amz-copy-source=b-1%2Fx", nil},
		{"SignatureDoesNotMatch", "PUT", put + "&uploadId=x", nil},
		{"SignatureDoesNotMatch", "PUT", link(key.ID, "other secret", "PUT", "x", nil), nil},
		{"InvalidAccessKeyId", "PUT", link("other", key.Secret, "PUT", "x", nil), nil},
		{"AccessDenied", "GET", get + "&prefix=a", nil},
		{"AccessDenied", "GET", get + "&Expires=1", nil},
	} {
		expect(t, http.StatusForbidden, "<Code>"+c.code+"</Code>", c.method, c.url, "", c.headers...)
	}
	now = now.Add(2 * time.Minute)
	expect(t, 403, "<Code>AccessDenied</Code>", "PUT", put, "hello")
}
