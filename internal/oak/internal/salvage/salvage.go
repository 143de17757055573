package salvage

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/compact"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Options of New. All are needed.
type Options struct {
	From   *segment.Reader
	Prover *proof.Prover // of From
	To     *segment.Builder
	Copier *compact.Copier // from From to To
	Depth  int             // levels that a tree may have
	Memory int64           // for what is known of records; more is ErrMemory
	// Lost is called for what is lost of a node that is written, or that had a name.
	Lost func(path []string, l proof.Loss)
	// Older is called for a node that comes from a version that is not the first one, or only its
	// name does.
	Older func(path []string, version int, name bool)
}

// A Salvager writes what is left of one store, on one goroutine.
type Salvager struct {
	o      Options
	known  marks
	made   [2]map[segment.RecordID]segment.RecordID // damaged nodes that have only one version; those before
	above  map[segment.RecordID]bool                // nodes that are being written
	budget int                                      // of look-ups in older versions
	nodes  int64
	// finding means that nodes without a path are written, each once.
	finding bool
	told    int // how often Lost and Older were called
}

// mostLookups is how often a child is looked for in an older version. Damage can make a few nodes look
// like very many paths.
const mostLookups = 1 << 27

// mostMade is how many damaged nodes are remembered, so that what others share is written once. Of
// the last ones each is.
const mostMade = 1 << 18

func New(o Options) *Salvager {
	return &Salvager{o: o, known: marks{most: o.Memory, pages: map[segment.ID][]uint64{}}, above: map[segment.RecordID]bool{}, budget: mostLookups}
}

// Nodes returns how many nodes were written.
func (v *Salvager) Nodes() int64 { return v.nodes + v.o.Copier.Nodes() }

// A version is a node in one version of the tree.
type version struct {
	id segment.RecordID
	of int
}

// Root merges the versions of a root, the newest first, and writes everything below it.
func (v *Salvager) Root(ctx context.Context, roots []segment.RecordID) (n segment.NewNode, err error) {
	var all []version
	for i, id := range roots {
		all = append(all, version{id, i})
	}
	if len(all) > 0 {
		n, _, err = v.merged(ctx, all, nil)
	}
	v.nodes++
	return n, err
}

// Child goes from a node to a child, then to a child of that, and so on, also if templates or names
// are lost.
func (v *Salvager) Child(ctx context.Context, id segment.RecordID, names ...string) (_ segment.RecordID, ok bool, err error) {
	for _, name := range names {
		var found, byHash segment.RecordID
		hash, hashes := segment.NameHash(name), 0
		ok = false
		_, err := v.each(ctx, id, func(e segment.Entry) {
			if e.Name == name && !ok {
				found, ok = e.Value, true
			}
		}, func(e segment.UnnamedEntry) {
			if e.HasHash && e.Hash == hash {
				byHash = e.Value
				hashes++
			}
		})
		if err != nil {
			return id, false, err
		}
		if !ok && hashes == 1 {
			found, ok = byHash, true
		}
		if id = found; !ok {
			return id, false, nil
		}
	}
	return id, ok, nil
}

// node writes a node from one or more versions of it. ok is false if nothing is left of it. While
// nodes without a path are written, ok is false also for a node that is known.
func (v *Salvager) node(ctx context.Context, all []version, path []string) (id segment.RecordID, ok bool, err error) {
	first := all[0].id
	if v.finding {
		if len(path) >= v.o.Depth { // it will be found again, as the top of a subtree
			return id, false, nil
		}
		if fresh, err := v.known.add(first); !fresh || err != nil {
			return id, false, err
		}
		return v.write(ctx, all, path)
	}
	for _, made := range v.made {
		if id, ok := made[first]; ok {
			v.told++ // before
			v.remember(first, id)
			return id, true, nil
		}
	}
	res, err := v.o.Prover.Tree(ctx, first, "", nil)
	if err != nil {
		return id, false, err
	}
	if res.Whole {
		id, err = v.o.Copier.Node(ctx, first)
		return id, true, err
	}
	if v.above[first] || len(path) >= v.o.Depth {
		v.lost(path, proof.Loss{Err: fault(first, "tree: expected at most %d levels and no node below itself, found more", v.o.Depth)})
		return id, false, nil
	}
	v.above[first] = true
	defer delete(v.above, first)
	before := v.told
	if id, ok, err = v.write(ctx, all, path); !ok || err != nil {
		return id, ok, err
	}
	if v.told == before { // nothing may be missing without a word
		v.lost(path, proof.Loss{Children: true, Err: fault(first, "map: expected other entries")})
	}
	if len(all) == 1 {
		v.remember(first, id)
	}
	return id, true, nil
}

func (v *Salvager) write(ctx context.Context, all []version, path []string) (id segment.RecordID, ok bool, err error) {
	n, ok, err := v.merged(ctx, all, path)
	if ok && err == nil {
		v.nodes++
		id, err = v.o.To.Node(ctx, n)
	}
	return id, ok, err
}

func (v *Salvager) remember(id, is segment.RecordID) {
	if len(v.made[0]) == mostMade {
		v.made[1] = v.made[0]
	}
	if n := len(v.made[0]); n == 0 || n == mostMade {
		v.made[0] = map[segment.RecordID]segment.RecordID{}
	}
	v.made[0][id] = is
}

func (v *Salvager) merged(ctx context.Context, all []version, path []string) (n segment.NewNode, ok bool, err error) {
	if ctx.Err() != nil {
		return n, false, context.Cause(ctx)
	}
	own := -1 // the version whose properties are written
	var lost *segment.Error
	for i, w := range all {
		from, err := v.o.From.Node(ctx, w.id)
		if err == nil {
			own = i
			n.Properties, err = v.properties(ctx, from, path)
		} else if lost == nil {
			lost = proof.Damage(err)
		}
		if err := failure(err); err != nil {
			return n, false, err
		}
		if own >= 0 {
			break
		}
	}
	if own < 0 {
		v.lost(path, proof.Loss{Err: lost})
		n.Properties, ok, err = v.nameless(ctx, all[0].id)
	} else if ok = true; own > 0 {
		v.older(path, all[own], false)
	}
	if err == nil {
		n.Children, err = v.children(ctx, all, own, path)
	}
	return n, ok || len(n.Children) > 0, err
}

// properties copies the properties that are whole.
func (v *Salvager) properties(ctx context.Context, n segment.Node, path []string) (some []segment.NewProperty, err error) {
	lost := map[string]bool{}
	err = v.o.Prover.Own(ctx, n, func(property string, e *segment.Error) {
		lost[property] = true
		v.lost(path, proof.Loss{Property: property, Err: e})
	})
	if err != nil {
		return nil, err
	}
	for p, err := range n.Properties(ctx) {
		if lost[p.Name] {
			continue
		}
		var to segment.NewProperty
		if err == nil {
			to, err = v.o.Copier.Property(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		some = append(some, to)
	}
	return some, nil
}

// Properties of a node whose template is lost, and with it the names and types of its properties.
// Nodes that had the same template had the same properties, in the same order.
const (
	lostTemplate = "lostTemplate" // the record that is lost
	lostProperty = "lost"         // followed by a number from 1
)

// nameless copies the properties of a node whose template is lost. ok is false if the node itself
// is lost.
func (v *Salvager) nameless(ctx context.Context, id segment.RecordID) (some []segment.NewProperty, ok bool, err error) {
	template, all, err := v.o.From.Nameless(ctx, id)
	if err != nil && template == (segment.RecordID{}) {
		return nil, false, failure(err)
	}
	if err := failure(err); err != nil {
		return nil, false, err
	}
	some = append(unstructured(), segment.NewProperty{Name: lostTemplate, Type: segment.String, Values: []segment.NewValue{{Text: template.String()}}})
	for _, p := range all {
		err := v.o.Prover.Property(ctx, p)
		if err == nil {
			var to segment.NewProperty
			if to, err = v.o.Copier.Property(ctx, p); err == nil {
				to.Name = lostProperty + p.Name
				some = append(some, to)
			}
		}
		if err := failure(err); err != nil {
			return nil, false, err
		}
	}
	return some, true, nil
}

func unstructured() []segment.NewProperty {
	return []segment.NewProperty{{Name: "jcr:primaryType", Type: segment.Name, Values: []segment.NewValue{{Text: "nt:unstructured"}}}}
}

// A child of a version whose name is known.
type child struct {
	version
	name  string
	at    int     // of its version in the list of the parent's
	named version // of the parent, which has the name
}

// children writes the children of a node. Older versions add children only while newer ones may
// have lost some.
func (v *Salvager) children(ctx context.Context, all []version, own int, path []string) (some []segment.Child, err error) {
	list, lost, err := v.list(ctx, all)
	if err != nil {
		return nil, err
	}
	if own >= 0 && own < len(lost) && lost[own] != nil {
		v.lost(path, proof.Loss{Children: true, Err: lost[own]})
	}
	for _, c := range list {
		way := append(slices.Clip(path), c.name)
		versions, err := v.versions(ctx, c.version, all[c.at+1:], c.name)
		if err != nil {
			return nil, err
		}
		id, ok, err := v.node(ctx, versions, way)
		if err != nil {
			return nil, err
		}
		if ok {
			some = append(some, segment.Child{Name: c.name, Node: id})
			if only := c.named.of != c.of; only || c.at > max(own, 0) {
				v.older(way, c.named, only)
			}
		}
	}
	return some, nil
}

// list lists the children of a node that have names, and what is lost of the versions that it read.
//
// A map has the hash of each name. A child whose name is lost gets that of an older version, if there
// is just one with this hash on both sides. Two names can have the same hash.
func (v *Salvager) list(ctx context.Context, all []version) (list []child, lost []*segment.Error, err error) {
	met := map[string]bool{}
	var nameless []map[uint32]segment.RecordID // by version; zero if there are several
	for i, w := range all {
		byHash, names, first := map[uint32]segment.RecordID{}, map[uint32]int{}, len(list)
		damage, err := v.each(ctx, w.id, func(e segment.Entry) {
			if !taken(met, e.Name) {
				list = append(list, child{version{e.Value, w.of}, e.Name, i, w})
				names[segment.NameHash(e.Name)]++
			}
		}, func(e segment.UnnamedEntry) {
			if _, twice := byHash[e.Hash]; twice {
				e.Value = segment.RecordID{}
			}
			if e.HasHash {
				byHash[e.Hash] = e.Value
			}
		})
		if err != nil {
			return nil, nil, err
		}
		for j := range list[first:] {
			c := &list[first+j]
			hash := segment.NameHash(c.name)
			for k := 0; k < len(nameless) && c.at == i; k++ {
				if id := nameless[k][hash]; id != (segment.RecordID{}) && names[hash] == 1 {
					c.version, c.at = version{id, all[k].of}, k
					delete(nameless[k], hash)
				}
			}
		}
		lost, nameless = append(lost, damage), append(nameless, byHash)
		if damage == nil && len(byHash) == 0 {
			break
		}
	}
	for k, left := range nameless {
		for _, id := range left {
			if lost[k] == nil {
				lost[k] = fault(id, "map: the name of this node is lost")
			}
		}
	}
	// Names that only hashes show are not below what is known already.
	for i := 0; i < len(list) && err == nil && v.known.used > 0 && !v.finding; i++ {
		err = v.Know(ctx, list[i].id)
	}
	return list, lost, err
}

// taken notes a name, and reports whether it was there. Different names may be the same in Java.
func taken(names map[string]bool, name string) bool {
	key := string(segment.AppendMapKey(nil, name))
	had := names[key]
	names[key] = true
	return had
}

// versions returns a child that has lost something, and its older versions.
func (v *Salvager) versions(ctx context.Context, newest version, older []version, name string) ([]version, error) {
	all := []version{newest}
	if len(older) == 0 || v.budget < 0 {
		return all, nil
	}
	res, err := v.o.Prover.Tree(ctx, newest.id, "", nil)
	if err != nil || res.Whole {
		return all, err
	}
	v.budget -= len(older)
	had := map[segment.RecordID]bool{newest.id: true}
	for _, w := range older {
		n, err := v.o.From.Node(ctx, w.id)
		var id segment.RecordID
		var ok bool
		if err == nil {
			id, ok, err = n.Child(ctx, name)
		}
		if proof.Damage(err) != nil {
			id, ok, err = v.Child(ctx, w.id, name)
		}
		if err != nil {
			return nil, err
		}
		if ok && !had[id] {
			had[id] = true
			all = append(all, version{id, w.of})
		}
	}
	return all, nil
}

// each calls named and unnamed for the children of a node that are left. lost is set if there may
// be others.
func (v *Salvager) each(ctx context.Context, id segment.RecordID, named func(segment.Entry), unnamed func(segment.UnnamedEntry)) (lost *segment.Error, err error) {
	met := map[segment.RecordID]bool{}
	for maps := []segment.RecordID{id}; len(maps) > 0; {
		last := len(maps) - 1
		id, maps = maps[last], maps[:last]
		if met[id] {
			lost = fault(id, "map: expected each part once, found one twice")
			continue
		}
		met[id] = true
		p, err := v.o.From.Part(ctx, id)
		if err := failure(err); err != nil {
			return nil, err
		}
		if err != nil && lost == nil {
			lost = proof.Damage(err)
		}
		maps = append(maps, p.Maps...)
		for _, e := range p.Named {
			named(e)
		}
		for _, e := range p.Unnamed {
			unnamed(e)
		}
	}
	return lost, nil
}

func (v *Salvager) lost(path []string, l proof.Loss) {
	v.told++
	v.o.Lost(path, l)
}

func (v *Salvager) older(path []string, w version, name bool) {
	v.told++
	v.o.Older(path, w.of, name)
}

func fault(id segment.RecordID, format string, args ...any) *segment.Error {
	return &segment.Error{Class: segment.Corrupt, Segment: id.Segment, Record: id.Number, Off: -1, What: fmt.Sprintf(format, args...)}
}

// failure returns an error that is not damage.
func failure(err error) error {
	if proof.Damage(err) != nil {
		return nil
	}
	return err
}
