package holdall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/engine"
	"github.com/holdall/holdall/internal/kept"
)

// A ProofError means that a piece of content is not what the index of the archive has
// the digest of. Nothing of the piece was handed out.
type ProofError struct {
	Entry    string
	Off, Len int64  // of the piece, in the content
	Index    string // where that is
	// None says that there is no digest: the content was damaged when the index was made.
	None bool
}

func (e *ProofError) Error() string {
	s := fmt.Sprintf("%s: %s", format.Escape(e.Entry), e.what())
	return s + " (" + format.Escape(e.Index) + ")"
}

func (e *ProofError) what() string {
	if e.None {
		return fmt.Sprintf("bytes %d to %d have no proof: they were damaged when the index was made", e.Off, e.Off+e.Len)
	}
	return fmt.Sprintf("bytes %d to %d are damaged: they are not what the index has a digest of", e.Off, e.Off+e.Len)
}

// Unwrap says that it is damage.
func (e *ProofError) Unwrap() error { return ErrDamaged }

// A ProofLostError means that an index was to prove what is read, and does not say any
// more by what. Nothing is read without proof because of that.
type ProofLostError struct {
	Entry string
	Index string
	Err   error
}

func (e *ProofLostError) Error() string {
	return fmt.Sprintf("%s: the index %s has lost its proof: %v", format.Escape(e.Entry), format.Escape(e.Index), e.Err)
}

func (e *ProofLostError) Unwrap() error { return e.Err }

// saysWhich reports whether an error names the entry already.
func saysWhich(err error) bool {
	_, bad := errors.AsType[*ProofError](err)
	_, lost := errors.AsType[*ProofLostError](err)
	return bad || lost
}

type pieceSum = [kept.DigestLen]byte

// A prover compares pieces of content with their digests in an index.
type prover struct {
	x *kept.Index

	mu     sync.Mutex
	recent []provenPiece // used last, the last one last
}

// A provenPiece is kept for who reads it a little at a time.
type provenPiece struct {
	number int64 // of its digest
	b      []byte
}

// mostProven is how much is kept of pieces of which only a part was wanted.
const mostProven = 4 << 20

// proves reports whether e's content is compared with digests of pieces.
func (a *Archive) proves(e Entry) bool {
	return a.proof != nil && kept.Pieces(&e, a.proof.x.Chunk) > 0
}

// sums returns the digests of n pieces of e from one of them on.
func (v *prover) sums(ctx context.Context, e Entry, from, n int64) ([]pieceSum, error) {
	all, err := v.x.Digests(ctx, e, from, n)
	if err != nil {
		return nil, &ProofLostError{Entry: e.Name, Index: v.x.Name(), Err: err}
	}
	return all, nil
}

// check says what is wrong with a piece.
func (v *prover) check(e Entry, piece int64, n int, got, want pieceSum) error {
	none := want == pieceSum{}
	if got == want && !none {
		return nil
	}
	return &ProofError{Entry: e.Name, Off: piece * v.x.Chunk, Len: int64(n), Index: v.x.Name(), None: none}
}

// worthTwo is how much is hashed by two goroutines.
const worthTwo = 512 << 10

// checkAll compares the pieces that b is with their digests. It returns how much of b
// is right before what is not.
func (v *prover) checkAll(ctx context.Context, e Entry, off int64, b []byte) (int, error) {
	c := int(v.x.Chunk)
	first, n := off/int64(c), (len(b)-1)/c+1
	want, err := v.sums(ctx, e, first, int64(n))
	if err != nil {
		return 0, err
	}
	got := make([]pieceSum, n)
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

// together is how much is read at once into a buffer, to be checked.
const together = 4 << 20

// readProven fills p with content of e from off, all of which is there. What is read is
// whole pieces. It returns how many bytes are right before an error.
func (a *Archive) readProven(ctx context.Context, e Entry, p []byte, off int64) (done int, err error) {
	c := a.proof.x.Chunk
	for done < len(p) {
		at, end := off+int64(done), off+int64(len(p))
		from := at - at%c
		whole := end - end%c
		if end == e.Size {
			whole = end
		}
		if from == at && whole > at {
			b := p[done:][:whole-at]
			err := a.readStored(ctx, e, b, at)
			n := 0
			if err == nil {
				n, err = a.proof.checkAll(ctx, e, at, b)
			}
			if done += n; err != nil {
				clear(b[n:])
				return done, err
			}
			continue
		}
		to := min((end-1)/c*c+c, from+max(together, c), e.Size)
		b, n, err := a.pieces(ctx, e, from, to)
		if have := int64(n) - (at - from); have > 0 {
			done += copy(p[done:], b[at-from:n])
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// pieces reads the pieces of e from one offset to another, of which the first n bytes
// are right. One piece is kept.
func (a *Archive) pieces(ctx context.Context, e Entry, from, to int64) (b []byte, n int, err error) {
	number, ok := a.proof.x.FirstDigest(e)
	number += from / a.proof.x.Chunk
	one := ok && to-from <= a.proof.x.Chunk
	if one {
		// Whoever has the same digest has the same bytes.
		if b := a.proof.kept(number); int64(len(b)) == to-from {
			return b, len(b), nil
		}
	}
	b = make([]byte, to-from)
	if err := a.readStored(ctx, e, b, from); err != nil {
		return nil, 0, err
	}
	n, err = a.proof.checkAll(ctx, e, from, b)
	if one && err == nil {
		a.proof.keep(number, b)
	}
	return b, n, err
}

// provenEach is each with contents that are proven.
func (a *Archive) provenEach(ctx context.Context, each engine.Each) engine.Each {
	return func(it engine.Item, content io.Reader, err error) error {
		if err != nil || !a.proves(it.Entry) {
			return each(it, content, err)
		}
		if b, ok := inMemory(content, it.Entry.Size); ok {
			_, err := a.proof.checkAll(ctx, it.Entry, 0, b)
			return each(it, provenBytes{bytes.NewReader(b)}, err)
		}
		r := &provenReader{a: a, ctx: ctx, e: it.Entry, r: content, cancel: func() {}}
		defer r.Close()
		return each(it, r, nil)
	}
}

// provenBytes are a content in memory that was proven.
type provenBytes struct{ *bytes.Reader }

// isProven reports whether all that r has is proven. Then it need not be compared with
// the digest of its entry: that was done with what the digests of pieces are of.
func isProven(r io.Reader) bool {
	switch r.(type) {
	case provenBytes, *provenReader:
		return true
	}
	return false
}

// inMemory returns the n bytes that r has, if they are in memory already.
func inMemory(r io.Reader, n int64) ([]byte, bool) {
	v, ok := r.(*bytes.Reader)
	if p, proven := r.(provenBytes); proven {
		v, ok = p.Reader, true
	}
	if !ok || int64(v.Len()) != n {
		return nil, false
	}
	var b grab
	_, err := v.WriteTo(&b)
	return b, err == nil
}

// A provenReader reads content front to back, of which pieces are read and hashed
// ahead. It begins with one, as it cannot know how much will be read.
type provenReader struct {
	a   *Archive
	ctx context.Context
	e   Entry
	r   io.Reader // of what follows; nil until then

	in     *engine.Reader // it, if it is ours
	cancel func()

	at    int64 // of the next piece
	skip  int64 // of the first one
	began bool
	sums  []pieceSum // of the pieces that come next
	ahead *hashAhead
	piece *hashed // the current one
	cur   []byte  // what is left of it
	err   error
}

// newProvenReader returns e's content from off on.
func (a *Archive) newProvenReader(ctx context.Context, e Entry, off int64) *provenReader {
	ctx, cancel := context.WithCancel(ctx)
	c := a.proof.x.Chunk
	return &provenReader{a: a, ctx: ctx, e: e, at: off - off%c, skip: off % c, cancel: cancel}
}

func (r *provenReader) Read(p []byte) (int, error) {
	b, err := r.rest()
	n := copy(p, b)
	r.cur = r.cur[n:]
	return n, err
}

// rest returns what is left of the current piece, or the next one.
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

// copyTo writes all pieces to w as they are.
func (r *provenReader) copyTo(ctx context.Context, w io.Writer, m *Meter) error {
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

// sumsAtOnce is how many digests are asked for at a time.
const sumsAtOnce = 64

// next makes the next piece the current one.
func (r *provenReader) next() error {
	if r.at >= r.e.Size {
		return io.EOF
	}
	c := r.a.proof.x.Chunk
	number, n := r.at/c, min(c, r.e.Size-r.at)
	if len(r.sums) == 0 {
		var err error
		// The first alone: often it is the only one.
		many := int64(1)
		if r.began {
			many = min(sumsAtOnce, (r.e.Size-1)/c+1-number)
		}
		if r.sums, err = r.a.proof.sums(r.ctx, r.e, number, many); err != nil {
			return err
		}
	}
	h, err := r.take(c, n)
	if err != nil {
		return err
	}
	err = r.a.proof.check(r.e, number, int(n), h.sum, r.sums[0])
	r.sums = r.sums[1:]
	if err != nil {
		return err
	}
	r.cur = h.b[r.skip:n]
	r.at += n
	r.skip = 0
	return nil
}

// take reads the next piece, of n bytes.
func (r *provenReader) take(c, n int64) (*hashed, error) {
	if !r.began {
		r.began = true
		r.piece = getHashed(c)
		var err error
		if b := r.piece.b[:n]; r.r == nil {
			err = r.a.readStored(r.ctx, r.e, b, r.at)
		} else {
			err = readAll(r.r, b)
		}
		if err == nil {
			r.piece.sum = blake3.Sum256(r.piece.b[:n])
		}
		return r.piece, err
	}
	if r.ahead == nil {
		putHashed(r.piece)
		if r.r == nil {
			off := r.at
			r.in = r.a.engine.NewReaderAt(r.ctx, r.a.r.Extents(r.ctx, r.e, off, r.e.Size-off), off, r.e.Size)
			r.r = r.in
		}
		r.ahead = newHashAhead(r.r, c, r.e.Size-r.at)
	} else {
		r.ahead.give(r.piece)
	}
	r.piece = r.ahead.take()
	return r.piece, r.piece.err
}

// Close ends the read and what it has under way.
func (r *provenReader) Close() error {
	if r.at < r.e.Size {
		r.cancel() // nobody waits for what is under way
	}
	if r.ahead != nil {
		r.ahead.end(r.piece)
	} else if r.piece != nil {
		putHashed(r.piece)
	}
	if r.in != nil {
		r.in.Close()
	}
	r.cancel()
	r.ahead, r.in = nil, nil
	r.piece, r.cur = nil, nil
	if r.err == nil {
		r.err = fs.ErrClosed
	}
	return nil
}

// readAll fills b; that r ends before is an error.
func readAll(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
