package serve

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/docs"
	"github.com/holdall/holdall/format"
)

type SiteOptions struct {
	// Page handles requests for /, /ui/ and /api/. If it is nil, / lists the
	// archives.
	Page http.Handler
	// CORS are the origins whose pages may read what is served; "*" means all.
	CORS []string
	// Token, if not empty, is required in requests.
	Token string
	// TLS reports that the connection is encrypted, so that cookies may be
	// restricted to that.
	TLS bool
	// MaxRequests is how many requests are handled at a time; 0 means 512. Clients
	// of further ones are told to retry later.
	MaxRequests int
	// Stall is how long a client may take nothing of a response; 0 means a minute.
	Stall time.Duration
	// Log receives errors of the server; nil means slog.Default().
	Log *slog.Logger
	// LogRequests logs every request.
	LogRequests bool
	// Version is the program's version, for the metrics.
	Version string
}

// A Site is a server of archives:
//
//	/f/ARCHIVE/PATH    a file, or the list of a folder, also by WebDAV
//	/z/ARCHIVE/KEY     the same in the view that Zarr clients read
//	/z3/ARCHIVE/KEY    the same in the view of version 3 of Zarr
//	/zip/ARCHIVE/DIR/  a folder as a zip
//	/raw/ARCHIVE       an archive as it is stored
//	/metrics           for Prometheus
//	/healthz           a check that the server responds
//	/openapi.yaml      a description of all this, for programs
type Site struct {
	set   *Set
	o     SiteOptions
	door  *door // nil admits everyone
	gate  gate
	meter meter
}

func NewSite(set *Set, o SiteOptions) *Site {
	o.Log, o.Stall = cmp.Or(o.Log, slog.Default()), cmp.Or(o.Stall, time.Minute)
	s := &Site{set: set, o: o, gate: make(gate, cmp.Or(o.MaxRequests, 512))}
	if o.Token != "" {
		s.door = newDoor(o.Token, o.TLS)
	}
	return s
}

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch route {
	case "f", "z", "z3", "zip", "raw", "metrics", "healthz", "openapi.yaml", "api", "ui":
	case "":
		if route = "page"; len(r.URL.Path) > 1 {
			route = "other" // "//"
		}
	default:
		route = "other"
	}
	s.answer(w, r, route, func(w http.ResponseWriter, r *http.Request) {
		if route == "healthz" {
			if begin(w, r, s.o.CORS, false) {
				w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				w.Write([]byte("ok\n"))
			}
			return
		}
		// A browser sends this request before the actual one, without a token.
		if r.Method == http.MethodOptions && len(s.o.CORS) > 0 && (!isDAV(r, route) || r.Header.Get("Origin") != "") {
			begin(w, r, s.o.CORS, false)
			return
		}
		if s.door != nil && !s.door.admits(w, r) {
			return
		}
		if !s.gate.enter(&s.meter) {
			http.Error(w, "503: too many requests at once; try again", http.StatusServiceUnavailable)
			return
		}
		defer s.gate.leave()
		s.route(w, r, route, rest)
	})
}

// answer handles a request with the limits and metrics of the site.
func (s *Site) answer(w http.ResponseWriter, r *http.Request, route string, do http.HandlerFunc) {
	start := time.Now()
	s.meter.inFlight.Add(1)
	g := &guarded{ResponseWriter: w, conn: joinedOf(r), ctl: *http.NewResponseController(w), stall: s.o.Stall}
	done := false
	defer func() {
		s.meter.inFlight.Add(-1)
		took := time.Since(start)
		if done && g.code == 0 {
			g.code = http.StatusOK
		}
		s.meter.count(route, g.code, g.sent, took)
		if s.o.LogRequests {
			s.o.Log.Info("request", "method", r.Method, "path", format.Escape(r.URL.Path), "range", r.Header.Get("Range"), "code", g.code, "bytes", g.sent,
				"took", took.Round(time.Microsecond), "whole", done, "from", r.RemoteAddr)
		}
	}()
	secure(g.Header(), allows(s.o.CORS, r.Header.Get("Origin")) != "")
	if hasBody(r) && !isDAV(r, route) { // no other request here has one, and reading it would mean waiting for it
		g.Header().Set("Connection", "close")
	}
	if hasBody(r) && route != "s3" && !isDAV(r, route) {
		http.Error(g, "400: expected a request without a body", http.StatusBadRequest)
	} else {
		do(g, r)
	}
	done = true
}

func hasBody(r *http.Request) bool {
	return r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody && r.Method != http.MethodOptions
}

func (s *Site) route(w http.ResponseWriter, r *http.Request, route, rest string) {
	stored := s.storedAt(r, route, rest)
	if isDAV(r, route) {
		if !dav(w, r) {
			return
		}
	} else if (route == "page" && stored == "" || route == "ui" || route == "api") && s.o.Page != nil {
		s.o.Page.ServeHTTP(w, r)
		return
	} else if !begin(w, r, s.o.CORS, false) {
		return
	}
	if stored != "" && s.raw(w, r, route, stored) {
		return
	}
	switch {
	case route == "page" || rest == "" && (route == "f" || route == "z" || route == "z3") && strings.HasSuffix(r.URL.Path, "/"):
		s.list(w, r, route)
	case rest == "" && (route == "f" || route == "z" || route == "z3") && !strings.HasSuffix(r.URL.Path, "/"):
		redirectToDir(w, r)
	case route == "f":
		s.archive(w, r, rest, "", (*handler).serve)
	case route == "z":
		s.archive(w, r, rest, zarrView, (*handler).serve)
	case route == "z3":
		s.archive(w, r, rest, zarr3View, (*handler).serve)
	case route == "zip" && rest != "":
		s.archive(w, r, rest, "", (*handler).zip)
	case route == "metrics" && rest == "":
		s.meter.write(w, s.set, s.o.Version)
	case route == "openapi.yaml" && rest == "":
		w.Header().Set("Content-Type", "application/yaml")
		w.Write(docs.OpenAPI)
	default:
		http.Error(w, "404: not found; archives are below /f/", http.StatusNotFound)
	}
}

// archive handles a request for something in an archive.
func (s *Site) archive(w http.ResponseWriter, r *http.Request, rest, view string, do func(*handler, http.ResponseWriter, *http.Request)) {
	name, below, slash := strings.Cut(rest, "/")
	h, code, text := s.open(r, name, view)
	if h == nil {
		http.Error(w, text, code)
		return
	}
	below = strings.TrimLeft(below, "/") // fsspec requests ".../NAME//" if it was given ".../NAME/"
	h = s.other(r, h, below)
	defer h.a.Release()
	if !slash && (isBrowser(r) || strings.HasPrefix(r.URL.Path, "/zip/")) {
		redirectToDir(w, r)
		return
	}
	if !slash {
		h.list(w, r, holdall.Entry{Name: ".", Kind: format.Dir}, name)
		return
	}
	inner := *r
	inner.URL = &url.URL{Path: "/" + below, RawQuery: r.URL.RawQuery}
	do(h, w, &inner)
}

// open returns a handler for an archive, which must be released. If the
// archive cannot be opened, it returns the status and an explanation without
// names of this machine. The log has the details.
func (s *Site) open(r *http.Request, name, view string) (h *handler, code int, text string) {
	a, err := s.set.Use(r.Context(), name, view)
	if err == nil {
		return &handler{a: a, log: s.o.Log, guarded: s.door != nil}, 0, ""
	}
	unlessGone(r)
	if _, ok := errors.AsType[*holdall.ViewError](err); ok {
		return nil, http.StatusNotFound, "404: the archive has no such view"
	}
	if errors.Is(err, ErrNoArchive) {
		return nil, http.StatusNotFound, "404: no archive with this name"
	}
	s.o.Log.Error("cannot be served", "archive", name, "error", err)
	code = statusOf(err)
	return nil, code, strconv.Itoa(code) + ": the archive cannot be opened: " + outwardly(err)
}

func outwardly(err error) string {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return format.Escape(c.Message)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it no longer exists"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, format.ErrUnknown):
		return format.ErrUnknown.Error()
	}
	return "the server's log has the reason"
}

// archives returns the archives that can be listed, and whether there were
// errors.
func (s *Site) archives(r *http.Request) ([]Listed, bool) {
	all, err := s.set.List(r.Context())
	if err != nil {
		unlessGone(r)
		s.o.Log.Error("cannot be listed", "error", err)
	}
	return all, err == nil || len(all) > 0
}

func (s *Site) list(w http.ResponseWriter, r *http.Request, route string) {
	p, ok := askedPage(w, r)
	if !ok {
		return
	}
	p.limit = 0 // there are few archives
	all, ok := s.archives(r)
	if !ok {
		http.Error(w, "500: cannot list the archives; the server's log has the reason", http.StatusInternalServerError)
		return
	}
	l := p.listing(w, r)
	in := ""
	if route == "page" {
		in = "f/"
	}
	l.title("", "")
	if route == "page" && r.Method == propfind { // its children lie directly below it
		all = nil
		l.entry("f", "f", holdall.Entry{Kind: format.Dir})
	}
	for _, x := range all {
		e := holdall.Entry{Name: x.Name, Kind: format.Dir, ModTime: x.ModTime}
		if x.Err != nil {
			e.Fault = &format.Problem{Message: outwardly(x.Err)}
		}
		l.entry(x.Name, in+x.Name, e)
	}
	l.end("")
}
