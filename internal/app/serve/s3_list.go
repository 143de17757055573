package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
	marker            string // that was sent
	after             string // list only keys after this
	from              string // or from here
	afterID           string // or the versions or uploads of that key after this one
	most              int
	encoding          string
	owner             bool
}

// text is a key, or a part of one, in the encoding that was asked for.
func (k keysQuery) text(s string) keyText {
	if k.encoding != "" {
		s = signedPath(s)
	}
	return keyText(s)
}

// keyText is the text of a key in a list. What XML cannot have is written as Amazon writes it: some clients read that,
// and others fail, which is better than another key. What only repeats the key of a request has U+FFFD instead, so that
// these do not fail.
type keyText string

func (t keyText) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	odd := func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff }
	s, b := string(t), strings.Builder{}
	for i := strings.IndexFunc(s, odd); i >= 0; i = strings.IndexFunc(s, odd) {
		r, n := utf8.DecodeRuneInString(s[i:])
		_ = xml.EscapeText(&b, []byte(s[:i]))
		fmt.Fprintf(&b, "&#x%x;", r)
		s = s[i+n:]
	}
	_ = xml.EscapeText(&b, []byte(s))
	return e.EncodeElement(struct {
		Text string `xml:",innerxml"`
	}{b.String()}, start)
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
	if k.encoding = q.Get("encoding-type"); k.encoding != "" && k.encoding != "url" {
		return k, "encoding-type: expected url"
	}
	most, marker, id := "max-keys", "marker", ""
	switch {
	case q.Has("uploads"):
		most, marker, id = "max-uploads", "key-marker", "upload-id-marker"
	case q.Has("versions"):
		marker, id = "key-marker", "version-id-marker"
	}
	if s := q.Get(most); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return k, most + ": expected a number, at least 0"
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
		if k.marker, k.afterID = q.Get(marker), q.Get(id); k.marker == "" && k.afterID != "" && q.Has("versions") {
			return k, id + ": expected a " + marker
		}
		k.after = k.marker
		if k.delimiter != "" && strings.HasPrefix(k.after, k.prefix) && strings.HasSuffix(k.after, k.delimiter) && len(k.after) > len(k.prefix) {
			// If the marker is a common prefix, the listing skips everything below it.
			k.from, k.after = successor(k.after), ""
		}
	}
	if len(k.prefix) > maxKeyLen || len(k.delimiter) > maxKeyLen || len(k.after) > maxKeyLen || len(k.from) > maxKeyLen {
		return k, "expected shorter words"
	}
	switch {
	case k.afterID != "":
		k.from = max(k.from, k.after)
	case k.after != "":
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

// A found is a key, or the common prefix of several.
type found struct {
	Version
	common bool
}

// newest yields the keys that begin with prefix, starting at from.
func (h *handler) newest(ctx context.Context, prefix, from string) iter.Seq2[Version, error] {
	entries := h.a.Keys(ctx, prefix, from)
	if strings.HasPrefix(consolidatedName, prefix) {
		entries = h.withConsolidated(ctx, entries, from)
	}
	return func(yield func(Version, error) bool) {
		for e, err := range entries {
			v := Version{Key: e.Name, Newest: true}
			if err == nil {
				v.Entry, err = h.asKey(ctx, e)
			}
			if !errors.Is(err, fs.ErrNotExist) && !yield(v, err) {
				return
			}
		}
	}
}

// findKeys lists keys. next is the place where the listing continues, or "" at
// its end.
func findKeys(ctx context.Context, k keysQuery, versions func(prefix, from string) iter.Seq2[Version, error]) (all []found, next string, err error) {
	if k.most == 0 {
		return nil, "", nil
	}
	behind := "" // the place after the last key
	from := k.from
again:
	n := 0
	for v, err := range versions(k.prefix, from) {
		if n++; n&0xff == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, "", err
		}
		f := found{Version: v}
		if i := strings.Index(v.Key[len(k.prefix):], k.delimiter); k.delimiter != "" && i >= 0 {
			f = found{Version{Key: v.Key[:len(k.prefix)+i+len(k.delimiter)]}, true}
		}
		if len(all) == k.most {
			return all, behind, nil
		}
		all = append(all, f)
		if behind = f.Key + "\x00"; f.common {
			if behind = successor(f.Key); behind == "" {
				return all, "", nil
			}
			from = behind
			goto again
		}
	}
	return all, "", nil
}

// next returns the markers of the page after one.
func (k keysQuery) next(page []found, more string) (key keyText, id string) {
	if more == "" {
		return "", ""
	}
	last := page[len(page)-1]
	return k.text(last.Key), last.id()
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
	Key                keyText
	LastModified, ETag string
	Size               int64
	StorageClass       string
	Owner              *s3Owner `xml:",omitempty"`
}

type s3Owner struct{ ID, DisplayName string }

var holdallOwner = s3Owner{"holdall", "holdall"}

type s3Prefix struct{ Prefix keyText }

func (s *S3) keys(w http.ResponseWriter, r *http.Request, h *handler, bucket string, q url.Values) {
	k, wrong := parseKeysQuery(q)
	if wrong != "" {
		s3Error(w, r, "InvalidArgument", wrong)
		return
	}
	versions := func(prefix, from string) iter.Seq2[Version, error] { return h.newest(r.Context(), prefix, from) }
	if q.Has("versions") {
		versions = s.versions(r.Context(), h, bucket, k)
	}
	all, next, err := findKeys(r.Context(), k, versions)
	if err != nil {
		h.s3Fail(w, r, err)
		return
	}
	if q.Has("versions") {
		s.listVersions(w, r, h, bucket, k, all, next)
		return
	}
	doc := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Xmlns                 string   `xml:"xmlns,attr"`
		Name                  string
		Prefix                keyText
		Marker                *keyText `xml:",omitempty"`
		StartAfter            keyText  `xml:",omitempty"`
		ContinuationToken     *string  `xml:",omitempty"`
		KeyCount              *int     `xml:",omitempty"`
		MaxKeys               int
		Delimiter             keyText `xml:",omitempty"`
		EncodingType          string  `xml:",omitempty"`
		IsTruncated           bool
		NextMarker            keyText `xml:",omitempty"`
		NextContinuationToken string  `xml:",omitempty"`
		Contents              []s3Object
		CommonPrefixes        []s3Prefix
	}{Xmlns: s3Space, Name: format.Escape(bucket), Prefix: keyText(k.prefix), MaxKeys: k.most, Delimiter: k.text(k.delimiter), EncodingType: k.encoding, IsTruncated: next != ""}
	if k.v2 {
		doc.KeyCount, doc.StartAfter, doc.Prefix = new(len(all)), k.text(q.Get("start-after")), k.text(k.prefix)
		if q.Has("continuation-token") {
			doc.ContinuationToken = new(q.Get("continuation-token"))
		}
		if next != "" {
			doc.NextContinuationToken = base64.RawURLEncoding.EncodeToString([]byte(next))
		}
	} else {
		doc.Marker = new(k.text(k.marker))
		doc.NextMarker, _ = k.next(all, next)
	}
	for _, f := range all {
		if f.common {
			doc.CommonPrefixes = append(doc.CommonPrefixes, s3Prefix{k.text(f.Key)})
			continue
		}
		o := s3Object{Key: k.text(f.Key), LastModified: s3Time(modTime(h.a, f.Entry)), ETag: s3Tag(h.a, f.Entry), Size: f.Entry.Size, StorageClass: "STANDARD"}
		if k.owner || !k.v2 {
			o.Owner = &holdallOwner
		}
		doc.Contents = append(doc.Contents, o)
	}
	writeXML(w, r, http.StatusOK, doc)
}
