package oak

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A file of a Lucene index is a node that has its content as one binary, or as one for each
// blobSize bytes. After each binary comes a key, which is not content. It prevents data stores from
// storing two binaries as one.
const (
	blobSizeName  = "blobSize"
	uniqueKeyName = "uniqueKey"

	usualBlobSize = 32 << 10
	mostBlobSize  = 1 << 40
	mostUniqueKey = 1 << 10 // digits of hex
)

type luceneRef struct {
	node segment.RecordID
	blob int64 // content bytes in each binary except the last; 0 if there is only one binary
	away bool  // some of it is in a data store
}

// isLucene reports, by the names of properties, whether a node is a file of an index.
func isLucene(t *segment.Template) bool {
	data, known := false, false
	for _, p := range t.Properties {
		data = data || p.Name == dataName && p.Type == segment.Binary
		known = known || p.Name == blobSizeName || p.Name == uniqueKeyName
	}
	return data && known
}

// lucene turns the entry of such a node into a file.
func (f *filesReader) lucene(ctx context.Context, e *format.Entry, n segment.Node) (err error) {
	e.Kind = format.File
	if e.ModTime, err = f.luceneTime(ctx, n); err != nil {
		return err
	}
	ref := luceneRef{node: n.ID()}
	e.Size, ref.blob, ref.away, err = f.luceneSize(ctx, n)
	if err == nil {
		e.Ref = ref
	}
	return f.lost(e, err)
}

// luceneTime reads a number of milliseconds, which files of an index have instead of a date.
func (f *filesReader) luceneTime(ctx context.Context, n segment.Node) (at time.Time, err error) {
	millis, ok, err := f.number(ctx, n, lastModified)
	if ok && millis > 0 {
		at = time.UnixMilli(millis)
	}
	return at, f.unlessDamage(err)
}

// number reads a property with one value that is a number.
func (t *treeReader) number(ctx context.Context, n segment.Node, name string) (int64, bool, error) {
	const longest = 20
	text, err := textProperty(ctx, n, name, longest)
	if err != nil || text == "" {
		return 0, false, err
	}
	i, err := strconv.ParseInt(text, 10, 64)
	return i, err == nil, nil
}

func (f *filesReader) luceneSize(ctx context.Context, n segment.Node) (size, blob int64, away bool, err error) {
	bad := func(what string) error {
		return f.treeFault(badRecord, n.ID().Segment, -1, "file of a Lucene index: %s", what)
	}
	key, err := textProperty(ctx, n, uniqueKeyName, mostUniqueKey)
	if err != nil {
		return 0, 0, false, err
	}
	p, ok, err := n.Property(ctx, dataName)
	if err != nil || !ok {
		return 0, 0, false, errors.Join(err, bad("no data"))
	}
	count := int64(1)
	if p.Multi {
		count, blob = int64(p.Len()), usualBlobSize
		said, ok, err := f.number(ctx, n, blobSizeName)
		if err != nil {
			return 0, 0, false, err
		}
		if ok {
			blob = said
		}
		if blob <= 0 || blob > mostBlobSize {
			return 0, 0, false, bad("parts of " + strconv.FormatInt(blob, 10) + " bytes")
		}
	}
	if count == 0 {
		return 0, blob, false, nil
	}
	v, err := p.At(ctx, int(count-1))
	if err != nil {
		return 0, 0, false, err
	}
	last := v.Len()
	if v.External() {
		if _, last, _, err = f.external(ctx, v); err != nil {
			return 0, 0, false, err
		}
	}
	last -= int64(len(key) / 2)
	if last < 0 || p.Multi && (last > blob || count > math.MaxInt64/blob) {
		return 0, 0, false, bad("the last part has " + strconv.FormatInt(last, 10) + " bytes")
	}
	return (count-1)*blob + last, blob, v.External(), nil
}

// luceneExtents yields where bytes from off to end of such a file are stored.
func (t *treeReader) luceneExtents(ctx context.Context, ref luceneRef, size, off, end int64, yield func(format.Extent, error) bool) error {
	n, err := t.records.Node(ctx, ref.node)
	if err != nil {
		return err
	}
	p, ok, err := n.Property(ctx, dataName)
	if err != nil {
		return err
	}
	if !ok {
		return t.treeFault(badRecord, ref.node.Segment, -1, "file of a Lucene index: no data")
	}
	blob := ref.blob
	if blob == 0 {
		blob = size
	}
	for i := off / blob; i*blob < end; i++ {
		from, to := i*blob, min((i+1)*blob, size)
		v, err := p.At(ctx, int(i))
		if err != nil {
			return err
		}
		if v.External() {
			_, long, place, err := t.external(ctx, v)
			if err == nil && long < to-from {
				err = t.treeFault(badRecord, v.ID().Segment, -1, "file of a Lucene index: part %d: expected %d bytes, found %d", i, to-from, long)
			}
			if err != nil {
				return err
			}
			if !yield(format.Extent{At: from, Size: to - from, Object: string(place), External: true, Len: to - from}, nil) {
				return nil
			}
			continue
		}
		if v.Len() < to-from {
			return t.treeFault(badRecord, v.ID().Segment, -1, "file of a Lucene index: part %d: expected %d bytes, found %d", i, to-from, v.Len())
		}
		more := true
		skip := max(off-from, 0)
		err = t.valueExtents(ctx, v.ID(), v.Len(), skip, min(end, to)-from-skip, func(x format.Extent, err error) bool {
			x.At += from
			more = yield(x, err)
			return more
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}
