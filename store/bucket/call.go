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
	"slices"
	"sync"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

// call sends a request that the client of uploads does not have, until it is answered, and returns its document or
// why it was refused.
func (st *Store) call(ctx context.Context, method string, u *url.URL, query string, header http.Header, body []byte) (doc []byte, said refusal, err error) {
	at := *u
	at.RawQuery = query
	again := far.Retrier{Tries: st.tries, Jitter: far.Jitter}
	for {
		doc, said, err = st.callOnce(ctx, method, at.String(), header, body)
		if err == nil && said.busy() {
			err = &far.Passing{Err: fmt.Errorf("%d", said.status)}
		}
		if err == nil {
			return doc, said, nil
		}
		if err = again.Again(ctx, err, 0); err != nil {
			return nil, said, err
		}
	}
}

func (st *Store) callOnce(ctx context.Context, method, at string, header http.Header, body []byte) ([]byte, refusal, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, refusal{}, err
	}
	req.Header = header.Clone()
	resp, err := (&http.Client{Transport: st.signed}).Do(req)
	if err != nil {
		return nil, refusal{}, unaddressed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, hear(resp), nil
	}
	doc, err := io.ReadAll(resp.Body) // the signer bounds it
	if err != nil {
		err = &far.Passing{Err: far.Unaddressed(err)}
	}
	return doc, refusal{}, err
}

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
	doc, said, err := st.call(ctx, http.MethodGet, st.where.base(st.bucket), "ownershipControls", nil, nil)
	if err != nil {
		return err
	}
	var is struct {
		XMLName xml.Name `xml:"OwnershipControls"`
		Rule    []struct{ ObjectOwnership string }
	}
	known := said.status == 0 && xml.Unmarshal(doc, &is) == nil // otherwise it is perhaps another answer, such as a listing
	st.lists.asked, st.lists.none = true, known && len(is.Rule) == 1 && is.Rule[0].ObjectOwnership == "BucketOwnerEnforced"
	return nil
}

func (o *object) askList(ctx context.Context) (shared bool, err error) {
	doc, said, err := o.st.call(ctx, http.MethodGet, far.Below(o.st.base, o.Name), "acl", nil, nil)
	if err != nil {
		return false, err
	}
	l := &o.st.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if said.status != 0 {
		err = o.st.signed.meaning(said)
		switch {
		case slices.Contains([]int{http.StatusNotImplemented, http.StatusMethodNotAllowed}, said.status) || said.code == "AccessControlListNotSupported":
			l.none, err = true, nil
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf("neither s3:GetBucketOwnershipControls nor s3:GetObjectAcl tells who may read it: %w", err)
			l.err = o.st.fail("acl", o.Name, err)
		}
		return false, err
	}
	type who struct{ ID string }
	var is struct {
		XMLName xml.Name `xml:"AccessControlPolicy"`
		Owner   who
		Grants  []struct {
			Grantee    who
			Permission string
		} `xml:"AccessControlList>Grant"`
	}
	if err := xml.Unmarshal(doc, &is); err != nil {
		return false, errors.New("server answered no list of access")
	}
	for _, g := range is.Grants {
		shared = shared || g.Grantee != is.Owner || g.Permission != "FULL_CONTROL"
	}
	return shared, nil
}

// askTags returns the tags of an object, or "" if they must not be read.
func (o *object) askTags(ctx context.Context) (string, error) {
	doc, said, err := o.st.call(ctx, http.MethodGet, far.Below(o.st.base, o.Name), "tagging", nil, nil)
	if err == nil && said.status != 0 {
		err = o.st.signed.meaning(said)
		if errors.Is(err, fs.ErrPermission) || said.status == http.StatusNotImplemented || said.status == http.StatusMethodNotAllowed {
			return "", nil
		}
	}
	var is struct {
		XMLName xml.Name `xml:"Tagging"`
		Tags    []struct {
			Key   string
			Value string
		} `xml:"TagSet>Tag"`
	}
	if err == nil && xml.Unmarshal(doc, &is) != nil {
		err = errors.New("server answered no tags")
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
