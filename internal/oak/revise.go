package oak

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/newstore"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Revised is a revision that was written or, in a dry run, would be.
type Revised struct {
	Before   string   `json:"before"`             // the head until now
	Revision string   `json:"revision,omitempty"` // empty if nothing was written
	Tars     []string `json:"tars"`
	Segments int64    `json:"segments"`
	Bytes    int64    `json:"bytes"` // of tars
}

// A change is a change of a node and of everything below it.
type change struct {
	below map[string]*change // by the names of children
	gone  bool               // with all below it
	put   *segment.RecordID  // replaces the node

	properties []segment.NewProperty
	without    []string
	readable   bool // children that cannot be read are left out
}

// at returns the change of the node at the path names below.
func (c *change) at(names ...string) *change {
	for _, name := range names {
		next := c.below[name]
		if next == nil {
			if c.below == nil {
				c.below = map[string]*change{}
			}
			next = &change{}
			c.below[name] = next
		}
		c = next
	}
	return c
}

// A reviser writes one new revision of a store that no other program has open, as Oak would: its
// segments are in a tar of the next number, have the generation of the head, and refer to
// existing segments. The complete tar appears first, then a line is added to the journal. Until
// then the store is unchanged, whatever happens. The caller must hold the store's lock, and must
// have held it since before the store was opened.
type reviser struct {
	s     *Store
	head  repo.Head
	super segment.RecordID
	b     *segment.Builder
	out   *newstore.Writer // nil in a dry run
	from  *mover           // of what is copied from other segments, or nil
	said  Revised
}

// reviser refuses stores that Oak would not write to, or could not continue with. It refuses a journal
// that lacks a newer revision: what is written would count as newer, and nothing would tell of what is
// lost.
func (s *Store) reviser(ctx context.Context, dryRun bool) (*reviser, error) {
	v, newer, err := s.reviserOf(ctx, dryRun)
	if err == nil && newer != nil {
		err = refuse("revision %s was written later than that of the journal's newest line, %s: 'holdall oak recover-journal' goes on with the newest intact one, 'holdall oak check --fix-journal' with that of the journal", newer, v.head.Revision)
	}
	return v, err
}

// reviserOf returns a newer revision than the head that the journal lacks, or nil.
func (s *Store) reviserOf(ctx context.Context, dryRun bool) (_ *reviser, newer *repo.Revision, _ error) {
	r := s.r
	if r.single {
		return nil, nil, refuse("a new revision needs the whole store; a single tar has no journal")
	}
	switch p, err := r.manifest(ctx); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, refuse("no manifest: Oak does not open such a store; 'holdall repair' writes one")
	case err != nil:
		return nil, nil, err
	case p.Version != newestStore:
		return nil, nil, refuse("the manifest has version %d, for Oak 1.6, which cannot read newer segments: 'holdall oak compact' makes a new store", p.Version)
	}
	for _, t := range r.tars {
		if t.file == nil {
			return nil, nil, refuse("%s has no index: 'holdall repair' rebuilds it", t.Name)
		}
	}
	head, err := r.head(ctx)
	if err != nil {
		return nil, nil, err
	}
	if head.Rewound > 0 {
		return nil, nil, refuse("the newest %d revisions of the journal are lost, and a new one would follow an older one: 'holdall oak check' finds an intact one", head.Rewound)
	}
	_, e, _ := r.locate(head.Segment)
	g := e.Generation
	g.Compacted = false
	v := &reviser{s: s, head: head, super: head.Revision, said: Revised{Before: head.Revision.String(), Tars: []string{}}}
	if !dryRun {
		v.out = newstore.New(r.st, r.list.Dir, newstore.Options{First: r.list.Next()})
	}
	v.b = segment.NewBuilder(segment.BuilderOptions{Generation: g, Thrifty: true, Millis: func() int64 { return time.Now().UnixMilli() }}, v.write)
	newer, err = r.newer(ctx, head)
	return v, newer, err
}

// newestStore is the version of stores that are written to.
const newestStore = 2

func (v *reviser) write(ctx context.Context, f segment.Finished) error {
	if v.out == nil {
		v.said.Segments++
		v.said.Bytes += int64(len(f.Data))
		return nil
	}
	if v.from != nil {
		f = v.from.made(f)
	}
	return v.out.Write(ctx, f)
}

// commit writes the changed super root, and makes it the newest revision.
func (v *reviser) commit(ctx context.Context, c *change) (said Revised, err error) {
	r := v.s.r
	if v.out == nil {
		if _, err = v.apply(ctx, v.super, c, nil); err == nil {
			err = v.b.Flush(ctx)
		}
		return v.said, err
	}
	defer func() { err = errors.Join(err, v.out.Abort()) }()
	// This comes first, because nothing should be written if no line can be added.
	journal, err := storekit.Amend(ctx, r.st, r.list.Path(repo.Journal))
	if err != nil {
		return v.said, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	root, err := v.apply(ctx, v.super, c, nil)
	if err == nil {
		err = v.b.Flush(ctx)
	}
	if err != nil {
		return v.said, err
	}
	sum, err := v.out.Tars(ctx)
	v.said.Tars, v.said.Segments, v.said.Bytes = append(v.said.Tars, sum.Files...), sum.Segments, sum.Bytes
	if err == nil {
		err = appendRevision(ctx, journal, root, max(time.Now().UnixMilli(), v.head.Millis))
	}
	if err == nil {
		v.said.Revision = root.String()
		r.doubt.Store(nil) // an incomplete line before the new one hides nothing
	}
	return v.said, err
}

// appendRevision writes a line after the last one of the journal, which may be incomplete.
func appendRevision(ctx context.Context, journal store.Amendment, id segment.RecordID, millis int64) error {
	size := journal.Size()
	var line []byte
	if size > 0 {
		var last [1]byte
		if err := journal.ReadAt(ctx, last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append(line, '\n')
		}
	}
	if err := journal.WriteAt(ctx, repo.AppendLine(line, id, millis), size); err != nil {
		return err
	}
	return journal.Sync(ctx)
}

// apply rewrites a node with its change, after the nodes below it. names is the path from the
// super root.
func (v *reviser) apply(ctx context.Context, id segment.RecordID, c *change, names []string) (segment.RecordID, error) {
	if c.put != nil {
		return *c.put, nil
	}
	n, err := v.s.records.Node(ctx, id)
	if err != nil {
		return id, v.s.r.corrupt(err, superPath(names))
	}
	e := segment.Edit{Properties: c.properties, Without: c.without, Readable: c.readable}
	for _, name := range slices.Sorted(maps.Keys(c.below)) {
		sub := c.below[name]
		child := segment.Child{Name: name}
		if !sub.gone {
			way := append(names[:len(names):len(names)], name)
			var ok bool
			if child.Node, ok, err = n.Child(ctx, name); err != nil && sub.put == nil {
				return id, v.s.r.corrupt(err, superPath(way))
			}
			if !ok && sub.put == nil {
				return id, &fs.PathError{Op: "lookup", Path: superPath(way), Err: fs.ErrNotExist}
			}
			if child.Node, err = v.apply(ctx, child.Node, sub, way); err != nil {
				return id, err
			}
		}
		e.Children = append(e.Children, child)
	}
	is, err := v.b.Edit(ctx, n, e)
	return is, v.s.r.corrupt(err, superPath(names))
}

// superPath returns a path below the super root as it is shown: relative to the tree, if it is in
// the tree.
func superPath(names []string) string {
	if len(names) > 0 && names[0] == rootName {
		return cmp.Or(joinNames(names[1:]), "/")
	}
	return "/%super" + joinNames(names)
}
