package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/disktest"
	"github.com/holdall/holdall/store/storetest"
)

// TestHistories lets a log live through kills, power cuts, full disks and disks that fail, and asks after each
// whether what was acknowledged is there and nothing else.
func TestHistories(t *testing.T) {
	testkit.Serial(t)
	seed := testkit.Seed(t)
	for n := range testkit.Rounds(t, 3000) {
		cryptotest.SetGlobalRandom(t, seed+uint64(n))
		rng := rand.New(rand.NewPCG(seed+uint64(n), 1))
		d := disktest.New(rng)
		d.Sparse = rng.IntN(2) == 0
		h := &history{t: t, rng: rng, d: d, room: []int64{1, 600, 3000, 20_000}[rng.IntN(4)]}
		if err := h.run(); err != nil {
			t.Fatalf("%s\n%s=%d: %v", strings.Join(h.lines, "\n"), testkit.SeedVar, seed+uint64(n), err)
		}
	}
}

// A version is a row that must be there.
type version struct {
	segment int64
	row     caf.LogRow
	content string
}

type history struct {
	t     testing.TB
	rng   *rand.Rand
	d     *disktest.Disk
	room  int64
	lines []string

	j        *Journal
	segments []*Segment // that have ended and are not removed
	there    []version
	flying   []version // of the Append that did not return, or failed: all or none of it may be there
	removing int64     // the segment whose removal did not return
	removed  int64     // the last segment that was removed
	sealed   map[int64]bool
	seq      int64 // the highest that was seen
	stopped  bool
}

func (h *history) say(line string, args ...any) {
	h.lines = append(h.lines, fmt.Sprintf(line, args...))
}

func (h *history) run() error {
	h.seq, h.sealed = -1, map[int64]bool{}
	for range 2 + h.rng.IntN(6) {
		if err := h.start(); err != nil {
			return err
		}
		h.harm()
		for range h.rng.IntN(12) * min(1, h.rng.IntN(5)) {
			if err := h.step(); err != nil {
				return err
			}
			if h.d.Calls == 0 {
				break
			}
		}
		cut := h.rng.IntN(2) == 0
		if h.rng.IntN(4) == 0 {
			h.say("close: %v", h.j.Close())
		}
		h.say("restart, power cut: %v", cut)
		h.d.Restart(cut)
		h.d.Room = 1 << 20
	}
	h.d.Room = 1 << 20
	return h.start()
}

// harm prepares something that will happen to the disk.
func (h *history) harm() {
	switch h.rng.IntN(6) {
	case 0:
		h.d.Calls = 1 + h.rng.IntN(40)
	case 1:
		h.d.BadSync = 1 + h.rng.IntN(12)
	case 2:
		h.d.BadIO = 1 + h.rng.IntN(12)
	case 3:
		h.d.Room = h.d.Used() + int64(h.rng.IntN(8000))
	}
	h.say("harm: dies in %d, bad sync in %d, bad write in %d, room %d", h.d.Calls, h.d.BadSync, h.d.BadIO, h.d.Room)
}

// start opens the log, however often that is interrupted, and compares what it has.
func (h *history) start() error {
	for try := range 9 {
		if try < 4 && h.rng.IntN(2) == 0 {
			h.d.Calls = 3 + h.rng.IntN(9)
		} else if try < 3 && h.rng.IntN(6) == 0 {
			h.d.BadSync = 1
		}
		if h.rng.IntN(3) == 0 {
			h.d.Room = h.d.Used() // a full disk does not matter
		}
		j, segments, err := open(h.t.Context(), "log", h.d, Options{Room: h.room, Text: "of a history"})
		h.d.Room = 1 << 20
		if err == nil && h.d.Calls != 0 {
			h.j, h.segments, h.stopped = j, segments, false
			return h.compare()
		}
		if _, damaged := errors.AsType[*format.CorruptError](err); damaged || errors.Is(err, ErrFull) {
			return err
		}
		h.say("open: %v", err)
		h.d.Restart(h.rng.IntN(2) == 0)
	}
	return errors.New("it never opens")
}

// compare compares what the segments have with what they must have.
func (h *history) compare() error {
	var got []version
	first := int64(1 << 62)
	for _, s := range h.segments {
		first = min(first, s.Log().Number)
		n := 0
		for r, err := range s.Rows(h.t.Context()) {
			if err != nil {
				return err
			}
			content := make([]byte, r.Size)
			if !r.Here() {
				content = nil
			} else if _, err := s.ReadAt(content, r.Off); err != nil {
				return err
			}
			if r.Here() && blake3.Sum256(content) != r.Sum {
				return fmt.Errorf("the content of %s is not whole", r.Name)
			}
			got = append(got, version{s.Log().Number, *r, string(content)})
			n++
		}
		if n == 0 {
			return errors.New("a segment without rows is given out")
		}
		if s.Log().Number <= h.removed {
			return fmt.Errorf("segment %d is back", s.Log().Number)
		}
		if h.sealed[s.Log().Number] != (s.Sealed() > 0) && h.sealed[s.Log().Number] {
			return fmt.Errorf("segment %d is not sealed any more", s.Log().Number)
		}
	}
	h.say("opened: %d rows in %d segments", len(got), len(h.segments))
	if h.removing > 0 {
		if first > h.removing { // it happened
			h.there = slices.DeleteFunc(h.there, func(v version) bool { return v.segment == h.removing })
			h.removed = h.removing
		}
		h.removing = 0
	}
	if len(got) == len(h.there)+len(h.flying) {
		h.there = append(h.there, h.flying...)
	}
	h.flying = nil
	if len(got) != len(h.there) {
		return fmt.Errorf("%d rows, expected %d", len(got), len(h.there))
	}
	for i, v := range h.there {
		if g := got[i]; g.row != v.row || g.content != v.content || g.segment != v.segment {
			return fmt.Errorf("row %d is %+v, expected %+v", i, g.row, v.row)
		}
		h.seq = max(h.seq, v.row.Seq)
	}
	return nil
}

func (h *history) step() error {
	switch h.rng.IntN(12) {
	case 0:
		return h.roll()
	case 1, 2:
		return h.seal()
	case 3, 4:
		return h.remove()
	default:
		return h.append()
	}
}

func (h *history) append() error {
	var batch []*Record
	for range 1 + h.rng.IntN(4) {
		r := record(fmt.Sprint("name ", h.rng.IntN(20)), "")
		switch h.rng.IntN(6) {
		case 0:
			r.Deleted = true
		case 1: // the log itself
			for _, name := range []string{nameOf(int64(1 + h.rng.IntN(5)))} {
				if n := h.d.Names[name]; n != nil {
					r.Content = slices.Clone(n.View[:min(len(n.View), 5000)])
				}
			}
		case 2:
			r.Content = make([]byte, h.rng.IntN(3000)) // zeros
		default:
			r.Content = bytes.Repeat([]byte{byte(1 + h.rng.IntN(255))}, h.rng.IntN(1500))
		}
		batch = append(batch, r)
	}
	err := h.j.Append(batch)
	h.say("append %d: %v", len(batch), err)
	var all []version
	for _, r := range batch {
		v := version{row: r.LogRow, content: string(r.Content)}
		if h.j.current != nil {
			v.segment = h.j.current.Log().Number
		}
		all = append(all, v)
	}
	switch {
	case h.stopped && err == nil:
		return errors.New("it goes on after the disk has failed")
	case err == nil && h.d.Calls != 0:
		for _, v := range all {
			if v.row.Seq <= h.seq {
				return fmt.Errorf("sequence number %d after %d", v.row.Seq, h.seq)
			}
			h.seq = v.row.Seq
		}
		h.there = append(h.there, all...)
	case errors.Is(err, ErrFull):
	case !errors.Is(err, ErrStopped) && h.d.Calls != 0:
		return errors.New("the disk has failed, and the log goes on")
	case !h.stopped:
		h.flying, h.stopped = all, errors.Is(err, ErrStopped)
	}
	if h.d.Room < 1<<20 && h.d.Calls != 0 && !h.stopped && h.rng.IntN(3) == 0 {
		h.d.Room = 1 << 20 // somebody has made room
		if err := h.j.Append([]*Record{deletion("x")}); err != nil && !errors.Is(err, ErrStopped) && h.d.Calls != 0 {
			return fmt.Errorf("append after the disk was full: %w", err)
		} else if h.stopped = errors.Is(err, ErrStopped); err == nil && h.d.Calls != 0 {
			v := version{segment: h.j.current.Log().Number, row: caf.LogRow{Name: "x", Deleted: true, Seq: h.seq + 1}}
			h.there, h.seq = append(h.there, v), h.seq+1
		} else {
			h.flying = []version{{segment: h.j.number, row: caf.LogRow{Name: "x", Deleted: true, Seq: h.seq + 1}}}
		}
	}
	return nil
}

func (h *history) roll() error {
	s, err := h.j.Roll()
	if s != nil {
		h.segments = append(h.segments, s)
	}
	if h.stopped && err == nil {
		return errors.New("it goes on after the disk has failed")
	}
	h.stopped = h.stopped || errors.Is(err, ErrStopped)
	h.say("roll: %v", err)
	return nil
}

func (h *history) seal() error {
	if len(h.segments) == 0 {
		return nil
	}
	s := h.segments[h.rng.IntN(len(h.segments))]
	size, err := s.Seal(h.t.Context())
	h.say("seal %d: %v", s.Log().Number, err)
	if err != nil || h.d.Calls == 0 {
		return nil
	}
	if h.sealed[s.Log().Number] = true; h.rng.IntN(4) > 0 {
		return nil
	}
	b := make([]byte, size)
	if _, err := s.ReadAt(b, 0); err != nil {
		return err
	}
	st := &storetest.Mem{}
	st.Put("x", b)
	wrong := ""
	err = caf.Format.Verify(h.t.Context(), st, "x", format.OpenOptions{}, func(p format.Problem) { wrong += fmt.Sprintf("%+v\n", p) })
	if err != nil || wrong != "" {
		return fmt.Errorf("verify: %s%w", wrong, err)
	}
	return nil
}

func (h *history) remove() error {
	if len(h.segments) == 0 || h.segments[0].Sealed() == 0 || h.stopped {
		return nil
	}
	s := h.segments[0]
	h.removing = s.Log().Number
	switch h.rng.IntN(8) {
	case 0:
		h.d.Calls = 1 + h.rng.IntN(3)
	case 1:
		h.d.BadSync = 1
	}
	err := s.Remove()
	h.say("remove %d: %v", h.removing, err)
	h.stopped = h.stopped || errors.Is(err, ErrStopped)
	if !s.Hold() {
		h.segments = h.segments[1:]
	} else {
		s.Release()
	}
	if err != nil || h.d.Calls == 0 {
		return nil
	}
	h.there = slices.DeleteFunc(h.there, func(v version) bool { return v.segment == h.removing })
	h.removed, h.removing = h.removing, 0
	return nil
}
