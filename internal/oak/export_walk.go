package oak

import (
	"context"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// recordSet is a set of records: a bit for each, in pages, since a damaged segment can
// have numbers that are far apart.
type recordSet map[recordPage][pageWords]uint64

type recordPage struct {
	segment segment.ID
	n       int32
}

const pageWords = 8

// add adds a record. It returns false if that was there.
func (s recordSet) add(id segment.RecordID) bool {
	at := recordPage{id.Segment, id.Number / (64 * pageWords)}
	page := s[at]
	word, bit := &page[id.Number/64%pageWords], uint64(1)<<(id.Number%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	s[at] = page
	return true
}

// A walker goes through trees, and to each node once, by the first path that leads to
// it: trees of one store share most of what they have.
type walker struct {
	t     *treeReader
	seen  recordSet
	visit func(context.Context, spot, segment.Node) error
	lost  int64
}

// all goes through the tree that is shown, and then, if that is the content of a
// revision, through what else the revision has: paths of that begin with superName.
func (w *walker) all(ctx context.Context) error {
	w.seen = recordSet{}
	if err := w.walk(ctx, spot{name: ".", id: w.t.top}); err != nil || w.t.checkpoint != "" || w.t.top == w.t.super {
		return err
	}
	return w.walk(ctx, spot{name: superName, id: w.t.super, depth: 1})
}

const superName = "%super"

func (w *walker) walk(ctx context.Context, s spot) error {
	n, err := w.t.node(ctx, s)
	if err != nil {
		w.lost++
		return w.t.unlessDamage(err)
	}
	if !w.seen.add(s.id) {
		return nil
	}
	if err := w.visit(ctx, s, n); err != nil {
		return err
	}
	for c, err := range w.t.children(ctx, s) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.walk(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
