// Package serve serves archives over HTTP and as S3 buckets. Each file is a resource that can be
// requested as a whole or in ranges, and each folder is a listing or a zip. A [Set] has the
// archives, a [Site] serves HTTP, and an [S3] serves buckets.
package serve

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A handler serves one archive, read-only. It follows links within the
// archive.
//
// If the whole content is requested, it is compared with the archive's digest,
// if there is one. Up to 1 MiB is compared before the first byte is sent.
// Longer content is compared while it is sent, and its last byte is sent only
// after the digest has matched. A range is compared as Archive.Compares says:
// unproven are only ranges of content that is longer than 1 MiB and has no
// digests of pieces.
type handler struct {
	a       *Archive
	log     *slog.Logger
	bucket  bool // it answers for one
	guarded bool // access is restricted
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	e, wantsDir, ok := h.target(w, r)
	switch {
	case !ok:
	case wantsDir:
		h.list(w, r, e, "")
	case e.Kind == format.Dir:
		if isBrowser(r) {
			redirectToDir(w, r)
		} else {
			h.list(w, r, e, path.Base(r.URL.Path))
		}
	case e.Kind.HasContent() && r.Method == propfind:
		l := newDAVListing(w, r, nil)
		l.file(path.Base(r.URL.Path), e, h.etag(r.Context(), e))
		l.end("")
	case e.Kind.HasContent():
		h.content(w, r, e)
	default:
		http.Error(w, "404: a "+e.Kind.String()+" has no content", http.StatusNotFound)
	}
}

// target returns the entry that a request is for. If there is none, it sends
// the response.
func (h *handler) target(w http.ResponseWriter, r *http.Request) (e holdall.Entry, wantsDir, ok bool) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	name, wantsDir = strings.CutSuffix(name, "/")
	if r.URL.Path == "" || r.URL.Path == "/" {
		name, wantsDir = ".", true
	} else if !isPath(name) {
		http.Error(w, "404: invalid name of an entry", http.StatusNotFound)
		return e, false, false
	}
	e, err := h.resolve(r.Context(), name)
	if errors.Is(err, fs.ErrNotExist) {
		notFound(w)
	} else if err != nil {
		h.fail(w, r, err)
	}
	return e, wantsDir, err == nil
}

// strictPolicy forbids everything to pages that are not listed below.
const strictPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets the headers that every response has, from whichever handler.
func secure(head http.Header, shared bool) {
	head["X-Content-Type-Options"] = noSniff
	head["Content-Security-Policy"] = strict
	head["Referrer-Policy"] = noReferrer
	head["Cross-Origin-Resource-Policy"] = sameOrigin
	if shared {
		head["Cross-Origin-Resource-Policy"] = crossOrigin
	}
	// The next archive served here may have other bytes at this path.
	head["Cache-Control"] = noCache
}

// Values of headers that responses share. Nothing changes them.
var noSniff, strict, noReferrer, sameOrigin, crossOrigin, noCache = []string{"nosniff"}, []string{strictPolicy}, []string{"no-referrer"}, []string{"same-origin"}, []string{"cross-origin"}, []string{"no-cache"}

// begin handles requests that do not depend on the path. It reports whether
// the request needs further work. writes says that there may be other methods
// than GET and HEAD.
func begin(w http.ResponseWriter, r *http.Request, cors []string, writes bool) bool {
	head := w.Header()
	allow := "GET, HEAD"
	if writes {
		allow += ", PUT, POST, DELETE"
	}
	if len(cors) > 0 {
		allow += ", OPTIONS"
		if origin := allows(cors, r.Header.Get("Origin")); origin != "" {
			head.Set("Access-Control-Allow-Origin", origin)
			head.Set("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range, ETag, Last-Modified")
		}
		if allows(cors, "") == "" {
			head.Add("Vary", "Origin")
		}
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead || writes && r.Method != http.MethodOptions:
		return true
	case r.Method == http.MethodOptions && len(cors) > 0:
		head.Set("Allow", allow)
		head.Set("Access-Control-Allow-Methods", allow)
		allowed := "Authorization, Range, If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, Cache-Control"
		if asked := r.Header.Get("Access-Control-Request-Headers"); writes && asked != "" {
			allowed = asked // the names of metadata are the client's
		}
		head.Set("Access-Control-Allow-Headers", allowed)
		head.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
	default:
		head.Set("Allow", allow)
		http.Error(w, "405: read-only", http.StatusMethodNotAllowed)
	}
	return false
}

// isBrowser reports whether a request is from a browser. Other clients get the
// list of a folder without a slash at the end, too: aiohttp, and so fsspec and
// zarr, does not follow relative links from paths with spaces.
func isBrowser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// redirectToDir redirects to the same path with a slash at its end. The
// redirect is relative: only the client knows the part before the path.
func redirectToDir(w http.ResponseWriter, r *http.Request) {
	to := reference(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]) + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Add("Vary", "Accept")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

func notFound(w http.ResponseWriter) {
	http.Error(w, "404: the archive has no entry with this name", http.StatusNotFound)
}

// unlessGone aborts a request whose client is gone: a plain return would send
// a 200.
func unlessGone(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// fail responds with an error, if nothing has been sent yet. It logs details
// that are not for the client: errors may name paths of this machine.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	unlessGone(r)
	for _, key := range []string{"Accept-Ranges", "Content-Range", "Etag", "Last-Modified"} {
		w.Header().Del(key)
	}
	dropKept(w.Header())
	w.Header().Set("Content-Security-Policy", strictPolicy)
	h.tell(r, err)
	code := statusOf(err)
	text := strconv.Itoa(code) + ": cannot be read; the server's log has the reason"
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		text = "500: cannot be read: " + format.Escape(c.Message)
	} else if d, ok := errors.AsType[*holdall.DigestError](err); ok {
		text = "500: cannot be read: " + d.Error()
	}
	http.Error(w, text, code)
}

// statusOf returns the status of a response for which something cannot be read. Perhaps it can be read later, for
// example if a server is just starting again.
func statusOf(err error) int {
	if storekit.Temporary(err) || errors.Is(err, store.ErrChanged) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (h *handler) tell(r *http.Request, err error) {
	if errors.Is(err, store.ErrChanged) {
		h.a.Stale() // the next request opens the current archive
	}
	h.log.Error("cannot be served", "archive", h.a.Archive.Name(), "path", format.Escape(r.URL.Path), "error", err)
}
