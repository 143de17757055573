package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// maxRefusal is how much of an error's body is read.
	maxRefusal = 64 << 10

	// maxListing is how much is read of an answer that is no object. The longest is a
	// listing: a thousand keys of a kilobyte, escaped, with what else is said of them.
	maxListing = 16 << 20

	noContent = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
)

// A signer signs the requests of a store on their way. Both of those who speak to
// the bucket, package web and the client that writes, go through it, so that what
// it learns of the region holds for both.
type signer struct {
	next   http.RoundTripper
	where  place
	creds  *credentials.Credentials
	region atomic.Pointer[string]
	heard  atomic.Bool                   // the server has taken a signature for this region
	skew   atomic.Pointer[time.Duration] // of the server's clock, once it refused ours
}

// RoundTrip sends req, and once more where the server names another region.
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
			if req.URL.RawQuery != "" { // all but objects themselves
				resp.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(resp.Body, maxListing), resp.Body}
			}
			return resp, nil
		}
		said := hear(resp)
		lent.back() // not before: a body that ends early ends the connection
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

// A loan is a body whose bytes are the sender's again once there is an answer. A
// transport goes on reading where the server answers before it has all; meanwhile the
// client that writes begins anew with the same reader, or a part's buffer is filled
// with the next part.
type loan struct {
	mu    sync.Mutex
	body  io.ReadCloser
	left  int64 // to be read
	taken bool  // back
}

// lend puts a loan in place of the body of r; nil if it has none.
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
	case l.left == 0: // a transport makes sure of the end, even after the answer
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

// own reports whether req goes to the server that the bucket was asked for at, not
// to one where that redirects.
func (s *signer) own(req *http.Request) bool {
	host := strings.ToLower(req.URL.Host)
	if s.where.amazon {
		return req.URL.Scheme == "https" && (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn"))
	}
	end := strings.ToLower(s.where.endpoint.Host)
	return req.URL.Scheme == s.where.endpoint.Scheme && (host == end || strings.HasSuffix(host, "."+end) && !s.where.pathStyle)
}

// matching is the key of the ETag that what a request removes must have, in its context.
type matching struct{}

// sign returns a copy of req as the server of the region wants it.
func (s *signer) sign(req *http.Request, region string) (*http.Request, error) {
	r := req.Clone(req.Context())
	r.Header.Del("Authorization")
	if !s.own(req) {
		return r, nil
	}
	if etag, ok := req.Context().Value(matching{}).(string); ok && r.Method == http.MethodDelete {
		r.Header.Set("If-Match", etag)
	}
	if s.where.amazon {
		// Amazon has a server for each region. The client that writes adds a
		// word for those that are reached by IPv6, too.
		bucket, found := "", false
		for _, server := range []string{s.where.endpoint.Host, strings.Replace(amazonHost(s.where.region), "s3.", "s3.dualstack.", 1)} {
			if bucket, found = strings.CutSuffix(r.URL.Host, server); found && !strings.HasSuffix(bucket, "s3.") {
				r.URL.Host = bucket + amazonHost(region)
				break
			}
		}
		r.Host = r.URL.Host
	}
	// What is sent is what is signed, byte for byte, but for dots that are escaped.
	r.URL.RawPath = far.EscapeDots(s3utils.EncodePath(r.URL.Path))
	if s.where.google != nil {
		return r, s.where.google.sign(r, time.Now())
	}
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		r.Header.Set("X-Amz-Checksum-Mode", "ENABLED") // or they are not told
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

// A refusal is what a server says when it does not do what it is asked. Its own
// words are not among it: they are of any length, and may repeat what it was sent.
type refusal struct {
	status       int
	code, region string
}

// hear reads a refusal and leaves its body to be read again.
func hear(resp *http.Response) refusal {
	said := refusal{status: resp.StatusCode, region: resp.Header.Get("X-Amz-Bucket-Region")}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a part of it may do
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

// explain says what an answer to package web means, nil if its status says it.
func (s *signer) explain(resp *http.Response) error {
	said := hear(resp)
	if said.code == "" {
		return nil
	}
	return s.meaning(said)
}

// meaning returns the error that a refusal is.
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
		// It is the client's own word for what it could not make out.
		return fmt.Errorf("invalid response from the server (%s)", what)
	}
	return fmt.Errorf("%d %s", said.status, what)
}

// anonymous reports whether requests are sent without a signature.
func (s *signer) anonymous() bool {
	if g := s.where.google; g != nil {
		return g.anonymous()
	}
	v, err := s.keys(context.Background())
	return err == nil && v.SignerType == credentials.SignatureAnonymous
}

// errNoUpload means that the server does not know an upload that was begun.
var errNoUpload = errors.New("the upload no longer exists on the server")

// busy reports whether a refusal may pass by itself.
func (r refusal) busy() bool {
	switch r.code {
	case "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded":
		return true
	}
	return r.status == http.StatusTooManyRequests || r.status >= 500 && r.status != http.StatusNotImplemented
}

// meaning returns what may be shown of an error of the client that writes and
// lists.
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

// unaddressed takes the address off a transport's error. What is left may pass by itself.
func unaddressed(err error) error {
	_, sent := errors.AsType[*url.Error](err)
	if err = far.Dropped(far.Unaddressed(err)); sent && !errors.Is(err, fs.ErrPermission) {
		return &far.Passing{Err: err}
	}
	return err
}

// fail makes err the error of a request for the named object.
func (st *Store) fail(op, name string, err error) error {
	return far.Fail(op, st.Address(name), -1, 0, err)
}
