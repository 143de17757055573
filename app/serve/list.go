package serve

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// list shows what lies in dir, as it comes: a folder may have millions. A file
// may have something below it, too, where nothing but names makes folders.
func (h *handler) list(w http.ResponseWriter, r *http.Request, dir holdall.Entry) {
	var l listing
	for e, err := range h.a.ReadDir(r.Context(), dir.Name) {
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
			l = h.listingOf(w, r)
		}
		if r.Method == http.MethodHead {
			break
		}
		name := e.Name
		if dir.Name != "." {
			name = strings.TrimPrefix(name, dir.Name+"/")
		}
		l.entry(name, e)
	}
	if l == nil {
		l = h.listingOf(w, r)
	}
	l.end()
}

// listingOf begins a listing of the path that was asked for.
func (h *handler) listingOf(w http.ResponseWriter, r *http.Request) listing {
	l := listingFor(w, r)
	l.title(path.Base(h.a.Name()), strings.Trim(r.URL.Path, "/"))
	return l
}

// A listing is a page that grows entry by entry.
type listing interface {
	// title begins the page of a folder of an archive; "" is its root.
	title(archive, dir string)
	// entry adds e under the name that it has in the folder.
	entry(name string, e holdall.Entry)
	end()
}

// listingFor returns the kind of listing that a request wants.
func listingFor(w http.ResponseWriter, r *http.Request) listing {
	head := w.Header()
	head.Set("Vary", "Accept")
	var out io.Writer = w
	if r.Method == http.MethodHead {
		out = io.Discard
	}
	as := r.URL.Query().Get("format")
	if accept := r.Header.Get("Accept"); as == "" && strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		as = "json"
	}
	if as == "json" {
		head.Set("Content-Type", "application/json")
		return &jsonListing{out: bufio.NewWriter(out)}
	}
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	return &htmlListing{out: bufio.NewWriter(out)}
}

// jsonListing is one JSON object, so that half of it is none.
type jsonListing struct {
	out   *bufio.Writer
	comma bool
}

// listed is an entry of a listing for programs.
type listed struct {
	Name    string `json:"name"`
	NameHex string `json:"name_hex,omitempty"` // its bytes, if they are not those of Name
	Kind    string `json:"kind"`
	Size    *int64 `json:"size,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (l *jsonListing) title(_, dir string) {
	t, _ := json.Marshal(format.Escape(dir))
	fmt.Fprintf(l.out, `{"path":%s,"entries":[`, t)
}

func (l *jsonListing) entry(name string, e holdall.Entry) {
	x := listed{Name: format.Escape(name), Kind: e.Kind.String()}
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

func (l *jsonListing) end() {
	l.out.WriteString("\n]}\n")
	l.out.Flush()
}

type htmlListing struct{ out *bufio.Writer }

const htmlHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>%[1]s</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; color-scheme: light dark }
h1 { font-size: 1.2em; overflow-wrap: anywhere }
td { padding: 0 1.5em 0 0; overflow-wrap: anywhere }
td + td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
</style>
<h1>%[1]s</h1>
<table>
`

func (l *htmlListing) title(archive, dir string) {
	fmt.Fprintf(l.out, htmlHead, html.EscapeString(format.Escape(archive+"/"+dir)))
	if dir != "" {
		l.row("../", "../", "", "")
	}
}

func (l *htmlListing) entry(name string, e holdall.Entry) {
	shown, link, size, modified := format.Escape(name), reference(name), "", ""
	switch {
	case e.Kind == format.Dir:
		shown += "/"
		link += "/"
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

func (l *htmlListing) end() {
	l.out.WriteString("</table>\n</html>\n")
	l.out.Flush()
}
