package parity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
	"github.com/zeebo/xxh3"

	"github.com/holdall/holdall/internal/testkit"
)

// What follows reads parity files by docs/bytes/parity.md, and uses nothing of this package.

// A specField is GF(2^16) as the text has it: slow and plain.
type specField struct{ log, exp [1 << 16]int }

func newSpecField() *specField {
	basis := [16]int{
		0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012,
		0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E,
	}
	var power [1 << 16]int // of x: which is it, as a polynomial
	for i, p := 0, 1; i < 65535; i++ {
		power[p] = i
		if p *= 2; p >= 1<<16 {
			p ^= 0x1002D
		}
	}
	f := &specField{}
	for e := 1; e < 1<<16; e++ {
		p := 0
		for i, b := range basis {
			if e>>i&1 == 1 {
				p ^= b
			}
		}
		f.log[e], f.exp[power[p]] = power[p], e
	}
	return f
}

func (f *specField) mul(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return f.exp[(f.log[a]+f.log[b])%65535]
}

func (f *specField) div(a, b int) int {
	if a == 0 {
		return 0
	}
	return f.exp[(f.log[a]-f.log[b]+65535)%65535]
}

// weight is what block j of a group counts in its parity block i.
func (f *specField) weight(i, j, order int) int { return f.div((order+j)/order, i^(order+j)) }

// add adds c times the elements of from to those of to.
func (f *specField) add(to, from []byte, c int) {
	if c == 0 {
		return
	}
	for at := 0; at < len(to); at += 64 {
		for e := at; e < at+32; e++ {
			v := f.mul(int(from[e])|int(from[e+32])<<8, c)
			to[e] ^= byte(v)
			to[e+32] ^= byte(v >> 8)
		}
	}
}

// solve computes blocks of a group that are nil, from parity blocks by their numbers.
func (f *specField) solve(t *testing.T, data [][]byte, parity map[int][]byte, order, size int) {
	var lost []int
	for j, b := range data {
		if b == nil {
			lost = append(lost, j)
		}
	}
	type row struct {
		c []int
		b []byte
	}
	var rows []row
	for i, p := range parity {
		r := row{b: bytes.Clone(p)}
		for j, b := range data {
			if b != nil {
				f.add(r.b, b, f.weight(i, j, order))
			}
		}
		for _, j := range lost {
			r.c = append(r.c, f.weight(i, j, order))
		}
		if rows = append(rows, r); len(rows) == len(lost) {
			break
		}
	}
	if len(rows) < len(lost) {
		t.Fatalf("%d blocks are lost, %d of parity are there", len(lost), len(rows))
	}
	for k := range lost {
		if rows[k].c[k] == 0 {
			t.Fatal("an element is zero that cannot be")
		}
		by := f.div(1, rows[k].c[k])
		scaled := row{make([]int, len(lost)), make([]byte, size)}
		for i, c := range rows[k].c {
			scaled.c[i] = f.mul(c, by)
		}
		f.add(scaled.b, rows[k].b, by)
		rows[k] = scaled
		for other := range rows {
			if c := rows[other].c[k]; other != k && c != 0 {
				for i := range lost {
					rows[other].c[i] ^= f.mul(c, scaled.c[i])
				}
				f.add(rows[other].b, scaled.b, c)
			}
		}
	}
	for k, j := range lost {
		data[j] = rows[k].b
	}
}

// A specFile is what is read of a parity file.
type specFile struct {
	version                                 byte
	block, groups, order, parity, directory int
	blocks                                  int
	id                                      [16]byte
	records                                 map[byte][][]byte
	count                                   map[byte]int
}

// readSpec reads a parity file that is complete.
func readSpec(t *testing.T, b []byte) specFile {
	le := binary.LittleEndian
	f := specFile{
		version: b[4], order: 1 << b[6], blocks: int(le.Uint64(b[32:])), block: int(le.Uint32(b[40:])), groups: int(le.Uint32(b[44:])),
		parity: int(le.Uint32(b[48:])), directory: int(le.Uint32(b[52:])), id: [16]byte(b[8:24]), records: map[byte][][]byte{},
	}
	ceil := func(a, b int) int { return (a + b - 1) / b }
	_, q := f.recovery()
	f.count = map[byte]int{'E': 1, 'Q': q * ceil(f.directory, 512), 'N': ceil(f.blocks, 512), 'P': f.groups * f.parity, 'D': f.directory}
	at := 0
	for _, kind := range []byte("EQNPDE") {
		for number := range f.count[kind] {
			n := 64
			if kind != 'E' {
				n += f.block
			}
			r := b[at : at+n]
			at += n
			sum := xxh3.Hash(append(bytes.Clone(r[:56]), r[64:]...))
			if string(r[:6]) != "HPAR"+string(b[4])+string(kind) || r[7] != 0 || !bytes.Equal(r[8:24], f.id[:]) || le.Uint64(r[24:]) != uint64(number) ||
				!bytes.Equal(r[32:56], b[32:56]) || r[6] != b[6] || sum != le.Uint64(r[56:]) {
				t.Fatalf("record %c %d: %x", kind, number, r[:64])
			}
			f.records[kind] = append(f.records[kind], r[64:])
		}
	}
	if at != len(b) {
		t.Fatalf("%d bytes, expected %d", len(b), at)
	}
	return f
}

// recovery is the shape of the directory's parity.
func (f specFile) recovery() (order, parity int) {
	groups := (f.directory + 511) / 512
	n := (f.directory + groups - 1) / groups
	parity = 8 + min(3*n, 2*n+16)
	return 1 << bits.Len(uint(parity-1)), parity
}

// specArchive is the archive of the test vectors.
func specArchive(size int) (b []byte) {
	for i := 0; len(b) < size; i++ {
		d := sha256.Sum256([]byte(strconv.Itoa(i)))
		b = append(b, d[:]...)
	}
	return b[:size]
}

// specVectors are those of docs/bytes/parity.md.
var specVectors = []struct {
	version byte
	loss    float64
	groups  int64
	objects []Object
}{
	{1, 0.05, 1, []Object{{Size: 10000}}},
	{2, 0.05, 1, []Object{{Size: 10000}}},
	{2, 0.1, 3, []Object{{Name: "a.caf", Size: 60000}, {Name: "b.caf", Size: 40000}}},
	{2, 0.05, 1, []Object{{Size: 3000000}}},
}

// What is written is what docs/bytes/parity.md says, byte by byte, and what is read by the text
// alone agrees with it.
func TestSpecification(t *testing.T) {
	testkit.Long(t)
	doc, err := os.ReadFile("../../../docs/bytes/parity.md")
	if err != nil {
		t.Fatal(err)
	}
	field := newSpecField()
	for _, v := range specVectors {
		size := 0
		for _, o := range v.objects {
			size += int(o.Size)
		}
		t.Run(fmt.Sprint(v.version, ",", size), func(t *testing.T) {
			archive := specArchive(size)
			b := encodedAs(t, v.version, v.groups, v.loss, archive, v.objects)
			f := readSpec(t, b)
			text, err := json.Marshal(about{v.loss, v.objects})
			if err != nil {
				t.Fatal(err)
			}
			row := fmt.Sprintf("| %d | %d | `%s` | %d | %d | %d | %d | %d | %d | %d | %d | `%x` |", v.version, size, text, f.block, f.blocks, f.groups, f.order, f.parity, f.directory, f.count['Q'], len(b), sha256.Sum256(b))
			if !strings.Contains(string(doc), row) {
				t.Errorf("docs/bytes/parity.md has no line\n%s", row)
			}
			checkSpec(t, field, f, archive, v.loss)
		})
	}
}

func checkSpec(t *testing.T, field *specField, f specFile, archive []byte, loss float64) {
	padded := append(bytes.Clone(archive), make([]byte, f.blocks*f.block-len(archive))...)
	blocks := make([][]byte, f.blocks)
	for i := range blocks {
		blocks[i] = padded[i*f.block : (i+1)*f.block]
	}
	// The directory.
	directory := bytes.Join(f.records['D'], nil)
	if id := blake3.Sum256(directory); !bytes.Equal(id[:16], f.id[:]) {
		t.Error("the identity is not of the directory")
	}
	for i, b := range blocks {
		if binary.LittleEndian.Uint64(directory[8*i:]) != xxh3.Hash(b) {
			t.Errorf("the digest of block %d is not right", i)
		}
	}
	about := 8 * f.blocks
	if f.version > 1 {
		for i, b := range blocks {
			sum := uint64(0)
			for ; len(b) > 0; b = b[8:] {
				w := binary.LittleEndian.Uint64(b)
				sum = sum*0x9E3779B97F4A7C15 + (w ^ w>>32)
			}
			if binary.LittleEndian.Uint32(directory[about+4*i:]) != uint32(sum>>32) {
				t.Errorf("the rolling hash of block %d is not right", i)
			}
		}
		about += 4 * f.blocks
	}
	var said struct {
		Loss    float64
		Objects []struct {
			Name string
			Size int
		}
	}
	if err := json.Unmarshal(bytes.TrimRight(directory[about:], "\x00"), &said); err != nil || said.Loss != loss {
		t.Errorf("%+v %v", said, err)
	}
	// The sums of neighbours.
	for i, near := range f.records['N'] {
		sum := make([]byte, f.block)
		for _, b := range blocks[512*i : min(512*(i+1), f.blocks)] {
			for at := range b {
				sum[at] ^= b[at]
			}
		}
		if !bytes.Equal(sum, near) {
			t.Errorf("sum %d is not right", i)
		}
	}
	// Parity, of the archive and of the directory.
	checkSpecCode(t, field, blocks, f.records['P'], f.groups, f.order, f.parity)
	order, parity := f.recovery()
	checkSpecCode(t, field, f.records['D'], f.records['Q'], (f.directory+511)/512, order, parity)
}

// checkSpecCode checks the parity of blocks, and computes the first of each group from it.
func checkSpecCode(t *testing.T, field *specField, blocks, all [][]byte, groups, order, parity int) {
	for g := range groups {
		var data [][]byte
		for i := g; i < len(blocks); i += groups {
			data = append(data, blocks[i])
		}
		there := map[int][]byte{}
		for i := range parity {
			there[i] = all[i*groups+g]
			// Some are checked: the code below is slow.
			if i%8 > 1 {
				continue
			}
			want := make([]byte, len(blocks[0]))
			for j, b := range data {
				field.add(want, b, field.weight(i, j, order))
			}
			if !bytes.Equal(want, there[i]) {
				t.Errorf("group %d: parity block %d is not right", g, i)
			}
		}
		lost := make([][]byte, len(data))
		copy(lost[min(3, len(data)):], data[min(3, len(data)):])
		field.solve(t, lost, there, order, len(blocks[0]))
		for j, b := range lost {
			if !bytes.Equal(b, data[j]) {
				t.Errorf("group %d: block %d is not what it was", g, j)
			}
		}
	}
}
