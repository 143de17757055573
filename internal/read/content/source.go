// Package content reads the contents of an archive's entries. All reads of contents use it: whole
// files and ranges, extraction, conversion, mounts and servers. It combines the places of
// contents from the format, the engine that fetches and decodes them, and the digests that prove
// them. A [Content] records whether its bytes are proven.
package content

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/blocks"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Types of other packages.
type (
	Entry  = format.Entry
	Extent = format.Extent
)

// A Source is an archive whose contents are read. Its methods may run in parallel.
type Source struct {
	Format *format.Format
	Reader format.Reader
	Store  store.Store
	Name   string // in Store
	// Loose is the size of a folder of files that is treated as an archive. Such an archive has no
	// objects of its own.
	Loose int64
	// Checking is set before anything is read.
	Checking Checking
	// Parts has the archives if s is several of them, or is nil.
	Parts Parts

	runs     func(Entry) (Extent, bool) // of Reader; nil if it cannot
	compares func(Entry) format.Proof   // of Reader; nil if it never does
	doubt    func() *format.Problem     // of Reader; nil if it has none
	engine   *engine.Engine
	second   lateEngine // for units with a wrong checksum
	objects  *objects
	proven   *prover // nil if no index has digests of pieces
	search   digest.Search
	heal     *healer // nil if nothing is healed

	compared compared
	trusted  bool // content that cannot be compared before it is returned is refused
}

// Trust makes s refuse content that cannot be compared before any of it is returned.
func (s *Source) Trust() {
	s.trusted, s.Checking.Whole = true, max(s.Checking.Whole, mostTrusted)
}

// mostTrusted is the longest content that is held in memory to be compared with a digest of all of it.
const mostTrusted = 64 << 20

var errUnproven = errors.New("it cannot be compared before it is read: make an index with digests ('holdall sign' does)")

// refusal returns an error if s may not read content with a proof.
func (s *Source) refusal(e Entry, p Proof) error {
	if s.trusted && e.Size > 0 && !p.pieces && !p.whole {
		return ReadError(e, errUnproven)
	}
	return nil
}

// Blocks sets a cache for the objects outside to which the archive refers, before anything is read.
func (s *Source) Blocks(c *blocks.Cache) { s.objects.blocks = c }

// New returns the source of the archive called name in st. The archive may refer to what external
// allows: see outside.Rule. Read must set its reader before anything is read. Decoded units may
// take twice cacheBytes of memory, or the default if that is 0.
func New(st store.Store, name string, external []string, cacheBytes int64) *Source {
	s := &Source{Store: st, Name: name, objects: newObjects(st, name, external), compared: compared{seed: maphash.MakeSeed()}}
	limits := engine.Far
	if st.Can().Near {
		limits = engine.Near
	}
	limits.Units = 2 * cacheBytes
	s.engine = engine.New(s.objects.open, limits)
	return s
}

// OnCorrect sets what is called when a codec corrects damaged data by its checksum.
func (s *Source) OnCorrect(do func()) { s.engine.OnHeal = do }

// Read sets the format and the reader of the archive.
func (s *Source) Read(f *format.Format, r format.Reader) {
	can := r.Can()
	s.Format, s.Reader, s.runs, s.compares, s.doubt, s.objects.made = f, r, can.Run, can.Compares, can.Doubt, can.Made
}

// Borrow makes s use the objects that its reader holds open, if it has any. They must be of the
// store that s reads from.
func (s *Source) Borrow() { s.objects.borrowed = s.Reader.Can().Object }

// UseIndex makes s use an index for reading: its digests of pieces, and its points, from which long
// units can be decoded.
func (s *Source) UseIndex(x *kept.Index) {
	if x.Chunk > 0 {
		s.proven = &prover{x: x}
	}
	if x.HasPoints() {
		s.engine.UsePoints(x)
	}
}

// Close ends the use of the source, and of its reader.
func (s *Source) Close() error {
	err := s.CloseObjects()
	if s.Reader != nil {
		err = errors.Join(s.Reader.Close(), err)
	}
	return err
}

// Object returns an object that the archive consists of. It belongs to the source.
func (s *Source) Object(ctx context.Context, name string) (store.Object, error) {
	return s.objects.open(ctx, name, false)
}

// Stored reads stored bytes of one of the archive's objects.
func (s *Source) Stored(ctx context.Context, object string, off, n int64) (io.ReadCloser, error) {
	o, err := s.Object(ctx, object)
	if err != nil {
		return nil, err
	}
	return s.engine.Stored(ctx, o, off, n), nil
}

// Unchanged checks whether the local files that s has open have changed. If one has, it returns an
// error that is store.ErrChanged. Remote objects, and files that have not been read yet, are not
// checked.
func (s *Source) Unchanged(ctx context.Context) error {
	return s.objects.held(func(o store.Object) error {
		file := o.Can().File
		if file == nil {
			return nil
		}
		_, err := file(ctx)
		return err
	})
}

// Packed yields the entries that users packed: all except the archive's own.
func (s *Source) Packed(ctx context.Context) iter.Seq2[Entry, error] {
	return listing.Only(s.Reader.Entries(ctx), func(e Entry) bool { return !e.Internal })
}

// Below yields every entry below a directory, in stored order; "." is the root.
func (s *Source) Below(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	if dir == "." {
		return s.Reader.Entries(ctx)
	}
	return listing.Below(ctx, s.Reader, dir)
}

// ReadDirFrom is listing.ReadDirFrom of the archive.
func (s *Source) ReadDirFrom(ctx context.Context, dir, from string) iter.Seq2[Entry, error] {
	if k, ok := s.Reader.(*kept.Reader); ok {
		return k.InPlaces(ctx, dir, from)
	}
	return listing.ReadDirFrom(ctx, s.Reader, dir, from)
}

// Expect tells m the number and size of the wanted entries, if it wants totals.
func (s *Source) Expect(ctx context.Context, m *meter.Meter, wanted func(Entry) bool) error {
	if !m.WantsTotal() {
		return nil
	}
	var n, bytes int64
	for e, err := range listing.Only(s.Reader.Entries(ctx), wanted) {
		if err != nil {
			return err
		}
		n, bytes = n+1, bytes+e.Size
	}
	m.Expect(n, bytes)
	return nil
}

// Extents yields where e's content is stored.
func (s *Source) Extents(ctx context.Context, e Entry) iter.Seq2[Extent, error] {
	return s.Reader.Extents(ctx, e, 0, e.Size)
}

// first returns the first extent of n bytes of e from off.
func (s *Source) first(ctx context.Context, e Entry, off, n int64) (Extent, bool) {
	for x, err := range s.Reader.Extents(ctx, e, off, n) {
		return x, err == nil
	}
	return Extent{}, false
}

// Fault returns why e cannot be read, if the format already knows that.
func (s *Source) Fault(e Entry) error {
	if e.Fault == nil {
		return nil
	}
	return &format.CorruptError{Format: s.Format.Name, Problem: *e.Fault}
}

// Doubt returns what is wrong with the index as a whole, as far as it has been read.
func (s *Source) Doubt() error {
	if s.Parts != nil {
		return joined(s.Parts.Doubts())
	}
	if s.doubt != nil {
		if p := s.doubt(); p != nil {
			return &format.CorruptError{Format: s.Format.Name, Problem: *p}
		}
	}
	return nil
}

// Certain makes s show nothing that its reader only guesses.
func (s *Source) Certain() {
	if certain := s.Reader.Can().Certain; certain != nil {
		certain()
	}
}

// Vouched returns an error if the index does not match its own digest, or has lost digests. Names or
// contents may be wrong without a sign, so nothing that lasts may be made of them. The same is so
// if one of several archives is missing.
func (s *Source) Vouched() error {
	var doubts []error
	if s.Parts != nil {
		doubts = s.Parts.Doubts()
	} else if err := s.Doubt(); err != nil {
		doubts = []error{err}
	}
	for _, err := range doubts {
		if c, ok := errors.AsType[*format.CorruptError](err); ok && (c.Code == format.BadChecksum || c.Code == format.LostDigest || s.Parts != nil && c.Code == format.MissingVolume) {
			return c
		}
	}
	return nil
}

// Doubtful returns the error of Vouched if it concerns e: if only digests are lost, it does not
// concern content that still has one.
func (s *Source) Doubtful(e Entry) error {
	err := s.Vouched()
	if c, ok := errors.AsType[*format.CorruptError](err); !e.Kind.HasContent() || e.Size == 0 || ok && c.Code == format.LostDigest && s.HasDigest(e) {
		return nil
	}
	return err
}

// ReadAt reads len(p) content bytes of e from off; it reads fewer only at the end, and then returns
// io.EOF. They are verified first, with the digests of pieces that an index has, or if the content
// is short, with its own digest. Proof reports whether they are.
func (s *Source) ReadAt(ctx context.Context, e Entry, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
	}
	if e.Fault == nil && off >= e.Size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	if s.Parts != nil {
		return ofPart(ctx, s, e, func(m *Source, own Entry) (int, error) { return m.ReadAt(ctx, own, p, off) })
	}
	n := int(max(min(int64(len(p)), e.Size-off), 0))
	done, err := s.by(ctx, s.proof(e), false).readAt(ctx, e, p[:n], off)
	if h, e := s.cure(ctx, e, err); h != nil {
		done, err = h.readAt(ctx, e, p[:n], off)
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return done, ReadError(e, err)
}

func (s *Source) readAt(ctx context.Context, e Entry, p []byte, off int64) (int, error) {
	switch how := s.proof(e); {
	case how.pieces:
		if n, err := s.readProven(ctx, e, p, off); !s.without(err) {
			return n, err
		}
		return s.readAt(ctx, e, p, off)
	case how.whole:
		return all(len(p), s.readWhole(ctx, e, p, off))
	}
	if err := s.refusal(e, s.proof(e)); err != nil {
		return 0, err
	}
	if _, err := s.known(ctx, e); err != nil {
		return 0, err
	}
	return all(len(p), s.readStored(ctx, e, p, off))
}

// all returns n, or 0 if there is an error.
func all(n int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return n, nil
}

// ReadError adds the name of the entry to an error, unless the error has it already.
func ReadError(e Entry, err error) error {
	if err == nil || err == io.EOF || saysWhich(err) {
		return err
	}
	return &fs.PathError{Op: "read", Path: e.Name, Err: err}
}

// Salvage writes e's content to w without verifying it. It writes zeros for bytes that cannot be
// read, and returns how many those are.
func (s *Source) Salvage(ctx context.Context, e Entry, w io.Writer) (lost int64, err error) {
	if s.Parts != nil {
		return ofPart(ctx, s, e, func(m *Source, own Entry) (int64, error) { return m.Salvage(ctx, own, w) })
	}
	if s.trusted {
		return 0, ReadError(e, errUnproven)
	}
	const most, step = 256 << 10, 512
	b := make([]byte, min(most, e.Size))
	for off := int64(0); off < e.Size; off += int64(len(b)) {
		b = b[:min(int64(len(b)), e.Size-off)]
		err := s.readStored(ctx, e, b, off)
		for at := 0; at < len(b) && err != nil; at += step {
			p := b[at:min(at+step, len(b))]
			perr := s.readStored(ctx, e, p, off+int64(at))
			if errors.Is(perr, codec.ErrChecksum) {
				perr = s.second.of(s.engine).ReadAt(ctx, s.Reader.Extents(ctx, e, off+int64(at), int64(len(p))), p, off+int64(at))
			}
			switch {
			case ctx.Err() != nil:
				return lost, context.Cause(ctx)
			case Passing(e, perr) != nil:
				return lost, perr
			case perr != nil:
				clear(p)
				lost += int64(len(p))
			}
		}
		if _, err := w.Write(b); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// readStored fills p with content bytes of e from off, without verifying them.
func (s *Source) readStored(ctx context.Context, e Entry, p []byte, off int64) error {
	if x, ok := s.run(e); ok && int64(len(p)) <= s.engine.MaxRequest() {
		o, err := s.engine.Object(ctx, x)
		if err != nil {
			return err
		}
		return o.ReadAt(ctx, p, x.Off+off)
	}
	return s.engine.ReadAt(ctx, s.Reader.Extents(ctx, e, off, int64(len(p))), p, off)
}

// run returns e's content as one raw run, if it is one and the format can report that without
// reading.
func (s *Source) run(e Entry) (Extent, bool) {
	if s.runs == nil {
		return Extent{}, false
	}
	return s.runs(e)
}

// File returns the local file that contains all of e's content in one piece and unchanged, and its
// offset there, so that the system can send it directly. ok is false if there is no such file, or
// if the content is verified piece by piece. Short content is verified first. With all, the caller
// sends all of the content: if that is to be compared while it is read, ok is false, too. The file
// belongs to the source, and may have become longer. Callers that read for a long time should call
// File again.
func (s *Source) File(ctx context.Context, e Entry, all bool) (f *os.File, off int64, ok bool, err error) {
	x, run := s.run(e)
	p := s.proof(e)
	if !run || p.pieces || p.blocks || s.trusted {
		return nil, 0, false, nil
	}
	if all && p.digest && !p.whole {
		if known, wrong := s.known(ctx, e); !known || wrong != nil {
			return nil, 0, false, nil
		}
	}
	o, err := s.engine.Object(ctx, x)
	if err != nil {
		return nil, 0, false, err
	}
	file := o.Can().File
	if file == nil {
		return nil, 0, false, nil
	}
	if f, err = file(ctx); err == nil {
		err = s.touch(ctx, e)
	}
	if err == nil && s.heal != nil && p.whole {
		if known, _ := s.known(ctx, e); !known {
			return nil, 0, false, nil // the file has the damaged bytes
		}
	}
	return f, x.Off, err == nil, err
}

// Section returns e's content as one run of stored bytes, if it is one that needs no check or
// decoding.
func (s *Source) Section(ctx context.Context, e Entry) (*kit.Section, bool) {
	if s.proof(e).pieces || s.heal.known() || s.trusted {
		return nil, false
	}
	run, ok := s.rawRun(ctx, e, false)
	if !ok || run.Size != e.Size {
		return nil, false
	}
	o, err := s.engine.Object(ctx, run)
	if err != nil {
		return nil, false
	}
	return kit.NewSection(ctx, o, run.Off+run.Skip, e.Size), true
}

// rawRun returns the one raw run that e's content begins with, if that is all of the content.
// With zeros, zeros may follow it.
func (s *Source) rawRun(ctx context.Context, e Entry, zeros bool) (run Extent, found bool) {
	if s.runs != nil {
		if run, found = s.runs(e); found {
			return run, true
		}
	}
	for x, err := range s.Extents(ctx, e) {
		if err == nil && zeros && x.Codec == codec.Zero {
			continue
		}
		if err != nil || found || x.Codec != codec.Raw || x.At != 0 {
			return Extent{}, false
		}
		run, found = x, true
	}
	return run, found
}

// A Place is where content lies, in a form that another archive can refer to.
type Place struct {
	Off, N  int64
	Address string
}

// Place returns where e's content lies. If that is outside this archive, the address is one that an
// archive at own may use. Otherwise it is below base, which stands for this archive, or below this
// archive's own address if base is "". ok is false if e's content is not one run. Zeros that pad a
// chunk are not part of it.
func (s *Source) Place(ctx context.Context, e Entry, own, base string) (p Place, external, ok bool) {
	if s.Parts != nil {
		m, part, release, err := s.Parts.Of(ctx, e)
		if err != nil || base != "" { // it stands for one archive
			return Place{}, false, false
		}
		defer release()
		return m.Place(ctx, part, own, "")
	}
	run, ok := s.rawRun(ctx, e, true)
	if !ok || run.Size == 0 {
		return Place{}, false, false
	}
	p = Place{Off: run.Off + run.Skip, N: run.Size}
	switch {
	case run.External:
		p.Address = s.objects.rule.Portable(run.Object, own)
	case base == "":
		p.Address = storekit.AddressOf(s.Store, run.Object)
	default:
		// Objects of an archive that is a folder lie below its address.
		p.Address = base + strings.TrimPrefix(run.Object, s.Name)
	}
	return p, run.External, p.Address != ""
}

// Index returns the index whose digests of pieces prove everything that is read, or nil if there is
// none, or it has turned out to be damaged.
func (s *Source) Index() *kept.Index {
	if s.proven == nil || s.proven.x.Damage() != nil && !s.trusted {
		return nil
	}
	return s.proven.x
}

// Over returns a source of the same archive, with the same reader, that reads bytes from a
// different store.
func (s *Source) Over(st store.Store) *Source {
	o := New(st, s.Name, s.objects.rule.Allowed, 0)
	o.Read(s.Format, s.Reader)
	o.proven, o.Checking, o.trusted = s.proven, s.Checking, s.trusted
	o.OnCorrect(s.engine.OnHeal)
	return o
}

// CloseObjects closes everything except the reader.
func (s *Source) CloseObjects() error {
	s.engine.Close() // it may have objects in use
	s.second.close()
	return errors.Join(s.heal.close(), s.objects.close())
}

// Volumes returns the objects that the archive is made of.
func (s *Source) Volumes(ctx context.Context) ([]string, error) {
	volumes, _, err := s.made(ctx)
	return volumes, err
}

// made returns the objects that the archive is made of, and their total size if that is known
// without them, otherwise 0.
func (s *Source) made(ctx context.Context) (volumes []string, stored int64, err error) {
	if k, ok := s.Reader.(*kept.Reader); ok {
		return k.Volumes(s.Name), 0, nil
	}
	about, err := s.Reader.About(ctx)
	return about.Volumes, about.Stored, err
}

// VolumeSize returns the size of one of the archive's objects.
func (s *Source) VolumeSize(ctx context.Context, volume string) (int64, error) {
	o, err := s.Object(ctx, volume)
	if err != nil {
		return 0, err
	}
	info, err := o.Info(ctx)
	return info.Size, err
}

// StoredSize returns the total size of the archive's objects.
func (s *Source) StoredSize(ctx context.Context) (n int64, err error) {
	if s.Loose > 0 {
		return s.Loose, nil
	}
	volumes, n, err := s.made(ctx)
	if n > 0 {
		return n, err
	}
	for _, v := range volumes {
		if err != nil {
			break
		}
		var size int64
		size, err = s.VolumeSize(ctx, v)
		n += size
	}
	return n, err
}
