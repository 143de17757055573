package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

// policy lets the page load what is served here, and nothing else: no script that is not
// ours runs, whatever an archive's names and contents are.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A question is what an answer is made of.
type question struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request
	q url.Values

	asked context.Context // of the request itself, without limits of ours
	about *shown          // held until it is answered
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
		"GET /api/map":            (*question).byteMap,
		"GET /api/map/at":         (*question).mapAt,
		"GET /api/map/of":         (*question).mapOf,
		"GET /api/treemap":        (*question).treemap,
		"GET /api/array":          (*question).array,
		"GET /api/array/data":     (*question).arrayData,
		"GET /api/arrays":         (*question).arrays,
		"GET /api/node":           (*question).node,
		"GET /api/history":        (*question).history,
		"POST /api/verify":        (*question).startVerify,
		"POST /api/verify/cancel": (*question).cancelVerify,
		"GET /api/verify":         (*question).verifyEvents,
	} {
		h.mux.HandleFunc(path, h.answer(answer))
	}
}

// ServeHTTP shows the page and answers what it asks.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", policy)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(r.URL.Path, "/api/") {
		if _, pattern := h.mux.Handler(r); pattern == "" {
			fail(w, http.StatusNotFound, "not-found", "there is nothing to ask for at "+format.Escape(r.URL.Path))
			return
		}
	}
	h.mux.ServeHTTP(w, r)
}

func page(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, ui, "ui/index.html") }

func part(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	switch {
	case strings.HasSuffix(name, ".js"): // the system may call them something else
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	case strings.HasSuffix(name, ".html"):
		http.NotFound(w, r)
		return
	}
	http.ServeFileFS(w, r, ui, "ui/"+name)
}

// A badQuestion is the asker's mistake.
type badQuestion struct{ what string }

func (e *badQuestion) Error() string { return e.what }

func bad(msg string, args ...any) error { return &badQuestion{fmt.Sprintf(msg, args...)} }

// A busyError means that too much is under way.
type busyError struct{ what string }

func (e *busyError) Error() string { return e.what }

// answer makes a handler of what answers a question. Pages of other sites get none: a
// browser says which site asks.
func (h *Handler) answer(f func(*question) error) http.HandlerFunc {
	origin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" || origin.Check(r) != nil {
			fail(w, http.StatusForbidden, "forbidden", "pages of other sites get no answers")
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
			if q.about != nil {
				h.letGo(q.about)
			}
		}()
		if err := f(q); err != nil {
			if q.about != nil {
				h.changed(q.about, err)
			}
			q.fail(err)
		}
	}
}

// fail answers that something went wrong. Errors may name paths of this machine: only
// those that are about the archive are told.
func (q *question) fail(err error) {
	if q.asked.Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits for it
	}
	corrupt, isCorrupt := errors.AsType[*format.CorruptError](err)
	digest, isDigest := errors.AsType[*holdall.DigestError](err)
	proof, isProof := errors.AsType[*holdall.ProofError](err)
	wrong, isBad := errors.AsType[*badQuestion](err)
	busy, isBusy := errors.AsType[*busyError](err)
	views, isView := errors.AsType[*holdall.ViewError](err)
	switch {
	case isBad:
		fail(q.w, http.StatusBadRequest, "usage", wrong.what)
	case isBusy:
		q.w.Header().Set("Retry-After", "5")
		fail(q.w, http.StatusTooManyRequests, "busy", busy.what)
	case errors.Is(err, fs.ErrNotExist):
		fail(q.w, http.StatusNotFound, "not-found", "there is nothing of this name")
	case isView:
		fail(q.w, http.StatusNotFound, "not-found", views.Error())
	case errors.Is(err, syscall.ENOTDIR):
		fail(q.w, http.StatusBadRequest, "not-a-folder", "it is not a folder")
	case errors.Is(err, errSlow):
		fail(q.w, http.StatusGatewayTimeout, "slow", errSlow.Error())
	case errors.Is(err, store.ErrChanged):
		fail(q.w, http.StatusConflict, "changed", "the archive was replaced or changed while it was read")
	case isCorrupt:
		fail(q.w, http.StatusUnprocessableEntity, string(corrupt.Code), corrupt.Message)
	case isDigest:
		fail(q.w, http.StatusUnprocessableEntity, "bad-digest", digest.Error())
	case isProof:
		fail(q.w, http.StatusUnprocessableEntity, "bad-digest", proof.Error())
	case errors.Is(err, zarr.ErrCorrupt), errors.Is(err, zarr.ErrGroup), errors.Is(err, zarr.ErrLimit), errors.Is(err, errors.ErrUnsupported):
		fail(q.w, http.StatusUnprocessableEntity, "unreadable", err.Error())
	case q.h.ctx.Err() != nil:
		fail(q.w, http.StatusServiceUnavailable, "closed", errClosed.Error())
	default:
		q.h.log.Error("cannot be explored", "question", format.Escape(q.r.URL.Path), "archive", format.Escape(q.q.Get("a")), "error", err)
		fail(q.w, http.StatusInternalServerError, "unreadable", "it cannot be read; the server's log says why")
	}
}

var errSlow = errors.New("it takes too long")

// fail answers in one line of JSON.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"error": map[string]string{"code": code, "message": format.Escape(strings.Join(strings.Fields(message), " "))}})
}

func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // who is gone gets nothing
}

func (q *question) json(v any) error {
	q.w.Header().Set("Content-Type", "application/json")
	writeJSON(q.w, v)
	return nil
}

func (q *question) ctx() context.Context { return q.r.Context() }

// busy keeps a place among those that work, for a while at most. It is given back by done.
func (q *question) busy() (done func(), err error) {
	select {
	case q.h.work <- struct{}{}:
	case <-q.ctx().Done():
		return nil, context.Cause(q.ctx())
	case <-time.After(20 * time.Second):
		return nil, &busyError{"too much is asked at once"}
	}
	ctx, cancel := context.WithTimeoutCause(q.ctx(), answerTime, errSlow)
	q.r = q.r.WithContext(ctx)
	return func() { cancel(); <-q.h.work }, nil
}

// view is the archive that is asked about, in the view that is.
func (q *question) view() (*view, error) {
	if !q.q.Has("a") {
		return nil, bad("a: expected the name of an archive")
	}
	if q.about == nil {
		s, err := q.h.take(q.ctx(), q.q.Get("a"))
		if s != nil {
			q.about = s
		}
		if err != nil {
			return nil, err
		}
		q.w.Header().Set("Holdall-Archive", s.id) // another one if it was replaced since
	}
	return q.h.view(q.ctx(), q.about, q.q.Get("view"))
}

// path is the name that is asked about: as archives have it, any bytes.
func (q *question) path() string {
	if p := format.Unescape(q.q.Get("path")); p != "" || q.q.Get("empty") != "" {
		return p
	}
	return "."
}

// number is a number that is asked for, between bounds.
func (q *question) number(key string, usual, least, most int64) (int64, error) {
	s := q.q.Get(key)
	if s == "" {
		return usual, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, bad("%s: expected a number from %d to %d, found %q", key, least, most, cut(s, 40))
	}
	return n, nil
}

// word is one of the words that are possible; the first is the usual one.
func (q *question) word(key string, words ...string) (string, error) {
	s := q.q.Get(key)
	if s == "" {
		return words[0], nil
	}
	for _, w := range words {
		if s == w {
			return w, nil
		}
	}
	return "", bad("%s: expected one of %s, found %q", key, strings.Join(words, ", "), cut(s, 40))
}

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
