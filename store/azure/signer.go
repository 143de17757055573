package azure

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

const (
	// version is the version of the interface. The first one that escapes names in listings came
	// shortly before it, and servers keep supporting old versions.
	version = "2021-12-02"

	drained = 64 << 10 // of an unwanted body, to reuse its connection
)

// signer signs the requests of a store as they are sent.
type signer struct {
	next     http.RoundTripper
	endpoint *url.URL
	credentials
}

func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	r.Header.Del("Authorization")
	if r.URL.Scheme == s.endpoint.Scheme && strings.EqualFold(r.URL.Host, s.endpoint.Host) {
		r.Header.Set("X-Ms-Version", version)
		switch {
		case s.key != nil:
			r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
			r.Header.Set("Authorization", "SharedKey "+s.account+":"+s.sign(r))
		case s.sas != "":
			r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+s.sas, "&")
		}
	}
	resp, err := s.next.RoundTrip(r)
	if resp != nil {
		resp.Request = req // without the token
	}
	return resp, err
}

// sign returns the signature of a request with the account's key ("Shared Key").
func (s *signer) sign(r *http.Request) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	var text strings.Builder
	text.WriteString(r.Method + "\n")
	for _, k := range []string{"Content-Encoding", "Content-Language", "", "Content-Md5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		if k == "" {
			text.WriteString(length + "\n")
			continue
		}
		text.WriteString(r.Header.Get(k) + "\n")
	}
	var own []string
	for k, v := range r.Header {
		if k = strings.ToLower(k); strings.HasPrefix(k, "x-ms-") {
			own = append(own, k+":"+strings.TrimSpace(strings.Join(v, ","))+"\n")
		}
	}
	slices.Sort(own)
	text.WriteString(strings.Join(own, "") + "/" + s.account + r.URL.EscapedPath())
	q := r.URL.Query()
	for _, k := range slices.Sorted(maps.Keys(q)) {
		text.WriteString("\n" + strings.ToLower(k) + ":" + strings.Join(slices.Sorted(slices.Values(q[k])), ","))
	}
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(text.String()))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// call is a request of this package, whose body can be sent again.
type call struct {
	method string
	url    *url.URL
	header map[string]string
	body   []byte
}

// do sends a request, and repeats it after errors that may be temporary. It returns a successful
// response.
func (st *Store) do(ctx context.Context, c call) (*http.Response, error) {
	again := far.Retrier{Tries: st.tries, Jitter: far.Jitter}
	for {
		resp, err := st.once(ctx, c)
		if err == nil {
			return resp, nil
		}
		if err := again.Again(ctx, err, 0); err != nil {
			return nil, err
		}
	}
}

func (st *Store) once(ctx context.Context, c call) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, c.method, c.url.String(), bytes.NewReader(c.body))
	if err != nil {
		return nil, errors.New("malformed address")
	}
	r.URL = c.url // with its own escaping
	r.Header.Set("User-Agent", "holdall")
	r.Header.Set("Accept-Encoding", "identity")
	for k, v := range c.header {
		if strings.HasPrefix(k, metaPrefix) {
			r.Header[k] = []string{v} // names of metadata keep their capitals
			continue
		}
		r.Header.Set(k, v)
	}
	resp, err := st.client.Do(r)
	if err != nil {
		return nil, unaddressed(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	_, _ = io.CopyN(io.Discard, resp.Body, drained) // its text is not used
	_ = resp.Body.Close()
	return nil, st.signed.meaning(resp)
}

// unaddressed removes the address, which contains the token, from a transport's error.
func unaddressed(err error) error {
	err = far.Unaddressed(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return fmt.Errorf("no such account, or no such server: %w", fs.ErrNotExist)
	}
	return &far.Passing{Err: far.Dropped(err)}
}

// explain returns the error for a response to package web, or nil if its status is enough.
func (s *signer) explain(resp *http.Response) error {
	if resp.Header.Get("X-Ms-Error-Code") == "" {
		return nil
	}
	return s.meaning(resp)
}

var (
	// errListGone means that blocks that were sent no longer exist.
	errListGone = errors.New("the server no longer has the blocks: another program has written this object")

	errThere = fmt.Errorf("an object with this name exists: %w", fs.ErrExist)
)

// meaning returns the error for a response. It does not use the server's text, which may have any
// length and repeats what it was sent.
func (s *signer) meaning(resp *http.Response) error {
	status := resp.StatusCode
	code := resp.Header.Get("X-Ms-Error-Code")
	what := strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
	if far.IsWord(code) {
		what = code
	}
	switch code {
	case "ContainerNotFound":
		return fmt.Errorf("no such container: %w", fs.ErrNotExist)
	case "BlobNotFound":
		return fmt.Errorf("no such key: %w", fs.ErrNotExist)
	case "ResourceNotFound":
		if s.anonymous() {
			return fmt.Errorf("no such container, or it is not public; requested without credentials: %w", fs.ErrNotExist)
		}
	case "ConditionNotMet", "SourceConditionNotMet":
		return store.ErrChanged
	case "BlobAlreadyExists":
		return errThere
	case "AppendPositionConditionNotMet":
		return store.ErrChanged
	case "InvalidBlockList":
		return errListGone
	case "AuthenticationFailed":
		if s.sas != "" {
			return fmt.Errorf("token (SAS) refused; it has expired, or belongs to another account: %w", fs.ErrPermission)
		}
		return fmt.Errorf("signature refused; the key does not match the account, or the local clock differs from the server's: %w", fs.ErrPermission)
	}
	switch {
	case status == http.StatusNotFound:
		return fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	case status == http.StatusUnauthorized || status == http.StatusForbidden || code == "PublicAccessNotPermitted" || code == "NoAuthenticationInformation":
		if s.anonymous() {
			return fmt.Errorf("%s; requested without credentials: %w", what, fs.ErrPermission)
		}
		return fmt.Errorf("%s: %w", what, fs.ErrPermission)
	case status == http.StatusPreconditionFailed && !far.IsWord(code):
		return store.ErrChanged
	case far.MayPass(status):
		return &far.Passing{Err: fmt.Errorf("%d %s", status, what), After: far.RetryAfter(resp.Header)}
	}
	return &refusal{status, what}
}

// refusal is a response that would not change in another attempt.
type refusal struct {
	status int
	what   string
}

func (r *refusal) Error() string { return r.what }

// fail wraps err as that of a request for the object called name.
func (st *Store) fail(op, name string, err error) error {
	return far.Fail(op, st.Address(name), -1, 0, err)
}
