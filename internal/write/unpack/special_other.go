//go:build !linux

package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdall/holdall/format"
)

func makeFifo(_ *os.Root, name string, _ fs.FileMode) error {
	return fmt.Errorf("%s: a FIFO is not extracted on this system: %w", format.Escape(name), errors.ErrUnsupported)
}

// setTime does nothing: the times of links are not important enough to fail.
func setTime(*os.Root, string, time.Time) error { return nil }
