package arraycodec

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

var errShort = errors.New("the data end early")

// bitReader reads bits, of each byte the highest first.
type bitReader struct {
	in  []byte
	acc uint64 // the next bits, the highest first
	n   int    // how many are in acc
}

// fill makes at least 56 bits ready, if there are as many.
func (r *bitReader) fill() {
	if len(r.in) >= 8 {
		k := (63 - r.n) / 8
		r.acc |= binary.BigEndian.Uint64(r.in) >> r.n
		r.in, r.n = r.in[k:], r.n+8*k
		r.acc &= ^uint64(0) << (64 - r.n)
		return
	}
	for ; r.n <= 56 && len(r.in) > 0; r.in, r.n = r.in[1:], r.n+8 {
		r.acc |= uint64(r.in[0]) << (56 - r.n)
	}
}

// take returns the next n bits, at most 32, as a number.
func (r *bitReader) take(n int) (uint32, error) {
	if r.n < n {
		if r.fill(); r.n < n {
			return 0, errShort
		}
	}
	v := uint32(r.acc >> 32 >> (32 - n))
	r.acc, r.n = r.acc<<n, r.n-n
	return v, nil
}

// zeros counts the zeros before the next one, and skips both.
func (r *bitReader) zeros() (n uint32, err error) {
	for r.acc == 0 {
		n += uint32(r.n)
		if r.n = 0; len(r.in) == 0 {
			return 0, errShort
		}
		r.fill()
	}
	k := bits.LeadingZeros64(r.acc)
	r.acc, r.n = r.acc<<k<<1, r.n-k-1
	return n + uint32(k), nil
}

// long is take for up to 64 bits.
func (r *bitReader) long(n int) (uint64, error) {
	if n <= 32 {
		v, err := r.take(n)
		return uint64(v), err
	}
	high, err := r.take(n - 32)
	if err != nil {
		return 0, err
	}
	low, err := r.take(32)
	return uint64(high)<<32 | uint64(low), err
}
