package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// AllCheckpoints, instead of a checkpoint's name, means all checkpoints.
const AllCheckpoints = "all"

type CheckOptions struct {
	// Head and Checkpoints select what is checked. If neither is set, everything is checked.
	Head        bool
	Checkpoints []string // names, or AllCheckpoints
	Paths       []string // of nodes, as the tree shows them; the default is the root
	Binaries    bool     // also read the content of binaries, except external ones
	// Last is how many revisions are checked. If it is 0, the check stops at the first good one.
	Last int
}

// What became of a path in a revision.
const (
	PathWhole    = "whole"
	PathDamaged  = "damaged"
	PathNotThere = "not-there"
)

// A CheckResult reports which revisions of a store are intact.
type CheckResult struct {
	// Whole reports whether the newest line of the journal leads to a revision in which nothing
	// that was to be checked is lost.
	Whole bool `json:"whole"`
	// Good is the newest revision that contains some of what was to be checked and has lost none
	// of it.
	Good      *JournalLine      `json:"good"`
	Newest    *JournalLine      `json:"newest"`
	Revisions []CheckedRevision `json:"revisions"` // newest first, the first 1,000
	Looked    int               `json:"looked"`    // number of all
	Trees     []CheckedTree     `json:"trees"`
	// Losses are the losses of the newest revision that can be opened.
	LossesOf string `json:"losses_of,omitempty"`
	Losses   []Loss `json:"losses"` // the first 10,000
	Lost     int64  `json:"lost"`   // number of all
	Nodes    int64  `json:"nodes"`  // that were read, each once for all revisions
	// Findings are what verify finds in the journal, and in the record with which reading begins.
	Findings []format.Problem `json:"-"`
	// BeingWritten reports whether another program is writing to the store. By is that program.
	BeingWritten bool   `json:"being_written,omitempty"`
	By           string `json:"by,omitempty"`

	end int64 // of the good line and those before it, in the journal
}

type JournalLine struct {
	Revision string     `json:"revision"` // or the line, if it cannot be read
	Time     *time.Time `json:"time,omitempty"`
	Newer    int        `json:"newer"` // lines after it
}

// A CheckedRevision is a line of the journal and the result of its check.
type CheckedRevision struct {
	JournalLine
	Whole   bool   `json:"whole"`
	Problem string `json:"problem,omitempty"` // why it leads nowhere
}

// A CheckedTree is a path in the head or in a checkpoint.
type CheckedTree struct {
	Checkpoint string       `json:"checkpoint,omitempty"` // none is the head
	Path       string       `json:"path"`
	State      string       `json:"state"` // in the newest revision that can be opened
	Good       *JournalLine `json:"good"`  // the newest in which it is intact

	names []string
}

// A Loss is a damaged place and what is lost because of it.
type Loss struct {
	Checkpoint string `json:"checkpoint,omitempty"` // none is the head
	Path       string `json:"path"`
	Property   string `json:"property,omitempty"`
	Children   bool   `json:"children,omitempty"` // of the node, whatever their names are
	Tar        string `json:"tar,omitempty"`      // none if it is not there
	Segment    string `json:"segment"`
	Record     int32  `json:"record"` // -1 if it does not concern one record
	Problem    string `json:"problem"`
	Others     int    `json:"others"` // other nodes and properties that lead to the place
}

// mostRevisions is how many revisions are listed.
const mostRevisions = 1000

// Check finds the newest intact revision of the journal, and reports what is lost of the newest
// one. It changes nothing.
func (s *Store) Check(ctx context.Context, o CheckOptions) (CheckResult, error) {
	if s.r.single {
		return CheckResult{}, fmt.Errorf("oak: %s: a single tar has no journal to check: %w", s.r.name, errors.ErrUnsupported)
	}
	c := checker{trees: s.r.trees(o.Binaries, 0), s: s, o: o, res: CheckResult{Revisions: []CheckedRevision{}, Trees: []CheckedTree{}, Losses: []Loss{}}}
	by, err := s.r.writtenBy(ctx)
	if err != nil {
		return CheckResult{}, err
	}
	c.res.BeingWritten, c.res.By = by != "", by
	if err := c.begin(ctx); err != nil {
		return CheckResult{}, err
	}
	if err := s.r.audit().Start(ctx, func(p audit.Problem) { c.res.Findings = append(c.res.Findings, s.r.problemOf(p)) }); err != nil {
		return CheckResult{}, err
	}
	err = s.eachLine(ctx, func(e repo.Entry, bad *repo.Error) (more bool, err error) {
		line := lineOf(e, bad, c.res.Looked)
		if c.res.Newest == nil {
			c.res.Newest = &line
		}
		r := CheckedRevision{JournalLine: line}
		off := e.Offset
		if bad != nil {
			r.Problem, off = bad.What, bad.Offset
		} else if err := c.revision(ctx, e, &r); err != nil {
			return false, err
		}
		c.newer = off
		if c.res.Looked++; len(c.res.Revisions) < mostRevisions {
			c.res.Revisions = append(c.res.Revisions, r)
		}
		if o.Last > 0 {
			return c.res.Looked < o.Last, nil
		}
		return c.res.Good == nil || slices.ContainsFunc(c.res.Trees, func(t CheckedTree) bool { return t.Good == nil }), nil
	})
	c.res.Whole = len(c.res.Revisions) > 0 && c.res.Revisions[0].Whole
	return c.res, err
}

// eachLine calls look with the lines of the journal, the newest first, until look ends it.
func (s *Store) eachLine(ctx context.Context, look func(repo.Entry, *repo.Error) (more bool, err error)) error {
	if s.r.list.Journal == nil {
		return repo.NoHead("no journal: 'holdall oak recover-journal' rebuilds it")
	}
	for e, err := range s.r.journal(ctx) {
		bad, isBad := err.(*repo.Error)
		if err != nil && !isBad {
			return err
		}
		if more, err := look(e, bad); err != nil || !more {
			return err
		}
	}
	return nil
}

func lineOf(e repo.Entry, bad *repo.Error, newer int) JournalLine {
	if bad != nil {
		return JournalLine{Revision: bad.Text, Newer: newer}
	}
	return JournalLine{Revision: e.Revision.String(), Time: timeAt(e.Millis), Newer: newer}
}

func timeAt(millis int64) *time.Time {
	if millis < 0 {
		return nil
	}
	at := time.UnixMilli(millis).UTC()
	return &at
}

type checker struct {
	trees
	s     *Store
	o     CheckOptions
	all   bool // checkpoints
	res   CheckResult
	known bool  // the state of trees is
	newer int64 // where the line after this one begins
}

func (c *checker) begin(ctx context.Context) error {
	var paths [][]string
	for _, p := range c.o.Paths {
		names, err := nodeNames(p)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(paths, func(other []string) bool { return slices.Equal(other, names) }) {
			paths = append(paths, names)
		}
	}
	if len(paths) == 0 {
		paths = [][]string{nil}
	}
	add := func(checkpoint string) {
		for _, names := range paths {
			c.res.Trees = append(c.res.Trees, CheckedTree{Checkpoint: checkpoint, Path: joinNames(names), State: PathDamaged, names: names})
		}
	}
	c.all = slices.Contains(c.o.Checkpoints, AllCheckpoints)
	if !c.o.Head && len(c.o.Checkpoints) == 0 {
		c.o.Head, c.all = true, true
	}
	if c.o.Head {
		add("")
	}
	if !c.all {
		for _, name := range c.o.Checkpoints {
			add(name)
		}
		return nil
	}
	return c.s.eachLine(ctx, func(e repo.Entry, bad *repo.Error) (bool, error) {
		if bad != nil {
			return true, nil
		}
		names, lost, err := c.checkpoints(ctx, e.Revision)
		if err != nil || lost != nil && len(names) == 0 {
			return err == nil, err
		}
		for _, name := range names {
			add(name)
		}
		return false, nil
	})
}

// nodeNames returns the names on the path to a node, which is a path as the tree shows it.
func nodeNames(p string) (names []string, err error) {
	for elem := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if elem == "" || elem == "." {
			continue
		}
		n, ok := readTreeName(elem, len(names) == 0)
		if !ok || n.property || n.lost > 0 {
			return nil, fmt.Errorf("oak: path %.200q: expected the path of a node, as in 'holdall ls': %w", p, fs.ErrInvalid)
		}
		names = append(names, n.name)
	}
	return names, nil
}

func joinNames(names []string) string {
	var b strings.Builder
	for i, name := range names {
		b.WriteString("/" + writeTreeName(name, i == 0))
	}
	return cmp.Or(b.String(), "/")
}

func (c *checker) revision(ctx context.Context, e repo.Entry, r *CheckedRevision) error {
	super := e.Revision
	if _, err := c.records.Node(ctx, super); err != nil {
		lost := proof.Damage(err)
		if lost == nil {
			return err
		}
		if r.Problem = lost.What; lost.Segment != super.Segment {
			r.Problem = lost.Error()
		}
		return nil
	}
	first := !c.known
	c.known = true
	if first {
		c.res.LossesOf = r.Revision
	}
	r.Whole = true
	found := false
	if c.all {
		if _, lost, err := c.checkpoints(ctx, super); err != nil {
			return err
		} else if lost != nil {
			r.Whole = false
			if first {
				c.loss("", proof.Loss{Path: "/" + checkpointsName, Children: true, Err: lost})
			}
		}
	}
	for i := range c.res.Trees {
		t := &c.res.Trees[i]
		// With Last, all trees are checked in each revision.
		if c.o.Last == 0 && t.Good != nil && c.res.Good != nil {
			continue
		}
		var tell func(proof.Loss)
		if first {
			tell = func(l proof.Loss) { c.loss(t.Checkpoint, l) }
		}
		before := len(c.res.Losses)
		state, res, err := c.prove(ctx, super, t.Checkpoint, t.names, tell)
		if err != nil {
			return err
		}
		c.res.Nodes += res.Nodes
		c.res.Lost += max(0, res.Lost-int64(len(c.res.Losses)-before)) // the listed ones have been counted
		if first {
			t.State = state
		}
		switch state {
		case PathWhole:
			found = true
			if t.Good == nil {
				t.Good = &r.JournalLine
			}
		case PathDamaged:
			r.Whole = false
		}
	}
	if r.Whole && found && c.res.Good == nil {
		c.res.Good, c.res.end = &r.JournalLine, c.newer
	}
	return nil
}

// mostLosses is how many losses are listed.
const mostLosses = 10_000

func (c *checker) loss(checkpoint string, l proof.Loss) {
	if len(c.res.Losses) == mostLosses {
		return
	}
	c.res.Lost++
	c.res.Losses = append(c.res.Losses, c.s.loss(checkpoint, l))
}

func (s *Store) loss(checkpoint string, l proof.Loss) Loss {
	out := Loss{Checkpoint: checkpoint, Path: l.Path, Property: l.Property, Children: l.Children,
		Segment: l.Err.Segment.String(), Record: l.Err.Record, Problem: l.Err.What, Others: l.Others}
	if t, _, ok := s.r.locate(l.Err.Segment); ok {
		out.Tar = t.Name
	}
	return out
}

// Missing returns the requested trees that are in none of the checked revisions.
func (r *CheckResult) Missing() (trees []CheckedTree) {
	for _, t := range r.Trees {
		if t.State == PathNotThere && t.Good == nil {
			trees = append(trees, t)
		}
	}
	return trees
}

// trees finds nodes in super roots, and verifies everything below them.
type trees struct {
	source  *parsed
	records *segment.Reader
	prover  *proof.Prover
}

func (r *repository) trees(binaries bool, workers int) trees {
	source := &parsed{r: r, trust: r.proving()}
	records := segment.NewReader(provable{source})
	return trees{source, records, proof.New(records, proof.Options{
		Binaries: binaries, Workers: workers, Depth: treeDepth, Bulk: r.checkBulk(r.proving()), Name: writeTreeName,
	})}
}

// down goes to a child, then to a child of that, and so on. It returns damage if it is not known
// whether a child exists.
func (t trees) down(ctx context.Context, id segment.RecordID, names ...string) (_ segment.RecordID, ok bool, lost *segment.Error, err error) {
	id, missing, err := t.records.Down(ctx, id, names...)
	return id, err == nil && missing == "", proof.Damage(err), unlessDamaged(err)
}

// prove proves the tree at a path below the root, or below that of a checkpoint.
func (t trees) prove(ctx context.Context, super segment.RecordID, checkpoint string, names []string, tell func(proof.Loss)) (state string, res proof.Result, err error) {
	way := []string{rootName}
	if checkpoint != "" {
		way = []string{checkpointsName, checkpoint, rootName}
	}
	id, ok, lost, err := t.down(ctx, super, append(way, names...)...)
	switch {
	case err != nil:
		return "", res, err
	case lost == nil && !ok && len(names) == 0 && checkpoint == "":
		lost = &segment.Error{Class: segment.Missing, Segment: super.Segment, Record: super.Number, Off: -1, What: fmt.Sprintf("super root: expected a child %q, found none", rootName)}
	case lost == nil && !ok:
		return PathNotThere, res, nil
	}
	path := joinNames(names)
	if lost != nil {
		if tell != nil {
			tell(proof.Loss{Path: path, Err: lost})
		}
		return PathDamaged, res, nil
	}
	res, err = t.prover.Tree(ctx, id, path, tell)
	if err != nil || !res.Whole {
		return PathDamaged, res, err
	}
	return PathWhole, res, nil
}

// whole reports whether the root and all checkpoints of a super root are intact, and how many
// nodes could be read.
func (t trees) whole(ctx context.Context, super segment.RecordID, tell func(checkpoint string, l proof.Loss)) (whole bool, nodes int64, err error) {
	names, lost, err := t.checkpoints(ctx, super)
	if err != nil {
		return false, 0, err
	}
	whole = lost == nil
	if !whole && tell != nil {
		tell("", proof.Loss{Path: "/" + checkpointsName, Children: true, Err: lost})
	}
	for _, name := range append([]string{""}, names...) {
		var say func(proof.Loss)
		if tell != nil {
			say = func(l proof.Loss) { tell(name, l) }
		}
		state, res, err := t.prove(ctx, super, name, nil, say)
		if err != nil {
			return false, nodes, err
		}
		nodes += res.Nodes
		if whole = whole && state != PathDamaged; !whole && tell == nil {
			return false, nodes, nil
		}
	}
	return whole, nodes, nil
}

// mostNames limits how many checkpoints are checked.
const mostNames = 10_000

// checkpoints returns the names of a super root's checkpoints, and what is lost of them.
func (t trees) checkpoints(ctx context.Context, super segment.RecordID) (names []string, lost *segment.Error, err error) {
	id, ok, lost, err := t.down(ctx, super, checkpointsName)
	if err != nil || lost != nil || !ok {
		return nil, lost, err
	}
	n, err := t.records.Node(ctx, id)
	if err != nil {
		return nil, proof.Damage(err), unlessDamaged(err)
	}
	for e, err := range n.Children(ctx) {
		if err != nil {
			if lost = proof.Damage(err); lost == nil {
				return nil, nil, err
			}
			continue
		}
		if names = append(names, e.Name); len(names) > mostNames {
			return nil, nil, fmt.Errorf("oak: checkpoints: expected at most %d, found more", mostNames)
		}
	}
	return names, lost, nil
}

// provable has the segments of a store. If an existing segment cannot be read correctly, that is
// damage.
type provable struct{ *parsed }

func (p provable) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	g, err := p.parsed.Segment(ctx, id)
	return g, asDamage(id, err)
}

// asDamage converts an error about a tar to damage of a segment in it.
func asDamage(id segment.ID, err error) error {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return &segment.Error{Class: segment.Corrupt, Segment: id, Record: -1, Off: -1, What: c.Message}
	}
	return err
}

// checkBulk reads the copies of a segment of bare bytes until one is intact.
func (r *repository) checkBulk(how trust) func(ctx context.Context, id segment.ID) error {
	return func(ctx context.Context, id segment.ID) error {
		err := r.anyCopy(ctx, id, func(t *segmentTar, e tarfile.Entry) error { return t.check(ctx, e, how) })
		if errors.Is(err, fs.ErrNotExist) {
			return &segment.Error{Class: segment.Missing, Segment: id, Record: -1, Off: -1, What: "no such segment"}
		}
		return asDamage(id, err)
	}
}
