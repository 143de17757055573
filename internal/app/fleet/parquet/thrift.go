package parquet

import "github.com/holdall/holdall/internal/base/scan"

// A node is a value of Thrift's compact protocol. What it is not, is zero.
type node struct {
	num  int64
	text []byte
	list []node
	of   map[int64]node // a struct's, by their IDs
}

func (n node) at(id int64) node { return n.of[id] }

// Kinds of values.
const (
	isTrue = 1 + iota
	isFalse
	isByte
	isI16
	isI32
	isI64
	isDouble
	isText
	isList
	_
	_
	isStruct
)

// A thrift parses values, and at most so many of them.
type thrift struct {
	scan.Scanner
	left, depth int
}

func (c *thrift) value(kind byte) (n node) {
	c.left--
	c.depth++
	if c.Must(c.left >= 0 && c.depth < 32); c.Bad {
		return n
	}
	switch kind {
	case isTrue, isFalse:
		n.num = int64(isFalse - kind)
	case isByte:
		n.num = int64(c.Byte())
	case isI16, isI32, isI64:
		n.num = c.Varint()
	case isDouble:
		c.Bytes(8)
	case isText:
		n.text = c.Text()
	case isList:
		head := c.Byte()
		many := uint64(head >> 4)
		if many == 15 {
			many = c.Uvarint()
		}
		for ; many > 0 && !c.Bad; many-- {
			kind := head & 15
			if kind <= isFalse { // each has its own
				kind = c.Byte()
			}
			n.list = append(n.list, c.value(kind))
		}
	case isStruct:
		n.of = map[int64]node{}
		for id, head := int64(0), c.Byte(); head != 0 && !c.Bad; head = c.Byte() {
			if id += int64(head >> 4); head>>4 == 0 {
				id = c.Varint()
			}
			n.of[id] = c.value(head & 15)
		}
	default:
		c.Bad = true
	}
	c.depth--
	return n
}
