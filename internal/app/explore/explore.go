// Package explore is a page by which people look into archives: what is in
// them, where it lies, and what is wrong with it.
//
// It is for programs that serve archives to browsers; contents themselves are
// served by others, below /f/ARCHIVE/ as they are and below /zip/ARCHIVE/ for
// folders. The page is plain modules of JavaScript that are part of the program,
// and asks nobody else for anything.
package explore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdall/holdall"
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
	// Version stands for its bytes, if that is known: what a check found is kept for as long
	// as it is the same.
	Version string
	// Current, if not nil, says whether it is still what the source has by its name. It is
	// asked with every question, so it should take no time.
	Current func(ctx context.Context) bool
	// Changed, if not nil, is told that reading it found its bytes to be others.
	Changed func()
	// Release, if not nil, is called once, when it is not used any more.
	Release func()
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
	// Open returns one of them, or an error that wraps fs.ErrNotExist. It is open until it is
	// released.
	Open(ctx context.Context, name string) (Archive, error)
}

// Options are wishes for a handler; the zero value suits most.
type Options struct {
	// Log is told what went wrong on this side; nil is slog.Default().
	Log *slog.Logger
	// Verifies is how many archives are verified at once; 0 is 2. VerifyTime is how long
	// one may take; 0 is 6 hours.
	Verifies   int
	VerifyTime time.Duration
	// MaxOpen is how many archives are held that nobody asks about; 0 is 32. Idle is how long
	// one of them is; 0 is five minutes.
	MaxOpen int
	Idle    time.Duration
}

// limits of what is held and answered.
const (
	maxFolders = 96 << 20        // bytes of listings that are kept
	maxWork    = 8               // requests that work at the same time
	maxInUse   = 512             // archives that are in use at the same time
	answerTime = 2 * time.Minute // for a request
)

// A Handler shows archives: the page at /, its parts below /ui/, and what it asks below
// /api/. It must be closed.
type Handler struct {
	src Source
	o   Options
	log *slog.Logger
	mux *http.ServeMux

	ctx       context.Context
	stop      context.CancelCauseFunc
	wg        sync.WaitGroup
	work      chan struct{}
	surveying chan struct{}

	mu      sync.Mutex
	closed  bool
	shown   map[string]*shown
	opens   int64
	folders folderCache
	verify  verifies
}

var errClosed = errors.New("the explorer is closed")

// New returns a handler that shows what src has.
func New(src Source, o Options) *Handler {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Verifies = cmp.Or(o.Verifies, 2)
	o.VerifyTime = cmp.Or(o.VerifyTime, 6*time.Hour)
	o.MaxOpen = cmp.Or(o.MaxOpen, 32)
	o.Idle = cmp.Or(o.Idle, 5*time.Minute)
	h := &Handler{src: src, o: o, log: o.Log, work: make(chan struct{}, maxWork), surveying: make(chan struct{}, maxSurveying), shown: map[string]*shown{}}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.folders.list = map[folderKey]*folder{}
	h.verify.of = map[string]*verification{}
	h.routes()
	h.wg.Go(h.dropIdle)
	return h
}

// Close ends what is under way, waits for it, and releases all archives. It may be called
// again.
func (h *Handler) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop(errClosed)
	h.wg.Wait()
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.shown))
	clear(h.shown)
	h.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}
