package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/internal/testkit"
)

// text is content that compresses about as well as text does.
func text(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the one engine reads content from stored units that become bytes again, whole or front to back")
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[rnd.IntN(len(words))])
		b.WriteByte(" \n-"[rnd.IntN(3)])
	}
	return b.Bytes()[:n]
}

func frame(t testing.TB, content []byte, o ...zstd.EOption) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, append(o, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(content, nil)
}

// unsized is a frame that does not say how long its content is.
func unsized(t testing.TB, content []byte, o ...zstd.EOption) []byte {
	t.Helper()
	var w bytes.Buffer
	e, err := zstd.NewWriter(&w, o...)
	if err == nil {
		_, err = io.Copy(e, iotest.HalfReader(bytes.NewReader(content)))
	}
	if err = errors.Join(err, e.Flush(), e.Close()); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

func skippable(n int) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{0x5A, 0x2A, 0x4D, 0x18}, uint32(n)), make([]byte, n)...)
}

// blocks is a frame of content, without its header and with no last block.
func blocks(t testing.TB, content []byte) []byte {
	t.Helper()
	b := unsized(t, content, zstd.WithEncoderCRC(false), zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
	if !bytes.HasPrefix(b, blocksHeader) {
		t.Fatalf("expected the header % x, found % x", blocksHeader, b[:6])
	}
	b = b[len(blocksHeader):]
	for at := 0; at < len(b); {
		h := uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16
		n := int(h >> 3)
		if h>>1&3 == 1 {
			n = 1
		}
		b[at] &^= 1
		at += 3 + n
	}
	return b
}

func decodeAll(name string, stored []byte, most int64) ([]byte, error) {
	c, _ := Lookup(name)
	d, err := c.Decode(bytes.NewReader(stored))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(d, most))
	return b, errors.Join(err, d.Close())
}

func appendTo(name string, dst, stored []byte, size int) ([]byte, error) {
	c, _ := Lookup(name)
	return c.Append(dst, stored, size)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestUnitsBecomeWhatTheyWere(t *testing.T) {
	testkit.Serial(t)
	long := text(3 << 20)
	for _, tt := range []struct {
		what, codec     string
		stored, content []byte
	}{
		{"nothing", Zstd, nil, nil},
		{"an empty frame", Zstd, frame(t, nil, zstd.WithZeroFrames(true)), nil},
		{"a frame", Zstd, frame(t, long), long},
		{"a frame that does not say its size", Zstd, unsized(t, long), long},
		{"a small frame", Zstd, frame(t, long[:11]), long[:11]},
		{"two frames", Zstd, join(frame(t, long[:1<<20]), unsized(t, long[1<<20:])), long},
		{"skippable frames alone", Zstd, join(skippable(0), skippable(7)), nil},
		{"skippable frames among others", Zstd, join(skippable(3), frame(t, long[:99]), skippable(0), skippable(9), frame(t, long[99:]), skippable(1<<20)), long},
		{"one byte, many times", Zstd, frame(t, make([]byte, 1<<20)), make([]byte, 1<<20)},
		{"no blocks", ZstdBlocks, nil, nil},
		{"an empty block", ZstdBlocks, []byte{0, 0, 0}, nil},
		{"one block", ZstdBlocks, blocks(t, long[:1000]), long[:1000]},
		{"blocks", ZstdBlocks, blocks(t, long), long},
		{"blocks of two frames", ZstdBlocks, join(blocks(t, long[:1<<20]), []byte{8, 0, 0, 'x'}), append(bytes.Clone(long[:1<<20]), 'x')},
		{"a block of one byte, many times", ZstdBlocks, []byte{5<<3 | 2, 0, 0, 'y'}, []byte("yyyyy")},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if b, err := decodeAll(tt.codec, tt.stored, 1<<30); err != nil || !bytes.Equal(b, tt.content) {
				t.Errorf("streamed: %d bytes, expected %d, %v", len(b), len(tt.content), err)
			}
			size := len(tt.content)
			for _, dst := range [][]byte{nil, []byte("before"), append(make([]byte, 0, 10+size), "before"...)} {
				b, err := appendTo(tt.codec, dst, tt.stored, size)
				if err != nil || string(b[:len(dst)]) != string(dst) || !bytes.Equal(b[len(dst):], tt.content) {
					t.Errorf("appended: %d bytes, expected %d behind %d, %v", len(b), size, len(dst), err)
				}
			}
		})
	}
}

func TestWhatIsNoUnitIsAnError(t *testing.T) {
	long := text(300_000)
	z, zb := frame(t, long), blocks(t, long)
	last := bytes.Clone(zb)
	last[0] |= 1
	for _, tt := range []struct {
		what, codec string
		stored      []byte
	}{
		{"garbage", Zstd, []byte("garbage in the place of a frame")},
		{"a byte behind a frame", Zstd, append(bytes.Clone(z), 0)},
		{"three bytes of a frame behind one", Zstd, append(bytes.Clone(z), 0x28, 0xB5, 0x2F)},
		{"garbage behind a frame", Zstd, append(bytes.Clone(z), "garbage"...)},
		{"a skippable frame cut off", Zstd, join(z, skippable(9)[:12])},
		{"a frame cut off", Zstd, z[:len(z)/2]},
		{"a frame without its checksum", Zstd, z[:len(z)-1]},
		{"a frame with a wrong checksum", Zstd, append(bytes.Clone(z[:len(z)-1]), z[len(z)-1]^1)},
		{"a frame that needs a dictionary", Zstd, []byte{0x28, 0xB5, 0x2F, 0xFD, 0x21, 9, 0, 1, 0, 0}},
		{"a whole frame for its blocks", ZstdBlocks, z},
		{"blocks cut off within one", ZstdBlocks, zb[:len(zb)-1]},
		{"blocks cut off within a header", ZstdBlocks, append(bytes.Clone(zb), 0, 0)},
		{"blocks with a last one", ZstdBlocks, append(bytes.Clone(zb), lastBlock...)},
		{"the first block is the last", ZstdBlocks, last},
		{"a frame behind a last block", ZstdBlocks, join([]byte{9, 0, 0, 'x'}, z[:len(z)-4])},
		{"a block of no type", ZstdBlocks, []byte{14, 0, 0, 'x'}},
		{"a block that is too long", ZstdBlocks, append([]byte{0xF8, 0xFF, 0xFF}, make([]byte, 1<<21)...)},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if b, err := decodeAll(tt.codec, tt.stored, 1<<30); err == nil {
				t.Errorf("streamed: %d bytes and no error", len(b))
			}
			for _, size := range []int{0, 1, len(long), len(long) + 1} {
				if b, err := appendTo(tt.codec, []byte("b"), tt.stored, size); err == nil || string(b) != "b" {
					t.Errorf("appended, as %d bytes: %d bytes, %v", size, len(b)-1, err)
				}
			}
		})
	}
}

func TestAUnitOfAnotherSizeIsAnError(t *testing.T) {
	long := text(300_000)
	for what, u := range map[string]struct {
		codec  string
		stored []byte
	}{
		"sized": {Zstd, frame(t, long)}, "unsized": {Zstd, unsized(t, long)}, "blocks": {ZstdBlocks, blocks(t, long)},
		"frames": {Zstd, join(frame(t, long[:1000]), frame(t, long[1000:]))},
	} {
		for _, size := range []int{-1, 0, 1, 1000, len(long) - 1, len(long) + 1, 1 << 20} {
			if b, err := appendTo(u.codec, nil, u.stored, size); err == nil || len(b) > 0 {
				t.Errorf("%s as %d bytes: %d bytes, %v", what, size, len(b), err)
			}
		}
	}
}

// A window is memory that a frame of a few bytes can ask for.
func TestTooLargeAWindowIsRefusedByName(t *testing.T) {
	head := []byte{0x28, 0xB5, 0x2F, 0xFD}
	for what, stored := range map[string][]byte{
		"a window of 256 MiB":    append(bytes.Clone(head), 0, (28-10)<<3, 1, 0, 0),
		"a window of 144 MiB":    append(bytes.Clone(head), 0, (27-10)<<3|1, 1, 0, 0),
		"one segment of 129 MiB": append(binary.LittleEndian.AppendUint32(append(bytes.Clone(head), 0xA0), 129<<20), 1, 0, 0),
	} {
		before := allocated()
		if _, err := decodeAll(Zstd, stored, 1<<30); !errors.Is(err, ErrWindow) {
			t.Errorf("%s: expected ErrWindow, found %v", what, err)
		}
		if n := allocated() - before; n > 4<<20 {
			t.Errorf("%s: took %d bytes", what, n)
		}
	}
	if b, err := decodeAll(Zstd, append(bytes.Clone(head), 0, (27-10)<<3, 9, 0, 0, 'x'), 1<<30); err != nil || string(b) != "x" {
		t.Errorf("a window of 128 MiB: %q, %v", b, err)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestABombTakesNoMoreThanItsUnitShould(t *testing.T) {
	testkit.Serial(t)
	zeros := unsized(t, make([]byte, 64<<20))
	lying := bytes.Clone(frame(t, make([]byte, 64<<20)))
	if lying[4]>>6 != 2 {
		t.Fatalf("expected a size in four bytes, found descriptor %#x", lying[4])
	}
	field := 6 // behind a window
	if lying[4]&0x20 != 0 {
		field = 5
	}
	set := func(n uint32) []byte {
		b := bytes.Clone(lying)
		binary.LittleEndian.PutUint32(b[field:], n)
		return b
	}
	rle := bytes.Repeat([]byte{2, 0, 16, 0}, 512) // 128 KiB each
	const size = 1 << 20
	if _, err := appendTo(Zstd, nil, frame(t, text(1000)), 1000); err != nil { // warm
		t.Fatal(err)
	}
	for what, u := range map[string]struct {
		codec  string
		stored []byte
	}{
		"zeros":                    {Zstd, zeros},
		"a frame that says little": {Zstd, set(size)},
		"a frame that says much":   {Zstd, set(1<<32 - 1)},
		"many frames":              {Zstd, bytes.Repeat(frame(t, make([]byte, size/2+1)), 100)},
		"blocks of zeros":          {ZstdBlocks, rle},
		"blocks of more zeros":     {ZstdBlocks, blocks(t, make([]byte, 64<<20))},
	} {
		before := allocated()
		b, err := appendTo(u.codec, nil, u.stored, size)
		if err == nil || len(b) > 0 {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
		// Its own room, once more with a quarter on top where it ran over, and
		// what blocks take.
		if n := allocated() - before; n > 3*size {
			t.Errorf("%s: took %d bytes for a unit of %d", what, n, size)
		}
	}
}

func TestErrorsOfWhatIsReadComeUp(t *testing.T) {
	broken := errors.New("broken")
	long := text(1 << 20)
	for name, stored := range map[string][]byte{Zstd: unsized(t, long), ZstdBlocks: blocks(t, long)} {
		c, _ := Lookup(name)
		for _, n := range []int{0, 1, 3, 5, 8, 100, len(stored) / 2, len(stored) - 1, len(stored)} {
			d, err := c.Decode(io.MultiReader(bytes.NewReader(stored[:n]), iotest.ErrReader(broken)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(d)
			if !errors.Is(err, broken) || !bytes.HasPrefix(long, b) {
				t.Errorf("%s: after %d of %d: %d bytes, %v", name, n, len(stored), len(b), err)
			}
			d.Close()
		}
	}
}

// What was decoded before the damage is right, and comes before the error.
func TestAStreamGivesWhatIsBeforeItsDamage(t *testing.T) {
	size := 4 << 20
	if testkit.Race() {
		size = 1 << 20
	}
	long := text(size)
	for name, stored := range map[string][]byte{Zstd: unsized(t, long), ZstdBlocks: blocks(t, long)} {
		b, err := decodeAll(name, stored[:len(stored)*3/4], 1<<30)
		if err == nil || len(b) < len(long)/2 || !bytes.HasPrefix(long, b) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(b), len(long), err)
		}
	}
}

// Whoever closes a stream and who decodes it both take what is empty.
func TestAStreamIsClosedWhileItIsDecoded(t *testing.T) {
	testkit.Long(t)
	stored := frame(t, make([]byte, 40*128<<10))
	for range 4_000 {
		d, err := decodeZstd(bytes.NewReader(stored))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedStreamIsUsedAgainByOthersOnly(t *testing.T) {
	z := frame(t, text(1<<20))
	for range 50 {
		d, err := decodeZstd(iotest.HalfReader(bytes.NewReader(z)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(d, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		if n, err := d.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Fatalf("read after close: %d, %v", n, err)
		}
	}
}

func FuzzZstd(f *testing.F) {
	long := text(200_000)
	f.Add(frame(f, long[:500]), 500)
	f.Add(unsized(f, long), len(long))
	f.Add(join(skippable(3), frame(f, long[:99]), frame(f, long[:9])), 108)
	f.Add(frame(f, make([]byte, 300_000)), 1000)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, stored []byte, size int) { fuzzUnit(t, Zstd, stored, size) })
}

func FuzzZstdBlocks(f *testing.F) {
	long := text(200_000)
	f.Add(blocks(f, long[:500]), 500)
	f.Add(blocks(f, long), len(long))
	f.Add(blocks(f, make([]byte, 300_000)), 1000)
	f.Add([]byte{5<<3 | 2, 0, 0, 'y'}, 5)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, stored []byte, size int) { fuzzUnit(t, ZstdBlocks, stored, size) })
}

// fuzzUnit holds both ways to decode against each other.
func fuzzUnit(t *testing.T, name string, stored []byte, size int) {
	size = min(max(size, -1), 1<<20)
	b, err := appendTo(name, []byte("b"), stored, size)
	if err != nil && string(b) != "b" || err == nil && len(b) != 1+size {
		t.Fatalf("appended as %d: %d bytes, %v", size, len(b)-1, err)
	}
	s, serr := decodeAll(name, stored, 1<<20+1)
	if err == nil && serr == nil && !bytes.Equal(b[1:], s) {
		t.Fatalf("appended %d bytes, streamed %d others", len(b)-1, len(s))
	}
}

// Where a block cannot be decoded, a decoder must not hand out what its memory
// held before: content of another archive, or of another place.
func TestDamagedStreamsGiveNothingThatIsNotTheirs(t *testing.T) {
	testkit.Serial(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	frame := func(letters string) []byte {
		content := make([]byte, 300_000)
		for i := range content {
			content[i] = letters[rnd.IntN(len(letters))]
			if n := rnd.IntN(200); i > 1000 && rnd.IntN(20) == 0 && i+n < len(content) {
				copy(content[i:], content[i-1000:][:n])
			}
		}
		return e.EncodeAll(content, nil)
	}
	secret, public := frame("SECRT"), frame("public")
	z, _ := Lookup(Zstd)
	read := func(b []byte) []byte {
		r, err := z.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, _ := io.ReadAll(r)
		return got
	}
	for range 500 {
		if got := read(secret); len(got) != 300_000 {
			t.Fatalf("expected 300000 bytes, found %d", len(got))
		}
		damaged := bytes.Clone(public)
		for range 3 {
			damaged[20+rnd.IntN(len(damaged)-20)] ^= 1 << rnd.IntN(8)
		}
		if got := read(damaged); bytes.Contains(got, []byte("SECR")) || bytes.Count(got, []byte("S"))+bytes.Count(got, []byte("E")) > len(got)/10 {
			t.Fatal("what was decoded before is in it")
		}
	}
}
