package caf

import (
	"context"
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

// Files can be stored after the place in their rows. Either something was inserted before the
// archive, or a writer lost count when a source failed, and all later offsets lack what had been
// written of it. The distance is at most the size of the data at the end that belongs to no file.
// Only digests can show it.

// move finds files whose digests do not match at their place but match further back, and changes
// their rows. It reports whether it changed any.
func (m *repairer) move() (bool, error) {
	t := m.t
	slack := t.dataLen - t.maxEnd
	if slack <= 0 || len(t.digests) == 0 || t.maxEnd < 0 {
		return false, nil
	}
	moved := false
	by := int64(0) // of the file before: after a writer loses count, the distance stays
	for i := range t.rows {
		r := &t.rows[i]
		want := t.digest(i)
		if want == "" || r.end == r.start || t.rowFault(*r) != nil {
			continue
		}
		d, ok, err := m.locate(r.span, want, by, slack)
		if err != nil {
			return false, err
		}
		if !ok {
			m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: content not found at byte %d or in the %d bytes after it", format.Escape(t.Name(i)), r.start, slack))
			m.p.Partial = true
			continue
		}
		if d != 0 {
			r.start, r.end = r.start+d, r.end+d
			moved = true
		}
		by = d
	}
	if m.tired {
		m.p.Notes = append(m.p.Notes, "the search for displaced files was stopped: it would have read the archive many times")
	}
	if moved {
		m.p.Notes = append(m.p.Notes, fmt.Sprintf("files moved by up to %d bytes, to offsets that their digests prove", by))
		t.maxEnd += by
	}
	return moved, nil
}

// maxSearch limits the bytes that are hashed to find files.
const maxSearch = 256 << 20

// locate returns the distance between a file and its row, which is at least from and at most
// slack.
func (m *repairer) locate(s span, want string, from, slack int64) (by int64, ok bool, _ error) {
	for _, d := range []int64{from, slack} {
		ok, err := m.right(span{s.start + d, s.end + d}, want)
		if err != nil || ok {
			return d, ok, err
		}
	}
	n := s.end - s.start
	tries := slack - from
	if n > 16<<20 || tries > (maxSearch-m.searched)/n {
		return 0, false, nil
	}
	m.searched += tries * n
	window := make([]byte, n+tries)
	if err := m.fetch(window, s.start+from); err != nil {
		return 0, false, err
	}
	for d := range tries {
		if sum := blake3.Sum256(window[d : d+n]); string(sum[:]) == want {
			return from + d, true, nil
		}
		if d&0xff == 0 && m.ctx.Err() != nil {
			return 0, false, context.Cause(m.ctx)
		}
	}
	return 0, false, nil
}

// right reports whether the content at s has the digest.
func (m *repairer) right(s span, want string) (bool, error) {
	if s.start < 0 || s.end > m.size {
		return false, nil
	}
	// Rows may overlap, so without a limit this could read the square of the archive's size.
	if n := s.end - s.start; n > m.budget {
		m.tired = true
		return false, nil
	}
	m.budget -= s.end - s.start
	h := blake3.New()
	r := kit.RangeReader{Ctx: m.ctx, Object: m.obj, Off: s.start, End: s.end}
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, &r, make([]byte, max(1, min(s.end-s.start, 1<<20))))
	return string(h.Sum(nil)) == want, err
}

// allRight reports whether the digests of all files match after a move by the same number of
// bytes.
func (m *repairer) allRight(t *table, by int64) (bool, error) {
	for i, r := range t.rows {
		want := t.digest(i)
		if want == "" || t.rowFault(r) != nil {
			return false, nil
		}
		ok, err := m.right(span{r.start + by, r.end + by}, want)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}
