package s3test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// remove deletes an object. It becomes an older version, or the named one is deleted for good.
func (s *Server) remove(bucket, key, version string) {
	at := bucket + "/" + key
	if o := s.buckets[bucket][key]; version == "" && o != nil && s.Versions {
		s.older = append(s.older, at)
	} else if i := slices.Index(s.older, at); version != "" && i >= 0 {
		s.older = slices.Delete(s.older, i, i+1)
	}
	delete(s.buckets[bucket], key)
}

// Older returns what was deleted, as bucket/key, and is kept as older versions.
func (s *Server) Older() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.older))
}

func (s *Server) removeMany(w http.ResponseWriter, bucket string, body []byte) (code string) {
	var ask struct {
		Object []struct{ Key, ETag, VersionId string }
	}
	if err := xml.Unmarshal(body, &ask); err != nil || len(ask.Object) > 1000 {
		return "MalformedXML"
	}
	if statuses[s.Many] != 0 {
		return s.Many
	}
	var said strings.Builder
	for _, x := range ask.Object {
		o, did := s.buckets[bucket][x.Key], "<Deleted><Key>%s</Key></Deleted>"
		switch {
		case s.Many == "" && x.ETag != "" && o == nil:
			did = "<Error><Key>%s</Key><Code>NoSuchKey</Code></Error>"
		case s.Many == "" && x.ETag != "" && o.etag != x.ETag:
			did = "<Error><Key>%s</Key><Code>PreconditionFailed</Code></Error>"
		default:
			s.remove(bucket, x.Key, x.VersionId)
		}
		var key bytes.Buffer
		_ = xml.EscapeText(&key, []byte(x.Key))
		fmt.Fprintf(&said, did, key.String())
	}
	answer(w, "DeleteResult", said.String())
	return ""
}
