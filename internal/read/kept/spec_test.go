package kept

import (
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
)

// What follows reads a table by docs/index.md, and uses nothing of this package but the
// answers that are expected.

// A specTable is a table as the text has it.
type specTable struct {
	file []byte
	head struct {
		Rows, Start, Pages, Since int64
		Bits                      int
		Codecs                    []string
		Digests                   []struct {
			Algo string
			Len  int64
		}
		Volumes []struct {
			Name     string
			External bool
		}
		Sections map[string]struct{ Off, Len int64 }
		Checks   uint32 `json:"checks_crc32"`
		How      []struct {
			Kind                                    string
			Volume, Codec, Digest                   *int
			Mode                                    *uint32
			Owner, Group                            string
			Time                                    bool
			Plain, Long, Ask, Fault, Implied, Whole bool
		}
	}
}

func openSpec(file []byte) (*specTable, error) {
	end := len(file) - 32 - 16
	if string(file[end+8:end+16]) != "holdtab1" {
		return nil, fmt.Errorf("no table")
	}
	at := end - int(binary.LittleEndian.Uint32(file[end:]))
	if crc32.ChecksumIEEE(file[at:end]) != binary.LittleEndian.Uint32(file[end+4:]) {
		return nil, fmt.Errorf("a damaged head")
	}
	t := &specTable{file: file}
	if err := json.Unmarshal(file[at:end], &t.head); err != nil {
		return nil, err
	}
	checks := t.section("checks")
	if crc32.ChecksumIEEE(checks) != t.head.Checks {
		return nil, fmt.Errorf("damaged checks")
	}
	for k := 0; k < len(checks)/4; k++ {
		block := file[t.head.Start+4096*int64(k):][:4096]
		if crc32.ChecksumIEEE(block) != binary.LittleEndian.Uint32(checks[4*k:]) {
			return nil, fmt.Errorf("a damaged block %d", k)
		}
	}
	return t, nil
}

func (t *specTable) section(name string) []byte {
	s := t.head.Sections[name]
	return t.file[s.Off:][:s.Len]
}

func u32(b []byte, i int64) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }
func u64(b []byte, i int64) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }

// name is the name of a row.
func (t *specTable) name(row int64) string {
	begin := u64(t.section("groups"), row/16)
	names := t.section("names")[begin&(1<<63-1):]
	number := func(i int64) int64 { return int64(names[i]) }
	text := int64(32)
	if begin < 0 {
		number = func(i int64) int64 { return u32(names, i) }
		text = 128
	}
	at, i := text, row%16
	for k := range i {
		at += number(16 + k)
	}
	return string(names[text:][:number(i)]) + string(names[at:][:number(16+i)])
}

// find returns the number of a row, -1 if there is none.
func (t *specTable) find(name string, implied bool) int64 {
	hash := crc32.ChecksumIEEE([]byte(name))
	slot := int64(uint64(hash) >> (32 - t.head.Bits))
	hashes := t.section("hashes")
	for i := u32(t.section("slots"), slot); i < u32(t.section("slots"), slot+1); i++ {
		if row := u32(hashes, 2*i+1); u32(hashes, 2*i) == int64(hash) && t.name(row) == name && t.head.How[t.how(row)].Implied == implied {
			return row
		}
	}
	return -1
}

func (t *specTable) how(row int64) int64 { return int64(uint64(t.place(row)) >> 48) }

// place is what a place begins with.
func (t *specTable) place(row int64) int64 { return u64(t.section("places")[12*row:], 0) }

// column is what a section that may be missing has of a row.
func (t *specTable) column(name string, row int64) int64 {
	if s := t.section(name); len(s) > 0 {
		return u32(s, row)
	}
	return 0
}

// digest is that of a row, with its algorithm; empty if it has none.
func (t *specTable) digest(row int64) string {
	at := u64(t.section("sums"), row/16)
	for before := row / 16 * 16; before < row; before++ {
		if d := t.head.How[t.how(before)].Digest; d != nil {
			at += t.head.Digests[*d].Len
		}
	}
	d := t.head.Digests[*t.head.How[t.how(row)].Digest]
	runs := t.section("runs")
	k := int64(0)
	for u64(runs, 3*k+3) <= at {
		k++
	}
	begin, off := u64(runs, 3*k), t.head.Pages+u64(runs, 3*k+1)
	run := t.file[off:][:u64(runs, 3*k+3)-begin]
	if int64(crc32.ChecksumIEEE(run)) != u32(runs, 6*k+4) {
		return "damaged"
	}
	return d.Algo + ":" + hex.EncodeToString(run[at-begin:][:d.Len])
}

// time is that of a row.
func (t *specTable) time(row int64) time.Time {
	if times := t.section("times"); int64(len(times)) == 8*t.head.Rows {
		return time.Unix(0, u64(times, row)).UTC()
	}
	return time.Unix(t.head.Since+t.column("times", row), 0).UTC()
}

// answer is what the table says of a row.
func (t *specTable) answer(row int64) vectorRow {
	off, length := t.place(row)&(1<<48-1), u32(t.section("places")[12*row:], 2)
	h := t.head.How[t.how(row)]
	r := vectorRow{Kind: h.Kind, Size: length, Plain: h.Plain, Ask: h.Ask, Fault: h.Fault, Mode: h.Mode, Owner: h.Owner, Group: h.Group}
	if h.Time {
		r.Time = t.time(row).Format(time.RFC3339Nano)
	}
	if h.Digest != nil {
		r.Digest = t.digest(row)
	}
	extent := func(at, length, off, stored, skip int64, volume, codec int) vectorExtent {
		v := t.head.Volumes[volume]
		x := vectorExtent{At: at, Length: length, Volume: v.Name, Outside: v.External, Offset: off, Stored: stored, Skip: skip}
		if codec >= 0 {
			x.Codec = t.head.Codecs[codec]
		}
		return x
	}
	if h.Long {
		longs := t.section("longs")
		record := longs[off:]
		r.Size = u64(record, 0)
		for i := range u32(record, 2) {
			x := record[16+48*i:]
			volume, codec := u32(x, 10), int(int32(u32(x, 11)))
			if volume == 1<<32-1 {
				r.Extents = append(r.Extents, vectorExtent{At: u64(x, 0), Length: u64(x, 1), DataHex: hex.EncodeToString(longs[u64(x, 2):][:u64(x, 3)])})
				continue
			}
			r.Extents = append(r.Extents, extent(u64(x, 0), u64(x, 1), u64(x, 2), u64(x, 3), u64(x, 4), int(volume), codec))
		}
	} else if h.Volume != nil {
		stored := length
		if *h.Codec >= 0 {
			stored = t.column("stored", row)
		}
		r.Extents = append(r.Extents, extent(0, length, off, stored, t.column("skips", row), *h.Volume, *h.Codec))
	}
	return r
}

// sameBySpec compares what a table says with what it must.
func sameBySpec(t *testing.T, file []byte, want []vectorRow) {
	t.Helper()
	s, err := openSpec(file)
	if err != nil {
		t.Fatal(err)
	}
	implied := 0
	for row := range s.head.Rows {
		if s.head.How[s.how(row)].Implied {
			if implied++; !strings.HasSuffix(s.name(row), "/") || s.find(s.name(row), true) != row {
				t.Errorf("%q is implied", s.name(row))
			}
		}
	}
	if int(s.head.Rows)-implied != len(want) {
		t.Errorf("%d rows, %d of them implied, expected %d others", s.head.Rows, implied, len(want))
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
		row := s.find(name, false)
		if row < 0 {
			t.Errorf("%q is not found", name)
			continue
		}
		got := s.answer(row)
		if got.Name, got.NameHex = w.Name, w.NameHex; !reflect.DeepEqual(got, w) {
			t.Errorf("%q:\n%+v, expected\n%+v", name, got, w)
		}
	}
	for i := range 100 {
		if name := fmt.Sprintf("nothing %x", sha256.Sum256([]byte{byte(i)})); s.find(name, false) >= 0 {
			t.Errorf("%q is found", name)
		}
	}
}
