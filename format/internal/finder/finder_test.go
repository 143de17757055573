package finder

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// of returns a finder for contents in data, by their first 32 bytes of SHA-256, and a count of the
// bytes that it compared.
func of(data []byte, contents ...[]byte) (f *Finder, compared *int64) {
	f, compared = &Finder{End: int64(len(data))}, new(int64)
	for at := int64(0); len(contents) > len(f.Contents); {
		n := int64(len(contents[len(f.Contents)]))
		f.Contents = append(f.Contents, Content{Start: at, Len: n})
		at += n
	}
	f.Read = func(b []byte, off int64) error { copy(b, data[off:]); return nil }
	f.Is = func(i int, b []byte) bool { return sha256.Sum256(b) == sha256.Sum256(contents[i]) }
	f.Right = func(i int, off int64) (bool, error) {
		n := int64(len(contents[i]))
		if off < 0 || off > int64(len(data))-n {
			return false, nil
		}
		*compared += n
		return f.Is(i, data[off:off+n]), nil
	}
	return f, compared
}

func pieces(t *testing.T, n, size int) (all [][]byte) {
	rnd := testkit.Rand(t)
	for range n {
		all = append(all, testkit.Noise(rnd, size+rnd.IntN(size)))
	}
	return all
}

func TestContentsAreFoundWhereverTheyAre(t *testing.T) {
	all := pieces(t, 12, 500)
	whole := slices.Concat(all...)
	half := len(slices.Concat(all[:6]...))
	for what, c := range map[string]struct {
		data []byte
		lost int // content that is damaged, or -1
	}{
		"as it was":      {whole, -1},
		"bytes in front": {slices.Concat([]byte("some bytes"), whole), -1},
		"a byte lost":    {slices.Delete(bytes.Clone(whole), 1, 2), 0},
		"exchanged":      {slices.Concat(whole[half:], whole[:half]), -1},
		"inserted":       {slices.Insert(bytes.Clone(whole), half+3, []byte("bytes")...), 6},
	} {
		f, _ := of(c.data, all...)
		if err := f.Find(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, at := range f.At {
			if i == c.lost {
				if at != Nowhere {
					t.Errorf("%s: %d is found at %d", what, i, at)
				}
				start, end := f.Around(i)
				if start < 0 || end > f.End || start >= end {
					t.Errorf("%s: %d is between %d and %d", what, i, start, end)
				}
			} else if at == Nowhere || !bytes.HasPrefix(c.data[at:], all[i]) {
				t.Errorf("%s: %d is found at %d", what, i, at)
			}
		}
	}
}

// What only one content claims is not believed if the comparison is weak.
func TestAWeakComparisonNeedsTwoContents(t *testing.T) {
	all := pieces(t, 3, 300)
	data := slices.Concat(testkit.Noise(testkit.Rand(t), 777), all[1], make([]byte, 900))
	for _, weak := range []bool{false, true} {
		f, _ := of(data, all...)
		f.Weak = weak
		if err := f.Find(t.Context()); err != nil {
			t.Fatal(err)
		}
		if found := f.At[1] == 777; found == weak {
			t.Errorf("weak %v: %d", weak, f.At)
		}
	}
}

// However much is lost, what is in its place is found, and not much more is read than there is.
func TestALostCauseIsGivenUp(t *testing.T) {
	all := pieces(t, 40, 1<<20)
	data := make([]byte, len(slices.Concat(all...)))
	copy(data[len(data)-len(all[39]):], all[39])
	f, compared := of(data, all...)
	var by []int64
	for i := range 200 {
		by = append(by, int64(i))
	}
	if err := f.Find(t.Context(), by...); err != nil {
		t.Fatal(err)
	}
	if most := (mostMissed+2)*f.End + MaxHashed + 4<<20; !f.Tired || *compared > most {
		t.Errorf("tired %v, %d compared, at most %d expected", f.Tired, *compared, most)
	}
	if f.At[39] != f.Contents[39].Start {
		t.Errorf("the last content is in its place, and found at %d", f.At[39])
	}
}
