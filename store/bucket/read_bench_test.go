package bucket

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// BenchmarkSmallObject reads an object of 4 KiB, whose version is known, with everything that this
// program does for it except the network.
func BenchmarkSmallObject(b *testing.B) {
	s3test.Setenv(b, "http://127.0.0.1:1")
	content := make([]byte, 4<<10)
	respond := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusPartialContent, ContentLength: 4 << 10, Request: r, Body: io.NopCloser(bytes.NewReader(content)), Header: http.Header{
			"Content-Range": {"bytes 0-4095/4096"}, "Content-Length": {"4096"}, "Content-Type": {"application/octet-stream"}, "Accept-Ranges": {"bytes"},
			"Etag": {`"620f0b67a91f7f74151bc5be745b7110"`}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
			"X-Amz-Checksum-Crc64nvme": {"AAAAAAAAAAA="}, "X-Amz-Checksum-Type": {"FULL_OBJECT"}, "X-Amz-Storage-Class": {"STANDARD"}, "Server": {"s3"},
		}}, nil
	})
	st, err := New("bucket", "", Options{Client: &http.Client{Transport: respond}, Tries: 1})
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		o, err := st.OpenAs(b.Context(), store.Info{Name: "small/d001/f000001.bin", Size: 4 << 10, Version: `"620f0b67a91f7f74151bc5be745b7110"`})
		if err == nil {
			err = o.ReadAt(b.Context(), p, 0)
		}
		if err == nil {
			_, err = o.Can().Sums(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		o.Close()
	}
}
