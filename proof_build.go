package holdall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/kept"
	"github.com/holdall/holdall/internal/sorter"
	"github.com/holdall/holdall/store"
)

// A digester reads the contents of an archive for the digests of their pieces. A
// content that is damaged gets zeros: what vouches for it must not say that damage is
// right.
type digester struct {
	a     *Archive
	chunk int64
	o     IndexOptions
	sum   *IndexSummary
	sums  sumSpool // of one content
}

// errEnough ends a sweep whose consumer has had enough.
var errEnough = errors.New("enough")

// all yields the digests of all pieces, in the order of entries.
func (d *digester) all(ctx context.Context) iter.Seq2[pieceSum, error] {
	return func(yield func(pieceSum, error) bool) {
		entries := func(yield func(Entry, error) bool) {
			for e, err := range d.a.Entries(ctx) {
				if err == nil && kept.Pieces(&e, d.chunk) == 0 {
					continue
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
		err := d.a.sweep(ctx, entries, true, func(it sweepItem, content io.Reader, err error) error {
			e := it.Entry
			d.sums.reset()
			if err == nil {
				err = d.content(e, content)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var own *spoolError
			if errors.As(err, &own) || store.Temporary(err) || errors.Is(err, store.ErrChanged) {
				return fmt.Errorf("%s: %w", format.Escape(e.Name), err)
			}
			n := kept.Pieces(&e, d.chunk)
			d.sum.Digests += n
			if err == nil {
				return d.sums.yield(yield)
			}
			d.sum.Digests -= n
			d.sum.Unproven++
			if d.o.OnError != nil {
				d.o.OnError(problemOf(d.a, e, err))
			}
			for range n {
				if !yield(pieceSum{}, nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(pieceSum{}, err)
		}
	}
}

func (d *digester) close() { d.sums.close() }

// content sets sums to those of e's pieces, and compares e with its own digest.
func (d *digester) content(e Entry, content io.Reader) error {
	if b, ok := inMemory(content, e.Size); ok {
		var sum pieceSum
		for at := int64(0); at < e.Size; at += d.chunk {
			sum = blake3.Sum256(b[at:min(at+d.chunk, e.Size)])
			if err := d.sums.add(sum); err != nil {
				return err
			}
		}
		d.o.Meter.Add(0, e.Size)
		if e.Size <= d.chunk && e.Digest.Algo == "blake3" && e.Digest.Sum == string(sum[:]) {
			return nil // it is the piece's
		}
		return checkBytes(e, b)
	}
	h := newHash(e.Digest.Algo)
	pieces := newHashAhead(content, d.chunk, e.Size)
	var last *hashed
	defer func() { pieces.end(last) }()
	for at := int64(0); at < e.Size; at += d.chunk {
		if last != nil {
			pieces.give(last)
		}
		if last = pieces.take(); last.err != nil {
			return last.err
		}
		if err := d.sums.add(last.sum); err != nil {
			return err
		}
		if h != nil {
			h.Write(last.b[:last.n])
		}
		d.o.Meter.Add(0, int64(last.n))
	}
	if h == nil {
		return nil
	}
	return sameDigest(e, Digest{Algo: e.Digest.Algo, Sum: string(h.Sum(nil))})
}

// sumsInMemory is how many bytes of digests of one content are held: those of 16 GiB
// at 256 KiB each. The others wait on the disk until all of it was right.
const sumsInMemory = 2 << 20

// A sumSpool holds the digests of one content.
type sumSpool struct {
	b     []byte
	disk  sorter.Scratch
	spilt bool
}

// A spoolError is about the disk that digests wait on, not about content.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return "digests on the disk: " + e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

func (s *sumSpool) reset() { s.b, s.spilt = s.b[:0], false }

func (s *sumSpool) add(sum pieceSum) error {
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

// yield yields them all.
func (s *sumSpool) yield(yield func(pieceSum, error) bool) error {
	var sum pieceSum
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
