// Package nodes adds to package explore the data that only Oak stores have:
// properties of nodes, and their changes between revisions. Package explore
// itself contains no code for particular formats.
package nodes

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/oak"
)

// Of returns the additional data of an archive. For most formats there is
// none.
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
		return inStore(ctx, open, func(s *oak.Store, tell func(any) error) error {
			return each(s.History(ctx, rooted(path), oak.HistoryOptions{Last: most}), func(step oak.Step) error { return tell(step) })
		})
	}
	x.Revisions = func(ctx context.Context, most int) iter.Seq2[explore.Revision, error] {
		return inStore(ctx, open, func(s *oak.Store, tell func(explore.Revision) error) error {
			err := each(s.History(ctx, "/", oak.HistoryOptions{Last: most, All: true}), func(step oak.Step) error {
				return tell(explore.Revision{ID: step.Revision, Millis: step.Millis, Lost: step.Lost})
			})
			if err != nil {
				return err
			}
			kept, err := s.Checkpoints(ctx, time.Time{}, false)
			if damage, ok := errors.AsType[*format.CorruptError](err); ok { // revisions can still be compared
				return tell(explore.Revision{Name: "checkpoints", Millis: -1, Lost: format.Escape(damage.Message)})
			}
			for _, c := range kept {
				r := explore.Revision{ID: "checkpoint:" + c.Name, Name: c.Name, Millis: -1, Lost: c.Problem}
				if c.Created != nil {
					r.Millis = c.Created.UnixMilli()
				}
				if err := tell(r); err != nil {
					return err
				}
			}
			return err
		})
	}
	x.Changes = func(ctx context.Context, path, from, to string) iter.Seq2[any, error] {
		return inStore(ctx, open, func(s *oak.Store, tell func(any) error) error {
			before, err := s.TreeNamed(ctx, from)
			if err != nil {
				return err
			}
			after, err := s.TreeNamed(ctx, to)
			if err != nil {
				return err
			}
			return each(before.Changes(ctx, after, rooted(path), oak.ChangesOptions{Depth: 1}), func(c oak.Change) error {
				c.Path = format.Escape(c.Path)
				return tell(c)
			})
		})
	}
	x.Sizes = func(ctx context.Context) iter.Seq2[explore.FolderSize, error] {
		return inStore(ctx, open, func(s *oak.Store, tell func(explore.FolderSize) error) error {
			t, err := s.Tree(ctx, o.Param)
			if err != nil {
				return err
			}
			return each(t.NodeSizes(ctx, "/"), func(n oak.SizeNode) error {
				return tell(explore.FolderSize{Path: strings.TrimPrefix(n.Path, "/"), Records: n.Records, Binaries: n.Binaries, Outside: n.External, Lost: n.Lost})
			})
		})
	}
	return x
}

// inStore yields what do tells of the store, which is open meanwhile.
func inStore[T any](ctx context.Context, open func(context.Context) (*oak.Store, error), do func(s *oak.Store, tell func(T) error) error) iter.Seq2[T, error] {
	return pipe.Told(func(tell func(T) error) error {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		return do(s, tell)
	})
}

func each[T any](all iter.Seq2[T, error], do func(T) error) error {
	for x, err := range all {
		if err == nil {
			err = do(x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rooted converts a path to the form that a store uses.
func rooted(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}
