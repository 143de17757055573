package serve

import (
	"net/http"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// setKept gives an answer the headers that a bucket kept with an object. Content is what
// was stored: clients of buckets are told that it is encoded, and what it is to be saved as.
// Whoever reads files is not, and no cache is told to keep what not everybody may have.
func (h *handler) setKept(head http.Header, e holdall.Entry) {
	n := 0
	for name, value := range e.Attr {
		n += len(name) + len(value)
	}
	if n > store.MaxHeaders { // no service has as many
		return
	}
	for name, value := range e.Attr {
		if !store.IsHeader(name) || strings.ContainsFunc(value, isControl) {
			continue
		}
		if !h.bucket {
			switch name {
			case "content-disposition", "content-encoding":
				continue
			case "content-type":
				if e.Attr["content-encoding"] != "" {
					continue // it is that of the content without
				}
			case "cache-control", "expires":
				if h.guarded {
					continue
				}
			}
		}
		head.Set(name, value)
	}
	if h.bucket && e.Attr["cache-control"] == "" && keptTag(e) != "" {
		head.Del("Cache-Control") // the bucket said nothing of caches, and copies are to be as it was
	}
}

// dropKept takes them away from an answer that says no.
func dropKept(head http.Header) {
	for key := range head {
		if store.IsHeader(strings.ToLower(key)) {
			head.Del(key)
		}
	}
	head.Set("Cache-Control", "no-cache")
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// keptTag is the ETag that a bucket had of an object, "" if there is none that can be said.
func keptTag(e holdall.Entry) string {
	tag := e.Attr[format.ETagAttr]
	if len(tag) < 2 || len(tag) > 1<<10 || tag[0] != '"' || tag[len(tag)-1] != '"' ||
		strings.ContainsFunc(tag[1:len(tag)-1], func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f }) {
		return ""
	}
	return tag
}
