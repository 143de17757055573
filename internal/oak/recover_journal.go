package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/sweep"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A RecoveredJournal is a journal that was derived from the segments. It can be written while the
// store is open.
type RecoveredJournal struct {
	Head    JournalLine `json:"head"`    // the newest intact revision
	Lines   int         `json:"lines"`   // of the journal
	Dropped int         `json:"dropped"` // newer revisions that are not intact
	Losses  []Loss      `json:"losses"`  // of the newest of these
	Skipped int         `json:"skipped"` // segments that are damaged or have no time
	Notes   []string    `json:"notes"`

	s     *Store
	found []candidate
}

// A candidate is a node that looks like a super root.
type candidate struct {
	repo.Revision
	millis int64
	bare   bool // it has a root, but no checkpoints
	typed  bool // then: the root has a primary type
}

// PlanJournal searches all data segments for revisions. It writes nothing.
//
// A node with the children root and checkpoints is a revision; its time is that of its segment.
// Before a store has its first checkpoint, its revisions have only the child root. These are used
// if there are no others, or if none of the others is intact.
func (s *Store) PlanJournal(ctx context.Context) (*RecoveredJournal, error) {
	if s.r.single {
		return nil, fmt.Errorf("oak: %s: a single tar has no journal: %w", s.r.name, errors.ErrUnsupported)
	}
	f, err := s.findRevisions(ctx, s.r.trees(true, 0))
	if err != nil {
		return nil, err
	}
	full, bare := f.sorted()
	j := &RecoveredJournal{s: s, Skipped: f.skipped, Losses: []Loss{}, Notes: []string{}}
	for _, some := range [][]candidate{full, bare} {
		if err := f.choose(ctx, j, some); err != nil {
			return nil, err
		}
		if len(j.found) > 0 {
			break
		}
	}
	if len(j.found) == 0 {
		return j, fmt.Errorf("oak: %s: found %d revisions, but %w", s.r.name, j.Dropped, ErrNothingGood)
	}
	if f.forgotten {
		j.Notes = append(j.Notes, fmt.Sprintf("kept only the newest revisions, because there are more than %d", mostCandidates))
	}
	last := j.found[len(j.found)-1]
	j.Lines, j.Head = len(j.found), lineOf(repo.Entry{Revision: last.Revision, Millis: last.millis}, nil, j.Dropped)
	return j, nil
}

// Apply replaces the existing journal, which is kept as a backup. The caller must hold the
// store's lock, and must have held it since before the store was opened.
func (j *RecoveredJournal) Apply(ctx context.Context) (JournalChange, error) {
	c := JournalChange{Head: j.Head.Revision, Notes: []string{}}
	err := j.s.replaceJournal(ctx, &c, func() error {
		_, err := repo.WriteJournal(ctx, j.s.r.st, j.s.r.list.Path(repo.Journal), func(yield func(repo.Entry) bool) {
			for _, f := range j.found {
				if !yield(repo.Entry{Revision: f.Revision, Millis: f.millis}) {
					return
				}
			}
		})
		return err
	})
	return c, err
}

const (
	mostCandidates = 1 << 20
	mostShapes     = 1 << 18
)

type finder struct {
	trees
	s         *Store
	shapes    map[segment.RecordID]bool // whether nodes of a template may be super roots
	found     []candidate
	forgotten bool
	skipped   int
	buf       []byte // of the segment that is searched
}

// findRevisions searches all data segments that are in no newer tar.
func (s *Store) findRevisions(ctx context.Context, t trees) (*finder, error) {
	all := finder{s: s, trees: t}
	const handful = 16
	type some struct {
		t    *segmentTar
		rows []uint32
	}
	work := func(yield func(some, error) bool) {
		for _, t := range slices.Backward(s.r.tars) {
			for rows := range slices.Chunk(t.ByPosition(), handful) {
				if !yield(some{t, rows}, nil) {
					return
				}
			}
		}
	}
	var mu sync.Mutex
	var finders []*finder // idle ones
	err := pipe.Each(ctx, work, runtime.GOMAXPROCS(0), func(ctx context.Context, w some) error {
		mu.Lock()
		f := &finder{s: s, trees: all.trees, shapes: map[segment.RecordID]bool{}}
		if last := len(finders) - 1; last >= 0 {
			f, finders = finders[last], finders[:last]
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			finders = append(finders, f)
		}()
		return f.look(ctx, w.t, w.rows)
	})
	for _, f := range finders {
		for _, c := range f.found {
			all.add(c)
		}
		all.skipped += f.skipped
		all.forgotten = all.forgotten || f.forgotten
	}
	return &all, err
}

// newer returns the last revision in the segments after the head, or nil. Oak writes segments in
// order, so that is where lines of the journal lead that were lost. A revision of an older
// generation does not count: it was not committed, because a compaction came before it.
func (r *repository) newer(ctx context.Context, head repo.Head) (*repo.Revision, error) {
	at, e, ok := r.locate(head.Segment)
	if !ok {
		return nil, nil
	}
	row, _ := at.Find(e.ID)
	s := r.store()
	f := &finder{s: s, trees: s.r.trees(false, 0), shapes: map[segment.RecordID]bool{}}
	if err := f.look(ctx, at, []uint32{uint32(row)}); err != nil {
		return nil, err
	}
	is := slices.IndexFunc(f.found, func(c candidate) bool { return c.Revision == head.Revision })
	if is < 0 {
		return nil, nil // the head is damaged, or no super root as Oak writes it
	}
	was := f.found[is]
	last := func() *repo.Revision {
		var last *candidate
		for _, c := range f.found {
			if c.bare == was.bare && c.millis >= was.millis && (c.Segment != head.Segment || c.Number > head.Number) && (last == nil || compareCandidates(c, *last) > 0) {
				last = &c
			}
		}
		f.found = nil
		if last == nil {
			return nil
		}
		return &last.Revision
	}
	inHead := last()
	for _, t := range r.tars {
		for _, k := range slices.Backward(t.ByPosition()) {
			is := t.At(int(k))
			if t == at && is.Pos <= e.Pos {
				return inHead, nil
			}
			if is.Generation.Gen < e.Generation.Gen {
				continue
			}
			if err := f.look(ctx, t, []uint32{k}); err != nil {
				return nil, err
			}
			if newer := last(); newer != nil {
				return newer, nil
			}
		}
	}
	return inHead, nil
}

func (f *finder) look(ctx context.Context, t *segmentTar, rows []uint32) error {
	for _, i := range rows {
		e := t.At(int(i))
		if at, _, _ := f.s.r.locate(e.ID); at != t || !e.ID.IsData() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		g, err := f.segment(ctx, t, int(i))
		if err != nil {
			return err
		}
		info := segment.Info{}
		if g != nil {
			info, err = g.Info()
		}
		if g == nil || err != nil {
			f.skipped++
			continue
		}
		if err := f.nodes(ctx, g, info.Millis); err != nil {
			return err
		}
	}
	return nil
}

// segment reads a segment, nil if its bytes are not those that were written.
func (f *finder) segment(ctx context.Context, t *segmentTar, i int) (*segment.Segment, error) {
	header, b, err := t.readBoth(ctx, t.At(i), f.buf, true, strict)
	if err == nil {
		f.buf = header
		var g *segment.Segment
		if g, err = segment.Parse(t.At(i).ID, b); err == nil {
			return g, nil
		}
	}
	if _, outside := errors.AsType[*tarfile.Error](err); outside {
		return nil, nil
	}
	return nil, unlessDamaged(err)
}

func (f *finder) nodes(ctx context.Context, g *segment.Segment, millis int64) error {
	// A reader remembers segments, but the bytes of this one are overwritten by the next.
	f.records = segment.NewReader(&segment.Recent{Load: provable{f.source}.Segment, Most: 1, Current: g})
	for row := range g.Records() {
		if row.Type != segment.NodeRecord {
			continue
		}
		var shape segment.RecordID
		r, err := g.Record(row.Number)
		if err == nil {
			shape, err = r.TemplateID()
		}
		if err != nil {
			continue
		}
		c := candidate{Revision: r.ID(), millis: millis}
		super, err := f.mayBeSuper(ctx, shape)
		if super && err == nil {
			super, err = f.isSuper(ctx, &c)
		}
		if err != nil {
			return err
		}
		if super {
			f.add(c)
		}
	}
	return nil
}

// mayBeSuper reports whether a template may be that of a super root, which has only children.
func (f *finder) mayBeSuper(ctx context.Context, id segment.RecordID) (bool, error) {
	may, known := f.shapes[id]
	if known {
		return may, nil
	}
	t, err := f.records.Template(ctx, id)
	if err != nil && proof.Damage(err) == nil {
		return false, err
	}
	may = err == nil && t.Primary == nil && !t.HasMixins && len(t.Properties) == 0 &&
		(t.Rule == segment.ManyChildren || t.Rule == segment.OneChild && t.Child == rootName)
	if len(f.shapes) == mostShapes {
		clear(f.shapes)
	}
	f.shapes[id] = may
	return may, nil
}

func (f *finder) isSuper(ctx context.Context, c *candidate) (bool, error) {
	n, err := f.records.Node(ctx, c.Revision)
	if err != nil {
		return false, unlessDamaged(err)
	}
	if c.bare = n.Template().Rule == segment.OneChild; c.bare {
		id, _, err := n.Child(ctx, rootName)
		if err == nil {
			if n, err = f.records.Node(ctx, id); err == nil {
				c.typed = n.Template().Primary != nil
			}
		}
		return true, unlessDamaged(err)
	}
	for _, name := range []string{rootName, checkpointsName} {
		if _, ok, err := n.Child(ctx, name); err != nil || !ok {
			return false, unlessDamaged(err)
		}
	}
	return true, nil
}

func unlessDamaged(err error) error {
	if proof.Damage(err) != nil {
		return nil
	}
	return err
}

func (f *finder) add(c candidate) {
	if f.found = append(f.found, c); len(f.found) == 2*mostCandidates {
		slices.SortFunc(f.found, compareCandidates)
		f.found = f.found[:copy(f.found, f.found[mostCandidates:])]
		f.forgotten = true
	}
}

// compareCandidates has the order of the reference. The order of revisions within the same
// millisecond cannot be determined.
func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.millis, b.millis), a.Segment.Compare(b.Segment), cmp.Compare(a.Number, b.Number))
}

// sorted returns the candidates by time. Those without checkpoints that are older than all with
// checkpoints are separate: once a store has had a checkpoint, it keeps the node for them.
//
// An index may contain nodes that look like these. A root that has received its primary type
// keeps it, which distinguishes some of them.
func (f *finder) sorted() (full, bare []candidate) {
	slices.SortFunc(f.found, compareCandidates)
	typed := false
	for _, c := range f.found {
		switch {
		case !c.bare:
			full = append(full, c)
		case len(full) == 0 && (c.typed || !typed):
			bare = append(bare, c)
			typed = typed || c.typed
		}
	}
	return full, bare
}

// choose keeps the candidates up to the newest intact one.
func (f *finder) choose(ctx context.Context, j *RecoveredJournal, some []candidate) error {
	for len(some) > 0 {
		last := some[len(some)-1]
		var tell func(string, proof.Loss)
		if j.Dropped == 0 {
			tell = func(checkpoint string, l proof.Loss) {
				if len(j.Losses) < mostLosses {
					j.Losses = append(j.Losses, f.s.loss(checkpoint, l))
				}
			}
		}
		whole, _, err := f.whole(ctx, last.Revision, tell)
		if err != nil {
			return err
		}
		if whole {
			j.found = some
			return nil
		}
		j.Dropped++
		some = some[:len(some)-1]
	}
	return nil
}

type JournalChange struct {
	Head    string   `json:"head"`             // the newest revision of the new journal
	Lines   int      `json:"lines"`            // that were dropped from the old journal
	Backup  string   `json:"backup,omitempty"` // the new name of the old journal
	Notes   []string `json:"notes"`
	Changed bool     `json:"changed"`
}

// ErrNothingGood means that no revision is intact.
var ErrNothingGood = errors.New("none is intact: 'holdall oak salvage' writes what is left to a new store")

// FixJournal drops the lines of the journal that are newer than the newest good revision that a
// check has found. It first writes the old journal as a backup, and then replaces it in one step. If the
// segments have a newer revision than the good one, it writes a revision that equals the good one and is
// newer than that, so that it is certain which is the newest. The caller must hold the store's lock, and must have held it since before the store was opened.
func (s *Store) FixJournal(ctx context.Context, r CheckResult) (JournalChange, error) {
	if r.Good == nil {
		return JournalChange{}, fmt.Errorf("oak: %s: %w", s.r.list.Path(repo.Journal), ErrNothingGood)
	}
	c := JournalChange{Head: r.Good.Revision, Lines: r.Good.Newer, Notes: []string{}}
	if c.Lines > 0 {
		if err := s.replaceJournal(ctx, &c, func() error { return s.shorten(ctx, repo.Journal, r.end) }); err != nil {
			return c, err
		}
	}
	return c, s.settle(ctx, &c)
}

// settle makes the newest revision of the journal the newest of all.
func (s *Store) settle(ctx context.Context, c *JournalChange) (err error) {
	again, err := OpenStore(ctx, s.r.st, s.r.name, format.OpenOptions{Limits: s.r.limits})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, again.Close()) }()
	v, newer, err := again.reviserOf(ctx, false)
	if err != nil || newer == nil {
		if _, refused := errors.AsType[*sweep.Refused](err); refused { // no verb can write a revision
			err = nil
		}
		return err
	}
	said, err := v.commit(ctx, &change{})
	if err != nil {
		return err
	}
	c.Head, c.Changed = said.Revision, true
	c.Notes = append(c.Notes, fmt.Sprintf("wrote revision %s, which equals %s, because %s was written later", said.Revision, said.Before, newer))
	return nil
}

// replaceJournal keeps the journal as a backup, updates gc.log, and replaces the journal. If it
// is interrupted at any time, there is a journal, the old one or the new one.
func (s *Store) replaceJournal(ctx context.Context, c *JournalChange, write func() error) error {
	backup, err := s.keepJournal(ctx)
	if c.Backup = backup; err == nil {
		err = s.trimGCLog(ctx, c)
	}
	if err == nil {
		err = write()
	}
	c.Changed = err == nil
	return err
}

// keepJournal copies the journal, if it exists, and returns the copy's name. It uses an equal
// copy that a killed run has left.
func (s *Store) keepJournal(ctx context.Context) (backup string, err error) {
	if s.r.list.Journal == nil {
		return "", nil
	}
	backup, there, err := s.backupName(ctx)
	if err != nil || there {
		return backup, err
	}
	return backup, kit.Copy(ctx, s.r.st, s.r.list.Path(backup), s.r.st, s.r.list.Path(repo.Journal), nil, nil)
}

// backupName returns the first free name that Oak's own recovery would use, or the name of an
// existing backup that is equal to the journal.
func (s *Store) backupName(ctx context.Context) (name string, there bool, err error) {
	taken := map[string]bool{}
	for _, b := range s.r.list.Backups {
		taken[b.Name] = true
	}
	for i := range 1000 {
		name := fmt.Sprintf("%s.bak.%03d", repo.Journal, i)
		if !taken[name] {
			return name, false, nil
		}
		if there, err := kit.Alike(ctx, s.r.st, s.r.list.Path(repo.Journal), s.r.list.Path(name)); there || err != nil {
			return name, there, err
		}
	}
	return "", false, fmt.Errorf("oak: %s: expected a free name for a backup, found %s.bak.000 to 999: %w", s.r.name, repo.Journal, fs.ErrExist)
}

// shorten rewrites a file with its first n bytes.
func (s *Store) shorten(ctx context.Context, name string, n int64) error {
	o, err := s.r.st.Open(ctx, s.r.list.Path(name))
	if err != nil {
		return err
	}
	defer o.Close()
	_, err = storekit.Write(ctx, s.r.st, s.r.list.Path(name), func(w store.Writer) error { return storekit.WriteRange(ctx, w, o, 0, n) })
	return err
}

// trimGCLog removes the last lines of gc.log whose roots are in no tar. Because of such a line,
// the next collection of a running Oak would treat everything that was compacted as garbage,
// including what an older head needs. A root that exists and is newer than the head does no harm:
// only what was compacted after it is garbage then.
func (s *Store) trimGCLog(ctx context.Context, c *JournalChange) error {
	old, err := s.r.wholeFile(ctx, repo.GCLog, maxLog)
	log, _, gone := s.r.rootedLog(old)
	if err != nil || gone == 0 {
		return err
	}
	c.Notes = append(c.Notes, fmt.Sprintf("removed %d lines of gc.log, because their revisions are gone", gone))
	return kit.WriteBytes(ctx, s.r.st, s.r.list.Path(repo.GCLog), log)
}
