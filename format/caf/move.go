package caf

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/bits"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/finder"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/blake3"
)

// move finds the files whose digests do not match at their place, anywhere in the data, and changes
// their rows. It reports whether it changed any.
func (m *repairer) move() (changed bool, err error) {
	t := m.t
	if len(t.digests) == 0 || t.ends == ambiguous {
		return false, nil
	}
	var all []int // rows with a digest, in the order of the index
	f := finder.Finder{End: t.dataLen, Read: m.fetch}
	f.Is = func(k int, b []byte) bool { return sum256(b) == t.digest(all[k]) }
	f.Right = func(k int, off int64) (bool, error) {
		return m.right(span{off, off + f.Contents[k].Len}, t.digest(all[k]))
	}
	for i, r := range t.rows {
		if t.digest(i) == "" || r.end <= r.start || r.start < 0 || r.odd&unreadable != 0 {
			continue
		}
		all = append(all, i)
		f.Contents = append(f.Contents, finder.Content{Start: r.start, Len: r.end - r.start})
	}
	if err := f.Find(m.ctx, t.dataLen-t.lastEnd()); err != nil {
		return false, err
	}
	m.searched += f.Hashed
	if m.tired = m.tired || f.Tired; m.tired {
		m.p.Notes = append(m.p.Notes, "the search for displaced files was stopped: it would have read the archive many times")
	}
	moved, mended := int64(0), false
	for k, i := range all {
		if f.At[k] == finder.Nowhere && m.t.top.unproven {
			ok, err := m.mendDigest(i)
			if err != nil {
				return false, err
			}
			if ok {
				mended, f.At[k] = true, t.rows[i].start
			}
		}
		if by := f.At[k] - t.rows[i].start; f.At[k] != finder.Nowhere && by != 0 {
			moved++
			t.rows[i].start, t.rows[i].end = f.At[k], t.rows[i].end+by
		}
	}
	if moved == 0 {
		return mended, nil
	}
	m.p.Notes = append(m.p.Notes, fmt.Sprintf("%d files moved to offsets that their digests prove", moved))
	for k, i := range all {
		if f.At[k] == finder.Nowhere {
			start, end := f.Around(k)
			m.partOf(i, span{start, end})
		}
	}
	t.maxEnd = noEndYet
	for _, r := range t.rows {
		t.maxEnd = max(t.maxEnd, inData(r.span, r.odd, t.dataLen))
	}
	return true, nil
}

// partOf makes the row of a file that was not found that of what is left of it, under another name.
func (m *repairer) partOf(i int, left span) {
	r, name := &m.t.rows[i], format.Escape(m.t.Name(i))
	what := "nothing of it was found"
	if left.end > left.start {
		what = fmt.Sprintf("what is left of it is %s", m.aside(i))
	}
	m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: its %d bytes were found nowhere; %s", name, r.end-r.start, what))
	m.p.Partial = true
	if r.span = left; left.end <= left.start {
		r.odd |= noStart // cut leaves it out
	}
}

func sum256(b []byte) string {
	sum := blake3.Sum256(b)
	return string(sum[:])
}

// right reports whether the content at s has the digest.
func (m *repairer) right(s span, want string) (bool, error) {
	is, err := m.digestAt(s)
	return err == nil && is == want, err
}

// digestAt returns the digest of the content at s, or nothing if that is outside the archive or too
// much has been read.
func (m *repairer) digestAt(s span) (string, error) {
	if s.start < 0 || s.end > m.size {
		return "", nil
	}
	// Rows may overlap, so without a limit this could read the square of the archive's size.
	if n := s.end - s.start; n > m.budget {
		m.tired = true
		return "", nil
	}
	m.budget -= s.end - s.start
	h := blake3.New()
	r := kit.RangeReader{Ctx: m.ctx, Object: m.obj, Off: s.start, End: s.end}
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, &r, make([]byte, max(1, min(s.end-s.start, 1<<20))))
	return string(h.Sum(nil)), err
}

// mostWrongBits is how many bits of a stored digest may be wrong. The digest of another content
// differs from it in some 128 of 256.
const mostWrongBits = 8

// mendDigest replaces the stored digest of row i if that is damaged, but not the content: the row has the
// digest of the content but for a few bits, even if not as the member that it should be.
func (m *repairer) mendDigest(i int) (bool, error) {
	t := m.t
	is, err := m.digestAt(t.rows[i].span)
	if err != nil || is == "" {
		return false, err
	}
	if m.index == nil && m.size-m.end <= maxMendable {
		m.index = make([]byte, m.size-m.end)
		if err := m.fetch(m.index, m.end); err != nil {
			return false, err
		}
	}
	name := append(appendString(nil, t.Name(i)), ':')
	at := bytes.Index(m.index, name)
	if at < 0 || m.budget < int64(len(m.index)) {
		return false, nil
	}
	m.budget -= int64(len(m.index))
	row, text := m.index[at+len(name):], hex.AppendEncode(nil, []byte(is))
	row = row[:min(len(row), maxOwnRow)]
	for ; len(row) >= len(text); row = row[1:] {
		wrong := 0
		for k := 0; k < len(text) && wrong <= mostWrongBits; k++ {
			wrong += bits.OnesCount8(row[k] ^ text[k])
		}
		if wrong <= mostWrongBits {
			t.setDigest(i, is)
			t.rows[i].odd &^= badDigest
			if len(t.extra[uint32(i)]) == len(`"blake3":""`)+len(text) {
				delete(t.extra, uint32(i)) // it was the digest
			}
			m.p.Notes = append(m.p.Notes, fmt.Sprintf("%s: corrected wrong bits in its digest", format.Escape(t.Name(i))))
			return true, nil
		}
	}
	return false, nil
}

const (
	maxMendable = 64 << 20 // of an index
	maxOwnRow   = 200      // of what a row has behind its name, up to the end of the digest
)

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
