package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// bzipped is text(300), as the bzip2 command has it: there is nothing here that writes it.
const bzipped = "QlpoOTFBWSZTWZjuSlYAAHNRgAAQQAY/75ygMACmBppqekRNMmj9UCgAxGmmjQRKaQEeiNGi73HRMpdmzqpRDwQ5pNjFtc2BnGzB1WdnTmXjPMBxxx5HYHsSFGCQR6gUEjMKOtyL0qbSg4fBHXbfys" +
	"tKhbcNXIOxoMPxPanaRhPTIxNDlMBmYxMXbuVzLLN0SqlntdumN9DniSL+Crw2PrRYk6D+LuSKcKEhMdyUrA=="

// foreign returns contents, and what they are stored as.
func foreign(t testing.TB) (want, of map[string][]byte) {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(bzipped)
	if err != nil {
		t.Fatal(err)
	}
	want, of = map[string][]byte{Bzip2: text(300)}, map[string][]byte{Bzip2: b}
	for name, open := range map[string]func(io.Writer) (io.WriteCloser, error){
		XZ: func(w io.Writer) (io.WriteCloser, error) {
			return xz.WriterConfig{BlockSize: 7000, DictCap: 1 << 16}.NewWriter(w)
		},
		XZPlain: func(w io.Writer) (io.WriteCloser, error) {
			return xz.WriterConfig{NoCheckSum: true, DictCap: 1 << 16}.NewWriter(w)
		},
		LZ4: func(w io.Writer) (io.WriteCloser, error) {
			z := lz4.NewWriter(w)
			return z, z.Apply(lz4.BlockSizeOption(lz4.Block64Kb))
		},
		LZMA: func(w io.Writer) (io.WriteCloser, error) {
			return lzma.WriterConfig{DictCap: 1 << 16, EOSMarker: true}.NewWriter(&zipLZMA{w: w})
		},
		LZMAFile: func(w io.Writer) (io.WriteCloser, error) {
			return lzma.WriterConfig{DictCap: 1 << 16, SizeInHeader: true, Size: 20_000}.NewWriter(w)
		},
		legacyLZ4: func(w io.Writer) (io.WriteCloser, error) {
			z := lz4.NewWriter(w)
			return z, z.Apply(lz4.LegacyOption(true))
		},
	} {
		var b bytes.Buffer
		z, err := open(&b)
		if err == nil {
			_, err = z.Write(text(20_000))
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		want[name], of[name] = text(20_000), b.Bytes()
	}
	want[Lzip], of[Lzip] = text(20_000), lzipped(t, text(20_000))
	want[Compress], of[Compress] = clear10(), testkit.Read(t, "testdata/clear.Z")
	return want, of
}

// legacyLZ4 is LZ4 in frames of its first versions.
const legacyLZ4 = "legacy " + LZ4

// lzipped makes a member of lzip.
func lzipped(t testing.TB, content []byte) []byte {
	var b bytes.Buffer
	z, err := lzma.WriterConfig{DictCap: 1 << 16, EOSMarker: true}.NewWriter(&b)
	if err == nil {
		_, err = z.Write(content)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	m := append([]byte(lzipMagic+"\x01\x10"), b.Bytes()[lzma.HeaderLen:]...)
	m = le.AppendUint64(le.AppendUint32(m, crc32.ChecksumIEEE(content)), uint64(len(content)))
	return le.AppendUint64(m, uint64(len(m)+8))
}

// clear10 is the content of testdata/clear.Z.
func clear10() []byte {
	b := bytes.Repeat([]byte("ab"), 20_000)
	for i := range 3000 {
		b = fmt.Appendf(b, "line %d of some text\n", i%97)
	}
	return b
}

// lookup is Lookup by a name that may have words before it.
func lookup(name string) string { return name[strings.LastIndexByte(name, ' ')+1:] }

// zipLZMA makes the header of a file of LZMA that of zip.
type zipLZMA struct {
	w    io.Writer
	head []byte
}

func (z *zipLZMA) Write(p []byte) (int, error) {
	if len(z.head) < lzma.HeaderLen {
		if z.head = append(z.head, p...); len(z.head) < lzma.HeaderLen {
			return len(p), nil
		}
		_, err := z.w.Write(join([]byte{9, 20, 5, 0}, z.head[:5], z.head[lzma.HeaderLen:]))
		return len(p), err
	}
	return z.w.Write(p)
}

// They are damaged at a sample of places, and at a hundred with HOLDALL_LONG.
func TestOthersCompressionsAreReadAndDamageIsFound(t *testing.T) {
	testkit.Serial(t)
	rnd, tries := testkit.Rand(t), min(testkit.Rounds(t, 12), 100)
	wants, of := foreign(t)
	for _, what := range slices.Sorted(maps.Keys(of)) {
		b, want, name := of[what], wants[what], lookup(what)
		if got, err := decodeAll(name, b, 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
		if got, err := appendTo(name, []byte("x"), b, len(want)); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
		if name != LZMA && name != LZMAFile && name != Compress { // one behind the other
			if got, err := decodeAll(name, join(b, b), 1<<20); err != nil || !bytes.Equal(got, join(want, want)) {
				t.Errorf("%s: of two %d bytes, %v", what, len(got), err)
			}
		}
		step := 1 + len(b)/tries
		cuts := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
		for n := rnd.IntN(step); n < len(b); n += step {
			cuts = append(cuts, n)
		}
		for _, n := range cuts {
			if got, err := decodeAll(name, b[:n], 1<<20); err == nil && what != Compress && !(what == legacyLZ4 && n <= 8) || !bytes.HasPrefix(want, got) {
				t.Errorf("%s: cut to %d of %d bytes it becomes %d, %v", what, n, len(b), len(got), err)
			}
			torn := bytes.Clone(b)
			torn[n] ^= 0x10
			c, _ := Lookup(name)
			if got, err := appendTo(name, nil, torn, len(want)); c.Sums && err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: with byte %d of %d damaged it becomes another content", what, n, len(b))
			}
		}
	}
}

func TestXZWithoutChecksumsIsToldFromThoseWithThem(t *testing.T) {
	_, of := foreign(t)
	if _, err := decodeAll(XZ, of[XZPlain], 1<<20); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if got, err := decodeAll(XZ, join(of[XZ], make([]byte, 8)), 1<<20); err != nil || len(got) != len(text(20_000)) {
		t.Errorf("with zeros behind: %v", err)
	}
	if _, err := decodeAll(XZ, join(of[XZ], of[XZPlain]), 1<<20); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// Nothing is allocated of dictionaries that nobody here remembers.
func TestTooLargeADictionaryIsRefused(t *testing.T) {
	_, of := foreign(t)
	b := of[XZ]
	head := b[12 : 12+4*(int(b[12])+1)]
	head[bytes.IndexByte(head, 0x21)+2] = 37 // 1.5 GiB
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	z := of[LZMA]
	binary.LittleEndian.PutUint32(z[5:], 1<<31)
	file := of[LZMAFile]
	binary.LittleEndian.PutUint32(file[1:], 1<<31)
	lz := of[Lzip]
	lz[5] = 29 // 512 MiB
	for name, b := range map[string][]byte{XZ: b, LZMA: z, LZMAFile: file, Lzip: lz} {
		before := allocated()
		if _, err := decodeAll(name, b, 1<<20); !errors.Is(err, ErrWindow) {
			t.Errorf("%s: %v", name, err)
		}
		if n := allocated() - before; n > 16<<20 {
			t.Errorf("%s: %d bytes", name, n)
		}
		if got, err := appendTo(name, nil, b, len(text(20_000))); err != nil || !bytes.Equal(got, text(20_000)) {
			t.Errorf("%s: of a known length: %v", name, err)
		}
	}
}

func TestCommandsOfOthersAreRead(t *testing.T) {
	for what, command := range map[string][]string{
		Bzip2: {"bzip2"}, XZ: {"xz", "-T2", "--block-size=6000"}, XZPlain: {"xz", "-Cnone"}, LZ4: {"lz4", "-q"}, legacyLZ4: {"lz4", "-q", "-l"},
		Lzip: {"lzip"}, "members of " + Lzip: {"lzip", "-b100000"}, LZMAFile: {"xz", "--format=lzma"}, Compress: {"compress", "-f"}, "short " + Compress: {"compress", "-f", "-b11"},
	} {
		name := lookup(what)
		content := testkit.Noise(testkit.Rand(t), 200_000) // the tables of LZW become full
		content = join(text(100_000), content, text(200_000))
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not here", command[0])
			continue
		}
		c := exec.CommandContext(t.Context(), command[0], append(command[1:], "-c")...)
		c.Stdin = bytes.NewReader(content)
		b, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeAll(name, b, 4<<20); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
}

func TestWhatFollowsAMemberOfLzip(t *testing.T) {
	b := lzipped(t, text(300))
	for behind, fine := range map[string]bool{"": true, "\x00\x00\x00\x00": true, "anything else": true, "LZIQ\x01\x10": false, "LZIP": false} {
		if got, err := decodeAll(Lzip, append(bytes.Clone(b), behind...), 1<<20); (err == nil) != fine || !bytes.HasPrefix(text(300), got) {
			t.Errorf("%q: %d bytes, %v", behind, len(got), err)
		}
	}
	for i := len(b) - 20; i < len(b); i++ { // each field of the trailer is compared
		x := bytes.Clone(b)
		x[i] ^= 1
		if _, err := decodeAll(Lzip, x, 1<<20); !errors.Is(err, ErrChecksum) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func FuzzForeign(f *testing.F) {
	_, of := foreign(f)
	for name, b := range of {
		f.Add(lookup(name), b)
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		switch name {
		case Bzip2, XZ, XZPlain, LZ4, LZMA, LZMAFile, Lzip, Compress:
			_, _ = decodeAll(name, b, 1<<20)
			fuzzUnit(t, name, b, 20_000)
		}
	})
}
