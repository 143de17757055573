package root

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
)

func textOf(t *testing.T, add func(*Rows) error) string {
	t.Helper()
	r := NewRows()
	defer r.Close()
	if err := add(r); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRows has all kinds of entries, and names that sort in odd ways.
func TestRows(t *testing.T) {
	empty, sum := blake3.Sum256(nil), blake3.Sum256([]byte("x"))
	entries := []format.Entry{
		{Name: "."}, {Name: "b", Kind: format.File, Size: 1}, {Name: "a", Kind: format.Dir}, {Name: "a-", Kind: format.File}, {Name: "a/x", Kind: format.Property, Size: 1},
		{Name: "a.", Kind: format.Dir}, {Name: "z", Kind: format.Dir}, {Name: "l", Kind: format.Symlink, Link: "b"}, {Name: "p", Kind: format.Fifo},
		{Name: "new\nline\\", Kind: format.File}, {Name: "slash/", Kind: format.File}, {Name: "b", Kind: format.File, Size: 1}, {Name: "h", Kind: format.HardLink, Link: "none"},
	}
	entries[0].Kind = format.Dir
	link, none := blake3.Sum256([]byte("b")), blake3.Sum256([]byte("none"))
	want := fmt.Sprintf("file 0 %x a-\ndir 0 %x a./\nfile 1 %x a/x\nfile 1 %x b\nhardlink 4 %x h\nsymlink 1 %x l\nfile 0 %x new\\nline\\\\\nfifo 0 %x p\nfile 0 %x slash/\ndir 0 %x z/\n",
		empty, empty, sum, sum, none, link, empty, empty, empty, empty)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		rnd.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		got := textOf(t, func(r *Rows) error {
			for _, e := range entries {
				of := sum
				if e.Size == 0 {
					of = empty
				}
				if err := r.Add(e, of); err != nil {
					return err
				}
			}
			return nil
		})
		if got != want {
			t.Fatalf("%s\nexpected\n%s", got, want)
		}
	}
	none = blake3.Sum256([]byte(want))
	r := NewRows()
	defer r.Close()
	for _, e := range entries {
		if err := r.Add(e, map[bool][32]byte{true: empty, false: sum}[e.Size == 0]); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Sum(); err != nil || got != fmt.Sprintf("%x", none) {
		t.Fatal(got, err)
	}
}

func TestStatement(t *testing.T) {
	a, b := strings.Repeat("0a", 32), strings.Repeat("1b", 32)
	for _, s := range []Statement{{Contents: a}, {Contents: a, Archive: b}} {
		if got, err := ParseComment(s.Comment("file:x; y")); err != nil || got != s {
			t.Errorf("%q: %v, %v", s.Comment("file:x"), got, err)
		}
	}
	for _, c := range []string{
		"", "timestamp:1633700835\tfile:test", "holdall 1; x", "holdall 2, contents " + a + "; x", "holdall 1, contents " + a, "holdall 1, archive " + a + "; x",
		"holdall 1, contents " + strings.ToUpper(b) + "; x", "holdall 1, contents " + a[1:] + "; x", "holdall 1, contents " + a + ", archive ; x",
		"holdall 1, contents " + a + ", archive " + b + ", more " + b + "; x",
	} {
		if s, err := ParseComment(c); !errors.Is(err, ErrStatement) || s != (Statement{}) {
			t.Errorf("%q: %v, %v", c, s, err)
		}
	}
}

func FuzzComment(f *testing.F) {
	f.Add(Statement{Contents: strings.Repeat("0a", 32), Archive: strings.Repeat("1b", 32)}.Comment("x"))
	f.Fuzz(func(t *testing.T, c string) {
		if s, err := ParseComment(c); err == nil {
			_, more, _ := strings.Cut(c, "; ")
			if s.Comment(more) != c {
				t.Fatalf("%q is the comment of %q, too", c, s.Comment(more))
			}
		}
	})
}
