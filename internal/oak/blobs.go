package oak

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
)

// A Blob is content in a data store.
type Blob struct {
	ID     string `json:"id"`     // empty if nothing uses it
	Length int64  `json:"length"` // -1 if the id does not contain it
	Uses   int64  `json:"uses"`   // by values of nodes; what trees share counts once
	Path   string `json:"path"`   // of the first property that has it
	Object string `json:"object,omitempty"`
	// Problem is why the data store cannot return the blob. It is empty if the data store can, or
	// was not checked.
	Problem string `json:"problem,omitempty"`
	// Copied is set if the blob was copied to another data store.
	Copied bool `json:"copied,omitempty"`
	// Modified is when the data store received an unused blob, or when a program last marked it
	// to be kept.
	Modified *time.Time `json:"modified,omitempty"`

	info store.Info
}

type BlobOptions struct {
	// Scratch opens temporary room for ids that do not fit in memory.
	Scratch func() (sorter.Scratch, error)
	Datastore
}

// Blobs yields all blobs that the tree uses, by ID, and those that the checkpoints of its revision
// use, unless the tree is a checkpoint itself. lost counts the nodes that are hidden by damage.
func (t *Tree) Blobs(ctx context.Context, o BlobOptions, lost *int64) iter.Seq2[Blob, error] {
	return pipe.Told(func(tell func(Blob) error) error {
		rows := sorter.New(sorter.Options{Scratch: o.Scratch})
		defer rows.Close()
		n := uint64(0)
		c := &blobCollector{t: t.t, tell: func(id, path string) error {
			n++ // it makes rows different, and keeps them in the order of the tree
			return rows.Add(binary.BigEndian.AppendUint64(append([]byte(id), 0), n), []byte(path))
		}}
		w := &walker{t: t.t, visit: c.node}
		if err := w.all(ctx); err != nil {
			return err
		}
		*lost = w.lost + c.lost
		use := func(b Blob) error {
			if b.Uses == 0 {
				return nil
			}
			if err := o.ask(ctx, &b); err != nil {
				return err
			}
			return tell(b)
		}
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
			if err := use(b); err != nil {
				return err
			}
			b = Blob{ID: id, Length: -1, Uses: 1, Path: string(row.Value)}
		}
		return use(b)
	})
}

// blobCollector calls tell with the external values of nodes.
type blobCollector struct {
	t    *treeReader
	tell func(id, path string) error
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
					err = c.tell(id, shownPath(s.under(writeTreeName(p.Name, s.depth == 0))))
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
