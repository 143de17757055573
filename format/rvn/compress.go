package rvn

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/format/rvn/internal/press"
)

// compressor compresses sections, frames and streams at one level. Its methods may be called
// concurrently with different workers.
type compressor interface {
	// section appends src as zstd blocks that may follow others in a frame; see openFrame for the
	// conditions.
	section(worker int, dst, src []byte) ([]byte, error)
	// frame appends src as a frame.
	frame(dst, src []byte) ([]byte, error)
	// stream returns a writer of a frame of any length, with a window that is not larger than the
	// reference's.
	stream(w io.Writer) (io.WriteCloser, error)
	// close frees memory that does not belong to Go.
	close()
}

// streamWindow is the window of a stream: 4 MiB, as in the reference.
const streamWindow = 22

// usual is the default level, a compromise between time and size. docs/rvn.md has measurements.
const usual = "better"

// levels are the words for levels of the library. Sections at the levels usual and best are
// compressed by package press, and streams with the library's best level.
var levels = map[string]zstd.EncoderLevel{
	"fastest": zstd.SpeedFastest,
	"fast":    zstd.SpeedBetterCompression,
	usual:     zstd.SpeedBestCompression,
	"best":    zstd.SpeedBestCompression,
}

// newCompressor returns a compressor for a number of workers and sections of at most most bytes.
func newCompressor(level string, workers, most int) (compressor, error) {
	if c, err := newLibzstd(level, workers, most); c != nil || err != nil {
		return c, err
	}
	level = cmp.Or(strings.ToLower(level), usual)
	if n, err := strconv.Atoi(level); err == nil && 1 <= n && n <= 19 {
		level = wordFor(n)
	}
	l, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("level %q: expected fastest, fast, better or best%s", level, libzstdAdvice)
	}
	z := goZstd{l, 1 << windowLog(most)}
	switch level {
	case usual:
		return pressed{z, &presses}, nil
	case "best":
		return pressed{z, &bestPresses}, nil
	}
	return z, nil
}

// wordFor returns the word for a level of libzstd.
func wordFor(n int) string {
	switch {
	case n < 3:
		return "fastest"
	case n < 7:
		return "fast"
	case n < 13:
		return usual
	}
	return "best"
}

// encoders are unused encoders by goZstd. Each has tables of up to
// 30 MB.
var encoders sync.Map // of *sync.Pool

// goZstd compresses in Go.
type goZstd struct {
	level  zstd.EncoderLevel
	window int // as large as a section: a larger one would only take memory
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
		return append(frame[:at], blocks...), nil // the blocks move to the left by the length of the frame header
	})
}

func (z goZstd) frame(dst, src []byte) ([]byte, error) {
	return z.encode(func(e *zstd.Encoder) ([]byte, error) { return e.EncodeAll(src, dst), nil })
}

func (z goZstd) stream(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(z.level), zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<streamWindow))
}

// Unused encoders of sections.
var (
	presses     = sync.Pool{New: func() any { return press.New() }}
	bestPresses = sync.Pool{New: func() any { return press.NewBest() }}
)

// pressed compresses sections with package press, and streams with a library.
type pressed struct {
	goZstd
	pool *sync.Pool
}

func (p pressed) section(_ int, dst, src []byte) ([]byte, error) {
	e := p.pool.Get().(*press.Encoder)
	defer p.pool.Put(e)
	return e.Section(dst, src), nil
}

func (p pressed) frame(dst, src []byte) ([]byte, error) {
	e := p.pool.Get().(*press.Encoder)
	defer p.pool.Put(e)
	return e.Frame(dst, src), nil
}
