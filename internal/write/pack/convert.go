package pack

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Convert writes the entries of src into a new archive called name in st, in stored order. Content
// that is stored raw in one piece is copied unchanged, by the file system itself if it can. Digests
// that src records are kept. All content that is read is compared with them, and left out if it
// differs; content that a store copies by itself is not read. Options.Unverified omits comparisons,
// but never one without which wrong content would get a new checksum.
func Convert(ctx context.Context, src *content.Source, st store.Store, name string, o Options) (Summary, error) {
	p, err := newPacker(st, name, o, true)
	if err != nil {
		return Summary{}, err
	}
	src.Certain()
	if err := src.Vouched(); err != nil && !o.KeepDamaged {
		return Summary{}, err
	}
	if o.Unverified {
		src.Checking.Skip = p.carries
	}
	p.guards(output.Guard{Inputs: []string{cmp.Or(storekit.AddressOf(src.Store, src.Name), src.Name)}})
	p.some = p.names != nil
	if carry := src.Reader.Can().Carry; carry != nil && p.f.Name == src.Format.Name {
		if p.carry, err = carry(ctx); err != nil {
			return Summary{}, err
		}
	}
	if p.f.WantsManifest {
		for e, err := range p.converted(ctx, src) {
			if err != nil {
				return Summary{}, err
			}
			if kept, _ := p.keeps(e); kept && !tooDeep(e) {
				p.adjust(&e)
				e.Ref, e.Attr, e.Digest = nil, nil, format.Digest{}
				if len(p.manifest) == cap(p.manifest) { // entries are large: grow rarely
					p.manifest = slices.Grow(p.manifest, max(64, len(p.manifest)))
				}
				p.manifest = append(p.manifest, e)
			}
		}
	}
	if err := src.Expect(ctx, o.Meter, func(e format.Entry) bool { return !e.Internal && p.names.Wants(e.Name) }); err != nil {
		return Summary{}, err
	}
	return p.run(ctx, func(ctx context.Context) (err error) {
		defer func() {
			if err == nil && !o.KeepDamaged {
				err = src.Vouched() // more of the index has been read
			}
		}()
		if o.Protect > 0 {
			if err := p.expectOf(ctx, src); err != nil {
				return err
			}
		}
		if left, err := p.refer(ctx, src); err != nil || !left {
			return err
		}
		entries := p.converted(ctx, src)
		if p.joined() != nil || src.Store.Can().Near {
			return p.swept(ctx, src, entries) // joined content, and archives on a disk, are read here
		}
		if copies := p.to.Can().CopiesFrom; p.f.Copies && p.parity == nil && copies != nil && copies(storekit.AddressOf(src.Store, src.Name)) {
			return p.convertWithin(ctx, src, entries)
		}
		return p.swept(ctx, src, entries)
	})
}

// carries reports whether the digest of e goes into the archive as it is. Then nothing else there
// proves e's content: if that is wrong, it does not become right.
func (p *packer) carries(e format.Entry) bool {
	algo := p.digests()
	return algo != "" && e.Digest.Algo == algo && p.joined() == nil
}

// expectOf starts recording parity for the entries of an archive.
func (p *packer) expectOf(ctx context.Context, src *content.Source) error {
	var n, names, bytes int64
	for e, err := range p.unsorted(ctx, src) {
		if err != nil {
			return err
		}
		n, names, bytes = n+1, names+int64(len(e.Name)), bytes+e.Size
	}
	p.expect(ctx, n, names, bytes)
	return nil
}

// converted yields the entries to convert, in stored order unless contents are joined.
func (p *packer) converted(ctx context.Context, src *content.Source) iter.Seq2[format.Entry, error] {
	order := p.joined()
	if order == nil {
		return p.unsorted(ctx, src)
	}
	return func(yield func(format.Entry, error) bool) {
		var all []format.Entry
		for e, err := range p.unsorted(ctx, src) {
			if err != nil {
				yield(e, err)
				return
			}
			all = append(all, e)
		}
		slices.SortStableFunc(all, order)
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// unsorted yields the entries to convert. A hard link that the new format cannot store, or to a
// file that is left out, becomes a file of its own.
func (p *packer) unsorted(ctx context.Context, src *content.Source) iter.Seq2[format.Entry, error] {
	packed := p.unreferred(ctx, src)
	if p.names != nil {
		packed = listing.Only(packed, func(e format.Entry) bool { return p.names.Wants(e.Name) })
	}
	keeps := p.f.Keeps&format.KeepsHardLinks != 0
	if keeps && p.names == nil || src.Format.Keeps&format.KeepsHardLinks == 0 {
		return packed
	}
	return func(yield func(format.Entry, error) bool) {
		for e, err := range packed {
			for hops := 0; err == nil && e.Kind == format.HardLink && e.Fault == nil && hops < maxHops && !(keeps && p.names.Wants(e.Link)); hops++ {
				var file format.Entry
				if file, err = src.Reader.Lookup(ctx, e.Link); errors.Is(err, fs.ErrNotExist) {
					err = nil
					break // add leaves it out and counts it
				}
				if err == nil {
					file.Name = e.Name
					e, p.ledger.links = file, true
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// swept reads the contents of entries, many at once, and adds them in order.
func (p *packer) swept(ctx context.Context, src *content.Source, entries iter.Seq2[format.Entry, error]) error {
	return src.Sweep(ctx, entries, content.Compared, func(c content.Content, err error) error {
		failed := p.sum.Failed
		if err = p.convertOne(ctx, src, c, err); err == nil && p.o.KeepDamaged && p.sum.Failed > failed {
			err = p.addDamaged(ctx, src, c.Entry)
		}
		return err
	})
}

// convertOne adds an entry, or notes why it could not.
func (p *packer) convertOne(ctx context.Context, src *content.Source, c content.Content, err error) error {
	if err == nil {
		err = cmp.Or(src.Fault(c.Entry), src.Doubtful(c.Entry))
	}
	if err != nil {
		return p.fail(c.Entry.Name, err)
	}
	if p.implied(ctx, src, c.Entry) {
		return nil
	}
	section, ok := p.copied(ctx, src, c.Entry)
	if !ok {
		return p.addContent(ctx, c)
	}
	if src.HasDigest(c.Entry) {
		if err := src.Settle(ctx, c.Entry); err != nil {
			return p.fail(c.Entry.Name, err)
		}
	}
	return p.add(ctx, c.Entry, section)
}

// addDamaged adds what can be read of damaged content as NAME.damaged, with zeros for the rest.
func (p *packer) addDamaged(ctx context.Context, src *content.Source, e format.Entry) error {
	if !e.Kind.HasContent() || content.Passing(e, p.why) != nil {
		return nil
	}
	from := e
	e.Name, e.Digest, e.Fault = e.Name+kit.DamagedSuffix, format.Digest{}, nil
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		_, err := src.Salvage(ctx, from, w)
		w.CloseWithError(err)
	}()
	return p.add(ctx, e, &source{Reader: r})
}

func (p *packer) addContent(ctx context.Context, c content.Content) error {
	e := c.Entry
	switch {
	case !e.Kind.HasContent():
		return p.add(ctx, e, &source{Reader: c})
	case e.Size > content.Small:
		return p.add(ctx, e, &source{Reader: c.Checked()})
	}
	added := false
	err := c.WithSmall(func(b []byte) error {
		added = true
		return p.add(ctx, e, &byteReader{b})
	})
	if err != nil && !added {
		return p.fail(e.Name, err)
	}
	return err
}

// maxHops is how many hard links are followed to a file.
const maxHops = 40

// copied returns the place of large content that the system can copy from file to file; some file
// systems do that without writing it again. Reading and writing small content is faster.
func (p *packer) copied(ctx context.Context, src *content.Source, e format.Entry) (*kit.Section, bool) {
	if e.Size <= content.Small || p.joined() != nil || p.parity != nil || !src.Store.Can().Near {
		return nil, false
	}
	return src.Section(ctx, e)
}

// implied reports whether e is a folder that the new format cannot store and does not need, because
// the names of the entries in it imply it.
func (p *packer) implied(ctx context.Context, src *content.Source, e format.Entry) bool {
	if e.Kind != format.Dir || p.f.Keeps&format.KeepsDirs != 0 {
		return false
	}
	for _, err := range src.Reader.ReadDir(ctx, e.Name) {
		return err == nil
	}
	return false
}
