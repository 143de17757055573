package oak

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A property index has a child :index with a child for each value. Below that, the path of each
// node with the value is repeated, and its last node has the property match. A unique index has
// the paths in the property entry of the value instead. A reference index has children :references
// and :weakreferences like a property index; the values are UUIDs, and the last name of a path is
// that of a property. For mounts there are other children, such as :MOUNT-index.
const (
	indexName      = "index"
	referencesName = "references"
	weakName       = "weakreferences"
	matchName      = "match"
	entryName      = "entry"
)

var kinds = []string{indexName, referencesName, weakName}

// indexEntries compare a property or reference index with the nodes.
type indexEntries struct {
	x       *CheckedIndex
	own, t  *treeReader // where the index is, and where the nodes are
	root    []string    // the index has nodes at and below this one, which is top
	top     spot
	stores  map[string][]spot   // by kind
	has     map[string][]string // the definition
	unique  bool
	pattern bool            // which is not evaluated
	types   map[string]bool // of nodes; nil means all
	longest int64           // bytes of a value that are needed
}

// A groupKey is the node below which several indexes have nodes.
type groupKey struct {
	top  segment.RecordID // of the tree
	path string
}

// entries prepares the comparison of an index with the nodes.
func (c *indexChecker) entries(ctx context.Context, x *CheckedIndex, names []string, top spot, has map[string][]string) error {
	e := &indexEntries{x: x, own: c.t, t: c.t, has: has, stores: map[string][]spot{}, unique: one(has, "unique") == "true", pattern: one(has, "valuePattern") != ""}
	for s, err := range c.t.children(ctx, top) {
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if name := path.Base(s.name); isHidden(s) && s.lost == nil && (name == ":"+kind || strings.HasSuffix(name, "-"+kind)) {
				e.stores[kind] = append(e.stores[kind], s)
			}
		}
	}
	why := ""
	switch above := len(names) - 2; {
	case x.Reindex:
		why = "Oak is going to rebuild it"
	case len(has["corrupt"]) > 0:
		why = "it is marked as corrupt"
	case above < 0 || names[above] != path.Base(IndexesPath):
		why = "Oak uses only definitions in " + path.Base(IndexesPath)
	case x.Type == "property" && len(has["propertyNames"]) == 0:
		why = "it has no propertyNames"
	case len(e.stores) == 0 && x.Found > 0:
		why = "its entries cannot be found"
	case x.Type == "property" && len(e.stores) == 0 && x.ReindexCount == 0:
		why = "Oak has not built it yet"
	case x.Type == "property" && len(e.stores) == 0:
		x.add("lost", x.Path, "", "expected a child :%s with the entries, found none", indexName)
		return nil
	default:
		e.root = names[:above]
	}
	if why == "" && x.Async != "" {
		t, err := c.t.indexed(ctx, x.Async)
		if err != nil {
			return err
		}
		if e.t = t; t != nil {
			x.note("compared with checkpoint %s, up to which lane %.100s has indexed", t.checkpoint, x.Async)
		} else {
			why = "there is no checkpoint of lane " + x.Async
		}
	}
	if why != "" {
		x.note("not compared: %.200s", why)
		return nil
	}
	e.longest = 4 * mostKey
	for _, prefix := range append(has["valueIncludedPrefixes"], has["valueExcludedPrefixes"]...) {
		e.longest = max(e.longest, int64(len(prefix)+1))
	}
	var err error
	if e.top, err = e.t.findNode(ctx, nodePath(joinNames(e.root))); err == nil {
		err = e.subtypes(ctx)
	}
	if err != nil {
		x.note("not compared: %v", err)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the checkpoint is older than the node above
		}
		return e.t.unlessDamage(err)
	}
	if x.State = "sound"; e.pattern {
		x.State = "readable"
		x.note("missing entries are not searched: it has a valuePattern")
	}
	key := groupKey{e.t.top, e.top.name}
	c.groups[key] = append(c.groups[key], e)
	return nil
}

// indexed returns the checkpoint up to which a lane has indexed, or nil if there is none.
func (t *treeReader) indexed(ctx context.Context, lane string) (*treeReader, error) {
	n, missing, err := t.records.NodeAt(ctx, t.top, asyncName)
	if err != nil || missing != "" {
		return nil, err
	}
	name, err := textProperty(ctx, n, lane, mostWords)
	if err != nil || name == "" {
		return nil, err
	}
	param := map[string]string{revisionParam: t.shown.Revision.String(), checkpointParam: name}
	at, err := newTree(ctx, t.repository, t.records, format.OpenOptions{Param: param}, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return at, err
}

// subtypes finds the types whose nodes are in the index: those of the definition, and theirs.
func (e *indexEntries) subtypes(ctx context.Context) error {
	declared, ok := e.has["declaringNodeTypes"]
	if !ok {
		return nil
	}
	e.types = map[string]bool{}
	for _, name := range declared {
		e.types[name] = true
		n, missing, err := e.t.records.NodeAt(ctx, e.t.top, systemName, nodeTypesName, name)
		if missing != "" {
			continue
		}
		var has map[string][]string
		if err == nil {
			has, err = texts(ctx, n, func(name string) bool { return name == "rep:primarySubtypes" || name == "rep:mixinSubtypes" })
		}
		if err != nil {
			return err
		}
		for _, sub := range slices.Concat(has["rep:primarySubtypes"], has["rep:mixinSubtypes"]) {
			e.types[sub] = true
		}
	}
	return nil
}

// compareIndexes finds a value for each entry, and an entry for each value of the nodes. What
// damage hides in an index was found before.
func compareIndexes(ctx context.Context, all []*indexEntries) error {
	for _, e := range all {
		for _, kind := range kinds {
			for _, s := range e.stores[kind] {
				if err := e.store(ctx, kind, s); err != nil {
					return err
				}
			}
		}
	}
	t, lost := all[0].t, 0
	nodes := exporter{t: t, above: map[segment.RecordID]bool{}, depth: -1, visible: true, tell: func(n told) (err error) {
		if n.lost == nil {
			err = compareNode(ctx, all, n)
		}
		if n.lost != nil || t.damage(err) != nil {
			lost++
		}
		return t.unlessDamage(err)
	}}
	err := nodes.node(ctx, all[0].top)
	for _, e := range all {
		if lost > 0 {
			e.x.State = "readable"
			e.x.note("%d nodes cannot be read, and are not compared: 'holdall oak check' names them", lost)
		}
	}
	return err
}

// store compares the entries of one kind with the nodes.
func (e *indexEntries) store(ctx context.Context, kind string, s spot) error {
	entries := exporter{t: e.own, above: map[segment.RecordID]bool{}, depth: -1, tell: func(n told) error {
		names, err := nodeNames(n.path)
		if n.lost != nil || err != nil || len(names) == s.depth {
			return nil
		}
		k, way := indexKey{kind: kind, key: names[s.depth]}, names[s.depth+1:]
		has, err := e.entry(ctx, n.id)
		if err != nil {
			return e.own.unlessDamage(err)
		}
		if one(has, matchName) == "true" && !e.lists(kind) {
			return e.leads(ctx, k, way)
		}
		if n := len(has[entryName]); n > 1 {
			e.x.add("duplicate", e.x.Path, k.key, "expected one node with this value, found %d: %.1000q", n, has[entryName][:min(n, 10)])
		}
		for _, to := range has[entryName] {
			if err := e.leads(ctx, k, strings.FieldsFunc(to, func(r rune) bool { return r == '/' })); err != nil {
				return err
			}
		}
		return nil
	}}
	return entries.node(ctx, s)
}

// lists reports whether the values of an index have lists of paths.
func (e *indexEntries) lists(kind string) bool { return e.unique && kind == indexName }

func (e *indexEntries) entry(ctx context.Context, id segment.RecordID) (map[string][]string, error) {
	n, err := e.own.records.Node(ctx, id)
	if err != nil {
		return nil, err
	}
	return texts(ctx, n, func(name string) bool { return name == matchName || name == entryName })
}

// leads checks the node that an entry leads to.
func (e *indexEntries) leads(ctx context.Context, k indexKey, way []string) error {
	e.x.Entries++
	at := slices.Concat(e.root, way)
	if k.kind != indexName && len(way) > 0 {
		k.property, way = way[len(way)-1], way[:len(way)-1]
	}
	n, missing, err := e.t.records.NodeAt(ctx, e.t.top, slices.Concat(e.root, way)...)
	var keys []indexKey
	if err == nil && missing == "" {
		keys, err = e.keys(ctx, n)
	}
	if err == nil && missing != "" {
		e.x.add("stale", joinNames(at), k.key, "an entry leads to it, but there is no such node")
	} else if err == nil && !(slices.Contains(keys, k) && e.included(k, way)) {
		e.x.add("stale", joinNames(at), k.key, "an entry leads to it, but it has no such value, or is not to be indexed")
	}
	return e.t.unlessDamage(err)
}

// compareNode finds the entries of a node. It returns damage of the node.
func compareNode(ctx context.Context, all []*indexEntries, t told) error {
	n, lost := all[0].t.records.Node(ctx, t.id)
	names, err := nodeNames(t.path)
	if err != nil || lost != nil {
		return lost
	}
	for _, e := range all {
		if e.pattern {
			continue
		}
		keys, err := e.keys(ctx, n)
		lost = cmp.Or(lost, err)
		for _, k := range keys {
			at := names
			if k.property != "" {
				at = append(slices.Clip(at), k.property)
			}
			if !e.included(k, names[len(e.root):]) {
				continue
			}
			ok, err := e.finds(ctx, k, at[len(e.root):])
			if err == nil && !ok {
				e.x.add("missing", joinNames(at), k.key, "the index has no entry for this value")
			}
			if e.own.unlessDamage(err) != nil {
				return err
			}
		}
	}
	return lost
}

// finds reports whether the index has an entry.
func (e *indexEntries) finds(ctx context.Context, k indexKey, way []string) (bool, error) {
	names := append([]string{k.key}, way...)
	if e.lists(k.kind) {
		names = names[:1]
	}
	for _, s := range e.stores[k.kind] {
		id, missing, err := e.own.records.Down(ctx, s.id, names...)
		var has map[string][]string
		if err == nil && missing == "" {
			has, err = e.entry(ctx, id)
		}
		if err != nil {
			return false, err
		}
		if !e.lists(k.kind) && one(has, matchName) == "true" || e.lists(k.kind) && slices.Contains(has[entryName], "/"+strings.Join(way, "/")) {
			return true, nil
		}
	}
	return false, nil
}

// An indexKey is a value of a node as an index has it.
type indexKey struct {
	kind, key string
	property  string // in an index of references
}

// keys returns the keys of a node.
func (e *indexEntries) keys(ctx context.Context, n segment.Node) (keys []indexKey, err error) {
	names := e.has["propertyNames"]
	if e.x.Type == "reference" {
		names = nil
		for _, p := range n.Template().Properties {
			if (p.Type == segment.Reference || p.Type == segment.WeakReference) && !strings.HasPrefix(p.Name, ":") {
				names = append(names, p.Name)
			}
		}
	}
	for _, name := range names {
		p, ok, err := n.Property(ctx, name)
		if err != nil {
			return nil, err
		}
		if !ok || p.Type == segment.Binary {
			continue
		}
		for v, err := range p.Values(ctx) {
			if err != nil {
				return nil, err
			}
			b := make([]byte, min(v.Len(), e.longest))
			if err := v.ReadAt(ctx, b, 0); err != nil {
				return nil, err
			}
			k := indexKey{kind: indexName, key: encodeKey(string(b))}
			if e.x.Type == "reference" {
				k = indexKey{referencesName, string(b), name}
			}
			if p.Type == segment.WeakReference && e.x.Type == "reference" {
				k.kind = weakName
			}
			if e.takes(string(b)) && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	if len(keys) == 0 || e.types == nil {
		return keys, nil
	}
	has, err := texts(ctx, n, func(name string) bool { return name == primaryTypeName || name == mixinTypesName })
	if !slices.ContainsFunc(slices.Concat(has[primaryTypeName], has[mixinTypesName]), func(name string) bool { return e.types[name] }) {
		keys = nil
	}
	return keys, err
}

// takes reports whether an index may have a value.
func (e *indexEntries) takes(v string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(v, prefix) }
	include, some := e.has["valueIncludedPrefixes"]
	if slices.ContainsFunc(include, begins) {
		return true
	}
	excluded := slices.ContainsFunc(e.has["valueExcludedPrefixes"], func(prefix string) bool { return begins(prefix) || strings.HasPrefix(prefix, v) })
	return !excluded && (!some || e.pattern)
}

// included reports whether an index has the nodes at a path below its root.
func (e *indexEntries) included(k indexKey, way []string) bool {
	at := "/" + strings.Join(way, "/") + "/"
	below := func(top string) bool { return strings.HasPrefix(at, strings.TrimSuffix(top, "/")+"/") }
	include := e.has["includedPaths"]
	return (len(include) == 0 || slices.ContainsFunc(include, below)) && !slices.ContainsFunc(e.has["excludedPaths"], below) &&
		!(k.kind == referencesName && below("/jcr:system/jcr:versionStorage"))
}

// mostKey is how many UTF-16 units of a value are in its key.
const mostKey = 100

// encodeKey returns the key of a value: its beginning in the encoding of forms of the web.
func encodeKey(v string) string {
	if v == "" {
		return ":"
	}
	if units := utf16.Encode([]rune(v)); len(units) > mostKey {
		half := ""
		if units = units[:mostKey]; units[mostKey-1]&0xfc00 == 0xd800 {
			units, half = units[:mostKey-1], "?" // as Java encodes the first half of a character
		}
		v = string(utf16.Decode(units)) + half
	}
	return strings.NewReplacer("%2A", "*", "~", "%7E").Replace(url.QueryEscape(v))
}
