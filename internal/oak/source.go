package oak

import (
	"bytes"
	lru "container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
)

// parsed has the segments of a repository, the most recently used in memory.
type parsed struct {
	r      *repository
	trust  trust
	sparse bool                                                        // keep only the needed parts of each segment, for stores with cheap reads
	load   func(context.Context, segment.ID) (*segment.Segment, error) // in the place of r, or nil

	mu      sync.Mutex
	bytes   int
	used    lru.List // of *kept, the most recently used in front
	m       map[segment.ID]*lru.Element
	altered map[segment.ID]error // of segments that cannot be read
}

// mostAltered is how many damaged segments are remembered.
const mostAltered = 4096

// trust is what is done with a segment that does not match its checksum.
type trust uint8

const (
	healing  trust = iota // a single wrong bit is corrected; anything else is an error
	strict                // an error, as for Oak, which reads the wrong bit
	asStored              // nothing: it is not compared
)

// proving returns how segments are read to find out what Oak can read.
func (r *repository) proving() trust { return max(r.trust, strict) }

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
	if err := p.altered[id]; err != nil {
		p.mu.Unlock()
		return nil, err
	}
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
		if isAltered(err) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.altered == nil || len(p.altered) == mostAltered {
				p.altered = map[segment.ID]error{}
			}
			p.altered[id] = err
		}
		return nil, err
	}
	p.keep(s)
	return s, nil
}

// A guesser has the segments of sure, and those that are damaged as they are stored: for names and
// places, which then are not proven, but not for values.
type guesser struct {
	sure   segment.Source
	stored *parsed
}

func (g guesser) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	s, err := g.sure.Segment(ctx, id)
	if isAltered(err) && !g.stored.r.certain.Load() {
		if guess, bad := g.stored.Segment(ctx, id); bad == nil {
			g.stored.r.doubted(err)
			return guess, nil
		}
	}
	return s, err
}

// isAltered reports whether an error is about a segment that does not match its checksum.
func isAltered(err error) bool {
	e, ok := errors.AsType[*segment.Error](err)
	return ok && e.Class == segment.Altered
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
	if p.sparse && t.holds(e) && (p.trust == asStored || t.check(ctx, e, strict) == nil) {
		ctx = context.WithoutCancel(ctx) // for other readers that need more of it
		return segment.ParseSparse(e.ID, e.Len, func(off, n int) ([]byte, error) {
			b := make([]byte, n)
			return b, p.r.storeFault(t.obj.ReadAt(ctx, b, e.Pos+int64(off)))
		})
	}
	b, err := t.read(ctx, e, nil, p.trust)
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

// read reads a segment into buf, or into a longer slice if buf is too short.
func (t *segmentTar) read(ctx context.Context, e tarfile.Entry, buf []byte, how trust) ([]byte, error) {
	_, b, err := t.readBoth(ctx, e, buf, how != asStored, how)
	return b, err
}

// readBoth is read that also returns the header, if wanted.
func (t *segmentTar) readBoth(ctx context.Context, e tarfile.Entry, buf []byte, headed bool, how trust) (header, data []byte, err error) {
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
	what, healed := "", false
	switch how {
	case healing:
		healed, what = tarfile.Heal(e.ID, b[:head], b[head:])
	case strict:
		what = tarfile.Compare(e.ID, b[:head], b[head:])
	}
	if healed && t.onHeal != nil {
		t.onHeal()
	}
	if what != "" {
		return nil, nil, &segment.Error{Class: segment.Altered, Segment: e.ID, Record: -1, Off: -1, What: what}
	}
	return b[:head], b[head:], nil
}

// check reads a segment without keeping it in memory.
func (t *segmentTar) check(ctx context.Context, e tarfile.Entry, how trust) error {
	buf := transfer.Buffers.Get().(*transfer.Buffer)
	defer transfer.Buffers.Put(buf)
	_, err := t.read(ctx, e, buf[:], how)
	return err
}

// wholeSegment is the codec of a segment with its header. It compares the segment with the
// header, and corrects a single wrong bit.
const wholeSegment = "oak-segment"

func init() {
	codec.Register(codec.Codec{Name: wholeSegment, Sums: true, Plain: true, Append: appendSegment, Decode: func(r io.Reader) (io.ReadCloser, error) {
		b, err := io.ReadAll(io.LimitReader(r, tarfile.BlockSize+tarfile.MaxSegment+1))
		if err == nil {
			b, err = appendSegment(nil, b, len(b)-tarfile.BlockSize)
		}
		if err == codec.ErrHealed { // Append was called before, and has told it
			err = nil
		}
		return io.NopCloser(bytes.NewReader(b)), err
	}})
}

func appendSegment(dst, stored []byte, size int) ([]byte, error) {
	if size < 1 || size > tarfile.MaxSegment || size != len(stored)-tarfile.BlockSize {
		return dst, io.ErrUnexpectedEOF
	}
	header, data := stored[:tarfile.BlockSize], stored[tarfile.BlockSize:]
	name, _ := tarfile.NameIn(header)
	dst = append(dst, data...)
	healed, what := tarfile.Heal(name.ID, header, dst[len(dst)-size:])
	switch {
	case what != "":
		return dst[:len(dst)-size], fault(badChecksum, "", tarfile.BlockSize, "segment %s: %s", name.ID, what)
	case healed:
		return dst, codec.ErrHealed
	}
	return dst, nil
}

// extent returns where n bytes of a segment from off are stored. They are the content from at.
func (r *repository) extent(tar string, pos int64, size, off, n int, at int64) format.Extent {
	x := format.Extent{At: at, Size: int64(n), Object: tar, Off: pos + int64(off), Len: int64(n)}
	if r.trust != asStored && pos > 0 { // otherwise it is a separate blob, without a header
		x.Codec, x.Unit, x.Skip = wholeSegment, int64(size), int64(off)
		x.Off, x.Len = pos-tarfile.BlockSize, int64(tarfile.BlockSize+size)
	}
	return x
}
