package serve

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	names "github.com/holdall/holdall/internal/read/listing"
)

// maxLimit is the largest number of entries on a page, if pages were
// requested.
const maxLimit = 10_000

// htmlPage is the number of entries on a page for people.
const htmlPage = 1000

type page struct {
	json  bool
	limit int    // 0 is all
	after string // the place of the last entry of the previous page
	as    string // the folder's name, if links are relative to its parent; "" if they are relative to the folder
	leads func(link string) (holdall.Entry, error)
}

// askedPage returns the requested page, or responds to the request.
func askedPage(w http.ResponseWriter, r *http.Request) (p page, ok bool) {
	p, err := parsePage(r.URL.RawQuery)
	if err != nil {
		http.Error(w, "400: "+err.Error(), http.StatusBadRequest)
		return p, false
	}
	accept := r.Header.Get("Accept")
	if !p.json && !strings.Contains(r.URL.RawQuery, "format=") &&
		strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		p.json = true
	}
	// Only browsers get pages: programs that read HTML do not support them.
	if !p.json && p.limit == 0 && strings.Contains(accept, "text/html") {
		p.limit = htmlPage
	}
	return p, true
}

func parsePage(query string) (p page, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return p, errors.New("query: expected NAME=VALUE&…")
	}
	as := q.Get("format")
	if p.json = as == "json"; !p.json && as != "html" && q.Has("format") {
		return p, errors.New("format: expected json or html")
	}
	if q.Has("limit") {
		if p.limit, err = strconv.Atoi(q.Get("limit")); err != nil || p.limit < 1 || p.limit > maxLimit {
			return p, fmt.Errorf("limit: expected a number from 1 to %d", maxLimit)
		}
	}
	if q.Has("after") {
		b, err := base64.RawURLEncoding.DecodeString(q.Get("after"))
		if err != nil || len(b) == 0 {
			return p, errors.New("after: expected the value of next from an earlier page")
		}
		p.after = string(b)
	}
	return p, nil
}

func next(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

// list sends the entries in dir as they are read: a folder may have millions.
// A file may also have entries below it, in archives where only names define
// folders. as is the client's path for dir, if that has no slash at its end.
func (h *handler) list(w http.ResponseWriter, r *http.Request, dir holdall.Entry, as string) {
	p, ok := askedPage(w, r)
	if !ok {
		return
	}
	p.as = as
	p.leads = func(link string) (holdall.Entry, error) { return h.resolve(r.Context(), link) }
	from := ""
	if p.after != "" {
		from = p.after + "\x00"
	}
	var l listing
	begin := func() {
		l = p.listing(w, r)
		l.title(path.Base(h.a.Archive.Name()), strings.Trim(r.URL.Path, "/"))
	}
	n, last, more := 0, "", ""
	entries := h.a.Source().ReadDirFrom(r.Context(), dir.Name, from)
	if dir.Name == "." {
		entries = h.withConsolidated(r.Context(), entries, from)
	}
	for e, err := range entries {
		switch {
		case err != nil && l == nil:
			if dir.Kind != format.Dir || errors.Is(err, fs.ErrNotExist) {
				notFound(w)
			} else {
				h.fail(w, r, err)
			}
			return
		case err != nil:
			if r.Context().Err() == nil {
				h.tell(r, err)
			}
			panic(http.ErrAbortHandler)
		case l == nil:
			begin()
		}
		if r.Method == http.MethodHead || r.Method == propfind && !isDeep(r) {
			break
		}
		if n == p.limit && n > 0 {
			more = next(last)
			break
		}
		n++
		last = names.Place(dir.Name, e)
		name := strings.TrimSuffix(last, "/")
		if e.Kind != format.Dir {
			name = last
		}
		l.entry(name, name, e)
	}
	if l == nil {
		begin()
	}
	l.end(more)
}

// A listing is a page that is written entry by entry.
type listing interface {
	// title begins the page of a folder of an archive; "" is its root.
	title(archive, dir string)
	// entry adds e under its name in the folder. at is its path relative to the
	// folder.
	entry(name, at string, e holdall.Entry)
	// end ends the page. more is the token for the next page, if there is one.
	end(more string)
}

// listing returns the kind of listing for a request.
func (p page) listing(w http.ResponseWriter, r *http.Request) listing {
	if r.Method == propfind {
		return newDAVListing(w, r, p.leads)
	}
	head := w.Header()
	head.Add("Vary", "Accept")
	var out io.Writer = w
	if r.Method == http.MethodHead {
		out = io.Discard
	}
	if p.json {
		head.Set("Content-Type", "application/json")
		return &jsonListing{out: bufio.NewWriter(out)}
	}
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	return &htmlListing{out: bufio.NewWriter(out), limit: p.limit, as: p.as}
}

// jsonListing writes one JSON object, so an incomplete listing is not valid
// JSON.
type jsonListing struct {
	out   *bufio.Writer
	comma bool
}

type listed struct {
	Name    string `json:"name"`
	NameHex string `json:"name_hex,omitempty"` // its bytes, if they are not those of Name
	Kind    string `json:"kind"`
	Size    *int64 `json:"size,omitempty"`
	ModTime string `json:"mtime,omitempty"`
	Link    string `json:"link,omitempty"`
	Digest  string `json:"digest,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (l *jsonListing) title(_, dir string) {
	t, _ := json.Marshal(format.Escape(dir))
	fmt.Fprintf(l.out, `{"path":%s,"entries":[`, t)
}

func (l *jsonListing) entry(name, _ string, e holdall.Entry) {
	x := listed{Name: format.Escape(name), Kind: e.Kind.String(), Link: format.Escape(e.Link), Digest: e.Digest.String()}
	if !e.ModTime.IsZero() {
		x.ModTime = e.ModTime.UTC().Format(time.RFC3339Nano)
	}
	if x.Name != name {
		x.NameHex = hex.EncodeToString([]byte(name))
	}
	if e.Fault != nil {
		x.Error = e.Fault.Message
	} else if e.Kind.HasContent() {
		x.Size = &e.Size
	}
	if l.comma {
		l.out.WriteByte(',')
	}
	l.comma = true
	b, _ := json.Marshal(x)
	l.out.WriteByte('\n')
	l.out.Write(b)
}

func (l *jsonListing) end(more string) {
	l.out.WriteString("\n]")
	if more != "" {
		fmt.Fprintf(l.out, `,"next":%q`, more)
	}
	l.out.WriteString("}\n")
	l.out.Flush()
}

type htmlListing struct {
	out   *bufio.Writer
	limit int
	as    string
}

const htmlHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>%s</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; color-scheme: light dark }
h1 { font-size: 1.2em; overflow-wrap: anywhere }
td { padding: 0 1.5em 0 0; overflow-wrap: anywhere }
td + td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
</style>
`

func (l *htmlListing) title(archive, dir string) {
	title := archive + "/" + dir
	if archive == "" {
		title = "archives"
	}
	fmt.Fprintf(l.out, htmlHead, html.EscapeString(format.Escape(title)))
	if l.as != "" {
		fmt.Fprintf(l.out, "<base href=\"%s/\">\n", reference(l.as))
	}
	fmt.Fprintf(l.out, "<h1>%s</h1>\n<table>\n", html.EscapeString(format.Escape(title)))
	if dir != "" {
		l.row("../", "../", "", "")
	}
}

func (l *htmlListing) entry(name, at string, e holdall.Entry) {
	shown, link, size, modified := format.Escape(name), href(at), "", ""
	if e.Kind == format.Dir {
		shown += "/"
		link += "/"
	}
	switch {
	case e.Kind == format.Symlink || e.Kind == format.HardLink:
		shown += " → " + format.Escape(e.Link)
	case e.Fault != nil:
		size = "unreadable: " + e.Fault.Message
	case e.Kind.HasContent():
		size = strconv.FormatInt(e.Size, 10)
	}
	if !e.ModTime.IsZero() {
		modified = e.ModTime.UTC().Format(time.DateTime)
	}
	if !isPath(name) || e.Kind == format.Fifo {
		link = ""
	}
	l.row(link, shown, size, modified)
}

func (l *htmlListing) row(link, shown, size, modified string) {
	shown = html.EscapeString(shown)
	if link != "" {
		shown = `<a href="` + html.EscapeString(link) + `">` + shown + "</a>"
	}
	fmt.Fprintf(l.out, "<tr><td>%s<td>%s<td>%s\n", shown, html.EscapeString(size), modified)
}

func (l *htmlListing) end(more string) {
	l.out.WriteString("</table>\n")
	if more != "" {
		fmt.Fprintf(l.out, "<p><a rel=\"next\" href=\"?format=html&amp;limit=%d&amp;after=%s\">more</a>\n", l.limit, more)
	}
	l.out.WriteString("</html>\n")
	l.out.Flush()
}
