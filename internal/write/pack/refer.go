package pack

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/content"
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

// refer adds all entries that can be written as references. It reports whether others are left.
func (p *packer) refer(ctx context.Context, src *content.Source) (left bool, _ error) {
	if !p.f.Refers || p.o.Embed && p.o.Refer == "" {
		return true, nil
	}
	own := storekit.AddressOf(p.to, p.name)
	for e, err := range src.Packed(ctx) {
		if err != nil {
			return false, err
		}
		s, ok := reference(ctx, src, e, own, p.o.Embed, p.o.Refer)
		ok = ok && src.Doubtful(e) == nil
		if ok {
			if err := p.add(ctx, e, s); err != nil {
				return false, err
			}
		}
		p.referred = append(p.referred, ok)
		left = left || !ok
	}
	return left, nil
}

// unreferred yields the packed entries of src that were not written as references.
func (p *packer) unreferred(ctx context.Context, src *content.Source) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		i := 0
		for e, err := range src.Packed(ctx) {
			if err != nil || i >= len(p.referred) || !p.referred[i] {
				if !yield(e, err) {
					return
				}
			}
			i++
		}
	}
}
