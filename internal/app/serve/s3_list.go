package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (s *S3) buckets(w http.ResponseWriter, r *http.Request) {
	all, ok := s.site.archives(r)
	if !ok {
		s3Error(w, r, "InternalError", "")
		return
	}
	type bucket struct{ Name, CreationDate string }
	doc := struct {
		XMLName                   xml.Name `xml:"ListAllMyBucketsResult"`
		Xmlns                     string   `xml:"xmlns,attr"`
		Owner                     s3Owner
		Buckets                   struct{ Bucket []bucket }
		Prefix, ContinuationToken string `xml:",omitempty"`
	}{Xmlns: s3Space, Owner: holdallOwner}
	q := r.URL.Query()
	most, err := strconv.Atoi(cmp.Or(q.Get("max-buckets"), "10000"))
	if err != nil || most < 1 || most > 10_000 {
		s3Error(w, r, "InvalidArgument", "max-buckets: expected a number from 1 to 10000")
		return
	}
	doc.Prefix = q.Get("prefix")
	slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	for _, x := range all {
		if !strings.HasPrefix(x.Name, doc.Prefix) || x.Name <= q.Get("continuation-token") {
			continue
		}
		if n := len(doc.Buckets.Bucket); n == most {
			doc.ContinuationToken = doc.Buckets.Bucket[n-1].Name
			break
		}
		doc.Buckets.Bucket = append(doc.Buckets.Bucket, bucket{format.Escape(x.Name), s3Time(x.ModTime)})
	}
	writeXML(w, r, http.StatusOK, doc)
}

func s3Time(t time.Time) string {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

type keysQuery struct {
	v2                bool
	prefix, delimiter string
	after             string // list only keys after this
	from              string // or from here
	most              int
	encode            bool
	owner             bool
}

const maxKeys = 1000

// maxKeyLen limits the strings that are compared and sent back: no name in an
// archive is as long.
const maxKeyLen = 64 << 10

func parseKeysQuery(q url.Values) (k keysQuery, wrong string) {
	k = keysQuery{prefix: q.Get("prefix"), delimiter: q.Get("delimiter"), most: maxKeys, owner: q.Get("fetch-owner") == "true"}
	switch q.Get("list-type") {
	case "2":
		k.v2 = true
	case "", "1":
	default:
		return k, "list-type: expected 2"
	}
	switch q.Get("encoding-type") {
	case "url":
		k.encode = true
	case "":
	default:
		return k, "encoding-type: expected url"
	}
	if s := q.Get("max-keys"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return k, "max-keys: expected a number, at least 0"
		}
		k.most = int(min(n, maxKeys))
	}
	if k.v2 {
		k.after = q.Get("start-after")
		if token := q.Get("continuation-token"); token != "" {
			b, err := base64.RawURLEncoding.Strict().DecodeString(token)
			if err != nil {
				return k, "continuation-token: expected the NextContinuationToken of an earlier page"
			}
			k.after, k.from = "", string(b)
		}
	} else {
		k.after = q.Get("marker")
		if q.Has("versions") {
			k.after = q.Get("key-marker")
		}
		if k.delimiter != "" && strings.HasPrefix(k.after, k.prefix) && strings.HasSuffix(k.after, k.delimiter) && len(k.after) > len(k.prefix) {
			// If the marker is a common prefix, the listing skips everything below it.
			k.from, k.after = successor(k.after), ""
		}
	}
	if len(k.prefix) > maxKeyLen || len(k.delimiter) > maxKeyLen || len(k.after) > maxKeyLen || len(k.from) > maxKeyLen {
		return k, "expected shorter words"
	}
	if k.after != "" {
		k.from = max(k.from, k.after+"\x00")
	}
	return k, ""
}

// successor returns the first string after all strings that begin with s, or
// "" if there is none.
func successor(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0xff {
			return s[:i] + string([]byte{s[i] + 1})
		}
	}
	return ""
}

type found struct {
	name   string
	common bool
	e      holdall.Entry // the entry of the key
}

// findKeys lists keys. next is the place where the listing continues, or "" at
// its end.
func (h *handler) findKeys(ctx context.Context, k keysQuery) (all []found, next string, err error) {
	if k.most == 0 {
		return nil, "", nil
	}
	behind := "" // the place after the last key
	from := k.from
again:
	n := 0
	entries := h.a.Keys(ctx, k.prefix, from)
	if strings.HasPrefix(consolidatedName, k.prefix) {
		entries = h.withConsolidated(ctx, entries, from)
	}
	for e, err := range entries {
		if n++; n&0xff == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, "", err
		}
		f := found{name: e.Name}
		if f.e, err = h.asKey(ctx, e); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, "", err
		}
		if i := strings.Index(e.Name[len(k.prefix):], k.delimiter); k.delimiter != "" && i >= 0 {
			f = found{name: e.Name[:len(k.prefix)+i+len(k.delimiter)], common: true}
		}
		if len(all) == k.most {
			return all, behind, nil
		}
		all = append(all, f)
		if behind = f.name + "\x00"; f.common {
			if behind = successor(f.name); behind == "" {
				return all, "", nil
			}
			from = behind
			goto again
		}
	}
	return all, "", nil
}

// isKey reports whether a name can be a key. Every name can if the archive's
// names were keys.
func (h *handler) isKey(name string) bool {
	return isPath(name) || h.a.Source().Reader.Can().Keys != nil
}

// asKey returns the content that a key stands for: the entry's own, or that of
// its link's target. Other entries are not keys.
func (h *handler) asKey(ctx context.Context, e holdall.Entry) (holdall.Entry, error) {
	if !h.isKey(e.Name) {
		return e, fs.ErrNotExist
	}
	if e.Kind == format.Symlink || e.Kind == format.HardLink {
		var err error
		if e, err = h.resolve(ctx, e.Name); err != nil {
			return e, err
		}
	}
	if !e.Kind.HasContent() {
		return e, fs.ErrNotExist
	}
	return e, nil
}

type s3Object struct {
	Key, LastModified, ETag string
	Size                    int64
	StorageClass            string
	Owner                   *s3Owner `xml:",omitempty"`
}

type s3Owner struct{ ID, DisplayName string }

var holdallOwner = s3Owner{"holdall", "holdall"}

type s3Prefix struct{ Prefix string }

func (s *S3) keys(w http.ResponseWriter, r *http.Request, h *handler, bucket string, q url.Values) {
	k, wrong := parseKeysQuery(q)
	if wrong != "" {
		s3Error(w, r, "InvalidArgument", wrong)
		return
	}
	all, next, err := h.findKeys(r.Context(), k)
	if err != nil {
		h.s3Fail(w, r, err)
		return
	}
	if q.Has("versions") {
		s.versions(w, r, h, bucket, q, k, all, next != "")
		return
	}
	text := func(s string) string {
		if k.encode {
			return signedPath(s)
		}
		return s
	}
	doc := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Xmlns                 string   `xml:"xmlns,attr"`
		Name, Prefix          string
		Marker                *string `xml:",omitempty"`
		StartAfter            string  `xml:",omitempty"`
		ContinuationToken     *string `xml:",omitempty"`
		KeyCount              *int    `xml:",omitempty"`
		MaxKeys               int
		Delimiter             string `xml:",omitempty"`
		EncodingType          string `xml:",omitempty"`
		IsTruncated           bool
		NextMarker            string `xml:",omitempty"`
		NextContinuationToken string `xml:",omitempty"`
		Contents              []s3Object
		CommonPrefixes        []s3Prefix
	}{Xmlns: s3Space, Name: format.Escape(bucket), Prefix: k.prefix, MaxKeys: k.most, Delimiter: text(k.delimiter), IsTruncated: next != ""}
	if k.encode {
		doc.EncodingType = "url"
	}
	if k.v2 {
		doc.KeyCount, doc.StartAfter, doc.Prefix = new(len(all)), text(q.Get("start-after")), text(k.prefix)
		if q.Has("continuation-token") {
			doc.ContinuationToken = new(q.Get("continuation-token"))
		}
		if next != "" {
			doc.NextContinuationToken = base64.RawURLEncoding.EncodeToString([]byte(next))
		}
	} else {
		doc.Marker = new(text(q.Get("marker")))
		if next != "" {
			doc.NextMarker = text(all[len(all)-1].name)
		}
	}
	for _, f := range all {
		if f.common {
			doc.CommonPrefixes = append(doc.CommonPrefixes, s3Prefix{text(f.name)})
			continue
		}
		o := s3Object{Key: text(f.name), LastModified: s3Time(modTime(h.a, f.e)), ETag: s3Tag(h.a, f.e), Size: f.e.Size, StorageClass: "STANDARD"}
		if k.owner || !k.v2 {
			o.Owner = &holdallOwner
		}
		doc.Contents = append(doc.Contents, o)
	}
	writeXML(w, r, http.StatusOK, doc)
}
