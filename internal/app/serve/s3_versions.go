package serve

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// newest is an ID of the newest version of each object, as in Amazon's buckets without versioning.
const newest = "null"

// versionID is the form of the other IDs.
var versionID = regexp.MustCompile(`^[A-Z2-7]{24}$`)

var (
	errVersion = fault("InvalidArgument", "Invalid version id specified")
	errMarker  = fault("MethodNotAllowed", "The specified method is not allowed against this resource.")
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
	if id = q.Get("versionId"); q.Has("versionId") && id != newest && !versionID.MatchString(id) {
		err = errVersion
	}
	return id, err
}

// versions returns what yields the versions of a bucket's keys, after those that are asked for. In archives, each has
// one.
func (s *S3) versions(ctx context.Context, h *handler, bucket string, k keysQuery) func(prefix, from string) iter.Seq2[Version, error] {
	var b Bucket
	if s.o.Keeper != nil {
		b, _ = s.o.Keeper.Bucket(ctx, bucket)
	}
	return func(prefix, from string) iter.Seq2[Version, error] {
		if b == nil {
			return h.newest(ctx, prefix, from)
		}
		return func(yield func(Version, error) bool) {
			for v, err := range b.Versions(ctx, prefix, from) {
				if k.afterID != "" && v.Key == k.after {
					if v.id() == k.afterID {
						k.afterID = ""
					}
					continue
				}
				if err == nil && !v.Deleted {
					v.Entry, err = h.asKey(ctx, v.Entry)
				}
				if !errors.Is(err, fs.ErrNotExist) && !yield(v, err) {
					return
				}
			}
		}
	}
}

// lookup finds a version of an object: the newest one if there is no ID.
func (s *S3) lookup(ctx context.Context, h *handler, bucket, key, id string) (e holdall.Entry, err error) {
	if id == "" || id == newest {
		if err = fs.ErrNotExist; h.isKey(key) {
			e, err = h.resolve(ctx, key)
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
	for v, err := range s.versions(ctx, h, bucket, keysQuery{})(key, key) {
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
func (s *S3) listVersions(w http.ResponseWriter, r *http.Request, h *handler, bucket string, k keysQuery, all []found, next string) {
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
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListVersionsResult"`
		Name                  string
		Prefix, KeyMarker     keyText
		VersionIdMarker       string
		NextKeyMarker         keyText `xml:",omitempty"`
		NextVersionIdMarker   string  `xml:",omitempty"`
		MaxKeys               int
		Delimiter             keyText `xml:",omitempty"`
		EncodingType          string  `xml:",omitempty"`
		IsTruncated           bool
		Version, DeleteMarker []version
		CommonPrefixes        []s3Prefix
	}{Name: format.Escape(bucket), Prefix: k.text(k.prefix), KeyMarker: k.text(k.marker), VersionIdMarker: k.afterID, MaxKeys: k.most, Delimiter: k.text(k.delimiter), EncodingType: k.encoding, IsTruncated: next != ""}
	doc.NextKeyMarker, doc.NextVersionIdMarker = k.next(all, next)
	for _, f := range all {
		if f.common {
			doc.CommonPrefixes = append(doc.CommonPrefixes, s3Prefix{k.text(f.Key)})
			continue
		}
		x := version{Key: k.text(f.Key), VersionId: f.id(), IsLatest: f.Newest, LastModified: s3Time(modTime(h.a, f.Entry)), Owner: holdallOwner}
		if f.Deleted {
			doc.DeleteMarker = append(doc.DeleteMarker, x)
			continue
		}
		x.ETag, x.Size, x.StorageClass = s3Tag(h.a, f.Entry), &f.Entry.Size, "STANDARD"
		doc.Version = append(doc.Version, x)
	}
	writeXML(w, r, http.StatusOK, doc)
}
