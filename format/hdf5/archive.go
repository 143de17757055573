package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// archive is an open file whose objects are known.
type archive struct {
	obj     store.Object
	name    string
	f       *h5.File
	size    int64
	address string
	limits  format.Limits

	root   *h5.Object
	byAddr map[int64]*h5.Object
	scales *scales    // nil if there are none
	index  kit.Ranges // what was read of them, without the superblock
	notes  []format.Problem
}

func openArchive(ctx context.Context, st store.Store, name string, o format.OpenOptions) (*archive, error) {
	obj, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	a := &archive{obj: obj, name: name, address: cmp.Or(storekit.AddressOf(st, name), name), limits: o.Limits.OrDefault(), byAddr: map[int64]*h5.Object{}}
	if a.f, err = h5.Open(ctx, obj); err != nil {
		obj.Close()
		return nil, a.corrupt("", err)
	}
	a.size, a.f.Outside = a.f.Size(), o.Outside
	return a, nil
}

func (a *archive) close() error { return a.obj.Close() }

// objectCost is the approximate memory of an object without its attributes and links.
const objectCost = 512

// listedChunks is the number of chunks that are found together with their arrays.
const listedChunks = 1 << 20

// load reads all objects, and where the chunks of arrays are that have at most so many, or of all if most is 0.
func (a *archive) load(ctx context.Context, most int64) error {
	room := a.limits.Index
	seen := func(r h5.Region) {
		if useOf(r) == format.IndexData {
			a.index.Add(r.Off, min(r.Off+r.Len, a.f.Size()))
		}
	}
	defer a.index.Join()
	for o, err := range a.f.Walk(ctx, h5.WalkOptions{Values: true, Chunks: listedChunks, Most: most, Elements: smallElements, Seen: seen}) {
		if err != nil {
			return err
		}
		if a.root == nil {
			a.root = o
		}
		a.byAddr[o.Addr] = o
		for _, err := range parts(o.Err) {
			if o.Kind != h5.Dataset || err != o.Readable() { // the dataset's own entry reports it
				a.note(o, err)
			}
		}
		room -= objectCost
		for i := range o.Attributes {
			at := &o.Attributes[i]
			room -= int64(len(at.Name)+2*len(at.Data)) + 64
			a.note(o, at.Err)
		}
		for _, l := range o.Links {
			room -= int64(len(l.Name)+len(l.Target)) + 64
		}
		if room < 0 {
			return a.corrupt("", &h5.Error{File: a.name, What: "objects", Off: o.Addr, Err: fmt.Errorf("they take more than %d bytes: %w", a.limits.Index, h5.ErrLimit)})
		}
	}
	return nil
}

// note records what is wrong with an object.
func (a *archive) note(o *h5.Object, err error) {
	for _, err := range parts(err) {
		a.notes = append(a.notes, a.problem(o.Path, err))
	}
}

// parts returns the errors that were joined.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if e, ok := err.(interface{ Unwrap() []error }); ok {
		if _, ours := err.(*h5.Error); !ours && !isKind(err) {
			var all []error
			for _, err := range e.Unwrap() {
				all = append(all, parts(err)...)
			}
			return all
		}
	}
	return []error{err}
}

// isKind reports whether err wraps kinds of errors and not several errors.
func isKind(err error) bool {
	return slices.ContainsFunc(err.(interface{ Unwrap() []error }).Unwrap(), func(err error) bool {
		return err == h5.ErrCorrupt || err == h5.ErrLimit || err == errors.ErrUnsupported
	})
}

// problem converts an error about an object to a problem.
func (a *archive) problem(of string, err error) format.Problem {
	p := format.Problem{Code: codeOf(err), Severity: format.Error, Volume: a.name, Off: -1, Entry: strings.TrimPrefix(of, "/"), HasEntry: of != "", Message: err.Error()}
	if e, ok := errors.AsType[*h5.Error](err); ok {
		if p.Off = e.Off; p.Off >= a.size {
			p.Off = -1
		}
		p.Message = e.What + ": " + e.Err.Error()
	}
	if p.Code == format.Unsupported {
		p.Severity = format.Warning
	}
	return p
}

// fault returns the problem that prevents reading an entry.
func (a *archive) fault(name string, err error) *format.Problem {
	p := a.problem(name, err)
	p.Severity = format.Error
	return &p
}

func codeOf(err error) format.Code {
	switch {
	case errors.Is(err, h5.ErrChecksum):
		return format.BadChecksum
	case errors.Is(err, h5.ErrLimit):
		return format.Limit
	case errors.Is(err, errors.ErrUnsupported):
		return format.Unsupported
	case errors.Is(err, h5.ErrNotHDF5):
		return format.BadMagic
	}
	return format.BadData
}

// corrupt converts an error of package hdf5 to one of package format, about an entry if of is not
// empty. Other errors are unchanged.
func (a *archive) corrupt(of string, err error) error {
	if e, ok := errors.AsType[*h5.Error](err); ok {
		p := a.problem(of, e)
		p.Severity = format.Error
		return &format.CorruptError{Format: "hdf5", Problem: p, Err: err}
	}
	return err
}

// visit is a position in the tree: an object, or a link that leads to none in this file.
type visit struct {
	path   string // without a leading slash; "" is the root
	object *h5.Object
	link   *h5.Link // soft, external, or of an unknown kind
}

// tree yields all paths: a group before its contents, sorted by name. An object with several hard
// links is yielded several times, but not within itself: a link to a group above is yielded as a soft link.
func (a *archive) tree() iter.Seq2[visit, error] {
	return func(yield func(visit, error) bool) {
		room := a.limits.Index
		above := map[int64]string{} // paths
		var walk func(v visit) bool
		walk = func(v visit) bool {
			if room -= int64(len(v.path)) + 64; room < 0 {
				yield(v, a.corrupt("", &h5.Error{File: a.name, What: "paths", Off: -1, Err: fmt.Errorf("they take more than %d bytes: %w", a.limits.Index, h5.ErrLimit)}))
				return false
			}
			if !yield(v, nil) {
				return false
			}
			if v.object == nil || v.object.Kind != h5.Group {
				return true
			}
			above[v.object.Addr] = v.path
			defer delete(above, v.object.Addr)
			for i := range v.object.Links {
				l := &v.object.Links[i]
				in := visit{path: path.Join(v.path, l.Name)}
				switch {
				case l.Name == "" || l.Name == "." || l.Name == ".." || strings.Contains(l.Name, "/"):
					continue
				case l.Kind != h5.HardLink:
					in.link = l
				default:
					if at, again := above[l.Addr]; again {
						in.link = &h5.Link{Name: l.Name, Kind: h5.SoftLink, Target: "/" + at}
						break
					}
					if in.object = a.byAddr[l.Addr]; in.object == nil {
						continue
					}
				}
				if !walk(in) {
					return false
				}
			}
			return true
		}
		if a.root != nil {
			walk(visit{object: a.root})
		}
	}
}

// useOf returns the use of a structure of the file.
func useOf(r h5.Region) format.Use {
	if r.What == "superblock" {
		return format.Header
	}
	return format.IndexData
}

// regions yields the uses of all bytes that are not in the extents of entries, which are in used.
func (a *archive) regions(ctx context.Context, used *kit.Ranges) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		var all []format.Region
		add := func(use format.Use, label string, off, n int64) {
			if off >= 0 && off < a.f.Size() && n > 0 {
				all = append(all, format.Region{Object: a.name, Off: off, Len: min(n, a.f.Size()-off), Use: use, Label: label})
			}
		}
		seen := func(r h5.Region) { add(useOf(r), r.What, r.Off, r.Len) }
		var raw kit.Ranges // of datasets and chunks
		for o, err := range a.f.Walk(ctx, h5.WalkOptions{Values: true, Chunks: listedChunks, Elements: smallElements, Seen: seen}) {
			if err != nil {
				yield(format.Region{}, err)
				return
			}
			switch {
			case o.Kind != h5.Dataset:
			case o.Layout.Class == h5.Contiguous && o.Layout.Addr > 0:
				raw.Add(o.Layout.Addr, o.Layout.Addr+min(max(o.Layout.Size, 0), a.f.Size()))
			case o.Layout.Class == h5.Chunked:
				for c, err := range o.Chunks(ctx) {
					if err == nil {
						raw.Add(c.Addr, c.Addr+c.Size)
					} else if ctx.Err() != nil {
						yield(format.Region{}, err)
						return
					}
				}
			}
		}
		raw.Join()
		for _, r := range raw.All {
			add(format.Content, "elements of arrays", r.From, r.To-r.From)
		}
		if base := a.f.Base; base > 0 {
			add(format.Header, "user block", 0, base)
		}
		slices.SortFunc(all, func(x, y format.Region) int { return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(y.Len, x.Len)) })
		// Each byte is yielded once: bytes of entries belong to them, and other bytes belong to
		// the first region that claims them.
		at := int64(0)
		part := func(r format.Region, from, to int64) bool {
			for _, gap := range used.Gaps(from, to) {
				r.Off, r.Len = gap.From, gap.To-gap.From
				if !yield(r, nil) {
					return false
				}
			}
			return true
		}
		free := format.Region{Object: a.name, Use: format.Unknown, Label: "unreferenced"}
		for _, r := range all {
			if r.Off > at && !part(free, at, r.Off) {
				return
			}
			if end := r.Off + r.Len; end > at {
				if !part(r, max(at, r.Off), end) {
					return
				}
				at = end
			}
		}
		if at < a.f.Size() {
			part(free, at, a.f.Size())
		}
	}
}

// doubt returns the first problem with damage or, if there is none, with something that is not
// shown.
func (a *archive) doubt() (p *format.Problem) {
	for i := range a.notes {
		if q := &a.notes[i]; p == nil || q.Severity > p.Severity {
			p = q
		}
	}
	return p
}

func (a *archive) about() format.About {
	sb := a.f.Superblock
	about := format.About{Version: fmt.Sprintf("superblock %d", sb.Version), Volumes: []string{a.name}, Notes: a.notes}
	for _, r := range a.index.All {
		about.IndexBytes += r.To - r.From
	}
	groups, datasets := 0, 0
	for _, o := range a.byAddr {
		switch o.Kind {
		case h5.Group:
			groups++
		case h5.Dataset:
			datasets++
		}
	}
	about.Facts = append(about.Facts, [2]string{"objects", counted(groups, "group") + ", " + counted(datasets, "dataset")})
	if sb.Base > 0 {
		about.Facts = append(about.Facts, [2]string{"user block", fmt.Sprintf("%d bytes", sb.Base)})
	}
	return about
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
