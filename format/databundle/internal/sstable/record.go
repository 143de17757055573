package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
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

	fragmentFull   = 1
	fragmentFirst  = 2
	fragmentMiddle = 3
	fragmentLast   = 4
)

// A logReader reads the records of a log, or of a manifest, which is a log.
type logReader struct {
	w *window
	// report is called with each fault. If it returns the error, reading ends; otherwise the
	// fault is skipped.
	report func(*Error) error

	record []byte // good until the next one
	off    int64  // where it begins
	err    error

	at      int64  // the next fragment
	long    []byte // a record of several fragments
	partial bool   // long has begun, at longAt
	longAt  int64
}

// next moves to the next record. It returns false at the end, and after an error.
func (r *logReader) next(ctx context.Context) bool {
	for r.err == nil && r.at < r.w.size {
		at := r.at
		b := r.fragment(ctx)
		if b == nil {
			continue
		}
		kind, data, began := b[6], b[fragmentHeader:], r.partial
		switch kind {
		case fragmentFull, fragmentFirst:
			// Early LevelDB left empty first fragments at the end of a block.
			if r.partial = false; began && len(r.long) > 0 {
				r.fault(Corrupt, r.longAt, "log: a record without an end")
			}
			switch {
			case r.err != nil:
				return false
			case kind == fragmentFull:
				r.record, r.off = data, at
				return true
			}
			r.long, r.longAt, r.partial = append(r.long[:0], data...), at, true
		case fragmentMiddle, fragmentLast:
			switch {
			case !began:
				r.fault(Corrupt, at, "log: the middle or end of a record that did not begin")
				continue
			case len(r.long)+len(data) > maxManifest:
				r.fault(Limit, r.longAt, "log: a record of more than %d bytes", maxManifest)
				return false
			}
			r.long = append(r.long, data...)
			if kind == fragmentLast {
				r.record, r.off, r.partial = r.long, r.longAt, false
				return true
			}
		default:
			r.fault(Corrupt, at, "log: fragment of type %d, expected 1 to 4", kind)
		}
	}
	if r.err == nil && r.partial {
		r.torn(r.longAt)
	}
	return false
}

// fragment returns the next fragment with its header. Where there is none, or it cannot
// be read, it returns nil and continues with the next block.
func (r *logReader) fragment(ctx context.Context) []byte {
	at, start := r.at, r.at-r.at%logBlock
	block, err := r.w.at(ctx, start, logBlock)
	if err != nil {
		r.err = err
		return nil
	}
	r.at = start + logBlock
	b, whole := block[at-start:], len(block) == logBlock
	if allZero(b) {
		return nil
	}
	if len(b) < fragmentHeader {
		if whole {
			r.fault(Corrupt, at, "log: %d bytes at the end of a block are not zeros", len(b))
		} else {
			r.torn(at)
		}
		return nil
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	if fragmentHeader+n > len(b) {
		if whole || r.goesOn(b[1:]) {
			r.partial = false
			r.fault(Corrupt, at, "log: fragment of %d bytes, expected at most %d", n, len(b)-fragmentHeader)
		} else {
			r.torn(at)
		}
		return nil
	}
	b = b[:fragmentHeader+n]
	if is, said := fragmentSum(b), binary.LittleEndian.Uint32(b); is != said {
		r.partial = false // it may be of the record that began
		r.fault(Corrupt, at, "log: fragment of %d bytes: checksum %08x, expected %08x", n, is, said)
		return nil
	}
	r.at = at + int64(len(b))
	return b
}

func (r *logReader) fault(c Class, off int64, format string, a ...any) {
	r.err = r.report(faultf(c, -1, format, a...).at(r.w.name, off))
}

// torn reports that the log ends within the record that begins at off.
func (r *logReader) torn(off int64) {
	if r.partial {
		r.partial, off = false, r.longAt
	}
	r.fault(Torn, off, "log: ends inside a record, after %d bytes of it", r.w.size-off)
}

// goesOn reports whether b, the rest of the log, contains an intact fragment. If it does, a
// fragment before it that seems to extend beyond the end is damaged, not truncated.
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

// fragmentSum returns the checksum with which the fragment b should begin.
func fragmentSum(b []byte) uint32 { return masked(crc32.Checksum(b[6:], castagnoli)) }

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// appendRecord appends a record to a log that is completely in out.
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
