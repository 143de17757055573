package pack

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/store/storekit"
)

// reference returns e's content as a reference from the archive at own. It returns false if there
// is none, or if the options want the content itself.
func reference(ctx context.Context, src *content.Source, e format.Entry, own string, embed bool, refer string) (*kit.Section, bool) {
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
	return &kit.Section{Off: at.Off, N: at.N, Address: at.Address}, true
}

// referred has the names of the entries that were written as references.
type referred map[string]bool

// refer adds all entries that can be written as references.
func (p *packer) refer(ctx context.Context, src *content.Source) (referred, error) {
	if !p.f.Refers || p.o.Embed && p.o.Refer == "" {
		return nil, nil
	}
	done, own := referred{}, storekit.AddressOf(p.to, p.name)
	for e, err := range src.Packed(ctx) {
		if err != nil {
			return nil, err
		}
		s, ok := reference(ctx, src, e, own, p.o.Embed, p.o.Refer)
		if !ok || src.Doubtful(e) != nil {
			continue
		}
		if err := p.add(ctx, e, s); err != nil {
			return nil, err
		}
		done[e.Name] = true
	}
	return done, nil
}

// others yields the entries that were not written as references.
func (r referred) others(entries iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	return listing.Only(entries, func(e format.Entry) bool { return !r[e.Name] })
}
