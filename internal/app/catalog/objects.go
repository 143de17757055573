package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
)

// A Root maps the paths that begin with Prefix to the objects that they were
// packed from, which are at Address followed by the rest of the path.
type Root struct{ Prefix, Address string }

// Roots are the roots of an archive in a canonical text form.
type Roots string

func RootsOf(all []Root) Roots {
	b, err := json.Marshal(all)
	if err != nil { // of strings
		panic(err)
	}
	return Roots(b)
}

// All returns the roots, or none if they are not known.
func (r Roots) All() (all []Root) {
	if json.Unmarshal([]byte(r), &all) != nil {
		return nil
	}
	return all
}

// These are bits of the first byte of locations.object: they tell which fields
// follow, in this order.
const (
	objectTime    = 1 << iota // seconds since 1970, as a varint
	objectNanos               // of the second
	objectHeaders             // 8 bytes
	objectMD5                 // an ETag that is an MD5: 16 bytes
	objectETag                // a different one, to the end
)

// appendObject appends the attributes that a bucket kept, or nothing if there
// are none.
func appendObject(b []byte, l Location) []byte {
	has, start := byte(0), len(b)
	b = append(b, 0)
	if !l.Modified.IsZero() {
		has |= objectTime
		b = binary.AppendVarint(b, l.Modified.Unix())
		if n := l.Modified.Nanosecond(); n > 0 {
			has |= objectNanos
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	if l.Headers != 0 {
		has |= objectHeaders
		b = binary.BigEndian.AppendUint64(b, l.Headers)
	}
	if sum, ok := kit.MD5OfETag(l.ETag); ok {
		has |= objectMD5
		b = append(b, sum...)
	} else if l.ETag != "" {
		has |= objectETag
		b = append(b, l.ETag...)
	}
	if b[start] = has; has == 0 {
		return b[:start]
	}
	return b
}

// An object is a location in the form of its object column.
type object Location

func (o *object) ScanBytes(b []byte) error {
	o.Modified, o.Headers, o.ETag = time.Time{}, 0, ""
	if len(b) == 0 {
		return nil
	}
	has, b := b[0], b[1:]
	broken := fmt.Errorf("%s: headers from its bucket: it %w", format.Escape(o.Path), ErrBroken)
	if has&objectTime != 0 {
		seconds, n := binary.Varint(b)
		if n <= 0 {
			return broken
		}
		b = b[n:]
		nanos := uint64(0)
		if has&objectNanos != 0 {
			if nanos, n = binary.Uvarint(b); n <= 0 || nanos >= uint64(time.Second) {
				return broken
			}
			b = b[n:]
		}
		o.Modified = time.Unix(seconds, int64(nanos)).UTC()
	}
	if has&objectHeaders != 0 {
		if len(b) < 8 {
			return broken
		}
		o.Headers, b = binary.BigEndian.Uint64(b), b[8:]
	}
	switch {
	case has&objectMD5 != 0 && len(b) != 16:
		return broken
	case has&objectMD5 != 0:
		o.ETag = `"` + hex.EncodeToString(b) + `"`
	case has&objectETag != 0:
		o.ETag = string(b)
	}
	return nil
}

// HeaderText returns headers in the form of Location.HeaderText: equal headers
// have equal texts.
func HeaderText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	b, err := json.Marshal(headers) // by name
	if err != nil {                 // of strings
		panic(err)
	}
	return string(b)
}

// headerSets collects the headers of one archive's locations. Most locations
// share a few sets.
type headerSets struct {
	seen   map[uint64]bool
	sorted *sorter.Sorter
}

// mostSeen bounds how many existing header sets are remembered.
const mostSeen = 1 << 16

// add returns the ID of a set, or 0 for none.
func (h *headerSets) add(text string) (uint64, error) {
	id := headersID(Location{HeaderText: text})
	if id == 0 || h.seen[id] {
		return id, nil
	}
	if len(h.seen) >= mostSeen {
		clear(h.seen)
	}
	h.seen[id] = true
	if h.sorted == nil {
		h.sorted = sorter.New(sorter.Options{Memory: 4 << 20, Scratch: sorter.TempFile, Duplicate: func([]byte) error { return nil }})
	}
	return id, h.sorted.Add(binary.BigEndian.AppendUint64(nil, id), []byte(text))
}

func headersID(l Location) uint64 {
	if l.HeaderText == "" {
		return l.Headers
	}
	sum := sha256.Sum256([]byte(l.HeaderText))
	return max(binary.BigEndian.Uint64(sum[:8]), 1)
}

func (h *headerSets) keep(ctx context.Context, s session) error {
	if h == nil || h.sorted == nil {
		return nil
	}
	for row, err := range h.sorted.Sorted() {
		if err != nil {
			return err
		}
		id, value := int64(binary.BigEndian.Uint64(row.Key)), blob(row.Value)
		n, err := s.exec(ctx, "INSERT INTO headers (id, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", id, value)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		is, err := one(ctx, s, pathIn, nil, "SELECT value FROM headers WHERE id = $1", id)
		if err == nil && is != string(value) {
			err = errors.New("two sets of headers have the same number")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *headerSets) close() {
	if h != nil && h.sorted != nil {
		h.sorted.Close()
	}
}

// HeadersOf is Headers for a location.
func (c *Catalog) HeadersOf(ctx context.Context, l Location) (map[string]string, error) {
	return c.Headers(ctx, l.Headers)
}

type headerMemory struct {
	mu    sync.Mutex
	known map[uint64]map[string]string
}

// Headers returns the headers with the ID in Location.Headers. Names are in
// lower case. The caller must not change the map.
func (c *Catalog) Headers(ctx context.Context, id uint64) (map[string]string, error) {
	if id == 0 {
		return nil, nil
	}
	c.headers.mu.Lock()
	headers, ok := c.headers.known[id]
	c.headers.mu.Unlock()
	if ok {
		return headers, nil
	}
	text, err := readOne(ctx, c, fmt.Sprintf("headers %d", id), pathIn, "SELECT value FROM headers WHERE id = $1", int64(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("headers %d: it %w", id, ErrBroken)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("headers %d: it %w: %w", id, ErrBroken, err)
	}
	c.headers.mu.Lock()
	defer c.headers.mu.Unlock()
	if c.headers.known == nil || len(c.headers.known) >= mostSeen>>4 {
		c.headers.known = map[uint64]map[string]string{}
	}
	c.headers.known[id] = headers
	return headers, nil
}

func digestLen(d format.Digest) int {
	if d.Algo == "" {
		return 0
	}
	return len(d.Algo) + 1 + len(d.Sum)
}

// Attributes returns the attributes of a location for Entry.Attr, with the
// given headers.
func (l Location) Attributes(headers map[string]string) map[string]string {
	if l.ETag == "" && len(headers) == 0 {
		return nil
	}
	attr := make(map[string]string, len(headers)+1)
	maps.Copy(attr, headers)
	if l.ETag != "" {
		attr[kit.ETagAttr] = l.ETag
	}
	return attr
}
