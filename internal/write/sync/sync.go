// Package sync makes a copy of an archive from what older ones have of it, and fetches the rest.
package sync

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/kept"
)

// Options of a sync.
type Options struct {
	// Index is the text of the archive's index, which is put beside the copy; nil for none.
	Index []byte
	// Unchanged returns an error if an archive of several objects has changed. It is called before the copy appears.
	Unchanged func(context.Context) error
	DryRun    bool
	NoSync    bool
	Meter     *meter.Meter
}

// Done says what a sync did; see holdall.Synced.
type Done struct {
	Bytes, Copied, Resumed, Fetched, Requests int64
	Proven                                    bool
	Notes                                     []string
}

// Sync makes a copy of src at a path. Bytes that src has a digest of are copied from old archives if they have
// them there; everything else is fetched. Every copied or fetched byte that has a digest is compared with it.
func Sync(ctx context.Context, src *content.Source, old []*content.Source, out string, o Options) (done Done, err error) {
	l, err := src.Layout(ctx)
	if err != nil {
		return done, err
	}
	if err := src.Vouched(); err != nil { // the digests may be of other bytes
		done.Notes = append(done.Notes, fmt.Sprintf("%v: everything is fetched", err))
		for i := range l.Ranges {
			l.Ranges[i].Sum = content.Sum{}
		}
	}
	s := &syncing{src: src, l: l, o: o, find: newFinder(l)}
	for _, from := range old {
		if err := s.find.add(ctx, from); ctx.Err() != nil {
			return done, context.Cause(ctx)
		} else if err != nil {
			done.Notes = append(done.Notes, fmt.Sprintf("%s: nothing is copied from it: %v", from.Name, err))
		}
	}
	s.find.sort()
	if !o.DryRun {
		if s.to, err = begin(out, src.Name, l); err != nil {
			return done, err
		}
		defer s.to.close()
	}
	done.Proven = l.Proven
	for _, n := range l.Sizes {
		done.Bytes += n
	}
	o.Meter.Expect(0, done.Bytes)
	missing, err := s.copyAll(ctx)
	if err != nil {
		return done, err
	}
	for _, r := range missing {
		done.Fetched += r.N
	}
	done.Copied, done.Resumed, done.Requests = s.copied.Load(), s.resumed.Load(), src.Requests(l, missing)
	if o.DryRun {
		return done, nil
	}
	if err := src.Fetch(ctx, l, missing, s.fetched); err != nil {
		return done, err
	}
	if k, ok := src.Reader.(*kept.Reader); ok && k.Damage() != nil {
		o.Index = nil
	}
	if o.Unchanged != nil {
		if err := o.Unchanged(ctx); err != nil {
			return done, err
		}
	}
	return done, s.to.publish(ctx, src, l, o)
}

// syncing is the state of one Sync.
type syncing struct {
	src             *content.Source
	l               *content.Layout
	o               Options
	find            *finder
	to              *target // nil in a dry run
	copied, resumed atomic.Int64
}

// A stretch is a run of ranges that one goroutine looks for.
type stretch struct {
	ranges  []content.Range
	before  content.Range // the one before these
	missing []content.Range
	err     error
}

const (
	stretchRanges = 256
	stretchBytes  = 16 << 20
)

// stretches yields all ranges.
func (s *syncing) stretches(yield func(*stretch, error) bool) {
	var before content.Range
	for all := s.l.Ranges; len(all) > 0; {
		n, long := 0, int64(0)
		for n < len(all) && n < stretchRanges && (n == 0 || long+all[n].N <= stretchBytes) {
			long += all[n].N
			n++
		}
		if !yield(&stretch{ranges: all[:n], before: before}, nil) {
			return
		}
		before, all = all[n-1], all[n:]
	}
}

// copyAll writes what is known to be elsewhere, and returns what is not.
func (s *syncing) copyAll(ctx context.Context) (missing []content.Range, err error) {
	work := func(ctx context.Context, t *stretch) {
		last := s.find.after(t.before)
		b := buffers.Get().(*[]byte)
		defer buffers.Put(b)
		for _, r := range t.ranges {
			var found bool
			if r.Sum != (content.Sum{}) {
				if found, last, t.err = s.copy(ctx, r, last, *b); t.err != nil {
					return
				}
			}
			if !found {
				t.missing = append(t.missing, r)
			}
		}
	}
	err = pipe.Ordered(ctx, iter.Seq2[*stretch, error](s.stretches), runtime.GOMAXPROCS(0), work, func(t *stretch) error {
		missing = append(missing, t.missing...)
		return t.err
	}, func(*stretch) {})
	return missing, err
}

const block = 1 << 20

var buffers = sync.Pool{New: func() any { b := make([]byte, block); return &b }}

// copy looks for a range, and returns the spot after the one where it was found.
func (s *syncing) copy(ctx context.Context, r content.Range, last spot, b []byte) (bool, spot, error) {
	if s.to != nil && s.to.resumes {
		if got, err := s.try(ctx, r, spot{old: resumed, at: r.Off}, b); err != nil || got == r.Sum {
			s.resumed.Add(r.N)
			s.o.Meter.Add(0, r.N)
			return err == nil, s.find.after(r), err
		}
	}
	for at := range s.find.candidates(r, last) {
		got, err := s.try(ctx, r, at, b)
		if err != nil {
			return false, last, err
		}
		if got == r.Sum {
			s.copied.Add(r.N)
			s.o.Meter.Add(0, r.N)
			at.at += r.N
			return true, at, nil
		}
		s.find.learn(got, at)
	}
	return false, last, nil
}

// try returns the digest of as many bytes as r has at a spot, and writes these to the place of r. It returns no
// digest if there are no such bytes. An error is one of writing.
func (s *syncing) try(ctx context.Context, r content.Range, at spot, b []byte) (content.Sum, error) {
	read := func(p []byte, off int64) error { return s.find.readAt(ctx, at, p, off) }
	if at.old == resumed {
		read = func(p []byte, off int64) error { return s.to.readAt(r.Object, p, off) }
	}
	if r.N <= block {
		b = b[:r.N]
		if read(b, at.at) != nil {
			return content.Sum{}, context.Cause(ctx)
		}
		d, _ := digest.Of(r.Sum.Algo(), b)
		got := content.SumOf(d)
		if got == r.Sum && at.old != resumed {
			return got, s.write(r, b)
		}
		return got, nil
	}
	h := digest.New(r.Sum.Algo())
	for off := int64(0); off < r.N; off += block {
		b = b[:min(block, r.N-off)]
		if read(b, at.at+off) != nil {
			return content.Sum{}, context.Cause(ctx)
		}
		h.Write(b)
		if at.old != resumed {
			p := r
			p.Off += off
			if err := s.write(p, b); err != nil {
				return content.Sum{}, err
			}
		}
	}
	if ctx.Err() != nil {
		return content.Sum{}, context.Cause(ctx)
	}
	return content.SumOf(format.Digest{Algo: r.Sum.Algo(), Sum: string(h.Sum(nil))}), nil
}

func (s *syncing) write(r content.Range, b []byte) error {
	if s.to == nil {
		return nil
	}
	return s.to.writeAt(r.Object, b, r.Off)
}

// fetched writes what was fetched, and compares it.
func (s *syncing) fetched(r content.Range, from io.Reader, err error) error {
	if err != nil {
		return err
	}
	want := format.Digest{Algo: r.Sum.Algo(), Sum: string(r.Sum[1:])}
	if want.Algo != "" {
		from = digest.NewReader(from, want.Algo)
	}
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for at := int64(0); at < r.N; {
		n, err := io.ReadFull(from, (*b)[:min(block, r.N-at)])
		if err != nil {
			return err
		}
		p := r
		p.Off += at
		if err := s.write(p, (*b)[:n]); err != nil {
			return err
		}
		at += int64(n)
		s.o.Meter.Add(0, int64(n))
	}
	if sums, ok := from.(*digest.Reader); ok {
		name := fmt.Sprintf("%s: bytes %d to %d", s.l.Objects[r.Object], r.Off, r.Off+r.N)
		return digest.Compare(format.Entry{Name: name, Digest: want}, sums.Sum())
	}
	return nil
}
