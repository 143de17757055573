package hdf5

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/pyjson"
	"github.com/holdall/holdall/internal/arrays/zarr3"
)

// keys presents a file as a Zarr hierarchy: the references that LINDI makes.
type keys struct {
	*kit.Index
	a     *archive
	t     *texter
	table keyTable
	soft  map[string]string // targets of soft links

	links    int64 // the largest number of chunks of an array that is shown, or 0
	followed int   // links into other files

	mu sync.Mutex // held to read small arrays
}

// keyTable has the keys of nodes in order.
type keyTable struct {
	nodes []node
	rows  []keyRow
}

// node is a group, an array, or a link.
type node struct {
	path          string
	names         string // of .zattrs, of .zgroup or .zarray, and of the chunk if there is one
	x             *array // nil if it is not an array
	attrs, zarray []byte
	fault         *format.Problem // why nothing of it can be presented
}

// keyRow is a key.
type keyRow struct {
	node   int32
	kind   keyKind
	number int64 // of a chunk
	off, n int64 // its place in the file
}

type keyKind uint8

const (
	attrsKey keyKind = iota
	groupKey
	arrayKey
	chunkKey
)

const groupText = `{"zarr_format":2}`

func newKeys(ctx context.Context, a *archive, links int64) (*keys, error) {
	a.scales = a.findScales()
	k := &keys{a: a, t: &texter{a: a}, soft: map[string]string{}, links: links}
	var open []*array
	for v, err := range a.tree() {
		if err != nil {
			return nil, err
		}
		if x := k.add(ctx, v, links); x != nil && x.isOpen() {
			open = append(open, x)
		}
	}
	if err := k.t.elements(ctx, open); err != nil {
		return nil, err
	}
	if err := k.list(ctx); err != nil {
		return nil, err
	}
	k.Index = kit.NewIndex(&k.table)
	return k, nil
}

// add adds the node for a position in the tree, if Zarr can represent it.
func (k *keys) add(ctx context.Context, v visit, links int64) *array {
	t := &k.table
	if !utf8.ValidString(v.path) {
		if v.object == nil || v.object.Kind != h5.NamedType {
			k.a.notes = append(k.a.notes, k.a.problem(v.path, unsupported("the name is not UTF-8")))
		}
		return nil
	}
	if v.link != nil {
		switch v.link.Kind {
		case h5.SoftLink:
			attrs, err := name([]byte(`{"_SOFT_LINK":{"path":`), v.link.Target)
			if err != nil {
				k.miss(v.path, err)
				return nil
			}
			t.nodes = append(t.nodes, node{path: v.path, attrs: append(attrs, "}}"...)})
			k.soft[v.path] = v.link.Target
		default:
			x, err := k.linked(ctx, v.link)
			if err != nil {
				k.miss(v.path, err)
				return nil
			}
			t.nodes = append(t.nodes, node{path: v.path, x: x, attrs: k.t.attributes(x.Object, x, "")})
			return x
		}
		return nil
	}
	switch v.object.Kind {
	case h5.Group:
		t.nodes = append(t.nodes, node{path: v.path, attrs: k.t.attributes(v.object, nil, "")})
	case h5.Dataset:
		if !k.a.scales.isVariable(v.object) {
			return nil
		}
		x, err := k.t.newArray(v.object)
		if err != nil {
			k.miss(v.path, err)
			return nil
		}
		link := ""
		if links > 0 && v.object.Layout.Class == h5.Chunked && x.chunks(links+1) > links && (x.how == inFile || x.how == decoded) {
			x.how = inRun // its chunks are not listed
			x.linked = true
			link = fmt.Sprintf(`{"link_type":"hdf5_dataset","name":%s,"url":%s}`, pyjson.AppendString(nil, v.path), pyjson.AppendString(nil, k.a.address))
		}
		t.nodes = append(t.nodes, node{path: v.path, x: x, attrs: k.t.attributes(v.object, x, link)})
		return x
	}
	return nil
}

// maxLinked is how many links into other files are followed.
const maxLinked = 10_000

// linked describes a dataset in another file, of numbers, whose elements are read from there.
func (k *keys) linked(ctx context.Context, l *h5.Link) (*array, error) {
	if k.followed++; l.Kind != h5.ExternalLink || k.a.f.Outside == nil || k.followed > maxLinked {
		return nil, linkError(l)
	}
	obj, err := k.a.f.Outside(ctx, l.File)
	if err != nil {
		return nil, unsupported("link to %q in the file %q: %v", l.Target, l.File, err)
	}
	f, err := h5.Open(ctx, obj)
	var o *h5.Object
	if err == nil {
		f.Outside = k.a.f.Outside
		o, err = f.Find(ctx, l.Target)
	}
	if err != nil {
		return nil, unsupported("link to %q in the file %q: %v", l.Target, l.File, err)
	}
	if o.Kind != h5.Dataset {
		return nil, unsupported("link to %q in the file %q, which is a %v", l.Target, l.File, o.Kind)
	}
	x, err := k.t.newArray(o)
	if err == nil && (x.fromValues() || x.Space.Null || len(x.names) > 0) {
		err = unsupported("link to %q in the file %q: elements of type %v of other files are not shown", l.Target, l.File, o.Type)
	}
	if err != nil {
		return nil, err
	}
	if x.how == inFile || x.how == inRun || x.how == decoded {
		if x.how, x.codecs = made, nil; o.Space.Elements() > 0 {
			x.divide(splitFrom)
			x.grid()
		}
	}
	return x, nil
}

// linkError returns the error for a link that is only named.
func linkError(l *h5.Link) error {
	if l.Kind == h5.ExternalLink {
		return unsupported("link to %q in the file %q", l.Target, l.File)
	}
	return unsupported("user-defined link of type %d", l.Kind)
}

// miss adds a node that cannot be represented in Zarr.
func (k *keys) miss(path string, err error) {
	k.table.nodes = append(k.table.nodes, node{path: path, fault: k.a.fault(path+"/.zarray", err)})
}

// list makes the rows of all nodes.
func (k *keys) list(ctx context.Context) error {
	t := &k.table
	for i := range t.nodes {
		n := &t.nodes[i]
		n.begin()
		if n.x != nil && n.x.err != nil {
			n.fault = k.a.fault(n.path+"/.zarray", n.x.err)
		}
		if n.fault != nil {
			t.rows = append(t.rows, keyRow{node: int32(i), kind: arrayKey})
			continue
		}
		if n.attrs != nil {
			t.rows = append(t.rows, keyRow{node: int32(i), kind: attrsKey})
		}
		if n.x == nil {
			t.rows = append(t.rows, keyRow{node: int32(i), kind: groupKey})
			continue
		}
		t.rows = append(t.rows, keyRow{node: int32(i), kind: arrayKey})
		at := len(t.rows)
		if err := k.chunks(ctx, int32(i), n.x); err != nil {
			return err
		}
		if len(t.rows) == at+1 {
			n.names += n.below(n.x.key(t.rows[at].number))
		}
		slices.SortFunc(t.rows[at:], func(a, b keyRow) int { return int(min(max(a.number-b.number, -1), 1)) })
		if err := n.x.mask(k.t, int64(len(t.rows)-at)); err != nil {
			return err
		}
		n.zarray = n.x.meta()
	}
	return nil
}

// chunks adds the rows of an array's chunks.
func (k *keys) chunks(ctx context.Context, node int32, x *array) error {
	t := &k.table
	row := keyRow{node: node, kind: chunkKey, off: -1}
	switch o := x.Object; {
	case x.linked || x.Space.Elements() == 0:
	case x.how == kept:
		if row.n = int64(len(x.value)); x.value == nil {
			row.n = bloscHead + x.runBytes()
		}
		t.rows = append(t.rows, row)
	case x.how == made:
		row.n = x.runBytes()
		for row.number = range x.count[0] {
			t.rows = append(t.rows, row)
		}
	case x.how == inRun:
		if o.Layout.Addr < 0 {
			return nil // nothing was written
		}
		all, size := x.Bytes(), x.runBytes()
		for i := range x.count[0] {
			row.number, row.off, row.n = i, o.Layout.Addr+i*size, min(size, all-i*size)
			t.rows = append(t.rows, row)
		}
	default:
		return k.stored(ctx, node, x)
	}
	return nil
}

// runBytes returns the size of a chunk of a run. The last one may be short, and is followed by
// zeros.
func (x *array) runBytes() int64 {
	n := x.item
	for _, c := range x.chunk {
		n *= c
	}
	return n
}

// stored adds the rows of chunks as they are in the file.
func (k *keys) stored(ctx context.Context, node int32, x *array) error {
	t, o := &k.table, x.Object
	first, room := len(t.rows), k.a.limits.Index/keyCost-int64(len(t.rows))
	plain := x.item // size of a chunk
	for _, n := range x.chunk {
		plain *= n
	}
	for c, err := range o.Chunks(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k.a.note(o, err)
			continue
		}
		row := keyRow{node: node, kind: chunkKey, off: c.Addr, n: c.Size}
		for d, at := range c.Offset {
			row.number = row.number*x.count[d] + at/o.Layout.Chunk[d]
		}
		switch {
		case x.how == decoded:
			row.off, row.n = int64(len(x.stored)), plain
			x.stored = append(x.stored, c)
		case c.Mask != 0: // it was not filtered, which Zarr cannot represent for a single chunk
			x.how, x.codecs = decoded, nil
			t.rows = t.rows[:first]
			return k.stored(ctx, node, x)
		}
		if t.rows = append(t.rows, row); int64(len(t.rows)-first) > room {
			return k.a.corrupt("", &h5.Error{File: k.a.name, What: "chunks", Off: o.Addr, Err: fmt.Errorf("more than %d: %w", room, h5.ErrLimit)})
		}
	}
	return nil
}

// keyCost is the memory that a key takes.
const keyCost = 40

func (t *keyTable) Len() int { return len(t.rows) }

func (t *keyTable) Name(i int) string {
	r := &t.rows[i]
	n := &t.nodes[r.node]
	each := len(".zattrs")
	if n.path != "" {
		each += len(n.path) + len("/")
	}
	switch {
	case r.kind == attrsKey:
		return n.names[:each]
	case r.kind != chunkKey:
		return n.names[each : 2*each]
	case len(n.names) > 2*each:
		return n.names[2*each:]
	}
	return n.below(n.x.key(r.number))
}

// begin makes the names of the keys of metadata.
func (n *node) begin() {
	last := ".zarray"
	if n.x == nil && n.fault == nil {
		last = ".zgroup"
	}
	n.names = n.below(".zattrs") + n.below(last)
}

func (n *node) below(last string) string {
	if n.path == "" {
		return last
	}
	return n.path + "/" + last
}

// key returns the last part of a chunk's name.
func (x *array) key(number int64) string {
	var room [64]byte
	p := room[:0]
	for d, n := range x.place(number) {
		if d > 0 {
			p = append(p, '.')
		}
		p = strconv.AppendInt(p, n, 10)
	}
	return string(p)
}

// place returns the position of a chunk in the grid.
func (x *array) place(number int64) []int64 {
	at := make([]int64, len(x.count))
	for d := len(x.count) - 1; d >= 0; d-- {
		if x.count[d] > 0 {
			at[d], number = number%x.count[d], number/x.count[d]
		}
	}
	return at
}

func (t *keyTable) Entry(i int) format.Entry {
	r := &t.rows[i]
	return format.Entry{Name: t.Name(i), Size: t.size(r), Fault: t.nodes[r.node].fault, Ref: r}
}

func (t *keyTable) size(r *keyRow) int64 {
	switch x := t.nodes[r.node].x; {
	case r.kind != chunkKey:
		return int64(len(t.text(r)))
	case x.how == inRun:
		return x.runBytes()
	}
	return r.n
}

// text returns the content of a metadata key.
func (t *keyTable) text(r *keyRow) []byte {
	n := &t.nodes[r.node]
	return [...][]byte{attrsKey: n.attrs, groupKey: []byte(groupText), arrayKey: n.zarray, chunkKey: nil}[r.kind]
}

// Lookup finds a key, following soft links.
func (k *keys) Lookup(ctx context.Context, name string) (format.Entry, error) {
	e, _, err := zarr3.LookupLinked(ctx, name, func(at string) string { return k.soft[at] }, k.Index.Lookup)
	return e, err
}

func (k *keys) Can() format.Abilities {
	can := k.Index.Can()
	can.Run, can.Doubt, can.Decoder = k.Run, k.a.doubt, k.decoder
	if k.links == 0 { // the places of all chunks were read
		can.Verify = k.a.checks(k.Index)
	}
	return can
}

// Run returns the extent of a chunk in the file.
func (k *keys) Run(e format.Entry) (format.Extent, bool) {
	r, ok := e.Ref.(*keyRow)
	if !ok || r.n != e.Size {
		return format.Extent{}, false
	}
	return k.place(r)
}

// place returns the extent of a chunk that is in the file unchanged, without zeros after it.
func (k *keys) place(r *keyRow) (format.Extent, bool) {
	if r.kind != chunkKey || r.off < 0 || k.table.nodes[r.node].x.how == decoded || r.n == 0 {
		return format.Extent{}, false
	}
	return format.Extent{Size: r.n, Object: k.a.name, Off: r.off, Len: r.n}, true
}

func (k *keys) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		r, ok := e.Ref.(*keyRow)
		switch {
		case e.Fault != nil || !ok:
			yield(format.Extent{}, e.Unreadable("hdf5"))
			return
		case n <= 0 || e.Size == 0:
			return
		}
		if x, ok := k.place(r); ok {
			if yield(x, nil) && e.Size > x.Size {
				yield(format.Extent{At: x.Size, Size: e.Size - x.Size, Codec: codec.Zero}, nil)
			}
			return
		}
		x := format.Extent{Size: e.Size, Object: k.a.name, Codec: codec.Inline}
		if y := k.table.nodes[r.node].x; r.kind == chunkKey && (y.how == decoded || y.how == made) {
			x.Make = func(ctx context.Context) ([]byte, error) {
				make := k.decode
				if y.how == made {
					make = k.make
				}
				b, err := make(ctx, y, r)
				return b, k.a.corrupt(e.Name, err)
			}
			yield(x, nil)
			return
		}
		var err error
		if x.Data, err = k.content(ctx, r); err != nil {
			x = format.Extent{}
		}
		yield(x, k.a.corrupt(e.Name, err))
	}
}

// content returns the content of a key that is stored with the metadata.
func (k *keys) content(ctx context.Context, r *keyRow) ([]byte, error) {
	if r.kind != chunkKey {
		return k.table.text(r), nil
	}
	x := k.table.nodes[r.node].x
	k.mu.Lock()
	defer k.mu.Unlock()
	if x.value == nil && x.err == nil { // all at once, because programs that read one usually read others
		var small []*array
		for i := range k.table.nodes {
			if y := k.table.nodes[i].x; y != nil && y.how == kept {
				small = append(small, y)
			}
		}
		if err := k.t.elements(ctx, small); err != nil {
			return nil, err
		}
	}
	return x.value, x.err
}

// decode reads a chunk and undoes its filters.
func (k *keys) decode(ctx context.Context, x *array, r *keyRow) ([]byte, error) {
	c := x.stored[r.off]
	if r.n > k.a.f.Limit || c.Size > k.a.f.Limit {
		return nil, &h5.Error{File: k.a.name, What: "chunk", Off: c.Addr, Err: fmt.Errorf("more than %d bytes: %w", k.a.f.Limit, h5.ErrLimit)}
	}
	b := make([]byte, c.Size)
	if err := k.a.obj.ReadAt(ctx, b, c.Addr); err != nil {
		return nil, err
	}
	b, err := x.Decode(c, b)
	return x.change(b), err
}

// make reads the elements of a chunk, and makes others of them.
func (k *keys) make(ctx context.Context, x *array, r *keyRow) ([]byte, error) {
	if r.n > k.a.f.Limit {
		return nil, &h5.Error{File: k.a.name, What: "data", Off: x.Layout.Addr, Err: fmt.Errorf("more than %d bytes: %w", k.a.f.Limit, h5.ErrLimit)}
	}
	dims := x.Space.Dims
	start, count := make([]int64, len(dims)), slices.Clone(dims)
	start[0] = r.number * x.chunk[0]
	count[0] = min(x.chunk[0], dims[0]-start[0])
	b := make([]byte, x.Bytes()/dims[0]*count[0])
	if err := x.Read(ctx, b, start, count); err != nil {
		return nil, err
	}
	b = x.change(b)
	return append(b, make([]byte, r.n-int64(len(b)))...), nil
}

// used returns the parts of the file that are chunks unchanged.
func (k *keys) used() *kit.Ranges {
	var all kit.Ranges
	for i := range k.table.rows {
		if x, ok := k.place(&k.table.rows[i]); ok {
			all.Add(x.Off, x.Off+x.Len)
		}
	}
	all.Join()
	return &all
}

func (k *keys) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return k.a.regions(ctx, k.used())
}

func (k *keys) About(context.Context) (format.About, error) { return k.a.about(), nil }

func (k *keys) Close() error { return k.a.close() }
