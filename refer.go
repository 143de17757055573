package holdall

import (
	"context"
	"iter"
	"path"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// reference returns e's content as something to be referred to, if the new
// archive can, and it is to be so. Zeros that fill a chunk up are no part of it.
func (p *packer) reference(ctx context.Context, a *Archive, e Entry) (*format.Section, bool) {
	if !p.f.Refers || e.Fault != nil || !e.Kind.HasContent() {
		return nil, false
	}
	var run *Extent
	for x, err := range a.Extents(ctx, e) {
		switch {
		case err != nil:
			return nil, false
		case x.Codec == codec.Zero:
			continue
		case run != nil || x.Codec != codec.Raw || x.At != 0:
			return nil, false
		}
		run = &x
	}
	if run == nil || run.Size == 0 {
		return nil, false
	}
	s := &format.Section{Off: run.Off + run.Skip, N: run.Size}
	switch {
	case run.External && p.o.Embed, !run.External && p.o.Refer == "":
		return nil, false
	case run.External:
		s.Address = a.objects.portable(run.Object, store.AddressOf(p.st.Store, p.name))
	case p.o.Refer == ReferHere:
		s.Address = store.AddressOf(a.st, run.Object)
	default:
		// Objects of an archive that is a folder lie below its address.
		s.Address = p.o.Refer + strings.TrimPrefix(run.Object, a.name)
	}
	return s, s.Address != ""
}

// portable returns an address as an archive at own may have it, that of another
// archive at x may have it as a path beside itself.
func (x *objects) portable(address, own string) string {
	if store.Scheme(address) != "" {
		return address
	}
	whole, _ := x.resolve(address)
	if store.Scheme(whole) == "" && own != "" && path.Dir(whole) == path.Dir(own) {
		return path.Base(whole)
	}
	return whole
}

// referred are entries that were written as references.
type referred map[string]bool

// refer adds all entries that only need a reference.
func (p *packer) refer(ctx context.Context, a *Archive) (referred, error) {
	if !p.f.Refers {
		return nil, nil
	}
	done := referred{}
	for e, err := range a.packed(ctx) {
		if err != nil {
			return nil, err
		}
		s, ok := p.reference(ctx, a, e)
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
func (r referred) others(entries iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	if len(r) == 0 {
		return entries
	}
	return func(yield func(Entry, error) bool) {
		for e, err := range entries {
			if err == nil && r[e.Name] {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
