package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/store/storekit"
)

// Last elements of the keys of Zarr metadata.
const (
	groupKey = ".zgroup"
	arrayKey = ".zarray"
	attrsKey = ".zattrs"
	metaKey  = ".zmetadata" // a summary of all others, which would be wrong in another hierarchy
)

// GraftOptions are options of Graft. Those also in holdall.AddOptions are described there.
type GraftOptions struct {
	Prefix  string
	Embed   bool
	Refer   string
	Refers  bool // the archive can refer to external content
	OnError func(name string, err error)
	Meter   *meter.Meter
}

// A graft is the addition of groups and arrays to a hierarchy.
type graft struct {
	m        format.Amender
	there    *content.Source // the archive before the change
	from     *content.Source
	own      string // address of the archive
	o        GraftOptions
	entries  []format.Entry  // of from, to be added
	added    map[string]bool // their keys in the archive
	arrays   map[string]bool // paths of added arrays in the archive
	groups   map[string]bool
	obsolete []string // keys in the archive to be removed: the replacement does not have them
	failed   int64
}

// Graft adds groups and arrays of a second hierarchy, with everything in them, to the archive that
// m amends; there shows that archive before the change. Without names it adds all objects. An
// existing array is replaced with all its chunks; a group gets the attributes of the added group,
// and keeps its members. Missing parent groups are added too. Graft returns how many keys could not
// be added.
func Graft(ctx context.Context, m format.Amender, there, from *content.Source, names []string, o GraftOptions) (failed int64, err error) {
	g := &graft{m: m, there: there, from: from, own: storekit.AddressOf(there.Store, there.Name), o: o,
		added: map[string]bool{}, arrays: map[string]bool{}, groups: map[string]bool{}}
	from.Certain()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return g.choose(ctx, names) }, g.fits, g.surround, g.clear, g.refer, g.copy,
		func(context.Context) error { return from.Vouched() }, // after all of its index was read
	} {
		if err := step(ctx); err != nil {
			return g.failed, err
		}
	}
	return g.failed, nil
}

// choose finds the keys to add.
func (g *graft) choose(ctx context.Context, names []string) error {
	if !g.is(ctx, g.from, groupKey) && !g.is(ctx, g.from, arrayKey) {
		return fmt.Errorf("%s: not a Zarr hierarchy, so it has no groups and arrays to add: %w", g.from.Name, errors.ErrUnsupported)
	}
	all := len(names) == 0
	for i, name := range names {
		name = strings.Trim(name, "/")
		if !g.is(ctx, g.from, zarrkey.Join(name, groupKey)) && !g.is(ctx, g.from, zarrkey.Join(name, arrayKey)) {
			return &fs.PathError{Op: "find", Path: names[i], Err: fs.ErrNotExist}
		}
		all = all || name == ""
	}
	for e, err := range g.from.Packed(ctx) {
		if err != nil {
			return err
		}
		wanted := all || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(e.Name, strings.Trim(name, "/")+"/") })
		if !wanted || !e.Kind.HasContent() || path.Base(e.Name) == metaKey {
			continue
		}
		if e.Fault != nil {
			if err := g.fail(e, g.from.Fault(e)); err != nil {
				return err
			}
			continue
		}
		g.add(e)
	}
	return nil
}

func (g *graft) is(ctx context.Context, s *content.Source, key string) bool {
	_, err := s.Reader.Lookup(ctx, key)
	return err == nil
}

// add marks an entry to be added.
func (g *graft) add(e format.Entry) {
	key := g.o.Prefix + e.Name
	g.added[key] = true
	g.entries = append(g.entries, e)
	switch dir, last := zarrkey.Split(key); last {
	case arrayKey:
		g.arrays[dir] = true
	case groupKey:
		g.groups[dir] = true
	}
}

// fits returns an error if an array would replace a group, or a group an array. It also finds the
// obsolete keys.
func (g *graft) fits(ctx context.Context) error {
	for e, err := range g.there.Packed(ctx) {
		if err != nil {
			return err
		}
		dir, last := zarrkey.Split(e.Name)
		switch {
		case last == groupKey && g.arrays[dir]:
			return fmt.Errorf("%q is a group in the archive and an array in the source: remove it first: %w", dir, fs.ErrExist)
		case last == arrayKey && g.groups[dir]:
			return fmt.Errorf("%q is an array in the archive and a group in the source: remove it first: %w", dir, fs.ErrExist)
		case !g.added[e.Name] && (last == attrsKey && g.groups[dir] || g.inArray(dir)):
			g.obsolete = append(g.obsolete, e.Name)
		}
	}
	return nil
}

func (g *graft) inArray(dir string) bool {
	for !g.arrays[dir] {
		if dir == "" {
			return false
		}
		dir, _ = zarrkey.Split(dir)
	}
	return true
}

// surround adds missing parent groups.
func (g *graft) surround(ctx context.Context) error {
	known := map[string]bool{}
	for _, dir := range slices.Concat(slices.Sorted(maps.Keys(g.groups)), slices.Sorted(maps.Keys(g.arrays))) {
		for dir != "" {
			if dir, _ = zarrkey.Split(dir); known[dir] {
				break
			}
			known[dir] = true
			switch {
			case g.groups[dir], g.is(ctx, g.there, zarrkey.Join(dir, groupKey)):
			case g.arrays[dir], g.is(ctx, g.there, zarrkey.Join(dir, arrayKey)):
				return fmt.Errorf("%q is an array, which cannot contain anything: %w", dir, fs.ErrExist)
			default:
				if err := g.group(ctx, dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// group adds a group with its metadata in from, or an empty one if from does not have it.
func (g *graft) group(ctx context.Context, dir string) error {
	if name, ok := strings.CutPrefix(dir, g.o.Prefix); ok && name != "" {
		bare := true
		for _, last := range []string{groupKey, attrsKey} {
			e, err := g.from.Reader.Lookup(ctx, zarrkey.Join(name, last))
			if err == nil && e.Fault == nil {
				g.add(e)
				bare = bare && last != groupKey
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if !bare {
			return nil
		}
	}
	const text = `{"zarr_format": 2}`
	g.groups[dir] = true
	return g.m.Put(ctx, format.Entry{Name: zarrkey.Join(dir, groupKey), Size: int64(len(text))}, strings.NewReader(text))
}

// clear removes the obsolete keys.
func (g *graft) clear(ctx context.Context) error {
	for _, key := range g.obsolete {
		if err := g.m.Remove(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// refer adds the entries that can be written as references, and leaves the others to copy.
func (g *graft) refer(ctx context.Context) error {
	if !g.o.Refers {
		return nil
	}
	copied := g.entries[:0]
	for _, e := range g.entries {
		s, ok := reference(ctx, g.from, e, g.own, g.o.Embed, g.o.Refer)
		if !ok {
			copied = append(copied, e)
			continue
		}
		e.Name = g.o.Prefix + e.Name
		if err := g.m.Put(ctx, e, s); err != nil {
			return err
		}
		g.o.Meter.Add(1, 0)
		g.o.Meter.Done(e.Name)
	}
	g.entries = copied
	return nil
}

func (g *graft) copy(ctx context.Context) error {
	return g.from.Sweep(ctx, pipe.All(g.entries), content.Compared, func(c content.Content, err error) error {
		e := c.Entry
		e.Name = g.o.Prefix + e.Name
		g.o.Meter.At(e.Name, e.Size)
		r := &source{Reader: c.Checked(), err: err}
		if err == nil {
			err = g.m.Put(ctx, e, r)
		}
		if err == nil {
			g.o.Meter.Add(1, e.Size)
			g.o.Meter.Done(e.Name)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if passing := content.Passing(e, err); passing != nil {
			return passing // an existing object must not be replaced by an incomplete one
		}
		if !entryFault(err, r) {
			return err
		}
		// An existing entry with this key belongs to the old array.
		if err := g.m.Remove(ctx, e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return g.fail(c.Entry, err)
	})
}

// fail reports a key that cannot be added.
func (g *graft) fail(e format.Entry, err error) error {
	g.failed++
	if g.o.OnError == nil {
		return content.ReadError(e, err)
	}
	g.o.OnError(g.o.Prefix+e.Name, err)
	return nil
}
