package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storetest"
)

// buildTree writes nodes until there are enough, and the root of all. What it writes
// has values of each kind.
func buildTree(t testing.TB, b *segment.Builder, more func() bool) segment.RecordID {
	t.Helper()
	ctx := t.Context()
	must := func(id segment.RecordID, err error) segment.RecordID {
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	bulk := bytes.Repeat([]byte("bulk "), 50_000)
	var all []segment.Child
	for i := 0; i == 0 || more(); i++ {
		p := []segment.NewProperty{
			{Name: "title", Type: segment.String, Values: []segment.NewValue{{Text: fmt.Sprint("page ", i)}}},
			{Name: "text", Type: segment.String, Values: []segment.NewValue{{Text: strings.Repeat(fmt.Sprint(i), 200)}}},
			{Name: "tags", Type: segment.Name, Multi: true, Values: []segment.NewValue{{Text: "a"}, {Text: "b"}, {Text: fmt.Sprint(i % 100)}}},
		}
		if i%10 == 0 {
			p = append(p, segment.NewProperty{Name: "file", Type: segment.Binary, Values: []segment.NewValue{{IsID: true, Record: must(b.Binary(ctx, bytes.NewReader(bulk)))}}})
		}
		if i%10 == 3 {
			p = append(p, segment.NewProperty{Name: "far", Type: segment.Binary, Values: []segment.NewValue{{IsID: true, Record: must(b.External(ctx, fmt.Sprintf("%040x#100", i)))}}})
		}
		if i%10 == 9 { // small segments, in each tar
			if err := b.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, segment.Child{Name: fmt.Sprint("page", i), Node: must(b.Node(ctx, segment.NewNode{Properties: p}))})
	}
	root := must(b.Node(ctx, segment.NewNode{Children: all}))
	head := must(b.Node(ctx, segment.NewNode{Children: []segment.Child{{Name: "root", Node: root}}}))
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return head
}

// made is a store that has been made here: four tars, the head in the newest.
type made struct {
	*storetest.Mem
	t    testing.TB
	head segment.RecordID
}

func newMade(t testing.TB, gen segment.Generation) made {
	t.Helper()
	first, ok := madeOnce[gen]
	if !ok {
		first = build(t, gen)
		madeOnce[gen] = first
	}
	m := made{&storetest.Mem{}, t, first.head}
	for i := range 4 {
		m.Put(tarfile.Name(i, 'a'), first.Get(tarfile.Name(i, 'a')))
	}
	m.Put(repo.Manifest, first.Get(repo.Manifest))
	m.Put(repo.Journal, first.Get(repo.Journal))
	return m
}

// madeOnce keeps what takes longer to make than to look at.
var madeOnce = map[segment.Generation]made{}

func build(t testing.TB, gen segment.Generation) made {
	t.Helper()
	m := made{Mem: &storetest.Mem{}, t: t}
	r := rand.New(rand.NewPCG(1, 1))
	var b bytes.Buffer
	var w *tarfile.Writer
	number := 0
	end := func() {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		m.Put(tarfile.Name(number, 'a'), b.Bytes())
		b.Reset()
		number++
	}
	s := segment.NewBuilder(segment.BuilderOptions{Generation: gen, NewID: func() (id [16]byte) {
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		return id
	}}, func(_ context.Context, s segment.Finished) error {
		if b.Len() > 900_000 {
			end()
		}
		if b.Len() == 0 {
			w = tarfile.NewWriter(&b, tarfile.Name(number, 'a'), func() time.Time { return time.Unix(1, 0) })
		}
		var refs tarfile.IDs
		for _, r := range s.Refs {
			refs = append(refs, r[:]...)
		}
		return w.Add(s.ID, s.Generation, s.Data, refs, s.BlobIDs)
	})
	pages := 0
	m.head = buildTree(t, s, func() bool { pages++; return pages < 124 })
	end()
	if number != 4 {
		t.Fatal(number, "tars")
	}
	m.Put(repo.Manifest, []byte("store.version=2\n"))
	m.Put(repo.Journal, []byte(m.head.String()+" root 1\n"))
	return m
}

// names of the tars of a made store.
const (
	oldest = "data00000a.tar"
	older  = "data00001a.tar"
	newest = "data00003a.tar"
)

func (m made) open(name string) *tarfile.Tar {
	m.t.Helper()
	obj, err := m.Open(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	x, err := tarfile.Open(m.t.Context(), obj, name, tarfile.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	return x
}

// change changes the bytes of a file.
func (m made) change(name string, do func(b []byte) []byte) { m.Put(name, do(m.Get(name))) }

func (m made) flip(name string, off int64) {
	m.change(name, func(b []byte) []byte { b[off] ^= 4; return b })
}

func (m made) cut(name string, n int64) {
	m.change(name, func(b []byte) []byte { return b[:int64(len(b))-n] })
}

func (m made) layout(name string) tarfile.Layout {
	m.t.Helper()
	l, err := m.open(name).Layout(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// A part is one segment of a made tar.
type part struct {
	tarfile.Entry
	data     []byte
	refs     tarfile.IDs
	binaries []string
}

// parts takes a tar apart.
func (m made) parts(name string) (all []part) {
	m.t.Helper()
	x := m.open(name)
	g, err := x.Graph(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := x.Binaries(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	binaries := map[tarfile.ID][]string{}
	for s := range r.All() {
		binaries[s.ID] = slices.Collect(s.Refs.All())
	}
	for _, i := range x.Index().ByPosition() {
		p := part{Entry: x.Index().At(int(i))}
		if p.data, err = x.Read(m.t.Context(), int(i), nil); err != nil {
			m.t.Fatal(err)
		}
		p.refs, _ = g.Targets(p.ID)
		p.binaries = binaries[p.ID]
		all = append(all, p)
	}
	return all
}

// write rewrites a tar.
func (m made) write(name string, all []part) {
	m.t.Helper()
	var b bytes.Buffer
	w := tarfile.NewWriter(&b, name, func() time.Time { return time.Unix(1, 0) })
	for _, p := range all {
		if err := w.Add(p.ID, p.Generation, p.data, p.refs, p.binaries); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.Put(name, b.Bytes())
}

// rewrite changes the first part of a tar for which do returns true.
func (m made) rewrite(name string, do func(p *part) bool) {
	m.t.Helper()
	all := m.parts(name)
	for i := range all {
		if do(&all[i]) {
			m.write(name, all)
			return
		}
	}
	m.t.Fatal("no such part")
}

// entry returns one of a tar: a data segment, or a bulk segment.
func (m made) entry(name string, data bool) tarfile.Entry {
	m.t.Helper()
	for _, e := range m.open(name).Index().All() {
		if e.ID.IsData() == data && e.Len%tarfile.BlockSize != 0 {
			return e
		}
	}
	m.t.Fatal("no such entry")
	return tarfile.Entry{}
}

// index changes the entries of an index, 33 bytes each, and makes its checksum right.
func (m made) index(name string, do func(entries []byte)) {
	m.change(name, func(b []byte) []byte {
		footer := b[len(b)-1024-16:]
		n := 33 * int(binary.BigEndian.Uint32(footer[4:]))
		entries := b[len(b)-1024-16-n:][:n]
		do(entries)
		binary.BigEndian.PutUint32(footer, crc32.ChecksumIEEE(entries))
		return b
	})
}
