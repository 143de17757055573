package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// heldPart is a part that the server has. Its ETag identifies its contents, and is stored without
// quotes.
type heldPart struct {
	size int64
	etag string
}

// maxAdopt is the largest number of unfinished uploads of a name that are examined.
const maxAdopt = 50

// adopt finds an unfinished upload of this key that probably has our bytes. Of the uploads whose
// first part is missing or equals ours, it takes the one with the most parts. Each of its parts
// is used only after it is compared with ours.
func (w *writer) adopt(ctx context.Context, first []byte) error {
	var best struct {
		id     string
		parts  map[int]heldPart
		proven bool
		bytes  int64
	}
	sum, looked := "", 0
	for u, err := range w.st.uploads(ctx, w.key) {
		if err != nil {
			return w.forgo(ctx, err)
		}
		if u.Key != w.key { // the key only begins with ours
			continue
		}
		if looked++; looked > maxAdopt {
			break
		}
		parts, err := w.st.listParts(ctx, w.key, u.UploadID)
		if errors.Is(err, errNoUpload) {
			continue
		}
		if err != nil {
			return w.forgo(ctx, err)
		}
		one, proven := parts[1]
		if proven && first != nil {
			if sum == "" {
				sum = sumOf(first)
			}
			if one != (heldPart{int64(len(first)), sum}) {
				continue // it has other contents, and must not be changed
			}
		}
		bytes := int64(0)
		for _, p := range parts {
			bytes += p.size
		}
		if bytes > 0 && (proven && !best.proven || proven == best.proven && bytes > best.bytes) {
			best.id, best.parts, best.proven, best.bytes = u.UploadID, parts, proven, bytes
		}
	}
	w.upload, w.had = best.id, best.parts
	return nil
}

// forgo returns err if it may be temporary. If the server does not list uploads, or not for us, a
// new upload can still begin.
func (w *writer) forgo(ctx context.Context, err error) error {
	if _, may := errors.AsType[*far.Passing](err); may || ctx.Err() != nil {
		return err
	}
	return nil
}

// unfinished is an upload in a listing.
type unfinished struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated time.Time
}

// uploads yields the unfinished uploads of keys that begin with prefix.
func (st *Store) uploads(ctx context.Context, prefix string) iter.Seq2[unfinished, error] {
	return func(yield func(unfinished, error) bool) {
		key, id := "", ""
		for {
			var list struct {
				XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
				EncodingType       string
				IsTruncated        bool
				NextKeyMarker      string
				NextUploadIDMarker string `xml:"NextUploadIdMarker"`
				Upload             []unfinished
			}
			q := url.Values{"uploads": {""}, "prefix": {prefix}, "delimiter": {""}, "encoding-type": {"url"}, "max-uploads": {"1000"}}
			if key != "" {
				q.Set("key-marker", key)
			}
			if id != "" {
				q.Set("upload-id-marker", id)
			}
			_, err := st.do(ctx, call{method: http.MethodGet, query: q, into: &list})
			names := []*string{&list.NextKeyMarker, &list.NextUploadIDMarker}
			for i := range list.Upload {
				names = append(names, &list.Upload[i].Key)
			}
			if err == nil {
				err = unescape(list.EncodingType, names...)
			}
			if err != nil {
				yield(unfinished{}, err)
				return
			}
			for _, u := range list.Upload {
				if !strings.HasPrefix(u.Key, prefix) {
					yield(u, fmt.Errorf("server listed an upload of %.200q, which does not begin with %q", u.Key, prefix))
					return
				}
				if !yield(u, nil) {
					return
				}
			}
			if !list.IsTruncated {
				return
			}
			if list.NextKeyMarker < key || list.NextKeyMarker == key && list.NextUploadIDMarker == id {
				yield(unfinished{}, fmt.Errorf("server continues its list of uploads at %.200q after %.200q", list.NextKeyMarker, key))
				return
			}
			key, id = list.NextKeyMarker, list.NextUploadIDMarker
		}
	}
}

// listParts returns the parts of an upload by number.
func (st *Store) listParts(ctx context.Context, key, upload string) (map[int]heldPart, error) {
	parts := map[int]heldPart{}
	for marker := 0; ; {
		var list struct {
			XMLName     xml.Name `xml:"ListPartsResult"`
			IsTruncated bool
			Part        []struct {
				part
				Size int64
			}
		}
		q := url.Values{"uploadId": {upload}, "part-number-marker": {strconv.Itoa(marker)}, "max-parts": {"1000"}}
		if _, err := st.do(ctx, call{method: http.MethodGet, key: key, query: q, into: &list}); err != nil {
			return nil, err
		}
		for _, p := range list.Part {
			if p.PartNumber <= marker || p.PartNumber > maxParts || p.Size < 0 {
				return nil, fmt.Errorf("server listed part %d of %d bytes after part %d", p.PartNumber, p.Size, marker)
			}
			marker = p.PartNumber
			parts[marker] = heldPart{p.Size, strings.Trim(p.ETag, `"`)}
		}
		if !list.IsTruncated || len(list.Part) == 0 {
			return parts, nil
		}
	}
}

// Unfinished yields the unfinished uploads of names that begin with prefix.
func (st *Store) Unfinished(ctx context.Context, prefix string) iter.Seq2[store.Upload, error] {
	return func(yield func(store.Upload, error) bool) {
		for u, err := range st.uploads(ctx, st.prefix+prefix) {
			if err != nil {
				yield(store.Upload{}, st.fail("list uploads", prefix, err))
				return
			}
			name := u.Key[len(st.prefix):]
			abandon := func(ctx context.Context) error {
				return st.fail("abandon", name, st.abandon(ctx, u.Key, u.UploadID))
			}
			if !yield(store.Upload{Name: name, ID: u.UploadID, Begun: u.Initiated, Abandon: abandon}, nil) {
				return
			}
		}
	}
}

// abandon discards an upload, if it still exists.
func (st *Store) abandon(ctx context.Context, key, upload string) error {
	_, err := st.do(ctx, call{method: http.MethodDelete, key: key, query: url.Values{"uploadId": {upload}}})
	if errors.Is(err, errNoUpload) {
		return nil
	}
	return err
}
