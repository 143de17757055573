package pack

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/content"
	"github.com/holdall/holdall/internal/listing"
	"github.com/holdall/holdall/store"
)

// reference is e's content as an archive at own may refer to it, if that is wanted.
func reference(ctx context.Context, src *content.Source, e format.Entry, own string, embed bool, refer string) (*format.Section, bool) {
	if e.Fault != nil || !e.Kind.HasContent() {
		return nil, false
	}
	base := refer
	if base == ReferHere {
		base = ""
	}
	at, external, ok := src.Place(ctx, e, own, base)
	if !ok || external && embed || !external && refer == "" {
		return nil, false
	}
	return &format.Section{Off: at.Off, N: at.N, Address: at.Address}, true
}

// referred are entries that were written as references.
type referred map[string]bool

// refer adds all entries that only need a reference.
func (p *packer) refer(ctx context.Context, src *content.Source) (referred, error) {
	if !p.f.Refers || p.o.Embed && p.o.Refer == "" {
		return nil, nil
	}
	done, own := referred{}, store.AddressOf(p.st.Store, p.name)
	for e, err := range src.Packed(ctx) {
		if err != nil {
			return nil, err
		}
		s, ok := reference(ctx, src, e, own, p.o.Embed, p.o.Refer)
		if !ok {
			continue
		}
		if err := p.add(ctx, e, s); err != nil {
			return nil, err
		}
		done[e.Name] = true
	}
	return done, nil
}

// others yields the entries that are not yet written.
func (r referred) others(entries iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	return listing.Only(entries, func(e format.Entry) bool { return !r[e.Name] })
}
