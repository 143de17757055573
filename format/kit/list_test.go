package kit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
)

func names(t *testing.T, x *Index, dir string) string {
	t.Helper()
	var got []string
	for e, err := range x.ReadDir(context.Background(), dir) {
		if err != nil {
			return err.Error()
		}
		got = append(got, fmt.Sprintf("%s:%v", e.Name, e.Kind))
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

func TestIndexDirs(t *testing.T) {
	var es Entries
	for _, n := range []string{"b/x/1", "a", "b/x/2", "b.txt", "a//odd", "b//odd", "../up", "", "f", "f/under", "b/y", "d/", "M\xf6bel/b.txt", "M\xf6bel/\xff/x"} {
		es = append(es, format.Entry{Name: n})
	}
	es = append(es, format.Entry{Name: "e", Kind: format.Dir}, format.Entry{Name: "e/1"})
	x := NewIndex(es)
	for _, tt := range []struct{ dir, want string }{
		{".", "../up:file :file M\xf6bel:dir a//odd:file a:file b.txt:file b//odd:file b:dir d/:file e:dir f:file"},
		{"b", "b/x:dir b/y:file"},
		{"b/x", "b/x/1:file b/x/2:file"},
		{"e", "e/1:file"},
		{"f", "f/under:file"}, // both a file and a directory: look, but extraction refuses
		{"a", "readdir a: not a directory"},
		{"nope", "readdir nope: file does not exist"},
		{"..", "readdir ..: file does not exist"},
		{"M\xf6bel", "M\xf6bel/b.txt:file M\xf6bel/\xff:dir"},
	} {
		if got := names(t, x, tt.dir); got != tt.want {
			t.Errorf("ReadDir(%q):\n got %s\nwant %s", tt.dir, got, tt.want)
		}
	}
}

func TestIndexLastOfEqualNames(t *testing.T) {
	x := NewIndex(Entries{{Name: "z", Size: 1}, {Name: "a", Size: 2}, {Name: "z", Size: 3}})
	e, err := x.Lookup(context.Background(), "z")
	if err != nil || e.Size != 3 {
		t.Errorf("Lookup(z) = size %d, %v; want the last, 3", e.Size, err)
	}
	var got []int64
	for e := range x.Entries(context.Background()) {
		got = append(got, e.Size)
	}
	if !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("Entries = %v, want [2 3]", got)
	}
}

// Whatever the order of the rows, the last of equal names counts.
func TestIndexOfFewNames(t *testing.T) {
	r := testkit.Rand(t)
	for range 2000 {
		table := make(Entries, r.IntN(30))
		for i := range table {
			table[i] = format.Entry{Name: fmt.Sprint(r.IntN(100)), Size: int64(i)}
		}
		from := r.IntN(len(table) + 1)
		slices.SortFunc(table[from:], func(a, b format.Entry) int { return strings.Compare(a.Name, b.Name) })
		last := map[string]int64{}
		for i := range table {
			table[i].Size = int64(i)
			last[table[i].Name] = int64(i)
		}
		x := NewIndex(table)
		for i, e := range table {
			if x.Repeated()[uint32(i)] != (last[e.Name] != e.Size) {
				t.Fatalf("%v: row %d of %q", table, i, e.Name)
			}
			if found, err := x.Lookup(t.Context(), e.Name); err != nil || found.Size != last[e.Name] {
				t.Fatalf("%v: lookup of %q: %v, %v", table, e.Name, found, err)
			}
		}
		if x.Len() != len(last) {
			t.Fatalf("%v: %d names, expected %d", table, x.Len(), len(last))
		}
	}
}
