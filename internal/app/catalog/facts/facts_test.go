package facts

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/hierarchy"
)

func recording() *hierarchy.NWB {
	rate, long := 30000.0, int64(12)
	return &hierarchy.NWB{
		Version: "2.7.0",
		Session: hierarchy.Session{Identifier: "one", StartTime: "2026-01-02T03:04:05+00:00", Lab: "A lab", Keywords: []string{"made", "up"}},
		Subject: &hierarchy.Subject{ID: "m1", Species: "Mus musculus", Sex: "F"},
		Devices: []hierarchy.Device{{Name: "probe", Type: "Device", Manufacturer: "nobody"}, {Name: "lamp", Type: "Device"}},
		Series: []hierarchy.Series{
			{Path: "acquisition/raw", Type: "ElectricalSeries", Shape: []int64{4000, 32}, DType: "<i2", Unit: "volts", Rate: &rate},
			{Path: "acquisition/x", Type: "TimeSeries", Shape: []int64{12}, DType: "<f8", Unit: "m/s", Timestamps: &long},
		},
		Tables: []hierarchy.Table{{Path: "units", Type: "Units", Rows: 150, Columns: []string{"spike_times"}}},
	}
}

// stored returns facts as a catalogue has them.
func stored(t testing.TB, n *hierarchy.NWB) catalog.Location {
	t.Helper()
	f, err := Of(n)
	if err != nil {
		t.Fatal(err)
	}
	l := catalog.Location{Path: "a/b.nwb", HeaderText: catalog.FactsText(string(f.Text))}
	if !l.HasFacts() {
		t.Fatalf("%q has no facts", l.HeaderText)
	}
	return l
}

func TestConditions(t *testing.T) {
	f, err := Parse(stored(t, recording()))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"version = 2.7.0":                               true,
		"session.identifier=one":                        true,
		"session.identifier = two":                      false,
		"session.identifier != two":                     true,
		"session.identifier != one":                     false,
		`session.lab = "A lab"`:                         true,
		`session.lab = 'a lab'`:                         false,
		`session.lab ~ 'a LAB'`:                         true,
		`session.lab = ""`:                              false,
		"session.start_time >= 2026-01-02":              true,
		"session.start_time < 2026-01-02":               false,
		"session.institution = x":                       false,
		"session.institution != x":                      false, // it is not known
		"session.keywords = up":                         true,
		"session.keywords != up":                        false,
		"session.keywords != down":                      true,
		"subject.species ~ mus and subject.sex=F":       true,
		"subject.species ~ mus and subject.sex=M":       false,
		"device.name = lamp":                            true,
		"device.name = lamp AND device.type = X":        false,
		"device.name=lamp and device.manufacturer ~ no": false, // another device has it
		"series.rate >= 30000":                          true,
		"series.rate > 3e4":                             false,
		"series.rate != 1":                              true,
		"series.unit = volts and series.rate>1":         true,
		"series.unit = m/s and series.rate > 1":         false,
		"series.unit = m/s and device.name = lamp":      true,
		"series.shape = 32":                             true,
		"series.shape = 33":                             false,
		"series.shape > 3999":                           true,
		"series.dtype = <i2":                            true,
		"series.duration > 0":                           false,
		"series.timestamps <= 12":                       true,
		"table.rows >= 150 and table.path = units":      true,
		"table.columns = spike_times":                   true,
	} {
		q, err := ParseQuery(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := q.Holds(f); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if q, err := ParseQuery("subject.sex != M"); err != nil || q.Holds(&Facts{}) {
		t.Errorf("the sex of nobody: %v", err)
	}
	for text, want := range map[string]string{
		"":                                "session.lab, ",
		"foo = 1":                         "series.rate, ",
		"series.start = 1":                "series.rate, ",
		"series.rate":                     "expected one of != <= >= = < > ~ after series.rate",
		"series.rate =":                   "expected a value after series.rate =",
		"series.rate = fast":              "series.rate is a number",
		"series.rate ~ 1":                 "series.rate is a number",
		`session.lab = "A lab`:            `expected a " at the end`,
		"session.lab = A lab":             `expected 'and' or the end after "A", found "lab"`,
		"session.lab = A and":             "series.rate, ",
		strings.Repeat("x", 5000):         "expected at most 4096",
		"session.lab = A or version = 2":  "expected 'and'",
		"session.lab == A and version = ": "expected a value",
	} {
		if _, err := ParseQuery(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30s: %v", text, err)
		}
	}
}

// What is too long is left out, and said. It never says that it is whole.
func TestFactsAreBounded(t *testing.T) {
	n := recording()
	n.Session.Description = strings.Repeat("\x01", 1<<20)
	for range 9000 {
		n.Session.Keywords = append(n.Session.Keywords, "again")
		n.Devices = append(n.Devices, n.Devices...)[:min(2*len(n.Devices), 5000)]
		n.Series = append(n.Series, n.Series[0])
		n.Tables = append(n.Tables, n.Tables[0])
	}
	n.Err = errors.New("one text cannot be read")
	f, err := Parse(stored(t, n))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(f.Missing, ", ")
	for _, want := range []string{"1047552 bytes of a text", " keywords", " devices", fmt.Sprint(9002-len(f.Series), " series"), fmt.Sprint(9001-len(f.Tables), " tables"), "one text cannot be read"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q does not have %q", said, want)
		}
	}
	if len(f.Text) > mostFacts+mostWord || len(f.Series) < 100 {
		t.Errorf("%d bytes, %d series", len(f.Text), len(f.Series))
	}
	if whole, err := Of(recording()); err != nil || len(whole.Missing) > 0 || !reflect.DeepEqual(whole.Series, recording().Series) {
		t.Errorf("%+v, %v", whole, err)
	}
	// Each text is as long as possible.
	for _, text := range n.Texts() {
		*text = strings.Repeat("\x01", 1<<20)
	}
	if _, err := Parse(stored(t, n)); err != nil {
		t.Error(err)
	}
	l := stored(t, n)
	l.HeaderText = catalog.FactsText(strings.Repeat("x", mostRead+1))
	if _, err := Parse(l); err == nil || !strings.Contains(err.Error(), "expected at most 1048576") {
		t.Error(err)
	}
}

// No facts, whoever wrote them, do more than fail.
func FuzzFacts(f *testing.F) {
	is, err := Of(recording())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(is.Text), "series.rate > 1 and series.shape = 32")
	f.Add(`{"series":[null,{"shape":null,"rate":1e999}],"subject":null}`, `session.lab ~ "x y" and device.name != ''`)
	f.Add(`[]`, "version<1")
	f.Fuzz(func(t *testing.T, text, query string) {
		l := catalog.Location{Path: "x.nwb", HeaderText: catalog.FactsText(text)}
		is, err := Parse(l)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.nwb: ") {
				t.Fatal(err)
			}
			is = &Facts{}
		}
		if q, err := ParseQuery(query); err == nil {
			q.Holds(is)
		}
	})
}

// A search looks at all recordings.
func BenchmarkSearch(b *testing.B) {
	n := recording()
	for len(n.Series) < 20 {
		n.Series = append(n.Series, n.Series[1])
	}
	l := stored(b, n)
	q, err := ParseQuery("series.rate > 1e9 and series.unit = volts")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, err := Parse(l)
		if err != nil || q.Holds(f) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(l.HeaderText)), "B")
}
