package oak

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func typed(primary string, more ...segment.NewProperty) []segment.NewProperty {
	return append([]segment.NewProperty{single(primaryTypeName, segment.Name, text(primary))}, more...)
}

// assets is a tree as AEM has them, and nodes that only look as if they were files.
func assets(m maker) segment.RecordID {
	file := func(data segment.NewValue, more ...segment.NewProperty) segment.RecordID {
		resource := m.node(typed(resourceType, append(more, single(dataName, segment.Binary, data))...))
		return m.node(typed(fileType, single(created, segment.Date, text("2020-01-01T00:00:00.000Z"))), segment.Child{Name: jcrContent, Node: resource})
	}
	const id = "0123456789abcdef0123456789abcdef01234567"
	photo := file(m.blob(id+"#5"), single(mimeName, segment.String, text("image/jpeg")), single(lastModified, segment.Date, text("2026-11-20T10:11:12.345+01:00")))
	small := file(m.binary([]byte("small")))
	asset := func(renditions ...segment.Child) segment.RecordID {
		return m.node(typed(assetType), segment.Child{Name: jcrContent, Node: m.node(typed("dam:AssetContent"),
			segment.Child{Name: "metadata", Node: m.node(typed("nt:unstructured"))}, segment.Child{Name: "renditions", Node: m.node(typed(folderType), renditions...)})})
	}
	leaf := m.node(typed("nt:unstructured"))
	return m.node(nil,
		segment.Child{Name: "dam", Node: m.node(typed("sling:OrderedFolder"),
			segment.Child{Name: "photo.jpg", Node: asset(segment.Child{Name: "original", Node: photo}, segment.Child{Name: "small.png", Node: small})},
			segment.Child{Name: "remote.jpg", Node: asset(segment.Child{Name: "small.png", Node: small})},
			segment.Child{Name: "empty", Node: m.node(typed("sling:Folder"))})},
		segment.Child{Name: "page", Node: m.node(typed("cq:Page"), segment.Child{Name: jcrContent, Node: m.node(typed("cq:PageContent"),
			segment.Child{Name: "text", Node: leaf}, segment.Child{Name: "a%2F.txt", Node: file(m.binary(noise(30000)), single(mimeName, segment.String, text("text/plain")), single(encodingName, segment.String, text("utf-8")))})})},
		segment.Child{Name: "100%25", Node: file(m.binary(nil), single(mimeName, segment.String, text("bad\ntype")))},
		segment.Child{Name: "texts", Node: m.node(typed(fileType), segment.Child{Name: jcrContent, Node: m.node(typed(resourceType, single(dataName, segment.String, text("no binary"))))})},
		segment.Child{Name: "several", Node: m.node(typed(fileType), segment.Child{Name: jcrContent, Node: m.node(typed(resourceType, several(dataName, segment.Binary, m.binary(nil))))})},
	)
}

func openFiles(t *testing.T, st *storetest.Mem, param map[string]string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}, View: filesView, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestFilesOfATreeAreFiles(t *testing.T) {
	st := madeStore(t, assets)
	st.Put("blobs/01/23/45/0123456789abcdef0123456789abcdef01234567", []byte("bytes"))
	a := openFiles(t, st, map[string]string{datastoreParam: "blobs"})
	got := map[string]string{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		said := e.Kind.String()
		if e.Kind == format.File {
			b := make([]byte, e.Size)
			if _, err := a.ReadAt(t.Context(), e, b, 0); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
			said = string(b)
			if len(said) > 100 {
				said = "much"
				if string(b) != string(noise(30000)) {
					t.Errorf("%s has another content", e.Name)
				}
			}
			said += " " + e.Attr["content-type"] + " " + e.ModTime.UTC().Format("2006-01-02")
		}
		got[e.Name] = said
		again, err := a.Lookup(t.Context(), e.Name)
		if err != nil || again.Name != e.Name || again.Kind != e.Kind || again.Size != e.Size || !maps.Equal(again.Attr, e.Attr) {
			t.Errorf("%s: looked up: %+v, %v, expected %+v", e.Name, again, err, e)
		}
	}
	want := map[string]string{
		"dam": "dir", "dam/photo.jpg": "bytes image/jpeg 2026-11-20", "dam/empty": "dir",
		"dam/remote.jpg": "dir", "dam/remote.jpg/jcr:content": "dir", "dam/remote.jpg/jcr:content/renditions": "dir", "dam/remote.jpg/jcr:content/renditions/small.png": "small  2020-01-01",
		"page": "dir", "page/jcr:content": "dir", "page/jcr:content/a%252F.txt": "much text/plain; charset=utf-8 2020-01-01",
		"100%25": "  2020-01-01", "texts": "dir", "several": "dir",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q\nexpected %q", got, want)
	}
	for name, want := range map[string]error{
		"dam/photo.jpg/jcr:content": fs.ErrNotExist, "dam/photo.jpg/none": fs.ErrNotExist, "texts/jcr:content": fs.ErrNotExist, "page/jcr:content/text": fs.ErrNotExist,
		"100%2525": fs.ErrNotExist, "dam/jcr:primaryType": fs.ErrNotExist, "none": fs.ErrNotExist,
	} {
		if _, err := a.Lookup(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", name, err, want)
		}
	}
	for _, err := range a.ReadDir(t.Context(), "dam/photo.jpg") {
		if !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("a file is listed: %v", err)
		}
	}
}

func TestFilesConform(t *testing.T) {
	f := *Format
	f.Views, f.Overview = nil, ""
	f.Open = inFiles
	small := madeStore(t, func(m maker) segment.RecordID {
		resource := m.node(typed(resourceType, single(dataName, segment.Binary, m.binary(noise(20000)))))
		file := m.node(typed(fileType), segment.Child{Name: jcrContent, Node: resource}, segment.Child{Name: "below", Node: m.node(typed(folderType))})
		return m.node(nil, segment.Child{Name: "d", Node: m.node(nil, segment.Child{Name: "file", Node: file}, segment.Child{Name: "..", Node: file})})
	})
	formattest.RunArchive(t, &f, objects(t, small), "s")
}

func inFiles(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	o.View = filesView
	return open(ctx, st, name, o)
}

// If damage affects a file, the file has a fault, and the others are read.
func TestFilesThatAreLostAreNamed(t *testing.T) {
	st := madeStore(t, assets)
	a := openFiles(t, st, nil)
	var lost []string
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault != nil {
			lost = append(lost, e.Name)
			if e.Kind != format.File || !strings.Contains(e.Fault.Message, "data store") {
				t.Errorf("%+v", e)
			}
		}
	}
	if !slices.Equal(lost, []string{"dam/photo.jpg"}) {
		t.Errorf("lost: %q", lost)
	}
}

// Files of a Lucene index are in parts, each followed by a key that does not belong to the
// content.
func TestFilesOfIndexesAreFiles(t *testing.T) {
	key := []byte("0123456789abcdef")
	const id = "0123456789abcdef0123456789abcdef01234567"
	whole := noise(100_000)
	with := func(part []byte) []byte { return append(slices.Clip(part), key...) }
	hex := single(uniqueKeyName, segment.String, text("30313233343536373839616263646566"))
	st := madeStore(t, func(m maker) segment.RecordID {
		file := func(props ...segment.NewProperty) segment.RecordID {
			return m.node(append(props, single(lastModified, segment.Integer, text("1767323045678"))))
		}
		parts := func(blob int, data []byte) (all []segment.NewValue) {
			for part := range slices.Chunk(data, blob) {
				all = append(all, m.binary(with(part)))
			}
			return all
		}
		return m.node(nil, segment.Child{Name: ":data", Node: m.node(nil,
			segment.Child{Name: "one", Node: file(hex, single(dataName, segment.Binary, m.binary(with(whole))))},
			segment.Child{Name: "parts", Node: file(hex, single(blobSizeName, segment.Integer, text("30000")), several(dataName, segment.Binary, parts(30000, whole)...))},
			segment.Child{Name: "usual", Node: file(hex, several(dataName, segment.Binary, parts(usualBlobSize, whole)...))},
			segment.Child{Name: "keyless", Node: file(single(blobSizeName, segment.Integer, text("100000")), several(dataName, segment.Binary, m.binary(whole)))},
			segment.Child{Name: "empty", Node: file(hex, several(dataName, segment.Binary))},
			segment.Child{Name: "away", Node: file(hex, single(blobSizeName, segment.Integer, text("50000")), several(dataName, segment.Binary, m.binary(with(whole[:50000])), m.blob(id+"#50016")))},
			segment.Child{Name: "short", Node: file(hex, single(dataName, segment.Binary, m.binary([]byte("x"))))},
			segment.Child{Name: "odd", Node: file(hex, single(blobSizeName, segment.Integer, text("-1")), several(dataName, segment.Binary, m.binary(whole)))},
			segment.Child{Name: "torn", Node: file(hex, single(blobSizeName, segment.Integer, text("40000")), several(dataName, segment.Binary, m.binary(whole[:100]), m.binary(with(whole[:200]))))},
		)})
	})
	st.Put("blobs/01/23/45/"+id, with(whole[50000:]))
	a := openFiles(t, st, map[string]string{datastoreParam: "blobs"})
	for _, name := range []string{"one", "parts", "usual", "keyless", "empty", "away"} {
		want := whole
		if name == "empty" {
			want = nil
		}
		e, err := a.Lookup(t.Context(), ":data/"+name)
		if err != nil || e.Kind != format.File || e.Size != int64(len(want)) || e.Fault != nil || e.ModTime.UnixMilli() != 1767323045678 {
			t.Errorf("%s: %+v, %v", name, e, err)
			continue
		}
		for _, off := range []int64{0, 1, 29_999, 50_000, 65_536, 99_999} {
			b := make([]byte, 70_000)
			n, err := a.ReadAt(t.Context(), e, b, off)
			if to := min(off+70_000, e.Size); off < e.Size && !bytes.Equal(b[:n], want[off:to]) || err != nil && err != io.EOF {
				t.Errorf("%s from %d: %d bytes, %v", name, off, n, err)
			}
		}
	}
	for _, name := range []string{"short", "odd"} {
		if e, err := a.Lookup(t.Context(), ":data/"+name); err != nil || e.Fault == nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	torn, err := a.Lookup(t.Context(), ":data/torn")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.ReadAt(t.Context(), torn, make([]byte, torn.Size), 0); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("torn: %v", err)
	}
}

// What a walk finds is extracted, however deep it is.
func TestDeepFilesAreExtracted(t *testing.T) {
	st := &storetest.Mem{}
	w := newWriter(t, st, nil)
	const levels = treeDepth - 4 // the file has a content node, and the tree a super root
	names := []string{"a/near", strings.Repeat("d/", levels) + "far"}
	for _, name := range names {
		if err := addText(t, w, format.Entry{Name: name}, name[:6]); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(t, w)
	a := openFiles(t, st, nil)
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	done, err := holdall.Extract(t.Context(), a, into, holdall.ExtractOptions{OnError: func(p holdall.Problem, err error) { t.Errorf("%.80s: %v", p.Entry, err) }})
	if err != nil || done.Failed > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, name := range names {
		if b, err := into.ReadFile(name); err != nil || string(b) != name[:6] {
			t.Errorf("%.80s: %q, %v", name, b, err)
		}
	}
}
