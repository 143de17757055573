package arraycodec

import (
	"errors"
	"fmt"
)

// decodeBloscLZ decodes Blosc's own codec, a variant of FastLZ. Each step begins with a byte c.
//
//	c < 32   c+1 bytes follow as they are
//	else     a match: its length is (c>>5)+2, and if c>>5 is 7, bytes follow that
//	         add to it, up to and with the first that is not 255; its distance is
//	         (c&31)<<8 plus the next byte plus 1. If those are the largest (31 and
//	         255), the next two bytes (big endian) plus 8192 are the distance.
//
// The upper three bits of the first byte of all are a version, not a length.
func decodeBloscLZ(dst, src []byte) error {
	const far = 8191
	if len(src) == 0 {
		return errors.New("no data")
	}
	short := errors.New("the data end within a step")
	at, n := 1, 0
	for c := int(src[0] & 31); ; at++ {
		if c < 32 {
			c++
			if c > len(src)-at {
				return short
			}
			if c > len(dst)-n {
				return fmt.Errorf("more than %d bytes", len(dst))
			}
			copy(dst[n:], src[at:at+c])
			at, n = at+c, n+c
		} else {
			length, dist := c>>5+2, c&31<<8
			for more := length == 9; more; at++ {
				if at >= len(src) {
					return short
				}
				length += int(src[at])
				more = src[at] == 255
			}
			if at >= len(src) {
				return short
			}
			dist += int(src[at])
			at++
			if dist == far {
				if len(src)-at < 2 {
					return short
				}
				dist += int(src[at])<<8 | int(src[at+1])
				at += 2
			}
			dist++
			if dist > n {
				return fmt.Errorf("offset %d: a match %d bytes back, but only %d exist", at, dist, n)
			}
			if length > len(dst)-n {
				return fmt.Errorf("more than %d bytes", len(dst))
			}
			copyMatch(dst, n, dist, length)
			n += length
		}
		if at >= len(src) {
			break
		}
		c = int(src[at])
	}
	if n != len(dst) {
		return fmt.Errorf("expected %d bytes, found %d", len(dst), n)
	}
	return nil
}

// copyMatch copies length bytes to n from dist bytes before it; the two may overlap.
func copyMatch(dst []byte, n, dist, length int) {
	from, end := n-dist, n+length
	for n < end {
		n += copy(dst[n:end], dst[from:n])
	}
}
