package rescue

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
)

const testdata = "../../testdata/"

func file(fixture string) string { return testdata + fixture + ".tar.gz" }

func expectation(t testing.TB, name string) (want expected) {
	t.Helper()
	testkit.JSON(t, testdata+name+".expect.json", &want)
	return want
}

// expected is what Oak made of a fixture.
type expected struct {
	Files map[string]int64
	Tars  map[string]expectedTar
	RoBak map[string]expectedTar
	After struct {
		Files map[string]int64
		Tars  map[string]expectedTar
	} `json:"afterReadWriteOpen"`
}

type expectedTar struct {
	Length       int64
	IndexVersion int
	Index        json.RawMessage
	Graph        json.RawMessage
	Brf          json.RawMessage
	Segments     map[string]struct {
		SHA256 string `json:"sha256"`
	}
}

// A tarball is what there is in a tar, as the expectations have it: each part as JSON.
type tarball struct {
	Index, Graph, Brf string
	Segments          map[string]string
}

// tarball adds the segments of x: all that its index has, with what is known about each.
func (x expectedTar) tarball(t testing.TB, sums map[string]string) tarball {
	t.Helper()
	b := tarball{Index: same(t, x.Index), Graph: same(t, x.Graph), Brf: same(t, x.Brf), Segments: map[string]string{}}
	var index [][]any
	if err := json.Unmarshal(x.Index, &index); err != nil {
		t.Fatal(err)
	}
	for _, e := range index {
		id := e[0].(string)
		b.Segments[id] = sums[id]
		if sums[id] == "" {
			t.Fatal("nobody knows", id)
		}
	}
	if x.IndexVersion == 1 {
		b.Index = "" // we write the next version
	}
	return b
}

// sums are the digests of all segments of a fixture: as Oak reads them, and where it
// finds none as any reader of tars does.
func sums(want expected, tars map[string][]byte) map[string]string {
	all := map[string]string{}
	for name, b := range tars {
		for id, s := range want.Tars[name].Segments {
			all[id] = s.SHA256
		}
		for r := tar.NewReader(bytes.NewReader(b)); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			data, err := io.ReadAll(r)
			if n, ok := tarfile.ParseEntryName(h.Name); err == nil && ok && crc32.ChecksumIEEE(data) == n.CRC && all[n.ID.String()] == "" {
				all[n.ID.String()] = digest(data)
			}
		}
	}
	return all
}

// same is JSON whose objects have their keys in order.
func same(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var x any
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	b, err = json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readTar reads a tar that must be sound.
func readTar(t testing.TB, m memory, name string) tarball {
	t.Helper()
	x := m.sound(t, name, func(tarfile.ID) bool { return false })
	b := tarball{Segments: map[string]string{}}
	var index [][]any
	var buf []byte
	var err error
	for _, i := range x.Index().ByPosition() {
		e := x.Index().At(int(i))
		index = append(index, []any{e.ID.String(), e.Pos, e.Len, e.Generation.Gen, e.Generation.Full, e.Generation.Compacted})
		if buf, err = x.Read(t.Context(), int(i), buf); err != nil {
			t.Fatal(err)
		}
		b.Segments[e.ID.String()] = digest(buf)
	}
	b.Index = same(t, index)
	g, err := x.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	graph := map[string][]string{}
	for id, to := range g.All() {
		var texts []string
		for id := range to.All() {
			texts = append(texts, id.String())
		}
		slices.Sort(texts)
		graph[id.String()] = texts
	}
	b.Graph = same(t, graph)
	r, err := x.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	brf := map[string]map[string][]any{}
	for s := range r.All() {
		gen := s.Generation.String()
		if brf[gen] == nil {
			brf[gen] = map[string][]any{}
		}
		for _, ref := range slices.Sorted(s.Refs.All()) {
			var text any = ref
			if len(ref) > 256 {
				text = map[string]any{"utf8": len(ref), "sha256": digest([]byte(ref))}
			}
			brf[gen][s.ID.String()] = append(brf[gen][s.ID.String()], text)
		}
	}
	b.Brf = same(t, brf)
	return b
}

func digest(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// tarsOf returns the tars of a fixture.
func tarsOf(t testing.TB, name string) map[string][]byte {
	t.Helper()
	tars := map[string][]byte{}
	for name, b := range testkit.Untar(t, file(name)) {
		if path.Base(path.Dir(name)) == "segmentstore" && path.Ext(name) == ".tar" {
			tars[path.Base(name)] = b
		}
	}
	if len(tars) == 0 {
		t.Fatal("no tars in", name)
	}
	return tars
}
