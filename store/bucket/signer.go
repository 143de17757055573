package bucket

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/internal/base/sigv4"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// maxRefusal limits how much of an error's body is read.
const maxRefusal = 64 << 10

// signer signs the requests of a store as they are sent. The reads of
// package web and all other requests go through it, so both use what it learns about the region.
type signer struct {
	next   http.RoundTripper
	where  place
	creds  *lease[keys] // nil for Google
	keys   sigv4.Keys   // derived from the credentials
	region atomic.Pointer[string]
	heard  atomic.Bool                   // the server has accepted a signature for this region
	skew   atomic.Pointer[time.Duration] // of the server's clock, set after it refused ours
}

// RoundTrip sends req, and once more if the server names another region.
func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	for first := true; ; first = false {
		region := *s.region.Load()
		r, err := s.sign(req, region)
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
		resp, err := s.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 300 {
			s.heard.Store(true)
			return resp, nil
		}
		said := hear(resp)
		if g := s.where.google; resp.StatusCode == http.StatusUnauthorized && g != nil && g.tokens != nil {
			if g.tokens.forget(r); first && (req.Body == nil || req.Body == http.NoBody) {
				_ = resp.Body.Close()
				continue
			}
		}
		if said.code == "RequestTimeTooSkewed" {
			if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
				skew := time.Until(at).Round(time.Second)
				s.skew.Store(&skew)
			}
		}
		if said.region == "" || said.region == region || !s.own(req) {
			return resp, nil
		}
		s.region.Store(&said.region)
		if !first || req.Body != nil && req.Body != http.NoBody {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
}

// own reports whether req goes to the server of the bucket, not to one that this server redirects
// to.
func (s *signer) own(req *http.Request) bool {
	host, end := strings.ToLower(req.URL.Host), strings.ToLower(s.where.endpoint.Host)
	if s.where.amazon {
		end = amazonDomain(s.where.region)
	}
	return req.URL.Scheme == s.where.endpoint.Scheme && (host == end || strings.HasSuffix(host, "."+end) && (s.where.amazon || !s.where.pathStyle))
}

// sign returns a copy of req for the servers of the region, with a signature.
func (s *signer) sign(req *http.Request, region string) (*http.Request, error) {
	r, u := req.WithContext(req.Context()), *req.URL
	r.URL, r.Header = &u, make(http.Header, len(req.Header)+6)
	maps.Copy(r.Header, req.Header)
	delete(r.Header, "Authorization")
	if !s.own(req) {
		return r, nil
	}
	if s.where.amazon {
		// Amazon has servers for each region.
		if bucket, found := strings.CutSuffix(r.URL.Host, s.where.endpoint.Host); found {
			r.URL.Host = bucket + amazonHost(region)
		}
		r.Host = r.URL.Host
	}
	// The request is sent byte for byte as it is signed, except that dots are escaped.
	if r.URL.RawPath = far.EscapeDots(sigv4.Path(r.URL.Path)); r.URL.RawPath == r.URL.Path {
		r.URL.RawPath = "" // nothing is escaped
	}
	if r.URL.RawQuery != "" {
		r.URL.RawQuery = sigv4.Query(r.URL.Query())
	}
	if s.where.google != nil {
		return r, s.where.google.sign(s, r, time.Now())
	}
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		r.Header["X-Amz-Checksum-Mode"] = []string{"ENABLED"} // otherwise the server does not send checksums
	}
	k, err := s.creds.get(req.Context())
	if err != nil || k == (keys{}) {
		return r, err
	}
	if k.token != "" {
		r.Header.Set("X-Amz-Security-Token", k.token)
	}
	amazonWords.sign(r, &s.keys, k, region, time.Now())
	return r, nil
}

// words are those of a service in signatures.
type words struct{ algorithm, headers, date, payload, service, end, secret string }

var (
	amazonWords = words{sigv4.Algorithm, "X-Amz-", "X-Amz-Date", "X-Amz-Content-Sha256", "s3", "aws4_request", "AWS4"}
	googleWords = words{"GOOG4-HMAC-SHA256", "X-Goog-", "X-Goog-Date", "X-Goog-Content-Sha256", "storage", "goog4_request", "GOOG4"}
)

// sign signs a request with keys, and all headers that change what it means. Servers in between
// change others, such as Accept-Encoding.
func (w words) sign(r *http.Request, derived *sigv4.Keys, k keys, region string, now time.Time) {
	at := now.UTC().Format(sigv4.Time)
	r.Header[w.date] = []string{at}
	if r.Header[w.payload] == nil {
		r.Header[w.payload] = []string{sigv4.Empty}
	}
	fields := append(make([]sigv4.Field, 0, 12), sigv4.Field{Name: "host", Value: r.URL.Host})
	for name, values := range r.Header {
		if strings.HasPrefix(name, w.headers) || strings.HasPrefix(name, "If-") || name == "Range" || name == "Content-Md5" || name == "Content-Type" {
			fields = append(fields, sigv4.Field{Name: strings.ToLower(name), Value: strings.Join(values, ",")})
		}
	}
	slices.SortFunc(fields, func(a, b sigv4.Field) int { return strings.Compare(a.Name, b.Name) })
	signed := sigv4.Names(fields)
	scope := at[:8] + "/" + region + "/" + w.service + "/" + w.end
	text := sigv4.Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Fields: fields, Payload: r.Header[w.payload][0]}.Text(w.algorithm, at, scope)
	mac := hex.EncodeToString(sigv4.MAC(derived.Of(w.secret+k.secret, scope), text))
	r.Header["Authorization"] = []string{w.algorithm + " Credential=" + k.id + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + mac}
}

// refusal is a server's error. It does not contain the server's text, which may have any length
// and may repeat what it was sent.
type refusal struct {
	status       int
	code, region string
	why          error // what it means
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

// unknown reports whether the server does not know requests of this kind.
func (r *refusal) unknown() bool {
	return r.status == http.StatusNotImplemented || r.status == http.StatusMethodNotAllowed
}

// refused returns the error for a refusal, which may be temporary.
func (s *signer) refused(said refusal, h http.Header) error {
	if said.busy() {
		what := "server busy"
		if far.IsWord(said.code) {
			what = said.code
		}
		return &far.Passing{Err: fmt.Errorf("%d %s", said.status, what), After: far.RetryAfter(h)}
	}
	said.why = s.meaning(said)
	return &said
}

// hear reads a refusal and restores the body.
func hear(resp *http.Response) refusal {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a part of it may be enough
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	said := parseRefusal(body)
	said.status = resp.StatusCode
	if region := resp.Header.Get("X-Amz-Bucket-Region"); isRegion(region) {
		said.region = region
	}
	return said
}

// parseRefusal returns what a document says of a refusal, if it is one.
func parseRefusal(doc []byte) (said refusal) {
	var is struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Region  string
	}
	if decode(doc, &is) != nil {
		return said
	}
	said.code = strings.TrimSpace(is.Code)
	if region := strings.TrimSpace(is.Region); isRegion(region) {
		said.region = region
	}
	return said
}

// explain returns the error for a response to package web, or nil if its status is enough.
func (s *signer) explain(resp *http.Response) error {
	said := hear(resp)
	if said.code == "" {
		return nil
	}
	return s.meaning(said)
}

// meaning returns the error for a refusal.
func (s *signer) meaning(said refusal) error {
	switch said.code {
	case "NoSuchBucket":
		return fmt.Errorf("no such bucket: %w", fs.ErrNotExist)
	case "NoSuchKey", "NotFound":
		return fmt.Errorf("no such key: %w", fs.ErrNotExist)
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the second is versitygw's
		return fmt.Errorf("unknown access key: %w", fs.ErrPermission)
	case "SignatureDoesNotMatch":
		return fmt.Errorf("signature refused; the secret key does not match the access key: %w", fs.ErrPermission)
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return fmt.Errorf("the session token has expired: %w", fs.ErrPermission)
	case "InvalidToken":
		return fmt.Errorf("the session token is not valid: %w", fs.ErrPermission)
	case "RequestTimeTooSkewed":
		by := ""
		if skew := s.skew.Load(); skew != nil {
			by = fmt.Sprintf(" by %v", skew.Abs())
		}
		return fmt.Errorf("the local clock differs from the server's%s, so it refuses signatures: %w", by, fs.ErrPermission)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidRegion", "IllegalLocationConstraintException":
		region := said.region
		if region == "" {
			region = "another region (the server does not name it)"
		}
		return fmt.Errorf("the bucket is in %s, but was requested in %s", region, *s.region.Load())
	case "NoSuchUpload":
		return errNoUpload
	case "PreconditionFailed":
		return store.ErrChanged
	}
	what := "refused"
	if far.IsWord(said.code) {
		what = said.code
	}
	switch {
	case said.status == http.StatusForbidden || said.status == http.StatusUnauthorized || said.code == "AccessDenied":
		if s.anonymous() {
			return fmt.Errorf("%s; requested without credentials: %w", what, fs.ErrPermission)
		}
		return fmt.Errorf("%s: %w", what, fs.ErrPermission)
	case said.status == http.StatusNotFound:
		return fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	}
	return fmt.Errorf("%d %s", said.status, what)
}

func (s *signer) anonymous() bool {
	if g := s.where.google; g != nil {
		return g.anonymous()
	}
	k, err := s.creds.get(context.Background())
	return err == nil && k == keys{}
}

// errNoUpload means that the server does not have an upload that was begun.
var errNoUpload = errors.New("the upload no longer exists on the server")

// busy reports whether a refusal may be temporary.
func (r refusal) busy() bool {
	switch r.code {
	case "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded":
		return true
	}
	return r.status == http.StatusTooManyRequests || r.status >= 500 && r.status != http.StatusNotImplemented
}

// unaddressed removes the address from a transport's error. The remaining error may be temporary.
func unaddressed(err error) error {
	if err = far.Unaddressed(err); far.Hopeless(err) {
		return err
	}
	return &far.Passing{Err: far.Dropped(err)}
}

// fail wraps err as that of a request for the object called name.
func (st *Store) fail(op, name string, err error) error {
	return far.Fail(op, st.Address(name), -1, 0, err)
}
