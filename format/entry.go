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

// An Entry is one file, directory or link in an archive.
type Entry struct {
	Name    string // as stored, byte for byte; not always a safe or valid path
	Kind    Kind
	Size    int64       // content bytes
	Mode    fs.FileMode // permission and set-id bits, if HasMode
	HasMode bool
	ModTime time.Time // zero if not kept
	Owner   string
	Group   string
	Link    string            // target of a symlink or hard link
	Digest  Digest            // of the content, if the archive records one
	Attr    map[string]string // what else the format keeps, by its own words; of objects of buckets see IsObjectAttr

	// Fault says why the content cannot be read; nil if it can.
	Fault *Problem

	// Internal entries are the archive's own bookkeeping, which its format
	// keeps among the entries: a tar has its index in a member. They are
	// listed and read like others, but nobody packed them, so they are neither
	// compared, converted nor, unless named, extracted.
	Internal bool

	Ref any // the Reader's own handle; means nothing to anyone else
}

// ETagAttr is the attribute with the ETag of the object of a bucket that an entry was,
// quotes included.
const ETagAttr = "etag"

// IsObjectAttr reports whether an attribute is one of what a bucket keeps with an object,
// which is called the same in all formats that have KeepsHeaders: its ETag, and the headers
// of store.IsHeader by their names. ModTime is then when the object was written.
func IsObjectAttr(name string) bool { return name == ETagAttr || store.IsHeader(name) }

// HasObjectAttr reports whether e has any of them.
func (e Entry) HasObjectAttr() bool {
	for name := range e.Attr {
		if IsObjectAttr(name) {
			return true
		}
	}
	return false
}

// Kind is what an entry is.
type Kind uint8

const (
	File Kind = iota
	Dir
	Symlink
	HardLink
	Fifo
	Property // a value within a node, as a content repository has
)

var kindNames = [...]string{"file", "dir", "symlink", "hardlink", "fifo", "property"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// HasContent reports whether entries of this kind have bytes of their own.
func (k Kind) HasContent() bool { return k == File || k == Property }

// FileMode returns e's mode as io/fs wants it: type bits, and permissions that
// suit a read-only archive where it keeps none.
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

// A Digest is a content checksum under a named algorithm ("blake3", "crc32c").
type Digest struct {
	Algo string
	Sum  string // raw bytes; a string so that Digest can be compared
}

func (d Digest) String() string {
	if d.Algo == "" {
		return ""
	}
	return d.Algo + ":" + hex.EncodeToString([]byte(d.Sum))
}

// An Extent says where one run of an entry's content is stored:
//
// content bytes [At, At+Size) are bytes [Skip, Skip+Size) of what Codec makes
// of the stored bytes [Off, Off+Len) of Object.
type Extent struct {
	At   int64
	Size int64

	Object string
	// External says that Object is no name in the archive's store: it is an
	// address, or a path beside the archive, which the archive leads to. Whether
	// it may is decided above.
	External bool
	Off      int64
	Len      int64
	Codec    string // codec.Raw, codec.Zero, codec.Inline, "zstd", "snappy", "zlib"
	Skip     int64
	// Unit is how many bytes the stored ones become, all of them; 0 if the format
	// does not know.
	Unit int64
	Data []byte // the content itself when Codec is codec.Inline; the rest says where it was found
	// Make gives what Data would be where that takes work: it is called by who reads the
	// content, not by who plans reads.
	Make func(ctx context.Context) ([]byte, error)
}

// Inline returns the content of an extent whose codec is codec.Inline.
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

// A Region says what a run of stored bytes is for that no extent has.
type Region struct {
	Object string
	Off    int64
	Len    int64
	Use    Use
	Label  string // "footer", "tar header"
}

// Use is what a Region is for.
type Use uint8

const (
	Content Use = iota // made of several places, or of decoded ones, which no extent names
	Header
	IndexData
	Journal
	Padding
	Trash   // once content, now unreferenced
	Unknown // the format cannot say
)

var useNames = [...]string{"content", "header", "index", "journal", "padding", "trash", "unknown"}

func (u Use) String() string {
	if int(u) < len(useNames) {
		return useNames[u]
	}
	return fmt.Sprintf("Use(%d)", u)
}

// A Section is content that lies in one piece in an object. It reads like any
// other content; a Writer that recognises it may copy the range instead.
type Section struct {
	Object store.Object
	Off, N int64
	// Address is where Object lies, as an archive may refer to it: set where
	// the content may be referred to instead of copied.
	Address string
	// Far says that reading it takes a request, so that even short pieces had better
	// be copied: what lies one behind the other is copied as one.
	Far bool
	// Unread says that its bytes are not to pass through this program: the entry has the
	// digest that it comes with, or none.
	Unread bool
	// AtOnce says that the store copies all of it when it is added, or that nothing is
	// added: the error wraps errors.ErrUnsupported then, and it is to be read instead.
	AtOnce bool
	// Sum, if there is one, waits for the content's digest, which somebody
	// computes meanwhile. Its error is about the content.
	Sum func() (Digest, error)

	ctx context.Context
	at  int64
}

// NewSection returns bytes [off, off+n) of o as content. Reads use ctx.
func NewSection(ctx context.Context, o store.Object, off, n int64) *Section {
	return &Section{Object: o, Off: off, N: n, ctx: ctx}
}

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

// A SizeError means content was not as long as its entry said.
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
