package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Kind is the kind of an object.
type Kind uint8

// Kinds of objects.
const (
	Unknown Kind = iota // its header could not be read
	Group
	Dataset
	NamedType
)

var kindNames = [...]string{"unknown", "group", "dataset", "datatype"}

func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// An Object is a group, a dataset, or a named datatype. Its methods may be called from several
// goroutines at once.
type Object struct {
	// Path is the path by which the object was found; "/" is the root.
	Path string
	// Addr is the address of the object's header. Hard links to the same object have the same
	// address.
	Addr int64
	Kind Kind

	Attributes []Attribute // sorted by name
	Links      []Link      // of a group, sorted by name

	Type    *Datatype // of a dataset's elements, or the datatype itself
	Space   Space     // Space and the following fields describe a dataset
	Layout  Layout
	Filters []Filter
	Fill    []byte // the element for data that was never written; nil means zeros

	// Err says what of the object could not be read. The rest is set.
	Err error

	f        *File
	table    table // of a group, as the link to it says
	dataErr  error // why the elements of a dataset cannot be read
	indexed  bool  // chunks and indexErr are set
	chunks   []Chunk
	indexErr error
	ready    atomic.Pointer[Elements] // those that were read ahead
}

// A Region is a structure of a file, such as "object header" or "B-tree node".
type Region struct {
	What     string
	Off, Len int64
}

// WalkOptions are options of [File.Walk].
type WalkOptions struct {
	// Values sets Attribute.Values.
	Values bool
	// Chunks is the number of chunks, of all datasets that are read at the same time, whose
	// places are read as well; Object.Chunks then yields them without requests. A dataset that
	// may have more chunks than remain is not included.
	Chunks int64
	// Most is the largest number of chunks that one of these datasets may have; 0 means that it does
	// not matter.
	Most int64
	// Elements is the number of elements below which those of a dataset are read as well, if each
	// request takes time; [File.Elements] then returns them without requests.
	Elements int64
	// Seen is called for each structure that is read, in no particular order. Some structures are
	// reported several times. It is called from one goroutine at a time.
	Seen func(Region)
}

const objectsAtOnce = 1024

// Walk yields all objects that hard links lead to, each once, level by level from the root.
// Objects of a level are in the order in which they are stored. Damaged objects have an Err. An
// error of the iterator comes from the store, and ends the walk.
func (f *File) Walk(ctx context.Context, opt WalkOptions) iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		if opt.Seen != nil {
			for _, r := range f.opened {
				opt.Seen(r)
			}
		}
		l := &loader{f: f, opt: opt, seen: map[int64]bool{f.Root: true}}
		if f.far {
			l.ahead = map[int64]*Object{}
			l.scanCached()
		}
		for level := []found{{"/", f.Root}}; len(level) > 0; {
			// Adjacent objects are read together.
			slices.SortStableFunc(level, func(a, b found) int { return cmp.Compare(a.addr, b.addr) })
			var below []found
			for batch := range slices.Chunk(level, objectsAtOnce) {
				objects, err := l.load(ctx, batch)
				if err != nil {
					yield(nil, err)
					return
				}
				for i, o := range objects {
					for _, link := range o.Links {
						if link.Kind == HardLink && !l.seen[link.Addr] {
							l.seen[link.Addr] = true
							below = append(below, found{join(o.Path, link.Name), link.Addr})
						}
					}
					if !yield(o, nil) {
						return
					}
					objects[i] = nil
				}
			}
			level = below
		}
	}
}

// found is an object that a link leads to.
type found struct {
	path string
	addr int64
}

// loader reads objects, and some of those that their links lead to: so a file takes as many
// rounds of requests as its longest chain of structures, and not the sum of those of all levels.
type loader struct {
	f    *File
	opt  WalkOptions
	seen map[int64]bool // objects that need not be read ahead

	mu     sync.Mutex
	chunks int64             // how many more chunks may be found
	ahead  map[int64]*Object // objects that were read before it was their turn
	guesses
}

// load returns the objects of a batch.
func (l *loader) load(ctx context.Context, batch []found) ([]*Object, error) {
	w := l.f.wave(ctx)
	w.seen = l.opt.Seen
	if l.ahead != nil {
		w.loader = l
	}
	l.chunks = l.opt.Chunks
	objects := make([]*Object, len(batch))
	var tasks []func()
	for i, x := range batch {
		o := l.ahead[x.addr]
		delete(l.ahead, x.addr)
		if o == nil {
			o = &Object{Addr: x.addr}
			if x.addr == l.f.Root {
				o.table = l.f.table
			}
			tasks = append(tasks, func() { w.object(o, l) })
		}
		o.Path, objects[i] = x.path, o
	}
	w.together(tasks...)
	return objects, w.failed
}

// below reads objects that links lead to, unless too many are waiting for their turn. It drops what
// the links say of them.
func (l *loader) below(w *wave, links []Link) {
	var tasks []func()
	l.mu.Lock()
	for i := range links {
		link := links[i]
		links[i].table = table{}
		if l.ahead != nil && len(l.ahead) < objectsAtOnce && link.Kind == HardLink && !l.seen[link.Addr] && l.ahead[link.Addr] == nil {
			o := &Object{Addr: link.Addr, table: link.table}
			l.ahead[o.Addr] = o
			tasks = append(tasks, func() { w.object(o, l) })
		}
	}
	l.mu.Unlock()
	w.together(tasks...)
}

// data reads the index of a dataset, and its elements, as far as that was requested.
func (l *loader) data(w *wave, o *Object) {
	n, ok := multiply(o.count()...)
	ok = ok && (l.opt.Most == 0 || n <= l.opt.Most)
	l.mu.Lock()
	if ok = ok && n <= l.chunks; ok {
		l.chunks -= n
	}
	l.mu.Unlock()
	if ok {
		o.readIndex(w)
	}
	if n := o.Space.Elements(); ok && l.f.far && n >= 0 && n < l.opt.Elements && o.Bytes() <= mostReady && o.inFile() {
		e := &Elements{}
		if e.Data, e.Err = o.whole(w); e.Err == nil && o.Type.variable {
			d := decoder{w: w}
			d.prepare(o.Type, e.Data, 0) // an error occurs again
		}
		o.ready.Store(e)
	}
}

const mostReady = 64 << 10 // size of a dataset whose elements are read together with it

// inFile reports whether the elements of a dataset are in this file.
func (o *Object) inFile() bool {
	return o.Kind == Dataset && o.dataErr == nil && o.Layout.Class != External && o.Layout.Class != Virtual
}

// count returns the shape of the grid of chunks, or nil if there is none.
func (o *Object) count() []int64 {
	if _, ok := o.wholeBox(); !ok {
		return []int64{0}
	}
	return o.grid().count
}

func (o *Object) readIndex(w *wave) {
	box, ok := o.wholeBox()
	if o.indexed = true; !ok {
		return
	}
	err := o.walkChunks(w, box, func(c Chunk) error {
		o.chunks = append(o.chunks, c)
		return nil
	}, func(err error) error {
		o.indexErr = errors.Join(o.indexErr, err)
		return nil
	})
	o.indexErr = cmp.Or(o.indexErr, err)
}

// object reads an object, and what l wants of it.
func (w *wave) object(o *Object, l *loader) {
	o.f = w.f
	var h *header
	var err, linkErr, attrErr error
	// What the link says of a group is probably right, and saves a round.
	early := w.f.far && w.seen == nil && o.table != (table{})
	var links []Link
	var earlyErr error
	if early {
		w.together(
			func() { h, err = w.header(o.Addr) },
			func() {
				links, earlyErr = w.symbolTable(o.table)
				l.below(w, links)
			},
		)
	} else {
		h, err = w.header(o.Addr)
	}
	for _, m := range h.messages {
		if m.kind > msgLast && m.flags&flagMustKnow != 0 {
			err = errors.Join(err, w.f.place("object header", h.addr, unsupported("messages of type %d are not supported", m.kind)))
		}
	}
	switch {
	case h.isGroup():
		o.Kind = Group
	case h.has(msgLayout):
		o.Kind = Dataset
	case h.has(msgType):
		o.Kind = NamedType
	}
	var tasks []func()
	if o.Kind == Group {
		tasks = append(tasks, func() {
			if t, ok := w.table(h); early && ok && t == o.table && earlyErr == nil {
				sortLinks(links)
				o.Links = links
			} else {
				o.Links, linkErr = w.links(h)
			}
			l.below(w, o.Links)
		})
	}
	if h.has(msgAttribute) || h.has(msgAttrInfo) {
		tasks = append(tasks, func() {
			if o.Attributes, attrErr = w.attributes(h); l.opt.Values {
				w.values(o.Attributes)
			}
		})
	}
	if o.Kind == Dataset || o.Kind == NamedType {
		tasks = append(tasks, func() {
			o.dataErr = w.dataset(o, h)
			if o.Kind == Dataset && o.dataErr == nil && err == nil {
				l.data(w, o)
			}
		})
	}
	w.together(tasks...)
	if o.Kind == Unknown && err == nil {
		err = w.f.place("object header", o.Addr, corrupt("expected a group, a dataset or a datatype, found %d messages of others", len(h.messages)))
	}
	o.Err = errors.Join(err, linkErr, attrErr, o.dataErr)
	o.dataErr = cmp.Or(o.dataErr, err)
}

func (h *header) has(kind int) bool {
	return slices.ContainsFunc(h.messages, func(m message) bool { return m.kind == kind })
}

// dataset sets the fields of a dataset or a datatype from its header.
func (w *wave) dataset(o *Object, h *header) error {
	var parts [msgLast + 1]*message
	for _, m := range h.messages {
		if m.kind <= msgLast && parts[m.kind] == nil {
			parts[m.kind] = &m
		}
	}
	var first error
	// part calls read with a message if the header has it.
	part := func(kind int, what string, read func(c *cursor) error) bool {
		m := parts[kind]
		if m == nil {
			return false
		}
		var err error
		if kind == msgType {
			o.Type, err = w.typeOf(*m)
		} else if x, _, wrong := w.resolve(*m); wrong != nil {
			err = wrong
		} else {
			err = read(w.f.cursor(x.data))
		}
		first = cmp.Or(first, w.f.place(what, m.off, err))
		return err == nil
	}
	part(msgType, "datatype", nil)
	if o.Kind != Dataset {
		return first
	}
	part(msgSpace, "data space", func(c *cursor) (err error) {
		o.Space, err = parseSpace(c)
		return err
	})
	part(msgFilters, "filter pipeline", func(c *cursor) (err error) {
		o.Filters, err = parseFilters(c)
		return err
	})
	if o.Type == nil || parts[msgSpace] == nil {
		return cmp.Or(first, w.f.place("object header", h.addr, corrupt("expected a dataset's type and space")))
	}
	if first != nil {
		return first
	}
	for _, kind := range []int{msgFill, msgOldFill} {
		if part(kind, "fill value", func(c *cursor) (err error) {
			o.Fill, err = parseFill(c, kind, o.Type)
			return err
		}) && o.Fill != nil {
			break
		}
	}
	part(msgLayout, "data layout", func(c *cursor) (err error) {
		o.Layout, err = parseLayout(c, o.Space, o.Type)
		return err
	})
	if first != nil {
		return first
	}
	if o.Layout.Class == Virtual {
		var err error
		o.Layout.Mappings, err = w.mappings(o.Layout.heap, o.Layout.number)
		return w.f.place("data layout", h.addr, err)
	}
	part(msgExternal, "list of files", func(c *cursor) (err error) {
		o.Layout.Class = External
		o.Layout.Segments, err = w.parseSegments(c)
		return err
	})
	return first
}

// Readable returns why the elements of a dataset cannot be read, if that is already known.
// Otherwise it returns nil.
func (o *Object) Readable() error {
	if o.Kind != Dataset {
		return &fs.PathError{Op: "read", Path: o.Path, Err: fmt.Errorf("it is a %v, not a dataset", o.Kind)}
	}
	if o.dataErr != nil {
		return o.dataErr
	}
	if o.f.Outside == nil {
		leads := o.Layout.Class == External
		for _, m := range o.Layout.Mappings {
			leads = leads || m.File != "."
		}
		if leads {
			return o.f.place("data layout", o.Addr, unsupported("elements in other files are not read here"))
		}
	}
	return o.f.place("filter pipeline", o.Addr, checkFilters(o.Filters))
}

// At returns the object whose header is at an address, as in references and links.
func (f *File) At(ctx context.Context, addr int64) (*Object, error) {
	l := &loader{f: f, seen: map[int64]bool{}}
	all, err := l.load(ctx, []found{{addr: addr}})
	return all[0], err
}

// join appends a name to a path.
func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

const maxSoftLinks = 40

// Find returns the object at a path from the root. It follows soft links. If the path leads into
// another file, the error wraps [errors.ErrUnsupported].
func (f *File) Find(ctx context.Context, name string) (*Object, error) {
	rest := components(name)
	at, dir := f.Root, "/"
	for soft := 0; len(rest) > 0; {
		w := f.wave(ctx)
		h, err := w.header(at)
		if err != nil {
			return nil, err
		}
		links, err := w.links(h)
		i, ok := slices.BinarySearchFunc(links, rest[0], func(l Link, name string) int { return cmp.Compare(l.Name, name) })
		if !ok {
			return nil, cmp.Or(err, error(&fs.PathError{Op: "find", Path: join(dir, rest[0]), Err: fs.ErrNotExist}))
		}
		switch l := links[i]; l.Kind {
		case HardLink:
			at, dir, rest = l.Addr, join(dir, l.Name), rest[1:]
		case SoftLink:
			if soft++; soft > maxSoftLinks {
				return nil, f.place("soft link "+join(dir, l.Name), -1, corrupt("more than %d soft links, or a loop of them", maxSoftLinks))
			}
			rest = slices.Concat(components(l.Target), rest[1:])
			if strings.HasPrefix(l.Target, "/") {
				at, dir = f.Root, "/"
			}
		case ExternalLink:
			return nil, f.place("link "+join(dir, l.Name), -1, unsupported("it refers to %q in the file %q", l.Target, l.File))
		default:
			return nil, f.place("link "+join(dir, l.Name), -1, unsupported("user-defined links, here of type %d, are not supported", l.Kind))
		}
	}
	o, err := f.At(ctx, at)
	o.Path = dir
	return o, err
}

// components returns the names of a path. A dot is the group itself.
func components(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}
