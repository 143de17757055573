package explore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

// These limit how much of a table is sent.
const (
	maxColumns = 200
	maxRows    = 500  // of a response
	maxNested  = 3    // indexes of indexes
	maxEnum    = 4096 // names of an enumeration
	ofList     = 8    // elements sent of a list
	ofText     = 300  // bytes sent of a text
	together   = 4096 // rows of a column that are read at once
	apart      = 64   // rows of another chunk that are read in between
)

// tableJSON is a table of NWB (DynamicTable), and some of its rows.
type tableJSON struct {
	Path    string       `json:"path"`
	Type    string       `json:"type,omitempty"`
	About   string       `json:"description,omitempty"`
	Rows    int64        `json:"rows"`
	Columns []columnJSON `json:"columns"`
	More    int          `json:"more,omitempty"` // number of columns that were left out
	From    int64        `json:"from"`
	IDs     []cellJSON   `json:"ids,omitempty"`
	Cells   [][]cellJSON `json:"cells"` // by column
	Fault   string       `json:"fault,omitempty"`
}

type columnJSON struct {
	Name   string   `json:"name"`
	Path   string   `json:"path,omitempty"`
	About  string   `json:"description,omitempty"`
	Type   string   `json:"type,omitempty"`
	Unit   string   `json:"unit,omitempty"`
	Number bool     `json:"number,omitempty"`
	Nested int      `json:"nested,omitempty"` // a cell is a list, of lists, and so on
	Inner  []int64  `json:"inner,omitempty"`  // the shape of a cell's value
	Fields []string `json:"fields,omitempty"` // of a compound
	Table  string   `json:"table,omitempty"`  // numbers are rows of this table
	Fault  string   `json:"fault,omitempty"`
}

type cellJSON struct {
	Text  string     `json:"t,omitempty"`
	Ref   string     `json:"r,omitempty"` // the path of the value's target
	List  []cellJSON `json:"l,omitempty"` // the first elements
	Count *int64     `json:"n,omitempty"` // of a list: how many it has
	Fault string     `json:"f,omitempty"`
}

type column struct {
	columnJSON
	data  *zarr.Array
	index []*zarr.Array // the outermost first
	enum  []string
	room  *int64 // bytes that may still be decoded for the response
}

// A fault stands for a value that cannot be read.
type fault string

// A listRange is the range of a list's elements, or the fault that hides it.
type listRange struct {
	from, end int64
	fault     fault
}

// A group is a group of a hierarchy, after soft links have been followed.
type group struct {
	in    zarr.Source
	path  string
	attrs map[string]any
}

func groupAt(ctx context.Context, in zarr.Source, at string) (*group, error) {
	for range 40 {
		attrs, err := zarr.Attributes(ctx, in, at)
		if err != nil {
			return nil, err
		}
		link, ok := attrs["_SOFT_LINK"].(map[string]any)
		target, ok2 := link["path"].(string)
		if !ok || !ok2 {
			return &group{in, at, attrs}, nil
		}
		if !strings.HasPrefix(target, "/") {
			target = path.Dir("/"+at) + "/" + target
		}
		at = strings.TrimPrefix(path.Clean("/"+target), "/")
	}
	return nil, bad("its soft links have no target")
}

func (g *group) text(key string) string { return hierarchy.Text(g.attrs[key]) }

func (g *group) names(key string) (list []string, ok bool) {
	switch v := g.attrs[key].(type) {
	case []any:
		for _, x := range v {
			s, _ := x.(string)
			list = append(list, s)
		}
		return list, true
	case string:
		return []string{v}, true
	}
	return nil, false
}

func (g *group) isTable() bool {
	_, ok := g.names("colnames")
	return ok
}

// isUnits reports whether a table has spike times.
func (g *group) isUnits(ctx context.Context) bool {
	return g.isTable() && g.open(ctx, "spike_times") != nil && g.open(ctx, "spike_times_index") != nil
}

func (g *group) isSeries(ctx context.Context) bool {
	if g.open(ctx, "data") == nil {
		return false
	}
	_, err := g.array(ctx, "starting_time")
	return err == nil || g.open(ctx, "timestamps") != nil
}

func (g *group) array(ctx context.Context, name string) (*zarr.Array, error) {
	a, err := zarr.Open(ctx, g.in, path.Join(g.path, name))
	if err == nil {
		a.Limit = maxChunk
	}
	return a, err
}

// open is array for an optional array: it returns nil if there is none.
func (g *group) open(ctx context.Context, name string) *zarr.Array {
	a, err := g.array(ctx, name)
	if err != nil || len(a.Shape) == 0 {
		return nil
	}
	return a
}

// refersTo returns the path that an attribute refers to, or "" if it is not a
// reference.
func refersTo(v any) string {
	o, _ := v.(map[string]any)
	r, _ := o["_REFERENCE"].(map[string]any)
	to, ok := r["path"].(string)
	if !ok {
		return ""
	}
	return strings.TrimPrefix(path.Clean("/"+to), "/")
}

// column opens a column, and the indexes into it.
func (g *group) column(ctx context.Context, name string, rows int64, room *int64) *column {
	c := &column{columnJSON: columnJSON{Name: format.Escape(cut(name, ofText))}, room: room}
	if name == "" || name != path.Base(name) || name == "." || name == ".." {
		c.Fault = "not a column name"
		return c
	}
	var err error
	if c.data, err = g.array(ctx, name); err != nil {
		c.data, c.Fault = nil, missing(err)
		return c
	}
	for at := name + "_index"; len(c.index) < maxNested; at += "_index" {
		x := g.open(ctx, at)
		if x == nil || len(x.Shape) != 1 || x.DType.Kind != 'u' && x.DType.Kind != 'i' || hierarchy.Text(x.Attrs["neurodata_type"]) != "VectorIndex" && x.Attrs["neurodata_type"] != nil {
			break
		}
		c.index = append([]*zarr.Array{x}, c.index...)
	}
	c.Path, c.About, c.Unit = format.Escape(c.data.Path), cut(hierarchy.Text(c.data.Attrs["description"]), 1000), cut(hierarchy.Text(c.data.Attrs["unit"]), 40)
	c.Type, c.Nested, c.Number = c.data.DType.String(), len(c.index), c.data.Numeric() && c.data.DType.Kind != 'b'
	for _, f := range c.data.Compound() {
		c.Fields = append(c.Fields, cut(f.Name, 40))
	}
	for _, f := range c.data.DType.Fields {
		c.Fields = append(c.Fields, cut(f.Name, 40))
	}
	if len(c.data.Shape) == 0 {
		c.data, c.Fault = nil, "a single value without rows"
		return c
	}
	c.Inner = c.data.Shape[1:]
	c.Table = format.Escape(refersTo(c.data.Attrs["table"]))
	if at := refersTo(c.data.Attrs["elements"]); at != "" {
		if c.enum, err = c.words(ctx, g.in, at); err != nil {
			c.Fault = "its names: " + missing(err)
		} else {
			c.Number = false
		}
	}
	if n := c.rows(); n != rows && c.Fault == "" {
		c.Fault = fmt.Sprintf("%d rows, but the table has %d", n, rows)
	}
	return c
}

func missing(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "no such array"
	}
	return why(err)
}

func (c *column) rows() int64 {
	if len(c.index) > 0 {
		return c.index[0].Shape[0]
	}
	return c.data.Shape[0]
}

// words reads the names for a column of numbers.
func (c *column) words(ctx context.Context, in zarr.Source, at string) (list []string, err error) {
	a, err := zarr.Open(ctx, in, at)
	if err != nil {
		return nil, err
	}
	a.Limit = maxChunk
	if len(a.Shape) != 1 || a.Shape[0] < 1 || a.Shape[0] > maxEnum {
		return nil, fmt.Errorf("%w: expected a list of 1 to %d names", zarr.ErrCorrupt, maxEnum)
	}
	values, err := c.read(ctx, a, 0, a.Shape[0])
	for _, v := range values {
		if f, ok := v.(fault); ok {
			return nil, fmt.Errorf("%w: %s", zarr.ErrCorrupt, f)
		}
		list = append(list, plain(v))
	}
	return list, err
}

func (q *question) table() error {
	defer q.busy()()
	from := q.number("from", 0, 0, math.MaxInt64-maxRows)
	n := q.number("n", 100, 0, maxRows)
	g := q.group()
	if q.err != nil {
		return q.err
	}
	if !g.isTable() {
		return bad("not a table")
	}
	ctx := q.ctx()
	j := tableJSON{Path: format.Escape(g.path), Type: cut(g.text("neurodata_type"), 100), About: cut(g.text("description"), 4000), Columns: []columnJSON{}, From: from, Cells: [][]cellJSON{}}
	var err error
	room := int64(maxDecoded)
	id := &column{room: &room}
	if id.data, err = g.array(ctx, "id"); err == nil && len(id.data.Shape) == 1 {
		j.Rows = id.data.Shape[0]
	} else {
		id.data, j.Fault = nil, "no readable ids, so the rows of the first column are used"
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.Fault += ": " + why(err)
		}
	}
	columns := g.columns(ctx, &j, &room)
	end := min(from+n, j.Rows)
	if id.data != nil && from < end {
		if j.IDs, err = id.cells(ctx, from, end); err != nil {
			return err
		}
	}
	for _, c := range columns {
		cells := []cellJSON{}
		if c.data != nil && from < min(end, c.rows()) {
			if cells, err = c.cells(ctx, from, min(end, c.rows())); err != nil {
				return err
			}
		}
		j.Columns, j.Cells = append(j.Columns, c.columnJSON), append(j.Cells, cells)
	}
	return q.json(j)
}

func (q *question) group() (g *group) {
	v := q.arrayed()
	at := q.path()
	if at == "." {
		at = ""
	}
	if q.err == nil {
		g, q.err = groupAt(q.ctx(), v.in, at)
	}
	return g
}

// columns returns the columns of a table, and those of the tables that it puts
// side by side (AlignedDynamicTable). If the table has no ids, the columns
// determine the number of rows.
func (g *group) columns(ctx context.Context, j *tableJSON, room *int64) (list []*column) {
	add := func(from *group, prefix string) {
		names, _ := from.names("colnames")
		for _, name := range names {
			if len(list) == maxColumns {
				j.More++
				continue
			}
			c := from.column(ctx, name, j.Rows, room)
			if j.Fault != "" && j.Rows == 0 && c.data != nil {
				j.Rows, c.Fault = c.rows(), ""
			}
			c.Name = prefix + c.Name
			list = append(list, c)
		}
	}
	add(g, "")
	categories, _ := g.names("categories")
	for _, name := range categories[:min(len(categories), maxColumns)] {
		if name == "" || name != path.Base(name) {
			continue
		}
		if from, err := groupAt(ctx, g.in, path.Join(g.path, name)); err == nil {
			add(from, format.Escape(cut(name, 40))+" / ")
		}
	}
	return list
}

func (c *column) cells(ctx context.Context, from, end int64) ([]cellJSON, error) {
	lists, err := c.lists(ctx, 0, []listRange{{from: from, end: end}})
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

// lists returns the cells for spans of rows: those of an index or, at the
// innermost level, of the data.
func (c *column) lists(ctx context.Context, level int, spans []listRange) ([][]cellJSON, error) {
	if level == len(c.index) {
		return c.values(ctx, spans)
	}
	rows := c.data.Shape[0] // of the array that the index refers to
	if level+1 < len(c.index) {
		rows = c.index[level+1].Shape[0]
	}
	var inner []listRange // of all rows
	for _, s := range spans {
		if s.fault == "" {
			bounds, err := c.bounds(ctx, c.index[level], s.from, s.end, rows)
			if err != nil {
				return nil, err
			}
			inner = append(inner, bounds...)
		}
	}
	short := slices.Clone(inner)
	for i := range short {
		short[i].end = min(short[i].end, short[i].from+ofList)
	}
	lists, err := c.lists(ctx, level+1, short)
	if err != nil {
		return nil, err
	}
	out := make([][]cellJSON, len(spans))
	at := 0
	for i, s := range spans {
		for range s.end - s.from {
			if s.fault != "" {
				continue
			}
			cell := cellJSON{Fault: string(inner[at].fault)}
			if cell.Fault == "" {
				cell.List, cell.Count = lists[at], new(inner[at].end-inner[at].from)
			}
			out[i] = append(out[i], cell)
			at++
		}
	}
	return out, nil
}

// bounds reads where lists begin and end: each begins at the end of the one
// before. The values of an index are not trusted: they may be out of range, or
// decrease.
func (c *column) bounds(ctx context.Context, index *zarr.Array, from, end, rows int64) ([]listRange, error) {
	if from >= end {
		return nil, nil
	}
	values, err := c.read(ctx, index, max(0, from-1), end)
	if err != nil {
		return nil, err
	}
	ends := make([]listRange, len(values)) // end only
	for i, v := range values {
		switch v := v.(type) {
		case fault:
			ends[i].fault = v
		case json.Number:
			n, err := strconv.ParseInt(string(v), 10, 64)
			if ends[i].end = n; err != nil || n < 0 || n > rows {
				ends[i].fault = fault(fmt.Sprintf("%s: row %d ends at %s, but there are %d elements", path.Base(index.Path), max(0, from-1)+int64(i), v, rows))
			}
		}
	}
	if from == 0 {
		ends = append([]listRange{{}}, ends...)
	}
	out := make([]listRange, end-from)
	for i := range out {
		a, b := ends[i], ends[i+1]
		switch out[i] = (listRange{from: a.end, end: b.end}); {
		case b.fault != "":
			out[i] = listRange{fault: b.fault}
		case a.fault != "":
			out[i] = listRange{fault: a.fault}
		case b.end < a.end:
			out[i] = listRange{fault: fault(fmt.Sprintf("%s: row %d ends at %d, before it begins at %d", path.Base(index.Path), from+int64(i), b.end, a.end))}
		}
	}
	return out, nil
}

// values returns the cells for spans of the data. It reads adjacent spans
// together.
func (c *column) values(ctx context.Context, spans []listRange) ([][]cellJSON, error) {
	out := make([][]cellJSON, len(spans))
	chunk := max(1, c.data.Chunks[0])
	for i := 0; i < len(spans); {
		k, from, end := i, spans[i].from, spans[i].end
		for k++; k < len(spans); k++ {
			s := spans[k]
			if s.from == s.end {
				continue // nothing is read for it
			}
			if from == end {
				from, end = s.from, s.end
				continue
			}
			low, high := min(from, s.from), max(end, s.end)
			near := high-low <= together && s.from-end <= apart && from-s.end <= apart
			if !near && (low/chunk != (high-1)/chunk || high-low > 16*together) {
				break
			}
			from, end = low, high
		}
		var cells []cellJSON
		if from < end {
			values, err := c.read(ctx, c.data, from, end)
			if err != nil {
				return nil, err
			}
			cells = c.told(values, end-from)
		}
		for ; i < k; i++ {
			if s := spans[i]; s.from < s.end {
				out[i] = cells[s.from-from : s.end-from]
			}
		}
	}
	return out, nil
}

const tooMuch = fault("too much to read at once")

// cost returns how many bytes are decoded to read rows of an array.
func cost(a *zarr.Array, from, end int64) int64 {
	chunk := max(1, a.Chunks[0])
	n, rows := max(1, a.DType.Size), (end-1)/chunk*chunk+chunk-from/chunk*chunk
	if a.DType.Kind == 'O' {
		n = 48
	}
	if a.Filled() > 0 { // less than a chunk can be read
		rows = min(rows, 2*(end-from))
	}
	for _, k := range append([]int64{rows}, a.Chunks[1:]...) {
		if n > maxDecoded/max(1, k) {
			return maxDecoded
		}
		n *= max(1, k)
	}
	return n
}

// inside returns how many elements of a row are read along each further axis.
func inside(a *zarr.Array) []int64 {
	count := make([]int64, len(a.Shape)-1)
	for i, n := range a.Shape[1:] {
		if count[i] = min(n, ofList); i > 0 {
			count[i] = min(n, 1)
		}
	}
	if a.DType.Kind == 'O' && len(count) > 0 { // they are decoded in any case
		copy(count, a.Shape[1:])
		for i := range count {
			count[i] = min(count[i], ofList)
		}
	}
	return count
}

// told makes cells from the values of rows.
func (c *column) told(values []any, rows int64) []cellJSON {
	out := make([]cellJSON, rows)
	per := int64(len(values)) / max(1, rows)
	inner := int64(1)
	for _, n := range c.Inner {
		if n > 0 && inner > math.MaxInt64/n {
			inner = math.MaxInt64
			break
		}
		inner *= n
	}
	for i := range out {
		of := values[int64(i)*per : int64(i+1)*per]
		if len(c.Inner) == 0 {
			out[i] = c.cell(of[0])
			continue
		}
		if f, ok := first(of).(fault); ok {
			out[i] = cellJSON{Fault: string(f)}
			continue
		}
		out[i].Count = &inner
		for _, v := range of[:min(len(of), ofList)] {
			out[i].List = append(out[i].List, c.cell(v))
		}
	}
	return out
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// read reads rows of an array, each with as many elements as inside. A value
// that cannot be read becomes a fault in its place. An error is one that is
// not a fault of the array.
func (c *column) read(ctx context.Context, a *zarr.Array, from, end int64) ([]any, error) {
	inner := inside(a)
	per := int64(1)
	for _, n := range inner {
		per *= n
	}
	if *c.room -= cost(a, from, end); *c.room < 0 {
		return slices.Repeat([]any{tooMuch}, int((end-from)*per)), nil
	}
	window := func(from, end int64) ([]any, error) {
		count := append([]int64{end - from}, inner...)
		if slices.Contains(inner, 0) {
			return nil, nil
		}
		return a.Window(ctx, append([]int64{from}, make([]int64, len(inner))...), count)
	}
	values, err := window(from, end)
	if err == nil {
		return values, nil
	}
	// Return the rows of those chunks that can be read.
	for at := from; at < end; {
		next := end
		if c := a.Chunks[0]; at/c < (end-1)/c {
			next = (at/c + 1) * c
		}
		if next != end || at != from {
			var part []any
			if part, err = window(at, next); err == nil {
				values, at = append(values, part...), next
				continue
			}
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrChanged) {
			return nil, err
		}
		values = append(values, slices.Repeat([]any{fault(why(err))}, int((next-at)*per))...)
		at = next
	}
	return values, nil
}

func (c *column) cell(v any) cellJSON {
	if n, ok := v.(json.Number); ok && c.enum != nil {
		i, err := strconv.ParseInt(string(n), 10, 64)
		if err != nil || i < 0 || i >= int64(len(c.enum)) {
			return cellJSON{Fault: fmt.Sprintf("%s is not one of the %d names", cut(string(n), 40), len(c.enum))}
		}
		return cellJSON{Text: c.enum[i]}
	}
	return cellOf(v, 3)
}

// cellOf formats a value for people. It shows nested lists down to a depth.
func cellOf(v any, deep int) cellJSON {
	switch v := v.(type) {
	case fault:
		return cellJSON{Fault: string(v)}
	case []any:
		if deep > 0 {
			c := cellJSON{Count: new(int64(len(v)))}
			for _, x := range v[:min(len(v), ofList)] {
				c.List = append(c.List, cellOf(x, deep-1))
			}
			return c
		}
	case map[string]any:
		if to := refersTo(v); to != "" || v["_REFERENCE"] != nil {
			return cellJSON{Ref: format.Escape(cut(to, ofText)), Text: "/" + format.Escape(cut(to, ofText))}
		}
	}
	return cellJSON{Text: plain(v)}
}

func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return cut(string(v), 60)
	case string:
		return strings.ToValidUTF8(cut(v, ofText), "\uFFFD")
	case []byte:
		return cut(hex.EncodeToString(v[:min(len(v), ofText/2+1)]), ofText)
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return fmt.Sprintf("an object of %d", len(v))
	case fault:
		return string(v)
	}
	return ""
}

func (q *question) attributes() error {
	defer q.busy()()
	g := q.group()
	if q.err != nil {
		return q.err
	}
	return q.json(struct {
		Path string `json:"path"`
		attributesJSON
	}{format.Escape(g.path), attributesOf(g.attrs)})
}
