package serve

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"net/url"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// newest is an ID of the newest version of each object, as in Amazon's buckets without versioning.
const newest = "null"

// versionID is the form of the other IDs.
var versionID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z2-7]{24}$`) })

var (
	errVersion = fault("InvalidArgument", "Invalid version id specified")
	errMarker  = fault("MethodNotAllowed", notAllowed)
	errOld     = fault("NotImplemented", "An older version cannot be changed or deleted alone. It goes when its archive is compacted, or with all of its object by 'holdall fleet forget-object'.")
)

// id is the ID of a version in lists.
func (v Version) id() string {
	if v.Newest {
		return newest
	}
	return v.ID
}

// versionAsked returns the ID of the version that a query asks for, or "".
func versionAsked(q url.Values) (id string, err error) {
	if id = q.Get("versionId"); q.Has("versionId") && id != newest && !versionID().MatchString(id) {
		err = errVersion
	}
	return id, err
}

// versions returns what yields the versions of a bucket's keys, after those that are asked for. In archives, each has
// one.
func (c *call) versions(h *handler, bucket string, k keysQuery) func(prefix, from string) iter.Seq2[Version, error] {
	var b Bucket
	ctx := c.r.Context()
	if c.s.o.Keeper != nil {
		b, _ = c.s.o.Keeper.Bucket(ctx, bucket)
	}
	if b == nil {
		return h.newest(ctx)
	}
	return func(prefix, from string) iter.Seq2[Version, error] {
		return func(yield func(Version, error) bool) {
			for v, err := range b.Versions(ctx, prefix, from) {
				if k.afterID != "" && v.Key == k.after {
					if v.id() == k.afterID {
						k.afterID = ""
					}
					continue
				}
				if err == nil && !v.Deleted {
					if v.Entry, err = h.asKey(ctx, v.Entry); errors.Is(err, fs.ErrNotExist) {
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

// lookup finds a version of an object: the newest one if there is no ID.
func (c *call) lookup(h *handler, bucket, key, id string) (e holdall.Entry, err error) {
	if id == "" || id == newest {
		if err = fs.ErrNotExist; h.isKey(key) {
			e, err = h.resolve(c.r.Context(), key)
		}
		switch none := errors.Is(err, fs.ErrNotExist) || err == nil && !e.Kind.HasContent(); {
		case !none:
			return e, err
		case !utf8.ValidString(key): // only archives have such names
			return e, fault("InvalidURI", "")
		case id == "":
			return e, fault("NoSuchKey", "")
		}
	}
	for v, err := range c.versions(h, bucket, keysQuery{})(key, key) {
		switch {
		case err != nil:
			return e, err
		case v.Key != key:
			return e, fault("NoSuchVersion", "")
		case v.Deleted && id == newest:
			return e, errMarker
		case !v.Deleted && v.ID == id:
			return v.Entry, nil
		}
	}
	return e, fault("NoSuchVersion", "")
}

// deletion returns what deletes a version of an object, which must be the newest.
func (c *call) deletion(key, id string, cond Condition) (Deletion, error) {
	if id == "" || id == newest {
		return Deletion{key, cond}, nil
	}
	for v, err := range c.in.Versions(c.r.Context(), key, key) {
		switch tag := cmp.Or(keptTag(v.Entry), TagOf(v.Entry.Digest), "*"); {
		case err != nil:
			return Deletion{}, err
		case v.Key != key:
			return Deletion{}, fault("NoSuchVersion", "")
		case v.ID == id && v.Newest:
			return Deletion{key, Condition{Match: tag}}, cond.Check(tag)
		case v.ID == id:
			return Deletion{}, errOld
		}
	}
	return Deletion{}, fault("NoSuchVersion", "")
}

// listVersions answers ListObjectVersions.
func (c *call) listVersions(k keysQuery) error {
	p, err := findKeys(c.r.Context(), k, c.versions(c.h, c.bucket, k))
	if err != nil {
		return err
	}
	type version struct {
		Key          keyText
		VersionId    string
		IsLatest     bool
		LastModified string
		ETag         string `xml:",omitempty"`
		Size         *int64
		StorageClass string `xml:",omitempty"`
		Owner        s3Owner
	}
	doc := struct {
		Name                string
		Prefix, KeyMarker   keyText
		VersionIdMarker     string
		NextKeyMarker       keyText `xml:",omitempty"`
		NextVersionIdMarker string  `xml:",omitempty"`
		MaxKeys             int
		keysPage
		Version, DeleteMarker []version
		CommonPrefixes        []s3Prefix
	}{Name: format.Escape(c.bucket), Prefix: k.text(k.prefix), KeyMarker: k.text(k.marker), VersionIdMarker: k.afterID, MaxKeys: k.most, keysPage: p, CommonPrefixes: p.common}
	doc.NextKeyMarker, doc.NextVersionIdMarker = p.next()
	for _, v := range p.keys {
		x := version{Key: k.text(v.Key), VersionId: v.id(), IsLatest: v.Newest, LastModified: s3Time(modTime(c.h.a, v.Entry)), Owner: holdallOwner}
		if v.Deleted {
			doc.DeleteMarker = append(doc.DeleteMarker, x)
			continue
		}
		x.ETag, x.Size, x.StorageClass = s3Tag(c.h.a, v.Entry), &v.Entry.Size, "STANDARD"
		doc.Version = append(doc.Version, x)
	}
	return c.answer("ListVersionsResult", doc)
}
