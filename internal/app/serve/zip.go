package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"path"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/format/zip"
	"github.com/holdall/holdall/internal/read/content"
	names "github.com/holdall/holdall/internal/read/listing"
)

// zip sends the contents of a folder as a zip. If something cannot be read
// after it has begun, it aborts the connection, so that an incomplete folder
// does not look complete.
func (h *handler) zip(w http.ResponseWriter, r *http.Request) {
	dir, _, ok := h.target(w, r)
	if !ok {
		return
	}
	// Check that there is such a folder before anything is sent.
	found := dir.Kind == format.Dir
	for _, err := range h.a.Source().ReadDirFrom(r.Context(), dir.Name, "") {
		if err != nil && !errors.Is(err, fs.ErrNotExist) && found {
			h.fail(w, r, err)
			return
		}
		found = err == nil
		break
	}
	if !found {
		http.Error(w, "404: the archive has no folder with this name", http.StatusNotFound)
		return
	}
	only, wanted := map[string]bool{}, r.URL.Query()["only"]
	for _, name := range wanted {
		if name = strings.Trim(name, "/"); !isPath(name) || len(wanted) > maxOnly {
			http.Error(w, fmt.Sprintf("400: only: expected at most %d paths in the folder", maxOnly), http.StatusBadRequest)
			return
		}
		only[name] = true
	}
	name := h.a.Name
	if dir.Name != "." {
		name = path.Base(dir.Name)
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", attachment(name+".zip"))
	if r.Method == http.MethodHead {
		return
	}
	h.stream(w, r, dir, func(e holdall.Entry, name string) bool { return len(only) == 0 || among(only, name) })
}

// SendZip sends the entries that found reports as a zip, as the zip of a folder is sent.
func (a *Archive) SendZip(w http.ResponseWriter, r *http.Request, log *slog.Logger, found func(holdall.Entry) bool) {
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", attachment(a.Name+".zip"))
	if r.Method == http.MethodHead {
		return
	}
	h := &handler{a: a, log: log}
	h.stream(w, r, holdall.Entry{Name: ".", Kind: format.Dir}, func(e holdall.Entry, _ string) bool { return found(e) })
}

// stream sends a zip, or aborts the connection.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, dir holdall.Entry, only func(e holdall.Entry, name string) bool) {
	out := &sent{w: w}
	err := h.sendZip(r.Context(), out, dir, only)
	if err != nil {
		if r.Context().Err() == nil && out.gone == nil {
			h.tell(r, err)
		}
		panic(http.ErrAbortHandler)
	}
}

// sent is a response that records why sending stopped early.
type sent struct {
	w    io.Writer
	gone error
}

func (s *sent) Write(p []byte) (n int, err error) {
	n, s.gone = s.w.Write(p)
	return n, s.gone
}

// mostHeld is the longest content that is held in memory for a client, who may read nothing, unless it is there anyway.
const mostHeld = 128 << 10

// maxOnly is how many paths of a folder a request may name.
const maxOnly = 1000

func among(only map[string]bool, name string) bool {
	for i := 0; i <= len(name); i++ {
		if (i == len(name) || name[i] == '/') && only[name[:i]] {
			return true
		}
	}
	return false
}

// sendZip sends the contents of a folder, or some of them.
func (h *handler) sendZip(ctx context.Context, w io.Writer, dir holdall.Entry, only func(e holdall.Entry, name string) bool) (err error) {
	out := bufio.NewWriterSize(w, 32<<10)
	z := zip.NewStream(out, sorter.TempFile)
	defer func() { err = errors.Join(err, z.Close()) }()
	above := dir.Name + "/" // removed from names
	if dir.Name == "." {
		above = ""
	}
	left := false // entries were left out: their names are not paths
	wanted := func(e holdall.Entry) bool {
		if !strings.HasPrefix(e.Name, above) || e.Name == above || e.Internal || !only(e, e.Name[len(above):]) {
			return false
		}
		switch e.Kind {
		case format.File, format.Property, format.Dir, format.Symlink, format.HardLink:
		default:
			return false
		}
		if !isPath(e.Name) || len(e.Name) > math.MaxUint16-1 {
			left = true
			return false
		}
		return true
	}
	a, src := h.a, h.a.Source()
	err = src.Sweep(ctx, names.Only(a.Entries(ctx), wanted), content.Sent, func(c content.Content, err error) error {
		e := c.Entry
		name := strings.TrimPrefix(e.Name, above)
		if err == nil {
			err = src.Fault(e)
		}
		if err == nil && e.Kind == format.HardLink {
			// The target is sent again: a zip has no links of this kind.
			if e, err = a.Lookup(ctx, e.Link); err == nil {
				if err = src.Fault(e); err == nil && !e.Kind.HasContent() {
					err = fmt.Errorf("%s: is a %s", format.Escape(e.Name), e.Kind)
				}
				c = src.Open(ctx, e, 0)
				defer c.Close()
			}
		}
		if err != nil {
			return err
		}
		e.Name, e.Mode = name, e.Mode.Perm()
		if e.Kind == format.Symlink {
			e.HasMode = false
		}
		if !e.Kind.HasContent() {
			return z.Add(ctx, e, nil)
		}
		if e.Size <= mostHeld || c.IsHeld() {
			return c.WithSmall(func(b []byte) error { return z.Add(ctx, e, bytes.NewReader(b)) })
		}
		return z.Add(ctx, e, c.Streamed())
	})
	if err != nil {
		return err
	}
	comment := ""
	if left {
		comment = "left out: names that are not paths"
	}
	return errors.Join(z.End(comment), out.Flush())
}
