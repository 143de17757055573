package explore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

// These limit a raster.
const (
	maxUnits  = 512      // of a response
	maxSpikes = 16 << 20 // that are read for a response, once or twice
	maxPieces = 4096     // reads for a response
	maxBins   = 1 << 20  // counts of a response
)

// rasterJSON shows when the units of a table spiked: how often in each of
// equal intervals.
type rasterJSON struct {
	Units  int64   `json:"units"` // of the table
	Spikes int64   `json:"spikes"`
	From   int64   `json:"from"` // the first unit in the response
	Start  float64 `json:"start"`
	End    float64 `json:"end"`
	Bins   int64   `json:"bins"`
	// Counts has a byte for each bin of each unit, from the first unit on. Values
	// above 255 are stored as 255.
	Counts []byte      `json:"counts"`
	Told   []unitJSON  `json:"told"`            // of the units from From on
	Every  int64       `json:"every,omitempty"` // only every so many spikes were read
	Faults []faultJSON `json:"faults,omitempty"`
	More   int         `json:"more_faults,omitempty"`
	Unit   string      `json:"unit"`
}

// unitJSON is one unit: how many spikes it has, and how many of those that
// were read are in the requested time.
type unitJSON struct {
	Spikes int64 `json:"spikes"`
	Within int64 `json:"within"`
}

type faultJSON struct {
	Unit int64  `json:"unit"`
	Why  string `json:"why"`
}

func (q *question) raster() error {
	defer q.busy()()
	first := q.number("from", 0, 0, math.MaxInt64-maxUnits)
	n := q.number("n", 100, 1, maxUnits)
	bins := q.number("bins", 1000, 1, 8192)
	start, end := q.float("start"), q.float("end")
	g := q.group()
	if q.err != nil {
		return q.err
	}
	if bins*n > maxBins {
		return bad("bins: expected at most %d of %d units, found %d", maxBins/n, n, bins)
	}
	ctx := q.ctx()
	index, err := g.array(ctx, "spike_times_index")
	if err != nil {
		return err
	}
	times, err := g.array(ctx, "spike_times")
	if err != nil {
		return err
	}
	if len(times.Shape) != 1 || !times.Numeric() || len(index.Shape) != 1 || index.DType.Kind != 'i' && index.DType.Kind != 'u' {
		return bad("no spike times to draw")
	}
	j := rasterJSON{Units: index.Shape[0], Spikes: times.Shape[0], From: first, Bins: bins, Told: []unitJSON{}, Unit: "s"}
	if first >= j.Units {
		return bad("from: expected a unit from 0 to %d, found %d", j.Units-1, first)
	}
	room := int64(maxDecoded)
	units, err := (&column{room: &room}).bounds(ctx, index, first, min(first+n, j.Units), times.Shape[0])
	if err != nil {
		return err
	}
	if math.IsNaN(start) || math.IsNaN(end) {
		low, high := math.Inf(1), math.Inf(-1)
		if err := j.each(ctx, times, units, func(_ int, t float64) { low, high = min(low, t), max(high, t) }); err != nil {
			return err
		}
		if low > high {
			low, high = 0, 1
		}
		if math.IsNaN(start) {
			start = low
		}
		if math.IsNaN(end) {
			end = high
		}
	}
	if !(end > start) {
		end = start + max(1, math.Abs(start)*1e-9)
	}
	if math.IsInf(end, 0) {
		start, end = math.MaxFloat64/2, math.MaxFloat64
	}
	j.Start, j.End, j.Counts = start, end, make([]byte, int64(len(units))*bins)
	err = j.each(ctx, times, units, func(unit int, t float64) {
		if t < start || t > end {
			return
		}
		j.Told[unit].Within++
		// The difference of the two may overflow, so each is halved.
		b := int64(unit)*bins + min(bins-1, max(0, int64((t/2-start/2)/(end/2-start/2)*float64(bins))))
		if j.Counts[b] < 255 {
			j.Counts[b]++
		}
	})
	if err != nil {
		return err
	}
	return q.json(j)
}

// float returns a requested number, or NaN if there is none.
func (q *question) float(key string) float64 {
	s := q.q.Get(key)
	if s == "" || q.err != nil {
		return math.NaN()
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		q.err = bad("%s: expected a number, found %q", key, cut(s, 40))
	}
	return v
}

// each yields the spikes of units, or a sample if there are very many, and
// records which of them cannot be read.
func (j *rasterJSON) each(ctx context.Context, times *zarr.Array, units []listRange, spike func(unit int, t float64)) error {
	room, total := int64(maxDecoded), int64(0)
	p := &piece{array: times, room: &room}
	for _, u := range units {
		p.most, total = max(p.most, u.end), min(total+u.end-u.from, 1<<60)
	}
	p.step = max(1, (total+maxSpikes-1)/maxSpikes)
	if total/p.length() > maxPieces { // then single spikes are read
		p.step = (total + maxPieces - 1) / maxPieces
	}
	if p.step > 1 {
		j.Every = p.step
	}
	j.Told, j.Faults, j.More = []unitJSON{}, nil, 0
	for i, u := range units {
		j.Told = append(j.Told, unitJSON{Spikes: u.end - u.from})
		wrong := u.fault
		if wrong == "" {
			var err error
			if wrong, err = p.times(ctx, u, func(t float64) { spike(i, t) }); err != nil {
				return err
			}
		}
		if wrong != "" {
			j.fault(int64(i), string(wrong))
		}
	}
	return nil
}

func (j *rasterJSON) fault(unit int64, what string) {
	if len(j.Faults) == 50 {
		j.More++
		return
	}
	j.Faults = append(j.Faults, faultJSON{j.From + unit, what})
}

// A piece is a range of times that are read together. The times of several
// units may be in one chunk.
type piece struct {
	array      *zarr.Array
	room       *int64 // bytes that may still be decoded
	step, most int64  // every step-th element is read; the end of the last span
	from, end  int64
	values     []float64
	wrong      fault
}

// times yields the readable elements of a span, and returns the fault of the
// rest.
func (p *piece) times(ctx context.Context, s listRange, each func(t float64)) (wrong fault, err error) {
	for at := s.from; at < s.end; {
		if at < p.from || at >= p.end || p.step > 1 {
			if err := p.read(ctx, at, s.end); err != nil {
				return "", err
			}
		}
		next := min(s.end, p.end)
		last := (next - p.from + p.step - 1) / p.step
		wrong = cmp.Or(wrong, p.wrong)
		if p.wrong == tooMuch {
			break
		}
		if p.wrong == "" {
			for _, t := range p.values[(at-p.from)/p.step : last] {
				if !math.IsNaN(t) && !math.IsInf(t, 0) {
					each(t)
				}
			}
		}
		at = p.from + last*p.step
	}
	return wrong, nil
}

// length returns how many elements are read together at most: those of a
// chunk, or of several small ones.
func (p *piece) length() int64 {
	chunk := max(1, p.array.Chunks[0])
	return min(max(1, (1<<16)/chunk)*chunk, 1<<20)
}

// read reads from an element to the end of its chunk, or of several small
// chunks.
func (p *piece) read(ctx context.Context, at, end int64) error {
	n := p.length()
	p.from, p.end = at, min(p.most, (at/n+1)*n)
	if chunk := p.array.Chunks[0]; chunk > n {
		p.end = min(p.end, (at/chunk+1)*chunk)
	}
	if p.step > 1 {
		p.end = min(p.end, end)
	}
	p.values, p.wrong = nil, ""
	if *p.room -= cost(p.array, at, p.end); *p.room < 0 {
		p.wrong = tooMuch
		return nil
	}
	var err error
	p.values, err = p.array.Sample(ctx, []int64{at}, []int64{(p.end - at + p.step - 1) / p.step}, []int64{p.step})
	if err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrChanged)) {
		return err
	}
	if err != nil {
		p.wrong = fault(why(err))
	}
	return nil
}
