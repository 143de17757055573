package kit

import (
	"context"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A Section is an [io.Reader] of content that is stored uncompressed in one piece of an object. A
// Writer can check for it and copy the range instead of reading it.
type Section struct {
	Object store.Object
	Off, N int64
	// Address is the address of Object for references. It is set if the archive may refer to the
	// content instead of copying it.
	Address string
	// Far means that reading the object takes a request. Even short pieces should then be copied,
	// and adjacent pieces copied as one.
	Far bool
	// Unread means that the bytes must not pass through this program. The entry then has the
	// digest that it came with, or none.
	Unread bool
	// AtOnce means that the store must copy the section when it is added. If it cannot, nothing
	// is added and the error wraps [errors.ErrUnsupported]; the content must then be read
	// instead.
	AtOnce bool
	// Sum, if not nil, waits for the content's digest, which is computed concurrently, and
	// returns it. An error concerns the content.
	Sum func() (format.Digest, error)

	ctx context.Context
	at  int64
}

// NewSection returns a Section with bytes [off, off+n) of o. Reads use ctx.
func NewSection(ctx context.Context, o store.Object, off, n int64) *Section {
	return &Section{Object: o, Off: off, N: n, ctx: ctx}
}

// Read implements [io.Reader].
func (s *Section) Read(p []byte) (int, error) {
	if s.at >= s.N {
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.N-s.at)
	if err := s.Object.ReadAt(s.ctx, p[:n], s.Off+s.at); err != nil {
		return 0, err
	}
	s.at += n
	return int(n), nil
}
