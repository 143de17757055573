package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Watcher follows the head of a store that another program writes to. It must be used by one
// goroutine.
type Watcher struct {
	s    *Store
	path string
	last repo.Entry // the newest revision that was reported
	from string     // the next one is compared with this: the newest that could be read, or empty
	size int64      // of the journal when it was last checked; -1 if it was not
}

type WatchOptions struct {
	Path string // of the node below which changes are reported; empty is the root
	From string // the revision or the time after which to begin; empty is the head
}

// An Arrival is a new revision in the journal.
type Arrival struct {
	Revision string     `json:"revision"`
	Time     *time.Time `json:"time,omitempty"`
	After    string     `json:"after,omitempty"` // the revision that it is compared with
	Changes  []Change   `json:"changes"`
	More     bool       `json:"more,omitempty"` // some are not listed
	Lost     string     `json:"lost,omitempty"` // why it cannot be compared
	// Gap means that the journal was rewritten: what came before this revision is not known.
	Gap bool `json:"gap,omitempty"`
}

// mostArrived is how many changes of a revision are listed.
const mostArrived = 1000

// Watch opens the store in a folder, to be followed. It must be closed.
func Watch(ctx context.Context, st store.Store, name string, open format.OpenOptions, o WatchOptions) (*Watcher, error) {
	s, err := OpenStore(ctx, st, name, open)
	if err != nil {
		return nil, err
	}
	w := &Watcher{s: s, path: nodePath(o.Path), size: -1}
	if err := w.begin(ctx, o.From); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return w, nil
}

func (w *Watcher) begin(ctx context.Context, from string) error {
	param := map[string]string{}
	if from != "" {
		param[revisionParam] = from
	}
	t, err := w.s.Tree(ctx, param)
	if err != nil {
		return err
	}
	w.last, w.from = t.t.shown, t.Revision()
	if from == "" {
		return nil
	}
	if _, found, err := w.news(ctx); err != nil || !found {
		if err == nil {
			err = fmt.Errorf("oak: revision %s: not in the journal: %w", from, fs.ErrNotExist)
		}
		return err
	}
	return nil
}

// Doubt returns the Doubt of the store when the watch began.
func (w *Watcher) Doubt() *format.Problem { return w.s.Doubt() }

func (w *Watcher) Close() error { return w.s.Close() }

// Next yields the revisions that are new since the last call, the oldest first, if there are any.
func (w *Watcher) Next(ctx context.Context) iter.Seq2[Arrival, error] {
	return pipe.Told(func(tell func(Arrival) error) error {
		info, err := storekit.Briefly(w.s.r.st, w.s.r.list.Path(repo.Journal)).Info(ctx)
		if err != nil || info.Size == w.size {
			return err
		}
		if err := w.s.renew(ctx); err != nil {
			return err
		}
		all, found, err := w.news(ctx)
		if err != nil {
			return err
		}
		for i, e := range slices.Backward(all) {
			a, err := w.arrival(ctx, e)
			if err != nil {
				return err
			}
			a.Gap = !found && i == len(all)-1
			w.last = e
			if w.path != "." && len(a.Changes) == 0 && a.Lost == "" && !a.Gap {
				continue
			}
			if err := tell(a); err != nil {
				return err
			}
		}
		// Only now has everything in the journal been reported.
		w.size, err = w.s.journalSize(ctx)
		return err
	})
}

// news returns the revisions after the last reported one in the journal, the newest first. If
// that one is not found, it returns only the newest.
func (w *Watcher) news(ctx context.Context) (all []repo.Entry, found bool, err error) {
	for e, err := range w.s.r.journal(ctx) {
		if _, bad := err.(*repo.Error); bad {
			continue
		}
		switch {
		case err != nil:
			return nil, false, err
		case e.Revision == w.last.Revision:
			return all, true, nil
		case !e.Ended && !w.s.r.st.Can().Near: // it may still be incomplete
			continue
		case len(all) > 0 && all[len(all)-1].Revision == e.Revision: // a repeated line
			continue
		}
		e.Text = ""
		all = append(all, e)
	}
	return all[:min(len(all), 1)], false, nil
}

// arrival compares a revision with the one before it that could be read.
func (w *Watcher) arrival(ctx context.Context, e repo.Entry) (Arrival, error) {
	a := Arrival{Revision: e.Revision.String(), Time: lineOf(e, nil, 0).Time, After: w.from, Changes: []Change{}}
	lost := func(err error) (Arrival, error) {
		l, ok := w.s.r.lostAsJSON(err)
		if a.Lost = l.What; ok {
			err = nil
		}
		return a, err
	}
	if _, _, there := w.s.r.locate(e.Segment); !there {
		a.Lost = "its segment is missing: a cleanup has removed it"
		return a, nil
	}
	after, err := w.s.TreeNamed(ctx, a.Revision)
	if err != nil {
		return lost(err)
	}
	before, err := w.s.TreeNamed(ctx, w.from)
	if err != nil { // it was removed meanwhile
		w.from = a.Revision
		return lost(err)
	}
	w.from = a.Revision
	for c, err := range before.Changes(ctx, after, w.path, ChangesOptions{}) {
		if errors.Is(err, fs.ErrNotExist) { // the node is in neither
			break
		}
		if err != nil {
			return lost(err)
		}
		if len(a.Changes) == mostArrived {
			a.More = true
			break
		}
		a.Changes = append(a.Changes, c)
	}
	return a, nil
}

// journalSize returns the size of the journal when the store was opened.
func (s *Store) journalSize(ctx context.Context) (int64, error) {
	o, err := s.r.file(ctx, repo.Journal)
	if err != nil {
		return 0, err
	}
	info, err := o.Info(ctx)
	return info.Size, errors.Join(err, o.Close())
}

// renew reopens a store in its present state. It does not read unchanged tars again.
func (s *Store) renew(ctx context.Context) error {
	was := s.r
	r := &repository{st: was.st, name: was.name, limits: was.limits, trust: was.trust, onHeal: was.onHeal, release: func() {}, had: map[string]*segmentTar{}}
	for _, t := range was.tars {
		r.had[t.Name] = t
	}
	err := r.openMoment(ctx, strings.TrimSuffix(r.name, "/"))
	if err == nil {
		err = r.beside(ctx)
	}
	was.tars, r.had = slices.Collect(maps.Values(r.had)), nil
	s.r, s.source.r, s.source.altered = r, r, nil
	return errors.Join(err, was.close())
}
