package lindi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// looseMedium is a lindi.json, alone or in a folder with its members, which is replaced as a
// whole.
type looseMedium struct {
	a     *archive
	lock  store.Amendment
	stage *storekit.Stage
	set   *refset
	sizes map[string]int64 // of members that exist or will exist
	gone  []string         // objects to remove after the next commit
	moved [][2]string
	dirty bool
	buf   []byte
}

func amendLoose(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *looseMedium, err error) {
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	defer a.close()
	m := &looseMedium{a: a, stage: storekit.NewStage(st), sizes: map[string]int64{}, buf: make([]byte, 64<<10)}
	if m.lock, err = storekit.Amend(ctx, st, a.objectName()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.lock.Close()
		}
	}()
	if err := a.loadRFS(ctx); err != nil {
		return nil, err
	}
	if a.form == dirForm {
		files, err := a.files(ctx)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			m.sizes[f.name] = f.size
		}
	}
	m.set = newRefset(a.rfs)
	return m, nil
}

func (m *looseMedium) refs() *refset { return m.set }
func (m *looseMedium) members() bool { return m.a.form == dirForm }

func (m *looseMedium) has(name string) bool {
	_, ok := m.sizes[name]
	return ok
}

func (m *looseMedium) taken(name string) bool {
	return m.has(name) || slices.Contains(m.gone, m.object(name))
}

func (m *looseMedium) object(name string) string { return m.a.name + "/" + name }

func (m *looseMedium) put(ctx context.Context, name string, e format.Entry, r io.Reader) error {
	if !fs.ValidPath(name) {
		return kit.Refuse(e.Name, "not a path within a folder")
	}
	if err := putObject(ctx, m.stage, m.object(name), e, r, m.buf); err != nil {
		return err
	}
	m.sizes[name] = e.Size
	m.gone = slices.DeleteFunc(m.gone, func(o string) bool { return o == m.object(name) })
	m.dirty = true
	return nil
}

func (m *looseMedium) drop(name string) {
	delete(m.sizes, name)
	m.gone = append(m.gone, m.object(name))
	m.dirty = true
}

func (m *looseMedium) rename(from, to string) error {
	if !fs.ValidPath(to) {
		return kit.Refuse(to, "not a path within a folder")
	}
	m.sizes[to] = m.sizes[from]
	delete(m.sizes, from)
	m.gone = slices.DeleteFunc(m.gone, func(o string) bool { return o == m.object(to) })
	m.moved = append(m.moved, [2]string{from, to})
	m.gone = append(m.gone, m.object(from))
	m.dirty = true
	return nil
}

// commit makes members appear, then lindi.json, and then removes what it no longer refers to. So
// everything that lindi.json refers to exists at all times.
func (m *looseMedium) commit(ctx context.Context) (int64, []string, error) {
	if !m.dirty && !m.set.changed {
		return m.stored(0), nil, nil
	}
	for _, mv := range m.moved {
		if err := m.copy(ctx, mv[0], mv[1]); err != nil {
			return 0, nil, err
		}
	}
	text, err := sealed(m.set.appendText(nil), m.a.limits.Depth)
	if err != nil {
		return 0, nil, err
	}
	if err := kit.WriteBytes(ctx, m.stage, m.a.objectName(), text); err != nil {
		return 0, nil, err
	}
	if err := m.stage.Publish(ctx); err != nil {
		return 0, nil, err
	}
	for _, name := range m.gone {
		if err := storekit.Remove(ctx, m.a.st, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, nil, err
		}
	}
	m.gone, m.moved, m.dirty, m.set.changed = nil, nil, false, false
	return m.stored(int64(len(text))), nil, nil
}

func (m *looseMedium) stored(text int64) int64 {
	if text > 0 {
		m.sizes[rfsName] = text
	}
	n := int64(0)
	for _, size := range m.sizes {
		n += size
	}
	return n
}

// copy gives an object a second name. The object may have been written just now and not exist
// yet.
func (m *looseMedium) copy(ctx context.Context, from, to string) error {
	if err := m.stage.Publish(ctx); err != nil {
		return err
	}
	o, info, err := storekit.OpenInfo(ctx, m.a.st, m.object(from))
	if err != nil {
		return err
	}
	defer o.Close()
	e := format.Entry{Name: to, Size: info.Size}
	return putObject(ctx, m.stage, m.object(to), e, kit.NewSection(ctx, o, 0, info.Size), m.buf)
}

func (m *looseMedium) close() error {
	return errors.Join(m.stage.Discard(), m.lock.Close())
}
