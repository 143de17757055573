package zip

import (
	"bytes"
	"crypto/aes"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// locked has archives of zip and of 7-Zip, and their contents; see testdata/README.md.
var (
	locked     = []string{"crypto.zip", "aes128.zip", "aes192.zip", "aes256.zip"}
	lockedText = map[string]string{"d/text": strings.Repeat("a line of text\n", 200), "d/small": "small\n"}
)

const password = "a password"

func openedBy(t testing.TB, b []byte, password string) *holdall.Archive {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.zip", b)
	a, err := holdall.Open(t.Context(), "x.zip", holdall.OpenOptions{Store: st, Password: password, Formats: only.Formats})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// readBy reads a file in parts.
func readBy(t testing.TB, a *holdall.Archive, name string) (string, error) {
	e, err := a.Lookup(t.Context(), name)
	if err != nil {
		return "", err
	}
	r, err := a.OpenEntry(t.Context(), e)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestEncryptedFilesAreRead(t *testing.T) {
	for _, name := range locked {
		a := openedBy(t, fixture(t, name), password)
		for file, want := range lockedText {
			if got, err := readBy(t, a, file); err != nil || got != want {
				t.Errorf("%s: %s: %q, %v", name, file, got, err)
			}
		}
		if e, err := a.Lookup(t.Context(), "d/link"); err != nil || e.Link != "text" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestWithoutTheRightPasswordNothingIsRead(t *testing.T) {
	for _, name := range locked {
		for by, class := range map[string]string{"": "encrypted", "another": "wrong-password"} {
			a := openedBy(t, fixture(t, name), by)
			for file := range lockedText {
				got, err := readBy(t, a, file)
				if c, ok := errors.AsType[*format.CorruptError](err); got != "" || !ok || c.Class != class && c.Code != format.BadChecksum {
					t.Errorf("%s by %q: %s: %q, %v", name, by, file, got, err)
				}
			}
		}
		// By chance, the known bytes are right. Then the checksum tells.
		for i := range 600 {
			a := openedBy(t, fixture(t, name), strings.Repeat("x", 1+i))
			if got, err := readBy(t, a, "d/small"); got != "" || err == nil {
				t.Errorf("%s by %d letters: %q, %v", name, 1+i, got, err)
			}
			if name != "crypto.zip" && i == 5 {
				break // of AES that is one in 65,536
			}
		}
	}
}

func TestDamageOfEncryptedContentIsFound(t *testing.T) {
	rnd, most := testkit.Rand(t), 9
	if testkit.Race() {
		most = 40
	}
	for _, name := range locked {
		whole := fixture(t, name)
		for at := rnd.IntN(5); at < len(whole); at += 1 + rnd.IntN(most) {
			b := bytes.Clone(whole)
			b[at] ^= 0x40
			st := &storetest.Mem{}
			st.Put("x.zip", b)
			a, err := holdall.Open(t.Context(), "x.zip", holdall.OpenOptions{Store: st, Password: password, Formats: only.Formats})
			if err != nil {
				continue
			}
			for file, want := range lockedText {
				if got, err := readBy(t, a, file); err == nil && got != want {
					t.Errorf("%s with byte %d damaged: %s is %q", name, at, file, got)
				}
			}
			a.Close()
		}
	}
}

// Reads anywhere give the same as one from front to back.
func TestDecryptedBytesAreReadAnywhere(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	plain := testkit.Noise(rnd, 3*cryptoStep+777)
	coded, keys := bytes.Clone(plain), newCryptoKeys(password)
	for i, b := range coded {
		k := uint16(keys[2]) | 2
		coded[i] = b ^ byte(k*(k^1)>>8)
		keys.update(b)
	}
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("zeros", make([]byte, len(plain)))
	st.Put("coded", coded)
	zeros, _ := st.Open(t.Context(), "zeros")
	in, _ := st.Open(t.Context(), "coded")
	stream := make([]byte, len(plain))
	a := &aesView{view{in: zeros, n: int64(len(plain))}, block}
	if err := a.ReadAt(t.Context(), stream, 0); err != nil {
		t.Fatal(err)
	}
	c := &cryptoView{view: view{in: in, n: int64(len(plain))}, states: []cryptoKeys{newCryptoKeys(password)}}
	for range 60 {
		off := rnd.IntN(len(plain))
		b := make([]byte, rnd.IntN(min(len(plain)-off, 200_000)))
		if err := a.ReadAt(t.Context(), b, int64(off)); err != nil || !bytes.Equal(b, stream[off:][:len(b)]) {
			t.Fatalf("AES: %d+%d: other bytes, %v", off, len(b), err)
		}
		if err := c.ReadAt(t.Context(), b, int64(off)); err != nil || !bytes.Equal(b, plain[off:][:len(b)]) {
			t.Fatalf("ZipCrypto: %d+%d: other bytes, %v", off, len(b), err)
		}
	}
	if err := c.ReadAt(t.Context(), make([]byte, 2), int64(len(plain)-1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("beyond the end: %v", err)
	}
}

func FuzzDecrypt(f *testing.F) {
	for _, name := range locked {
		f.Add(fixture(f, name), password)
	}
	f.Fuzz(func(t *testing.T, b []byte, password string) {
		st := &storetest.Mem{}
		st.Put("x.zip", b)
		r, err := open(t.Context(), st, "x.zip", format.OpenOptions{Password: password, Limits: format.Limits{Index: 1 << 20}})
		if err != nil {
			return
		}
		defer r.Close()
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				o := r.Can().Made(x.Object)
				if err != nil || o == nil {
					continue
				}
				got := make([]byte, x.Len)
				if err := o.ReadAt(t.Context(), got, x.Off); err != nil {
					t.Fatalf("%s: %v", e.Name, err)
				}
				if x.Codec == "" && e.Digest.Algo != "" && crc32.ChecksumIEEE(got) != r.(*reader).table.items.At(e.Ref.(int)).crc && r.(*reader).locks[e.Ref.(int)].strength == 0 {
					t.Fatalf("%s: other bytes", e.Name)
				}
			}
		}
	})
}
