package bucket

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// sumsOf returns the checksums in a response, in order of preference. The size of parts is not
// known there.
func (st *Store) sumsOf(resp *http.Response) (all []store.Sum) {
	add := func(algo, text string, hexadecimal bool) {
		if text == "" {
			return
		}
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
	whole := resp.StatusCode == http.StatusOK || isWhole(h.Get("Content-Range"))
	if whole {
		add("sha256", h.Get("X-Amz-Checksum-Sha256"), false)
		add("sha1", h.Get("X-Amz-Checksum-Sha1"), false)
		add("crc64nvme", h.Get("X-Amz-Checksum-Crc64nvme"), false)
	}
	// If objects are encrypted with the service's keys, ETags are not checksums.
	kept := h.Get("X-Amz-Server-Side-Encryption")
	if !strings.HasPrefix(kept, "aws:") && h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == "" {
		add("md5", h.Get("ETag"), true)
	}
	if whole {
		add("crc32c", h.Get("X-Amz-Checksum-Crc32c"), false)
		add("crc32", h.Get("X-Amz-Checksum-Crc32"), false)
	}
	return all
}

// isWhole reports whether a range is the whole object.
func isWhole(contentRange string) bool {
	span, ok := strings.CutPrefix(contentRange, "bytes 0-")
	last, size, _ := strings.Cut(span, "/")
	l, err := strconv.ParseInt(last, 10, 64)
	n, err2 := strconv.ParseInt(size, 10, 64)
	return ok && err == nil && err2 == nil && l == n-1
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
		if resp, err = o.head(ctx, info.Version, nil); err != nil {
			return nil, err
		}
		sums = o.st.sumsOf(resp)
	}
	whole := slices.DeleteFunc(slices.Clone(sums), func(s store.Sum) bool { return s.Part != 0 })
	if len(whole) > 0 || len(sums) == 0 {
		return whole, nil
	}
	if resp, err = o.head(ctx, info.Version, url.Values{"partNumber": {"1"}}); err != nil {
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
func (o *object) head(ctx context.Context, version string, query url.Values) (*http.Response, error) {
	c := call{method: http.MethodHead, key: o.key, query: query}
	if version != "" {
		c.header = http.Header{"If-Match": {version}}
	}
	resp, err := o.st.do(ctx, c)
	return resp, o.st.fail("head", o.Name, err)
}
