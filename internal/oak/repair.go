package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/rescue"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// repair plans which tars are rewritten. It reads every segment. It refuses a store that another
// program is writing to.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (_ format.Plan, err error) {
	r, err := openRepository(ctx, st, name, o)
	if err != nil {
		return format.Plan{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !r.single || r.tars[0].file == nil { // a tar with an index stays unchanged
		by, err := r.writtenBy(ctx)
		if by != "" {
			err = refuse("%s is writing to the store, so the tar without an index is not damage: use 'holdall oak backup' to copy the store, 'holdall verify' to check it", by)
		}
		if err != nil {
			return format.Plan{}, err
		}
	}
	m := &repairer{r: r}
	defer func() {
		for _, o := range m.opened {
			err = errors.Join(err, o.Close())
		}
	}()
	for _, letters := range slices.Backward(r.list.Numbers()) {
		if err := m.survey(ctx, letters, report); err != nil {
			return format.Plan{}, err
		}
	}
	if !r.single {
		if err := m.look(ctx); err != nil {
			return format.Plan{}, err
		}
	}
	worse := false
	if !r.single {
		if worse, err = m.account(ctx); err != nil {
			return format.Plan{}, err
		}
	}
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: m.partial, Readable: m.readable, Account: m.words}
	if worse {
		plan.Notes = nil
		return plan, nil
	}
	if r.single && m.numbers[0].Action == rescue.Leave {
		return format.Plan{Lost: []string{"the tar is empty"}, Partial: true}, nil
	}
	for _, n := range m.numbers {
		for _, l := range n.letters {
			if !n.stays(l) {
				plan.Replaces = append(plan.Replaces, r.list.Path(l.Name))
			}
		}
	}
	plan.Drops = slices.Clone(plan.Replaces)
	if len(plan.Drops) == 0 && !m.manifest && !m.torn {
		return plan, nil
	}
	plan.KeepsBackup = true
	if !r.single {
		plan.Place = place
	}
	_, leased := st.(*cloud.Leased)
	plan.Build = func(ctx context.Context, to store.Store, name string, inPlace bool) error {
		if inPlace && r.list.Blobs != nil && !leased {
			return errBlobs
		}
		return m.build(ctx, to, name, inPlace)
	}
	return plan, nil
}

// repairer is the state of a store after the repair.
type repairer struct {
	r       *repository
	numbers []number
	notes   []string
	lost    []string
	partial bool

	manifest bool // it is missing
	torn     bool // the journal's last line has no end

	opened   []store.Object // read by the plans of numbers
	head     *repo.Revision // with which reading will begin
	missing  bool           // something will be
	readable map[string]int64
	words    string // the same for people
	places   int64  // that stay lost
}

// number is the plan for the tars of one number.
type number struct {
	*rescue.Plan
	letters []repo.Tar // ascending
	name    string     // of the tar that there will be
}

// stays reports whether a letter needs no change.
func (n *number) stays(l repo.Tar) bool { return n.Action == rescue.Nothing && l.Name == n.name }

func (m *repairer) survey(ctx context.Context, letters []repo.Tar, report func(format.Problem)) error {
	n := number{letters: slices.Clone(letters)}
	slices.Reverse(n.letters)
	var sources []rescue.Source
	for _, l := range n.letters {
		obj, err := m.r.st.Open(ctx, m.r.list.Path(l.Name))
		if err != nil {
			return err
		}
		m.opened = append(m.opened, obj)
		sources = append(sources, rescue.Source{Name: l.Name, Object: obj})
	}
	var err error
	n.Plan, err = rescue.Survey(ctx, sources, m.copies(n.letters[0].Number), func(e rescue.Event) { m.event(e, report) })
	if err != nil {
		return err
	}
	if n.Action == rescue.Rewrite && n.Base >= 0 && !n.Gain {
		// A rewritten tar would only omit the damaged segments. A program may still be able to read
		// parts of them.
		n.Action = rescue.Nothing
		m.lose("%s: its damage cannot be repaired; kept unchanged", n.letters[n.Base].Name)
	}
	at := n.letters[max(n.Base, 0)].Name
	if kept := n.Counts.Proof[rescue.Kept]; kept > 0 {
		m.lose("%s: %d damaged segments kept, because Oak can read the rest of them", at, kept)
	}
	// Unproven segments may be wrong, and stay so. Blobs never have checksums.
	if d := n.Counts.Proof[rescue.Doubtful]; d > 0 && m.r.list.Blobs == nil {
		m.lose("%s: kept %d segments that could not be verified and may be damaged", at, d)
	}
	l := n.letters[0]
	if n.Base >= 0 && n.Base < len(n.letters) {
		l = n.letters[n.Base]
	}
	if n.name = l.Name; l.Letterless() {
		n.name = tarfile.Name(l.Number, l.Letter)
	}
	if n.Action != rescue.Nothing && m.r.list.Blobs != nil && !m.completes(n) { // an archive of blobs is never replaced
		last := n.letters[len(n.letters)-1].Letter
		if last == 'z' {
			return refuse("%s: there is no letter for a repaired archive: 'holdall oak copy' copies the store to tars", at)
		}
		n.name = tarfile.Name(l.Number, last+1)
	}
	m.numbers = append(m.numbers, n)
	if len(n.letters) == 1 && n.stays(l) {
		return nil
	}
	for _, w := range n.Words() {
		m.notes = append(m.notes, n.name+": "+w)
	}
	m.partial = m.partial || n.Counts.Proof[rescue.Lost]+n.Counts.Proof[rescue.Foreign] > 0
	return nil
}

// completes reports whether an archive of blobs keeps its segments, and only gets what it lacks beside
// them.
func (m *repairer) completes(n number) bool {
	var all []tarfile.Entry
	for _, c := range n.Segments {
		if c.Proof == rescue.Repaired {
			return false
		}
		all = append(all, tarfile.Entry{ID: c.ID, Len: int(c.Len)})
	}
	a := m.r.list.Blobs.Archive(n.name)
	return n.Action != rescue.Nothing && len(n.letters) == 1 && a != nil && a.Has(all)
}

// lose records what cannot be repaired.
func (m *repairer) lose(msg string, args ...any) {
	m.lost = append(m.lost, fmt.Sprintf(msg, args...))
	m.partial = true
}

// copies finds segments in the tars of other numbers.
func (m *repairer) copies(not int) rescue.Copies {
	return func(_ context.Context, id tarfile.ID) iter.Seq2[rescue.Place, error] {
		return func(yield func(rescue.Place, error) bool) {
			for _, t := range m.r.tars {
				if t.Number == not {
					continue
				}
				if i, ok := t.Find(id); ok && t.holds(t.At(i)) {
					e := t.At(i)
					if !yield(rescue.Place{Source: rescue.Source{Name: t.Name, Object: t.obj}, Pos: e.Pos, Len: e.Len}, nil) {
						return
					}
				}
			}
		}
	}
}

func (m *repairer) event(e rescue.Event, report func(format.Problem)) {
	c := fault(tarFault, m.r.list.Path(path.Base(e.Object)), e.Off, "%s", e.What)
	if e.HasSegment {
		c.Entry, c.HasEntry = path.Base(e.Object)+"/"+e.Segment.String(), true
	}
	if e.Kind != rescue.Damage && e.Kind != rescue.SegmentLost && e.Kind != rescue.LeftOut {
		c.Severity = format.Note
	}
	report(c.Problem)
	if e.Kind == rescue.SegmentLost || e.Kind == rescue.LeftOut {
		kit.Say(&m.lost, "%s: segment %s: %s", e.Object, e.Segment, e.What)
	}
}

// look determines what to do about the files beside the tars, and what verify will find in the
// journal and among the tars: a repair does not change that.
func (m *repairer) look(ctx context.Context) error {
	if m.manifest = m.r.list.Manifest == nil; m.manifest {
		m.notes = append(m.notes, "wrote a manifest, which Oak needs to open the store")
	}
	var tars []audit.Held
	for _, n := range slices.Backward(m.numbers) {
		var all []tarfile.Entry
		at := int64(0)
		for _, c := range n.Segments {
			_, was, _ := m.r.locate(c.ID)
			e := tarfile.Entry{ID: c.ID, Pos: at + tarfile.BlockSize, Len: int(c.Len), Generation: was.Generation}
			all, at = append(all, e), at+e.Whole().Len
		}
		l := n.letters[0]
		l.Name = n.name
		tars = append(tars, audit.Held{Tar: l, Index: tarfile.NewIndex(all), Read: func(ctx context.Context, e tarfile.Entry) ([]byte, error) {
			c, _ := n.Find(e.ID)
			return n.Read(ctx, c)
		}})
	}
	cut := false
	a := audit.Of(audit.Source{Listing: m.r.list, File: m.r.shownFile, Newer: m.r.newer}, tars)
	err := a.Across(ctx, func(p audit.Problem) {
		cut = cut || p.Class == audit.JournalCut
		if p.Severity > audit.Note && p.Class != audit.JournalEnd {
			f := m.r.problemOf(p)
			m.lose("%s: %s [%s]", cmp.Or(f.Entry, p.Tar, f.Volume), f.Message, f.Class)
			m.missing = true
		}
	})
	if a.Head != nil {
		m.head = &a.Head.Revision
	}
	j := m.r.list.Journal
	if err != nil || j == nil || j.Size == 0 || cut { // what follows a line that is cut off is lost
		return err
	}
	o, err := m.r.st.Open(ctx, m.r.list.Path(j.Name))
	if err != nil {
		return err
	}
	defer o.Close()
	var last [1]byte
	if err := o.ReadAt(ctx, last[:], j.Size-1); err != nil {
		return err
	}
	if m.torn = last[0] != '\n'; m.torn {
		m.notes = append(m.notes, "ended the last line of the journal: Oak would append to it, and lose what it appends; 'holdall oak recover-journal --dry-run' shows whether newer revisions are lost")
	}
	return nil
}

// account counts the nodes of the newest revision and its checkpoints that can be read before and
// after the repair, and reports which will be lost. A plan that leaves fewer nodes than before is
// not applied.
func (m *repairer) account(ctx context.Context) (worse bool, err error) {
	if m.head == nil || !m.missing && !m.doubtful(rescue.Proven, rescue.Stray) && !slices.ContainsFunc(m.numbers, func(n number) bool { return n.Action != rescue.Nothing }) {
		return false, nil
	}
	was, err := m.r.head(ctx)
	if _, none := errors.AsType[*repo.Error](err); none {
		was.Revision = *m.head
	} else if err != nil {
		return false, err
	}
	var before, after, same counted // of the same revision as before
	alike := *m.head == was.Revision && m.keepsAll()
	for i, trusting := range []bool{false, true} {
		if trusting && !m.doubtful(rescue.Proven, rescue.Stray) {
			before[1], after[1], same[1] = before[0], after[0], same[0]
			break
		}
		if !alike {
			if before[i], err = m.count(ctx, provable{&parsed{r: m.r, trust: []trust{strict, asStored}[i]}}, was.Revision, nil); err != nil {
				return false, err
			}
		}
		will := planned{provable{&parsed{r: m.r, load: m.segment(trusting)}}, m}
		var lost func(checkpoint string, l proof.Loss)
		if !trusting {
			lost = m.lostNode
		}
		if after[i], err = m.count(ctx, will, *m.head, lost); err != nil {
			return false, err
		}
		if alike {
			before[i] = after[i]
		}
		if same[i] = after[i]; *m.head != was.Revision {
			if same[i], err = m.count(ctx, will, was.Revision, nil); err != nil {
				return false, err
			}
		}
	}
	m.readable = map[string]int64{
		"nodes_before": before[0].nodes, "nodes_after": after[0].nodes, "lost_places": m.places,
		"unverified_nodes_before": before[1].nodes, "unverified_nodes_after": after[1].nodes,
	}
	words := func(c counted) string {
		if c[0].nodes == c[1].nodes {
			return fmt.Sprint(c[0].nodes)
		}
		return fmt.Sprintf("%d (with --no-verify %d)", c[0].nodes, c[1].nodes)
	}
	m.words = fmt.Sprintf("readable nodes of the newest revision and its checkpoints: %s before, %s after", words(before), words(after))
	worse = same[0].nodes < before[0].nodes || same[1].nodes < before[1].nodes && !same[0].whole
	if worse {
		m.lost = []string{fmt.Sprintf("nothing changed, because a repair would make it worse: revision %s has %s readable nodes, after the repair %s", was.Revision, words(before), words(same))}
		m.partial, m.words = true, ""
		m.readable["nodes_after"], m.readable["unverified_nodes_after"] = before[0].nodes, before[1].nodes
		delete(m.readable, "lost_places") // it refers to the repaired store
	}
	return worse, nil
}

// keepsAll reports whether the store has the same segments after the repair as before, in the same
// places of the same tars, and all match their checksums. Then the same can be read.
func (m *repairer) keepsAll() bool {
	if m.doubtful(rescue.Proven, rescue.Stray) {
		return false
	}
	kept := 0
	for _, n := range m.numbers {
		kept += len(n.Segments)
	}
	for _, t := range m.r.tars {
		kept -= t.Len()
		i := slices.IndexFunc(m.numbers, func(n number) bool { return n.letters[0].Number == t.Number })
		if i < 0 {
			return false
		}
		n := m.numbers[i]
		for k := range t.Len() {
			e := t.At(k)
			c, ok := n.Find(e.ID)
			if !ok || n.Sources[c.From].Name != t.Name || c.Pos != e.Pos || int(c.Len) != e.Len {
				return false
			}
		}
	}
	return kept == 0
}

// counted is what can be read, with and without comparing checksums.
type counted [2]read

type read struct {
	nodes int64
	whole bool
}

func (m *repairer) count(ctx context.Context, from segment.Source, super repo.Revision, lost func(checkpoint string, l proof.Loss)) (c read, err error) {
	o := proof.Options{Depth: treeDepth, Name: writeTreeName, Each: true}
	if lost != nil {
		o.Binaries, o.Bulk = true, func(ctx context.Context, id segment.ID) error {
			_, err := from.Segment(ctx, id)
			return err
		}
	} else {
		lost = func(string, proof.Loss) {}
	}
	records := segment.NewReader(from)
	c.whole, c.nodes, err = trees{nil, records, proof.New(records, o)}.whole(ctx, super, lost)
	return c, err
}

// lostNode records a place that stays lost.
func (m *repairer) lostNode(checkpoint string, l proof.Loss) {
	m.partial = true
	if m.places++; m.places > mostLostNodes {
		return
	}
	where := l.Path
	switch {
	case l.Property != "":
		where += ", property " + l.Property
	case l.Children:
		where += ", children"
	}
	if checkpoint != "" {
		where += " of checkpoint " + checkpoint
	}
	if l.Others > 0 {
		where += fmt.Sprintf(", and %d others", l.Others)
	}
	m.lost = append(m.lost, fmt.Sprintf("%s: %v", where, l.Err))
}

// mostLostNodes is how many lost places are reported.
const mostLostNodes = 100

// doubtful reports whether anything is known of a segment but this.
func (m *repairer) doubtful(good ...rescue.Proof) bool {
	for _, n := range m.numbers {
		for proof, count := range n.Counts.Proof {
			if count > 0 && !slices.Contains(good, rescue.Proof(proof)) {
				return true
			}
		}
	}
	return false
}

// planned returns the segments that the store will have.
type planned struct {
	provable
	m *repairer
}

func (p planned) Size(_ context.Context, id segment.ID) (int, error) {
	for _, n := range p.m.numbers {
		if c, ok := n.Find(id); ok {
			return int(c.Len), nil
		}
	}
	return 0, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
}

// segment returns a function that reads segments as they will be after the repair. If there are
// several copies, it reads an intact one.
func (m *repairer) segment(trusting bool) func(context.Context, segment.ID) (*segment.Segment, error) {
	return func(ctx context.Context, id segment.ID) (_ *segment.Segment, err error) {
		first := fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
		for _, n := range slices.Backward(m.numbers) {
			c, ok := n.Find(id)
			if !ok {
				continue
			}
			if c.Proof == rescue.Kept && !trusting {
				first = &segment.Error{Class: segment.Altered, Segment: id, Record: -1, Off: -1, What: "the checksum does not match"}
				continue
			}
			b, err := n.Read(ctx, c)
			if err != nil {
				return nil, err
			}
			return segment.Parse(id, b)
		}
		return nil, first
	}
}

// build writes the repaired store: all of it or, in place, only the files that change. The replaced
// files are kept as backups, as in Oak's own recovery.
func (m *repairer) build(ctx context.Context, to store.Store, name string, inPlace bool) (err error) {
	again, err := openRepository(ctx, m.r.st, m.r.name, format.OpenOptions{Limits: m.r.limits})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, again.close()) }()
	m.r = again
	dir := repo.Listing{Dir: repo.Dir(name)}
	if again.single {
		dir.Dir = repo.Dir(path.Dir(path.Clean(name)))
	}
	for _, n := range m.numbers {
		out := n.name
		if again.single && !inPlace {
			out = path.Base(name)
		}
		if err := m.buildNumber(ctx, to, dir.Path(out), n, inPlace); err != nil {
			return err
		}
	}
	if again.single {
		return nil
	}
	for _, f := range again.shown() {
		var end []byte
		if m.torn && f.Name == repo.Journal {
			end = []byte{'\n'}
		} else if inPlace {
			continue
		}
		if err := kit.Copy(ctx, to, dir.Path(f.Name), m.r.st, again.list.Path(f.Name), nil, end); err != nil {
			return err
		}
	}
	if !m.manifest {
		return nil
	}
	return kit.WriteBytes(ctx, to, dir.Path(repo.Manifest), []byte(repo.NewManifest))
}

func (m *repairer) buildNumber(ctx context.Context, to store.Store, out string, n number, inPlace bool) error {
	base := m.r.list.Path(n.letters[max(n.Base, 0)].Name)
	if n.Action == rescue.Nothing && (!inPlace || out != base) {
		if err := kit.Copy(ctx, to, out, m.r.st, base, nil, nil); err != nil {
			return err
		}
	}
	if inPlace {
		for _, l := range n.letters {
			if n.stays(l) || m.r.list.Blobs != nil && m.completes(n) {
				continue
			}
			if _, err := keepTar(ctx, to, m.r.st, m.r.list.Path(l.Name)); err != nil {
				return err
			}
		}
	}
	if n.Action != rescue.Rewrite && n.Action != rescue.Tail {
		return nil
	}
	p := *n.Plan
	p.Sources = slices.Clone(p.Sources)
	for i := range p.Sources {
		obj, err := m.r.st.Open(ctx, m.r.list.Path(path.Base(p.Sources[i].Name)))
		if err != nil {
			return err
		}
		defer obj.Close()
		p.Sources[i].Object = obj
	}
	return rescue.Write(ctx, to, out, &p)
}
