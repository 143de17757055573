package kept

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

var update = flag.Bool("update", false, "rewrite the test vectors")

// A vector is a made-up archive with an index in testdata/rows, and the answers that the index
// must give.
type vector struct {
	entries []format.Entry
	xs      map[string][]format.Extent
	bound   Bound
	chunk   bool // it has digests of pieces
}

// A vectorRow is an answer, as testdata/rows has it.
type vectorRow struct {
	Name       string            `json:"name,omitempty"`
	NameHex    string            `json:"name_hex,omitempty"` // of what is not UTF-8
	Kind       string            `json:"kind"`
	Size       int64             `json:"size"`
	Ask        bool              `json:"ask,omitempty"`
	Fault      bool              `json:"fault,omitempty"`
	Mode       *uint32           `json:"mode,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Group      string            `json:"group,omitempty"`
	Time       string            `json:"time,omitempty"`
	Digest     string            `json:"digest,omitempty"` // algorithm, a colon, hex
	Pieces     []string          `json:"pieces,omitempty"` // digests of pieces, in hex
	Rank       int64             `json:"rank"`
	Link       string            `json:"link,omitempty"`
	Own        bool              `json:"own,omitempty"`     // the archive's own
	Message    string            `json:"message,omitempty"` // of a fault
	Attributes map[string]string `json:"attributes,omitempty"`
	Extents    []vectorExtent    `json:"extents,omitempty"`
}

type vectorExtent struct {
	At      int64  `json:"at"`
	Length  int64  `json:"length"`
	Volume  string `json:"volume,omitempty"` // below the archive; empty is that itself
	Outside bool   `json:"external,omitempty"`
	Offset  int64  `json:"offset"`
	Stored  int64  `json:"stored"`
	Skip    int64  `json:"skip,omitempty"`
	Codec   string `json:"codec,omitempty"`
	DataHex string `json:"data_hex,omitempty"` // of content that is in the index
}

func vectors() map[string]vector {
	raw := func(object string, off, size int64) []format.Extent {
		return []format.Extent{{Size: size, Object: object, Off: off, Len: size}}
	}
	file := func(v *vector, name string, size int64, xs ...format.Extent) {
		v.entries = append(v.entries, format.Entry{Name: name, Size: size})
		v.xs[name] = xs
	}
	plain := vector{xs: map[string][]format.Extent{}}
	for i := range int64(40) {
		file(&plain, fmt.Sprintf("data/%d/member_%03d.bin", i/20, i), 100+i, raw("dir/x", 1000*i, 100+i)...)
	}
	file(&plain, "empty", 0)
	file(&plain, strings.Repeat("long/", 60)+"a", 3, raw("dir/x", 3, 3)...)
	file(&plain, strings.Repeat("long/", 60)+"b", 4, raw("dir/x", 6, 4)...)
	file(&plain, "other", 7, raw("dir/x/volume-2", 1<<40, 7)...)
	file(&plain, "outside", 8, format.Extent{Size: 8, Object: "https://example.org/y", External: true, Off: 5, Len: 8})
	file(&plain, "xxxxx", 1, raw("dir/x", 1, 1)...) // the two have one hash
	file(&plain, "9~\t\xa3y", 2, raw("dir/x", 2, 2)...)

	proven := vector{xs: map[string][]format.Extent{}}
	for i := range int64(200) { // in two pages
		name := fmt.Sprintf("%d/%d", i/100, i)
		e := format.Entry{Name: name, Size: 10, HasMode: true, Mode: 0o644, Owner: "a", ModTime: time.Unix(2e9-i, 5*i).UTC()}
		if i%3 != 0 {
			sum := sha256.Sum256([]byte(name))
			e.Digest = format.Digest{Algo: "long", Sum: strings.Repeat(string(sum[:]), 6)}
		}
		proven.entries = append(proven.entries, e)
		proven.xs[name] = raw("dir/x", 10*i, 10)
	}

	kinds := vector{xs: map[string][]format.Extent{}, bound: Bound{Size: 1234, ModTime: time.Unix(1e9, 5e8).UTC(), HeadSHA256: "00112233445566778899aabbccddeeff", TailSHA256: "ffeeddccbbaa99887766554433221100"}}
	kinds.entries = []format.Entry{
		{Name: "dir", Kind: format.Dir},
		{Name: "dir/with a mode", Kind: format.Dir, HasMode: true, Mode: 0o755},
		{Name: "dir/link", Kind: format.Symlink, Link: "../somewhere"},
		{Name: "dir/hard", Kind: format.HardLink, Link: "dir/with a time"},
		{Name: "dir/pipe", Kind: format.Fifo},
		{Name: "node/property", Kind: format.Property, Size: 3},
		{Name: "dir/with a time", Size: 4, ModTime: time.Unix(1e9, 0).UTC()},
		{Name: "dir/with a digest", Size: 4, Digest: format.Digest{Algo: "blake3", Sum: string(make([]byte, 32))}},
		{Name: "dir/with another digest", Size: 5, Digest: format.Digest{Algo: "crc32", Sum: "\x01\x02\x03\x04"}},
		{Name: "dir/with an owner", Owner: "somebody", Group: "all"},
		{Name: "dir/with attributes", Attr: map[string]string{"k": "v"}},
		{Name: "dir/at fault", Size: 9, Fault: &format.Problem{Code: format.BadData, Severity: format.Error, Off: -1, Message: "lost"}},
		{Name: "dir/ask", Size: 10},
		{Name: "dir/ask for much", Size: 5 << 30},
		{Name: "own", Internal: true},
		{Name: "a/", Size: 1}, {Name: "a/b", Size: 2}, // "a" is implied, and "a/" a file
		{Name: "/absolute"}, {Name: "../up"}, {Name: ""}, {Name: "ü"}, {Name: "\xff\xfe/\x00"},
	}
	for _, name := range []string{"node/property", "dir/with a time", "dir/with a digest", "dir/with another digest", "a/", "a/b"} {
		for _, e := range kinds.entries {
			if e.Name == name {
				kinds.xs[name] = raw("dir/x", 77, e.Size)
			}
		}
	}
	for _, name := range []string{"dir/ask", "dir/ask for much"} {
		kinds.xs[name] = raw("nowhere in the archive", 0, 1)
	}

	codecs := vector{xs: map[string][]format.Extent{}, bound: Bound{Size: 30, Objects: []BoundObject{{Name: "/1", Size: 10, ModTime: time.Unix(1e9, 0).UTC(), Version: `"etag"`}, {Name: "/2", Size: 20}}}}
	file(&codecs, "whole", 5000, format.Extent{Size: 5000, Object: "dir/x/1", Off: 10, Len: 300, Codec: "zlib", Unit: 5000})
	file(&codecs, "of a length that is not known", 5000, format.Extent{Size: 5000, Object: "dir/x/1", Off: 10, Len: 300, Codec: "zlib"})
	file(&codecs, "of a unit", 50, format.Extent{Size: 50, Object: "dir/x/2", Off: 400, Len: 300, Codec: codec.Zstd, Skip: 450, Unit: 5000})
	file(&codecs, "far within a unit", 50, format.Extent{Size: 50, Object: "dir/x/2", Off: 400, Len: 300, Codec: codec.Zstd, Skip: 1 << 33})
	file(&codecs, "inline", 5, format.Extent{Size: 5, Codec: codec.Inline, Len: 5, Data: []byte("hello"), Object: "dir/x"})
	file(&codecs, "zeros", 5, format.Extent{Size: 5, Codec: codec.Zero})
	file(&codecs, "no extents", 5)
	file(&codecs, "a hole", 100, format.Extent{At: 20, Size: 30, Object: "dir/x/1", Off: 1, Len: 30}, format.Extent{At: 60, Size: 40, Object: "dir/x/2", Off: 2, Len: 40})
	file(&codecs, "mixed", 100, format.Extent{Size: 20, Object: "dir/x/1", Len: 9, Codec: "zlib", Unit: 20}, format.Extent{At: 20, Size: 4, Codec: codec.Inline, Len: 4, Data: []byte("four"), Object: "dir/x"},
		format.Extent{At: 24, Size: 76, Object: "dir/x/2", Off: 9, Len: 10, Codec: codec.Zstd, Skip: 3})
	file(&codecs, "zeros at its end", 10, format.Extent{Size: 4, Object: "dir/x/1", Off: 5, Len: 4}, format.Extent{At: 4, Size: 6, Codec: codec.Zero})
	file(&codecs, "long", 1<<32, raw("dir/x/1", 3, 1<<32)...)
	file(&codecs, "as long as a place has room", 1<<32-1, raw("dir/x/1", 1<<48-1, 1<<32-1)...)
	file(&codecs, "far", 1, raw("dir/x/1", 1<<48, 1)...)
	pieces := vector{xs: map[string][]format.Extent{}, chunk: true}
	for i := range int64(70) { // in two blocks
		size := 10_000 * (i%20 + 1)
		file(&pieces, fmt.Sprintf("%d/%02d", i%3, i), size, raw("dir/x", 10_000_000*i, size)...)
		e := &pieces.entries[i]
		if i%4 != 0 { // that of the only piece, of one of several, or another one
			sum := pieceOf(e.Name, int(i/40))
			e.Digest = format.Digest{Algo: "blake3", Sum: string(sum[:])}
		}
	}
	pieces.entries[5].Fault = &format.Problem{Code: format.BadData, Severity: format.Error, Off: -1, Message: "lost"}
	pieces.entries[6].Kind = format.Dir
	pieces.entries[6].Size = 0
	delete(pieces.xs, pieces.entries[6].Name)

	return map[string]vector{"plain": plain, "pieces": pieces, "proven": proven, "kinds": kinds, "codecs": codecs, "empty": {xs: map[string][]format.Extent{}}}
}

// rows are what is to be answered.
func (v vector) rows() (all []vectorRow) {
	for i, e := range v.entries {
		r := vectorRow{Name: e.Name, Kind: e.Kind.String(), Size: e.Size, Fault: e.Fault != nil, Rank: int64(i), Link: e.Link, Own: e.Internal, Attributes: e.Attr}
		if e.Fault != nil {
			r.Message = e.Fault.Message
		}
		if v.chunk {
			for i := range Pieces(&e, MinChunk) {
				sum := pieceOf(e.Name, int(i))
				r.Pieces = append(r.Pieces, hex.EncodeToString(sum[:]))
			}
		}
		if !utf8.ValidString(e.Name) {
			r.Name, r.NameHex = "", hex.EncodeToString([]byte(e.Name))
		}
		for _, x := range v.xs[e.Name] {
			y := vectorExtent{At: x.At, Length: x.Size, Outside: x.External, Offset: x.Off, Stored: x.Len, Skip: x.Skip, Codec: x.Codec}
			switch {
			case x.Codec == codec.Zero:
				continue
			case x.Codec == codec.Inline:
				y = vectorExtent{At: x.At, Length: x.Size, DataHex: hex.EncodeToString(x.Data)}
			case x.External:
				y.Volume = x.Object
			case len(x.Object) >= len("dir/x") && x.Object[:len("dir/x")] == "dir/x":
				y.Volume = x.Object[len("dir/x"):]
			default:
				r.Ask = true
				continue
			}
			r.Extents = append(r.Extents, y)
		}
		if e.HasMode {
			mode := uint32(e.Mode)
			r.Mode = &mode
		}
		if r.Owner, r.Group = e.Owner, e.Group; !e.ModTime.IsZero() {
			r.Time = e.ModTime.Format(time.RFC3339Nano)
		}
		if e.Digest.Algo != "" {
			r.Digest = e.Digest.Algo + ":" + hex.EncodeToString([]byte(e.Digest.Sum))
		}
		all = append(all, r)
	}
	return all
}

// sameRows looks up all rows of a vector in its index.
func sameRows(t *testing.T, x *Index, v vector) {
	t.Helper()
	for _, e := range v.entries {
		got, err := x.Lookup(t.Context(), e.Name)
		if got.Ref = nil; err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%q: %+v, %v, expected %+v", e.Name, got, err, e)
		}
	}
	if e, err := x.Lookup(t.Context(), "nothing"); err == nil {
		t.Errorf("%+v", e)
	}
}

// TestTheVectorsAreWhatIsWritten makes the indexes of testdata/rows again, and has them read by a
// reader that knows nothing but docs/bytes/index.md.
func TestTheVectorsAreWhatIsWritten(t *testing.T) {
	for name, v := range vectors() {
		t.Run(name, func(t *testing.T) {
			l := &listed{kit.NewIndex(kit.Entries(v.entries)), v.xs}
			head := Head{Format: "list", Bound: v.bound, Objects: []string{""}}
			var digests func(func([DigestLen]byte, error) bool)
			if v.chunk {
				head.Chunk, digests = MinChunk, piecesOf(t, l)
			}
			b, _ := build(t, l, head, Options{Digests: digests})
			text, err := json.MarshalIndent(v.rows(), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, '\n')
			base := filepath.Join("testdata", "rows", name)
			if *update {
				for suffix, b := range map[string][]byte{".json": text, Suffix: b} {
					if err := os.WriteFile(base+suffix, b, 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
			golden, err := os.ReadFile(base + Suffix)
			if err != nil {
				t.Fatal(err)
			}
			wantText, err := os.ReadFile(base + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, wantText) {
				t.Errorf("%s.json is not what the entries are: -update, and read the difference", base)
			}
			if !bytes.Equal(b, golden) {
				t.Errorf("%s%s is not what is written: -update, and read the difference", base, Suffix)
			}
			var rows []vectorRow
			if err := json.Unmarshal(wantText, &rows); err != nil {
				t.Fatal(err)
			}
			sameBySpec(t, golden, rows)
			sameRows(t, openedFile(t, golden), v)
		})
	}
}

// piecesOf yields made-up digests of the pieces of all contents.
func piecesOf(t testing.TB, l *listed) func(func([DigestLen]byte, error) bool) {
	return func(yield func([DigestLen]byte, error) bool) {
		for e := range l.Entries(t.Context()) {
			for i := range Pieces(&e, MinChunk) {
				if !yield(pieceOf(e.Name, int(i)), nil) {
					return
				}
			}
		}
	}
}

func pieceOf(name string, i int) [DigestLen]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %s", i, name))
}
