package serve_test

import (
	"fmt"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// The store and the server sign alike, and the server checks everything that the store sends.
func TestOurStoreOfBucketsUsesThisServer(t *testing.T) {
	k := serve.Key{ID: s3test.AccessKey, Secret: s3test.Secret}
	_, at, _ := keeping(t, serve.S3Options{Key: k})
	s3test.Setenv(t, at)
	n := 0
	storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
		n++
		name := fmt.Sprintf("bucket-%d", n)
		if err := client(t, at, k).MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		st, err := bucket.New(name, "pre fix/+ü/", bucket.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return st, func(name string, content []byte) error { return storetest.Put(t.Context(), st, name, content) }
	})
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	st, err := bucket.New("bucket-1", "", bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := storetest.Put(t.Context(), st, "x", nil); err == nil {
		t.Error("a signature with another key was taken")
	}
}
