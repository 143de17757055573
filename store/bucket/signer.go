package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	aws "github.com/minio/minio-go/v7/pkg/signer"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

const (
	// maxRefusal limits how much of an error's body is read.
	maxRefusal = 64 << 10

	// maxListing limits how much of a response that is not an object is read. The longest
	// response is a listing: a thousand keys of a kilobyte, escaped, with their properties.
	maxListing = 16 << 20

	noContent = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of no bytes
)

// signer signs the requests of a store as they are sent. Both package web and the client that
// writes send their requests through it, so both use what it learns about the region.
type signer struct {
	next   http.RoundTripper
	where  place
	creds  *credentials.Credentials
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
		lent := lend(r)
		resp, err := s.next.RoundTrip(r)
		if err != nil {
			lent.back()
			return nil, err
		}
		if resp.StatusCode < 300 {
			s.heard.Store(true)
			lent.back()
			if req.URL.RawQuery != "" { // everything except objects themselves
				resp.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(resp.Body, maxListing), resp.Body}
			}
			return resp, nil
		}
		said := hear(resp)
		lent.back() // not earlier: a body that ends early ends the connection
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

// loan is the body of a request that is returned to the sender when the response arrives. A
// transport continues to read the body if the server responds before it has all of it. By then,
// the client that writes may start again with the same reader, or a buffer may be filled with the
// next part.
type loan struct {
	mu    sync.Mutex
	body  io.ReadCloser
	left  int64 // bytes left to read
	taken bool  // returned to the sender
}

// lend replaces the body of r by a loan, which it returns. It returns nil if r has no body.
func lend(r *http.Request) *loan {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	l := &loan{body: r.Body, left: r.ContentLength}
	r.Body = l
	return l
}

func (l *loan) back() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken = true
	}
}

func (l *loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.left == 0: // a transport checks for the end even after the response
		return 0, io.EOF
	case l.taken:
		return 0, errAnswered
	}
	n, err := l.body.Read(p)
	l.left -= int64(n)
	return n, err
}

func (l *loan) Close() error { return l.body.Close() }

var errAnswered = errors.New("the server has answered already")

// own reports whether req goes to the server of the bucket, not to one that this server redirects
// to.
func (s *signer) own(req *http.Request) bool {
	host := strings.ToLower(req.URL.Host)
	if s.where.amazon {
		return req.URL.Scheme == "https" && (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn"))
	}
	end := strings.ToLower(s.where.endpoint.Host)
	return req.URL.Scheme == s.where.endpoint.Scheme && (host == end || strings.HasSuffix(host, "."+end) && !s.where.pathStyle)
}

// matching is the context key of the conditions on which an object is removed.
type matching struct{}

// sign returns a copy of req for the servers of the region, with a signature.
func (s *signer) sign(req *http.Request, region string) (*http.Request, error) {
	r := req.Clone(req.Context())
	r.Header.Del("Authorization")
	if !s.own(req) {
		return r, nil
	}
	if conditions, ok := req.Context().Value(matching{}).(http.Header); ok && r.Method == http.MethodDelete {
		maps.Copy(r.Header, conditions)
	}
	if s.where.amazon {
		// Amazon has servers for each region. The client that writes adds a word for those that
		// use IPv6 too.
		bucket, found := "", false
		for _, server := range []string{s.where.endpoint.Host, strings.Replace(amazonHost(s.where.region), "s3.", "s3.dualstack.", 1)} {
			if bucket, found = strings.CutSuffix(r.URL.Host, server); found && !strings.HasSuffix(bucket, "s3.") {
				r.URL.Host = bucket + amazonHost(region)
				break
			}
		}
		r.Host = r.URL.Host
	}
	// The request is sent byte for byte as it is signed, except that dots are escaped.
	r.URL.RawPath = far.EscapeDots(s3utils.EncodePath(r.URL.Path))
	if s.where.google != nil {
		return r, s.where.google.sign(r, time.Now())
	}
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		r.Header.Set("X-Amz-Checksum-Mode", "ENABLED") // otherwise the server does not send checksums
	}
	v, err := s.keys(req.Context())
	if err != nil {
		return nil, err
	}
	if v.SignerType == credentials.SignatureAnonymous {
		return r, nil
	}
	if r.Header.Get("X-Amz-Content-Sha256") == "" {
		r.Header.Set("X-Amz-Content-Sha256", noContent)
	}
	return aws.SignV4(*r, v.AccessKeyID, v.SecretAccessKey, v.SessionToken, region), nil
}

func (s *signer) keys(ctx context.Context) (credentials.Value, error) {
	if err := ctx.Err(); err != nil {
		return credentials.Value{}, err
	}
	return s.creds.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
}

// refusal is a server's error. It does not contain the server's text, which may have any length
// and may repeat what it was sent.
type refusal struct {
	status       int
	code, region string
}

// hear reads a refusal and restores the body.
func hear(resp *http.Response) refusal {
	said := refusal{status: resp.StatusCode, region: resp.Header.Get("X-Amz-Bucket-Region")}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a part of it may be enough
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	var xmlError struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Region  string
	}
	if err := xml.Unmarshal(body, &xmlError); err == nil {
		said.code = strings.TrimSpace(xmlError.Code)
		if said.region == "" {
			said.region = strings.TrimSpace(xmlError.Region)
		}
	}
	if !isRegion(said.region) {
		said.region = ""
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
	if said.status == 0 {
		// This is the client's own text for what it could not parse.
		return fmt.Errorf("invalid response from the server (%s)", what)
	}
	return fmt.Errorf("%d %s", said.status, what)
}

func (s *signer) anonymous() bool {
	if g := s.where.google; g != nil {
		return g.anonymous()
	}
	v, err := s.keys(context.Background())
	return err == nil && v.SignerType == credentials.SignatureAnonymous
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

// meaning returns a printable error for an error of the client that writes and lists.
func (st *Store) meaning(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		said := refusal{answer.StatusCode, answer.Code, answer.Region}
		if !isRegion(said.region) {
			said.region = ""
		}
		if said.busy() {
			what := "server busy"
			if far.IsWord(said.code) {
				what = said.code
			}
			return &far.Passing{Err: fmt.Errorf("%d %s", said.status, what)}
		}
		return st.signed.meaning(said)
	}
	return unaddressed(err)
}

// unaddressed removes the address from a transport's error. The remaining error may be temporary.
func unaddressed(err error) error {
	_, sent := errors.AsType[*url.Error](err)
	if err = far.Dropped(far.Unaddressed(err)); sent && !errors.Is(err, fs.ErrPermission) {
		return &far.Passing{Err: err}
	}
	return err
}

// fail wraps err as that of a request for the object called name.
func (st *Store) fail(op, name string, err error) error {
	return far.Fail(op, st.Address(name), -1, 0, err)
}
