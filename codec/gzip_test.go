package codec

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	kgzip "github.com/klauspost/compress/gzip"

	"github.com/holdall/holdall/internal/testkit"
)

func TestGzipIsReadAcrossMembersAndToItsEnd(t *testing.T) {
	var b bytes.Buffer
	for _, part := range []string{"one and ", "another"} {
		b.Write(zipped(t, []byte(part), 6))
	}
	const want = "one and another"
	c, _ := Lookup(Gzip)
	for range 2 { // the second time by a reader that was used
		d, err := c.Decode(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(d); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Read(make([]byte, 1)); err == nil {
			t.Error("read after close: expected an error")
		}
	}
	if got, err := c.Append(nil, b.Bytes(), len(want)); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Append(nil, b.Bytes(), len(want)-1); err == nil {
		t.Error("longer than it should be: expected an error")
	}
	if _, err := c.Append(nil, b.Bytes()[:b.Len()-3], len(want)); err == nil {
		t.Error("cut in the checksum: expected an error")
	}
}

// zipped makes a member with all that a header can have.
func zipped(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Name, w.Comment, w.Extra = "name", "what it is", []byte("extra")
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGzipIsWhatItWasHoweverItComes(t *testing.T) {
	testkit.Serial(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c, _ := Lookup(Gzip)
	for name, want := range samples(rand.New(rand.NewPCG(seed, 1))) {
		for _, level := range []int{-2, 0, 1, 6, 9} {
			z := zipped(t, want, level)
			for how, r := range map[string]io.Reader{
				"whole": bytes.NewReader(z), "halves": iotest.HalfReader(bytes.NewReader(z)), "bytes": iotest.OneByteReader(bytes.NewReader(z)), "early end": iotest.DataErrReader(bytes.NewReader(z)),
			} {
				d, err := c.Decode(r)
				if err != nil {
					t.Fatal(err)
				}
				if err := iotest.TestReader(d, want); err != nil && len(want) < 1000 {
					t.Errorf("%s, level %d, %s: %v", name, level, how, err)
				} else if len(want) >= 1000 {
					d, _ = c.Decode(bytes.NewReader(z))
					if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s, level %d, %s: %d bytes of %d, %v", name, level, how, len(got), len(want), err)
					}
				}
				d.Close()
			}
			for _, cut := range []int{1, 8, 9, len(z) / 2, len(z) - 5, len(z) - 12} {
				d, _ := c.Decode(bytes.NewReader(z[:max(1, len(z)-cut)]))
				if got, err := io.ReadAll(d); !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(want, got) {
					t.Errorf("%s, level %d, without its last %d bytes: %d bytes of %d, %v", name, level, cut, len(got), len(want), err)
				}
			}
			d, _ := c.Decode(io.MultiReader(bytes.NewReader(z[:len(z)/2]), iotest.ErrReader(errGone)))
			if _, err := io.ReadAll(d); !errors.Is(err, errGone) {
				t.Errorf("%s, level %d: a source that fails: %v", name, level, err)
			}
		}
	}
}

var errGone = errors.New("gone")

func TestGzipMembersTakeNothingBehindThem(t *testing.T) {
	z := append(zipped(t, []byte("one"), 6), "and what follows"...)
	r := bufio.NewReaderSize(bytes.NewReader(z), 4<<10)
	m, err := NewGzipMember(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(m); err != nil || string(got) != "one" {
		t.Errorf("%q, %v", got, err)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "and what follows" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewGzipMember(bufio.NewReader(bytes.NewReader([]byte("no member")))); err == nil {
		t.Error("no member: expected an error")
	}
}

// long is content whose windows and blocks all differ.
func long(r *rand.Rand, n int) (b []byte) {
	kinds := samples(r)
	for len(b) < n {
		for _, s := range kinds {
			b = append(b, s...)
		}
		b = append(b, byte(r.Uint32()))
	}
	return b[:n]
}

func TestGzipIsReadOnFromItsPoints(t *testing.T) {
	testkit.Serial(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	want := long(rnd, 3<<20)
	c, _ := Lookup(Gzip)
	var kz bytes.Buffer
	k := kgzip.NewWriter(&kz)
	k.Write(want)
	k.Close()
	half := len(want) / 2
	for name, z := range map[string][]byte{
		"fast": zipped(t, want, 1), "usual": zipped(t, want, 6), "stored": zipped(t, want, 0), "codes alone": zipped(t, want, -2), "of another library": kz.Bytes(),
		"two members": append(zipped(t, want[:half], 6), zipped(t, want[half:], 6)...),
	} {
		var points []Point
		n, err := c.Points(bytes.NewReader(z), 100_000, func(p Point) error {
			points = append(points, p)
			return nil
		})
		if err != nil || n != int64(len(want)) || len(points) < 10 {
			t.Fatalf("%s: %d bytes, %d points, %v", name, n, len(points), err)
		}
		last := int64(0)
		for i, p := range points {
			if p.At-last < 100_000 {
				t.Errorf("%s: a point at %d behind one at %d", name, p.At, last)
			}
			last = p.At
			d, err := c.DecodeFrom(bytes.NewReader(z[p.Off:]), p)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, want[p.At:]) {
				t.Fatalf("%s: from point %d at %d: %d bytes, expected %d; %v", name, i, p.At, len(got), int64(len(want))-p.At, err)
			}
			d.Close()
		}
		// The sum of all is compared, from wherever it is read.
		bad := bytes.Clone(z)
		bad[len(bad)-7] ^= 4
		p := points[len(points)-1]
		d, _ := c.DecodeFrom(bytes.NewReader(bad[p.Off:]), p)
		if _, err := io.ReadAll(d); !errors.Is(err, ErrChecksum) {
			t.Errorf("%s: another sum: %v", name, err)
		}
		if _, err := c.Points(bytes.NewReader(z[:len(z)/2]), 100_000, func(Point) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: points of half of it: %v", name, err)
		}
		if _, err := c.Points(bytes.NewReader(z), 100_000, func(Point) error { return errGone }); !errors.Is(err, errGone) {
			t.Errorf("%s: a finder that has enough: %v", name, err)
		}
	}
	for _, state := range [][]byte{nil, make([]byte, 5), make([]byte, 100_000), append([]byte{8}, make([]byte, 12)...)} {
		d, err := c.DecodeFrom(bytes.NewReader([]byte{3, 0}), Point{State: state})
		if err == nil {
			_, err = d.Read(make([]byte, 1))
		}
		if err == nil {
			t.Errorf("a state of %d bytes: expected an error", len(state))
		}
	}
}

// The standard library decides what is gzip and what it becomes.
func FuzzGzip(f *testing.F) {
	for _, b := range samples(rand.New(rand.NewPCG(1, 1))) {
		for _, level := range []int{0, 1, 6} {
			z := zipped(f, b[:min(len(b), 3000)], level)
			f.Add(z, uint16(700))
			f.Add(append(z, z...), uint16(1))
		}
	}
	f.Fuzz(func(t *testing.T, z []byte, every uint16) {
		const most = 1 << 20
		var want []byte
		std, wantErr := gzip.NewReader(bytes.NewReader(z))
		if wantErr == nil {
			if want, wantErr = io.ReadAll(io.LimitReader(std, most)); len(want) == most {
				return
			}
		}
		d, err := decodeGzip(bytes.NewReader(z))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(d)
		// Sums of headers are nobody's business but that library's.
		if (err == nil) != (wantErr == nil) && !errors.Is(wantErr, gzip.ErrHeader) {
			t.Fatalf("%v, expected %v", err, wantErr)
		}
		if wantErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, expected %d", len(got), len(want))
		}
		_, _ = gzipPoints(bytes.NewReader(z), int64(every)+1, func(p Point) error {
			d, err := decodeGzipFrom(bytes.NewReader(z[p.Off:]), p)
			if err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(d)
			if !bytes.HasPrefix(rest, got[p.At:]) && len(rest) < len(got)-int(p.At) {
				t.Fatalf("from %d: %d bytes, expected %d", p.At, len(rest), len(got)-int(p.At))
			}
			return nil
		})
		// Whatever a point says, it is read or refused.
		if d, err := decodeGzipFrom(bytes.NewReader(z), Point{State: z[:min(len(z), 60)]}); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(d, most))
		}
	})
}

func BenchmarkGunzip(b *testing.B) {
	want := long(rand.New(rand.NewPCG(1, 2)), 16<<20)
	z := zipped(b, want, 6)
	for name, open := range map[string]func() (io.Reader, error){
		"ours":    func() (io.Reader, error) { return decodeGzip(bytes.NewReader(z)) },
		"library": func() (io.Reader, error) { return kgzip.NewReader(bytes.NewReader(z)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				r, err := open()
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, struct{ io.Reader }{r}); err != nil || n != int64(len(want)) {
					b.Fatal(n, err)
				}
			}
		})
	}
}
