package zarr

import (
	"bytes"
	"errors"
	"path"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// proved calls do with each chunk of each golden array whose chunks can be proven.
func proved(t *testing.T, do func(name, key string, p *Prover, stored []byte)) {
	t.Helper()
	for name, g := range goldens(t) {
		m, err := ParseMeta(g.Keys[".zarray"])
		if err != nil {
			t.Fatal(name, err)
		}
		p, err := m.Prover(DefaultLimit)
		if err != nil {
			t.Fatal(name, err)
		}
		for key, stored := range g.Keys {
			if path.Base(key)[0] != '.' && p != nil {
				do(name, key, p, stored)
			}
		}
	}
}

func TestChunksOfTheReferenceAreProven(t *testing.T) {
	n, summed := 0, 0
	proved(t, func(name, key string, p *Prover, stored []byte) {
		n++
		if p.Summed {
			summed++
		}
		if err := p.Prove(stored); err != nil {
			t.Errorf("%s, %s: %v", name, key, err)
		}
		if err := p.Prove(nil); err == nil {
			t.Errorf("%s, %s: nothing is a chunk", name, key)
		}
	})
	if n < 150 || summed < 30 {
		t.Errorf("%d chunks, %d with a checksum", n, summed)
	}
}

// What is said to have a checksum shows each change, unless it decodes to the same.
func TestAChecksumShowsEachBit(t *testing.T) {
	testkit.Long(t)
	codecs := map[string]bool{}
	proved(t, func(name, key string, p *Prover, stored []byte) {
		if !p.Summed || len(stored) > 300 {
			return
		}
		fresh := false
		for _, s := range p.r.pipe.stages {
			fresh = fresh || !codecs[s.codec] && summed[s.codec]
			codecs[s.codec] = true
		}
		if !fresh {
			return
		}
		want, err := p.r.decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(stored) * 8 {
			b := bytes.Clone(stored)
			b[i/8] ^= 1 << (i % 8)
			if p.Prove(b) != nil {
				continue
			}
			if got, err := p.r.decode(b); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, %s: bit %d of byte %d: other content is proven", name, key, i%8, i/8)
			}
		}
	})
	for codec := range summed {
		if !codecs[codec] && codec != "crc32c" { // it is made as crc32 is
			t.Errorf("no chunk by %s", codec)
		}
	}
}

func TestWhatCannotBeProvenSaysWhy(t *testing.T) {
	for _, test := range []struct {
		name, dtype, chunks, compressor string
		want                            error
	}{
		{"plain", "|u1", "[2]", "null", nil},
		{"unknown", "|u1", "[2]", `{"id":"of-my-own"}`, errors.ErrUnsupported},
		{"of an unknown type", "|x9", "[2]", `{"id":"zlib"}`, errors.ErrUnsupported},
		{"large", "|u1", "[1000000000000]", `{"id":"zlib"}`, ErrLimit},
		{"damaged", "<U1", "[2]", `{"id":"zlib"}`, ErrCorrupt}, // 9 is none of its elements
	} {
		m, err := ParseMeta([]byte(`{"zarr_format":2,"shape":[4],"chunks":` + test.chunks + `,"dtype":"` + test.dtype + `","order":"C","compressor":` + test.compressor + `,"filters":null,"fill_value":9}`))
		if err != nil {
			t.Fatal(test.name, err)
		}
		if p, err := m.Prover(1 << 20); p != nil || !errors.Is(err, test.want) {
			t.Errorf("%s: %v, %v", test.name, p, err)
		}
	}
}

// A small chunk that says that it is large takes no memory for that.
func TestProvingIsBounded(t *testing.T) {
	m, err := ParseMeta([]byte(`{"zarr_format":2,"shape":[4],"chunks":[1000],"dtype":"|u1","order":"C","compressor":{"id":"zlib"},"filters":[{"id":"zlib"}],"fill_value":9}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Prover(1 << 20)
	if err != nil || p.Room > 4<<20 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := p.Prove(make([]byte, p.Room)); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}
