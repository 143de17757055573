// Package digest computes digests of contents and compares contents with them. It hashes contents
// in memory, streams while they are read ([Reader]), and streams that are read, hashed and
// written concurrently ([Ahead]).
package digest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"sync/atomic"

	"github.com/minio/crc64nvme"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
)

// New returns the hash of an algorithm, or nil if it is not supported.
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
	case "crc64nvme":
		return crc64nvme.New()
	case "md5":
		return md5.New()
	case "sha1":
		return sha1.New()
	case "sha512":
		return sha512.New()
	}
	return nil
}

// Known reports whether New supports an algorithm. It does not make a hash, which has kilobytes of
// state.
func Known(algo string) bool {
	switch algo {
	case "blake3", "sha256", "crc32c", "crc32", "crc64nvme", "md5", "sha1", "sha512":
		return true
	}
	return false
}

// IsChecksum reports whether an algorithm only detects accidental damage, not forgery.
func IsChecksum(algo string) bool { return strings.HasPrefix(algo, "crc") }

// IsSafe reports whether nobody can make other bytes with the same digest.
func IsSafe(algo string) bool { return algo == "blake3" || algo == "sha256" || algo == "sha512" }

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

// An Error means that content does not match its digest in the archive.
type Error struct {
	Entry     string
	Want, Got format.Digest
	// Bit is the number of the bit that must be flipped to make the content match; -1 if there is
	// none or if none was searched for.
	Bit int64
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: content is damaged: %s", format.Escape(e.Entry), e.What())
}

// What describes the problem without the name of the entry.
func (e *Error) What() string {
	s := fmt.Sprintf("expected %s, found %s", e.Want, e.Got)
	if e.Bit >= 0 {
		s += fmt.Sprintf(": only bit %d of byte %d is wrong", e.Bit%8, e.Bit/8)
	}
	return s
}

// Unwrap returns format.ErrCorrupt.
func (e *Error) Unwrap() error { return format.ErrCorrupt }

// A Search looks for a single wrong bit in contents. Its total cost is bounded, because trying all
// bits of a content takes time proportional to the square of its length.
type Search struct{ spent atomic.Int64 }

const (
	// flipLimit is the longest content that is searched, in a tenth of a second.
	flipLimit = 4 << 10
	// searchLimit is how many bytes one Search hashes in all, in about a third of a second: where
	// many contents are wrong, it is not for a single bit.
	searchLimit = 1 << 28
)

// bit returns the bit of content that must be flipped to make its digest right. It returns -1 if
// there is none, the content is too long, or the search has cost too much already.
func (s *Search) bit(content []byte, want format.Digest) int64 {
	n := int64(len(content))
	if s == nil || n > flipLimit || s.spent.Load() > searchLimit {
		return -1
	}
	s.spent.Add(n * n * 8)
	content = bytes.Clone(content) // others may read it
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

// Check compares complete content with e's digest, if it has one.
func Check(e format.Entry, b []byte, s *Search) error {
	if e.Digest.Algo == "" {
		return nil
	}
	got, ok := Of(e.Digest.Algo, b)
	if !ok || got == e.Digest {
		return nil
	}
	return &Error{Entry: e.Name, Want: e.Digest, Got: got, Bit: s.bit(b, e.Digest)}
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
}

// NewReader returns a Reader that knows the digest of r when r has ended. The
// algorithm must be Known.
func NewReader(r io.Reader, algo string) *Reader { return &Reader{r, algo, New(algo)} }

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.h.Write(p[:n])
	return n, err
}

// Sum returns the digest of what was read so far.
func (r *Reader) Sum() format.Digest { return sumOf(r.algo, r.h) }

// NewChecked returns r, the content of e from its beginning. If the content does not match e's
// digest, the last Read returns an *Error and no bytes. If done is not nil, it is called with that
// error, or nil, and the last Read returns its result instead.
func NewChecked(r io.Reader, e format.Entry, done func(wrong error) error) io.Reader {
	if !Known(e.Digest.Algo) {
		return r
	}
	return &checked{NewReader(r, e.Digest.Algo), e, done, e.Size, nil}
}

type checked struct {
	*Reader
	e    format.Entry
	done func(wrong error) error
	left int64
	err  error
}

func (c *checked) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); c.left == 0 || err == io.EOF && c.left > 0 {
		c.err = Compare(c.e, c.Sum())
		if c.done != nil {
			c.err = c.done(c.err)
		}
		if c.err != nil {
			return 0, c.err
		}
	}
	return n, err
}
