package kit

import (
	"context"
	"errors"
	"io"

	"github.com/holdall/holdall/store"
)

// OpenPart opens an object and reads its first or last n bytes, or fewer if it is shorter, by
// [storekit.ReadHead] or [storekit.ReadTail]. Its size then costs no request.
func OpenPart(ctx context.Context, st store.Store, name string, n int, read func(context.Context, store.Object, []byte) (int, error)) (_ store.Object, part []byte, size int64, _ error) {
	obj, err := st.Open(ctx, name)
	if err != nil {
		return nil, nil, 0, err
	}
	part = make([]byte, n)
	k, err := read(ctx, obj, part)
	if err == nil {
		var info store.Info
		if info, err = obj.Info(ctx); err == nil {
			return obj, part[:k], info.Size, nil
		}
	}
	return nil, nil, 0, errors.Join(err, obj.Close())
}

// A RangeReader reads bytes of an object from front to back, without a buffer.
type RangeReader struct {
	Ctx      context.Context
	Object   store.Object
	Off, End int64
	Err      error // of the store
}

func (r *RangeReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.End-r.Off)
	if n <= 0 {
		return 0, io.EOF
	}
	if r.Err = r.Object.ReadAt(r.Ctx, p[:n], r.Off); r.Err != nil {
		return 0, r.Err
	}
	r.Off += n
	return int(n), nil
}

// ProbeSize is the number of bytes that are read from each end of an object to detect its format.
// Formats with an index at the end should read the same range first, so that it comes from the
// cache.
const ProbeSize = 64 << 10
