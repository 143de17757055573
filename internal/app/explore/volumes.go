package explore

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdall/holdall/format"
)

const shownVolumes = 500

// volumes describes the volumes of an archive: how many entries each has, as
// far as the survey has got, and the result of the last check.
func (h *Handler) volumes(ctx context.Context, v *view, names []string) Table {
	t := Table{Title: fmt.Sprintf("%d volumes", len(names)), Columns: []Column{{"Volume", ""}, {"Size", "size"}}, Rows: [][]any{}}
	if len(names) > shownVolumes {
		t.Note = fmt.Sprintf("These are the first %d.", shownVolumes)
	}
	v.survey.mu.Lock()
	d := v.survey.data
	v.survey.mu.Unlock()
	known := d != nil && d.spans != nil
	if known {
		t.Columns = append(t.Columns, Column{"Entries", "count"}, Column{"Contents", "size"})
	}
	good, found := h.verification(v.Name).perVolume()
	t.Columns = append(t.Columns, Column{"Check", ""}, Column{"Errors", "bad"})
	in := func(name string) (in held) {
		if known {
			if i, ok := d.spans.base[name]; ok {
				in = d.spans.held[i]
			}
		}
		return in
	}
	names = slices.Clone(names[:min(len(names), shownVolumes)])
	slices.SortStableFunc(names, func(a, b string) int { // volumes without contents come last
		x, y := in(a).entries > 0, in(b).entries > 0
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	for _, name := range names {
		size, err := v.in.VolumeSize(ctx, name)
		row := []any{format.Escape(name), size}
		if err != nil {
			row[1] = nil
		}
		if known {
			row = append(row, in(name).entries, in(name).bytes)
		}
		said := good
		switch n := found[name]; {
		case err != nil:
			said = why(err)
		case n > 0:
			said = "damaged"
		}
		t.Rows = append(t.Rows, append(row, said, found[name]))
	}
	return t
}

// held is the contents of a volume: entries with content there, and their
// stored bytes.
type held struct{ entries, bytes int64 }

// perVolume counts the errors of a check by volume, and returns the word for
// volumes without errors.
func (x *verification) perVolume() (good string, found map[string]int64) {
	found = map[string]int64{}
	if x == nil {
		return "not checked", found
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.problems {
		if p.Severity == format.Error.String() {
			found[p.volume]++
		}
	}
	switch {
	case x.state != "complete":
		return "not checked", found
	case found[""] > 0 || len(x.problems) >= maxProblems:
		return "", found // the volumes of some errors are unknown
	case x.quick:
		return "structure is sound", found
	}
	return "sound", found
}
