package rescue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// crowd limits the total length of the entries of an index, in multiples of the length of its
// file. Correct entries do not overlap. Without a limit, a small file could make a survey read
// for hours.
const crowd = 2

// Survey reads all files of one number: its letters, in ascending order. It reads each byte once
// or twice, and keeps some 100 bytes for each segment in memory. It reports damage, and returns
// an error only if a store fails.
func Survey(ctx context.Context, letters []Source, copies Copies, report func(Event)) (*Plan, error) {
	s := &survey{
		plan:   &Plan{Base: -1, Sources: slices.Clone(letters), Letters: len(letters), copies: copies, at: map[tarfile.ID]int32{}},
		report: report,
		tars:   make([]*tarfile.Tar, len(letters)),
		sizes:  make([]int64, len(letters)),
	}
	return s.plan, s.run(ctx)
}

type survey struct {
	plan   *Plan
	report func(Event)
	tars   []*tarfile.Tar // nil if the index is not intact
	sizes  []int64
	buf    []byte

	closed bool // the tar's segments are known: only copies are searched
	sound  bool // the base is intact except for its segments
}

func (s *survey) run(ctx context.Context) error {
	p := s.plan
	for i := range p.Letters {
		if err := s.open(ctx, i); err != nil {
			return err
		}
		if s.tars[i] != nil {
			p.Base = i
		}
	}
	if base := p.Base; base >= 0 {
		// Everything except segments is rewritten.
		s.sound = true
		if _, err := s.tars[base].CheckLayout(ctx, func(x tarfile.Problem) {
			s.sound = s.sound && x.Class == tarfile.Gap
			s.problem(base, x)
		}); err != nil {
			return err
		}
		if err := s.indexed(ctx, base); err != nil {
			return err
		}
		s.closed = true
	}
	for i := range p.Letters {
		if s.closed && (i == p.Base || !slices.ContainsFunc(p.Segments, Segment.wanting)) {
			continue
		}
		visit := s.scan
		if s.tars[i] != nil {
			visit = s.indexed
		}
		if err := visit(ctx, i); err != nil {
			return err
		}
	}
	if err := s.elsewhere(ctx); err != nil {
		return err
	}
	s.conclude()
	return nil
}

func (s *survey) open(ctx context.Context, i int) error {
	from := s.plan.Sources[i]
	info, err := from.Object.Info(ctx)
	if err != nil {
		return err
	}
	s.sizes[i] = info.Size
	t, err := tarfile.Open(ctx, from.Object, from.Name, tarfile.Options{})
	if none, ok := errors.AsType[*tarfile.NoIndex](err); ok {
		s.damage(i, tarfile.BadIndex, none.Offset, 0, "%s", none.What)
		return nil
	}
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range t.Index().All() {
		total += tarfile.BlockSize + min(int64(e.Len), tarfile.MaxSegment)
	}
	if total > crowd*info.Size {
		s.damage(i, tarfile.BadIndex, 0, info.Size, "index: segments of %d bytes in total, expected at most the size of the file", total)
		return nil
	}
	s.tars[i] = t
	return nil
}

func (s *survey) damage(i int, c tarfile.Class, off, n int64, format string, a ...any) {
	s.problem(i, tarfile.Problem{Class: c, Off: off, Len: n, What: fmt.Sprintf(format, a...)})
}

func (s *survey) problem(i int, p tarfile.Problem) {
	s.report(Event{Damage, s.plan.Sources[i].Name, p})
}

func (s *survey) indexed(ctx context.Context, i int) error {
	x := s.tars[i].Index()
	for _, k := range x.ByPosition() {
		e := x.At(int(k))
		if known, ok := s.plan.at[e.ID]; s.closed && !(ok && s.plan.Segments[known].wanting()) {
			continue
		}
		j := judge{survey: s, from: i, id: e.ID, pos: e.Pos, gen: &e.Generation}
		c, err := j.entry(ctx, e.Len)
		if err != nil {
			return err
		}
		s.offer(c)
	}
	return nil
}

// wanting reports whether a better copy of a segment would be of use.
func (s Segment) wanting() bool { return s.Proof < Stray }

// offer adds a copy of a segment. The first copy goes to the next place. A better one replaces an
// earlier one in its place. If two proven copies differ, which has never been seen, the later one
// counts, as in Oak.
func (s *survey) offer(c Segment) {
	p := s.plan
	k, ok := p.at[c.ID]
	if !ok {
		if !s.closed {
			p.at[c.ID] = int32(len(p.Segments))
			p.Segments = append(p.Segments, c)
		}
		return
	}
	old := &p.Segments[k]
	differs := c.CRC != old.CRC || c.Len != old.Len
	if c.Proof > old.Proof || c.Proof == Proven && differs && !s.closed {
		c.again = c.Proof > old.Proof
		*old = c
	}
}

// elsewhere searches the tars of other numbers for copies of segments that may be damaged.
func (s *survey) elsewhere(ctx context.Context) error {
	p := s.plan
	if p.copies == nil {
		return nil
	}
	for k := range p.Segments {
		if !p.Segments[k].wanting() {
			continue
		}
		for place, err := range p.copies(ctx, p.Segments[k].ID) {
			if err != nil {
				return err
			}
			known := len(p.Sources)
			i := slices.IndexFunc(p.Sources, func(s Source) bool { return s.Name == place.Name })
			if i < 0 {
				i = known
				p.Sources = append(p.Sources, place.Source)
			}
			j := judge{survey: s, from: i, id: p.Segments[k].ID, pos: place.Pos}
			c, err := j.entry(ctx, place.Len)
			if err != nil {
				return err
			}
			if c.Proof != Proven {
				p.Sources = p.Sources[:known]
				continue
			}
			c.again = true
			p.Segments[k] = c
			break
		}
	}
	return nil
}

// conclude counts segments, reports what happened to each, and removes lost ones.
func (s *survey) conclude() {
	p := s.plan
	for _, c := range p.Segments {
		s.tell(c)
		p.Counts.Proof[c.Proof]++
		if c.again {
			p.Counts.Replaced++
		}
		if c.Proof <= Foreign {
			p.Counts.LostBytes += int64(c.Len)
		} else {
			p.Counts.Bytes += int64(c.Len)
		}
	}
	p.Segments = slices.DeleteFunc(p.Segments, func(c Segment) bool { return c.Proof <= Foreign })
	clear(p.at)
	for k, c := range p.Segments {
		p.at[c.ID] = int32(k)
	}
	kept := p.keep()
	changed := func(c Segment) bool { return int(c.From) != p.Base || !c.intact }
	untouched := p.Base >= 0 && s.sound && !slices.ContainsFunc(p.Segments, changed)
	p.Gain = len(p.Segments) > 0 && !untouched
	lost := p.Counts.Proof[Lost] + p.Counts.Proof[Foreign]
	switch {
	case len(p.Segments) == 0:
		p.Action = Leave
	case untouched && lost == 0:
		p.Action = Nothing
	case kept == len(p.Segments):
		p.Action = Tail
	default:
		p.Action = Rewrite
	}
}

// keep finds how many bytes and segments the tar shares with the beginning of one source.
func (p *Plan) keep() int {
	for k, c := range p.Segments {
		if k == 0 {
			p.KeepOf = int(c.From)
		}
		if !c.intact || int(c.From) != p.KeepOf || c.Pos != p.Keep+tarfile.BlockSize {
			return k
		}
		p.Keep = c.Pos + padded(c.Len)
	}
	return len(p.Segments)
}

// tell reports what happened to a segment, unless it is intact.
func (s *survey) tell(c Segment) {
	e := Event{Object: s.plan.Sources[c.From].Name, Problem: tarfile.Problem{Off: c.Pos, Len: int64(c.Len), Segment: c.ID, HasSegment: true}}
	switch {
	case c.Proof == Lost:
		e.Kind, e.What = SegmentLost, fmt.Sprintf("%d bytes; no intact copy found", c.Len)
	case c.Proof == Foreign:
		e.Kind, e.What = LeftOut, "intact, but not a data segment of a known version"
	case c.Proof == Kept:
		e.Kind, e.What = StaysDamaged, "kept unchanged: Oak can read the rest of it"
	case c.Proof == Doubtful:
		e.Kind, e.What = InDoubt, "kept, but could not be verified"
	case c.Proof == Stray:
		e.Kind, e.What = InDoubt, "intact, but after a lost header: it may be part of a binary"
	case c.Proof == Repaired:
		e.Kind, e.What = BitTurned, fmt.Sprintf("the checksum matches with one bit flipped, %#02x of the byte at %d", c.mask, c.Pos+int64(c.bit))
	case c.again:
		e.Kind, e.What = OtherCopy, "copied from here"
	default:
		return
	}
	s.report(e)
}

// read reads n bytes at off into the survey's buffer. ok is false if they do not exist.
func (s *survey) read(ctx context.Context, i int, off, n int64) (b []byte, ok bool, err error) {
	if off < 0 {
		return nil, false, nil
	}
	s.buf = slices.Grow(s.buf[:0], int(n))[:n]
	err = s.plan.Sources[i].Object.ReadAt(ctx, s.buf, off)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, nil
	}
	return s.buf, err == nil, err
}
