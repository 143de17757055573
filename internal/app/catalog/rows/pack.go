package rows

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// packers are used again: each has more than a MiB.
var packers = sync.Pool{New: func() any { return zlib.NewWriter(nil) }}

// Pack compresses bytes as zlib does, which every language can read.
func Pack(b []byte) []byte {
	var out bytes.Buffer
	w := packers.Get().(*zlib.Writer)
	defer packers.Put(w)
	w.Reset(&out)
	_, _ = w.Write(b) // to memory
	_ = w.Close()
	return out.Bytes()
}

// Unpack returns what Pack was given, if it has at most so many bytes.
func Unpack(b []byte, most int) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(out) > most {
		err = errors.New("more bytes than are allowed")
	}
	return out, err
}
