package serve

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A guarded is a response that counts the sent bytes, and requires the client
// to take each piece within a time limit. A slow client is served as long as it
// continues to read.
type guarded struct {
	http.ResponseWriter
	conn  *joined // may be nil
	ctl   http.ResponseController
	stall time.Duration
	until time.Time
	code  int
	sent  int64
}

// piece is how many bytes the client must take within the time limit.
// handedPiece is the same for a copy by the system.
const (
	piece       = 256 << 10
	handedPiece = 1 << 20
)

func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }

func (g *guarded) WriteHeader(code int) {
	if g.code == 0 && code >= 200 {
		g.code = code
	}
	if code == http.StatusServiceUnavailable {
		g.Header().Set("Retry-After", "1")
	}
	g.extend()
	g.ResponseWriter.WriteHeader(code)
}

func (g *guarded) Write(p []byte) (n int, err error) {
	g.code = cmp.Or(g.code, http.StatusOK)
	for {
		g.extend()
		g.conn.hold()
		k, err := g.ResponseWriter.Write(p[:min(len(p), piece)])
		if g.conn.held() { // what follows is in the buffer of net/http
			err = cmp.Or(err, g.ctl.Flush(), g.conn.send())
		}
		n += k
		g.sent += int64(k)
		if p = p[k:]; err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// ReadFrom lets the system copy from a file, one piece at a time.
func (g *guarded) ReadFrom(r io.Reader) (n int64, err error) {
	g.code = cmp.Or(g.code, http.StatusOK)
	l, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{g}, r)
	}
	for {
		g.extend()
		k, err := io.CopyN(g.ResponseWriter, l.R, min(l.N, handedPiece))
		n, l.N, g.sent = n+k, l.N-k, g.sent+k
		if err == io.EOF {
			err = nil
		}
		if err != nil || l.N <= 0 || k == 0 {
			return n, err
		}
	}
}

// extend moves the deadline. If it was just set, it stays, because setting it
// takes a lock.
func (g *guarded) extend() {
	until := &g.until
	if g.conn != nil {
		until = &g.conn.until
	}
	if now := time.Now(); until.Sub(now) < g.stall*3/4 {
		*until = now.Add(g.stall)
		_ = g.ctl.SetWriteDeadline(*until) // some connections have no deadline
	}
}

// A door admits requests with a token.
type door struct {
	token  [sha256.Size]byte
	name   string
	cookie string
	secure bool
}

// cookieName is the prefix of cookie names. Browsers share cookies between all
// ports of a machine, so each token has a name of its own.
const cookieName = "holdall-serve"

func newDoor(token string, secure bool) *door {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("the cookie of holdall serve"))
	sum := mac.Sum(nil)
	return &door{token: sha256.Sum256([]byte(token)), name: cookieName + "-" + hex.EncodeToString(sum[len(sum)-4:]), cookie: hex.EncodeToString(sum[:len(sum)-4]), secure: secure}
}

// opensTo compares a given token in constant time.
func (d *door) opensTo(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return hmac.Equal(sum[:], d.token[:])
}

// admits reports whether a request may go on. Otherwise it responds to it. A
// token in the query becomes a cookie, so that no link and no history contains
// it.
func (d *door) admits(w http.ResponseWriter, r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && d.opensTo(strings.TrimSpace(token)) {
		return true
	}
	if _, token, ok := r.BasicAuth(); ok && d.opensTo(token) { // clients of WebDAV know passwords
		return true
	}
	if strings.Contains(r.URL.RawQuery, "token=") {
		q := r.URL.Query()
		if q.Has("token") && d.opensTo(q.Get("token")) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			if wantsStored(r) { // such a client keeps no cookies
				return true
			}
			http.SetCookie(w, &http.Cookie{Name: d.name, Value: d.cookie, Path: "/", HttpOnly: true, Secure: d.secure, SameSite: http.SameSiteStrictMode})
			q.Del("token")
			to := reference(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
			if rest := q.Encode(); rest != "" {
				to += "?" + rest
			}
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			return false
		}
	}
	for _, c := range r.CookiesNamed(d.name) {
		if hmac.Equal([]byte(c.Value), []byte(d.cookie)) {
			return true
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="holdall"`)
	if r.Method == propfind || r.Method == http.MethodOptions { // a browser would ask for a password
		w.Header().Add("WWW-Authenticate", `Basic realm="holdall"`)
	}
	http.Error(w, "401: token required: send Authorization: Bearer TOKEN, or ?token=TOKEN once", http.StatusUnauthorized)
	return false
}

// A gate limits the number of concurrent requests.
type gate chan struct{}

// enter reports whether a request may go on.
func (g gate) enter(m *meter) bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		m.refused.Add(1)
		return false
	}
}

func (g gate) leave() { <-g }

// allows returns the value of Access-Control-Allow-Origin for a page of that
// origin, or "" for none.
func allows(cors []string, origin string) string {
	for _, o := range cors {
		if o == "*" {
			return o
		}
		if origin != "" && strings.EqualFold(o, origin) {
			return origin
		}
	}
	return ""
}

var errOrigin = errors.New("expected an origin such as https://example.org, or *")

func CheckOrigin(o string) error {
	if o == "*" {
		return nil
	}
	u, err := url.Parse(o)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(o) {
		return errOrigin
	}
	return nil
}
