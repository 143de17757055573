// Package nodes tells package explore what Oak stores have besides entries: the properties of
// nodes, and what revisions did to them.
//
// It is for programs that show archives by package explore, which knows no format.
package nodes

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/oak"
)

// Of returns what only the format of an archive has; of most that is nothing.
func Of(a *holdall.Archive) (x explore.Extra) {
	if a.Format().Name != "oak" {
		return x
	}
	o := a.Options()
	open := func(ctx context.Context) (*oak.Store, error) {
		return oak.OpenStore(ctx, a.Store(), a.Name(), format.OpenOptions{Limits: o.Limits, NoVerify: o.NoVerify})
	}
	x.Node = func(ctx context.Context, w io.Writer, path string) (err error) {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		t, err := s.Tree(ctx, o.Param)
		if err != nil {
			return err
		}
		_, err = t.WriteJSON(ctx, w, rooted(path), 0)
		return err
	}
	x.History = func(ctx context.Context, path string, most int) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			s, err := open(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			defer s.Close()
			for step, err := range s.History(ctx, rooted(path), oak.HistoryOptions{Last: most}) {
				if !yield(step, err) || err != nil {
					return
				}
			}
		}
	}
	return x
}

// rooted is a path as a store knows it.
func rooted(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}
