package codec

import (
	"bytes"
	"io"
)

// The functions below find the end of the record at the start of b. They return the size of its
// content and its stored length. If the record continues after b, the error is
// io.ErrUnexpectedEOF. They are for repairs, when the lengths are not stored anywhere else.

// SnappyRecordLen returns the content size and the stored length of the snappy block at the start
// of b. A block has no checksum, so arbitrary bytes may be taken for one.
func SnappyRecordLen(b []byte) (size, stored int, err error) { return snappyLen(b) }

// ZlibRecordLen returns the content size and the stored length of the zlib stream at the start of
// b. It decodes the stream.
func ZlibRecordLen(b []byte) (size, stored int, err error) {
	r := bytes.NewReader(b) // an io.ByteReader, so no more is read than necessary
	if size, err = measure(inflaters.open(r)); err != nil {
		return 0, 0, err
	}
	return size, len(b) - r.Len(), nil
}

// ZstdRecordLen returns the content size and the stored length of the zstd frame at the start of
// b. It decodes the frame if that does not state its size.
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

// measure decodes a record and returns the size of its content.
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
