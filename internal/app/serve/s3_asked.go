package serve

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdall/holdall"
)

// asked makes of a request for an object what Amazon makes of it, and returns the request as HTTP knows it, and the
// object with the headers that the response should have. If there is a code, it is that of an error.
func (s *S3) asked(r *http.Request, q url.Values, a *Archive, e holdall.Entry) (_ *http.Request, _ holdall.Entry, code, text string) {
	if v := q.Get("versionId"); q.Has("versionId") && v != "null" {
		return r, e, "InvalidArgument", "Invalid version id specified"
	}
	changed := false
	change := func(name string, values ...string) {
		if !changed {
			r, changed = r.Clone(r.Context()), true
		}
		if r.Header[name] = values; len(values) == 0 {
			delete(r.Header, name)
		}
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if tags := strings.Join(r.Header[name], ","); tags != "" && tags != quoted(tags) {
			change(name, quoted(tags))
		}
	}
	if q.Has("partNumber") {
		if code, text = part(q.Get("partNumber"), r.Header.Get("Range"), s3Tag(a, e)); code != "" {
			return r, e, code, text
		}
		if e.Size > 0 {
			change("Range", "bytes=0-")
		}
	}
	if asked := r.Header.Get("Range"); asked != "" {
		switch known, empty := knownRange(asked); {
		case !known:
			change("Range")
		case empty || e.Size == 0:
			return r, e, "InvalidRange", ""
		}
	}
	of := e.Attr
	for name, values := range q {
		header, is := strings.CutPrefix(name, "response-")
		switch {
		case !is:
			continue
		case !strings.Contains(" content-type content-language expires cache-control content-disposition content-encoding ", " "+header+" "):
			return r, e, "InvalidArgument", ""
		case r.Header.Get("Authorization") == "" && !q.Has("X-Amz-Signature"):
			return r, e, "InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests."
		}
		if of = maps.Clone(of); of == nil {
			of = map[string]string{}
		}
		of[header] = values[0]
	}
	e.Attr = of
	return r, e, "", ""
}

// part returns an error if a part of an object is not all of it.
func part(number, asked, tag string) (code, text string) {
	n, err := strconv.Atoi(number)
	switch _, parts, several := strings.Cut(strings.Trim(tag, `"`), "-"); {
	case err != nil || n < 1 || n > 10_000:
		return "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive"
	case asked != "":
		return "InvalidRequest", "Cannot specify both Range header and partNumber query parameter"
	case several && parts != "1":
		return "NotImplemented", "The sizes of the parts are not known."
	case n > 1:
		return "InvalidPartNumber", ""
	}
	return "", ""
}

var oneRange = regexp.MustCompile(`^bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))$`)

// knownRange reports whether a Range header is one that S3 knows: it ignores all others, and those of several ranges.
// empty says that there can be nothing in it.
func knownRange(asked string) (known, empty bool) {
	m := oneRange.FindStringSubmatch(asked)
	if m == nil {
		return false, false
	}
	from, _ := strconv.ParseInt(m[1], 10, 64)
	to, _ := strconv.ParseInt(m[2], 10, 64)
	return m[2] == "" || from <= to, m[1] == "" && strings.Trim(m[3], "0") == ""
}

// quoted quotes the tags of a condition that have no quotes.
func quoted(tags string) string {
	all := strings.Split(tags, ",")
	for i, tag := range all {
		if tag = strings.TrimSpace(tag); tag != "*" && tag != "" && !strings.Contains(tag, `"`) {
			tag = `"` + tag + `"`
		}
		all[i] = tag
	}
	return strings.Join(all, ", ")
}
