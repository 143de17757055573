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

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/internal/app/explore"
)

// Add gives a what only its format has; of most that is nothing.
func Add(a explore.Archive) explore.Archive {
	if a.Archive.Format().Name != "oak" {
		return a
	}
	o := a.Archive.Options()
	open := func(ctx context.Context) (*oak.Store, error) {
		return oak.OpenStore(ctx, a.Archive.Store(), a.Archive.Name(), format.OpenOptions{Limits: o.Limits})
	}
	a.Node = func(ctx context.Context, w io.Writer, path string) (err error) {
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
	a.History = func(ctx context.Context, path string, most int) iter.Seq2[any, error] {
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
	return a
}

// rooted is a path as a store knows it.
func rooted(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}
