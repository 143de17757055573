package databundle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// prose is text about as dull as text is.
func prose(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 20000)
	for i := range words {
		w := make([]byte, 2+r.IntN(9))
		for j := range w {
			w[j] = "etaoinshrdlucmfw"[r.IntN(16)]
		}
		words[i] = string(w)
	}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[int(r.ExpFloat64()*900)%len(words)])
		b.WriteByte(' ')
	}
	return b.Bytes()[:n]
}

func BenchmarkRecords(b *testing.B) {
	content := prose(16 << 20)
	for _, c := range []struct {
		kind  compression
		level string
	}{{zlib, ""}, {snappy, ""}, {zstd, "1"}, {zstd, ""}, {zstd, "7"}} {
		b.Run(fmt.Sprint(c.kind, c.level), func(b *testing.B) {
			x, err := newCompressor(c.kind, c.level, defaultRecord, 1)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(content)))
			var out []byte
			n := 0
			for b.Loop() {
				n = 0
				for at := 0; at < len(content); at += defaultRecord {
					if out, err = x.record(0, out[:0], content[at:at+defaultRecord]); err != nil {
						b.Fatal(err)
					}
					n += len(out)
				}
			}
			b.ReportMetric(float64(len(content))/float64(n), "ratio")
		})
	}
}
