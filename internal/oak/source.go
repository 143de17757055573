package oak

import (
	"bytes"
	lru "container/list"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// parsed has the segments of a repository, the most recently used in memory.
type parsed struct {
	r        *repository
	trusting bool                                                        // segments are not compared with their checksums
	sparse   bool                                                        // keep only the needed parts of each segment, for stores with cheap reads
	load     func(context.Context, segment.ID) (*segment.Segment, error) // in the place of r, or nil

	mu    sync.Mutex
	bytes int
	used  lru.List // of *kept, the most recently used in front
	m     map[segment.ID]*lru.Element
}

// kept is a segment in memory, and the size that is counted for it.
type kept struct {
	*segment.Segment
	bytes int
}

// parsedBytes is how many bytes of segments are kept in memory: a few hundred segments.
const parsedBytes = 48 << 20

// Segment reads a segment. If there are several copies, it returns the first intact one.
func (p *parsed) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	p.mu.Lock()
	if e := p.m[id]; e != nil {
		p.used.MoveToFront(e)
		k := e.Value.(*kept)
		if p.sparse {
			p.count(k)
		}
		p.mu.Unlock()
		return k.Segment, nil
	}
	p.mu.Unlock()
	s, err := p.read(ctx, id)
	if err != nil {
		return nil, err
	}
	p.keep(s)
	return s, nil
}

func (p *parsed) keep(s *segment.Segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		p.m = map[segment.ID]*lru.Element{}
	}
	if p.m[s.ID()] == nil {
		k := &kept{Segment: s}
		p.m[s.ID()] = p.used.PushFront(k)
		p.count(k)
	}
}

// count counts how much of a segment is in memory now, and removes others if necessary.
func (p *parsed) count(k *kept) {
	now := k.Held()
	p.bytes += now - k.bytes
	k.bytes = now
	for p.bytes > parsedBytes && p.used.Len() > 1 {
		last := p.used.Remove(p.used.Back()).(*kept)
		p.bytes -= last.bytes
		delete(p.m, last.ID())
	}
}

func (p *parsed) read(ctx context.Context, id segment.ID) (s *segment.Segment, err error) {
	if p.load != nil {
		return p.load(ctx, id)
	}
	err = p.r.anyCopy(ctx, id, func(t *segmentTar, e tarfile.Entry) error {
		s, err = p.parse(ctx, t, e)
		return err
	})
	return s, err
}

// anyCopy calls read with the copies of a segment, the newest first, until it can be read.
func (r *repository) anyCopy(ctx context.Context, id segment.ID, read func(*segmentTar, tarfile.Entry) error) error {
	var first error
	for _, t := range r.tars {
		i, ok := t.Find(id)
		if !ok {
			continue
		}
		err := r.storeFault(read(t, t.At(i)))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
	}
	return first
}

func (p *parsed) parse(ctx context.Context, t *segmentTar, e tarfile.Entry) (*segment.Segment, error) {
	if p.sparse && t.holds(e) {
		if !p.trusting {
			if err := t.check(ctx, e, false); err != nil {
				return nil, err
			}
		}
		ctx = context.WithoutCancel(ctx) // for other readers that need more of it
		return segment.ParseSparse(e.ID, e.Len, func(off, n int) ([]byte, error) {
			b := make([]byte, n)
			return b, p.r.storeFault(t.obj.ReadAt(ctx, b, e.Pos+int64(off)))
		})
	}
	b, err := t.read(ctx, e, nil, p.trusting)
	if err != nil {
		return nil, err
	}
	return segment.Parse(e.ID, b)
}

// Size returns the size of a segment from the index.
func (p *parsed) Size(_ context.Context, id segment.ID) (int, error) {
	if _, e, ok := p.r.locate(id); ok {
		return e.Len, nil
	}
	return 0, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
}

// read reads a segment into buf, or into a longer slice if buf is too short. Unless the segment
// is trusted, it must match its header.
func (t *segmentTar) read(ctx context.Context, e tarfile.Entry, buf []byte, trusted bool) ([]byte, error) {
	_, b, err := t.readBoth(ctx, e, buf, !trusted, trusted)
	return b, err
}

// readBoth is read that also returns the header, if wanted.
func (t *segmentTar) readBoth(ctx context.Context, e tarfile.Entry, buf []byte, headed, trusted bool) (header, data []byte, err error) {
	if !t.holds(e) {
		return nil, nil, &tarfile.Error{Class: tarfile.OutOfBounds, Object: t.path, Offset: e.Pos, What: fmt.Sprintf("segment %s: %d bytes, but the file ends at %d", e.ID, e.Len, t.size)}
	}
	head := 0
	if headed {
		head = tarfile.BlockSize
	}
	b := slices.Grow(buf[:0], head+e.Len)[: head+e.Len : head+e.Len]
	if err := t.obj.ReadAt(ctx, b, e.Pos-int64(head)); err != nil {
		return nil, nil, err
	}
	if !trusted {
		if what := tarfile.Compare(e.ID, b[:head], b[head:]); what != "" {
			return nil, nil, &segment.Error{Class: segment.Altered, Segment: e.ID, Record: -1, Off: -1, What: what}
		}
	}
	return b[:head], b[head:], nil
}

// buffers have room for a segment with its header.
var buffers = sync.Pool{New: func() any { return new([tarfile.BlockSize + tarfile.MaxSegment]byte) }}

// check reads a segment without keeping it in memory.
func (t *segmentTar) check(ctx context.Context, e tarfile.Entry, trusted bool) error {
	buf := buffers.Get().(*[tarfile.BlockSize + tarfile.MaxSegment]byte)
	defer buffers.Put(buf)
	_, err := t.read(ctx, e, buf[:], trusted)
	return err
}

// wholeSegment is the codec of a segment with its header. It compares the segment with the
// header.
const wholeSegment = "oak-segment"

func init() {
	codec.Register(codec.Codec{Name: wholeSegment, Sums: true, Append: appendSegment, Decode: func(r io.Reader) (io.ReadCloser, error) {
		b, err := io.ReadAll(io.LimitReader(r, tarfile.BlockSize+tarfile.MaxSegment+1))
		if err == nil {
			b, err = appendSegment(nil, b, len(b)-tarfile.BlockSize)
		}
		return io.NopCloser(bytes.NewReader(b)), err
	}})
}

func appendSegment(dst, stored []byte, size int) ([]byte, error) {
	if size < 1 || size > tarfile.MaxSegment || size != len(stored)-tarfile.BlockSize {
		return dst, io.ErrUnexpectedEOF
	}
	header, data := stored[:tarfile.BlockSize], stored[tarfile.BlockSize:]
	h, _ := tarfile.ParseHeader(header)
	name, _ := tarfile.ParseEntryName(h.Name)
	if what := tarfile.Compare(name.ID, header, data); what != "" {
		return dst, fault(badChecksum, "", tarfile.BlockSize, "segment %s: %s", name.ID, what)
	}
	return append(dst, data...), nil
}

// extent returns where n bytes of a segment from off are stored. They are the content from at.
func (r *repository) extent(tar string, pos int64, size, off, n int, at int64) format.Extent {
	x := format.Extent{At: at, Size: int64(n), Object: tar, Off: pos + int64(off), Len: int64(n)}
	if !r.trusting && pos > 0 { // otherwise it is a separate blob, without a header
		x.Codec, x.Unit, x.Skip = wholeSegment, int64(size), int64(off)
		x.Off, x.Len = pos-tarfile.BlockSize, int64(tarfile.BlockSize+size)
	}
	return x
}
