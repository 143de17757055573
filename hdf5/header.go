package hdf5

// Types of messages in object headers.
const (
	msgNothing      = 0x00
	msgSpace        = 0x01
	msgLinkInfo     = 0x02
	msgType         = 0x03
	msgOldFill      = 0x04
	msgFill         = 0x05
	msgLink         = 0x06
	msgExternal     = 0x07
	msgLayout       = 0x08
	msgFilters      = 0x0b
	msgAttribute    = 0x0c
	msgSharedTable  = 0x0f
	msgContinuation = 0x10
	msgSymbolTable  = 0x11
	msgBTreeK       = 0x13
	msgAttrInfo     = 0x15
	msgFileSpace    = 0x17
	msgLast         = 0x18 // the last type

	flagShared    = 1 << 1
	flagMustKnow  = 1 << 7
	headerGuess   = 512 // the size of most headers
	maxHeaderPart = 16 << 20
)

// message is a part of an object header.
type message struct {
	kind  int
	flags byte
	order int64 // order of creation, or -1 if it is not stored
	off   int64
	data  []byte
}

// header is a parsed object header.
type header struct {
	addr     int64
	version  int
	messages []message
}

// header reads an object header with all of its continuations:
//
//	1  version, reserved, messages (u16), references (u32), bytes (u32), 4 reserved
//	   a message: type, bytes (u16), flags, 3 reserved
//	2  "OHDR", version, flags, times (16 bytes, if bit 5), limits of attributes (4
//	   bytes, if bit 4), bytes (1, 2, 4 or 8 by the lower bits), messages, checksum
//	   a message: type (u8), bytes (u16), flags, order (u16, if bit 2)
//
// If the header is damaged, the part that could be read is returned with the error.
func (w *wave) header(addr int64) (*header, error) {
	h := &header{addr: addr}
	if addr < 0 || addr >= w.f.size {
		return h, w.f.place("object header", addr, corrupt("expected an address within the file, of %d bytes", w.f.size))
	}
	b, err := w.readLeading(span{addr, min(headerGuess, w.f.size-addr)}, 1)
	if err != nil {
		return h, w.f.place("object header", addr, err)
	}
	return h, w.f.place("object header", addr, w.headerParts(h, b))
}

func (w *wave) headerParts(h *header, b []byte) error {
	c := w.f.cursor(b)
	var flags byte
	var size int64
	if string(b[:min(4, len(b))]) == "OHDR" {
		h.version = 2
		if err := c.sign("OHDR", 2); err != nil {
			return err
		}
		flags = c.u8()
		if flags&(1<<5) != 0 {
			c.skip(16)
		}
		if flags&(1<<4) != 0 {
			c.skip(4)
		}
		size = min(c.size(1<<(flags&3)), 1<<60) + 4 // including the checksum
	} else {
		h.version = 1
		if v := c.u8(); v != 1 {
			return corrupt("expected \"OHDR\" or version 1, found %d", v)
		}
		c.skip(7)
		size = int64(c.u32())
		c.skip(4)
	}
	if err := c.err(); err != nil {
		return err
	}
	if size > maxHeaderPart {
		return overLimit("an object header", size, maxHeaderPart)
	}
	size += int64(c.at)
	if size > int64(len(b)) {
		var err error
		if b, err = w.read(h.addr, size); err != nil {
			return err
		}
	}
	if err := w.spend(&w.room.headers, size, "object headers"); err != nil {
		return err
	}
	w.saw("object header", h.addr, size)
	more, err := w.messages(h, flags, b[:size], c.at, h.addr)
	seen := map[int64]bool{h.addr: true}
	for err == nil && len(more) > 0 {
		for _, s := range more {
			if seen[s.off] {
				return corrupt("continuation at byte %d occurs twice", s.off)
			}
			if s.n > maxHeaderPart {
				return overLimit("a continuation", s.n, maxHeaderPart)
			}
			seen[s.off] = true
			if err := w.spend(&w.room.headers, s.n, "object headers"); err != nil {
				return err
			}
		}
		var parts [][]byte
		if parts, err = w.readAll(more, 0); err != nil {
			return err
		}
		read := more
		more = nil
		for i, b := range parts {
			off := read[i].off
			w.saw("object header", off, int64(len(b)))
			from := 0
			if h.version == 2 {
				if from = 4; string(b[:min(4, len(b))]) != "OCHK" {
					return w.f.place("continuation of an object header", off, corrupt("expected \"OCHK\", found %q", b[:min(4, len(b))]))
				}
			}
			next, err := w.messages(h, flags, b, from, off)
			if err != nil {
				return w.f.place("continuation of an object header", off, err)
			}
			more = append(more, next...)
		}
	}
	return err
}

// messages adds the messages of one part of a header, which begin at from. It returns the places
// of further parts.
func (w *wave) messages(h *header, flags byte, b []byte, from int, off int64) (more []span, err error) {
	head := 8
	if h.version == 2 {
		if b, err = summed(b); err != nil {
			return nil, err
		}
		if head = 4; flags&(1<<2) != 0 {
			head = 6
		}
	}
	c := w.f.cursor(b)
	c.skip(int64(from))
	for c.left() >= head && !c.short {
		m := message{order: -1, off: off + int64(c.at)}
		var n int64
		if h.version == 1 {
			m.kind = int(c.u16())
			n, m.flags = int64(c.u16()), c.u8()
			c.skip(3)
		} else {
			m.kind = int(c.u8())
			n, m.flags = int64(c.u16()), c.u8()
			if head == 6 {
				m.order = int64(c.u16())
			}
		}
		if n > int64(c.left()) {
			return more, corrupt("message at byte %d: expected %d bytes, found %d", m.off, n, c.left())
		}
		m.data = c.take(n)
		switch {
		case m.kind == msgNothing:
		case m.kind == msgContinuation:
			p := w.f.cursor(m.data)
			s := span{p.addr(), p.length()}
			if err := p.err(); err != nil {
				return more, err
			}
			more = append(more, s)
		default:
			h.messages = append(h.messages, m)
		}
	}
	return more, c.err()
}
