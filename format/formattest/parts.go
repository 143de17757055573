package formattest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// writePart writes a part of an archive.
func (s *suite) writePart(t *testing.T, st store.Store, p format.Part, samples []sample) error {
	t.Helper()
	w, err := s.f.Parts.Create(t.Context(), st, p, s.partOptions())
	if err != nil {
		return err
	}
	defer func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
	}()
	for _, x := range samples {
		mustAdd(t, w, x)
	}
	_, err = w.Commit(t.Context())
	return err
}

func (s *suite) partOptions() format.CreateOptions {
	return format.CreateOptions{Scratch: func() (sorter.Scratch, error) { return &memScratch{open: new(atomic.Int32)}, nil }}
}

// inParts divides samples into parts, one of which is empty.
func (s *suite) inParts(all []sample, n int) (parts [][]sample) {
	all = slices.DeleteFunc(slices.Clone(all), func(x sample) bool { return x.Kind == format.HardLink }) // its file must be in the same part
	for i := range n {
		if i == n/2 {
			parts = append(parts, nil)
		}
		parts = append(parts, all[len(all)*i/n:len(all)*(i+1)/n])
	}
	return parts
}

// refuses checks that name is not an archive, and that opening it returns one of the contract's
// errors.
func (s *suite) refuses(t *testing.T, st store.Store, name string) {
	t.Helper()
	r, err := s.f.Open(t.Context(), st, name, format.OpenOptions{})
	if err == nil {
		r.Close()
	}
	if !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the merge: expected %v or %v, found %v", format.ErrCorrupt, fs.ErrNotExist, err)
	}
}

func testParts(t *testing.T, s *suite) {
	p := s.f.Parts
	st, name := &storetest.Mem{}, s.archiveName()
	samples := s.many()
	cut := s.inParts(samples, 4)
	parts := make([]format.Part, len(cut))
	for _, i := range []int{3, 0, 4, 2, 1} {
		parts[i] = format.Part{Archive: name, Number: i, Try: int64(9 * (i + 1))}
		object := p.Object(name, i)
		// The first writer leaves only a list.
		early := parts[i]
		early.Try -= 5
		fault := storetest.Fault(st, func(op, name string, _, _ int64) error {
			if op == "commit" && name == object {
				return errInjected
			}
			return nil
		})
		if err := s.writePart(t, fault, early, cut[i][:len(cut[i])/2]); !errors.Is(err, errInjected) {
			t.Errorf("part %d: expected %v, found %v", i, errInjected, err)
		}
		if _, err := p.Open(t.Context(), st, early, format.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("part %d is missing: %v", i, err)
		}
		if err := s.writePart(t, st, parts[i], cut[i]); err != nil {
			t.Fatal(err)
		}
		tries, err := p.Tries(t.Context(), st, name, i)
		if err != nil || len(tries) == 0 || tries[0] != parts[i] {
			t.Errorf("part %d: tries %v, %v", i, tries, err)
		}
		r, err := p.Open(t.Context(), st, parts[i], format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(cut[i], func(x sample) bool { return x.Name == e.Name })
			if at < 0 {
				if e.Kind != format.Dir {
					t.Errorf("part %d has %q", i, e.Name)
				}
				continue
			}
			n++
			s.wantEntry(t, st, r, e, cut[i][at])
		}
		if n != len(cut[i]) {
			t.Errorf("part %d: %d entries, expected %d", i, n, len(cut[i]))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		s.refuses(t, st, name)
	}
	sum, err := p.Merge(t.Context(), st, name, parts, s.partOptions())
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(cut...)
	s.wantSamples(t, st, name, want)
	if _, err := p.Merge(t.Context(), st, name, parts, s.partOptions()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("merged again: expected %v, found %v", fs.ErrExist, err)
	}
	if err := p.Clear(t.Context(), st, name); err != nil {
		t.Fatal(err)
	}
	s.wantSummary(t, st, sum, want)
	for i := range parts {
		if tries, err := p.Tries(t.Context(), st, name, i); len(tries) > 0 || err != nil {
			t.Errorf("part %d, cleared: tries %v, %v", i, tries, err)
		}
	}
}

// testMergeFaults makes each request of a merge fail, one by one. The archive must then be
// complete or absent, and merging again must create it.
func testMergeFaults(t *testing.T, s *suite) {
	name := s.archiveName()
	samples := s.few()
	whole := &storetest.Mem{}
	var parts []format.Part
	for i, part := range s.inParts(samples, 2) {
		parts = append(parts, format.Part{Archive: name, Number: i})
		if err := s.writePart(t, whole, parts[i], part); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Concat(s.inParts(samples, 2)...)
	decides := s.f.Parts.Decides(name)
	for k := 1; k <= mostFaults; k += 1 + k/20 {
		st := whole.Clone()
		c := storetest.Count(storetest.Nth("", k, errInjected))
		_, err := s.f.Parts.Merge(t.Context(), storetest.Fault(st, c.Inject), name, parts, s.partOptions())
		if n, _ := c.Injected(); n == 0 {
			if err != nil || k < 10 {
				t.Errorf("merged by %d requests: %v", k-1, err)
			}
			break
		}
		what := fmt.Sprintf("request %d failed", k)
		if err := c.Surfaced(err); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if bytes.Equal(st.Get(decides), nil) {
			s.refuses(t, st, name)
			if _, err := s.f.Parts.Merge(t.Context(), st, name, parts, s.partOptions()); err != nil {
				t.Errorf("%s, and merged again: %v", what, err)
			}
		}
		s.wantSamples(t, st, name, want)
	}
	if !strings.HasPrefix(decides, name) {
		t.Errorf("the deciding object %q is not below %q", decides, name)
	}
}
