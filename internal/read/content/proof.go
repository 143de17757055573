package content

import (
	"context"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
)

// Checking says what is verified when content is read.
type Checking struct {
	// None turns off all comparisons. Skip, if it is not nil, does so for the entries of which it
	// returns true.
	None bool
	Skip func(Entry) bool
	// Whole is the length up to which content is read completely and verified when any of it is
	// read. 0 means Small; a negative value means never.
	Whole int64
}

func (c Checking) skips(e Entry) bool { return c.None || c.Skip != nil && c.Skip(e) }

// A Proof says what an entry's content is compared with, and when. It is decided here and nowhere
// else: everything that reads content, and everything that says what is proven, asks for it.
type Proof struct {
	// By is what the content is compared with when it is read from its beginning to its end.
	By format.Proof
	// Parts means that any part of the content is compared before it is returned.
	Parts bool

	// How the comparison is made; several may be true.
	digest bool // all of it is compared with its own digest
	whole  bool // so it is before any part is returned, since it is short
	pieces bool // pieces are compared with their digests in an index
	reader bool // the format compares what it returns
	blocks bool // blocks are compared with the parity's digests
}

// proof returns how e's content is compared, without reading anything.
func (s *Source) proof(e Entry) (p Proof) {
	if p.Parts = e.Size == 0; s.Checking.skips(e) || !e.Kind.HasContent() {
		return p
	}
	most := s.Checking.Whole
	if most == 0 {
		most = Small
	}
	p.digest = digest.Known(e.Digest.Algo)
	p.whole = p.digest && e.Size > 0 && e.Size <= most && (!s.trusted || digest.IsSafe(e.Digest.Algo))
	p.pieces = s.Index() != nil && kept.Pieces(&e, s.proven.x.Chunk) > 0
	by := format.Unproven
	if s.compares != nil {
		by = s.compares(e)
	}
	p.reader = by > format.Unproven
	p.blocks = !p.before() && s.heal.known()
	p.Parts = p.Parts || p.before() || p.blocks
	switch {
	case p.pieces, p.digest && !digest.IsChecksum(e.Digest.Algo):
		p.By = format.Digested
	case p.digest, p.blocks:
		p.By = max(by, format.Summed)
	default:
		p.By = by
	}
	return p
}

// Whole reports whether damage is detected when the content is read from its beginning to its end.
func (p Proof) Whole() bool { return p.Parts || p.By >= format.Summed }

// before reports whether content is compared before any of it is returned, also without parity.
func (p Proof) before() bool { return p.pieces || p.whole || p.reader }

// ProvenBefore reports whether e's content is compared with digests before any of it is returned.
func (s *Source) ProvenBefore(e Entry) bool {
	p := s.proof(e)
	return p.Parts && !p.blocks
}

// Proof returns what e's content is compared with. It may read where the content lies.
func (s *Source) Proof(ctx context.Context, e Entry) Proof {
	if s.Parts != nil {
		p, _ := ofPart(ctx, s, e, func(m *Source, own Entry) (Proof, error) { return m.Proof(ctx, own), nil })
		return p
	}
	p := s.proof(e)
	if !p.Parts && e.Kind.HasContent() {
		by, before := s.units(ctx, e)
		p.By, p.Parts = max(p.By, by), before
	}
	return p
}

// units returns what the units prove that e's content is decoded from. If all of it is compared
// with checksums of its parts before any byte of a part is returned, before is true.
func (s *Source) units(ctx context.Context, e Entry) (by format.Proof, before bool) {
	if s.runs != nil {
		if x, ok := s.runs(e); ok && !engine.Coded(x) {
			return format.Unproven, false
		}
	}
	coded, summed := false, true
	before = true
	for x, err := range s.Extents(ctx, e) {
		if err != nil {
			return format.Decoded, false
		}
		if x.Codec != codec.Zero {
			first, sums := engine.Summed(x)
			before, summed = before && first, summed && sums
		}
		coded = coded || engine.Coded(x)
	}
	switch {
	case !coded:
		return format.Unproven, false
	case summed:
		return format.Summed, before
	}
	return format.Decoded, before
}

// HasDigest reports whether all of e's content is to be compared with a digest.
func (s *Source) HasDigest(e Entry) bool { return s.proof(e).digest }
