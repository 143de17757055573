package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Sweep rewrites tar i of the plan, whose action must be Rewrite. It writes an object of st,
// called prefix and NewName, that appears complete. The caller must then remove the old tar.
// Until that is done, a store that is opened uses either of them.
//
// Entries are copied unchanged, with the times in their headers. What follows the segments has
// the latest of these times, so that the output depends on nothing else. Oak uses the time of
// writing there.
//
// All tars of the plan must still be open. If Sweep returns an error, nothing has changed.
func (p *Plan) Sweep(ctx context.Context, st store.Store, prefix string, i int) (store.Info, error) {
	t := &p.Tars[i]
	if t.Action != Rewrite {
		return store.Info{}, fmt.Errorf("%s: %s, expected a tar to rewrite", t.Name, t.Action)
	}
	name := prefix + t.NewName
	if err := free(ctx, st, name); err != nil {
		return store.Info{}, err
	}
	w := writer{p: p, t: t}
	info, err := storekit.Write(ctx, st, name, func(out store.Writer) error {
		w.out = out
		return w.write(ctx)
	})
	if err != nil {
		return store.Info{}, err
	}
	if err := w.proof(ctx, st, name); err != nil {
		return store.Info{}, errors.Join(err, storekit.Remove(ctx, st, name))
	}
	return info, nil
}

func free(ctx context.Context, st store.Store, name string) error {
	_, err := storekit.Briefly(st, name).Info(ctx)
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

type writer struct {
	p   *Plan
	t   *TarPlan
	out store.Writer

	graph    *tarfile.Graph                 // nil if it must be read from the segments
	refs     int64                          // size of the references read from segments
	binaries map[tarfile.ID][]tarfile.Texts // as in the tar; nil if they must be read from the segments
	blobs    *blobReader

	run      tarfile.Span // of the old tar, to be copied
	size     int64
	tail     tarfile.Tail
	youngest time.Time
	buf      []byte
}

func (w *writer) write(ctx context.Context) error {
	if err := w.parts(ctx); err != nil {
		return err
	}
	for _, i := range w.t.Index().ByPosition() {
		if w.t.IsGarbage(int(i)) {
			continue
		}
		if err := w.entry(ctx, int(i)); err != nil {
			return err
		}
	}
	return w.end(ctx)
}

// parts reads graph and binary references, if they are intact.
func (w *writer) parts(ctx context.Context) (err error) {
	if w.t.GraphDamage == nil {
		if w.graph, err = w.t.Tar.Graph(ctx); err != nil {
			return err
		}
	}
	if w.t.BinariesDamage != nil {
		w.blobs = &blobReader{src: &segment.Recent{Most: keptSegments, Load: w.p.segment}, left: maxPart, report: w.p.report}
		return nil
	}
	r, err := w.t.Tar.Binaries(ctx)
	if err != nil {
		return err
	}
	w.binaries = map[tarfile.ID][]tarfile.Texts{}
	for s := range r.All() {
		w.binaries[s.ID] = append(w.binaries[s.ID], s.Refs)
	}
	return nil
}

func (w *writer) entry(ctx context.Context, i int) error {
	e := w.t.Index().At(i)
	refs, binaries, err := w.references(ctx, i, e)
	if err != nil {
		return err
	}
	old := e.Pos
	e.Pos = w.size + tarfile.BlockSize
	if !e.ID.IsData() {
		e.Generation = tarfile.Generation{} // the index before Oak 1.8 has another one
	}
	if err := w.tail.Add(e, refs, binaries); err != nil {
		return fmt.Errorf("%s: %w", w.t.NewName, err)
	}
	room := e.Whole().Len
	w.size += room

	h, err := w.t.Tar.ReadHeader(ctx, i)
	bad, err := damage(err)
	if err != nil {
		return err
	}
	if h.ModTime.After(w.youngest) {
		w.youngest = h.ModTime
	}
	n, named := tarfile.ParseEntryName(h.Name)
	sound := bad == nil && h.ChecksumOK && h.Size == int64(e.Len) && named && n.ID == e.ID // with a checksum or without
	if sound {
		return w.copy(ctx, tarfile.Span{Off: old - tarfile.BlockSize, Len: room})
	}
	if w.buf, err = w.t.Tar.Read(ctx, i, w.buf); err != nil {
		return err
	}
	header := make([]byte, tarfile.BlockSize)
	if err := w.t.Object.ReadAt(ctx, header, old-tarfile.BlockSize); err != nil {
		return err
	}
	is, what := tarfile.NewHeader(header, e.ID, w.buf, h.ModTime), "header: damaged, and the segment cannot be verified: both kept unchanged"
	proven := !bytes.Equal(is, header)
	if proven {
		what = "header: damaged; wrote a new one, because the segment matches its checksum"
	}
	w.p.report(w.t.Name, tarfile.Problem{Class: tarfile.BadHeader, Off: old - tarfile.BlockSize, Len: tarfile.BlockSize, Segment: e.ID, HasSegment: true, What: what})
	if !proven {
		return w.copy(ctx, tarfile.Span{Off: old - tarfile.BlockSize, Len: room})
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	if _, err := w.out.Write(is); err != nil {
		return err
	}
	return w.copy(ctx, tarfile.Span{Off: old, Len: room - tarfile.BlockSize})
}

// copy delays a copy that continues the current run.
func (w *writer) copy(ctx context.Context, s tarfile.Span) error {
	if s.Off != w.run.Off+w.run.Len {
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.run.Off = s.Off
	}
	w.run.Len += s.Len
	return nil
}

func (w *writer) flush(ctx context.Context) error {
	err := storekit.WriteRange(ctx, w.out, w.t.Object, w.run.Off, w.run.Len)
	w.run = tarfile.Span{}
	return err
}

// references returns what graph and binary references contain about a segment. As in Oak, the
// result omits garbage segments of this tar from the graph.
func (w *writer) references(ctx context.Context, i int, e tarfile.Entry) (refs tarfile.IDs, binaries []string, err error) {
	if !e.ID.IsData() {
		return nil, nil, nil
	}
	if w.graph == nil || w.blobs != nil {
		if w.buf, err = w.t.Tar.Read(ctx, i, w.buf); err != nil {
			return nil, nil, err
		}
	}
	if w.graph != nil {
		refs, _ = w.graph.Targets(e.ID)
	} else if h, ok := segment.ParseHead(w.buf); ok { // otherwise it was reported before
		refs = h.Refs
		if w.refs += int64(len(refs)) + int64(len(e.ID)) + 4; w.refs > maxPart {
			return nil, nil, tooLong(w.t, e, "graph")
		}
	}
	var kept tarfile.IDs
	for id := range refs.All() {
		if k, ok := w.t.Index().Find(id); !ok || !w.t.IsGarbage(k) {
			kept = append(kept, id[:]...)
		}
	}
	if w.blobs != nil {
		binaries, err = w.blobs.read(ctx, w.t, i, w.buf)
	}
	for _, texts := range w.binaries[e.ID] {
		binaries = slices.AppendSeq(binaries, texts.All())
	}
	return kept, binaries, err
}

func (w *writer) end(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	b, err := w.tail.Append(nil, w.t.NewName, func() time.Time { return w.youngest })
	if err != nil {
		return err
	}
	w.size += int64(len(b))
	_, err = w.out.Write(b)
	return err
}

// proof opens the new tar, to verify it before the old one is removed.
func (w *writer) proof(ctx context.Context, st store.Store, name string) error {
	o, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.Close()
	t, err := tarfile.Open(ctx, o, name, tarfile.Options{})
	if err != nil {
		return err
	}
	if t.Size() != w.size || t.Index().Len() != w.tail.Len() {
		return fmt.Errorf("%s: %d bytes, %d segments, expected %d and %d as written", name, t.Size(), t.Index().Len(), w.size, w.tail.Len())
	}
	if _, err := t.Graph(ctx); err != nil {
		return err
	}
	_, err = t.Binaries(ctx)
	return err
}

const (
	maxBlobID = 1 << 20   // bytes of a binary's id; Oak's are below a hundred
	maxPart   = 256 << 20 // of a graph or binary references: the limit of tarfile
)

// A blobReader finds the ids of binaries in the records of segments.
type blobReader struct {
	src    *segment.Recent
	left   int64 // bytes that ids of the tar may still have
	report func(tar string, p tarfile.Problem)
}

// keptSegments is how many are kept: IDs that are separate strings are seldom far away.
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

// read returns the IDs of binaries in the records of entry i. What cannot be read is reported and
// skipped. It returns an error only if the store fails.
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
	// This segment may differ from the one in the newest tar with the same ID.
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
