package segment

import (
	"context"
	"fmt"
	"iter"
)

const (
	bucketIDs = 255
	// maxList is the capacity of three levels of buckets. Writers refuse more.
	maxList = bucketIDs * bucketIDs * bucketIDs
)

// A List is a sequence of record IDs. It has no record of its own: an empty list has none, a list
// of one element is that element, and others are buckets of at most 255 IDs, up to three levels
// deep. Only the records that refer to it contain its length.
type List struct {
	r    *Reader
	near *Segment // of the record that refers to the list
	id   RecordID
	n    int
}

func (r *Reader) list(id RecordID, n int, near *Segment) (List, error) {
	if n < 0 || n > maxList {
		return List{}, &Error{Class: Corrupt, Segment: id.Segment, Record: id.Number, Off: -1,
			What: fmt.Sprintf("list: expected 0 to %d elements, found %d", maxList, n)}
	}
	return List{r, near, id, n}, nil
}

func (l List) Len() int { return l.n }

// At returns element i, from 0. It panics if i is out of range.
func (l List) At(ctx context.Context, i int) (RecordID, error) {
	if uint(i) >= uint(l.n) {
		panic("segment: list element out of range")
	}
	id, _, _, err := l.descend(ctx, i)
	return id, err
}

// descend finds element i, the bucket that has its id, and the index of that one's first.
func (l List) descend(ctx context.Context, i int) (id RecordID, b bucket, first int, err error) {
	id, near, n := l.id, l.near, l.n
	for n > 1 {
		b = bucket{each: 1}
		for b.each*bucketIDs < n {
			b.each *= bucketIDs
		}
		b.n = (n + b.each - 1) / b.each
		b.end = first + n
		k := (i - first) / b.each
		if b.rec, err = l.r.typed(ctx, id, near, Bucket, Bucket, recordIDLen*b.n, "bucket"); err != nil {
			b.rec = Record{}
			return RecordID{}, b, first, err
		}
		if id, err = b.rec.id(recordIDLen * k); err != nil {
			if b.each > 1 {
				b.end = min(first+(k+1)*b.each, first+n)
			}
			return RecordID{}, b, first, err
		}
		near = b.rec.seg
		if b.each == 1 {
			return id, b, first, nil
		}
		first += k * b.each
		n = min(b.each, b.end-first)
	}
	// A single element, at the top or as the last of a bucket of lists.
	return id, bucket{n: 1, each: 1, end: i + 1}, i, nil
}

// A cursor is a list whose elements are requested near each other.
type cursor struct {
	List
	b     bucket
	first int // its first element
}

func (c *cursor) at(ctx context.Context, i int) (id RecordID, err error) {
	if c.b.rec.seg != nil && c.b.each == 1 && i >= c.first && i < c.b.end {
		return c.b.rec.id(recordIDLen * (i - c.first))
	}
	id, c.b, c.first, err = c.descend(ctx, i)
	return id, err
}

// A bucket holds n IDs of lists with each elements; the last list may have fewer. These values
// are valid for the elements before end.
type bucket struct {
	rec     Record // zero if it cannot be read
	n, each int
	end     int
}

func (l List) All(ctx context.Context) iter.Seq2[RecordID, error] { return l.Range(ctx, 0, l.n) }

// Range yields the elements from from up to but not including to, and reads only the buckets that
// they need. An element that cannot be found is an error in its place, and those after it follow.
func (l List) Range(ctx context.Context, from, to int) iter.Seq2[RecordID, error] {
	if from < 0 || from > to || to > l.n {
		panic("segment: list range out of range")
	}
	return func(yield func(RecordID, error) bool) {
		for i := from; i < to; {
			if err := ctx.Err(); err != nil {
				yield(RecordID{}, err)
				return
			}
			id, b, first, err := l.descend(ctx, i)
			end := min(b.end, to)
			for first, i = i-first, i+1; ; i++ {
				if !yield(id, err) {
					return
				}
				if i >= end {
					break
				}
				if b.rec.seg != nil && b.each == 1 {
					first++
					id, err = b.rec.id(recordIDLen * first)
				}
			}
		}
	}
}

// listOf reads a record of type list, which contains its length.
func (r *Reader) listOf(ctx context.Context, id RecordID, near *Segment) (List, error) {
	rec, err := r.typed(ctx, id, near, ListRecord, ListRecord, 4, "list")
	if err != nil {
		return List{}, err
	}
	l := List{r: r, near: rec.seg}
	switch n := rec.u32(0); {
	case n > maxList:
		err = rec.errorf(Corrupt, 0, "list: expected at most %d elements, found %d", maxList, n)
	case n > 0:
		if err = rec.need(4, recordIDLen, "list"); err == nil {
			l.n = int(n)
			l.id, err = rec.id(4)
		}
	}
	return l, err
}
