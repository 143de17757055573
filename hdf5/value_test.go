package hdf5

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdall/holdall/internal/testkit"
)

// typeBytes makes a datatype.
func typeBytes(class Class, version int, bits uint32, size int, properties ...any) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(class)|uint32(version)<<4|bits<<8)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	for _, p := range properties {
		switch p := p.(type) {
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, p)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, p)
		case byte:
			b = append(b, p)
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// What h5py does not write.
func TestRareTypesHaveValues(t *testing.T) {
	wide := func(signed uint32, offset, precision uint16) []byte {
		return typeBytes(Integer, 1, signed<<3, 16, offset, precision)
	}
	vax := typeBytes(Float, 1, 0x41|2<<4|31<<8, 4, uint16(0), uint16(32), byte(23), byte(8), byte(0), byte(23), uint32(129))
	brain := typeBytes(Float, 1, 2<<4|15<<8, 2, uint16(0), uint16(16), byte(7), byte(8), byte(0), byte(7), uint32(127))
	int16be := typeBytes(Integer, 1, 1|8, 2, uint16(0), uint16(16))
	old := typeBytes(Compound, 1, 2, 20,
		"a\x00\x00\x00\x00\x00\x00\x00", uint32(2), byte(2), "\x00\x00\x00", uint32(0), uint32(0), uint32(2), uint32(3), uint32(0), uint32(0), int16be,
		"long one\x00\x00\x00\x00\x00\x00\x00\x00", uint32(16), byte(0), "\x00\x00\x00", uint32(0), uint32(0), uint32(0), uint32(0), uint32(0), uint32(0), int16be)
	for _, c := range []struct {
		what    string
		typ     []byte
		element string
		want    any
	}{
		{"int128", wide(1, 0, 128), "feffffffffffffffffffffffffffffff", big.NewInt(-2)},
		{"uint128", wide(0, 0, 128), "0000000000000000ff00000000000000", new(big.Int).Lsh(big.NewInt(255), 64)},
		{"int128 of 12 bits", wide(1, 4, 12), "f0ffffffffffffffffffffffffffffff", big.NewInt(-1)},
		{"uint128 of 12 bits", wide(0, 4, 12), "21430000000000000000000000000000", big.NewInt(0x432)},
		{"int16 big-endian", int16be, "fffe", int64(-2)},
		{"VAX float 1", vax, "80400000", 1.0},
		{"VAX float -2.5", vax, "20c10000", -2.5},
		{"VAX float, no infinity", vax, "807f0000", math.Ldexp(1, 126)},
		{"bfloat16 1.5", brain, "c03f", 1.5},
		{"bfloat16 -inf", brain, "80ff", math.Inf(-1)},
		{"bfloat16, the least", brain, "0100", math.Ldexp(1, -133)},
		{"space padded", typeBytes(String, 1, 2, 4), "61206220", "a b"},
		{"space padded, all of it", typeBytes(String, 1, 2, 2), "2020", ""},
		{"zero ended", typeBytes(String, 1, 0, 4), "61006200", "a"},
		{"zero padded", typeBytes(String, 1, 1, 4), "61006200", "a\x00b"},
		{"bits", typeBytes(BitField, 1, 0, 2, uint16(3), uint16(4)), "ff00", uint64(15)},
		{"many bits", typeBytes(BitField, 1, 0, 9, uint16(0), uint16(72)), "010203040506070809", []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"time", typeBytes(Time, 1, 0, 4, uint16(32)), "01020304", []byte{1, 2, 3, 4}},
		{"opaque", typeBytes(Opaque, 1, 8, 2, "a tag\x00\x00\x00"), "0102", []byte{1, 2}},
		{"complex", typeBytes(Complex, 5, 0, 4, typeBytes(Float, 1, 2<<4|15<<8, 2, uint16(0), uint16(16), byte(7), byte(8), byte(0), byte(7), uint32(127))), "803f0040", complex(1, 2)},
		{"reference of 1.12", typeBytes(Reference, 4, 2, 8), "0102030405060708", []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"no reference", typeBytes(Reference, 1, 0, 8), "0000000000000000", Ref(0)},
		{"old compound", old, "0000" + "000100020003000400050006" + "0000" + "ffff" + "0000", []any{[]any{int64(1), int64(2), int64(3), int64(4), int64(5), int64(6)}, int64(-1)}},
	} {
		f := within(t, nil)
		typ, err := parseType(f.cursor(c.typ), 0)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		b, err := hex.DecodeString(c.element)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Values(t.Context(), typ, b)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], c.want) {
			t.Errorf("%s (%v): %#v, %v, expected %#v", c.what, typ, got, err, c.want)
		}
	}
}

func TestDamagedTypesAreNamed(t *testing.T) {
	int2 := typeBytes(Integer, 1, 8, 2, uint16(0), uint16(16))
	nested := int2
	for range 40 {
		nested = typeBytes(Array, 2, 0, 2, byte(1), "\x00\x00\x00", uint32(1), uint32(0), nested)
	}
	for want, b := range map[string][]byte{
		"version 9 of datatypes":               typeBytes(Integer, 9, 0, 4),
		"class 13":                             typeBytes(13, 1, 0, 4),
		"it ends early":                        typeBytes(Integer, 1, 0, 4),
		"17 bits from bit 0 on":                typeBytes(Integer, 1, 0, 2, uint16(0), uint16(17)),
		"expected elements of 1 to 1073741824": typeBytes(Integer, 1, 0, 0),
		"nested more than 32 deep":             nested,
		"[3] times 2 bytes does not have 8":    typeBytes(Array, 3, 0, 8, byte(1), uint32(3), int2),
		`field "x", 2 bytes at 3, is outside`:  typeBytes(Compound, 3, 1, 4, "x\x00", byte(3), int2),
		"9 names do not fit into 0 bytes":      typeBytes(Enum, 3, 9, 2, int2),
		"values that are integers of 4 bytes":  typeBytes(Enum, 3, 1, 4, int2),
		"variable length to take 16 bytes":     typeBytes(Variable, 1, 0, 12, int2),
		"expected references of 12 bytes":      typeBytes(Reference, 1, 1, 8),
		"bit 40 of a float":                    typeBytes(Float, 1, 40<<8, 4, uint16(0), uint16(32), byte(0), byte(1), byte(0), byte(1), uint32(0)),
		"two floats":                           typeBytes(Complex, 5, 0, 4, int2),
	} {
		if _, err := parseType(within(t, nil).cursor(b), 0); err == nil || !ofFile(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

// Vectors are those of the hash's author and of a file.
func TestChecksums(t *testing.T) {
	if got := lookup3(nil); got != 0xdeadbeef {
		t.Errorf("%08x", got)
	}
	if got := lookup3([]byte("Four score and seven years ago")); got != 0x17770551 {
		t.Errorf("%08x", got)
	}
}

// Values that would take more than the limit are refused before they do.
func TestValuesAreBounded(t *testing.T) {
	f := within(t, nil)
	typ := &Datatype{Class: Integer, Size: 1, Precision: 8}
	made := testkit.Allocated(func() {
		if _, err := f.Values(t.Context(), typ, make([]byte, fuzzLimit)); err == nil || !strings.Contains(err.Error(), "limit") {
			t.Error(err)
		}
	})
	if made > 4*fuzzLimit {
		t.Errorf("made %d bytes", made)
	}
}

// The cache forgets, and gives what it has.
func TestCacheIsBounded(t *testing.T) {
	rnd := testkit.Rand(t)
	var c cache
	for range 3000 {
		off, n := rnd.Int64N(1<<30), 1+rnd.IntN(64<<10)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte((off + int64(i)) * 7)
		}
		c.add(off, b)
		held := int64(0)
		for _, p := range c.pieces {
			held += int64(len(p.b))
		}
		if held != c.held || held > cacheSize+64<<10 {
			t.Fatalf("%d bytes, it says %d", held, c.held)
		}
		if got := c.find(span{off, int64(n)}); got == nil || got[0] != byte(off*7) {
			t.Fatal("what was added last is not there")
		}
	}
}

// Joined ranges have all that is wanted, in order, without overlaps, and little else.
func TestJoinedRangesHaveAll(t *testing.T) {
	rnd := testkit.Rand(t)
	for range 500 {
		want := make([]span, 1+rnd.IntN(200))
		for i := range want {
			want[i] = span{rnd.Int64N(1 << uint(8+rnd.IntN(16))), 1 + rnd.Int64N(1<<uint(1+rnd.IntN(12)))}
		}
		rnd.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
		f := &File{spare: rnd.Int64N(spare), credit: rnd.Int64N(mostCredit)}
		all := f.joined(wishes(want, rnd.IntN(8)-1))
		for i, r := range all {
			if i > 0 && r.off < all[i-1].end() {
				t.Fatalf("%v overlap", all)
			}
		}
		for _, s := range want {
			ok := false
			for _, r := range all {
				ok = ok || r.off <= s.off && s.end() <= r.end()
			}
			if !ok {
				t.Fatalf("%v is not in %v", s, all)
			}
		}
	}
}

// What is fetched is what the file has, however spans lie, and little is read twice: gaps, where that saves a request.
func TestFetchReadsLittleTwice(t *testing.T) { synctest.Test(t, fetchReadsLittleTwice) }

func fetchReadsLittleTwice(t *testing.T) {
	rnd := testkit.Rand(t)
	b := make([]byte, 2<<20)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	o := &far{Object: inMemory(t, b)}
	f := &File{obj: o, size: int64(len(b)), spare: spare, ahead: shortFew}
	for range 300 {
		want := make([]span, 1+rnd.IntN(20))
		for i := range want {
			off := rnd.Int64N(f.size)
			want[i] = span{off, min(rnd.Int64N(1<<uint(1+rnd.IntN(16))), f.size-off)}
		}
		got, err := f.fetch(t.Context(), wishes(want, 0), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range want {
			if !bytes.Equal(got[i], b[s.off:s.end()]) {
				t.Fatalf("%v differs", s)
			}
		}
	}
	if o.bytes > f.size*3/2 {
		t.Errorf("%d bytes were read of %d", o.bytes, f.size)
	}
}
