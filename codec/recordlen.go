package codec

import (
	"bytes"
	"errors"
	"io"
)

// What follows finds out where a record ends that begins where b does: how long it
// becomes, and how much of b it takes. A record that goes on behind b is
// io.ErrUnexpectedEOF. They are for repairs, where nothing else says it.

// SnappyRecordLen measures a snappy block. It has no checksum: any bytes that
// look like one are one.
func SnappyRecordLen(b []byte) (size, stored int, err error) { return snappyLen(b) }

// ZlibRecordLen measures a zlib stream, and decodes it for that.
func ZlibRecordLen(b []byte) (size, stored int, err error) {
	r := bytes.NewReader(b) // a ByteReader, of which no more is read than is needed
	z, err := zlibReader(r)
	if err != nil {
		return 0, 0, err
	}
	defer inflaters.Put(z)
	n, err := io.Copy(io.Discard, io.LimitReader(z, maxRecord+1))
	if err != nil {
		return 0, 0, err
	}
	if n > maxRecord {
		return 0, 0, errRecordLen
	}
	return int(n), len(b) - r.Len(), nil
}

// ZstdRecordLen measures a zstd frame, and decodes it if it does not say how long
// it becomes.
func ZstdRecordLen(b []byte) (size, stored int, err error) {
	size, stored, err = zstdLen(b)
	if err != nil || size >= 0 {
		return size, stored, err
	}
	r, err := decodeZstd(bytes.NewReader(b[:stored]))
	if err != nil {
		return 0, 0, err
	}
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxRecord+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return 0, 0, err
	}
	if n > maxRecord {
		return 0, 0, errRecordLen
	}
	return int(n), stored, nil
}
