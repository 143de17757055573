package explore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A shown is an archive that somebody looks at, or did a short while ago. What asks, reads a
// folder, surveys or verifies holds it; it is closed when it was dropped and nobody does.
type shown struct {
	Archive
	id      string           // tells it from others that were open by its name
	opening chan struct{}    // one view at a time
	views   map[string]*view // by Handler.mu

	refs    int // by Handler.mu, as what follows
	used    time.Time
	dropped bool
}

// A view is an archive in one of the ways to look at it.
type view struct {
	of   *shown
	name string
	in   *holdall.Archive
	ours bool

	survey survey
}

// close releases what s has. Nobody holds it any more.
func (s *shown) close() error {
	var errs []error
	for _, v := range s.views {
		if v.ours {
			errs = append(errs, v.in.Close())
		}
	}
	if s.Release != nil {
		s.Release()
	}
	return errors.Join(errs...)
}

// take returns the archive of that name, which the caller has to let go.
func (h *Handler) take(ctx context.Context, name string) (*shown, error) {
	for {
		h.mu.Lock()
		s := h.shown[name]
		if s != nil {
			s.refs++
		}
		h.mu.Unlock()
		if s == nil {
			return h.open(ctx, name)
		}
		if s.Current == nil || s.Current(ctx) {
			return s, nil
		}
		h.drop(s, true)
		h.letGo(s)
	}
}

var errMany = busy("too many archives are looked at: expected to wait for some of them")

func (h *Handler) open(ctx context.Context, name string) (*shown, error) {
	h.mu.Lock()
	many := len(h.shown) >= maxInUse
	h.mu.Unlock()
	if many { // what nobody holds is never so much
		return nil, errMany
	}
	a, err := h.src.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &shown{Archive: a, opening: make(chan struct{}, 1), views: map[string]*view{}, refs: 1}
	h.mu.Lock()
	other := h.shown[name]
	if other != nil { // somebody was faster
		other.refs++
	} else {
		h.shown[name] = s
		h.opens++
		s.id = fmt.Sprint(h.opens)
		if a.Version != "" {
			sum := sha256.Sum256([]byte(a.Version))
			s.id = hex.EncodeToString(sum[:8])
		}
	}
	h.mu.Unlock()
	if other != nil {
		return other, s.close()
	}
	h.verify.reopened(name, a.Version)
	h.makeRoom()
	return s, nil
}

// hold has s stay for a while longer, unless it was dropped and nobody else holds it.
func (h *Handler) hold(s *shown) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.dropped && s.refs == 0 {
		return false
	}
	s.refs++
	return true
}

// letGo ends a use of s.
func (h *Handler) letGo(s *shown) {
	h.mu.Lock()
	s.refs--
	s.used = time.Now()
	last := s.dropped && s.refs == 0
	h.mu.Unlock()
	if last {
		h.closeOne(s)
	}
	h.makeRoom()
}

func (h *Handler) closeOne(s *shown) {
	if err := s.close(); err != nil {
		h.log.Warn("cannot be closed", "archive", format.Escape(s.Name), "error", err)
	}
}

// drop forgets an archive and all that is kept of it. Who holds it still may use it. If it
// changed, what a check found is not true any more.
func (h *Handler) drop(s *shown, changed bool) {
	h.mu.Lock()
	if h.shown[s.Name] != s {
		h.mu.Unlock()
		return
	}
	delete(h.shown, s.Name)
	s.dropped = true
	last := s.refs == 0
	h.mu.Unlock()
	h.folders.forget(s)
	if changed || s.Version == "" {
		h.verify.forget(s.Name)
	}
	if last {
		h.closeOne(s)
	}
}

// changed drops an archive that a read found changed, if err says so.
func (h *Handler) changed(s *shown, err error) {
	if !errors.Is(err, store.ErrChanged) {
		return
	}
	if s.Changed != nil {
		s.Changed()
	}
	h.drop(s, true)
}

// makeRoom drops what nobody has asked about for the longest time, while there is too much
// of that.
func (h *Handler) makeRoom() {
	for {
		h.mu.Lock()
		var oldest *shown
		free := 0
		for _, s := range h.shown {
			if s.refs > 0 {
				continue
			}
			if free++; oldest == nil || s.used.Before(oldest.used) {
				oldest = s
			}
		}
		h.mu.Unlock()
		if free <= h.o.MaxOpen {
			return
		}
		h.dropFree(oldest)
	}
}

// dropFree drops s if still nobody holds it.
func (h *Handler) dropFree(s *shown) {
	h.mu.Lock()
	free := s.refs == 0
	h.mu.Unlock()
	if free { // whoever takes it now uses it to its end
		h.drop(s, false)
	}
}

func (h *Handler) dropIdle() {
	tick := time.NewTicker(max(h.o.Idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		var idle []*shown
		h.mu.Lock()
		for _, s := range h.shown {
			if s.refs == 0 && time.Since(s.used) > h.o.Idle {
				idle = append(idle, s)
			}
		}
		h.mu.Unlock()
		for _, s := range idle {
			h.dropFree(s)
		}
	}
}

// view returns a view of an archive that is held; "" is the one that it is served in.
func (h *Handler) view(ctx context.Context, s *shown, name string) (*view, error) {
	usual := usualView(s.Archive)
	name = cmp.Or(name, usual)
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.opening }()
	h.mu.Lock()
	v := s.views[name]
	h.mu.Unlock()
	if v != nil {
		return v, nil
	}
	v = &view{of: s, name: name, in: s.Archive.Archive}
	if name != usual {
		f, st := v.in.Format(), v.in.Store()
		if st == nil || !slices.Contains(f.Views, name) {
			return nil, &holdall.ViewError{Format: f.Name, View: name, Has: f.Views}
		}
		o := v.in.Options()
		o.View, o.Format = name, f.Name
		in, err := holdall.OpenStore(ctx, st, v.in.Name(), o)
		if err != nil {
			return nil, err
		}
		v.in, v.ours = in, true
	}
	h.mu.Lock()
	s.views[name] = v
	h.mu.Unlock()
	return v, nil
}

// usualView is the name of the view that an archive is served in.
func usualView(a Archive) string {
	if view := a.Archive.Options().View; view != "" {
		return view
	}
	if v := a.Archive.Format().Views; len(v) > 0 {
		return v[0]
	}
	return ""
}

// isNode reports whether an archive's folders may have more than entries.
func (v *view) isNode() bool {
	return v.of.Node != nil && v.name == usualView(v.of.Archive) && v.in.Format().Keeps&format.KeepsProperties != 0
}
