package gf16

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/reedsolomon"

	"github.com/holdall/holdall/internal/testkit"
)

// encode is how an Encoder is used, for blocks of Width bytes.
func encode(m int, data [][]byte) []byte {
	e := NewEncoder(m)
	n := e.Together()
	stride := e.Stride(Width)
	sums, band := make([]byte, m*Width), make([]byte, m/n*stride)
	work := make([]byte, m*e.piece)
	for run := 0; run*m < len(data); run++ {
		e.Run(run)
		clear(band)
		parts := 0
		for ; parts < m/n && run*m+parts*n < len(data); parts++ {
			blocks := data[run*m+parts*n:]
			blocks = blocks[:min(n, len(blocks))]
			near, want := bytes.Clone(data[0]), bytes.Clone(data[0])
			for _, b := range blocks {
				subtle.XORBytes(want, want, b)
			}
			all := make([]byte, n*Width)
			copy(all, bytes.Join(blocks, nil))
			e.Put(band[parts*stride:][:n*Width], all, near, parts*n)
			if !bytes.Equal(near, want) {
				panic("the sum of neighbours is wrong")
			}
		}
		for t := range Width / e.piece {
			e.Add(sums[t*m*e.piece:][:m*e.piece], work, band[t*n*e.piece:], stride, parts)
		}
	}
	e.Finish()
	parity := make([]byte, m*Width)
	for t := range Width / e.piece {
		sum := sums[t*m*e.piece:][:m*e.piece]
		e.Parity(sum, work, m)
		for i := range m {
			copy(parity[i*Width+t*e.piece:], sum[i*e.piece:][:e.piece])
		}
	}
	return parity
}

// What is encoded here is what the library encodes, with each kind of kernel.
func TestSameAsLeopard(t *testing.T) {
	testkit.Serial(t)
	rnd := rand.NewChaCha8([32]byte{22})
	for _, c := range []struct{ n, r int }{{1, 1}, {1, 2}, {2, 2}, {3, 2}, {5, 3}, {100, 7}, {256, 16}, {600, 20}, {1000, 64}, {3000, 100}, {1000, 250}, {1000, 500}, {1025, 1024}, {5000, 2000}, {60000, 3000}} {
		t.Run(fmt.Sprintf("%d+%d", c.n, c.r), func(t *testing.T) {
			lib, err := reedsolomon.New(c.n, c.r, reedsolomon.WithLeopardGF16(true))
			if err != nil {
				t.Fatal(err)
			}
			all := make([][]byte, c.n+c.r)
			for i := range all {
				all[i] = make([]byte, Width)
				if i < c.n {
					rnd.Read(all[i])
				}
			}
			if err := lib.Encode(all); err != nil {
				t.Fatal(err)
			}
			want := bytes.Join(all[c.n:], nil)
			kernels(func(name string) {
				got := encode(Order(c.r), all[:c.n])
				if !bytes.Equal(got[:len(want)], want) {
					t.Errorf("%s: not what the library encodes", name)
				}
			})
		})
	}
}

func BenchmarkRun(b *testing.B) {
	const block = 32 << 10
	for _, m := range []int{64, 1024} {
		b.Run(fmt.Sprint(m), func(b *testing.B) {
			kernels(func(name string) {
				e := NewEncoder(m)
				n := e.Together()
				blocks, near, work := make([]byte, n*block), make([]byte, block), make([]byte, m*e.piece)
				stride := e.Stride(block)
				sums, band := make([]byte, m*block), make([]byte, m/n*stride)
				e.Run(1)
				b.Run(name, func(b *testing.B) {
					b.SetBytes(int64(len(sums)))
					for b.Loop() {
						for at := 0; at < m; at += n {
							e.Put(band[at/n*stride:][:n*block], blocks, near, at)
						}
						for t := range block / e.piece {
							e.Add(sums[t*m*e.piece:][:m*e.piece], work, band[t*n*e.piece:], stride, m/n)
						}
					}
				})
			})
		})
	}
}
