package holdall

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// Converted says what a conversion wrote, and what the new format had no place
// for.
type Converted struct {
	Summary
	// Lost names what entries carried that the new format does not keep:
	// "modes", "times".
	Lost []string `json:"lost,omitempty"`
}

// Convert writes the entries of a into a new archive called name in st, in
// stored order. Content that lies raw in one piece is copied as it is, by the
// file system itself where it can; digests that a records are taken over.
func Convert(ctx context.Context, a *Archive, st store.Store, name string, o PackOptions) (Converted, error) {
	f, err := o.format(name)
	if err != nil {
		return Converted{}, err
	}
	p, err := newPacker(st, name, f, o)
	if err != nil {
		return Converted{}, err
	}
	if f.Name == a.f.Name {
		about, err := a.About(ctx)
		if err != nil {
			return Converted{}, err
		}
		p.carry = about.Carry
	}
	if f.WantsManifest {
		for e, err := range p.source(ctx, a) {
			if err != nil {
				return Converted{}, err
			}
			if kept, _ := p.keeps(e); kept {
				p.adjust(&e)
				e.Ref, e.Attr, e.Digest = nil, nil, Digest{}
				p.manifest = append(p.manifest, e)
			}
		}
	}
	if err := a.expect(ctx, o.Meter, func(e Entry) bool { return !e.Internal }); err != nil {
		return Converted{}, err
	}
	sum, err := p.run(ctx, func(ctx context.Context) error {
		if store.IsNear(a.st) {
			return p.convertNear(ctx, a)
		}
		refers, err := p.refer(ctx, a)
		if err != nil {
			return err
		}
		entries := refers.others(p.source(ctx, a))
		if p.f.Copies && store.CopiesFrom(p.st.Store, store.AddressOf(a.st, a.name)) {
			return p.convertWithin(ctx, a, entries)
		}
		return p.swept(ctx, a, entries)
	})
	done := Converted{Summary: sum, Lost: lost(a.f.Keeps &^ f.Keeps)}
	if p.copies {
		done.Lost = append(done.Lost, "hard links, which become copies")
	}
	return done, err
}

// source yields what is to be converted. A hard link that the new format has no
// place for becomes a file of its own.
func (p *packer) source(ctx context.Context, a *Archive) iter.Seq2[Entry, error] {
	if p.f.Keeps&format.KeepsHardLinks != 0 || a.f.Keeps&format.KeepsHardLinks == 0 {
		return a.packed(ctx)
	}
	return func(yield func(Entry, error) bool) {
		for e, err := range a.packed(ctx) {
			for hops := 0; err == nil && e.Kind == format.HardLink && e.Fault == nil && hops < maxHops; hops++ {
				var file Entry
				if file, err = a.Lookup(ctx, e.Link); errors.Is(err, fs.ErrNotExist) {
					err = nil
					break // it is left out, and counted
				}
				if err == nil {
					file.Name = e.Name
					e, p.copies = file, true
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// swept reads the contents of entries, many at once, and adds them in order.
func (p *packer) swept(ctx context.Context, a *Archive, entries iter.Seq2[Entry, error]) error {
	return a.sweep(ctx, entries, true, func(it sweepItem, content io.Reader, err error) error {
		if err == nil && it.Entry.Fault != nil {
			err = &format.CorruptError{Format: a.f.Name, Problem: *it.Entry.Fault}
		}
		if err != nil {
			return p.fail(it.Entry.Name, err)
		}
		if p.implied(ctx, a, it.Entry) {
			return nil
		}
		return p.add(ctx, it.Entry, &source{Reader: content})
	})
}

// maxHops is how many hard links may lead to each other before a file.
const maxHops = 40

// convertNear copies from a disk: entry by entry, for there is no round trip
// to save.
func (p *packer) convertNear(ctx context.Context, a *Archive) error {
	for e, err := range p.source(ctx, a) {
		if err != nil {
			return err
		}
		if e.Fault != nil {
			if err := p.fail(e.Name, &format.CorruptError{Format: a.f.Name, Problem: *e.Fault}); err != nil {
				return err
			}
			continue
		}
		if p.implied(ctx, a, e) {
			continue
		}
		section, ok := p.reference(ctx, a, e)
		if !ok {
			section, ok = a.section(ctx, e)
		}
		if ok {
			if err := p.add(ctx, e, section); err != nil {
				return err
			}
			continue
		}
		r := a.reader(ctx, e, 0)
		err := p.add(ctx, e, &source{Reader: r})
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// implied reports whether e is a folder that the new format has no place for
// and does not need: the names of what is in it imply it.
func (p *packer) implied(ctx context.Context, a *Archive, e Entry) bool {
	if e.Kind != format.Dir || p.f.Keeps&format.KeepsDirs != 0 {
		return false
	}
	for _, err := range a.ReadDir(ctx, e.Name) {
		return err == nil
	}
	return false
}

// section returns e's content as one run of stored bytes, if it is one that nobody
// has to look at.
func (a *Archive) section(ctx context.Context, e Entry) (*format.Section, bool) {
	if a.proves(e) {
		return nil, false
	}
	var run *Extent
	for x, err := range a.Extents(ctx, e) {
		if err != nil || run != nil || x.Codec != codec.Raw || x.At != 0 || x.Size != e.Size {
			return nil, false
		}
		run = &x
	}
	if run == nil {
		return nil, false
	}
	o, err := a.engine.Object(ctx, *run)
	if err != nil {
		return nil, false
	}
	return format.NewSection(ctx, o, run.Off+run.Skip, e.Size), true
}

// lost names what is in k.
func lost(k format.Keeps) (words []string) {
	for _, w := range []struct {
		k    format.Keeps
		name string
	}{
		{format.KeepsModes, "modes"}, {format.KeepsTimes, "times"}, {format.KeepsOwners, "owners"}, {format.KeepsProperties, "types of properties"},
	} {
		if k&w.k != 0 {
			words = append(words, w.name)
		}
	}
	return words
}
