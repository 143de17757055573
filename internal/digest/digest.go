// Package digest computes the digests of contents and compares contents with
// them. All hashing of content is here: of what lies in memory, of a stream that
// is read through ([Reader]), and of a stream that is read, hashed and written
// side by side ([Ahead]).
package digest

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
)

// New returns the hash of an algorithm, nil if there is none here.
func New(algo string) hash.Hash {
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

// Known reports whether New has an algorithm. A hash has kilobytes of state:
// none is made to find out.
func Known(algo string) bool {
	return algo == "blake3" || algo == "sha256" || algo == "crc32c" || algo == "crc32"
}

// Of returns the digest of b.
func Of(algo string, b []byte) (format.Digest, bool) {
	if algo == "blake3" { // without the hash's own state, which is 2 kB
		d := blake3.Sum256(b)
		return format.Digest{Algo: algo, Sum: string(d[:])}, true
	}
	h := New(algo)
	if h == nil {
		return format.Digest{}, false
	}
	h.Write(b)
	return sumOf(algo, h), true
}

func sumOf(algo string, h hash.Hash) format.Digest {
	return format.Digest{Algo: algo, Sum: string(h.Sum(nil))}
}

// An Error means that content is not what its archive says it is.
type Error struct {
	Entry     string
	Want, Got format.Digest
	// Bit is the only wrong bit, where flipping it makes the content right; -1
	// where that is not so or was not tried.
	Bit int64
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: content is damaged: %s", format.Escape(e.Entry), e.What())
}

// What says what was found, without the name.
func (e *Error) What() string {
	s := fmt.Sprintf("expected %s, found %s", e.Want, e.Got)
	if e.Bit >= 0 {
		s += fmt.Sprintf(": bit %d of byte %d is wrong, nothing else", e.Bit%8, e.Bit/8)
	}
	return s
}

// Unwrap says that it is damage.
func (e *Error) Unwrap() error { return format.ErrCorrupt }

// flipLimit is the longest content in which a single wrong bit is looked for:
// trying them all costs the square of the length, here a fifth of a second.
const flipLimit = 4 << 10

// flippedBit finds the one bit of content that makes its digest right.
func flippedBit(content []byte, want format.Digest) int64 {
	if len(content) > flipLimit {
		return -1
	}
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			got, ok := Of(want.Algo, content)
			content[i] ^= 1 << bit
			if ok && got == want {
				return int64(i)*8 + int64(bit)
			}
		}
	}
	return -1
}

// Check compares whole content with e's digest, if it has one.
func Check(e format.Entry, b []byte) error {
	if e.Digest.Algo == "" {
		return nil
	}
	got, ok := Of(e.Digest.Algo, b)
	if !ok || got == e.Digest {
		return nil
	}
	return &Error{Entry: e.Name, Want: e.Digest, Got: got, Bit: flippedBit(b, e.Digest)}
}

// Compare compares the digest that was found with e's.
func Compare(e format.Entry, got format.Digest) error {
	if got == e.Digest {
		return nil
	}
	return &Error{Entry: e.Name, Want: e.Digest, Got: got, Bit: -1}
}

// A Reader hashes what is read through it.
type Reader struct {
	r    io.Reader
	algo string
	h    hash.Hash
	want *format.Entry
}

// NewReader returns a Reader that knows the digest of r when r has ended. The
// algorithm must be Known.
func NewReader(r io.Reader, algo string) *Reader { return &Reader{r: r, algo: algo, h: New(algo)} }

// NewChecked returns r, the content of e from its beginning, so that it ends with
// an *Error instead of io.EOF if the content does not match e's digest.
func NewChecked(r io.Reader, e format.Entry) io.Reader {
	if !Known(e.Digest.Algo) {
		return r
	}
	return &Reader{r: r, algo: e.Digest.Algo, h: New(e.Digest.Algo), want: &e}
}

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.h.Write(p[:n])
	if err == io.EOF && r.want != nil {
		if derr := Compare(*r.want, r.Sum()); derr != nil {
			err = derr
		}
	}
	return n, err
}

// Sum returns the digest of what was read so far.
func (r *Reader) Sum() format.Digest { return sumOf(r.algo, r.h) }
