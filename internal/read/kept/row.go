package kept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
)

// Bits of the first byte of an extent.
const (
	otherAt = 1 << iota
	otherLen
	hasSkip
	hasUnit
	hasData
	otherCodec
)

// Bits for the rare properties of a row.
const (
	hasLink = 1 << iota
	hasAttr
	hasFault
	isInternal
	hasExtents // the rest says where the content lies
)

// A row is an entry, or a directory that is implied.
type row struct {
	place
	implied bool
	entry   *format.Entry // except for its name
	// one says that the content is one raw run of the entry's size, from off in a volume. Otherwise
	// extents, as encoded by appendExtents, says where it lies.
	one     bool
	off     int64
	volume  int
	extents []byte
	// elsewhere says that the index has neither.
	elsewhere bool
	rank      int64
	proof     int64 // number of its first digest
	proofs    int64 // number of its digests; 0 if the digest of the entry is that of its only piece
	same      bool  // it is
}

const (
	// maxInline is how many bytes of one entry's content an index stores, and maxExtents in how
	// many pieces a content may lie. For more than that, the archive itself is read.
	maxInline  = 64 << 10
	maxExtents = 100_000
)

func bit(is bool, b uint16) uint16 {
	if is {
		return b
	}
	return 0
}

func isPlain(x *format.Extent, size int64) bool {
	return x.Codec == codec.Raw && x.At == 0 && x.Skip == 0 && x.Unit == 0 && x.Size == x.Len && x.Size == size && len(x.Data) == 0
}

func appendRare(b []byte, e *format.Entry, rare byte) []byte {
	if rare&hasLink != 0 {
		b = scan.AppendText(b, e.Link)
	}
	if rare&hasAttr != 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Attr)))
		for _, k := range slices.Sorted(maps.Keys(e.Attr)) {
			b = scan.AppendText(scan.AppendText(b, k), e.Attr[k])
		}
	}
	if rare&hasFault != 0 {
		f := e.Fault
		b = scan.AppendText(scan.AppendText(b, string(f.Code)), f.Class)
		b = append(b, byte(f.Severity))
		b = binary.AppendVarint(scan.AppendText(b, f.Volume), f.Off)
		b = append(scan.AppendText(b, f.Entry), byte(bit(f.HasEntry, 1)))
		b = scan.AppendText(b, f.Message)
	}
	return b
}

func appendExtents(b []byte, xs []format.Extent, volumes []int) []byte {
	at, end := int64(0), int64(0)
	last := codec.Raw
	for i := range xs {
		x := &xs[i]
		bits := bit(x.At != at, otherAt) | bit(x.Len != x.Size, otherLen) | bit(x.Skip != 0, hasSkip) | bit(x.Unit != 0, hasUnit) |
			bit(x.Codec == codec.Inline, hasData) | bit(x.Codec != last, otherCodec)
		b = binary.AppendUvarint(append(b, byte(bits)), uint64(volumes[i]))
		b = binary.AppendVarint(b, x.Off-end)
		b = binary.AppendUvarint(b, uint64(x.Size))
		if bits&otherAt != 0 {
			b = binary.AppendVarint(b, x.At-at)
		}
		if bits&otherLen != 0 {
			b = binary.AppendUvarint(b, uint64(x.Len))
		}
		if bits&hasSkip != 0 {
			b = binary.AppendUvarint(b, uint64(x.Skip))
		}
		if bits&hasUnit != 0 {
			b = binary.AppendUvarint(b, uint64(x.Unit))
		}
		if bits&otherCodec != 0 {
			b = scan.AppendText(b, x.Codec)
		}
		if bits&hasData != 0 {
			b = scan.AppendText(b, string(x.Data))
		}
		at, end, last = x.At+x.Size, x.Off+x.Len, x.Codec
	}
	return b
}

var errRow = errors.New("invalid row")

// parsed returns an error if a scan has failed.
func parsed(c *scan.Scanner) error {
	if c.Bad {
		return errRow
	}
	return nil
}

// Pieces is the number of digests of an entry's content.
func Pieces(e *format.Entry, chunk int64) int64 {
	if e.Fault != nil {
		return 0
	}
	return pieces(e.Kind, e.Size, chunk)
}

func pieces(kind format.Kind, size, chunk int64) int64 {
	if chunk == 0 || size == 0 || !kind.HasContent() {
		return 0
	}
	return (size-1)/chunk + 1
}

// decodeRare reads rare properties, and returns the byte that says which.
func decodeRare(c *scan.Scanner, e *format.Entry) (rare byte) {
	rare = c.Byte()
	if rare&hasLink != 0 {
		e.Link = string(c.Text())
	}
	if rare&hasAttr != 0 {
		n := c.Uvarint()
		if n > uint64(len(c.B)) {
			c.Bad = true
			return rare
		}
		e.Attr = make(map[string]string, min(n, 64))
		for ; n > 0 && !c.Bad; n-- {
			k := string(c.Text())
			e.Attr[k] = string(c.Text())
		}
	}
	if rare&hasFault != 0 {
		f := &format.Problem{Code: format.Code(c.Text()), Class: string(c.Text()), Severity: format.Severity(c.Byte())}
		f.Volume, f.Off, f.Entry = string(c.Text()), c.Varint(), string(c.Text())
		f.HasEntry = c.Byte() != 0
		f.Message = string(c.Text())
		e.Fault = f
	}
	e.Internal = rare&isInternal != 0
	return rare
}

// decodeExtents calls each with what appendExtents appended.
func decodeExtents(b []byte, each func(x format.Extent, volume int)) error {
	c := &scan.Scanner{B: b}
	at, end := int64(0), int64(0)
	last := codec.Raw
	for c.At < len(b) {
		bits := c.Byte()
		volume := c.Uvarint()
		x := format.Extent{At: at, Off: end + c.Varint(), Size: c.Size()}
		if x.Len = x.Size; bits&otherAt != 0 {
			x.At += c.Varint()
		}
		if bits&otherLen != 0 {
			x.Len = c.Size()
		}
		if bits&hasSkip != 0 {
			x.Skip = c.Size()
		}
		if bits&hasUnit != 0 {
			x.Unit = c.Size()
		}
		if bits&otherCodec != 0 {
			last = string(c.Text())
		}
		if x.Codec = last; bits&hasData != 0 {
			x.Data = slices.Clone(c.Text())
		}
		at, end = x.At+x.Size, x.Off+x.Len
		if c.Bad || x.At < 0 || x.Off < 0 || at < 0 || end < 0 || volume > math.MaxInt32 {
			return errRow
		}
		each(x, int(volume))
	}
	return nil
}

// check returns an error if an entry cannot be in an index.
func check(e *format.Entry) error {
	if e.Size < 0 {
		return fmt.Errorf("%s: a size of %d", format.Escape(e.Name), e.Size)
	}
	if len(e.Digest.Sum) > math.MaxUint8 || e.Kind > format.Property {
		return fmt.Errorf("%s: a digest of %d bytes, or a kind %d", format.Escape(e.Name), len(e.Digest.Sum), e.Kind)
	}
	return nil
}
