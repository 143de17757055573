package holdall

import (
	crand "crypto/rand"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// sampleOf returns how many of all blocks must be read to find, with a confidence, that at least
// the share loss of them is wrong. Blocks are not read twice, so of few blocks it is all.
func sampleOf(all int64, loss, confidence float64) (n int64) {
	wrong := math.Ceil(loss * float64(all) * (1 - 1e-12)) // the product may be too large by its last bit
	for missed := 0.0; n < all && missed > math.Log1p(-confidence); n++ {
		missed += math.Log1p(-wrong / float64(all-n))
	}
	return n
}

// A sampler chooses blocks while all of them go by. Each set of as many blocks is equally likely.
type sampler struct {
	want, left int64
	random     *rand.Rand
}

func (s *sampler) pick() bool {
	picked := s.left > 0 && s.random.Int64N(s.left) < s.want
	if s.left--; picked {
		s.want--
	}
	return picked
}

// sampling reports whether only a sample of the contents is read.
func (o VerifyOptions) sampling() bool { return o.Sample.Loss > 0 }

// sampler returns what chooses the sample of all blocks, and notes how many these are.
func (c *check) sampler(unit string, all int64) *sampler {
	o := c.o.Sample
	c.sum.Sampled = &Sampled{Unit: unit, Read: sampleOf(all, o.Loss, o.Confidence), Of: all, Loss: o.Loss, Confidence: o.Confidence}
	var seed [32]byte
	if binary.LittleEndian.PutUint64(seed[:], o.Seed); o.Seed == 0 {
		crand.Read(seed[:]) // never fails
	}
	return &sampler{c.sum.Sampled.Read, all, rand.New(rand.NewChaCha8(seed))}
}
