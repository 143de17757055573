package hdf5_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func Example() {
	// The object can come from any store, such as a file, a web server or a bucket.
	ctx := context.Background()
	object, err := fixture("testdata/links_latest.h5.gz")
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	f, err := hdf5.Open(ctx, object)
	if err != nil {
		log.Fatal(err)
	}
	o, err := f.Find(ctx, "/a/up")
	if err != nil {
		log.Fatal(err)
	}
	b := make([]byte, o.Bytes())
	if err := o.Read(ctx, b, nil, nil); err != nil {
		log.Fatal(err)
	}
	values, err := f.Values(ctx, o.Type, b)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.Path, o.Type, o.Space.Dims, o.Layout.Class, values)
	// Output:
	// /a/b/c/data int64 [4] contiguous [0 1 2 3]
}

func fixture(name string) (store.Object, error) {
	packed, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	var st storetest.Mem
	st.Put(name, b)
	return st.Open(context.Background(), name)
}
