package zarr

import (
	"context"
	"math"
	"slices"
)

// Numeric reports whether the elements are numbers that [Array.Sample] supports.
func (a *Array) Numeric() bool {
	switch a.DType.Kind {
	case 'b', 'i', 'u', 'M', 'm':
		return a.DType.Size >= 1 && a.DType.Size <= 8
	case 'f':
		return a.DType.Size == 2 || a.DType.Size == 4 || a.DType.Size == 8
	}
	return false
}

// Sample returns elements as floats, in C order: along each axis count elements from from, step
// apart. It reads only chunks that contain one of them. Of a large chunk that is stored
// unchanged, it reads only the part from the first to the last of them. Datetimes and timedeltas
// are returned as their counts, or as NaN if they are not a time.
func (a *Array) Sample(ctx context.Context, from, count, step []int64) ([]float64, error) {
	if !a.Numeric() {
		return nil, &KeyError{a.name(), unsupported("elements of type %s are not numbers", a.DType)}
	}
	r, err := a.reader(ctx)
	if err != nil {
		return nil, err
	}
	s, err := r.sampler(from, count, step, 8)
	if err != nil {
		return nil, err
	}
	s.out = make([]float64, s.total)
	return s.out, s.read(ctx)
}

// Window returns elements as values, in C order: along each axis count elements from from. The
// values are those of [Array.Values]; numbers are json.Number, datetimes and timedeltas strings,
// raw elements []byte and structured ones []any. For elements of fixed size it reads the same as
// [Array.Sample]. For objects it reads the rows of chunks that contain the window, which must
// take less than Limit.
func (a *Array) Window(ctx context.Context, from, count []int64) ([]any, error) {
	r, err := a.reader(ctx)
	if err != nil {
		return nil, err
	}
	cost := 64 + r.unit
	if a.DType.Fields != nil {
		cost += 48 * r.unit // an element may be a single byte
	}
	s, err := r.sampler(from, count, slices.Repeat([]int64{1}, len(count)), cost)
	if err != nil {
		return nil, err
	}
	if a.DType.Kind == 'O' {
		return s.objects(ctx)
	}
	s.raw = make([]byte, s.total*r.unit)
	if r.unit > 0 {
		if err := s.read(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]any, s.total)
	for i := range out {
		if out[i], err = a.DType.value(s.raw[int64(i)*r.unit:][:r.unit]); err != nil {
			return nil, &KeyError{a.name(), err}
		}
	}
	return out, nil
}

// sampler checks a window whose elements take cost bytes each.
func (r *reader) sampler(from, count, step []int64, cost int64) (*sampler, error) {
	a := r.a
	if a.part != nil {
		return nil, &KeyError{a.name(), unsupported("a window of a part of an array")}
	}
	if len(a.Shape) == 0 {
		from, count, step = []int64{0}, []int64{1}, []int64{1}
	}
	if len(from) != len(r.shape) || len(count) != len(r.shape) || len(step) != len(r.shape) {
		return nil, &KeyError{a.name(), corrupt("expected a window of %d axes", len(r.shape))}
	}
	total := int64(1)
	for i, n := range count {
		if n <= 0 || step[i] <= 0 || from[i] < 0 || from[i] >= r.shape[i] || n > (r.shape[i]-1-from[i])/step[i]+1 {
			return nil, &KeyError{a.name(), corrupt("expected a window within %d elements along axis %d, found %d from %d on with step %d", r.shape[i], i, n, from[i], step[i])}
		}
		if total, _ = multiply(total, n); total > a.Limit/cost {
			return nil, &KeyError{a.name(), overLimit("a window", total, a.Limit/cost)}
		}
	}
	if chunk, err := a.chunkBytes(a.Limit); err != nil {
		return nil, &KeyError{a.name(), err}
	} else if chunk > a.Limit {
		return nil, &KeyError{a.name(), overLimit("a chunk", chunk, a.Limit)}
	}
	return &sampler{r: r, from: from, count: count, step: step, total: total, to: strides(count, 'C'), in: a.chunkStrides(r.chunks)}, nil
}

func (s *sampler) read(ctx context.Context) error {
	if err := s.axis(ctx, 0, make([]int64, len(s.count)), make([]run, len(s.count))); err != nil {
		return err
	}
	return s.flush(ctx)
}

// objects returns the elements of the window from the rows of chunks that contain it.
func (s *sampler) objects(ctx context.Context) ([]any, error) {
	size, held, out := s.r.chunks[0], int64(0), make([]any, 0, s.total)
	row := s.from[0] / size * size // of the first element of the slab
	in := strides(s.r.shape, 'C')
	err := s.r.slabs(ctx, s.from[0]/size, (s.from[0]+s.count[0]-1)/size+1, func(b slab) error {
		if held += b.held; held > s.r.a.Limit {
			return &KeyError{s.r.a.name(), overLimit("its values together", held, s.r.a.Limit)}
		}
		rows := b.count / s.r.inner
		for at := max(row, s.from[0]); at < min(row+rows, s.from[0]+s.count[0]); at++ {
			out = s.inner(out, b.values, in, 1, (at-row)*in[0])
		}
		row += rows
		return nil
	})
	return out, err
}

// inner appends the elements of a row that begins at in values.
func (s *sampler) inner(out, values []any, in []int64, axis int, at int64) []any {
	if axis == len(s.count) {
		return append(out, values[at])
	}
	for i := range s.count[axis] {
		out = s.inner(out, values, in, axis+1, at+(s.from[axis]+i)*in[axis])
	}
	return out
}

type sampler struct {
	r                 *reader
	from, count, step []int64
	total             int64
	out               []float64
	raw               []byte  // elements as stored, used instead of out
	to, in            []int64 // strides
	wanted            []chunk // chunks that are read together
}

// chunk has a position, and samples along each axis.
type chunk struct {
	index []int64
	runs  []run
}

// run is the range of samples along an axis that are in a chunk.
type run struct{ first, end int64 }

// axis visits the chunks along an axis that contain samples.
func (s *sampler) axis(ctx context.Context, axis int, index []int64, runs []run) error {
	if axis == len(index) {
		return s.chunk(ctx, index, runs)
	}
	size := s.r.chunks[axis]
	for k := int64(0); k < s.count[axis]; {
		index[axis] = (s.from[axis] + k*s.step[axis]) / size
		// This is the first sample after this chunk.
		end := min(((index[axis]+1)*size-s.from[axis]+s.step[axis]-1)/s.step[axis], s.count[axis])
		runs[axis] = run{k, end}
		if err := s.axis(ctx, axis+1, index, runs); err != nil {
			return err
		}
		k = end
	}
	return nil
}

func (s *sampler) chunk(ctx context.Context, index []int64, runs []run) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if raw, first, ok := s.part(ctx, index, runs); ok {
		s.pick(raw, index, runs, 0, 0, -first)
		return nil
	}
	if s.r.batch != nil {
		if s.wanted = append(s.wanted, chunk{slices.Clone(index), slices.Clone(runs)}); len(s.wanted) < chunksBatch {
			return nil
		}
		return s.flush(ctx)
	}
	raw, _, err := s.r.fetch(ctx, index) // nil if it is missing
	if err == nil {
		s.pick(raw, index, runs, 0, 0, 0)
	}
	return err
}

// flush reads the chunks collected so far.
func (s *sampler) flush(ctx context.Context) error {
	if len(s.wanted) == 0 {
		return nil
	}
	err := s.r.fetchAll(ctx, int64(len(s.wanted)), func(i int64) []int64 { return s.wanted[i].index }, func(i int64, raw []byte, _ bool) error {
		s.pick(raw, s.wanted[i].index, s.wanted[i].runs, 0, 0, 0)
		return nil
	})
	s.wanted = s.wanted[:0]
	return err
}

// partFrom is the smallest size of a chunk of which only a part is read.
const partFrom = 64 << 10

// part reads a chunk from its first to its last sample, if that is a small part of it and can be
// read separately. Errors are reported when the whole chunk is read instead.
func (s *sampler) part(ctx context.Context, index []int64, runs []run) (raw []byte, first int64, ok bool) {
	size, _ := product(s.r.chunks)
	if !s.r.pipe.plain || s.r.shards != nil || size*s.r.unit < partFrom {
		return nil, 0, false
	}
	end := int64(1)
	for i, r := range runs {
		begin := index[i] * s.r.chunks[i]
		first += (s.from[i] + r.first*s.step[i] - begin) * s.in[i]
		end += (s.from[i] + (r.end-1)*s.step[i] - begin) * s.in[i]
	}
	if end-first > size/2 {
		return nil, 0, false
	}
	raw, err := s.r.a.src.GetRange(ctx, s.r.key(index), first*s.r.unit, (end-first)*s.r.unit)
	return raw, first, err == nil
}

// pick copies the samples of a chunk; for a missing chunk they are the fill value.
func (s *sampler) pick(raw []byte, index []int64, runs []run, axis int, to, in int64) {
	for k := runs[axis].first; k < runs[axis].end; k++ {
		at := s.from[axis] + k*s.step[axis] - index[axis]*s.r.chunks[axis]
		t, i := to+k*s.to[axis], in+at*s.in[axis]
		if axis+1 < len(runs) {
			s.pick(raw, index, runs, axis+1, t, i)
			continue
		}
		b := s.r.fill
		if raw != nil {
			b = raw[i*s.r.unit : (i+1)*s.r.unit]
		}
		if s.raw != nil {
			copy(s.raw[t*s.r.unit:], b)
			continue
		}
		s.out[t] = s.r.a.DType.sample(b)
	}
}

func (d DType) sample(b []byte) float64 {
	if d.Kind == 'M' || d.Kind == 'm' {
		v := int64(d.whole(b))
		if v == math.MinInt64 {
			return math.NaN()
		}
		return float64(v)
	}
	return d.number(b)
}
