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

const width = 64

// encode is how an Encoder is used.
func encode(m int, data [][]byte) []byte {
	e := NewEncoder(m)
	sum := make([]byte, m*width)
	work := make([]byte, m*width)
	for run := 0; run*m < len(data); run++ {
		e.Run(run)
		clear(work)
		n := min(m, len(data)-run*m)
		for i := range n {
			copy(work[i*width:], data[run*m+i])
		}
		// Pieces may come in parts.
		cut := n * 3 / 7
		other := make([]byte, len(work))
		copy(other, work[:cut*width])
		clear(work[:cut*width])
		e.Add(sum, other, width, 0, cut, nil)
		// So may several at once.
		var done []bool
		if m >= Together {
			done = make([]bool, m/Together)
			for i := (cut + Together - 1) / Together; i < n/Together; i += 1 + i%2 {
				done[i] = true
				const stride = 64 + width
				blocks, near, want := make([]byte, Together*stride), make([]byte, width), make([]byte, width)
				for j := range Together {
					copy(blocks[j*stride:], data[run*m+Together*i+j])
					subtle.XORBytes(want, want, data[run*m+Together*i+j])
				}
				e.Put(work, width, Together*i, blocks, stride, near, make([]byte, Together*width))
				if !bytes.Equal(near, want) {
					panic("the sum of neighbours is wrong")
				}
			}
		}
		e.Add(sum, work, width, cut, n, done)
	}
	e.Finish()
	e.Parity(sum, width, m)
	return sum
}

// What is encoded here is what the library encodes, with each kind of kernel.
func TestSameAsLeopard(t *testing.T) {
	testkit.Serial(t)
	rnd := rand.NewChaCha8([32]byte{22})
	for _, c := range []struct{ n, r int }{{1, 1}, {1, 2}, {2, 2}, {3, 2}, {5, 3}, {100, 7}, {256, 16}, {1000, 64}, {1025, 1024}, {3000, 100}, {60000, 3000}} {
		t.Run(fmt.Sprintf("%d+%d", c.n, c.r), func(t *testing.T) {
			lib, err := reedsolomon.New(c.n, c.r, reedsolomon.WithLeopardGF16(true))
			if err != nil {
				t.Fatal(err)
			}
			all := make([][]byte, c.n+c.r)
			for i := range all {
				all[i] = make([]byte, width)
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

func BenchmarkAdd(b *testing.B) {
	for _, m := range []int{64, 1024, 4096} {
		b.Run(fmt.Sprint(m), func(b *testing.B) {
			kernels(func(name string) {
				b.Run(name, func(b *testing.B) {
					e := NewEncoder(m)
					work, sum := make([]byte, m*Width), make([]byte, m*Width)
					e.Run(1)
					b.SetBytes(int64(len(work)))
					for b.Loop() {
						e.Add(sum, work, Width, 0, m, nil)
					}
				})
			})
		})
	}
}
