package hierarchy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/zarr"
)

// An NWB describes an NWB file (Neurodata Without Borders).
type NWB struct {
	Version string   `json:"version"`
	Session Session  `json:"session"`
	Subject *Subject `json:"subject,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Series  []Series `json:"series,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`

	Err error `json:"-"` // the error for parts that could not be read
}

// A Session is the time, the place and the people of a recording.
type Session struct {
	Identifier   string   `json:"identifier,omitempty"`
	Description  string   `json:"description,omitempty"`
	StartTime    string   `json:"start_time,omitempty"`
	ID           string   `json:"session_id,omitempty"`
	Experiment   string   `json:"experiment_description,omitempty"`
	Experimenter []string `json:"experimenter,omitempty"`
	Institution  string   `json:"institution,omitempty"`
	Lab          string   `json:"lab,omitempty"`
	Keywords     []string `json:"keywords,omitempty"`
}

// A Subject is the person or animal that was recorded.
type Subject struct {
	ID          string `json:"subject_id,omitempty"`
	Species     string `json:"species,omitempty"`
	Strain      string `json:"strain,omitempty"`
	Genotype    string `json:"genotype,omitempty"`
	Sex         string `json:"sex,omitempty"`
	Age         string `json:"age,omitempty"`
	DateOfBirth string `json:"date_of_birth,omitempty"`
	Weight      string `json:"weight,omitempty"`
	Description string `json:"description,omitempty"`
}

// A Device is a device used for the recording.
type Device struct {
	Name         string `json:"name"`
	Type         string `json:"type"`
	Description  string `json:"description,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
}

// A Series is a recording over time; the first axis is time.
type Series struct {
	Path       string   `json:"path"`
	Type       string   `json:"type"`
	Shape      []int64  `json:"shape,omitempty"`
	DType      string   `json:"dtype,omitempty"`
	Unit       string   `json:"unit,omitempty"`
	Conversion *float64 `json:"conversion,omitempty"` // from elements to units
	Rate       *float64 `json:"rate,omitempty"`       // in hertz
	Timestamps *int64   `json:"timestamps,omitempty"` // how many there are
	Start      *float64 `json:"start,omitempty"`      // in seconds
	Duration   *float64 `json:"duration,omitempty"`   // in seconds
	Error      string   `json:"error,omitempty"`

	last *float64 // the last timestamp
}

// A Table is a table with a row for each unit, electrode, trial and so on.
type Table struct {
	Path    string   `json:"path"`
	Type    string   `json:"type"`
	Rows    int64    `json:"rows"`
	Columns []string `json:"columns"`
}

const (
	textLimit = 1 << 20 // bytes of a text, or of a list of texts
	atOnce    = 32      // values that are read at a time
)

// NWB returns the description of an NWB file, or nil if the hierarchy is not
// one. For the first timed series it reads the start time, and for those with
// timestamps also the duration, from the first and the last timestamp.
func (h *Hierarchy) NWB(ctx context.Context, timed int) (*NWB, error) {
	attrs, err := zarr.Attributes(ctx, h, "")
	if Text(attrs["neurodata_type"]) != "NWBFile" {
		return nil, ctx.Err()
	}
	n := &NWB{Version: Text(attrs["nwb_version"]), Err: err}
	if _, ok := h.array["general/subject"]; ok {
		n.Subject = &Subject{}
	}
	for _, at := range slices.Sorted(maps.Keys(h.array)) {
		if !h.array[at] && at != "" {
			n.add(ctx, h, at)
		}
	}
	err = n.read(ctx, h, timed)
	for i := range n.Series {
		n.Series[i].end()
	}
	return n, err
}

// add adds the data of a group.
func (n *NWB) add(ctx context.Context, h *Hierarchy, at string) {
	attrs, err := zarr.Attributes(ctx, h, at)
	if err != nil {
		n.fail(err)
	}
	typ := Text(attrs["neurodata_type"])
	if typ == "" {
		return
	}
	if path.Dir(at) == "general/devices" {
		n.Devices = append(n.Devices, Device{path.Base(at), typ, Text(attrs["description"]), Text(attrs["manufacturer"])})
	}
	has := func(name string) bool {
		_, ok := h.array[at+"/"+name]
		return ok
	}
	if columns, ok := attrs["colnames"].([]any); ok && has("id") {
		t := Table{Path: at, Type: typ, Columns: append([]string{}, texts(columns)...)}
		if id, err := zarr.Open(ctx, h, at+"/id"); err != nil {
			n.fail(err)
		} else if len(id.Shape) > 0 {
			t.Rows = id.Shape[0]
		}
		n.Tables = append(n.Tables, t)
	}
	// The types that a type extends are not looked up. A series has two of three
	// signs.
	signs := 0
	for _, sign := range []bool{has("data"), has("starting_time") || has("timestamps"), strings.HasSuffix(typ, "Series")} {
		if sign {
			signs++
		}
	}
	if signs >= 2 {
		n.Series = append(n.Series, h.series(ctx, at, typ))
	}
}

// series returns the description of a series, as far as it requires no reading
// of values.
func (h *Hierarchy) series(ctx context.Context, at, typ string) Series {
	s := Series{Path: at, Type: typ}
	if data := s.open(ctx, h, "data"); data != nil {
		s.Shape, s.DType, s.Unit, s.Conversion = data.Shape, data.DType.String(), Text(data.Attrs["unit"]), number(data.Attrs["conversion"])
	}
	if start := s.open(ctx, h, "starting_time"); start != nil {
		s.Rate = number(start.Attrs["rate"])
	}
	if times := s.open(ctx, h, "timestamps"); times != nil {
		count := times.Elements()
		s.Timestamps = &count
	}
	return s
}

// open opens an array of a series. It returns nil if there is none.
func (s *Series) open(ctx context.Context, h *Hierarchy, name string) *zarr.Array {
	if _, ok := h.array[s.Path+"/"+name]; !ok {
		return nil
	}
	a, err := zarr.Open(ctx, h, s.Path+"/"+name)
	s.fail(err)
	return a
}

func (n *NWB) fail(err error) { n.Err = errors.Join(n.Err, err) }

func (s *Series) fail(err error) {
	if err != nil && s.Error == "" {
		s.Error = err.Error()
	}
}

// end completes a series after everything has been read.
func (s *Series) end() {
	switch {
	case s.Rate != nil && *s.Rate > 0 && len(s.Shape) > 0:
		s.Duration = finite(float64(s.Shape[0]) / *s.Rate)
	case s.Start != nil && s.last != nil:
		s.Duration = finite(*s.last - *s.Start)
	}
}

// A job reads a value. If that fails, it calls failed.
type job struct {
	read   func(context.Context) error
	failed func(error)
	err    error
}

// read reads values, many at a time.
func (n *NWB) read(ctx context.Context, h *Hierarchy, timed int) error {
	var jobs []*job
	lines := func(at string, use func([]string)) {
		if !h.array[at] {
			return
		}
		jobs = append(jobs, &job{read: func(ctx context.Context) error {
			all, err := h.lines(ctx, at)
			if err == nil {
				use(all)
			}
			return err
		}, failed: n.fail})
	}
	for _, x := range n.texts() {
		lines(x.at, func(all []string) { *x.to = strings.Join(all, "\n") })
	}
	lines("general/experimenter", func(all []string) { n.Session.Experimenter = all })
	lines("general/keywords", func(all []string) { n.Session.Keywords = all })
	for i := range n.Series[:min(timed, len(n.Series))] {
		s := &n.Series[i]
		element := func(name string, at int64, to **float64) {
			jobs = append(jobs, &job{read: func(ctx context.Context) (err error) {
				*to, err = h.element(ctx, s.Path+"/"+name, at)
				return err
			}, failed: s.fail})
		}
		switch {
		case s.Rate != nil:
			element("starting_time", 0, &s.Start)
		case s.Timestamps != nil && *s.Timestamps > 0:
			element("timestamps", 0, &s.Start)
			element("timestamps", *s.Timestamps-1, &s.last)
		}
	}
	err := pipe.Each(ctx, pipe.All(jobs), atOnce, func(ctx context.Context, j *job) error {
		j.err = j.read(ctx)
		return ctx.Err()
	})
	for _, j := range jobs {
		if j.err != nil {
			j.failed(j.err)
		}
	}
	return err
}

type textAt struct {
	at string
	to *string
}

// texts returns where texts are stored, and where they go.
func (n *NWB) texts() []textAt {
	s, who := &n.Session, &Subject{}
	if n.Subject != nil {
		who = n.Subject
	}
	return []textAt{
		{"identifier", &s.Identifier},
		{"session_description", &s.Description},
		{"session_start_time", &s.StartTime},
		{"general/session_id", &s.ID},
		{"general/experiment_description", &s.Experiment},
		{"general/institution", &s.Institution},
		{"general/lab", &s.Lab},
		{"general/subject/subject_id", &who.ID},
		{"general/subject/species", &who.Species},
		{"general/subject/strain", &who.Strain},
		{"general/subject/genotype", &who.Genotype},
		{"general/subject/sex", &who.Sex},
		{"general/subject/age", &who.Age},
		{"general/subject/date_of_birth", &who.DateOfBirth},
		{"general/subject/weight", &who.Weight},
		{"general/subject/description", &who.Description},
	}
}

// Texts returns the texts of the session and the subject, but for lists.
func (n *NWB) Texts() (all []*string) {
	for _, x := range n.texts() {
		all = append(all, x.to)
	}
	return all
}

// lines reads an array of texts.
func (h *Hierarchy) lines(ctx context.Context, at string) ([]string, error) {
	a, err := zarr.Open(ctx, h, at)
	if err != nil {
		return nil, err
	}
	a.Limit = textLimit
	if a.Numeric() && a.Elements() == 1 {
		v, err := h.element(ctx, at, 0)
		if v == nil || err != nil {
			return nil, err
		}
		return []string{strconv.FormatFloat(*v, 'g', -1, 64)}, nil
	}
	values, err := a.Values(ctx)
	return texts(values), err
}

// element reads an element of an array with one axis. It returns nil if it is
// not a number.
func (h *Hierarchy) element(ctx context.Context, at string, index int64) (*float64, error) {
	a, err := zarr.Open(ctx, h, at)
	if err != nil {
		return nil, err
	}
	one := []int64{1}
	v, err := a.Sample(ctx, []int64{index}, one, one)
	if err != nil {
		return nil, err
	}
	return finite(v[0]), nil
}

// finite returns a number if JSON can represent it, and otherwise nil.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// number returns the value of an attribute, if it is a number.
func number(v any) *float64 {
	n, _ := v.(json.Number)
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return finite(f)
}

// Text returns the value of an attribute that is a text, or "" if it is not.
func Text(v any) string {
	s, _ := v.(string)
	return strings.ToValidUTF8(s, "\uFFFD")
}

// texts returns the texts among values.
func texts(values []any) []string {
	var all []string
	for _, v := range values {
		if _, ok := v.(string); ok {
			all = append(all, Text(v))
		}
	}
	return all
}
