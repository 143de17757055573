package codec

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"hash/adler32"
	"io"
	"math/rand/v2"
	"testing"

	kflate "github.com/klauspost/compress/flate"

	"github.com/holdall/holdall/internal/testkit"
)

// samples are contents that make all kinds of blocks and codes.
func samples(r *rand.Rand) map[string][]byte {
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	words := bytes.Fields([]byte("the quick brown fox jumps over the lazy dog and {\"key\": [1, 2, 3.25]} again \n\n"))
	var text []byte
	for len(text) < 300_000 {
		text = append(append(text, words[r.IntN(len(words))]...), ' ')
	}
	// Rare bytes have long codes.
	var skewed []byte
	for len(skewed) < 200_000 {
		skewed = append(skewed, byte(min(255, int(r.ExpFloat64()*9))))
	}
	steps := make([]byte, 70_000)
	for i := range steps {
		steps[i] = byte(i >> 5 * (i % 7))
	}
	return map[string][]byte{
		"nothing": nil, "a byte": {7}, "zeros": make([]byte, 300_000), "noise": noise, "text": text, "skewed": skewed, "steps": steps,
		"pairs": bytes.Repeat([]byte("ab"), 5000), "threes": bytes.Repeat([]byte("abc"), 5000), "sevens": bytes.Repeat([]byte("abcdefg"), 5000),
		"mixed": append(append(bytes.Clone(text[:5000]), noise[:70_000]...), text...),
	}
}

// Each sample is deflated at some levels, and at all with HOLDALL_LONG.
func TestInflateGivesBackWhatWasDeflated(t *testing.T) {
	testkit.Serial(t)
	seed := testkit.Seed(t)
	levels := []int{kflate.HuffmanOnly, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for name, b := range samples(rand.New(rand.NewPCG(seed, 1))) {
		for _, level := range testkit.Some(t, 4, levels...) {
			for _, n := range []int{len(b), min(len(b), 300), min(len(b), 1+int(seed%9))} {
				want := b[:n]
				var packed [2]bytes.Buffer
				w, _ := flate.NewWriter(&packed[0], max(level, -2))
				w.Write(want[:n/2])
				w.Flush() // a stored block of nothing
				w.Write(want[n/2:])
				w.Close()
				k, _ := kflate.NewWriter(&packed[1], max(level, -2))
				k.Write(want)
				k.Close()
				for i, p := range packed {
					src := append(bytes.Clone(p.Bytes()), "what is behind it"...)
					got := make([]byte, n)
					used, err := inflate(got, src)
					if err != nil || !bytes.Equal(got, want) || used != p.Len() {
						t.Fatalf("%s, level %d of library %d, %d bytes: %v, %d bytes used of %d", name, level, i, n, err, used, p.Len())
					}
					if _, err := inflate(got, p.Bytes()); err != nil {
						t.Errorf("with nothing behind it: %v", err)
					}
					if _, err := inflate(make([]byte, n+1), src); err == nil {
						t.Error("it becomes longer than it is")
					}
					if n > 0 {
						if _, err := inflate(make([]byte, n-1), src); err == nil {
							t.Error("it becomes shorter than it is")
						}
						if _, err := inflate(got, p.Bytes()[:p.Len()-1]); err == nil {
							t.Error("its end is not missed")
						}
					}
				}
			}
		}
	}
}

// The library decides what is a stream and what it becomes.
func FuzzInflate(f *testing.F) {
	for _, b := range samples(rand.New(rand.NewPCG(1, 1))) {
		for _, level := range []int{1, 6} {
			var p bytes.Buffer
			w, _ := flate.NewWriter(&p, level)
			w.Write(b[:min(len(b), 3000)])
			w.Close()
			f.Add(p.Bytes())
			f.Add(append(p.Bytes(), make([]byte, 300)...))
		}
	}
	f.Add([]byte{3, 0})
	f.Fuzz(func(t *testing.T, src []byte) {
		r := bytes.NewReader(src)
		want, err := io.ReadAll(io.LimitReader(flate.NewReader(r), 1<<20))
		if len(want) == 1<<20 {
			return
		}
		got := make([]byte, len(want))
		used, gotErr := inflate(got, src)
		if err != nil {
			if gotErr == nil {
				t.Fatalf("it becomes %d bytes, but %v", len(got), err)
			}
			return
		}
		if gotErr != nil || !bytes.Equal(got, want) || used != len(src)-r.Len() {
			t.Fatalf("%v, %d bytes used of %d", gotErr, used, len(src)-r.Len())
		}
	})
}

func TestDamagedZlibIsNotTaken(t *testing.T) {
	testkit.Serial(t)
	want := samples(rand.New(rand.NewPCG(3, 1)))["text"][:2000]
	var p bytes.Buffer
	w := zlib.NewWriter(&p)
	w.Write(want)
	w.Close()
	got := make([]byte, len(want))
	if used, err := inflateZlib(got, append(bytes.Clone(p.Bytes()), 1, 2, 3)); err != nil || used != p.Len() || !bytes.Equal(got, want) {
		t.Fatalf("%v, %d bytes used of %d", err, used, p.Len())
	}
	for i := range p.Len() * 8 {
		b := bytes.Clone(p.Bytes())
		b[i/8] ^= 1 << (i % 8)
		if _, err := inflateZlib(got, b); err == nil && !bytes.Equal(got, want) {
			t.Errorf("bit %d: something else comes out", i)
		}
	}
	for n := range p.Len() {
		if _, err := inflateZlib(got, p.Bytes()[:n]); err == nil {
			t.Errorf("cut off at %d: it is whole", n)
		}
	}
}

func TestAdlerIsThatOfTheStandardLibrary(t *testing.T) {
	for name, b := range samples(rand.New(rand.NewPCG(5, 1))) {
		for _, n := range []int{len(b), len(b) / 2, min(len(b), 5552), min(len(b), 5553), min(len(b), 7), min(len(b), 17)} {
			if got, want := adler(b[:n]), adler32.Checksum(b[:n]); got != want {
				t.Errorf("%s, %d bytes: %08x, expected %08x", name, n, got, want)
			}
		}
	}
	b := bytes.Repeat([]byte{255}, 1<<20)
	if got, want := adler(b), adler32.Checksum(b); got != want {
		t.Errorf("%08x, expected %08x", got, want)
	}
}

func BenchmarkAdler(b *testing.B) {
	p := make([]byte, 256<<10)
	for name, sum := range map[string]func([]byte) uint32{"ours": adler, "library": adler32.Checksum} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				sum(p)
			}
		})
	}
}

func BenchmarkInflate(b *testing.B) {
	for name, content := range samples(rand.New(rand.NewPCG(1, 1))) {
		if len(content) < 1000 {
			continue
		}
		content = content[:min(len(content), 256<<10)]
		var p bytes.Buffer
		w := zlib.NewWriter(&p)
		w.Write(content)
		w.Close()
		dst := make([]byte, len(content))
		b.Run(fmt.Sprintf("ours/%s", name), func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				if _, err := inflateZlib(dst, p.Bytes()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("library/%s", name), func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				z, err := inflaters.open(bytes.NewReader(p.Bytes()))
				if err == nil {
					_, err = io.ReadFull(z, dst)
				}
				if err != nil {
					b.Fatal(err)
				}
				z.Close()
			}
		})
	}
}
