package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Mark finds garbage in a store. It needs all tars of the store, the newest first. If a tar is
// missing, segments to which only that tar refers are treated as garbage. Mark reads graphs and
// binary references, and segments where there is no intact graph. Besides the indexes it keeps 16
// bytes for each bulk segment, a bit for each entry, and one graph in memory.
func Mark(ctx context.Context, tars []Tar, head Head, o Options) (*Plan, error) {
	o.Retain = cmp.Or(o.Retain, 1)
	if o.Report == nil {
		o.Report = func(string, tarfile.Problem) {}
	}
	if err := check(tars, head, o); err != nil {
		return nil, &Refused{err}
	}
	m := marker{head: head, o: o, ahead: o.Root != nil, bulk: newBulk(tars)}
	p := &Plan{Head: head, Tars: make([]TarPlan, len(tars)), report: o.Report}
	for i, t := range tars {
		tp := &p.Tars[i]
		*tp = TarPlan{Tar: t, Entries: t.Index().Len(), garbage: tarfile.NewBits(t.Index().Len())}
		if err := m.data(ctx, tp); err != nil {
			return nil, err
		}
	}
	if !p.Keeps(head.Segment) {
		// The root is an older one, from a line of gc.log that a compaction did not update.
		return nil, &Refused{fmt.Errorf("segment %s of the newest revision: garbage by root %s, expected it to be kept", head.Segment, *o.Root)}
	}
	p.Newer = m.newer
	for i := range p.Tars {
		t := &p.Tars[i]
		for k, e := range t.Index().All() {
			if o.Keep != nil && o.Keep(e.ID) {
				t.garbage.Unset(k)
			} else if !e.ID.IsData() && !m.bulk.all && !m.bulk.referred(e.ID) {
				t.garbage.Set(k)
			}
		}
		t.decide(o)
	}
	return p, nil
}

// Refused is why a store is not cleaned up; other errors of [Mark] are of tar or store.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }

// check refuses options that would make the whole store garbage.
func check(tars []Tar, head Head, o Options) error {
	if o.Retain < 1 || o.Kind > Tail {
		return fmt.Errorf("cleanup: kind %d, %d generations to retain, expected a kind up to %d, and at least 1", o.Kind, o.Retain, Tail)
	}
	if !head.Segment.IsData() {
		return fmt.Errorf("segment %s of the newest revision: expected a data segment", head.Segment)
	}
	haveHead, haveRoot := false, o.Root == nil
	for i, t := range tars {
		if number, letter, ok := tarfile.ParseName(t.Name); !ok || number != t.Number || letter != t.Letter {
			return fmt.Errorf("%s: number %d, letter %q, expected those of the name", t.Name, t.Number, t.Letter)
		}
		if i > 0 && t.Number >= tars[i-1].Number {
			return fmt.Errorf("%s: comes after %s, expected newer tars first", t.Name, tars[i-1].Name)
		}
		x := t.Index()
		if k, ok := x.Find(head.Segment); ok && !haveHead {
			haveHead = true
			if g := x.At(k).Generation; g != head.Generation {
				return fmt.Errorf("%s: segment %s of the newest revision: generation %s, expected %s", t.Name, head.Segment, g, head.Generation)
			}
		}
		if !haveRoot {
			_, haveRoot = x.Find(*o.Root)
		}
	}
	switch {
	case !haveHead:
		return fmt.Errorf("segment %s of the newest revision: in none of %d tars", head.Segment, len(tars))
	case !haveRoot:
		return fmt.Errorf("segment %s of the compacted root: in none of %d tars", *o.Root, len(tars))
	}
	return nil
}

type marker struct {
	head  Head
	o     Options
	ahead bool // the root is still to come
	newer bool // garbage is
	bulk  bulk
	buf   []byte
}

// data marks garbage data segments, from the last to the first, and the segments to which the
// others refer.
func (m *marker) data(ctx context.Context, t *TarPlan) error {
	graph, err := t.Tar.Graph(ctx)
	if t.GraphDamage, err = damage(err); err != nil {
		return err
	}
	_, err = t.Tar.Binaries(ctx)
	if t.BinariesDamage, err = damage(err); err != nil {
		return err
	}
	x := t.Index()
	for _, i := range slices.Backward(x.ByPosition()) {
		e := x.At(int(i))
		if m.o.Root != nil && e.ID == *m.o.Root {
			m.ahead = false
		}
		switch {
		case !e.ID.IsData():
		case e.Generation.Compacted && m.ahead || m.o.old(m.head.Generation, e.Generation):
			t.garbage.Set(int(i))
			m.newer = m.newer || e.Generation.Gen > m.head.Gen
		case graph != nil:
			targets, _ := graph.Targets(e.ID)
			m.bulk.refer(targets)
		default:
			if err := m.read(ctx, t, int(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// damage splits an error about a tar's part into damage of the file and an error of the store.
func damage(err error) (*tarfile.Error, error) {
	if e, ok := errors.AsType[*tarfile.Error](err); ok {
		return e, nil
	}
	return nil, err
}

// read reads a segment of a tar without a graph.
func (m *marker) read(ctx context.Context, t *TarPlan, i int) error {
	e := t.Index().At(i)
	b, err := t.Tar.Read(ctx, i, m.buf)
	bad, err := damage(err)
	if err != nil {
		return err
	}
	what := "segment: no header of a data segment"
	if bad != nil {
		what = bad.What
	} else {
		m.buf = b
		if h, ok := segment.ParseHead(b); ok {
			m.bulk.refer(h.Refs)
			return nil
		}
	}
	// The tar may be repaired later, when its references can no longer be determined.
	m.bulk.all = true
	m.o.Report(t.Name, tarfile.Problem{Class: tarfile.BadSegment, Off: e.Pos, Len: int64(e.Len), Segment: e.ID, HasSegment: true,
		What: what + ", and the graph is damaged: all bulk segments are kept, because this one may refer to any"})
	return nil
}

// old reports whether a data segment is too old for the newest revision's generation.
func (o Options) old(head, g tarfile.Generation) bool {
	n := int64(o.Retain)
	gen := int64(head.Gen)-int64(g.Gen) >= n
	if o.Kind == Tail {
		return gen && !(g.Compacted && g.Full == head.Full)
	}
	return int64(head.Full)-int64(g.Full) >= n || gen && !g.Compacted
}

// decide selects the action by the amount of garbage.
func (t *TarPlan) decide(o Options) {
	fit := true
	for i, e := range t.Index().All() {
		t.Before += e.Whole().Len
		if t.IsGarbage(i) {
			t.Garbage++
			continue
		}
		t.After += e.Whole().Len
		if e.Pos < tarfile.BlockSize || e.Len > tarfile.MaxSegment || e.Pos+int64(e.Len) > t.Size() || e.Generation.Gen < 0 || e.Generation.Full < 0 {
			fit = false
		}
	}
	letter := byte('z') // the last one in use
	for ; letter > t.Letter; letter-- {
		if o.Taken != nil && o.Taken(tarfile.Name(t.Number, letter)) {
			break
		}
	}
	switch {
	case t.Garbage == t.Entries:
		t.Action = Drop
	case t.Garbage == 0 && t.sound():
		t.Action = Keep
	case t.After >= t.Before*3/4 && t.sound():
		t.Action = KeepGarbage
	case letter == 'z':
		t.Action = KeepLastLetter
	case !fit:
		t.Action = KeepDamaged
	default:
		t.Action = Rewrite
		t.NewName = tarfile.Name(t.Number, letter+1)
	}
}

func (t *TarPlan) sound() bool { return t.GraphDamage == nil && t.BinariesDamage == nil }

// bulk has the IDs of all segments without records, and whether something refers to them.
type bulk struct {
	ids  []tarfile.ID
	refs tarfile.Bits
	all  bool
}

func newBulk(tars []Tar) (b bulk) {
	n := 0
	for _, t := range tars {
		for _, e := range t.Index().All() {
			if !e.ID.IsData() {
				n++
			}
		}
	}
	b.ids = make([]tarfile.ID, 0, n)
	for _, t := range tars {
		for _, e := range t.Index().All() {
			if !e.ID.IsData() {
				b.ids = append(b.ids, e.ID)
			}
		}
	}
	slices.SortFunc(b.ids, tarfile.ID.Compare)
	b.ids = slices.Compact(b.ids)
	b.refs = tarfile.NewBits(len(b.ids))
	return b
}

func (b *bulk) find(id tarfile.ID) (int, bool) {
	return slices.BinarySearchFunc(b.ids, id, tarfile.ID.Compare)
}

func (b *bulk) refer(targets tarfile.IDs) {
	for id := range targets.All() {
		if id.IsData() {
			continue
		}
		if i, ok := b.find(id); ok {
			b.refs.Set(i)
		}
	}
}

func (b *bulk) referred(id tarfile.ID) bool {
	i, _ := b.find(id)
	return b.refs.Has(i)
}
