package codec

import (
	"bytes"
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
	if size, err = measure(inflaters.open(r)); err != nil {
		return 0, 0, err
	}
	return size, len(b) - r.Len(), nil
}

// ZstdRecordLen measures a zstd frame, and decodes it if it does not say how long
// it becomes.
func ZstdRecordLen(b []byte) (size, stored int, err error) {
	size, stored, err = zstdLen(b)
	if err != nil || size >= 0 {
		return size, stored, err
	}
	if size, err = measure(decodeZstd(bytes.NewReader(b[:stored]))); err != nil {
		return 0, 0, err
	}
	return size, stored, nil
}

// measure decodes a record to see how long it becomes.
func measure(d io.ReadCloser, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	defer d.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(d, maxRecord+1))
	if err == nil && n > maxRecord {
		err = errRecordLen
	}
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
