package testkit

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Noise is n bytes that do not compress.
func Noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// numbered has the most bytes of Numbered that a test has asked for.
var numbered struct {
	sync.Mutex
	b []byte
}

// Numbered is n bytes in which every place is distinguishable.
func Numbered(n int) []byte {
	numbered.Lock()
	defer numbered.Unlock()
	for i := uint32(len(numbered.b) / 4); len(numbered.b) < n; i++ {
		numbered.b = binary.BigEndian.AppendUint32(numbered.b, i)
	}
	return bytes.Clone(numbered.b[:n])
}

// Tree makes files in a folder, by their names from there. A name that ends in a slash
// is a folder.
func Tree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(at), 0o777)
		switch {
		case err != nil:
		case name[len(name)-1] == '/':
			err = os.MkdirAll(at, 0o777)
		default:
			err = os.WriteFile(at, []byte(content), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A Text is what several write to it, as a log of tests.
type Text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}
