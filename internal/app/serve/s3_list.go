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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sigv4"
)

func (c *call) buckets() error {
	all, ok := c.s.site.archives(c.r)
	if !ok {
		return fault("InternalError", "")
	}
	type bucket struct{ Name, CreationDate string }
	doc := struct {
		Owner                     s3Owner
		Buckets                   struct{ Bucket []bucket }
		Prefix, ContinuationToken string `xml:",omitempty"`
	}{Owner: holdallOwner, Prefix: c.q.Get("prefix")}
	most, err := strconv.Atoi(cmp.Or(c.q.Get("max-buckets"), "10000"))
	if err != nil || most < 1 || most > 10_000 {
		return fault("InvalidArgument", "max-buckets: expected a number from 1 to 10000")
	}
	slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	for _, x := range all {
		if !strings.HasPrefix(x.Name, doc.Prefix) || x.Name <= c.q.Get("continuation-token") {
			continue
		}
		if n := len(doc.Buckets.Bucket); n == most {
			doc.ContinuationToken = doc.Buckets.Bucket[n-1].Name
			break
		}
		doc.Buckets.Bucket = append(doc.Buckets.Bucket, bucket{format.Escape(x.Name), s3Time(x.ModTime)})
	}
	return c.answer("ListAllMyBucketsResult", doc)
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
		s = sigv4.Path(s)
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

// number returns a number that a client has sent, from 0 to most.
func number(name, text string, otherwise, most int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fault("InvalidArgument", name+": expected a number, at least 0")
	}
	return int(min(n, int64(most))), nil
}

func parseKeysQuery(q url.Values) (k keysQuery, err error) {
	wrong := func(why string) (keysQuery, error) { return k, fault("InvalidArgument", why) }
	k = keysQuery{prefix: q.Get("prefix"), delimiter: q.Get("delimiter"), owner: q.Get("fetch-owner") == "true"}
	switch q.Get("list-type") {
	case "2":
		k.v2 = true
	case "", "1":
	default:
		return wrong("list-type: expected 2")
	}
	if k.encoding = q.Get("encoding-type"); k.encoding != "" && k.encoding != "url" {
		return wrong("encoding-type: expected url")
	}
	most, marker, id := "max-keys", "marker", ""
	switch {
	case q.Has("uploads"):
		most, marker, id = "max-uploads", "key-marker", "upload-id-marker"
	case q.Has("versions"):
		marker, id = "key-marker", "version-id-marker"
	}
	if k.most, err = number(most, q.Get(most), maxKeys, maxKeys); err != nil {
		return k, err
	}
	if k.v2 {
		k.after = q.Get("start-after")
		if token := q.Get("continuation-token"); token != "" {
			b, err := base64.RawURLEncoding.Strict().DecodeString(token)
			if err != nil {
				return wrong("continuation-token: expected the NextContinuationToken of an earlier page")
			}
			k.after, k.from = "", string(b)
		}
	} else {
		if k.marker, k.afterID = q.Get(marker), q.Get(id); k.marker == "" && k.afterID != "" && q.Has("versions") {
			return wrong(id + ": expected a " + marker)
		}
		k.after = k.marker
		if k.delimiter != "" && strings.HasPrefix(k.after, k.prefix) && strings.HasSuffix(k.after, k.delimiter) && len(k.after) > len(k.prefix) {
			// If the marker is a common prefix, the listing skips everything below it.
			k.from, k.after = successor(k.after), ""
		}
	}
	if len(k.prefix) > maxKeyLen || len(k.delimiter) > maxKeyLen || len(k.after) > maxKeyLen || len(k.from) > maxKeyLen {
		return wrong("expected shorter words")
	}
	switch {
	case k.afterID != "":
		k.from = max(k.from, k.after)
	case k.after != "":
		k.from = max(k.from, k.after+"\x00")
	}
	return k, nil
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

// newest returns what yields the keys that begin with prefix, starting at from.
func (h *handler) newest(ctx context.Context) func(prefix, from string) iter.Seq2[Version, error] {
	return func(prefix, from string) iter.Seq2[Version, error] {
		entries := h.a.Keys(ctx, prefix, from)
		if strings.HasPrefix(consolidatedName, prefix) {
			entries = h.withConsolidated(ctx, entries, from)
		}
		return func(yield func(Version, error) bool) {
			for e, err := range entries {
				v := Version{Key: e.Name, Newest: true}
				if err == nil {
					if v.Entry, err = h.asKey(ctx, e); errors.Is(err, fs.ErrNotExist) {
						continue
					}
				}
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}

// A keysPage is one page of a list of keys, and a part of its document.
type keysPage struct {
	Delimiter    keyText `xml:",omitempty"`
	EncodingType string  `xml:",omitempty"`
	IsTruncated  bool

	keys    []Version
	common  []s3Prefix
	behind  string // the place after its last key
	lastKey keyText
	lastID  string
}

// next returns the markers of the next page, if there is one.
func (p *keysPage) next() (key keyText, id string) {
	if p.IsTruncated {
		return p.lastKey, p.lastID
	}
	return "", ""
}

// findKeys lists keys.
func findKeys(ctx context.Context, k keysQuery, versions func(prefix, from string) iter.Seq2[Version, error]) (p keysPage, err error) {
	if p.Delimiter, p.EncodingType = k.text(k.delimiter), k.encoding; k.most == 0 {
		return p, nil
	}
	from := k.from
again:
	n := 0
	for v, err := range versions(k.prefix, from) {
		if n++; n&0xff == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return p, err
		}
		if len(p.keys)+len(p.common) == k.most {
			p.IsTruncated = true
			return p, nil
		}
		i := strings.Index(v.Key[len(k.prefix):], k.delimiter)
		if k.delimiter == "" || i < 0 {
			p.keys, p.behind, p.lastKey, p.lastID = append(p.keys, v), v.Key+"\x00", k.text(v.Key), v.id()
			continue
		}
		common := v.Key[:len(k.prefix)+i+len(k.delimiter)]
		p.behind, p.lastKey, p.lastID = successor(common), k.text(common), ""
		p.common = append(p.common, s3Prefix{p.lastKey})
		if from = p.behind; from == "" {
			break
		}
		goto again
	}
	return p, nil
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

// keys answers ListObjects and ListObjectsV2.
func (c *call) keys() error {
	k, err := parseKeysQuery(c.q)
	if err != nil {
		return err
	}
	if c.q.Has("versions") {
		return c.listVersions(k)
	}
	p, err := findKeys(c.r.Context(), k, c.h.newest(c.r.Context()))
	if err != nil {
		return err
	}
	doc := struct {
		Name              string
		Prefix            keyText
		Marker            *keyText `xml:",omitempty"`
		StartAfter        keyText  `xml:",omitempty"`
		ContinuationToken *string  `xml:",omitempty"`
		KeyCount          *int     `xml:",omitempty"`
		MaxKeys           int
		keysPage
		NextMarker            keyText `xml:",omitempty"`
		NextContinuationToken string  `xml:",omitempty"`
		Contents              []s3Object
		CommonPrefixes        []s3Prefix
	}{Name: format.Escape(c.bucket), Prefix: keyText(k.prefix), MaxKeys: k.most, keysPage: p, CommonPrefixes: p.common}
	if k.v2 {
		doc.KeyCount, doc.StartAfter, doc.Prefix = new(len(p.keys)+len(p.common)), k.text(c.q.Get("start-after")), k.text(k.prefix)
		if c.q.Has("continuation-token") {
			doc.ContinuationToken = new(c.q.Get("continuation-token"))
		}
		if p.IsTruncated {
			doc.NextContinuationToken = base64.RawURLEncoding.EncodeToString([]byte(p.behind))
		}
	} else {
		doc.Marker = new(k.text(k.marker))
		doc.NextMarker, _ = p.next()
	}
	for _, v := range p.keys {
		o := s3Object{Key: k.text(v.Key), LastModified: s3Time(modTime(c.h.a, v.Entry)), ETag: s3Tag(c.h.a, v.Entry), Size: v.Entry.Size, StorageClass: "STANDARD"}
		if k.owner || !k.v2 {
			o.Owner = &holdallOwner
		}
		doc.Contents = append(doc.Contents, o)
	}
	return c.answer("ListBucketResult", doc)
}
