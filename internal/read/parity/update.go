package parity

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Keeper updates the parity of an archive that is changed in place through Store. It keeps the
// old content of each changed block. The parity of a sum is the sum of the parities, so no other
// block has to be read.
type Keeper struct {
	g    *Guard
	st   store.Store
	name string

	was  map[int64]int64 // offset in kept of the old content of a changed block
	kept room
	lost bool // the changes are not known
	seen bool // the archive was opened to be changed
}

// Keep finds the parity beside an archive that is about to be changed. It returns nil if there is
// none.
func Keep(ctx context.Context, st store.Store, name string) (*Keeper, error) {
	g, err := Seek(ctx, st, name, "", nil)
	if g == nil || err != nil {
		return nil, err
	}
	k := &Keeper{st: st, name: name}
	k.kept.limit = sumMemory / 4
	k.watch(g)
	return k, nil
}

// watch starts with the parity as it is now.
func (k *Keeper) watch(g *Guard) {
	k.kept.close()
	k.g, k.was = g, map[int64]int64{}
	k.lost = !g.Same || len(g.objs) != 1 || g.objs[0].Object.Name != ""
}

func (k *Keeper) Close() error {
	k.kept.close()
	return k.g.Close()
}

// Store is the store to change the archive through.
func (k *Keeper) Store() store.Store { return keeping{k.st, k} }

type keeping struct {
	store.Store
	k *Keeper
}

func (s keeping) Can() store.Abilities {
	below := s.Store.Can()
	can := store.Abilities{
		Near: below.Near, Address: below.Address, List: below.List, OpenGrowing: below.OpenGrowing, Locked: below.Locked,
		Create: below.Create, Remove: below.Remove, Owns: below.Owns, Adopt: below.Adopt,
	}
	if amend := below.Amend; amend != nil {
		can.Amend = func(ctx context.Context, name string) (store.Amendment, error) {
			a, err := amend(ctx, name)
			if err != nil || name != s.k.name || s.k.lost {
				return a, err
			}
			// From here on no other program changes it, but one may have done so before.
			now := part{Object: s.k.g.objs[0].Object, name: name}
			err = now.open(ctx, s.k.st)
			if now.obj != nil {
				now.obj.Close()
			}
			s.k.lost = s.k.seen || err != nil || !now.same
			s.k.seen = true
			return &kept{a, s.k}, nil
		}
	}
	return can
}

// kept is an amendment that keeps the bytes that it overwrites.
type kept struct {
	store.Amendment
	k *Keeper
}

func (a *kept) WriteAt(ctx context.Context, p []byte, off int64) error {
	a.k.keep(ctx, a.Amendment, off, off+int64(len(p)))
	return a.Amendment.WriteAt(ctx, p, off)
}

func (a *kept) Truncate(ctx context.Context, size int64) error {
	a.k.keep(ctx, a.Amendment, size, a.k.g.objs[0].Size)
	return a.Amendment.Truncate(ctx, size)
}

// keep keeps the old content of the blocks in a range, except those that are new or already kept.
// If it fails, the parity is computed from the complete archive.
func (k *Keeper) keep(ctx context.Context, a store.Amendment, off, end int64) {
	h := &k.g.f.h
	size := int64(h.block)
	b := make([]byte, size)
	for i := off / size; i < h.blocks && i*size < end && !k.lost; i++ {
		if _, ok := k.was[i]; ok {
			continue
		}
		n := min(size, k.g.f.Total-i*size)
		clear(b[n:])
		at := int64(len(k.was)) * size
		// A damaged block was different when its parity was computed.
		k.lost = int64(len(k.was)) > h.blocks/8+64 || a.ReadAt(ctx, b[:n], i*size) != nil || k.g.right(ctx, i, b) != nil || k.kept.write(b, at) != nil
		k.was[i] = at
	}
}

// Update writes the parity of the archive as it is now, and returns a note for the user, if there
// is one. Parity that already belonged to a different version stays unchanged.
func (k *Keeper) Update(ctx context.Context) (note string, err error) {
	at := k.g.f.At
	if k.g.Suits != nil {
		return at + " belonged to an older version of the archive and was not updated", nil
	}
	err = ErrTooMuch
	if k.seen && !k.lost {
		_, err = storekit.Write(ctx, k.st, at, func(w store.Writer) error { return k.update(ctx, w) })
	}
	if errors.Is(err, errLost) || errors.Is(err, ErrTooMuch) {
		note = at + " was computed again from the whole archive"
		_, _, err = k.g.f.Renew(ctx, k.st, k.name, nil)
	}
	if err != nil {
		return "", err
	}
	g, err := Seek(ctx, k.st, k.name, "", nil)
	if err == nil && g == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = k.g.Close()
		k.watch(g)
	}
	return note, err
}

// growth is how much an archive may grow before its parity has to be computed again from the
// complete archive.
const growth = 1.25

// Renew writes f, which lies beside the archive called name, again, as the parity of the current
// state of the protected objects. It leaves room for the archive to grow. It returns a summary of
// the new parity and the length of its file.
func (f *File) Renew(ctx context.Context, st store.Store, name string, m *meter.Meter) (sum Summary, size int64, err error) {
	objects := slices.Clone([]Object(f.Objects))
	if strings.HasPrefix(objects[0].Name, "/") { // the folder may have other objects now
		if objects, err = Find(ctx, st, name); err != nil {
			return sum, 0, err
		}
	}
	total := int64(0)
	for i := range objects {
		info, err := storekit.Briefly(st, objects[i].NameBeside(name)).Info(ctx)
		if err != nil {
			return sum, 0, err
		}
		objects[i] = objectOf(objects[i].Name, info)
		total += info.Size
	}
	e, err := NewEncoder(ctx, int64(float64(total)*growth), f.Loss)
	if err != nil {
		return sum, 0, err
	}
	defer e.Close()
	e.grows = true
	if m.WantsTotal() {
		m.Expect(int64(len(objects)), total)
	}
	for i := range objects {
		if err := objects[i].feed(ctx, st, name, e, m); err != nil {
			return sum, 0, err
		}
	}
	info, err := storekit.Write(ctx, st, f.At, func(w store.Writer) error { return e.Finish(w, objects) })
	return e.Summary(), info.Size, err
}

// update writes the old parity with the changes added. It returns errLost if a part of the parity
// file that it needs is damaged, and ErrTooMuch if the parity no longer suffices.
func (k *Keeper) update(ctx context.Context, to io.Writer) error {
	o, info, err := storekit.OpenInfo(ctx, k.st, k.name)
	if err != nil {
		return err
	}
	defer o.Close()
	f, g := k.g.f, k.g.f.h.geometry
	size := int64(g.block)
	was := g.blocks
	g.blocks = (info.Size + size - 1) / size
	if g.version < version || g.blocks < was || g.parity < share(g.inGroup(0), g.groups, f.Loss) || g.check() != nil {
		return ErrTooMuch
	}
	e := newEncoder(ctx, g, f.Loss)
	defer e.Close()
	e.size = info.Size
	record := make([]byte, g.stride())
	for i := range (was + nearLen - 1) / nearLen {
		b, err := f.record(ctx, kindNear, i, record)
		if err == nil {
			err = e.nears.write(b, i*size)
		}
		if err != nil {
			return err
		}
	}
	for at, digests := int64(0), was*digestLen; at < f.h.text(); {
		b, err := f.word(ctx, at)
		switch {
		case err != nil:
		case at < digests:
			b = b[:min(int64(len(b)), digests-at)]
			err = e.sums.write(b, at)
		default:
			b = b[:min(int64(len(b)), f.h.text()-at)]
			err = e.hashes.write(b, at-digests)
		}
		if err != nil {
			return err
		}
		at += int64(len(b))
	}
	var changed []int64
	for i := range k.was {
		changed = append(changed, i)
	}
	slices.Sort(changed)
	for i := was; i < g.blocks; i++ {
		changed = append(changed, i)
	}
	b, old, none := make([]byte, size), make([]byte, size), make([]byte, size)
	for _, i := range changed {
		n := min(size, info.Size-i*size)
		clear(b[n:])
		if err := o.ReadAt(ctx, b[:n], i*size); err != nil {
			return err
		}
		if err := e.keepHashes(i, b); err != nil {
			return err
		}
		if at, ok := k.was[i]; ok {
			if err := k.kept.read(old, at); err != nil {
				return err
			}
			subtle.XORBytes(b, b, old)
		}
		at := i / nearLen * size
		if err := e.nears.read(e.near, at); err != nil {
			return err
		}
		subtle.XORBytes(e.near, e.near, b)
		if err := e.nears.write(e.near, at); err != nil {
			return err
		}
		if err := e.code.addAlone(ctx, i, b, none); err != nil {
			return err
		}
	}
	if err := e.code.finish(ctx, g.parity); err != nil {
		return err
	}
	e.was = func(i int64) ([]byte, error) { return f.record(ctx, kindParity, i, record) }
	// All bytes were of one version, or the reads would have failed.
	return e.write(to, []Object{objectOf("", info)})
}

// addAlone is add for a block that need not follow the previous one of its group. It adds zeros for
// the blocks in between.
func (c *coder) addAlone(ctx context.Context, i int64, b, zeros []byte) error {
	group, at := i%c.groups, i/c.groups
	if run := at / int64(c.order); run != c.run {
		if err := c.flush(ctx); err != nil {
			return err
		}
		c.run = run
	}
	for slot := c.filled[group]; int64(slot) < at%int64(c.order); slot++ {
		if err := c.add(ctx, (c.run*int64(c.order)+int64(slot))*c.groups+group, zeros); err != nil {
			return err
		}
	}
	return c.add(ctx, i, b)
}
