package storekit_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestAPiecedObjectIsItsPieces(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("a", []byte("0123456789"))
	st.Put("b", []byte("abcdef"))
	a, err := st.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := st.Open(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	p := &storekit.Pieced{Name: "x"}
	p.Add(a, 7, 3)
	p.Add(nil, 0, 2)
	p.Add(b, 1, 2)
	p.Add(b, 3, 1)
	p.Add(b, 0, 0)
	want := []byte("789\x00\x00bcd")
	if p.Size() != int64(len(want)) {
		t.Fatalf("%d bytes, expected %d", p.Size(), len(want))
	}
	for from := range want {
		for to := from; to <= len(want); to++ {
			got := bytes.Repeat([]byte{'?'}, to-from)
			if err := p.ReadAt(t.Context(), got, int64(from)); err != nil || !bytes.Equal(got, want[from:to]) {
				t.Errorf("%d to %d: %q, %v", from, to, got, err)
			}
		}
	}
	for _, off := range []int64{-1, int64(len(want))} {
		if err := p.ReadAt(t.Context(), make([]byte, 1), off); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("at %d: %v", off, err)
		}
	}
}
