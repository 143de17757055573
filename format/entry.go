package format

import (
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"time"
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
	var room [128]byte
	return string(hex.AppendEncode(append(append(room[:0], d.Algo...), ':'), []byte(d.Sum)))
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
	// Damaged means that the content is in a part of the archive that is known to be damaged. It is
	// returned only to those who want what is left, or if it matches a digest.
	Damaged bool
	Data    []byte // the content itself if Codec is codec.Inline; Object, Off and Len then say where it was found
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
