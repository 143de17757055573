// Package sync makes a copy of an archive from what older ones have of it, and fetches the rest.
package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/digest"
)

// Options of a sync.
type Options struct {
	// Before is called when the copy is complete, before it appears.
	Before         func(context.Context) error
	DryRun, NoSync bool
	Meter          *meter.Meter
}

// Done says what a sync did; see holdall.Synced.
type Done struct {
	Bytes, Copied, Resumed, Fetched, Requests int64
	Proven                                    bool
	Notes                                     []string
}

// Sync makes a copy of src at a path. Bytes that src has a digest of are copied from old archives if they have
// them; everything else is fetched. Every copied or fetched byte that has a digest is compared with it.
func Sync(ctx context.Context, src *content.Source, old []*content.Source, out string, o Options) (done Done, err error) {
	l, err := src.Layout(ctx, nil)
	if err != nil {
		return done, err
	}
	if err := src.Vouched(); err != nil { // the digests may be of other bytes
		done.Notes = append(done.Notes, fmt.Sprintf("%v: everything is fetched", err))
		for i := range l.Ranges {
			l.Ranges[i].Sum = content.Sum{}
		}
	}
	done.Proven = l.Proven
	for _, n := range l.Sizes {
		done.Bytes += n
	}
	o.Meter.Expect(0, done.Bytes)
	s := &syncing{l: l, o: o, has: make([]bool, len(l.Ranges)), lacking: map[int64]int{}}
	if !o.DryRun {
		if s.to, err = begin(out, src.Name, l); err != nil {
			return done, err
		}
		defer s.to.close()
		if s.to.resumes {
			if err := s.resume(ctx); err != nil {
				return done, err
			}
		}
	}
	s.sort()
	for _, from := range old {
		err := s.copyFrom(ctx, from)
		if _, own := errors.AsType[*unwritable](err); own || ctx.Err() != nil {
			return done, err
		}
		if err != nil {
			done.Notes = append(done.Notes, fmt.Sprintf("%s: nothing is copied from it: %v", from.Name, err))
		}
	}
	missing := s.missing()
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
	return done, s.to.publish(ctx, src, l, o)
}

// syncing is the state of one Sync.
type syncing struct {
	l               *content.Layout
	o               Options
	to              *target // nil in a dry run
	bySum           []int   // numbers of ranges that have a digest and were not resumed, in the order of digests
	copied, resumed atomic.Int64

	mu      sync.Mutex
	has     []bool        // of each range: the copy has it, or somebody is copying it
	lacking map[int64]int // how many of a length there are in bySum that the copy does not have
}

// missing returns the ranges that the copy lacks.
func (s *syncing) missing() (rs []content.Range) {
	for i, r := range s.l.Ranges {
		if !s.has[i] {
			rs = append(rs, r)
		}
	}
	return rs
}

// resume finds what an earlier sync has written.
func (s *syncing) resume(ctx context.Context) error {
	return pipe.Each(ctx, pipe.All(s.l.Ranges), runtime.GOMAXPROCS(0), func(_ context.Context, r content.Range) error {
		if r.Sum == (content.Sum{}) {
			return nil
		}
		return s.to.with(r.Object, func(f *os.File) error {
			got, err := content.CopySum(io.Discard, io.NewSectionReader(f, r.Off, r.N), r.N)
			if s.has[r.At] = err == nil && got == r.Sum; s.has[r.At] {
				s.resumed.Add(r.N)
				s.o.Meter.Add(0, r.N)
			}
			return nil
		})
	})
}

// sort makes s ready to be asked for digests.
func (s *syncing) sort() {
	for _, r := range s.missing() {
		if r.Sum != (content.Sum{}) {
			s.bySum = append(s.bySum, r.At)
			s.lacking[r.N]++
		}
	}
	slices.SortFunc(s.bySum, func(a, b int) int { return bytes.Compare(s.l.Ranges[a].Sum[:], s.l.Ranges[b].Sum[:]) })
}

// first returns the place in bySum of the first range with a digest, and whether the copy lacks it.
func (s *syncing) first(sum content.Sum) (at int, lacks bool) {
	at, ok := slices.BinarySearchFunc(s.bySum, sum, func(i int, sum content.Sum) int { return bytes.Compare(s.l.Ranges[i].Sum[:], sum[:]) })
	return at, ok && !s.has[s.bySum[at]]
}

// wants reports whether the copy lacks bytes that r has, or may have if it has no digest.
func (s *syncing) wants(r content.Range) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lacks := s.first(r.Sum)
	return lacks || r.Sum == content.Sum{} && s.lacking[r.N] > 0
}

// claim returns the ranges with a digest that the copy lacks, for a caller that copies them.
func (s *syncing) claim(sum content.Sum) (to []content.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, lacks := s.first(sum); lacks && at < len(s.bySum) && s.l.Ranges[s.bySum[at]].Sum == sum; at++ {
		to = append(to, s.l.Ranges[s.bySum[at]])
	}
	s.mark(to, true)
	return to
}

func (s *syncing) mark(rs []content.Range, has bool) {
	for _, r := range rs {
		if s.has[r.At] = has; has {
			s.lacking[r.N]--
		} else {
			s.lacking[r.N]++
		}
	}
}

// copyFrom copies what an old archive has, as it says or as is found by reading what it has no digests of. What it says
// is only a hint. What cannot be read is fetched.
func (s *syncing) copyFrom(ctx context.Context, src *content.Source) error {
	l, err := src.Layout(ctx, s.l)
	if err != nil {
		return err
	}
	return pipe.Each(ctx, pipe.All(l.Ranges), runtime.GOMAXPROCS(0), func(ctx context.Context, r content.Range) error {
		if !s.wants(r) {
			return nil
		}
		o, err := src.Object(ctx, l.Objects[r.Object])
		if err == nil && r.Sum == (content.Sum{}) {
			r.Sum, err = content.CopySum(io.Discard, kit.NewSection(ctx, o, r.Off, r.N), r.N)
		}
		if err != nil {
			return nil
		}
		return s.copy(r, kit.NewSection(ctx, o, r.Off, r.N))
	})
}

// copy copies a range of an old archive to all that have its digest.
func (s *syncing) copy(r content.Range, from io.Reader) error {
	to := &places{s: s, to: s.claim(r.Sum)}
	if to.to == nil {
		return nil
	}
	got, err := content.CopySum(to, from, r.N)
	if _, own := errors.AsType[*unwritable](err); own {
		return err
	}
	if n := int64(len(to.to)); err != nil || got != r.Sum {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mark(to.to, false)
		s.o.Meter.Add(0, -n*to.at)
	} else {
		s.copied.Add(n * r.N)
	}
	return nil
}

// fetched writes what was fetched, and compares it.
func (s *syncing) fetched(r content.Range, from io.Reader, err error) error {
	if err != nil {
		return err
	}
	got, err := content.CopySum(&places{s: s, to: []content.Range{r}}, from, r.N)
	if err == nil && r.Sum != (content.Sum{}) {
		blake3 := func(sum content.Sum) format.Digest { return format.Digest{Algo: "blake3", Sum: string(sum[:])} }
		name := fmt.Sprintf("%s: bytes %d to %d", s.l.Objects[r.Object], r.Off, r.Off+r.N)
		err = digest.Compare(format.Entry{Name: name, Digest: blake3(r.Sum)}, blake3(got))
	}
	return err
}

// places are where the same bytes go.
type places struct {
	s  *syncing
	to []content.Range
	at int64 // in each
}

func (p *places) Write(b []byte) (int, error) {
	for _, r := range p.to {
		if err := p.s.to.writeAt(r.Object, b, r.Off+p.at); err != nil {
			return 0, &unwritable{err}
		}
		p.s.o.Meter.Add(0, int64(len(b)))
	}
	p.at += int64(len(b))
	return len(b), nil
}

// unwritable is an error of the copy, not of what is read.
type unwritable struct{ error }

func (u *unwritable) Unwrap() error { return u.error }
