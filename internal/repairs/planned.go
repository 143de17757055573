package repairs

import (
	"context"
	"io"
	"sort"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/sorter"
	"github.com/holdall/holdall/store"
)

// A Planned is a store that shows an archive as a plan of edits will leave it.
type Planned struct {
	store.Store
	name string
	size int64
	all  []stretch // by at

	mu   sync.Mutex
	disk sorter.Scratch // what the edits write
}

// A stretch of the planned object is in scratch, or where it was.
type stretch struct {
	at, n   int64
	from    int64
	written bool
}

// NewPlanned returns a Planned for the edits to the object called name.
func NewPlanned(ctx context.Context, st store.Store, name string, plan format.Plan) (*Planned, error) {
	size, err := sizeIn(ctx, st, name)
	if err != nil {
		return nil, err
	}
	p := &Planned{Store: st, name: name}
	if p.disk, err = sorter.TempFile(); err != nil {
		return nil, err
	}
	at, written := int64(0), int64(0)
	for _, e := range plan.Edits {
		p.add(e.Off-at, at, false)
		if at = e.Off + e.Len; e.Write == nil {
			continue
		}
		if err := e.Write(p.disk); err != nil {
			p.Close()
			return nil, err
		}
		end, err := p.disk.Seek(0, io.SeekCurrent)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.add(end-written, written, true)
		written = end
	}
	p.add(size-at, at, false)
	return p, nil
}

func (p *Planned) add(n, from int64, written bool) {
	if n > 0 {
		p.all = append(p.all, stretch{at: p.size, n: n, from: from, written: written})
		p.size += n
	}
}

// Close discards what the edits wrote.
func (p *Planned) Close() error { return p.disk.Close() }

// Can returns only abilities to read, so that nothing bypasses the plan.
func (p *Planned) Can() store.Abilities { return store.Abilities{Address: p.Store.Can().Address} }

// Open opens an object as it will be.
func (p *Planned) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := p.Store.Open(ctx, name)
	if err == nil && name == p.name {
		o = &plannedObject{o, p}
	}
	return o, err
}

type plannedObject struct {
	store.Object
	p *Planned
}

func (o *plannedObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o *plannedObject) Info(ctx context.Context) (store.Info, error) {
	info, err := o.Object.Info(ctx)
	info.Size = o.p.size
	return info, err
}

func (o *plannedObject) ReadAt(ctx context.Context, b []byte, off int64) error {
	p := o.p
	if len(b) == 0 {
		return nil
	}
	if off < 0 || int64(len(b)) > p.size-off {
		return io.ErrUnexpectedEOF
	}
	for i := sort.Search(len(p.all), func(i int) bool { return p.all[i].at+p.all[i].n > off }); len(b) > 0; i++ {
		s := p.all[i]
		skip := off - s.at
		n := min(int64(len(b)), s.n-skip)
		var err error
		if s.written {
			err = p.read(b[:n], s.from+skip)
		} else {
			err = o.Object.ReadAt(ctx, b[:n], s.from+skip)
		}
		if err != nil {
			return err
		}
		b, off = b[n:], off+n
	}
	return nil
}

func (p *Planned) read(b []byte, at int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return readScratch(p.disk, b, at)
}
