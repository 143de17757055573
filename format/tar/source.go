package tar

import (
	"context"
	"io"
	"math"

	"github.com/holdall/holdall/store"
)

// source is the tar, front to back: what is stored or, of a compressed one, what
// that becomes. Headers that lie close together are read by long reads; what is
// between headers that do not is not read at all.
type source struct {
	at   int64 // of the next byte
	buf  []byte
	room []byte

	// Either of an object,
	ctx  context.Context
	obj  store.Object
	size int64
	step int // bytes of the next read
	err  error

	// or of what it becomes.
	in *frames
}

const (
	leastStep = 4 << 10 // after a leap: a header, and perhaps its pax records
	mostStep  = 128 << 10
)

// take returns the next n bytes, valid until the next call. Where there are less it
// says io.ErrUnexpectedEOF, and io.EOF if there is nothing.
func (s *source) take(n int) ([]byte, error) {
	b, err := s.peek(n)
	s.buf, s.at = s.buf[len(b):], s.at+int64(len(b))
	return b, err
}

// peek is take, but what it returns comes again.
func (s *source) peek(n int) ([]byte, error) {
	if len(s.buf) < n {
		if err := s.more(n); err != nil {
			return nil, err
		}
	}
	return s.buf[:n], nil
}

// more reads until there are n bytes.
func (s *source) more(n int) error {
	want := max(n, mostStep)
	if s.in == nil {
		want = max(n, s.step)
	}
	if cap(s.room) < want {
		s.room = make([]byte, want)
	}
	have := copy(s.room[:cap(s.room)], s.buf)
	s.buf = s.room[:have]
	if s.in == nil {
		from := s.at + int64(have)
		if left := s.size - from; left < int64(n-have) {
			return ended(have > 0 || left > 0)
		} else if int64(want-have) > left {
			want = have + int(left)
		}
		if s.err = s.obj.ReadAt(s.ctx, s.room[have:want], from); s.err != nil {
			return s.err
		}
		s.buf, s.step = s.room[:want], min(2*s.step, mostStep)
		return nil
	}
	for have < n {
		k, err := s.in.Read(s.room[have:want])
		have += k
		s.buf = s.room[:have]
		if err == io.EOF {
			err = ended(have > 0)
		}
		if err != nil && have < n {
			return err
		}
	}
	return nil
}

func ended(within bool) error {
	if within {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// leap goes on behind what is lost of a compressed tar, where a header can be.
func (s *source) leap() {
	s.buf, s.at = nil, s.in.at
	s.in.pass()
	_ = s.skip(-s.at & (blockSize - 1))
}

// skip goes on n bytes later.
func (s *source) skip(n int64) error {
	if n <= int64(len(s.buf)) {
		s.buf, s.at = s.buf[n:], s.at+n
		return nil
	}
	n -= int64(len(s.buf))
	s.at, s.buf = s.at+int64(len(s.buf)), nil
	if s.in == nil {
		// A member may say that it is as long as a number can be.
		if s.at += min(n, math.MaxInt64-s.at); n > leastStep {
			s.step = leastStep
		}
		return nil
	}
	if s.room == nil {
		s.room = make([]byte, mostStep)
	}
	for n > 0 {
		k, err := s.in.Read(s.room[:min(n, int64(len(s.room)))])
		s.at, n = s.at+int64(k), n-int64(k)
		if err == io.EOF && n > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}
