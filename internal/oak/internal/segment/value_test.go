package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
)

func randomBytes(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

func TestValuesOfAllSizesReadBack(t *testing.T) {
	b, m := newTestBuilder(2)
	sizes := []int{0, 1, 127, 128, 129, 4096, 16511, 16512, 20480, 262143, 262144, 262145, 262144 + 16512, 3*262144 + 5, 1100000}
	type written struct {
		id   RecordID
		want []byte
		text bool
	}
	var all []written
	for _, n := range sizes {
		bin, text := randomBytes(uint64(n), n), []byte(strings.Repeat("0123456789abcdef", n/16+1)[:n])
		id, err := b.Binary(t.Context(), bytes.NewReader(bin))
		all = append(all, written{made(t)(id, err), bin, false})
		id, err = b.Text(t.Context(), string(text))
		all = append(all, written{made(t)(id, err), text, true})
	}
	flush(t, b)
	checkBuilt(t, m)
	for _, r := range []*Reader{NewReader(m), NewReader(sized{m})} {
		for _, w := range all {
			v, err := r.Value(t.Context(), w.id)
			if err != nil {
				t.Fatal(err)
			}
			kind := Small
			switch n := len(w.want); {
			case n >= 16512:
				kind = Long
			case n >= 128:
				kind = Medium
			}
			if v.Len() != int64(len(w.want)) || v.Kind() != kind {
				t.Fatalf("%d bytes: found %d, %s", len(w.want), v.Len(), v.Kind())
			}
			text, err := v.Text(t.Context(), len(w.want))
			if err != nil || text != string(w.want) {
				t.Fatalf("%d bytes, text %t: %v", len(w.want), w.text, err)
			}
			checkRanges(t, v, w.want)
			if len(w.want) > 0 {
				var e *Error
				if _, err := v.Text(t.Context(), len(w.want)-1); !errors.As(err, &e) || e.Class != Limit {
					t.Fatal(err)
				}
			}
		}
	}
}

func checkRanges(t *testing.T, v Value, want []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(len(want)), 1))
	for range 20 {
		off := r.IntN(len(want) + 1)
		p := make([]byte, r.IntN(len(want)-off+1))
		if err := v.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, want[off:][:len(p)]) {
			t.Fatalf("%d bytes from %d of %d: %v", len(p), off, len(want), err)
		}
	}
	if err := v.ReadAt(t.Context(), make([]byte, 1), int64(len(want))); err == nil {
		t.Fatal("read beyond the end")
	}
}

func TestPiecesJoinBlocksAndLeaveBulkSegmentsAlone(t *testing.T) {
	b, m := newTestBuilder(3)
	id, err := b.Binary(t.Context(), bytes.NewReader(randomBytes(1, 2*MaxSize+10000)))
	made(t)(id, err)
	flush(t, b)
	r := NewReader(sized{m})
	v, err := r.Value(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	pieces := func(off, n int64) (lens []int) {
		all, err := collect(v.Pieces(t.Context(), off, n))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			lens = append(lens, p.Off, p.Len)
		}
		return lens
	}
	equal := func(got []int, want ...int) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatal(got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatal(got, want)
			}
		}
	}
	equal(pieces(0, v.Len()), 0, MaxSize, 0, MaxSize, 0, 10000)
	equal(pieces(5, 1), 5, 1)
	equal(pieces(MaxSize-1, 2), MaxSize-1, 1, 0, 1)
	equal(pieces(4095, 4098), 4095, 4098)
	equal(pieces(2*MaxSize+9999, 1), 9999, 1)
	equal(pieces(7, 0))
	for id, n := range m.asked {
		if !id.IsData() && n > 0 {
			t.Errorf("bulk segment %s was read", id)
		}
	}
	// Of 141 blocks in one bucket all but one can be had where a segment is lost.
	lost := m.order[1].ID
	delete(m.raw, lost)
	var good, bad int
	for p, err := range v.Pieces(t.Context(), 0, v.Len()) {
		if err == nil {
			good += p.Len
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Class != Missing || e.Segment != lost || !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		bad += p.Len
	}
	if good != MaxSize+10000 || bad != MaxSize {
		t.Errorf("%d bytes found, %d lost", good, bad)
	}
}

func TestExternalValuesSayWhereTheirContentIs(t *testing.T) {
	b, m := newTestBuilder(4)
	for _, n := range []int{0, 5, 4095, 4096, 20000} {
		name := strings.Repeat("blob#", n/5+1)[:n]
		id, err := b.External(t.Context(), name)
		made(t)(id, err)
		flush(t, b)
		v, err := NewReader(m).Value(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.BlobID(t.Context(), 20000)
		if err != nil || got != name || !v.External() || v.Len() != -1 {
			t.Fatal(n, err, v.Len())
		}
		if (v.Kind() == ExternalLong) != (n >= 4096) {
			t.Error(n, v.Kind())
		}
		if _, err := v.Text(t.Context(), 1<<20); err == nil {
			t.Error("content of an external value")
		}
		if n > 0 {
			if _, err := v.BlobID(t.Context(), n-1); err == nil {
				t.Error("a limit was not kept")
			}
		}
		last := m.order[len(m.order)-1]
		if len(last.BlobIDs) != 1 || last.BlobIDs[0] != name {
			t.Error(last.BlobIDs)
		}
	}
	checkBuilt(t, m)
}
