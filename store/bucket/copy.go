package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/base/sigv4"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// minPart is the size of the smallest part except the last.
	minPart = 5 * mib

	// maxCopy is the size of the largest part that a server copies.
	maxCopy = 5 << 30

	// A range is copied in parts of at least copyPart, copyJobs of them at a time.
	copyPart = 32 * mib
	copyJobs = 8

	// manyParts is the number of parts from which a part of the minimum size is no longer worth
	// it.
	manyParts = 4000

	// throughBlock is the size of the reads for ranges that pass through this program.
	throughBlock = 8 * mib
)

// run is a range of an object that the server has.
type run struct {
	src     *object
	version string
	off, n  int64
}

// WriteRange makes the server copy a range of one of its objects, as parts of this one. It waits
// for what comes next: adjacent ranges are copied as one, and ranges that stay too short for a
// part pass through this program.
func (w *writer) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	r, err := w.run(ctx, from, off, n)
	if err != nil {
		return err
	}
	if p := &w.pending; p.n > 0 && p.src == r.src && p.off+p.n == off {
		p.n += n
		return nil
	}
	if err := w.settleRange(ctx); err != nil {
		return err
	}
	w.pending = r
	return nil
}

// CopyRange makes the server copy a range immediately.
func (w *writer) CopyRange(ctx context.Context, from store.Object, off, n int64) error {
	r, err := w.run(ctx, from, off, n)
	if err == nil {
		err = w.settleRange(ctx)
	}
	if err != nil {
		return err
	}
	return w.copyRun(ctx, r)
}

// run returns a range that the server may be able to copy.
func (w *writer) run(ctx context.Context, from store.Object, off, n int64) (run, error) {
	src, ok := storekit.Inner[*object](from)
	if !ok || off < 0 || n <= 0 || *src.st.where.endpoint != *w.st.where.endpoint || w.st.noCopies.Load() {
		return run{}, errors.ErrUnsupported
	}
	if err := w.Usable(); err != nil {
		return run{}, w.fail("write", err)
	}
	info, err := src.Info(ctx)
	if err != nil {
		return run{}, err
	}
	switch {
	case off > info.Size || n > info.Size-off:
		return run{}, &store.Error{Op: "read", Name: src.st.Address(src.Name), Off: off, Len: n, Err: io.ErrUnexpectedEOF}
	case !strings.HasPrefix(info.Version, `"`), n > far.MaxSize-w.Written-w.pending.n:
		return run{}, errors.ErrUnsupported // there is no version to require
	}
	return run{src, info.Version, off, n}, nil
}

// CopiesFrom reports whether the server has the object at an address and can copy it.
func (st *Store) CopiesFrom(address string) bool {
	return st.where.google == nil && store.Scheme(address) == "s3" && !st.noCopies.Load()
}

// notCopied says why the server did not copy a range. The writer is unchanged.
type notCopied struct{ err error }

func (e *notCopied) Error() string   { return "the server did not copy it: " + e.err.Error() }
func (e *notCopied) Unwrap() []error { return []error{errors.ErrUnsupported, e.err} }

var errTooShort = errors.New("too short for a part")

// settleRange makes the server copy the pending range.
func (w *writer) settleRange(ctx context.Context) error {
	r := w.pending
	w.pending = run{}
	if r.n == 0 {
		return nil
	}
	err := w.copyRun(ctx, r)
	if not, ok := errors.AsType[*notCopied](err); ok {
		if err = not.err; !errors.Is(err, store.ErrChanged) {
			err = w.through(ctx, r.src, r.off, r.n)
		}
	}
	if err != nil {
		return w.Spoil(err) // some of it may have been written
	}
	return nil
}

// copyRun makes the server copy a range as parts, several at a time. Bytes before the range
// become a part of their own. If they are too short, that part is filled up from the range. It is
// sent after the other parts, so if these fail, nothing has changed.
func (w *writer) copyRun(ctx context.Context, r run) error {
	fill, number := int64(0), w.Count+1
	if k := int64(len(w.Buf)); k > 0 {
		fill, number = max(0, minPart-k), number+1
	}
	if r.n < fill+w.leastCopy() {
		return &notCopied{errTooShort}
	}
	sizes := copySizes(r.n-fill, w.Size(w.Sent))
	if number-1+len(sizes) > maxParts {
		return &notCopied{errors.New("too many parts")}
	}
	var before []byte
	if k := len(w.Buf); k > 0 {
		before = slices.Grow(w.Buf, int(fill))[:k+int(fill)]
		if err := r.src.ReadAt(ctx, before[k:], r.off); err != nil {
			return w.notCopied(ctx, err)
		}
	}
	if err := w.begin(ctx, before); err != nil {
		return w.fail("write", err)
	}
	parts, err := w.copyParts(ctx, r, r.off+fill, number, sizes)
	if err != nil {
		return w.notCopied(ctx, err)
	}
	if before != nil {
		w.Buf = before
		w.Written += fill
		if err := w.Send(); err != nil {
			return w.fail("write", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, part := range parts {
		w.Copied(sizes[i])
		w.add(part, sizes[i])
		w.copied += sizes[i]
		if w.copies == nil {
			w.copies = map[int]int64{}
		}
		w.copies[part.PartNumber] = sizes[i]
	}
	return nil
}

// notCopied wraps err so that the range can be read instead, unless the upload no longer exists
// or the context has ended.
func (w *writer) notCopied(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errNoUpload) {
		return w.fail("copy", w.Spoil(err))
	}
	return &notCopied{err}
}

// copySizes divides n bytes into parts of about equal size; the last one is not much shorter.
func copySizes(n int64, part int) (sizes []int64) {
	most := min(max(copyPart, int64(part)), maxCopy)
	for k := (n + most - 1) / most; k > 0; k-- {
		sizes = append(sizes, (n+k-1)/k)
		n -= sizes[len(sizes)-1]
	}
	return sizes
}

// leastCopy returns the size of the shortest range that is worth a part of its own, which may
// require another part for the bytes before it. A long object needs longer parts.
func (w *writer) leastCopy() int64 {
	if w.Count < manyParts {
		return minPart
	}
	return 2 * int64(w.Size(w.Sent))
}

// copyParts copies a range as parts of the given sizes, numbered from number. It adds none of
// them to the writer.
func (w *writer) copyParts(ctx context.Context, r run, off int64, number int, sizes []int64) ([]part, error) {
	parts := make([]part, len(sizes))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turn := make(chan struct{}, copyJobs)
	var all sync.WaitGroup
	for i, n := range sizes {
		turn <- struct{}{}
		at := off
		all.Go(func() {
			defer func() { <-turn }()
			var err error
			if parts[i], err = w.copyPart(ctx, r, at, n, number+i); err != nil {
				cancel(err)
			}
		})
		off += n
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	// Some servers accept the condition and ignore it.
	src := r.src
	now, err := src.st.do(ctx, call{method: http.MethodHead, key: src.key})
	if err != nil {
		return nil, src.st.fail("copy", src.Name, err)
	}
	if far.Quoted(tagOf(now)) != r.version {
		return nil, src.st.fail("copy", src.Name, store.ErrChanged)
	}
	return parts, nil
}

// copyPart copies one part. If the server cannot copy, it is not tried again.
func (w *writer) copyPart(ctx context.Context, r run, off, n int64, number int) (part, error) {
	if err := ctx.Err(); err != nil {
		return part{}, context.Cause(ctx)
	}
	var is struct {
		XMLName xml.Name `xml:"CopyPartResult"`
		ETag    string
	}
	h := http.Header{"X-Amz-Copy-Source-If-Match": {r.version}}
	h.Set("X-Amz-Copy-Source", sigv4.Path(r.src.st.bucket+"/"+r.src.key))
	h.Set("X-Amz-Copy-Source-Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	_, err := w.st.do(ctx, call{method: http.MethodPut, key: w.key, query: partQuery(w.upload, number), header: h, into: &is})
	if said, ok := errors.AsType[*refusal](err); ok && (said.status == http.StatusNotImplemented || said.status == http.StatusLengthRequired) {
		w.st.noCopies.Store(true)
	}
	etag := strings.Trim(is.ETag, `"`)
	if err == nil && etag == "" {
		// Some servers store an empty part and report success.
		w.st.noCopies.Store(true)
		err = errors.New("response without an ETag")
	}
	return part{number, etag}, err
}

func (w *writer) through(ctx context.Context, src *object, off, n int64) error {
	p := make([]byte, min(n, throughBlock))
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

// checkCopies requests the sizes of the parts that the server copied, before the object appears.
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
			return fmt.Errorf("part %d: expected the server to copy %d bytes, found %d", number, size, held.size)
		}
	}
	if left > 0 {
		return fmt.Errorf("server does not list %d of %d parts that it has copied", left, len(w.copies))
	}
	return nil
}
