package tar

import (
	"context"
	"io"
	"math"

	"github.com/holdall/holdall/store"
)

// source reads the tar sequentially: the stored bytes or, if it is compressed, the decoded ones.
// Headers that are close together are read in long reads; what is between distant headers is not
// read.
type source struct {
	at   int64 // offset of the next byte
	buf  []byte
	room []byte

	// For a plain tar:
	ctx  context.Context
	obj  store.Object
	size int64
	step int // bytes of the next read
	err  error

	// For a compressed tar:
	in *frames
}

const (
	leastStep = 4 << 10 // after a skip: a header, and perhaps its pax records
	mostStep  = 128 << 10
)

// take returns the next n bytes, which are valid until the next call. If there are fewer, it
// returns io.ErrUnexpectedEOF, or io.EOF if there are none.
func (s *source) take(n int) ([]byte, error) {
	b, err := s.peek(n)
	s.buf, s.at = s.buf[len(b):], s.at+int64(len(b))
	return b, err
}

// peek is like take, but does not consume the bytes.
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

// leap continues after the lost part of a compressed tar, where a header can be.
func (s *source) leap() {
	s.buf, s.at = nil, s.in.at
	s.in.pass()
	_ = s.skip(-s.at & (blockSize - 1))
}

// skip skips n bytes.
func (s *source) skip(n int64) error {
	if n <= int64(len(s.buf)) {
		s.buf, s.at = s.buf[n:], s.at+n
		return nil
	}
	n -= int64(len(s.buf))
	s.at, s.buf = s.at+int64(len(s.buf)), nil
	if s.in == nil {
		// The size of a member may be the largest possible number.
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
