package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/store/storekit"
)

// An origin is the object that a request copies from.
type origin struct {
	h       *handler
	e       holdall.Entry
	bucket  string
	version string // its ID, if one was asked for
	release func()
}

// origin opens the object of X-Amz-Copy-Source, which may be of any bucket or
// archive of the site.
func (c *call) origin() (*origin, error) {
	from, version, asked := strings.Cut(c.r.Header.Get("X-Amz-Copy-Source"), "?versionId=")
	from, err := url.QueryUnescape(strings.TrimPrefix(from, "/")) // "+" is a space here, as Amazon reads it
	bucket, key, _ := strings.Cut(from, "/")
	switch {
	case err != nil || bucket == "" || key == "":
		return nil, fault("InvalidArgument", "Invalid copy source object key")
	case asked && version != newest && !versionID().MatchString(version):
		return nil, errVersion
	}
	o, err := c.object(bucket, key, version)
	if err == nil && !o.meets(c.r.Header) {
		o.release()
		return nil, fault("PreconditionFailed", "")
	}
	if err == nil && asked {
		c.w.Header().Set("X-Amz-Copy-Source-Version-Id", version)
	}
	return o, err
}

// object opens an object of any bucket or archive of the site: its newest version if there is no ID.
func (c *call) object(bucket, key, id string) (o *origin, err error) {
	h, err := c.open(bucket)
	if err != nil {
		return nil, err
	}
	o = &origin{h: h, bucket: bucket, version: id, release: h.a.Release}
	if o.e, err = c.lookup(h, bucket, key, id); err != nil {
		o.release()
		return nil, err
	}
	return o, nil
}

// meets reports whether the object meets the conditions of X-Amz-Copy-Source-If-….
func (o *origin) meets(head http.Header) bool {
	is := func(name string) string { return head.Get("X-Amz-Copy-Source-If-" + name) }
	written := modTime(o.h.a, o.e).Truncate(time.Second)
	since := func(name string) (t time.Time, ok bool) {
		t, err := http.ParseTime(is(name))
		return t, err == nil
	}
	tag := s3Tag(o.h.a, o.e)
	if (Condition{Match: is("Match"), NoneMatch: is("None-Match")}).Check(tag) != nil {
		return false
	}
	if t, ok := since("Unmodified-Since"); ok && is("Match") == "" && written.After(t) {
		return false
	}
	t, ok := since("Modified-Since")
	return !ok || is("None-Match") != "" || written.After(t)
}

// payload returns a part of the object. If it is all, it is compared with its
// digest. The object may be released after end.
func (o *origin) payload(c *call, off, n int64) (p *payload, end func()) {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := o.write(c.r.Context(), w, off, n)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) && c.r.Context().Err() == nil {
			o.h.tell(c.r, err)
			err = fault(codeOf(statusOf(err)), "") // its cause is nothing that the client sent
		}
		w.CloseWithError(err)
	}()
	return newPayload(r, n), func() { r.Close(); <-done }
}

func (o *origin) write(ctx context.Context, w io.Writer, off, n int64) error {
	if off == 0 && n == o.e.Size {
		return o.h.a.WriteContent(ctx, w, o.e)
	}
	f, err := o.h.a.OpenEntry(ctx, o.e)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Seek(off, io.SeekStart); err == nil {
		_, err = io.CopyN(w, f, n)
	}
	return err
}

// copied answers for a copy.
func (c *call) copied(name string, p *payload, w Written, headers map[string]string) error {
	return c.answer(name, struct {
		LastModified, ETag string
		sumsDoc
	}{s3Time(w.Time), p.etag, sumsOf(headers)})
}

// algorithmAsked returns the algorithm of X-Amz-Checksum-Algorithm, or nil.
func algorithmAsked(head http.Header) (*algorithm, error) {
	asked := head.Get("X-Amz-Checksum-Algorithm")
	a := algorithmOf(strings.ToLower(asked))
	if asked != "" && a == nil {
		return nil, errAlgorithm
	}
	return a, nil
}

func (c *call) copy() error {
	o, err := c.origin()
	if err != nil {
		return err
	}
	defer o.release()
	replaced := map[string]bool{} // what is not copied
	for _, what := range []string{"Metadata", "Tagging"} {
		directive := c.r.Header.Get("X-Amz-" + what + "-Directive")
		if replaced[what] = directive == "REPLACE"; directive != "" && directive != "COPY" && directive != "REPLACE" {
			return fault("InvalidArgument", "Unknown "+strings.ToLower(what)+" directive.")
		}
	}
	by, err := algorithmAsked(c.r.Header)
	if err != nil {
		return err
	}
	given, err := storedHeaders(c.r.Header)
	switch {
	case err != nil:
		return err
	case o.bucket == c.bucket && o.e.Name == c.key && (o.version == "" || o.version == newest) && !replaced["Metadata"]:
		return fault("InvalidRequest", "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	case o.e.Size > maxPut:
		return fault("InvalidRequest", fmt.Sprintf("The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(maxPut)))
	}
	headers := map[string]string{}
	for given, from := range map[bool]map[string]string{false: o.e.Attr, true: given} {
		for name, value := range from {
			what := "Metadata"
			if name == storekit.TagsHeader {
				what = "Tagging"
			}
			if isStored(name) && replaced[what] == given {
				headers[name] = value
			}
		}
	}
	p, end := o.payload(c, 0, o.e.Size)
	defer end()
	for _, a := range algorithms {
		if by == nil && o.e.Attr[checksumHeader+a.name] != "" {
			by = a
		}
	}
	if by != nil {
		p.keep(by, nil)
	}
	var w Written
	err = c.slowly(func() (err error) {
		w, err = c.in.Put(c.r.Context(), c.key, p.upload(condition(c.r.Header), headers))
		return err
	})
	if err != nil {
		return err
	}
	return c.copied("CopyObjectResult", p, w, headers)
}

// copyPart makes a part of an upload of an object, or of a range of it.
func (c *call) copyPart(id string, number int) error {
	o, err := c.origin()
	if err != nil {
		return err
	}
	defer o.release()
	off, n := int64(0), o.e.Size
	if asked, is := c.r.Header["X-Amz-Copy-Source-Range"]; is {
		var last int64
		if k, err := fmt.Sscanf(asked[0], "bytes=%d-%d", &off, &last); k < 2 || err != nil || asked[0] != fmt.Sprintf("bytes=%d-%d", off, last) || off < 0 || last < off {
			return fault("InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy")
		}
		if last >= o.e.Size {
			return fault("InvalidArgument", fmt.Sprintf("Range specified is not valid for source object of size: %d", o.e.Size))
		}
		n = last - off + 1
	}
	if n > maxPut {
		return fault("InvalidRequest", fmt.Sprintf("The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(maxPut)))
	}
	begun, _, err := c.in.Parts(c.r.Context(), c.key, id)
	if err != nil {
		return err
	}
	p, end := o.payload(c, off, n)
	defer end()
	if a := algorithmOf(begun[uploadAlgorithm]); a != nil {
		p.keep(a, nil)
	}
	headers := map[string]string{}
	var w Written
	err = c.slowly(func() (err error) {
		w, err = c.in.Part(c.r.Context(), c.key, id, number, p.upload(Condition{}, headers))
		return err
	})
	if err != nil {
		return err
	}
	return c.copied("CopyPartResult", p, w, headers)
}
