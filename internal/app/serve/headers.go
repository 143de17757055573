package serve

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store/storekit"
)

// setKept adds the headers that a bucket kept with an object to a response. S3
// clients get the content as it was stored, with the headers for its encoding
// and file name. Clients that read files get neither. If access is restricted,
// they do not get the headers that let caches keep a response, either.
func (h *handler) setKept(head http.Header, e holdall.Entry) {
	n := 0
	for name, value := range e.Attr {
		n += len(name) + len(value)
	}
	if n > storekit.MaxHeaders { // no service keeps as many
		return
	}
	for name, value := range e.Attr {
		if !isStored(name) || strings.ContainsFunc(value, isControl) {
			continue
		}
		if !h.bucket {
			switch name {
			case "content-disposition", "content-encoding":
				continue
			case "content-type":
				if e.Attr["content-encoding"] != "" {
					continue // it is the type of the decoded content
				}
			case "cache-control", "expires":
				if h.guarded {
					continue
				}
			}
		}
		if name == storekit.TagsHeader { // clients of S3 get only their number
			if tags := tagsOf(e); h.bucket && len(tags) > 0 {
				head.Set("X-Amz-Tagging-Count", strconv.Itoa(len(tags)))
			}
			continue
		}
		if h.bucket && strings.HasPrefix(name, storekit.MetaHeader) { // clients of S3 take the names as they come
			head[name] = []string{value}
			continue
		}
		head.Set(name, value)
	}
	if h.bucket && e.Attr["cache-control"] == "" && keptTag(e) != "" {
		head.Del("Cache-Control") // the bucket has no rule for caches, and copies should equal the original
	}
}

type s3Tagged struct{ Key, Value string }

// tagsOf returns the tags that a bucket kept with an object.
func tagsOf(e holdall.Entry) (all []s3Tagged) {
	q, err := url.ParseQuery(e.Attr[storekit.TagsHeader])
	if err != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(q)) {
		for _, value := range q[key] {
			all = append(all, s3Tagged{key, value})
		}
	}
	return all
}

// dropKept removes these headers from an error response.
func dropKept(head http.Header) {
	head.Del("X-Amz-Tagging-Count")
	for key := range head {
		if lower := strings.ToLower(key); storekit.IsHeader(lower) || strings.HasPrefix(lower, checksumHeader) {
			delete(head, key)
		}
	}
	head.Set("Cache-Control", "no-cache")
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// keptTag returns the ETag that a bucket kept for an object, or "" if there is
// no valid one.
func keptTag(e holdall.Entry) string {
	tag := e.Attr[kit.ETagAttr]
	if len(tag) < 2 || len(tag) > 1<<10 || tag[0] != '"' || tag[len(tag)-1] != '"' ||
		strings.ContainsFunc(tag[1:len(tag)-1], func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f }) {
		return ""
	}
	return tag
}
