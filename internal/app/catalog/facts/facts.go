// Package facts has what a catalogue records of recordings, and finds recordings by it.
package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/hierarchy"
)

// Facts are what a file of NWB says of itself.
type Facts struct {
	hierarchy.NWB
	Error string `json:"error,omitempty"` // the error for parts that could not be read
	// Left counts what is not there because it would be too long, by the names of members. A text that was cut
	// counts as one of "texts".
	Left map[string]int `json:"left_out,omitempty"`
}

const (
	mostFacts = 64 << 10 // bytes of the JSON of facts
	mostOther = 16 << 10 // of these, for lists other than series and tables
	mostWord  = 1 << 10  // bytes of a text, which JSON may make six times as long

	mostRead = 1 << 20 // of what another program may have written
)

// Of returns what is recorded of a recording. The lists of the description may be cut.
func Of(n *hierarchy.NWB) *Facts {
	f := &Facts{NWB: *n, Left: map[string]int{}}
	if n.Err != nil {
		f.Error = f.cut(n.Err.Error())
	}
	f.Version = f.cut(f.Version)
	for _, t := range f.Texts() {
		*t = f.cut(*t)
	}
	other := mostOther
	f.Session.Experimenter = fit(f, "experimenter", f.Session.Experimenter, &other)
	f.Session.Keywords = fit(f, "keywords", f.Session.Keywords, &other)
	f.Devices = fit(f, "devices", f.Devices, &other)
	room := mostFacts - length(f.Session) - length(f.Subject) - length(f.Devices)
	f.Series = fit(f, "series", f.Series, &room)
	f.Tables = fit(f, "tables", f.Tables, &room)
	return f
}

// Incomplete says what is not there, or returns "".
func (f *Facts) Incomplete() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(f.Left)) {
		all = append(all, fmt.Sprintf("%d %s", f.Left[name], name))
	}
	text := strings.Join(all, ", ")
	if text != "" {
		text = "its facts are too long: without " + text
	}
	if f.Error != "" {
		text = strings.TrimPrefix(text+"; its facts cannot be read whole: "+f.Error, "; ")
	}
	return text
}

func (f *Facts) cut(s string) string {
	if len(s) <= mostWord {
		return s
	}
	f.Left["texts"]++
	return strings.ToValidUTF8(s[:mostWord], "")
}

// fit returns the first elements of a list, as long as their JSON fits into what room is left.
func fit[T any](f *Facts, name string, all []T, room *int) []T {
	for i, x := range all {
		n := length(x) + 1
		if n > *room {
			f.Left[name] = len(all) - i
			return all[:i]
		}
		*room -= n
	}
	return all
}

func length(v any) int {
	b, _ := json.Marshal(v) // of texts and finite numbers
	return len(b)
}

// Text returns the facts as JSON.
func (f *Facts) Text() (string, error) {
	b, err := json.Marshal(f)
	return string(b), err
}

// Parse returns the facts that a catalogue has of a file.
func Parse(l catalog.Location) (*Facts, error) {
	of, f := map[string]string{}, &Facts{}
	err := json.Unmarshal([]byte(l.HeaderText), &of)
	if text := of[catalog.NWB]; err == nil {
		if len(text) > mostRead {
			err = fmt.Errorf("%d bytes, expected at most %d", len(text), mostRead)
		} else {
			err = json.Unmarshal([]byte(text), f)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the facts in the catalogue cannot be read: %w: 'holdall catalog add --again' reads them again", format.Escape(l.Path), err)
	}
	return f, nil
}
