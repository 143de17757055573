package parity

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
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

// BenchmarkSearch finds the blocks of an archive that lost its beginning: the first search follows
// them, and one of other bytes rolls over all of them.
func BenchmarkSearch(b *testing.B) {
	const size = 256 << 20
	rnd := rand.New(rand.NewPCG(1, 1))
	was := testkit.Noise(rnd, size)
	st := &storetest.Mem{}
	st.Put("a", was)
	protect(b, st, 0.05, "a")
	for _, c := range []struct {
		name string
		now  []byte
	}{{"follow", was[100_000:]}, {"roll", testkit.Noise(rnd, size)}} {
		st.Put("a", slices.Clone(c.now))
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				g, err := Locate(b.Context(), st, "a", "")
				if err == nil {
					g.maySearch = true
					_, err = g.search(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
				g.Close()
			}
		})
	}
}

func BenchmarkOneByte(b *testing.B) {
	block := make([]byte, 8<<10)
	rand.NewChaCha8([32]byte{}).Read(block)
	hash := rollOf(block)
	block[0]++
	block[len(block)-1]++
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		new(Guard).oneByte(b.Context(), 0, block, hash)
	}
}
