//go:build libzstd && cgo

package rvn

/*
#cgo LDFLAGS: -lzstd
#include <zstd.h>

// step gives input to c and takes output from it. Pointers into Go's memory must
// not be kept in structures of Go's, so they are put together here.
static size_t step(ZSTD_CCtx *c, void *dst, size_t room, size_t *made, const void *src, size_t n, size_t *taken, int end) {
	ZSTD_outBuffer out = {dst, room, 0};
	ZSTD_inBuffer in = {src, n, 0};
	size_t left = ZSTD_compressStream2(c, &out, &in, end);
	*made = out.pos;
	*taken = in.pos;
	return left;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"unsafe"
)

const libzstdAdvice = ", or a number from 1 to 19"

// referenceLevel is the level that the reference uses.
const referenceLevel = 9

// libzstd compresses with the system's library. Each worker has a context of its own.
//
// Sections are jobs of the library's multi-threaded mode. These do not refer to what precedes
// them and forget the repeated offsets, so their blocks may follow any others. The first job of a
// frame does not forget them, so it has a single byte and is discarded.
type libzstd struct {
	level    int
	most     int // uncompressed bytes of a section
	contexts []*C.ZSTD_CCtx
	begun    []bool
}

// newLibzstd returns a compressor for levels that are numbers, and for the default level.
func newLibzstd(level string, workers, most int) (compressor, error) {
	n := referenceLevel
	if level != "" {
		var err error
		if n, err = strconv.Atoi(level); err != nil {
			return nil, nil
		}
		if n < 1 || n > 19 {
			return nil, fmt.Errorf("level %d: expected one from 1 to 19", n)
		}
	}
	z := &libzstd{level: n, most: most, contexts: make([]*C.ZSTD_CCtx, workers), begun: make([]bool, workers)}
	runtime.AddCleanup(z, func(contexts []*C.ZSTD_CCtx) {
		for _, c := range contexts {
			C.ZSTD_freeCCtx(c) // also if it is nil
		}
	}, z.contexts)
	return z, nil
}

func (z *libzstd) close() {
	for i, c := range z.contexts {
		C.ZSTD_freeCCtx(c)
		z.contexts[i], z.begun[i] = nil, false
	}
}

func codeError(code C.size_t) error {
	if C.ZSTD_isError(code) == 0 {
		return nil
	}
	return errors.New("libzstd: " + C.GoString(C.ZSTD_getErrorName(code)))
}

func setParameters(c *C.ZSTD_CCtx, params map[C.ZSTD_cParameter]int) error {
	for p, v := range params {
		if err := codeError(C.ZSTD_CCtx_setParameter(c, p, C.int(v))); err != nil {
			return err
		}
	}
	return nil
}

// run passes src to c with the given directive, and appends the output.
func run(c *C.ZSTD_CCtx, dst, src []byte, end C.ZSTD_EndDirective) ([]byte, error) {
	for {
		dst = slices.Grow(dst, 1<<12+int(C.ZSTD_compressBound(C.size_t(len(src)))))
		room := dst[len(dst):cap(dst)]
		var made, taken C.size_t
		left := C.step(c, unsafe.Pointer(unsafe.SliceData(room)), C.size_t(len(room)), &made,
			unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), &taken, C.int(end))
		if err := codeError(left); err != nil {
			return nil, err
		}
		dst, src = dst[:len(dst)+int(made)], src[taken:]
		if len(src) == 0 && (left == 0 || end == C.ZSTD_e_continue) {
			return dst, nil
		}
	}
}

func (z *libzstd) section(worker int, dst, src []byte) ([]byte, error) {
	c := z.contexts[worker]
	if c == nil {
		if c = C.ZSTD_createCCtx(); c == nil {
			return nil, errors.New("libzstd: no memory")
		}
		z.contexts[worker] = c
		if err := setParameters(c, map[C.ZSTD_cParameter]int{
			C.ZSTD_c_compressionLevel: z.level, C.ZSTD_c_windowLog: windowLog(z.most), C.ZSTD_c_nbWorkers: 1,
			C.ZSTD_c_overlapLog: 1, C.ZSTD_c_jobSize: max(z.most, 1<<20),
		}); err != nil {
			return nil, err
		}
	}
	if !z.begun[worker] {
		if _, err := run(c, nil, []byte{0}, C.ZSTD_e_flush); err != nil {
			return nil, err
		}
		z.begun[worker] = true
	}
	return run(c, dst, src, C.ZSTD_e_flush)
}

func (z *libzstd) frame(dst, src []byte) ([]byte, error) {
	c := C.ZSTD_createCCtx()
	if c == nil {
		return nil, errors.New("libzstd: no memory")
	}
	defer C.ZSTD_freeCCtx(c)
	if err := setParameters(c, map[C.ZSTD_cParameter]int{C.ZSTD_c_compressionLevel: z.level}); err != nil {
		return nil, err
	}
	return run(c, dst, src, C.ZSTD_e_end)
}

func (z *libzstd) stream(w io.Writer) (io.WriteCloser, error) {
	c := C.ZSTD_createCCtx()
	if c == nil {
		return nil, errors.New("libzstd: no memory")
	}
	s := &libzstdStream{w: w, c: c}
	return s, setParameters(c, map[C.ZSTD_cParameter]int{C.ZSTD_c_compressionLevel: z.level, C.ZSTD_c_windowLog: streamWindow})
}

type libzstdStream struct {
	w   io.Writer
	c   *C.ZSTD_CCtx
	buf []byte
}

func (s *libzstdStream) put(p []byte, end C.ZSTD_EndDirective) (err error) {
	if s.buf, err = run(s.c, s.buf[:0], p, end); err != nil {
		return err
	}
	_, err = s.w.Write(s.buf)
	return err
}

func (s *libzstdStream) Write(p []byte) (int, error) {
	if err := s.put(p, C.ZSTD_e_continue); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *libzstdStream) Close() error {
	err := s.put(nil, C.ZSTD_e_end)
	C.ZSTD_freeCCtx(s.c)
	s.c = nil
	return err
}
