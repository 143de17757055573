package serve

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sigv4"
)

// Archives are also folders of WebDAV (RFC 4918, class 1, read-only), so that systems without FUSE can mount
// them. A file is read as any client reads it; only the list of a folder is asked for in another way.
const propfind = "PROPFIND"

func isDAV(r *http.Request, route string) bool {
	return (route == "f" || route == "page") && (r.Method == propfind || r.Method == http.MethodOptions)
}

// dav handles what WebDAV needs besides files and lists. It reports whether the request needs further work.
func dav(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", "OPTIONS, GET, HEAD, "+propfind)
		w.Header().Set("DAV", "1")
		w.Header().Set("MS-Author-Via", "DAV")
		w.WriteHeader(http.StatusNoContent)
		return false
	case propfind:
		// The properties that a client asks for are not looked at: it gets all that there are.
		_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, "413: expected at most 64 KiB", http.StatusRequestEntityTooLarge)
			return false
		}
		if d := r.Header.Get("Depth"); d != "0" && d != "1" {
			w.Header().Set("Content-Type", "application/xml; charset=utf-8")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, xml.Header+`<D:error xmlns:D="DAV:"><D:propfind-finite-depth/></D:error>`)
			return false
		}
	}
	return true
}

func isDeep(r *http.Request) bool { return r.Header.Get("Depth") == "1" }

// davListing is an answer to PROPFIND.
type davListing struct {
	out  *bufio.Writer
	base string // path of the folder, escaped, with a slash at its end
	deep bool   // also what is in it
	// leads returns what a link leads to.
	leads func(link string) (holdall.Entry, error)
}

func newDAVListing(w http.ResponseWriter, r *http.Request, leads func(string) (holdall.Entry, error)) *davListing {
	w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	w.WriteHeader(http.StatusMultiStatus)
	base, _, _ := strings.Cut(r.RequestURI, "?") // r.URL may be a part of it
	if at := strings.Index(base, "://"); at >= 0 {
		_, base, _ = strings.Cut(base[at+3:], "/")
		base = "/" + base
	}
	l := &davListing{out: bufio.NewWriter(w), base: strings.TrimRight(base, "/") + "/", deep: isDeep(r), leads: leads}
	l.out.WriteString(xml.Header + "<D:multistatus xmlns:D=\"DAV:\">\n")
	return l
}

func (l *davListing) title(archive, dir string) {
	name := dir[strings.LastIndexByte(dir, '/')+1:]
	if name == "" {
		name = archive
	}
	l.response(l.base, name, holdall.Entry{Kind: format.Dir}, "")
}

func (l *davListing) entry(name, at string, e holdall.Entry) {
	if !l.deep || !isPath(name) {
		return
	}
	if e.Kind == format.Symlink || e.Kind == format.HardLink {
		is, err := l.leads(e.Name)
		if err != nil {
			return
		}
		e = is
	}
	link := l.base + sigv4.Path(at)
	switch {
	case e.Kind == format.Dir:
		link += "/"
	case !e.Kind.HasContent():
		return
	}
	l.response(link, name, e, "")
}

// file is the answer for a file.
func (l *davListing) file(name string, e holdall.Entry, tag string) {
	l.response(strings.TrimSuffix(l.base, "/"), name, e, tag)
}

func (l *davListing) response(link, name string, e holdall.Entry, tag string) {
	text := func(element, s string) {
		fmt.Fprintf(l.out, "<D:%s>", element)
		_ = xml.EscapeText(l.out, []byte(s)) // a bufio.Writer keeps its error
		fmt.Fprintf(l.out, "</D:%s>", element)
	}
	l.out.WriteString("<D:response>")
	text("href", link)
	l.out.WriteString("<D:propstat><D:prop>")
	text("displayname", format.Escape(name))
	if e.Kind == format.Dir {
		l.out.WriteString("<D:resourcetype><D:collection/></D:resourcetype>")
	} else {
		l.out.WriteString("<D:resourcetype/>")
		text("getcontentlength", strconv.FormatInt(e.Size, 10))
		text("getcontenttype", typeOf(name))
	}
	if !e.ModTime.IsZero() {
		text("getlastmodified", e.ModTime.UTC().Format(http.TimeFormat))
		text("creationdate", e.ModTime.UTC().Format(time.RFC3339))
	}
	if tag != "" {
		text("getetag", tag)
	}
	l.out.WriteString("</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n")
}

func (l *davListing) end(string) {
	l.out.WriteString("</D:multistatus>\n")
	l.out.Flush()
}
