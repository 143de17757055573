package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/rescue"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// repair plans which tars are written anew. It reads every segment.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (_ format.Plan, err error) {
	r, err := openRepository(ctx, st, name, o)
	if err != nil {
		return format.Plan{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	m := &mending{r: r}
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
	plan := format.Plan{Notes: m.notes, Lost: m.lost, Partial: m.partial}
	if r.single && m.numbers[0].Action == rescue.Leave {
		return format.Plan{Lost: []string{"there is nothing in the tar"}, Partial: true}, nil
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
	plan.Build = func(ctx context.Context, to store.Store, name string, inPlace bool) error {
		return m.build(ctx, to, name, inPlace)
	}
	return plan, nil
}

// mending is a store as it should be.
type mending struct {
	r       *repository
	numbers []number
	notes   []string
	lost    []string
	partial bool

	manifest bool // there is none
	torn     bool // the journal's last line has no end
}

// number is what becomes of the tars of one number.
type number struct {
	*rescue.Plan
	letters []repo.Tar // ascending
	name    string     // of the tar that there will be
}

// stays reports whether a letter is right as it is.
func (n *number) stays(l repo.Tar) bool { return n.Action == rescue.Nothing && l.Name == n.name }

func (m *mending) survey(ctx context.Context, letters []repo.Tar, report func(format.Problem)) error {
	n := number{letters: slices.Clone(letters)}
	slices.Reverse(n.letters)
	var sources []rescue.Source
	defer func() {
		for _, s := range sources {
			s.Object.Close()
		}
	}()
	for _, l := range n.letters {
		obj, err := m.r.st.Open(ctx, m.r.list.Path(l.Name))
		if err != nil {
			return err
		}
		sources = append(sources, rescue.Source{Name: l.Name, Object: obj})
	}
	var err error
	n.Plan, err = rescue.Survey(ctx, sources, m.copies(n.letters[0].Number), func(e rescue.Event) { m.event(e, report) })
	if err != nil {
		return err
	}
	if n.Action == rescue.Rewrite && n.Base >= 0 && !n.Gain {
		// All that could be done is to leave out what is damaged, which somebody may
		// still read some of.
		n.Action = rescue.Nothing
		m.lose("%s: nothing can be done about what is damaged in it; it stays as it is", n.letters[n.Base].Name)
	}
	l := n.letters[0]
	if n.Base >= 0 && n.Base < len(n.letters) {
		l = n.letters[n.Base]
	}
	if n.name = l.Name; l.Letterless() {
		n.name = tarfile.Name(l.Number, l.Letter)
	}
	m.numbers = append(m.numbers, n)
	if len(n.letters) == 1 && n.stays(l) {
		return nil
	}
	for _, w := range n.Words() {
		m.notes = append(m.notes, n.name+": "+w)
	}
	// Of what nothing proves something may be wrong, and goes on being so.
	if d := n.Counts.Proof[rescue.Doubtful]; d > 0 {
		m.lose("%s: what is wrong in %d segments that are kept, though nothing proves them", n.name, d)
	}
	m.partial = m.partial || n.Counts.Proof[rescue.Lost]+n.Counts.Proof[rescue.Foreign] > 0
	return nil
}

// lose notes what cannot be mended.
func (m *mending) lose(msg string, args ...any) {
	m.lost = append(m.lost, fmt.Sprintf(msg, args...))
	m.partial = true
}

// copies finds segments in the tars of other numbers.
func (m *mending) copies(not int) rescue.Copies {
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

func (m *mending) event(e rescue.Event, report func(format.Problem)) {
	c := fault(tarFault, m.r.list.Path(path.Base(e.Object)), e.Off, "%s", e.What)
	if e.HasSegment {
		c.Entry, c.HasEntry = path.Base(e.Object)+"/"+e.Segment.String(), true
	}
	if e.Kind != rescue.Damage && e.Kind != rescue.SegmentLost && e.Kind != rescue.LeftOut {
		c.Severity = format.Note
	}
	report(c.Problem)
	if e.Kind == rescue.SegmentLost || e.Kind == rescue.LeftOut {
		formatkit.Say(&m.lost, "%s: segment %s: %s", e.Object, e.Segment, e.What)
	}
}

// look finds out what is to be done about the files beside the tars.
func (m *mending) look(ctx context.Context) error {
	if m.manifest = m.r.list.Manifest == nil; m.manifest {
		m.notes = append(m.notes, "a manifest is written, without which Oak does not open the store")
	}
	j := m.r.list.Journal
	if j == nil || j.Size == 0 {
		m.lose("there is no journal, or nothing in it: nothing says which revision is the newest")
		return nil
	}
	o, err := m.r.st.Open(ctx, m.r.list.Path(j.Name))
	if err != nil {
		return err
	}
	defer o.Close()
	if err := m.lookForHead(ctx, o); err != nil {
		return err
	}
	var last [1]byte
	if err := o.ReadAt(ctx, last[:], j.Size-1); err != nil {
		return err
	}
	if m.torn = last[0] != '\n'; m.torn {
		m.notes = append(m.notes, "the last line of the journal gets an end: Oak would add to it, and lose what it adds")
	}
	return nil
}

// lookForHead finds out with which revision reading will begin.
func (m *mending) lookForHead(ctx context.Context, journal store.Object) error {
	there := map[tarfile.ID]bool{}
	for _, n := range m.numbers {
		for _, s := range n.Segments {
			there[s.ID] = true
		}
	}
	h, err := repo.FindHead(ctx, journal, func(id tarfile.ID) (bool, error) { return there[id], nil })
	bad, none := errors.AsType[*repo.Error](err)
	switch {
	case none:
		m.lose("the newest revision: %s", bad.What)
	case err != nil:
		return err
	case h.Rewound > 0:
		m.lose("the newest %d revisions: reading begins with %s", h.Rewound, h.Revision)
	case h.Bad > 0:
		m.lose("%d lines of the journal that cannot be read: reading begins with %s", h.Bad, h.Revision)
	default:
		what, err := m.noRoot(ctx, h.Revision)
		if what == "" {
			return err
		}
		m.lose("the newest revision, %s, is none: %s; 'holdall oak check --fix-journal' goes back to one that is", h.Revision, what)
	}
	return nil
}

// noRoot says why a revision leads to no root, unless its segment may be mended.
func (m *mending) noRoot(ctx context.Context, r repo.Revision) (what string, err error) {
	_, missing, err := segment.NewReader(&parsed{r: m.r}).Down(ctx, r, rootName)
	lost := damaged(err)
	switch {
	case err != nil && lost == nil:
		return "", m.r.storeFault(err)
	case lost != nil && lost.Segment == r.Segment && lost.Record >= 0:
		return lost.What, nil
	case missing != "":
		return fmt.Sprintf("it has no child %q", rootName), nil
	}
	return "", nil
}

// build writes the mended store: all of it, or in place what changes. What is replaced
// there is kept beside it, as Oak's own recovery does.
func (m *mending) build(ctx context.Context, to store.Store, name string, inPlace bool) (err error) {
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
	for _, f := range again.files() {
		var end []byte
		if m.torn && f.Name == repo.Journal {
			end = []byte{'\n'}
		} else if inPlace {
			continue
		}
		if err := formatkit.Copy(ctx, to, dir.Path(f.Name), m.r.st, again.list.Path(f.Name), nil, end); err != nil {
			return err
		}
	}
	if !m.manifest {
		return nil
	}
	return formatkit.WriteBytes(ctx, to, dir.Path(repo.Manifest), []byte(repo.NewManifest))
}

func (m *mending) buildNumber(ctx context.Context, to store.Store, out string, n number, inPlace bool) error {
	base := m.r.list.Path(n.letters[max(n.Base, 0)].Name)
	if n.Action == rescue.Nothing && (!inPlace || out != base) {
		if err := formatkit.Copy(ctx, to, out, m.r.st, base, nil, nil); err != nil {
			return err
		}
	}
	if inPlace {
		for _, l := range n.letters {
			if n.stays(l) {
				continue
			}
			from := m.r.list.Path(l.Name)
			backup, err := m.backupName(ctx, from)
			if err != nil {
				return err
			}
			if err := formatkit.Copy(ctx, to, backup, m.r.st, from, nil, nil); err != nil {
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

// backupName is the first free name that the reference would give a backup of a tar.
func (m *mending) backupName(ctx context.Context, tar string) (string, error) {
	for i := 1; ; i++ {
		name := tar + ".bak"
		if i > 1 {
			name = fmt.Sprintf("%s.%d.bak", tar, i)
		}
		if _, err := sizeOf(ctx, m.r.st, name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
}
