package segment

import (
	"slices"
	"strings"
	"testing"
)

// fields are those of a description that begin with a prefix, as text.
func (d Description) fields(prefix string) (all []string) {
	for _, f := range d.Fields {
		if strings.HasPrefix(f.Name, prefix) {
			s := f.Name + "=" + f.Value
			if f.Problem != "" {
				s += "!"
			}
			all = append(all, s)
		}
	}
	return all
}

func TestRecordsAreDescribedWhole(t *testing.T) {
	s := newSample(t)
	r, seen := NewReader(s), map[string]bool{}
	for row := range s.last.Records() {
		d, err := r.Describe(t.Context(), RecordID{s.last.ID(), row.Number})
		if err != nil || d.Problem != "" {
			t.Fatal(row, err, d.Problem)
		}
		seen[d.Type] = true
		// The fields cover the record, each byte once, and no other byte.
		covered := make([]int, len(s.last.b))
		for _, f := range d.Fields {
			if f.Problem != "" {
				t.Errorf("%v %s: %v", d.ID, f.Name, f.Problem)
			}
			if f.Name == "as a stable id" {
				continue
			}
			for i := range f.Size {
				covered[f.Position+i]++
			}
		}
		for i, n := range covered {
			if want := i >= d.Position && i < d.Position+d.Size; (n == 1) != want || n > 1 {
				t.Fatalf("%v %s at %d, %d bytes: byte %d is in %d fields", d.ID, d.Type, d.Position, d.Size, i, n)
			}
		}
		if pad := d.end - d.Position - d.Size; pad < 0 || pad >= alignment {
			t.Errorf("%v %s: %d of %d bytes", d.ID, d.Type, d.Size, d.end-d.Position)
		}
	}
	if len(seen) != types {
		t.Error(seen)
	}
}

func TestADescriptionTellsWhatARecordRefersTo(t *testing.T) {
	s := newSample(t)
	r := NewReader(s)
	d, err := r.Describe(t.Context(), s.inner)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.fields(""); !slices.Equal(got, []string{
		"stable id=00020000-0000-0000-a000-000000000000:7", "template=template", "child=branch", "properties=bucket"}) {
		t.Error(got)
	}
	d, err = r.Describe(t.Context(), s.dif)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.fields("key"); !slices.Equal(got, []string{`key="two"`}) {
		t.Error(got)
	}
	// Without the other segment what leads there is wrong, and nothing else.
	for id := range s.raw {
		if id != s.last.ID() {
			delete(s.raw, id)
			delete(s.parsed, id)
		}
	}
	r = NewReader(s)
	if d, err = r.Describe(t.Context(), s.dif); err != nil {
		t.Fatal(err)
	}
	if got := d.fields(""); got[2] != `key="two"` || got[3] != "value=!" || got[4] != "base=branch" {
		t.Error(got)
	}
	if _, err := r.Describe(t.Context(), RecordID{s.last.ID(), 10000}); class(err) != Missing {
		t.Error(err)
	}
}
