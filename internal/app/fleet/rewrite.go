package fleet

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// packed is a plan's packed files, as the source of chunks that rewrite them.
type packed struct {
	w     *worker
	j     *job
	in    catalog.Scope
	known map[int64]*archive
}

// An archive is an archive that a chunk is rewritten from.
type archive struct {
	catalog.Archive
	st   store.Store
	name string
	info store.Info  // its current state
	err  error       // why it cannot be read
	open store.Store // the files of an archive to be repaired
}

// A scope is the archives with the same roots, by their IDs.
type scope map[int64]catalog.Archive

func (s scope) has(id int64) bool { _, ok := s[id]; return ok }

// scope returns the archives with the same roots as a plan's.
func (j *job) scope(ctx context.Context, c *catalog.Catalog) (scope, error) {
	all, err := c.Archives(ctx)
	of, roots := scope{}, j.roots()
	for _, a := range all {
		if a.Roots == roots {
			of[a.ID] = a
		}
	}
	return of, err
}

func (w *worker) packed(ctx context.Context, j *job) (*packed, error) {
	of, err := j.scope(ctx, w.c)
	p := &packed{w: w, j: j, known: map[int64]*archive{}, in: of.has}
	for id, a := range of {
		p.known[id] = &archive{Archive: a}
	}
	return p, err
}

func (p *packed) close() {
	for _, a := range p.known {
		if o, ok := a.open.(opened); ok {
			o.in.Close()
		}
	}
}

// find locates and opens an archive, once.
func (a *archive) find(ctx context.Context) {
	if a.st != nil || a.err != nil {
		return
	}
	if a.st, a.name, a.err = store.OpenAddress(ctx, a.Address); a.err == nil {
		a.info, a.err = storekit.Briefly(a.st, a.name).Info(ctx)
	}
}

// rewriteBatch is how many members are looked up together.
const rewriteBatch = 4096

// objects yields the members of a chunk from their current places. Members
// that were deleted or replaced since are passed to elsewhere.
func (p *packed) objects(ctx context.Context, k catalog.Chunk, elsewhere func(catalog.Member)) iter.Seq2[pack.Object, error] {
	return func(yield func(pack.Object, error) bool) {
		var batch []catalog.Member
		flush := func() bool {
			all, err := p.located(ctx, batch)
			if err != nil {
				yield(pack.Object{}, err)
				return false
			}
			for _, m := range batch {
				l, ok := all[m.Path]
				if !ok || l.Size != m.Size || l.ETag != "" && m.Version != "" && l.ETag != m.Version {
					m.Outcome = catalog.Elsewhere
					elsewhere(m)
					continue
				}
				x, err := p.object(ctx, k, m, l)
				if !yield(x, err) || err != nil {
					return false
				}
			}
			batch = batch[:0]
			return true
		}
		for m, err := range p.w.members(ctx, k) {
			if err != nil {
				yield(pack.Object{}, err)
				return
			}
			if batch = append(batch, m); len(batch) == rewriteBatch && !flush() {
				return
			}
		}
		if len(batch) > 0 {
			flush()
		}
	}
}

// located returns the current places of members.
func (p *packed) located(ctx context.Context, batch []catalog.Member) (map[string]catalog.Location, error) {
	wanted := make(map[string]bool, len(batch))
	for _, m := range batch {
		wanted[m.Path] = true
	}
	found := make(map[string]catalog.Location, len(batch))
	for l, err := range p.w.c.Between(ctx, batch[0].Path, batch[len(batch)-1].Path+"\x00", p.in) {
		if err != nil {
			return nil, err
		}
		if wanted[l.Path] {
			found[l.Path] = l
		}
	}
	return found, nil
}

// object returns a member as a packed object: a range of its archive. If that
// is to be repaired, it is the original if this exists, and otherwise the
// readable content of the archive.
func (p *packed) object(ctx context.Context, k catalog.Chunk, m catalog.Member, l catalog.Location) (pack.Object, error) {
	if k.Repairs {
		o := p.j.origins[m.Origin]
		info := store.Info{Name: strings.TrimPrefix(m.Path, o.prefix), Size: m.Size, Version: m.Version}
		is, err := storekit.Briefly(o.st, info.Name).Info(ctx)
		if err == nil && is.Size == info.Size && is.Version == info.Version {
			return pack.Object{From: o.st, Name: m.Path, Info: info}, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pack.Object{}, err
		}
	}
	x := pack.Object{Name: m.Path, Range: true, Size: l.Size, Digest: l.Digest, ModTime: l.Modified}
	headers, err := p.w.c.Headers(ctx, l.Headers)
	if err != nil {
		return x, err
	}
	x.Attr = l.Attributes(headers)
	a := p.known[l.Archive]
	a.find(ctx)
	if a.err != nil && !errors.Is(a.err, fs.ErrNotExist) {
		return x, a.err
	}
	if k.Repairs {
		x.From, x.Info = a.files(ctx), store.Info{Name: l.Path, Size: l.Size}
		if _, no := x.From.(lost); !no || !l.Raw || a.err != nil || l.Digest.Algo == "" {
			return x, nil
		}
		// Its index is damaged: the proof by its digest suffices.
	} else if a.err == nil && !survey.Is(a.info, a.st.Can().Near, a.Archive) {
		return x, &store.Error{Op: "read", Name: a.name, Off: -1, Err: store.ErrChanged}
	}
	x.From, x.Info, x.Off = a.st, store.Info{Name: a.name, Size: a.Size, Version: a.info.Version}, l.Off
	return x, nil
}

// files returns the files of an archive. Reads are repaired with its parity.
func (a *archive) files(ctx context.Context) store.Store {
	if a.err != nil {
		return lost{a.err}
	}
	if a.open == nil {
		in, err := holdall.Open(ctx, a.name, holdall.OpenOptions{Store: a.st, Format: a.Format})
		if err != nil {
			a.open = lost{err}
		} else {
			a.open = opened{in}
		}
	}
	return a.open
}

// lost is the store of an archive that cannot be opened.
type lost struct{ err error }

func (l lost) Can() store.Abilities                               { return store.Abilities{} }
func (l lost) Open(context.Context, string) (store.Object, error) { return nil, l.err }

// opened is an archive in the form of a store of its files.
type opened struct{ in *holdall.Archive }

func (o opened) Can() store.Abilities { return store.Abilities{} }

func (o opened) Open(ctx context.Context, name string) (store.Object, error) {
	e, err := o.in.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return &content{o.in, e}, nil
}

// content is a file of an archive in the form of an object.
type content struct {
	in *holdall.Archive
	e  format.Entry
}

func (c *content) Info(context.Context) (store.Info, error) {
	return store.Info{Name: c.e.Name, Size: c.e.Size}, nil
}

func (c *content) ReadAt(ctx context.Context, p []byte, off int64) error {
	_, err := c.in.ReadAt(ctx, c.e, p, off)
	return err
}

func (c *content) Close() error               { return nil }
func (c *content) Can() store.ObjectAbilities { return store.ObjectAbilities{} }
