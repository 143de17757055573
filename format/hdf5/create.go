package hdf5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// writer makes a file of the keys of a Zarr hierarchy. The metadata come first. Chunks are then written as they come,
// and the headers of all objects last, one after the other.
type writer struct {
	name string
	kit.Appender
	out  store.Writer
	wait sorter.Scratch // the file, if the superblock cannot be written last
	buf  []byte

	nodes  map[string]*outNode // by path
	listed zarr3.Nodes         // that may come
	chunks int64               // of all arrays

	dangling []string // targets of references of the entry that are not in the file

	later   []*block // in the order in which they are written
	waiting int64    // bytes of them
	held    int64    // bytes that were left when some were written
	heap    *block   // the last one of the heap, which is still open
	inHeap  int      // its size

	sum  format.Summary
	done bool
}

// outNode is a group or a dataset that is written, or a soft link.
type outNode struct {
	place
	path    string
	obj     h5.Object
	attrs   []outAttr
	in      *outArray // nil if it is no dataset
	soft    string    // target of a soft link
	refused bool      // it is not written

	isScale   bool
	scaled    []scaled // the dimensions of others of which it is the scale
	dimension int64    // length of a dimension without elements, and 1; 0 if it is none
}

// outAttr is an attribute whose addresses are not known yet.
type outAttr struct {
	h5.Attribute
	block
}

const (
	mostText     = 64 << 20 // bytes of a .zattrs
	mostWaiting  = 1 << 30  // bytes that are kept until addresses are known
	flushWaiting = 4 << 20
)

// fromZarr begins a file.
func fromZarr(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	w := &writer{name: name, buf: make([]byte, 64<<10), nodes: map[string]*outNode{}}
	var err error
	if w.listed, err = zarr3.NodesOf(o.Manifest, name, "an HDF5 file"); err != nil {
		return nil, err
	}
	w.nodes[""] = &outNode{obj: h5.Object{Kind: h5.Group}}
	if w.out, err = storekit.Create(ctx, st, name); err != nil {
		return nil, err
	}
	w.Out = w.out
	if can := w.out.Can(); can.Patch == nil || can.PatchLimit < h5.SuperblockSize {
		if w.wait, err = o.Scratch(); err != nil {
			return nil, errors.Join(err, w.out.Abort())
		}
		w.Out = w.wait
	}
	return w, w.Append(make([]byte, h5.SuperblockSize))
}

// order has metadata before chunks, and what the metadata of others depends on first.
func order(a, b format.Entry) int { return keyRank(a.Name) - keyRank(b.Name) }

func keyRank(name string) int {
	switch path.Base(name) {
	case ".zarray":
		return 0
	case ".zgroup":
		return 1
	case ".zattrs":
		return 2
	}
	return 3
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	switch {
	case w.Err != nil:
		return w.Err
	case w.done:
		return errors.New("archive is committed")
	case !fs.ValidPath(e.Name) || !utf8.ValidString(e.Name) || strings.Contains(e.Name, "\x00"):
		return kit.Refuse(e.Name, "HDF5 cannot have this name")
	}
	at, last := zarrkey.Split(e.Name)
	var err error
	switch last {
	case ".zmetadata": // it says what the others say
	case ".zarray", ".zgroup", ".zattrs":
		var text []byte
		if text, err = zarr3.ReadKey(ctx, e, r, w.buf, mostText); err != nil {
			return err
		}
		switch n := w.nodes[at]; last {
		case ".zgroup":
			n, err = w.node(at)
			if err == nil && n.in != nil && !n.refused {
				err = unsupported("there is an array, too")
			}
		case ".zarray":
			err = w.addArray(at, text)
		default:
			switch {
			case n == nil:
				err = unsupported("there is no group or array")
			case !n.refused:
				err = w.addAttributes(ctx, n, text)
			}
		}
	default:
		err = w.addChunk(ctx, e, r)
	}
	if n := len(w.dangling); n > 0 && err == nil {
		err = unsupported("references are written as null, because they lead to nothing in the file, %d of them, the first to %.200q", n, w.dangling[0])
	}
	w.dangling = nil
	if err != nil {
		return zarr3.Refused(e, err)
	}
	w.sum.Entries++
	w.sum.Content += e.Size
	return nil
}

// node returns the node at a path, which is made, with the groups above it, if it is not there.
func (w *writer) node(at string) (*outNode, error) {
	if n := w.nodes[at]; n != nil {
		return n, nil
	}
	above, _ := zarrkey.Split(at)
	dir, err := w.node(above)
	if err != nil {
		return nil, err
	}
	if dir.in != nil {
		return nil, unsupported("%q is an array, which cannot contain anything", above)
	}
	n := &outNode{path: at, obj: h5.Object{Kind: h5.Group}}
	w.nodes[at] = n
	return n, nil
}

// settle writes what waits for addresses that are known now, if that may be more than most.
func (w *writer) settle(most int64) error {
	if w.waiting-w.held <= most {
		return nil
	}
	w.close()
	left := w.later[:0]
	w.waiting = 0
	for _, b := range w.later {
		if slices.ContainsFunc(b.fixes, func(f fix) bool { return f.to.addr == 0 }) {
			left = append(left, b)
			w.waiting += int64(len(b.data))
		} else if err := w.write(b); err != nil {
			return err
		}
	}
	clear(w.later[len(left):])
	w.later, w.held = left, w.waiting
	return nil
}

// close closes the heap.
func (w *writer) close() {
	for _, b := range w.later {
		if b.values != nil {
			b.data, b.values = h5.EncodeHeap(b.values), nil
		}
	}
	w.heap = nil
}

// write writes a block.
func (w *writer) write(b *block) error {
	b.apply()
	b.addr = w.Pos
	err := w.Append(b.data)
	b.data = nil
	return err
}

// Commit writes the headers of all objects, and then the superblock.
func (w *writer) Commit(ctx context.Context) (format.Summary, error) {
	switch {
	case w.done:
		return format.Summary{}, errors.New("archive is committed")
	case w.Err != nil:
		return format.Summary{}, w.Err
	}
	if err := w.finish(ctx); err != nil {
		w.Err = err
		return format.Summary{}, err
	}
	info, err := w.out.Commit(ctx)
	if w.Err = err; err != nil {
		return format.Summary{}, err
	}
	w.done = true
	w.sum.Stored, w.sum.Volumes = info.Size, []string{w.name}
	return w.sum, nil
}

func (w *writer) finish(ctx context.Context) error {
	var all []*outNode
	for _, at := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[at]
		if n.in != nil && !n.refused {
			n.plan() // no chunk may have come
			if err := w.missing(ctx, n); err != nil {
				return fmt.Errorf("%s: /%s: %w", w.name, n.path, err)
			}
		}
		if n.refused || n.soft != "" {
			continue
		}
		n.describe()
		all = append(all, n)
	}
	if err := w.settle(-1); err != nil {
		return err
	}
	// What is still waiting needs addresses of objects, which are after it.
	at := w.Pos
	for _, b := range w.later {
		b.addr = at
		at += int64(len(b.data))
	}
	w.links()
	for _, n := range all {
		p, err := n.encode()
		if err != nil {
			return fmt.Errorf("%s: /%s: %w", w.name, n.path, err)
		}
		n.addr = at
		at += int64(len(p))
	}
	for _, n := range w.nodes {
		if to := w.follow(n); to != nil {
			n.addr = to.addr // of what a soft link leads to
		}
	}
	for _, b := range w.later {
		if err := w.write(b); err != nil {
			return err
		}
	}
	w.links()
	for _, n := range all {
		p, err := n.encode()
		if err == nil {
			err = w.Append(p)
		}
		if err != nil {
			return err
		}
	}
	front := h5.EncodeSuperblock(w.nodes[""].addr, w.Pos)
	if err := w.Flush(); err != nil {
		return err
	}
	if w.wait == nil {
		return w.out.Can().Patch(ctx, front, 0)
	}
	wait, n := w.wait, w.Pos-int64(len(front))
	w.wait, w.Out = nil, w.out
	defer wait.Close()
	if _, err := wait.Seek(int64(len(front)), io.SeekStart); err != nil {
		return err
	}
	if err := w.Append(front); err != nil {
		return err
	}
	if err := kit.CopyContent(ctx, format.Entry{Size: n}, io.LimitReader(wait, n), w.buf, nil, w.Append); err != nil {
		return err
	}
	return w.Flush()
}

// encode returns the header of a node at its address.
func (n *outNode) encode() ([]byte, error) {
	n.obj.Addr = n.addr
	n.obj.Attributes = n.obj.Attributes[:0]
	for i := range n.attrs {
		a := &n.attrs[i]
		a.apply()
		a.Attribute.Data = a.block.data
		n.obj.Attributes = append(n.obj.Attributes, a.Attribute)
	}
	var chunks []h5.Chunk
	if n.in != nil {
		chunks = n.in.places(&n.obj)
	}
	return n.obj.Encode(chunks)
}

// links sets the links of all groups.
func (w *writer) links() {
	for _, n := range w.nodes {
		n.obj.Links = n.obj.Links[:0]
	}
	for _, at := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[at]
		if at == "" || n.refused {
			continue
		}
		above, name := zarrkey.Split(at)
		l := h5.Link{Name: name, Addr: n.addr}
		if n.soft != "" {
			l.Kind, l.Target = h5.SoftLink, n.soft
		}
		dir := &w.nodes[above].obj
		dir.Links = append(dir.Links, l)
	}
}

// follow returns what a soft link leads to, or nil.
func (w *writer) follow(n *outNode) *outNode {
	for range 40 {
		if n == nil || n.soft == "" {
			return n
		}
		n = w.nodes[zarrkey.LinkTarget(n.path, n.soft)]
	}
	return nil
}

func (w *writer) Abort() error {
	if w.wait != nil {
		w.wait.Close()
		w.wait = nil
	}
	return w.out.Abort()
}
