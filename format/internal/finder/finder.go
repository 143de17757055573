// Package finder finds contents by their digests, wherever they lie in what is left of an archive.
// Bytes were inserted before them or deleted, parts of the archive were exchanged, or a writer lost
// count: only digests can show where they are then.
package finder

import (
	"cmp"
	"context"
	"slices"
)

// A Content is looked for. It has Len bytes, or between Least and Len if it is not 0, and should
// begin at Start.
type Content struct{ Start, Len, Least int64 }

// Nowhere is the place of content that was not found.
const Nowhere = -1

// A Finder looks for contents.
type Finder struct {
	// End is where the data end.
	End int64
	// Read fills b with the data at an offset.
	Read func(b []byte, off int64) error
	// Right reports whether content i is at an offset, which may lie outside of the data.
	Right func(i int, off int64) (bool, error)
	// Is reports whether b is content i. It is Right for data that were read.
	Is func(i int, b []byte) bool
	// Weak means that Right is wrong once in some billion times. What is found by chance counts then
	// only if the content before or after it has moved as far.
	Weak bool

	// Near are distances from where others have moved to that are also tried.
	Near []int64
	// Contents are in the order in which they should be stored.
	Contents []Content
	// At is where each begins, or Nowhere.
	At []int64
	// Tired is set if the search was given up, because it would take too long.
	Tired bool
	// Hashed is how many bytes were hashed to look everywhere, at most MaxHashed.
	Hashed int64

	missed int64   // bytes that were not what was looked for
	shifts []int64 // distances from where contents should be to where they are, the latest first
}

// MaxHashed limits Hashed.
const MaxHashed = 256 << 20

const (
	mostShifts = 15
	mostMissed = 4        // times that all data are read in vain
	maxLen     = 16 << 20 // of content that is looked for at each offset
)

// Find looks for all contents: where they should be, then as far away as others or by one of these
// distances, and then everywhere.
func (f *Finder) Find(ctx context.Context, by ...int64) error {
	f.At, f.shifts = make([]int64, len(f.Contents)), []int64{0}
	var lost []int
	for i := range f.Contents {
		f.At[i] = Nowhere
		ok, err := f.Right(i, f.Contents[i].Start)
		if ok {
			f.found(i, 0)
		} else if err == nil {
			ok, err = f.try(i, by...)
		}
		if err != nil {
			return err
		}
		if !ok {
			lost = append(lost, i)
		}
	}
	// Short contents are the first, because looking for them is quick and shows how far others have
	// moved.
	slices.SortStableFunc(lost, func(a, b int) int { return cmp.Compare(f.Contents[a].Len, f.Contents[b].Len) })
	for _, i := range lost {
		ok, err := f.try(i)
		for _, gap := range f.gaps(f.Contents[i].Start) {
			if ok || err != nil {
				break
			}
			ok, err = f.within(ctx, i, gap)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// try looks for content that has moved, as others have or by one of these distances.
func (f *Finder) try(i int, by ...int64) (bool, error) {
	c := f.Contents[i]
	all := slices.Concat(f.shifts, by)
	for _, near := range f.Near {
		all = append(all, f.shifts[0]+near)
	}
	for _, d := range all {
		if d == 0 {
			continue
		}
		if f.missed > mostMissed*f.End+MaxHashed {
			f.Tired = true
			return false, nil
		}
		ok, err := f.Right(i, c.Start+d)
		if err != nil {
			return false, err
		}
		if ok {
			f.found(i, d)
			return true, nil
		}
		f.missed += c.Len
	}
	return false, nil
}

// found notes how far content has moved.
func (f *Finder) found(i int, by int64) {
	f.At[i] = f.Contents[i].Start + by
	f.shifts = slices.DeleteFunc(f.shifts, func(old int64) bool { return old == by })
	f.shifts = append([]int64{by}, f.shifts[:min(len(f.shifts), mostShifts)]...)
}

// likely reports whether content that was found by chance is what was looked for.
func (f *Finder) likely(i int, by int64) (bool, error) {
	for _, k := range []int{i - 1, i + 1} {
		if !f.Weak {
			return true, nil
		}
		if k >= 0 && k < len(f.Contents) {
			if ok, err := f.Right(k, f.Contents[k].Start+by); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

type span struct{ start, end int64 }

// gaps returns the ranges of the data in which no content was found, the nearest to off first.
func (f *Finder) gaps(off int64) (gaps []span) {
	var found []span
	for i, at := range f.At {
		if at != Nowhere {
			found = append(found, span{at, at + f.Contents[i].Len})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for _, s := range append(found, span{f.End, f.End}) {
		if s.start > end {
			gaps = append(gaps, span{end, s.start})
		}
		end = max(end, s.end)
	}
	far := func(s span) int64 { return max(s.start-off, off-s.end, 0) }
	slices.SortStableFunc(gaps, func(a, b span) int { return cmp.Compare(far(a), far(b)) })
	return gaps
}

// within looks for content at each offset of a range.
func (f *Finder) within(ctx context.Context, i int, in span) (bool, error) {
	c := f.Contents[i]
	least := cmp.Or(c.Least, c.Len)
	tries := in.end - in.start - least + 1
	if tries <= 0 || least > maxLen {
		return false, nil
	}
	if tries > (MaxHashed-f.Hashed)/least {
		f.Tired = true
		return false, nil
	}
	f.Hashed += tries * least
	window := make([]byte, in.end-in.start)
	if err := f.Read(window, in.start); err != nil {
		return false, err
	}
	for d := range tries {
		if f.Is(i, window[d:min(d+c.Len, int64(len(window)))]) {
			by := in.start + d - c.Start
			ok, err := f.likely(i, by)
			if ok {
				f.found(i, by)
			}
			if ok || err != nil {
				return ok, err
			}
		}
		if d&0xff == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// Around returns the range between the contents that were found before and after one.
func (f *Finder) Around(i int) (start, end int64) {
	start, end = 0, f.End
	for k := i - 1; k >= 0; k-- {
		if f.At[k] != Nowhere {
			start = f.At[k] + f.Contents[k].Len
			break
		}
	}
	for k := i + 1; k < len(f.At); k++ {
		if f.At[k] != Nowhere {
			end = f.At[k]
			break
		}
	}
	return start, end
}
