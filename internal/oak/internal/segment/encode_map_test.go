package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// wholeMap writes a map as the specification has it: of all children at once, which
// are in order.
func wholeMap(ctx context.Context, b *Builder, all []hashedChild, level int) (RecordID, error) {
	if len(all) <= leafMax || level == leafLevel {
		return b.done(b.leaf(ctx, all, level))
	}
	var bitmap uint32
	var buckets []RecordID
	n := len(all)
	for len(all) > 0 {
		index := mapIndex(all[0].hash, level)
		end := slices.IndexFunc(all, func(c hashedChild) bool { return mapIndex(c.hash, level) != index })
		if end < 0 {
			end = len(all)
		}
		id, err := wholeMap(ctx, b, all[:end], level+1)
		if err != nil {
			return RecordID{}, err
		}
		buckets, bitmap, all = append(buckets, id), bitmap|1<<index, all[end:]
	}
	return b.done(b.branch(ctx, level, n, bitmap, buckets))
}

func TestAMapOfAStreamIsThatOfAllAtOnce(t *testing.T) {
	const seed = 3
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	names := map[string][]string{
		"32": manyNames(32), "33": manyNames(33), "1025": manyNames(1025), "20000": manyNames(20000),
		"one hash": equalHashes(6), "many of one hash": equalHashes(9), "mixed": append(equalHashes(7), manyNames(2000)...),
	}
	for range 5 {
		var some []string
		for i := range r.IntN(5000) {
			some = append(some, fmt.Sprint(r.IntN(1000), "-", i))
		}
		names[fmt.Sprint(len(some), " by chance")] = some
	}
	for name, all := range names {
		t.Run(name, func(t *testing.T) {
			var children []Child
			var sorted []hashedChild
			for i, n := range all {
				children = append(children, Child{n, RecordID{ID{8: 0xA0}, int32(i)}})
				sorted = append(sorted, hashed(children[i]))
			}
			slices.SortFunc(sorted, hashedChild.compare)
			b, m := newTestBuilder(1)
			id, err := b.Map(t.Context(), children)
			made(t)(id, err)
			flush(t, b)
			whole, mWhole := newTestBuilder(1)
			want, err := wholeMap(t.Context(), whole, sorted, 0)
			made(t)(want, err)
			flush(t, whole)
			if id != want || len(m.order) != len(mWhole.order) {
				t.Fatalf("%v in %d segments, expected %v in %d", id, len(m.order), want, len(mWhole.order))
			}
			for i, f := range m.order {
				if !bytes.Equal(f.Data, mWhole.order[i].Data) {
					t.Errorf("segment %d differs", i)
				}
			}
		})
	}
}

func TestMapKeysAreInTheOrderOfMaps(t *testing.T) {
	names := append(append(manyNames(300), equalHashes(4)...), "", "a", "\U0001f600", "￮", "￮￮", "ä", "\x00", "a\x00b", "not \xff utf-8")
	for _, x := range names {
		kx := AppendMapKey(nil, x)
		if got, rest, ok := CutMapKey(append(bytes.Clone(kx), "rest"...)); got != asJava(x) || string(rest) != "rest" || !ok {
			t.Errorf("%q: the key says %q, %q behind it, %t", x, got, rest, ok)
		}
		for _, y := range names {
			got, want := bytes.Compare(kx, AppendMapKey(nil, y)), hashed(Child{Name: x}).compare(hashed(Child{Name: y}))
			if got != want {
				t.Errorf("%q, %q: keys compare as %d, expected %d", x, y, got, want)
			}
			if x != y && bytes.HasPrefix(AppendMapKey(nil, y), kx) {
				t.Errorf("%q: its key is the beginning of that of %q", x, y)
			}
		}
	}
}

func TestChildrenOutOfOrderAreRefused(t *testing.T) {
	a, z := "a", "b"
	if bytes.Compare(AppendMapKey(nil, a), AppendMapKey(nil, z)) > 0 {
		a, z = z, a
	}
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		names []string
		err   error
		want  string
	}{
		"another order":   {[]string{z, a}, nil, "in order"},
		"twice":           {[]string{a, a}, nil, "twice"},
		"an error":        {[]string{a, z}, lost, "lost"},
		"an error at one": {[]string{a}, lost, "lost"},
	} {
		b, _ := newTestBuilder(1)
		_, err := b.Children(t.Context(), func(yield func(Child, error) bool) {
			for _, n := range c.names {
				if !yield(Child{Name: n}, nil) {
					return
				}
			}
			if c.err != nil {
				yield(Child{}, c.err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// ofOneHash yields n names with the same hash. 14 pairs of letters make 2^14 of them.
func ofOneHash(n int) iter.Seq2[Child, error] {
	return func(yield func(Child, error) bool) {
		for i := range n {
			name := make([]byte, 0, 30)
			for bit := 14; bit >= 0; bit-- {
				if i>>bit&1 == 0 {
					name = append(name, "Aa"...)
				} else {
					name = append(name, "BB"...)
				}
			}
			if !yield(Child{string(name), RecordID{ID{8: 0xA0}, 1}}, nil) {
				return
			}
		}
	}
}

func TestNamesOfOneHashAreLimitedByWhatARecordHolds(t *testing.T) {
	b, m := newTestBuilder(1)
	c, err := b.Children(t.Context(), ofOneHash(16000))
	if err != nil || c.n != 16000 {
		t.Fatal(c.n, err)
	}
	flush(t, b)
	if got, err := NewReader(m).Map(t.Context(), c.id); err != nil || got.Len() != 16000 {
		t.Error(got.Len(), err)
	}
	b, _ = newTestBuilder(1)
	var e *Error
	if _, err := b.Children(t.Context(), ofOneHash(20000)); !errors.As(err, &e) || e.Class != Limit {
		t.Error(err)
	}
}

// dropping returns a Builder whose segments are counted and forgotten.
func dropping(segments *int) *Builder {
	b, _ := newTestBuilder(1)
	b.write = func(context.Context, Finished) error {
		*segments++
		return nil
	}
	return b
}

func TestChildrenAreNotHeldInMemory(t *testing.T) {
	const n = 300_000
	type packed struct {
		hash uint32
		i    int32
	}
	order := make([]packed, n)
	name := func(i int32) string { return fmt.Sprintf("a name of some length %d", i) }
	for i := range order {
		order[i] = packed{mapHash(name(int32(i))), int32(i)}
	}
	slices.SortFunc(order, func(a, b packed) int {
		return hashedChild{Child: Child{Name: name(a.i)}, hash: a.hash}.compare(hashedChild{Child: Child{Name: name(b.i)}, hash: b.hash})
	})
	segments := 0
	b := dropping(&segments)
	before, most := testkit.Live(), uint64(0)
	c, err := b.Children(t.Context(), func(yield func(Child, error) bool) {
		for k, p := range order {
			if k%50_000 == 49_999 {
				most = max(most, testkit.Live())
			}
			if !yield(Child{name(p.i), RecordID{ID{8: 0xA0, 15: byte(k % 50)}, p.i}}, nil) {
				return
			}
		}
	})
	if err != nil || c.n != n || segments == 0 {
		t.Fatal(c.n, segments, err)
	}
	// What a Builder remembers of strings is most of it, and has a limit.
	if limit := before + 3*writtenLimit/2; most > limit {
		t.Errorf("%d KiB, expected at most %d", most>>10, limit>>10)
	}
}

func TestAPropertyOfAMillionValuesIsNotHeldInMemory(t *testing.T) {
	const n = 1_000_000
	segments := 0
	b := dropping(&segments)
	before, most := testkit.Live(), uint64(0)
	list, err := b.ValuesOf(t.Context(), func(yield func(RecordID, error) bool) {
		for i := range n {
			if i%250_000 == 249_999 {
				most = max(most, testkit.Live())
			}
			if !yield(RecordID{ID{8: 0xA0}, int32(i)}, nil) {
				return
			}
		}
	})
	made(t)(list, err)
	id, err := b.Node(t.Context(), NewNode{Properties: []NewProperty{{Name: "many", Type: Integer, Multi: true, List: list}}})
	made(t)(id, err)
	if limit := before + 2<<20; segments == 0 || most > limit {
		t.Errorf("%d segments, %d KiB, expected at most %d", segments, most>>10, limit>>10)
	}
}

func TestANodeTakesWhatWasWrittenOfIt(t *testing.T) {
	for _, n := range []int{0, 1, 2, 40, 1000} {
		var children []Child
		for i, name := range manyNames(n) {
			children = append(children, Child{name, RecordID{ID{8: 0xA0}, int32(i)}})
		}
		b, m := newTestBuilder(1)
		c, err := b.Children(t.Context(), inMapOrder(children))
		if err != nil || c.n != n {
			t.Fatal(c.n, err)
		}
		two := []RecordID{made(t)(b.Text(t.Context(), "one")), made(t)(b.Text(t.Context(), "two"))}
		list := made(t)(b.Values(t.Context(), two))
		id, err := b.Node(t.Context(), NewNode{Written: c, Properties: []NewProperty{{Name: mixinTypes, Type: Name, Multi: true, List: list}}})
		made(t)(id, err)
		flush(t, b)
		node, err := NewReader(m).Node(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if count, err := node.ChildCount(t.Context()); count != n || err != nil {
			t.Errorf("%d children, expected %d, %v", count, n, err)
		}
		for _, c := range children {
			if got, ok, err := node.Child(t.Context(), c.Name); got != c.Node || !ok || err != nil {
				t.Errorf("%q: %v, %t, %v", c.Name, got, ok, err)
			}
		}
		if p, ok, err := node.Property(t.Context(), mixinTypes); !ok || err != nil || p.Len() != 2 {
			t.Errorf("%t, %v, %d values", ok, err, p.Len())
		}
	}
}

func TestADiffIsNeverOfADiff(t *testing.T) {
	for _, n := range []int{2, 20, 2000} {
		names := manyNames(n)
		var children []Child
		want := map[string]RecordID{}
		for i, name := range names {
			want[name] = RecordID{ID{8: 0xA0}, int32(i)}
			children = append(children, Child{name, want[name]})
		}
		b, m := newTestBuilder(1)
		id := made(t)(b.Map(t.Context(), children))
		for i, step := range []struct {
			name  string
			diffs int
		}{{names[0], 1}, {names[0], 1}, {names[1], 0}, {names[n-1], 1}} {
			flush(t, b)
			base, err := NewReader(m).Map(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			want[step.name] = RecordID{ID{8: 0xA0, 15: 1}, int32(i)}
			id = made(t)(b.MapDiff(t.Context(), base, Child{step.name, want[step.name]}))
			flush(t, b)
			checkMap(t, m, id, want)
			got, err := NewReader(m).Map(t.Context(), id)
			if err != nil || len(got.diffs) != step.diffs {
				t.Errorf("%d names, step %d: %d diffs, expected %d, %v", n, i, len(got.diffs), step.diffs, err)
			}
		}
		base, err := NewReader(m).Map(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.MapDiff(t.Context(), base, Child{Name: "another"}); err == nil {
			t.Error("a diff of a name that the map has not")
		}
	}
}

// FuzzMapKey takes any bytes as a key, and as two names, whose keys must be in the
// order of the names in a map.
func FuzzMapKey(f *testing.F) {
	f.Add(AppendMapKey(nil, "a\x00b"), "Aa", "BB")
	f.Add(AppendMapKey(nil, "\U0001f600"), "\U0001f600", "\uffee")
	f.Add([]byte("\x00\x00\x00\x00\xed\xa0\x00\x01"), "", "\xff")
	f.Fuzz(func(t *testing.T, key []byte, x, y string) {
		if _, rest, ok := CutMapKey(key); ok && len(rest) > len(key)-6 {
			t.Errorf("%x: %d bytes are behind the key", key, len(rest))
		}
		kx, ky := AppendMapKey(nil, x), AppendMapKey(nil, y)
		if got, want := bytes.Compare(kx, ky), hashed(Child{Name: x}).compare(hashed(Child{Name: y})); got != want {
			t.Errorf("%q, %q: keys compare as %d, expected %d", x, y, got, want)
		}
		if name, rest, ok := CutMapKey(kx); name != asJava(x) || len(rest) > 0 || !ok {
			t.Errorf("%q: the key says %q, %x, %t", x, name, rest, ok)
		}
	})
}
