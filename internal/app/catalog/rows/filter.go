package rows

import "math/bits"

// A filter can show that no row has a certain name. It consists of blocks of filterBlock bytes. Each name
// belongs to one block, and sets filterHashes bits in it.
const (
	filterBlock  = 4 << 10
	filterBits   = 8 * (filterBlock - crcLen)
	filterHashes = 7
	bitsPerName  = 10

	// mostNear is how many blocks belong to the end of a run, which comes with the head of a catalogue: those
	// of 32,767 names.
	mostNear = 11

	// mostFiltered is how many rows may have a filter. Of several runs, the largest needs none.
	mostFiltered = 32 << 20
)

// hash is FNV-1a with a better end.
func hash[T string | []byte](name T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func filterBlocks(names int64) int {
	if names == 0 || names > mostFiltered {
		return 0
	}
	return int((names*bitsPerName-1)/filterBits) + 1
}

// blockOf returns which of n blocks has a name.
func blockOf(h uint64, n int) int {
	hi, _ := bits.Mul64(h, uint64(n))
	return int(hi)
}

func setBits(block []byte, h uint64) {
	at, step := uint32(h)%filterBits, uint32(h>>32)%filterBits|1
	for range filterHashes {
		block[at/8] |= 1 << (at % 8)
		at = (at + step) % filterBits
	}
}

func hasBits(block []byte, h uint64) bool {
	at, step := uint32(h)%filterBits, uint32(h>>32)%filterBits|1
	for range filterHashes {
		if block[at/8]&(1<<(at%8)) == 0 {
			return false
		}
		at = (at + step) % filterBits
	}
	return true
}
