package arraycodec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// container makes a Blosc container of one block.
func container(flags, typeSize byte, size int, stream []byte) []byte {
	b := []byte{2, 1, flags, typeSize}
	for _, n := range []int{size, size, bloscHeader + 8 + len(stream), bloscHeader + 4, len(stream)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return append(b, stream...)
}

// Snappy is not in the reference's build: Blosc wrote it once.
func TestBloscWithSnappy(t *testing.T) {
	want := []byte(strings.Repeat("0123456789", 30))
	b := container(2<<bloscCodecShift|bloscOneStream, 1, len(want), snappy.Encode(nil, want))
	if got, err := Blosc(b, 300); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestBloscDamageIsNamed(t *testing.T) {
	good := container(1<<bloscCodecShift|bloscOneStream, 1, 300, []byte("\x1fa\x01\x00\xff\x10\x50aaaaa"))
	for _, c := range []struct {
		at   int
		to   uint32
		want string
	}{
		{0, 9, "expected version 1 or 2, found 9"},
		{0, 0x0140_0102 | 7<<21, "inner codec 7 is not supported"},
		{0, 0x00_30_01_02, "expected sizes above 0, found elements of 0 bytes in blocks of 300"},
		{4, 301, "expected at most 300 bytes, found 301 in the header"},
		{8, 0, "expected sizes above 0, found elements of 1 bytes in blocks of 0"},
		{8, 1, "300 blocks do not fit into 36 bytes"},
		{12, 3, "the header has 3 bytes, but 36 exist"},
		{12, 999, "the header has 999 bytes, but 36 exist"},
		{16, 0, "block 0 of 1: stream at offset 0, outside of 36 bytes"},
		{16, 1 << 31, "block 0 of 1: stream at offset 2147483648, outside of 36 bytes"},
		{20, 13, "block 0 of 1: stream at offset 24: expected 13 bytes, found 12"},
		{20, 1, "block 0 of 1: stream at offset 24: lz4: 1 bytes cannot decode to 300"},
		{20, 11, "block 0 of 1: stream at offset 24: lz4: "},
	} {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[c.at:], c.to)
		if _, err := Blosc(b, 300); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d at %d: %v, expected %s", c.to, c.at, err, c.want)
		}
	}
	for n := range bloscHeader {
		if _, err := Blosc(good[:n], 300); err == nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestBloscContainersOfTheReference(t *testing.T) {
	var all map[string]struct {
		Data   []byte `json:"data"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	testkit.JSON(t, "testdata/blosc.json", &all)
	seen := map[byte]int{}
	for name, c := range all {
		got, err := Blosc(c.Data, c.Size)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if int64(len(got)) != c.Size || fmt.Sprintf("%x", sha256.Sum256(got)) != c.SHA256 {
			t.Errorf("%s: decodes to something else", name)
		}
		if _, err := Blosc(c.Data, c.Size-1); err == nil {
			t.Errorf("%s: gives more than it may", name)
		}
		seen[c.Data[2]]++
	}
	t.Logf("containers by flags: %x", seen)
	if len(seen) < 15 {
		t.Errorf("only %d kinds of containers", len(seen))
	}
}

func FuzzBlosc(f *testing.F) {
	var all map[string]struct {
		Data []byte `json:"data"`
	}
	testkit.JSON(f, "testdata/blosc.json", &all)
	for _, c := range all {
		if len(c.Data) < 2000 {
			f.Add(c.Data)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const room, spare = 1 << 20, 64 << 20 // the codecs' own tables and windows
		made := testkit.Allocated(func() {
			out, err := Blosc(in, room)
			if err == nil && len(out) > room {
				t.Errorf("%d bytes", len(out))
			}
		})
		if made > spare {
			t.Errorf("made %d bytes", made)
		}
	})
}

func TestBloscLZDamageIsAnError(t *testing.T) {
	for _, c := range []struct {
		src  string
		size int
		want string
	}{
		{"", 1, "no data"},
		{"\x05ab", 6, "the data end within a step"},
		{"\x01ab", 1, "more than 1 bytes"},
		{"\x01ab", 3, "expected 3 bytes, found 2"},
		{"\x00a\x20\x05", 4, "a match 6 bytes back, but only 1 exist"},
		{"\x00a\x20", 4, "the data end within a step"},
		{"\x00a\xe0\xff\xff", 4000, "the data end within a step"},
		{"\x00a\xe0\xff\x09\x00", 20, "more than 20 bytes"},
		{"\x00a\x3f\xff\x00", 4, "the data end within a step"},
		{"\x00a\x3f\xff\x00\x00", 4, "a match 8192 bytes back"},
	} {
		if err := decodeBloscLZ(make([]byte, c.size), []byte(c.src)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, expected %s", c.src, err, c.want)
		}
	}
	dst := make([]byte, 4)
	if err := decodeBloscLZ(dst, []byte("\x00a\x20\x00")); err != nil || string(dst) != "aaaa" {
		t.Errorf("%q, %v", dst, err)
	}
}

func TestZstdFramesWithoutASizeAndSeveralOfThem(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 9000)
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{want[:80000], want[80000:]} {
		w.Reset(&b)
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Flush(), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Zstd(b.Bytes(), 90000); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := Zstd(b.Bytes(), 89999); err == nil {
		t.Error("more than it may give")
	}
}

// A few bytes that claim a gigabyte must not have it made.
func TestCompressedClaimsMakeNoMemory(t *testing.T) {
	const gig = 1 << 30
	size := []byte{0, 0, 0, 0x40}
	zstdFrame := []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x40\x01\x00\x00")
	for name, fn := range map[string]func() ([]byte, error){
		"blosc lz4":  func() ([]byte, error) { return Blosc(container(0x30, 1, gig, make([]byte, 100)), gig) },
		"blosc zstd": func() ([]byte, error) { return Blosc(container(0x90, 1, gig, zstdFrame), gig) },
		"lz4":        func() ([]byte, error) { return LZ4(append(size, 1, 2, 3), gig) },
		"zstd":       func() ([]byte, error) { return Zstd(zstdFrame, gig) },
	} {
		var err error
		if n := testkit.Allocated(func() { _, err = fn() }); err == nil || n > 4<<20 {
			t.Errorf("%s: %v, having made %d bytes", name, err, n)
		}
	}
}

func TestUnshuffleUndoesShuffle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= 17; size++ {
		for _, n := range []int{0, 1, 7, 8, 9, 64, 129, 1000} {
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(rng.Uint32())
			}
			shuffled := bytes.Clone(want)
			k := n / size
			for i := range k {
				for j := range size {
					shuffled[j*k+i] = want[i*size+j]
				}
			}
			got := make([]byte, n)
			if Unshuffle(got, shuffled, size); !bytes.Equal(got, want) {
				t.Errorf("elements of %d bytes in %d bytes", size, n)
			}
		}
	}
}

func benchmarkBlosc(b *testing.B, flags byte) {
	const size, typeSize = 256 << 10, 8
	planes := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range planes[:size/4] {
		planes[i] = byte(rng.Uint32() & 15)
	}
	stream := make([]byte, size)
	n, err := lz4.CompressBlock(planes, stream, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := container(flags|1<<bloscCodecShift|bloscOneStream, typeSize, size, stream[:n])
	b.SetBytes(size)
	for b.Loop() {
		if _, err := Blosc(c, size); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBloscLZ4(b *testing.B) {
	for name, flags := range map[string]byte{"plain": 0, "shuffle": bloscShuffle, "bitshuffle": bloscBitShuffle} {
		b.Run(name, func(b *testing.B) { benchmarkBlosc(b, flags) })
	}
}
