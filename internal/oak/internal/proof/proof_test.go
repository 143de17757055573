package proof

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

// made is a store with segments in memory. It counts how often each is requested.
type made struct {
	t testing.TB
	*segment.Builder
	data map[segment.ID][]byte

	mu     sync.Mutex
	asks   map[segment.ID]int
	parsed map[segment.ID]*segment.Segment // once they are requested
}

func newMade(t testing.TB) *made {
	m := &made{t: t, data: map[segment.ID][]byte{}, asks: map[segment.ID]int{}, parsed: map[segment.ID]*segment.Segment{}}
	rnd := rand.New(rand.NewPCG(1, 2))
	m.Builder = segment.NewBuilder(segment.BuilderOptions{
		Millis: func() int64 { return 1 },
		NewID: func() (id [16]byte) {
			binary.BigEndian.PutUint64(id[:], rnd.Uint64())
			binary.BigEndian.PutUint64(id[8:], rnd.Uint64())
			return id
		},
	}, func(_ context.Context, f segment.Finished) error {
		m.data[f.ID] = bytes.Clone(f.Data)
		return nil
	})
	return m
}

func (m *made) Segment(_ context.Context, id segment.ID) (*segment.Segment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks[id]++
	if s := m.parsed[id]; s != nil {
		return s, nil
	}
	b, ok := m.data[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	s, err := segment.Parse(id, b)
	if err == nil {
		m.parsed[id] = s
	}
	return s, err
}

func (m *made) node(text string, children ...segment.RecordID) segment.RecordID {
	m.t.Helper()
	n := segment.NewNode{}
	if text != "" {
		n.Properties = []segment.NewProperty{{Name: "text", Type: segment.String, Values: []segment.NewValue{{Text: text}}}}
	}
	for i, c := range children {
		n.Children = append(n.Children, segment.Child{Name: fmt.Sprint("c", i), Node: c})
	}
	id, err := m.Node(m.t.Context(), n)
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

func (m *made) flush() {
	m.t.Helper()
	if err := m.Flush(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// record returns the bytes of a record and everything after it.
func (m *made) record(id segment.RecordID) []byte {
	m.t.Helper()
	s, err := segment.Parse(id.Segment, m.data[id.Segment])
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := s.Record(id.Number)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.data[id.Segment][r.Pos():]
}

// childAt is where a node has the id of its only child.
const childAt = 12

func (m *made) prove(p *Prover, id segment.RecordID) (Result, []Loss) {
	m.t.Helper()
	var losses []Loss
	r, err := p.Tree(m.t.Context(), id, "/", func(l Loss) { losses = append(losses, l) })
	if err != nil {
		m.t.Fatal(err)
	}
	if r.Whole != (len(losses) == 0) || r.Lost < int64(len(losses)) {
		m.t.Errorf("whole %v, %d lost, %d losses", r.Whole, r.Lost, len(losses))
	}
	return r, losses
}

func paths(losses []Loss) (all []string) {
	for _, l := range losses {
		p := l.Path
		if l.Property != "" {
			p += "@" + l.Property
		}
		all = append(all, p)
	}
	return all
}

func TestNodeThatIsItsOwnDescendantIsALoss(t *testing.T) {
	for above := range 3 {
		m := newMade(t)
		last := m.node("")
		end := m.node("end", last)
		id, chain := end, []segment.RecordID{end}
		for range above {
			id = m.node("", id)
			chain = append(chain, id)
		}
		root := m.node("", m.node("sibling"), id)
		m.flush()
		binary.BigEndian.PutUint32(m.record(end)[childAt+2:], uint32(chain[above].Number))
		p := New(segment.NewReader(m), Options{})
		for range 2 { // the second time from marks
			_, losses := m.prove(p, root)
			want := "/c1" + strings.Repeat("/c0", above+1)
			if got := paths(losses); !slices.Equal(got, []string{want}) {
				t.Errorf("%d above: %q, want %q", above, got, want)
			}
		}
		if r, err := p.Tree(t.Context(), root, "/", nil); err != nil || r.Whole || r.Nodes != 0 {
			t.Errorf("asked for once more: %+v, %v", r, err)
		}
	}
}

func TestSharedSubtreeIsWalkedOnce(t *testing.T) {
	const levels = 200 // and 2^200 paths
	for _, damage := range []bool{false, true} {
		m := newMade(t)
		id := m.node("leaf")
		leaf := id
		for range levels {
			id = m.node("", id, id)
		}
		m.flush()
		if damage {
			m.record(leaf)[10] = 0xff // number of the template
		}
		p := New(segment.NewReader(m), Options{})
		r, losses := m.prove(p, id)
		if r.Nodes > levels+1 || len(losses) > 1 || r.Whole == damage {
			t.Errorf("damage %v: %+v, %d losses", damage, r, len(losses))
		}
		if damage && losses[0].Others != 1 {
			t.Errorf("%d others of the leaf, which its parent has twice", losses[0].Others)
		}
		if r, _ := m.prove(p, id); r.Nodes != 0 && !damage {
			t.Errorf("%d nodes were walked again", r.Nodes)
		}
	}
}

func TestTreeThatIsTooDeepIsALoss(t *testing.T) {
	m := newMade(t)
	id := m.node("")
	for range 20 {
		id = m.node("", id)
	}
	m.flush()
	_, losses := m.prove(New(segment.NewReader(m), Options{Depth: 10}), id)
	if len(losses) != 1 || losses[0].Err.Class != segment.Limit || losses[0].Path != strings.Repeat("/c0", 10) {
		t.Errorf("%+v", losses)
	}
	if r, _ := m.prove(New(segment.NewReader(m), Options{Depth: 21}), id); !r.Whole {
		t.Error("a tree that is not too deep")
	}
}

// bushy is a tree of a few thousand nodes in several segments.
func bushy(m *made, rnd *rand.Rand, depth int) segment.RecordID {
	var children []segment.RecordID
	if depth > 0 {
		for range 2 + rnd.IntN(5) {
			children = append(children, bushy(m, rnd, depth-1))
		}
		children = append(children, children[0]) // shared
	}
	return m.node(strings.Repeat("x", 1+rnd.IntN(1500)), children...)
}

func TestForgettingCostsTimeAndNothingElse(t *testing.T) {
	rnd := testkit.Rand(t)
	m := newMade(t)
	root := bushy(m, rnd, 4)
	other := m.node("other", root)
	m.flush()
	for _, b := range m.data {
		for range 3 {
			b[100+rnd.IntN(len(b)-100)] ^= 1 << rnd.IntN(8)
		}
	}
	_, want := m.prove(New(segment.NewReader(m), Options{Workers: 1}), root)
	above, _ := m.prove(New(segment.NewReader(m), Options{Workers: 1}), other) // it may be damaged itself
	t.Logf("%d segments, %d losses", len(m.data), len(want))
	for _, memory := range []int{1, 4 << 10, 64 << 10} {
		p := New(segment.NewReader(m), Options{Memory: memory})
		for _, id := range []segment.RecordID{root, other, root} {
			r, got := m.prove(p, id)
			if id == other {
				if r.Whole != above.Whole {
					t.Errorf("memory %d: whole: %v", memory, r.Whole)
				}
				continue
			}
			if len(got) != len(want) || !slices.Equal(paths(got), paths(want)) {
				t.Errorf("memory %d: %d losses, want %d", memory, len(got), len(want))
			}
		}
	}
}

func TestResultDoesNotDependOnTiming(t *testing.T) {
	rnd := testkit.Rand(t)
	for range 4 {
		m := newMade(t)
		root := bushy(m, rnd, 4)
		m.flush()
		for _, b := range m.data {
			for range 10 {
				b[32+rnd.IntN(len(b)-32)] ^= 1 << rnd.IntN(8)
			}
		}
		_, want := m.prove(New(segment.NewReader(m), Options{Workers: 1}), root)
		for range 5 {
			if _, got := m.prove(New(segment.NewReader(m), Options{Workers: 9}), root); !reflect.DeepEqual(got, want) {
				t.Fatalf("%d losses, want %d\n%v\n%v", len(got), len(want), paths(got), paths(want))
			}
		}
	}
}

func TestLongValueThatManyNodesShareIsReadOnce(t *testing.T) {
	m := newMade(t)
	long, err := m.Binary(t.Context(), bytes.NewReader(bytes.Repeat([]byte("binary"), 1<<18)))
	if err != nil {
		t.Fatal(err)
	}
	var all []segment.RecordID
	for i := range 300 {
		n := segment.NewNode{Properties: []segment.NewProperty{
			{Name: fmt.Sprint("p", i%7), Type: segment.Binary, Values: []segment.NewValue{{Record: long, IsID: true}}},
		}}
		id, err := m.Node(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	root := m.node("", all...)
	m.flush()
	if r, _ := m.prove(New(segment.NewReader(m), Options{Binaries: true, Workers: 1}), root); !r.Whole {
		t.Error("not whole")
	}
	bulk := 0
	for id, n := range m.asks {
		if id.IsBulk() {
			if bulk++; n > 2 { // how long it is, and what it has
				t.Errorf("%s was asked for %d times", id, n)
			}
		}
	}
	if bulk != 6 {
		t.Errorf("%d bulk segments", bulk)
	}
}

func TestProofEndsWhenItIsCancelled(t *testing.T) {
	m := newMade(t)
	root := bushy(m, rand.New(rand.NewPCG(1, 1)), 4)
	m.flush()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := New(segment.NewReader(m), Options{})
	if _, err := p.Tree(ctx, root, "/", nil); err != context.Canceled {
		t.Errorf("%v", err)
	}
	if r, _ := m.prove(p, root); !r.Whole {
		t.Error("not whole afterwards")
	}
}

func TestMemoryStaysWithinItsLimit(t *testing.T) {
	const limit = 1 << 20
	m := newMarks(limit)
	for i := range 3000 {
		id := segment.RecordID{Number: int32(i)}
		binary.BigEndian.PutUint32(id.Segment[:], uint32(i))
		m.open(id.Segment, 4000)
		m.set(id, pending)
		if m.get(id) != pending {
			t.Fatal("what was marked last is forgotten")
		}
	}
	m.settle(good)
	found := 0
	for i := range 3000 {
		id := segment.RecordID{Number: int32(i)}
		binary.BigEndian.PutUint32(id.Segment[:], uint32(i))
		if m.get(id) == good {
			found++
		}
	}
	if m.used > limit || !m.forgot || found != len(m.pages) {
		t.Errorf("%d bytes for %d pages, %d records", m.used, len(m.pages), found)
	}
}

func FuzzTree(f *testing.F) {
	m := newMade(f)
	root := bushy(m, rand.New(rand.NewPCG(3, 3)), 2)
	m.flush()
	whole := m.data[root.Segment]
	f.Add(uint16(40), byte(1), uint16(len(whole)-20), byte(3))
	f.Add(uint16(19), byte(8), uint16(200), byte(0x40))
	f.Fuzz(func(t *testing.T, at uint16, x byte, at2 uint16, x2 byte) {
		b := bytes.Clone(whole)
		b[int(at)%len(b)] ^= x
		b[int(at2)%len(b)] ^= x2
		one := &made{t: t, data: map[segment.ID][]byte{root.Segment: b}, asks: map[segment.ID]int{}, parsed: map[segment.ID]*segment.Segment{}}
		_, want := one.prove(New(segment.NewReader(one), Options{Workers: 1}), root)
		if _, got := one.prove(New(segment.NewReader(one), Options{Workers: 3, Memory: 1000}), root); !slices.Equal(paths(got), paths(want)) {
			t.Errorf("%q, want %q", paths(got), paths(want))
		}
	})
}
