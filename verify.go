package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// VerifyOptions are the options of [Verify]. If Index leads to an index with digests of pieces,
// contents are compared with these, and damage is located within a file.
type VerifyOptions struct {
	OpenOptions
	// Quick checks the structure only, not the contents.
	Quick bool `json:"quick,omitempty"`
	// Sample, if Loss is set, reads only a sample of the contents, chosen at random: as many blocks
	// as it takes to find, with this confidence, that at least the share Loss of them is wrong.
	// Blocks are the pieces of an index with digests or, without one, files with a digest or
	// checksum. The parity is not read. Equal seeds choose equally; 0 is a random one.
	Sample struct {
		Loss       float64 `json:"loss,omitempty"`
		Confidence float64 `json:"confidence,omitempty"`
		Seed       uint64  `json:"seed,omitempty"`
	} `json:"sample,omitzero"`
	// Root also asks for Verified.Root.
	Root bool `json:"root,omitempty"`
	// Meter, if not nil, counts progress.
	Meter *Meter `json:"-"`
}

// Verified is the result of [Verify].
type Verified struct {
	Format   string    `json:"format"`
	Size     int64     `json:"size,omitempty"`    // of all objects of the archive
	ModTime  time.Time `json:"mtime,omitzero"`    // of its object, if it is one
	Version  string    `json:"version,omitempty"` // of its object, as a server reports it
	Quick    bool      `json:"quick,omitempty"`   // only the structure was checked
	Entries  int64     `json:"entries"`
	Bytes    int64     `json:"bytes"` // content that was proven correct
	Errors   int64     `json:"errors"`
	Warnings int64     `json:"warnings"`
	Missing  int64     `json:"missing,omitempty"` // objects; they count as errors or warnings, too
	// BeingWritten means that another program is writing to the archive. An unfinished end is
	// then not an error.
	BeingWritten bool `json:"being_written,omitempty"`
	// Proven counts the files whose content was proven correct.
	Proven Proven `json:"proven"`
	// Unproven counts the files whose content has nothing to compare it with.
	Unproven int64 `json:"unproven"`
	// Root is the root of the contents, which all were compared with; see [Archive.Roots]. It is empty if
	// something is damaged, was not read, or is compared with other digests.
	Root string `json:"root,omitempty"`
	// SignedBy is the ID of the key that has signed what was checked, if OpenOptions.Trusted is set.
	SignedBy string `json:"signed_by,omitempty"`
	// Parity is the result of a check against the archive's parity. It is nil if there is none.
	Parity *ParityReport `json:"parity,omitempty"`
	// Sampled is what was read, with VerifyOptions.Sample. Proven counts only files that were read.
	Sampled *Sampled `json:"sampled,omitempty"`
}

// Sampled is how much of an archive [Verify] has read with VerifyOptions.Sample. Files without
// digest or checksum are no blocks: see Verified.Unproven.
type Sampled struct {
	Unit       string  `json:"unit"` // what a block is: "piece" or "file"
	Read       int64   `json:"read"` // blocks
	Of         int64   `json:"of"`   // all blocks
	Wrong      int64   `json:"wrong"`
	Loss       float64 `json:"loss"`
	Confidence float64 `json:"confidence"`
}

// Verdict returns the answer in a word: "damaged" if there are errors or warnings; "unproven" if
// there is content in which damage would not be seen; "sample-sound" if only a sample was read;
// "sound" if all content was compared. Without contents it is "damaged" or "structure-sound".
func (v Verified) Verdict() string {
	switch {
	case v.Errors+v.Warnings > 0:
		return "damaged"
	case v.Quick:
		return "structure-sound"
	case v.Doubtful() > 0:
		return "unproven"
	case v.Sampled != nil:
		return "sample-sound"
	}
	return "sound"
}

// Doubtful returns the number of files in which damage would not be seen: nothing is compared
// with, or their content was only decoded.
func (v Verified) Doubtful() int64 { return v.Unproven + v.Proven.Decoding }

// Proven counts files by what proves their content.
type Proven struct {
	Digest   int64 `json:"digest"`   // a digest of the whole content or of its pieces
	Checksum int64 `json:"checksum"` // a checksum, such as a CRC, of the whole content or of its parts
	Decoding int64 `json:"decoding"` // the content can be decoded and has the expected size
}

// Verify checks the archive at an address and calls report for each problem, from one goroutine
// at a time. An error means that the check could not be carried out. Problems that were found are
// not errors; see the counts in the result.
func Verify(ctx context.Context, address string, o VerifyOptions, report func(Problem)) (Verified, error) {
	st, name, err := at(ctx, o.Store, address)
	if err != nil {
		return Verified{}, err
	}
	return verify(ctx, st, name, o, report)
}

func verify(ctx context.Context, st store.Store, name string, o VerifyOptions, report func(Problem)) (Verified, error) {
	if s := o.Sample; s.Loss > 0 && !(s.Loss <= 1 && s.Confidence > 0 && s.Confidence < 1 && !o.Quick) {
		return Verified{}, fmt.Errorf("a sample for a loss of %v with a confidence of %v, quick %v: expected up to 1, below 1, and false", s.Loss, s.Confidence, o.Quick)
	}
	c := check{o: o, report: report, told: map[Problem]bool{}, sum: Verified{Quick: o.Quick}}
	err := c.run(ctx, st, name)
	if p, damaged := content.Damage(err); damaged {
		c.tell(p)
		err = nil
	}
	return c.sum, err
}

// A check is the state of one call of Verify.
type check struct {
	o      VerifyOptions
	report func(Problem)
	sum    Verified
	told   map[Problem]bool // reported problems that concern no entry

	sound *parity.Guard // set if all blocks match the parity
	left  *parity.Guard // set if some blocks are damaged beyond repair
}

func (c *check) tell(p Problem) {
	if !p.HasEntry {
		c.told[p] = true
	}
	c.sum.BeingWritten = c.sum.BeingWritten || p.Code == format.BeingWritten
	if p.Code == format.MissingVolume && p.Severity > format.Note {
		c.sum.Missing++
	}
	switch p.Severity {
	case format.Error:
		c.sum.Errors++
	case format.Warning:
		c.sum.Warnings++
	}
	c.report(p)
}

// run checks an archive against its parity, if it has any, and then by itself.
func (c *check) run(ctx context.Context, st store.Store, name string) error {
	g, r, err := seekParity(ctx, st, name, c.o.Parity, c.o.OpenOptions)
	if err != nil {
		return err
	}
	if c.sum.Parity = r; g != nil {
		defer g.Close()
	}
	switch {
	case r == nil:
	case r.broken:
		c.tell(Problem{Code: format.BadData, Class: "parity", Severity: format.Warning, Volume: r.At, Off: -1, Message: r.NotUsed})
	case g == nil:
		c.tell(Problem{Code: format.BadData, Class: "parity", Severity: format.Note, Volume: r.At, Off: -1, Message: "not used: " + r.NotUsed})
	case !c.o.Quick && c.o.Sample.Loss == 0:
		if r.Report, err = g.Check(ctx, false, c.o.Meter); err != nil {
			return err
		}
		if err := c.byParity(ctx, st, g, name); err != nil {
			return err
		}
	}
	err = c.archive(ctx, cache.Shared(st, c.o.CacheBytes), name) // a single cache for the structure and the contents
	if err == nil || r == nil || !r.Harmed() || ctx.Err() != nil || storekit.Temporary(err) {
		return err
	}
	// The damage has been reported. With its repairs, the archive either opens or shows what else
	// is damaged.
	f, herr := r.beyond(ctx, st, g, name, c.o.OpenOptions)
	if herr != nil || f == "" {
		return errors.Join(err, herr)
	}
	c.sum.Format = f
	return nil
}

// byParity reports the result of the check against the parity.
func (c *check) byParity(ctx context.Context, st store.Store, g *parity.Guard, name string) error {
	r := c.sum.Parity
	if r.ParityBroken > 0 {
		c.tell(Problem{Code: format.BadData, Class: "parity", Severity: format.Warning, Volume: r.At, Off: -1, Message: fmt.Sprintf("%d records of the parity file are damaged", r.ParityBroken)})
	}
	if !r.Harmed() {
		c.sound = g
		return nil
	}
	severity, healed := format.Warning, "all can be healed"
	if r.Beyond() > 0 {
		severity, healed = format.Error, fmt.Sprintf("%d of them are too many for the parity", r.Beyond())
		if !g.Moved() { // otherwise its blocks are not those that the contents lie in
			c.left = g
		}
		if _, err := r.beyond(ctx, st, g, name, c.o.OpenOptions); err != nil {
			return err
		}
	}
	for _, lost := range r.Lost {
		c.tell(Problem{Code: format.MissingVolume, Class: "parity", Severity: severity, Volume: lost, Off: -1, Message: "file is missing"})
	}
	object, off := g.Where(r.Report)
	c.tell(Problem{Code: format.BadData, Class: "parity", Severity: severity, Volume: object, Off: off, Message: fmt.Sprintf("%d of %d blocks of %d bytes are damaged, %s", r.Damaged, r.Looked, r.Block, healed)})
	return nil
}

// archive checks an archive by itself, without parity.
func (c *check) archive(ctx context.Context, st store.Store, name string) error {
	c.o.NoVerify, c.o.Parity, c.o.OnHeal = false, parity.None, nil // the archive itself is checked
	if st.Can().Over != nil {
		c.left = nil // its blocks are not those that contents lie in, and the layer shows damage
	}
	var by *Archive
	if !c.o.Quick && c.o.Index.inner().Any() || len(c.o.Trusted) > 0 {
		// Other errors are reported when the archive is opened without the index below.
		var err error
		if by, err = open(ctx, st, name, c.o.OpenOptions); by != nil {
			defer by.Close()
			c.sum.SignedBy = by.signedBy
		}
		if u, ok := errors.AsType[*UntrustedError](err); ok {
			if ctx.Err() != nil || storekit.Temporary(err) {
				return err
			}
			c.tell(Problem{Code: format.BadChecksum, Class: "signature", Severity: format.Error, Volume: name, Off: -1, Message: u.Err.Error()})
		}
	}
	a, err := by, error(nil)
	if by == nil || by.src.Index() != nil || len(c.o.Trusted) > 0 {
		c.o.Index, c.o.Trusted = UseIndex{}, nil // the archive itself is checked
		if a, err = open(ctx, st, name, c.o.OpenOptions); a != nil {
			defer a.Close()
		}
	}
	c.o.Index = UseIndex{}
	f := formatOf(a, c.o.OpenOptions, err)
	if f == nil {
		return err
	}
	c.sum.Format = f.Name
	if a != nil {
		c.sum.Size, _ = a.src.StoredSize(ctx) // if that fails, it is told below
		if o, err := a.src.Object(ctx, name); err == nil {
			info, _ := o.Info(ctx)
			if c.sum.ModTime = info.ModTime.UTC(); !st.Can().Near {
				c.sum.Version = info.Version
			}
		}
	}
	if f.ReadsAll && c.o.Sample.Loss > 0 {
		return fmt.Errorf("the check of %s reads everything, so it takes no sample: %w", f.Title, errors.ErrUnsupported)
	}
	if a != nil && a.src.Reader.Can().Verify != nil {
		if err := a.src.Reader.Can().Verify(c.tell); err != nil {
			return err
		}
	} else if f.Verify != nil {
		inner := c.o.inner()
		if inner.Quick = c.o.Quick; a != nil {
			if inner.Outside = a.src.Outside; !c.o.Quick {
				inner.Stat = a.src.Stat
			}
		}
		if err := f.Verify(ctx, st, name, inner, c.tell); err != nil {
			return err
		}
	}
	damage, damaged := errors.AsType[*format.CorruptError](err)
	switch {
	case a == nil && (c.sum.Errors > 0 || !damaged):
		if c.sum.Errors > 0 {
			err = nil // the check has reported why it does not open
		}
		return err
	case a == nil:
		c.tell(damage.Problem)
		return nil
	case by != nil && by.src.Index() != nil:
		before := c.sum
		if err := c.byIndex(ctx, by.src); by.src.Index() != nil {
			return cmp.Or(err, c.root(ctx, by))
		}
		before.Errors, before.Warnings = c.sum.Errors, c.sum.Warnings
		c.sum = before // the index is damaged, so the archive is checked as without it
	}
	if by != nil && by.Index().Ignored != "" {
		c.tell(Problem{Code: format.BadData, Class: "index", Severity: format.Note, Volume: by.Index().Ignored, Off: -1, Message: fmt.Sprintf("not used: %v", by.Index().Why)})
	}
	if f.ReadsAll && c.o.View == "" && f.Overview != "" {
		// The format's check has read all contents. What remains is to count them, and walking a
		// computed view just for that would take long.
		c.o.View = f.Overview
		over, err := open(ctx, st, name, c.o.OpenOptions)
		if err != nil {
			return err
		}
		defer over.Close()
		a = over
	}
	err = c.contents(ctx, a.src)
	if damage, damaged := errors.AsType[*format.CorruptError](err); damaged {
		// The index cannot be read further, so the entries after that are not known.
		if !c.told[damage.Problem] {
			c.tell(damage.Problem)
		}
		return nil
	}
	return cmp.Or(err, c.root(ctx, a))
}

// root sets the root of contents of which each was compared with a digest.
func (c *check) root(ctx context.Context, a *Archive) error {
	if !c.o.Root || c.o.Quick || c.o.Sample.Loss > 0 || c.sum.Verdict() != "sound" {
		return nil
	}
	if c.sum.Root = a.indexed().Contents; c.sum.Root == "" {
		c.sum.Root, _ = a.src.ListedRoot(ctx) // without digests, there is none
	}
	return context.Cause(ctx)
}

// formatOf returns the format of a. If a is nil, it returns the format that reported err.
func formatOf(a *Archive, o OpenOptions, err error) *format.Format {
	if a != nil {
		return a.Format()
	}
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return o.formats().ByName(c.Format)
	}
	return nil
}

// contents compares contents with their digests. Contents without a digest are decoded, if that
// shows damage.
func (c *check) contents(ctx context.Context, src *content.Source) error {
	o := c.o
	decoder := func(Entry) format.Decode { return nil }
	if prepare := src.Reader.Can().Decoder; prepare != nil && !o.Quick && o.Sample.Loss == 0 {
		var err error
		if decoder, err = prepare(ctx); err != nil {
			return err
		}
	}
	if err := src.Expect(ctx, o.Meter, func(e Entry) bool {
		return !o.Quick && o.Sample.Loss == 0 && e.Fault == nil && (e.Digest.Algo != "" || decoder(e) != nil)
	}); err != nil {
		return err
	}
	if c.sound != nil && o.Meter.WantsTotal() { // the check against the parity has already counted the blocks
		m := o.Meter.Snapshot()
		o.Meter.Expect(m.TotalEntries, m.TotalBytes+m.Bytes)
	}
	compares := src.Reader.Can().Compares
	provable := func(e Entry) bool {
		return e.Kind.HasContent() && e.Fault == nil && e.Size > 0 && src.Proof(ctx, e).By >= format.Summed
	}
	var sample *sampler
	if o.Sample.Loss > 0 {
		all := int64(0)
		for _, err := range listing.Only(src.Reader.Entries(ctx), provable) {
			if all++; err != nil {
				return err
			}
		}
		sample = c.sampler("file", all)
	}
	entries := listing.Only(src.Reader.Entries(ctx), func(e Entry) bool {
		c.sum.Entries++
		if !e.Kind.HasContent() || e.Fault != nil {
			return false
		}
		if src.Format.ReadsAll {
			if !o.Quick {
				c.sum.Bytes += e.Size
			}
			switch {
			case compares != nil && compares(e) == format.Unproven:
				c.sum.Unproven++ // it was read, but there is nothing to compare it with
			case !o.Quick && c.sum.Errors == 0: // after errors, it is not known which files are correct
				c.sum.Proven.Checksum++
			}
			return false
		}
		if sample != nil {
			if !provable(e) && e.Size > 0 {
				c.sum.Unproven++
			}
			return provable(e) && sample.pick()
		}
		by, decode := src.Proof(ctx, e).By, decoder(e)
		if by == format.Unproven && decode == nil {
			switch by, p := c.byBlocks(ctx, src, e); {
			case p != nil:
				c.tell(*p)
			case by == format.Summed && !o.Quick:
				c.sum.Proven.Checksum++
				c.sum.Bytes += e.Size
			case e.Size > 0:
				c.sum.Unproven++
			}
		}
		return !o.Quick && (by != format.Unproven || decode != nil)
	})
	var read atomic.Int64
	var proven [format.Digested + 1]atomic.Int64
	found := make(chan Problem, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range found {
			c.tell(p)
		}
	}()
	err := src.Sweep(ctx, entries, content.AnyOrder, func(in content.Content, err error) error {
		e := in.Entry
		by, damaged := src.Proof(ctx, e).By, false
		decode := decoder(e)
		switch {
		case err != nil:
		case decode != nil && by == format.Unproven:
			o.Meter.At(e.Name, e.Size)
			by, err = decode(ctx, in, func(p Problem) {
				damaged = true
				found <- p
			})
			o.Meter.Add(0, e.Size)
		default:
			err = in.CopyTo(ctx, io.Discard, o.Meter)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := content.Passing(e, err); err != nil {
			return err
		}
		if err != nil {
			found <- src.Problem(ctx, e, err)
			return nil
		}
		if around := in.Amiss(); around != nil {
			p := src.Problem(ctx, e, around)
			p.Severity, p.Message = format.Warning, "the content is intact, but its stored form is damaged: "+p.Message
			found <- p
		}
		if by < format.Summed && !damaged {
			blocks, p := c.byBlocks(ctx, src, e)
			if by = max(by, blocks); p != nil {
				damaged = true
				found <- *p
			}
		}
		if !damaged {
			proven[by].Add(1)
		}
		if !damaged && by != format.Unproven {
			read.Add(e.Size)
		}
		o.Meter.Add(1, 0)
		return nil
	})
	close(found)
	<-done
	c.sum.Bytes += read.Load()
	c.sum.Proven.Digest += proven[format.Digested].Load()
	c.sum.Proven.Checksum += proven[format.Summed].Load()
	c.sum.Proven.Decoding += proven[format.Decoded].Load()
	c.sum.Unproven += proven[format.Unproven].Load()
	if sample != nil {
		c.sum.Sampled.Wrong = c.sum.Sampled.Read - proven[format.Digested].Load() - proven[format.Summed].Load()
	}
	return err
}

// byBlocks returns what the digests of the parity's blocks prove about a content that has no
// digest. If the content lies in blocks that are damaged beyond repair, it returns a problem.
func (c *check) byBlocks(ctx context.Context, src *content.Source, e Entry) (format.Proof, *Problem) {
	if c.sound == nil && c.left == nil {
		return format.Unproven, nil
	}
	by := format.Summed
	for x, err := range src.Extents(ctx, e) {
		if err != nil {
			return format.Unproven, nil // reading it reports the error
		}
		if x.Len == 0 {
			continue
		}
		if c.left != nil {
			if lost, err := c.left.Beyond(x.Object, x.Off, x.Len); lost && err == nil && !x.External {
				return format.Unproven, &Problem{Code: format.BadData, Class: "parity", Severity: format.Error, Volume: x.Object, Off: x.Off, Entry: e.Name, HasEntry: true, Message: "it is in damaged blocks that the parity cannot restore"}
			}
		}
		if c.sound == nil || x.External || !c.sound.Covers(x.Object) {
			by = format.Unproven
		}
	}
	return by, nil
}

// byIndex is like contents, with the digests of an index.
func (c *check) byIndex(ctx context.Context, src *content.Source) error {
	chunk, all := src.Index().Chunk, int64(0)
	for e, err := range src.Reader.Entries(ctx) {
		if err != nil {
			return err
		}
		all += kept.Pieces(&e, chunk)
		if c.sum.Entries++; e.Kind.HasContent() && e.Fault == nil && kept.Pieces(&e, chunk) == 0 && src.HasDigest(e) { // it is empty
			c.sum.Proven.Digest++
		}
	}
	if c.o.Sample.Loss > 0 {
		sample := c.sampler("piece", all)
		return src.CheckSome(ctx, c.o.Meter, sample.pick, func(e Entry, n int64, p *ProofError) {
			if p != nil {
				c.sum.Sampled.Wrong++
				c.tell(src.Problem(ctx, e, p))
				return
			}
			c.sum.Bytes += n
		})
	}
	return src.CheckPieces(ctx, c.o.Meter, func(e Entry, p *ProofError) { c.tell(src.Problem(ctx, e, p)) }, func(e Entry) {
		c.sum.Bytes += e.Size
		c.sum.Proven.Digest++
	})
}

// sampleOf returns how many of all blocks must be read to find, with a confidence, that at least
// the share loss of them is wrong. Blocks are not read twice, so of few blocks it is all.
func sampleOf(all int64, loss, confidence float64) (n int64) {
	wrong := math.Ceil(loss * float64(all) * (1 - 1e-12)) // the product may be too large by its last bit
	for missed := 0.0; n < all && missed > math.Log1p(-confidence); n++ {
		missed += math.Log1p(-wrong / float64(all-n))
	}
	return n
}

// A sampler chooses blocks while all of them go by. Each set of as many blocks is equally likely.
type sampler struct {
	want, left int64
	random     *rand.Rand
}

func (s *sampler) pick() bool {
	picked := s.left > 0 && s.random.Int64N(s.left) < s.want
	if s.left--; picked {
		s.want--
	}
	return picked
}

// sampler returns what chooses the sample of all blocks, and notes how many these are.
func (c *check) sampler(unit string, all int64) *sampler {
	o := c.o.Sample
	c.sum.Sampled = &Sampled{Unit: unit, Read: sampleOf(all, o.Loss, o.Confidence), Of: all, Loss: o.Loss, Confidence: o.Confidence}
	return &sampler{c.sum.Sampled.Read, all, rand.New(rand.NewPCG(cmp.Or(o.Seed, rand.Uint64()), 0))}
}
