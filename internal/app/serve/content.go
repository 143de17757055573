package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// maxRanges is the maximum number of ranges in one request: each may be a
// round trip to the archive. A request with more gets the whole content.
const maxRanges = 64

// sniffMost is the largest content whose type is determined from its first
// bytes: content up to that size is read completely in any case. Of larger
// content, only the requested bytes are read.
const sniffMost = 1 << 20

// mostSniffed is how many bytes of an entry its type is determined from.
const mostSniffed = 512

// sniff determines the type of an entry from its first bytes. The result is
// the same for each request.
func (h *handler) sniff(ctx context.Context, e holdall.Entry) string {
	b := make([]byte, min(e.Size, mostSniffed))
	n, err := h.a.ReadAt(ctx, e, b, 0)
	if err != nil && err != io.EOF || n < len(b) {
		return unknownType // reading the content will report the error
	}
	return sniffed(b, e.Size == int64(n))
}

func (h *handler) content(w http.ResponseWriter, r *http.Request, e holdall.Entry) {
	if e.Fault != nil {
		h.fail(w, r, &format.CorruptError{Format: h.a.Format().Name, Problem: *e.Fault})
		return
	}
	head := w.Header()
	text, isMade := e.Ref.(made)
	sniffs := false
	h.setKept(head, e)
	if head["Content-Type"] == nil {
		ctype := typeOf(e.Name)
		if sniffs = ctype == unknownType && !isMade && !h.bucket && e.Size > 0 && e.Size <= sniffMost; sniffs && r.Header["Range"] != nil {
			// Each part of a response may have the type, before anything is read.
			ctype, sniffs = h.sniff(r.Context(), e), false
		}
		head["Content-Type"] = []string{ctype}
	}
	head["Content-Security-Policy"] = policyOf(head.Get("Content-Type")) // that of text is that of an unknown type
	if r.URL.RawQuery != "" && r.URL.Query().Has("download") {
		head.Set("Content-Disposition", attachment(path.Base(e.Name)))
	}
	var written time.Time
	if h.bucket {
		written = modTime(h.a, e)
		head.Set("ETag", s3Tag(h.a, e))
	} else if !h.a.IsDir() { // files of a folder change while it is served
		written = e.ModTime
		if tag := h.etag(r.Context(), e); tag != "" {
			head["Etag"] = []string{tag}
		}
	}
	if isMade {
		http.ServeContent(w, r, "", written, bytes.NewReader(text))
		return
	}
	if strings.Count(strings.Join(r.Header["Range"], ","), ",") >= maxRanges {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	a := &answer{ResponseWriter: w, src: source{h: h, ctx: r.Context(), e: e}, sniffs: sniffs}
	http.ServeContent(a, r, "", written, &a.src)
	err := a.src.failed()
	switch {
	case err == nil && a.gone == nil:
		a.release(nil)
	case err == nil || r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case !a.released:
		h.fail(w, r, err)
	default:
		h.tell(r, err)
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
}

// maxExtents is the maximum number of pieces of an entry that has an ETag made
// from the archive's version.
const maxExtents = 1000

// etag returns a strong ETag for e's content, or "" if nothing identifies its
// bytes. A short checksum does not: other content may have the same.
func (h *handler) etag(ctx context.Context, e holdall.Entry) string {
	if d := e.Digest; len(d.Sum) >= 16 && !strings.ContainsFunc(d.Algo, func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f }) {
		return `"` + d.String() + `"`
	}
	if h.a.Version == "" {
		return ""
	}
	n := 0
	for x, err := range h.a.Extents(ctx, e) {
		// Content outside the archive changes without its version.
		if n++; err != nil || x.External || n > maxExtents {
			return ""
		}
	}
	sum := sha256.Sum256(identity(h.a, e))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// A source is e's content, for http.ServeContent. It reads only the requested
// bytes. Its reads may continue after ServeContent has returned, so it is
// never closed.
type source struct {
	h   *handler
	ctx context.Context
	e   holdall.Entry
	off int64

	mu  sync.Mutex
	err error // the first error that prevented reading content
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.h.a.ReadAt(s.ctx, s.e, p, s.off)
	s.off += int64(n)
	if err != nil && err != io.EOF {
		s.fail(err)
	}
	return n, err
}

func (s *source) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.off
	case io.SeekEnd:
		offset += s.e.Size
	}
	s.off = offset
	return offset, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = cmp.Or(s.err, err)
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// An answer delays the status until the first byte of content has been read. So
// content that cannot be read at all does not get a 200.
type answer struct {
	http.ResponseWriter
	src      source
	sniffs   bool // the content says its type
	code     int
	released bool
	sent     int64
	gone     error // why sending stopped early
}

func (a *answer) WriteHeader(code int) { a.code = cmp.Or(a.code, code) }

// release sends the status. p is what is sent first, if there is anything.
func (a *answer) release(p []byte) {
	if a.released {
		return
	}
	a.released = true
	head := a.Header()
	if e := a.src.e; a.sniffs && a.code != http.StatusNotModified && a.code < http.StatusBadRequest {
		if n := min(e.Size, mostSniffed); int64(len(p)) >= n {
			head["Content-Type"] = []string{sniffed(p[:n], n == e.Size)}
		} else {
			head.Set("Content-Type", a.src.h.sniff(a.src.ctx, e))
		}
	}
	if a.code >= http.StatusBadRequest {
		ctype := head.Get("Content-Type")
		dropKept(head)
		head.Set("Content-Type", ctype)
	}
	if a.code == http.StatusOK && head.Get("Content-Encoding") != "" {
		head.Set("Content-Length", strconv.FormatInt(a.src.e.Size, 10)) // which ServeContent leaves out
	}
	if a.code != 0 {
		a.ResponseWriter.WriteHeader(a.code)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	a.release(p)
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	a.gone = cmp.Or(a.gone, err)
	return n, err
}

// ReadFrom lets io.CopyN pass the source and the number of bytes. So the
// content can be read in the best way, and never beyond its range.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok && l.R == io.Reader(&a.src) {
		before := a.sent
		n, err := a.handOn(l.N)
		if a.sent += n; err == nil && n < l.N {
			err = a.src.writeTo(a, l.N-n)
		}
		if err != nil && a.gone == nil {
			a.src.fail(err)
		}
		l.N -= a.sent - before
		return a.sent - before, err
	}
	return io.Copy(struct{ io.Writer }{a}, r)
}

// handed is how many bytes the system copies from a file to the network before
// the file is checked again. It is also the minimum for which that is
// worthwhile.
const handed = 4 << 20

// handOn has the system send the next n bytes of content, if they are stored
// unchanged in a local file and nothing is left to verify. It returns how many
// it sent. The caller must read the rest.
func (a *answer) handOn(n int64) (sent int64, err error) {
	s := &a.src
	if n < handed {
		return 0, nil
	}
	src, all := s.h.a.Source(), s.off == 0 && n == s.e.Size
	var own *os.File // with a file position of its own
	defer func() {
		if own != nil {
			own.Close()
		}
	}()
	for sent < n {
		f, at, ok, err := src.File(s.ctx, s.e, all)
		if err != nil || !ok {
			return sent, err
		}
		if own == nil {
			if own = again(f); own == nil {
				return 0, nil
			}
			if _, err := own.Seek(at+s.off, io.SeekStart); err != nil {
				return 0, err
			}
			a.release(nil)
		}
		k, err := io.CopyN(a.ResponseWriter, own, min(n-sent, handed))
		s.off += k
		sent += k
		switch {
		case err == io.EOF: // the file has become shorter
			return sent, cmp.Or(src.Unchanged(s.ctx), io.ErrUnexpectedEOF)
		case err != nil:
			a.gone = cmp.Or(a.gone, err)
			return sent, err
		}
	}
	return sent, nil
}

// again opens a file a second time. It returns nil if another file has
// replaced it.
func again(f *os.File) *os.File {
	was, err := f.Stat()
	if err != nil {
		return nil
	}
	own, err := os.Open(f.Name())
	if err != nil {
		return nil
	}
	if is, err := own.Stat(); err != nil || !os.SameFile(was, is) {
		own.Close()
		return nil
	}
	return own
}

// step is how much is read at once if there is no reading ahead.
const step = 1 << 20

var steps = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeTo writes n bytes from the current position of s.
func (s *source) writeTo(w io.Writer, n int64) error {
	switch {
	case s.off == 0 && n == s.e.Size:
		if parts, whole := s.h.a.Compares(s.ctx, s.e); parts || !whole {
			return s.h.a.WriteContent(s.ctx, w, s.e)
		}
		held := &lastHeld{w: w, left: n}
		if err := s.h.a.WriteContent(s.ctx, held, s.e); err != nil {
			return err
		}
		return held.release()
	case n > step && (s.off+n == s.e.Size || s.decoded()):
		f, err := s.h.a.OpenEntry(s.ctx, s.e)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Seek(s.off, io.SeekStart); err != nil {
			return err
		}
		_, err = io.CopyN(w, f, n)
		return err
	}
	buf := steps.Get().(*bytes.Buffer)
	defer steps.Put(buf)
	buf.Grow(int(min(n, step)))
	room := buf.AvailableBuffer()
	for end := s.off + n; s.off < end; {
		p := room[:min(end-s.off, int64(cap(room)), step)]
		if _, err := io.ReadFull(s, p); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// decoded reports whether content must be decoded from the start of a unit up
// to the requested place. Reading it in pieces would decode the start again
// for each piece.
func (s *source) decoded() bool {
	for x, err := range s.h.a.Extents(s.ctx, s.e) {
		return err == nil && x.Codec != "" // codec names for unchanged bytes
	}
	return false
}

// lastHeld writes left bytes. It holds the last one back until release is
// called: without it the client can tell that the content is incomplete.
type lastHeld struct {
	w    io.Writer
	left int64
	last []byte
}

func (l *lastHeld) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left == 0 && len(p) > 0 {
		l.last = []byte{p[len(p)-1]}
		n, err := l.w.Write(p[:len(p)-1])
		if err != nil {
			return n, err
		}
		return len(p), nil
	}
	return l.w.Write(p)
}

func (l *lastHeld) release() error {
	_, err := l.w.Write(l.last)
	return err
}
