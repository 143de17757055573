package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
}

// lostAndFound is the folder of what was found without a path.
const lostAndFound = "lost+found"

// Salvage writes a new store in the folder name of to, of all nodes that are left. The tree is that
// of the newest revision, whether it is in the journal or not. What that has lost comes from the
// newest older revision or checkpoint that has it at the same path. Nodes of unknown paths are below
// a folder of their own. Nothing is taken from segments that do not match their checksums.
// Damaged checkpoints are left out. to should be a [storekit.Stage].
func (s *Store) Salvage(ctx context.Context, to store.Store, name string, progress func(nodes int64)) (Salvaged, error) {
	w := &wreck{compaction: s.compaction(progress), said: Salvaged{Older: []OlderState{}, Losses: []Loss{}, Notes: []string{}}}
	w.trees = trees{w.from, proof.New(w.from, proof.Options{Binaries: true, Copy: true, Depth: treeDepth, Bulk: s.r.checkBulk, Name: writeTreeName})}
	w.v = salvage.New(salvage.Options{
		From: w.from, Prover: w.prover, To: w.b, Copier: w.copier, Depth: treeDepth - 3, Memory: s.r.limits.Index, Lost: w.lost, Older: w.older,
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
	supers, err := w.revisions(ctx)
	if err != nil {
		return nil, err
	}
	var roots []segment.RecordID
	all := w.donors
	w.donors = nil
	met := map[segment.RecordID]bool{}
	for _, d := range all {
		id, ok, err := w.v.Child(ctx, d.super, d.way...)
		if err != nil {
			return nil, err
		}
		if ok && !met[id] {
			met[id] = true
			roots, w.donors = append(roots, id), append(w.donors, d)
		}
	}
	kept, err := w.checkpointsOf(ctx, supers)
	if err != nil {
		return nil, err
	}
	whole := w.said.Newest && len(roots) > 0 && w.said.Lost == 0
	if whole {
		res, err := w.prover.Tree(ctx, roots[0], "/", nil)
		if err != nil {
			return nil, err
		}
		whole = res.Whole
	}
	if !whole {
		// What is known has a place in a version that is merged.
		for _, id := range roots {
			if err := w.v.Know(ctx, id); err != nil {
				return nil, err
			}
		}
		for _, id := range supers {
			all, ok, err := w.v.Child(ctx, id, checkpointsName)
			if err == nil && ok {
				err = w.v.Mark(all)
			}
			if err = cmp.Or(err, w.v.Mark(id)); err != nil {
				return nil, err
			}
		}
	}
	top, err := w.v.Root(ctx, roots)
	if err == nil && !whole {
		err = w.search(ctx, &top)
	}
	var root, checkpoints segment.RecordID
	if err == nil {
		root, err = w.b.Node(ctx, top)
	}
	if err == nil {
		checkpoints, err = w.b.Node(ctx, segment.NewNode{Children: kept})
	}
	at := repo.Entry{Millis: time.Now().UnixMilli()}
	if len(w.donors) > 0 {
		at.Millis = max(w.donors[0].millis, 0)
	}
	if err == nil {
		at.Revision, err = w.b.Node(ctx, segment.NewNode{Children: []segment.Child{{Name: rootName, Node: root}, {Name: checkpointsName, Node: checkpoints}}})
	}
	return []repo.Entry{at}, err
}

// revisions finds the revisions and the donors, the newest first.
func (w *wreck) revisions(ctx context.Context) (supers []segment.RecordID, err error) {
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
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(some, compareCandidates)
	for _, c := range slices.Backward(some) {
		supers = append(supers, c.Revision)
	}
	if len(supers) == 0 {
		w.said.Notes = append(w.said.Notes, "found no revision, so nothing has a path")
		return nil, nil
	}
	slices.Reverse(some)
	// The times of segments do not determine the order of the revisions in them.
	if i := slices.Index(supers, newest.Revision); i >= 0 && (newest.Millis < 0 || newest.Millis >= some[0].millis) {
		first := some[i]
		copy(some[1:], some[:i])
		copy(supers[1:], supers[:i])
		some[0], supers[0], w.said.Newest = first, first.Revision, true
	} else {
		w.said.Notes = append(w.said.Notes, "the journal does not show whether this was the newest revision")
	}
	w.said.Revision, w.said.Time = supers[0].String(), timeAt(some[0].millis)
	more, err := w.checkpointDonors(ctx, w.s.r, supers[0])
	for _, c := range some[1:min(len(some), mostVersions)] {
		more = append(more, donor{"@" + c.Revision.String(), c.millis, []string{rootName}, c.Revision})
	}
	w.donors = append([]donor{{"@" + w.said.Revision, some[0].millis, []string{rootName}, supers[0]}}, sortedDonors(more)...)
	return supers, err
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
	first := true
	for e, err := range w.s.r.journal(ctx) {
		if _, bad := err.(*repo.Error); err != nil && !bad {
			return newest, nil, err
		} else if first && !bad {
			newest = e
		}
		first = false
		if err != nil {
			continue
		}
		if i, ok := known[e.Revision]; ok {
			some[i].millis = max(some[i].millis, e.Millis)
		} else if rec, err := w.records.Record(ctx, e.Revision); err == nil && rec.Type() == segment.NodeRecord {
			known[e.Revision] = len(some)
			some = append(some, candidate{Revision: e.Revision, millis: e.Millis})
		} else if err := unlessDamaged(err); err != nil {
			return newest, nil, err
		}
	}
	return newest, some, nil
}

func timeAt(millis int64) *time.Time {
	if millis < 0 {
		return nil
	}
	at := time.UnixMilli(millis).UTC()
	return &at
}

// checkpointsOf copies the checkpoints that are whole. An index that is updated from a checkpoint
// with holes would be wrong.
func (w *wreck) checkpointsOf(ctx context.Context, supers []segment.RecordID) (kept []segment.Child, err error) {
	if len(supers) == 0 {
		return nil, nil
	}
	names, lost, err := w.checkpoints(ctx, supers[0])
	if err != nil {
		return nil, err
	}
	if lost != nil {
		w.lose(w.s.loss("", proof.Loss{Path: "/" + checkpointsName, Children: true, Err: lost}))
	}
	for _, name := range names {
		id, ok, lost, err := w.down(ctx, supers[0], checkpointsName, name)
		if err != nil {
			return nil, err
		}
		if lost == nil && ok {
			_, err = w.prover.Tree(ctx, id, "/", func(l proof.Loss) {
				if lost == nil {
					lost = l.Err
				}
			})
			if err == nil && lost == nil {
				err = w.v.Know(ctx, id)
			}
			if err == nil && lost == nil {
				id, err = w.copier.Node(ctx, id)
				kept = append(kept, segment.Child{Name: name, Node: id})
			}
			if err != nil {
				return nil, err
			}
		}
		if lost != nil {
			w.lose(w.s.loss(name, proof.Loss{Path: "/", Err: lost}))
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
			g, err := w.from.Segment(ctx, id)
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

func (w *wreck) older(names []string, of int) {
	d := w.donors[of]
	if w.said.OlderPaths++; len(w.said.Older) < mostLosses {
		w.said.Older = append(w.said.Older, OlderState{joinNames(names), d.from, timeAt(d.millis)})
	}
}
