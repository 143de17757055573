package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// sumsOf returns the checksums in a response, in order of preference. The size of parts is not
// known there.
func (st *Store) sumsOf(resp *http.Response) (all []store.Sum) {
	add := func(algo, text string, hexadecimal bool) {
		if sum, ok := far.Sum(algo, text, hexadecimal); ok {
			all = append(all, sum)
		}
	}
	h := resp.Header
	if st.where.google != nil {
		for _, line := range h.Values("X-Goog-Hash") {
			for part := range strings.SplitSeq(line, ",") {
				algo, value, _ := strings.Cut(strings.TrimSpace(part), "=")
				add(algo, value, false)
			}
		}
		slices.SortFunc(all, func(a, b store.Sum) int { return strings.Compare(b.Algo, a.Algo) }) // md5, crc32c
		return all
	}
	// The response for a range may have the checksums of a part.
	if resp.StatusCode == http.StatusOK || isWhole(h.Get("Content-Range")) {
		for _, algo := range []string{"sha256", "sha1", "crc64nvme"} {
			add(algo, h.Get("X-Amz-Checksum-"+algo), false)
		}
	}
	// If objects are encrypted with the service's keys, ETags are not checksums.
	kept := h.Get("X-Amz-Server-Side-Encryption")
	if !strings.HasPrefix(kept, "aws:") && h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == "" {
		add("md5", h.Get("ETag"), true)
	}
	if resp.StatusCode == http.StatusOK || isWhole(h.Get("Content-Range")) {
		for _, algo := range []string{"crc32c", "crc32"} {
			add(algo, h.Get("X-Amz-Checksum-"+algo), false)
		}
	}
	return all
}

// isWhole reports whether a range is the whole object.
func isWhole(contentRange string) bool {
	var first, last, size int64
	n, _ := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size)
	return n == 3 && first == 0 && last == size-1
}

// Can returns the abilities of an object, including its checksums and headers.
func (o *object) Can() store.ObjectAbilities {
	can := store.ObjectAbilities{ReadEnd: o.ReadEnd, Sums: o.sums, Headers: o.headers, Unkept: o.unkept}
	if o.st.where.google == nil {
		can.Shared = o.shared
	}
	return can
}

// sums returns the checksums that came with a read. If there were none, or the object was
// uploaded in parts, sums requests the header of the object and that of its first part, whose
// size is also that of the others.
func (o *object) sums(ctx context.Context) ([]store.Sum, error) {
	sums, err := o.Object.Can().Sums(ctx)
	if err != nil || slices.ContainsFunc(sums, func(s store.Sum) bool { return s.Part == 0 }) {
		return slices.DeleteFunc(slices.Clone(sums), func(s store.Sum) bool { return s.Part != 0 }), err
	}
	if o.st.where.google != nil {
		return nil, nil
	}
	info, err := o.Info(ctx)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	if !o.headed.Load() {
		if resp, err = o.head(ctx, info.Version, ""); err != nil {
			return nil, err
		}
		sums = o.st.sumsOf(resp)
	}
	whole := slices.DeleteFunc(slices.Clone(sums), func(s store.Sum) bool { return s.Part != 0 })
	if len(whole) > 0 || len(sums) == 0 {
		return whole, nil
	}
	if resp, err = o.head(ctx, info.Version, "partNumber=1"); err != nil {
		return nil, err
	}
	var known []store.Sum
	for _, s := range sums {
		if part := resp.ContentLength; part > 0 && (info.Size+part-1)/part == -s.Part {
			s.Part = part
			known = append(known, s)
		}
	}
	return known, nil
}

// head requests the header of a version of the object.
func (o *object) head(ctx context.Context, version, query string) (*http.Response, error) {
	u := far.Below(o.st.base, o.Name)
	u.RawQuery = query
	again := far.Retrier{Tries: o.st.tries, Jitter: far.Jitter}
	for {
		resp, err := o.headOnce(ctx, u.String(), version)
		if err == nil {
			return resp, nil
		}
		if err = again.Again(ctx, err, 0); err != nil {
			return nil, o.st.fail("head", o.Name, err)
		}
	}
}

func (o *object) headOnce(ctx context.Context, address, version string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return nil, err
	}
	if version != "" {
		req.Header.Set("If-Match", version)
	}
	resp, err := (&http.Client{Transport: o.st.signed}).Do(req)
	if err != nil {
		return nil, &far.Passing{Err: far.Dropped(far.Unaddressed(err))}
	}
	_ = resp.Body.Close() // it is empty
	switch code := resp.StatusCode; {
	case code == http.StatusOK, code == http.StatusPartialContent:
		return resp, nil
	case code == http.StatusPreconditionFailed:
		return nil, store.ErrChanged
	case code == http.StatusNotFound:
		return nil, fs.ErrNotExist
	case far.MayPass(code):
		return nil, &far.Passing{Err: errors.New(resp.Status), After: far.RetryAfter(resp.Header)}
	}
	return nil, errors.New(resp.Status)
}
