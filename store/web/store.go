// Package web is a store that reads objects from web servers with HTTP range requests. Programs
// that open archives by address only need to import store/all.
//
// A server only needs to support GET with a Range header. The package sends no HEAD requests,
// because presigned addresses are signed for a single method. In a browser, the server must also
// expose Content-Range to scripts of other origins, and should expose ETag
// (Access-Control-Expose-Headers).
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

// Options are options for a [Store]. Zero values mean the defaults.
type Options struct {
	// Client sends the requests; its redirect policy is respected too. The default client has
	// timeouts for everything except the body, which may take any time as long as it does not
	// stall.
	Client *http.Client

	// Header is added to each request to the host of the base address. It is not sent to hosts
	// that this one redirects to.
	Header http.Header

	// Tries is how often a request that returns no or almost no data is sent before its error is
	// returned; the default is 6. Only errors that may be temporary are retried. A server that refuses
	// connections before it has answered anything is not.
	Tries int

	// Log gets a line at level debug for each request. If it is nil, nothing is logged.
	Log *slog.Logger

	// Explain may return an error that explains an unsuccessful response by its body. If it is
	// nil or returns nil, and for errors that may be temporary, the error follows from the
	// status.
	Explain func(*http.Response) error

	// Sums may return the checksums of the object that are in a response. It must not read the
	// body.
	Sums func(*http.Response) []store.Sum

	// Headers may return what the server stores with the object, from the header of a response. A
	// Content-Encoding then only describes the stored bytes, which are read unchanged. If Headers
	// is nil, a response with a Content-Encoding is refused. Names that are not those of headers
	// are returned by [store.ObjectAbilities.Unkept].
	Headers func(http.Header) map[string]string

	// Keys means that names are keys of a bucket, byte for byte: they may begin with a slash, and
	// elements that are dots are escaped. The caller must ensure that a response is for the
	// requested object.
	Keys bool

	// Parallel is the number of idle connections to a host that are kept; the default is 16. It
	// has no effect if Client is set.
	Parallel int
}

const defaultParallel = 16

// A Store is the objects below an address. Their names are relative to it, and are not escaped.
type Store struct {
	base   *url.URL      // ends with a slash; without user information
	user   *url.Userinfo // sent only to the host of base
	header http.Header
	agent  string // the User-Agent, which is not secret
	client *http.Client
	tries  int
	log    *slog.Logger
	why    func(*http.Response) error
	sums   func(*http.Response) []store.Sum
	heads  func(http.Header) map[string]string
	jitter func(time.Duration) time.Duration
	keys   bool // Options.Keys

	// exact is the address given to At, byte for byte, because a signature in it may cover the
	// way in which it is escaped.
	exact     *url.URL
	exactName string

	// noSuffix is set when the server has answered other requests but not those for the last
	// bytes.
	noSuffix atomic.Bool

	heard atomic.Bool // a server has answered
	whole wholes
}

// Open returns the store and the object's name for an http:// or https:// address. It can be
// passed to [store.Register], and sends no request. Its requests accept [storekit.StoredType].
func Open(_ context.Context, address string) (store.Store, string, error) {
	st, name, err := At(address, Options{Header: http.Header{"Accept": {storekit.StoredType + ", */*"}}})
	if err != nil {
		return nil, "", err
	}
	return st, name, nil
}

// At is like [Open] with options. The store contains all objects beside the one at the address,
// whose name is the last element of the path. A query applies only to that object, and is not
// part of its name. A fragment as in https://host/#/NAME is where holdall's page of the archive
// beside it is, so the object is https://host/NAME.
func At(address string, o Options) (st *Store, name string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse quotes the part that it could not parse, which may be a
		// password.
		return nil, "", errors.New("malformed web address (not shown, since it may hold a password)")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, "", fmt.Errorf("%s:…: expected http://host/… or https://host/…: %w", u.Scheme, errors.ErrUnsupported)
	}
	path := u.EscapedPath()
	dir, last := path[:strings.LastIndex(path, "/")+1], path[strings.LastIndex(path, "/")+1:]
	if name, err = url.PathUnescape(last); err != nil {
		return nil, "", fmt.Errorf("%s: malformed address", redact(u))
	}
	base, exact := *u, *u
	base.Path, base.RawPath = strings.TrimSuffix(u.Path, name), dir
	base.RawQuery, base.ForceQuery = "", false
	if shown := shownIn(u.EscapedFragment()); shown != "" {
		name = shown
		base.Path, base.RawPath = cmp.Or(base.Path, "/"), cmp.Or(dir, "/")
		exact = *far.Below(&base, name)
		exact.RawQuery = u.RawQuery
	}
	exact.User, exact.Fragment, exact.RawFragment = nil, "", ""
	st = New(&base, o)
	st.exact, st.exactName = &exact, name
	return st, name, nil
}

// shownIn returns the archive that a page of holdall shows, by the fragment of its address.
func shownIn(fragment string) string {
	path, ok := strings.CutPrefix(fragment, "/")
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "/")
	name, err := url.PathUnescape(path)
	if !ok || err != nil || strings.Contains(name, "/") || far.CheckDots(name) != nil {
		return ""
	}
	return name
}

// New returns the store of the objects below base. A user and password in base are sent only to
// its own host. A query, such as a token for a container, is sent with the address of every
// object.
func New(base *url.URL, o Options) *Store {
	b := *base
	st := &Store{
		base:   &b,
		user:   base.User,
		header: o.Header.Clone(),
		agent:  cmp.Or(o.Header.Get("User-Agent"), "holdall"),
		tries:  cmp.Or(max(0, o.Tries), far.DefaultTries),
		log:    cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		why:    o.Explain,
		sums:   o.Sums,
		heads:  o.Headers,
		keys:   o.Keys,
		jitter: far.Jitter,
	}
	b.User, b.Fragment, b.RawFragment = nil, "", ""
	if !strings.HasSuffix(b.Path, "/") {
		b.Path, b.RawPath = b.Path+"/", b.EscapedPath()+"/"
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	} else {
		client.Transport = transport(cmp.Or(max(0, o.Parallel), defaultParallel))
	}
	client.CheckRedirect = st.checkRedirect(client.CheckRedirect)
	st.client = &client
	return st
}

// transports has one transport for each number of idle connections, so that the stores of a
// program share connections.
var transports sync.Map

// Transport returns the transport that is used if Options have no Client, for programs that wrap
// it.
func Transport() http.RoundTripper { return transport(defaultParallel) }

func transport(parallel int) *http.Transport {
	if t, ok := transports.Load(parallel); ok {
		return t.(*http.Transport)
	}
	// A clone of the default transport keeps what the platform needs: in a browser it uses fetch
	// if it has no dial function.
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	t.MaxIdleConnsPerHost = 4 * parallel // several stores may send so many requests each
	t.MaxIdleConns = max(100, 4*parallel)
	t.IdleConnTimeout = 90 * time.Second
	t.TLSHandshakeTimeout = 15 * time.Second
	t.ResponseHeaderTimeout = 45 * time.Second
	got, _ := transports.LoadOrStore(parallel, t)
	return got.(*http.Transport)
}

// Can returns the abilities of web servers: objects have addresses, and can be opened in the
// version of a listing.
func (st *Store) Can() store.Abilities {
	return store.Abilities{Address: st.Address, Identity: st.identity, OpenAs: st.OpenAs, OpenGrowing: st.OpenGrowing}
}

// Open returns the object called name. It sends no request.
func (st *Store) Open(_ context.Context, name string) (store.Object, error) {
	u, err := st.resolve(name)
	if err != nil {
		return nil, &store.Error{Op: "open", Name: fmt.Sprintf("%s %q", redact(st.base), name), Off: -1, Err: err}
	}
	return &object{st: st, name: name, url: u, ver: version{size: -1}}, nil
}

// OpenGrowing returns an object that programs only append to. Its contents are those at the first
// response, however much it grows. It sends no request.
func (st *Store) OpenGrowing(ctx context.Context, name string) (store.Object, error) {
	o, err := st.Open(ctx, name)
	if err == nil {
		o.(*object).ver.grows = true
	}
	return o, err
}

// OpenAs returns the version of an object that info describes. It sends no request. If
// info.Version is not an ETag, it is ignored.
func (st *Store) OpenAs(ctx context.Context, info store.Info) (store.Object, error) {
	o, err := st.Open(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	v := &o.(*object).ver
	v.size = info.Size
	if strings.HasPrefix(info.Version, `"`) {
		v.etag, v.answered = info.Version, true
	}
	return o, nil
}

func (st *Store) retrier() *far.Retrier {
	return &far.Retrier{Tries: st.tries, Jitter: st.jitter, New: !st.heard.Load()}
}

func (st *Store) resolve(name string) (*url.URL, error) {
	if st.base.Scheme != "http" && st.base.Scheme != "https" || st.base.Host == "" {
		return nil, fmt.Errorf("expected a store at http://host/ or https://host/: %w", errors.ErrUnsupported)
	}
	if st.exact != nil && name == st.exactName {
		return st.exact, nil
	}
	if name == "" || !st.keys {
		if err := far.CheckName(name); err != nil {
			return nil, err
		}
		// Clients, proxies and servers resolve these elements, which might lead out of the store.
		if err := far.CheckDots(name); err != nil {
			return nil, err
		}
	}
	return far.Below(st.base, name), nil
}

// Address returns the address of the object called name, without anything that may be secret.
func (st *Store) Address(name string) string {
	u, err := st.resolve(name)
	if err != nil {
		return ""
	}
	plain := *u
	plain.User, plain.RawQuery, plain.ForceQuery, plain.Fragment, plain.RawFragment = nil, "", false, "", ""
	return plain.String()
}

// identity returns the address with its query, but without credentials.
func (st *Store) identity(name string) string {
	u, err := st.resolve(name)
	if err != nil {
		return ""
	}
	plain := *u
	plain.User, plain.Fragment, plain.RawFragment = nil, "", ""
	return plain.String()
}

// redact returns u in a form that may be printed. A user name is removed too, because it may be a
// token without a password.
func redact(u *url.URL) string {
	c := *u
	c.User = nil
	return store.Redact(c.String())
}

// trusts reports whether the credentials of st may be sent to u: to the store's own host, or to
// the same host after a redirect from http to https.
func (st *Store) trusts(u *url.URL) bool {
	if !strings.EqualFold(u.Hostname(), st.base.Hostname()) {
		return false
	}
	own, other := port(st.base), port(u)
	return u.Scheme == st.base.Scheme && own == other ||
		st.base.Scheme == "http" && own == "80" && u.Scheme == "https" && other == "443"
}

func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
}

// authorize adds the headers that only the store's own host may get.
func (st *Store) authorize(h http.Header, u *url.URL) {
	if !st.trusts(u) {
		return
	}
	for k, v := range st.header {
		h[k] = slices.Clone(v)
	}
	if st.user != nil && h.Get("Authorization") == "" {
		password, _ := st.user.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(st.user.Username(), password)
	}
}

const maxRedirects = 10

var (
	errRedirects      = fmt.Errorf("more than %d redirects", maxRedirects)
	errRedirectScheme = errors.New("redirect to an address that is neither http nor https")
)

// checkRedirect returns the redirect policy. It does not let net/http decide which headers to
// send where. That would send credentials to subdomains too, and the address with its signed
// query, as Referer, to any host.
func (st *Store) checkRedirect(also func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errRedirects
		}
		if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
			return errRedirectScheme
		}
		kept := http.Header{}
		for _, k := range protocolHeaders {
			if v := via[0].Header.Values(k); len(v) > 0 {
				kept[k] = v
			}
		}
		req.Header = kept
		st.authorize(req.Header, req.URL)
		if also != nil {
			return also(req, via)
		}
		return nil
	}
}
