// Package facts has what a catalogue records of recordings, and finds recordings by it.
package facts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/hierarchy"
)

// Facts are what a file of NWB says of itself.
type Facts struct {
	hierarchy.NWB
	// Missing says what is not there, because it is too long or could not be read.
	Missing []string `json:"missing,omitempty"`

	Text json.RawMessage `json:"-"` // all, as it is recorded

	all map[string]any // of Text
}

const (
	mostFacts = 64 << 10 // bytes of the JSON of facts
	mostOther = 16 << 10 // of these, for lists other than series and tables
	mostWord  = 1 << 10  // bytes of a text, which JSON may make six times as long
	mostRead  = 1 << 20  // of what another program may have written
)

// Of returns what is recorded of a recording. It cuts what is too long.
func Of(n *hierarchy.NWB) (f *Facts, err error) {
	f = &Facts{NWB: *n}
	if n.Err != nil {
		f.Missing = []string{f.cut(n.Err.Error())}
	}
	for _, text := range append(n.Texts(), &f.Version) {
		*text = f.cut(*text)
	}
	room := mostOther
	f.Session = n.Session
	f.Session.Experimenter = fit(f, "experimenters", n.Session.Experimenter, &room)
	f.Session.Keywords = fit(f, "keywords", n.Session.Keywords, &room)
	f.Devices = fit(f, "devices", n.Devices, &room)
	room = mostFacts - length(f.Session) - length(f.Subject) - length(f.Devices)
	f.Series = fit(f, "series", n.Series, &room)
	f.Tables = fit(f, "tables", n.Tables, &room)
	f.Text, err = json.Marshal(f)
	return f, err
}

func (f *Facts) cut(s string) string {
	if len(s) <= mostWord {
		return s
	}
	f.Missing = append(f.Missing, fmt.Sprintf("%d bytes of a text", len(s)-mostWord))
	return strings.ToValidUTF8(s[:mostWord], "")
}

// fit returns the first elements of a list whose JSON fits into what room is left.
func fit[T any](f *Facts, name string, all []T, room *int) []T {
	for i, x := range all {
		if *room -= length(x) + 1; *room < 0 {
			f.Missing = append(f.Missing, fmt.Sprintf("%d %s", len(all)-i, name))
			return all[:i]
		}
	}
	return all
}

func length(v any) int {
	b, _ := json.Marshal(v) // of texts and finite numbers
	return len(b)
}

// Parse returns the facts that a catalogue has of a file.
func Parse(l catalog.Location) (*Facts, error) {
	of, f := map[string]string{}, &Facts{}
	err := json.Unmarshal([]byte(l.HeaderText), &of)
	if f.Text = json.RawMessage(of[catalog.NWB]); err == nil && len(f.Text) > mostRead {
		err = fmt.Errorf("%d bytes, expected at most %d", len(f.Text), mostRead)
	}
	if err == nil {
		err = json.Unmarshal(f.Text, f)
	}
	if err == nil {
		err = json.Unmarshal(f.Text, &f.all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the facts in the catalogue cannot be read: %w: 'holdall catalog add --again' reads them again", format.Escape(l.Path), err)
	}
	return f, nil
}
