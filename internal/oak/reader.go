package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	if o.View != "" && !slices.Contains(views[:], o.View) {
		return nil, fmt.Errorf("oak has no view %q: %w", o.View, errors.ErrUnsupported)
	}
	r, err := openSegments(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	// A single tar does not show which tree.
	if o.View == treeView || o.View == filesView || o.View == "" && (!r.single || o.Param[revisionParam] != "") {
		t, err := newTree(ctx, r, segment.NewReader(&parsed{r: r, trust: r.trust}), o, true)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		if o.View == filesView {
			return &filesReader{t}, nil
		}
		return t, nil
	}
	if err := errors.Join(r.beside(ctx), r.complete(ctx)); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &segmentReader{repository: r}, nil
}

// segmentReader presents segments as files, in a folder for each tar, and the files beside the
// tars. For each segment it keeps only its row of the index in memory.
type segmentReader struct {
	*repository

	mu     sync.Mutex
	graphs map[*segmentTar]*tarfile.Graph // nil if a tar has no intact one
	bytes  int                            // of all graphs
}

// heldGraphs is how many bytes of graphs are kept in memory, those of a hundred tars, before
// others replace them.
const heldGraphs = 32 << 20

func (r *segmentReader) Close() error { return r.close() }

// Attributes of segments.
const (
	kindAttr       = "kind"
	generationAttr = "generation"
	fullAttr       = "full_generation"
	compactedAttr  = "compacted"
	positionAttr   = "position"
	referencesAttr = "references" // how many segments it refers to, if the graph has that
)

// contentAt is where an entry's content is.
type contentAt struct {
	object string
	off    int64
}

func kindOf(id tarfile.ID) string {
	switch {
	case id.IsData():
		return "data"
	case id.IsBulk():
		return "bulk"
	}
	return "neither"
}

// graphOf returns the graph of a tar, or nil if it has no intact one.
func (r *segmentReader) graphOf(ctx context.Context, t *segmentTar) (*tarfile.Graph, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, known := r.graphs[t]
	if known || t.file == nil {
		return g, nil
	}
	g, err := t.file.Graph(ctx)
	if _, damaged := errors.AsType[*tarfile.Error](err); err != nil && !damaged {
		return nil, err
	}
	held := 0
	if g != nil {
		held = g.Held()
	}
	if r.bytes += held; r.graphs == nil || r.bytes > heldGraphs {
		r.graphs, r.bytes = map[*segmentTar]*tarfile.Graph{}, held
	}
	r.graphs[t] = g
	return g, nil
}

// targets returns the segments that a data segment refers to, from the graph of its tar or, if
// there is none, from the segment. It returns none if the segment is damaged.
func (r *segmentReader) targets(ctx context.Context, t *segmentTar, e tarfile.Entry) (tarfile.IDs, error) {
	g, err := r.graphOf(ctx, t)
	switch {
	case err != nil:
		return nil, err
	case g != nil:
		targets, _ := g.Targets(e.ID)
		return targets, nil
	case !t.holds(e):
		return nil, nil
	}
	b, err := t.read(ctx, e, nil, r.trust)
	h, _ := segment.ParseHead(b)
	return h.Refs, unlessDamaged(err)
}

func (r *segmentReader) entryOf(ctx context.Context, t *segmentTar, x tarfile.Entry) (format.Entry, error) {
	object, off := t.lies(x.Pos)
	e := format.Entry{
		Name: t.Name + "/" + x.ID.String(), Size: int64(x.Len), Ref: contentAt{object, off},
		Attr: map[string]string{
			kindAttr: kindOf(x.ID), generationAttr: strconv.Itoa(int(x.Generation.Gen)), fullAttr: strconv.Itoa(int(x.Generation.Full)),
			compactedAttr: strconv.FormatBool(x.Generation.Compacted), positionAttr: strconv.FormatInt(x.Pos, 10),
		},
	}
	g, err := r.graphOf(ctx, t)
	if g != nil && x.ID.IsData() {
		targets, _ := g.Targets(x.ID)
		e.Attr[referencesAttr] = strconv.Itoa(targets.Len())
	}
	if !t.holds(x) {
		p := fault(outOfBounds, t.path, x.Pos, "%d bytes expected at %d, but the file ends at %d", x.Len, x.Pos, t.size).Problem
		p.Entry, p.HasEntry = e.Name, true
		e.Fault = &p
	}
	return e, err
}

// data yields the data segments in the order in which they were written.
func (t *segmentTar) data() iter.Seq2[tarfile.Entry, error] {
	return func(yield func(tarfile.Entry, error) bool) {
		for _, i := range t.ByPosition() {
			if e := t.At(int(i)); e.ID.IsData() && !yield(e, nil) {
				return
			}
		}
	}
}

// holds reports whether a segment is within its tar.
func (t *segmentTar) holds(x tarfile.Entry) bool {
	return x.Pos >= tarfile.BlockSize && x.Len <= tarfile.MaxSegment && x.Pos+int64(x.Len) <= t.size
}

// files returns the files beside the tars, as stored.
func (r *repository) files() (all []repo.File) {
	parts := r.journalParts()
	for _, f := range parts {
		all = append(all, repo.File{Name: f.Name, Size: f.Size})
	}
	for _, f := range r.shown() {
		if f.Name != repo.Journal || parts == nil {
			all = append(all, f)
		}
	}
	return all
}

// shown returns the files beside the tars as they are shown: instead of parts of a journal, the
// journal.
func (r *repository) shown() (all []repo.File) {
	for _, f := range []*repo.File{r.list.GCLog, r.list.Journal, r.list.Manifest} {
		if f != nil {
			all = append(all, *f)
		}
	}
	return all
}

func (r *repository) fileEntry(f repo.File) format.Entry {
	return format.Entry{Name: f.Name, Size: f.Size, Ref: contentAt{r.list.Path(f.Name), 0}}
}

// Entries yields the files beside the tars, then the segments in the order in which they were
// written.
func (r *segmentReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		for _, f := range r.files() {
			if err := tell(r.fileEntry(f)); err != nil {
				return err
			}
		}
		for _, t := range slices.Backward(r.tars) {
			for n, i := range t.ByPosition() {
				if n&0xfff == 0 && ctx.Err() != nil {
					return context.Cause(ctx)
				}
				e, err := r.entryOf(ctx, t, t.At(int(i)))
				if err == nil {
					err = tell(e)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (r *repository) tarNamed(name string) *segmentTar {
	for _, t := range r.tars {
		if t.Name == name && t.Len() > 0 {
			return t
		}
	}
	return nil
}

func (r *segmentReader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if name == "." {
		return format.Entry{Name: ".", Kind: format.Dir}, nil
	}
	dir, base, inTar := strings.Cut(name, "/")
	if !inTar {
		for _, f := range r.files() {
			if f.Name == name {
				return r.fileEntry(f), nil
			}
		}
	}
	if t := r.tarNamed(dir); t != nil {
		if !inTar {
			return format.Entry{Name: name, Kind: format.Dir}, nil
		}
		id, err := segment.ParseID(base)
		if i, ok := t.Find(id); ok && err == nil {
			return r.entryOf(ctx, t, t.At(i))
		}
	}
	return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

func (r *segmentReader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) (err error) {
		if dir == "." {
			for _, f := range r.files() {
				if err := tell(r.fileEntry(f)); err != nil {
					return err
				}
			}
			for _, t := range slices.Backward(r.tars) {
				if err == nil && t.Len() > 0 {
					err = tell(format.Entry{Name: t.Name, Kind: format.Dir})
				}
			}
			return err
		}
		t := r.tarNamed(dir)
		if t == nil {
			err := fs.ErrNotExist
			if _, lerr := r.Lookup(ctx, dir); lerr == nil {
				err = fmt.Errorf("not a directory: %w", err)
			}
			return &fs.PathError{Op: "readdir", Path: dir, Err: err}
		}
		for _, x := range t.All() {
			e, err := r.entryOf(ctx, t, x)
			if err == nil {
				err = tell(e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *segmentReader) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return kit.RunExtents("oak", r.extentOf, e, min(n, e.Size-off))
}

func (r *segmentReader) Can() format.Abilities {
	can := format.Abilities{Run: r.Run, Doubt: r.left, Object: r.objectNamed}
	if r.list.Blobs != nil {
		can.Compares = func(format.Entry) format.Proof { return format.Unproven } // blobs have no checksums
	}
	return can
}

// left returns what the scan of a tar without an index omitted, or nil.
func (r *segmentReader) left() *format.Problem {
	for _, t := range r.tars {
		if p := t.left(); p != nil {
			return p
		}
	}
	return nil
}

func (t *segmentTar) left() *format.Problem {
	for _, p := range t.trash {
		if _, there := t.Find(p.Segment); !there && (p.Class == tarfile.BadChecksum || p.Class == tarfile.BadHeader) {
			return &fault(tarFault, t.path, p.Off, "no index, and the scan skipped a segment: %s", p.What).Problem
		}
	}
	return nil
}

// Run returns where e is stored, if it is not compared with a checksum.
func (r *segmentReader) Run(e format.Entry) (format.Extent, bool) {
	x, ok := r.extentOf(e)
	return x, ok && x.Codec == codec.Raw
}

// extentOf returns where e is stored: one run, or a segment with its header.
func (r *segmentReader) extentOf(e format.Entry) (format.Extent, bool) {
	at, ok := e.Ref.(contentAt)
	if !ok || e.Fault != nil || e.Size == 0 || e.Kind != format.File {
		return format.Extent{}, false
	}
	if at.off == 0 {
		return format.Extent{Size: e.Size, Object: at.object, Len: e.Size}, true
	}
	return r.extent(at.object, at.off, int(e.Size), 0, int(e.Size), 0), true
}

func (r *segmentReader) About(ctx context.Context) (format.About, error) {
	about := format.About{Version: "segment tars"}
	if r.list.Blobs != nil {
		about.Version = "segment blobs"
	}
	written, err := r.beingWritten(ctx)
	if err != nil {
		return about, err
	}
	if written != nil {
		about.Notes = append(about.Notes, *written)
	}
	// Problems of the tars that do not prevent reading them.
	for _, t := range slices.Backward(r.tars) {
		if t.none != nil && (written == nil || t.Number != r.tars[0].Number) {
			c := fault(noIndex, t.path, t.none.Offset, "no index: scanned instead: %s", t.none.What)
			c.Severity = format.Warning
			about.Notes = append(about.Notes, c.Problem)
		}
	}
	if err := r.beside(ctx); err != nil {
		return about, err
	}
	fact := func(key, msg string, args ...any) {
		about.Facts = append(about.Facts, [2]string{key, fmt.Sprintf(msg, args...)})
	}
	for _, f := range r.files() {
		about.Volumes = append(about.Volumes, r.list.Path(f.Name))
	}
	type total struct {
		segments int
		bytes    int64
	}
	var data, bulk total
	generations := map[tarfile.Generation]total{}
	for _, t := range slices.Backward(r.tars) {
		if t.blobs == nil {
			about.Volumes = append(about.Volumes, t.path)
		}
		for i := range t.Len() {
			x := t.At(i)
			to := &bulk
			if x.ID.IsData() {
				to = &data
				g := generations[x.Generation]
				generations[x.Generation] = total{g.segments + 1, g.bytes + int64(x.Len)}
			}
			to.segments, to.bytes = to.segments+1, to.bytes+int64(x.Len)
		}
		if t.blobs != nil {
			for _, f := range t.blobs.Beside() {
				about.IndexBytes += f.Size
			}
		} else if t.file != nil {
			l, err := t.file.Layout(ctx)
			if err != nil {
				return about, r.storeFault(err)
			}
			about.IndexBytes += l.Binaries.Len + l.Graph.Len + l.Index.Len
		}
	}
	for _, t := range r.shadowed {
		if r.list.Blobs.Archive(t.Name) == nil {
			about.Volumes = append(about.Volumes, r.list.Path(t.Name))
		}
	}
	if r.list.Blobs != nil { // there are thousands: they were listed, and are not requested
		for _, f := range slices.Concat(r.blobs(), r.files()) {
			about.Stored += f.Size
		}
		for _, f := range r.blobs() {
			about.Volumes = append(about.Volumes, r.list.Path(f.Name))
		}
	}
	if !r.single {
		if err := r.aboutStore(ctx, fact); err != nil {
			return about, err
		}
	}
	fact("tars", "%d", len(r.tars))
	fact("data segments", "%d, %d bytes", data.segments, data.bytes)
	fact("bulk segments", "%d, %d bytes", bulk.segments, bulk.bytes)
	for _, g := range slices.SortedFunc(maps.Keys(generations), tarfile.Generation.Compare) {
		compacted := ""
		if g.Compacted {
			compacted = ", compacted"
		}
		fact(fmt.Sprintf("generation %d.%d%s", g.Full, g.Gen, compacted), "%d data segments, %d bytes", generations[g].segments, generations[g].bytes)
	}
	return about, r.aboutTars(ctx, fact)
}

// mostTars is how many tars are listed individually.
const mostTars = 64

// aboutTars reports how much of each tar is garbage, if that can be determined.
func (r *repository) aboutTars(ctx context.Context, fact func(key, msg string, args ...any)) error {
	var c *Cleanup
	if !r.single {
		var err error
		if c, err = (&Store{r: r}).planCleanup(ctx, CleanupOptions{}); err != nil && !refused(err) {
			return err
		}
	}
	garbage, segments := int64(0), 0
	for i, t := range slices.Backward(r.tars) {
		said := fmt.Sprintf("%d segments, %d bytes", t.Len(), t.size)
		if c != nil {
			x := c.Tars[i]
			garbage, segments = garbage+x.GarbageBytes, segments+x.Garbage
			said += fmt.Sprintf(", %d bytes of garbage", x.GarbageBytes)
		}
		if len(r.tars) <= mostTars {
			fact(t.Name, "%s", said)
		}
	}
	if c != nil {
		fact("garbage", "%d segments, %d bytes; a cleanup would free %d bytes", segments, garbage, c.Before-c.After)
	}
	return nil
}

// aboutStore reports what journal and manifest contain.
func (r *repository) aboutStore(ctx context.Context, fact func(key, msg string, args ...any)) error {
	p, err := r.manifest(ctx)
	bad, damaged := errors.AsType[*repo.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fact("store version", "no manifest")
	case damaged:
		fact("store version", "%s", bad.What)
	case err != nil:
		return err
	default:
		fact("store version", "%d", p.Version)
	}
	h, err := r.head(ctx)
	bad, damaged = errors.AsType[*repo.Error](err)
	switch {
	case damaged:
		fact("head", "%s", bad.What)
	case err != nil:
		return err
	default:
		when := ""
		if h.Millis >= 0 {
			when = " of " + time.UnixMilli(h.Millis).UTC().Format(time.RFC3339)
		}
		fact("head", "%s%s", h.Revision, when)
		if h.Rewound > 0 {
			fact("newer revisions that are lost", "%d", h.Rewound)
		}
	}
	return nil
}
