package rescue

import (
	"fmt"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Events are shown where a test fails.

func (k Kind) String() string {
	return segment.Word("Kind", k, "", "damage", "lost", "left out", "stays damaged", "in doubt", "bit turned", "other copy")
}

func (e Event) String() string {
	s := fmt.Sprintf("%s at %d: %s: ", e.Object, e.Off, e.Kind)
	if e.HasSegment {
		s += "segment " + e.Segment.String() + ": "
	}
	return s + e.What
}
