package transfer

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

const (
	mostName  = 1 << 20 // bytes of the name of a binary; Oak's are below a hundred
	mostNames = tarfile.MaxPart
	recent    = 16 // segments that are kept: names that are separate strings are seldom far away
)

// Names derives what a tar records about segments: to which segments and binaries they refer. The next
// garbage collection of a data store deletes a binary that no tar lists.
type Names struct {
	tar    string
	source segment.Recent
	reader *segment.Reader
	most   int
}

// NewNames returns the Names of a tar. load reads segments that have names of others.
func NewNames(tar string, load func(context.Context, segment.ID) (*segment.Segment, error)) *Names {
	n := &Names{tar: tar, source: segment.Recent{Most: recent, Load: load}, most: mostNames}
	n.reader = segment.NewReader(&n.source)
	return n
}

// Describe adds to a data segment what its bytes show. It calls lost for what is damaged; if lost is
// nil, that is an error.
func (n *Names) Describe(ctx context.Context, f *segment.Finished, lost func(error)) error {
	if !f.ID.IsData() {
		return nil
	}
	h, _ := segment.ParseHead(f.Data)
	f.Refs = slices.Collect(h.Refs.All())
	g, err := segment.Parse(f.ID, f.Data)
	if err != nil {
		return damaged(err, lost)
	}
	n.source.Current = g // other tars may have another one with its ID
	left, known := n.most, map[string]bool{}
	for record := range g.External() {
		name, err := n.reader.BlobID(ctx, record, mostName)
		switch {
		case err != nil:
			if err := damaged(err, lost); err != nil {
				return err
			}
		case !known[name]:
			if left -= len(name); left < 0 {
				return &tarfile.Error{Class: tarfile.Limit, Object: n.tar, Offset: -1, What: fmt.Sprintf("segment %s: names of binaries of more than %d bytes", f.ID, n.most)}
			}
			known[name] = true
			f.BlobIDs = append(f.BlobIDs, name)
		}
	}
	return nil
}

func damaged(err error, lost func(error)) error {
	if lost == nil || !tarfile.IsDamage(err) {
		return err
	}
	lost(err)
	return nil
}

// Recorded is what a tar records about its segments. What is damaged is nil.
type Recorded struct {
	Graph    *tarfile.Graph
	binaries map[segment.ID][]tarfile.Texts
}

// RecordedIn reads it.
func RecordedIn(ctx context.Context, t *tarfile.Tar) (r Recorded, err error) {
	if r.Graph, err = t.Graph(ctx); err != nil && !tarfile.IsDamage(err) {
		return r, err
	}
	all, err := t.Binaries(ctx)
	if err != nil {
		return r, damaged(err, func(error) {})
	}
	r.binaries = map[segment.ID][]tarfile.Texts{}
	for s := range all.All() {
		r.binaries[s.ID] = append(r.binaries[s.ID], s.Refs)
	}
	return r, nil
}

// Names adds the names of binaries of a segment. ok is false if they are damaged.
func (r Recorded) Names(f *segment.Finished) (ok bool) {
	for _, texts := range r.binaries[f.ID] {
		f.BlobIDs = slices.AppendSeq(f.BlobIDs, texts.All())
	}
	return r.binaries != nil
}
