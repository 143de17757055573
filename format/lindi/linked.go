package lindi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"reflect"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/zarr"
)

// Instead of chunks, an array may have the attribute _EXTERNAL_ARRAY_LINK with the HDF5 file and
// the dataset that contain it. Its chunks are keys nevertheless: those of that file in its Zarr
// view. They are looked up when all keys or one of them are requested.

// linked is an array whose chunks are in another file.
type linked struct {
	zarr.External
	fault *format.Problem // why they cannot be read
}

// chunkElsewhere is a chunk of a linked array.
type chunkElsewhere struct {
	in      format.Reader
	address string // of the file
	format.Entry
}

// links returns where an array's chunks are, if they are in another file.
func (k *keys) links(r ref) (zarr.External, bool) {
	if r.key != ".zattrs" && !strings.HasSuffix(r.key, "/.zattrs") || !bytes.Contains(k.a.rfs.value(r), []byte("_EXTERNAL_ARRAY_LINK")) {
		return zarr.External{}, false
	}
	return zarr.ParseExternal(k.a.rfs.meta(r))
}

// followLinks finds the chunks of all linked arrays. If they are not available, a single key with
// a fault represents them.
func (k *keys) followLinks(ctx context.Context) (all []format.Entry, _ error) {
	if k.a.open == nil {
		return nil, nil
	}
	for _, r := range k.a.rfs.refs {
		to, ok := k.links(r)
		if !ok {
			continue
		}
		dir := strings.TrimSuffix(strings.TrimSuffix(r.key, ".zattrs"), "/")
		chunks, err := k.chunksElsewhere(ctx, dir, to)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		l := &linked{External: to}
		if err != nil {
			code := format.Dangling
			if errors.Is(err, errors.ErrUnsupported) {
				code = format.Unsupported
			}
			l.fault = new(format.Problem)
			why := strings.TrimSuffix(err.Error(), ": "+errors.ErrUnsupported.Error())
			*l.fault = k.a.problem(code, format.Error, k.a.place(r), "its chunks are in %q of %s: %s", to.Name, to.URL, why)
			l.fault.Entry, l.fault.HasEntry = dir, true
			chunks = []format.Entry{{Name: zarrkey.Join(dir, "0"), Fault: l.fault}}
			if m, err := k.meta(dir); err == nil {
				chunks[0].Name = zarrkey.Join(dir, m.ChunkKey(make([]int64, len(m.Shape))...))
			}
		}
		k.linked[dir] = l
		all = append(all, chunks...)
	}
	return all, nil
}

func (k *keys) meta(dir string) (*zarr.Meta, error) {
	at, ok := k.find(zarrkey.Join(dir, ".zarray"))
	if !ok {
		return nil, fs.ErrNotExist
	}
	return zarr.ParseMeta(k.a.rfs.meta(at))
}

// chunksElsewhere returns the keys of the chunks of the array at dir, which are in another file.
func (k *keys) chunksElsewhere(ctx context.Context, dir string, to zarr.External) (all []format.Entry, _ error) {
	here, err := k.meta(dir)
	if err != nil {
		return nil, err
	}
	in, err := k.elsewhere(ctx, to.URL)
	if err != nil {
		return nil, err
	}
	name := strings.Trim(to.Name, "/")
	e, err := in.Lookup(ctx, zarrkey.Join(name, ".zarray"))
	if err != nil {
		return nil, err
	}
	if e.Fault != nil {
		return nil, e.Unreadable(k.a.form.String())
	}
	text, err := inlineOf(ctx, in, e)
	if err != nil {
		return nil, err
	}
	there, err := zarr.ParseMeta(text)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(here, there) {
		return nil, errors.New("the array there differs")
	}
	for e, err := range in.ReadDir(ctx, name) {
		if err != nil {
			return nil, err
		}
		if last := path.Base(e.Name); isChunk(last) && e.Kind == format.File {
			at := zarrkey.Join(dir, last)
			if _, own := k.find(at); !own {
				all = append(all, format.Entry{Name: at, Size: e.Size, Fault: e.Fault, Ref: chunkElsewhere{in, to.URL, e}})
			}
		}
	}
	return all, nil
}

// elsewhere opens a file with arrays, once.
func (k *keys) elsewhere(ctx context.Context, address string) (format.Reader, error) {
	if in := k.files[address]; in != nil {
		return in, nil
	}
	in, err := k.a.open(ctx, address)
	if err != nil {
		return nil, err
	}
	k.files[address] = in
	return in, nil
}

// inlineOf returns content from a file's metadata.
func inlineOf(ctx context.Context, in format.Reader, e format.Entry) ([]byte, error) {
	var b []byte
	for x, err := range in.Extents(ctx, e, 0, e.Size) {
		if err == nil && x.Codec != codec.Inline {
			err = errors.ErrUnsupported
		}
		var part []byte
		if err == nil {
			part, err = x.Inline(ctx)
		}
		if err != nil {
			return nil, err
		}
		b = append(b, part...)
	}
	return b, nil
}

// extents yields the extents of a chunk in another file.
func (c chunkElsewhere) extents(ctx context.Context, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		for x, err := range c.in.Extents(ctx, c.Entry, off, n) {
			if x.Codec != codec.Inline && x.Codec != codec.Zero && err == nil {
				x.Object, x.External = c.address, true
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// linkedTo returns the linked array that contains a chunk's key.
func (k *keys) linkedTo(key string) *linked {
	i := strings.LastIndexByte(key, '/')
	if !isChunk(key[i+1:]) {
		return nil
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	return k.linked[key[:max(i, 0)]]
}

func (k *keys) closeFiles() error {
	k.loading.Lock()
	defer k.loading.Unlock()
	var errs []error
	for _, in := range k.files {
		errs = append(errs, in.Close())
	}
	k.files = nil
	return errors.Join(errs...)
}
