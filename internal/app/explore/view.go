package explore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
)

// A view is an archive in one of its views, and the cached results about it.
// It is removed when there was no request for the archive for a while.
// Requests, and the reading of a folder, a survey or a check, hold the archive
// open.
type view struct {
	*serve.Archive
	Extra
	in   *holdall.Archive
	of   *view  // the archive in its usual view
	name string // of the view
	id   string // distinguishes the archive from others that were open under its name

	survey survey
	sizes  survey // the sizes of folders in the archive, if Extra.Sizes gives them
}

var errMany = busy("too many archives are in use: try again later")

// use holds an archive open in a view until q is answered. of is the archive
// in its usual view.
func (q *question) use(name, asked string, of *view) (*view, error) {
	a, err := q.h.set.Use(q.ctx(), name, asked)
	if err != nil {
		return nil, err
	}
	q.held = append(q.held, a.Release)
	v, err := q.h.viewOf(a, of)
	if err == nil {
		q.seen = append(q.seen, v)
	}
	return v, err
}

// viewOf returns the cached results about an archive that is held open.
func (h *Handler) viewOf(a *serve.Archive, of *view) (*view, error) {
	h.mu.Lock()
	v, known := h.views[a.Once]
	many := !known && len(h.views) >= maxInUse // archives that are not in use never reach this number
	if !known && !many {
		v = h.newView(a, of)
		h.views[a.Once] = v
	}
	h.mu.Unlock()
	if many {
		return nil, errMany
	}
	if known {
		return v, nil
	}
	a.WhenIdle(func() {
		h.mu.Lock()
		delete(h.views, a.Once)
		h.mu.Unlock()
		h.folders.forget(v)
	})
	if of == nil && !v.isAutopsy() {
		h.verify.forget(a.Name, func(checked string) bool { return checked != v.id })
	}
	return v, nil
}

func (h *Handler) newView(a *serve.Archive, of *view) *view {
	v := &view{Archive: a, in: a.Archive, of: of, name: a.View, id: a.Once}
	if a.Version != "" {
		sum := sha256.Sum256([]byte(a.Version))
		v.id = hex.EncodeToString(sum[:8])
	}
	if of == nil {
		v.of = v
		if h.o.Extra != nil && !v.isAutopsy() {
			v.Extra = h.o.Extra(v.in)
		}
	}
	return v
}

// inView returns the archive of v in another view; "" means the one that it is
// served in.
func (q *question) inView(v *view, name string) (*view, error) {
	if v.isAutopsy() && name != v.name && name != "" {
		return nil, &holdall.ViewError{Format: v.in.Format().Name, View: name}
	}
	v = v.of
	if name == "" || name == v.name {
		return v, nil
	}
	if f := v.in.Format(); v.in.Store() == nil || !slices.Contains(f.Views, name) {
		return nil, &holdall.ViewError{Format: f.Name, View: name, Has: f.Views}
	}
	return q.use(v.Name, name, v)
}

// isAutopsy reports whether it is what is left of an archive, which may not open at all.
func (v *view) isAutopsy() bool { return autopsy.Is(v.name) }

// changed reopens an archive if err reports that it has changed.
func (h *Handler) changed(err error, seen ...*view) {
	if !errors.Is(err, store.ErrChanged) {
		return
	}
	for _, v := range seen {
		v.Stale()
		v.of.Stale()
		h.verify.forget(v.Name, func(checked string) bool { return checked == v.of.id })
	}
}

// isNode reports whether an archive's folders may have more than entries.
func (v *view) isNode() bool {
	return v.Node != nil && v.in.Format().Keeps&format.KeepsProperties != 0
}
