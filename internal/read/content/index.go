package content

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// IndexOptions say what WriteIndex writes.
type IndexOptions struct {
	// View and Param are how the archive was opened.
	View  string
	Param map[string]string
	// Chunk is the number of content bytes per digest; 0 means no digests. Digests require reading
	// all contents.
	Chunk int64
	// Points finds points in content that is compressed in long units, which takes decoding them
	// completely.
	Points bool
	// Private says that the index is for this machine only, so that it may contain the address of
	// the archive.
	Private bool
	// Once says that the archive was opened to be read through once.
	Once bool
	// OnError is called for content that gets no digests.
	OnError func(format.Problem)
	Meter   *meter.Meter
}

// An IndexSummary says what an index has.
type IndexSummary struct {
	Entries, Bytes, Index int64
	Digests, Unproven     int64
	root.Statement
}

// WriteIndex writes an index of the archive.
func (s *Source) WriteIndex(ctx context.Context, to store.Store, toName string, o IndexOptions) (sum IndexSummary, err error) {
	was, err := kept.BindWhole(ctx, s.Store, s.Name)
	if err != nil {
		return sum, fmt.Errorf("it cannot have an index: %w", err)
	}
	head := kept.Head{Format: s.Format.Name, View: s.Format.ViewOf(o.View), Param: o.Param, Bound: was, Objects: []string{""}, Chunk: o.Chunk}
	// Formats that can only be read through once have archives of one object. To answer About, they
	// would have to load all of it.
	if !o.Once || was.Head == "" {
		about, err := s.Reader.About(ctx)
		if err != nil {
			return sum, err
		}
		head.Version, head.Objects = about.Version, nil
		for _, v := range about.Volumes {
			if rest, ok := strings.CutPrefix(v, s.Name); ok {
				head.Objects = append(head.Objects, rest)
			}
		}
	}
	if o.Private {
		head.Archive = store.Redact(storekit.AddressOf(s.Store, s.Name))
	}
	w, err := storekit.Create(ctx, to, toName)
	if err != nil {
		return sum, err
	}
	defer w.Abort()
	if o.Chunk != 0 {
		if err := s.Expect(ctx, o.Meter, func(Entry) bool { return true }); err != nil {
			return sum, err
		}
	}
	s.Certain()
	digests := digester{s: s, o: o, sum: &sum}
	defer digests.sums.close()
	build := kept.Options{Scratch: sorter.TempFile, Digests: digests.all(ctx)}
	from := metered{s.Reader, o.Meter, nil}
	if o.Chunk != 0 {
		digests.rows = s.NewRows()
		defer digests.rows.Close()
		from.rows = digests.rows
		build.Contents = func() (string, error) { return digests.rows.Sum(ctx) }
	}
	if o.Points {
		build.Stored = s.Stored
	}
	if o.Chunk > 0 {
		build.Pieces = s.storedPieces(ctx)
	}
	if head, err = kept.Build(ctx, w, from, s.Name, head, build); err != nil {
		return sum, err
	}
	if err := s.Doubt(); err != nil { // a valid index would hide it
		return sum, err
	}
	// If the archive changed meanwhile, the index mixes versions.
	if err := was.Still(ctx, s.Store, s.Name); err != nil {
		return sum, fmt.Errorf("it cannot have an index: %w", err)
	}
	sum.Contents, sum.Archive = head.Contents, head.Root
	info, err := w.Commit(ctx)
	sum.Entries, sum.Bytes, sum.Index = head.Entries, head.Bytes, info.Size
	return sum, err
}

// metered counts the entries that are read, and collects those without pieces.
type metered struct {
	format.Reader
	m    *meter.Meter
	rows *Rows
}

func (c metered) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range c.Reader.Entries(ctx) {
			if err == nil && c.rows != nil && kept.Pieces(&e, kept.MinChunk) == 0 {
				err = c.rows.Add(e, blake3.Sum256(nil))
			}
			if c.m.Add(1, 0); !yield(e, err) {
				return
			}
		}
	}
}

// A digester reads the contents of an archive and computes the digests of their pieces. Damaged
// content gets zeros instead of digests, so that the index does not vouch for damage.
type digester struct {
	s    *Source
	o    IndexOptions
	sum  *IndexSummary
	sums sumSpool // the digests of one content
	rows *Rows
}

// errEnough ends a sweep whose consumer wants no more.
var errEnough = errors.New("enough")

// all yields the digests of all pieces, in the order of entries.
func (d *digester) all(ctx context.Context) iter.Seq2[digest.Piece, error] {
	return func(yield func(digest.Piece, error) bool) {
		entries := listing.Only(d.s.Reader.Entries(ctx), func(e Entry) bool { return kept.Pieces(&e, d.o.Chunk) > 0 })
		err := d.s.Sweep(ctx, entries, InOrder, func(c Content, err error) error {
			e := c.Entry
			d.sums.reset()
			if err == nil {
				err = d.content(c)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if own, ok := errors.AsType[*spoolError](err); ok {
				return own
			}
			if err := Passing(e, err); err != nil {
				return err
			}
			n := kept.Pieces(&e, d.o.Chunk)
			if err != nil {
				d.rows.holes++
			}
			if err == nil {
				d.sum.Digests += n
				return d.sums.yield(yield)
			}
			d.sum.Unproven++
			if d.o.OnError != nil {
				d.o.OnError(d.s.Problem(ctx, e, err))
			}
			for range n {
				if !yield(digest.Piece{}, nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(digest.Piece{}, err)
		}
	}
}

// content sets sums to the digests of c's pieces, compares c with the digest of its entry, and adds its row.
func (d *digester) content(c Content) error {
	whole, err := d.digests(c)
	if err != nil {
		return err
	}
	if err := d.rows.Add(c.Entry, whole); err != nil {
		return &spoolError{err}
	}
	return nil
}

// digests is content without the row. It returns the digest of all of c.
func (d *digester) digests(c Content) (whole digest.Piece, err error) {
	e := c.Entry
	d.o.Meter.At(e.Name, e.Size)
	if b, ok := c.inMemory(); ok {
		var sum digest.Piece
		for at := int64(0); at < e.Size; at += d.o.Chunk {
			sum = blake3.Sum256(b[at:min(at+d.o.Chunk, e.Size)])
			if err := d.sums.add(sum); err != nil {
				return whole, err
			}
		}
		d.o.Meter.Add(0, e.Size)
		if whole = sum; e.Size > d.o.Chunk {
			whole = blake3.Sum256(b)
		}
		if e.Digest.Algo == "blake3" && e.Digest.Sum == string(whole[:]) {
			return whole, nil
		}
		return whole, d.s.check(e, b)
	}
	algo := e.Digest.Algo
	if !d.s.HasDigest(e) {
		algo = ""
	}
	pieces := digest.NewAhead(c.r, digest.AheadOptions{Algo: algo, Pieces: true, Block: d.o.Chunk, Length: e.Size, Meter: d.o.Meter})
	defer pieces.Close()
	h := blake3.New()
	for {
		b, err := pieces.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = d.sums.add(b.Sum)
		}
		if err != nil {
			return whole, err
		}
		if algo != "blake3" {
			h.Write(b.Bytes)
		}
	}
	h.Sum(whole[:0])
	if algo == "" {
		return whole, nil
	}
	got, _ := pieces.ContentDigest()
	if algo == "blake3" {
		copy(whole[:], got.Sum)
	}
	return whole, digest.Compare(e, got)
}

// sumsInMemory is how many bytes of digests of one content are held in memory: enough for 16 GiB at
// 256 KiB each. Further digests are held on disk until all of the content is verified.
const sumsInMemory = 2 << 20

// A sumSpool holds the digests of one content.
type sumSpool struct {
	b     []byte
	disk  sorter.Scratch
	spilt bool
}

// A spoolError is an error of the scratch file with digests, not of content.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return "digests in the scratch file: " + e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

func (s *sumSpool) reset() { s.b, s.spilt = s.b[:0], false }

func (s *sumSpool) add(sum digest.Piece) error {
	if len(s.b) >= sumsInMemory {
		if err := s.spill(); err != nil {
			return &spoolError{err}
		}
	}
	s.b = append(s.b, sum[:]...)
	return nil
}

func (s *sumSpool) spill() (err error) {
	if s.disk == nil {
		s.disk, err = sorter.TempFile()
	}
	if err == nil && !s.spilt {
		_, err = s.disk.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = s.disk.Write(s.b)
	}
	s.b, s.spilt = s.b[:0], true
	return err
}

// yield yields all digests.
func (s *sumSpool) yield(yield func(digest.Piece, error) bool) error {
	var sum digest.Piece
	if s.spilt {
		end, err := s.disk.Seek(0, io.SeekCurrent)
		if err == nil {
			_, err = s.disk.Seek(0, io.SeekStart)
		}
		if err != nil {
			return &spoolError{err}
		}
		r := bufio.NewReader(s.disk)
		for range end / kept.DigestLen {
			if _, err := io.ReadFull(r, sum[:]); err != nil {
				return &spoolError{err}
			}
			if !yield(sum, nil) {
				return errEnough
			}
		}
	}
	for b := s.b; len(b) > 0; b = b[kept.DigestLen:] {
		copy(sum[:], b)
		if !yield(sum, nil) {
			return errEnough
		}
	}
	return nil
}

func (s *sumSpool) close() {
	if s.disk != nil {
		s.disk.Close()
	}
}
