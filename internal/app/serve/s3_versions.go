package serve

import (
	"encoding/xml"
	"net/http"
	"net/url"

	"github.com/holdall/holdall/format"
)

// versions answers ListObjectVersions: each object has one version.
func (s *S3) versions(w http.ResponseWriter, r *http.Request, h *handler, bucket string, q url.Values, k keysQuery, all []found, more bool) {
	text := func(s string) string { return s }
	type version struct {
		Key, VersionId     string
		IsLatest           bool
		LastModified, ETag string
		Size               int64
		StorageClass       string
		Owner              s3Owner
	}
	doc := struct {
		XMLName                            xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListVersionsResult"`
		Name, Prefix                       string
		KeyMarker, VersionIdMarker         string
		NextKeyMarker, NextVersionIdMarker string `xml:",omitempty"`
		MaxKeys                            int
		Delimiter, EncodingType            string `xml:",omitempty"`
		IsTruncated                        bool
		Version                            []version
		CommonPrefixes                     []s3Prefix
	}{Name: format.Escape(bucket), VersionIdMarker: q.Get("version-id-marker"), MaxKeys: k.most, IsTruncated: more}
	if k.encode {
		text, doc.EncodingType = signedPath, "url"
	}
	doc.Prefix, doc.Delimiter, doc.KeyMarker = text(k.prefix), text(k.delimiter), text(q.Get("key-marker"))
	for i, f := range all {
		if last := more && i == len(all)-1; last {
			if doc.NextKeyMarker = text(f.name); !f.common {
				doc.NextVersionIdMarker = "null"
			}
		}
		if f.common {
			doc.CommonPrefixes = append(doc.CommonPrefixes, s3Prefix{text(f.name)})
			continue
		}
		doc.Version = append(doc.Version, version{text(f.name), "null", true, s3Time(modTime(h.a, f.e)), s3Tag(h.a, f.e), f.e.Size, "STANDARD", holdallOwner})
	}
	writeXML(w, r, http.StatusOK, doc)
}
