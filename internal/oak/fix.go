package oak

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Fix makes the newest revision intact again, with the smallest changes that are known to do
// it.
type Fix struct {
	Steps   []FixStep `json:"steps"`
	Revised           // of all steps together

	s *Store
}

// What a step of a fix does.
const (
	FixReplace          = "replace"     // from an older revision, or a checkpoint
	FixRemove           = "remove"      // no revision or checkpoint has it intact
	FixRemoveLost       = "remove-lost" // children whose names are not known
	FixRemoveCheckpoint = "remove-checkpoint"
)

// A FixStep repairs one damaged path.
type FixStep struct {
	Action     string     `json:"action"`
	Path       string     `json:"path,omitempty"`
	Property   string     `json:"property,omitempty"`
	Checkpoint string     `json:"checkpoint,omitempty"` // to be removed; empty means all
	From       string     `json:"from,omitempty"`       // in the syntax of --from
	Time       *time.Time `json:"time,omitempty"`       // of From
	Problem    string     `json:"problem,omitempty"`

	names []string
	name  string           // of the property
	id    segment.RecordID // of the donor's node
}

// mostSteps is how many damaged paths a fix may have.
const mostSteps = 100_000

// mostDonors is how many older revisions are searched.
const mostDonors = 1000

// PlanFix finds each damaged path of the newest revision and, for each, the newest older revision
// or checkpoint in which it is intact. It writes nothing. With binaries it also reads their
// contents.
func (s *Store) PlanFix(ctx context.Context, binaries bool) (*Fix, error) {
	v, err := s.reviser(ctx, true)
	if err != nil {
		return nil, err
	}
	f := fixer{s: s, trees: s.r.trees(binaries, 0), donor: s.r.trees(true, 0), fix: &Fix{s: s, Steps: []FixStep{}, Revised: v.said}}
	root, ok, lost, err := f.down(ctx, v.super, rootName)
	switch {
	case err != nil:
		return nil, err
	case lost != nil:
		return nil, refuse("the super root is damaged: 'holdall oak check --fix-journal' goes back to an intact revision: %s", lost.What)
	case !ok:
		return nil, refuse("revision %s has no root", v.super)
	}
	if f.donors, err = f.candidates(ctx, v.super); err != nil {
		return nil, err
	}
	if err := f.node(ctx, root, nil); err != nil {
		return nil, err
	}
	return f.fix, f.checkpointsOf(ctx, v.super)
}

// A donor is a revision or a checkpoint in which a path may be intact.
type donor struct {
	from   string
	millis int64
	way    []string // from its super root
	super  segment.RecordID
}

type fixer struct {
	trees
	s      *Store
	donor  trees // reads binaries too, because a donor must be intact
	donors []donor
	fix    *Fix
}

// candidates returns the older revisions and the checkpoints, the newest first.
func (f *fixer) candidates(ctx context.Context, super segment.RecordID) (all []donor, err error) {
	for e, err := range f.s.r.journal(ctx) {
		if _, bad := err.(*repo.Error); bad {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, _, there := f.s.r.locate(e.Segment); there && e.Revision != super {
			all = append(all, donor{"@" + e.Revision.String(), e.Millis, []string{rootName}, e.Revision})
		}
		if len(all) == mostDonors {
			break
		}
	}
	more, err := f.checkpointDonors(ctx, f.s.r, super)
	return sortedDonors(append(all, more...)), err
}

func sortedDonors(all []donor) []donor {
	slices.SortStableFunc(all, func(a, b donor) int { return cmp.Compare(b.millis, a.millis) })
	return all
}

// checkpointDonors returns the checkpoints of a super root.
func (t trees) checkpointDonors(ctx context.Context, r *repository, super segment.RecordID) (all []donor, err error) {
	names, _, err := t.checkpoints(ctx, super)
	if err != nil {
		return nil, err
	}
	reader := &treeReader{repository: r, records: t.records, shape: t.records}
	for _, name := range names {
		c := Checkpoint{Properties: map[string]string{}}
		id, ok, lost, err := t.down(ctx, super, checkpointsName, name)
		if err == nil && ok && lost == nil {
			err = unlessDamaged(reader.checkpointInfo(ctx, id, &c, time.Time{}))
		}
		if err != nil {
			return nil, err
		}
		d := donor{"@checkpoint:" + name, -1, []string{checkpointsName, name, rootName}, super}
		if c.Created != nil {
			d.millis = c.Created.UnixMilli()
		}
		all = append(all, d)
	}
	return all, nil
}

// node descends to the damaged nodes. It must be called with a node that can be found.
func (f *fixer) node(ctx context.Context, id segment.RecordID, names []string) error {
	path := joinNames(names)
	res, err := f.prover.Tree(ctx, id, path, nil)
	if err != nil || res.Whole {
		return err
	}
	n, err := f.records.Node(ctx, id)
	if err == nil && len(names) > treeDepth {
		err = &segment.Error{Class: segment.Corrupt, Segment: id.Segment, Record: id.Number, Off: -1, What: fmt.Sprintf("tree: expected at most %d levels, found more", treeDepth)}
	}
	if err != nil {
		lost := proof.Damage(err)
		if lost == nil {
			return err
		}
		if len(names) == 0 {
			return f.root(ctx, id, lost)
		}
		return f.broken(ctx, id, names, lost)
	}
	own := map[string]*segment.Error{}
	var order []string
	if err := f.prover.Own(ctx, n, func(property string, e *segment.Error) { own[property], order = e, append(order, property) }); err != nil {
		return err
	}
	for _, name := range order {
		if err := f.property(ctx, n, names, name, own[name]); err != nil {
			return err
		}
	}
	var lost *segment.Error
	for c, err := range n.Children(ctx) {
		if err == nil {
			err = f.node(ctx, c.Value, append(names[:len(names):len(names)], c.Name))
		} else if e := proof.Damage(err); e != nil {
			lost, err = cmp.Or(lost, e), nil
		}
		if err != nil {
			return err
		}
	}
	if lost != nil {
		return f.children(ctx, n, names, lost)
	}
	return nil
}

func (f *fixer) step(s FixStep, names []string, lost *segment.Error) error {
	if len(f.fix.Steps) == mostSteps {
		return refuse("expected at most %d damaged paths, found more: 'holdall oak check --fix-journal' goes back to an intact revision", mostSteps)
	}
	s.names, s.Path = names, joinNames(names)
	if lost != nil {
		s.Problem = lost.What
	}
	if s.name != "" {
		s.Property = writeTreeName(s.name, false)
	}
	f.fix.Steps = append(f.fix.Steps, s)
	return nil
}

// find finds the newest donor with a suitable node at a path. It skips nodes with the same record
// as one that was not suitable.
func (f *fixer) find(ctx context.Context, broken segment.RecordID, names []string, suits func(segment.RecordID) (bool, error)) (s FixStep, ok bool, err error) {
	failed := map[segment.RecordID]bool{broken: true}
	for _, d := range f.donors {
		id, there, lost, err := f.donor.down(ctx, d.super, append(d.way[:len(d.way):len(d.way)], names...)...)
		if err != nil {
			return s, false, err
		}
		if !there || lost != nil || failed[id] {
			continue
		}
		good, err := suits(id)
		if err != nil {
			return s, false, err
		}
		if good {
			return FixStep{Action: FixReplace, From: d.from, Time: timeAt(d.millis), id: id}, true, nil
		}
		failed[id] = true
	}
	return s, false, nil
}

func (f *fixer) whole(ctx context.Context, path string) func(segment.RecordID) (bool, error) {
	return func(id segment.RecordID) (bool, error) {
		res, err := f.donor.prover.Tree(ctx, id, path, nil)
		return res.Whole, err
	}
}

func (f *fixer) broken(ctx context.Context, id segment.RecordID, names []string, lost *segment.Error) error {
	s, ok, err := f.find(ctx, id, names, f.whole(ctx, joinNames(names)))
	if !ok {
		s.Action = FixRemove
	}
	return cmp.Or(err, f.step(s, names, lost))
}

func (f *fixer) root(ctx context.Context, id segment.RecordID, lost *segment.Error) error {
	s, ok, err := f.find(ctx, id, nil, f.whole(ctx, "/"))
	if err == nil && !ok {
		err = refuse("the root cannot be read, and no revision has it intact: %s", lost.What)
	}
	return cmp.Or(err, f.step(s, nil, lost))
}

func (f *fixer) property(ctx context.Context, n segment.Node, names []string, name string, lost *segment.Error) error {
	s, ok, err := f.find(ctx, n.ID(), names, func(id segment.RecordID) (bool, error) {
		n, err := f.donor.records.Node(ctx, id)
		var p segment.Property
		var ok bool
		if err == nil {
			p, ok, err = n.Property(ctx, name)
		}
		if err == nil && ok {
			err = f.donor.prover.Property(ctx, p)
		}
		return ok && err == nil, unlessDamaged(err)
	})
	if !ok {
		s.Action = FixRemove
	}
	s.name = name
	return cmp.Or(err, f.step(s, names, lost))
}

// children restores children whose names are lost from a donor.
func (f *fixer) children(ctx context.Context, n segment.Node, names []string, lost *segment.Error) error {
	if err := f.step(FixStep{Action: FixRemoveLost}, names, lost); err != nil {
		return err
	}
	known := map[string]bool{}
	for c, err := range n.Children(ctx) {
		if err == nil {
			known[c.Name] = true
		} else if proof.Damage(err) == nil {
			return err
		}
	}
	missing := map[string]bool{}
	_, _, err := f.find(ctx, n.ID(), names, func(id segment.RecordID) (bool, error) {
		d, err := f.donor.records.Node(ctx, id)
		if err != nil {
			return false, unlessDamaged(err)
		}
		whole := true
		for c, err := range d.Children(ctx) {
			switch {
			case err != nil && proof.Damage(err) == nil:
				return false, err
			case err != nil:
				whole = false
			case !known[c.Name]:
				missing[c.Name] = true
			}
		}
		return whole, nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		way := append(names[:len(names):len(names)], name)
		s, ok, err := f.find(ctx, segment.RecordID{}, way, f.whole(ctx, joinNames(way)))
		if err == nil && ok {
			err = f.step(s, way, lost)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkpointsOf returns the damaged checkpoints, which cannot be restored.
func (f *fixer) checkpointsOf(ctx context.Context, super segment.RecordID) error {
	names, lost, err := f.checkpoints(ctx, super)
	if err != nil {
		return err
	}
	if lost != nil {
		return f.step(FixStep{Action: FixRemoveCheckpoint}, nil, lost)
	}
	for _, name := range names {
		state, _, err := f.prove(ctx, super, name, nil, nil)
		if err == nil && state == PathDamaged {
			err = f.step(FixStep{Action: FixRemoveCheckpoint, Checkpoint: name}, nil, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Apply applies all steps as one new revision. The caller must hold the store's lock, and must
// have held it since before the store was opened.
func (x *Fix) Apply(ctx context.Context) error {
	if len(x.Steps) == 0 {
		return nil
	}
	v, err := x.s.reviser(ctx, false)
	if err != nil {
		return err
	}
	copier, _, err := v.copier(&treeReader{repository: x.s.r})
	if err != nil {
		return err
	}
	whole := &change{}
	for _, s := range x.Steps {
		at := whole.at(rootName).at(s.names...)
		switch {
		case s.Action == FixRemoveCheckpoint && s.Checkpoint != "":
			whole.at(checkpointsName, s.Checkpoint).gone = true
		case s.Action == FixRemoveCheckpoint:
			empty, err := v.b.Node(ctx, segment.NewNode{})
			if err != nil {
				return err
			}
			whole.at(checkpointsName).put = &empty
		case s.Action == FixRemoveLost:
			at.readable = true
		case s.Action == FixRemove && s.name != "":
			at.without = append(at.without, s.name)
		case s.Action == FixRemove:
			at.gone = true
		case s.name != "":
			n, err := x.s.records.Node(ctx, s.id)
			var p segment.Property
			if err == nil {
				p, _, err = n.Property(ctx, s.name)
			}
			var to segment.NewProperty
			if err == nil {
				to, err = copier.Property(ctx, p)
			}
			if err != nil {
				return x.s.r.corrupt(err, s.Path)
			}
			at.properties = append(at.properties, to)
		default:
			id, err := copier.Node(ctx, s.id)
			if err != nil {
				return x.s.r.corrupt(err, s.Path)
			}
			at.put = &id
		}
	}
	x.Revised, err = v.commit(ctx, whole)
	return err
}
