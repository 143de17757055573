package rescue

import (
	"context"
	"errors"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// turnEffort is how many times the bytes of a file are looked at, at most, in the
// search for turned bits, and turnStart how many bytes more: headers can claim the
// same bytes again and again.
const (
	turnEffort = 4
	turnStart  = 64 << 20
)

// A scanner offers what a scan of a letter without an index finds.
type scanner struct {
	*survey
	ctx    context.Context
	from   int
	last   int64 // where the latest problem was
	effort int64
	err    error // of the store, while a problem was looked at
}

func (s *survey) scan(ctx context.Context, i int) error {
	c := &scanner{survey: s, ctx: ctx, from: i, last: -1, effort: turnEffort*s.sizes[i] + turnStart}
	from := s.plan.Sources[i]
	for f, err := range tarfile.Scan(ctx, from.Object, s.sizes[i], c.problem) {
		if err := errors.Join(err, c.err); err != nil {
			return err
		}
		j := judge{survey: s, from: i, id: f.ID, pos: f.DataPos}
		s.offer(c.judge(j, f))
	}
	return c.err
}

// judge goes by what the scan doubts. An id that an index has, is no damaged one, and
// what has its checksum is the segment wherever it was.
func (c *scanner) judge(j judge, f tarfile.Found) Segment {
	x := j.segment(f.Len, f.CRC, Proven)
	switch {
	case !f.HasCRC:
		return j.believed(f.Data, f.CRC)
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

// problem keeps a place for each segment that damage names: there may be a copy of it.
func (c *scanner) problem(p tarfile.Problem) {
	c.survey.problem(c.from, p)
	c.last = p.Off
	switch {
	case c.err != nil:
	case !p.HasSegment:
		if c.closed {
			return // in this letter only copies are looked for
		}
		if p.Class == tarfile.Gap {
			c.plan.Counts.BlankBytes += p.Len
		} else {
			c.plan.Counts.UnknownBytes += p.Len
		}
	case p.Class == tarfile.BadChecksum:
		c.err = c.wrong(p)
	default:
		n := min(max(0, p.Len-tarfile.BlockSize), tarfile.MaxSegment)
		if !c.closed {
			c.plan.Counts.UnknownBytes += max(0, p.Len-tarfile.BlockSize-n) // more than one was lost
		}
		c.offer(Segment{ID: p.Segment, From: int32(c.from), Pos: p.Off + tarfile.BlockSize, Len: int32(n)})
	}
}

// wrong looks at a segment again whose checksum is wrong: one bit may be.
func (c *scanner) wrong(p tarfile.Problem) error {
	j := judge{survey: c.survey, from: c.from, id: p.Segment, pos: p.Off + tarfile.BlockSize}
	b, ok, err := c.read(c.ctx, c.from, p.Off, tarfile.BlockSize)
	if err != nil || !ok {
		return err
	}
	h, err := tarfile.ParseHeader(b)
	name, named := tarfile.ParseEntryName(h.Name)
	if err != nil || !named || name.ID != p.Segment || !name.HasCRC || h.Size < 1 || h.Size > tarfile.MaxSegment {
		return nil // the file has changed
	}
	x := j.segment(int(h.Size), 0, Lost)
	if c.effort -= h.Size; c.effort >= 0 {
		b, ok, err := c.read(c.ctx, c.from, j.pos, h.Size)
		if err != nil {
			return err
		}
		if ok {
			x = j.turned(b, name.CRC)
		}
	}
	c.offer(x)
	return nil
}
