package arraycodec

import (
	"encoding/binary"
	"fmt"
)

// Options of szip.
const (
	szipMSB = 16 // samples are big endian
	szipNN  = 32 // samples are differences from the one before
)

// Szip decodes the filter szip of HDF5: the decoded size (u32, little endian), and the data of CCSDS 121.0-B, adaptive
// entropy coding. values are options, samples in a block, bits of a sample, and samples in a line. A line is coded by
// itself, in whole blocks.
func Szip(in []byte, values []uint32, most int64) ([]byte, error) {
	if len(values) < 4 || len(in) < 4 {
		return nil, fmt.Errorf("expected 4 parameters and 4 bytes, found %d and %d", len(values), len(in))
	}
	a := aec{bitReader: bitReader{in: in[4:]}, options: values[0], block: int(values[1]), bits: int(values[2])}
	size, line := int64(binary.LittleEndian.Uint32(in)), int64(values[3])
	switch {
	case size > most:
		return nil, fmt.Errorf("expected at most %d bytes, found %d in the header", most, size)
	case a.block < 2 || a.block > 64 || a.block%2 != 0 || line < 1 || line > 4096*64:
		return nil, fmt.Errorf("expected blocks of up to 64 samples, found %d, and lines of %d", a.block, line)
	case a.bits < 1 || a.bits > 32 && a.bits != 64:
		return nil, fmt.Errorf("expected samples of up to 32 bits, or of 64, found %d", a.bits)
	}
	word := 1 // samples of 32 and 64 bits are coded byte by byte, as the byte shuffle orders them
	if a.bits == 32 || a.bits == 64 {
		word, a.bits = a.bits/8, 8
	}
	switch {
	case a.bits > 16:
		a.bytes, a.idBits = 4, 5
	case a.bits > 8:
		a.bytes, a.idBits = 2, 4
	default:
		a.bytes, a.idBits = 1, 3
	}
	if size%int64(a.bytes*word) != 0 {
		return nil, fmt.Errorf("%d bytes are not of samples of %d", size, a.bytes*word)
	}
	// A block of zeros takes a bit, and stands for up to 64.
	if samples := size / int64(a.bytes); samples > int64(len(in))*8*64*64 {
		return nil, fmt.Errorf("%d bytes cannot decode to %d", len(in), size)
	}
	a.blocks = int((line + int64(a.block) - 1) / int64(a.block))
	a.samples = make([]uint32, a.blocks*a.block)
	out := make([]byte, 0, size)
	for int64(len(out)) < size {
		n := min(line, (size-int64(len(out)))/int64(a.bytes))
		if err := a.interval(int(n)); err != nil {
			return nil, fmt.Errorf("after %d of %d bytes: %w", len(out), size, err)
		}
		for _, v := range a.samples[:n] {
			switch {
			case a.bytes == 1:
				out = append(out, byte(v))
			case a.bytes == 2 && a.options&szipMSB != 0:
				out = binary.BigEndian.AppendUint16(out, uint16(v))
			case a.bytes == 2:
				out = binary.LittleEndian.AppendUint16(out, uint16(v))
			case a.options&szipMSB != 0:
				out = binary.BigEndian.AppendUint32(out, v)
			default:
				out = binary.LittleEndian.AppendUint32(out, v)
			}
		}
	}
	if word == 1 {
		return out, nil
	}
	whole := make([]byte, size)
	Unshuffle(whole, out, word)
	return whole, nil
}

// An aec decodes adaptive entropy coding.
type aec struct {
	bitReader
	options             uint32
	block, blocks       int // samples in a block, and blocks in an interval
	bits, bytes, idBits int
	samples             []uint32 // of an interval
}

// interval decodes what begins with a sample as it is, if samples are differences. Only the first n samples count.
func (a *aec) interval(n int) error {
	reference := 0
	if a.options&szipNN != 0 {
		reference = 1
	}
	for at := 0; at < n; {
		first := 0 // samples of the block that are stored as they are
		if at == 0 {
			first = reference
		}
		id, err := a.take(a.idBits)
		if err != nil {
			return err
		}
		zeros := 0 // further blocks of zeros
		block := a.samples[at : at+a.block]
		switch most := uint32(1)<<a.idBits - 1; {
		case id == most:
			for i := range block {
				if block[i], err = a.take(a.bits); err != nil {
					return err
				}
			}
		case id == 0:
			zeros, err = a.low(block, first, at/a.block)
		default:
			err = a.split(block, first, int(id-1))
		}
		if err != nil {
			return err
		}
		at += a.block
		if zeros*a.block > len(a.samples)-at {
			return fmt.Errorf("%d blocks of zeros are more than the interval has", zeros+1)
		}
		clear(a.samples[at : at+zeros*a.block])
		at += zeros * a.block
	}
	if reference != 0 {
		a.sum(a.samples[:n])
	}
	return nil
}

// stored reads the first samples of a block.
func (a *aec) stored(block []uint32) (err error) {
	for i := 0; i < len(block) && err == nil; i++ {
		block[i], err = a.take(a.bits)
	}
	return err
}

// split decodes samples whose lowest k bits follow the rest, in unary, of all.
func (a *aec) split(block []uint32, first, k int) error {
	err := a.stored(block[:first])
	for i := first; i < len(block) && err == nil; i++ {
		block[i], err = a.zeros()
	}
	for i := first; i < len(block) && err == nil && k > 0; i++ {
		var low uint32
		low, err = a.take(k)
		block[i] = block[i]<<k | low
	}
	return err
}

// low decodes a block of small samples: zeros, and then further blocks may be so too, or pairs that are one number.
func (a *aec) low(block []uint32, first, number int) (zeros int, err error) {
	pairs, err := a.take(1)
	if err == nil {
		err = a.stored(block[:first])
	}
	if err != nil {
		return 0, err
	}
	if pairs == 0 {
		clear(block[first:])
		n, err := a.zeros()
		const rest = 5 // up to the end of the interval, or of the segment of 64 blocks
		switch n++; {
		case n == rest:
			n = uint32(min(a.blocks-number, 64-number%64))
		case n > rest:
			n--
		}
		return int(min(n, 1<<20)) - 1, err
	}
	for i := first; i < len(block); i++ {
		m, err := a.zeros()
		if err != nil {
			return 0, err
		}
		// Of a pair with the sum s, the second is m - s(s+1)/2.
		s := uint32(0)
		for ; m > s; s++ {
			m -= s + 1
		}
		if i%2 == 0 {
			block[i] = s - m
			i++
		}
		block[i] = m
	}
	return 0, nil
}

// sum makes samples of differences. They are numbered in turn: 0, -1, 1, -2, 2 and so on, while both are possible.
func (a *aec) sum(all []uint32) {
	largest := uint32(1)<<a.bits - 1
	x := all[0]
	for i, d := range all[1:] {
		mask := uint32(0)
		if x > largest/2 {
			mask = largest
		}
		switch {
		case d/2+d&1 > mask^x:
			x = mask ^ d
		case d&1 != 0:
			x -= d/2 + 1
		default:
			x += d / 2
		}
		all[1+i] = x
	}
}
