package sweep

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// randomID returns the id of a data segment, or of a bulk segment.
func randomID(r *rand.Rand, data bool) (id tarfile.ID) {
	binary.BigEndian.PutUint64(id[:], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	id[6] = id[6]&15 | 0x40
	id[8] = id[8]&15 | 0xb0
	if data {
		id[8] = id[8]&15 | 0xa0
	}
	return id
}

// A piece is a segment to be.
type piece struct {
	id   tarfile.ID
	gen  tarfile.Generation
	n    int
	refs []tarfile.ID
	blob string // an id of a binary, which record 0 has
}

// bytes makes the segment: sound as far as there is something in it.
func (p piece) bytes() []byte {
	b := bytes.Repeat(p.id[:], p.n/16+1)[:p.n]
	if !p.id.IsData() {
		return b
	}
	clear(b)
	copy(b, "0aK\x0d")
	full := uint32(p.gen.Full)
	if p.gen.Compacted {
		full |= 1 << 31
	}
	binary.BigEndian.PutUint32(b[4:], full)
	binary.BigEndian.PutUint32(b[10:], uint32(p.gen.Gen))
	binary.BigEndian.PutUint32(b[14:], uint32(len(p.refs)))
	at := 32
	for _, id := range p.refs {
		at += copy(b[at:], id[:])
	}
	if p.blob != "" {
		binary.BigEndian.PutUint32(b[18:], 1)
		off := (p.n - 2 - len(p.blob)) &^ 3
		b[at+4] = 8 // the type of such a record
		binary.BigEndian.PutUint32(b[at+5:], uint32(256<<10-p.n+off))
		binary.BigEndian.PutUint16(b[off:], 0xe000|uint16(len(p.blob)))
		copy(b[off+2:], p.blob)
	}
	return b
}

func someTime() time.Time { return time.Unix(1_700_000_000, 0) }

// tarOf writes a tar: its first header is the youngest.
func tarOf(t testing.TB, name string, pieces ...piece) []byte {
	t.Helper()
	var buf bytes.Buffer
	at := someTime()
	w := tarfile.NewWriter(&buf, name, func() time.Time { at = at.Add(-time.Second); return at })
	for _, p := range pieces {
		var refs tarfile.IDs
		for _, id := range p.refs {
			refs = append(refs, id[:]...)
		}
		var blobs []string
		if p.blob != "" {
			blobs = []string{p.blob}
		}
		if err := w.Add(p.id, p.gen, p.bytes(), refs, blobs); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func openTar(t testing.TB, st store.Store, name string) Tar {
	t.Helper()
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	x, err := tarfile.Open(t.Context(), o, name, tarfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	number, letter, ok := tarfile.ParseName(name)
	if !ok {
		t.Fatal(name)
	}
	return Tar{name, number, letter, o, x}
}

// memStore has tars, and gives them open, the newest first.
func memStore(t testing.TB, tars map[string][]byte) (*storetest.Mem, []Tar) {
	t.Helper()
	st := &storetest.Mem{}
	var open []Tar
	for name, b := range tars {
		st.Put(name, b)
		open = append(open, openTar(t, st, name))
	}
	slices.SortFunc(open, func(a, b Tar) int { return b.Number - a.Number })
	return st, open
}

// damagePart changes the last 16 bytes of a part: its footer.
func damagePart(t testing.TB, b []byte, part func(tarfile.Layout) tarfile.Span, off int) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("data00000a.tar", b)
	l, err := openTar(t, st, "data00000a.tar").Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := part(l)
	if s.Len == 0 {
		t.Fatal("no such part")
	}
	b[s.Off+s.Len-16+int64(off)] ^= 0x10
}

// withFirstIndex gives a tar the index that Oak had before 1.8.
func withFirstIndex(t testing.TB, b []byte) []byte {
	t.Helper()
	_, tars := memStore(t, map[string][]byte{"data00000a.tar": b})
	l, err := tars[0].Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var entries []byte
	for _, e := range tars[0].Index().All() {
		entries = append(entries, e.ID[:]...)
		for _, v := range []int{int(e.Pos), e.Len, int(e.Generation.Gen)} {
			entries = binary.BigEndian.AppendUint32(entries, uint32(v))
		}
	}
	size := len(entries) + 16
	size += -size & (tarfile.BlockSize - 1)
	out := tarfile.AppendHeader(bytes.Clone(b[:l.Index.Off]), "data00000a.tar.idx", int64(size), someTime())
	out = append(out, make([]byte, size-16-len(entries))...)
	out = append(out, entries...)
	for _, v := range []uint32{crc32.ChecksumIEEE(entries), uint32(tars[0].Index().Len()), uint32(size), 0x0a304b0a} {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return append(out, make([]byte, 2*tarfile.BlockSize)...)
}

func graphPart(l tarfile.Layout) tarfile.Span    { return l.Graph }
func binariesPart(l tarfile.Layout) tarfile.Span { return l.Binaries }

const (
	crcField   = 0 // of a footer: what is damaged is still where it was
	magicField = 12
)

func at(g, f int32, compacted bool) tarfile.Generation {
	return tarfile.Generation{Gen: g, Full: f, Compacted: compacted}
}

func sweepAll(ctx context.Context, p *Plan, st store.Store) error {
	for i := range p.Tars {
		if p.Tars[i].Action == Rewrite {
			if _, err := p.Sweep(ctx, st, "", i); err != nil {
				return err
			}
		}
	}
	return nil
}
