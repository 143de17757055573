package zarr

import (
	"context"
	"math"
	"slices"
)

// Numeric reports whether the elements are numbers that [Array.Sample] gives.
func (a *Array) Numeric() bool {
	switch a.DType.Kind {
	case 'b', 'i', 'u', 'M', 'm':
		return a.DType.Size >= 1 && a.DType.Size <= 8
	case 'f':
		return a.DType.Size == 2 || a.DType.Size == 4 || a.DType.Size == 8
	}
	return false
}

// Sample gives elements as floats: along each axis count of them from from on, step apart, in C
// order. Only chunks are read that hold one of them; of large ones that are stored as they are,
// only what lies between the first and the last of them. Moments and spans are what they count,
// and NaN where they are none.
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

// Window gives the elements of a window as values: along each axis count of them from from on, in
// C order. They are as [Array.Values] has them; numbers are json.Number, moments and spans strings,
// raw elements []byte and structured ones []any. Of fixed elements what [Array.Sample] would read
// is read; of objects the rows of chunks that hold the window, which must stay below Limit.
func (a *Array) Window(ctx context.Context, from, count []int64) ([]any, error) {
	r, err := a.reader(ctx)
	if err != nil {
		return nil, err
	}
	cost := 64 + r.unit
	if a.DType.Fields != nil {
		cost += 48 * r.unit // an element may be a byte
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

// sampler checks a window, of which each element takes cost bytes.
func (r *reader) sampler(from, count, step []int64, cost int64) (*sampler, error) {
	a := r.a
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

// objects picks the window's elements out of the rows of chunks that hold them.
func (s *sampler) objects(ctx context.Context) ([]any, error) {
	size, held, out := s.r.chunks[0], int64(0), make([]any, 0, s.total)
	row := s.from[0] / size * size // of the slab's first element
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

// inner appends those of a row, which begins at a place in values.
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
	raw               []byte  // elements as they are, in place of out
	to, in            []int64 // strides
	wanted            []chunk // which are read together
}

// A chunk has an index, and samples along each axis.
type chunk struct {
	index []int64
	runs  []run
}

// A run is which samples along an axis lie in a chunk.
type run struct{ first, end int64 }

// axis goes through the chunks along an axis that hold samples.
func (s *sampler) axis(ctx context.Context, axis int, index []int64, runs []run) error {
	if axis == len(index) {
		return s.chunk(ctx, index, runs)
	}
	size := s.r.chunks[axis]
	for k := int64(0); k < s.count[axis]; {
		index[axis] = (s.from[axis] + k*s.step[axis]) / size
		// The first sample that lies behind this chunk.
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
	raw, _, err := s.r.fetch(ctx, index) // nil if it is not there
	if err == nil {
		s.pick(raw, index, runs, 0, 0, 0)
	}
	return err
}

// flush reads the chunks that are wanted so far.
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

// partFrom is how many bytes a chunk has that is not read whole.
const partFrom = 64 << 10

// part reads what of a chunk lies between its first and its last sample, if that is little of it
// and can be had alone. What is wrong is found out when all of it is read.
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

// pick copies the samples of a chunk; without one they are the fill value.
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
