// Package parquet reads Parquet files of simple columns, as services write lists of objects. It has the encodings
// that these have: plain values, dictionaries, pages of version 1 and 2, without compression or with Snappy, gzip
// or Zstandard.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/internal/base/scan"
)

// These limit what comes from outside.
const (
	maxFooter = 16 << 20
	maxPage   = 16 << 20
	maxHeader = 64 << 10 // of a page
	maxNodes  = 1 << 20  // values of a footer
)

const (
	magic     = "PAR1"
	footerLen = 8
)

// An Error is damage of a file, or what is not supported.
type Error struct {
	Off int64
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("Parquet: at %d: %v", e.Off, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Kinds of columns.
const (
	booleans = 0
	numbers  = 2 // of 64 bits
	texts    = 6
)

// Kinds of pages.
const (
	dataPage = 0
	dictPage = 2
	dataV2   = 3
)

// Encodings of values.
const (
	plain     = 0
	plainDict = 2
	runs      = 3
	runsDict  = 8
)

// codecs are the compressions, by their numbers.
var codecs = map[int64]string{1: codec.SnappyRecord, 2: codec.Gzip, 6: codec.ZstdRecord}

var errPage = errors.New("a damaged page")

// Read calls do with the texts of some columns of each row: numbers are decimal, booleans are true or false, and
// what a row or the file does not have is empty. The texts are valid until the next call.
func Read(in io.ReaderAt, size int64, columns []string, do func(values []string) error) error {
	foot, at, err := footer(in, size)
	if err != nil {
		return &Error{at, err}
	}
	schema := foot.at(2).list
	if len(schema) == 0 || foot.at(2).list[0].at(5).num != int64(len(schema)-1) {
		return &Error{at, fmt.Errorf("a schema that is not a list of columns: %w", errors.ErrUnsupported)}
	}
	rows := int64(0)
	for _, group := range foot.at(4).list {
		chunks, n := group.at(1).list, group.at(3).num
		if n < 0 || n > 8*size-rows || len(chunks) != len(schema)-1 {
			return &Error{at, fmt.Errorf("a group of %d columns and %d rows in a file of %d columns and %d bytes", len(chunks), n, len(schema)-1, size)}
		}
		rows += n
		all, values := make([]*column, len(columns)), make([]string, len(columns))
		for i, s := range schema[1:] {
			for k, name := range columns {
				if string(s.at(4).text) == name {
					if all[k], err = open(in, at, s, chunks[i].at(3)); err != nil {
						return &Error{at, fmt.Errorf("column %s: %w", name, err)}
					}
				}
			}
		}
		for range n {
			for k, c := range all {
				if c == nil {
					continue
				}
				if values[k], err = c.next(); err != nil {
					return &Error{c.page, fmt.Errorf("column %s: %w", columns[k], err)}
				}
			}
			if err := do(values); err != nil {
				return err
			}
		}
	}
	return nil
}

// footer returns what the end of a file says, and its offset.
func footer(in io.ReaderAt, size int64) (n node, at int64, err error) {
	end := make([]byte, footerLen)
	if size < int64(len(magic))+footerLen {
		return n, 0, io.ErrUnexpectedEOF
	}
	if _, err := in.ReadAt(end, size-footerLen); err != nil {
		return n, size, err
	}
	long := int64(binary.LittleEndian.Uint32(end))
	if string(end[4:]) != magic || long > size-footerLen-int64(len(magic)) {
		return n, size - footerLen, errors.New("expected the end of a file")
	}
	if long > maxFooter {
		return n, size - footerLen, fmt.Errorf("a footer of %d bytes, expected at most %d", long, maxFooter)
	}
	at = size - footerLen - long
	b := make([]byte, long)
	if _, err := in.ReadAt(b, at); err != nil {
		return n, at, err
	}
	c := thrift{Scanner: scan.Scanner{B: b}, left: maxNodes}
	if n = c.value(isStruct); c.Bad {
		return n, at, errors.New("a damaged footer")
	}
	return n, at, nil
}

// A column is that of a group of rows.
type column struct {
	in       io.ReaderAt
	off, end int64
	page     int64 // where the page begins
	codec    codec.Codec
	packed   bool
	kind     int64
	optional bool

	dict   []string
	left   int64 // values of the page
	code   int64 // their encoding
	levels hybrid
	nums   hybrid // of the dictionary, or booleans
	data   scan.Scanner
}

func open(in io.ReaderAt, end int64, schema, chunk node) (*column, error) {
	c := &column{in: in, off: chunk.at(9).num, kind: chunk.at(1).num, optional: schema.at(3).num == 1}
	if dict := chunk.at(11).num; dict > 0 {
		c.off = min(c.off, dict)
	}
	long, repeated := chunk.at(7).num, schema.at(3).num
	if c.page = c.off; c.off < int64(len(magic)) || c.off > end || long < 0 || long > end-c.off {
		return nil, fmt.Errorf("%d bytes from %d on, of %d", long, c.off, end)
	}
	c.end = c.off + long
	number := chunk.at(4).num
	if c.packed = number != 0; c.packed {
		c.codec, _ = codec.Lookup(codecs[number])
	}
	switch {
	case c.packed && c.codec.Append == nil:
		return nil, fmt.Errorf("compression %d: %w", number, errors.ErrUnsupported)
	case repeated != 0 && repeated != 1, c.kind != texts && c.kind != booleans && c.kind != numbers:
		return nil, fmt.Errorf("type %d, repetition %d: %w", c.kind, repeated, errors.ErrUnsupported)
	}
	return c, nil
}

// next returns the next value.
func (c *column) next() (string, error) {
	for c.left == 0 {
		if err := c.turn(); err != nil {
			return "", err
		}
	}
	c.left--
	if c.optional {
		if is := c.levels.next(); c.levels.Bad || is > 1 {
			return "", errPage
		} else if is == 0 {
			return "", nil
		}
	}
	switch {
	case c.code == runsDict:
		i := c.nums.next()
		if c.nums.Bad || i >= uint64(len(c.dict)) {
			return "", errPage
		}
		return c.dict[i], nil
	case c.kind == booleans:
		is := c.nums.next()
		if c.nums.Bad {
			return "", errPage
		}
		return strconv.FormatBool(is == 1), nil
	}
	return plainValue(&c.data, c.kind)
}

func plainValue(c *scan.Scanner, kind int64) (s string, err error) {
	if kind == numbers {
		if b := c.Bytes(8); b != nil {
			return strconv.FormatInt(int64(binary.LittleEndian.Uint64(b)), 10), nil
		}
	} else if b := c.Bytes(4); b != nil {
		s = string(c.Bytes(uint64(binary.LittleEndian.Uint32(b))))
	}
	if c.Bad {
		err = errPage
	}
	return s, err
}

// turn goes to the next page.
func (c *column) turn() error {
	c.page = c.off
	head, err := c.header()
	if err != nil {
		return err
	}
	long, stored := head.at(2).num, head.at(3).num
	if long < 0 || long > maxPage || stored < 0 || stored > maxPage || stored > c.end-c.off {
		return fmt.Errorf("a page of %d bytes, stored as %d, of %d: expected at most %d", long, stored, c.end-c.off, maxPage)
	}
	b := make([]byte, stored)
	if _, err := c.in.ReadAt(b, c.off); err != nil {
		return err
	}
	c.off += stored
	unpack := func(b []byte, long int64) ([]byte, error) {
		if c.packed && long+int64(len(b)) > 0 {
			return c.codec.Append(nil, b, int(long))
		}
		if int64(len(b)) != long {
			return nil, errPage
		}
		return b, nil
	}
	var levels []byte
	of := head.at(5)
	switch kind := head.at(1).num; kind {
	case dictPage:
		if b, err = unpack(b, long); err != nil {
			return err
		}
		return c.readDict(b, head.at(7).at(1).num)
	case dataPage:
		if b, err = unpack(b, long); err != nil {
			return err
		}
		c.code = of.at(2).num
		if c.optional {
			s := scan.Scanner{B: b}
			n := s.Bytes(4)
			if n == nil || of.at(3).num != runs {
				return errPage
			}
			if levels = s.Bytes(uint64(binary.LittleEndian.Uint32(n))); s.Bad {
				return errPage
			}
			b = b[s.At:]
		}
	case dataV2:
		of = head.at(8)
		n := of.at(5).num
		if n < 0 || n > min(stored, long) || of.at(6).num != 0 {
			return errPage
		}
		c.code = of.at(4).num
		levels, b = b[:n], b[n:]
		if packed, is := of.of[7]; is && packed.num == 0 {
			if int64(len(b)) != long-n {
				return errPage
			}
		} else if b, err = unpack(b, long-n); err != nil {
			return err
		}
	default:
		return nil // an index
	}
	if c.left = of.at(1).num; c.left < 0 || c.left > math.MaxInt32 {
		return errPage
	}
	c.levels = hybrid{Scanner: scan.Scanner{B: levels}, width: 1}
	c.data = scan.Scanner{B: b}
	switch {
	case c.code == plainDict || c.code == runsDict:
		width := c.data.Byte()
		if width > 32 {
			return errPage
		}
		c.code, c.nums = runsDict, hybrid{Scanner: scan.Scanner{B: b[c.data.At:]}, width: uint(width)}
	case c.code == plain:
		c.nums = hybrid{Scanner: c.data, width: 1, packed: true, left: math.MaxUint64}
	case c.code == runs && c.kind == booleans:
		c.data.Bytes(4)
		c.nums = hybrid{Scanner: scan.Scanner{B: b[c.data.At:]}, width: 1}
	default:
		return fmt.Errorf("encoding %d: %w", c.code, errors.ErrUnsupported)
	}
	return nil
}

// header reads that of a page.
func (c *column) header() (node, error) {
	b := make([]byte, min(maxHeader, c.end-c.off))
	if _, err := c.in.ReadAt(b, c.off); err != nil {
		return node{}, err
	}
	s := thrift{Scanner: scan.Scanner{B: b}, left: maxHeader}
	n := s.value(isStruct)
	if c.off += int64(s.At); s.Bad {
		return n, errPage
	}
	return n, nil
}

func (c *column) readDict(b []byte, n int64) error {
	if n < 0 || n > int64(len(b)) || c.kind == booleans {
		return errPage
	}
	s := scan.Scanner{B: b}
	c.dict = make([]string, 0, n/4)
	for range n {
		x, err := plainValue(&s, c.kind)
		if err != nil {
			return err
		}
		c.dict = append(c.dict, x)
	}
	return nil
}

// A hybrid has numbers of some bits: the same one so many times, or each with its bits.
type hybrid struct {
	scan.Scanner
	width  uint
	left   uint64 // of those that follow each other
	packed bool
	same   uint64
	bits   uint64
	have   uint
}

func (h *hybrid) next() uint64 {
	if h.left == 0 {
		head := h.Uvarint()
		h.left, h.packed, h.same, h.bits, h.have = head>>1, head&1 == 1, 0, 0, 0
		if h.Must(h.left > 0); h.packed {
			h.left *= 8
		} else {
			for i, c := range h.Bytes(uint64(h.width+7) / 8) {
				h.same |= uint64(c) << (8 * i)
			}
		}
	}
	h.left--
	if !h.packed {
		return h.same
	}
	for ; h.have < h.width; h.have += 8 {
		h.bits |= uint64(h.Byte()) << h.have
	}
	v := h.bits & (1<<h.width - 1)
	h.bits, h.have = h.bits>>h.width, h.have-h.width
	return v
}
