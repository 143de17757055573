package parity

import (
	"bytes"
	"context"
	"errors"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Lost returns the names of the objects that the guard was bound to and that are missing.
func (g *Guard) Lost() (names []string) {
	for _, p := range g.objs {
		if p.own && p.obj == nil && p.Size > 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// WriteBack writes what Rest shows to the objects that the guard was bound to. It must follow a
// Check with heal. If an object can be changed in place, it writes only the damaged blocks, so that
// after a crash each byte is either unchanged or healed. Other objects are written to a stage and
// then replaced.
func (g *Guard) WriteBack(ctx context.Context) error {
	v := &view{Store: g.st, g: g, rest: true}
	stage := storekit.NewStage(g.st)
	defer stage.Discard()
	var amended []*part
	for _, p := range g.objs {
		if !p.own || !v.has(p) || !g.differs(p) {
			continue
		}
		whole, err := v.toBeWhole(p)
		if err != nil {
			return err
		}
		if !whole {
			a, err := storekit.Amend(ctx, g.st, p.name)
			if err == nil {
				amended = append(amended, p)
				err = a.Close()
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
		}
		if err := v.copy(ctx, p, stage); err != nil {
			return err
		}
	}
	// All reads are done. From here on, objects change.
	for _, p := range amended {
		if err := v.amend(ctx, p); err != nil {
			return err
		}
	}
	if err := stage.Publish(ctx); err != nil {
		return err
	}
	for _, p := range g.objs {
		if p.obj != nil {
			p.obj.Close()
			p.obj = nil
		}
		if err := p.open(ctx, g.st); err != nil {
			return err
		}
		p.turned.Store(0)
		p.nearer.Store(false)
		p.moved = false
	}
	g.moved.Store(nil) // all blocks are in their places
	return nil
}

// blocks calls do with each block of an object that is healed or not completely there. at is the
// offset of a healed block in kept.
func (g *Guard) blocks(p *part, do func(block, at int64, healed bool) error) error {
	size := int64(g.f.h.block)
	for block := p.from / size; block*size < p.from+p.Size; block++ {
		at, healed := g.healed[block]
		if !healed && min((block+1)*size-p.from, p.Size) <= p.there {
			continue
		}
		if err := do(block, at, healed); err != nil {
			return err
		}
	}
	return nil
}

var errFound = errors.New("found")

// differs reports whether an object differs from what Rest shows.
func (g *Guard) differs(p *part) bool {
	return p.there != p.Size || p.obj == nil || p.moved || g.blocks(p, func(_, _ int64, healed bool) error {
		if healed {
			return errFound
		}
		return nil
	}) != nil
}

// toBeWhole reports whether an object has to be written completely: it is missing, has lost bytes
// before its end, is too long, has blocks that were found elsewhere, or lacks bytes at its end that are
// neither healed nor lost.
func (v *view) toBeWhole(p *part) (whole bool, err error) {
	if p.obj == nil || p.nearer.Load() || p.moved || p.there > p.Size {
		return true, nil
	}
	err = v.g.blocks(p, func(block, _ int64, healed bool) error {
		lost, err := v.g.isLost(block)
		whole = whole || !healed && !lost
		return err
	})
	return whole, err
}

// copy writes a complete object.
func (v *view) copy(ctx context.Context, p *part, to store.Store) error {
	o, err := v.Open(ctx, p.name)
	if err != nil {
		return err
	}
	_, err = storekit.Write(ctx, to, p.name, func(w store.Writer) error {
		return storekit.WriteRange(ctx, w, o, 0, o.(*whole).size)
	})
	return err
}

// amend overwrites the damaged blocks of an object in place.
func (v *view) amend(ctx context.Context, p *part) error {
	g := v.g
	end, err := v.size(p)
	if err != nil {
		return err
	}
	a, err := storekit.Amend(ctx, g.st, p.name)
	if err != nil {
		return err
	}
	defer a.Close()
	size := int64(g.f.h.block)
	b, now := make([]byte, size), make([]byte, size)
	err = g.blocks(p, func(block, at int64, healed bool) error {
		from, to := max(block*size-p.from, 0), min((block+1)*size-p.from, end)
		clear(b)
		if healed {
			if err := g.kept.read(b, at); err != nil {
				return err
			}
		} else { // zeros keep its place
			from = max(from, p.there)
		}
		if from >= to {
			return nil
		}
		b := b[from+p.from-block*size:][:to-from]
		if to <= a.Size() {
			if err := a.ReadAt(ctx, now[:len(b)], from); err == nil && bytes.Equal(now[:len(b)], b) {
				return nil
			}
		}
		return a.WriteAt(ctx, b, from)
	})
	if err != nil {
		return err
	}
	return a.Sync(ctx)
}
