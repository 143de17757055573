package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const at = "packed/photos.catalog"

// memory is a store whose objects have addresses.
type memory struct{ *storetest.Mem }

func newMemory() memory { return memory{&storetest.Mem{}} }

func (m memory) Can() store.Abilities {
	can := m.Mem.Can()
	can.Address = func(name string) string { return "mem://" + name }
	return can
}

func (m memory) Clone() memory { return memory{m.Mem.Clone()} }

func created(t testing.TB, st store.Store) *Book {
	t.Helper()
	b, err := Create(t.Context(), st, at)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opened(t testing.TB, st store.Store, o Options) *Book {
	t.Helper()
	b, err := Open(t.Context(), st, at, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// addition is an archive with some files.
func addition(rnd *rand.Rand, address string, names ...string) catalog.Addition {
	var all []catalog.Location
	for _, n := range names {
		all = append(all, catalog.Location{Path: n, Size: rnd.Int64N(1000), Raw: true, Off: rnd.Int64N(1000), Modified: time.Unix(rnd.Int64N(1e9), 0).UTC(), ETag: fmt.Sprintf(`"%x"`, rnd.Uint64()),
			Digest: format.Digest{Algo: "blake3", Sum: fmt.Sprintf("%032d", rnd.Uint64())}, HeaderText: fmt.Sprintf(`{"content-type":"t/%d"}`, rnd.IntN(3))})
	}
	return catalog.Addition{Archive: catalog.Archive{Address: address, Format: "caf", Size: 1 << 20, Version: fmt.Sprint(rnd.Uint64())}, Rows: listed(all)}
}

func listed(all []catalog.Location) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// A seen is what a reader sees of a file.
type seen struct {
	address  string
	location catalog.Location // without archive and version
	// 2N if the file was listed after commit N, and 2N+1 if what began after commit N has added it.
	seq      int64
	original rows.Original
}

// model is what there is to be: files by name, of each the newest last.
type model struct {
	files    map[string][]seen
	archives map[string]catalog.Archive
	deleted  map[string]int64

	additions map[string]catalog.Addition // what is there of archives, whether they are in the catalogue or not
	begun     []int64                     // listings
}

func newModel() *model {
	return &model{files: map[string][]seen{}, archives: map[string]catalog.Archive{}, deleted: map[string]int64{}, additions: map[string]catalog.Addition{}}
}

func (m *model) clone() *model {
	n := &model{files: map[string][]seen{}, archives: maps.Clone(m.archives), deleted: maps.Clone(m.deleted), additions: maps.Clone(m.additions), begun: slices.Clone(m.begun)}
	for k, v := range m.files {
		n.files[k] = slices.Clone(v)
	}
	return n
}

func (m *model) move(to Move) {
	for a := range maps.Clone(m.archives) {
		if is := string(to.of(text(a))); is != a {
			m.archives[is] = m.archives[a]
			delete(m.archives, a)
			for n := range m.files {
				for i := range m.files[n] {
					m.files[n][i].address = string(to.of(text(m.files[n][i].address)))
				}
			}
		}
	}
}

func (m *model) remove(address string) {
	delete(m.archives, address)
	for n := range m.files {
		if m.files[n] = slices.DeleteFunc(m.files[n], func(s seen) bool { return s.address == address }); len(m.files[n]) == 0 {
			delete(m.files, n)
		}
	}
}

func (m *model) add(seq int64, all ...catalog.Addition) {
	for _, a := range all {
		m.remove(a.Address)
	}
	for _, a := range all {
		m.archives[a.Address], m.additions[a.Address] = a.Archive, a
		for l := range a.Rows {
			m.files[l.Path] = slices.DeleteFunc(m.files[l.Path], func(s seen) bool { return s.address == a.Address })
			if m.put(a.Address, seq, l, rows.Stays); len(m.files[l.Path]) == 0 {
				delete(m.files, l.Path)
			}
		}
	}
}

// put adds a file after those that are not newer.
func (m *model) put(address string, seq int64, l catalog.Location, original rows.Original) {
	if seq < m.deleted[l.Path] {
		return
	}
	l.Seq = 0
	some, i := m.files[l.Path], 0
	for i < len(some) && some[i].seq <= seq {
		i++
	}
	m.files[l.Path] = slices.Insert(some, i, seen{address, l, seq, original})
}

// forgetOriginals is what a catalogue knows that is made again.
func (m *model) forgetOriginals() {
	for _, some := range m.files {
		for i := range some {
			some[i].original = rows.Stays
		}
	}
}

// difference is how a catalogue differs from a model.
func (m *model) difference(ctx context.Context, b *Book) error {
	m = m.clone()
	all, err := b.Archives(ctx)
	if err != nil {
		return err
	}
	is := map[int64]string{}
	var entries int64
	for _, a := range all {
		was, ok := m.archives[a.Address]
		if !ok || was.Version != a.Version || was.Size != a.Size || was.Format != a.Format {
			return fmt.Errorf("archive %+v, expected %+v", a, was)
		}
		is[a.ID] = a.Address
		entries += a.Entries
	}
	if len(all) != len(m.archives) {
		return fmt.Errorf("%d archives, expected %d", len(all), len(m.archives))
	}
	s, err := b.State(ctx)
	if err != nil {
		return err
	}
	if s.Entries != entries || s.Bytes != int64(len(all))<<20 {
		return fmt.Errorf("%d entries of %d bytes, expected %d of %d", s.Entries, s.Bytes, entries, len(all)<<20)
	}
	found := map[string]seen{}
	last := ""
	for l, err := range b.Below(ctx, "") {
		if err != nil {
			return err
		}
		if l.Path <= last && last != "" {
			return fmt.Errorf("%q after %q", l.Path, last)
		}
		last = l.Path
		address, original := is[l.Archive], rows.Stays
		switch {
		case l.Original == catalog.OriginalLeaving:
			original = rows.Leaving
		case l.Original == catalog.OriginalLingers:
			original = rows.Lingers
		case l.Unseen:
			original = rows.Unseen
		case l.Missing:
			original = rows.Missing
		}
		l.Archive, l.Seq, l.Original, l.Missing, l.Unseen, l.Since = 0, 0, 0, false, false, 0
		found[l.Path] = seen{address, l, 0, original}
	}
	for name, f := range m.files {
		newest := f[len(f)-1]
		if newest.seq = 0; found[name] != newest {
			return fmt.Errorf("%q: %+v, expected %+v", name, found[name], newest)
		}
		holders, err := b.Holders(ctx, name)
		if err != nil || len(holders) != len(f) {
			return fmt.Errorf("%q: %d holders, expected %d: %v", name, len(holders), len(f), err)
		}
		for i, h := range holders {
			if h.In.Address != f[len(f)-1-i].address {
				return fmt.Errorf("%q: holder %d is %s", name, i, h.In.Address)
			}
		}
	}
	for l, err := range b.Versions(ctx, "", "") { // those that were not deleted come first, and are the holders
		some := m.files[l.Path]
		is, n := is[l.Archive], len(some)-1
		if err != nil || !l.Gone && (n < 0 || is != some[n].address) || l.Gone && (n >= 0 || is == "") {
			return fmt.Errorf("%q: version %d in %q, gone %v, expected %+v: %v", l.Path, l.Seq, is, l.Gone, some, err)
		}
		if n >= 0 {
			m.files[l.Path] = some[:n]
		}
	}
	for name, left := range m.files {
		if len(left) > 0 {
			return fmt.Errorf("%q: no version in %q", name, left[0].address)
		}
	}
	if len(found) != len(m.files) {
		return fmt.Errorf("%d files, expected %d", len(found), len(m.files))
	}
	if _, err := b.Newest(ctx, "nowhere"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a file that is not there: %v", err)
	}
	return nil
}

const sweeps = "gc"

// A step changes a catalogue and the model.
type step struct {
	what  string
	do    func(ctx context.Context, b *Book) error
	model func(m *model)
}

// fleetSteps are what fleets do with a catalogue that is to be like the model.
func fleetSteps(rnd *rand.Rand, m *model) step {
	address := fmt.Sprintf("mem://packed/%x.caf", rnd.Uint64())
	base := int64(0)
	switch kind := rnd.IntN(4); {
	case kind == 0 || kind == 1 && len(m.begun) == 0:
		return step{"begin", func(ctx context.Context, b *Book) error {
			done, err := b.Do(ctx, Step{Begins: true})
			base = done.Number
			return err
		}, func(m *model) {
			if base > 0 {
				m.begun = append(m.begun, base)
			}
		}}
	case kind == 1: // as often as a job is done, it is done once
		i := rnd.IntN(len(m.begun))
		seq := m.begun[i]
		a := addition(rnd, address, randomNames(rnd)...)
		given, late := a.Rows, false
		a.Rows = func(yield func(catalog.Location, error) bool) {
			for l := range given {
				if l.Seq = seq; !yield(l, nil) {
					return
				}
			}
		}
		return step{"pack", func(ctx context.Context, b *Book) error {
			for {
				_, err := b.Do(ctx, Step{Job: address, Since: seq, Add: []catalog.Addition{a}})
				if late = errors.Is(err, ErrLate); late {
					return nil
				}
				if errors.Is(err, ErrDone) {
					return nil
				}
				if err != nil || rnd.IntN(2) == 0 {
					return err
				}
			}
		}, func(m *model) {
			if i := slices.Index(m.begun, seq); i >= 0 {
				m.begun = slices.Delete(m.begun, i, i+1)
			}
			if !late {
				m.add(2*seq, a)
			}
		}}
	case kind == 2: // compact
		var from []string
		for _, a := range slices.Sorted(maps.Keys(m.archives)) {
			if rnd.IntN(4) == 0 {
				from = append(from, a)
			}
		}
		return step{fmt.Sprint("compact ", len(from)), func(ctx context.Context, b *Book) error {
			a := catalog.Addition{Archive: catalog.Archive{Address: address, Format: "caf", Size: 1 << 20, Version: "v"}}
			all, err := b.Archives(ctx)
			if err != nil {
				return err
			}
			x := Step{Job: address}
			for _, a := range all {
				if slices.Contains(from, a.Address) {
					x.Instead = append(x.Instead, a.ID)
				}
			}
			a.Rows = func(yield func(catalog.Location, error) bool) {
				for l, err := range b.Between(ctx, "", "", nil) {
					if err == nil && !slices.Contains(x.Instead, l.Archive) {
						continue
					}
					if !yield(l, err) {
						return
					}
				}
			}
			x.Add = []catalog.Addition{a}
			if _, err = b.Do(ctx, x); errors.Is(err, ErrDone) {
				err = nil
			}
			return err
		}, func(m *model) {
			a, moved := catalog.Addition{Archive: catalog.Archive{Address: address, Format: "caf", Size: 1 << 20, Version: "v"}}, map[string]seen{}
			var all []catalog.Location
			for _, name := range slices.Sorted(maps.Keys(m.files)) {
				if some := m.files[name]; slices.Contains(from, some[len(some)-1].address) {
					moved[name] = some[len(some)-1]
					all = append(all, moved[name].location)
				}
			}
			for _, address := range from {
				m.remove(address)
			}
			a.Rows = listed(all)
			m.archives[address], m.additions[address] = a.Archive, a
			for _, s := range moved {
				m.put(address, s.seq, s.location, s.original)
			}
		}}
	}
	names, original := randomNames(rnd), rows.Original(rnd.IntN(5))
	return step{fmt.Sprintf("%q are %d", names, original), func(ctx context.Context, b *Book) error {
		_, err := b.Do(ctx, Step{Rows: func(yield func(*rows.Row, error) bool) {
			for l, err := range b.Between(ctx, "", "", nil) {
				if err == nil && !slices.Contains(names, l.Path) {
					continue
				}
				if !yield(&rows.Row{Name: l.Path, What: rows.Fate, Of: l.Seq, Original: original}, err) {
					return
				}
			}
		}})
		return err
	}, func(m *model) {
		for _, n := range names {
			some := m.files[n]
			for i := range some {
				if some[i].seq == some[len(some)-1].seq {
					some[i].original = original
				}
			}
		}
	}}
}

func randomNames(rnd *rand.Rand) (all []string) {
	for range rnd.IntN(9) {
		all = append(all, []string{"a", "b/c", "b/d", "é", "\xff", "a\x00b", "a\x00", "dir/"}[rnd.IntN(8)]+fmt.Sprint(rnd.IntN(12)))
	}
	return all
}

func steps(rnd *rand.Rand, moves bool) step {
	base := int64(0) // before what is done
	begin := func(ctx context.Context, b *Book) error {
		err := b.follow(ctx)
		base = b.current().Number
		return err
	}
	kind := rnd.IntN(8)
	if kind == 1 && !moves {
		kind = 7
	}
	switch kind {
	case 0:
		address := fmt.Sprintf("mem://packed/%d.caf", rnd.IntN(12))
		return step{"remove " + address, func(ctx context.Context, b *Book) error {
			_, err := b.Remove(ctx, address)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}, func(m *model) { m.remove(address) }}
	case 1:
		old, now := fmt.Sprintf("mem://packed/%d", rnd.IntN(12)), fmt.Sprintf("mem://moved-%d/%d", rnd.IntN(1000), rnd.IntN(12))
		return step{"relocate " + old, func(ctx context.Context, b *Book) error {
			_, err := b.Relocate(ctx, old, now)
			return err
		}, func(m *model) { m.move(Move{Old: text(old), New: text(now)}) }}
	case 2:
		return step{sweeps, func(ctx context.Context, b *Book) error {
			_, err := b.GC(ctx, 0, false)
			return err
		}, func(*model) {}}
	case 3:
		paths := randomNames(rnd)
		return step{fmt.Sprintf("delete %q", paths), func(ctx context.Context, b *Book) error {
			err := begin(ctx, b)
			if err == nil {
				_, err = b.Delete(ctx, paths)
			}
			return err
		}, func(m *model) {
			for _, p := range paths {
				if len(m.files[p]) > 0 {
					m.deleted[p] = 2*base + 1
				}
				delete(m.files, p)
			}
		}}
	}
	var all []catalog.Addition
	for i := range 1 + rnd.IntN(3) {
		all = append(all, addition(rnd, fmt.Sprintf("mem://packed/%d.caf", i+4*rnd.IntN(3)), randomNames(rnd)...))
	}
	slices.SortFunc(all, func(a, b catalog.Addition) int { return strings.Compare(a.Address, b.Address) })
	all = slices.CompactFunc(all, func(a, b catalog.Addition) bool { return a.Address == b.Address })
	return step{fmt.Sprint("add ", len(all)), func(ctx context.Context, b *Book) error {
		err := begin(ctx, b)
		if err == nil {
			_, err = b.Add(ctx, all...)
		}
		return err
	}, func(m *model) { m.add(2*base+1, all...) }}
}

// Two writers change a catalogue. One of them may be killed at any request. Readers that begin with
// any head, or with none, and with some of the states, see what was acknowledged.
func TestHistories(t *testing.T) {
	testkit.Serial(t)
	for seed := range testkit.Steps(t, 100) {
		rnd := rand.New(rand.NewPCG(uint64(seed), 7))
		history(t, rnd, fmt.Sprint("seed ", seed))
		if t.Failed() || seed > 1000 {
			return
		}
	}
}

func history(t *testing.T, rnd *rand.Rand, label string) {
	st, moves := newMemory(), rnd.IntN(3) == 0
	books := []*Book{created(t, st), nil}
	books[1] = opened(t, st, Options{Write: true})
	for _, b := range books {
		b.o.inline = []int{0, 400, mostInline}[rnd.IntN(3)]
		b.o.Now = func() time.Time { return time.Now().Add(time.Duration(rnd.IntN(3)) * time.Second) }
	}
	var heads [][]byte
	m := newModel()
	for n := range 12 + rnd.IntN(60) {
		s := steps(rnd, moves)
		if rnd.IntN(3) == 0 {
			s = fleetSteps(rnd, m)
		}
		i := rnd.IntN(2)
		if rnd.IntN(4) == 0 {
			k := storetest.Kill(st, rnd.IntN(12))
			b, err := Open(t.Context(), k, at, Options{Write: true})
			if err == nil {
				b.o.inline = books[i].o.inline
				err = s.do(t.Context(), b)
			}
			if k.Dead() != errors.Is(err, storetest.ErrKilled) || !k.Dead() && err != nil {
				t.Fatalf("%s: step %d, %s: %v", label, n, s.what, err)
			}
			if s.what == sweeps {
				heads = nil
			}
			now := m.clone()
			s.model(now)
			fresh := opened(t, st, Options{})
			if done := now.difference(t.Context(), fresh); done == nil {
				m = now
			} else if err := m.difference(t.Context(), fresh); err != nil || !k.Dead() {
				t.Fatalf("%s: step %d, %s, killed: neither %v nor %v", label, n, s.what, err, done)
			}
			continue
		}
		if err := s.do(t.Context(), books[i]); err != nil {
			t.Fatalf("%s: step %d, %s: %v", label, n, s.what, err)
		}
		s.model(m)
		if s.what == sweeps {
			heads = nil
		}
		heads = append(heads, st.Get(at+"/head"))
		left := st.Clone()
		switch rnd.IntN(4) {
		case 0:
			left.Put(at+"/head", heads[rnd.IntN(len(heads))])
		case 1:
			_ = left.Remove(t.Context(), at+"/head")
		case 2:
			_ = left.Remove(t.Context(), at+"/head")
			for info := range left.List(t.Context(), at+"/states/") {
				if rnd.IntN(2) == 0 {
					_ = left.Remove(t.Context(), info.Name)
				}
			}
		}
		for _, b := range []*Book{opened(t, left, Options{}), opened(t, left, Options{Write: true}), books[1-i]} {
			if err := m.difference(t.Context(), b); err != nil {
				t.Fatalf("%s: step %d, %s: %v", label, n, s.what, err)
			}
		}
	}
	// Everything is lost but the archives and what lies beside them.
	if !moves {
		opened(t, st, Options{Write: true}).Commit(t.Context(), func(*State) (*Commit, error) { return &Commit{}, nil }) // notes what a killed writer has not
		for info := range st.List(t.Context(), at+"/") {
			_ = st.Remove(t.Context(), info.Name)
		}
		m.forgetOriginals()
		if err := m.difference(t.Context(), rebuilt(t, st, m)); err != nil {
			t.Fatalf("%s: made again: %v", label, err)
		}
	}
	if s := books[0].current(); len(s.Runs) > 3*8 {
		t.Errorf("%s: %d runs", label, len(s.Runs))
	}
}

// rebuilt is a catalogue that is made again.
func rebuilt(t *testing.T, st memory, m *model) *Book {
	t.Helper()
	b := created(t, st)
	all, _, err := Records(t.Context(), st, "packed", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Follow(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Archive != "" {
			if a, ok := m.additions[r.Archive]; ok {
				a.Rows = r.Numbered(a.Rows)
				_, err = b.Add(t.Context(), a)
			}
		}
		for _, a := range r.Dropped {
			if _, err := b.Remove(t.Context(), a); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if len(r.Deleted) > 0 && err == nil {
			_, err = b.Do(t.Context(), Step{Rows: r.Deletions})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// A commit that is missing, damaged or another one stops readers by name.
func TestAGapIsNoticed(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	b := created(t, st)
	for i := range 5 {
		if _, err := b.Add(t.Context(), addition(rnd, fmt.Sprintf("packed/%d.caf", i), "a", "b")); err != nil {
			t.Fatal(err)
		}
	}
	other := &storetest.Mem{}
	o := created(t, other)
	if _, err := o.Add(t.Context(), addition(rnd, "packed/0.caf", "a")); err != nil {
		t.Fatal(err)
	}
	early := st.Clone()
	for i := range 2 * stateEvery {
		if _, err := b.Add(t.Context(), addition(rnd, fmt.Sprintf("packed/%d.caf", i), "a", "b")); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Add(t.Context(), addition(rnd, fmt.Sprintf("packed/%d.caf", i), "a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Close(), o.Close()); err != nil { // which writes the heads
		t.Fatal(err)
	}
	state := func(st *storetest.Mem) string {
		last := ""
		for info := range st.List(t.Context(), at+"/states/") {
			last = info.Name
		}
		return last
	}
	withoutHead := func(st *storetest.Mem) { _ = st.Remove(t.Context(), at+"/head") }
	for name, c := range map[string]struct {
		of     *storetest.Mem
		damage func(st *storetest.Mem)
		object string
	}{
		"missing": {early, func(st *storetest.Mem) { withoutHead(st); _ = st.Remove(t.Context(), at+"/"+commitName(3)) }, commitName(3)},
		"damaged": {early, func(st *storetest.Mem) {
			withoutHead(st)
			c := slices.Clone(st.Get(at + "/" + commitName(3)))
			c[rnd.IntN(len(c))] ^= 1
			st.Put(at+"/"+commitName(3), c)
		}, commitName(3)},
		"foreign": {early, func(st *storetest.Mem) {
			withoutHead(st)
			st.Put(at+"/"+commitName(2), other.Get(at+"/"+commitName(2)))
		}, commitName(2)},
		"a newer head than there are commits": {early, func(s *storetest.Mem) { s.Put(at+"/head", st.Get(at+"/head")) }, "commits/"},
		"a head of another":                   {early, func(s *storetest.Mem) { s.Put(at+"/head", other.Get(at+"/head")) }, "commits/"},
		"a head of another with as many commits": {st, func(s *storetest.Mem) {
			s.Put(at+"/head", other.Get(at+"/head"))
			for info := range st.List(t.Context(), at+"/commits/") {
				if other.Get(info.Name) == nil {
					_ = s.Remove(t.Context(), info.Name)
				}
			}
		}, "commits/"},
		"a state of another": {st, func(s *storetest.Mem) {
			withoutHead(s)
			s.Put(state(s), other.Get(state(other)))
		}, "commits/"},
	} {
		left := c.of.Clone()
		c.damage(left)
		_, err := Open(t.Context(), left, at, Options{Write: true})
		if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), c.object) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), &storetest.Mem{}, at, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no catalogue: %v", err)
	}
	if _, err := Create(t.Context(), st, at); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made again: %v", err)
	}
}

// A catalogue that was put back from an older copy is not written to, and is read as it is.
func TestAnOlderCopyIsNoticed(t *testing.T) {
	rnd := testkit.Rand(t)
	later := map[string]func(t *testing.T, b *Book) error{
		"an addition": func(t *testing.T, b *Book) error {
			_, err := b.Add(t.Context(), addition(rnd, "mem://packed/later.caf", "c"))
			return err
		},
		"a deletion": func(t *testing.T, b *Book) error {
			_, err := b.Delete(t.Context(), []string{"a"})
			return err
		},
		"a removal": func(t *testing.T, b *Book) error {
			_, err := b.Remove(t.Context(), "mem://packed/0.caf")
			return err
		},
		"a run": func(t *testing.T, b *Book) error {
			b.o.inline = 0
			for i := range 2 { // the second has the first one's commit in its name
				if _, err := b.Add(t.Context(), addition(rnd, fmt.Sprintf("s3://elsewhere/%d.caf", i), "d")); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, do := range later {
		for _, closed := range []bool{false, true} { // one that is not closed is killed within a second
			t.Run(fmt.Sprintf("%s, %v", name, closed), func(t *testing.T) {
				st := newMemory()
				b := created(t, st)
				if _, err := b.Add(t.Context(), addition(rnd, "mem://packed/0.caf", "a", "b")); err != nil {
					t.Fatal(err)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				copied := map[string][]byte{}
				for info := range st.List(t.Context(), at+"/") {
					copied[info.Name] = st.Get(info.Name)
				}
				problems := func(b *Book) (all []string) {
					t.Helper()
					if err := b.Check(t.Context(), func(problem string) { all = append(all, problem) }); err != nil {
						t.Fatal(err)
					}
					return all
				}
				b = opened(t, st, Options{Write: true})
				b.wrote = time.Now().Add(time.Hour) // the head, so it does not again
				if err := do(t, b); err != nil {
					t.Fatal(err)
				}
				if closed {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if found := problems(opened(t, st, Options{})); len(found) > 0 {
					t.Fatal(found)
				}
				for info := range st.List(t.Context(), at+"/") {
					if !strings.Contains(info.Name, "/runs/") {
						_ = st.Remove(t.Context(), info.Name)
					}
				}
				for name, content := range copied {
					st.Put(name, content)
				}
				reader := opened(t, st, Options{})
				if _, err := reader.Newest(t.Context(), "a"); err != nil {
					t.Error(err)
				}
				found := problems(reader)
				if len(found) != 1 || !strings.Contains(found[0], "older copy") || !strings.Contains(found[0], "'holdall catalog rebuild'") {
					t.Errorf("check: %q", found)
				}
				w, err := Open(t.Context(), st, at, Options{Write: true})
				if closed {
					if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), goneSuffix+"/last-") || !strings.Contains(err.Error(), "the last one is 2") {
						t.Errorf("%v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				// A writer that goes on makes other commits of these numbers.
				for range 3 {
					if _, err := w.Add(t.Context(), addition(rnd, "mem://packed/other.caf", "e")); err != nil {
						t.Fatal(err)
					}
				}
				if found = problems(w); name != "a run" && (len(found) != 1 || !strings.Contains(found[0], "another commit 3")) {
					t.Errorf("check, later: %q", found)
				}
			})
		}
	}
}

// careless replaces objects that are to be created once.
type careless struct{ *storetest.Mem }

func (c careless) Can() store.Abilities {
	can := c.Mem.Can()
	create := can.Create
	can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		wish.Once = false
		return create(ctx, name, wish)
	}
	return can
}

func TestACarelessServerIsRefused(t *testing.T) {
	st := careless{&storetest.Mem{}}
	if _, err := Create(t.Context(), st, at); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("%v", err)
	}
	for info := range st.List(t.Context(), "") {
		t.Errorf("%s is there", info.Name)
	}
}

// lossy loses requests that create objects, or the answers to them.
type lossy struct {
	memory
	*dice
}

// Dice may be thrown by several at once.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (d *dice) throw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

func (l lossy) Can() store.Abilities {
	can := l.memory.Can()
	create := can.Create
	can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := create(ctx, name, wish)
		return lossyWriter{w, l.dice}, err
	}
	return can
}

type lossyWriter struct {
	store.Writer
	*dice
}

func (w lossyWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w lossyWriter) Commit(ctx context.Context) (store.Info, error) {
	lost := &store.Error{Op: "write", Off: -1, Retry: true, Err: errors.New("connection reset")}
	switch w.throw(8) {
	case 0:
		return store.Info{}, lost
	case 1:
		if _, err := w.Writer.Commit(ctx); err != nil {
			return store.Info{}, err
		}
		return store.Info{}, lost
	}
	return w.Writer.Commit(ctx)
}

// A commit whose answer is lost is there once. A commit that returns an error is not there.
func TestLostAnswers(t *testing.T) {
	rnd := testkit.Rand(t)
	st := newMemory()
	created(t, st)
	b := opened(t, lossy{st, &dice{rnd: rnd}}, Options{Write: true})
	m, failed := newModel(), 0
	for n := range 300 {
		s := steps(rnd, true)
		if rnd.IntN(3) == 0 {
			s = fleetSteps(rnd, m)
		}
		if s.what == sweeps {
			continue
		}
		err := s.do(t.Context(), b)
		now := m.clone()
		s.model(now)
		is := now.difference(t.Context(), opened(t, st, Options{}))
		switch {
		case is == nil:
			m = now
		case err == nil:
			t.Fatalf("step %d, %s: %v", n, s.what, is)
		default: // it may have been refused, or have been done in part
			if m.difference(t.Context(), opened(t, st, Options{})) != nil && !strings.HasPrefix(s.what, "delete") {
				t.Fatalf("step %d, %s failed: %v: %v", n, s.what, err, is)
			}
		}
		if err != nil {
			failed++
		}
	}
	if failed > 250 {
		t.Errorf("%d of 300 failed", failed)
	}
}

// A reader that has read no list of archives finds those that were moved.
func TestMovedArchivesAreFound(t *testing.T) {
	rnd := testkit.Rand(t)
	st := newMemory()
	b := created(t, st)
	var all []catalog.Addition
	for i := range headArchives + 50 {
		var names []string
		for k := range 60 {
			names = append(names, fmt.Sprintf("%d/file%d", i, k))
		}
		all = append(all, addition(rnd, fmt.Sprintf("s3://old/%d.caf", i), names...))
	}
	if _, err := b.Add(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Relocate(t.Context(), "s3://old/", "s3://new/"); err != nil || n != len(all) {
		t.Fatal(n, err)
	}
	if _, err := b.Relocate(t.Context(), "s3://new/1", "s3://newer/1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	r := opened(t, st, Options{Fresh: time.Hour})
	if r.current().Elsewhere == 0 {
		t.Fatal("the head has all archives")
	}
	for i, want := range map[int]string{7: "s3://new/7.caf", 12: "s3://newer/12.caf"} {
		f, err := r.Newest(t.Context(), fmt.Sprintf("%d/file7", i))
		if err != nil || f.In.Address != want {
			t.Errorf("%+v, %v", f.In, err)
		}
	}
	if r.current().Elsewhere == 0 {
		t.Error("all archives were read")
	}
	// A reader that stays open follows.
	long := opened(t, st, Options{})
	for i, want := range []string{"s3://new/7.caf", "s3://there/7.caf"} {
		if i == 1 {
			if _, err := b.Relocate(t.Context(), "s3://new/7", "s3://there/7"); err != nil {
				t.Fatal(err)
			}
		}
		if f, err := long.Newest(t.Context(), "7/file7"); err != nil || f.In.Address != want {
			t.Errorf("%+v, %v", f.In, err)
		}
	}
	all2, err := r.Archives(t.Context())
	if err != nil || len(all2) != len(all) || all2[12].Address != "s3://newer/12.caf" {
		t.Errorf("%d archives, %v", len(all2), err)
	}
}

// What began before the floor is refused: its objects may be gone.
func TestLateWorkIsRefused(t *testing.T) {
	rnd := testkit.Rand(t)
	st := newMemory()
	late := created(t, st)
	rows := addition(rnd, "mem://packed/late.caf", "a")
	given := rows.Rows
	rows.Rows = func(yield func(catalog.Location, error) bool) {
		b := opened(t, st, Options{Write: true})
		for i := range 3 {
			if _, err := b.Add(t.Context(), addition(rnd, fmt.Sprintf("mem://packed/%d.caf", i), "b")); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := b.GC(t.Context(), 0, false); err != nil || done.Floor != 4 {
			t.Fatalf("%+v, %v", done, err)
		}
		given(yield)
	}
	if _, err := late.Add(t.Context(), rows); err == nil || !strings.Contains(err.Error(), "do it again") {
		t.Errorf("%v", err)
	}
	if _, err := late.Add(t.Context(), addition(rnd, "mem://packed/late.caf", "a")); err != nil {
		t.Error(err)
	}
}

// Runs of work that may still be committed stay, although nothing refers to them.
func TestLateWorkKeepsItsRuns(t *testing.T) {
	rnd := testkit.Rand(t)
	st := newMemory()
	late := created(t, st)
	late.o.inline = 0
	late.o.Now = func() time.Time { // the run is there, and the commit is not
		b := opened(t, st, Options{Write: true})
		if done, err := b.GC(t.Context(), 24*time.Hour, false); err != nil || done != (Swept{}) {
			t.Fatalf("%+v, %v", done, err)
		}
		return time.Now()
	}
	if _, err := late.Add(t.Context(), addition(rnd, "mem://packed/late.caf", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, st, Options{}).Newest(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// racing lets another do something when the next commit is about to be created.
type racing struct {
	memory
	skip int // commits before that
	then func()
}

func (r *racing) Can() store.Abilities {
	can := r.memory.Can()
	create := can.Create
	can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		if do := r.then; do != nil && strings.Contains(name, "/commits/") {
			if r.skip--; r.skip < 0 {
				r.then = nil
				do()
			}
		}
		return create(ctx, name, wish)
	}
	return can
}

// Of two writers that create the same commit, one does it, and the other goes on from there.
func TestConflicts(t *testing.T) {
	rnd := testkit.Rand(t)
	for range 10 {
		st := newMemory()
		r := &racing{memory: st}
		created(t, st)
		slow, fast, m := opened(t, r, Options{Write: true}), opened(t, st, Options{Write: true}), newModel()
		next := func() step {
			for {
				if s := steps(rnd, false); strings.HasPrefix(s.what, "add") || strings.HasPrefix(s.what, "remove") {
					return s
				}
			}
		}
		for n := range 12 {
			second, first := next(), next()
			skip, done := rnd.IntN(2), false // the second commit of an addition merges runs
			other := func() {
				if done = true; skip > 0 {
					second.model(m)
				}
				if err := first.do(t.Context(), fast); err != nil {
					t.Fatal(err)
				}
				first.model(m)
			}
			r.skip, r.then = skip, other
			if err := second.do(t.Context(), slow); err != nil {
				t.Fatal(err)
			}
			switch r.then = nil; {
			case !done: // it has not committed as often
				skip = 1
				other()
			case skip == 0:
				second.model(m)
			}
			for _, b := range []*Book{opened(t, st, Options{}), slow, fast} {
				if err := m.difference(t.Context(), b); err != nil {
					t.Fatalf("round %d, %s while %s: %v", n, first.what, second.what, err)
				}
			}
		}
	}
}

// counted counts requests and bytes.
type counted struct {
	*storetest.Mem
	requests, bytes atomic.Int64
}

type countedObject struct {
	store.Object
	c *counted
}

func (c *counted) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := c.Mem.Open(ctx, name)
	if err != nil {
		c.requests.Add(1)
	}
	return countedObject{o, c}, err
}

func (c *counted) Can() store.Abilities { return store.Abilities{} }

func (o countedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.c.requests.Add(1)
	o.c.bytes.Add(int64(len(p)))
	return o.Object.ReadAt(ctx, p, off)
}

func (o countedObject) Can() store.ObjectAbilities {
	return store.ObjectAbilities{ReadEnd: func(ctx context.Context, p []byte, tail bool) (int, error) {
		o.c.requests.Add(1)
		info, err := o.Object.Info(ctx)
		if err != nil {
			return 0, err
		}
		n := int(min(info.Size, int64(len(p))))
		o.c.bytes.Add(int64(n))
		return n, o.Object.ReadAt(ctx, p[:n], 0)
	}}
}

// manyRows are files of which each thousand is in an archive.
func manyRows(n, first int) (all []catalog.Addition) {
	for a := range n / 1000 {
		rnd := rand.New(rand.NewPCG(uint64(a), uint64(first)))
		rows := func(yield func(catalog.Location, error) bool) {
			off := int64(0)
			for i := range 1000 {
				sum := make([]byte, 48)
				for k := range sum {
					sum[k] = byte(rnd.Uint32())
				}
				l := catalog.Location{Path: fmt.Sprintf("2026/%03d/photo-%08d.jpg", a, (a*1000+i)*7+first), Raw: true, Off: off, Size: rnd.Int64N(200_000), Digest: format.Digest{Algo: "blake3", Sum: string(sum[:32])}, ETag: fmt.Sprintf(`"%x"`, sum[32:]), Modified: time.Unix(1_790_000_000+rnd.Int64N(1e7), 0).UTC(), HeaderText: `{"content-type":"image/jpeg"}`}
				if off += l.Size; !yield(l, nil) {
					return
				}
			}
		}
		all = append(all, catalog.Addition{Archive: catalog.Archive{Address: fmt.Sprintf("packed/photos-%05d-%d.caf", a, first), Format: "caf", Size: 1 << 40, Version: fmt.Sprintf(`"%016x%016x"`, rnd.Uint64(), rnd.Uint64())}, Rows: rows})
	}
	return all
}

// From far away, a file among many is found in few requests: in one large run, and in eight.
func TestAFirstReadTakesFewRequests(t *testing.T) {
	testkit.Serial(t)
	for runs, c := range map[int]struct {
		small, large []int // rows of each run
		most, list   int64
	}{
		1: {[]int{100_000}, []int{1_000_000}, 3, 3}, // the content is one more
		8: {[]int{100_000, 40_000, 12_000, 6000, 5000, 2000, 1000, 1000}, []int{1_000_000, 200_000, 100_000, 30_000, 20_000, 10_000, 2000, 1000}, 6, 9},
	} {
		sizes := c.small
		if testkit.All(t) {
			sizes = c.large
		}
		st := &storetest.Mem{}
		b := created(t, st)
		var names []string
		for k, n := range sizes {
			all := manyRows(n, k)
			if _, err := b.Add(t.Context(), all...); err != nil {
				t.Fatal(err)
			}
			for l := range all[len(all)/2].Rows {
				names = append(names, l.Path)
				break
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.current().Runs); n != runs {
			t.Fatalf("%d runs, expected %d", n, runs)
		}
		for _, name := range names {
			far := &counted{Mem: st}
			b := opened(t, far, Options{Fresh: time.Hour})
			f, err := b.Newest(t.Context(), name)
			if err != nil || f.In.Format != "caf" || !strings.HasPrefix(f.In.Address, "packed/photos-") {
				t.Fatalf("%+v, %v", f, err)
			}
			first := far.requests.Load()
			k := 0
			for _, err := range b.ListFrom(t.Context(), "2026/000/", "", nil) {
				if err != nil {
					t.Fatal(err)
				}
				if k++; k == 1000 {
					break
				}
			}
			t.Logf("%d runs: %d requests, and %d for a list; %d bytes", runs, first, far.requests.Load()-first, far.bytes.Load())
			if first > c.most || k != 1000 || far.requests.Load()-first > c.list {
				t.Errorf("%d runs: %d requests, expected %d; then %d for a list of %d, expected %d", runs, first, c.most, far.requests.Load()-first, k, c.list)
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for b.Loop() {
		st := &storetest.Mem{}
		k := created(b, st)
		if _, err := k.Add(b.Context(), manyRows(100_000, 0)...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/row")
}

// far answers after some time.
type far struct {
	memory
	after    time.Duration
	requests *atomic.Int64
}

func (f far) wait(ctx context.Context) error {
	f.requests.Add(1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.after):
		return nil
	}
}

func (f far) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := f.memory.Open(ctx, name)
	if err != nil {
		return nil, errors.Join(f.wait(ctx), err)
	}
	return farObject{o, f}, nil
}

func (f far) Can() store.Abilities {
	can := f.memory.Can()
	create := can.Create
	can = store.Abilities{Address: can.Address, List: can.List}
	can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := create(ctx, name, wish)
		return farWriter{w, f}, err
	}
	return can
}

type farObject struct {
	store.Object
	f far
}

func (o farObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	return errors.Join(o.f.wait(ctx), o.Object.ReadAt(ctx, p, off))
}

func (o farObject) Can() store.ObjectAbilities {
	return store.ObjectAbilities{ReadEnd: func(ctx context.Context, p []byte, tail bool) (int, error) {
		info, err := o.Object.Info(ctx)
		n := int(min(info.Size, int64(len(p))))
		off := int64(0)
		if tail {
			off = info.Size - int64(n)
		}
		return n, errors.Join(o.f.wait(ctx), err, o.Object.ReadAt(ctx, p[:n], off))
	}}
}

type farWriter struct {
	store.Writer
	f far
}

func (w farWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w farWriter) Commit(ctx context.Context) (store.Info, error) {
	if err := w.f.wait(ctx); err != nil {
		return store.Info{}, err
	}
	return w.Writer.Commit(ctx)
}

// Two writers commit as often as they can to a store that is 20 ms away.
func BenchmarkTwoWritersFarAway(b *testing.B) {
	st := far{newMemory(), 20 * time.Millisecond, &atomic.Int64{}}
	rnd := testkit.Rand(b)
	var all [2][]catalog.Addition
	for w := range all {
		for range 16 {
			all[w] = append(all[w], addition(rnd, fmt.Sprintf("mem://packed/%d-%d.caf", w, len(all[w])), fmt.Sprintf("a%d", w)))
		}
	}
	if err := created(b, st.memory).Close(); err != nil {
		b.Fatal(err)
	}
	writers := [2]*Book{opened(b, st, Options{Write: true}), opened(b, st, Options{Write: true})}
	st.requests.Store(0)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for w, k := range writers {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				if _, err := k.Add(b.Context(), all[w][i%16]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "additions/s")
	b.ReportMetric(float64(opened(b, st.memory, Options{}).current().Number)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(st.requests.Load())/float64(b.N), "requests/addition")
}
