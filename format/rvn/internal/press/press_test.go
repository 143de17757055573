package press

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"go/build"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// files returns about n bytes of the files under dir, end to end, from all places under dir.
func files(t testing.TB, dir, pattern string, n int64) []byte {
	t.Helper()
	type file struct {
		name string
		size int64
	}
	var all []file
	total := int64(0)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be read is no part of the sample
		}
		if ok, _ := filepath.Match(pattern, d.Name()); !ok {
			return nil
		}
		if i, err := d.Info(); err == nil {
			all = append(all, file{name, i.Size()})
			total += i.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	seen := int64(0)
	for _, f := range all {
		seen += f.size
		if int64(len(b)) >= n*seen/max(total, n) {
			continue
		}
		p, err := os.ReadFile(f.name)
		if err != nil {
			continue
		}
		b = append(b, p...)
	}
	return b[:min(int64(len(b)), n)]
}

func goSources(t testing.TB, n int64) []byte {
	return files(t, filepath.Join(build.Default.GOROOT, "src"), "*.go", n)
}

// binaries is programs, or at least this one.
func binaries(t testing.TB, n int64) []byte {
	if b := files(t, "/usr/bin", "*", n); len(b) > 0 {
		return b
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	return b[:min(int64(len(b)), n)]
}

// copies is n bytes that copy themselves, from few distances, and from one less
// than the last, with and without literals between.
func copies(r *rand.Rand, n int) []byte {
	b := testkit.Noise(r, 64)
	distances := []int{1, 2, 3, 7, 33, 63}
	for len(b) < n {
		if r.IntN(3) == 0 {
			b = append(b, testkit.Noise(r, r.IntN(4))...)
		}
		d := distances[r.IntN(len(distances))]
		switch r.IntN(8) {
		case 0:
			distances[r.IntN(len(distances))] = 1 + r.IntN(len(b))
		case 1:
			distances[0] = max(1, d-1)
		}
		for range 3 + r.IntN(1<<r.IntN(9)) {
			b = append(b, b[len(b)-d])
		}
	}
	return b[:n]
}

// words is text of n bytes in which few words are frequent.
func words(r *rand.Rand, n int) []byte {
	var dictionary [2000][]byte
	for i := range dictionary {
		dictionary[i] = testkit.Noise(r, 2+r.IntN(9))
		for j := range dictionary[i] {
			dictionary[i][j] = 'a' + dictionary[i][j]%26
		}
	}
	var b []byte
	for len(b) < n {
		b = append(append(b, dictionary[int(r.ExpFloat64()*150)%len(dictionary)]...), ' ')
	}
	return b[:n]
}

// settings are the encoders there are.
var settings = []struct {
	name string
	new  func() *Encoder
}{
	{"lazy", New},
	{"best", NewBest},
}

// eachSetting runs a test of every setting.
func eachSetting(t *testing.T, test func(t *testing.T, newEncoder func() *Encoder)) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) { test(t, s.new) })
	}
}

// longCopies returns n bytes in which copies have all lengths around the number of bytes that the
// slower setting examines together, and follow each other directly or nearly so.
func longCopies(r *rand.Rand, n int) []byte {
	b := testkit.Noise(r, 10_000)
	for len(b) < n {
		length := []int{longest, stretch, 2 * stretch, 384, r.IntN(stretch)}[r.IntN(5)] + r.IntN(9) - 4
		from := r.IntN(len(b))
		for i := range max(length, 0) {
			b = append(b, b[from+i])
		}
		b = append(b, testkit.Noise(r, r.IntN(3))...)
	}
	return b[:n]
}

type input struct {
	name string
	b    []byte
}

// inputs is all kinds of content.
func inputs(t testing.TB, r *rand.Rand) []input {
	in := []input{
		{"sources", goSources(t, 3<<20)},
		{"programs", binaries(t, 3<<20)},
		{"noise", testkit.Noise(r, 1<<20+77)},
		{"zeros", make([]byte, 1<<20+3)},
		{"words", words(r, 700_000)},
		{"one block", words(r, mostBlock)},
		{"one block and a byte", words(r, mostBlock+1)},
		{"copies", copies(r, 1<<20)},
		{"more than a section", append(words(r, MaxSection), copies(r, 200_000)...)},
		{"noise, again far off", nil},
		{"noise with islands", nil},
		{"few symbols", nil},
		{"all literals of one kind", nil},
		{"long copies", longCopies(r, 1<<20)},
	}
	far := testkit.Noise(r, 300_000)
	in[9].b = append(append(bytes.Clone(far), make([]byte, MaxSection-2*len(far))...), far...)
	islands := testkit.Noise(r, 1<<20)
	for i := 0; i+2000 < len(islands); i += 1 + r.IntN(9000) {
		copy(islands[i:], islands[r.IntN(i+1):][:r.IntN(900)])
	}
	in[10].b = islands
	few := testkit.Noise(r, 400_000)
	for i := range few {
		few[i] = few[i] & (few[i] >> 4) & 3
	}
	in[11].b = few
	// Runs of one letter between copies: literals, all of them x.
	for i := 0; i < 200_000; i = len(in[12].b) {
		in[12].b = append(in[12].b, 'x')
		in[12].b = append(in[12].b, "a match of something"[:10+r.IntN(10)]...)
	}
	for period := 1; period <= 17; period++ {
		p := testkit.Noise(r, period)
		in = append(in, input{fmt.Sprintf("period %d", period), bytes.Repeat(p, 1+r.IntN(400_000)/period)})
	}
	for range 40 {
		in = append(in,
			input{"short copies", copies(r, r.IntN(5000))},
			input{"short words", words(r, r.IntN(5000))})
	}
	for i := range in {
		in[i].b = in[i].b[:min(len(in[i].b), most)]
	}
	return in
}

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxSection))
	if err != nil {
		panic(err)
	}
	return d
})

// check decodes a frame with the other decoder of this language.
func check(t *testing.T, name string, frame, want []byte) {
	t.Helper()
	got, err := decoder().DecodeAll(frame, make([]byte, 0, len(want)+16))
	if err != nil {
		t.Fatalf("%s, %d bytes: %v", name, len(want), err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s, %d bytes: decoded to something else", name, len(want))
	}
}

// checkCommand decodes frames, which stand end to end, with the zstd command.
func checkCommand(t *testing.T, frames, want []byte) {
	t.Helper()
	command, err := exec.LookPath("zstd")
	if err != nil {
		t.Log("there is no zstd command")
		return
	}
	c := exec.Command(command, "-d", "-c", "-q", "--memory=8MB")
	c.Stdin = bytes.NewReader(frames)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("zstd -d: %v: %s", err, errs.Bytes())
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Fatal("zstd -d: decoded to something else")
	}
}

func TestFramesDecode(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		r := testkit.Rand(t)
		e := newEncoder()
		var frames, all []byte
		for _, in := range inputs(t, r) {
			at := len(frames)
			frames = e.Frame(frames, in.b)
			check(t, in.name, frames[at:], in.b)
			all = append(all, in.b...)
			if len(in.b) < MaxSection && !bytes.Equal(newEncoder().Frame(nil, in.b), frames[at:]) {
				t.Errorf("%s: an encoder that was used makes something else than a new one", in.name)
			}
		}
		checkCommand(t, frames, all)
	})
}

func TestFramesOfAllShortLengthsDecode(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		r := testkit.Rand(t)
		e := newEncoder()
		var frames, all []byte
		kinds := map[string][]byte{
			"noise":               testkit.Noise(r, 300),
			"zeros":               make([]byte, 300),
			"period":              bytes.Repeat(testkit.Noise(r, 5), 60),
			"copies":              copies(r, 300),
			"words":               words(r, 300),
			"sources":             goSources(t, 300),
			"zeros, noise, zeros": append(append(make([]byte, 100), testkit.Noise(r, 100)...), make([]byte, 100)...),
		}
		for name, b := range kinds {
			for n := range len(b) + 1 {
				at := len(frames)
				frames = e.Frame(frames, b[:n])
				check(t, name, frames[at:], b[:n])
				all = append(all, b[:n]...)
			}
		}
		checkCommand(t, frames, all)
	})
}

func TestFrameSizesAreSaid(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		e := newEncoder()
		for _, n := range []int{0, 1, 255, 256, 257, 1<<16 + 255, 1<<16 + 256, MaxSection, MaxSection + 1} {
			var h zstd.Header
			if err := h.Decode(e.Frame(nil, make([]byte, n))); err != nil {
				t.Fatal(n, err)
			}
			if !h.HasFCS || h.FrameContentSize != uint64(n) || h.WindowSize > MaxSection || h.HasCheckSum {
				t.Errorf("%d bytes: the header says %+v", n, h)
			}
		}
	})
}

// merged is a frame of sections, which are decoded with a window of 8 MiB.
func merged(sections ...[]byte) []byte {
	b := []byte{0x28, 0xB5, 0x2F, 0xFD, 0, (mostSectionLog - 10) << 3}
	for _, s := range sections {
		b = append(b, s...)
	}
	return append(b, 1, 0, 0)
}

// odd returns a section that leaves a decoder with repeated offsets 71, 73 and 79, a tree, and
// custom tables for all three kinds of codes.
func odd(t testing.TB, e *Encoder) (section, content []byte) {
	r := rand.New(rand.NewPCG(7, 9))
	content = words(r, 20_000)
	content = append(content, testkit.Noise(r, 100)...)
	for _, o := range []int{79, 73, 71} {
		content = append(content, testkit.Noise(r, 9)...)
		for range 40 {
			content = append(content, content[len(content)-o])
		}
	}
	content = append(content, testkit.Noise(r, 9)...)
	section = e.Section(nil, content)
	if e.rep != (repeats{71, 73, 79}) || !e.treeKnown || !e.ll.known || !e.of.known || !e.ml.known {
		t.Fatalf("the section leaves %v, and what it should know it does not", e.rep)
	}
	return section, content
}

func TestSectionsStandBehindAnyOthers(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		r := testkit.Rand(t)
		e := newEncoder()
		type section struct{ coded, content []byte }
		o, c := odd(t, New())
		sections := []section{{o, c}}
		for _, in := range inputs(t, r) {
			if len(in.b) > 1<<20 {
				in.b = in.b[:1<<20]
			}
			s := section{e.Section(nil, in.b), in.b}
			check(t, in.name, merged(s.coded), s.content)
			check(t, in.name+" behind others", merged(o, s.coded), append(bytes.Clone(c), s.content...))
			sections = append(sections, s)
		}
		for range 3 {
			var coded [][]byte
			var content []byte
			for range 60 {
				s := sections[r.IntN(len(sections))]
				coded = append(coded, s.coded)
				content = append(content, s.content...)
			}
			frame := merged(coded...)
			check(t, "all orders", frame, content)
			checkCommand(t, frame, content)
		}
	})
}

// A section that used the offsets with which a decoder begins, 1, 4 and 8, would be decoded
// correctly only as the first section of a frame.
func TestSectionsUseNoOffsetsTheyHaveNotSet(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		o, c := odd(t, New())
		e := newEncoder()
		r := testkit.Rand(t)
		for range 3000 {
			// Runs at distances that decoders begin with, or that odd leaves.
			b := testkit.Noise(r, 80)
			for range 1 + r.IntN(5) {
				d := []int{1, 3, 4, 8, 7, 70, 71, 73, 79}[r.IntN(9)]
				for range 4 + r.IntN(30) {
					b = append(b, b[len(b)-d])
				}
				b = append(b, testkit.Noise(r, r.IntN(3))...)
			}
			b = b[r.IntN(80):]
			s := e.Section(nil, b)
			check(t, "alone", merged(s), b)
			check(t, "behind others", merged(o, s), append(bytes.Clone(c), b...))
		}
	})
}

func TestSectionsAreNotMuchLongerThanTheirContent(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		r := testkit.Rand(t)
		e := newEncoder()
		for _, n := range []int{1, 100, mostBlock, 3*mostBlock + 5} {
			if got, most := len(e.Section(nil, testkit.Noise(r, n))), n+3*((n+mostBlock-1)/mostBlock); got > most {
				t.Errorf("noise of %d bytes: expected at most %d, found %d", n, most, got)
			}
		}
		if got := len(e.Section(nil, make([]byte, 1<<20))); got != 8*4 {
			t.Errorf("1 MiB of zeros: expected 8 blocks of 4 bytes, found %d bytes", got)
		}
	})
}

func TestSectionsAppendAndAllocateNothing(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		e := newEncoder()
		b := goSources(t, 1<<20)
		dst := e.Section([]byte("before"), b)
		if !bytes.HasPrefix(dst, []byte("before")) || !bytes.Equal(dst[6:], e.Section(nil, b)) {
			t.Fatal("what stood before is not there, or what is appended depends on it")
		}
		if n := testing.AllocsPerRun(3, func() { dst = e.Section(dst[:0], b) }); n > 0 {
			t.Errorf("expected no allocations, found %v", n)
		}
	})
}

func TestBestIsSmaller(t *testing.T) {
	r := testkit.Rand(t)
	for _, in := range []input{
		{"sources", goSources(t, 2<<20)},
		{"programs", binaries(t, 2<<20)},
		{"words", words(r, 1<<20)},
		{"a short section", goSources(t, 64<<10)},
	} {
		lazy, best := len(New().Section(nil, in.b)), len(NewBest().Section(nil, in.b))
		if best > lazy-lazy/50 {
			t.Errorf("%s: expected 2 %% less than %d bytes, found %d", in.name, lazy, best)
		}
	}
}

// blockSizes is how long the blocks of a section are that are compressed.
func blockSizes(section []byte) (sizes []int) {
	for len(section) > 0 {
		n := int(section[0]) | int(section[1])<<8 | int(section[2])<<16
		sizes = append(sizes, n>>3)
		section = section[blockHeader+n>>3:]
	}
	return sizes
}

func TestBestSplitsBlocksWhereContentChanges(t *testing.T) {
	r := testkit.Rand(t)
	upper := bytes.ToUpper(words(r, mostBlock/2))
	changing := append(words(r, mostBlock/2), upper...)
	if got := blockSizes(NewBest().Section(nil, changing)); len(got) < 2 {
		t.Errorf("small letters and then capitals: expected several blocks, found one of %d bytes", got[0])
	}
	if got := blockSizes(NewBest().Section(nil, words(r, mostBlock))); len(got) > 3 {
		t.Errorf("words of one kind: expected few blocks, found %d", len(got))
	}
}

func TestPricesFollowWhatIsCounted(t *testing.T) {
	var p prices
	p.forget([]byte("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeet"))
	p.set()
	if p.literal['e'] >= p.literal['t'] || p.literal['t'] > p.literal['x'] {
		t.Errorf("prices of e, t and x: found %d, %d and %d", p.literal['e'], p.literal['t'], p.literal['x'])
	}
	before := p.match[20]
	for range 200 {
		p.count(nil, &sequence{mc: matchCode(20 - leastMatch)})
	}
	p.set()
	if p.match[20] >= before || p.match[20] < bit {
		t.Errorf("a frequent length: expected less than %d, found %d", before, p.match[20])
	}
	for n := uint32(64); n < mostBlock; n *= 2 {
		if got, least := p.literals(n), int32(literalExtra[literalCode(n)]+1)*bit; got < least {
			t.Errorf("%d literals: expected at least %d, found %d", n, least, got)
		}
	}
	for i := 1; i < 1<<20; i = i*3/2 + 1 {
		if got, want := float64(logOf(uint32(i))), math.Log2(float64(i))*bit; math.Abs(got-want) > 2 {
			t.Errorf("log %d: expected %v, found %v", i, want, got)
		}
	}
}

// Bytes after src in its array must not be used.
func TestSectionsEndWhereTheyEnd(t *testing.T) {
	eachSetting(t, func(t *testing.T, newEncoder func() *Encoder) {
		r := testkit.Rand(t)
		e := newEncoder()
		p := testkit.Noise(r, 50)
		array := bytes.Repeat(p, 6000)
		for range 300 {
			n := r.IntN(len(array))
			if !bytes.Equal(e.Section(nil, array[:n]), e.Section(nil, bytes.Clone(array[:n]))) {
				t.Fatalf("%d bytes: what is behind them matters", n)
			}
		}
	})
}

func FuzzSection(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 5))
	f.Add([]byte{}, uint16(0))
	f.Add([]byte("abcabcabcabcabc"), uint16(3))
	f.Add(copies(r, 600), uint16(20))
	f.Add(words(r, 900), uint16(400))
	f.Add(make([]byte, 100), uint16(2000))
	o, c := odd(f, New())
	var encoders []*Encoder
	for _, s := range settings {
		encoders = append(encoders, s.new())
	}
	f.Fuzz(func(t *testing.T, b []byte, times uint16) {
		// Fuzzers make short inputs, so b is also repeated to make a longer one.
		long := bytes.Clone(b)
		if len(b) > 0 {
			seed := binary.LittleEndian.Uint64(append(bytes.Clone(b), make([]byte, 8)...))
			r := rand.New(rand.NewPCG(seed, uint64(times)))
			for range times % 4096 {
				i := r.IntN(len(b))
				long = append(long, b[i:i+r.IntN(len(b)-i+1)]...)
				if len(long) > 30_000 {
					break
				}
			}
		}
		for k, e := range encoders {
			for _, in := range [][]byte{b, long} {
				check(t, settings[k].name+": frame", e.Frame(nil, in), in)
				s := e.Section(nil, in)
				check(t, settings[k].name+": section", merged(s), in)
				check(t, settings[k].name+": behind others", merged(o, s, s), append(append(bytes.Clone(c), in...), in...))
			}
		}
	})
}
