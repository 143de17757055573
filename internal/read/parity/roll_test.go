package parity

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// The sum of a block is the same for all lengths, whatever instructions the processor has.
func TestRollSum(t *testing.T) {
	b := testkit.Noise(rand.New(rand.NewPCG(1, 2)), 3000)
	for n := 0; n <= len(b); n += wordLen {
		want := uint64(0)
		for i := 0; i < n; i += wordLen {
			want = want*rollFactor + mix(binary.LittleEndian.Uint64(b[i:]))
		}
		if got := rollSum(b[:n]); got != want {
			t.Fatalf("%d bytes: %x, expected %x", n, got, want)
		}
	}
}

func BenchmarkRoll(b *testing.B) {
	for _, n := range []int{4 << 10, 52 << 10} {
		block := make([]byte, n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				rollSum(block)
			}
		})
	}
}
