package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
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

type S3Options struct {
	// Key must sign requests. If its ID is empty, everyone may read.
	Key Key
	// Region is the region that buckets report; empty means us-east-1.
	Region string
	// Keeper, if not nil, keeps what clients write. Without it, the server is
	// read-only.
	Keeper Keeper
	// Clock is for tests; nil means the current time.
	Clock func() time.Time
}

// An S3 is a server that presents the archives of a site as S3 buckets.
// Archives are buckets, and paths are keys. The bucket is in the path, not in
// the host name. Clients may write only what a Keeper keeps.
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
		w.Header().Set(requestID, fmt.Sprintf("%016X", rand.Uint64()))
		writes := s.o.Keeper != nil && slices.Contains([]string{http.MethodPut, http.MethodPost, http.MethodDelete}, r.Method)
		if !writes && !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
			w.Header().Set("Allow", "GET, HEAD")
			s3Error(w, r, "MethodNotAllowed", "")
			return
		}
		if hasBody(r) && !writes {
			s3Error(w, r, "InvalidRequest", "Expected a request without a body.")
			return
		}
		if !begin(w, r, s.site.o.CORS, s.o.Keeper != nil) {
			return
		}
		if writes {
			w.Header().Del("Connection")
		}
		var sig signature
		if s.o.Key.ID != "" && !(writes && isForm(r)) {
			var code string
			if sig, code = s.o.Key.check(r, s.o.Clock()); code != "" {
				s3Error(w, r, code, "")
				return
			}
		}
		if !s.site.gate.enter(&s.site.meter) {
			s3Error(w, r, "SlowDown", "")
			return
		}
		defer s.site.gate.leave()
		if s.o.Keeper != nil {
			bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			if other := s.o.Keeper.Elsewhere(r.Context(), bucket); other != nil {
				clear(w.Header()) // it sets its own
				other.ServeHTTP(w, r)
				return
			}
		}
		s.route(w, r, sig)
	})
}

// requestID is the header with what clients quote when they ask about a response.
const requestID = "X-Amz-Request-Id"

// s3Codes maps errors to Amazon's codes.
var s3Codes = map[string]struct {
	status int
	text   string
}{
	"AccessControlListNotSupported":       {http.StatusBadRequest, "The bucket does not allow ACLs"},
	"AccessDenied":                        {http.StatusForbidden, "Access Denied"},
	"AuthorizationHeaderMalformed":        {http.StatusBadRequest, "The authorization header is not one of AWS4-HMAC-SHA256."},
	"AuthorizationQueryParametersError":   {http.StatusBadRequest, "The signature in the query is not one of AWS4-HMAC-SHA256."},
	"BadDigest":                           {http.StatusBadRequest, "The Content-MD5 you specified did not match what we received."},
	"BadRequest":                          {http.StatusBadRequest, "Bad Request"},
	"BucketAlreadyExists":                 {http.StatusConflict, "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again."},
	"BucketAlreadyOwnedByYou":             {http.StatusConflict, "Your previous request to create the named bucket succeeded and you already own it."},
	"InvalidBucketState":                  {http.StatusConflict, "The bucket also shows the objects of another one, its source: end that first"},
	"BucketNotEmpty":                      {http.StatusConflict, "The bucket you tried to delete is not empty"},
	"EntityTooLarge":                      {http.StatusBadRequest, "Your proposed upload exceeds the maximum allowed size"},
	"EntityTooSmall":                      {http.StatusBadRequest, "Your proposed upload is smaller than the minimum allowed size"},
	"IncompleteBody":                      {http.StatusBadRequest, "You did not provide the number of bytes specified by the Content-Length HTTP header"},
	"InsufficientStorage":                 {http.StatusInsufficientStorage, "There is no room for this; nothing was written."},
	"InternalError":                       {http.StatusInternalServerError, "The object cannot be read; the server's log has the reason."},
	"InvalidAccessKeyId":                  {http.StatusForbidden, "Unknown access key."},
	"InvalidBucketAclWithObjectOwnership": {http.StatusBadRequest, "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"},
	"InvalidArgument":                     {http.StatusBadRequest, "Invalid argument."},
	"InvalidBucketName":                   {http.StatusBadRequest, "The specified bucket is not valid."},
	"InvalidDigest":                       {http.StatusBadRequest, "The Content-MD5 you specified was invalid."},
	"InvalidLocationConstraint":           {http.StatusBadRequest, "The specified location-constraint is not valid"},
	"InvalidPart":                         {http.StatusBadRequest, "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."},
	"InvalidPartNumber":                   {http.StatusRequestedRangeNotSatisfiable, "The object has fewer parts."},
	"InvalidPartOrder":                    {http.StatusBadRequest, "The list of parts was not in ascending order. The parts list must be specified in order by part number."},
	"InvalidPolicyDocument":               {http.StatusBadRequest, "The content of the form does not meet the conditions specified in the policy document."},
	"InvalidRange":                        {http.StatusRequestedRangeNotSatisfiable, "The range is outside the object."},
	"InvalidRequest":                      {http.StatusBadRequest, "Invalid request."},
	"InvalidStorageClass":                 {http.StatusBadRequest, "The storage class you specified is not valid"},
	"InvalidTag":                          {http.StatusBadRequest, "The tag provided was not a valid tag."},
	"InvalidURI":                          {http.StatusBadRequest, "Couldn't parse the specified URI."},
	"KeyTooLongError":                     {http.StatusBadRequest, "Your key is too long"},
	"MaxPostPreDataLengthExceededError":   {http.StatusBadRequest, "Your POST request fields preceding the upload file were too large."},
	"MalformedPOSTRequest":                {http.StatusBadRequest, "The body of your POST request is not well-formed multipart/form-data."},
	"MalformedTrailerError":               {http.StatusBadRequest, "The request contained trailing data that was not well-formed or did not conform to our published schema."},
	"MalformedXML":                        {http.StatusBadRequest, "The XML you provided was not well-formed or did not validate against our published schema"},
	"MaxMessageLengthExceeded":            {http.StatusBadRequest, "Your request was too big."},
	"MetadataTooLarge":                    {http.StatusBadRequest, "Your metadata headers exceed the maximum allowed metadata size"},
	"MethodNotAllowed":                    {http.StatusMethodNotAllowed, "This server is read-only."},
	"MissingContentLength":                {http.StatusLengthRequired, "You must provide the Content-Length HTTP header."},
	"MissingSecurityHeader":               {http.StatusBadRequest, "Your request was missing a required header"},
	"NoSuchBucket":                        {http.StatusNotFound, "There is no archive with this name."},
	"NoSuchKey":                           {http.StatusNotFound, "The archive has no entry with this name."},
	"NoSuchUpload":                        {http.StatusNotFound, "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."},
	"NoSuchVersion":                       {http.StatusNotFound, "The specified version does not exist."},
	"NotImplemented":                      {http.StatusNotImplemented, "Archives do not support this."},
	"PreconditionFailed":                  {http.StatusPreconditionFailed, "The object does not meet the condition."},
	"RequestTimeTooSkewed":                {http.StatusForbidden, "The clocks differ by more than a quarter of an hour."},
	"RequestTimeout":                      {http.StatusBadRequest, "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed."},
	"ServiceUnavailable":                  {http.StatusServiceUnavailable, "It cannot be read now; try again."},
	"SignatureDoesNotMatch":               {http.StatusForbidden, "The signature does not match this request and key."},
	"SlowDown":                            {http.StatusServiceUnavailable, "Too many requests at once; try again."},
	"XAmzContentSHA256Mismatch":           {http.StatusBadRequest, "The provided 'x-amz-content-sha256' header does not match what was computed."},
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
	for _, key := range []string{"Content-Length", "Etag", "Last-Modified", "Accept-Ranges"} {
		w.Header().Del(key)
	}
	dropKept(w.Header())
	writeXML(w, r, s3Codes[code].status, struct {
		XMLName                            xml.Name `xml:"Error"`
		Code, Message, Resource, RequestId string
	}{Code: code, Message: s3Text(code, text), Resource: format.Escape(r.URL.Path), RequestId: w.Header().Get(requestID)})
}

func s3Text(code, text string) string { return cmp.Or(text, s3Codes[code].text) }

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
var subresources = []string{"accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "inventory", "intelligent-tiering", "legal-hold", "lifecycle", "logging", "metrics", "notification",
	"object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "session", "tagging", "torrent", "uploads", "uploadId", "website"}

func (s *S3) route(w http.ResponseWriter, r *http.Request, sig signature) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		s3Error(w, r, "InvalidURI", "")
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if s.o.Keeper != nil && bucket != "" {
		name := verb(r.Method, key, q)
		if s.o.Key.ID != "" && sig.id == "" && name != formVerb {
			s3Error(w, r, "AccessDenied", "")
			return
		}
		if do := verbs[name]; do != nil {
			(&call{s: s, w: w, r: r, q: q, sig: sig, bucket: bucket, key: key}).write(do)
			return
		}
	}
	if slices.ContainsFunc(subresources, func(sub string) bool { return q.Has(sub) && (key == "" || sub != "tagging" && sub != "attributes") }) {
		s3Error(w, r, "NotImplemented", "")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s3Error(w, r, "MethodNotAllowed", "The specified method is not allowed against this resource.")
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

func (s *S3) object(w http.ResponseWriter, r *http.Request, h *handler, key string, q url.Values) {
	if !h.isKey(key) {
		s3Error(w, r, "NoSuchKey", "")
		return
	}
	e, err := h.resolve(r.Context(), key)
	switch none := errors.Is(err, fs.ErrNotExist) || err == nil && !e.Kind.HasContent(); {
	case none && !utf8.ValidString(key): // only archives have such names
		s3Error(w, r, "InvalidURI", "")
		return
	case none:
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
	if q.Has("attributes") {
		s.attributes(w, r, h, e)
		return
	}
	r, e, code, text := s.asked(r, q, h.a, e)
	if code != "" {
		s3Error(w, r, code, text)
		return
	}
	sums, kind := e.Attr, sumsOf(e.Attr).ChecksumType
	if count, several := partsOf(keptTag(e)); several && q.Has("partNumber") {
		w.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(count))
		n, _ := strconv.Atoi(q.Get("partNumber"))
		sums = partSums(e, n)
	} else if r.Header.Get("Range") != "" {
		sums = nil
	}
	if strings.EqualFold(r.Header.Get(checksumHeader+"mode"), "ENABLED") && kind != "" && sums != nil {
		setChecksums(w.Header(), sums)
		w.Header().Set(uploadType, kind)
	}
	h.bucket = true
	x := &s3Writer{ResponseWriter: w, r: r}
	h.content(x, r, e)
}

// attributes answers GetObjectAttributes.
func (s *S3) attributes(w http.ResponseWriter, r *http.Request, h *handler, e holdall.Entry) {
	type part struct {
		PartNumber int
		Size       int64
		sumsDoc
	}
	type parts struct {
		PartsCount, PartNumberMarker, NextPartNumberMarker, MaxParts int
		IsTruncated                                                  bool
		Part                                                         []part
	}
	doc := struct {
		XMLName      xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ GetObjectAttributesResponse"`
		ETag         string   `xml:",omitempty"`
		Checksum     *sumsDoc
		ObjectParts  *parts
		StorageClass string `xml:",omitempty"`
		ObjectSize   *int64
	}{}
	asked := strings.Join(r.Header["X-Amz-Object-Attributes"], ",")
	for name := range strings.SplitSeq(asked, ",") {
		switch strings.TrimSpace(name) {
		case "ETag":
			doc.ETag = strings.Trim(s3Tag(h.a, e), `"`)
		case "Checksum":
			if sums := sumsOf(e.Attr); sums != (sumsDoc{}) {
				doc.Checksum = &sums
			}
		case "ObjectParts":
			n, several := partsOf(keptTag(e))
			if !several {
				continue
			}
			most, err := strconv.Atoi(cmp.Or(r.Header.Get("X-Amz-Max-Parts"), "1000"))
			after, aerr := strconv.Atoi(cmp.Or(r.Header.Get("X-Amz-Part-Number-Marker"), "0"))
			if err != nil || aerr != nil || most < 0 || after < 0 {
				s3Error(w, r, "InvalidArgument", "")
				return
			}
			doc.ObjectParts = &parts{PartsCount: n, PartNumberMarker: after, MaxParts: min(most, 1000)}
			for i, size := range partSizes(e) {
				if i < after {
					continue
				}
				if len(doc.ObjectParts.Part) == doc.ObjectParts.MaxParts {
					doc.ObjectParts.IsTruncated = true
					break
				}
				x := part{i + 1, size, sumsOf(partSums(e, i+1))}
				x.ChecksumType = ""
				doc.ObjectParts.Part = append(doc.ObjectParts.Part, x)
				doc.ObjectParts.NextPartNumberMarker = i + 1
			}
		case "StorageClass":
			doc.StorageClass = "STANDARD"
		case "ObjectSize":
			doc.ObjectSize = &e.Size
		default:
			s3Error(w, r, "InvalidArgument", "Invalid attribute name specified.")
			return
		}
	}
	w.Header().Set("Last-Modified", modTime(h.a, e).UTC().Format(http.TimeFormat))
	writeXML(w, r, http.StatusOK, doc)
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
	case status == http.StatusNotModified: // clients would compare nothing with the checksum
		maps.DeleteFunc(x.Header(), func(name string, _ []string) bool { return strings.HasPrefix(strings.ToLower(name), checksumHeader) })
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
