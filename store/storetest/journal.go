package storetest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/holdall/holdall/store"
)

// A Journal is a store that remembers what an amendment does to an object, and
// can tell all states in which a crash might have left it.
type Journal struct {
	*Mem
	start []byte
	ops   []op
}

// An op is a write, or what its kind says.
type op struct {
	kind byte // 'w', 't'runcate, 's'ync
	off  int64
	p    []byte
}

// NewJournal returns a journal over m. It is for one amendment of one object.
func NewJournal(m *Mem) *Journal { return &Journal{Mem: m} }

// Amend opens an object for changes, which are remembered from here on.
func (j *Journal) Amend(ctx context.Context, name string) (store.Amendment, error) {
	a, err := j.Mem.Amend(ctx, name)
	if err != nil {
		return nil, err
	}
	if j.start == nil {
		j.start = j.Get(name)
	}
	return &journaled{a, j}, nil
}

type journaled struct {
	store.Amendment
	j *Journal
}

func (a *journaled) WriteAt(ctx context.Context, p []byte, off int64) error {
	err := a.Amendment.WriteAt(ctx, p, off)
	if err == nil {
		a.j.ops = append(a.j.ops, op{'w', off, bytes.Clone(p)})
	}
	return err
}

func (a *journaled) Truncate(ctx context.Context, size int64) error {
	err := a.Amendment.Truncate(ctx, size)
	if err == nil {
		a.j.ops = append(a.j.ops, op{'t', size, nil})
	}
	return err
}

func (a *journaled) Sync(ctx context.Context) error {
	err := a.Amendment.Sync(ctx)
	if err == nil {
		a.j.ops = append(a.j.ops, op{kind: 's'})
	}
	return err
}

// Ops returns how many writes, truncations and syncs there were.
func (j *Journal) Ops() int { return len(j.ops) }

const sector = 512

// do carries out the first keep bytes of an op; of a write behind the end, which
// the loss of an earlier one may leave, the hole is zeros.
func (o op) do(b []byte, keep int) []byte {
	switch o.kind {
	case 'w':
		return patched(b, o.p[:keep], o.off)
	case 't':
		if o.off < int64(len(b)) {
			return b[:o.off:o.off]
		}
		return append(bytes.Clone(b), make([]byte, o.off-int64(len(b)))...)
	}
	return b
}

// whole reports whether an op is carried out whole or not at all.
func (o op) whole() bool {
	return o.kind != 'w' || len(o.p) == 0 || o.off/sector == (o.off+int64(len(o.p))-1)/sector
}

// States yields what a crash may leave, each with words that tell it again: the
// process is killed after an op, or within a write; the power fails, and of the
// writes since the last sync some are there and some are not.
func (j *Journal) States(seed uint64) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		now, synced, last := j.start, j.start, 0
		for k, o := range j.ops {
			if !yield(fmt.Sprintf("killed before op %d of %d", k, len(j.ops)), now) {
				return
			}
			if !o.whole() {
				for _, keep := range tears(o) {
					if !yield(fmt.Sprintf("killed in op %d of %d, after %d of its %d bytes", k, len(j.ops), keep, len(o.p)), o.do(now, keep)) {
						return
					}
				}
			}
			now = o.do(now, len(o.p))
			if o.kind == 's' {
				synced, last = now, k+1
				continue
			}
			for round := range min(4, 1<<(k-last)) {
				b := synced
				for i, p := range j.ops[last : k+1] {
					there := rnd.IntN(2) == 0
					switch round {
					case 0:
						there = i == k-last // only the last one
					case 1:
						there = i > 0 // all but the first
					}
					keep := len(p.p)
					if there && !p.whole() && rnd.IntN(3) == 0 {
						keep = rnd.IntN(keep)
					}
					if there {
						b = p.do(b, keep)
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

// tears are places to cut a write at.
func tears(o op) (at []int) {
	n := len(o.p)
	mid := int(sector - (o.off+int64(n/2))%sector)
	for _, k := range []int{1, n/2 + mid, n / 2, n - 1} {
		if k > 0 && k < n {
			at = append(at, k)
		}
	}
	return at
}
