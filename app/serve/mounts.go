package serve

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// A Mount is a handler and the one path element that it lies below.
type Mount struct {
	Name    string
	Handler http.Handler
}

// Mounts shows several handlers, each below its name, and lists the names. Of
// the options only CORS counts.
func Mounts(list []Mount, o Options) http.Handler {
	m := &mounts{list: list, cors: o.CORS, byName: map[string]http.Handler{}}
	for _, x := range list {
		m.byName[x.Name] = x.Handler
	}
	return m
}

type mounts struct {
	list   []Mount
	byName map[string]http.Handler
	cors   bool
}

func (m *mounts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, below, slash := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if h := m.byName[name]; h != nil && slash {
		inner := r.Clone(r.Context())
		inner.URL = &url.URL{Path: "/" + below, RawQuery: r.URL.RawQuery}
		h.ServeHTTP(w, inner)
		return
	}
	if !begin(w, r, m.cors) {
		return
	}
	switch {
	case m.byName[name] != nil:
		redirectToDir(w, r)
	case name != "" || slash:
		http.Error(w, "404: there is no archive of this name", http.StatusNotFound)
	default:
		l := listingFor(w, r)
		l.title("", "")
		for _, x := range m.list {
			l.entry(x.Name, holdall.Entry{Name: x.Name, Kind: format.Dir})
		}
		l.end()
	}
}

// LocalOnly refuses requests that call this machine by another name than its
// own to itself. A page of another site, whose name its owner lets lead here,
// could otherwise read what is served to this machine only.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, "403: this is served as localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether hostport is this machine to itself, whatever the port.
func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
