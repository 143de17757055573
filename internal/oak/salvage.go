package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/newtree"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/salvage"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
)

// Salvaged is what was left of a store.
type Salvaged struct {
	Revision    string       `json:"revision,omitempty"` // whose tree it is, if one was found
	Time        *time.Time   `json:"time,omitempty"`
	Newest      bool         `json:"newest"` // the journal shows that there was no newer one
	NewHead     string       `json:"new_head"`
	Nodes       int64        `json:"nodes"` // of the new store, each once
	Checkpoints int          `json:"checkpoints"`
	Older       []OlderState `json:"older"`            // the first 10,000
	OlderPaths  int64        `json:"older_paths"`      // number of all
	Folder      string       `json:"folder,omitempty"` // of what was found without a path
	Found       int64        `json:"found"`            // subtrees in it
	Losses      []Loss       `json:"losses"`           // the first 10,000
	Lost        int64        `json:"lost"`             // number of all
	Skipped     int          `json:"skipped"`          // segments that are damaged or have no time
	Segments    int64        `json:"segments"`
	Bytes       int64        `json:"bytes"` // of files
	Files       []string     `json:"files"`
	Notes       []string     `json:"notes"`
}

// Whole reports whether the new store has everything that the old one had.
func (x *Salvaged) Whole() bool { return x.Newest && x.Lost == 0 && x.OlderPaths == 0 && x.Found == 0 }

// An OlderState is a path whose newest state is lost, and where an older one is from.
type OlderState struct {
	Path string     `json:"path"`
	From string     `json:"from"` // in the syntax of --from
	Time *time.Time `json:"time,omitempty"`
	Name bool       `json:"name,omitempty"` // only the name is from there: see Salvage
}

// lostAndFound is the folder of what was found without a path.
const lostAndFound = "lost+found"

// Salvage writes a new store in the folder name of to, of all nodes that are left. The tree is that
// of the newest revision, whether it is in the journal or not. What that has lost comes from the
// newest older revision or checkpoint that has it at the same path. Nodes of unknown paths are below
// a folder of their own. A lost name is that with the same hash in an older version of the same node.
// Nothing is taken from segments that do not match their checksums.
// Damaged checkpoints are left out. to should be a [storekit.Stage].
func (s *Store) Salvage(ctx context.Context, to store.Store, name string, progress func(nodes int64)) (Salvaged, error) {
	w := &wreck{compaction: s.compaction(progress), said: Salvaged{Older: []OlderState{}, Losses: []Loss{}, Notes: []string{}}}
	w.trees = trees{w.compaction.source, w.read, proof.New(w.read, proof.Options{Binaries: true, Copy: true, Depth: treeDepth, Bulk: s.r.checkBulk(healing), Name: writeTreeName})}
	w.v = salvage.New(salvage.Options{
		From: w.read, Prover: w.prover, To: w.b, Copier: w.copier, Depth: treeDepth - 3, Memory: s.r.limits.Index, Lost: w.lost, Older: w.older,
	})
	journal, sum, err := w.run(ctx, to, name, w.write)
	if errors.Is(err, salvage.ErrMemory) {
		err = fault(indexLimit, s.r.name, -1, "records of segments need more than %d bytes", s.r.limits.Index)
	}
	if err != nil {
		return w.said, err
	}
	w.said.NewHead, w.said.Nodes = journal[0].Revision.String(), w.v.Nodes()
	w.said.Segments, w.said.Bytes, w.said.Files = sum.Segments, sum.Bytes, sum.Files
	return w.said, nil
}

// A wreck is a store that is salvaged.
type wreck struct {
	*compaction
	trees
	v      *salvage.Salvager
	donors []donor // revisions and checkpoints, by their places in versions
	found  []segment.Child
	full   []segment.Child // folders of others that were found
	said   Salvaged
}

// mostVersions is how many older revisions are searched for what is lost.
const mostVersions = 1 << 14

// mostFound is how many found subtrees a folder has. More are in folders of folders.
const mostFound = 1 << 18

func (w *wreck) write(ctx context.Context) ([]repo.Entry, error) {
	some, err := w.revisions(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := w.roots(ctx, some)
	if err != nil {
		return nil, err
	}
	kept, err := w.keepCheckpoints(ctx, some)
	whole := w.said.Newest && w.said.Lost == 0
	if err == nil && whole {
		var res proof.Result
		res, err = w.prover.Tree(ctx, roots[0], "/", nil)
		whole = res.Whole
	}
	// What is known has a place in a version that is merged.
	for i := 0; i < len(roots) && err == nil && !whole; i++ {
		err = w.v.Know(ctx, roots[i])
	}
	for i := 0; i < len(some) && err == nil && !whole; i++ {
		all, ok, e := w.v.Child(ctx, some[i].Revision, checkpointsName)
		if err = cmp.Or(e, w.v.Mark(some[i].Revision)); err == nil && ok {
			err = w.v.Mark(all)
		}
	}
	var top segment.NewNode
	if err == nil {
		top, err = w.v.Root(ctx, roots)
	}
	if err == nil && !whole {
		err = w.search(ctx, &top)
	}
	at := repo.Entry{Millis: time.Now().UnixMilli()}
	if len(w.donors) > 0 {
		at.Millis = max(w.donors[0].millis, 0)
	}
	if err == nil {
		at.Revision, err = w.b.Node(ctx, top)
	}
	if err == nil {
		at.Revision, err = newtree.SuperRoot(ctx, w.b, at.Revision, kept...)
	}
	return []repo.Entry{at}, err
}

// revisions finds the revisions, the newest first.
func (w *wreck) revisions(ctx context.Context) (some []candidate, err error) {
	f, err := w.s.findRevisions(ctx, w.trees)
	if err != nil {
		return nil, err
	}
	w.said.Skipped = f.skipped
	some, bare := f.sorted()
	if len(some) == 0 {
		some = bare
	}
	newest, some, err := w.journal(ctx, some)
	slices.SortStableFunc(some, compareCandidates)
	slices.Reverse(some)
	i := slices.IndexFunc(some, func(c candidate) bool { return c.Revision == newest.Revision })
	// The times of segments do not determine the order of the revisions in them.
	if w.said.Newest = i >= 0 && (newest.Millis < 0 || newest.Millis >= some[0].millis); w.said.Newest {
		first := some[i]
		copy(some[1:], some[:i])
		some[0] = first
	}
	return some, err
}

// journal adds the revisions that only the journal shows, because their templates are lost, and
// the times of others. It returns the newest line.
func (w *wreck) journal(ctx context.Context, some []candidate) (newest repo.Entry, all []candidate, err error) {
	if w.s.r.list.Journal == nil {
		return newest, some, nil
	}
	known := map[repo.Revision]int{}
	for i, c := range some {
		known[c.Revision] = i
	}
	lines := 0
	err = w.s.eachLine(ctx, func(e repo.Entry, bad *repo.Error) (more bool, err error) {
		if lines++; bad != nil {
			return true, nil
		}
		if lines == 1 {
			newest = e
		}
		if i, ok := known[e.Revision]; ok {
			some[i].millis = max(some[i].millis, e.Millis)
			return true, nil
		}
		rec, err := w.records.Record(ctx, e.Revision)
		if err == nil && rec.Type() == segment.NodeRecord {
			known[e.Revision] = len(some)
			some = append(some, candidate{Revision: e.Revision, millis: e.Millis})
		}
		return true, unlessDamaged(err)
	})
	return newest, some, err
}

// roots returns the different roots of revisions and checkpoints, and notes which these are.
func (w *wreck) roots(ctx context.Context, some []candidate) (roots []segment.RecordID, err error) {
	if len(some) == 0 {
		w.said.Notes = append(w.said.Notes, "found no revision, so nothing has a path")
		return nil, nil
	}
	var all []donor
	for _, c := range some[:min(len(some), mostVersions)] {
		all = append(all, donor{"@" + c.Revision.String(), c.millis, []string{rootName}, c.Revision})
	}
	more, err := w.checkpointDonors(ctx, w.s.r, some[0].Revision)
	if err != nil {
		return nil, err
	}
	met := map[segment.RecordID]bool{}
	for _, d := range append(all[:1:1], sortedDonors(append(more, all[1:]...))...) {
		id, ok, err := w.v.Child(ctx, d.super, d.way...)
		if err != nil {
			return nil, err
		}
		if ok && !met[id] {
			met[id] = true
			roots, w.donors = append(roots, id), append(w.donors, d)
		}
	}
	if w.said.Newest = w.said.Newest && len(roots) > 0 && w.donors[0].super == some[0].Revision; !w.said.Newest {
		w.said.Notes = append(w.said.Notes, "the journal does not show whether this was the newest revision")
	}
	if len(roots) > 0 {
		w.said.Revision, w.said.Time = w.donors[0].super.String(), timeAt(w.donors[0].millis)
	}
	return roots, nil
}

// keepCheckpoints copies the checkpoints that are whole. An index that is updated from a checkpoint
// with holes would be wrong.
func (w *wreck) keepCheckpoints(ctx context.Context, some []candidate) (kept []segment.Child, err error) {
	if len(some) == 0 {
		return nil, nil
	}
	names, lost, err := w.checkpoints(ctx, some[0].Revision)
	if err != nil {
		return nil, err
	}
	if lost != nil {
		w.lose(w.s.loss("", proof.Loss{Path: "/" + checkpointsName, Children: true, Err: lost}))
	}
	for _, name := range names {
		id, ok, lost, err := w.down(ctx, some[0].Revision, checkpointsName, name)
		if err == nil && ok && lost == nil {
			_, err = w.prover.Tree(ctx, id, "/", func(l proof.Loss) { lost = cmp.Or(lost, l.Err) })
		}
		switch {
		case err != nil:
		case lost != nil:
			w.lose(w.s.loss(name, proof.Loss{Path: "/", Err: lost}))
		default:
			if err = w.v.Know(ctx, id); err == nil {
				id, err = w.copier.Node(ctx, id)
				kept = append(kept, segment.Child{Name: name, Node: id})
			}
		}
		if err != nil {
			return nil, err
		}
	}
	w.said.Checkpoints = len(kept)
	return kept, nil
}

// search writes what has no path into a folder below the root, if there is anything.
func (w *wreck) search(ctx context.Context, root *segment.NewNode) error {
	folder := lostAndFound
	for i := 2; slices.ContainsFunc(root.Children, func(c segment.Child) bool { return c.Name == folder }); i++ {
		folder = fmt.Sprintf("%s-%d", lostAndFound, i)
	}
	for _, t := range w.s.r.tars {
		for _, i := range slices.Backward(t.ByPosition()) {
			id := t.At(int(i)).ID
			if at, _, _ := w.s.r.locate(id); at != t || !id.IsData() {
				continue
			}
			g, err := w.read.Segment(ctx, id)
			if err == nil {
				err = w.v.Find(ctx, g, []string{folder}, func(c segment.Child) error { return w.keep(ctx, c) })
			}
			if err := unlessDamaged(err); err != nil {
				return err
			}
		}
	}
	if len(w.full) > 0 {
		if err := w.fill(ctx); err != nil {
			return err
		}
		w.found = w.full
	}
	if len(w.found) == 0 {
		return nil
	}
	w.said.Folder = joinNames([]string{folder})
	id, err := w.v.Folder(ctx, w.found)
	root.Children = append(root.Children, segment.Child{Name: folder, Node: id})
	return err
}

func (w *wreck) keep(ctx context.Context, c segment.Child) error {
	w.said.Found++
	if w.found = append(w.found, c); len(w.found) < mostFound {
		return nil
	}
	return w.fill(ctx)
}

// fill writes a folder of what was found last.
func (w *wreck) fill(ctx context.Context) error {
	if len(w.found) == 0 {
		return nil
	}
	id, err := w.v.Folder(ctx, w.found)
	w.full, w.found = append(w.full, segment.Child{Name: fmt.Sprint(len(w.full) + 1), Node: id}), nil
	return err
}

func (w *wreck) lost(names []string, l proof.Loss) {
	l.Path = joinNames(names)
	w.lose(w.s.loss("", l))
}

func (w *wreck) lose(l Loss) {
	if w.said.Lost++; len(w.said.Losses) < mostLosses {
		w.said.Losses = append(w.said.Losses, l)
	}
}

func (w *wreck) older(names []string, of int, name bool) {
	d := w.donors[of]
	if w.said.OlderPaths++; len(w.said.Older) < mostLosses {
		w.said.Older = append(w.said.Older, OlderState{joinNames(names), d.from, timeAt(d.millis), name})
	}
}
