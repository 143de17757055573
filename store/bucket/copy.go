package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

const (
	// minPart is the smallest part that is not the last.
	minPart = 5 * mib

	// maxCopy is the largest part that a server copies.
	maxCopy = 5 << 30
)

// A run is a range of an object that the server keeps.
type run struct {
	src     *object
	version string
	off, n  int64
}

// WriteRange has the server copy a range of an object that it keeps itself, as parts
// of this one. It waits for what comes after it: ranges that lie one behind the other
// are copied as one, and those that stay too short for a part pass through here.
func (w *writer) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	src, ok := store.Inner[*object](from)
	if !ok || off < 0 || n <= 0 || *src.st.where.endpoint != *w.st.where.endpoint || w.st.noCopies.Load() {
		return errors.ErrUnsupported
	}
	if err := w.Usable(); err != nil {
		return w.fail("write", err)
	}
	info, err := src.Info(ctx)
	if err != nil {
		return err
	}
	switch {
	case off > info.Size || n > info.Size-off:
		return &store.Error{Op: "read", Name: src.st.Address(src.Name), Off: off, Len: n, Err: io.ErrUnexpectedEOF}
	case !strings.HasPrefix(info.Version, `"`), n > far.MaxSize-w.Written-w.pending.n:
		return errors.ErrUnsupported // nothing to hold the server to
	}
	if p := &w.pending; p.n > 0 && p.src == src && p.off+p.n == off {
		p.n += n
		return nil
	}
	if err := w.settleRange(ctx); err != nil {
		return err
	}
	w.pending = run{src, info.Version, off, n}
	return nil
}

// CopiesFrom reports whether the server keeps what lies at an address, and copies it.
func (st *Store) CopiesFrom(address string) bool {
	return st.where.google == nil && store.Scheme(address) == "s3" && !st.noCopies.Load()
}

// settleRange has the server copy what waits for it. What comes before is sent as a
// part of its own, filled up from the range where it is too short for one.
func (w *writer) settleRange(ctx context.Context) error {
	r := w.pending
	w.pending = run{}
	if r.n == 0 {
		return nil
	}
	fill := int64(0)
	if k := int64(len(w.Buf)); k > 0 && k < minPart {
		fill = minPart - k
	}
	if r.n < fill+w.leastCopy() {
		if err := w.through(ctx, r.src, r.off, r.n); err != nil {
			return w.Spoil(err) // some of it may be there
		}
		return nil
	}
	if len(w.Buf) > 0 {
		p := make([]byte, fill)
		if err := r.src.ReadAt(ctx, p, r.off); err != nil {
			return w.Spoil(err)
		}
		w.Buf = append(w.Buf, p...)
		w.Written += fill
		r.off, r.n = r.off+fill, r.n-fill
		if err := w.Send(); err != nil {
			return w.fail("write", err)
		}
	} else if err := w.begin(ctx, nil); err != nil {
		return w.fail("write", err)
	}
	for r.n > 0 {
		k := min(r.n, maxCopy)
		if r.n > maxCopy && r.n-maxCopy < minPart {
			k -= minPart // what is left has to be a part, too
		}
		if err := w.copyPart(ctx, r.src, r.version, r.off, k); err != nil {
			return w.fail("copy", w.Spoil(err)) // a part of the range may be there
		}
		r.off, r.n = r.off+k, r.n-k
	}
	// Servers are known that take the condition and do not mind it.
	src := r.src
	now, err := src.st.client.StatObject(ctx, src.st.bucket, src.key, minio.StatObjectOptions{})
	if err != nil {
		return src.st.fail("copy", src.Name, w.Spoil(src.st.meaning(ctx, err)))
	}
	if far.Quoted(now.ETag) != r.version {
		return src.st.fail("copy", src.Name, w.Spoil(store.ErrChanged))
	}
	return nil
}

// leastCopy is the shortest range that is worth a part of its own, which may well take
// another for what comes before. A long object has to do with parts that are longer.
func (w *writer) leastCopy() int64 {
	if w.Count < fewParts {
		return minPart
	}
	return 2 * int64(w.Size(w.Sent))
}

// fewParts is how many parts may be as short as a part can be.
const fewParts = 500

// copyPart adds one part. A server that does not copy is not asked again, and the
// bytes pass through this program.
func (w *writer) copyPart(ctx context.Context, src *object, version string, off, n int64) error {
	if err := w.Room(); err != nil {
		return err
	}
	number := w.Count + 1
	part, err := w.st.client.CopyObjectPart(ctx, src.st.bucket, src.key, w.st.bucket, w.key, w.upload, number, off, n,
		map[string]string{"X-Amz-Copy-Source-If-Match": version})
	if err != nil {
		answer, _ := errors.AsType[minio.ErrorResponse](err)
		switch answer.StatusCode {
		case http.StatusNotImplemented, http.StatusLengthRequired:
			w.st.noCopies.Store(true)
			return w.through(ctx, src, off, n)
		case http.StatusForbidden: // who may write here may not be who may read there
			return w.through(ctx, src, off, n)
		}
		return w.st.meaning(ctx, err)
	}
	if strings.Trim(part.ETag, `"`) == "" {
		// Servers are known that keep an empty part and say that all is well.
		w.st.noCopies.Store(true)
		return w.through(ctx, src, off, n)
	}
	w.Copied(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	part.PartNumber = number
	w.add(part, n)
	w.copied += n
	if w.copies == nil {
		w.copies = map[int]int64{}
	}
	w.copies[number] = n
	return nil
}

// through appends a range that the server does not copy.
func (w *writer) through(ctx context.Context, src *object, off, n int64) error {
	p := make([]byte, min(n, mib))
	for n > 0 {
		p = p[:min(n, int64(len(p)))]
		if err := src.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if _, err := w.Parts.Write(p); err != nil {
			return err
		}
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	return nil
}

// checkCopies asks how long the parts are that the server says it has copied, before
// anybody can see them.
func (w *writer) checkCopies(ctx context.Context) error {
	if len(w.copies) == 0 {
		return nil
	}
	parts, err := w.st.listParts(ctx, w.key, w.upload)
	if err != nil {
		return err
	}
	left := 0
	for number, size := range w.copies {
		switch held, ok := parts[number]; {
		case !ok:
			left++
		case held.size != size:
			return fmt.Errorf("part %d: server was to copy %d bytes, and has %d", number, size, held.size)
		}
	}
	if left > 0 {
		return fmt.Errorf("server does not list %d of %d parts that it has copied", left, len(w.copies))
	}
	return nil
}
