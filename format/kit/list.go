package kit

import (
	"context"
	"fmt"
	"hash/maphash"
	"io/fs"
	"iter"
	"math/bits"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/sorter"
)

// A Table is a list of entries in stored order. The entries need not exist as values: a format
// with millions of entries can keep columns and make an Entry on request.
type Table interface {
	Len() int
	Name(i int) string // must be cheap and not copy the name
	Entry(i int) format.Entry
}

// Entries is a Table that is a slice.
type Entries []format.Entry

func (t Entries) Len() int { return len(t) }

func (t Entries) Name(i int) string { return t[i].Name }

func (t Entries) Entry(i int) format.Entry { return t[i] }

// An Index implements Entries, Lookup and ReadDir of a [format.Reader] for formats with a flat list of
// entries. Directories that are implied by names are made up. Names are sorted at the first
// lookup, which then takes four bytes for each entry. Iterating over the entries needs no
// sorting.
//
// Names that are not valid paths, such as "../x" or "a//b", are in no directory. They are listed
// in the root with their whole name, so that nothing is hidden.
type Index struct {
	t      Table
	sort   func()
	byName []uint32    // sorted by name, so that everything below a directory is one run; set by sort
	ready  atomic.Bool // byName is set
	stale  func() map[uint32]bool
	nested func() bool // whether a name is below one that is not a directory
}

// NewIndex returns an Index of t, which must not change afterwards. If several entries have the
// same name, the last one counts.
func NewIndex(t Table) *Index {
	x := &Index{t: t}
	x.sort = sync.OnceFunc(func() {
		x.byName = sorted(t)
		x.ready.Store(true)
	})
	x.stale = sync.OnceValue(func() map[uint32]bool {
		if x.ready.Load() && len(x.byName) == t.Len() {
			return nil // each name has one row
		}
		return repeated(t)
	})
	x.nested = sync.OnceValue(x.anyBelowFile)
	return x
}

// inOrder returns the row from which names strictly ascend, so that none repeats.
func inOrder(t Table) int {
	i := t.Len() - 1
	if i <= 0 {
		return 0
	}
	for name := t.Name(i); i > 0; i-- {
		before := t.Name(i - 1)
		if before >= name {
			break
		}
		name = before
	}
	return i
}

// fewRows is how many rows in another order may precede those in the order of names. A format's
// own entries often come first.
const fewRows = 16

func sorted(t Table) []uint32 {
	byName := make([]uint32, t.Len())
	for i := range byName {
		byName[i] = uint32(i)
	}
	from := inOrder(t)
	if from == 0 {
		return byName
	}
	if from > fewRows {
		from = len(byName)
	}
	sorter.Order(byName[:from], func(row uint32) string { return t.Name(int(row)) })
	// The rest is in order: each of the first rows moves to its place in it, the last one first.
	for i := from - 1; i >= 0 && from < len(byName); i-- {
		row := byName[i]
		rest := byName[i+1:]
		name := t.Name(int(row))
		n := sort.Search(len(rest), func(k int) bool { return t.Name(int(rest[k])) >= name })
		copy(byName[i:], rest[:n])
		byName[i+n] = row
	}
	// Keep the last of equal names.
	keep, last := byName[:0], ""
	for _, e := range byName {
		name := t.Name(int(e))
		if len(keep) > 0 && name == last {
			keep = keep[:len(keep)-1]
		}
		keep, last = append(keep, e), name
	}
	return keep
}

// Repeated returns the rows whose names occur again in a later row.
func (x *Index) Repeated() map[uint32]bool { return x.stale() }

func repeated(t Table) map[uint32]bool {
	n := t.Len()
	from := inOrder(t)
	if from <= fewRows {
		stale := map[uint32]bool{}
		for i := range from {
			name := t.Name(i)
			k := from + sort.Search(n-from, func(k int) bool { return t.Name(from+k) >= name })
			again := k < n && t.Name(k) == name
			for k := i + 1; k < from && !again; k++ {
				again = t.Name(k) == name
			}
			if again {
				stale[uint32(i)] = true
			}
		}
		return stale
	}
	seed := maphash.MakeSeed()
	mask := uint64(1)<<bits.Len(uint(2*n)) - 1
	slots := make([]uint32, mask+1) // row+1 of the last of each name
	var stale map[uint32]bool
	for i := range n {
		name := t.Name(i)
		for h := maphash.String(seed, name); ; h++ {
			slot := &slots[h&mask]
			if *slot != 0 && t.Name(int(*slot-1)) != name {
				continue
			}
			if *slot != 0 {
				if stale == nil {
					stale = map[uint32]bool{}
				}
				stale[*slot-1] = true
			}
			*slot = uint32(i + 1)
			break
		}
	}
	return stale
}

// Can returns the abilities of an Index.
func (x *Index) Can() format.Abilities {
	return format.Abilities{EntriesFrom: x.EntriesFrom, ReadDirFrom: x.ReadDirFrom}
}

// Len returns the number of entries, without directories that are only implied.
func (x *Index) Len() int { return x.t.Len() - len(x.stale()) }

// Entries yields the entries in stored order, without those that a later entry of the same name
// replaces.
func (x *Index) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		stale := x.stale()
		for i := range x.t.Len() {
			if i&0xfff == 0 && ctx.Err() != nil {
				yield(format.Entry{}, context.Cause(ctx))
				return
			}
			if len(stale) > 0 && stale[uint32(i)] {
				continue
			}
			if !yield(x.t.Entry(i), nil) {
				return
			}
		}
	}
}

// EntriesFrom yields the entries in stored order, starting with the one called name.
func (x *Index) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		row, ok := x.Find(name)
		if !ok {
			yield(format.Entry{}, &fs.PathError{Op: "entries", Path: name, Err: fs.ErrNotExist})
			return
		}
		for n, i := 0, row; i < x.t.Len(); n, i = n+1, i+1 {
			if n&0xfff == 0xfff && ctx.Err() != nil {
				yield(format.Entry{}, context.Cause(ctx))
				return
			}
			// If several rows have the same name, one of them counts.
			if k, _ := x.Find(x.t.Name(i)); k == i && !yield(x.t.Entry(i), nil) {
				return
			}
		}
	}
}

// from returns the first position in byName whose name is not less than s.
func (x *Index) from(s string) int {
	x.sort()
	return sort.Search(len(x.byName), func(i int) bool { return x.nameAt(i) >= s })
}

func (x *Index) nameAt(i int) string { return x.t.Name(int(x.byName[i])) }

// Row returns the entry in a row of the table.
func (x *Index) Row(i int) format.Entry { return x.t.Entry(i) }

// Find returns the row of the table with the entry called name.
func (x *Index) Find(name string) (row int, ok bool) {
	i, ok := x.find(name)
	if !ok {
		return 0, false
	}
	return int(x.byName[i]), true
}

func (x *Index) find(name string) (int, bool) {
	i := x.from(name)
	return i, i < len(x.byName) && x.nameAt(i) == name
}

// Lookup returns the entry called name, which may be a directory that is only implied by other
// names.
func (x *Index) Lookup(_ context.Context, name string) (format.Entry, error) {
	if i, ok := x.find(name); ok {
		return x.t.Entry(int(x.byName[i])), nil
	}
	if name == "." || naming.ValidPath(name) && x.isDir(name) {
		return format.Entry{Name: name, Kind: format.Dir}, nil
	}
	return format.Entry{}, NoEntry(name)
}

// NoEntry returns the error of Lookup for a name that an archive does not have.
func NoEntry(name string) error {
	return &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

// isDir reports whether there is a valid path below name.
func (x *Index) isDir(name string) bool {
	prefix := name + "/"
	for i := x.from(prefix); i < len(x.byName) && strings.HasPrefix(x.nameAt(i), prefix); i++ {
		if naming.ValidPath(x.nameAt(i)) {
			return true
		}
	}
	return false
}

// FileAbove returns the name of a parent of name that is not a directory, or "" if there is none.
func (x *Index) FileAbove(name string) string {
	if !x.nested() {
		return ""
	}
	for i := len(name) - 1; i > 0; i-- {
		if name[i] != '/' {
			continue
		}
		if k, ok := x.find(name[:i]); ok && x.t.Entry(int(x.byName[k])).Kind != format.Dir {
			return name[:i]
		}
	}
	return ""
}

// anyBelowFile reports whether FileAbove is something for any entry.
func (x *Index) anyBelowFile() bool {
	x.sort()
	type above struct {
		name string
		row  uint32
	}
	var begins []above // the entries whose names the current one begins with
	for i, row := range x.byName {
		name := x.nameAt(i)
		for len(begins) > 0 && !strings.HasPrefix(name, begins[len(begins)-1].name) {
			begins = begins[:len(begins)-1]
		}
		for _, a := range begins {
			if a.name != "" && name[len(a.name)] == '/' && x.t.Entry(int(a.row)).Kind != format.Dir {
				return true
			}
		}
		begins = append(begins, above{name, row})
	}
	return false
}

// NameProblem returns a warning if the name of the entry in a row cannot be extracted as it is,
// or counts for less than another. The caller must set the problem's Volume. The entry can be
// read nevertheless.
func (x *Index) NameProblem(row int, e format.Entry) (p format.Problem, found bool) {
	p = format.Problem{Severity: format.Warning, Off: -1, Entry: e.Name, HasEntry: true}
	if class := naming.Fault(e.Name); class != "" {
		p.Code, p.Class, p.Message = format.UnsafePath, class, "the name is not extracted: "+naming.Advice(class)
		if e.Name != "" && e.Name[0] == '/' && class == "name-absolute" {
			p.Message = "the name is absolute: extracted without the leading slash"
		}
	} else if e.Kind != format.Dir && x.stale()[uint32(row)] {
		p.Code, p.Message = format.Duplicate, "duplicate name: the last entry counts"
	} else if above := x.FileAbove(e.Name); above != "" {
		p.Code, p.Class, p.Message = format.UnsafePath, "name-conflict", fmt.Sprintf("%q is not a directory: the entry stored first is extracted", above)
	}
	return p, p.Message != ""
}

// ReadDir yields the entries directly in dir, in byte order of their whole names. It skips
// subdirectories, so its cost depends only on what it yields.
func (x *Index) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return x.readDir(ctx, dir, "", false)
}

// ReadDirFrom is like ReadDir, from a given position; see Abilities.ReadDirFrom.
func (x *Index) ReadDirFrom(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	return x.readDir(ctx, dir, from, true)
}

// readDir yields the entries in dir from a position. If both is true, a file that is also a
// parent of other names is yielded as a directory too.
func (x *Index) readDir(ctx context.Context, dir, from string, both bool) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		prefix := ""
		if dir != "." {
			prefix = dir + "/"
			if e, err := x.Lookup(ctx, dir); err != nil {
				yield(format.Entry{}, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist})
				return
			} else if e.Kind != format.Dir && !x.isDir(dir) {
				yield(format.Entry{}, &fs.PathError{Op: "readdir", Path: dir, Err: syscall.ENOTDIR})
				return
			}
		}
		for i := x.from(prefix + from); i < len(x.byName); {
			name := x.nameAt(i)
			rest, ok := strings.CutPrefix(name, prefix)
			if !ok {
				return
			}
			first, _, deeper := strings.Cut(rest, "/")
			if !naming.ValidPath(name) && (!deeper || !naming.ValidPath(prefix+first) || !x.isDir(prefix+first)) {
				if dir == "." && !yield(x.t.Entry(int(x.byName[i])), nil) {
					return
				}
				i++
				continue
			}
			if !deeper {
				if name != dir && !yield(x.t.Entry(int(x.byName[i])), nil) {
					return
				}
				i++
				continue
			}
			sub := prefix + first
			k, own := x.find(sub)
			if own && both {
				own = x.t.Entry(int(x.byName[k])).Kind == format.Dir
			}
			if !own && first+"/" >= from && !yield(format.Entry{Name: sub, Kind: format.Dir}, nil) {
				return
			}
			// '0' follows '/', so this is the first name after all names that begin with sub/.
			// Names that are not valid paths may be among them; they are listed in the root.
			next := x.from(sub + "0")
			if dir == "." {
				for ; i < next; i++ {
					if n := x.nameAt(i); !naming.ValidPath(n) && !yield(x.t.Entry(int(x.byName[i])), nil) {
						return
					}
				}
			}
			i = next
		}
	}
}
