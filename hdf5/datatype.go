package hdf5

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"
)

// A Class is a kind of datatype, numbered as in the format.
type Class uint8

// Classes of datatypes.
const (
	Integer Class = iota
	Float
	Time
	String // of fixed size
	BitField
	Opaque
	Compound
	Reference
	Enum
	Variable // strings and sequences of variable length
	Array
	Complex
)

var classNames = [...]string{"integer", "float", "time", "string", "bitfield", "opaque", "compound", "reference", "enum", "variable", "array", "complex"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// A Padding is how a string that is shorter than its element is filled up.
type Padding uint8

// Paddings of strings.
const (
	ZeroEnded Padding = iota
	ZeroPadded
	SpacePadded
)

// A RefKind is the kind of a reference.
type RefKind uint8

// Kinds of references. Those after RegionRef are from HDF5 1.12; only their bytes are returned.
const (
	ObjectRef RefKind = iota
	RegionRef
)

// A Datatype is the type of elements, as they are stored. Which fields are set depends on the
// class.
type Datatype struct {
	Class     Class
	Size      int64 // of an element, in bytes
	BigEndian bool  // of numbers
	Signed    bool  // of integers

	// BitOffset and Precision select the bits that are the number, in integers, floats and bit
	// fields.
	BitOffset, Precision int
	Float                *FloatFormat // of floats

	Padding  Padding // of strings
	UTF8     bool    // of strings
	IsString bool    // of Variable: strings, not sequences
	Tag      string  // of Opaque
	Ref      RefKind // of Reference
	Fields   []Field // of Compound
	Members  []Member
	Dims     []int64   // of Array
	Base     *Datatype // of Enum, Variable, Array and Complex

	// Committed is the address of the object if the datatype is committed, and 0 otherwise.
	Committed int64

	vax      bool // words of 16 bits are in the order of VAX
	variable bool // elements refer to a heap
	count    int64
}

// A Field is a part of a compound element.
type Field struct {
	Name   string
	Offset int64
	Type   *Datatype
}

// A Member is a value of an Enum and its name.
type Member struct {
	Name  string
	Value []byte // an element of type Base
}

// A FloatFormat describes the parts of a float. Bit 0 is the lowest bit within its Precision.
type FloatFormat struct {
	Sign, ExponentAt, ExponentBits, MantissaAt, MantissaBits int
	Bias                                                     int64
	Implied                                                  bool // the highest bit of the mantissa is not stored
}

// MaxRank is how many dimensions HDF5 allows.
const MaxRank = 32

const (
	maxTypeDepth = 32
	maxElement   = 1 << 30 // size of an element in bytes
)

// parseType parses a datatype. Fields and base types are nested datatypes.
//
//	class (4 bits), version (4 bits), 24 bits of the class, bytes of an element (u32),
//	and what the class has
func parseType(c *cursor, depth int) (*Datatype, error) {
	head, size := c.u32(), int64(c.u32())
	if err := c.err(); err != nil {
		return nil, err
	}
	version, bits := head>>4&15, head>>8
	t := &Datatype{Class: Class(head & 15), Size: size}
	switch {
	case version < 1 || version > 5:
		return nil, unsupported("version %d of datatypes is not supported", version)
	case depth > maxTypeDepth:
		return nil, corrupt("datatypes are nested more than %d deep", maxTypeDepth)
	case size == 0 && t.Class != String && t.Class != Opaque || size > maxElement:
		return nil, corrupt("expected elements of 1 to %d bytes, found %d", maxElement, size)
	}
	base := func() (err error) {
		t.Base, err = parseType(c, depth+1)
		return err
	}
	var err error
	switch t.Class {
	case Integer, BitField:
		t.BigEndian, t.Signed = bits&1 != 0, bits&8 != 0
		err = t.parseBits(c)
	case Float:
		err = t.parseFloat(c, bits)
	case Time:
		t.BigEndian, t.Precision = bits&1 != 0, int(c.u16())
	case String:
		t.Padding, t.UTF8 = Padding(bits&15), bits>>4&15 == 1
	case Opaque:
		tag := string(c.take(int64(bits & 0xff)))
		t.Tag, _, _ = strings.Cut(tag, "\x00")
	case Compound:
		err = t.parseFields(c, int(bits&0xffff), version, depth)
	case Reference:
		t.Ref = RefKind(bits & 15)
		t.variable = t.Ref == RegionRef
		if want := int64(c.f.offsets) + map[RefKind]int64{RegionRef: 4}[t.Ref]; t.Ref <= RegionRef && size != want {
			err = corrupt("expected references of %d bytes, found %d", want, size)
		}
	case Enum:
		if err = base(); err == nil {
			err = t.parseMembers(c, int(bits&0xffff), version)
		}
	case Variable:
		t.IsString, t.Padding, t.UTF8, t.variable = bits&15 == 1, Padding(bits>>4&15), bits>>8&15 == 1, true
		if want := int64(c.f.offsets) + 8; size != want {
			err = corrupt("expected elements of variable length to take %d bytes, found %d", want, size)
		} else if bits&15 > 1 {
			err = unsupported("type %d of variable length is not supported", bits&15)
		} else {
			err = base()
		}
	case Array:
		if err = t.parseDims(c, version); err == nil {
			if err = base(); err == nil {
				err = t.fits(t.Dims, t.Base)
			}
		}
	case Complex:
		if err = base(); err == nil && (t.Base.Class != Float || 2*t.Base.Size != size) {
			err = corrupt("expected complex numbers of two floats in %d bytes, found %v", size, t.Base)
		}
	default:
		err = unsupported("datatypes of class %d are not supported", t.Class)
	}
	if t.Base != nil {
		t.variable = t.variable || t.Base.variable
	}
	if err = cmp.Or(c.err(), err); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Datatype) parseBits(c *cursor) error {
	t.BitOffset, t.Precision = int(c.u16()), int(c.u16())
	if t.Precision == 0 || int64(t.BitOffset+t.Precision) > 8*t.Size {
		return corrupt("%d bits from bit %d on do not fit into %d bytes", t.Precision, t.BitOffset, t.Size)
	}
	return nil
}

func (t *Datatype) parseFloat(c *cursor, bits uint32) error {
	t.BigEndian = bits&1 != 0
	t.vax = bits&0x41 == 0x41
	if bits&0x41 == 0x40 {
		return unsupported("byte order 2 of floats is not supported")
	}
	if err := t.parseBits(c); err != nil {
		return err
	}
	x := &FloatFormat{
		Sign: int(bits >> 8 & 0xff), ExponentAt: int(c.u8()), ExponentBits: int(c.u8()),
		MantissaAt: int(c.u8()), MantissaBits: int(c.u8()), Bias: int64(c.u32()), Implied: bits>>4&3 == 2,
	}
	t.Float = x
	for _, end := range []int{x.Sign + 1, x.ExponentAt + x.ExponentBits, x.MantissaAt + x.MantissaBits} {
		if int64(end) > 8*t.Size {
			return corrupt("bit %d of a float is outside its %d bytes", end-1, t.Size)
		}
	}
	if x.ExponentBits > 32 || x.MantissaBits == 0 {
		return unsupported("floats of %d bits of exponent and %d of mantissa are not supported", x.ExponentBits, x.MantissaBits)
	}
	return nil
}

// parseFields parses the fields of a compound type:
//
//	1  name, padded to 8, offset (u32), rank, 3 reserved, 8 reserved, 4 lengths (u32), type
//	2  name, padded to 8, offset (u32), type
//	3  name, offset in as many bytes as the size of an element needs, type
func (t *Datatype) parseFields(c *cursor, n int, version uint32, depth int) error {
	offsetSize := 4
	if version >= 3 {
		offsetSize = encodedSize(uint64(t.Size))
	}
	for range n {
		var x Field
		x.Name = c.text(namePad(version))
		x.Offset = int64(c.uint(offsetSize))
		var dims []int64
		if version == 1 {
			rank := int(c.u8())
			c.skip(11)
			for i := range 4 {
				if d := int64(c.u32()); i < rank {
					dims = append(dims, d)
				}
			}
			if rank > 4 {
				return corrupt("field %q: expected at most 4 dimensions, found %d", x.Name, rank)
			}
		}
		inner, err := parseType(c, depth+1)
		if err != nil {
			return err
		}
		if x.Type = inner; dims != nil {
			size, ok := multiply(append(dims, inner.Size)...)
			if !ok {
				return corrupt("field %q is too large", x.Name)
			}
			x.Type = &Datatype{Class: Array, Size: size, Dims: dims, Base: inner, variable: inner.variable}
			if err := x.Type.fits(dims, inner); err != nil {
				return err
			}
		}
		if x.Offset > t.Size || x.Type.Size > t.Size-x.Offset {
			return corrupt("field %q, %d bytes at %d, is outside an element of %d bytes", x.Name, x.Type.Size, x.Offset, t.Size)
		}
		t.variable = t.variable || x.Type.variable
		t.Fields = append(t.Fields, x)
	}
	return nil
}

// encodedSize returns the number of bytes that a number of at most most takes.
func encodedSize(most uint64) int {
	n := 1
	for ; most > 0xff; most >>= 8 {
		n++
	}
	return n
}

func namePad(version uint32) int {
	if version >= 3 {
		return 1
	}
	return 8
}

func (t *Datatype) parseMembers(c *cursor, n int, version uint32) error {
	if t.Base.Class != Integer || t.Base.Size != t.Size {
		return corrupt("expected enum values that are integers of %d bytes, found %v", t.Size, t.Base)
	}
	if int64(n) > int64(c.left()) {
		return corrupt("%d names do not fit into %d bytes", n, c.left())
	}
	t.Members = make([]Member, n)
	for i := range t.Members {
		t.Members[i].Name = c.text(namePad(version))
	}
	for i := range t.Members {
		t.Members[i].Value = bytes.Clone(c.take(t.Size))
	}
	return c.err()
}

func (t *Datatype) parseDims(c *cursor, version uint32) error {
	rank := int(c.u8())
	if version < 3 {
		c.skip(3)
	}
	if rank > MaxRank {
		return corrupt("expected at most %d dimensions, found %d", MaxRank, rank)
	}
	for range rank {
		t.Dims = append(t.Dims, int64(c.u32()))
	}
	if version < 3 {
		c.skip(4 * int64(rank))
	}
	return nil
}

// fits checks that an array type has the size of its elements.
func (t *Datatype) fits(dims []int64, base *Datatype) error {
	n, ok := multiply(dims...)
	size, ok2 := multiply(n, base.Size)
	if !ok || !ok2 || size != t.Size || n == 0 {
		return corrupt("an array of %v times %d bytes does not have %d bytes", dims, base.Size, t.Size)
	}
	t.count = n
	return nil
}

// Bool reports whether t is the enum that h5py uses for booleans.
func (t *Datatype) Bool() bool {
	if t.Class != Enum || t.Size != 1 || len(t.Members) != 2 {
		return false
	}
	a, b := t.Members[0], t.Members[1]
	return a.Name == "FALSE" && b.Name == "TRUE" && a.Value[0] == 0 && b.Value[0] == 1
}

// String returns t as a text, such as "int32", "float64 big-endian", "string 12" or "compound {a:
// uint8, b: int16 [3]}".
func (t *Datatype) String() string {
	order := ""
	if t.BigEndian && t.Size > 1 {
		order = " big-endian"
	}
	if t.vax {
		order = " VAX"
	}
	switch t.Class {
	case Integer:
		s := fmt.Sprintf("int%d", 8*t.Size)
		if !t.Signed {
			s = "u" + s
		}
		if int64(t.Precision) != 8*t.Size {
			s += fmt.Sprintf(" of %d bits", t.Precision)
		}
		return s + order
	case Float:
		return fmt.Sprintf("float%d", 8*t.Size) + order
	case Compound:
		var parts []string
		for _, x := range t.Fields {
			parts = append(parts, x.Name+": "+x.Type.String())
		}
		return "compound {" + strings.Join(parts, ", ") + "}"
	case Enum:
		var parts []string
		for _, m := range t.Members {
			parts = append(parts, m.Name)
		}
		return "enum " + t.Base.String() + " {" + strings.Join(parts, ", ") + "}"
	case Variable:
		if t.IsString {
			return "string"
		}
		return "sequence of " + t.Base.String()
	case Array:
		return t.Base.String() + " " + strings.ReplaceAll(fmt.Sprint(t.Dims), " ", ",")
	case Complex:
		return fmt.Sprintf("complex%d", 8*t.Size) + t.Base.String()[len(fmt.Sprintf("float%d", 8*t.Base.Size)):]
	case Reference:
		return [...]string{"reference", "region reference"}[min(t.Ref, RegionRef)]
	}
	return fmt.Sprintf("%v %d", t.Class, t.Size)
}

// A Space is the shape of a dataset or an attribute.
type Space struct {
	Null bool    // there are no elements and no shape
	Dims []int64 // empty for a scalar
	Max  []int64 // largest dimensions; Unlimited if a dimension has no limit
}

// Unlimited is a dimension without a limit.
const Unlimited = -1

// parseSpace parses a data space:
//
//	1  version, rank, flags, 5 reserved, lengths, and if bit 0 the largest lengths
//	2  version, rank, flags, type (0 scalar, 1 simple, 2 null), lengths, the largest
func parseSpace(c *cursor) (s Space, err error) {
	version, rank, flags, kind := c.u8(), int(c.u8()), c.u8(), c.u8()
	switch {
	case version == 1:
		c.skip(4)
	case version == 2:
		s.Null = kind == 2
	default:
		return s, unsupported("version %d of data spaces is not supported", version)
	}
	if rank > MaxRank {
		return s, corrupt("expected at most %d dimensions, found %d", MaxRank, rank)
	}
	read := func() []int64 {
		dims := make([]int64, rank)
		for i := range dims {
			switch v := c.uint(c.f.lengths); {
			case v == math.MaxUint64>>(64-8*c.f.lengths):
				dims[i] = Unlimited
			case v > math.MaxInt64:
				err = corrupt("expected a length, found %d", v)
			default:
				dims[i] = int64(v)
			}
		}
		return dims
	}
	s.Dims = read()
	if s.Max = s.Dims; flags&1 != 0 {
		s.Max = read()
	}
	for i, d := range s.Dims {
		if d < 0 || s.Max[i] != Unlimited && d > s.Max[i] {
			return s, corrupt("dimension %d: expected a length of at most %d, found %d", i, s.Max[i], d)
		}
	}
	if err == nil {
		err = c.err()
	}
	return s, err
}

// Elements returns the number of elements, or -1 if it is too large for an int64.
func (s Space) Elements() int64 {
	if s.Null {
		return 0
	}
	n, ok := multiply(s.Dims...)
	if !ok {
		return -1
	}
	return n
}
