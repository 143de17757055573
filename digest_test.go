package holdall

import "testing"

func TestCanHashWhatNewHashMakes(t *testing.T) {
	for _, algo := range []string{"blake3", "sha256", "crc32c", "", "md4"} {
		if made := newHash(algo) != nil; made != canHash(algo) {
			t.Errorf("%q: made %v, said %v", algo, made, canHash(algo))
		}
		if _, ok := sumOf(algo, nil); ok != canHash(algo) {
			t.Errorf("%q: summed %v", algo, ok)
		}
	}
}
