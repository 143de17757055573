package explore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/store"
)

// A survey is one pass through all entries of a view. It collects how many
// there are, how much is below each folder, and where everything is stored.
// The page shows partial results while it runs. Results are removed from
// memory if all surveys together take too much, and are computed again on
// request.
type survey struct {
	mu    sync.Mutex
	state string // "" before the first, "running", "complete", "failed"
	err   error
	count counts
	data  *surveyed
	done  chan struct{} // closed when it does not run any more
	used  time.Time
}

// counts are the partial results of a running survey.
type counts struct {
	Entries    int64 `json:"entries"`
	Files      int64 `json:"files"`
	Folders    int64 `json:"folders"`
	Bytes      int64 `json:"bytes"`
	Unreadable int64 `json:"unreadable,omitempty"`
}

// surveyed is the result of a survey. It is immutable.
type surveyed struct {
	count counts
	names names // in stored order
	size  columns.Rows[int64]
	kind  columns.Rows[uint8] // see kindBits
	time  columns.Rows[int64] // in ms; noTime if unknown
	// stored is the stored size of each entry, if that is known: see knowsStored.
	stored columns.Rows[int64]
	holds  columns.Rows[kind] // known if stored is, like the next
	proofs columns.Rows[uint8]
	full   bool // there were more names than are kept

	ids    map[string]uint32 // folders by their paths; 0 is the root
	paths  []string
	parent []uint32
	sums   []tally      // below the folder
	ofKind [kinds]int64 // files

	spans *spanMap // nil if the view is not one to draw
	// sized reports that these are sizes in the archive. Then only folders are
	// known, and holds are indexes of sizeNames.
	sized bool
}

type tally struct {
	bytes, files, stored int64
	holds                [kinds]int64 // bytes by kind
}

func (t *tally) add(o *tally) {
	t.bytes, t.files, t.stored = t.bytes+o.bytes, t.files+o.files, t.stored+o.stored
	for k := range t.holds {
		t.holds[k] += o.holds[k]
	}
}

func (t *tally) less(o *tally) {
	t.bytes, t.files, t.stored = max(0, t.bytes-o.bytes), max(0, t.files-o.files), max(0, t.stored-o.stored)
	for k := range t.holds {
		t.holds[k] = max(0, t.holds[k]-o.holds[k])
	}
}

func (t *tally) most() (k kind) {
	for i, n := range t.holds {
		if n > t.holds[k] {
			k = kind(i)
		}
	}
	return k
}

// knowsStored reports whether the stored size of files is known: in this view,
// the survey has read their places.
func (s *surveyed) knowsStored() bool { return s.spans != nil || s.sized }

// storedOf returns the stored size of an extent. If its record is shared with
// other entries, this is the entry's share.
func storedOf(x format.Extent) int64 {
	switch {
	case x.Unit > x.Size:
		return int64(float64(x.Len) * float64(x.Size) / float64(x.Unit))
	case x.Codec == codec.Zero:
		return 0
	}
	return x.Len
}

const (
	maxNames      = 256 << 20 // bytes of names that are kept of a survey
	maxSurveys    = 384 << 20 // bytes of all surveys
	maxDirs       = 300_000   // further folders count for a folder above them
	maxSurveying  = 4         // archives that are surveyed at the same time
	surveyStep    = 4096
	surveyUnasked = "the archive was not read to its end"
)

func (s *surveyed) cost() int64 {
	n := s.names.bytes + 17*int64(s.size.Len()) + 10*int64(s.stored.Len()) + 216*int64(len(s.paths))
	if s.spans != nil {
		n += 16 * int64(s.spans.content.off.Len()+s.spans.regions.off.Len())
	}
	return n
}

// A surveyor reads a view, and reports its progress to the survey. If the
// archive is damaged, it returns both a result and an error.
type surveyor func(context.Context, *view) (*surveyed, error)

// surveyed returns the result of a survey of v. If there is none, it starts
// one and waits for it.
func (h *Handler) surveyed(ctx context.Context, v *view) (*surveyed, error) {
	return h.await(ctx, v, &v.survey, h.makeSurvey)
}

func (h *Handler) await(ctx context.Context, v *view, s *survey, f surveyor) (*surveyed, error) {
	for {
		h.start(v, s, f)
		s.mu.Lock()
		done := s.done
		s.used = time.Now()
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
		data, err := s.data, s.err
		s.mu.Unlock()
		if data != nil {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// start starts a survey of v, unless it is running or done.
func (h *Handler) start(v *view, s *survey, f surveyor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == "running" || s.data != nil || h.ctx.Err() != nil {
		return
	}
	if s.err != nil && time.Since(s.used) < 5*time.Second {
		return // it failed a moment ago
	}
	release := v.Hold()
	s.state, s.err, s.count, s.done, s.used = "running", nil, counts{}, make(chan struct{}), time.Now()
	h.wg.Go(func() {
		defer release()
		var data *surveyed
		var err error
		select {
		case h.surveying <- struct{}{}:
			data, err = f(h.ctx, v)
			<-h.surveying
		case <-h.ctx.Done():
			err = errClosed
		}
		h.changed(err, v)
		s.mu.Lock()
		s.data, s.err, s.state, s.used = data, err, "complete", time.Now()
		if err != nil {
			s.state = "failed"
			if corrupt, ok := errors.AsType[*format.CorruptError](err); ok {
				s.err = corrupt
			} else if h.ctx.Err() == nil && !errors.Is(err, store.ErrChanged) {
				h.log.Error("cannot be gone through", "archive", format.Escape(v.Name), "error", err)
			}
		}
		close(s.done)
		s.mu.Unlock()
		h.trimSurveys(s)
	})
}

// trimSurveys removes the least recently used results from memory.
func (h *Handler) trimSurveys(keep *survey) {
	for {
		var sum int64
		var oldest *survey
		var at time.Time
		h.mu.Lock()
		views := slices.Collect(maps.Values(h.views))
		h.mu.Unlock()
		for _, v := range views {
			for _, s := range []*survey{&v.survey, &v.sizes} {
				s.mu.Lock()
				if s.data != nil {
					sum += s.data.cost()
					if s != keep && (oldest == nil || s.used.Before(at)) {
						oldest, at = s, s.used
					}
				}
				s.mu.Unlock()
			}
		}
		if oldest == nil || sum <= maxSurveys {
			return
		}
		oldest.mu.Lock()
		oldest.data = nil
		oldest.mu.Unlock()
	}
}

func newSurveyed() *surveyed {
	return &surveyed{ids: map[string]uint32{"": 0}, paths: []string{""}, parent: []uint32{0}, sums: make([]tally, 1)}
}

// addUp adds the sums of folders to those of their parents.
func (d *surveyed) addUp() {
	for i := len(d.parent) - 1; i > 0; i-- { // a folder's number is larger than its parent's
		d.sums[d.parent[i]].add(&d.sums[i])
	}
	d.count.Folders = int64(len(d.paths) - 1)
}

// sizeNames are the names of what takes space in an archive of nodes. They
// have the colours of the kinds of files.
var sizeNames = [kinds]string{pictureKind: "binaries", textKind: "nodes and texts"}

// makeSizes adds up the sizes of folders in the archive. Each counts as a
// file.
func (h *Handler) makeSizes(ctx context.Context, v *view) (*surveyed, error) {
	d := newSurveyed()
	d.sized = true
	for n, err := range v.Sizes(ctx) {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if err != nil {
			return d, err
		}
		t := &d.sums[d.folder(n.Path)]
		t.stored += n.Records + n.Binaries
		t.bytes += n.Records + n.Binaries + n.Outside
		t.files++
		t.holds[textKind] += n.Records
		t.holds[pictureKind] += n.Binaries
		d.count.Entries++
		d.count.Bytes += n.Records + n.Binaries
		d.count.Unreadable += n.Lost
		if d.count.Entries%surveyStep == 0 {
			v.sizes.tell(d.count)
		}
	}
	d.addUp()
	v.sizes.tell(d.count)
	return d, nil
}

// makeSurvey reads all entries of v and their places.
func (h *Handler) makeSurvey(ctx context.Context, v *view) (*surveyed, error) {
	d := newSurveyed()
	in, mapped := v.in, false
	place := func(_ holdall.Entry, x format.Extent) iter.Seq[format.Region] { return v.lies(x.Object, x.Off, x.Len) }
	if f := v.in.Format(); !v.in.IsDir() && (f.Overview == "" || f.Overview == v.name) {
		if mapped = v.name == autopsy.Repaired; mapped { // by the bytes of the damaged archive
			left, err := h.set.Use(ctx, v.Name, autopsy.Bytes)
			if err != nil {
				return nil, err
			}
			defer left.Release()
			in = left.Archive
			if was, err := h.set.Use(ctx, v.Name, ""); err == nil {
				defer was.Release()
				place = v.lay(ctx, was.Archive)
			}
		}
		m, err := newSpanMap(ctx, in)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d.spans = m // without a list of its volumes, an archive has no map
	}
	failed := d.gather(ctx, v, place)
	if context.Cause(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	d.addUp()
	v.survey.tell(d.count)
	if d.spans != nil {
		for r, err := range v.in.Regions(ctx) {
			if err != nil {
				break
			}
			for at := range v.lies(r.Object, r.Off, r.Len) {
				at.Use, at.Label = r.Use, r.Label
				d.spans.addRegion(at)
			}
		}
		if mapped {
			if err := d.spans.addRest(ctx, in); err != nil {
				return nil, err
			}
		}
		if err := d.spans.finish(ctx, in); err != nil {
			return nil, err
		}
	}
	if _, corrupt := errors.AsType[*format.CorruptError](failed); failed != nil && !corrupt {
		return nil, failed
	}
	return d, failed
}

// gather reads all entries, up to one that cannot be read. place says where an extent lies on the map.
func (d *surveyed) gather(ctx context.Context, v *view, place func(holdall.Entry, format.Extent) iter.Seq[format.Region]) error {
	dir, id := "", uint32(0) // of the entry before
	for e, err := range v.in.Entries(ctx) {
		if err == nil && d.count.Entries%surveyStep == 0 {
			err = context.Cause(ctx)
			v.survey.tell(d.count)
		}
		if err != nil {
			return err
		}
		row := d.count.Entries
		d.count.Entries++
		in := placeOf(e.Name)
		if e.Kind == format.Dir && naming.Fault(e.Name) == "" {
			in = e.Name
		}
		if in != dir {
			dir, id = in, d.folder(in)
		}
		if e.Fault != nil {
			d.count.Unreadable++
		}
		if !d.full {
			if d.full = d.names.bytes > maxNames || row >= 1<<28; !d.full {
				d.names.add(e.Name)
				d.size.Add(e.Size)
				d.kind.Add(kindBits(e))
				d.time.Add(millis(e.ModTime))
			}
		}
		stored := int64(0)
		if d.spans != nil && e.Kind.HasContent() && e.Fault == nil && e.Size > 0 {
			last := -1
			for x, err := range v.in.Extents(ctx, e) {
				if err != nil {
					break // verify reports the error
				}
				stored += storedOf(x)
				if i, ok := d.spans.base[x.Object]; ok && !x.External {
					in := &d.spans.held[i]
					if in.bytes += storedOf(x); i != last {
						in.entries++
						last = i
					}
				}
				for r := range place(e, x) {
					x.Object, x.Off, x.Len = r.Object, r.Off, r.Len
					d.spans.addContent(x, uint32(min(row, 1<<28)))
				}
			}
		}
		if d.spans != nil && !d.full {
			d.stored.Add(stored)
			d.holds.Add(kindOf(e.Name))
			proof := uint8(noProof)
			switch parts, whole := v.in.Compares(ctx, e); {
			case parts:
				proof = partsProof
			case whole:
				proof = wholeProof
			}
			d.proofs.Add(proof)
		}
		if !e.Kind.HasContent() {
			continue
		}
		d.count.Files++
		d.count.Bytes += e.Size
		t := &d.sums[id]
		t.bytes, t.files, t.stored = t.bytes+e.Size, t.files+1, t.stored+stored
		t.holds[kindOf(e.Name)] += e.Size
		d.ofKind[kindOf(e.Name)]++
	}
	return nil
}

func (s *survey) tell(c counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count = c
}

func parentOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return ""
}

// placeOf returns the folder in which an entry is shown. Names that cannot be
// paths are in the root.
func placeOf(name string) string {
	if naming.Fault(name) != "" {
		return ""
	}
	return parentOf(name)
}

// folderOf returns the number of the folder that counts an entry.
func (d *surveyed) folderOf(name string) uint32 {
	for dir := placeOf(name); dir != ""; dir = parentOf(dir) {
		if id, ok := d.ids[dir]; ok {
			return id
		}
	}
	return 0
}

// folder returns the number of a folder, or of one above it if there are too many.
func (d *surveyed) folder(path string) uint32 {
	if id, ok := d.ids[path]; ok {
		return id
	}
	up := d.folder(parentOf(path))
	if len(d.paths) >= maxDirs {
		return up
	}
	id := uint32(len(d.paths))
	path = strings.Clone(path)
	d.ids[path] = id
	d.paths, d.parent = append(d.paths, path), append(d.parent, up)
	d.sums = append(d.sums, tally{})
	return id
}

// sums returns a function that returns how much is below a folder in dir, or
// below dir itself if the name is empty. It returns nil if this is not known.
func (s *survey) sums(dir string) func(name string) (bytes, files int64) {
	s.mu.Lock()
	d := s.data
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	if dir == "." {
		dir = ""
	}
	return func(name string) (int64, int64) {
		if dir != "" && name != "" {
			name = "/" + name
		}
		id, ok := d.ids[dir+name]
		if !ok {
			return 0, 0
		}
		return d.sums[id].bytes, d.sums[id].files
	}
}

func (s *survey) wait(ctx context.Context, most time.Duration) {
	s.mu.Lock()
	done, runs := s.done, s.state == "running"
	s.mu.Unlock()
	if !runs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

type surveyJSON struct {
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	counts
}

// kinds returns a table of the kinds of files, the largest first. It is empty
// before the survey has a result.
func (s *survey) kinds() Table {
	t := Table{Title: "Kinds of files", Columns: []Column{{"Kind", ""}, {"Files", "count"}, {"Content", "size"}}, Rows: [][]any{}}
	s.mu.Lock()
	d := s.data
	s.mu.Unlock()
	if d == nil {
		return t
	}
	all := []kind{}
	for k, n := range d.ofKind {
		if n > 0 {
			all = append(all, kind(k))
		}
	}
	sum := &d.sums[0]
	slices.SortStableFunc(all, func(a, b kind) int { return cmp.Compare(sum.holds[b], sum.holds[a]) })
	for _, k := range all {
		t.Rows = append(t.Rows, []any{kindNames[k], d.ofKind[k], sum.holds[k]})
	}
	return t
}

func (s *survey) json() surveyJSON {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := surveyJSON{State: s.state, counts: s.count}
	if s.err != nil {
		j.Error = surveyUnasked
		if corrupt, ok := errors.AsType[*format.CorruptError](s.err); ok {
			j.Error = format.Escape(corrupt.Message)
		}
	}
	return j
}
