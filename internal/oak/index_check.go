package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/lucene"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A CheckedIndex is the result of the check of an index. Its state is sound if everything can be
// read and agrees, damaged if there are findings, or readable: Notes are why no more is known.
type CheckedIndex struct {
	QueryIndex
	State     string         `json:"state"`
	Entries   int64          `json:"entries,omitempty"`   // of a property or reference index
	Documents int64          `json:"documents,omitempty"` // of a Lucene index
	Findings  []IndexFinding `json:"findings"`            // the first 10,000
	Found     int64          `json:"found"`               // number of all
	Notes     []string       `json:"notes,omitempty"`
}

// An IndexFinding is what is wrong with an index: something is lost, a blob is not in the data
// store, a file of Lucene differs from what others say, an entry is stale, an entry of a node is
// missing, a unique value is a duplicate, or Oak has marked the index as corrupt.
type IndexFinding struct {
	Kind    string `json:"kind"`
	Path    string `json:"path"`          // of a node, a property or a file
	Key     string `json:"key,omitempty"` // of an entry, as the index has it
	Problem string `json:"problem"`
}

func (x *CheckedIndex) add(kind, path, key, problem string, args ...any) {
	if x.Found++; len(x.Findings) < mostLosses {
		x.Findings = append(x.Findings, IndexFinding{kind, path, key, fmt.Sprintf(problem, args...)})
	}
}

func (x *CheckedIndex) note(text string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(text, args...))
}

type indexChecker struct {
	t      *treeReader
	store  Datastore
	trees  trees
	groups map[groupKey][]*indexEntries
}

// CheckIndexes checks the indexes whose definitions are at and below a path: that everything can
// be read, that the files of a Lucene index belong together, and that property and reference
// indexes have what the nodes have, and nothing else.
func (t *Tree) CheckIndexes(ctx context.Context, name string, d Datastore) iter.Seq2[*CheckedIndex, error] {
	return pipe.Told(func(tell func(*CheckedIndex) error) error {
		if t.t.top == t.t.super {
			return fmt.Errorf("oak: expected the tree or a checkpoint, found the super root: %w", fs.ErrInvalid)
		}
		c := &indexChecker{t: t.t, store: d, trees: t.t.trees(true, 0), groups: map[groupKey][]*indexEntries{}}
		var all []*CheckedIndex
		for q, err := range t.Indexes(ctx, name) {
			if q.Problem != "" && slices.ContainsFunc(all, func(x *CheckedIndex) bool { return strings.HasPrefix(q.Path, x.Path+"/") }) {
				continue // a lost node of an index
			}
			x := &CheckedIndex{QueryIndex: q, State: "readable", Findings: []IndexFinding{}}
			if err == nil {
				err = c.index(ctx, x)
			}
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		for _, g := range c.groups {
			if err := compareIndexes(ctx, g); err != nil {
				return err
			}
		}
		for _, x := range all {
			if x.Found > 0 {
				x.State = "damaged"
			} else if x.External > 0 && d.Store == nil {
				x.State = "readable"
			}
			if err := tell(x); err != nil {
				return err
			}
		}
		return nil
	})
}

// index checks what can be checked without the other nodes.
func (c *indexChecker) index(ctx context.Context, x *CheckedIndex) error {
	names, err := nodeNames(x.Path)
	if err != nil {
		x.add("lost", x.Path, "", "%s", x.Problem) // and its name
		return nil
	}
	_, _, err = c.trees.prove(ctx, c.t.super, c.t.checkpoint, names, func(l proof.Loss) {
		at := l.Path
		if l.Property != "" {
			at += "/" + writeTreeName(l.Property, false)
		}
		x.add("lost", at, "", "%s", c.t.damage(l.Err).Message)
	})
	if err != nil {
		return err
	}
	top, has, err := c.t.definition(ctx, x.Path)
	if err == nil {
		err = c.blobs(ctx, x, top)
	}
	if err != nil {
		return c.t.unlessDamage(err)
	}
	if since := one(has, "corrupt"); since != "" {
		x.add("corrupt", x.Path, "", "Oak does not update it: it was marked as corrupt at %.100s", since)
	}
	switch x.Type {
	case "lucene":
		err = c.lucene(ctx, x, top, one(has, "saveDirListing") != "false")
	case "property", "reference":
		err = c.entries(ctx, x, names, top, has)
	default:
		x.note("only read: its type is %.100q", x.Type)
	}
	return c.t.unlessDamage(err)
}

// blobs looks for the binaries of an index in the data store.
func (c *indexChecker) blobs(ctx context.Context, x *CheckedIndex, top spot) error {
	if c.store.Store == nil {
		if x.External > 0 {
			x.note("binaries in a data store are not checked: --datastore names it")
		}
		return nil
	}
	b := &blobCollector{t: c.t, tell: func(id, path string) error {
		found := Blob{ID: id}
		err := c.store.ask(ctx, &found)
		if err == nil && found.Problem != "" {
			x.add("blob", path, "", "%s: %s", id, found.Problem)
		}
		return err
	}}
	return (&walker{t: c.t, visit: b.node, seen: recordSet{}}).walk(ctx, top)
}

// lucene checks the hidden children of a definition that have files of Lucene.
func (c *indexChecker) lucene(ctx context.Context, x *CheckedIndex, top spot, listed bool) error {
	sizes := *c.t
	sizes.datastore = cmp.Or(sizes.datastore, "any") // sizes are in the IDs of blobs
	for s, err := range c.t.children(ctx, top) {
		if err == nil && isHidden(s) {
			d := luceneDir{indexChecker: c, x: x, path: shownPath(s.name), files: map[string]luceneFile{}, sizes: filesReader{&sizes}}
			err = d.check(ctx, s, listed)
		}
		if c.t.unlessDamage(err) != nil {
			return err
		}
	}
	return nil
}

// A luceneDir is a node whose children are the files of an index.
type luceneDir struct {
	*indexChecker
	x     *CheckedIndex
	path  string
	files map[string]luceneFile
	sizes filesReader
}

type luceneFile struct {
	id   segment.RecordID
	size int64
	blob int64 // content bytes in each part except the last
}

const dirListing = "dirListing"

// add reports a file, unless it is known what is wrong with it.
func (d *luceneDir) add(name, problem string, args ...any) {
	at := path.Join(d.path, name)
	if !slices.ContainsFunc(d.x.Findings, func(f IndexFinding) bool { return f.Path == at || f.Path == at+"/"+dataName }) {
		d.x.add("file", at, "", problem, args...)
	}
}

// check checks the files. If the node has a list of their names, Oak does not see others.
func (d *luceneDir) check(ctx context.Context, at spot, listed bool) error {
	n, err := d.t.node(ctx, at)
	var has map[string][]string
	if err == nil {
		has, err = texts(ctx, n, func(name string) bool { return name == dirListing && listed })
	}
	if err != nil {
		return err
	}
	is := false
	for s, err := range d.t.children(ctx, at) {
		if s.lost != nil {
			continue // it was found before
		}
		f := luceneFile{id: s.id}
		if err == nil {
			n, err = d.t.node(ctx, s)
		}
		if err == nil && isLucene(n.Template()) {
			is = true
			f.size, f.blob, _, err = d.sizes.luceneSize(ctx, n)
			f.blob = cmp.Or(f.blob, f.size)
		}
		if c := d.t.damage(err); c != nil {
			d.add(path.Base(s.name), "%s", c.Message)
		} else if err != nil {
			return err
		}
		d.files[path.Base(s.name)] = f
	}
	if !is {
		return nil
	}
	names, ok := has[dirListing]
	if !ok {
		names = slices.Collect(maps.Keys(d.files))
	}
	seen := map[string]int64{}
	for _, name := range names {
		if f, ok := d.files[name]; ok {
			seen[name] = f.size
		} else {
			d.add(name, "missing, but %s names it", dirListing)
		}
	}
	docs, unused, err := lucene.Check(ctx, lucene.Dir{Files: seen, Read: d.readAt}, func(name, what string) {
		if _, ok := seen[name]; !ok && d.files[name].size > 0 {
			what = "Oak does not see it: " + dirListing + " does not name it"
		}
		d.add(name, "%s", what)
	})
	if n := len(unused) + len(d.files) - len(seen); n > 0 {
		d.x.note("%s: nothing refers to %d of %d files", d.path, n, len(d.files))
	}
	d.x.State = "sound"
	d.x.Documents += docs
	return err
}

// readAt reads a part of a file for package lucene.
func (d *luceneDir) readAt(ctx context.Context, name string, off, n int64) ([]byte, error) {
	f, b := d.files[name], make([]byte, n)
	node, err := d.t.records.Node(ctx, f.id)
	var p segment.Property
	if err == nil {
		p, _, err = node.Property(ctx, dataName)
	}
	i, from := off/max(f.blob, 1), off%max(f.blob, 1)
	for rest := b; len(rest) > 0 && err == nil; i, from = i+1, 0 {
		part := rest[:min(int64(len(rest)), f.blob-from)]
		rest = rest[len(part):]
		var v segment.Value
		if v, err = p.At(ctx, int(i)); err == nil && v.External() {
			err = d.store.readAt(ctx, v, part, from)
		} else if err == nil {
			err = v.ReadAt(ctx, part, from)
		}
	}
	switch c := d.t.damage(err); {
	case c != nil:
		d.add(name, "%s", c.Message)
	case errors.Is(err, io.ErrUnexpectedEOF):
		d.add(name, "part %d is too short", i-1)
	case !errors.Is(err, fs.ErrNotExist):
		return b, err
	}
	return nil, nil
}

// readAt reads a part of a value. If there is no data store or no such object, the error is
// fs.ErrNotExist.
func (d Datastore) readAt(ctx context.Context, v segment.Value, b []byte, off int64) error {
	id, err := v.BlobID(ctx, mostBlobID)
	if err != nil {
		return err
	}
	_, object, _ := blobPlace(id, d.Cloud)
	if d.Store == nil || object == "" {
		return fs.ErrNotExist
	}
	o, err := d.Store.Open(ctx, d.path(object))
	if err != nil {
		return err
	}
	defer o.Close()
	return o.ReadAt(ctx, b, off)
}
