//go:build unix

package catalog

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// A named pipe is no catalogue. Nobody writes into this one: opening it would wait for ever.
func TestANamedPipeIsNoCatalogue(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if IsFile(name) {
		t.Error("it is a catalogue")
	}
	if _, err := Open(t.Context(), name, Options{}); !errors.Is(err, ErrBroken) {
		t.Errorf("expected %v, found %v", ErrBroken, err)
	}
}
