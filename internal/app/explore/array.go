package explore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/zarr"
)

func keyIn(dir, key string) string {
	if dir == "." {
		return key
	}
	return dir + "/" + key
}

// These limit how much of an array is read for a picture.
const (
	maxChunk   = 256 << 20 // bytes of a row of chunks, decoded
	maxDecoded = 1 << 30   // bytes decoded for one response
	maxPoints  = 1 << 20   // elements of a response
)

// samePaths are views in which arrays and groups have the same paths as in the
// view of arrays.
var samePaths = []string{objectsView, "zarr3"}

// hasArrays reports whether v shows arrays, by itself or by the view of arrays.
func (v *view) hasArrays() bool {
	return v.name == zarrView || slices.Contains(samePaths, v.name) && slices.Contains(v.in.Format().Views, zarrView)
}

// arraysOf returns the view of v's arrays, which may be another one than v. It
// returns nil if there is none.
func (q *question) arraysOf(v *view) (*view, error) {
	switch {
	case v.name == zarrView:
		return v, nil
	case !v.hasArrays():
		return nil, nil
	}
	return q.inView(v, zarrView)
}

func (q *question) arrayed() *view {
	v := q.view()
	if q.err == nil {
		if v, q.err = q.arraysOf(v); v == nil && q.err == nil {
			q.err = bad("view: expected %s, or one with the same paths", zarrView)
		}
	}
	return v
}

// opened returns an array, and the archive that has it.
func (q *question) opened() (a *zarr.Array, in *holdall.Archive) {
	v := q.arrayed()
	name := q.path()
	if name == "." {
		name = ""
	}
	if q.err == nil {
		if a, q.err = zarr.Open(q.ctx(), v.in, name); q.err == nil {
			a.Limit = maxChunk
		}
		in = v.in
	}
	return a, in
}

type arrayJSON struct {
	Path     string     `json:"path"`
	Shape    []int64    `json:"shape"`
	Chunks   []int64    `json:"chunks"`
	DType    string     `json:"dtype"`
	Codecs   string     `json:"codecs"`
	Elements int64      `json:"elements"`
	Numbers  bool       `json:"numbers"`           // it can be drawn
	Colours  bool       `json:"colours,omitempty"` // the last axis is red, green, blue, and perhaps opacity
	Text     string     `json:"text,omitempty"`
	Cut      bool       `json:"cut,omitempty"`   // there is more text
	Fault    string     `json:"fault,omitempty"` // why it cannot be read
	Scale    *scaleJSON `json:"scale,omitempty"`
	attributesJSON
}

// attributesJSON are attributes, or the reason why they cannot be read.
type attributesJSON struct {
	Attrs json.RawMessage `json:"attrs,omitempty"`
	Fault string          `json:"attrs_fault,omitempty"`
}

func attributesOf(attrs map[string]any) (j attributesJSON) {
	if len(attrs) == 0 {
		return j
	}
	text, err := json.Marshal(speakable(attrs))
	switch {
	case err != nil:
		j.Fault = "their values cannot be shown"
	case len(text) > 1<<20:
		j.Fault = fmt.Sprintf("%d bytes are too many to show", len(text))
	default:
		j.Attrs = text
	}
	return j
}

// speakable converts NaN and infinities, which JSON lacks, to text.
func speakable(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); math.IsNaN(f) || math.IsInf(f, 0) && err == nil {
			return string(v)
		}
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = speakable(x)
		}
		return list
	case map[string]any:
		all := make(map[string]any, len(v))
		for k, x := range v {
			all[k] = speakable(x)
		}
		return all
	}
	return v
}

// scaleJSON is the meaning of elements, as NWB stores it with a time series.
// If there is a rate or there are timestamps, the first axis is time.
type scaleJSON struct {
	Unit       string  `json:"unit,omitempty"`
	Conversion float64 `json:"conversion"` // the factor for each element
	Offset     float64 `json:"offset,omitempty"`
	Start      float64 `json:"start"` // seconds
	Rate       float64 `json:"rate,omitempty"`
	Times      string  `json:"times,omitempty"` // the path of the array of times
	Fault      string  `json:"fault,omitempty"` // why there is no time
}

func (q *question) scale(a *zarr.Array, in *holdall.Archive) *scaleJSON {
	number := func(attrs map[string]any, key string, usual float64) float64 {
		if n, ok := attrs[key].(json.Number); ok {
			if f, err := n.Float64(); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
				return f
			}
		}
		return usual
	}
	unit, _ := a.Attrs["unit"].(string)
	j := scaleJSON{Unit: format.Escape(cut(unit, 40)), Conversion: number(a.Attrs, "conversion", 1), Offset: number(a.Attrs, "offset", 0)}
	open := func(name string) *zarr.Array {
		b, err := zarr.Open(q.ctx(), in, path.Join(path.Dir(a.Path), name))
		if err != nil {
			return nil // the meaning is unknown
		}
		b.Limit = maxChunk
		return b
	}
	if path.Base(a.Path) == "data" && len(a.Shape) > 0 {
		if b := open("starting_time"); b != nil && b.Elements() == 1 && b.Numeric() {
			if rate := number(b.Attrs, "rate", 0); rate > 0 {
				j.Rate = rate
				v, err := b.Sample(q.ctx(), make([]int64, len(b.Shape)), slices.Clone(b.Shape), slices.Repeat([]int64{1}, len(b.Shape)))
				switch {
				case err != nil:
					j.Fault = "starting_time cannot be read, using 0: " + why(err)
				case len(v) != 1 || math.IsNaN(v[0]) || math.IsInf(v[0], 0):
					j.Fault = "starting_time is not a time, using 0"
				default:
					j.Start = v[0]
				}
			} else {
				j.Fault = "starting_time has no rate"
			}
		} else if b := open("timestamps"); b != nil && b.Numeric() && len(b.Shape) == 1 {
			if j.Times = format.Escape(b.Path); b.Shape[0] != a.Shape[0] {
				j.Times, j.Fault = "", fmt.Sprintf("%d timestamps for %d samples", b.Shape[0], a.Shape[0])
			}
		}
	}
	if j == (scaleJSON{Conversion: 1}) {
		return nil
	}
	return &j
}

// coloured reports whether an array seems to hold colour images.
func coloured(a *zarr.Array) bool {
	n := len(a.Shape)
	if n < 3 || a.Shape[n-1] != 3 && a.Shape[n-1] != 4 || !a.Numeric() {
		return false
	}
	typ, _ := a.Attrs["neurodata_type"].(string)
	return a.DType.Kind == 'u' && a.DType.Size == 1 || typ == "RGBImage" || typ == "RGBAImage"
}

func (q *question) array() error {
	defer q.busy()()
	a, in := q.opened()
	if q.err != nil {
		return q.err
	}
	j := arrayJSON{Path: format.Escape(a.Path), Shape: a.Shape, Chunks: a.Chunks, DType: a.DType.String(), Codecs: a.Codecs(), Elements: a.Elements(), Numbers: a.Numeric(), Colours: coloured(a)}
	if j.Numbers {
		j.Scale = q.scale(a, in)
	}
	j.attributesJSON = attributesOf(a.Attrs)
	if !j.Numbers || j.Elements <= 64 {
		w := &firstBytes{most: 16 << 10}
		var err error
		if bytes, known := a.Bytes(); known && bytes <= maxChunk {
			err = a.WriteText(q.ctx(), w)
		}
		if err != nil && !w.full {
			return err
		}
		j.Text, j.Cut = strings.ToValidUTF8(string(w.b), "\uFFFD"), w.full
	}
	return q.json(j)
}

// firstBytes keeps the first bytes that are written to it, and then returns an
// error.
type firstBytes struct {
	b    []byte
	most int
	full bool
}

var errEnough = errors.New("enough was written")

func (w *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), w.most-len(w.b))
	w.b = append(w.b, p[:n]...)
	if n < len(p) {
		w.full = true
		return n, errEnough
	}
	return n, nil
}

// windowJSON describes which elements a response contains.
type windowJSON struct {
	Kind  string  `json:"kind"` // "line": the values; "range": minimum and maximum alternately; "image": rows of columns; "colours": rows of columns of red, green and blue
	From  []int64 `json:"from"`
	Count []int64 `json:"count"` // elements in the response, along each axis
	Step  []int64 `json:"step"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	DType string  `json:"type"` // "float32" or "float64"
	Cut   bool    `json:"cut,omitempty"`
}

func (q *question) numbers(key string, usual []int64, most []int64) []int64 {
	list := slices.Clone(usual)
	s := q.q.Get(key)
	if s == "" || q.err != nil {
		return list
	}
	words := strings.Split(s, ",")
	if len(words) != len(most) {
		q.err = bad("%s: expected %d numbers, found %d", key, len(most), len(words))
		return list
	}
	for i, w := range words {
		list[i] = q.parse(key, w, 0, most[i])
	}
	return list
}

// arrayData responds with elements of an array as little-endian floats. The
// header Holdall-Window describes them. An array with one axis is a line; each
// stretch of it is represented by its least and largest element. Other arrays
// are shown by their last two axes, at an index of the axes before them.
func (q *question) arrayData() error {
	defer q.busy()()
	a, _ := q.opened()
	if q.err != nil {
		return q.err
	}
	if !a.Numeric() {
		return bad("the elements are not numbers")
	}
	if a.Elements() == 0 {
		return bad("no elements")
	}
	points := q.number("points", 2000, 1, maxPoints)
	shape := a.Shape
	if len(shape) == 0 {
		shape = []int64{}
	}
	from := q.numbers("from", make([]int64, len(shape)), shape)
	to := q.numbers("to", shape, shape)
	if q.err != nil {
		return q.err
	}
	axes := 2
	if coloured(a) {
		axes = 3
	}
	w := windowJSON{Kind: "image", From: from, Count: make([]int64, len(shape)), Step: make([]int64, len(shape))}
	for i := range shape {
		if i < len(shape)-axes {
			to[i] = from[i] + 1
		}
		if from[i] >= to[i] || to[i] > shape[i] {
			return bad("from, to: expected indexes from 0 to %d along axis %d, found %d to %d", shape[i], i, from[i], to[i])
		}
		w.Count[i], w.Step[i] = to[i]-from[i], 1
	}
	var values []float64
	var err error
	if len(shape) <= 1 {
		values, err = q.line(a, &w, points)
	} else {
		values, err = q.image(a, &w, points, axes)
	}
	if err != nil {
		return err
	}
	w.Min, w.Max = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			w.Min, w.Max = min(w.Min, v), max(w.Max, v)
		}
	}
	if w.Min > w.Max {
		w.Min, w.Max = 0, 0
	}
	w.DType = "float64"
	told := any(values)
	if d := a.DType; d.Kind == 'f' && d.Size <= 4 || d.Kind != 'f' && d.Size <= 2 {
		w.DType = "float32"
		narrow := make([]float32, len(values))
		for i, v := range values {
			narrow[i] = float32(v)
		}
		told = narrow
	}
	out, err := binary.Append(nil, binary.LittleEndian, told)
	if err != nil {
		return err
	}
	head, err := json.Marshal(w)
	if err != nil {
		return err
	}
	q.w.Header().Set("Holdall-Window", string(head))
	q.w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = q.w.Write(out) // an error means that the client is gone
	return nil
}

// line reads a stretch of an array with one axis, reduced to a limited number
// of points.
func (q *question) line(a *zarr.Array, w *windowJSON, points int64) ([]float64, error) {
	w.Kind = "line"
	if len(a.Shape) == 0 {
		return a.Sample(q.ctx(), nil, nil, nil)
	}
	n := w.Count[0]
	if n <= points {
		return a.Sample(q.ctx(), w.From, w.Count, w.Step)
	}
	if most := maxDecoded / max(1, a.DType.Size); n > most {
		// There are too many elements to read: some, at equal distances, represent the
		// others.
		w.Cut = true
		w.Step[0] = (n + points - 1) / points
		w.Count[0] = (n + w.Step[0] - 1) / w.Step[0]
		return a.Sample(q.ctx(), w.From, w.Count, w.Step)
	}
	w.Kind = "range"
	buckets := max(1, points/2)
	w.Step[0] = (n + buckets - 1) / buckets
	buckets = (n + w.Step[0] - 1) / w.Step[0]
	w.Count[0] = 2 * buckets
	values := make([]float64, 2*buckets)
	for i := range values {
		values[i] = math.NaN()
	}
	chunk := a.Chunks[0]
	step := max(1, (1<<18)/chunk) * chunk // whole chunks at a time
	end := w.From[0] + n
	for at := w.From[0]; at < end; {
		next := min((at/chunk)*chunk+step, end)
		part, err := a.Sample(q.ctx(), []int64{at}, []int64{next - at}, []int64{1})
		if err != nil {
			return nil, err
		}
		for i, v := range part {
			b := (at + int64(i) - w.From[0]) / w.Step[0]
			low, high := &values[2*b], &values[2*b+1]
			if !(v >= *low) && !math.IsNaN(v) {
				*low = v
			}
			if !(v <= *high) && !math.IsNaN(v) {
				*high = v
			}
		}
		at = next
	}
	return values, nil
}

// image reads the last axes at an index of the others, with a limit on the
// number of elements: two axes, or three with colours as the last one.
func (q *question) image(a *zarr.Array, w *windowJSON, points int64, axes int) ([]float64, error) {
	y, x := len(w.Count)-axes, len(w.Count)-axes+1
	if axes == 3 {
		w.Kind, points = "colours", points/w.Count[x+1]
		if w.Count[x+1] != a.Shape[x+1] {
			return nil, bad("from, to: expected all of axis %d, which holds the colour channels", x+1)
		}
	}
	side := max(1, int64(math.Sqrt(float64(points))))
	for {
		rows, cols := w.Count[y], w.Count[x]
		chunks := (rows/a.Chunks[y] + 2) * (cols/a.Chunks[x] + 2)
		size := max(1, a.DType.Size)
		for _, n := range a.Chunks {
			size *= max(1, n)
		}
		if float64(chunks)*float64(size) <= maxDecoded || rows <= a.Chunks[y] && cols <= a.Chunks[x] {
			break
		}
		w.Cut = true // only the beginning is decoded, up to this limit
		if rows/a.Chunks[y] >= cols/a.Chunks[x] {
			w.Count[y] = (rows + 1) / 2
		} else {
			w.Count[x] = (cols + 1) / 2
		}
	}
	for _, axis := range []int{y, x} {
		n := w.Count[axis]
		w.Step[axis] = (n + side - 1) / side
		w.Count[axis] = (n + w.Step[axis] - 1) / w.Step[axis]
	}
	return a.Sample(q.ctx(), w.From, w.Count, w.Step)
}

func (q *question) arrays() error {
	defer q.busy()()
	v := q.arrayed()
	if q.err != nil {
		return q.err
	}
	const most = 300
	list, more := []arrayJSON{}, false
	for e, err := range v.in.Entries(q.ctx()) {
		if err != nil {
			return err
		}
		at, parse, limit := zarr.MetaOf(e.Name)
		if parse == nil {
			continue
		}
		if len(list) == most {
			more = true
			break
		}
		j := arrayJSON{Path: format.Escape(at)}
		text, err := v.in.Get(q.ctx(), e.Name, limit)
		if err == nil {
			var m *zarr.Meta
			if m, err = parse(text); err == nil {
				j.Shape, j.Chunks, j.DType, j.Codecs, j.Elements = m.Shape, m.Chunks, m.DType.String(), m.Codecs(), m.Elements()
			} else if errors.Is(err, zarr.ErrGroup) {
				continue
			}
		}
		if err != nil {
			j.Fault = why(err)
		}
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b arrayJSON) int { return strings.Compare(a.Path, b.Path) })
	return q.json(map[string]any{"arrays": list, "more": more})
}

// timed is the number of series whose first and last times are read.
const timed = 40

// nwb responds with a description of a recording. The response is empty if the
// archive is not one.
func (q *question) nwb() error {
	defer q.busy()()
	v := q.arrayed()
	if q.err != nil {
		return q.err
	}
	h, err := hierarchy.Read(q.ctx(), v.in)
	if err != nil {
		return err
	}
	n, err := h.NWB(q.ctx(), timed)
	if err != nil {
		return err
	}
	if n == nil {
		return q.json(struct{}{})
	}
	j := struct {
		NWB   *hierarchy.NWB `json:"nwb"`
		Fault string         `json:"fault,omitempty"`
	}{NWB: n}
	if n.Err != nil {
		j.Fault = why(n.Err)
	}
	return q.json(j)
}
