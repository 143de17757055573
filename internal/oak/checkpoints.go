package oak

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Checkpoint is a tree that Oak keeps for another program, usually an indexer.
type Checkpoint struct {
	Name       string            `json:"name"`
	Created    *time.Time        `json:"created,omitempty"`
	Expires    *time.Time        `json:"expires,omitempty"` // missing if it never expires, or is not known
	Expired    bool              `json:"expired"`
	Referenced bool              `json:"referenced"` // by the state of asynchronous indexing
	Properties map[string]string `json:"properties"`
	// Bytes is the size of what neither the head nor a newer checkpoint contains. If this
	// checkpoint and all older ones are removed, the sum of their Bytes is garbage.
	Bytes    int64  `json:"bytes"`
	External int64  `json:"external"` // of binaries in a data store, as above
	Lost     int64  `json:"lost,omitempty"`
	Problem  string `json:"problem,omitempty"` // why less is known about it
}

const asyncName = ":async"

// Checkpoints lists the checkpoints of the newest revision, the newest first. With sizes it reads
// the trees; otherwise it reads only the descriptions of the checkpoints.
func (s *Store) Checkpoints(ctx context.Context, now time.Time, sizes bool) ([]Checkpoint, error) {
	t, err := s.Tree(ctx, map[string]string{superParam: "true"})
	if err != nil {
		return nil, err
	}
	return t.t.listCheckpoints(ctx, now, sizes)
}

func (t *treeReader) listCheckpoints(ctx context.Context, now time.Time, sizes bool) (all []Checkpoint, err error) {
	n, missing, err := t.records.NodeAt(ctx, t.super, checkpointsName)
	if err != nil || missing != "" {
		return nil, t.corrupt(err, checkpointsName)
	}
	used, err := t.asyncReferences(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]segment.RecordID{}
	for e, err := range n.Children(ctx) {
		if err != nil {
			return nil, t.corrupt(err, checkpointsName)
		}
		if len(all) == mostNames {
			return nil, fmt.Errorf("oak: checkpoints: expected at most %d, found more", mostNames)
		}
		c := Checkpoint{Name: e.Name, Referenced: slices.Contains(used, e.Name), Properties: map[string]string{}}
		if err := t.checkpointInfo(ctx, e.Value, &c, now); err != nil {
			damage := t.damage(err)
			if damage == nil {
				return nil, err
			}
			c.Problem = damage.Message
		}
		ids[c.Name] = e.Value
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Checkpoint) int {
		return cmp.Or(compareTimes(b.Created, a.Created), cmp.Compare(a.Name, b.Name))
	})
	if !sizes || len(all) == 0 {
		return all, nil
	}
	m := &measure{t: t, top: 1, seen: recordSet{}}
	root, missing, err := t.records.Down(ctx, t.super, rootName)
	if err == nil && missing == "" {
		_, err = m.tree(ctx, spot{name: rootName, id: root, depth: 1})
	}
	if t.unlessDamage(err) != nil {
		return nil, err
	}
	for i := range all {
		c := &all[i]
		sum, err := m.tree(ctx, spot{name: checkpointsName + "/" + writeTreeName(c.Name, false), id: ids[c.Name], depth: 2})
		if err != nil {
			return nil, err
		}
		c.Bytes, c.External, c.Lost = sum.Total(), sum.External, sum.Lost
	}
	return all, nil
}

func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(btoi(a != nil), btoi(b != nil))
	}
	return a.Compare(*b)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *treeReader) checkpointInfo(ctx context.Context, id segment.RecordID, c *Checkpoint, now time.Time) error {
	n, err := t.records.Node(ctx, id)
	if err != nil {
		return err
	}
	for name, to := range map[string]**time.Time{"created": &c.Created, "timestamp": &c.Expires} {
		text, ok, err := t.textProperty(ctx, n, name)
		if err != nil {
			return err
		}
		// A checkpoint that never expires has the largest number.
		if millis, bad := strconv.ParseInt(text, 10, 64); ok && bad == nil && millis < maxMillis {
			at := time.UnixMilli(millis).UTC()
			*to = &at
		}
	}
	c.Expired = c.Expires != nil && c.Expires.Before(now)
	below, ok, err := n.Child(ctx, "properties")
	if err != nil || !ok {
		return err
	}
	if n, err = t.records.Node(ctx, below); err != nil {
		return err
	}
	for p, err := range n.Properties(ctx) {
		if err != nil {
			return err
		}
		if text, ok, err := t.textOf(ctx, p); err != nil {
			return err
		} else if ok {
			c.Properties[p.Name] = text
		}
	}
	return nil
}

// maxMillis is the end of the year 9999.
const maxMillis = 253402300800000

// mostText limits the length of texts.
const mostText = 64 << 10

func (t *treeReader) textProperty(ctx context.Context, n segment.Node, name string) (string, bool, error) {
	p, ok, err := n.Property(ctx, name)
	if err != nil || !ok {
		return "", false, err
	}
	return t.textOf(ctx, p)
}

// textOf returns the text of a property that has one value.
func (t *treeReader) textOf(ctx context.Context, p segment.Property) (string, bool, error) {
	if p.Multi || p.Type == segment.Binary {
		return "", false, nil
	}
	v, err := p.At(ctx, 0)
	if err != nil || v.Len() > mostText {
		return "", false, err
	}
	text, err := v.Text(ctx, mostText)
	return text, err == nil, err
}

// asyncReferences returns the checkpoints from which the indexers continue. Oak's tools read them
// from the same properties: those with one text, whose names end in async.
func (t *treeReader) asyncReferences(ctx context.Context) (names []string, err error) {
	n, missing, err := t.records.NodeAt(ctx, t.super, rootName, asyncName)
	if err != nil || missing != "" {
		return nil, t.corrupt(err, asyncName)
	}
	for p, err := range n.Properties(ctx) {
		if err == nil && p.Type == segment.String && strings.HasSuffix(p.Name, "async") {
			var text string
			var ok bool
			if text, ok, err = t.textOf(ctx, p); ok {
				names = append(names, text)
			}
		}
		if err != nil {
			return nil, t.corrupt(err, asyncName)
		}
	}
	return names, nil
}

type CheckpointChoice struct {
	Names        []string
	Unreferenced bool // those that the state of asynchronous indexing does not name
	Expired      bool
	All          bool
}

// RemovedCheckpoints are the checkpoints that a new revision omits.
type RemovedCheckpoints struct {
	Revised
	Removed []Checkpoint `json:"removed"`
}

// RemoveCheckpoints writes a revision without some checkpoints. It removes each checkpoint that
// any of the choices selects. What only these refer to becomes garbage. See [reviser] for the
// rest.
func (s *Store) RemoveCheckpoints(ctx context.Context, o CheckpointChoice, now time.Time, dryRun bool) (RemovedCheckpoints, error) {
	res := RemovedCheckpoints{Removed: []Checkpoint{}}
	v, err := s.reviser(ctx, dryRun)
	if err != nil {
		return res, err
	}
	all, err := s.Checkpoints(ctx, now, dryRun)
	if s.r.damage(err) != nil && o.All {
		err = nil // all are removed, so they need not be readable
	}
	if err != nil {
		return res, err
	}
	for _, name := range o.Names {
		if !slices.ContainsFunc(all, func(c Checkpoint) bool { return c.Name == name }) {
			return res, fmt.Errorf("oak: checkpoint %q: %w", name, fs.ErrNotExist)
		}
	}
	whole := &change{}
	for _, c := range all {
		if o.All || o.Unreferenced && !c.Referenced || o.Expired && c.Expired || slices.Contains(o.Names, c.Name) {
			whole.at(checkpointsName, c.Name).gone = true
			res.Removed = append(res.Removed, c)
		}
	}
	if o.All {
		empty, err := v.b.Node(ctx, segment.NewNode{})
		if err != nil {
			return res, err
		}
		whole = &change{}
		whole.at(checkpointsName).put = &empty
	}
	if res.Revised = v.said; len(res.Removed) == 0 && !o.All {
		return res, nil
	}
	res.Revised, err = v.commit(ctx, whole)
	return res, err
}
