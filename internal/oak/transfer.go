package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A mover reads segments of a store that are written to another tar, as they are or in part. What
// gets a checksum there, [tarfile.NewHeader] decides by the headers that they had.
type mover struct {
	r     *repository
	doubt atomic.Bool    // a segment of which parts were used is not proven
	moved []tarfile.Bits // a bit for each segment of each tar
}

// first reports whether it is called with a segment for the first time.
func (m *mover) first(id segment.ID) bool {
	if m.moved == nil {
		m.moved = make([]tarfile.Bits, len(m.r.tars))
	}
	for i, t := range m.r.tars {
		if n, ok := t.Find(id); ok {
			if m.moved[i] == nil {
				m.moved[i] = tarfile.NewBits(t.Len())
			}
			defer m.moved[i].Set(n)
			return !m.moved[i].Has(n)
		}
	}
	return true
}

// read reads an intact segment, with its header, into buf or a longer slice.
func (m *mover) read(ctx context.Context, id segment.ID, buf []byte) (f segment.Finished, err error) {
	err = m.r.anyCopy(ctx, id, func(t *segmentTar, e tarfile.Entry) (err error) {
		f, err = t.readMoved(ctx, e, buf, healing)
		return err
	})
	return f, err
}

// readMoved reads a segment that is written to another tar, with the header that it has or, in a blob,
// deserves.
func (t *segmentTar) readMoved(ctx context.Context, e tarfile.Entry, buf []byte, how trust) (f segment.Finished, err error) {
	if t.blobs == nil {
		f = segment.Finished{ID: e.ID, Generation: e.Plain().Generation}
		f.Header, f.Data, err = t.readBoth(ctx, e, buf, true, how)
		return f, err
	}
	f, err = cloud.Read(ctx, t.obj, e, buf)
	if isAltered(err) && how == asStored {
		err = nil
	}
	return f, err
}

// parsed returns the segments of the store for a writer that uses parts of them.
func (m *mover) parsed() *parsed {
	return &parsed{r: m.r, load: func(ctx context.Context, id segment.ID) (*segment.Segment, error) {
		f, err := m.read(ctx, id, nil)
		if err != nil {
			return nil, err
		}
		if !tarfile.Proves(id, f.Header, f.Data) {
			m.doubt.Store(true)
		}
		return segment.Parse(id, f.Data)
	}}
}

// made returns a segment that was made of parts. If they were not proven, it gets no checksum.
func (m *mover) made(f segment.Finished) segment.Finished {
	if f.Header == nil && m.doubt.Load() {
		f.Header = tarfile.Unproven(f.ID, f.Data)
	}
	return f
}

// others returns the tars of a number that are not in use.
func (r *repository) others(number int) (names []string) {
	for _, t := range r.shadowed {
		if t.Number == number {
			names = append(names, t.Name)
		}
	}
	return names
}

// keepTar copies a tar of st that is to be replaced or removed to the first free name that Oak's own
// recovery would use. A copy that a killed run has left is not made again.
func keepTar(ctx context.Context, to, st store.Store, tar string) (aside string, err error) {
	for i := 1; ; i++ {
		if aside = tar + ".bak"; i > 1 {
			aside = fmt.Sprintf("%s.%d.bak", tar, i)
		}
		there, err := kit.Alike(ctx, st, tar, aside)
		if errors.Is(err, fs.ErrNotExist) {
			return aside, kit.Copy(ctx, to, aside, st, tar, nil, nil)
		}
		if there || err != nil {
			return aside, err
		}
	}
}

// other opens the store in a folder that is to be written to. It returns nil if there is none. If the
// folder has other files, that is an error.
func other(ctx context.Context, st store.Store, name string, limits format.Limits) (*repository, error) {
	r, err := openRepository(ctx, st, name, format.OpenOptions{Limits: limits})
	if err == nil {
		return r, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Class != notAStore {
		return nil, err
	}
	l, err := repo.List(ctx, st, name)
	if err == nil && (len(l.Ignored) > 0 || slices.ContainsFunc(l.Others, func(f repo.File) bool { return !strings.HasPrefix(f.Name, ".") })) {
		err = refuse("%s: has files that do not belong to a segment store: use an empty or a new folder", storekit.AddressOf(st, name))
	}
	return nil, err
}
