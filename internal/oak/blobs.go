package oak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/pipe"
	"github.com/holdall/holdall/internal/sorter"
	"github.com/holdall/holdall/store"
)

// A Blob is content that is in a data store.
type Blob struct {
	ID     string `json:"id"`     // empty if nothing uses it
	Length int64  `json:"length"` // -1 if the id does not say
	Uses   int64  `json:"uses"`   // by values of nodes; what trees share counts once
	Path   string `json:"path"`   // of the first property that has it
	Object string `json:"object,omitempty"`
	// Problem says why the data store cannot give it: empty if it can, or was not asked.
	Problem string `json:"problem,omitempty"`
}

type BlobOptions struct {
	// Scratch opens temporary room for ids that do not fit in memory.
	Scratch func() (format.Scratch, error)
	// Datastore has the blobs, below Dir; nil asks none.
	Datastore store.Store
	Dir       string
	// Unused adds what the data store has and nothing uses.
	Unused bool
}

// Found says that there is no data store, where that can be told by listing it: nothing of
// what is asked for would be there.
func (o BlobOptions) Found(ctx context.Context) error {
	dir := (&blobList{o: o}).dir()
	if o.Datastore.Can().Near {
		return nil // an empty folder may be one
	}
	for _, err := range store.List(ctx, o.Datastore, dir+"/") {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	}
	return fmt.Errorf("oak: data store %s: there is nothing in it: %w", store.AddressOf(o.Datastore, dir), fs.ErrNotExist)
}

// Blobs yields all blobs that the tree uses, and the checkpoints of its revision
// unless it is of one itself, by id. Lost is how many nodes damage hid.
func (t *Tree) Blobs(ctx context.Context, o BlobOptions, lost *int64) iter.Seq2[Blob, error] {
	return pipe.Told(func(tell func(Blob) error) error {
		rows := sorter.New(sorter.Options{Scratch: func() (sorter.Scratch, error) { return o.Scratch() }})
		defer rows.Close()
		c := &blobCollector{t: t.t, rows: rows}
		w := &walker{t: t.t, visit: c.node}
		if err := w.all(ctx); err != nil {
			return err
		}
		*lost = w.lost + c.lost
		if o.Unused && *lost > 0 {
			return fmt.Errorf("oak: %d places of the tree cannot be read: nobody knows what is unused", *lost)
		}
		l := &blobList{ctx: ctx, o: o, tell: tell}
		stop := func() {}
		if o.Unused && o.Datastore != nil {
			l.stored, stop = iter.Pull2(store.List(ctx, o.Datastore, l.dir()+"/"))
		}
		defer stop()
		var b Blob // of the rows of one id
		for row, err := range rows.Sorted() {
			if err != nil {
				return err
			}
			id := string(row.Key[:len(row.Key)-9])
			if b.Uses > 0 && id == b.ID {
				b.Uses++
				continue
			}
			if err := l.used(b); err != nil {
				return err
			}
			b = Blob{ID: id, Length: -1, Uses: 1, Path: string(row.Value)}
		}
		if err := l.used(b); err != nil {
			return err
		}
		return l.unusedBefore("")
	})
}

// blobCollector makes rows of the external values of nodes: id, number, path.
type blobCollector struct {
	t    *treeReader
	rows *sorter.Sorter
	n    uint64
	lost int64
}

func (c *blobCollector) node(ctx context.Context, s spot, n segment.Node) error {
	if !slices.ContainsFunc(n.Template().Properties, func(p segment.PropertyName) bool { return p.Type == segment.Binary }) {
		return nil
	}
	for p, err := range n.Properties(ctx) {
		if err == nil && p.Type != segment.Binary {
			continue
		}
		if err != nil {
			if c.t.unlessDamage(err) != nil {
				return err
			}
			c.lost++
			continue
		}
		for v, err := range p.Values(ctx) {
			if err == nil && v.External() {
				var id string
				if id, err = v.BlobID(ctx, mostBlobID); err == nil {
					// The number keeps rows apart, and in the order of the tree.
					c.n++
					at := shownPath(s.under(writeTreeName(p.Name, s.depth == 0)))
					err = c.rows.Add(binary.BigEndian.AppendUint64(append([]byte(id), 0), c.n), []byte(at))
				}
			}
			if c.t.unlessDamage(err) != nil {
				return err
			}
			if err != nil {
				c.lost++
			}
		}
	}
	return nil
}

// A blobList compares blobs, in the order of their ids, with a data store.
type blobList struct {
	ctx    context.Context
	o      BlobOptions
	tell   func(Blob) error
	stored func() (store.Info, error, bool) // nil if what is unused does not matter
	next   Blob                             // that was listed and not yet compared
}

func (l *blobList) dir() string { return strings.TrimSuffix(l.o.Dir, "/") }

// used tells of a blob, if it is used, and of those before it that are not.
func (l *blobList) used(b Blob) error {
	if b.Uses == 0 {
		return nil
	}
	size, object, what := blobPlace(b.ID)
	if b.Problem = what; object != "" {
		b.Length, b.Object = size, object
		if err := l.unusedBefore(object); err != nil {
			return err
		}
	}
	if object != "" && l.o.Datastore != nil {
		found, err := sizeOf(l.ctx, l.o.Datastore, path.Join(l.dir(), object))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.Problem = "the data store does not have it"
		case err != nil:
			return err
		case found != size:
			b.Problem = fmt.Sprintf("expected %d bytes, found %d", size, found)
		}
	}
	return l.tell(b)
}

// unusedBefore tells of what the data store has up to an object, or to its end.
func (l *blobList) unusedBefore(object string) error {
	for l.stored != nil {
		if l.next.Object == "" {
			if more, err := l.advance(); !more {
				return err
			}
		}
		if at := l.next.Object; object != "" && at > object {
			return nil
		} else if at != object {
			if err := l.tell(l.next); err != nil {
				return err
			}
		}
		l.next = Blob{}
	}
	return nil
}

// advance goes to the next blob that the data store has. Uploads under way are none.
func (l *blobList) advance() (more bool, err error) {
	for {
		info, err, there := l.stored()
		if !there {
			l.stored = nil
			return false, nil
		}
		if err != nil {
			return false, err
		}
		name := strings.TrimPrefix(info.Name, l.dir()+"/")
		if _, place, _ := blobPlace(path.Base(name) + "#0"); place == name {
			l.next = Blob{Length: info.Size, Object: name, Problem: "nothing uses it"}
			return true, nil
		}
	}
}
