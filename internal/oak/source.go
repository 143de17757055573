package oak

import (
	"cmp"
	lru "container/list"
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// parsed has the segments of a repository, the most recently used in memory.
type parsed struct {
	r      *repository
	sound  bool // every segment is compared with its checksum, for who copies or vouches
	sparse bool // of each segment only what is needed is read, for who has it at hand

	mu    sync.Mutex
	bytes int
	used  lru.List // of *kept, the most recently used in front
	m     map[segment.ID]*lru.Element
}

// kept is a segment in memory, and how much of it counts.
type kept struct {
	*segment.Segment
	bytes int
}

// parsedBytes is how much is held of segments: a few hundred.
const parsedBytes = 48 << 20

// Segment reads a segment, of several copies the first that can be parsed.
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

// count counts what is in memory of a segment by now, and forgets others if need be.
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

func (p *parsed) read(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	var first error
	for _, t := range p.r.tars {
		i, ok := t.Find(id)
		if !ok {
			continue
		}
		s, err := p.parse(ctx, t, i)
		if err == nil {
			return s, nil
		}
		if err = p.r.storeFault(err); ctx.Err() != nil {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
	}
	return nil, first
}

func (p *parsed) parse(ctx context.Context, t *segmentTar, i int) (*segment.Segment, error) {
	e := t.At(i)
	var b []byte
	var err error
	switch {
	case p.sparse && t.holds(e):
		ctx = context.WithoutCancel(ctx) // for whoever needs more of it
		return segment.ParseSparse(e.ID, e.Len, func(off, n int) ([]byte, error) {
			b := make([]byte, n)
			return b, p.r.storeFault(t.obj.ReadAt(ctx, b, e.Pos+int64(off)))
		})
	case p.sound:
		b, err = t.readSound(ctx, i)
	default:
		b, err = t.read(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	return segment.Parse(e.ID, b)
}

// Size is how long a segment is, by the index.
func (p *parsed) Size(_ context.Context, id segment.ID) (int, error) {
	if _, e, ok := p.r.locate(id); ok {
		return e.Len, nil
	}
	return 0, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
}

func (t *segmentTar) read(ctx context.Context, e tarfile.Entry) ([]byte, error) {
	if !t.holds(e) {
		return nil, &tarfile.Error{Class: tarfile.OutOfBounds, Object: t.path, Offset: e.Pos, What: fmt.Sprintf("segment %s: %d bytes, and the file ends at %d", e.ID, e.Len, t.size)}
	}
	b := make([]byte, e.Len)
	return b, t.obj.ReadAt(ctx, b, e.Pos)
}

// readSound reads segment i of a tar, which must be what was written, as far as its
// header says. A scan has looked already.
func (t *segmentTar) readSound(ctx context.Context, i int) ([]byte, error) {
	e := t.At(i)
	at := e.Whole()
	if t.file == nil || !t.holds(e) || at.Off+at.Len > t.size {
		return t.read(ctx, e)
	}
	b := make([]byte, at.Len)
	if err := t.obj.ReadAt(ctx, b, at.Off); err != nil {
		return nil, err
	}
	what := ""
	if !t.file.CheckBytes(i, b, func(p tarfile.Problem) { what = cmp.Or(what, p.What) }) {
		return nil, &segment.Error{Class: segment.Corrupt, Segment: e.ID, Record: -1, Off: -1, What: what}
	}
	return b[tarfile.BlockSize:][:e.Len:e.Len], nil
}
