package explore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

// policy lets the page load only what this server serves. Only holdall's own
// scripts run, whatever an archive's names and contents are.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type question struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request
	q url.Values

	asked context.Context // of the request itself, without the limits added here
	held  []func()        // called at the end to release archives
	seen  []*view         // these archives
	err   error           // the first error; later parameters are not checked
}

func (h *Handler) routes() {
	h.mux = http.NewServeMux()
	h.mux.HandleFunc("GET /{$}", page)
	h.mux.HandleFunc("GET /ui/{file}", part)
	for path, answer := range map[string]func(*question) error{
		"GET /api/archives":       (*question).archives,
		"GET /api/archive":        (*question).archive,
		"GET /api/ls":             (*question).ls,
		"GET /api/entry":          (*question).entry,
		"GET /api/content":        (*question).content,
		"GET /api/search":         (*question).search,
		"GET /api/search.zip":     (*question).searchZip,
		"GET /api/grep":           (*question).grep,
		"GET /api/map":            (*question).byteMap,
		"GET /api/map/at":         (*question).mapAt,
		"GET /api/map/of":         (*question).mapOf,
		"GET /api/treemap":        (*question).treemap,
		"GET /api/array":          (*question).array,
		"GET /api/array/data":     (*question).arrayData,
		"GET /api/arrays":         (*question).arrays,
		"GET /api/attributes":     (*question).attributes,
		"GET /api/table":          (*question).table,
		"GET /api/raster":         (*question).raster,
		"GET /api/nwb":            (*question).nwb,
		"GET /api/node":           (*question).node,
		"GET /api/history":        (*question).history,
		"GET /api/revisions":      (*question).revisions,
		"GET /api/changes":        (*question).changes,
		"POST /api/verify":        (*question).startVerify,
		"POST /api/verify/cancel": (*question).cancelVerify,
		"GET /api/verify":         (*question).verifyEvents,
		"GET /api/damage":         (*question).damage,
		"GET /api/repair":         (*question).repair,
		"GET /api/repaired":       (*question).repaired,
	} {
		h.mux.HandleFunc(path, h.answer(answer))
	}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", policy)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(r.URL.Path, "/api/") {
		known := func(r *http.Request) bool { _, pattern := h.mux.Handler(r); return pattern != "" }
		get := *r
		get.Method = http.MethodGet
		switch {
		case known(r):
		case known(&get):
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, "usage", "expected a GET request")
			return
		default:
			fail(w, http.StatusNotFound, "not-found", "no such request: "+format.Escape(r.URL.Path))
			return
		}
	}
	h.mux.ServeHTTP(w, r)
}

func page(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, ui, "ui/index.html") }

func part(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	switch {
	case strings.HasSuffix(name, ".js"): // the system's table may have another type
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	case strings.HasSuffix(name, ".html"):
		http.NotFound(w, r)
		return
	}
	if b, err := module(name); err == nil && name == kindsModule {
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
		return
	}
	http.ServeFileFS(w, r, ui, "ui/"+name)
}

// A refusal is an error response with its message.
type refusal struct {
	status     int
	code, what string
}

func (e *refusal) Error() string { return e.what }

func bad(msg string, args ...any) error {
	return &refusal{http.StatusBadRequest, "usage", fmt.Sprintf(msg, args...)}
}

func busy(what string) error { return &refusal{http.StatusTooManyRequests, "busy", what} }

var errSlow = &refusal{http.StatusGatewayTimeout, "slow", "the request takes too long"}

// answer turns a function that answers a question into a handler. It refuses
// requests from pages of other sites: the browser tells which site a request
// is from.
func (h *Handler) answer(f func(*question) error) http.HandlerFunc {
	origin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" || origin.Check(r) != nil {
			fail(w, http.StatusForbidden, "forbidden", "requests from other sites are refused")
			return
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			fail(w, http.StatusServiceUnavailable, "closed", errClosed.Error())
			return
		}
		h.wg.Add(1) // Close waits for it
		h.mu.Unlock()
		defer h.wg.Done()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.ctx, cancel)()
		q := &question{h: h, w: w, r: r.WithContext(ctx), q: r.URL.Query(), asked: r.Context()}
		defer func() {
			for _, release := range q.held {
				release()
			}
		}()
		err := f(q)
		if err = cmp.Or(q.err, err); err != nil {
			h.changed(err, q.seen...)
			q.fail(err)
		}
	}
}

// unreadables are errors of an array whose messages are meant for people.
var unreadables = []error{zarr.ErrCorrupt, zarr.ErrGroup, zarr.ErrLimit, errors.ErrUnsupported, format.ErrUnknown, autopsy.ErrUntrusted}

// why explains, for people, why an array cannot be read.
func why(err error) string {
	if corrupt, ok := errors.AsType[*format.CorruptError](err); ok {
		return format.Escape(corrupt.Message)
	}
	digest, isDigest := errors.AsType[*holdall.DigestError](err)
	proof, isProof := errors.AsType[*holdall.ProofError](err)
	switch {
	case isDigest:
		return format.Escape(digest.Error())
	case isProof:
		return format.Escape(proof.Error())
	case slices.ContainsFunc(unreadables, func(e error) bool { return errors.Is(err, e) }):
		return format.Escape(err.Error())
	}
	return "cannot be read"
}

// fail responds with an error. Errors may name paths of this machine, so only
// those about the archive are sent.
func (q *question) fail(err error) {
	if q.asked.Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	no, refused := errors.AsType[*refusal](err)
	corrupt, isCorrupt := errors.AsType[*format.CorruptError](err)
	digest, isDigest := errors.AsType[*holdall.DigestError](err)
	proof, isProof := errors.AsType[*holdall.ProofError](err)
	views, isView := errors.AsType[*holdall.ViewError](err)
	unreadable := func(e error) bool { return errors.Is(err, e) }
	switch {
	case refused:
	case errors.Is(err, fs.ErrNotExist):
		no = &refusal{http.StatusNotFound, "not-found", "no entry with this name"}
	case isView:
		no = &refusal{http.StatusNotFound, "not-found", views.Error()}
	case errors.Is(err, syscall.ENOTDIR):
		no = &refusal{http.StatusBadRequest, "not-a-folder", "not a folder"}
	case errors.Is(err, store.ErrChanged):
		no = &refusal{http.StatusConflict, "changed", "the archive was replaced or changed while it was read"}
	case isCorrupt:
		no = &refusal{http.StatusUnprocessableEntity, string(corrupt.Code), corrupt.Message}
	case isDigest:
		no = &refusal{http.StatusUnprocessableEntity, "bad-digest", digest.Error()}
	case isProof:
		no = &refusal{http.StatusUnprocessableEntity, "bad-digest", proof.Error()}
	case slices.ContainsFunc(unreadables, unreadable):
		no = &refusal{http.StatusUnprocessableEntity, "unreadable", err.Error()}
	case q.h.ctx.Err() != nil:
		no = &refusal{http.StatusServiceUnavailable, "closed", errClosed.Error()}
	default:
		q.h.log.Error("cannot be explored", "question", format.Escape(q.r.URL.Path), "archive", format.Escape(q.q.Get("a")), "error", err)
		no = &refusal{http.StatusInternalServerError, "unreadable", "cannot be read; the server's log has the reason"}
	}
	if no.status == http.StatusTooManyRequests {
		q.w.Header().Set("Retry-After", "5")
	}
	fail(q.w, no.status, no.code, no.what)
}

// fail sends an error as one line of JSON.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"error": map[string]string{"code": code, "message": format.Escape(strings.Join(strings.Fields(message), " "))}})
}

func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // an error means that the client is gone
}

func (q *question) json(v any) error {
	q.w.Header().Set("Content-Type", "application/json")
	writeJSON(q.w, v)
	return nil
}

func (q *question) ctx() context.Context { return q.r.Context() }

// busy waits for a slot for expensive work, which done releases. It also sets
// a time limit for the work.
func (q *question) busy() (done func()) {
	if q.err == nil {
		select {
		case q.h.work <- struct{}{}:
			ctx, cancel := context.WithTimeoutCause(q.ctx(), answerTime, errSlow)
			q.r = q.r.WithContext(ctx)
			return func() { cancel(); <-q.h.work }
		case <-q.ctx().Done():
			q.err = context.Cause(q.ctx())
		case <-time.After(20 * time.Second):
			q.err = busy("too many requests at once")
		}
	}
	return func() {}
}

// view returns the requested archive in the requested view, or nil after an
// error.
func (q *question) view() (v *view) {
	if q.err == nil && !q.q.Has("a") {
		q.err = bad("a: expected the name of an archive")
	}
	if view := q.q.Get("view"); q.err == nil && autopsy.Is(view) {
		v, q.err = q.use(q.q.Get("a"), view, nil)
		return v
	}
	if q.err == nil {
		v, q.err = q.use(q.q.Get("a"), "", nil)
	}
	if q.err == nil {
		q.w.Header().Set("Holdall-Archive", v.id) // a different one if it was replaced since
		v, q.err = q.inView(v, q.q.Get("view"))
	}
	return v
}

// path returns the requested name, which may be any bytes, as in archives.
func (q *question) path() string {
	if p := naming.Unescape(q.q.Get("path")); p != "" || q.q.Get("empty") != "" {
		return p
	}
	return "."
}

// number returns a requested number, between bounds.
func (q *question) number(key string, usual, least, most int64) int64 {
	s := q.q.Get(key)
	if s == "" || q.err != nil {
		return usual
	}
	return q.parse(key, s, least, most)
}

func (q *question) parse(key, s string, least, most int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if q.err == nil && (err != nil || n < least || n > most) {
		q.err = bad("%s: expected a number from %d to %d, found %q", key, least, most, cut(s, 40))
	}
	return n
}

func (q *question) word(key string, words ...string) string {
	s := cmp.Or(q.q.Get(key), words[0])
	if q.err == nil && !slices.Contains(words, s) {
		q.err = bad("%s: expected one of %s, found %q", key, strings.Join(words, ", "), cut(s, 40))
	}
	return s
}

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
