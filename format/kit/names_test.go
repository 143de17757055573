package kit_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
)

// Names say the same as a map, in whatever order names come, and with repetitions.
func TestNamesAreThoseThatWereAdded(t *testing.T) {
	seed := testkit.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	scratches := 0
	for round := range 300 {
		names := kit.Names{Scratch: func() (sorter.Scratch, error) { scratches++; return sorter.TempFile() }}
		many := []int{10, 100, 1000}[round%3]
		if round == 0 {
			many = 400_000
		}
		var all []string
		for range many {
			parts := make([]string, 1+random.IntN(4))
			for i := range parts {
				parts[i] = strings.Repeat(string("ab./-0"[random.IntN(6)]), 1+random.IntN(2))
				if many > 1000 {
					parts[i] += string(rune('a'+random.IntN(26))) + string(rune('a'+random.IntN(26))) + string(rune('a'+random.IntN(26)))
				}
			}
			all = append(all, strings.Join(parts, "/"))
		}
		walk := func(a, b string) int {
			return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
		}
		switch round % 4 {
		case 0:
			slices.SortFunc(all, walk)
			all = slices.Compact(all)
		case 1:
			slices.Sort(all)
		case 2:
			slices.SortFunc(all[:many/2], walk)
		}
		model := map[string]format.Kind{}
		for i, name := range all {
			if random.IntN(10) == 0 && (round > 0 || i > len(all)-1000) {
				name = all[random.IntN(i+1)]
			}
			has, err := names.Has(name)
			if _, want := model[name]; err != nil || has != want {
				t.Fatalf("%q: %v, %v, expected %v", name, has, err, want)
			}
			above, err := names.Above(name)
			want := ""
			for k := strings.LastIndexByte(name, '/'); k >= 0 && want == ""; k = strings.LastIndexByte(name[:k], '/') {
				if kind, ok := model[name[:k]]; ok && kind != format.Dir {
					want = name[:k]
				}
			}
			if err != nil || above != want {
				t.Fatalf("above %q: %q, %v, expected %q", name, above, err, want)
			}
			if has || above != "" || random.IntN(20) == 0 {
				continue // as if it failed
			}
			kind := []format.Kind{format.File, format.Dir, format.Symlink}[random.IntN(3)]
			if err := names.Add(name, kind); err != nil {
				t.Fatal(err)
			}
			model[name] = kind
		}
		if err := names.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if scratches == 0 {
		t.Error("many names that rise were not written away")
	}
}
