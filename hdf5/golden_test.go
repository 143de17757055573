package hdf5

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

const (
	interop = "../interop/hdf5"
	// fixtures are the files that interop/hdf5/fixtures.py has made.
	fixtures = 32
)

// reference runs the scripts of interop/hdf5, where h5py is.
var reference = testkit.Batch{Var: "HOLDALL_HDF5_PYTHON", Args: []string{interop + "/batch.py"}}

func TestMain(m *testing.M) { testkit.Main(m, reference.End) }

// said is what h5py says: a line of interop/hdf5/describe.py, which tells what is in it.
type said struct {
	Size       int64
	Userblock  int64
	Superblock int

	Path       string
	PathHex    string `json:"path_hex"`
	Address    int64
	Kind       string
	Attributes []struct {
		Name    string
		NameHex string `json:"name_hex"`
		saidElements
		Value any
	}
	AttributesOrder []string `json:"attributes_order"`
	Links           []struct {
		Name    string
		NameHex string `json:"name_hex"`
		Kind    string
		Address int64
		Path    string
		PathHex string `json:"path_hex"`
		File    string
	}
	LinksOrder []string `json:"links_order"`

	saidElements
	First   []any
	Layout  string
	Chunks  []int64
	Filters []struct {
		ID, Flags int
		Values    []uint32
	}
	Fill     saidElements
	Offset   *int64
	Pieces   any
	External []any
}

type saidElements struct {
	Type   any
	Space  any
	SHA256 string
	Error  string
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(t.Context(), inMemory(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func inMemory(t testing.TB, b []byte) store.Object {
	t.Helper()
	var st storetest.Mem
	st.Put("x.h5", b)
	return storetest.Open(t, &st, "x.h5")
}

func TestReadsWhatTheReferenceReads(t *testing.T) { compareFixtures(t, "testdata") }

// The same files are made anew, of other numbers.
func TestReadsWhatTheReferenceWrites(t *testing.T) {
	testkit.Serial(t)
	python, dir := testkit.Needs(t, reference.Var), t.TempDir()
	seed := strconv.FormatUint(testkit.Seed(t), 10)
	if out, err := exec.CommandContext(t.Context(), python, interop+"/fixtures.py", dir, seed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compareFixtures(t, dir)
}

func compareFixtures(t *testing.T, dir string) {
	for _, name := range testkit.Few(t, 10, testkit.Names(t, dir, ".h5.gz", fixtures)...) {
		t.Run(name, func(t *testing.T) {
			compareFile(t, testkit.Read(t, filepath.Join(dir, name+".h5")), testkit.Read(t, filepath.Join(dir, name+".jsonl")), "")
		})
	}
}

// Files at random have all types, layouts, links and versions that h5py writes. The check makes
// one of each subject, and HOLDALL_LONG as many as it says.
func TestReadsFilesAtRandom(t *testing.T) {
	testkit.Serial(t)
	dir, n := t.TempDir(), testkit.Rounds(t, 14)
	ask(t, "gen", dir, strconv.FormatUint(testkit.Seed(t), 10), strconv.Itoa(n))
	names := testkit.Names(t, dir, ".h5", n+6)
	slices.SortFunc(names, func(a, b string) int { // the files that others name are removed last
		return cmp.Or(cmp.Compare(strings.Count(a, "part"), strings.Count(b, "part")), cmp.Compare(a, b))
	})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name+".h5")
			compareFile(t, testkit.Read(t, file), ask(t, "describe", file), dir)
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		})
	}
}

// ask returns what a script prints.
func ask(t *testing.T, words ...string) []byte {
	t.Helper()
	var a struct {
		Code           int
		Stdout, Stderr string
	}
	if reference.Ask(t, &a, words...); a.Code != 0 {
		t.Fatalf("%q: %s", words, a.Stderr)
	}
	return []byte(a.Stdout)
}

// compareFile compares a file with what the reference says. dir has the other files that it names; it may be empty.
func compareFile(t *testing.T, b, lines []byte, dir string) {
	f := openBytes(t, b)
	if dir != "" {
		f.Outside = func(ctx context.Context, name string) (store.Object, error) { return local.New(dir).Open(ctx, name) }
	}
	want := map[int64]said{}
	d := json.NewDecoder(bytes.NewReader(lines))
	d.UseNumber()
	for first := true; ; first = false {
		var s said
		if err := d.Decode(&s); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !first {
			want[f.Base+s.Address] = s
		} else if f.Version != s.Superblock || f.Base != s.Userblock || f.Size() != s.Size {
			t.Errorf("version %d at %d, %d bytes, expected %d at %d, %d bytes", f.Version, f.Base, f.Size(), s.Superblock, s.Userblock, s.Size)
		}
	}
	for o, err := range f.Walk(t.Context(), WalkOptions{Values: true}) {
		if err != nil {
			t.Fatal(err)
		}
		s, ok := want[o.Addr]
		if !ok {
			t.Errorf("%s is none of the reference's", o.Path)
			continue
		}
		delete(want, o.Addr)
		c := comparison{t, f, o.Path}
		c.object(o, s)
	}
	for _, s := range want {
		t.Errorf("%s is missing", s.Path)
	}
}

// A comparison is of an object with what the reference says of it.
type comparison struct {
	*testing.T
	f    *File
	name string
}

func (c comparison) wrong(what string, got, want any) {
	c.Helper()
	c.Errorf("%s: %s: %.300s, expected %.300s", c.name, what, fmt.Sprint(got), fmt.Sprint(want))
}

// same compares as JSON.
func (c comparison) same(what string, got, want any) {
	c.Helper()
	if a, b := c.text(got), c.text(want); a != b {
		c.wrong(what, a, b)
	}
}

func (c comparison) text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		c.Fatal(err)
	}
	return string(b)
}

// bytesOf are those of a name, which may be no text.
func bytesOf(text, asHex string) string {
	if b, err := hex.DecodeString(asHex); err == nil && asHex != "" {
		return string(b)
	}
	return text
}

func (c comparison) object(o *Object, s said) {
	kind := o.Kind.String()
	if o.Kind == NamedType {
		kind = "type"
	}
	c.same("kind", kind, s.Kind)
	refused := o.Kind == Dataset && o.Readable() != nil && (o.Layout.Class == External || o.Layout.Class == Virtual)
	if o.Err != nil && !(refused && errors.Is(o.Err, errors.ErrUnsupported)) {
		c.Errorf("%s: %v", c.name, o.Err)
	}
	if len(o.Attributes) != len(s.Attributes) {
		c.wrong("attributes", len(o.Attributes), len(s.Attributes))
		return
	}
	for i, a := range o.Attributes {
		w := s.Attributes[i]
		what := fmt.Sprintf("attribute %q", a.Name)
		if c.same("attribute", a.Name, bytesOf(w.Name, w.NameHex)); a.Err != nil {
			c.Errorf("%s: %s: %v", c.name, what, a.Err)
			continue
		}
		if c.elements(what, a.Type, a.Space, a.Data, w.saidElements); w.Value != nil {
			values, isList := w.Value.([]any)
			if !isList || w.Space.(map[string]any)["class"] == "scalar" {
				values = []any{w.Value}
			}
			c.values(what, a.Type, a.Values, values)
		}
	}
	if s.AttributesOrder != nil {
		slices.SortFunc(o.Attributes, func(a, b Attribute) int { return int(a.Order - b.Order) })
		for i, a := range o.Attributes {
			c.same("order of attributes", strings.ToValidUTF8(a.Name, "\ufffd"), s.AttributesOrder[i])
		}
	}
	switch o.Kind {
	case Group:
		c.links(o, s)
	case Dataset:
		c.dataset(o, s, refused)
	case NamedType:
		o.Type.Committed = o.Addr
		c.same("type", c.typeOf(o.Type), s.Type)
	}
}

func (c comparison) links(o *Object, s said) {
	if len(o.Links) != len(s.Links) {
		c.wrong("links", len(o.Links), len(s.Links))
		return
	}
	for i, l := range o.Links {
		w := s.Links[i]
		want := Link{Name: bytesOf(w.Name, w.NameHex), Order: l.Order}
		switch w.Kind {
		case "hard":
			want.Addr = c.f.Base + w.Address
		case "soft":
			want.Kind, want.Target = SoftLink, bytesOf(w.Path, w.PathHex)
		case "external":
			want.Kind, want.Target, want.File = ExternalLink, bytesOf(w.Path, w.PathHex), w.File
		}
		if l != want {
			c.wrong("link", l, want)
		}
	}
	if s.LinksOrder != nil {
		slices.SortFunc(o.Links, func(a, b Link) int { return int(a.Order - b.Order) })
		for i, l := range o.Links {
			c.same("order of links", strings.ToValidUTF8(l.Name, "\ufffd"), s.LinksOrder[i])
		}
	}
}

func (c comparison) dataset(o *Object, s said, refused bool) {
	layout := o.Layout.Class.String()
	if o.Layout.Class == External {
		layout = "contiguous"
	}
	c.same("layout", layout, s.Layout)
	c.same("external", o.Layout.Class == External, s.External != nil)
	if !slices.Equal(o.Layout.Chunk, s.Chunks) {
		c.wrong("chunks", o.Layout.Chunk, s.Chunks)
	}
	if len(o.Filters) != len(s.Filters) {
		c.wrong("filters", o.Filters, s.Filters)
	} else {
		for i, x := range o.Filters {
			if w := s.Filters[i]; x.ID != w.ID || !slices.Equal(x.Values, w.Values) {
				c.wrong("filter", x, w)
			}
		}
	}
	if s.Layout == "contiguous" && s.External == nil && s.Offset != nil && *s.Offset != o.Layout.Addr {
		c.wrong("offset", o.Layout.Addr, *s.Offset)
	}
	if s.Fill.SHA256 != "" {
		value := o.Fill
		if value == nil {
			value = make([]byte, o.Type.Size)
		}
		c.digest("fill value", o.Type, value, s.Fill.SHA256)
	}
	if s.Chunks != nil {
		c.stored(o, s.Pieces)
	}
	if refused {
		c.elements("elements", o.Type, o.Space, nil, saidElements{Type: s.Type, Space: s.Space})
		if err := o.Readable(); !errors.Is(err, errors.ErrUnsupported) {
			c.wrong("error", err, "unsupported")
		}
		return
	}
	var p []byte
	if s.SHA256 != "" && !o.Space.Null {
		p = make([]byte, o.Bytes())
		if err := o.Read(c.Context(), p, nil, nil); err != nil {
			c.Errorf("%s: %v", c.name, err)
			return
		}
		var all bytes.Buffer
		if err := o.WriteElements(c.Context(), &all); err != nil || !bytes.Equal(all.Bytes(), p) {
			c.Errorf("%s: WriteElements: %d bytes, %v", c.name, all.Len(), err)
		}
	}
	if c.elements("elements", o.Type, o.Space, p, s.saidElements); p != nil {
		got, err := c.f.Values(c.Context(), o.Type, p[:min(int64(len(p)), int64(len(s.First))*o.Type.Size)])
		if err != nil {
			c.Errorf("%s: %v", c.name, err)
			return
		}
		c.values("elements", o.Type, got, s.First)
	}
}

// stored compares where chunks are.
func (c comparison) stored(o *Object, want any) {
	got := [][4]any{}
	for x, err := range o.Chunks(c.Context()) {
		if err != nil {
			c.Errorf("%s: %v", c.name, err)
			return
		}
		got = append(got, [4]any{x.Offset, x.Addr, x.Size, x.Mask})
	}
	if n, ok := want.(json.Number); ok {
		c.same("number of chunks", len(got), n)
		return
	}
	slices.SortFunc(got, func(a, b [4]any) int { return slices.Compare(a[0].([]int64), b[0].([]int64)) })
	c.same("chunks", got, want)
}

// elements compares types, shapes, and all bytes that count.
func (c comparison) elements(what string, t *Datatype, space Space, b []byte, want saidElements) {
	c.Helper()
	c.same("type of "+what, c.typeOf(t), want.Type)
	c.same("shape of "+what, spaceOf(space), want.Space)
	if want.SHA256 != "" {
		c.digest(what, t, b, want.SHA256)
	}
}

func spaceOf(s Space) any {
	switch {
	case s.Null:
		return map[string]any{"class": "null"}
	case len(s.Dims) == 0:
		return map[string]any{"class": "scalar"}
	}
	most := make([]*int64, len(s.Max))
	for i, n := range s.Max {
		if n != Unlimited {
			most[i] = &n
		}
	}
	return map[string]any{"class": "simple", "dims": s.Dims, "max": most}
}

// typeOf says what describe.py says of a type.
func (c comparison) typeOf(t *Datatype) map[string]any {
	order := "le"
	if t.BigEndian {
		order = "be"
	}
	number := func(class string, more map[string]any) map[string]any {
		all := map[string]any{"class": class, "size": t.Size, "order": order, "precision": t.Precision, "offset": t.BitOffset}
		for name, v := range more {
			all[name] = v
		}
		return all
	}
	pads := [...]string{ZeroEnded: "null", ZeroPadded: "zeros", SpacePadded: "spaces"}
	charset := map[bool]string{false: "ascii", true: "utf-8"}[t.UTF8]
	var d map[string]any
	switch t.Class {
	case Integer:
		d = number("integer", map[string]any{"signed": t.Signed})
	case BitField:
		d = number("bitfield", nil)
	case Time:
		d = number("time", nil)
	case Float:
		x := t.Float
		norm := "none"
		if x.Implied {
			norm = "implied"
		}
		d = number("float", map[string]any{"fields": []int{x.Sign, x.ExponentAt, x.ExponentBits, x.MantissaAt, x.MantissaBits}, "bias": x.Bias, "norm": norm})
	case String:
		d = map[string]any{"class": "string", "size": t.Size, "charset": charset, "pad": pads[t.Padding]}
	case Opaque:
		d = map[string]any{"class": "opaque", "size": t.Size, "tag": t.Tag}
	case Enum:
		members := [][2]any{}
		for _, m := range t.Members {
			members = append(members, [2]any{m.Name, t.Base.integer(m.Value)})
		}
		d = map[string]any{"class": "enum", "base": c.typeOf(t.Base), "members": members}
	case Compound:
		inFile := func(n int64) any {
			if t.variable {
				return nil
			}
			return n
		}
		members := [][3]any{}
		for _, x := range t.Fields {
			members = append(members, [3]any{x.Name, inFile(x.Offset), c.typeOf(x.Type)})
		}
		d = map[string]any{"class": "compound", "size": inFile(t.Size), "members": members}
	case Array:
		d = map[string]any{"class": "array", "dims": t.Dims, "base": c.typeOf(t.Base)}
	case Complex:
		d = map[string]any{"class": "complex", "base": c.typeOf(t.Base)}
	case Variable:
		if d = map[string]any{"class": "sequence"}; t.IsString {
			d = map[string]any{"class": "string", "size": nil, "charset": charset, "pad": pads[t.Padding]}
		} else {
			d["base"] = c.typeOf(t.Base)
		}
	case Reference:
		d = map[string]any{"class": "reference", "to": [...]string{ObjectRef: "object", RegionRef: "region"}[t.Ref]}
	}
	if t.Committed != 0 {
		d["committed"] = t.Committed - c.f.Base
	}
	return d
}

// digest compares all elements, written as describe.py tells.
func (c comparison) digest(what string, t *Datatype, b []byte, want string) {
	c.Helper()
	d := decoder{w: c.f.wave(c.Context())}
	h := sha256.New()
	var p []byte
	for ; len(b) > 0; b = b[t.Size:] {
		p = c.write(p[:0], &d, t, b[:t.Size])
		h.Write(p)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		c.wrong(what+" of "+t.String(), got, want)
	}
}

func (c comparison) write(p []byte, d *decoder, t *Datatype, b []byte) []byte {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	switch t.Class {
	case Integer, BitField, Float, Time:
		if int64(t.Precision) == 8*t.Size {
			return append(p, t.little(b)...)
		}
		v := new(big.Int).Rsh(new(big.Int).SetBytes(reversed(t.little(b))), uint(t.BitOffset))
		v.And(v, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(t.Precision)), big.NewInt(1)))
		return append(p, reversed(v.FillBytes(make([]byte, (t.Precision+7)/8)))...)
	case Enum:
		return c.write(p, d, t.Base, b)
	case Compound:
		for _, x := range t.Fields {
			p = c.write(p, d, x.Type, b[x.Offset:][:x.Type.Size])
		}
		return p
	case Array, Complex:
		for ; len(b) > 0; b = b[t.Base.Size:] {
			p = c.write(p, d, t.Base, b[:t.Base.Size])
		}
		return p
	case Variable:
		return c.writeSequence(p, d, t, b)
	case Reference:
		v, err := d.one(t, b)
		if err != nil {
			c.Fatal(err)
		}
		if at, ok := v.(Ref); ok {
			return u64(p, uint64(max(0, int64(at)-c.f.Base)))
		}
		r := v.(RegionValue)
		if p = u64(p, uint64(max(0, int64(r.Object)-c.f.Base))); r.Object == 0 {
			return p
		}
		rank, blocks := c.region(r.Selection)
		p = u32(u32(u32(p, uint32(rank)), uint32(len(blocks))), 0)
		for _, at := range blocks {
			for _, n := range at {
				p = u64(p, uint64(n))
			}
		}
		return p
	}
	return append(p, b...)
}

func reversed(b []byte) []byte {
	b = bytes.Clone(b)
	slices.Reverse(b)
	return b
}

func (c comparison) writeSequence(p []byte, d *decoder, t *Datatype, b []byte) []byte {
	if t.IsString {
		v, err := d.one(t, b)
		if err != nil {
			c.Fatal(err)
		}
		s := v.(string)
		return append(binary.LittleEndian.AppendUint32(p, uint32(len(s))), s...)
	}
	x := c.f.cursor(b)
	n, at, number := int64(x.u32()), x.addr(), x.u32()
	p = binary.LittleEndian.AppendUint32(p, uint32(n))
	if n == 0 {
		return p
	}
	got, err := d.object(at, number)
	if err != nil {
		c.Fatal(err)
	}
	for i := range n {
		p = c.write(p, d, t.Base, got[i*t.Base.Size:][:t.Base.Size])
	}
	return p
}

// region takes a selection of one block apart, as the library encodes it, and returns the corners
// of it. Numbers are u32 unless it says otherwise:
//
//	2 (blocks), 1, reserved, bytes, rank, blocks, first and last corner
//	2 (blocks), 3, flags (u8, bit 0: regular), bytes of a number (u8), rank, and by dimension
//	            start, stride, count and block
func (c comparison) region(b []byte) (rank int, blocks [][]int64) {
	x := c.f.cursor(b)
	kind, version := x.u32(), x.u32()
	one := int64(1)
	var at, to []int64
	switch {
	case kind == 2 && version == 1:
		x.skip(8)
		rank, one = int(x.u32()), int64(x.u32())
		for range rank {
			at = append(at, int64(x.u32()))
		}
		for range rank {
			to = append(to, int64(x.u32()))
		}
	case kind == 2 && version == 3:
		if flags := x.u8(); flags&1 == 0 {
			one = 0
		}
		size := int(x.u8())
		rank = int(x.u32())
		for range rank {
			start := x.size(size)
			x.size(size)
			one *= x.size(size)
			at, to = append(at, start), append(to, start+x.size(size)-1)
		}
	}
	if one != 1 || x.err() != nil {
		c.Fatalf("%s: selections of type %d and version %d, of %d blocks, are not known to this test", c.name, kind, version, one)
	}
	return rank, [][]int64{append(at, to...)}
}

func (c comparison) values(what string, t *Datatype, got, want []any) {
	c.Helper()
	if len(got) != len(want) {
		c.wrong("number of "+what, len(got), len(want))
		return
	}
	for i := range got {
		g, w := c.text(c.shown(t, got[i])), c.text(c.trimmed(t, want[i]))
		if g != w {
			c.wrong(fmt.Sprintf("%s %d (%v)", what, i, t), g, w)
			return
		}
	}
}

// shown is a value as the reference shows it.
func (c comparison) shown(t *Datatype, v any) any {
	switch v := v.(type) {
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 0):
			return map[bool]string{true: "-"}[v < 0] + "Infinity"
		}
		return v
	case complex128:
		return []any{c.shown(t, real(v)), c.shown(t, imag(v))}
	case string:
		return plain(v)
	case []byte:
		if t.Class == Time {
			return c.shown(t, t.bits(v))
		}
		return map[string]any{"hex": hex.EncodeToString(v)}
	case Ref:
		if v == 0 {
			return nil
		}
		return map[string]any{"object": int64(v) - c.f.Base}
	case RegionValue:
		if v.Object == 0 {
			return nil
		}
		_, blocks := c.region(v.Selection)
		return map[string]any{"region": int64(v.Object) - c.f.Base, "blocks": blocks, "points": []any{}}
	case []any:
		out := []any{}
		for i, x := range v {
			out = append(out, c.shown(inner(t, i), x))
		}
		return out
	}
	return v
}

// inner is the type of an element's part.
func inner(t *Datatype, i int) *Datatype {
	if t.Class == Compound {
		return t.Fields[i].Type
	}
	return t.Base
}

func plain(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]any{"hex": hex.EncodeToString([]byte(s))}
}

// trimmed is a value of the reference without what fills strings up, and with floats as Go
// writes them.
func (c comparison) trimmed(t *Datatype, v any) any {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".e") {
			x, err := v.Float64()
			if err != nil {
				c.Fatal(err)
			}
			return x
		}
	case string:
		if t.Class == String {
			return plain(string(t.trim([]byte(v))))
		}
	case map[string]any:
		if s, ok := v["hex"].(string); ok && t.Class == String {
			b, err := hex.DecodeString(s)
			if err != nil {
				c.Fatal(err)
			}
			return plain(string(t.trim(b)))
		}
	case []any:
		out := []any{}
		for i, x := range v {
			out = append(out, c.trimmed(inner(t, min(i, max(0, len(t.Fields)-1))), x))
		}
		return out
	}
	return v
}
