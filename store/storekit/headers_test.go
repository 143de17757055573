package storekit_test

import (
	"testing"

	"github.com/holdall/holdall/store/storekit"
)

func TestHeadersOfObjects(t *testing.T) {
	for name, want := range map[string]bool{
		"content-type": true, "expires": true, "x-amz-meta-a": true, "x-amz-meta-a_b.c-1": true,
		"Content-Type": false, "etag": false, "content-length": false, "x-amz-meta-": false, "x-amz-meta-A": false,
		"x-amz-meta-a b": false, "x-amz-meta-a:b": false, "x-amz-meta-ü": false, "x-amz-meta-a\n": false, "x-goog-meta-a": false, "": false,
	} {
		if got := storekit.IsHeader(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
