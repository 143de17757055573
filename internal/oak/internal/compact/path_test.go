package compact

import (
	"context"
	"errors"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// TestAFailedWriteSaysWhere has the error of a write that is met far down.
func TestAFailedWriteSaysWhere(t *testing.T) {
	from, root := sample(t)
	full := errors.New("full")
	b := segment.NewBuilder(segment.BuilderOptions{}, func(context.Context, segment.Finished) error { return full })
	c := New(segment.NewReader(from), b, func(context.Context, segment.ID) error { return full }, Options{})
	_, err := c.Node(t.Context(), root)
	if at, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, full) || at.Path == "" {
		t.Errorf("%v", err)
	}
}
