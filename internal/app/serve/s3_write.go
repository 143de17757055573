package serve

import (
	"encoding/xml"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
)

// verbs are what a Keeper adds to a server, by method, level and subresource.
var verbs = map[string]func(*call) error{
	"PUT bucket": (*call).makeBucket, "DELETE bucket": (*call).removeBucket,
	"POST bucket?delete": (*call).deleteAll, "GET bucket?uploads": (*call).listUploads,
	formVerb:  (*call).form,
	"PUT key": (*call).put, "DELETE key": (*call).delete,
	"PUT key?tagging": (*call).putTags, "DELETE key?tagging": (*call).removeTags,
	"POST key?uploads": (*call).beginUpload, "PUT key?uploadId": (*call).putPart, "GET key?uploadId": (*call).listParts,
	"POST key?uploadId": (*call).finish, "DELETE key?uploadId": (*call).abandon,
	"GET bucket?acl": (*call).acl, "PUT bucket?acl": (*call).setACL, "GET key?acl": (*call).acl, "PUT key?acl": (*call).setACL,
}

const formVerb = "POST bucket"

// verb returns the name of a request's verb.
func verb(method, key string, q url.Values) string {
	name := method + " bucket"
	if key != "" {
		name = method + " key"
	}
	for _, sub := range subresources {
		if q.Has(sub) {
			name += "?" + sub
		}
	}
	return name
}

// parameters are those of requests that write, without those of signatures.
var parameters = []string{"acl", "delete", "partNumber", "tagging", "uploadId", "uploads", "versionId", "x-id",
	"AWSAccessKeyId", "Signature", "Expires", "content-type", "content-md5"}

// maxKey is the most bytes that a new key may have.
const maxKey = 1024

// begin finds the bucket.
func (c *call) begin() (err error) {
	id, err := versionAsked(c.q)
	switch {
	case err != nil:
		return err
	case c.s.o.Key.ID == "" && new(http.CrossOriginProtection).Check(c.r) != nil && allows(c.s.site.o.CORS, c.r.Header.Get("Origin")) == "":
		return fault("AccessDenied", "Pages of other sites may not write.")
	case len(c.key) > maxKey:
		return fault("KeyTooLongError", "")
	case !utf8.ValidString(c.key) || strings.Contains(c.key, "\x00"):
		return fault("InvalidURI", "")
	case id != "" && id != newest && c.r.Method != http.MethodGet && verb(c.r.Method, c.key, c.q) != "DELETE key":
		return errOld
	}
	for name := range c.q { // a part of a bucket that is unknown here must not be taken for the bucket
		if c.r.Method != http.MethodGet && !strings.HasPrefix(strings.ToLower(name), "x-amz-") && !slices.Contains(parameters, name) {
			return fault("NotImplemented", "")
		}
	}
	if err := unknownHeaders(c.r.Header); err == errACL && c.key == "" && !c.q.Has("acl") {
		return fault("InvalidBucketAclWithObjectOwnership", "")
	} else if err != nil {
		return err
	}
	c.w.Header().Set("X-Amz-Bucket-Region", c.s.o.Region)
	if c.key != "" || c.q.Has("acl") || c.r.Method != http.MethodPut && c.r.Method != http.MethodDelete {
		c.in, err = c.s.o.Keeper.Bucket(c.r.Context(), c.bucket)
	}
	return err
}

// unknownHeaders returns an error for headers that ask for what nobody here
// would do.
func unknownHeaders(head http.Header) error {
	for name, values := range head {
		name, ok := strings.CutPrefix(strings.ToLower(name), "x-amz-")
		if !ok {
			continue
		}
		value := values[0]
		switch {
		case name == "bucket-object-lock-enabled" && strings.EqualFold(value, "false"):
		case name == "acl" && value != "" && value != "private" && value != "bucket-owner-full-control" || strings.HasPrefix(name, "grant-"):
			return errACL
		case name == "object-ownership" && value != "BucketOwnerEnforced":
			return fault("NotImplemented", "")
		case name == "storage-class" && value != "STANDARD":
			return fault("InvalidStorageClass", "")
		case strings.HasSuffix(name, "expected-bucket-owner") && value != holdallOwner.ID:
			return fault("AccessDenied", "")
		case strings.Contains(name, "server-side-encryption") || strings.Contains(name, "object-lock") || strings.HasPrefix(name, "if-match-"),
			name == "website-redirect-location", name == "write-offset-bytes":
			return fault("NotImplemented", "A header you provided implies functionality that is not implemented.")
		}
	}
	return nil
}

// codeOf returns the code of an error, and logs it if it has none.
func (c *call) codeOf(err error) (code, text string) {
	if f, ok := errors.AsType[*s3Fault](err); ok {
		return f.code, f.text
	}
	for _, x := range []struct {
		err  error
		code string
	}{
		{ErrNoArchive, "NoSuchBucket"}, {ErrBucketExists, "BucketAlreadyOwnedByYou"}, {ErrBucketNotEmpty, "BucketNotEmpty"}, {ErrReadOnly, "MethodNotAllowed"},
		{ErrNoUpload, "NoSuchUpload"}, {ErrPart, "InvalidPart"}, {ErrCondition, "PreconditionFailed"}, {ErrFull, "InsufficientStorage"}, {ErrBusy, "SlowDown"},
		{ErrNoObject, "NoSuchKey"}, {ErrSource, "InvalidBucketState"},
	} {
		if errors.Is(err, x.err) {
			return x.code, ""
		}
	}
	unlessGone(c.r)
	if c.h != nil {
		c.h.tell(c.r, err)
		return codeOf(statusOf(err)), ""
	}
	c.s.site.o.Log.Error("cannot be written", "bucket", c.bucket, "key", format.Escape(c.key), "error", err)
	if code := codeOf(statusOf(err)); code != "InternalError" {
		return code, ""
	}
	if errors.Is(err, format.ErrCorrupt) {
		return "InternalError", outwardly(err)
	}
	return "InternalError", "We encountered an internal error. Please try again."
}

// maxDoc is the longest document that a request may bring: 10,000 parts.
const maxDoc = 4 << 20

// doc reads a document that the request brings. If it brings none, empty
// tells whether that is an error.
func (c *call) doc(to any) (empty bool, err error) {
	p, err := c.body()
	if err != nil {
		return false, err
	}
	if p.size > maxDoc {
		return false, fault("MaxMessageLengthExceeded", "")
	}
	if p.size > 0 {
		if err = xml.NewDecoder(p).Decode(to); err != nil && p.err == nil {
			err = fault("MalformedXML", "")
		}
	}
	// What follows counts for the sums, too.
	if _, rest := io.Copy(io.Discard, p); rest != nil || p.err != io.EOF {
		return false, p.err
	}
	if f, ok := errors.AsType[*s3Fault](err); err != nil && !ok {
		return false, fault("MalformedXML", "")
	} else if ok {
		return false, f
	}
	return p.size == 0, nil
}

// few is the elements of a document: there are never more than 10,000.
type few[T any] []T

func (l *few[T]) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	if len(*l) == 10_000 {
		return fault("MalformedXML", "")
	}
	var x T
	if err := d.DecodeElement(&x, &start); err != nil {
		return err
	}
	*l = append(*l, x)
	return nil
}

var bucketName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
})

// isBucketName reports whether Amazon would take the name.
func isBucketName(name string) bool {
	begins, ends := func(s string) bool { return strings.HasPrefix(name, s) }, func(s string) bool { return strings.HasSuffix(name, s) }
	return len(name) >= 3 && len(name) <= 63 && bucketName().MatchString(name) && net.ParseIP(name) == nil &&
		!slices.ContainsFunc([]string{"xn--", "sthree-", "amzn-s3-demo-"}, begins) && !slices.ContainsFunc([]string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}, ends)
}

func (c *call) makeBucket() error {
	var asked struct {
		XMLName            xml.Name `xml:"CreateBucketConfiguration"`
		LocationConstraint string
	}
	if !isBucketName(c.bucket) {
		return fault("InvalidBucketName", "")
	}
	if _, err := c.doc(&asked); err != nil {
		return err
	}
	if l := asked.LocationConstraint; l != "" && l != c.s.o.Region {
		return fault("InvalidLocationConstraint", "")
	}
	err := c.s.o.Keeper.Make(c.r.Context(), c.bucket)
	if errors.Is(err, ErrBucketExists) {
		switch _, own := c.s.o.Keeper.Bucket(c.r.Context(), c.bucket); {
		case own != nil:
			return fault("BucketAlreadyExists", "")
		case c.s.o.Region == "us-east-1": // as Amazon does
			err = nil
		}
	}
	if err != nil {
		return err
	}
	c.s.site.set.Again()
	c.w.Header().Set("Location", "/"+c.bucket)
	return c.done(http.StatusOK)
}

func (c *call) removeBucket() error {
	if err := c.s.o.Keeper.Remove(c.r.Context(), c.bucket); err != nil {
		return err
	}
	c.s.site.set.Again()
	return c.done(http.StatusNoContent)
}

func condition(head http.Header) Condition {
	return Condition{Match: head.Get("If-Match"), NoneMatch: head.Get("If-None-Match")}
}

func (c *call) delete() error {
	id := c.q.Get("versionId")
	d, err := c.deletion(c.key, id, condition(c.r.Header))
	if err == nil {
		err = c.in.Delete(c.r.Context(), []Deletion{d})[0]
	}
	if err != nil && !errors.Is(err, ErrNoObject) {
		return err
	}
	if id != "" {
		c.w.Header().Set("X-Amz-Version-Id", id)
	}
	return c.done(http.StatusNoContent)
}

func (c *call) deleteAll() error {
	type object struct {
		Key, VersionId, ETag   string
		LastModifiedTime, Size *string
	}
	var asked struct {
		XMLName xml.Name `xml:"Delete"`
		Quiet   bool
		Object  few[object]
	}
	if empty, err := c.doc(&asked); err != nil {
		return err
	} else if n := len(asked.Object); empty || n == 0 || n > 1000 {
		return fault("MalformedXML", "")
	}
	type deleted struct {
		Key       string
		VersionId string `xml:",omitempty"`
	}
	type failed struct {
		deleted
		Code, Message string
	}
	var answer struct {
		Deleted []deleted
		Error   []failed
	}
	var all []Deletion
	var of []deleted
	fail := func(of deleted, err error) {
		code, text := c.codeOf(err)
		answer.Error = append(answer.Error, failed{of, code, s3Text(code, text)})
	}
	for _, o := range asked.Object {
		is := deleted{o.Key, o.VersionId}
		switch d, err := c.deletion(o.Key, o.VersionId, Condition{Match: o.ETag}); {
		case o.Key == "":
			return fault("MalformedXML", "")
		case len(o.Key) > maxKey:
			fail(is, fault("KeyTooLongError", ""))
		case o.LastModifiedTime != nil || o.Size != nil:
			fail(is, fault("NotImplemented", ""))
		case err != nil:
			fail(is, err)
		default:
			all, of = append(all, d), append(of, is)
		}
	}
	for i, err := range c.in.Delete(c.r.Context(), all) {
		if err != nil && !errors.Is(err, ErrNoObject) {
			fail(of[i], err)
		} else if !asked.Quiet {
			answer.Deleted = append(answer.Deleted, of[i])
		}
	}
	return c.answer("DeleteResult", answer)
}

// wrote sets the headers of a response for content that was written.
func (c *call) wrote(etag string, headers map[string]string) {
	c.w.Header().Set("ETag", etag)
	setChecksums(c.w.Header(), headers)
}

// setChecksums adds the checksums of an object to a response.
func setChecksums(head http.Header, headers map[string]string) {
	for _, a := range algorithms {
		if value := headers[checksumHeader+a.name]; value != "" {
			head.Set(checksumHeader+a.name, value)
			head.Set(checksumHeader+"type", checksumType(value))
		}
	}
}

// checksumType returns what a checksum is of: of the content, or of the
// checksums of its parts.
func checksumType(value string) string {
	if strings.Contains(value, "-") {
		return "COMPOSITE"
	}
	return "FULL_OBJECT"
}
