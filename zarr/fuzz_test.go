package zarr

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// fuzzRoom is what reading may take here, and fuzzSpare what the codecs'
// own tables and windows take beside it.
const (
	fuzzRoom  = 1 << 20
	fuzzSpare = 64 << 20
)

func checkMade(t *testing.T, fn func()) {
	t.Helper()
	if n := testkit.Allocated(fn); n > fuzzSpare {
		t.Errorf("made %d bytes", n)
	}
}

func FuzzMeta(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.Keys[".zarray"])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		checkMade(t, func() {
			m, err := ParseMeta(in)
			if err != nil {
				if kindOf(err) == nil {
					t.Errorf("an error of no kind: %v", err)
				}
				return
			}
			if n := m.NumChunks(); n < 0 || n > m.Elements() || m.Codecs() == "" {
				t.Errorf("%d chunks of %d elements", n, m.Elements())
			}
		})
	})
}

// FuzzArray reads an array whose first chunk is anything.
func FuzzArray(f *testing.F) {
	for _, g := range goldens(f) {
		first := g.Keys["0"]
		if first == nil {
			first = g.Keys["0.0"]
		}
		f.Add(g.Keys[".zarray"], []byte(`{}`), first)
	}
	f.Add([]byte(oneByte), softLink("/"), []byte{1, 2})
	f.Fuzz(func(t *testing.T, zarray, zattrs, chunk []byte) {
		k := keyed{"a/.zarray": zarray, ".zattrs": zattrs, "a/.zattrs": zattrs}
		for _, key := range []string{"0", "0.0", "0/0", "0.0.0", "0.0.0.0"} {
			k["a/"+key] = chunk
		}
		checkMade(t, func() {
			a, err := Open(t.Context(), k, "a")
			if err != nil {
				return
			}
			a.Limit = fuzzRoom
			for _, write := range []func(io.Writer) error{
				func(w io.Writer) error { return a.WriteNPY(t.Context(), w) },
				func(w io.Writer) error { return a.WriteText(t.Context(), w) },
			} {
				w := &fullAfter{left: 1 << 16}
				if err := write(w); err == nil && a.Elements() > 1<<20 {
					t.Error("all of it was written")
				}
			}
			from, count := make([]int64, len(a.Shape)), make([]int64, len(a.Shape))
			for i, n := range a.Shape {
				from[i], count[i] = n/2, min(3, n-n/2)
			}
			if v, err := a.Window(t.Context(), from, count); err != nil && kindOf(err) == nil {
				t.Errorf("an error of no kind: %v", err)
			} else if n, _ := product(count); err == nil && int64(len(v)) != n {
				t.Errorf("%d elements, expected %d", len(v), n)
			}
		})
	})
}

// FuzzArray3 reads an array of version 3 whose chunks, or shards, are anything.
func FuzzArray3(f *testing.F) {
	for _, g := range goldens3(f) {
		for key, v := range g.Keys {
			if key != MetaName && len(v) < 4096 {
				f.Add(g.Keys[MetaName], v)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, chunk []byte) {
		k := keyed{MetaName: text}
		for _, key := range []string{"c", "0", "0.0", "0/0", "c/0", "c/1", "c/0/0", "c/0/1", "c/1/0", "c/0/0/0", "c.0.0"} {
			k[key] = chunk
		}
		checkMade(t, func() {
			a, err := Open(t.Context(), k, "")
			if err != nil {
				if kindOf(err) == nil && !errors.Is(err, ErrGroup) {
					t.Errorf("an error of no kind: %v", err)
				}
				return
			}
			if n := a.NumKeys(); n < 0 || a.Codecs() == "" {
				t.Errorf("%d keys", n)
			}
			a.Limit = fuzzRoom
			w := &fullAfter{left: 1 << 16}
			if err := a.WriteText(t.Context(), w); err == nil && a.Elements() > 1<<20 {
				t.Error("all of it was written")
			} else if err != nil && w.left > 0 && kindOf(err) == nil {
				t.Errorf("an error of no kind: %v", err)
			}
		})
	})
}

// FuzzShardIndex reads the index of a shard, whatever it is.
func FuzzShardIndex(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0xff}, 4*indexRow), false)
	f.Add(append(make([]byte, 4*indexRow), 1, 2, 3, 4), true)
	f.Fuzz(func(t *testing.T, in []byte, summed bool) {
		s, err := newShards(&Meta{Chunks: []int64{2, 3}, Shard: &Shard{Chunks: []int64{4, 6}, Summed: summed}})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.check(in)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		for n := range int64(4) {
			off, size, ok, err := s.row(rows, n)
			if err == nil && ok && (off < 0 || size < 0 || off+size < 0) {
				t.Errorf("chunk %d: %d bytes at %d", n, size, off)
			}
		}
	})
}

// FuzzJSON2 reads objects, and what it has read once more.
func FuzzJSON2(f *testing.F) {
	f.Add([]byte(`["a",NaN,null,"|O",[3]]`), int64(3))
	f.Add([]byte(`[[1,{"a":"\ud83d\ude00"}],[-Infinity,"\ud800"],"|O",[2,2]]`), int64(4))
	f.Add([]byte(`["x","|O",[]]`), int64(1))
	f.Fuzz(func(t *testing.T, in []byte, n int64) {
		if n < 0 || n > fuzzRoom {
			return
		}
		checkMade(t, func() {
			room := int64(fuzzRoom)
			values, err := decodeJSON2(in, []int64{n}, &room)
			if err != nil {
				if kindOf(err) == nil {
					t.Errorf("an error of no kind: %v", err)
				}
				return
			}
			if int64(len(values)) != n {
				t.Errorf("%d values, expected %d", len(values), n)
			}
			text := appendJSON(nil, slices.Clone(values))
			room = 64 * fuzzRoom
			again, err := parseJSON(text, &room)
			if err != nil || !bytes.Equal(appendJSON(nil, again), text) {
				t.Errorf("%.200s: written and read again: %v", text, err)
			}
			if strings.ContainsAny(string(text), "\x00\x1b\n") {
				t.Errorf("a control character in %.200q", text)
			}
		})
	})
}
