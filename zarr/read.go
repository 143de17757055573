package zarr

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	slabBytes    = 16 << 20 // size up to which rows of small chunks are joined
	chunksAhead  = 4        // chunks of a slab for each worker
	chunksBatch  = 1 << 14  // chunks that are requested from a Batcher at a time
	emptyAtATime = 1 << 16  // elements that take no bytes
)

// slab is several rows of the array with all columns, in whole rows of chunks. Its elements are
// in C order.
type slab struct {
	count  int64
	bytes  []byte // of all types except objects
	values []any  // of objects
	held   int64  // memory of the objects
}

type reader struct {
	a             *Array
	pipe          *pipeline
	shape, chunks []int64 // at least one axis
	grid          []int64
	skip          []int64 // elements before the first one, along each axis
	perRow        int64   // chunks in a row of chunks
	inner         int64   // elements in a row of the array
	unit          int64   // size of an element; 0 for objects
	workers       int64
	fill          []byte
	shards        *shards // nil if there are no shards
	batch         Batcher // nil if values are read one by one
}

// slabs calls fn with all elements in order. A slab is valid only until fn returns.
func (a *Array) slabs(ctx context.Context, fn func(slab) error) error {
	r, err := a.reader(ctx)
	if err != nil {
		return err
	}
	return r.slabs(ctx, 0, r.grid[0], fn)
}

// slabs calls fn with the elements of the rows of chunks from first up to end.
func (r *reader) slabs(ctx context.Context, first, end int64, fn func(slab) error) (err error) {
	a := r.a
	if r.unit == 0 && a.DType.Kind != 'O' {
		return r.nothings(ctx, fn)
	}
	if a.Elements() == 0 {
		return nil
	}
	item := a.itemSize()
	row, ok := multiply(r.inner*min(r.chunks[0], r.shape[0]), item)
	if !ok || row > a.Limit {
		if !ok {
			row = maxSize
		}
		return &KeyError{a.name(), overLimit("a row of chunks", row, a.Limit)}
	}
	ahead := chunksAhead * r.workers
	if r.batch != nil {
		ahead = max(ahead, chunksBatch)
	}
	together := min((ahead-1)/r.perRow+1, max(1, slabBytes/row), end-first)
	var s slab
	for ; first < end; first += together {
		last := min(first+together, end)
		s.count = (r.row(last) - r.row(first)) * r.inner
		if a.DType.Kind == 'O' {
			s.values = slices.Grow(s.values[:0], int(s.count))[:s.count]
		} else {
			s.bytes = slices.Grow(s.bytes[:0], int(s.count*r.unit))[:s.count*r.unit]
		}
		if s.held, err = r.load(ctx, first, last, s); err != nil {
			return err
		}
		if err := fn(s); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// row returns the row of the array with which a row of chunks begins.
func (r *reader) row(chunk int64) int64 {
	return min(max(chunk*r.chunks[0]-r.skip[0]%r.chunks[0], 0), r.shape[0])
}

// reader returns a reader of the chunks. It fails if the chunks are in an HDF5 file that the
// source does not read.
func (a *Array) reader(ctx context.Context) (*reader, error) {
	r, err := a.newReader()
	if err != nil || a.External == nil || a.Elements() == 0 {
		return r, err
	}
	key := r.key(make([]int64, len(r.grid)))
	if _, err := a.src.GetRange(ctx, key, 0, 0); errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnwritten) {
		return nil, &KeyError{a.name(), unsupported("its elements are %q in the HDF5 file %q, which cannot be read", a.External.Name, a.External.URL)}
	}
	return r, nil
}

func (a *Array) newReader() (*reader, error) {
	r := &reader{a: a, shape: a.Shape, chunks: a.Chunks, unit: a.DType.Size}
	if a.part != nil {
		r.shape, r.skip = a.part.count, a.part.from
	}
	if len(r.chunks) == 0 {
		r.shape, r.chunks = []int64{1}, []int64{1}
	}
	if r.skip == nil {
		r.skip = make([]int64, len(r.shape))
	}
	r.grid = make([]int64, len(r.shape))
	for i, n := range r.shape {
		if n > 0 {
			r.grid[i] = (r.skip[i]%r.chunks[i]+n-1)/r.chunks[i] + 1
		}
	}
	var err error
	if r.pipe, err = newPipeline(&a.Meta, a.Limit); err == nil && a.DType.Kind != 'O' {
		r.fill, err = a.fillElement()
	}
	if ce, ok := errors.AsType[*CodecError](err); ok {
		ce.Path = a.name()
		return nil, ce
	}
	if err == nil && a.Shard != nil {
		r.shards, err = newShards(&a.Meta)
	}
	if err != nil {
		return nil, &KeyError{a.name(), err}
	}
	if b, ok := a.src.(Batcher); ok && r.shards == nil && b.Batches() {
		r.batch = b
	}
	r.perRow, _ = product(r.grid[1:])
	r.inner, _ = product(r.shape[1:])
	chunk, _ := a.chunkBytes(a.Limit)
	r.workers = max(1, min(int64(runtime.GOMAXPROCS(0)), a.Limit/max(1, 3*chunk)))
	return r, nil
}

// name returns the array's path for errors.
func (a *Array) name() string {
	if a.Path == "" {
		return "/"
	}
	return a.Path
}

// nothings yields elements that take no bytes, for which nothing is read.
func (r *reader) nothings(ctx context.Context, fn func(slab) error) error {
	for left := r.a.Elements(); left > 0; left -= emptyAtATime {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(slab{count: min(left, emptyAtATime)}); err != nil {
			return err
		}
	}
	return nil
}

// load reads the rows of chunks from first up to last into a slab. It returns the memory of the
// objects.
func (r *reader) load(ctx context.Context, first, last int64, s slab) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next    atomic.Int64
		group   sync.WaitGroup
		objects sync.Mutex // guards room
		room    = r.a.Limit
	)
	chunks := (last - first) * r.perRow
	if r.batch != nil {
		err := r.fetchAll(ctx, chunks, func(i int64) []int64 { return r.index(first, i) }, func(i int64, raw []byte, ok bool) error {
			return r.put(raw, ok, r.index(first, i), first, s, &objects, &room)
		})
		return r.a.Limit - room + 16*s.count, err
	}
	for range min(r.workers, chunks) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= chunks {
					return
				}
				index := r.index(first, i)
				raw, ok, err := r.fetch(ctx, index)
				if err == nil {
					err = r.put(raw, ok, index, first, s, &objects, &room)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return r.a.Limit - room + 16*s.count, context.Cause(ctx)
}

// index returns the position in the grid of a chunk, numbered from the row first.
func (r *reader) index(first, i int64) []int64 {
	index := make([]int64, len(r.grid))
	for axis := len(r.grid) - 1; axis > 0; axis-- {
		index[axis] = r.skip[axis]/r.chunks[axis] + i%r.grid[axis]
		i /= r.grid[axis]
	}
	index[0] = r.skip[0]/r.chunks[0] + first + i
	return index
}

// region returns where a chunk belongs in a slab that begins with the row first of the grid.
func (r *reader) region(index []int64, first int64) *region {
	g := &region{extent: make([]int64, len(index)), toStr: strides(r.shape, 'C'), fromStr: r.a.chunkStrides(r.chunks)}
	for i, at := range index {
		start := at*r.chunks[i] - r.skip[i] // in the array; below 0 if not all of the chunk is
		to := max(start, 0)
		g.extent[i] = min(start+r.chunks[i], r.shape[i]) - to
		g.from += (to - start) * g.fromStr[i]
		if i == 0 {
			to -= r.row(first)
		}
		g.to += to * g.toStr[i]
	}
	return g
}

// put puts the elements of a chunk into a slab: the decoded ones, or the fill value.
func (r *reader) put(raw []byte, ok bool, index []int64, first int64, s slab, objects *sync.Mutex, room *int64) error {
	at := r.region(index, first)
	switch {
	case !ok && s.values != nil:
		fill(at, s.values, []any{r.a.Fill})
	case !ok:
		fill(at, s.bytes, r.fill)
	case s.values != nil:
		objects.Lock()
		values, err := r.pipe.objects(raw, r.chunks, room)
		objects.Unlock()
		if err != nil {
			return &KeyError{r.key(index), err}
		}
		place(at, s.values, values, 1)
	default:
		place(at, s.bytes, raw, r.unit)
	}
	return nil
}

// key returns the key of a chunk, or of the shard that contains it.
func (r *reader) key(index []int64) string {
	index = index[:len(r.a.Chunks)]
	if r.shards != nil {
		index, _ = InShard(r.shards.per, index)
	}
	return path.Join(r.a.Path, r.a.ChunkKey(index...))
}

// fetch reads and decodes a chunk, if it exists.
func (r *reader) fetch(ctx context.Context, index []int64) (raw []byte, ok bool, err error) {
	key := r.key(index)
	var stored []byte
	if r.shards != nil {
		stored, ok, err = r.shards.get(ctx, r.a.src, key, index[:len(r.a.Chunks)], r.pipe.stored)
	} else {
		stored, ok, err = get(ctx, r.a.src, key, r.pipe.stored)
	}
	return r.decoded(key, stored, ok, err)
}

// fetchAll reads n chunks together, whose positions index returns, and decodes them. It calls
// take with each, several at a time.
func (r *reader) fetchAll(ctx context.Context, n int64, index func(i int64) []int64, take func(i int64, raw []byte, ok bool) error) error {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = r.key(index(int64(i)))
	}
	return r.batch.GetAll(ctx, keys, r.pipe.stored, func(i int, value []byte, err error) error {
		stored, ok, err := got(keys[i], r.pipe.stored, value, err)
		raw, ok, err := r.decoded(keys[i], stored, ok, err)
		if err != nil {
			return err
		}
		return take(int64(i), raw, ok)
	})
}

// decoded decodes a chunk that was read.
func (r *reader) decoded(key string, stored []byte, ok bool, err error) ([]byte, bool, error) {
	if err != nil || !ok {
		return nil, false, err
	}
	raw, err := r.decode(stored)
	if err != nil {
		return nil, false, &KeyError{key, err}
	}
	return raw, true, nil
}

// decode decodes a chunk to its elements, or to the text of objects.
func (r *reader) decode(stored []byte) ([]byte, error) {
	raw, err := r.pipe.bytes(stored)
	if err == nil && r.a.DType.Kind != 'O' {
		raw, err = r.whole(raw)
	}
	return raw, err
}

// whole checks the size of a decoded chunk, and fills up chunks that may be short.
func (r *reader) whole(raw []byte) ([]byte, error) {
	n, _ := product(r.chunks)
	want := n * r.unit
	if int64(len(raw)) < want && len(raw) > 0 && r.a.Filled() > 0 {
		return append(raw[:len(raw):len(raw)], make([]byte, want-int64(len(raw)))...), nil
	}
	if int64(len(raw)) != want {
		return nil, corrupt("expected a chunk of %d bytes, found %d", want, len(raw))
	}
	return raw, nil
}
