package proof

import (
	"context"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

const (
	mostBlobID = 1 << 20 // bytes
	shortArray = 255     // values of an array that is not worth remembering
)

// own proves what a node has besides its children. An error is not of damage.
func (p *Prover) own(ctx context.Context, n segment.Node, lost func(property string, e *segment.Error)) error {
	// What a template has in the place of values was read with it.
	if len(n.Template().Properties) == 0 {
		return nil
	}
	primary := n.Template().Primary
	for prop, err := range n.Properties(ctx) {
		if err == nil && (primary == nil || prop.Multi || prop.ID() != primary.ID) {
			err = p.property(ctx, prop)
		}
		if err == nil {
			continue
		}
		e := damage(err)
		if e == nil {
			return err
		}
		lost(prop.Name, e)
	}
	return nil
}

// property proves the values of a property. The first that is damaged is the error.
func (p *Prover) property(ctx context.Context, prop segment.Property) error {
	if !prop.Multi {
		v, err := prop.At(ctx, 0)
		if err == nil {
			err = p.value(ctx, v, prop.Type == segment.Binary)
		}
		return err
	}
	long := prop.Len() > shortArray
	if long && p.proved(prop.ID()) {
		return nil
	}
	for v, err := range prop.Values(ctx) {
		if err == nil {
			err = p.value(ctx, v, prop.Type == segment.Binary)
		}
		if err != nil {
			return err
		}
	}
	if long {
		p.remember(prop.ID())
	}
	return nil
}

func (p *Prover) value(ctx context.Context, v segment.Value, binary bool) error {
	switch {
	case v.External():
		_, err := v.BlobID(ctx, mostBlobID)
		return err
	case v.Kind() != segment.Long || p.proved(v.ID()):
		return nil
	}
	for piece, err := range v.Pieces(ctx, 0, v.Len()) {
		if err == nil && (p.o.Binaries || !binary) {
			err = p.piece(ctx, piece)
		}
		if err != nil {
			return err
		}
	}
	p.remember(v.ID())
	return nil
}

// piece proves a part of a value. Blocks of data segments were proven when found.
func (p *Prover) piece(ctx context.Context, piece segment.Piece) error {
	if piece.Segment.IsData() {
		return nil
	}
	p.mu.Lock()
	_, known := p.bulk[piece.Segment]
	p.mu.Unlock()
	if known {
		return nil
	}
	if err := p.o.Bulk(ctx, piece.Segment); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bulk) >= p.o.Memory/8/32 {
		clear(p.bulk)
	}
	p.bulk[piece.Segment] = struct{}{}
	return nil
}

func (p *Prover) proved(id segment.RecordID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values.get(id) == good
}

func (p *Prover) remember(id segment.RecordID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark(p.values, id, good)
}
