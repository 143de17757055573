package nodejson

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// BenchmarkDecode reads exports: many small nodes, and contents of binaries.
func BenchmarkDecode(b *testing.B) {
	m := newMaker(b)
	var small []byte
	for i := range 2000 {
		small = append(small, encode(b, plain, fmt.Sprintf("/content/site/node-%05d", i), m.node(
			one("jcr:primaryType", segment.Name, "nt:unstructured"), one("jcr:title", segment.String, "Grüße \"an\" alle\n"),
			several("tags", segment.String, "one", "two", "three"), one("count", segment.Name, "12345"), one("icon", segment.Binary, noise(60))))...)
	}
	large := encode(b, plain, "/content/dam/large", m.node(one("jcr:data", segment.Binary, noise(8<<20)), one("text", segment.String, string(bytes.Repeat([]byte("grüße\n"), 300_000)))))
	for name, in := range map[string][]byte{"small nodes": small, "large contents": large} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				d := NewDecoder(bytes.NewReader(in))
				for {
					if _, err := d.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
