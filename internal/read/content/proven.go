package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
)

// A ProofError means that a piece of content does not match its digest in an index. No byte of
// the piece was returned.
type ProofError struct {
	Entry    string
	Off, Len int64  // of the piece in the content
	Index    string // address of the index
	// None means that there is no digest, because the content was damaged when the index was
	// made.
	None bool
	// Copied means that the index was made of a copy of the archive, so either may be wrong.
	Copied bool
}

func (e *ProofError) Error() string {
	s := fmt.Sprintf("%s: %s", format.Escape(e.Entry), e.What())
	return s + " (" + format.Escape(e.Index) + ")"
}

// What describes the problem without the name of the entry.
func (e *ProofError) What() string {
	if e.None {
		return fmt.Sprintf("bytes %d to %d have no digest: they were damaged when the index was written", e.Off, e.Off+e.Len)
	}
	s := fmt.Sprintf("bytes %d to %d are damaged: they do not match the digest in the index", e.Off, e.Off+e.Len)
	if e.Copied {
		s += ", which was made before the archive was copied; make it again if the archive is right"
	}
	return s
}

// Unwrap returns format.ErrCorrupt.
func (e *ProofError) Unwrap() error { return format.ErrCorrupt }

// A ProofLostError means that content could not be compared because the index with its digests
// cannot be read. The content is not returned.
type ProofLostError struct {
	Entry string
	Index string
	Err   error
}

func (e *ProofLostError) Error() string {
	return fmt.Sprintf("%s: the digests in the index %s cannot be read: %v", format.Escape(e.Entry), format.Escape(e.Index), e.Err)
}

func (e *ProofLostError) Unwrap() error { return e.Err }

// saysWhich reports whether an error names the entry already.
func saysWhich(err error) bool {
	_, bad := errors.AsType[*ProofError](err)
	_, lost := errors.AsType[*ProofLostError](err)
	_, wrong := errors.AsType[*digest.Error](err)
	return bad || lost || wrong
}

// A prover compares pieces of content with their digests in an index.
type prover struct {
	x *kept.Index

	mu     sync.Mutex
	recent []provenPiece // recently used, the most recent last
}

// A provenPiece is kept for callers that read it a little at a time.
type provenPiece struct {
	number int64 // of its digest
	b      []byte
}

// mostProven is the most bytes kept of pieces that were wanted only in part.
const mostProven = 4 << 20

// sums returns the digests of n pieces of e, beginning with number from.
func (v *prover) sums(ctx context.Context, e Entry, from, n int64) ([]digest.Piece, error) {
	all, err := v.x.Digests(ctx, e, from, n)
	if err != nil {
		v.x.Spoilt(ctx, err)
		return nil, &ProofLostError{Entry: e.Name, Index: v.x.Name(), Err: err}
	}
	return all, nil
}

// without reports whether err means that the index is damaged. Then it proves nothing any more, and
// everything is read as without it.
func (s *Source) without(err error) bool {
	_, lost := errors.AsType[*ProofLostError](err)
	return lost && s.Index() == nil
}

// check returns an error if the digest of a piece is wrong.
func (v *prover) check(e Entry, piece int64, n int, got, want digest.Piece) error {
	none := want == digest.Piece{}
	if got == want && !none {
		return nil
	}
	return &ProofError{Entry: e.Name, Off: piece * v.x.Chunk, Len: int64(n), Index: v.x.Name(), None: none, Copied: v.x.Copied}
}

// worthTwo is the size at which two goroutines hash.
const worthTwo = 512 << 10

// checkAll compares the pieces that b consists of with their digests. It returns how many bytes
// of b are right before the first wrong piece.
func (v *prover) checkAll(ctx context.Context, e Entry, off int64, b []byte) (int, error) {
	c := int(v.x.Chunk)
	first, n := off/int64(c), (len(b)-1)/c+1
	want, err := v.sums(ctx, e, first, int64(n))
	if err != nil {
		return 0, err
	}
	got := make([]digest.Piece, n)
	hash := func(from, step int) {
		for i := from; i < n; i += step {
			got[i] = blake3.Sum256(b[i*c : min((i+1)*c, len(b))])
		}
	}
	if n > 1 && len(b) >= worthTwo {
		var wg sync.WaitGroup
		wg.Go(func() { hash(1, 2) })
		hash(0, 2)
		wg.Wait()
	} else {
		hash(0, 1)
	}
	for i := range n {
		if err := v.check(e, first+int64(i), min(c, len(b)-i*c), got[i], want[i]); err != nil {
			return i * c, err
		}
	}
	return len(b), nil
}

// kept returns a piece that was read before.
func (v *prover) kept(number int64) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, p := range v.recent {
		if p.number == number {
			copy(v.recent[i:], v.recent[i+1:])
			v.recent[len(v.recent)-1] = p
			return p.b
		}
	}
	return nil
}

func (v *prover) keep(number int64, b []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.recent) >= int(mostProven/v.x.Chunk) {
		v.recent = append(v.recent[:0], v.recent[1:]...)
	}
	v.recent = append(v.recent, provenPiece{number, b})
}

// together is how many bytes are read into a buffer at once to be verified.
const together = 4 << 20

// readProven fills p with content of e from off, all of which must exist. It reads whole pieces.
// It returns how many bytes are right before an error.
func (s *Source) readProven(ctx context.Context, e Entry, p []byte, off int64) (done int, err error) {
	c := s.proven.x.Chunk
	for done < len(p) {
		at, end := off+int64(done), off+int64(len(p))
		from := at - at%c
		whole := end - end%c
		if end == e.Size {
			whole = end
		}
		if from == at && whole > at {
			b := p[done:][:whole-at]
			err := s.readStored(ctx, e, b, at)
			n := 0
			if err == nil {
				n, err = s.proven.checkAll(ctx, e, at, b)
			}
			if done += n; err != nil {
				clear(b[n:])
				return done, err
			}
			continue
		}
		to := min((end-1)/c*c+c, from+max(together, c), e.Size)
		b, n, err := s.pieces(ctx, e, from, to)
		if have := int64(n) - (at - from); have > 0 {
			done += copy(p[done:], b[at-from:n])
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// pieces reads the pieces of e between two offsets. The first n bytes of the result are right. A
// single piece is kept for later reads.
func (s *Source) pieces(ctx context.Context, e Entry, from, to int64) (b []byte, n int, err error) {
	number, ok := s.proven.x.FirstDigest(e)
	number += from / s.proven.x.Chunk
	one := ok && to-from <= s.proven.x.Chunk
	if one {
		// A digest stands for the same bytes in every read.
		if b := s.proven.kept(number); int64(len(b)) == to-from {
			return b, len(b), nil
		}
	}
	b = make([]byte, to-from)
	if err := s.readStored(ctx, e, b, from); err != nil {
		return nil, 0, err
	}
	n, err = s.proven.checkAll(ctx, e, from, b)
	if one && err == nil {
		s.proven.keep(number, b)
	}
	return b, n, err
}

// A provenReader reads content front to back, and reads and hashes pieces ahead. It begins with
// one piece, as it cannot know how much will be read.
type provenReader struct {
	s   *Source
	ctx context.Context
	e   Entry
	r   io.Reader // reads what follows; nil until needed

	in     *engine.Reader // r, if this reader closes it
	cancel func()

	from  int64 // where it began
	at    int64 // of the next piece
	skip  int64 // bytes of the first piece to skip
	began bool
	first *[]byte        // room for the first piece
	sums  []digest.Piece // of the pieces that come next
	ahead *digest.Ahead
	cur   []byte // the rest of the current piece
	err   error

	plain io.Reader // reads the rest without the index, if that is damaged
	close io.Closer
}

// newProvenReader returns e's content from off on.
func (s *Source) newProvenReader(ctx context.Context, e Entry, off int64) *provenReader {
	ctx, cancel := context.WithCancel(ctx)
	c := s.proven.x.Chunk
	return &provenReader{s: s, ctx: ctx, e: e, from: off, at: off - off%c, skip: off % c, cancel: cancel}
}

func (r *provenReader) Read(p []byte) (int, error) {
	b, err := r.rest()
	n := copy(p, b)
	r.cur = r.cur[n:]
	return n, err
}

// rest returns the rest of the current piece, or the next one.
func (r *provenReader) rest() ([]byte, error) {
	for len(r.cur) == 0 && r.err == nil {
		if r.err = r.next(); r.err != nil && r.err != io.EOF && !saysWhich(r.err) {
			r.err = fmt.Errorf("%s: %w", format.Escape(r.e.Name), r.err)
		}
	}
	if len(r.cur) == 0 {
		return nil, r.err
	}
	return r.cur, nil
}

// copyTo writes all pieces to w without copying them.
func (r *provenReader) copyTo(ctx context.Context, w io.Writer, m *meter.Meter) error {
	for {
		b, err := r.rest()
		if err == io.EOF {
			return nil
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			return err
		}
		m.Add(0, int64(len(b)))
		r.cur = nil
	}
}

// sumsAtOnce is how many digests are read at a time.
const sumsAtOnce = 64

// next makes the next piece the current one.
func (r *provenReader) next() error {
	if r.plain != nil {
		n, err := r.plain.Read(*r.first)
		r.cur = (*r.first)[:n]
		return err
	}
	if r.at >= r.e.Size {
		return io.EOF
	}
	c := r.s.proven.x.Chunk
	number, n := r.at/c, min(c, r.e.Size-r.at)
	if len(r.sums) == 0 {
		var err error
		// Read the first digest alone: often it is the only one.
		many := int64(1)
		if r.began {
			many = min(sumsAtOnce, (r.e.Size-1)/c+1-number)
		}
		if r.sums, err = r.s.proven.sums(r.ctx, r.e, number, many); err != nil {
			return r.instead(err)
		}
	}
	b, sum, err := r.take(c, n)
	if err != nil {
		return err
	}
	err = r.s.proven.check(r.e, number, int(n), sum, r.sums[0])
	r.sums = r.sums[1:]
	if err != nil {
		return err
	}
	r.cur = b[r.skip:]
	r.at += n
	r.skip = 0
	return nil
}

// instead goes on without the index if err means that it is damaged. What is read from its beginning
// is then compared as a whole.
func (r *provenReader) instead(err error) error {
	if !r.s.without(err) {
		return err
	}
	skip := r.at + r.skip
	if r.from > 0 {
		c := r.s.Open(r.ctx, r.e, skip)
		r.plain, r.close, skip = c, c, 0
	} else {
		c := r.s.openAt(r.ctx, r.e, 0, true)
		r.plain, r.close = c.Checked(), c
	}
	if r.first == nil {
		r.first = firsts.Get().(*[]byte)
	}
	if len(*r.first) == 0 {
		*r.first = make([]byte, r.s.proven.x.Chunk)
	}
	if _, err = io.CopyN(io.Discard, r.plain, skip); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// firsts are buffers for first pieces, of *[]byte.
var firsts = sync.Pool{New: func() any { return new([]byte) }}

// take reads the next piece, of n bytes.
func (r *provenReader) take(c, n int64) ([]byte, digest.Piece, error) {
	if !r.began {
		r.began = true
		r.first = firsts.Get().(*[]byte)
		if int64(cap(*r.first)) < n {
			*r.first = make([]byte, c)
		}
		b := (*r.first)[:n]
		var err error
		if r.r == nil {
			err = r.s.readStored(r.ctx, r.e, b, r.at)
		} else if _, err = io.ReadFull(r.r, b); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, digest.Piece{}, err
		}
		return b, blake3.Sum256(b), nil
	}
	if r.ahead == nil {
		if r.r == nil {
			r.in = r.s.engine.NewReaderAt(r.ctx, r.s.Reader.Extents(r.ctx, r.e, r.at, r.e.Size-r.at), r.at, r.e.Size)
			r.r = r.in
		}
		r.ahead = digest.NewAhead(r.r, digest.AheadOptions{Pieces: true, Block: c, Length: r.e.Size - r.at})
	}
	return nextPiece(r.ahead, n)
}

// nextPiece returns the next piece, which has n bytes.
func nextPiece(a *digest.Ahead, n int64) ([]byte, digest.Piece, error) {
	b, err := a.Next()
	if err == nil && int64(len(b.Bytes)) < n {
		_, err = a.Next() // the error that ended it
	}
	if err != nil {
		return nil, digest.Piece{}, err
	}
	return b.Bytes, b.Sum, nil
}

// Close ends the read and what it has under way.
func (r *provenReader) Close() error {
	if r.at < r.e.Size {
		r.cancel() // requests under way are no longer needed
	}
	if r.ahead != nil {
		r.ahead.Close()
	}
	if r.first != nil {
		firsts.Put(r.first)
	}
	if r.in != nil {
		r.in.Close()
	}
	if r.close != nil {
		r.close.Close()
	}
	r.cancel()
	r.ahead, r.plain, r.close, r.in, r.first, r.cur = nil, nil, nil, nil, nil, nil
	if r.err == nil {
		r.err = fs.ErrClosed
	}
	return nil
}
