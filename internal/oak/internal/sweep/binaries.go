package sweep

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

const (
	maxBlobID = 1 << 20   // bytes of a binary's id; Oak's are below a hundred
	maxPart   = 256 << 20 // of a graph or binary references: what tarfile reads of them
)

// A blobReader finds the ids of binaries in the records of segments.
type blobReader struct {
	src    *source
	left   int64 // bytes that ids of the tar may still have
	report func(tar string, p tarfile.Problem)
}

func newBlobReader(p *Plan) *blobReader {
	return &blobReader{src: &source{tars: p.Tars}, left: maxPart, report: p.report}
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
	r := segment.NewReader(near{b.src, seg})
	known := map[string]bool{}
	for row := range seg.Records() {
		if row.Type != segment.BlobID {
			continue
		}
		id, err := blobID(ctx, r, segment.RecordID{Segment: seg.ID(), Number: row.Number})
		switch {
		case err == nil && !known[id]:
			if b.left -= int64(len(id)) + 4; b.left < 0 {
				return nil, tooLong(t, e, "binary references")
			}
			known[id] = true
			ids = append(ids, id)
		case err == nil:
		case isDamage(err):
			problem(err)
		default:
			return nil, err
		}
	}
	return ids, nil
}

func blobID(ctx context.Context, r *segment.Reader, id segment.RecordID) (string, error) {
	v, err := r.Value(ctx, id)
	if err != nil {
		return "", err
	}
	return v.BlobID(ctx, maxBlobID)
}

// near is a source that has one segment at hand.
type near struct {
	*source
	seg *segment.Segment
}

func (n near) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	if id == n.seg.ID() {
		return n.seg, nil
	}
	return n.source.Segment(ctx, id)
}

func tooLong(t *TarPlan, e tarfile.Entry, what string) error {
	return &tarfile.Error{Class: tarfile.Limit, Object: t.Name, Offset: e.Pos, What: fmt.Sprintf("%s: up to segment %s more than %d bytes", what, e.ID, maxPart)}
}

// isDamage reports whether an error is of what is stored and not of the store.
func isDamage(err error) bool {
	if _, ok := errors.AsType[*tarfile.Error](err); ok {
		return true
	}
	_, ok := errors.AsType[*segment.Error](err)
	return ok
}

// storedBinaries has, by segment, what the binary references of a tar say.
type storedBinaries map[tarfile.ID][]tarfile.Texts

func newStoredBinaries(all iter.Seq[tarfile.SegmentBinaries]) storedBinaries {
	m := storedBinaries{}
	for s := range all {
		m[s.ID] = append(m[s.ID], s.Refs)
	}
	return m
}

func (m storedBinaries) of(id tarfile.ID) (ids []string) {
	for _, texts := range m[id] {
		for s := range texts.All() {
			ids = append(ids, s)
		}
	}
	return ids
}
