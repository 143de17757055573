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
	scheme, bucket, prefix string
	st                     store.Store // for names with prefix
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
		s.through = append(s.through, source{scheme, bucket, prefix, st})
	}
	return nil
}

// An original is an entry that is read from its source. It is the entry's Ref.
type original struct {
	source int // in Shelf.through
	info   store.Info
}

// piece is how much of an original is read at once.
const piece = 8 << 20

// extents yields the content of an original piece by piece. So readers hold no
// objects of the source open: there may be millions.
func (s *Shelf) extents(o original, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		for at := off / piece * piece; at < min(off+n, o.info.Size); at += piece {
			size := min(piece, o.info.Size-at)
			x := format.Extent{At: at, Size: size, Object: Tree, Codec: codec.Inline, Make: func(ctx context.Context) ([]byte, error) {
				in, err := storekit.OpenAs(ctx, s.through[o.source].st, o.info)
				if err != nil {
					return nil, err
				}
				defer in.Close()
				b := make([]byte, size)
				return b, in.ReadAt(ctx, b, at)
			}}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// originalOf is the entry of an object of the i-th source.
func (s *Shelf) originalOf(i int, name string, info store.Info) format.Entry {
	e := format.Entry{Name: name, Size: info.Size, ModTime: info.ModTime, Ref: original{i, info}}
	if strings.HasPrefix(info.Version, `"`) {
		e.Attr = map[string]string{kit.ETagAttr: info.Version}
	}
	return e
}

// through are the numbers of the sources of a tree.
func (r *reader) through() (all []int) {
	for i, x := range r.s.through {
		if x.scheme+"/"+x.bucket == r.bucket {
			all = append(all, i)
		}
	}
	return all
}

func (r *reader) atSource(ctx context.Context, name string) (format.Entry, error) {
	for _, i := range r.through() {
		x := r.s.through[i]
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
		e := r.s.originalOf(i, name, info)
		if len(headers) > 0 {
			if e.Attr == nil {
				e.Attr = map[string]string{}
			}
			maps.Copy(e.Attr, headers)
		}
		return e, nil
	}
	return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

// originals yields the objects of a source whose names begin with prefix, by
// name, starting at from. With folders, everything below a slash is one item.
func (s *Shelf) originals(ctx context.Context, i int, prefix, from string, folders bool) iter.Seq2[item, error] {
	x := s.through[i]
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
				if strings.HasSuffix(name, "/") && info.Size == 0 || book.IsMarker(name) {
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
				e := s.originalOf(i, name, info)
				if !yield(item{name: name, at: &e}, nil) {
					return
				}
			}
		}
	}
}
