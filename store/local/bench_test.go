//go:build unix && (amd64 || arm64)

package local

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdall/holdall/store/storekit"
)

// BenchmarkReadAt compares an object's read with the bare system call.
func BenchmarkReadAt(b *testing.B) {
	p := filepath.Join(b.TempDir(), "x")
	if err := os.WriteFile(p, make([]byte, 1<<20), 0o666); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 512)
	b.Run("pread", func(b *testing.B) {
		f, err := os.Open(p)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		fd := int(f.Fd())
		for b.Loop() {
			if _, err := syscall.Pread(fd, buf, 4096); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("object", func(b *testing.B) {
		o, err := New(filepath.Dir(p)).Open(b.Context(), "x")
		if err != nil {
			b.Fatal(err)
		}
		defer o.Close()
		b.ReportAllocs()
		for b.Loop() {
			if err := o.ReadAt(b.Context(), buf, 4096); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteSmall writes the way packing many small files does.
func BenchmarkWriteSmall(b *testing.B) {
	w, err := storekit.Create(b.Context(), New(b.TempDir()), "x")
	if err != nil {
		b.Fatal(err)
	}
	defer w.Abort()
	piece := make([]byte, 100)
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if _, err := w.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
}
