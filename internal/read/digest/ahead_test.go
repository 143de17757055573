package digest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/zeebo/blake3"
)

func TestReadAheadGivesContentAndDigest(t *testing.T) {
	for _, n := range []int{0, 1, usualBlock - 1, usualBlock, usualBlock + 1, 20*usualBlock + 7} {
		want := bytes.Repeat([]byte("0123456"), n/7+1)[:n]
		for _, algo := range []string{"blake3", ""} {
			a := NewAhead(iotest.HalfReader(bytes.NewReader(want)), AheadOptions{Algo: algo, Length: -1})
			var got bytes.Buffer
			io.CopyN(&got, a, int64(n/3)) // Read and WriteTo mix
			if _, err := a.WriteTo(&got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes came as %d others", n, got.Len())
			}
			sum := blake3.Sum256(want)
			if d, ok := a.ContentDigest(); ok != (algo != "") || ok && d.Sum != string(sum[:]) {
				t.Errorf("%d bytes: digest %v, %v", n, d, ok)
			}
			a.Close()
		}
	}
}

func TestReadAheadPassesErrorsAndStopsEarly(t *testing.T) {
	broken := errors.New("broken")
	a := NewAhead(io.MultiReader(bytes.NewReader(make([]byte, 3*usualBlock+5)), iotest.ErrReader(broken)), AheadOptions{Algo: "blake3", Length: -1})
	n, err := io.Copy(io.Discard, a)
	if n != 3*usualBlock+5 || err != broken || a.Failed() != broken {
		t.Errorf("%d bytes, %v, failed %v", n, err, a.Failed())
	}
	if _, ok := a.ContentDigest(); ok {
		t.Error("a broken stream has a digest")
	}
	a.Close()
	endless := NewAhead(zeros{}, AheadOptions{Algo: "blake3", Length: -1})
	if _, err := io.ReadFull(endless, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	endless.Close() // must not hang
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestPiecesAndTheDigestOfAll takes blocks with their digests, of a stream whose length
// is known.
func TestPiecesAndTheDigestOfAll(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 1001, 50_000, 50_007} {
		want := bytes.Repeat([]byte("0123456"), n/7+1)[:n]
		a := NewAhead(bytes.NewReader(want), AheadOptions{Algo: "sha256", Pieces: true, Block: 1000, Length: int64(n)})
		var got []byte
		for {
			b, err := a.Next()
			if err == io.EOF {
				break
			}
			if err != nil || b.Sum != blake3.Sum256(b.Bytes) {
				t.Fatalf("block at %d of %d: %v", len(got), n, err)
			}
			got = append(got, b.Bytes...)
		}
		sum, _ := Of("sha256", want)
		if d, ok := a.ContentDigest(); !ok || d != sum || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came as %d, digest %v, %v", n, len(got), d, ok)
		}
		a.Close()
	}
	short := NewAhead(bytes.NewReader(make([]byte, 1500)), AheadOptions{Pieces: true, Block: 1000, Length: 3000})
	defer short.Close()
	n, err := io.Copy(io.Discard, short)
	if n != 1500 || err != io.ErrUnexpectedEOF {
		t.Errorf("%d bytes of a stream that is short: %v", n, err)
	}
}
