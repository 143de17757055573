// Package explore is a page by which people look into archives: what is in
// them, where it lies, and what is wrong with it.
//
// It is for programs that serve archives to browsers; contents themselves are
// served by others, below /f/ARCHIVE/ as they are and below /zip/ARCHIVE/ for
// folders. The page is plain modules of JavaScript that are part of the program,
// and asks nobody else for anything.
package explore

import (
	"context"
	"embed"
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

//go:embed ui
var ui embed.FS

// An Archive is one that is shown.
type Archive struct {
	// Name is what it is called in addresses of the page, and below /f/.
	Name string
	// Address is where it is, for people; without passwords.
	Address string
	// Archive is open, in its usual view or the one its user wants.
	Archive *holdall.Archive
	// Store has it, under the name that Archive has. Without one nothing can be verified,
	// and no other view be opened.
	Store store.Store
	// Open is how it was opened.
	Open holdall.OpenOptions
	// Node, if not nil, writes what a folder has besides entries as an object of JSON:
	// the properties of a node, by type.
	Node func(ctx context.Context, w io.Writer, path string) error
	// History, if not nil, yields what revisions did to a path, the newest first, as
	// values of which JSON is made; at most so many.
	History func(ctx context.Context, path string, most int) iter.Seq2[any, error]
}

// A Source is where the archives come from that a handler shows.
type Source interface {
	// Names lists them. It is asked again now and then: archives may come and go.
	Names(ctx context.Context) ([]string, error)
	// Open returns one of them, or an error that wraps fs.ErrNotExist. It stays open as long as
	// the handler.
	Open(ctx context.Context, name string) (Archive, error)
}

// List is a Source of archives that are open.
type List []Archive

// Names returns the names in their order.
func (l List) Names(context.Context) ([]string, error) {
	all := make([]string, len(l))
	for i := range l {
		all[i] = l[i].Name
	}
	return all, nil
}

// Open returns the archive of that name.
func (l List) Open(_ context.Context, name string) (Archive, error) {
	i := slices.IndexFunc(l, func(a Archive) bool { return a.Name == name })
	if i < 0 {
		return Archive{}, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return l[i], nil
}

// Options are wishes for a handler; the zero value suits most.
type Options struct {
	// Log is told what went wrong on this side; nil is slog.Default().
	Log *slog.Logger
	// Verifies is how many archives are verified at once; 0 is 2. VerifyTime is how long
	// one may take; 0 is 6 hours.
	Verifies   int
	VerifyTime time.Duration
}

// limits of what is held and answered.
const (
	maxFolders   = 96 << 20        // bytes of listings that are kept
	maxWork      = 8               // requests that work at the same time
	maxOpenViews = 64              // archives and views that are known at the same time
	answerTime   = 2 * time.Minute // for a request
)

// A Handler shows archives: the page at /, its parts below /ui/, and what it asks below
// /api/. It must be closed.
type Handler struct {
	src Source
	o   Options
	log *slog.Logger
	mux *http.ServeMux

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup
	work chan struct{}

	mu      sync.Mutex
	shown   map[string]*shown
	folders folderCache
	verify  verifies
}

var errClosed = errors.New("the explorer is closed")

// New returns a handler that shows what src has.
func New(src Source, o Options) *Handler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Verifies == 0 {
		o.Verifies = 2
	}
	if o.VerifyTime == 0 {
		o.VerifyTime = 6 * time.Hour
	}
	h := &Handler{src: src, o: o, log: o.Log, work: make(chan struct{}, maxWork), shown: map[string]*shown{}}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.folders.list = map[folderKey]*folder{}
	h.verify.of = map[string]*verification{}
	h.routes()
	return h
}

// Close ends what is under way and waits for it. The archives stay open, but for views
// that the handler opened itself.
func (h *Handler) Close() error {
	h.stop(errClosed)
	h.wg.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, s := range h.shown {
		for _, v := range s.views {
			if v.ours {
				errs = append(errs, v.in.Close())
			}
		}
	}
	h.shown = map[string]*shown{}
	return errors.Join(errs...)
}

// shown is an archive that somebody looked at.
type shown struct {
	Archive
	opening sync.Mutex // one view at a time
	views   map[string]*view
}

// A view is an archive in one of the ways to look at it.
type view struct {
	of   *shown
	name string
	in   *holdall.Archive
	ours bool

	survey survey
}

var errMany = errors.New("too many archives are looked at: expected fewer, or another server")

// view returns an archive in a view; "" is the one that it is served in.
func (h *Handler) view(ctx context.Context, archive, name string) (*view, error) {
	h.mu.Lock()
	s := h.shown[archive]
	count := len(h.shown)
	h.mu.Unlock()
	if s == nil {
		if count >= maxOpenViews {
			return nil, errMany
		}
		a, err := h.src.Open(ctx, archive)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		if s = h.shown[archive]; s == nil {
			s = &shown{Archive: a, views: map[string]*view{}}
			h.shown[archive] = s
		}
		h.mu.Unlock()
	}
	usual := usualView(s.Archive)
	if name == "" {
		name = usual
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if v := s.views[name]; v != nil {
		return v, nil
	}
	v := &view{of: s, name: name, in: s.Archive.Archive}
	if name != usual {
		f := v.in.Format()
		if s.Store == nil || !slices.Contains(f.Views, name) {
			return nil, &holdall.ViewError{Format: f.Name, View: name, Has: f.Views}
		}
		o := s.Archive.Open
		o.View, o.Format = name, f.Name
		in, err := holdall.OpenStore(ctx, s.Store, v.in.Name(), o)
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
	if a.Open.View != "" {
		return a.Open.View
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
