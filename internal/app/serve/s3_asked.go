package serve

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall"
)

// asked makes of a request for an object what Amazon makes of it, and returns the request as HTTP knows it, and the
// object with the headers that the response should have.
func (c *call) asked(e holdall.Entry) (*http.Request, holdall.Entry, error) {
	r, q, changed := c.r, c.q, false
	change := func(name string, values ...string) {
		if !changed {
			r, changed = r.Clone(r.Context()), true
		}
		if r.Header[name] = values; len(values) == 0 {
			delete(r.Header, name)
		}
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if tags := strings.Join(r.Header[name], ","); tags != "" && tags != quoted(tags) {
			change(name, quoted(tags))
		}
	}
	if q.Has("partNumber") {
		off, size, err := part(q.Get("partNumber"), r.Header.Get("Range"), s3Tag(c.h.a, e), e)
		if err != nil {
			return r, e, err
		}
		if size > 0 {
			change("Range", fmt.Sprintf("bytes=%d-%d", off, off+size-1))
		}
	}
	if asked := r.Header.Get("Range"); asked != "" {
		switch known, empty := knownRange(asked); {
		case !known:
			change("Range")
		case empty || e.Size == 0:
			return r, e, fault("InvalidRange", "")
		}
	}
	of := e.Attr
	for name, values := range q {
		header, is := strings.CutPrefix(name, "response-")
		switch {
		case !is:
			continue
		case !strings.Contains(" content-type content-language expires cache-control content-disposition content-encoding ", " "+header+" "):
			return r, e, fault("InvalidArgument", "")
		case r.Header.Get("Authorization") == "" && !q.Has("X-Amz-Signature") && !isV2(q):
			return r, e, fault("InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests.")
		}
		if of = maps.Clone(of); of == nil {
			of = map[string]string{}
		}
		of[header] = values[0]
	}
	e.Attr = of
	return r, e, nil
}

// part returns where a part of an object is.
func part(number, asked, tag string, e holdall.Entry) (off, size int64, err error) {
	n, err := strconv.Atoi(number)
	count, several := partsOf(tag)
	switch {
	case err != nil || n < 1 || n > 10_000:
		return 0, 0, fault("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
	case asked != "":
		return 0, 0, fault("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
	case several && count > 1:
		sizes := partSizes(e)
		switch {
		case sizes == nil:
			return 0, 0, fault("NotImplemented", "The sizes of the parts are not known.")
		case n > count:
			return 0, 0, fault("InvalidPartNumber", "")
		}
		for _, size := range sizes[:n-1] {
			off += size
		}
		return off, sizes[n-1], nil
	case n > 1:
		return 0, 0, fault("InvalidPartNumber", "")
	}
	return 0, e.Size, nil
}

// partsOf returns how many parts an object was uploaded in, as its ETag says.
func partsOf(tag string) (n int, several bool) {
	_, count, ok := strings.Cut(strings.Trim(tag, `"`), "-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(count)
	return n, err == nil && n > 0 && n <= maxParts
}

// sizesHeader is the name of the stored header with the sizes of the parts
// that an object was uploaded in, such as "3*5242880,77".
const sizesHeader = "x-amz-mp-part-sizes"

// partSumsHeader is the same for their checksums, of the algorithm of the
// object's.
const partSumsHeader = "x-amz-mp-part-checksums"

// partSums returns the checksum of a part, as that of an object.
func partSums(e holdall.Entry, n int) map[string]string {
	all := strings.Split(e.Attr[partSumsHeader], ",")
	for _, a := range algorithms {
		if e.Attr[checksumHeader+a.name] != "" && n <= len(all) {
			return map[string]string{checksumHeader + a.name: all[n-1]}
		}
	}
	return nil
}

func sizesText(parts []Part) string {
	var b strings.Builder
	for i := 0; i < len(parts); {
		from := i
		for i < len(parts) && parts[i].Size == parts[from].Size {
			i++
		}
		if from > 0 {
			b.WriteByte(',')
		}
		if i-from > 1 {
			fmt.Fprintf(&b, "%d*", i-from)
		}
		b.WriteString(strconv.FormatInt(parts[from].Size, 10))
	}
	return b.String()
}

// partSizes returns the sizes of an object's parts, or nil if they are not
// known.
func partSizes(e holdall.Entry) (all []int64) {
	count, _ := partsOf(keptTag(e))
	left := e.Size
	for text := range strings.SplitSeq(e.Attr[sizesHeader], ",") {
		times, size := 1, text
		if n, of, ok := strings.Cut(text, "*"); ok {
			times, _ = strconv.Atoi(n)
			size = of
		}
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil || n < 0 || times < 1 || times > count-len(all) || n > left/int64(times) {
			return nil
		}
		all = append(all, slices.Repeat([]int64{n}, times)...)
		left -= n * int64(times)
	}
	if len(all) != count || left != 0 {
		return nil
	}
	return all
}

var oneRange = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))$`) })

// knownRange reports whether a Range header is one that S3 knows: it ignores all others, and those of several ranges.
// empty says that there can be nothing in it.
func knownRange(asked string) (known, empty bool) {
	m := oneRange().FindStringSubmatch(asked)
	if m == nil {
		return false, false
	}
	from, _ := strconv.ParseInt(m[1], 10, 64)
	to, _ := strconv.ParseInt(m[2], 10, 64)
	return m[2] == "" || from <= to, m[1] == "" && strings.Trim(m[3], "0") == ""
}

// quoted quotes the tags of a condition that have no quotes.
func quoted(tags string) string {
	all := strings.Split(tags, ",")
	for i, tag := range all {
		if tag = strings.TrimSpace(tag); tag != "*" && tag != "" && !strings.Contains(tag, `"`) {
			tag = `"` + tag + `"`
		}
		all[i] = tag
	}
	return strings.Join(all, ", ")
}
