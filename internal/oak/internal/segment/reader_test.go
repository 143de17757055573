package segment

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"
)

// frozen is a Source for parallel use.
type frozen map[ID]*Segment

func (f frozen) Segment(_ context.Context, id ID) (*Segment, error) {
	if s := f[id]; s != nil {
		return s, nil
	}
	return nil, fs.ErrNotExist
}

func freeze(t testing.TB, raw map[ID][]byte) frozen {
	f := frozen{}
	for id, b := range raw {
		s, err := Parse(id, b)
		if err != nil {
			t.Fatal(err)
		}
		f[id] = s
	}
	return f
}

func TestAReaderIsForParallelUse(t *testing.T) {
	s := newSample(t)
	r := NewReader(freeze(t, s.raw))
	m, err := r.Map(t.Context(), s.dif)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		wg.Go(func() {
			walkTree(t.Context(), r, "", s.root, func(expectedNode) { counts[i]++ })
			for range m.All(t.Context()) {
				counts[i]++
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		if n != 45+43 {
			t.Error(n)
		}
	}
}

func TestIteratorsEndWithTheirContext(t *testing.T) {
	s := newSample(t)
	r := NewReader(s)
	m, err := r.Map(t.Context(), s.top)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Node(t.Context(), s.inner)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := n.Property(t.Context(), "long")
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.At(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if all, err := collect(m.All(ctx)); !errors.Is(err, context.Canceled) || len(all) > 0 {
			t.Error(len(all), err)
		}
		if all, err := collect(v.Pieces(ctx, 0, v.Len())); !errors.Is(err, context.Canceled) || len(all) > 0 {
			t.Error(len(all), err)
		}
	}
}

var errBroken = errors.New("the disk is broken")

type broken struct{ Source }

func (broken) Segment(context.Context, ID) (*Segment, error) { return nil, errBroken }

func TestErrorsOfASourceAreToldFromDamage(t *testing.T) {
	s := newSample(t)
	if _, err := NewReader(broken{}).Node(t.Context(), s.root); err != errBroken {
		t.Error(err)
	}
	_, err := NewReader(frozen{}).Node(t.Context(), s.root)
	var e *Error
	if !errors.As(err, &e) || e.Class != Missing || e.Segment != s.root.Segment || e.Record != s.root.Number || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
