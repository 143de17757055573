package zarr3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

const (
	maxText  = 256 << 20 // bytes of a zarr.json
	maxChunk = 256 << 20 // bytes of a chunk that is generated
	alone    = 16 << 20  // larger chunks are generated one at a time
	maxNotes = 100       // how many arrays that are left out are named
)

// A reader shows the keys of an underlying reader as those of version 3.
type reader struct {
	kit.LateIndex // of keys: for everything except the lookup of a key

	src    source
	name   string // of the format
	object string // the object that generated entries are reported to be in

	mu    sync.Mutex
	index *kit.Index
	root  []byte // zarr.json of the root; nil until it is needed
	left  []leftOut
	lost  map[string]bool    // paths that are left out
	also  map[string][]alias // by path, other paths of the same group or array, through soft links
	last  lastArray
	large sync.Mutex // held while much memory is in use
}

// A leftOut is a group or an array that version 3 cannot represent.
type leftOut struct {
	at  string
	why error
}

// An alias is another path of a group or array.
type alias struct {
	at  string
	own bool // version 2 has a group at this path
}

// lastArray caches the last lookup of an array.
type lastArray struct {
	at    string
	array *zarr.Version3 // nil if there is none
	err   error
	known bool
}

// New returns a view of version 3 of keys, the view of version 2 of an archive. object is the name
// of the archive's first object.
func New(keys format.Reader, st store.Store, formatName, object string) format.Reader {
	r := &reader{src: source{keys, st}, name: formatName, object: object}
	r.Load = r.load
	return r
}

// Types of an entry's Ref, if the entry is not one of keys.
type (
	madeText  struct{ at string } // the zarr.json at a path
	madeChunk struct {
		array *zarr.Version3
		key   string // of the stored chunk
	}
)

// isOld reports whether only version 2 has keys with this last part.
func isOld(last string) bool { return zarrkey.IsMeta(last) && last != zarr.MetaName }

// text returns the zarr.json at a path.
func (r *reader) text(ctx context.Context, at string) ([]byte, error) {
	text, array, err := zarr.Node3(ctx, r.src, at, maxChunk)
	if err != nil || at != "" || array != nil {
		return text, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.readRoot(ctx)
	return r.root, err
}

// readRoot generates the zarr.json of the root, once. The caller holds r.mu.
func (r *reader) readRoot(ctx context.Context) error {
	if r.root != nil {
		return nil
	}
	var left []leftOut
	lost, also := map[string]bool{}, map[string][]alias{}
	root, err := zarr.Root3(ctx, r.src, r.src.names(ctx), maxText, maxChunk, func(at string, why error) {
		left = append(left, leftOut{at, why})
		lost[at] = true
	}, func(at, is string, own bool) {
		also[is] = append(also[is], alias{at, own})
	})
	if err != nil {
		return err
	}
	r.root, r.left, r.lost, r.also = root, left, lost, also
	return nil
}

// array returns the array at a path, or nil if there is none. It returns an error if the array is
// left out.
func (r *reader) array(ctx context.Context, at string) (*zarr.Version3, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.known && r.last.at == at {
		return r.last.array, r.last.err
	}
	_, a, err := zarr.Node3(ctx, r.src, at, maxChunk)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if ctx.Err() == nil {
		r.last = lastArray{at, a, err, true}
	}
	return a, err
}

// arrayOf returns the array that has a chunk with the key, and its path, or nil if there is none.
func (r *reader) arrayOf(ctx context.Context, key string) (at string, _ *zarr.Version3, _ error) {
	for at = key; at != ""; {
		var last string
		if at, last = zarrkey.Split(at); strings.Trim(last, "0123456789.c") != "" {
			return "", nil, nil
		}
		if a, err := r.array(ctx, at); a != nil || err != nil {
			return at, a, err
		}
	}
	return "", nil, nil
}

// below returns the name of a key within the array at a path.
func below(at, key string) string { return strings.TrimPrefix(strings.TrimPrefix(key, at), "/") }

func notThere(name string) error {
	return &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
}

// Lookup finds a key without listing all keys.
func (r *reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	dir, last := zarrkey.Split(name)
	if isOld(last) {
		return format.Entry{}, notThere(name)
	}
	if last == zarr.MetaName && naming.ValidPath(name) {
		if e, err := r.src.keys.Lookup(ctx, name); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return e, err
		}
		text, err := r.text(ctx, dir)
		if err != nil {
			return format.Entry{}, gone(name, err)
		}
		return format.Entry{Name: name, Size: int64(len(text)), Ref: madeText{dir}}, nil
	}
	at, a, err := r.arrayOf(ctx, name)
	if err != nil {
		return format.Entry{}, gone(name, err)
	}
	if a != nil && a.Anew {
		if old, ok := a.OldKey(below(at, name)); ok {
			return r.made(ctx, name, a, zarrkey.Join(at, old), nil)
		}
		if a.IsChunk(below(at, name)) {
			return format.Entry{}, notThere(name)
		}
	}
	e, err := r.src.keys.Lookup(ctx, name)
	if err != nil || e.Kind != format.Dir {
		return e, err
	}
	return r.LateIndex.Lookup(ctx, name)
}

// gone returns an error that name does not exist, if err means that it is left out; otherwise err.
func gone(name string, err error) error {
	if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
		return err
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, zarr.ErrCorrupt) || errors.Is(err, zarr.ErrLimit) {
		return notThere(name)
	}
	return err
}

// made returns the entry of a chunk that is generated from a stored chunk, which may have been read
// ahead. If the stored chunk cannot be read, neither can this one.
func (r *reader) made(ctx context.Context, name string, a *zarr.Version3, key string, stored []byte) (format.Entry, error) {
	e, err := r.src.keys.Lookup(ctx, key)
	if err != nil {
		return e, err
	}
	e = format.Entry{Name: name, Size: a.Size, ModTime: e.ModTime, Fault: e.Fault, Ref: madeChunk{a, key}}
	if e.Size < 0 && e.Fault == nil {
		if stored == nil {
			stored, err = r.src.Get(ctx, key, a.StoredLimit())
		}
		var b []byte
		if err == nil {
			b, err = r.anew(a, stored)
		}
		e.Size = int64(len(b))
		if e.Fault = r.fault(name, key, err); err != nil && e.Fault == nil {
			return e, err
		}
	}
	e.Size = max(e.Size, 0)
	return e, nil
}

// fault returns the problem of a chunk that cannot be generated because of the stored chunk. It
// returns nil if err has another cause.
func (r *reader) fault(name, key string, err error) *format.Problem {
	p := &format.Problem{Code: format.BadData, Severity: format.Error, Volume: r.object, Off: -1, Entry: name, HasEntry: true, Message: fmt.Sprintf("cannot be made from %s: %v", key, err)}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		p.Code = format.Unsupported
	case errors.Is(err, zarr.ErrLimit):
		p.Code = format.Limit
	case !errors.Is(err, zarr.ErrCorrupt):
		return nil
	}
	return p
}

// chunk generates a chunk from the stored chunk at a key.
func (r *reader) chunk(ctx context.Context, a *zarr.Version3, key string) ([]byte, error) {
	stored, err := r.src.Get(ctx, key, a.StoredLimit())
	if err != nil {
		return nil, err
	}
	return r.anew(a, stored)
}

func (r *reader) anew(a *zarr.Version3, stored []byte) ([]byte, error) {
	if a.Size > alone || len(stored) > alone/16 {
		r.large.Lock()
		defer r.large.Unlock()
	}
	return a.Chunk(stored)
}

// keyTable is the keys of version 3, in the order of those of version 2.
type keyTable struct {
	r    *reader
	rows []row
}

type row struct {
	name string
	size int64  // of generated content; -1 for stored content
	key  string // of the stored chunk, for a generated one

	fault *format.Problem // why an array or a group of version 2 cannot be read
}

func (t *keyTable) Len() int          { return len(t.rows) }
func (t *keyTable) Name(i int) string { return t.rows[i].name }

// Entry does not read chunks: everything that had to be read for it is in the row.
func (t *keyTable) Entry(i int) format.Entry {
	ctx := context.Background()
	row := t.rows[i]
	dir, last := zarrkey.Split(row.name)
	switch {
	case row.fault != nil:
		return format.Entry{Name: row.name, Fault: row.fault}
	case row.size >= 0 && last == zarr.MetaName:
		return format.Entry{Name: row.name, Size: row.size, Ref: madeText{dir}}
	case row.key != "":
		_, a, err := t.r.arrayOf(ctx, row.name)
		if err == nil && a != nil && row.size >= 0 {
			return format.Entry{Name: row.name, Size: row.size, Ref: madeChunk{a, row.key}}
		}
	}
	e, err := t.r.Lookup(ctx, row.name)
	if err != nil {
		e = format.Entry{Name: row.name, Fault: &format.Problem{Code: format.BadData, Severity: format.Error, Volume: t.r.object, Off: -1, Entry: row.name, HasEntry: true, Message: err.Error()}}
	}
	return e
}

// load lists the keys of version 2.
func (r *reader) load(ctx context.Context) (*kit.Index, error) {
	r.mu.Lock()
	index, err := r.index, r.readRoot(ctx)
	r.mu.Unlock()
	if index != nil || err != nil {
		return index, err
	}
	t := &keyTable{r: r}
	var some []format.Entry
	add := func() error {
		stored, err := r.ahead(ctx, some)
		for _, e := range some {
			if err == nil {
				err = r.add(ctx, t, e, stored[e.Name])
			}
		}
		some = some[:0]
		return err
	}
	for e, err := range r.src.keys.Entries(ctx) {
		if some = append(some, e); err == nil && len(some) == aheadKeys {
			err = add()
		}
		if err != nil {
			return nil, err
		}
	}
	if err := add(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index == nil {
		r.index = kit.NewIndex(t)
	}
	return r.index, nil
}

// add adds the row of a key, if version 3 has one.
func (r *reader) add(ctx context.Context, t *keyTable, e format.Entry, stored []byte) error {
	dir, last := zarrkey.Split(e.Name)
	switch {
	case e.Fault != nil && isOld(last):
		t.rows = append(t.rows, row{name: zarrkey.Join(dir, zarr.MetaName), fault: e.Fault})
		return nil
	case last == ".zgroup" || last == ".zarray":
		if _, err := r.src.keys.Lookup(ctx, zarrkey.Join(dir, zarr.MetaName)); err == nil {
			return nil // a stored zarr.json exists
		}
		if last == ".zarray" {
			if _, err := r.src.keys.Lookup(ctx, zarrkey.Join(dir, ".zgroup")); err == nil {
				return nil // the .zgroup adds the row
			}
		}
		text, err := r.text(ctx, dir)
		if err != nil {
			if err = gone(e.Name, err); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		t.rows = append(t.rows, row{name: zarrkey.Join(dir, zarr.MetaName), size: int64(len(text))})
		for _, link := range r.also[dir] {
			if !link.own {
				t.rows = append(t.rows, row{name: zarrkey.Join(link.at, zarr.MetaName), size: int64(len(text))})
			}
		}
		return nil
	case isOld(last):
		return nil
	case e.Kind == format.Dir:
		if r.lost[e.Name] {
			return nil
		}
		t.rows = append(t.rows, row{name: e.Name, size: -1})
		return nil
	}
	at, a, err := r.arrayOf(ctx, e.Name)
	switch {
	case err != nil:
		if err = gone(e.Name, err); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	case a == nil || !a.Anew || !a.IsChunk(below(at, e.Name)):
		t.rows = append(t.rows, row{name: e.Name, size: -1})
		if a != nil {
			for _, link := range r.also[at] {
				t.rows = append(t.rows, row{name: zarrkey.Join(link.at, below(at, e.Name)), size: -1})
			}
		}
		return nil
	}
	made, err := r.made(ctx, zarrkey.Join(at, a.Key(below(at, e.Name))), a, e.Name, stored)
	if err != nil {
		return err
	}
	x := row{name: made.Name, size: made.Size, key: e.Name}
	if made.Fault != nil {
		x.size = -1 // Entry determines the fault again
	}
	t.rows = append(t.rows, x)
	for _, link := range r.also[at] {
		x.name = zarrkey.Join(link.at, below(at, made.Name))
		t.rows = append(t.rows, x)
	}
	return nil
}

// isMade reports whether an entry is generated: it is not one of the keys of version 2.
func isMade(e format.Entry) bool {
	switch e.Ref.(type) {
	case madeText, madeChunk:
		return true
	}
	return false
}

func (r *reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	if !isMade(e) {
		return r.src.keys.Extents(ctx, e, off, n)
	}
	return func(yield func(format.Extent, error) bool) {
		if e.Fault != nil {
			yield(format.Extent{}, e.Unreadable(r.name))
			return
		}
		if n <= 0 || e.Size == 0 {
			return
		}
		x := format.Extent{Size: e.Size, Object: r.object, Codec: codec.Inline}
		if _, text := e.Ref.(madeText); !text {
			x.Make = func(ctx context.Context) ([]byte, error) { return r.content(ctx, e) }
			yield(x, nil)
			return
		}
		var err error
		if x.Data, err = r.content(ctx, e); err != nil {
			x = format.Extent{}
		}
		yield(x, err)
	}
}

// content returns the content of a generated entry.
func (r *reader) content(ctx context.Context, e format.Entry) (b []byte, err error) {
	switch ref := e.Ref.(type) {
	case madeText:
		b, err = r.text(ctx, ref.at)
	case madeChunk:
		b, err = r.chunk(ctx, ref.array, ref.key)
		if p := r.fault(e.Name, ref.key, err); p != nil {
			err = &format.CorruptError{Format: r.name, Problem: *p, Err: err}
		}
	}
	if err == nil && int64(len(b)) != e.Size {
		err = fmt.Errorf("expected %d bytes, found %d: %w", e.Size, len(b), store.ErrChanged)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return b, nil
}

// Can returns the optional abilities of the reader.
func (r *reader) Can() format.Abilities {
	of := r.src.keys.Can()
	can := r.LateIndex.Can()
	can.Doubt = of.Doubt
	if of.Run != nil {
		can.Run = func(e format.Entry) (format.Extent, bool) {
			if isMade(e) {
				return format.Extent{}, false
			}
			return of.Run(e)
		}
	}
	if of.Compares != nil {
		can.Compares = func(e format.Entry) format.Proof {
			if isMade(e) {
				return format.Unproven
			}
			return of.Compares(e)
		}
	}
	if of.Decoder != nil {
		can.Decoder = func(ctx context.Context) (func(format.Entry) format.Decode, error) {
			decoder, err := of.Decoder(ctx)
			if err != nil {
				return nil, err
			}
			return func(e format.Entry) format.Decode {
				if isMade(e) {
					return remade
				}
				return decoder(e)
			}, nil
		}
	}
	return can
}

// remade is the Decode of generated chunks: generating them detects damage.
func remade(_ context.Context, r io.Reader, _ func(format.Problem)) (format.Proof, error) {
	_, err := io.Copy(io.Discard, r)
	return format.Decoded, err
}

// Check reports chunks of a reader from New that cannot be generated although the stored chunk
// exists.
func Check(ctx context.Context, r format.Reader, report func(format.Problem)) error {
	for e, err := range r.Entries(ctx) {
		if err != nil {
			return err
		}
		ref, ok := e.Ref.(madeChunk)
		if !ok || e.Fault == nil {
			continue
		}
		// A check of version 2 reports problems of the stored chunk.
		if of, err := r.(*reader).src.keys.Lookup(ctx, ref.key); err == nil && of.Fault == nil {
			report(*e.Fault)
		}
	}
	return nil
}

// Regions yields the regions of the keys of version 2.
func (r *reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return r.src.keys.Regions(ctx)
}

// About returns the description of the keys of version 2, and adds what is left out.
func (r *reader) About(ctx context.Context) (format.About, error) {
	about, err := r.src.keys.About(ctx)
	if err != nil {
		return about, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readRoot(ctx); err != nil {
		return about, err
	}
	about.Notes = slices.Clone(about.Notes)
	for i, l := range r.left {
		p := format.Problem{Code: format.Unsupported, Severity: format.Note, Volume: r.object, Off: -1, Entry: l.at, HasEntry: true, Message: "left out: Zarr version 3 cannot store it: " + l.why.Error()}
		if i == maxNotes {
			p.Entry, p.HasEntry, p.Message = "", false, fmt.Sprintf("left out %d more", len(r.left)-i)
		}
		if about.Notes = append(about.Notes, p); i == maxNotes {
			break
		}
	}
	about.Facts = append(slices.Clone(about.Facts), [2]string{"left out", fmt.Sprint(len(r.left))})
	return about, nil
}

func (r *reader) Close() error { return r.src.keys.Close() }
