package serve

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/base/sigv4"
)

// boto3 signs links with version 2 of signatures unless it is configured
// otherwise. Requests with such a signature in their header are not taken.

// signedV2 are the parameters that version 2 signs, besides response-….
var signedV2 = append([]string{"location", "partNumber", "storageClass", "versionId", "versioning", "versions"}, subresources...)

// isV2 reports whether a link was signed with version 2.
func isV2(q url.Values) bool { return q.Has("AWSAccessKeyId") && q.Has("Signature") }

// checkV2 checks the signature of such a link. All of its parameters must be
// signed. Headers that it gives as parameters become headers.
func (k Key) checkV2(r *http.Request, q url.Values, now time.Time) (s signature, code string) {
	var resource, amz []string
	for name, values := range q {
		lower := strings.ToLower(name)
		switch {
		case len(values) > 1:
			return s, "AccessDenied"
		case name == "AWSAccessKeyId" || name == "Signature" || name == "Expires" || name == "x-id":
		case strings.HasPrefix(lower, "x-amz-") || lower == "content-type" || lower == "content-md5":
			r.Header.Set(name, values[0])
		case !slices.Contains(signedV2, name) && !strings.HasPrefix(name, "response-"):
			return s, "AccessDenied"
		case values[0] == "":
			resource = append(resource, name)
		default:
			resource = append(resource, name+"="+values[0])
		}
	}
	for name, values := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") {
			amz = append(amz, lower+":"+strings.Join(values, ",")+"\n")
		}
	}
	slices.Sort(resource)
	slices.Sort(amz)
	text := strings.Join([]string{r.Method, r.Header.Get("Content-Md5"), r.Header.Get("Content-Type"), q.Get("Expires"), strings.Join(amz, "") + r.URL.EscapedPath()}, "\n")
	if len(resource) > 0 {
		text += "?" + strings.Join(resource, "&")
	}
	until, err := strconv.ParseInt(q.Get("Expires"), 10, 64)
	switch {
	case !hmac.Equal([]byte(q.Get("AWSAccessKeyId")), []byte(k.ID)):
		return s, "InvalidAccessKeyId"
	case err != nil || now.Unix() > until:
		return s, "AccessDenied"
	case !k.isV2(text, q.Get("Signature")):
		return s, "SignatureDoesNotMatch"
	}
	return signature{id: k.ID, presigned: true, payload: sigv4.Unsigned}, ""
}

// isV2 reports whether a signature is that of a text.
func (k Key) isV2(text, signature string) bool {
	m := hmac.New(sha1.New, []byte(k.Secret))
	m.Write([]byte(text))
	said, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && hmac.Equal(said, m.Sum(nil))
}
