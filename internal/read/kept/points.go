package kept

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
)

// A unit is a run of stored bytes that can be decoded from points on.
type unit struct {
	volume   int
	off, len int64
	codec    string
}

const (
	// pointEvery is the minimum distance of two points in the content. Decoding 4 MiB takes about
	// as long as a seek on a hard disk, and a point takes about 10 KB.
	pointEvery = 4 << 20
	// Units with at most wholeUnit bytes of content are decoded completely. Points in units with
	// fewer than leastUnit stored bytes would save little.
	wholeUnit  = 16 << 20
	leastUnit  = 256 << 10
	maxUnits   = 1 << 20
	pointWhere = 4 + 8 // bytes of a point's key that name its unit
)

// appendPointKey appends the key of a point: u32 volume, u64 offset of the unit, u64
// place in its content, the highest byte first.
func appendPointKey(b []byte, volume int, off, at int64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(volume))
	b = binary.BigEndian.AppendUint64(b, uint64(off))
	return binary.BigEndian.AppendUint64(b, uint64(at))
}

// note remembers the unit of an extent for which points are to be found.
func (b *builder) note(x *format.Extent, volume int) {
	if x.Len < leastUnit || 0 < x.Unit && x.Unit <= wholeUnit || x.External || b.stored == nil {
		return
	}
	u := unit{volume, x.Off, x.Len, x.Codec}
	if u == b.lastUnit || len(b.units) == maxUnits {
		return
	}
	b.lastUnit = u
	if c, ok := codec.Lookup(x.Codec); ok && c.Points != nil {
		b.units[u] = struct{}{}
	}
}

// points writes a page for each point:
//
//	uvar length of the unit, text codec, uvar offset in the unit, what the codec knows
func (b *builder) points() (refs []ref, err error) {
	all := slices.SortedFunc(maps.Keys(b.units), func(a, b unit) int {
		return bytes.Compare(appendPointKey(nil, a.volume, a.off, a.len), appendPointKey(nil, b.volume, b.off, b.len))
	})
	var page []byte
	for i, u := range all {
		if i > 0 && all[i-1].volume == u.volume && all[i-1].off == u.off {
			continue // one of the two is wrong about where it ends
		}
		r, err := b.stored(b.ctx, b.name+b.head.Volumes[u.volume].Name, u.off, u.len)
		if err != nil {
			return nil, err
		}
		var failed error
		before := len(refs)
		c, _ := codec.Lookup(u.codec)
		_, err = c.Points(r, pointEvery, func(p codec.Point) error {
			if p.Off >= u.len {
				return nil // nothing comes after it
			}
			page = scan.AppendText(binary.AppendUvarint(page[:0], uint64(u.len)), u.codec)
			page = append(binary.AppendUvarint(page, uint64(p.Off)), p.State...)
			var r ref
			r, failed = b.w.page(page, appendPointKey(nil, u.volume, u.off, p.At), int64(len(refs)), 1, true)
			refs = append(refs, r)
			return failed
		})
		_ = r.Close()
		if failed == nil && b.ctx.Err() != nil {
			failed = context.Cause(b.ctx)
		}
		if failed != nil {
			return nil, failed
		}
		if err != nil {
			refs = refs[:before] // it is not known where it is damaged; reading it returns the error
		}
	}
	return refs, nil
}

// StoredBytes reads n stored bytes of an object of the archive.
type StoredBytes func(ctx context.Context, object string, off, n int64) (io.ReadCloser, error)

// HasPoints reports whether the index knows points of long units.
func (x *Index) HasPoints() bool { return x.points.t.Depth > 0 }

// volumeOf is the number of the volume that an extent lies in.
func (x *Index) volumeOf(e *format.Extent) (int, bool) {
	if e.External {
		return 0, false
	}
	for i := range x.Volumes {
		if name, external := x.object(i); !external && name == e.Object {
			return i, true
		}
	}
	return 0, false
}

// pointAt finds the last point of the unit of e that is not after a place.
func (x *Index) pointAt(ctx context.Context, e *format.Extent, at int64) (*ref, int64, error) {
	volume, ok := x.volumeOf(e)
	if !ok {
		return nil, 0, nil
	}
	key := appendPointKey(nil, volume, e.Off, at)
	steps, err := x.points.findKey(ctx, key)
	if err != nil || steps == nil {
		return nil, 0, err
	}
	r := leaf(steps)
	if len(r.first) != len(key) || bytes.Compare(r.first, key) > 0 || !bytes.Equal(r.first[:pointWhere], key[:pointWhere]) {
		return nil, 0, nil
	}
	return r, int64(binary.BigEndian.Uint64(r.first[pointWhere:])), nil
}

// Before returns the position of the last point of the unit of e that is not after e.Skip; 0 is
// its beginning. If the index is damaged here, it returns 0.
func (x *Index) Before(ctx context.Context, e format.Extent) int64 {
	_, at, err := x.pointAt(ctx, &e, e.Skip)
	if err != nil {
		return 0
	}
	return at
}

var errNoPoint = errors.New("invalid point")

// Point returns the point of the unit of e at a position that Before returned.
func (x *Index) Point(ctx context.Context, e format.Extent, at int64) (p codec.Point, err error) {
	r, found, err := x.pointAt(ctx, &e, at)
	if err != nil {
		return p, err
	}
	if r == nil || found != at {
		return p, errNoPoint
	}
	b, err := x.page(ctx, r, nil)
	if err != nil {
		return p, err
	}
	c := &scan.Scanner{B: b}
	long := c.Size()
	name := c.Text()
	off := c.Size()
	if c.Bad || long != e.Len || string(name) != e.Codec {
		return p, x.fail(r.off, errNoPoint)
	}
	return codec.Point{At: at, Off: off, State: b[c.At:]}, nil
}
