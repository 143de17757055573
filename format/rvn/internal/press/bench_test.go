package press

import (
	"testing"

	"github.com/klauspost/compress/zstd"
)

// BenchmarkSections compares this package with the next lower and higher levels of
// klauspost/compress. Only results of the same run can be compared.
func BenchmarkSections(b *testing.B) {
	const section = 1 << 20
	level := func(l zstd.EncoderLevel) func(dst, src []byte) []byte {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(section))
		if err != nil {
			b.Fatal(err)
		}
		return func(dst, src []byte) []byte { return e.EncodeAll(src, dst) }
	}
	for _, sample := range []struct {
		name string
		b    []byte
	}{
		{"sources", goSources(b, 64<<20)},
		{"programs", binaries(b, 64<<20)},
	} {
		for _, by := range []struct {
			name   string
			append func(dst, src []byte) []byte
		}{
			{"press", New().Section},
			{"press best", NewBest().Section},
			{"better", level(zstd.SpeedBetterCompression)},
			{"best", level(zstd.SpeedBestCompression)},
		} {
			b.Run(sample.name+"/"+by.name, func(b *testing.B) {
				b.SetBytes(int64(len(sample.b)))
				b.ReportAllocs()
				var out []byte
				n := 0
				for b.Loop() {
					n = 0
					for rest := sample.b; len(rest) > 0; rest = rest[min(len(rest), section):] {
						out = by.append(out[:0], rest[:min(len(rest), section)])
						n += len(out)
					}
				}
				b.ReportMetric(float64(len(sample.b))/float64(n), "ratio")
				b.ReportMetric(float64(n), "bytes")
			})
		}
	}
}
