package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall"
)

// A Keeper keeps what clients of an S3 server write. What it keeps is also a
// source of the server's site, which reads and lists it: a bucket of the
// Keeper is the archive of the same name. ETags and headers are attributes of
// its entries, as those of the objects of other buckets.
type Keeper interface {
	Make(ctx context.Context, bucket string) error             // ErrBucketExists
	Remove(ctx context.Context, bucket string) error           // ErrBucketNotEmpty, ErrNoArchive, ErrReadOnly, ErrSource
	Bucket(ctx context.Context, bucket string) (Bucket, error) // ErrNoArchive, ErrReadOnly
	// Elsewhere returns what answers requests for a bucket instead of this server, or
	// nil.
	Elsewhere(ctx context.Context, bucket string) http.Handler
}

// A Bucket is one of a Keeper. What a method has done is durable when it
// returns, and every later request sees it. Any number of calls may run at the
// same time.
type Bucket interface {
	Put(ctx context.Context, key string, u *Upload) (Written, error)
	// Delete deletes objects, and returns an error for each. It is no error if one
	// is not there, unless its condition says otherwise.
	Delete(ctx context.Context, all []Deletion) []error
	// Change replaces the headers of an object, such as its tags. Its content, ETag
	// and time stay. An error of change is returned as it is. There may be
	// several calls of change, for the newest headers.
	Change(ctx context.Context, key string, change func(headers map[string]string) (map[string]string, error)) error // ErrNoObject
	// Versions yields what there is of the keys that begin with prefix, starting at from: by key, the newest first.
	Versions(ctx context.Context, prefix, from string) iter.Seq2[Version, error]

	// Begin begins an upload in parts, of an object with these headers.
	Begin(ctx context.Context, key string, headers map[string]string) (id string, err error)
	Part(ctx context.Context, key, id string, number int, u *Upload) (Written, error) // ErrNoUpload
	// Parts returns the headers that Begin was given, and the parts by number.
	Parts(ctx context.Context, key, id string) (headers map[string]string, all []Part, err error) // ErrNoUpload
	// Finish makes an object of parts as Parts has returned them. u has no body.
	Finish(ctx context.Context, key, id string, parts []Part, u *Upload) (Written, error) // ErrNoUpload, ErrPart if one was replaced
	Abandon(ctx context.Context, key, id string) error                                    // ErrNoUpload
	Uploads(ctx context.Context) ([]Begun, error)                                         // by key and time
}

// An Upload is the content of a new object or part.
type Upload struct {
	// Body has Size bytes. If they are not what the client has said (length,
	// checksums, signature), Read returns an error instead of io.EOF, and nothing
	// may be stored. So Body must be read to its end, even if Size bytes were read.
	Body io.Reader
	Size int64
	// End is called once, after all of Body was read: ETag, with its quotes, and
	// headers of the object (of a part: its checksums).
	End func() (etag string, headers map[string]string)
	If  Condition
}

// A Condition is that of If-Match and If-None-Match, with the tags as the
// client has sent them; empty ones do not count.
type Condition struct{ Match, NoneMatch string }

// Check compares a condition with the object that it is for: with its ETag,
// with the quotes, or "" if there is none. The error is ErrCondition, or
// ErrNoObject if Match has nothing to match.
func (c Condition) Check(etag string) error {
	switch {
	case c.Match != "" && etag == "":
		return ErrNoObject
	case c.Match != "" && !matches(c.Match, etag), c.NoneMatch != "" && etag != "" && matches(c.NoneMatch, etag):
		return ErrCondition
	}
	return nil
}

func matches(tags, etag string) bool {
	all := strings.Split(quoted(tags), ", ")
	return slices.Contains(all, "*") || slices.Contains(all, etag)
}

// A Version is one of an object. Older ones may be gone at any time.
type Version struct {
	Key     string
	Entry   holdall.Entry // of the archive of the bucket's name
	ID      string        // stays the same for as long as there is the version
	Newest  bool          // without an ID, this one is meant
	Deleted bool          // it stands for a deletion, before what was deleted; it has no ID, and no content
}

type Deletion struct {
	Key string
	If  Condition
}

// Written is what was written.
type Written struct{ Time time.Time }

// A Part is one of an upload in parts.
type Part struct {
	Number  int
	Size    int64
	ETag    string
	Time    time.Time
	Headers map[string]string // its checksums
}

// A Begun is an upload in parts that is not finished.
type Begun struct {
	Key, ID string
	Time    time.Time
}

// ErrNoObject reports that there is no object with the key.
var ErrNoObject = fmt.Errorf("no such object: %w", fs.ErrNotExist)

// Errors of a Keeper, besides ErrNoArchive and ErrNoObject.
var (
	ErrBucketExists   = errors.New("the bucket exists")
	ErrBucketNotEmpty = errors.New("the bucket is not empty")
	ErrSource         = errors.New("the bucket also shows the objects of another one")
	ErrReadOnly       = errors.New("the bucket is read-only")
	ErrNoUpload       = errors.New("no upload in parts with this ID")
	ErrPart           = errors.New("no such part")
	ErrCondition      = errors.New("the object does not meet the condition")
	ErrFull           = errors.New("there is no room")
	ErrBusy           = errors.New("too much is being written; try again")
)
