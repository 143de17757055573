package format

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/holdall/holdall/store"
)

// An Entry is a file, directory, link or property in an archive.
type Entry struct {
	Name    string // as stored, byte for byte; not always a safe or valid path
	Kind    Kind
	Size    int64       // of the content
	Mode    fs.FileMode // permission and set-id bits, if HasMode is set
	HasMode bool
	ModTime time.Time // zero if not stored
	Owner   string
	Group   string
	Link    string            // target of a symbolic or hard link
	Digest  Digest            // of the content, if the archive has one
	Attr    map[string]string // other attributes that the format stores; for objects of buckets see IsObjectAttr

	// Fault is why the content cannot be read. It is nil if nothing is known to prevent that.
	Fault *Problem

	// Internal marks entries that a format uses for its own purposes, such as a tar member that
	// contains an index. They are listed and read like other entries. They are not compared or
	// converted, and extracted only if named.
	Internal bool

	Ref any // for use by the Reader that returned the entry
}

// ETagAttr is the attribute with the ETag of an object that was packed from a bucket, including
// its quotes.
const ETagAttr = "etag"

// IsObjectAttr reports whether name is an attribute that stores a property of an object of a
// bucket: its ETag, or a header for which [store.IsHeader] returns true. These attributes have
// the same names in all formats with KeepsHeaders. ModTime is then the time when the object was
// written.
func IsObjectAttr(name string) bool { return name == ETagAttr || store.IsHeader(name) }

// HasObjectAttr reports whether e has an attribute for which [IsObjectAttr] returns true.
func HasObjectAttr(e Entry) bool {
	for name := range e.Attr {
		if IsObjectAttr(name) {
			return true
		}
	}
	return false
}

// Kind is the kind of an entry.
type Kind uint8

const (
	// Kinds of entries.
	File Kind = iota
	Dir
	Symlink
	HardLink
	Fifo
	Property // a value within a node of a content repository
)

var kindNames = [...]string{"file", "dir", "symlink", "hardlink", "fifo", "property"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// HasContent reports whether entries of this kind have content of their own.
func (k Kind) HasContent() bool { return k == File || k == Property }

// FileMode returns e's mode with its type bits. If the archive has no mode for e, the permissions
// are read-only.
func (e Entry) FileMode() fs.FileMode {
	m := e.Mode &^ fs.ModeType
	if !e.HasMode {
		m = 0o444
		if e.Kind == Dir {
			m = 0o555
		}
	}
	switch e.Kind {
	case Dir:
		m |= fs.ModeDir
	case Symlink:
		m |= fs.ModeSymlink
	case Fifo:
		m |= fs.ModeNamedPipe
	}
	return m
}

// A Digest is a digest or checksum of a content, with the name of its algorithm, such as "blake3"
// or "crc32c".
type Digest struct {
	Algo string
	Sum  string // raw bytes; a string makes Digests comparable
}

// String returns the digest as ALGO:HEX, or "" for the zero Digest.
func (d Digest) String() string {
	if d.Algo == "" {
		return ""
	}
	return d.Algo + ":" + hex.EncodeToString([]byte(d.Sum))
}

// An Extent is a run of an entry's content, and the place where it is stored. The bytes [At,
// At+Size) of the content are bytes [Skip, Skip+Size) of the result of decoding bytes [Off,
// Off+Len) of Object with Codec.
type Extent struct {
	At   int64
	Size int64

	Object string
	// External means that Object is not a name in the archive's store but an address, or a path
	// relative to the archive. Package holdall decides whether it may be opened.
	External bool
	Off      int64
	Len      int64
	Codec    string // codec.Raw, codec.Zero, codec.Inline, "zstd", "snappy", "zlib"
	Skip     int64
	// Unit is the size of all that the stored bytes decode to; 0 if the format does not know it.
	Unit int64
	// Summed means that what the stored bytes decode to is compared with a checksum at their end. Codecs that
	// always do that need not say so.
	Summed bool
	Data   []byte // the content itself if Codec is codec.Inline; Object, Off and Len then say where it was found
	// Make, if not nil, returns what Data would contain, if that takes work. It is called when
	// the content is read, not when reads are planned.
	Make func(ctx context.Context) ([]byte, error)
}

// Inline returns the content of an extent with codec.Inline. It fails if Make fails or returns
// too few bytes.
func (x Extent) Inline(ctx context.Context) ([]byte, error) {
	b := x.Data
	if x.Make != nil {
		var err error
		if b, err = x.Make(ctx); err != nil {
			return nil, err
		}
	}
	if x.Skip > int64(len(b)) || x.Size > int64(len(b))-x.Skip {
		return nil, fmt.Errorf("content %d+%d needs bytes %d+%d of %d", x.At, x.Size, x.Skip, x.Size, len(b))
	}
	return b[x.Skip:][:x.Size], nil
}

// A Region is a run of stored bytes that is in no extent, and its use.
type Region struct {
	Object string
	Off    int64
	Len    int64
	Use    Use
	Label  string // "footer", "tar header"
}

// Use is the use of a Region.
type Use uint8

// Uses of regions.
const (
	Content Use = iota // content that is made from several places or from decoded bytes, so no extent names it
	Header
	IndexData
	Journal
	Padding
	Trash   // former content that nothing refers to any more
	Unknown // the format does not know
)

var useNames = [...]string{"content", "header", "index", "journal", "padding", "trash", "unknown"}

func (u Use) String() string {
	if int(u) < len(useNames) {
		return useNames[u]
	}
	return fmt.Sprintf("Use(%d)", u)
}

// A Section is an [io.Reader] of content that is stored uncompressed in one piece of an object. A
// Writer can check for it and copy the range instead of reading it.
type Section struct {
	Object store.Object
	Off, N int64
	// Address is the address of Object for references. It is set if the archive may refer to the
	// content instead of copying it.
	Address string
	// Far means that reading the object takes a request. Even short pieces should then be copied,
	// and adjacent pieces copied as one.
	Far bool
	// Unread means that the bytes must not pass through this program. The entry then has the
	// digest that it came with, or none.
	Unread bool
	// AtOnce means that the store must copy the section when it is added. If it cannot, nothing
	// is added and the error wraps [errors.ErrUnsupported]; the content must then be read
	// instead.
	AtOnce bool
	// Sum, if not nil, waits for the content's digest, which is computed concurrently, and
	// returns it. An error concerns the content.
	Sum func() (Digest, error)

	ctx context.Context
	at  int64
}

// NewSection returns a Section with bytes [off, off+n) of o. Reads use ctx.
func NewSection(ctx context.Context, o store.Object, off, n int64) *Section {
	return &Section{Object: o, Off: off, N: n, ctx: ctx}
}

// Read implements [io.Reader].
func (s *Section) Read(p []byte) (int, error) {
	if s.at >= s.N {
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.N-s.at)
	if err := s.Object.ReadAt(s.ctx, p[:n], s.Off+s.at); err != nil {
		return 0, err
	}
	s.at += n
	return int(n), nil
}

// A SizeError means that the size of a content differs from that of its entry. Said is the size
// of the entry, Found the size of the content.
type SizeError struct {
	Name        string
	Said, Found int64
}

func (e *SizeError) Error() string {
	if e.Found > e.Said {
		return fmt.Sprintf("%s: longer than the %d bytes that were listed", e.Name, e.Said)
	}
	return fmt.Sprintf("%s: %d bytes, but %d were listed", e.Name, e.Found, e.Said)
}
