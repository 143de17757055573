package zarr

// region is the part that a chunk and the result have in common. Lengths and strides are in
// elements.
type region struct {
	extent         []int64 // along each axis, greater than 0
	from, to       int64   // first element in the chunk, and in the result
	fromStr, toStr []int64
}

// strides returns the distance between elements along each axis. In order C the last axis varies
// fastest, in order F the first.
func strides(shape []int64, order byte) []int64 {
	s := make([]int64, len(shape))
	n := int64(1)
	for i := range shape {
		if order == 'C' {
			i = len(shape) - 1 - i
		}
		s[i] = n
		n *= shape[i]
	}
	return s
}

// runs calls fn with the lines of a region: n elements that are adjacent in the result, and have
// the given stride in the chunk.
func (r *region) runs(fn func(to, from, n, stride int64)) {
	last := len(r.extent) - 1
	n, stride := r.extent[last], r.fromStr[last]
	// Lines that are adjacent on both sides are joined.
	for last > 0 && r.toStr[last-1] == n && r.fromStr[last-1] == n*stride {
		last--
		n *= r.extent[last]
	}
	index := make([]int64, last)
	to, from := r.to, r.from
	for {
		fn(to, from, n, stride)
		i := last - 1
		for ; i >= 0; i-- {
			index[i]++
			to, from = to+r.toStr[i], from+r.fromStr[i]
			if index[i] < r.extent[i] {
				break
			}
			to, from = to-index[i]*r.toStr[i], from-index[i]*r.fromStr[i]
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// place copies a region of a chunk; an element is unit entries of the slices.
func place[T any](r *region, to, from []T, unit int64) {
	r.runs(func(t, f, n, stride int64) {
		if stride == 1 || n == 1 {
			copy(to[t*unit:(t+n)*unit], from[f*unit:(f+n)*unit])
			return
		}
		for range n {
			copy(to[t*unit:(t+1)*unit], from[f*unit:(f+1)*unit])
			t, f = t+1, f+stride
		}
	})
}

func fill[T any](r *region, to, element []T) {
	unit := int64(len(element))
	r.runs(func(t, _, n, _ int64) {
		line := to[t*unit : (t+n)*unit]
		for done := copy(line, element); done < len(line); {
			done += copy(line[done:], line[:done])
		}
	})
}
