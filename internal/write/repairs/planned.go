package repairs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Planned is a store that shows an archive as a plan will leave it. What the plan writes is in a
// temporary file; what it copies stays where it is.
type Planned struct {
	store.Store
	name string

	mu      sync.Mutex
	disk    sorter.Scratch
	end     int64 // of what is in disk
	objects map[string]*storekit.Pieced
	sources map[string]store.Object // open, by their names
}

// NewPlanned returns a Planned for a plan that repairs the archive called name in st.
func NewPlanned(ctx context.Context, st store.Store, name string, plan format.Plan) (*Planned, error) {
	disk, err := sorter.TempFile()
	if err != nil {
		return nil, err
	}
	p := &Planned{Store: st, name: strings.TrimSuffix(name, "/"), disk: disk, objects: map[string]*storekit.Pieced{}, sources: map[string]store.Object{}}
	if err := Apply(ctx, st, name, plan, p, p.name); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close discards what the plan wrote.
func (p *Planned) Close() error {
	var errs []error
	if p.disk != nil {
		errs = append(errs, p.disk.Close())
	}
	for _, o := range p.sources {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}

// Can returns only what shows or makes the planned objects, so that nothing bypasses the plan.
func (p *Planned) Can() store.Abilities {
	of := p.Store.Can()
	can := store.Abilities{Address: of.Address}
	if p.disk != nil {
		can.Create = p.create
	}
	if of.List != nil {
		can.List = p.list
	}
	return can
}

// Open opens an object as it will be.
func (p *Planned) Open(ctx context.Context, name string) (store.Object, error) {
	p.mu.Lock()
	o := p.objects[name]
	p.mu.Unlock()
	switch {
	case o != nil:
		return o, nil
	case name == p.name || strings.HasPrefix(name, p.name+"/"):
		return nil, &store.Error{Op: "open", Name: name, Off: -1, Err: fs.ErrNotExist}
	}
	return p.Store.Open(ctx, name)
}

// Origin yields where bytes of an object lie in the archive as it is. What the plan writes lies nowhere.
func (p *Planned) Origin(name string, off, n int64) iter.Seq[format.Region] {
	return func(yield func(format.Region) bool) {
		p.mu.Lock()
		o, at := p.objects[name], map[store.Object]string{}
		for source, in := range p.sources {
			at[in] = source
		}
		p.mu.Unlock()
		if o == nil {
			return
		}
		for in, part := range o.Pieces(off, n) {
			if object, ok := at[in]; ok && !yield(format.Region{Object: object, Off: part[0], Len: part[1]}) {
				return
			}
		}
	}
}

// list yields the planned objects, or what is elsewhere.
func (p *Planned) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	if !strings.HasPrefix(prefix, p.name) {
		return p.Store.Can().List(ctx, prefix)
	}
	return func(yield func(store.Info, error) bool) {
		var names []string
		for name := range p.objects {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(store.Info{Name: name, Size: p.objects[name].Size()}, nil) {
				return
			}
		}
	}
}

func (p *Planned) create(_ context.Context, name string, _ store.Wishes) (store.Writer, error) {
	return &plannedWriter{p, &storekit.Pieced{Name: name}}, nil
}

// source returns an object of the archive, which stays open until Close.
func (p *Planned) source(ctx context.Context, name string) (store.Object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.sources[name]; o != nil {
		return o, nil
	}
	o, err := p.Store.Open(ctx, name)
	if err == nil {
		p.sources[name] = o
	}
	return o, err
}

// plannedWriter writes a planned object.
type plannedWriter struct {
	p *Planned
	o *storekit.Pieced
}

func (w *plannedWriter) Write(b []byte) (int, error) {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.disk.Seek(p.end, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := p.disk.Write(b)
	w.o.Add(scratch{p}, p.end, int64(n))
	p.end += int64(n)
	return n, err
}

// writeRange notes where a range is, if it is in the archive.
func (w *plannedWriter) writeRange(ctx context.Context, from store.Object, off, n int64) error {
	info, err := from.Info(ctx)
	if err != nil {
		return err
	}
	in, err := w.p.source(ctx, info.Name)
	if err != nil {
		return errors.ErrUnsupported
	}
	if there, err := in.Info(ctx); err != nil || there != info || off > info.Size-n {
		return errors.ErrUnsupported
	}
	w.o.Add(in, off, n)
	return nil
}

func (w *plannedWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{WriteRange: w.writeRange}
}

func (w *plannedWriter) Commit(ctx context.Context) (store.Info, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.objects[w.o.Name] = w.o
	return w.o.Info(ctx)
}

func (w *plannedWriter) Abort() error { return nil }

// scratch is the temporary file of a Planned as an object.
type scratch struct{ p *Planned }

func (s scratch) Info(context.Context) (store.Info, error) { return store.Info{Size: s.p.end}, nil }

func (s scratch) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (s scratch) Close() error { return nil }

func (s scratch) ReadAt(_ context.Context, b []byte, off int64) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return readScratch(s.p.disk, b, off)
}
