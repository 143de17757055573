package digest

import "testing"

func TestKnownIsWhatNewMakes(t *testing.T) {
	for _, algo := range []string{"blake3", "sha256", "crc32c", "", "md4"} {
		if made := New(algo) != nil; made != Known(algo) {
			t.Errorf("%q: made %v, said %v", algo, made, Known(algo))
		}
		if _, ok := Of(algo, nil); ok != Known(algo) {
			t.Errorf("%q: summed %v", algo, ok)
		}
	}
}
