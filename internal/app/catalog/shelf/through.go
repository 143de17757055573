package shelf

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A source is a bucket from which a tree shows objects that are not packed
// yet.
type source struct {
	tree    string      // reader.bucket of the tree
	address string      // as the catalogue names it, if it does
	prefix  string      // of names in the tree
	st      store.Store // for names with prefix
}

func (s *Shelf) openSources(ctx context.Context) error {
	for _, address := range s.o.Through {
		scheme, bucket, prefix, ok := place(address)
		if !ok {
			return noBucket(address)
		}
		if prefix != "" {
			prefix = strings.TrimRight(prefix, "/") + "/"
		}
		st, err := storekit.OpenFolder(ctx, address)
		if err != nil {
			return err
		}
		s.near = s.near && st.Can().Near
		s.through = append(s.through, &source{tree: scheme + "/" + bucket, prefix: prefix, st: st})
	}
	return nil
}

// named returns the source that the catalogue names, or nil. Whatever was deleted here is not shown from it.
func (s *Shelf) named(ctx context.Context) (*source, error) {
	address := s.c.Source()
	if s.o.Source == nil || address == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil || s.own.address != address {
		st, err := s.o.Source(ctx, address)
		if err != nil {
			return nil, err
		}
		s.own = &source{address: address, st: st}
	}
	return s.own, nil
}

// Original returns the object that the named source has of a name, if it does.
func (s *Shelf) Original(ctx context.Context, name string) (format.Entry, error) {
	return (&reader{s: s}).atSource(ctx, name)
}

// An Original is an object that is read from its source. A pointer to it is the Ref of its entry.
type Original struct {
	Name    string
	Info    store.Info
	Headers map[string]string // nil unless it was looked up
	// Content is set for Options.Read if the whole object was read at once. It must not be changed.
	Content []byte

	from *source
}

// Open opens the object in its version.
func (o Original) Open(ctx context.Context) (store.Object, error) {
	return storekit.OpenAs(ctx, o.from.st, o.Info)
}

// Location is what a catalogue would have of it. No version of a file is as old.
func (o Original) Location() catalog.Location {
	return catalog.Location{Path: o.Name, Size: o.Info.Size, Modified: o.Info.ModTime, ETag: o.entry().Attr[kit.ETagAttr], HeaderText: catalog.HeaderText(o.Headers), Seq: -1}
}

func (o Original) entry() format.Entry {
	e := format.Entry{Name: o.Name, Size: o.Info.Size, ModTime: o.Info.ModTime, Ref: &o, Attr: maps.Clone(o.Headers)}
	if strings.HasPrefix(o.Info.Version, `"`) {
		e.Attr = (catalog.Location{ETag: o.Info.Version}).Attributes(e.Attr)
	}
	return e
}

// read tells that the end of an object was read.
func (s *Shelf) read(o Original, content []byte) {
	if s.o.Read != nil && o.from.address != "" && o.Headers != nil {
		o.Content = content
		s.o.Read(o)
	}
}

// piece is how much of an original is read at once.
const piece = 8 << 20

// extents yields the content of an original piece by piece. So readers hold no
// objects of the source open: there may be millions.
func (s *Shelf) extents(o Original, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		for at := off / piece * piece; at < min(off+n, o.Info.Size); at += piece {
			size := min(piece, o.Info.Size-at)
			x := format.Extent{At: at, Size: size, Object: Tree, Codec: codec.Inline, Make: func(ctx context.Context) ([]byte, error) {
				in, err := o.Open(ctx)
				if err != nil {
					return nil, err
				}
				defer in.Close()
				b := make([]byte, size)
				if err = in.ReadAt(ctx, b, at); err == nil && at+size == o.Info.Size {
					s.read(o, b)
				}
				return b, err
			}}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// through are the sources of a tree.
func (r *reader) through(ctx context.Context) (all []*source, err error) {
	for _, x := range r.s.through {
		if x.tree == r.bucket {
			all = append(all, x)
		}
	}
	if r.bucket == "" {
		var x *source
		if x, err = r.s.named(ctx); x != nil {
			all = append(all, x)
		}
	}
	return all, err
}

func (r *reader) atSource(ctx context.Context, name string) (format.Entry, error) {
	all, err := r.through(ctx)
	if err != nil {
		return format.Entry{}, err
	}
	for _, x := range all {
		rest, ok := strings.CutPrefix(name, x.prefix)
		if !ok || rest == "" || book.IsMarker(name) {
			continue
		}
		o, err := x.st.Open(ctx, rest)
		if err != nil {
			if errors.Is(err, fs.ErrInvalid) { // the source cannot have such a key
				continue
			}
			return format.Entry{}, err
		}
		defer o.Close()
		var headers map[string]string
		if ask := o.Can().Headers; ask != nil {
			headers, err = ask(ctx)
		}
		var info store.Info
		if err == nil {
			info, err = o.Info(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return format.Entry{}, err
		}
		info.Name = rest
		if headers == nil {
			headers = map[string]string{}
		}
		is := Original{Name: name, Info: info, Headers: headers, from: x}
		if info.Size == 0 {
			r.s.read(is, []byte{})
		}
		return is.entry(), nil
	}
	return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

// originals yields the objects of a source whose names begin with prefix, by
// name, starting at from. With folders, everything below a slash is one item.
func (x *source) originals(ctx context.Context, prefix, from string, folders bool) iter.Seq2[item, error] {
	if !strings.HasPrefix(prefix, x.prefix) && !strings.HasPrefix(x.prefix, prefix) {
		return nil
	}
	below := strings.TrimPrefix(max(prefix, x.prefix), x.prefix)
	return func(yield func(item, error) bool) {
		for at, more := max(from, prefix, x.prefix), true; more; {
			more = false
			for info, err := range storekit.ListFrom(ctx, x.st, below, strings.TrimPrefix(at, x.prefix)) {
				if err != nil {
					yield(item{}, err)
					return
				}
				name := x.prefix + info.Name
				if strings.HasSuffix(name, "/") && info.Size == 0 && x.address == "" || book.IsMarker(name) {
					continue // it represents a folder, or is not the user's
				}
				if rest, ok := strings.CutPrefix(name, prefix); folders && ok {
					if first, _, deeper := strings.Cut(rest, "/"); deeper {
						folder := prefix + first + "/"
						if !yield(item{name: folder, dir: true}, nil) {
							return
						}
						at = catalog.After(folder)
						more = at != ""
						break
					}
				}
				e := Original{Name: name, Info: info, from: x}.entry()
				if !yield(item{name: name, at: &e}, nil) {
					return
				}
			}
		}
	}
}
