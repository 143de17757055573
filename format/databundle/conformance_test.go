package databundle

import (
	"testing"

	"github.com/holdall/holdall/format/formattest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }
