package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os/exec"
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
	return want, of
}

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
	for name, b := range of {
		want := wants[name]
		if got, err := decodeAll(name, b, 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if got, err := appendTo(name, []byte("x"), b, len(want)); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if name != LZMA { // one behind the other
			if got, err := decodeAll(name, join(b, b), 1<<20); err != nil || !bytes.Equal(got, join(want, want)) {
				t.Errorf("%s: of two %d bytes, %v", name, len(got), err)
			}
		}
		step := 1 + len(b)/tries
		for n := rnd.IntN(step); n < len(b); n += step {
			if got, err := decodeAll(name, b[:n], 1<<20); err == nil || !bytes.HasPrefix(want, got) {
				t.Errorf("%s: cut to %d of %d bytes it becomes %d, %v", name, n, len(b), len(got), err)
			}
			torn := bytes.Clone(b)
			torn[n] ^= 0x10
			c, _ := Lookup(name)
			if got, err := appendTo(name, nil, torn, len(want)); c.Sums && err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: with byte %d of %d damaged it becomes another content", name, n, len(b))
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
	for name, b := range map[string][]byte{XZ: b, LZMA: z} {
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
	for name, command := range map[string][]string{
		Bzip2: {"bzip2"}, XZ: {"xz", "-T2", "--block-size=6000"}, XZPlain: {"xz", "-Cnone"}, LZ4: {"lz4", "-q"},
	} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not here", command[0])
			continue
		}
		c := exec.CommandContext(t.Context(), command[0], append(command[1:], "-c")...)
		c.Stdin = bytes.NewReader(text(20_000))
		b, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeAll(name, b, 1<<20); err != nil || !bytes.Equal(got, text(20_000)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func FuzzForeign(f *testing.F) {
	_, of := foreign(f)
	for name, b := range of {
		f.Add(name, b)
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		switch name {
		case Bzip2, XZ, XZPlain, LZ4, LZMA:
			_, _ = decodeAll(name, b, 1<<20)
			fuzzUnit(t, name, b, 20_000)
		}
	})
}
