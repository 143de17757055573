package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/internal/testkit"
)

// signed seals a catalogue, and puts the signature beside it.
func signed(t *testing.T, st memory, b *Book) string {
	t.Helper()
	sum, err := b.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := minisign.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	s := root.Statement{Contents: sum, Archive: sum} // the contents do not matter here
	st.Put(at+root.Suffix, key.Sign(s.Text(), s.Comment("file:x")))
	return sum
}

func namesOf(ctx context.Context, b *Book) (names []string, err error) {
	for l, err := range b.Between(ctx, "", "", nil) {
		if err != nil {
			return names, err
		}
		names = append(names, l.Path)
	}
	return names, nil
}

// A signed state is read whatever is committed, merged and swept after it, and whatever lies in the places of
// head, states and commits. Without runs and the state, there is an error.
func TestASignedStateNeedsNothingElse(t *testing.T) {
	rnd := testkit.Rand(t)
	st, ctx := newMemory(), t.Context()
	b := created(t, st)
	b.o.inline = 0
	var want []string
	add := func(from, n int) {
		for i := from; i < from+n; i++ {
			if _, err := b.Add(ctx, addition(rnd, fmt.Sprintf("mem://packed/%d.caf", i), fmt.Sprintf("%04d", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	const n = stateEvery + 9
	add(0, n)
	for i := range n {
		want = append(want, fmt.Sprintf("%04d", i))
	}
	sum := signed(t, st, b)
	add(n, n)
	if _, err := b.Delete(ctx, want[:3]); err != nil {
		t.Fatal(err)
	}
	done, err := b.GC(ctx, 0, false)
	if err != nil || !done.Signed {
		t.Fatalf("%+v, %v", done, err)
	}
	reads := func(st memory) ([]string, error) {
		b, err := Open(ctx, st, at, Options{Signed: Signed{Sum: sum}})
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return namesOf(ctx, b)
	}
	for info, err := range st.List(ctx, at+"/") {
		if err != nil {
			t.Fatal(err)
		}
		o, bad := info.Name, st.Clone()
		bad.Put(o, testkit.Noise(rnd, 100))
		got, err := reads(bad)
		needed := strings.Contains(o, "/signed/") || strings.Contains(o, "/runs/")
		if err == nil && !slices.Equal(got, want) || err != nil && !needed {
			t.Errorf("%s: %v, %v", o, got, err)
		}
	}
	second := signed(t, st, b)
	if done, err := b.GC(ctx, 0, false); err != nil || done.Signed {
		t.Errorf("signed anew: %+v, %v", done, err)
	}
	if second == sum {
		t.Error("another state has the same digest")
	}
	if _, err := b.Erase(ctx, []string{"none"}); err != nil {
		t.Fatal(err)
	}
	for _, sum = range []string{sum, second} {
		if _, err := reads(st); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "signed again") {
			t.Errorf("erased, and read: %v", err)
		}
	}
}

// A head that lies is not signed, however right its checksum and its counts are.
func TestALyingHeadIsNotSigned(t *testing.T) {
	rnd := testkit.Rand(t)
	for what, lie := range map[string]func(*State){
		"an address": func(s *State) { s.Archives[1].Address = "./other.caf" },
		"a run":      func(s *State) { s.Runs[0].Object = s.Runs[1].Object },
		"a move":     func(s *State) { s.Moves = []Move{{Old: "a", New: "b", Commit: 1}} },
		"a digest":   func(s *State) { s.Runs[1].Sum = s.Runs[0].Sum },
		"deletions":  func(s *State) { s.Dropped = []ID{s.Archives[0].ID} },
	} {
		t.Run(what, func(t *testing.T) {
			st, ctx := newMemory(), t.Context()
			b := created(t, st)
			b.o.inline = 0
			for i := range 2 {
				if _, err := b.Add(ctx, addition(rnd, fmt.Sprintf("mem://packed/%d.caf", i), fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			o, err := b.get(ctx, "head", mostObject)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseState(o)
			if err != nil {
				t.Fatal(err)
			}
			lie(s)
			if o, err = s.encode(0); err != nil {
				t.Fatal(err)
			}
			st.Put(at+"/head", o)
			b, err = Open(ctx, st, at, Options{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			if sum, err := b.Seal(ctx); err == nil {
				t.Errorf("signed as %s", sum)
			}
		})
	}
}
