package holdall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/store"
)

// An Amendment is an archive open for changes in place. No change takes effect before Commit
// returns nil. If the program is killed, the archive is left as it was before Commit or as it is
// after it. Others can read the archive in the meantime. A second Amendment of the same archive
// is refused with a [*store.LockedError].
//
// An Amendment must not be used by several goroutines at once.
type Amendment struct {
	format.Amender
	f    *format.Format
	st   store.Store
	name string
	o    OpenOptions
	keep *parity.Keeper // nil if there is no parity
	odd  error          // why existing parity cannot be used
	had  format.Keeps   // attributes of what was added

	unmatched []string // patterns of what was added
	again     []string // inputs
}

// Amend opens the archive at an address for changes. The entries that can be changed are those of
// OpenOptions.View. If archives of the format or objects of the store cannot be changed in place,
// the error wraps [errors.ErrUnsupported]. The caller must close the Amendment.
func Amend(ctx context.Context, address string, o OpenOptions) (*Amendment, error) {
	st, name, err := at(ctx, o.Store, address)
	if err == nil {
		err = o.untrusting(address)
	}
	if err != nil {
		return nil, err
	}
	a, err := open(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	f := a.Format()
	if err := a.Close(); err != nil {
		return nil, err
	}
	if f.Amend == nil {
		return nil, fmt.Errorf("%s: %w", f.Name, pack.ErrImmutable)
	}
	if st.Can().Over != nil {
		return nil, fmt.Errorf("it is encrypted: %w", pack.ErrImmutable)
	}
	keep, odd := parity.Keep(ctx, st, name)
	below := st
	if keep != nil {
		below = keep.Store()
	}
	m, err := f.Amend(ctx, below, name, o.inner())
	if err != nil {
		if keep != nil {
			keep.Close()
		}
		return nil, err
	}
	return &Amendment{Amender: m, f: f, st: st, name: name, o: o, keep: keep, odd: odd}, nil
}

// Commit makes the changes take effect and updates the parity beside the archive. If only the
// parity cannot be updated, the changes are committed and a note in the result says that the
// parity is out of date.
func (m *Amendment) Commit(ctx context.Context) (format.Amended, error) {
	sum, err := m.Amender.Commit(ctx)
	sum.Lost, sum.Unmatched, sum.Again = pack.Lost(m.had&^m.f.Keeps), m.unmatched, m.again
	if err != nil || m.keep == nil && m.odd == nil {
		return sum, err
	}
	note, err := "", m.odd
	if err == nil {
		note, err = m.keep.Update(ctx)
	}
	if err != nil {
		note = fmt.Sprintf("the archive was changed, but its parity was not updated: %v", err)
	}
	if note != "" {
		sum.Notes = append(sum.Notes, note)
	}
	return sum, nil
}

// Close closes the archive and discards all changes that were not committed.
func (m *Amendment) Close() error {
	err := m.Amender.Close()
	if m.keep != nil {
		err = errors.Join(err, m.keep.Close())
	}
	return err
}

// AddOptions are the options of [Amendment.Add] and [Amendment.AddFrom].
type AddOptions struct {
	// Include, Exclude and Follow apply to local files, as in PackOptions.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	Follow  bool     `json:"follow,omitempty"`
	// Prefix is prepended to every name.
	Prefix string `json:"prefix,omitempty"`
	// Embed and Refer apply to entries of another archive, as in PackOptions.
	Embed bool   `json:"embed,omitempty"`
	Refer string `json:"refer,omitempty"`
	// OnError is called for each file that could not be added; the remaining files are still
	// added. If OnError is nil, the first failure ends the call.
	OnError func(name string, err error) `json:"-"`
	Meter   *Meter                       `json:"-"`
}

// Add puts local files and folders into the archive, under the names that [Pack] would give them.
// It returns the number of files that could not be added.
func (m *Amendment) Add(ctx context.Context, paths []string, o AddOptions) (failed int64, err error) {
	roots, again, err := tree.Roots(paths, false)
	if err != nil {
		return 0, err
	}
	names, err := glob.NewFilter(o.Include, o.Exclude)
	if err != nil {
		return 0, err
	}
	own := func(string) bool { return false }
	if owns := m.st.Can().Owns; owns != nil {
		own = func(path string) bool { return owns(path, m.name) }
	}
	for n := range tree.Walk(ctx, roots, tree.Options{Names: names, Follow: o.Follow, Stat: true}) {
		err := n.Err
		switch {
		case err != nil:
		case n.Type.IsRegular() && own(n.Path) && n.Root:
			err = kit.Refuse(n.Name, "an archive cannot be added to itself")
		case n.Type.IsRegular() && own(n.Path) || n.Type.IsDir() && !n.Bare:
			continue
		default:
			err = m.addNode(ctx, n, o)
		}
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		if err != nil {
			failed++
			if o.OnError == nil {
				return failed, fmt.Errorf("%s: %w", n.Name, err)
			}
			o.OnError(o.Prefix+n.Name, err)
		}
	}
	if ctx.Err() != nil {
		return failed, context.Cause(ctx)
	}
	m.unmatched, m.again = append(m.unmatched, names.Unmatched()...), append(m.again, again...)
	return failed, nil
}

// AddFrom adds groups and arrays of from, with everything in them, to an archive that was opened
// with the view "zarr". The archive from must be opened with that view too, or be a Zarr
// hierarchy. If names is empty, AddFrom adds everything.
//
// An existing array is replaced with all its chunks. An existing group gets the attributes of the
// group in from and keeps its contents. Changes made through m since the last Commit are not
// taken into account. AddFrom returns the number of keys that could not be added.
func (m *Amendment) AddFrom(ctx context.Context, from *Archive, names []string, o AddOptions) (failed int64, err error) {
	if m.o.View != zarrView {
		return 0, fmt.Errorf("adding groups and arrays needs the view %s: %w", zarrView, errors.ErrUnsupported)
	}
	there, err := open(ctx, m.st, m.name, m.o)
	if err != nil {
		return 0, err
	}
	defer there.Close()
	return pack.Graft(ctx, m.Amender, there.src, from.src, names,
		pack.GraftOptions{Prefix: o.Prefix, Embed: o.Embed, Refer: o.Refer, Refers: m.f.Refers, OnError: o.OnError, Meter: o.Meter})
}

// zarrView is the view whose entries are the keys of a Zarr hierarchy.
const zarrView = "zarr"

func (m *Amendment) addNode(ctx context.Context, n tree.Node, o AddOptions) error {
	e, ok := pack.EntryOf(n)
	if !ok {
		return tree.ErrSpecial
	}
	if e.Name = o.Prefix + n.Name; e.Kind != format.File {
		return m.Put(ctx, e, strings.NewReader(""))
	}
	info, _, file, err := tree.Load(n.Path, nil, o.Follow || n.Root)
	if err != nil {
		return err
	}
	defer file.Close()
	e.Size, e.Mode, e.HasMode, e.ModTime = info.Size, info.Mode, true, info.ModTime
	m.had |= pack.AttributesOf(info)
	o.Meter.At(e.Name, e.Size)
	if err := m.Put(ctx, e, file); err != nil {
		return err
	}
	o.Meter.Add(1, e.Size)
	o.Meter.Done(e.Name)
	return nil
}
