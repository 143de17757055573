package s3test

import (
	"fmt"
	"net/http"
	"strings"
)

// A dialect is how signed requests are worded.
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

// misspoken returns the code of what Google's interface refuses of what S3's takes, "" if
// that is nothing.
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
		return "InvalidArgument" // it may be unpacked on the way
	}
	return ""
}

// notOnce reports whether a request wants an object created that is there. Each
// server ignores the other's condition.
func (s *Server) notOnce(r *http.Request, there bool) bool {
	if s.Replacing {
		return false
	}
	if s.Google {
		return there && r.Header.Get("X-Goog-If-Generation-Match") == "0"
	}
	return there && r.Header.Get("If-None-Match") == "*"
}

// notOnceInParts is the same of what was uploaded in parts, where Google's server
// ignores its own condition, too.
func (s *Server) notOnceInParts(r *http.Request, there bool) bool {
	return !s.Google && s.notOnce(r, there)
}

// joinedTag is the ETag of an object of parts. Google's tells nothing about them.
func (s *Server) joinedTag(sums [16]byte, parts int) string {
	if s.Google {
		s.last++
		return fmt.Sprintf(`"-CJ%d="`, s.last)
	}
	return fmt.Sprintf(`"%x-%d"`, sums, parts)
}
