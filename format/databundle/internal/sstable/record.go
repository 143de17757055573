package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A log is blocks of 32 KiB, filled with fragments of records:
//
//	masked crc32c of type and data u32, length u16, type u8, data
//
// Fewer than seven bytes at the end of a block are zeros. So are preallocated
// blocks that were not written.
const (
	logBlock       = 32 << 10
	fragmentHeader = 7

	fragmentZero   = 0
	fragmentFull   = 1
	fragmentFirst  = 2
	fragmentMiddle = 3
	fragmentLast   = 4
)

// A logReader gives the records of a log, or of a manifest, which is one.
type logReader struct {
	w *window
	// report hears of what is wrong, and decides whether it ends the reading,
	// by returning it, or is skipped to the next block.
	report func(*Error) error

	at      int64 // the next fragment
	long    []byte
	longAt  int64 // where the record in long begins
	partial bool  // there is one
}

func (r *logReader) fault(c Class, off int64, format string, a ...any) error {
	return r.report(&Error{Class: c, Object: r.w.name, Offset: off, What: fmt.Sprintf(format, a...)})
}

// next returns the next record, which is good until the one after, and where it
// begins; nil at the end.
func (r *logReader) next(ctx context.Context) (record []byte, off int64, err error) {
	for r.at < r.w.size {
		start := r.at - r.at%logBlock
		block, err := r.w.at(ctx, start, logBlock)
		if err != nil {
			return nil, 0, err
		}
		at, b := r.at, block[r.at-start:]
		whole := len(block) == logBlock
		if len(b) < fragmentHeader {
			r.at = start + logBlock
			if !allZero(b) {
				if whole {
					err = r.fault(Corrupt, at, "log: %d bytes at the end of a block are not zeros", len(b))
				} else {
					err = r.torn(at)
				}
			}
			if err != nil {
				return nil, 0, err
			}
			continue
		}
		n, kind := int(binary.LittleEndian.Uint16(b[4:])), b[6]
		switch {
		case kind == fragmentZero && n == 0 && allZero(b):
			r.at = start + logBlock
			continue
		case fragmentHeader+n > len(b):
			r.at = start + logBlock
			if whole || r.goesOn(b[1:]) {
				err = r.drop(at, "log: fragment of %d bytes, expected at most %d", n, len(b)-fragmentHeader)
			} else {
				err = r.torn(at)
			}
			if err != nil {
				return nil, 0, err
			}
			continue
		}
		data := b[fragmentHeader : fragmentHeader+n]
		if is, said := fragmentSum(b[:fragmentHeader+n]), binary.LittleEndian.Uint32(b); is != said {
			r.at = start + logBlock
			if err := r.drop(at, "log: fragment of %d bytes: checksum %08x, expected %08x", n, is, said); err != nil {
				return nil, 0, err
			}
			continue
		}
		r.at += int64(fragmentHeader + n)
		began := r.partial
		if began && (kind == fragmentFull || kind == fragmentFirst) {
			r.partial = false
			// Early LevelDB left empty first fragments at the end of a block.
			if len(r.long) > 0 {
				if err := r.fault(Corrupt, r.longAt, "log: a record without an end"); err != nil {
					return nil, 0, err
				}
			}
		}
		switch kind {
		case fragmentFull:
			return data, at, nil
		case fragmentFirst:
			r.long, r.longAt, r.partial = append(r.long[:0], data...), at, true
		case fragmentMiddle, fragmentLast:
			if !began {
				if err := r.fault(Corrupt, at, "log: the middle or end of a record that did not begin"); err != nil {
					return nil, 0, err
				}
				continue
			}
			if len(r.long)+n > maxManifest {
				return nil, 0, r.fault(Limit, r.longAt, "log: a record of more than %d bytes", maxManifest)
			}
			r.long = append(r.long, data...)
			if kind == fragmentLast {
				r.partial = false
				return r.long, r.longAt, nil
			}
		default:
			if err := r.fault(Corrupt, at, "log: fragment of type %d, expected 1 to 4", kind); err != nil {
				return nil, 0, err
			}
		}
	}
	if r.partial {
		r.partial = false
		return nil, 0, r.torn(r.longAt)
	}
	return nil, 0, nil
}

// drop reports a fragment that cannot be read, and with it forgets the record that
// it may belong to.
func (r *logReader) drop(at int64, format string, a ...any) error {
	r.partial = false
	return r.fault(Corrupt, at, format, a...)
}

// torn reports that the log ends within the record that begins at off.
func (r *logReader) torn(off int64) error {
	if r.partial {
		r.partial, off = false, r.longAt
	}
	return r.fault(Torn, off, "log: ends within a record, %d bytes of which are there", r.w.size-off)
}

// goesOn reports whether b, the rest of the log, holds a sound fragment: then a
// fragment before it that seems to reach past the end is damaged, not torn.
func (r *logReader) goesOn(b []byte) bool {
	for ; len(b) >= fragmentHeader; b = b[1:] {
		n := int(binary.LittleEndian.Uint16(b[4:]))
		if b[6] < fragmentFull || b[6] > fragmentLast || fragmentHeader+n > len(b) {
			continue
		}
		if fragmentSum(b[:fragmentHeader+n]) == binary.LittleEndian.Uint32(b) {
			return true
		}
	}
	return false
}

// fragmentSum is the checksum that the fragment b should begin with.
func fragmentSum(b []byte) uint32 { return masked(crc32.Checksum(b[6:], castagnoli)) }

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// appendRecord appends a record to a log that is wholly in out.
func appendRecord(out, record []byte) []byte {
	for first := true; ; first = false {
		room := logBlock - len(out)%logBlock
		if room < fragmentHeader {
			out = append(out, make([]byte, room)...)
			room = logBlock
		}
		n := min(len(record), room-fragmentHeader)
		last := n == len(record)
		kind := byte(fragmentMiddle)
		switch {
		case first && last:
			kind = fragmentFull
		case first:
			kind = fragmentFirst
		case last:
			kind = fragmentLast
		}
		at := len(out)
		out = append(out, 0, 0, 0, 0, byte(n), byte(n>>8), kind)
		out = append(out, record[:n]...)
		binary.LittleEndian.PutUint32(out[at:], fragmentSum(out[at:]))
		if last {
			return out
		}
		record = record[n:]
	}
}
