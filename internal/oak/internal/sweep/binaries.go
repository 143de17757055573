package sweep

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

const (
	maxBlobID = 1 << 20   // bytes of a binary's id; Oak's are below a hundred
	maxPart   = 256 << 20 // of a graph or binary references: what tarfile reads of them
)

// A blobReader finds the ids of binaries in the records of segments.
type blobReader struct {
	src    *segment.Recent
	left   int64 // bytes that ids of the tar may still have
	report func(tar string, p tarfile.Problem)
}

// keptSegments is how many are kept: ids of binaries that are strings of their own are
// seldom far away.
const keptSegments = 16

// segment reads a segment of the newest tar that has it.
func (p *Plan) segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	for i := range p.Tars {
		t := &p.Tars[i]
		if k, ok := t.Index().Find(id); ok {
			b, err := t.Tar.Read(ctx, k, nil)
			if err != nil {
				return nil, err
			}
			return segment.Parse(id, b)
		}
	}
	return nil, fs.ErrNotExist
}

// read returns the ids of binaries that the records of entry i have. What cannot be
// read is told, and left out: it is an error only if it is one of the store.
func (b *blobReader) read(ctx context.Context, t *TarPlan, i int, data []byte) (ids []string, err error) {
	e := t.Index().At(i)
	problem := func(err error) {
		b.report(t.Name, tarfile.Problem{Class: tarfile.BadSegment, Off: e.Pos, Len: int64(e.Len), Segment: e.ID, HasSegment: true,
			What: fmt.Sprintf("binary references are lost: %v", err)})
	}
	seg, err := segment.Parse(e.ID, data)
	if err != nil {
		problem(err)
		return nil, nil
	}
	// The segment may be another one than that of the newest tar that has its id.
	b.src.Current = seg
	r := segment.NewReader(b.src)
	known := map[string]bool{}
	for record := range seg.External() {
		id, err := r.BlobID(ctx, record, maxBlobID)
		switch {
		case err == nil && !known[id]:
			if b.left -= int64(len(id)) + 4; b.left < 0 {
				return nil, tooLong(t, e, "binary references")
			}
			known[id] = true
			ids = append(ids, id)
		case err == nil:
		case tarfile.IsDamage(err):
			problem(err)
		default:
			return nil, err
		}
	}
	return ids, nil
}

func tooLong(t *TarPlan, e tarfile.Entry, what string) error {
	return &tarfile.Error{Class: tarfile.Limit, Object: t.Name, Offset: e.Pos, What: fmt.Sprintf("%s: up to segment %s more than %d bytes", what, e.ID, maxPart)}
}
