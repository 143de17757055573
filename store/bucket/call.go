package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"sync"

	"github.com/holdall/holdall/internal/base/sigv4"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// maxDocument limits how much of a response that is not an object is read. The longest
	// response is a listing: a thousand keys of a kilobyte, escaped, with their properties.
	maxDocument = 16 << 20

	// maxElements limits the elements of a document. Those of a listing are about ten for each key.
	maxElements = 1 << 18
)

// errDocument does not contain the server's text, which may have any length.
var errDocument = errors.New("invalid response from the server")

// call is a request for something other than the content of an object. Its body can be sent again.
type call struct {
	method string
	key    string // if it is empty, the request is about the bucket
	query  url.Values
	header http.Header
	body   []byte
	md5    bool // the checksum by which the server compares the body is also MD5
	into   any  // the document of the response, if one is expected
}

// do sends a request until it is answered, and returns the response without its body. A refusal is
// an error of type *refusal.
func (st *Store) do(ctx context.Context, c call) (*http.Response, error) {
	r := &http.Request{Method: c.method, URL: st.root, Host: st.root.Host, Header: http.Header{}, ContentLength: int64(len(c.body))}
	if c.key != "" {
		r.URL = far.Below(st.root, c.key)
	}
	if len(c.query) > 0 {
		u := *r.URL
		u.RawQuery = sigv4.Query(c.query)
		r.URL = &u
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	r.Header.Set("User-Agent", "holdall")
	if c.method == http.MethodPut || c.body != nil {
		sum := sha256.Sum256(c.body)
		r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
		// Amazon's servers compare the SHA-256 of the signature; Google's do not.
		if c.md5 || st.where.google != nil {
			sum := md5.Sum(c.body)
			r.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
		}
	}
	again := far.Retrier{Tries: st.tries, Jitter: far.Jitter}
	for {
		resp, err := st.once(r.WithContext(ctx), c)
		if err == nil {
			return resp, nil
		}
		if err = again.Again(ctx, err, 0); err != nil {
			return nil, err
		}
	}
}

func (st *Store) once(r *http.Request, c call) (*http.Response, error) {
	lent := &loan{left: c.body}
	if len(c.body) > 0 {
		r.Body = lent
	}
	resp, err := st.client.Do(r)
	lent.back() // not earlier: a body that ends early ends the connection
	if err != nil {
		return nil, unaddressed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		said := hear(resp)
		if said.code == "" { // as in responses to HEAD
			said.code = map[int]string{http.StatusForbidden: "AccessDenied", http.StatusNotFound: "NoSuchKey", http.StatusPreconditionFailed: "PreconditionFailed"}[said.status]
		}
		return nil, st.signed.refused(said, resp.Header)
	}
	doc, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, &far.Passing{Err: far.Dropped(far.Unaddressed(err))}
	case len(doc) > maxDocument:
		return nil, fmt.Errorf("%w: more than %d bytes", errDocument, maxDocument)
	}
	// A server that has promised success while it still worked can only say in the document that
	// it failed.
	if r.Method != http.MethodGet && len(doc) > 0 {
		if said := parseRefusal(doc); said.code != "" {
			said.status = resp.StatusCode
			return nil, st.signed.refused(said, resp.Header)
		}
	}
	if c.into != nil {
		err := decode(doc, c.into)
		if _, cut := errors.AsType[*xml.SyntaxError](err); cut && r.Method == http.MethodGet {
			return nil, &far.Passing{Err: errDocument}
		}
		if err != nil {
			return nil, errDocument
		}
	}
	return resp, nil
}

// decode parses a document.
func decode(doc []byte, into any) error {
	if to, is := into.(*page); is {
		if p, usual := scanPage(doc); usual {
			*to = p
			return nil
		}
	}
	return xml.NewTokenDecoder(&counted{d: xml.NewDecoder(bytes.NewReader(doc))}).Decode(into)
}

// counted limits the elements of a document, each of which may take more memory than its text.
type counted struct {
	d *xml.Decoder
	n int
}

func (c *counted) Token() (xml.Token, error) {
	t, err := c.d.RawToken()
	if _, ok := t.(xml.StartElement); ok {
		if c.n++; c.n > maxElements {
			return nil, fmt.Errorf("more than %d elements", maxElements)
		}
	}
	return t, err
}

// loan is the body of a request, which is returned when the response arrives. A transport continues
// to read it if the server responds before it has all of it. By then, the buffer may be filled with
// the next part.
type loan struct {
	mu    sync.Mutex
	left  []byte
	taken bool // returned
}

func (l *loan) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = true
}

func (l *loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.left) == 0: // a transport checks for the end even after the response
		return 0, io.EOF
	case l.taken:
		return 0, errAnswered
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

func (l *loan) Close() error { return nil }

var errAnswered = errors.New("the server has answered already")

// lists is what is known about the lists of access (ACLs) of a bucket's objects.
type lists struct {
	mu    sync.Mutex
	asked bool
	none  bool  // objects have none
	err   error // they must not be read
}

// shared reports whether the list of access of an object grants something to others than its owner. The bucket is
// asked first, once: objects have no lists if their owner is enforced. Servers that do not know such requests have
// no lists.
func (o *object) shared(ctx context.Context) (bool, error) {
	l := &o.st.lists
	l.mu.Lock()
	if !l.asked {
		if err := o.st.askOwnership(ctx); err != nil {
			l.mu.Unlock()
			return false, o.st.fail("ownership", "", err)
		}
	}
	none, err := l.none, l.err
	l.mu.Unlock()
	if none || err != nil {
		return false, err
	}
	shared, err := o.askList(ctx)
	return shared, o.st.fail("acl", o.Name, err)
}

func (st *Store) askOwnership(ctx context.Context) error {
	var is struct {
		XMLName xml.Name `xml:"OwnershipControls"`
		Rule    []struct{ ObjectOwnership string }
	}
	_, err := st.do(ctx, call{method: http.MethodGet, query: url.Values{"ownershipControls": {""}}, into: &is})
	if _, said := errors.AsType[*refusal](err); err != nil && !said && !errors.Is(err, errDocument) { // it is perhaps another answer, such as a listing
		return err
	}
	st.lists.asked, st.lists.none = true, err == nil && len(is.Rule) == 1 && is.Rule[0].ObjectOwnership == "BucketOwnerEnforced"
	return nil
}

func (o *object) askList(ctx context.Context) (shared bool, err error) {
	type who struct{ ID string }
	var is struct {
		XMLName xml.Name `xml:"AccessControlPolicy"`
		Owner   who
		Grants  []struct {
			Grantee    who
			Permission string
		} `xml:"AccessControlList>Grant"`
	}
	_, err = o.st.do(ctx, call{method: http.MethodGet, key: o.key, query: url.Values{"acl": {""}}, into: &is})
	if said, ok := errors.AsType[*refusal](err); ok {
		l := &o.st.lists
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case said.unknown() || said.code == "AccessControlListNotSupported":
			l.none, err = true, nil
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf("neither s3:GetBucketOwnershipControls nor s3:GetObjectAcl tells who may read it: %w", err)
			l.err = o.st.fail("acl", o.Name, err)
		}
		return false, err
	}
	if errors.Is(err, errDocument) {
		err = fmt.Errorf("server answered no list of access: %w", err)
	}
	for _, g := range is.Grants {
		shared = shared || g.Grantee != is.Owner || g.Permission != "FULL_CONTROL"
	}
	return shared && err == nil, err
}

// askTags returns the tags of an object, or "" if they must not be read.
func (o *object) askTags(ctx context.Context) (string, error) {
	var is struct {
		XMLName xml.Name `xml:"Tagging"`
		Tags    []struct {
			Key   string
			Value string
		} `xml:"TagSet>Tag"`
	}
	_, err := o.st.do(ctx, call{method: http.MethodGet, key: o.key, query: url.Values{"tagging": {""}}, into: &is})
	said, ok := errors.AsType[*refusal](err)
	switch {
	case ok && (said.unknown() || errors.Is(err, fs.ErrPermission)):
		return "", nil
	case errors.Is(err, errDocument):
		err = fmt.Errorf("server answered no tags: %w", err)
	}
	tags := url.Values{}
	for _, t := range is.Tags {
		tags.Add(t.Key, t.Value)
	}
	text := tags.Encode()
	if err == nil && len(text) > storekit.MaxHeaders {
		err = fmt.Errorf("%d bytes of tags: expected at most %d", len(text), storekit.MaxHeaders)
	}
	return text, o.st.fail("tags", o.Name, err)
}
