package formattest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// read returns content bytes [off, off+n) of e in the simplest way: extent by extent, reading and
// decoding whole units. The engine is tested against it, so it shares no code with the engine.
func read(ctx context.Context, st store.Store, r format.Reader, e format.Entry, off, n int64) ([]byte, error) {
	out := make([]byte, n)
	at := int64(0)
	for x, err := range r.Extents(ctx, e, off, n) {
		if err != nil {
			return nil, err
		}
		if err := sane(x); err != nil {
			return nil, err
		}
		if x.At < at {
			return nil, fmt.Errorf("extents are not in content order: %d+%d after %d", x.At, x.Size, at)
		}
		at = x.At + x.Size
		if at > e.Size {
			return nil, fmt.Errorf("extent %d+%d of a content of %d bytes", x.At, x.Size, e.Size)
		}
		from, to := max(x.At, off), min(at, off+n)
		if from >= to {
			continue
		}
		b, err := unit(ctx, st, x)
		if err != nil {
			return nil, err
		}
		copy(out[from-off:to-off], b[from-x.At:to-x.At])
	}
	return out, nil
}

// sane returns an error if x is not a valid extent of an archive.
func sane(x format.Extent) error {
	if x.At < 0 || x.Size < 0 || x.Off < 0 || x.Len < 0 || x.Skip < 0 ||
		x.At+x.Size < 0 || x.Off+x.Len < 0 || x.Skip+x.Size < 0 {
		return fmt.Errorf("invalid extent: %+v", x)
	}
	switch x.Codec {
	case codec.Raw:
		if x.Skip+x.Size > x.Len {
			return fmt.Errorf("raw extent of %d stored bytes gives %d from %d on", x.Len, x.Size, x.Skip)
		}
	case codec.Inline:
		if x.Make == nil && x.Skip+x.Size > int64(len(x.Data)) {
			return fmt.Errorf("inline extent of %d bytes gives %d from %d on", len(x.Data), x.Size, x.Skip)
		}
	case codec.Zero:
	default:
		if _, ok := codec.Lookup(x.Codec); !ok {
			return fmt.Errorf("codec %q is not registered: import it in the test", x.Codec)
		}
	}
	return nil
}

// stored reports whether x has stored bytes.
func stored(x format.Extent) bool {
	return x.Codec != codec.Inline && x.Codec != codec.Zero && !x.External
}

// unit returns the content of an extent.
func unit(ctx context.Context, st store.Store, x format.Extent) (_ []byte, err error) {
	switch x.Codec {
	case codec.Zero:
		return make([]byte, x.Size), nil
	case codec.Inline:
		return x.Inline(ctx)
	}
	if x.External {
		return make([]byte, x.Size), nil // it is outside the archive and cannot be checked here
	}
	o, err := st.Open(ctx, x.Object)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	info, err := o.Info(ctx)
	if err != nil {
		return nil, err
	}
	if x.Off > info.Size || x.Len > info.Size-x.Off {
		return nil, fmt.Errorf("extent %d+%d is outside %s, which has %d bytes", x.Off, x.Len, x.Object, info.Size)
	}
	b := make([]byte, x.Len)
	if err := o.ReadAt(ctx, b, x.Off); err != nil {
		return nil, err
	}
	if x.Codec == codec.Raw {
		return b[x.Skip:][:x.Size], nil
	}
	c, _ := codec.Lookup(x.Codec)
	d, err := c.Decode(&blockReader{b})
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", x.Codec, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if _, err := io.CopyN(io.Discard, d, x.Skip); err != nil {
		return nil, fmt.Errorf("decode %s: %w", x.Codec, err)
	}
	out := make([]byte, x.Size)
	if _, err := io.ReadFull(d, out); err != nil {
		return nil, fmt.Errorf("decode %s: %w", x.Codec, err)
	}
	return out, nil
}

// blockReader hides from decoders that b is in memory.
type blockReader struct{ b []byte }

func (r *blockReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// readAll uses an archive in all ways and returns the contents that it could read.
func (s *suite) readAll(ctx context.Context, st store.Store, name string, o format.OpenOptions) (contents map[string][]byte, err error) {
	contents = map[string][]byte{}
	r, err := s.f.Open(ctx, st, name, o)
	if err != nil {
		return contents, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := r.About(ctx); err != nil {
		return contents, fmt.Errorf("about: %w", err)
	}
	for e, err := range r.Entries(ctx) {
		if err != nil {
			return contents, fmt.Errorf("entries: %w", err)
		}
		if _, err := r.Lookup(ctx, e.Name); err != nil {
			return contents, fmt.Errorf("lookup %q: %w", e.Name, err)
		}
		if !e.Kind.HasContent() || e.Fault != nil {
			continue
		}
		b, err := read(ctx, st, r, e, 0, e.Size)
		if err != nil {
			return contents, fmt.Errorf("read %q: %w", e.Name, err)
		}
		contents[e.Name] = b
	}
	for _, err := range r.ReadDir(ctx, ".") {
		if err != nil {
			return contents, fmt.Errorf("readdir: %w", err)
		}
	}
	for _, err := range r.Regions(ctx) {
		if err != nil {
			return contents, fmt.Errorf("regions: %w", err)
		}
	}
	return contents, nil
}
