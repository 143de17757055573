package holdall

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/zeebo/blake3"
)

func TestReadAheadGivesContentAndDigest(t *testing.T) {
	for _, n := range []int{0, 1, aheadBlock - 1, aheadBlock, aheadBlock + 1, 20*aheadBlock + 7} {
		want := bytes.Repeat([]byte("0123456"), n/7+1)[:n]
		for _, algo := range []string{"blake3", ""} {
			a := newReadAhead(iotest.HalfReader(bytes.NewReader(want)), algo, nil)
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
	a := newReadAhead(io.MultiReader(bytes.NewReader(make([]byte, 3*aheadBlock+5)), iotest.ErrReader(broken)), "blake3", nil)
	n, err := io.Copy(io.Discard, a)
	if n != 3*aheadBlock+5 || err != broken || a.failed() != broken {
		t.Errorf("%d bytes, %v, failed %v", n, err, a.failed())
	}
	if _, ok := a.ContentDigest(); ok {
		t.Error("a broken stream has a digest")
	}
	a.Close()
	endless := newReadAhead(zeros{}, "blake3", nil)
	if _, err := io.ReadFull(endless, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	endless.Close() // must not hang
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
