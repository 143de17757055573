package databundle

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	snap "github.com/klauspost/compress/s2"
	flate "github.com/klauspost/compress/zlib"
	zst "github.com/klauspost/compress/zstd"
)

// compressor compresses records in one way. Its workers may run concurrently.
type compressor struct {
	kind  compression
	level int
	zstd  *zst.Encoder
	zlib  []*deflater // for each worker
}

// deflater is the state of a worker.
type deflater struct {
	w   *flate.Writer
	out bytes.Buffer
}

// compressionOf returns the compression for --compression. The default is the one that the
// format's reference reads and that makes bundles smaller.
func compressionOf(said string) compression {
	for c, m := range methods {
		if m.name == said {
			return c
		}
	}
	return zlib
}

func newCompressor(kind compression, level string, recordSize, workers int) (_ *compressor, err error) {
	c := &compressor{kind: kind, zlib: make([]*deflater, workers)}
	if m := methods[kind]; m.levels > 0 {
		c.level, err = parseLevel(level, m.usual, m.levels)
	} else if level != "" {
		err = fmt.Errorf("level %q: %v has no levels", level, kind)
	}
	if err == nil && kind == zstd {
		// Frames of a single segment state their content size, even the shortest. A window larger
		// than a record would only take memory.
		window := max(zst.MinWindowSize, 1<<bits.Len(uint(recordSize-1)))
		c.zstd, err = zst.NewWriter(nil, zst.WithEncoderLevel(zst.EncoderLevelFromZstd(c.level)), zst.WithEncoderConcurrency(workers),
			zst.WithEncoderCRC(false), zst.WithZeroFrames(true), zst.WithSingleSegment(true), zst.WithWindowSize(window))
	}
	return c, err
}

// parseLevel parses --level: a number, or a word.
func parseLevel(s string, usual, most int) (int, error) {
	switch strings.ToLower(s) {
	case "":
		return usual, nil
	case "fastest":
		return 1, nil
	case "fast":
		return min(2, usual), nil
	case "better":
		return (usual + most) / 2, nil
	case "best":
		return most, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("level %q: expected 1 to %d, or fastest, fast, better or best", s, most)
	}
	return n, nil
}

func (c *compressor) record(worker int, dst, src []byte) ([]byte, error) {
	switch c.kind {
	case snappy:
		at := len(dst)
		if need := snap.MaxEncodedLen(len(src)); cap(dst)-at < need {
			dst = append(make([]byte, 0, at+need), dst...)
		}
		return dst[:at+len(snap.EncodeSnappy(dst[at:cap(dst)], src))], nil
	case zstd:
		return c.zstd.EncodeAll(src, dst), nil
	}
	d := c.zlib[worker]
	if d == nil {
		w, err := flate.NewWriterLevel(nil, c.level)
		if err != nil {
			return nil, err
		}
		d = &deflater{w: w}
		c.zlib[worker] = d
	}
	d.out.Reset()
	d.w.Reset(&d.out)
	_, err := d.w.Write(src)
	if err == nil {
		err = d.w.Close()
	}
	return append(dst, d.out.Bytes()...), err
}

func (c *compressor) close() error {
	if c.zstd != nil {
		return c.zstd.Close()
	}
	return nil
}
