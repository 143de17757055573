package s3test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// dialect is how signed requests are worded.
type dialect struct{ algorithm, headers, service, end, key string }

var (
	amazon = dialect{"AWS4-HMAC-SHA256 ", "X-Amz-", "s3", "aws4_request", "AWS4"}
	google = dialect{"GOOG4-HMAC-SHA256 ", "X-Goog-", "storage", "goog4_request", "GOOG4"}
)

func (s *Server) dialect() dialect {
	if s.Google {
		return google
	}
	return amazon
}

// misspoken returns an error code if Google's interface refuses something in the request that S3
// accepts, or "".
func (s *Server) misspoken(r *http.Request) (code string) {
	theirs, ours := false, false
	for k := range r.Header {
		theirs = theirs || strings.HasPrefix(k, "X-Amz-")
		ours = ours || strings.HasPrefix(k, "X-Goog-")
	}
	switch {
	case !s.Google:
	case theirs && (ours || strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ")):
		return "InvalidArgument" // "cannot specify both x-amz and x-goog headers"
	case r.Header.Get("X-Amz-Copy-Source") != "" || r.Header.Get("X-Goog-Copy-Source") != "":
		return "NotImplemented"
	case r.Method == http.MethodGet && r.Header.Get("Accept-Encoding") != "gzip":
		return "InvalidArgument" // it may be decompressed on the way
	}
	return ""
}

// notOnce reports whether a request must create an object that already exists. Each dialect
// ignores the condition of the other.
func (s *Server) notOnce(r *http.Request, there bool) bool {
	if s.Replacing {
		return false
	}
	if s.Google {
		return there && r.Header.Get("X-Goog-If-Generation-Match") == "0"
	}
	return there && r.Header.Get("If-None-Match") == "*"
}

// notOnceInParts is like notOnce for uploads in parts, for which Google also ignores its own
// condition.
func (s *Server) notOnceInParts(r *http.Request, there bool) bool {
	return !s.Google && s.notOnce(r, there)
}

// numbers sets headers to Google's numbers of an object.
func (o *object) numbers(h http.Header, prefix string) {
	h.Set(prefix+"Generation", strconv.Itoa(o.generation+1))
	h.Set(prefix+"Metageneration", strconv.Itoa(o.described+1))
}

// another reports whether a request must remove another version of an object. Each dialect ignores the
// conditions of the other.
func (s *Server) another(r *http.Request, o *object) bool {
	if !s.Google {
		tag := r.Header.Get("If-Match")
		return tag != "" && (o == nil || o.etag != tag)
	}
	is := http.Header{}
	if o != nil {
		o.numbers(is, "")
	}
	for name := range is {
		if want := r.Header.Get("X-Goog-If-" + name + "-Match"); want != "" && want != is.Get(name) {
			return true
		}
	}
	return false
}

// joinedTag returns the ETag of an object of parts. Google's shows nothing about the parts.
func (s *Server) joinedTag(sums [16]byte, parts int) string {
	if s.Google {
		s.last++
		return fmt.Sprintf(`"-CJ%d="`, s.last)
	}
	return fmt.Sprintf(`"%x-%d"`, sums, parts)
}
