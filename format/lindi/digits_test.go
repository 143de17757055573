package lindi

import (
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// All bytes at all places are decoded as encoding/hex does.
func TestEightDigits(t *testing.T) {
	for _, base := range []string{"00000000", "09afAF90", "ffffffff", "8c1D2e3F"} {
		for at := range 8 {
			for c := range 256 {
				p := []byte(base)
				p[at] = byte(c)
				var want [4]byte
				_, err := hex.Decode(want[:], p)
				got, ok := eightDigits(binary.BigEndian.Uint64(p))
				if ok != (err == nil) || ok && got != binary.BigEndian.Uint32(want[:]) {
					t.Fatalf("%q: %x, %v, want %x, %v", p, got, ok, want, err)
				}
			}
		}
	}
}
