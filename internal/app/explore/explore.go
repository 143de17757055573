// Package explore is the explorer, a web page that shows what is in archives, where it is stored,
// and what is wrong with it. It is for programs that serve archives to browsers. Contents are
// served by package serve, below /f/ARCHIVE/ unchanged and below /zip/ARCHIVE/ as folders. The
// page consists of JavaScript modules that are part of the program, and loads nothing from
// elsewhere.
package explore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/serve"
)

//go:embed ui
var ui embed.FS

// An Extra is what archives of some formats have in addition to entries.
type Extra struct {
	// Node, if not nil, writes a folder's data besides its entries as a JSON
	// object: the properties of a node, by type.
	Node func(ctx context.Context, w io.Writer, path string) error
	// History, if not nil, yields the changes of a path by revision, the newest
	// first, as values to be encoded as JSON. It yields at most that many.
	History func(ctx context.Context, path string, most int) iter.Seq2[any, error]
	// Revisions, if not nil, yields the states of the archive that can be
	// compared, the newest first, up to a limit. After them it yields those
	// that have a name.
	Revisions func(ctx context.Context, most int) iter.Seq2[Revision, error]
	// Changes, if not nil, yields the differences between two revisions in a
	// folder: changed properties, and which children differ. It does not descend
	// into the children.
	Changes func(ctx context.Context, path, from, to string) iter.Seq2[any, error]
	// Sizes, if not nil, yields the size of each folder in the archive without its
	// subfolders. A folder comes before its subfolders. Data that several folders
	// share counts only for the first.
	Sizes func(ctx context.Context) iter.Seq2[FolderSize, error]
	// Tables, if not nil, returns tables that are shown first for an archive.
	Tables func(ctx context.Context) ([]Table, error)
}

// A Table is shown with the description of an archive.
type Table struct {
	Title   string   `json:"title"`
	Note    string   `json:"note,omitempty"`
	Columns []Column `json:"columns"`
	Rows    [][]any  `json:"rows"` // of cells: strings, numbers, a Place, or nil
}

// A Column has a name and the type of its cells: "" is text, "count" and
// "size" are numbers, "bad" is a count that should be 0.
type Column struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"`
}

// A Place is text that links to a path.
type Place struct {
	Text string `json:"text"`
	Path string `json:"path"`
}

// A FolderSize is the size of a folder by itself.
type FolderSize struct {
	Path     string // "" is the root
	Records  int64  // bytes of the archive that are not binaries
	Binaries int64
	Outside  int64 // bytes of binaries that are stored elsewhere
	Lost     int64 // places that damage hides
}

type Revision struct {
	ID     string `json:"id"`             // the ID for Changes
	Name   string `json:"name,omitempty"` // the name that keeps it
	Millis int64  `json:"millis"`         // since 1970, or -1 if unknown
	Lost   string `json:"lost,omitempty"` // why it cannot be read
}

type Options struct {
	// Log receives errors of the server; nil means slog.Default().
	Log *slog.Logger
	// Verifies is how many archives are verified at once; 0 means 2. VerifyTime is
	// how long one may take; 0 means 6 hours.
	Verifies   int
	VerifyTime time.Duration
	// Near, if not nil, reports whether only people at this machine see the page.
	// Then it may show where archives are.
	Near func() bool
	// Extra, if not nil, returns the additional data of an archive.
	Extra func(*holdall.Archive) Extra
}

// These limit caches and responses.
const (
	maxFolders = 96 << 20        // bytes of listings that are kept
	maxWork    = 8               // requests that work at the same time
	maxFound   = 48 << 20        // bytes of the results of a search, as names and rows
	maxSearch  = 4               // searches that run at the same time
	maxInUse   = 512             // archives that are in use at the same time
	answerTime = 2 * time.Minute // for a request
)

// A Handler shows archives: the page at /, its parts below /ui/, and its
// requests below /api/. It must be closed.
type Handler struct {
	set *serve.Set
	o   Options
	log *slog.Logger
	mux *http.ServeMux

	ctx       context.Context
	stop      context.CancelCauseFunc
	wg        sync.WaitGroup
	work      chan struct{}
	surveying chan struct{}
	searching chan struct{}

	mu      sync.Mutex
	closed  bool
	views   map[string]*view // by a string that identifies the open archive
	told    string           // the error of the last listing of archives
	folders folderCache
	verify  verifies
}

var errClosed = errors.New("the explorer is closed")

func New(set *serve.Set, o Options) *Handler {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Verifies = cmp.Or(o.Verifies, 2)
	o.VerifyTime = cmp.Or(o.VerifyTime, 6*time.Hour)
	h := &Handler{set: set, o: o, log: o.Log, work: make(chan struct{}, maxWork), surveying: make(chan struct{}, maxSurveying), searching: make(chan struct{}, maxSearch), views: map[string]*view{}}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.folders.list = map[folderKey]*folder{}
	h.verify.of = map[string]*verification{}
	h.routes()
	return h
}

// Close ends all running work and waits for it. It may be called again.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop(errClosed)
	h.wg.Wait()
}
