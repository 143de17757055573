package segment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

func TestSegmentsReadAsTheReferenceReadsThem(t *testing.T) {
	for _, name := range testkit.Names(t, fixtures, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			e, s := loadExpected(t, name), loadStore(t, name)
			for file, want := range e.Tars {
				for text, w := range want.Segments {
					id, err := ParseID(text)
					if err != nil {
						t.Fatal(err)
					}
					checkSegment(t, file, id, s.tars[file][id], w)
				}
			}
		})
	}
}

func checkSegment(t *testing.T, file string, id ID, b []byte, w *expectedSegment) {
	t.Helper()
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != w.SHA256 {
		t.Fatalf("%s %s: other bytes", file, id)
	}
	if id.IsData() && string(b[:3]) != magic {
		// The reference's index readers do not look at that; its decoder does.
		if _, err := Parse(id, b); err == nil {
			t.Errorf("%s %s: expected an error", file, id)
		}
		b = append([]byte(magic), b[3:]...)
	}
	s, err := Parse(id, b)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	if !id.IsData() {
		if s.Version() != 0 || s.RecordCount() != 0 {
			t.Errorf("%s %s: a bulk segment has records", file, id)
		}
		return
	}
	var refs []string
	for i := range s.RefCount() {
		refs = append(refs, s.Ref(i).String())
	}
	byType := make([]int, types)
	table := sha256.New()
	for row := range s.Records() {
		byType[row.Type]++
		fmt.Fprintf(table, "%d:%d:%d\n", row.Number, row.Type, row.Offset)
	}
	g := s.Generation()
	switch {
	case s.Version() != w.Version, g != Generation{w.Gen, w.Full, w.Compacted}, s.RecordCount() != w.Records:
		t.Errorf("%s %s: version %d, %v, %d records; expected %+v", file, id, s.Version(), g, s.RecordCount(), w)
	case !slices.Equal(refs, w.Refs):
		t.Errorf("%s %s: references %v, expected %v", file, id, refs, w.Refs)
	case !slices.Equal(byType, w.RecordsByType):
		t.Errorf("%s %s: types %v, expected %v", file, id, byType, w.RecordsByType)
	case hex.EncodeToString(table.Sum(nil)) != w.RecordTableSHA256:
		t.Errorf("%s %s: another record table", file, id)
	}
	info, err := s.Info()
	if w.Info == nil || err != nil || info.JSON != *w.Info || info.Millis == 0 || info.Writer == "" {
		t.Errorf("%s %s: info %+v, %v; expected %v", file, id, info, err, w.Info)
	}
}

func TestTreesReadAsTheReferenceReadsThem(t *testing.T) {
	for _, name := range testkit.Names(t, fixtures, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			e, s := loadExpected(t, name), loadStore(t, name)
			head, err := ParseRecordID(e.Head.Revision)
			if err != nil {
				t.Fatal(err)
			}
			var got []expectedNode
			walkTree(t.Context(), NewReader(s), "", head, func(n expectedNode) { got = append(got, n) })
			if len(got) != len(e.Head.Nodes) {
				t.Errorf("%d nodes, expected %d", len(got), len(e.Head.Nodes))
			}
			for i := range min(len(got), len(e.Head.Nodes)) {
				g, w := comparable(t, got[i]), comparable(t, e.Head.Nodes[i])
				if g != w {
					t.Fatalf("node %d is\n%.500s, expected\n%.500s", i, g, w)
				}
			}
		})
	}
}

// comparable returns a node as text. Names of errors are the reference's own, and contents of
// other stores are not compared.
func comparable(t *testing.T, n expectedNode) string {
	if n.Error != "" {
		return n.Path + " " + n.RID + " error"
	}
	b, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var m any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if props, ok := m.(map[string]any)["Props"].([]any); ok {
		for _, p := range props {
			for _, v := range p.([]any)[2].([]any) {
				if v, ok := v.(map[string]any); ok && v["blobId"] != nil {
					delete(v, "len")
					delete(v, "sha256")
				}
			}
		}
	}
	b, err = json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// walkTree visits nodes depth first, each in the form of the expectations. As in the reference, a
// node has no children if not all of them are known.
func walkTree(ctx context.Context, r *Reader, name string, id RecordID, visit func(expectedNode)) {
	e := expectedNode{Path: name, RID: id.String(), Props: [][3]any{}}
	if name == "" {
		e.Path = "/"
	}
	var children []Entry
	n, err := r.Node(ctx, id)
	if err == nil {
		err = e.fill(ctx, n)
	}
	if err == nil {
		children, err = collect(n.Children(ctx))
	}
	if err != nil {
		e.Error = err.Error()
	}
	visit(e)
	if err != nil {
		return
	}
	for _, c := range children {
		walkTree(ctx, r, name+"/"+c.Name, c.Value, visit)
	}
}

// collect returns the elements of a sequence up to an error, and the error.
func collect[T any](seq iter.Seq2[T, error]) (all []T, err error) {
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (e *expectedNode) fill(ctx context.Context, n Node) error {
	sid, err := n.StableID(ctx)
	if err != nil {
		return err
	}
	if sid != n.ID() {
		e.SID = sid.String()
	}
	for p, err := range n.Properties(ctx) {
		if err != nil {
			return err
		}
		typ := p.Type.String()
		if p.Multi {
			typ += "[]"
		}
		values := []any{}
		for v, err := range p.Values(ctx) {
			if err != nil {
				return err
			}
			x, err := shown(ctx, p, v)
			if err != nil {
				return err
			}
			values = append(values, x)
		}
		if len(values) != p.Len() {
			return fmt.Errorf("%d values of %d", len(values), p.Len())
		}
		e.Props = append(e.Props, [3]any{p.Name, typ, values})
	}
	return nil
}

func shown(ctx context.Context, p Property, v Value) (any, error) {
	const limit = 64 << 20
	text := func(s string) any {
		if len(s) <= 256 {
			return s
		}
		sum := sha256.Sum256([]byte(s))
		return map[string]any{"utf8": len(s), "sha256": hex.EncodeToString(sum[:])}
	}
	switch {
	case p.Type != Binary:
		s, err := v.Text(ctx, limit)
		return text(s), err
	case v.External():
		s, err := v.BlobID(ctx, limit)
		return map[string]any{"blobId": text(s)}, err
	}
	b := make([]byte, v.Len())
	if err := v.ReadAt(ctx, b, 0); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return map[string]any{"len": len(b), "sha256": hex.EncodeToString(sum[:])}, nil
}
