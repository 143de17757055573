package serve

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
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

// s3Error sends an error response in S3's form. An empty text means Amazon's
// usual one.
func s3Error(w http.ResponseWriter, r *http.Request, code, text string) {
	for _, key := range []string{"Content-Length", "Etag", "Last-Modified", "Accept-Ranges"} {
		w.Header().Del(key)
	}
	dropKept(w.Header())
	writeXML(w, r, s3Codes[code].status, "Error", struct {
		Code, Message, Resource, RequestId string
	}{code, s3Text(code, text), format.Escape(r.URL.Path), w.Header().Get(requestID)})
}

func s3Text(code, text string) string { return cmp.Or(text, s3Codes[code].text) }

// writeXML sends a document. Those of errors, and of what was created, have no namespace at Amazon.
func writeXML(w http.ResponseWriter, r *http.Request, status int, name string, doc any) {
	start := xml.StartElement{Name: xml.Name{Local: name}}
	if status == http.StatusOK {
		start.Name.Space = "http://s3.amazonaws.com/doc/2006-03-01/"
	}
	b := bytes.NewBufferString(xml.Header)
	if err := xml.NewEncoder(b).EncodeElement(doc, start); err != nil { // our own types always have a text form
		panic(err)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(b.Bytes())
	}
}

// subresources are resources that S3's buckets and objects have, but archives
// do not.
var subresources = []string{"accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "inventory", "intelligent-tiering", "legal-hold", "lifecycle", "logging", "metrics", "notification",
	"object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "session", "tagging", "torrent", "uploads", "uploadId", "website"}

// A call is a request.
type call struct {
	s           *S3
	w           http.ResponseWriter
	r           *http.Request
	q           url.Values
	sig         signature // zero if requests need none
	bucket, key string
	h           *handler // of the bucket, if only that is read
	in          Bucket   // if a Keeper answers
}

func (s *S3) route(w http.ResponseWriter, r *http.Request, sig signature) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	c := &call{s: s, w: w, r: r, q: q, sig: sig}
	c.bucket, c.key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	do := (*call).read
	switch name := verb(r.Method, c.key, q); {
	case err != nil:
		err = fault("InvalidURI", "")
	case s.o.Keeper == nil || c.bucket == "":
	case s.o.Key.ID != "" && sig.id == "" && name != formVerb:
		err = fault("AccessDenied", "")
	case verbs[name] != nil:
		do, err = verbs[name], c.begin()
	}
	if err == nil {
		err = do(c)
	}
	if err != nil {
		code, text := c.codeOf(err)
		s3Error(c.w, r, code, text) // see slowly
	}
}

// answer sends a document.
func (c *call) answer(name string, doc any) error {
	writeXML(c.w, c.r, http.StatusOK, name, doc)
	return nil
}

// done sends a status.
func (c *call) done(status int) error {
	c.w.WriteHeader(status)
	return nil
}

// open opens a bucket, which must be released.
func (c *call) open(bucket string) (*handler, error) {
	h, code, text := c.s.site.open(c.r, bucket, "")
	switch {
	case code == http.StatusNotFound:
		return nil, fault("NoSuchBucket", "")
	case h == nil:
		_, text, _ = strings.Cut(text, ": ")
		return nil, fault(codeOf(code), text)
	}
	return h, nil
}

// read answers what needs no Keeper.
func (c *call) read() (err error) {
	switch {
	case slices.ContainsFunc(subresources, func(sub string) bool { return c.q.Has(sub) && (c.key == "" || sub != "tagging" && sub != "attributes") }):
		return fault("NotImplemented", "")
	case c.r.Method != http.MethodGet && c.r.Method != http.MethodHead:
		return fault("MethodNotAllowed", notAllowed)
	case c.bucket == "" && c.key == "":
		return c.buckets()
	case c.bucket == "":
		return fault("NoSuchBucket", "")
	}
	h, err := c.open(c.bucket)
	if err != nil {
		return err
	}
	c.h = c.s.site.other(c.r, h, c.key)
	defer c.h.a.Release()
	c.w.Header().Set("X-Amz-Bucket-Region", c.s.o.Region)
	switch {
	case c.key != "":
		return c.get()
	case c.r.Method == http.MethodHead:
		return c.done(http.StatusOK)
	case c.q.Has("location"):
		region := c.s.o.Region
		if region == "us-east-1" {
			region = "" // as Amazon does
		}
		return c.answer("LocationConstraint", region)
	case c.q.Has("versioning"):
		return c.answer("VersioningConfiguration", "")
	}
	return c.keys()
}

const notAllowed = "The specified method is not allowed against this resource."

// get answers a request for an object.
func (c *call) get() error {
	id, err := versionAsked(c.q)
	if err != nil {
		return err
	}
	e, err := c.lookup(c.h, c.bucket, c.key, id)
	if err == errMarker {
		c.w.Header().Set("Allow", "DELETE")
		c.w.Header().Set("X-Amz-Delete-Marker", "true")
	}
	if err != nil {
		return err
	}
	if id != "" {
		c.w.Header().Set("X-Amz-Version-Id", id)
	}
	if c.q.Has("tagging") {
		var doc struct{ TagSet struct{ Tag []s3Tagged } }
		doc.TagSet.Tag = tagsOf(e)
		return c.answer("Tagging", doc)
	}
	if c.q.Has("attributes") {
		return c.attributes(e)
	}
	r, e, err := c.asked(e)
	if err != nil {
		return err
	}
	sums := e.Attr
	if count, several := partsOf(keptTag(e)); several && c.q.Has("partNumber") {
		c.w.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(count))
		n, _ := strconv.Atoi(c.q.Get("partNumber"))
		sums = partSums(e, n)
	} else if r.Header.Get("Range") != "" {
		sums = nil
	}
	if sums != nil && strings.EqualFold(r.Header.Get(checksumHeader+"mode"), "ENABLED") {
		if kind := sumsOf(e.Attr).ChecksumType; kind != "" {
			setChecksums(c.w.Header(), sums)
			c.w.Header().Set(uploadType, kind)
		}
	}
	c.h.bucket = true
	c.h.content(&s3Writer{ResponseWriter: c.w, r: r, again: func() error {
		_, err := c.lookup(c.h, c.bucket, c.key, id)
		return err
	}}, r, e)
	return nil
}

// attributes answers GetObjectAttributes.
func (c *call) attributes(e holdall.Entry) error {
	type parts struct {
		PartsCount, PartNumberMarker, NextPartNumberMarker, MaxParts int
		IsTruncated                                                  bool
		Part                                                         []partDoc
	}
	doc := struct {
		ETag         string `xml:",omitempty"`
		Checksum     *sumsDoc
		ObjectParts  *parts
		StorageClass string `xml:",omitempty"`
		ObjectSize   *int64
	}{}
	for name := range strings.SplitSeq(strings.Join(c.r.Header["X-Amz-Object-Attributes"], ","), ",") {
		switch strings.TrimSpace(name) {
		case "ETag":
			doc.ETag = strings.Trim(s3Tag(c.h.a, e), `"`)
		case "Checksum":
			if sums := sumsOf(e.Attr); sums != (sumsDoc{}) {
				doc.Checksum = &sums
			}
		case "ObjectParts":
			n, several := partsOf(keptTag(e))
			if !several {
				continue
			}
			most, err := number("x-amz-max-parts", c.r.Header.Get("X-Amz-Max-Parts"), 1000, 1000)
			after, aerr := number("x-amz-part-number-marker", c.r.Header.Get("X-Amz-Part-Number-Marker"), 0, math.MaxInt32)
			if err = cmp.Or(err, aerr); err != nil {
				return err
			}
			var all []Part
			for i, size := range partSizes(e) {
				all = append(all, Part{Number: i + 1, Size: size, Headers: partSums(e, i+1)})
			}
			x := parts{PartsCount: n, PartNumberMarker: after, MaxParts: most}
			x.Part, x.NextPartNumberMarker, x.IsTruncated = partDocs(all, after, most)
			doc.ObjectParts = &x
		case "StorageClass":
			doc.StorageClass = "STANDARD"
		case "ObjectSize":
			doc.ObjectSize = &e.Size
		default:
			return fault("InvalidArgument", "Invalid attribute name specified.")
		}
	}
	c.w.Header().Set("Last-Modified", modTime(c.h.a, e).UTC().Format(http.TimeFormat))
	return c.answer("GetObjectAttributesResponse", doc)
}

// An s3Writer converts error responses to S3's documents.
type s3Writer struct {
	http.ResponseWriter
	r     *http.Request
	again func() error // looks for the object again
	said  bool
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
		if f, gone := errors.AsType[*s3Fault](x.again()); gone {
			code = f.code
		}
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
