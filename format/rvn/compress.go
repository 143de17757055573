package rvn

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A compressor makes sections, frames and streams at one level. Its methods may
// be called in parallel, with different workers.
type compressor interface {
	// section appends src as zstd blocks that may stand behind others in one
	// frame: see openFrame for what that takes.
	section(worker int, dst, src []byte) ([]byte, error)
	// frame appends src as a frame.
	frame(dst, src []byte) ([]byte, error)
	// stream returns a writer of one frame of any length, whose window is no
	// larger than the reference's.
	stream(w io.Writer) (io.WriteCloser, error)
	// close gives back what is no memory of Go's.
	close()
}

// streamWindow is the window of a stream: the reference's, 4 MiB.
const streamWindow = 22

// levels are the words for levels. The middle of what takes time and what takes
// room is the default; docs/rvn.md has the figures.
var levels = map[string]zstd.EncoderLevel{
	"fastest": zstd.SpeedFastest,
	"fast":    zstd.SpeedDefault,
	"":        zstd.SpeedBetterCompression,
	"better":  zstd.SpeedBetterCompression,
	"best":    zstd.SpeedBestCompression,
}

// newCompressor returns a compressor for so many workers, and sections of at most
// so many bytes.
func newCompressor(level string, workers, most int) (compressor, error) {
	if c, err := newLibzstd(level, workers, most); c != nil || err != nil {
		return c, err
	}
	l, ok := levels[strings.ToLower(level)]
	if !ok {
		return nil, fmt.Errorf("level %q: expected fastest, fast, better or best%s", level, libzstdAdvice)
	}
	return goZstd{l, 1 << windowLog(most)}, nil
}

// encoders are encoders that nobody uses, by goZstd: each has tables of up to
// 30 MB.
var encoders sync.Map // of *sync.Pool

// goZstd compresses in Go.
type goZstd struct {
	level  zstd.EncoderLevel
	window int // as long as a section: a longer one would only take memory
}

func (goZstd) close() {}

// encode calls do with an encoder of its own.
func (z goZstd) encode(do func(*zstd.Encoder) ([]byte, error)) ([]byte, error) {
	p, _ := encoders.LoadOrStore(z, &sync.Pool{})
	pool := p.(*sync.Pool)
	e, _ := pool.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		if e, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(z.level), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithWindowSize(z.window)); err != nil {
			return nil, err
		}
	}
	defer pool.Put(e)
	return do(e)
}

func (z goZstd) section(_ int, dst, src []byte) ([]byte, error) {
	return z.encode(func(e *zstd.Encoder) ([]byte, error) {
		at := len(dst)
		frame := e.EncodeAll(src, slices.Grow(dst, len(src)/2))
		blocks, err := openFrame(frame[at:])
		if err != nil {
			return nil, err
		}
		return append(frame[:at], blocks...), nil // to the left, by the frame's header
	})
}

func (z goZstd) frame(dst, src []byte) ([]byte, error) {
	return z.encode(func(e *zstd.Encoder) ([]byte, error) { return e.EncodeAll(src, dst), nil })
}

func (z goZstd) stream(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(z.level), zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<streamWindow))
}
