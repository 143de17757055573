package caf

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

// Files can be stored elsewhere than their rows say. Bytes were inserted before them or deleted, parts
// of the archive were exchanged, or a writer lost count when a source failed, and all later offsets
// lack what had been written of it. Only digests can show where a file is.

// move finds the files whose digests do not match at their place, anywhere in the data, and changes
// their rows. It reports whether it changed any.
func (m *repairer) move() (changed bool, err error) {
	t := m.t
	if len(t.digests) == 0 || t.ends == ambiguous {
		return false, nil
	}
	f := finder{m: m, at: make([]int64, len(t.rows)), shifts: []int64{0}}
	var lost []int
	for i, r := range t.rows {
		f.at[i] = nowhere
		if t.digest(i) == "" || r.end <= r.start || r.start < 0 || r.odd&unreadable != 0 {
			continue
		}
		f.all = append(f.all, i)
		if ok, err := f.try(i, t.dataLen-t.lastEnd()); err != nil {
			return false, err
		} else if !ok {
			lost = append(lost, i)
		}
	}
	if lost, err = f.search(lost); err != nil {
		return false, err
	}
	if m.tired {
		m.p.Notes = append(m.p.Notes, "the search for displaced files was stopped: it would have read the archive many times")
	}
	moved := int64(0)
	for _, i := range f.all {
		if by := f.at[i] - t.rows[i].start; f.at[i] != nowhere && by != 0 {
			moved++
			t.rows[i].start, t.rows[i].end = f.at[i], t.rows[i].end+by
		}
	}
	if moved == 0 {
		return false, nil
	}
	m.p.Notes = append(m.p.Notes, fmt.Sprintf("%d files moved to offsets that their digests prove", moved))
	for _, i := range lost {
		m.partOf(i, f.around(i))
	}
	t.maxEnd = noEndYet
	for _, r := range t.rows {
		t.maxEnd = max(t.maxEnd, inData(r.span, r.odd, t.dataLen))
	}
	return true, nil
}

// partOf makes the row of a file that was not found that of what is left of it, under another name.
func (m *repairer) partOf(i int, left span) {
	r := &m.t.rows[i]
	what := "nothing of it was found"
	if left.end > left.start {
		what = fmt.Sprintf("what is left of it is %s", m.aside(i))
	}
	m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: its %d bytes were found nowhere; %s", format.Escape(m.t.Name(i)), r.end-r.start, what))
	m.p.Partial = true
	if r.span = left; left.end <= left.start {
		r.odd |= noStart // cut leaves it out
	}
}

// nowhere is the place of a file that was not found.
const nowhere = -1

// finder finds files by their digests.
type finder struct {
	m      *repairer
	all    []int   // rows with a digest, in the order of the index
	at     []int64 // where the content of each row begins
	shifts []int64 // distances from rows to where files were found, the latest first
}

// try looks for a file where it would be if it had moved as others have, or by a distance.
func (f *finder) try(i int, by int64) (bool, error) {
	s := f.m.t.rows[i].span
	for _, d := range append(f.shifts[:len(f.shifts):len(f.shifts)], by) {
		ok, err := f.m.right(span{s.start + d, s.end + d}, f.m.t.digest(i))
		if err != nil {
			return false, err
		}
		if ok {
			f.at[i] = s.start + d
			f.shifts = slices.DeleteFunc(f.shifts, func(old int64) bool { return old == d })
			f.shifts = append([]int64{d}, f.shifts[:min(len(f.shifts), mostShifts)]...)
			return true, nil
		}
	}
	return false, nil
}

const (
	mostShifts = 15
	maxSearch  = 256 << 20 // bytes that are hashed to find files
)

// search looks for files in all data where no file was found. Short files are the first, because
// looking for them is quick and shows how far others have moved. It returns those that it did not
// find, in the order of the index.
func (f *finder) search(lost []int) ([]int, error) {
	t := f.m.t
	queue := slices.Clone(lost)
	slices.SortStableFunc(queue, func(a, b int) int {
		return cmp.Compare(t.rows[a].end-t.rows[a].start, t.rows[b].end-t.rows[b].start)
	})
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		before := f.shifts[0]
		ok, err := f.try(i, before)
		for _, gap := range f.gaps(t.rows[i].start) {
			if ok || err != nil {
				break
			}
			ok, err = f.within(i, gap)
		}
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(lost, func(i int) bool { return f.at[i] != nowhere }), nil
}

// gaps returns the ranges of the data in which no file was found, the nearest to off first.
func (f *finder) gaps(off int64) (gaps []span) {
	var found []span
	for _, i := range f.all {
		if f.at[i] != nowhere {
			found = append(found, span{f.at[i], f.at[i] + f.m.t.rows[i].end - f.m.t.rows[i].start})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for _, s := range append(found, span{f.m.t.dataLen, f.m.t.dataLen}) {
		if s.start > end {
			gaps = append(gaps, span{end, s.start})
		}
		end = max(end, s.end)
	}
	far := func(s span) int64 { return max(s.start-off, off-s.end, 0) }
	slices.SortStableFunc(gaps, func(a, b span) int { return cmp.Compare(far(a), far(b)) })
	return gaps
}

// within looks for a file at each offset of a range.
func (f *finder) within(i int, in span) (bool, error) {
	m := f.m
	s, want := m.t.rows[i].span, m.t.digest(i)
	n := s.end - s.start
	tries := in.end - in.start - n + 1
	if tries <= 0 || n > 16<<20 {
		return false, nil
	}
	if tries > (maxSearch-m.searched)/n {
		m.tired = true
		return false, nil
	}
	m.searched += tries * n
	window := make([]byte, in.end-in.start)
	if err := m.fetch(window, in.start); err != nil {
		return false, err
	}
	for d := range tries {
		if sum := blake3.Sum256(window[d : d+n]); string(sum[:]) == want {
			return f.try(i, in.start+d-s.start)
		}
		if d&0xff == 0 && m.ctx.Err() != nil {
			return false, context.Cause(m.ctx)
		}
	}
	return false, nil
}

// around returns the range between the files that were found before and after a file.
func (f *finder) around(i int) span {
	at, _ := slices.BinarySearch(f.all, i)
	left := span{0, f.m.t.dataLen}
	for _, before := range slices.Backward(f.all[:at]) {
		if f.at[before] != nowhere {
			left.start = f.m.t.rows[before].end // it has its new place
			break
		}
	}
	for _, after := range f.all[at+1:] {
		if f.at[after] != nowhere {
			left.end = f.at[after]
			break
		}
	}
	return left
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
