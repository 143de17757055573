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
	x.Revisions = func(ctx context.Context, most int) iter.Seq2[explore.Revision, error] {
		return func(yield func(explore.Revision, error) bool) {
			s, err := open(ctx)
			if err != nil {
				yield(explore.Revision{}, err)
				return
			}
			defer s.Close()
			for step, err := range s.History(ctx, "/", oak.HistoryOptions{Last: most, All: true}) {
				if !yield(explore.Revision{ID: step.Revision, Millis: step.Millis, Lost: step.Lost}, err) || err != nil {
					return
				}
			}
			kept, err := s.Checkpoints(ctx, time.Time{}, false)
			if damage, ok := errors.AsType[*format.CorruptError](err); ok { // revisions can still be compared
				yield(explore.Revision{Name: "checkpoints", Millis: -1, Lost: format.Escape(damage.Message)}, nil)
				return
			}
			if err != nil {
				yield(explore.Revision{}, err)
				return
			}
			for _, c := range kept {
				r := explore.Revision{ID: "checkpoint:" + c.Name, Name: c.Name, Millis: -1, Lost: c.Problem}
				if c.Created != nil {
					r.Millis = c.Created.UnixMilli()
				}
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	x.Changes = func(ctx context.Context, path, from, to string) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			s, err := open(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			defer s.Close()
			before, err := s.TreeNamed(ctx, from)
			if err != nil {
				yield(nil, err)
				return
			}
			after, err := s.TreeNamed(ctx, to)
			if err != nil {
				yield(nil, err)
				return
			}
			for c, err := range before.Changes(ctx, after, rooted(path), oak.ChangesOptions{Depth: 1}) {
				c.Path = format.Escape(c.Path)
				if !yield(c, err) || err != nil {
					return
				}
			}
		}
	}
	x.Sizes = func(ctx context.Context) iter.Seq2[explore.FolderSize, error] {
		return func(yield func(explore.FolderSize, error) bool) {
			s, err := open(ctx)
			if err != nil {
				yield(explore.FolderSize{}, err)
				return
			}
			defer s.Close()
			t, err := s.Tree(ctx, o.Param)
			if err != nil {
				yield(explore.FolderSize{}, err)
				return
			}
			for n, err := range t.NodeSizes(ctx, "/") {
				if !yield(explore.FolderSize{Path: strings.TrimPrefix(n.Path, "/"), Records: n.Records, Binaries: n.Binaries, Outside: n.External, Lost: n.Lost}, err) || err != nil {
					return
				}
			}
		}
	}
	return x
}

// rooted converts a path to the form that a store uses.
func rooted(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}
