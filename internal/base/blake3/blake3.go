// Package blake3 hashes by BLAKE3 with the fastest code for the machine and the length.
//
// One library is the fastest for short contents and on most machines. Another one hashes sixteen
// blocks at once where the processor has AVX-512, but is slow below that.
package blake3

import (
	"github.com/klauspost/cpuid/v2"
	narrow "github.com/zeebo/blake3"
	wide "lukechampine.com/blake3/guts"
)

const (
	// Size is the length of a digest.
	Size = 32

	// subtree is how much is hashed at once, and few up to where the other library is faster.
	subtree = wide.MaxSIMD * wide.ChunkSize
	few     = 11 << 10
)

var isWide = cpuid.CPU.Supports(cpuid.AVX512F)

// Sum256 returns the digest of b.
func Sum256(b []byte) [Size]byte {
	if !isWide || len(b) <= few {
		return narrow.Sum256(b)
	}
	var h Hasher
	h.Write(b)
	return h.sum()
}

// A Hasher makes the digest of what is written to it.
type Hasher struct {
	other *narrow.Hasher // nil if this one hashes

	buf  [subtree]byte
	n    int    // bytes in buf
	done uint64 // subtrees that were hashed

	// tops are the values of the largest whole trees of these subtrees, one for each bit of done.
	tops [50][8]uint32
}

// New returns a Hasher of nothing.
func New() *Hasher {
	if isWide {
		return &Hasher{}
	}
	return &Hasher{other: narrow.New()}
}

func (h *Hasher) Size() int      { return Size }
func (h *Hasher) BlockSize() int { return wide.BlockSize }

func (h *Hasher) Reset() {
	if h.n, h.done = 0, 0; h.other != nil {
		h.other.Reset()
	}
}

// Write never returns an error.
func (h *Hasher) Write(p []byte) (int, error) {
	if h.other != nil {
		return h.other.Write(p)
	}
	for rest := p; len(rest) > 0; {
		if h.n == subtree { // what is last is hashed by sum
			h.add(&h.buf)
			h.n = 0
		}
		for h.n == 0 && len(rest) > subtree {
			h.add((*[subtree]byte)(rest))
			rest = rest[subtree:]
		}
		k := copy(h.buf[h.n:], rest)
		h.n, rest = h.n+k, rest[k:]
	}
	return len(p), nil
}

func (h *Hasher) add(b *[subtree]byte) {
	top := wide.ChainingValue(wide.CompressBuffer(b, subtree, &wide.IV, h.done*wide.MaxSIMD, 0))
	i := 0
	for ; h.done>>i&1 == 1; i++ {
		top = wide.ChainingValue(wide.ParentNode(h.tops[i], top, &wide.IV, 0))
	}
	h.tops[i] = top
	h.done++
}

// Sum appends the digest to b.
func (h *Hasher) Sum(b []byte) []byte {
	if h.other != nil {
		return h.other.Sum(b)
	}
	sum := h.sum()
	return append(b, sum[:]...)
}

func (h *Hasher) sum() [Size]byte {
	if h.done == 0 && h.n <= few {
		return narrow.Sum256(h.buf[:h.n])
	}
	node := wide.CompressBuffer(&h.buf, h.n, &wide.IV, h.done*wide.MaxSIMD, 0)
	for i := 0; h.done>>i > 0; i++ {
		if h.done>>i&1 == 1 {
			node = wide.ParentNode(h.tops[i], wide.ChainingValue(node), &wide.IV, 0)
		}
	}
	node.Flags |= wide.FlagRoot
	out := wide.WordsToBytes(wide.CompressNode(node))
	return [Size]byte(out[:])
}
