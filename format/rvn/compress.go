package rvn

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/format/rvn/internal/press"
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

// usual is the level that is meant where none is given: the middle of what takes
// time and what takes room. docs/rvn.md has the figures.
const usual = "better"

// levels are the words for levels of the library. Sections at the
// usual level and at the best are made by press; streams of both are its best.
var levels = map[string]zstd.EncoderLevel{
	"fastest": zstd.SpeedFastest,
	"fast":    zstd.SpeedBetterCompression,
	usual:     zstd.SpeedBestCompression,
	"best":    zstd.SpeedBestCompression,
}

// newCompressor returns a compressor for so many workers, and sections of at most
// so many bytes.
func newCompressor(level string, workers, most int) (compressor, error) {
	if c, err := newLibzstd(level, workers, most); c != nil || err != nil {
		return c, err
	}
	level = cmp.Or(strings.ToLower(level), usual)
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

// Encoders of sections that nobody uses.
var (
	presses     = sync.Pool{New: func() any { return press.New() }}
	bestPresses = sync.Pool{New: func() any { return press.NewBest() }}
)

// pressed compresses sections with press, and streams with a library.
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
