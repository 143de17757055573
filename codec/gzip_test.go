package codec

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

func TestGzipIsReadAcrossMembersAndToItsEnd(t *testing.T) {
	var b bytes.Buffer
	for _, part := range []string{"one and ", "another"} {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "one and another"
	c, _ := Lookup(Gzip)
	for range 2 { // the second time by a reader that was used
		d, err := c.Decode(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(d); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Read(make([]byte, 1)); err == nil {
			t.Error("read after close: expected an error")
		}
	}
	if got, err := c.Append(nil, b.Bytes(), len(want)); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Append(nil, b.Bytes(), len(want)-1); err == nil {
		t.Error("longer than it should be: expected an error")
	}
	if _, err := c.Append(nil, b.Bytes()[:b.Len()-3], len(want)); err == nil {
		t.Error("cut in the checksum: expected an error")
	}
}
