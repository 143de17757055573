package main

import (
	"cmp"
	"context"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/oak"
)

// showsNodes reports whether an archive is the tree of a segment store.
func (a *app) showsNodes(in *holdall.Archive) bool {
	return in.Format() == oak.Format && cmp.Or(a.view, oak.Format.Views[0]) == "tree"
}

// catNodes writes nodes and properties as JSON.
func (a *app) catNodes(ctx context.Context, address string, names []string, depth int) error {
	return a.withTree(ctx, address, func(t *oak.Tree) error {
		lost := int64(0)
		for _, name := range names {
			n, err := t.WriteJSON(ctx, a.out, name, depth)
			if lost += n; err != nil {
				return err
			}
		}
		return a.lostNodes(lost)
	})
}
