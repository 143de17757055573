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

// crcAt is where the name in a header has the 8 digits of the checksum.
const crcAt = 37

type judge struct {
	*survey
	from int
	id   tarfile.ID
	pos  int64
	gen  *tarfile.Generation // from the index, if it is known
}

func (j *judge) wrong(c tarfile.Class, off, n int64, format string, a ...any) {
	j.problem(j.from, tarfile.Problem{Class: c, Off: off, Len: n, Segment: j.id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}

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
		n = 0 // of the header only
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
		j.wrong(tarfile.BadHeader, off, tarfile.BlockSize, "header: of segment %s, expected %s", name.ID, j.id)
		return lost, nil
	}
	var c Segment
	if n > 0 {
		data, rest := b[tarfile.BlockSize:][:n], b[tarfile.BlockSize+n:]
		if sound {
			c = j.byName(data, name)
		} else {
			c = j.byDamagedName(data, b[:tarfile.BlockSize])
		}
		if !blank(rest) {
			j.wrong(tarfile.BadPadding, j.pos+int64(n), int64(len(rest)), "segment: expected zeros after it")
		}
		c.intact = (c.Proof == Kept || sound && (c.Proof == Proven || c.Proof == Doubtful) && h.Size == int64(n)) && blank(rest)
	}
	if c.Proof <= Kept && sound && h.Size != int64(n) && h.Size >= 1 && h.Size <= tarfile.MaxSegment {
		j.wrong(tarfile.BadHeader, off, tarfile.BlockSize, "header: %d bytes, expected %d as in the index", h.Size, n)
		b, ok, err := j.read(ctx, j.from, j.pos, h.Size)
		if err != nil {
			return lost, err
		}
		if ok {
			if longer := j.byName(b, name); longer.Proof > Kept {
				c = longer
			}
		}
	}
	if c.Proof == Lost {
		return lost, nil
	}
	return c, nil
}

func blank(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// byName rates a segment by the name in an intact header.
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

// byDamagedName rates a segment by what may be the digits of its checksum.
func (j *judge) byDamagedName(data, header []byte) Segment {
	crc := crc32.ChecksumIEEE(data)
	j.wrong(tarfile.BadHeader, j.pos-tarfile.BlockSize, tarfile.BlockSize, "header: damaged")
	if tarfile.Compare(j.id, header, data) == "" {
		return j.sort(data, j.segment(len(data), crc, Proven))
	}
	if claim, err := strconv.ParseUint(string(header[crcAt:][:8]), 16, 32); err == nil {
		// All digits are there, so the damage is in the segment.
		j.wrong(tarfile.BadChecksum, j.pos, int64(len(data)), "segment: checksum %08x, expected %08x", crc, claim)
		return j.turned(data, uint32(claim))
	}
	return j.damaged(data) // nothing shows what was written
}

func (j *judge) turned(data []byte, crc uint32) Segment {
	off, mask, ok := tarfile.WrongBit(j.id, data, crc)
	if !ok {
		return j.damaged(data)
	}
	data[off] ^= mask
	return j.sort(data, j.segment(len(data), crc, Repaired).turned(off, mask))
}

func (c Segment) turned(off int, mask byte) Segment {
	c.bit, c.mask = int32(off), mask
	return c
}

// damaged rates a segment that differs from what was written. Oak reads it nevertheless if an
// index names it. It is kept if anything in it can be read.
func (j *judge) damaged(data []byte) Segment {
	if j.gen != nil && j.parses(data) {
		return j.segment(len(data), crc32.ChecksumIEEE(data), Kept)
	}
	return j.segment(len(data), 0, Lost)
}

// believed rates a segment that never had a checksum, or whose ID may be damaged. It must look like
// a segment, have an ID as Oak makes them, and have the generation from the index.
func (j *judge) believed(data []byte, crc uint32) Segment {
	h, ok := segment.ParseHead(data)
	switch {
	case !j.parses(data),
		!j.id.IsData() && !j.id.IsBulk(),
		j.id.IsData() && (!ok || h.Generation.Gen < 0 || j.gen != nil && h.Generation.Gen != j.gen.Gen):
		return j.damaged(data)
	}
	return j.segment(len(data), crc, Doubtful)
}

func (j *judge) parses(data []byte) bool {
	_, err := segment.Parse(j.id, data)
	return err == nil
}

// sort separates data segments that can be in a tar from unreadable ones.
func (j *judge) sort(data []byte, c Segment) Segment {
	if h, ok := segment.ParseHead(data); j.id.IsData() && (!ok || h.Generation.Gen < 0) {
		j.wrong(tarfile.BadSegment, j.pos, int64(len(data)), "segment: begins with %x, expected the header of a data segment", data[:min(len(data), 4)])
		c.Proof, c.intact = Foreign, false
	}
	return c
}

// A scanner provides what a scan of a letter without an index finds.
type scanner struct {
	*survey
	from int
	last int64 // where the latest problem was
}

func (s *survey) scan(ctx context.Context, i int) error {
	c := &scanner{survey: s, from: i, last: -1}
	from := s.plan.Sources[i]
	for f, err := range tarfile.Scan(ctx, from.Object, s.sizes[i], c.problem) {
		if err != nil {
			return err
		}
		j := judge{survey: s, from: i, id: f.ID, pos: f.DataPos}
		s.offer(c.judge(j, f))
	}
	return nil
}

// judge rates a segment by the doubts of the scan. An ID that is in an index is not damaged, and
// a segment with the right checksum is that segment, wherever it was.
func (c *scanner) judge(j judge, f tarfile.Found) Segment {
	x := j.segment(f.Len, f.CRC, Proven)
	switch {
	case !f.HasCRC:
		return j.believed(f.Data, f.CRC)
	case f.Mask != 0:
		x.Proof = Repaired
		x = x.turned(f.Bit, f.Mask)
	case c.closed:
	case f.Doubt&tarfile.DoubtID != 0:
		return j.believed(f.Data, f.CRC)
	case f.Doubt != 0:
		x.Proof = Stray
	default:
		x.intact = c.last < f.HeaderPos
	}
	return j.sort(f.Data, x)
}

// problem keeps a place for each segment that damage names, because there may be a copy of it.
func (c *scanner) problem(p tarfile.Problem) {
	c.survey.problem(c.from, p)
	c.last = p.Off
	switch {
	case p.Healed:
	case !p.HasSegment:
		if c.closed {
			return // this letter is only searched for copies
		}
		if p.Class == tarfile.Gap {
			c.plan.Counts.BlankBytes += p.Len
		} else {
			c.plan.Counts.UnknownBytes += p.Len
		}
	default:
		n := min(max(0, p.Len-tarfile.BlockSize), tarfile.MaxSegment)
		if !c.closed {
			c.plan.Counts.UnknownBytes += max(0, p.Len-tarfile.BlockSize-n) // bytes of further lost segments
		}
		c.offer(Segment{ID: p.Segment, From: int32(c.from), Pos: p.Off + tarfile.BlockSize, Len: int32(n)})
	}
}
