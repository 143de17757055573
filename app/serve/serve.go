// Package serve shows archives over HTTP: each file is a resource that can be
// asked for whole or in ranges, each folder a listing.
//
// It is for programs that let browsers and HTTP clients read archives; a
// program that reads archives itself needs package holdall only.
package serve

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// Options are wishes for a handler; the zero value suits most.
type Options struct {
	// Version stands for the bytes of all the archive's volumes, and for what
	// else decides what its contents are, such as its view: the same Version is
	// the same contents. Entries without a digest get their ETag from it, or
	// none if it is empty.
	Version string
	// CORS lets pages of other sites read the archive.
	CORS bool
	// Log is told what went wrong on this side; nil is slog.Default().
	Log *slog.Logger
}

// Handler shows an archive, read-only. Links are followed within it.
//
// What is asked for whole is compared with the archive's digest, if there is
// one: up to 1 MiB before the first byte is sent, otherwise on the way, and
// then the last byte is not sent before it is known to be right. Ranges are
// sent as they are.
func Handler(a *holdall.Archive, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &handler{
		a: a, version: o.Version, cors: o.CORS, log: o.Log,
		hasLinks: a.Format().Keeps&format.KeepsSymlinks != 0,
	}
}

type handler struct {
	a        *holdall.Archive
	version  string
	cors     bool
	log      *slog.Logger
	hasLinks bool // that could lead to folders
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !begin(w, r, h.cors) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	name, wantsDir := strings.CutSuffix(name, "/")
	if r.URL.Path == "" || r.URL.Path == "/" {
		name, wantsDir = ".", true
	} else if !isPath(name) {
		http.Error(w, "404: the path is no name that an archive could have", http.StatusNotFound)
		return
	}
	e, err := h.resolve(r.Context(), name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		notFound(w)
	case err != nil:
		h.fail(w, r, err)
	case wantsDir:
		h.list(w, r, e)
	case e.Kind == format.Dir:
		redirectToDir(w, r)
	case e.Kind.HasContent():
		h.content(w, r, e)
	default:
		http.Error(w, "404: a "+e.Kind.String()+" has no content", http.StatusNotFound)
	}
}

// begin sets what every answer has, and answers requests that no path matters
// for. It reports whether there is something left to do.
func begin(w http.ResponseWriter, r *http.Request, cors bool) bool {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	// The next archive that is served here may have other bytes under this path.
	head.Set("Cache-Control", "no-cache")
	allow := "GET, HEAD"
	if cors {
		allow += ", OPTIONS"
		head.Set("Access-Control-Allow-Origin", "*")
		head.Set("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range, ETag, Last-Modified")
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return true
	case r.Method == http.MethodOptions && cors:
		head.Set("Allow", allow)
		head.Set("Access-Control-Allow-Methods", allow)
		head.Set("Access-Control-Allow-Headers", "Range, If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, Cache-Control")
		head.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
	default:
		head.Set("Allow", allow)
		http.Error(w, "405: this is read-only", http.StatusMethodNotAllowed)
	}
	return false
}

// redirectToDir leads to the same path with a slash at its end, relative to
// where the client thinks it is: what is in front of the path, it alone knows.
func redirectToDir(w http.ResponseWriter, r *http.Request) {
	to := reference(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]) + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

func notFound(w http.ResponseWriter) {
	http.Error(w, "404: there is nothing of this name in the archive", http.StatusNotFound)
}

// fail answers a request of which nothing has been sent, and logs what is not
// the client's business: errors may name paths of this machine.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits for it, and to return would send a 200
	}
	for _, key := range []string{"Accept-Ranges", "Content-Range", "Content-Security-Policy", "Etag", "Last-Modified"} {
		w.Header().Del(key)
	}
	h.tell(r, err)
	text := "500: it cannot be read; the server's log says why"
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		text = "500: it cannot be read: " + format.Escape(c.Message)
	} else if d, ok := errors.AsType[*holdall.DigestError](err); ok {
		text = "500: it cannot be read: " + d.Error()
	}
	http.Error(w, text, http.StatusInternalServerError)
}

func (h *handler) tell(r *http.Request, err error) {
	h.log.Error("cannot be served", "archive", h.a.Name(), "path", format.Escape(r.URL.Path), "error", err)
}
