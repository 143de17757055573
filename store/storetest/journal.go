package storetest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/holdall/holdall/store"
)

// A Journal is a store that records what amendments do to an object. It yields all states in
// which a crash may leave the object, as defined by [store.Amendment].
//
//	j := storetest.NewJournal(before.Clone())
//	work(j)
//	for label, content := range j.States(seed) {
//		left := before.Clone()
//		left.Put(name, content)
//		check(left, label)
//	}
type Journal struct {
	*Mem
	name  string
	start []byte
	ops   []op
}

// op is a write, a truncation or a sync.
type op struct {
	kind byte // 'w', 't'runcate, 's'ync
	off  int64
	p    []byte
}

// NewJournal returns a Journal over m. It is for consecutive amendments of a single object, which
// must not be changed in any other way.
func NewJournal(m *Mem) *Journal { return &Journal{Mem: m} }

// Can returns the abilities of a [Mem].
func (j *Journal) Can() store.Abilities {
	return store.Abilities{List: j.List, Create: j.CreateAs, Remove: j.Remove, RemoveAs: j.RemoveAs, Amend: j.Amend}
}

// Amend opens an object for changes in place and records them.
func (j *Journal) Amend(ctx context.Context, name string) (store.Amendment, error) {
	if j.start != nil && name != j.name {
		return nil, fmt.Errorf("amend %s: this is the journal of %s", name, j.name)
	}
	a, err := j.Mem.Amend(ctx, name)
	if err != nil {
		return nil, err
	}
	if j.start == nil {
		j.name, j.start = name, j.Get(name)
	}
	return &hookedAmendment{a, j.note, name}, nil
}

// note records a request.
func (j *Journal) note(r request, act func(n int64) error) error {
	err := act(r.n)
	if err != nil {
		return err
	}
	switch r.op {
	case "write":
		j.ops = append(j.ops, op{'w', r.off, bytes.Clone(r.p)})
	case "truncate":
		j.ops = append(j.ops, op{'t', r.off, nil})
	case "sync":
		j.ops = append(j.ops, op{kind: 's'})
	}
	return nil
}

// Ops returns the number of writes, truncations and syncs.
func (j *Journal) Ops() int { return len(j.ops) }

const sector = 512

// onto applies an op to b, which it may change. If a write is beyond the end, because an earlier
// write was lost, the gap is filled with zeros.
func (o op) onto(b []byte) []byte {
	switch o.kind {
	case 'w':
		b = reach(b, o.end())
		copy(b[o.off:], o.p)
	case 't':
		b = reach(b, o.off)[:o.off]
	}
	return b
}

// reach extends b to n bytes with zeros, if it is shorter.
func reach(b []byte, n int64) []byte {
	return append(b, make([]byte, max(0, n-int64(len(b))))...)
}

func (o op) end() int64 { return o.off + int64(len(o.p)) }

// one reports whether a write is within one sector.
func (o op) one() bool { return o.off/sector == (o.end()-1)/sector }

// front returns the first n bytes of a write.
func (o op) front(n int) op { return op{'w', o.off, o.p[:n]} }

// tears returns offsets at which to cut a write: after its first byte, before its last byte, in
// the middle, and at the boundaries of the sector around the middle.
func (o op) tears() (at []int) {
	if o.kind != 'w' || len(o.p) == 0 || o.one() {
		return nil
	}
	n := len(o.p)
	into := int((o.off + int64(n/2)) % sector)
	for _, k := range []int{1, n/2 - into, n / 2, n/2 - into + sector, n - 1} {
		if k > 0 && k < n && (len(at) == 0 || k > at[len(at)-1]) {
			at = append(at, k)
		}
	}
	return at
}

// sectors applies a write to b, with each of its sectors either written or not. If the write
// extends the object, the rest may be zeros.
func (o op) sectors(b []byte, rnd *rand.Rand) []byte {
	if rnd.IntN(2) == 0 {
		b = reach(b, o.end())
	}
	for at := 0; at < len(o.p); {
		n := min(len(o.p)-at, int(sector-(o.off+int64(at))%sector))
		if rnd.IntN(2) == 0 {
			b = op{'w', o.off + int64(at), o.p[at : at+n]}.onto(b)
		}
		at += n
	}
	return b
}

// fate applies to b what a power failure leaves of an op. At the last sync the object had size
// bytes.
func (o op) fate(b []byte, size int64, rnd *rand.Rand) []byte {
	atomic := o.kind != 'w' || len(o.p) == 0 || o.one() && o.end() <= size
	switch k := rnd.IntN(5); {
	case k < 2:
		return b
	case k == 2 || atomic:
		return o.onto(b)
	default:
		return o.sectors(b, rnd)
	}
}

// States yields the states that a crash may leave, each with a label that is the same for the
// same journal. The process may be killed between two ops or within a write. If the power fails,
// each op since the last sync may or may not have been made.
func (j *Journal) States(seed uint64) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		now, synced, last := bytes.Clone(j.start), j.start, 0
		for k, o := range j.ops {
			if !yield(fmt.Sprintf("killed before op %d of %d", k, len(j.ops)), bytes.Clone(now)) {
				return
			}
			for _, n := range o.tears() {
				if !yield(fmt.Sprintf("killed in op %d of %d, after %d of its %d bytes", k, len(j.ops), n, len(o.p)), o.front(n).onto(bytes.Clone(now))) {
					return
				}
			}
			now = o.onto(now)
			if o.kind == 's' {
				synced, last = bytes.Clone(now), k+1
				continue
			}
			for round := range powerRounds {
				if k == last && round < 2 {
					continue // that state is the same as after a kill
				}
				b := bytes.Clone(synced)
				for i, p := range j.ops[last : k+1] {
					switch {
					case round == 0 && i == k-last, round == 1 && i > 0:
						b = p.onto(b)
					case round > 1:
						b = p.fate(b, int64(len(synced)), rnd)
					}
				}
				if !yield(fmt.Sprintf("power lost after op %d of %d, round %d of seed %d", k, len(j.ops), round, seed), b) {
					return
				}
			}
		}
		yield("done", now)
	}
}

// powerRounds is the number of power failures after each op: one that keeps only the last op, one
// that loses only the first op after the sync, and random ones.
const powerRounds = 4
