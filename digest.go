package holdall

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
)

// newHash returns the hash of a digest's algorithm, nil if we have none.
func newHash(algo string) hash.Hash {
	switch algo {
	case "blake3":
		return blake3.New()
	case "sha256":
		return sha256.New()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc32":
		return crc32.NewIEEE()
	}
	return nil
}

// canHash reports whether newHash has an algorithm. A hash has kilobytes of state:
// it is not made to ask.
func canHash(algo string) bool {
	return algo == "blake3" || algo == "sha256" || algo == "crc32c" || algo == "crc32"
}

// sumOf returns the digest of b.
func sumOf(algo string, b []byte) (Digest, bool) {
	if algo == "blake3" { // without the hash's own state, which is 2 kB
		d := blake3.Sum256(b)
		return Digest{Algo: algo, Sum: string(d[:])}, true
	}
	h := newHash(algo)
	if h == nil {
		return Digest{}, false
	}
	h.Write(b)
	return Digest{Algo: algo, Sum: string(h.Sum(nil))}, true
}

// ErrDamaged is what errors about damaged archives and contents wrap.
var ErrDamaged = format.ErrCorrupt

// A DigestError means that content is not what its archive says it is.
type DigestError struct {
	Entry     string
	Want, Got Digest
	// Bit is the one bit that is wrong, if turning it makes content right; -1
	// if that is not so or was not tried.
	Bit int64
}

func (e *DigestError) Error() string {
	s := fmt.Sprintf("%s: content is damaged: expected %s, found %s", format.Escape(e.Entry), e.Want, e.Got)
	if e.Bit >= 0 {
		s += fmt.Sprintf(": bit %d of byte %d is wrong, nothing else", e.Bit%8, e.Bit/8)
	}
	return s
}

// Unwrap says that it is damage.
func (e *DigestError) Unwrap() error { return ErrDamaged }

// flipLimit is the longest content in which a single wrong bit is looked for:
// trying them all costs the square of the length, here a fifth of a second.
const flipLimit = 4 << 10

// flippedBit finds the one bit of content that makes its digest right.
func flippedBit(content []byte, want Digest) int64 {
	if len(content) > flipLimit {
		return -1
	}
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			got, ok := sumOf(want.Algo, content)
			content[i] ^= 1 << bit
			if ok && got == want {
				return int64(i)*8 + int64(bit)
			}
		}
	}
	return -1
}

// smallContent is what is held in memory and checked before a byte is handed
// on; longer content is checked on the way, and the error comes at its end.
const smallContent = 1 << 20

// smallBufs are buffers for small contents, of *[]byte.
var smallBufs = sync.Pool{New: func() any { return new([]byte) }}

// whole returns the n bytes that r has: where they lie already, if r is a view
// of memory, else in spare, which grows.
func whole(r io.Reader, n int64, spare *[]byte) ([]byte, error) {
	if b, ok := inMemory(r, n); ok {
		return b, nil
	}
	if int64(cap(*spare)) < n {
		*spare = make([]byte, n)
	}
	b := (*spare)[:n]
	_, err := io.ReadFull(r, b)
	return b, err
}

// grab takes the bytes that are written to it as they are.
type grab []byte

func (g *grab) Write(p []byte) (int, error) {
	*g = p
	return len(p), nil
}

// copyingAhead counts contents that are read, hashed and written side by side. That takes
// 2 MiB each, and is of use for as many as there are processors.
var copyingAhead atomic.Int32

// copyAhead is copyChecked of long content.
func copyAhead(ctx context.Context, w io.Writer, e Entry, r io.Reader, m *Meter) error {
	in := newReadAhead(io.LimitReader(r, e.Size), e.Digest.Algo, m)
	defer in.Close()
	n, err := in.WriteTo(&wanted{ctx, w})
	if err == nil && n < e.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	got, _ := in.ContentDigest()
	return sameDigest(e, got)
}

// wanted writes until a context ends.
type wanted struct {
	ctx context.Context
	w   io.Writer
}

func (w *wanted) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.w.Write(p)
}

// copyChecked copies e's content from r to w and checks it, if e has a digest and
// nothing has proven it. The bytes count for m as they come.
func copyChecked(ctx context.Context, w io.Writer, e Entry, r io.Reader, m *Meter) error {
	if isProven(r) {
		e.Digest = Digest{}
	}
	if e.Size <= smallContent {
		spare := smallBufs.Get().(*[]byte)
		defer smallBufs.Put(spare)
		b, err := whole(r, e.Size, spare)
		if err == nil {
			err = checkBytes(e, b)
		}
		if err == nil {
			m.Add(0, e.Size)
			_, err = w.Write(b)
		}
		return err
	}
	if p, ok := r.(*provenReader); ok {
		return p.copyTo(ctx, w, m)
	}
	if canHash(e.Digest.Algo) {
		if copyingAhead.Add(1) <= int32(runtime.GOMAXPROCS(0)) {
			defer copyingAhead.Add(-1)
			return copyAhead(ctx, w, e, r, m)
		}
		copyingAhead.Add(-1)
	}
	h := newHash(e.Digest.Algo)
	buf := make([]byte, 256<<10)
	for n := int64(0); n < e.Size; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		k, err := r.Read(buf)
		if h != nil {
			h.Write(buf[:k])
		}
		if _, err := w.Write(buf[:k]); err != nil {
			return err
		}
		n += int64(k)
		m.Add(0, int64(k))
		if err == io.EOF && n < e.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	if h == nil {
		return nil
	}
	return sameDigest(e, Digest{Algo: e.Digest.Algo, Sum: string(h.Sum(nil))})
}

// checkBytes checks whole content against e's digest, if it has one.
func checkBytes(e Entry, b []byte) error {
	if e.Digest.Algo == "" {
		return nil
	}
	got, ok := sumOf(e.Digest.Algo, b)
	if !ok {
		return nil
	}
	err := sameDigest(e, got)
	if d, bad := err.(*DigestError); bad {
		d.Bit = flippedBit(b, e.Digest)
	}
	return err
}

func sameDigest(e Entry, got Digest) error {
	if got == e.Digest {
		return nil
	}
	return &DigestError{Entry: e.Name, Want: e.Digest, Got: got, Bit: -1}
}

// Checked returns r, the content of e from its beginning, so that its end is no io.EOF
// but a [*DigestError] where e has a digest and the content is not of it.
func Checked(e Entry, r io.Reader) io.Reader {
	if isProven(r) || !canHash(e.Digest.Algo) {
		return r
	}
	return &checkedReader{r: r, e: e, h: newHash(e.Digest.Algo)}
}

type checkedReader struct {
	r io.Reader
	e Entry
	h hash.Hash
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.h.Write(p[:n])
	if err == io.EOF {
		if derr := sameDigest(c.e, Digest{Algo: c.e.Digest.Algo, Sum: string(c.h.Sum(nil))}); derr != nil {
			err = derr
		}
	}
	return n, err
}
