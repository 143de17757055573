package sstable

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/klauspost/compress/snappy"

	"github.com/holdall/holdall/internal/testkit"
)

// unpacked fails unless a strict decoder reads what appendSnappy writes.
func unpacked(t *testing.T, b []byte) []byte {
	t.Helper()
	z := appendSnappy([]byte("before"), b)[6:]
	got, err := snappy.DecodeStrict(nil, z)
	if err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%d bytes become %d, and those %d: %v", len(b), len(z), len(got), err)
	}
	return z
}

func TestSnappyIsReadBack(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	for n := range 400 {
		unpacked(t, bytes.Repeat([]byte{'a'}, n))
		unpacked(t, bytes.Repeat([]byte("abcde"), n))
	}
	for range 300 {
		var b []byte
		for n := r.IntN(200_000); len(b) < n; {
			switch r.IntN(3) {
			case 0:
				b = append(b, make([]byte, r.IntN(300))...)
			case 1:
				for range r.IntN(200) {
					b = append(b, byte(r.Uint32()))
				}
			default:
				from := r.IntN(len(b) + 1)
				b = append(b, b[from:min(len(b), from+r.IntN(500))]...)
			}
		}
		unpacked(t, b)
	}
}

func TestSnappyIsTheSameEverywhere(t *testing.T) {
	h := sha256.New()
	stored, library := 0, 0
	for i := range 200 {
		w := blockBuilder{interval: restartInterval}
		for j := range 70 {
			w.add(appendInternal(nil, fileKey(i, j)), fileValue(i, j))
		}
		b := w.finish()
		z := unpacked(t, b)
		h.Write(z)
		stored += len(z)
		library += len(snappy.Encode(nil, b))
	}
	const want = "c8083628caf1e8b3"
	if got := fmt.Sprintf("%x", h.Sum(nil)[:8]); got != want {
		t.Errorf("what is written hashes to %s, expected %s: readers do not mind, but archives change", got, want)
	}
	if stored > library*105/100 {
		t.Errorf("%d bytes, and %d as the library writes them", stored, library)
	}
}

func FuzzSnappy(f *testing.F) {
	filesOf(f, "*.ldb", func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { unpacked(t, b) })
}
