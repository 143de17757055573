package parity

import (
	"context"
	"io"
	"testing"

	"github.com/zeebo/blake3"
)

// BenchmarkEncode compares parity and digests of blocks with BLAKE3 of the same bytes.
func BenchmarkEncode(b *testing.B) {
	const size = 400 << 20
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * i >> 7)
	}
	b.Run("parity", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			e, err := NewEncoder(context.Background(), size, 0.05)
			if err != nil {
				b.Fatal(err)
			}
			for range size / len(block) {
				if _, err := e.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			if err := e.Finish(io.Discard, []Object{{Size: size}}); err != nil {
				b.Fatal(err)
			}
			e.Close()
		}
	})
	b.Run("blake3", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			h := blake3.New()
			for range size / len(block) {
				h.Write(block)
			}
			h.Sum(nil)
		}
	})
}
