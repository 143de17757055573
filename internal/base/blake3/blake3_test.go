package blake3

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	narrow "github.com/zeebo/blake3"
)

// The lengths are those at which a block, a subtree or a library ends. Both libraries are tried.
func TestDigestsAreThoseOfBlake3(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 40*subtree)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	lengths := []int{0, 1, 63, 64, 65, 1023, 1024, 1025}
	for n := 7; n <= 80; n++ {
		lengths = append(lengths, 1024*n-1, 1024*n, 1024*n+1)
	}
	for n := range 40 {
		lengths = append(lengths, subtree*n+r.IntN(subtree), subtree*n)
	}
	was := isWide
	defer func() { isWide = was }()
	for _, isWide = range []bool{was, false} {
		h := New()
		for _, n := range lengths {
			want := narrow.Sum256(p[:n])
			if got := Sum256(p[:n]); got != want {
				t.Fatalf("%d bytes: %x, not %x", n, got, want)
			}
			h.Reset()
			for at := 0; at < n; {
				k := min(n-at, 1+r.IntN([]int{100, 5000, 3 * subtree}[r.IntN(3)]))
				h.Write(p[at:][:k])
				if at += k; r.IntN(50) == 0 { // a sum in the middle changes nothing
					if part := narrow.Sum256(p[:at]); !bytes.Equal(h.Sum(nil), part[:]) {
						t.Fatalf("%d of %d bytes: another digest", at, n)
					}
				}
			}
			if got := h.Sum([]byte("x")); !bytes.Equal(got[1:], want[:]) || got[0] != 'x' {
				t.Fatalf("%d bytes in pieces: %x, not %x", n, got[1:], want)
			}
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{100, 8 << 10, 12 << 10, 16 << 10, 64 << 10, 1 << 20} {
		p := make([]byte, n)
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				Sum256(p)
			}
		})
		b.Run(fmt.Sprintf("of %d by the other library", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				narrow.Sum256(p)
			}
		})
	}
}
