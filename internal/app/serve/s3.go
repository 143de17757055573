package serve

import (
	"cmp"
	"context"
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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

type S3Options struct {
	// Key must sign requests. If its ID is empty, everyone may read.
	Key Key
	// Region is the region that buckets report; empty means us-east-1.
	Region string
	// Clock is for tests; nil means the current time.
	Clock func() time.Time
}

// An S3 is a read-only server that presents the archives of a site as S3
// buckets. Archives are buckets, and paths are keys. The bucket is in the
// path, not in the host name.
type S3 struct {
	site *Site
	o    S3Options
}

func NewS3(site *Site, o S3Options) *S3 {
	o.Region = cmp.Or(o.Region, "us-east-1")
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &S3{site, o}
}

func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.site.answer(w, r, "s3", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "holdall")
		if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
			w.Header().Set("Allow", "GET, HEAD")
			s3Error(w, r, "MethodNotAllowed", "")
			return
		}
		if hasBody(r) {
			s3Error(w, r, "InvalidRequest", "Expected a request without a body.")
			return
		}
		if !begin(w, r, s.site.o.CORS) {
			return
		}
		if s.o.Key.ID != "" {
			if code := s.o.Key.wrong(r, s.o.Clock()); code != "" {
				s3Error(w, r, code, "")
				return
			}
		}
		if !s.site.gate.enter(&s.site.meter) {
			s3Error(w, r, "SlowDown", "")
			return
		}
		defer s.site.gate.leave()
		s.route(w, r)
	})
}

// s3Codes maps errors to Amazon's codes.
var s3Codes = map[string]struct {
	status int
	text   string
}{
	"AccessDenied":                      {http.StatusForbidden, "Access Denied"},
	"AuthorizationHeaderMalformed":      {http.StatusBadRequest, "The authorization header is not one of AWS4-HMAC-SHA256."},
	"AuthorizationQueryParametersError": {http.StatusBadRequest, "The signature in the query is not one of AWS4-HMAC-SHA256."},
	"InternalError":                     {http.StatusInternalServerError, "The object cannot be read; the server's log has the reason."},
	"InvalidAccessKeyId":                {http.StatusForbidden, "Unknown access key."},
	"InvalidArgument":                   {http.StatusBadRequest, "Invalid argument."},
	"InvalidPartNumber":                 {http.StatusRequestedRangeNotSatisfiable, "The object has fewer parts."},
	"InvalidRange":                      {http.StatusRequestedRangeNotSatisfiable, "The range is outside the object."},
	"InvalidRequest":                    {http.StatusBadRequest, "Invalid request."},
	"InvalidURI":                        {http.StatusBadRequest, "Invalid address."},
	"MethodNotAllowed":                  {http.StatusMethodNotAllowed, "This server is read-only."},
	"NoSuchBucket":                      {http.StatusNotFound, "There is no archive with this name."},
	"NoSuchKey":                         {http.StatusNotFound, "The archive has no entry with this name."},
	"NotImplemented":                    {http.StatusNotImplemented, "Archives do not support this."},
	"PreconditionFailed":                {http.StatusPreconditionFailed, "The object does not meet the condition."},
	"RequestTimeTooSkewed":              {http.StatusForbidden, "The clocks differ by more than a quarter of an hour."},
	"ServiceUnavailable":                {http.StatusServiceUnavailable, "It cannot be read now; try again."},
	"SignatureDoesNotMatch":             {http.StatusForbidden, "The signature does not match this request and key."},
	"SlowDown":                          {http.StatusServiceUnavailable, "Too many requests at once; try again."},
	"XAmzContentSHA256Mismatch":         {http.StatusBadRequest, "Expected a request without a body."},
}

// codeOf returns Amazon's code for a status that means that something cannot be read.
func codeOf(status int) string {
	if status == http.StatusServiceUnavailable {
		return "ServiceUnavailable"
	}
	return "InternalError"
}

// s3Fail reports that something cannot be read.
func (h *handler) s3Fail(w http.ResponseWriter, r *http.Request, err error) {
	unlessGone(r)
	h.tell(r, err)
	s3Error(w, r, codeOf(statusOf(err)), "")
}

// s3Error sends an error response in S3's form. An empty text means Amazon's
// usual one.
func s3Error(w http.ResponseWriter, r *http.Request, code, text string) {
	c := s3Codes[code]
	for _, key := range []string{"Content-Length", "Etag", "Last-Modified", "Accept-Ranges"} {
		w.Header().Del(key)
	}
	dropKept(w.Header())
	writeXML(w, r, c.status, struct {
		XMLName  xml.Name `xml:"Error"`
		Code     string
		Message  string
		Resource string
	}{Code: code, Message: cmp.Or(text, c.text), Resource: format.Escape(r.URL.Path)})
}

func writeXML(w http.ResponseWriter, r *http.Request, status int, doc any) {
	b, err := xml.Marshal(doc)
	if err != nil { // our own types always have a text form
		panic(err)
	}
	b = append([]byte(xml.Header), b...)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(b)
	}
}

const s3Space = "http://s3.amazonaws.com/doc/2006-03-01/"

// subresources are resources that S3's buckets and objects have, but archives
// do not.
var subresources = []string{"accelerate", "acl", "analytics", "attributes", "cors", "encryption", "inventory", "intelligent-tiering", "legal-hold", "lifecycle", "logging", "metrics", "notification",
	"object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "session", "torrent", "uploads", "uploadId", "versions", "website"}

func (s *S3) route(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		s3Error(w, r, "InvalidURI", "")
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if slices.ContainsFunc(subresources, q.Has) || q.Has("tagging") && key == "" {
		s3Error(w, r, "NotImplemented", "")
		return
	}
	if bucket == "" {
		if key != "" {
			s3Error(w, r, "NoSuchBucket", "")
			return
		}
		s.buckets(w, r)
		return
	}
	h, code, text := s.site.open(r, bucket, "")
	if h == nil {
		if code == http.StatusNotFound {
			s3Error(w, r, "NoSuchBucket", "")
		} else {
			_, text, _ = strings.Cut(text, ": ")
			s3Error(w, r, codeOf(code), text)
		}
		return
	}
	h = s.site.other(r, h, key)
	defer h.a.Release()
	w.Header().Set("X-Amz-Bucket-Region", s.o.Region)
	switch {
	case key != "":
		s.object(w, r, h, key, q)
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
	case q.Has("location"):
		type location struct {
			XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ LocationConstraint"`
			Region  string   `xml:",chardata"`
		}
		region := s.o.Region
		if region == "us-east-1" {
			region = "" // as Amazon does
		}
		writeXML(w, r, http.StatusOK, location{Region: region})
	case q.Has("versioning"):
		writeXML(w, r, http.StatusOK, struct {
			XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ VersioningConfiguration"`
		}{})
	default:
		s.keys(w, r, h, bucket, q)
	}
}

func (s *S3) buckets(w http.ResponseWriter, r *http.Request) {
	all, ok := s.site.archives(r)
	if !ok {
		s3Error(w, r, "InternalError", "")
		return
	}
	type bucket struct{ Name, CreationDate string }
	doc := struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Xmlns   string   `xml:"xmlns,attr"`
		Owner   struct{ ID, DisplayName string }
		Buckets struct{ Bucket []bucket }
	}{Xmlns: s3Space}
	doc.Owner.ID, doc.Owner.DisplayName = "holdall", "holdall"
	for _, x := range all {
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

func (s *S3) object(w http.ResponseWriter, r *http.Request, h *handler, key string, q url.Values) {
	if !h.isKey(key) {
		s3Error(w, r, "NoSuchKey", "")
		return
	}
	e, err := h.resolve(r.Context(), key)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !e.Kind.HasContent():
		s3Error(w, r, "NoSuchKey", "")
		return
	case err != nil:
		h.s3Fail(w, r, err)
		return
	}
	if q.Has("tagging") {
		doc := struct {
			XMLName xml.Name `xml:"Tagging"`
			Xmlns   string   `xml:"xmlns,attr"`
			TagSet  struct{ Tag []s3Tagged }
		}{Xmlns: s3Space}
		doc.TagSet.Tag = tagsOf(e)
		writeXML(w, r, http.StatusOK, doc)
		return
	}
	r, e, code, text := s.asked(r, q, h.a, e)
	if code != "" {
		s3Error(w, r, code, text)
		return
	}
	h.bucket = true
	x := &s3Writer{ResponseWriter: w, r: r}
	h.content(x, r, e)
}

// An s3Writer converts error responses to S3's documents.
type s3Writer struct {
	http.ResponseWriter
	r    *http.Request
	said bool
}

func (x *s3Writer) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *s3Writer) WriteHeader(status int) {
	code := ""
	switch {
	case status == http.StatusRequestedRangeNotSatisfiable:
		code = "InvalidRange"
	case status == http.StatusPreconditionFailed:
		code = "PreconditionFailed"
	case status >= 400:
		code = codeOf(status)
	}
	if code == "" || x.said {
		x.ResponseWriter.WriteHeader(status)
		return
	}
	x.said = true
	s3Error(x.ResponseWriter, x.r, code, "")
}

func (x *s3Writer) Write(p []byte) (int, error) {
	if x.said {
		return len(p), nil // s3Error has sent the same in S3's form
	}
	return x.ResponseWriter.Write(p)
}

// ReadFrom is called for content only, never for an error response.
func (x *s3Writer) ReadFrom(r io.Reader) (int64, error) { return io.Copy(x.ResponseWriter, r) }

// s3Tag returns the ETag of an entry of a bucket. Clients compare an ETag that
// looks like an MD5 with the content. So it looks like one only if it is one,
// or if the original bucket kept it with the object.
func s3Tag(a *Archive, e holdall.Entry) string {
	if tag := keptTag(e); tag != "" {
		return tag
	}
	if e.Digest.Algo == "md5" {
		return `"` + hex.EncodeToString([]byte(e.Digest.Sum)) + `"`
	}
	of := ""
	switch {
	case len(e.Digest.Sum) >= 16:
		of = e.Digest.String()
	case a.Version != "":
		of = fmt.Sprintf("%q %q %d", a.Version, e.Name, e.Size)
	default:
		of = fmt.Sprintf("%s %q %q %d %d", a.Once, a.Version, e.Name, e.Size, e.ModTime.UnixNano())
	}
	sum := sha256.Sum256([]byte(of))
	return `"` + hex.EncodeToString(sum[:16]) + `-1"`
}

// modTime returns the time when an entry of a bucket was written. S3 requires
// one for each entry.
func modTime(a *Archive, e holdall.Entry) time.Time {
	switch {
	case !e.ModTime.IsZero():
		return e.ModTime
	case !a.ModTime.IsZero():
		return a.ModTime
	}
	return time.Unix(1, 0)
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
		if q.Has("continuation-token") {
			b, err := base64.RawURLEncoding.Strict().DecodeString(q.Get("continuation-token"))
			if err != nil || len(b) == 0 {
				return k, "continuation-token: expected the NextContinuationToken of an earlier page"
			}
			k.after, k.from = "", string(b)
		}
	} else {
		k.after = q.Get("marker")
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
		ContinuationToken     string  `xml:",omitempty"`
		KeyCount              *int    `xml:",omitempty"`
		MaxKeys               int
		Delimiter             string `xml:",omitempty"`
		EncodingType          string `xml:",omitempty"`
		IsTruncated           bool
		NextMarker            string `xml:",omitempty"`
		NextContinuationToken string `xml:",omitempty"`
		Contents              []s3Object
		CommonPrefixes        []s3Prefix
	}{Xmlns: s3Space, Name: format.Escape(bucket), Prefix: text(k.prefix), MaxKeys: k.most, Delimiter: text(k.delimiter), IsTruncated: next != ""}
	if k.encode {
		doc.EncodingType = "url"
	}
	if k.v2 {
		doc.KeyCount, doc.StartAfter, doc.ContinuationToken = new(len(all)), text(q.Get("start-after")), q.Get("continuation-token")
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
			o.Owner = &s3Owner{"holdall", "holdall"}
		}
		doc.Contents = append(doc.Contents, o)
	}
	writeXML(w, r, http.StatusOK, doc)
}
