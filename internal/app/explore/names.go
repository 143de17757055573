package explore

import (
	"encoding/binary"

	"github.com/holdall/holdall/format/kit/columns"
)

// nameBlock is how many names form a block. To find a name, at most that many
// are decoded.
const nameBlock = 16

// A names is an append-only list of names. Each name is stored without the
// beginning that it shares with the name before it. Names in an archive's
// order take a fifth of their length.
//
// A block has nameBlock names. Each is:
//
//	uvar  number of bytes shared with the name before it in the block
//	uvar  number of its own bytes
//	...   its own bytes
type names struct {
	text   columns.Strings
	blocks columns.Rows[placed]
	open   []byte // the block that is not full yet
	last   []byte
	n      int
	bytes  int64 // taken by blocks
}

type placed struct {
	at  uint64
	len uint32
}

func (l *names) add(name string) {
	shared := 0
	if l.n%nameBlock != 0 {
		for shared < len(l.last) && shared < len(name) && l.last[shared] == name[shared] {
			shared++
		}
	}
	l.open = binary.AppendUvarint(l.open, uint64(shared))
	l.open = binary.AppendUvarint(l.open, uint64(len(name)-shared))
	l.open = append(l.open, name[shared:]...)
	l.last = append(l.last[:0], name...)
	if l.n++; l.n%nameBlock == 0 {
		l.blocks.Add(placed{l.text.Add(l.open), uint32(len(l.open))})
		l.bytes += int64(len(l.open)) + 16
		l.open = l.open[:0]
	}
}

func (l *names) len() int { return l.n }

func (l *names) at(i int) string {
	c := l.from(i)
	return string(c.next())
}

type nameCursor struct {
	l    *names
	i    int
	rest string
	name []byte
}

func (l *names) from(i int) *nameCursor {
	c := &nameCursor{l: l, i: i - i%nameBlock}
	for c.i < i {
		c.next()
	}
	return c
}

// next returns the next name. The slice is valid until the next call.
func (c *nameCursor) next() []byte {
	if c.i%nameBlock == 0 {
		if b := c.i / nameBlock; b < c.l.blocks.Len() {
			p := c.l.blocks.At(b)
			c.rest = c.l.text.At(p.at, int(p.len))
		} else {
			c.rest = string(c.l.open)
		}
		c.name = c.name[:0]
	}
	shared := c.uvar()
	n := c.uvar()
	c.name = append(c.name[:shared], c.rest[:n]...)
	c.rest = c.rest[n:]
	c.i++
	return c.name
}

func (c *nameCursor) uvar() int {
	v, shift := uint64(0), 0
	for i := 0; ; i++ {
		b := c.rest[i]
		v |= uint64(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			c.rest = c.rest[i+1:]
			return int(v)
		}
	}
}
