package rescue

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Where the name in a header has the checksum, and how many of its digits have to
// fit for a damaged header to prove the segment all the same: of wrong segments one
// in 35,000,000 has seven.
const (
	crcAt     = 37
	crcDigits = 8
	crcFit    = crcDigits - 1
)

// A judge finds out what a segment is worth that is said to be at a place.
type judge struct {
	*survey
	from int
	id   tarfile.ID
	pos  int64
	gen  *tarfile.Generation // by the index, if that says so
}

func (j *judge) wrong(c tarfile.Class, off, n int64, format string, a ...any) {
	j.problem(j.from, tarfile.Problem{Class: c, Off: off, Len: n, Segment: j.id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}

// segment is what becomes of it.
func (j *judge) segment(n int, crc uint32, proof Proof) Segment {
	return Segment{ID: j.id, Pos: j.pos, From: int32(j.from), Len: int32(n), CRC: crc, Proof: proof}
}

// entry judges a segment of n bytes by an index. Its header may know its length better.
func (j *judge) entry(ctx context.Context, n int) (Segment, error) {
	off := j.pos - tarfile.BlockSize
	lost := j.segment(n, 0, Lost)
	if n < 1 || n > tarfile.MaxSegment {
		j.wrong(tarfile.OutOfBounds, j.pos, int64(n), "index: %d bytes, expected 1 to %d", n, tarfile.MaxSegment)
		lost.Len = 0
		n = 0 // of the header alone
	}
	b, ok, err := j.read(ctx, j.from, off, tarfile.BlockSize+padded(int32(n)))
	if err != nil {
		return lost, err
	}
	if !ok {
		j.wrong(tarfile.OutOfBounds, j.pos, int64(n), "index: the segment is not within the file")
		return lost, nil
	}
	h, err := tarfile.ParseHeader(b[:tarfile.BlockSize])
	name, named := tarfile.ParseEntryName(h.Name)
	sound := err == nil && h.ChecksumOK && named
	if sound && name.ID != j.id {
		j.wrong(tarfile.BadHeader, off, tarfile.BlockSize, "header: it is of segment %s, expected %s", name.ID, j.id)
		return lost, nil
	}
	var c Segment
	if n > 0 {
		data, rest := b[tarfile.BlockSize:][:n], b[tarfile.BlockSize+n:]
		if sound {
			c = j.byName(data, name)
		} else {
			c = j.byDamagedName(data, b[crcAt:][:crcDigits])
		}
		if !blank(rest) {
			j.wrong(tarfile.BadPadding, j.pos+int64(n), int64(len(rest)), "segment: something else than zeros behind it")
		}
		c.intact = sound && c.Proof == Proven && h.Size == int64(n) && blank(rest)
	}
	if c.Proof == Lost && sound && h.Size != int64(n) && h.Size >= 1 && h.Size <= tarfile.MaxSegment {
		j.wrong(tarfile.BadHeader, off, tarfile.BlockSize, "header: %d bytes, expected %d as in the index", h.Size, n)
		b, ok, err := j.read(ctx, j.from, j.pos, h.Size)
		if err != nil {
			return lost, err
		}
		if ok {
			c = j.byName(b, name)
		}
	}
	if c.Proof == Lost {
		return lost, nil
	}
	return c, nil
}

func blank(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// byName judges a segment by the name in a header that is sound.
func (j *judge) byName(data []byte, name tarfile.EntryName) Segment {
	crc := crc32.ChecksumIEEE(data)
	switch {
	case !name.HasCRC:
		return j.believed(data, crc)
	case crc == name.CRC:
		return j.sort(data, j.segment(len(data), crc, Proven))
	}
	j.wrong(tarfile.BadChecksum, j.pos, int64(len(data)), "segment: checksum %08x, expected %08x", crc, name.CRC)
	return j.turned(data, name.CRC)
}

// byDamagedName judges one by what may be the digits of its checksum.
func (j *judge) byDamagedName(data, digits []byte) Segment {
	crc := crc32.ChecksumIEEE(data)
	fit := 0
	for i, c := range fmt.Appendf(nil, "%08x", crc) {
		if digits[i] == c {
			fit++
		}
	}
	j.wrong(tarfile.BadHeader, j.pos-tarfile.BlockSize, tarfile.BlockSize, "header: damaged")
	if fit >= crcFit {
		return j.sort(data, j.segment(len(data), crc, Proven))
	}
	if claim, err := strconv.ParseUint(string(digits), 16, 32); err == nil {
		// The digits are all there, so it is the segment that is damaged.
		j.wrong(tarfile.BadChecksum, j.pos, int64(len(data)), "segment: checksum %08x, expected %08x", crc, claim)
		return j.turned(data, uint32(claim))
	}
	return j.believed(data, crc)
}

func (j *judge) turned(data []byte, crc uint32) Segment {
	off, mask, ok := tarfile.FindFlip(data, crc)
	if !ok {
		return j.segment(len(data), 0, Lost)
	}
	data[off] ^= mask
	c := j.segment(len(data), crc, Mended)
	c.bit, c.mask = int32(off), mask
	if j.parses(data) {
		return j.sort(data, c)
	}
	return j.segment(len(data), 0, Lost)
}

// believed is for a segment whose checksum nobody knows: it has at least to look
// like one and to have an id as Oak makes them, and to be of the generation that the index says.
func (j *judge) believed(data []byte, crc uint32) Segment {
	h, ok := segment.ParseHead(data)
	switch {
	case !j.parses(data),
		!j.id.IsData() && !j.id.IsBulk(),
		j.id.IsData() && (!ok || h.Generation.Gen < 0 || j.gen != nil && h.Generation.Gen != j.gen.Gen):
		return j.segment(len(data), 0, Lost)
	}
	return j.segment(len(data), crc, Doubtful)
}

func (j *judge) parses(data []byte) bool {
	_, err := segment.Parse(j.id, data)
	return err == nil
}

// sort tells data segments that can be in a tar from those that nobody can read.
func (j *judge) sort(data []byte, c Segment) Segment {
	if h, ok := segment.ParseHead(data); j.id.IsData() && (!ok || h.Generation.Gen < 0) {
		j.wrong(tarfile.BadSegment, j.pos, int64(len(data)), "segment: begins with %x, expected the header of a data segment", data[:min(len(data), 4)])
		c.Proof, c.intact = Foreign, false
	}
	return c
}
