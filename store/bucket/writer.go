package bucket

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

const (
	mib = 1 << 20

	// firstPart is the size of the first parts. Objects up to that size are sent as a whole.
	firstPart = 8 * mib

	// After the first few parts, parts are twice as long. Then they grow with what has been
	// written, to 1/1390 of it. So 5 TiB take less than 10,000 parts, and an object of 30 GB has
	// parts of 21 MiB.
	firstParts = 8
	growth     = 1390
	maxParts   = 10_000

	// spareParts is more than the parts that rounding takes.
	spareParts = 100

	abortWait = 30 * time.Second

	contentType = "application/octet-stream"
)

func partSize(first int, written int64) int {
	unit := int64(first / 8)
	least := int64(first)
	if written >= firstParts*least {
		least *= 2
	}
	return int(max(least, (written/growth+unit-1)/unit*unit))
}

// longEnough returns how long parts must be, after sent bytes in count parts, so that the
// remaining parts suffice for the largest object. Parts that the server copied can be short.
func longEnough(sent int64, count int) int {
	if sent == 0 || sent >= far.MaxSize {
		return 0
	}
	left := float64(max(1, maxParts-spareParts-count))
	return int(float64(sent)*math.Log(far.MaxSize/float64(sent))/left/mib) * mib
}

func (w *writer) size(sent int64) int {
	n := partSize(w.st.part, sent)
	if len(w.copies) > 0 {
		n = max(n, longEnough(sent, w.Count))
	}
	return n
}

// CreateAs begins an object. It sends no request: an object of at most one part is sent as a
// whole by Commit. Requests before that use ctx. If an object may be created only once, the
// request that would make it appear checks that, not CreateAs.
func (st *Store) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	key, err := st.key(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, st.fail("create", name, err)
	}
	w := &writer{st: st, name: name, key: key, wish: wish}
	w.Parts = far.Parts{
		Size:  w.size,
		Most:  maxParts,
		Word:  "part",
		Begin: func(part []byte) error { return w.begin(w.Ctx, part) },
		Put:   w.put,
		Fail:  w.fail,
	}
	w.Start(ctx)
	w.can = store.WriterAbilities{WriteRange: w.WriteRange, CopyRange: w.CopyRange, Keep: w.Keep, Finish: w.Finish, Saved: w.Saved}
	return w, nil
}

// part is a part of an upload as the request that joins them has it.
type part struct {
	PartNumber int
	ETag       string
}

func partQuery(upload string, number int) url.Values {
	return url.Values{"uploadId": {upload}, "partNumber": {strconv.Itoa(number)}}
}

// writer uploads an object. Its methods must be called from one goroutine; mu protects what the
// goroutines that send use.
type writer struct {
	far.Parts
	st        *Store
	name, key string
	wish      store.Wishes
	can       store.WriterAbilities

	pending run              // follows what was written, and has not been requested yet
	upload  string           // its ID; empty if there is none
	had     map[int]heldPart // parts that the upload had when it was adopted
	copies  map[int]int64    // numbers and sizes of the parts that the server copied
	copied  int64            // the sum of copies

	mu     sync.Mutex
	parts  []part
	kept   int64 // bytes of parts that the server has
	proven int64 // bytes of these that were not sent
	gone   bool  // the upload no longer exists
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) fail(op string, err error) error { return w.st.fail(op, w.name, err) }

// Write makes the server copy a pending range, and fills parts.
func (w *writer) Write(p []byte) (int, error) {
	if w.pending.n > 0 && len(p) > 0 {
		if err := w.settleRange(w.Ctx); err != nil {
			return 0, err
		}
	}
	return w.Parts.Write(p)
}

// begin begins an upload, unless there is one. first is the first part that will be sent; nil if
// the server is to copy it.
func (w *writer) begin(ctx context.Context, first []byte) error {
	if w.upload != "" {
		return nil
	}
	if w.wish.Resume {
		if err := w.adopt(ctx, first); err != nil || w.upload != "" {
			return err
		}
	}
	var is struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	_, err := w.st.do(ctx, call{method: http.MethodPost, key: w.key, query: url.Values{"uploads": {""}}, header: http.Header{"Content-Type": {contentType}}, into: &is})
	if err == nil && is.UploadID == "" {
		err = errors.New("server started an upload without an ID")
	}
	w.upload = is.UploadID
	return err
}

// put sends a part. S3 numbers parts from 1.
func (w *writer) put(p []byte, number int) error {
	number++
	etag, err := w.putPart(p, number)
	if err != nil {
		return fmt.Errorf("part %d: %w", number, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(part{number, etag}, int64(len(p)))
	return nil
}

// add records a part of n bytes that the server has. The caller holds the lock.
func (w *writer) add(p part, n int64) {
	for len(w.parts) < p.PartNumber {
		w.parts = append(w.parts, part{})
	}
	w.parts[p.PartNumber-1] = p
	w.kept += n
}

func (w *writer) putPart(p []byte, number int) (etag string, err error) {
	if held, ok := w.had[number]; ok && held.size == int64(len(p)) && held.etag == sumOf(p) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.proven += held.size
		return held.etag, nil
	}
	if w.lost() {
		return sumOf(p), nil
	}
	done, err := w.st.do(w.Ctx, call{method: http.MethodPut, key: w.key, query: partQuery(w.upload, number), body: p})
	if err != nil {
		if errors.Is(err, errNoUpload) && (w.wish.Once || w.wish.Resume) {
			// Another writer of the same bytes may have been first. Only the object can show what
			// it wrote.
			w.mu.Lock()
			defer w.mu.Unlock()
			w.gone = true
			return sumOf(p), nil
		}
		return "", err
	}
	if etag = tagOf(done); etag == "" {
		return "", errors.New("response without an ETag: the server may not have the part")
	}
	return etag, nil
}

// Finish sends what is left, except a small object. The version that the object will have is
// known for buckets without encryption.
func (w *writer) Finish(ctx context.Context) (store.Info, error) {
	err := w.Usable()
	if err == nil {
		err = w.finish(ctx, min(smallEnd, w.st.part))
	}
	if err != nil {
		return store.Info{}, w.fail("finish", err)
	}
	etag := ""
	switch {
	case w.st.where.google != nil: // its versions are not checksums
	case w.upload == "":
		etag = sumOf(w.Buf)
	default:
		etag = joined(w.parts)
	}
	return store.Info{Name: w.name, Size: w.Written, Version: far.Quoted(etag)}, nil
}

// smallEnd is the size of an object that may wait in memory for Commit without an upload.
const smallEnd = mib

// finish sends what is left and waits for it. An object of up to most bytes that is completely in
// memory stays there, because it then takes only one or two requests.
func (w *writer) finish(ctx context.Context, most int) error {
	defer w.EndWith(ctx)()
	if err := w.settleRange(ctx); err != nil {
		return err
	}
	if w.upload == "" && len(w.Buf) <= most {
		w.Ended = true
		return nil
	}
	return w.Flush(ctx)
}

// Commit sends what is left and makes the object appear. It fails if ctx or the context of
// CreateAs ends.
func (w *writer) Commit(ctx context.Context) (store.Info, error) {
	return w.Parts.Commit(ctx, w.name, func() (etag string, err error) {
		if !w.Ended {
			err = w.finish(ctx, w.st.part)
		}
		switch {
		case err != nil:
		case w.upload == "":
			etag, err = w.whole(ctx)
		default:
			etag, err = w.complete(ctx)
		}
		return far.Quoted(etag), err
	})
}

// wishes returns the headers of the request that makes the object appear.
func (w *writer) wishes() http.Header {
	h := http.Header{"Content-Type": {contentType}}
	if w.wish.Once {
		h.Set("If-None-Match", "*")
	}
	return h
}

func (w *writer) whole(ctx context.Context) (etag string, err error) {
	if err := w.st.settle(ctx); err != nil {
		return "", err
	}
	put, err := w.st.do(ctx, call{method: http.MethodPut, key: w.key, header: w.wishes(), body: w.Buf})
	if err == nil {
		return tagOf(put), nil
	}
	if w.wish.Once && isConflict(err) {
		return w.there(ctx, sumOf(w.Buf), err)
	}
	return "", err
}

// complete joins the parts.
func (w *writer) complete(ctx context.Context) (etag string, err error) {
	want := joined(w.parts)
	if w.lost() {
		return w.there(ctx, want, errNoUpload)
	}
	if err := w.checkCopies(ctx); err != nil {
		if errors.Is(err, errNoUpload) && (w.wish.Once || w.wish.Resume) {
			return w.there(ctx, want, err)
		}
		return "", err
	}
	h := w.wishes()
	if w.wish.Once && !w.st.where.onceInParts() {
		// Another writer may still be first between this check and the next request.
		if _, err := w.there(ctx, want, nil); err != nil && errors.Is(err, fs.ErrExist) {
			return "", err
		}
		h.Del("If-None-Match")
	}
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Part    []part
	}{Part: w.parts})
	if err != nil {
		return "", err
	}
	var is struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	_, err = w.st.do(ctx, call{method: http.MethodPost, key: w.key, query: url.Values{"uploadId": {w.upload}}, header: h, body: body, into: &is})
	if err == nil {
		return strings.Trim(is.ETag, `"`), nil
	}
	_, may := errors.AsType[*far.Passing](err)
	switch {
	// If a response is lost, the request may have succeeded. The upload then no longer exists,
	// and the object consists of its parts.
	case errors.Is(err, errNoUpload):
		return w.there(ctx, want, err)
	// The object may come from another upload, or from a writer that resumed this one. Some
	// servers then fail for as long as the upload exists.
	case ctx.Err() == nil && (may || w.wish.Once && isConflict(err)):
		if etag, err = w.there(ctx, want, err); err == nil {
			// If the rest of the upload cannot be removed, it stays among the unfinished ones.
			_ = w.forget(ctx)
		}
		return etag, err
	}
	return "", err
}

// there returns the ETag of the existing object if it is the expected one. Otherwise it returns
// why the object was not created.
func (w *writer) there(ctx context.Context, want string, why error) (etag string, err error) {
	is, err := w.st.do(ctx, call{method: http.MethodHead, key: w.key})
	switch {
	case err == nil && want != "" && tagOf(is) == want && is.ContentLength == w.Written:
		return want, nil
	case err == nil && w.wish.Once:
		return "", fmt.Errorf("an object with other content exists: %w", fs.ErrExist)
	}
	if errors.Is(why, store.ErrChanged) { // what was there is gone again
		return "", &far.Passing{Err: errors.New("another object existed, and no longer does")}
	}
	return "", why
}

// isConflict reports whether a server refused to replace an object.
func isConflict(err error) bool {
	said, ok := errors.AsType[*refusal](err)
	return ok && (said.status == http.StatusPreconditionFailed || said.code == "PreconditionFailed" || said.code == "ConditionalRequestConflict")
}

// tagOf returns the ETag in a response, without quotes.
func tagOf(resp *http.Response) string { return strings.Trim(resp.Header.Get("ETag"), `"`) }

// sumOf returns the ETag of p, without quotes.
func sumOf(p []byte) string {
	sum := md5.Sum(p)
	return hex.EncodeToString(sum[:])
}

func (w *writer) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// joined returns the ETag that S3 gives an object of these parts. It is "" if the ETags of the
// parts are not MD5 sums, as with encryption.
func joined(parts []part) string {
	sums := md5.New()
	for _, p := range parts {
		sum, err := hex.DecodeString(strings.Trim(p.ETag, `"`))
		if err != nil || len(sum) != md5.Size {
			return ""
		}
		sums.Write(sum)
	}
	return fmt.Sprintf("%x-%d", sums.Sum(nil), len(parts))
}

// Abort removes the parts from the server, which would otherwise be paid for.
func (w *writer) Abort() error {
	if w.Done {
		return nil
	}
	w.Stop()
	if w.upload == "" {
		return nil
	}
	return w.fail("abort", w.forget(w.Ctx))
}

// forget aborts the upload, even if the context has ended.
func (w *writer) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWait)
	defer cancel()
	return w.st.abandon(ctx, w.key, w.upload)
}

// Keep leaves the parts on the server for a writer with Wishes.Resume. Parts in flight may still
// arrive.
func (w *writer) Keep() (int64, error) {
	if w.Done {
		return 0, nil
	}
	w.Wait()
	w.mu.Lock()
	kept, gone := w.kept, w.gone
	w.mu.Unlock()
	if kept == 0 && len(w.had) == 0 || gone {
		return 0, w.Abort()
	}
	w.Stop()
	return kept, nil
}

// Saved returns the bytes that did not pass through this program.
func (w *writer) Saved() (copied, proven int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copied, w.proven
}
