package bytemap

import (
	"io"
	"testing"
)

func million(yield func(Span) bool) {
	for i := range int64(1_000_000) {
		if !yield(Span{"v", i * 1024, 1000 + i%24, Use(i % 5), "entry"}) {
			return
		}
	}
}

func BenchmarkBuildMillion(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Build([]Volume{{"v", 1_000_000 * 1024}}, million)
	}
}

func BenchmarkSVG(b *testing.B) {
	m := Build([]Volume{{"v", 1_000_000 * 1024}}, million)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.SVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
