package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

const (
	mib = 1 << 20

	// firstPart is the size of the first parts, and that up to which an object
	// is sent whole.
	firstPart = 8 * mib

	// Behind the first few parts they are twice as long, and from then on grow with what
	// is written, to a 1390th of it: then 5 TiB take less than 10,000, and an object of
	// 30 GB has parts of 21 MiB.
	firstParts = 8
	growth     = 1390
	maxParts   = 10_000

	// spareParts are more than rounding takes.
	spareParts = 100

	abortWait = 30 * time.Second
)

// partSize is the size of the part that begins where written bytes are in parts, the
// first ones being of some size.
func partSize(first int, written int64) int {
	unit := int64(first / 8)
	least := int64(first)
	if written >= firstParts*least {
		least *= 2
	}
	return int(max(least, (written/growth+unit-1)/unit*unit))
}

// longEnough is how long parts have to be, behind so many bytes in so many parts, for those
// that are left to do for the largest object: some that the server copied are short.
func longEnough(sent int64, count int) int {
	if sent == 0 || sent >= far.MaxSize {
		return 0
	}
	left := float64(max(1, maxParts-spareParts-count))
	return int(float64(sent)*math.Log(far.MaxSize/float64(sent))/left/mib) * mib
}

// size is that of the part that begins where so many bytes are in parts.
func (w *writer) size(sent int64) int {
	n := partSize(w.st.part, sent)
	if len(w.copies) > 0 {
		n = max(n, longEnough(sent, w.Count))
	}
	return n
}

// CreateAs begins an object. It sends no request: what is no longer than one part is
// sent whole by Commit. ctx holds for all that the writer sends before that. An object
// that is to be created once is looked for by the request that would make it appear,
// not before.
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

// A writer's methods belong to one goroutine; mu is for those that send.
type writer struct {
	far.Parts
	st        *Store
	name, key string
	wish      store.Wishes
	can       store.WriterAbilities

	pending run              // comes after what was written, and is not asked for yet
	upload  string           // its id, once there is one
	had     map[int]heldPart // what the upload had when it was adopted
	copies  map[int]int64    // numbers and lengths of the parts that the server copied
	copied  int64            // their sum

	mu     sync.Mutex
	parts  []minio.CompletePart
	kept   int64 // bytes of parts that the server has
	proven int64 // of these, not sent
	gone   bool  // the upload is no more, though it was begun
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) fail(op string, err error) error { return w.st.fail(op, w.name, err) }

// Write has the server copy what waits for that, and fills parts.
func (w *writer) Write(p []byte) (int, error) {
	if w.pending.n > 0 && len(p) > 0 {
		if err := w.settleRange(w.Ctx); err != nil {
			return 0, err
		}
	}
	return w.Parts.Write(p)
}

// begin asks for an upload, unless there is one. first is the part that will be sent
// first, nil if the server is to copy that.
func (w *writer) begin(ctx context.Context, first []byte) error {
	if w.upload != "" {
		return nil
	}
	if w.wish.Resume {
		if err := w.adopt(ctx, first); err != nil || w.upload != "" {
			return err
		}
	}
	id, err := w.st.client.NewMultipartUpload(ctx, w.st.bucket, w.key, minio.PutObjectOptions{})
	if err != nil {
		return w.st.meaning(ctx, err)
	}
	if id == "" {
		return errors.New("server started an upload without an ID")
	}
	w.upload = id
	return nil
}

// put sends a part; those of S3 are counted from 1.
func (w *writer) put(p []byte, number int) error {
	number++
	etag, err := w.putPart(p, number)
	if err != nil {
		return fmt.Errorf("part %d: %w", number, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(minio.CompletePart{PartNumber: number, ETag: etag}, int64(len(p)))
	return nil
}

// add takes note of a part of n bytes that the server has. The caller holds the lock.
func (w *writer) add(p minio.CompletePart, n int64) {
	for len(w.parts) < p.PartNumber {
		w.parts = append(w.parts, minio.CompletePart{})
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
	sum := sha256.Sum256(p)
	done, err := w.st.client.PutObjectPart(w.Ctx, w.st.bucket, w.key, w.upload, number, bytes.NewReader(p), int64(len(p)),
		minio.PutObjectPartOptions{Md5Base64: w.st.where.contentMD5(p), Sha256Hex: hex.EncodeToString(sum[:]), DisableContentSha256: true})
	if err != nil {
		err = w.st.meaning(w.Ctx, err)
		if errors.Is(err, errNoUpload) && (w.wish.Once || w.wish.Resume) {
			// Another writer of these bytes may have come first. What they are
			// is all that is left to be found out.
			w.mu.Lock()
			defer w.mu.Unlock()
			w.gone = true
			return sumOf(p), nil
		}
		return "", err
	}
	if done.ETag == "" {
		return "", errors.New("response without an ETag: the server may not have the part")
	}
	return done.ETag, nil
}

// Finish sends what is left, but for what is hardly anything. Which version it will be
// can be told of buckets that do not encrypt.
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
	case w.st.where.google != nil: // its versions are no checksums
	case w.upload == "":
		etag = sumOf(w.Buf)
	default:
		etag = joined(w.parts)
	}
	return store.Info{Name: w.name, Size: w.Written, Version: far.Quoted(etag)}, nil
}

// smallEnd is what may wait in memory for Commit, without an upload.
const smallEnd = mib

// finish sends what is left and waits for it. An object of up to some bytes that is
// all in memory stays there: one request less, or two, is all that it takes.
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

// Commit sends what is left and makes the object appear. It fails if ctx ends, or
// the context of Create.
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

// wishes are the options of the request that makes the object appear.
func (w *writer) wishes() (o minio.PutObjectOptions) {
	if w.wish.Once {
		o.SetMatchETagExcept("*")
	}
	return o
}

// whole sends an object of one part.
func (w *writer) whole(ctx context.Context) (etag string, err error) {
	if err := w.st.settle(ctx); err != nil {
		return "", err
	}
	sum, o := sha256.Sum256(w.Buf), w.wishes()
	o.DisableContentSha256 = true
	put, err := w.st.client.PutObject(ctx, w.st.bucket, w.key, bytes.NewReader(w.Buf), int64(len(w.Buf)), w.st.where.contentMD5(w.Buf),
		hex.EncodeToString(sum[:]), o)
	if err == nil {
		return put.ETag, nil
	}
	if w.wish.Once && isConflict(err) {
		return w.there(ctx, sumOf(w.Buf), w.st.meaning(ctx, err))
	}
	return "", w.st.meaning(ctx, err)
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
	o := w.wishes()
	if w.wish.Once && !w.st.where.onceInParts() {
		// Between this look and the next request somebody else may still come first.
		if _, err := w.there(ctx, want, nil); err != nil && errors.Is(err, fs.ErrExist) {
			return "", err
		}
		o = minio.PutObjectOptions{}
	}
	put, err := w.st.client.CompleteMultipartUpload(ctx, w.st.bucket, w.key, w.upload, w.parts, o)
	if err == nil {
		return put.ETag, nil
	}
	meaning := w.st.meaning(ctx, err)
	_, may := errors.AsType[*far.Passing](meaning)
	switch {
	// An answer that was lost may have been a yes. Then the upload is no more, and
	// the object is what its parts make.
	case errors.Is(meaning, errNoUpload):
		return w.there(ctx, want, meaning)
	// The object may be another upload's, or another writer's who went on with this
	// one, on which a server may stumble for ever.
	case ctx.Err() == nil && (may || w.wish.Once && isConflict(err)):
		if etag, err = w.there(ctx, want, meaning); err == nil {
			// If what is left of the upload does not go, it is found among those
			// that are unfinished.
			_ = w.forget(ctx)
		}
		return etag, err
	}
	return "", meaning
}

// there returns the ETag of the object that is there if that is the one wanted, else
// why it was not made.
func (w *writer) there(ctx context.Context, want string, why error) (etag string, err error) {
	info, err := w.st.client.StatObject(ctx, w.st.bucket, w.key, minio.StatObjectOptions{})
	switch {
	case err == nil && want != "" && strings.Trim(info.ETag, `"`) == want && info.Size == w.Written:
		return info.ETag, nil
	case err == nil && w.wish.Once:
		return "", fmt.Errorf("an object with other content exists: %w", fs.ErrExist)
	}
	if errors.Is(why, store.ErrChanged) { // what was there is gone again
		return "", &far.Passing{Err: errors.New("another object existed, and no longer does")}
	}
	return "", why
}

// isConflict reports whether a server has refused to replace an object.
func isConflict(err error) bool {
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	return answer.StatusCode == http.StatusPreconditionFailed || answer.Code == "PreconditionFailed" ||
		answer.Code == "ConditionalRequestConflict"
}

// sumOf is the ETag of p, without quotes.
func sumOf(p []byte) string {
	sum := md5.Sum(p)
	return hex.EncodeToString(sum[:])
}

func (w *writer) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// joined returns the ETag that S3 gives to an object of these parts, if their own
// are MD5 sums, as they are unless it encrypts them; "" if they are not.
func joined(parts []minio.CompletePart) string {
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

// Abort has the server forget the parts, which would be paid for.
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

// Keep leaves the parts with the server, for who wishes to Resume. Those that are on
// their way may still arrive.
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

// Saved tells which bytes did not have to pass through here.
func (w *writer) Saved() (copied, proven int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copied, w.proven
}
