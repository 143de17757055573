package oak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Tree is the tree of nodes of one revision of a Store, or of a checkpoint. Paths are those of
// the view tree, with or without a leading slash.
type Tree struct{ t *treeReader }

// Tree chooses a tree by the parameters revision, checkpoint and super.
func (s *Store) Tree(ctx context.Context, param map[string]string) (*Tree, error) {
	if err := Format.CheckParams(format.ToOpen, param); err != nil {
		return nil, err
	}
	t, err := newTree(ctx, s.r, s.records, format.OpenOptions{Param: param}, false)
	if err != nil {
		return nil, err
	}
	return &Tree{t}, nil
}

func (t *Tree) Revision() string { return t.t.shown.Revision.String() }

// nodePath returns a path in the form of treeReader.
func nodePath(said string) string {
	if said = strings.Trim(said, "/"); said == "" {
		return "."
	}
	return said
}

// shownPath returns a path in its printed form.
func shownPath(name string) string {
	if name == "." {
		return "/"
	}
	return "/" + name
}

func (t *treeReader) findNode(ctx context.Context, name string) (spot, error) {
	s, ok, err := t.nodeIfThere(ctx, name)
	if err == nil && !ok {
		err = &fs.PathError{Op: "lookup", Path: shownPath(name), Err: fs.ErrNotExist}
	}
	return s, err
}

// nodeIfThere is findNode for nodes that may be missing without an error.
func (t *treeReader) nodeIfThere(ctx context.Context, name string) (spot, bool, error) {
	x, err := t.find(ctx, name)
	if err == fs.ErrNotExist {
		return spot{}, false, nil
	}
	return x.spot, err == nil && x.prop == nil, err
}

func (r *repository) jsonOptions() nodejson.Options {
	return nodejson.Options{
		Name: func(name string) string { return writeTreeName(name, false) },
		Lost: r.lostAsJSON,
	}
}

func (r *repository) lostAsJSON(err error) (l nodejson.Lost, ok bool) {
	c := r.damage(err)
	if c == nil {
		return l, false
	}
	l.What = c.Message
	if e, ok := errors.AsType[*segment.Error](err); ok {
		l.Segment = e.Segment.String()
		if tar, _, ok := r.locate(e.Segment); ok {
			l.Tar = tar.Name
		}
	}
	return l, true
}

type ExportOptions struct {
	// Depth is how many levels below the first node are written; -1 is all.
	Depth int
	// NoBinaries omits the contents of binaries.
	NoBinaries bool
	// After is the path of a node. The export continues with the next one.
	After string
	// From is the path of the node with which the export continues.
	From string
}

type Exported struct {
	Nodes int64 `json:"nodes"`
	Lost  int64 `json:"lost"` // places where damage took something
}

// Export writes a node and everything below it as lines of JSON, parents first, in stored order.
func (t *Tree) Export(ctx context.Context, to io.Writer, name string, o ExportOptions) (Exported, error) {
	if o.After != "" && o.From != "" {
		return Exported{}, fmt.Errorf("expected one of after and from: %w", fs.ErrInvalid)
	}
	guessing := *t.t
	guessing.paths = &guessing
	guessing.guess()
	t = &Tree{&guessing}
	top, err := t.t.findNode(ctx, nodePath(name))
	if err != nil {
		return Exported{}, err
	}
	how := t.t.jsonOptions()
	how.NoBinaries = o.NoBinaries
	crowd := crowd{records: t.t.records, how: how, to: to}
	x := exporter{t: t.t, above: map[segment.RecordID]bool{}, depth: lastLevel(top.depth, o.Depth)}
	err = crowd.write(ctx, func(tell func(told) error) error {
		x.tell = tell
		switch {
		case o.After != "":
			return x.resume(ctx, top, o.After, true)
		case o.From != "":
			return x.resume(ctx, top, o.From, false)
		}
		return x.node(ctx, top)
	})
	return Exported{x.nodes, crowd.lost}, err
}

type exporter struct {
	t     *treeReader
	tell  func(told) error
	above map[segment.RecordID]bool // ancestors of the node: a node below itself is damage
	depth int                       // of the last level, or -1
	nodes int64
	// visible omits hidden nodes, which Oak does not index.
	visible bool
}

func (x *exporter) node(ctx context.Context, s spot) error {
	n, err := x.t.nodeBelow(ctx, s, x.above)
	if err == nil {
		what := told{path: shownPath(s.name), id: s.id}
		if l, guessed := x.t.lostAsJSON(x.t.guessed(ctx, n)); guessed {
			what.lost = &l
			x.nodes--
		}
		if err = x.tell(what); err != nil {
			return err
		}
		if x.nodes++; n.Template().Rule == segment.NoChild {
			return ctx.Err()
		}
		return x.below(ctx, s, x.node)
	}
	l, ok := x.t.lostAsJSON(err)
	if !ok {
		return err
	}
	return x.tell(told{path: shownPath(s.name), lost: &l})
}

func (x *exporter) below(ctx context.Context, s spot, do func(context.Context, spot) error) error {
	if s.depth == x.depth {
		return nil
	}
	x.above[s.id] = true
	defer delete(x.above, s.id)
	for c, err := range x.t.children(ctx, s) {
		if err == nil && !(x.visible && isHidden(c)) {
			err = do(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isHidden(s spot) bool { return strings.HasPrefix(path.Base(s.name), ":") }

// resume continues at the node of a path or, if behind is set, after it.
func (x *exporter) resume(ctx context.Context, top spot, path string, behind bool) error {
	name := nodePath(path)
	rest, ok := name+"/", true
	if top.name != "." {
		rest, ok = strings.CutPrefix(rest, top.name+"/")
	}
	if rest = strings.TrimSuffix(rest, "/"); rest == "." {
		rest = ""
	}
	if !ok {
		return fmt.Errorf("%s: not below %s: %w", shownPath(name), shownPath(top.name), fs.ErrNotExist)
	}
	found, err := x.goOn(ctx, top, rest, behind)
	if err == nil && !found {
		err = &fs.PathError{Op: "lookup", Path: shownPath(name), Err: fs.ErrNotExist}
	}
	return err
}

// goOn is resume for a node on the path; rest is the remaining path.
func (x *exporter) goOn(ctx context.Context, s spot, rest string, behind bool) (found bool, err error) {
	if rest == "" && !behind {
		return true, x.node(ctx, s)
	}
	if _, err := x.t.node(ctx, s); err != nil {
		if x.t.damage(err) == nil {
			return false, err
		}
		return rest == "", nil // a lost node has nothing below it
	}
	if rest == "" {
		return true, x.below(ctx, s, x.node)
	}
	elem, rest, _ := strings.Cut(rest, "/")
	want := s.under(elem)
	err = x.below(ctx, s, func(ctx context.Context, c spot) (err error) {
		switch {
		case found:
			return x.node(ctx, c)
		case c.name == want:
			found, err = x.goOn(ctx, c, rest, behind)
		}
		return err
	})
	return found, err
}

// ResumeExport finds the last node in an incomplete export. The node may be incomplete too; at is
// the offset where it begins. The path is empty if there is no node.
func ResumeExport(r io.ReaderAt, size int64) (path string, at int64, err error) {
	return nodejson.LastNode(r, size)
}

// mostListed is how many names of children are listed with a node.
const mostListed = 1000

// WriteJSON writes a node as an object with its properties, in the form of an export, and with
// its children. Children down to depth are objects, all if it is -1; below that only their names
// are written, at most 1000. A value larger than a megabyte is omitted, unless name is the path of
// its property.
func (t *Tree) WriteJSON(ctx context.Context, w io.Writer, name string, depth int) (lost int64, err error) {
	name = nodePath(name)
	paths := t.t.paths
	x, err := paths.find(ctx, name)
	switch {
	case err == fs.ErrNotExist:
		return 0, &fs.PathError{Op: "lookup", Path: shownPath(name), Err: err}
	case err != nil:
		return 0, err
	case x.value >= 0 && x.prop != nil:
		return 0, fmt.Errorf("%s: expected a node or a property, found one of several values: %w", shownPath(name), fs.ErrInvalid)
	case x.prop != nil:
		b, lost, err := nodejson.AppendProperty(ctx, nil, *x.prop, x.propLost, paths.jsonOptions())
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return lost, err
	}
	o := objectWriter{t: paths, w: w, depth: lastLevel(x.depth, depth), above: map[segment.RecordID]bool{}}
	if err = o.node(ctx, x.spot); err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return o.lost, err
}

// An objectWriter writes nodes as objects within each other.
type objectWriter struct {
	t     *treeReader
	w     io.Writer
	b     []byte
	above map[segment.RecordID]bool
	depth int // of the last level that has objects
	lost  int64
}

func (o *objectWriter) write(b []byte) error {
	o.b = b[:0]
	_, err := o.w.Write(b)
	return err
}

func (o *objectWriter) node(ctx context.Context, s spot) error {
	b := nodejson.AppendString(append(o.b[:0], `{"path":`...), shownPath(s.name))
	n, err := o.t.nodeBelow(ctx, s, o.above)
	if err != nil {
		l, ok := o.t.lostAsJSON(err)
		if !ok {
			return err
		}
		o.lost++
		return o.write(append(l.AppendMembers(append(b, ',')), '}'))
	}
	b, lost, err := nodejson.AppendProperties(ctx, append(b, `,"properties":`...), n, o.t.jsonOptions())
	if o.lost += lost; err != nil {
		return err
	}
	count, err := n.ChildCount(ctx)
	if err != nil && o.t.damage(err) == nil {
		return err
	}
	b = strconv.AppendInt(append(b, `,"child_count":`...), int64(count), 10)
	if err := o.write(append(b, `,"children":[`...)); err != nil {
		return err
	}
	if err := o.children(ctx, s); err != nil {
		return err
	}
	return o.write(append(o.b, "]}"...))
}

func (o *objectWriter) children(ctx context.Context, s spot) error {
	o.above[s.id] = true
	defer delete(o.above, s.id)
	i := 0
	for c, err := range o.t.children(ctx, s) {
		if err != nil {
			return err
		}
		if i > 0 {
			if err := o.write(append(o.b, ',')); err != nil {
				return err
			}
		}
		if s.depth < o.depth {
			err = o.node(ctx, c)
		} else {
			err = o.write(nodejson.AppendString(o.b, strings.TrimPrefix(c.name, s.under(""))))
		}
		if i++; err != nil || s.depth >= o.depth && i == mostListed {
			return err
		}
	}
	return nil
}

// A crowd encodes several nodes as JSON in parallel, and writes them in the order in which they
// are passed to it.
type crowd struct {
	records *segment.Reader
	how     nodejson.Options
	to      io.Writer
	lost    int64
	spare   sync.Pool // of *handful that were written: their room is used again
}

// told is a node to be written, or a lost one.
type told struct {
	path string
	id   segment.RecordID
	lost *nodejson.Lost
}

// A handful of nodes is encoded by one goroutine. It encodes up to exportPiece bytes ahead of its
// turn, and writes the nodes after those when it is its turn.
type handful struct {
	nodes []told
	b     []byte
	lost  int64
	err   error
}

const (
	exportHandful = 64
	exportPiece   = 1 << 20
)

func (c *crowd) write(ctx context.Context, walk func(tell func(told) error) error) error {
	hands := pipe.Told(func(tell func(*handful) error) error {
		h := c.next()
		err := walk(func(n told) error {
			if h.nodes = append(h.nodes, n); len(h.nodes) < exportHandful {
				return nil
			}
			full := h
			h = c.next()
			return tell(full)
		})
		if err != nil {
			return err
		}
		return tell(h)
	})
	return pipe.Ordered(ctx, hands, runtime.GOMAXPROCS(0),
		func(ctx context.Context, h *handful) { h.err = c.encode(ctx, h, h) },
		func(h *handful) error {
			if h.err != nil && !errors.Is(h.err, errAhead) {
				return h.err
			}
			if _, err := c.to.Write(h.b); err != nil {
				return err
			}
			err := c.encode(ctx, h, c.to)
			c.lost += h.lost
			c.spare.Put(h)
			return err
		}, func(*handful) {})
}

func (c *crowd) next() *handful {
	h, _ := c.spare.Get().(*handful)
	if h == nil {
		return &handful{}
	}
	*h = handful{nodes: make([]told, 0, exportHandful), b: h.b[:0]}
	return h
}

// encode writes nodes of a handful, and drops those that are written.
func (c *crowd) encode(ctx context.Context, h *handful, to io.Writer) error {
	enc, before := nodejson.NewEncoder(to, c.how), h.lost
	for ; len(h.nodes) > 0; h.nodes = h.nodes[1:] {
		size, t := len(h.b), h.nodes[0]
		var err error
		if t.lost != nil {
			err = enc.LostNode(t.path, *t.lost)
		} else {
			var n segment.Node
			if n, err = c.records.Node(ctx, t.id); err == nil {
				err = enc.Node(ctx, t.path, n)
			}
		}
		if err != nil {
			h.b = h.b[:size]
			return err
		}
		h.lost = before + enc.Lost()
	}
	return nil
}

var errAhead = errors.New("too much data ahead of its turn")

// Write receives what is encoded in advance.
func (h *handful) Write(b []byte) (int, error) {
	if len(h.b)+len(b) > exportPiece {
		return 0, errAhead
	}
	h.b = append(h.b, b...)
	return len(b), nil
}
