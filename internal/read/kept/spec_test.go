package kept

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// What follows reads an index by docs/bytes/index.md, and uses nothing of this package but the answers
// that are expected.

type specTree struct {
	Depth int
	Top   specRef
}

type specRef struct {
	Items, Offset, Stored, Length int64
	CRC                           uint32 `json:"crc32"`
	Hash                          string `json:"blake3"`
	first                         string
	from                          int64
}

// A specIndex is an index as the text has it.
type specIndex struct {
	file []byte
	root struct {
		Sealed  bool
		Files   int64
		Chunk   int64
		Digests []string
		Volumes []struct {
			Name     string
			External bool
		}
		Rows, Proofs specTree
	}
}

func openSpec(file []byte) *specIndex {
	end := file[len(file)-32:]
	if string(end[24:]) != "holdall3" || string(file[:16]) != "holdall index 3\n" || crc32.ChecksumIEEE(end[:20]) != binary.LittleEndian.Uint32(end[20:]) {
		panic("no index")
	}
	n := int64(binary.LittleEndian.Uint32(end[8:]))
	x := &specIndex{file: file}
	text := x.page(specRef{Offset: int64(binary.LittleEndian.Uint64(end)), Stored: n, Length: int64(binary.LittleEndian.Uint32(end[12:])), CRC: binary.LittleEndian.Uint32(end[16:])})
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&x.root); err != nil {
		panic(err)
	}
	return x
}

func (x *specIndex) page(r specRef) []byte {
	b := x.file[r.Offset:][:r.Stored]
	if sum := blake3.Sum256(b); x.root.Sealed && r.Hash != hex.EncodeToString(sum[:]) {
		panic("a page with another BLAKE3")
	}
	if crc32.ChecksumIEEE(b) != r.CRC || r.Stored != r.Length {
		panic("a damaged page, or one that is compressed")
	}
	return b
}

// pages are the pages of a tree.
func (x *specIndex) pages(t specTree) (all []specRef) {
	if t.Depth == 0 {
		return nil
	}
	all = []specRef{t.Top}
	for range t.Depth {
		var below []specRef
		for _, r := range all {
			c := &specCursor{x.page(r)}
			from, off, first := c.uvar(), c.uvar(), ""
			for len(c.b) > 0 {
				first = first[:c.uvar()] + c.text()
				child := specRef{first: first, from: from, Offset: off, Items: c.uvar(), Stored: c.uvar(), Length: c.uvar()}
				if child.Length == 0 {
					child.Length = child.Stored
				}
				child.CRC = uint32(c.number(4))
				if x.root.Sealed {
					child.Hash = hex.EncodeToString(c.take(32))
				}
				from, off = from+child.Items, off+child.Stored
				below = append(below, child)
			}
		}
		all = below
	}
	return all
}

type specCursor struct{ b []byte }

func (c *specCursor) take(n int64) []byte {
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *specCursor) number(width int64) (v int64) {
	for i, x := range c.take(width) {
		v |= int64(x) << (8 * i)
	}
	return v
}

func (c *specCursor) uvar() int64 {
	v, n := binary.Uvarint(c.b)
	c.take(int64(n))
	return int64(v)
}

func (c *specCursor) varint() int64 {
	v, n := binary.Varint(c.b)
	c.take(int64(n))
	return v
}

func (c *specCursor) text() string { return string(c.take(c.uvar())) }

type specHow struct {
	bits, mode                 int64
	owner, group, algo         string
	sumLen, volume             int64
	codec                      string
	implied, placed, timed     bool
	ask, coded, filled, faulty bool
}

// A specColumn is a column of a block.
type specColumn struct {
	width, least, start int64
	chained             bool
	data                []byte
}

// value is that of row i. step is that of the row.
func (c *specColumn) value(i, step int64) int64 {
	v := c.least
	if c.width > 0 {
		v += (&specCursor{c.data[i*c.width:]}).number(c.width)
	}
	if c.chained {
		v += c.start
		c.start = v + step
	}
	return v
}

// rows are the answers of an index for all rows that are not implied, and the names of those that
// are.
func (x *specIndex) rows() (rows map[string]vectorRow, implied []string) {
	rows = map[string]vectorRow{}
	kinds := strings.Fields("file dir symlink hardlink fifo property")
	last := ""
	for _, r := range x.pages(x.root.Rows) {
		c := &specCursor{x.page(r)}
		n, hows := c.uvar(), make([]specHow, c.uvar())
		for k := range hows {
			h := specHow{bits: c.number(2), mode: c.uvar(), owner: c.text(), group: c.text(), algo: c.text(), sumLen: c.number(1), volume: c.uvar(), codec: c.text()}
			for bit, is := range map[int64]*bool{8: &h.implied, 0x20: &h.placed, 0x80: &h.timed, 0x100: &h.ask, 0x200: &h.coded, 0x400: &h.filled, 0x800: &h.faulty} {
				*is = h.bits&bit != 0
			}
			hows[k] = h
		}
		ends := make([]int64, (n+63)/64)
		for k := range ends {
			ends[k] = c.number(4)
		}
		begin, digests := int64(0), c.b[ends[len(ends)-1]:]
		for k, end := range ends {
			c := &specCursor{c.b[begin:end]}
			begin = end
			whole, name, sums, textLen, mask := c.number(1), c.text(), c.uvar(), c.uvar(), c.number(2)
			rowsHere := min(64, n-64*int64(k))
			var cols [13]specColumn
			for i := range cols {
				if mask>>i&1 != 0 {
					head := c.number(1)
					cols[i] = specColumn{width: head & 15, chained: head&16 != 0, least: c.varint()}
					if cols[i].chained {
						cols[i].start = c.varint()
					}
				}
			}
			for i := range cols {
				cols[i].data = c.take(cols[i].width * rowsHere)
			}
			texts := &specCursor{c.take(textLen)}
			for i := range rowsHere {
				if i > 0 {
					shared := cols[0].value(i, 0)
					name = name[:shared] + string(texts.take(cols[1].value(i, 0)))
				}
				h := hows[cols[2].value(i, 0)]
				rare := c.take(cols[12].value(i, 0))
				if h.implied {
					implied = append(implied, name)
					continue
				}
				a := vectorRow{Kind: kinds[h.bits&7], Size: cols[3].value(i, 0), Ask: h.ask, Fault: h.faulty, Owner: h.owner, Group: h.group}
				if h.bits&0x40 != 0 {
					mode := uint32(h.mode)
					a.Mode = &mode
				}
				if h.timed {
					a.Time = time.Unix(cols[8].value(i, 0), cols[9].value(i, 0)).UTC().Format(time.RFC3339Nano)
				}
				if h.algo != "" {
					a.Digest = h.algo + ":" + hex.EncodeToString(digests[sums:][:h.sumLen])
				}
				sums += h.sumLen
				a.Rank = cols[10].value(i, 1)
				if x.root.Chunk > 0 && a.Size > 0 && !h.faulty && (a.Kind == "file" || a.Kind == "hardlink" || a.Kind == "property") && h.bits&0x1000 == 0 {
					pieces := (a.Size-1)/x.root.Chunk + 1
					first := cols[11].value(i, pieces)
					for piece := first; piece < first+pieces; piece++ {
						a.Pieces = append(a.Pieces, hex.EncodeToString(x.piece(piece)))
					}
				}
				if h.bits&0x1000 != 0 {
					a.Pieces = append(a.Pieces, strings.TrimPrefix(a.Digest, "blake3:"))
				}
				if h.placed {
					stored, skip := a.Size, int64(0)
					if h.coded {
						stored, skip = cols[5].value(i, 0), cols[6].value(i, a.Size)
					}
					a.extent(x, 0, a.Size, cols[4].value(i, stored), stored, skip, h.volume, h.codec, nil)
				}
				if len(rare) > 0 {
					a.rare(x, rare)
				}
				if i == 0 && (whole != 0) != (h.bits&0x10 != 0) {
					panic("a name that is a path and is none")
				}
				if key := specKey(name, h.bits&0x10 != 0); key <= last || i == 0 && k == 0 && (key < r.first || last >= r.first) {
					panic("rows or keys that are not in order")
				} else {
					last = key
				}
				rows[name] = a
			}
		}
	}
	return rows, implied
}

// specKey is the key of a row.
func specKey(name string, whole bool) string {
	i := strings.LastIndexByte(name, '/')
	if whole {
		i = -1
	}
	part := func(s string) string { return strings.ReplaceAll(s, "\x00", "\x00\xff") + "\x00\x01" }
	end := "\x00"
	if whole {
		end = "\x01"
	}
	return part(name[:max(i, 0)]) + part(name[i+1:]) + end
}

// piece is the digest of a piece.
func (x *specIndex) piece(n int64) []byte {
	for _, r := range x.pages(x.root.Proofs) {
		if n < r.from+r.Items {
			return x.page(r)[32*(n-r.from):][:32]
		}
	}
	panic("no such piece")
}

func (a *vectorRow) extent(x *specIndex, at, length, off, stored, skip, volume int64, codec string, data []byte) {
	if codec == "zero" {
		return
	}
	if data != nil {
		a.Extents = append(a.Extents, vectorExtent{At: at, Length: length, DataHex: hex.EncodeToString(data)})
		return
	}
	v := x.root.Volumes[volume]
	a.Extents = append(a.Extents, vectorExtent{At: at, Length: length, Volume: v.Name, Outside: v.External, Offset: off, Stored: stored, Skip: skip, Codec: codec})
}

// rare adds rare properties.
func (a *vectorRow) rare(x *specIndex, b []byte) {
	c := &specCursor{b}
	bits := c.number(1)
	if bits&1 != 0 {
		a.Link = c.text()
	}
	if bits&2 != 0 {
		a.Attributes = map[string]string{}
		for n := c.uvar(); n > 0; n-- {
			k := c.text()
			a.Attributes[k] = c.text()
		}
	}
	if bits&4 != 0 {
		c.text()
		c.text()
		c.number(1)
		c.text()
		c.varint()
		c.text()
		c.number(1)
		a.Message = c.text()
	}
	a.Own = bits&8 != 0
	at, end, codec := int64(0), int64(0), ""
	for bits&0x10 != 0 && len(c.b) > 0 {
		which := c.number(1)
		volume, off, size := c.uvar(), end+c.varint(), c.uvar()
		length, skip, unit := size, int64(0), int64(0)
		for bit, read := range []func(){
			func() { at += c.varint() }, func() { length = c.uvar() }, func() { skip = c.uvar() }, func() { unit = c.uvar() },
		} {
			if which>>bit&1 != 0 {
				read()
			}
		}
		_ = unit
		if which&0x20 != 0 {
			codec = c.text()
		}
		var data []byte
		if which&0x10 != 0 {
			data = []byte(c.text())
		}
		a.extent(x, at, size, off, length, skip, volume, codec, data)
		at, end = at+size, off+length
	}
}

// sameBySpec compares what an index says with what it must.
func sameBySpec(t *testing.T, file []byte, want []vectorRow) {
	t.Helper()
	rows, implied := openSpec(bytes.Clone(file)).rows()
	if len(rows) != len(want) {
		t.Errorf("%d rows, expected %d", len(rows), len(want))
	}
	for _, name := range implied {
		if !strings.HasSuffix(name, "/") {
			t.Errorf("%q is implied", name)
		}
	}
	for _, w := range want {
		name := w.Name
		if w.NameHex != "" {
			b, err := hex.DecodeString(w.NameHex)
			if err != nil {
				t.Fatal(err)
			}
			name = string(b)
		}
		got, ok := rows[name]
		if got.Name, got.NameHex = w.Name, w.NameHex; !ok || !reflect.DeepEqual(got, w) {
			t.Errorf("%q:\n%+v, expected\n%+v", name, got, w)
		}
	}
	for i := range 100 {
		if name := fmt.Sprintf("nothing %x", sha256.Sum256([]byte{byte(i)})); rows[name].Kind != "" {
			t.Errorf("%q is found", name)
		}
	}
}
