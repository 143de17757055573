package codec

import (
	"bytes"
	stdzlib "compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/internal/testkit"
)

// An encoding is one way to make a record.
type encoding struct {
	name   string
	codec  string
	summed bool // has a checksum of its content
	encode func(testing.TB, []byte) []byte
}

var encodings = []encoding{
	{"zlib", ZlibRecord, true, func(t testing.TB, b []byte) []byte { return deflated(t, b, 6) }},
	{"zlib, fastest", ZlibRecord, true, func(t testing.TB, b []byte) []byte { return deflated(t, b, 1) }},
	{"zlib, best", ZlibRecord, true, func(t testing.TB, b []byte) []byte { return deflated(t, b, 9) }},
	{"zlib, stored", ZlibRecord, true, func(t testing.TB, b []byte) []byte { return deflated(t, b, 0) }},
	{"zlib, Huffman codes only", ZlibRecord, true, func(t testing.TB, b []byte) []byte { return deflated(t, b, zlib.HuffmanOnly) }},
	{"zlib of the standard library", ZlibRecord, true, func(t testing.TB, b []byte) []byte {
		var out bytes.Buffer
		w := stdzlib.NewWriter(&out)
		_, err := w.Write(b)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}},
	{"snappy", SnappyRecord, false, func(_ testing.TB, b []byte) []byte { return snappy.Encode(nil, b) }},
	{"snappy, better", SnappyRecord, false, func(_ testing.TB, b []byte) []byte { return s2.EncodeSnappyBetter(nil, b) }},
	{"snappy, best", SnappyRecord, false, func(_ testing.TB, b []byte) []byte { return s2.EncodeSnappyBest(nil, b) }},
	{"zstd", ZstdRecord, true, func(t testing.TB, b []byte) []byte { return frame(t, b, zstd.WithZeroFrames(true)) }},
	{"zstd, without checksum", ZstdRecord, false, func(t testing.TB, b []byte) []byte {
		return frame(t, b, zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
	}},
	{"zstd, one segment", ZstdRecord, true, func(t testing.TB, b []byte) []byte {
		return frame(t, b, zstd.WithZeroFrames(true), zstd.WithSingleSegment(true))
	}},
	{"zstd, without size", ZstdRecord, true, func(t testing.TB, b []byte) []byte {
		return unsized(t, b, zstd.WithZeroFrames(true))
	}},
}

func deflated(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err == nil {
		_, err = w.Write(b)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// mixture is n bytes that have runs, repetitions near and far, and noise.
func mixture(r *rand.Rand, n int) []byte {
	var b []byte
	for len(b) < n {
		k := 1 + r.IntN(1+r.IntN(5000))
		switch r.IntN(4) {
		case 0:
			b = append(b, bytes.Repeat([]byte{byte(r.IntN(3))}, k)...)
		case 1:
			b = append(b, testkit.Noise(r, k)...)
		default:
			at := r.IntN(len(b) + 1)
			b = append(b, b[at:min(len(b), at+k)]...)
			b = append(b, byte(r.Uint32()))
		}
	}
	return b[:n]
}

func contents(r *rand.Rand) map[string][]byte {
	return map[string][]byte{
		"nothing":      nil,
		"a byte":       {'x'},
		"a zero":       {0},
		"eleven bytes": text(11),
		"text":         text(150_000),
		"zeros":        make([]byte, 300_000),
		"noise":        testkit.Noise(r, 100_001),
		"a mixture":    mixture(r, 1+r.IntN(200_000)),
		"a small one":  mixture(r, 1+r.IntN(400)),
	}
}

func TestRecordsBecomeWhatTheyWereWhateverIsBehind(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	all := contents(r)
	for _, enc := range encodings {
		t.Run(enc.name, func(t *testing.T) {
			for what, content := range all {
				stored := enc.encode(t, content)
				for behind, b := range map[string][]byte{
					"nothing":           nil,
					"a zero":            {0},
					"zeros":             make([]byte, 4095),
					"0xFF":              bytes.Repeat([]byte{0xFF}, 9),
					"noise":             testkit.Noise(r, 1000),
					"the same":          stored,
					"another":           enc.encode(t, text(999)),
					"a skippable frame": skippable(40),
				} {
					padded := join(stored, b)
					if got, err := decodeAll(enc.codec, padded, 1<<30); err != nil || !bytes.Equal(got, content) {
						t.Errorf("%s, behind it %s: streamed: %d bytes, expected %d, %v", what, behind, len(got), len(content), err)
					}
					for _, dst := range [][]byte{nil, []byte("before"), append(make([]byte, 0, 10+len(content)), "before"...)} {
						got, err := appendTo(enc.codec, dst, padded, len(content))
						if err != nil || string(got[:len(dst)]) != string(dst) || !bytes.Equal(got[len(dst):], content) {
							t.Errorf("%s, behind it %s: appended: %d bytes, expected %d behind %d, %v", what, behind, len(got), len(content), len(dst), err)
						}
					}
				}
			}
		})
	}
}

// A reader may give what it has in any pieces.
func TestRecordsAreStreamedFromAnyReader(t *testing.T) {
	testkit.Serial(t)
	content := mixture(testkit.Rand(t), 200_000)
	for _, enc := range encodings {
		stored := join(enc.encode(t, content), make([]byte, 500))
		c, _ := Lookup(enc.codec)
		for how, r := range map[string]io.Reader{
			"a byte at a time": iotest.OneByteReader(bytes.NewReader(stored)),
			"halves":           iotest.HalfReader(bytes.NewReader(stored)),
			"data with EOF":    iotest.DataErrReader(bytes.NewReader(stored)),
		} {
			d, err := c.Decode(r)
			if err != nil {
				t.Fatalf("%s, %s: %v", enc.name, how, err)
			}
			if err := iotest.TestReader(d, content); err != nil {
				t.Errorf("%s, %s: %v", enc.name, how, err)
			}
			d.Close()
		}
	}
}

// The front of a record is as much as is wanted, or more, and never anything else.
func TestTheFrontOfARecordIsWhatTheWholeBeginsWith(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	shorter := 0
	for _, n := range []int{1, 1000, 131_071, 131_072, 131_073, 200_000, 262_144, 300_001, 1 << 20} {
		for name, b := range map[string][]byte{"noise": testkit.Noise(r, n), "mixture": mixture(r, n), "zeros": make([]byte, n)} {
			for _, x := range encodings {
				c, _ := Lookup(x.codec)
				if c.AppendFront == nil {
					continue
				}
				stored := append(x.encode(t, b), "what is behind it"...)
				for _, want := range []int{1, n / 3, n / 2, n - 1, n} {
					got, err := c.AppendFront([]byte("before"), stored, n, want)
					if err != nil || len(got) < 6+want || !bytes.Equal(got[6:], b[:len(got)-6]) || string(got[:6]) != "before" {
						t.Fatalf("%s, %s of %d: the first %d: %d bytes, %v", x.name, name, n, want, len(got), err)
					}
					if len(got)-6 < n {
						shorter++
						if x.summed {
							t.Errorf("%s: its checksum was not looked at", x.name)
						}
					}
				}
			}
		}
	}
	if shorter < 20 {
		t.Errorf("only %d times less than the whole was decoded", shorter)
	}
}

func TestARecordOfAnotherSizeIsAnError(t *testing.T) {
	testkit.Serial(t)
	for what, content := range contents(testkit.Rand(t)) {
		for _, enc := range encodings {
			stored := join(enc.encode(t, content), make([]byte, 100))
			for _, size := range []int{-1, 0, 1, len(content) - 1, len(content) + 1, 2*len(content) + 5, 2 << 20} {
				if size == len(content) {
					continue
				}
				b, err := appendTo(enc.codec, []byte("before"), stored, size)
				if err == nil || string(b) != "before" {
					t.Errorf("%s of %s as %d bytes, not %d: %d bytes, %v", enc.name, what, size, len(content), len(b), err)
				}
			}
		}
	}
}

func TestARecordCutOffAnywhereIsAnError(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	for _, content := range [][]byte{nil, text(700), mixture(r, 900), testkit.Noise(r, 300), make([]byte, 5000)} {
		for _, enc := range encodings {
			stored := enc.encode(t, content)
			for n := range stored {
				if b, err := appendTo(enc.codec, nil, stored[:n], len(content)); err == nil || len(b) > 0 {
					t.Errorf("%s: %d of %d: appended: %d bytes, %v", enc.name, n, len(stored), len(b), err)
				}
				b, err := decodeAll(enc.codec, stored[:n], 1<<30)
				if err == nil || !bytes.HasPrefix(content, b) {
					t.Errorf("%s: %d of %d: streamed: %d bytes, %v", enc.name, n, len(stored), len(b), err)
				}
			}
		}
	}
}

// Where there is a checksum, no bit is wrong unnoticed. Where there is none, what
// comes out has the right size, and is the same either way.
func TestAFlippedBitIsNoticedOrTheSameEitherWay(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	for _, content := range [][]byte{text(200), mixture(r, 300)} {
		for _, enc := range encodings {
			stored := join(enc.encode(t, content))
			for bit := range 8 * len(stored) {
				damaged := join(stored, make([]byte, 64))
				damaged[bit/8] ^= 1 << (bit % 8)
				b, err := appendTo(enc.codec, nil, damaged, len(content))
				s, serr := decodeAll(enc.codec, damaged, 1<<20)
				switch {
				case err == nil && len(b) != len(content):
					t.Errorf("%s, bit %d: %d bytes, expected %d", enc.name, bit, len(b), len(content))
				case err == nil && (serr != nil || !bytes.Equal(b, s)):
					t.Errorf("%s, bit %d: appended, but streamed %d bytes, %v", enc.name, bit, len(s), serr)
				case serr == nil && len(s) == len(content) && err != nil:
					t.Errorf("%s, bit %d: streamed, but appended %v", enc.name, bit, err)
				case enc.summed && err == nil && !bytes.Equal(b, content):
					t.Errorf("%s, bit %d: other content, and nobody notices", enc.name, bit)
				}
			}
		}
	}
}

// The engine takes ErrChecksum to mean that nothing before it can be trusted, so
// it must be this one whatever the codec.
func TestAWrongChecksumIsCalledThat(t *testing.T) {
	content := text(5000)
	for _, enc := range encodings {
		if !enc.summed {
			continue
		}
		damaged := enc.encode(t, content)
		damaged[len(damaged)-1] ^= 1
		damaged = append(damaged, make([]byte, 100)...)
		if _, err := appendTo(enc.codec, nil, damaged, len(content)); !errors.Is(err, ErrChecksum) {
			t.Errorf("%s: appended: expected ErrChecksum, found %v", enc.name, err)
		}
		if _, err := appendTo(enc.codec, nil, damaged, len(content)+1); err == nil {
			t.Errorf("%s: appended as one byte more", enc.name)
		}
		if _, err := decodeAll(enc.codec, damaged, 1<<30); !errors.Is(err, ErrChecksum) {
			t.Errorf("%s: streamed: expected ErrChecksum, found %v", enc.name, err)
		}
	}
}

func TestWhatIsNoRecordIsAnError(t *testing.T) {
	zstdHead := []byte{0x28, 0xB5, 0x2F, 0xFD}
	for _, tt := range []struct {
		what, codec string
		stored      []byte
	}{
		{"nothing", ZlibRecord, nil},
		{"nothing", SnappyRecord, nil},
		{"nothing", ZstdRecord, nil},
		{"zeros", ZlibRecord, make([]byte, 4096)},
		{"zeros", ZstdRecord, make([]byte, 4096)},
		{"raw deflate", ZlibRecord, []byte{3, 0, 0, 0}},
		{"a gzip member", ZlibRecord, []byte{0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"a window of 64 KiB", ZlibRecord, []byte{0x88, 0x1C, 3, 0, 0, 0, 0, 1}},
		{"a preset dictionary", ZlibRecord, []byte{0x78, 0xBB, 1, 2, 3, 4, 3, 0, 0, 0, 0, 1}},
		{"a length that does not end", SnappyRecord, bytes.Repeat([]byte{0xFF}, 20)},
		{"a length of 4 GiB", SnappyRecord, []byte{0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0}},
		{"a copy of nothing", SnappyRecord, []byte{4, 0b000_000_01, 1}},
		{"a copy from before the beginning", SnappyRecord, []byte{5, 0, 'x', 0b000_000_01, 2}},
		// Snappy's successor S2 means by this the last distance once more.
		{"a copy from 0 bytes back", SnappyRecord, []byte{13, 0, 'x', 0b000_100_01, 1, 0b000_000_01, 0}},
		{"a copy from 0 bytes back, in two bytes", SnappyRecord, []byte{5, 0, 'x', 3<<2 | 2, 0, 0}},
		{"a copy from 0 bytes back, in four bytes", SnappyRecord, []byte{5, 0, 'x', 3<<2 | 3, 0, 0, 0, 0}},
		{"a literal longer than the block", SnappyRecord, []byte{2, 2 << 2, 'x', 'y', 'z'}},
		{"a literal of 4 GiB", SnappyRecord, []byte{100, 63 << 2, 0xFF, 0xFF, 0xFF, 0xFF, 'x'}},
		{"a literal of 2 GiB", SnappyRecord, []byte{100, 63 << 2, 0xFF, 0xFF, 0xFF, 0x7F, 'x'}},
		{"a skippable frame", ZstdRecord, skippable(9)},
		{"a frame behind a skippable one", ZstdRecord, join(skippable(9), frame(t, text(100)))},
		{"a dictionary", ZstdRecord, join(zstdHead, []byte{0x21, 9, 0, 1, 0, 0})},
		// All fields that a header can have, at their longest: 18 bytes.
		{"the longest header", ZstdRecord, join(zstdHead, []byte{0xC3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0})},
		{"the longest header cut off", ZstdRecord, join(zstdHead, []byte{0xC3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})},
		{"a block of the type that there is not", ZstdRecord, join(zstdHead, []byte{0x20, 1, 0x0F, 0, 0, 'x'})},
		{"a frame that says 2^63 bytes", ZstdRecord, join(zstdHead, []byte{0xE0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0})},
	} {
		for _, size := range []int{0, 1, 4, 5, 13, 100} {
			if b, err := appendTo(tt.codec, nil, tt.stored, size); err == nil || len(b) > 0 {
				t.Errorf("%s, %s: appended as %d: %d bytes, %v", tt.codec, tt.what, size, len(b), err)
			}
		}
		if b, err := decodeAll(tt.codec, tt.stored, 1<<20); err == nil {
			t.Errorf("%s, %s: streamed %d bytes", tt.codec, tt.what, len(b))
		}
	}
}

// A block of zeros is one of no bytes: nothing in it is wrong.
func TestZerosAreAnEmptySnappyRecord(t *testing.T) {
	if b, err := decodeAll(SnappyRecord, make([]byte, 100), 10); err != nil || len(b) > 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestARecordThatIsABombTakesNoMoreThanItsSize(t *testing.T) {
	testkit.Serial(t)
	const size = 1 << 20
	zeros := make([]byte, 64<<20)
	literalsAndCopies := append([]byte{0x80, 0x80, 0x40}, 0, 0) // says 1 MiB
	for len(literalsAndCopies) < 3<<20 {
		literalsAndCopies = append(literalsAndCopies, 63<<2|2, 1, 0)
	}
	little := frame(t, zeros, zstd.WithSingleSegment(true))
	if little[4] != 0xA4 {
		t.Fatalf("expected a size in four bytes, found descriptor %#x", little[4])
	}
	binary.LittleEndian.PutUint32(little[5:], size)
	for _, enc := range encodings { // warm
		if _, err := appendTo(enc.codec, nil, enc.encode(t, zeros[:size]), size); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		what, codec string
		stored      []byte
		most        uint64
	}{
		{"zlib", ZlibRecord, deflated(t, zeros, 9), size + 100<<10},
		{"one byte more", ZlibRecord, deflated(t, zeros[:size+1], 9), size + 100<<10},
		{"snappy", SnappyRecord, snappy.Encode(nil, zeros), 100 << 10},
		{"snappy that says little", SnappyRecord, literalsAndCopies, 100 << 10},
		{"snappy that says 64 MiB and has nothing", SnappyRecord, []byte{0x80, 0x80, 0x80, 0x20, 0, 0}, 100 << 10},
		{"zstd", ZstdRecord, frame(t, zeros), 100 << 10},
		{"zstd that does not say", ZstdRecord, unsized(t, zeros), 3 * size},
		{"zstd that says little", ZstdRecord, little, 3 * size},
		{"one byte more", ZstdRecord, unsized(t, zeros[:size+1]), 3 * size},
	} {
		before := allocated()
		b, err := appendTo(tt.codec, nil, tt.stored, size)
		if n := allocated() - before; err == nil || len(b) > 0 || n > tt.most {
			t.Errorf("%s, %s: %d bytes, %v, and took %d bytes, expected %d at most", tt.codec, tt.what, len(b), err, n, tt.most)
		}
	}
}

// counter counts what is read of a record.
type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// Who reads some of a record does not make all of it: neither time nor memory.
func TestAStreamIsReadOnlyAsFarAsItIsWanted(t *testing.T) {
	testkit.Serial(t)
	content := mixture(rand.New(rand.NewPCG(3, 4)), 4<<20)
	for _, enc := range encodings {
		if enc.codec == SnappyRecord {
			continue // is decoded whole
		}
		stored := enc.encode(t, content)
		c, _ := Lookup(enc.codec)
		in := &counter{r: bytes.NewReader(stored)}
		d, err := c.Decode(in)
		if err == nil {
			_, err = io.ReadFull(d, make([]byte, 1000))
		}
		if err = errors.Join(err, d.Close()); err != nil {
			t.Errorf("%s: %v", enc.name, err)
		}
		if in.n > len(stored)/2 {
			t.Errorf("%s: read %d of %d bytes for the first 1000", enc.name, in.n, len(stored))
		}
	}
}

// Of a frame only its own bytes are read: behind it is what somebody else wants.
func TestAZstdStreamReadsNothingBehindItsFrame(t *testing.T) {
	for _, content := range [][]byte{nil, text(1), text(300_000), make([]byte, 300_000)} {
		for _, enc := range encodings {
			if enc.codec != ZstdRecord {
				continue
			}
			stored := enc.encode(t, content)
			in := &counter{r: bytes.NewReader(join(stored, make([]byte, 1<<20)))}
			d, err := decodeZstdRecord(in)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(d); err != nil || !bytes.Equal(b, content) || in.n != len(stored) {
				t.Errorf("%s: %d bytes, %v, read %d bytes, the frame has %d", enc.name, len(b), err, in.n, len(stored))
			}
			d.Close()
		}
	}
}

// The longest record can be streamed even where compression made it longer.
func TestTheLongestRecordOfNoiseIsStreamed(t *testing.T) {
	testkit.Serial(t)
	content := make([]byte, maxRecord)
	rand.NewChaCha8([32]byte{5}).Read(content)
	stored := snappy.Encode(nil, content)
	if len(stored) <= maxRecord {
		t.Fatalf("it became shorter: %d bytes", len(stored))
	}
	if b, err := decodeAll(SnappyRecord, join(stored, make([]byte, 4096)), maxRecord+1); err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestErrorsOfWhatARecordIsReadFromComeUp(t *testing.T) {
	broken := errors.New("broken")
	content := mixture(testkit.Rand(t), 100_000)
	for _, enc := range encodings {
		stored := enc.encode(t, content)
		c, _ := Lookup(enc.codec)
		for _, n := range []int{0, 1, 2, 3, 5, 8, 100, len(stored) / 2, len(stored) - 1} {
			d, err := c.Decode(io.MultiReader(bytes.NewReader(stored[:n]), iotest.ErrReader(broken)))
			var b []byte
			if err == nil {
				b, err = io.ReadAll(d)
				d.Close()
			}
			if !errors.Is(err, broken) || !bytes.HasPrefix(content, b) {
				t.Errorf("%s: after %d of %d: %d bytes, %v", enc.name, n, len(stored), len(b), err)
			}
		}
	}
}

func TestAClosedRecordGivesNothing(t *testing.T) {
	for _, enc := range encodings {
		c, _ := Lookup(enc.codec)
		if c.Name == SnappyRecord {
			continue // is decoded whole
		}
		stored := enc.encode(t, text(50_000))
		for range 20 {
			d, err := c.Decode(bytes.NewReader(stored))
			if err == nil {
				_, err = io.ReadFull(d, make([]byte, 10))
			}
			if err = errors.Join(err, d.Close(), d.Close()); err != nil {
				t.Fatalf("%s: %v", enc.name, err)
			}
			if n, err := d.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
				t.Fatalf("%s: read after close: %d, %v", enc.name, n, err)
			}
		}
	}
}

// Decoders are used again, also after records that they could not decode. None may
// then give what it should not, least of all content of the record before.
func TestRecordsDecodeAfterOthersThatDoNot(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	letters := func(from string, n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[r.IntN(len(from))]
			if k := r.IntN(200); i > 1000 && r.IntN(20) == 0 && i+k < len(b) {
				copy(b[i:], b[i-1000:][:k])
			}
		}
		return b
	}
	secret, public := letters("SECRT", 60_000), letters("public", 50_000)
	for _, enc := range encodings {
		t.Run(enc.name, func(t *testing.T) {
			hidden, shown := enc.encode(t, secret), enc.encode(t, public)
			damages := make([][]byte, 40)
			for i := range damages {
				damages[i] = join(shown, make([]byte, 100))
				for range 1 + r.IntN(3) {
					damages[i][r.IntN(len(shown))] ^= 1 << r.IntN(8)
				}
				if r.IntN(3) == 0 {
					damages[i] = damages[i][:r.IntN(len(shown))]
				}
			}
			var wait sync.WaitGroup
			for half := range 2 {
				wait.Go(func() {
					for _, damaged := range damages[20*half:][:20] {
						for what, decode := range map[string]func(stored []byte, size int) ([]byte, error){
							"append": func(stored []byte, size int) ([]byte, error) { return appendTo(enc.codec, nil, stored, size) },
							"stream": func(stored []byte, size int) ([]byte, error) { return decodeAll(enc.codec, stored, int64(size)) },
						} {
							if b, err := decode(hidden, len(secret)); err != nil || !bytes.Equal(b, secret) {
								t.Errorf("%s: %d bytes, %v", what, len(b), err)
							}
							b, err := decode(damaged, len(public))
							if bytes.Contains(b, []byte("SECR")) {
								t.Errorf("%s: what was decoded before is in it: %v", what, err)
							}
						}
					}
				})
			}
			wait.Wait()
		})
	}
}

func TestRandomRecordsBecomeWhatTheyWere(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	for i := range 150 {
		content := mixture(r, r.IntN(1+r.IntN(200_000)))
		enc := encodings[i%len(encodings)]
		stored := join(enc.encode(t, content), testkit.Noise(r, r.IntN(50)))
		b, err := appendTo(enc.codec, nil, stored, len(content))
		s, serr := decodeAll(enc.codec, stored, 1<<30)
		if err != nil || serr != nil || !bytes.Equal(b, content) || !bytes.Equal(s, content) {
			t.Fatalf("%s of %d bytes: %v, %v", enc.name, len(content), err, serr)
		}
	}
}

func FuzzRecords(f *testing.F) {
	names := []string{ZlibRecord, SnappyRecord, ZstdRecord}
	long := text(20_000)
	for _, enc := range encodings {
		which := slices.Index(names, enc.codec)
		for _, content := range [][]byte{nil, []byte("x"), long[:300], long, make([]byte, 100_000)} {
			f.Add(byte(which), enc.encode(f, content), len(content))
			f.Add(byte(which), join(enc.encode(f, content), make([]byte, 20)), len(content)+1)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, stored []byte, size int) {
		name := names[int(which)%len(names)]
		const most = 1 << 20
		size = min(max(size, -1), most)
		b, err := appendTo(name, []byte("b"), stored, size)
		if err != nil && string(b) != "b" || err == nil && len(b) != 1+size {
			t.Fatalf("appended as %d: %d bytes, %v", size, len(b)-1, err)
		}
		s, serr := decodeAll(name, stored, most+1)
		if err == nil && (serr != nil || !bytes.Equal(b[1:], s)) {
			t.Fatalf("appended %d bytes, streamed %d, %v", size, len(s), serr)
		}
		if serr == nil && len(s) <= most {
			if b, err := appendTo(name, nil, stored, len(s)); err != nil || !bytes.Equal(b, s) {
				t.Fatalf("streamed %d bytes, appended %d, %v", len(s), len(b), err)
			}
		}
		// What is behind a record is no part of it.
		if again, err2 := appendTo(name, nil, join(stored, []byte(fmt.Sprint(size, "behind"))), size); err == nil && (err2 != nil || !bytes.Equal(again, b[1:])) {
			t.Fatalf("with more behind it: %d bytes, %v", len(again), err2)
		}
	})
}
