package segment

import (
	"maps"
	"testing"
)

// The parts of a node have the same children as the node, and without its template a node has the
// same values, in the order of the template.
func TestPartsOfNodesAreThoseOfTheNode(t *testing.T) {
	diffs, values := 0, 0
	for _, name := range []string{"multitar", "types", "v12-upgraded"} {
		st := loadStore(t, name)
		r, ctx := NewReader(st), t.Context()
		for id := range st.raw {
			s, err := r.Segment(ctx, id)
			if err != nil {
				continue
			}
			for row := range s.Records() {
				n, err := r.Node(ctx, RecordID{id, row.Number})
				if row.Type != NodeRecord || err != nil {
					continue
				}
				want, got := map[string]RecordID{}, map[string]RecordID{}
				for e, err := range n.Children(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					want[e.Name] = e.Value
				}
				for parts := []RecordID{n.ID()}; len(parts) > 0; parts = parts[1:] {
					p, err := r.Part(ctx, parts[0])
					if err != nil || len(p.Unnamed) > 0 {
						t.Fatalf("%+v, %v", p, err)
					}
					if len(p.Named) == 1 && len(p.Maps) == 1 {
						diffs++
					}
					for _, e := range p.Named {
						if _, met := got[e.Name]; !met {
							got[e.Name] = e.Value
						}
						if NameHash(e.Name) != mapHash(e.Name) {
							t.Errorf("hash of %q", e.Name)
						}
					}
					parts = append(parts, p.Maps...)
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s: %v, expected %v", n.ID(), got, want)
				}
				template, all, err := r.Nameless(ctx, n.ID())
				if err != nil || template != n.Template().ID || len(all) != len(n.Template().Properties) {
					t.Fatalf("%s: %s, %d properties, %v; expected %d", n.ID(), template, len(all), err, len(n.Template().Properties))
				}
				for _, p := range n.Template().Properties {
					q, _, err := n.Property(ctx, p.Name)
					if values++; err != nil || all[p.Stored].ID() != q.ID() || all[p.Stored].Multi != p.Multi {
						t.Errorf("%s: property %s: %v, expected %v; %v", n.ID(), p.Name, all[p.Stored].ID(), q.ID(), err)
					}
				}
			}
		}
	}
	if diffs == 0 || values == 0 {
		t.Errorf("%d diffs, %d values", diffs, values)
	}
}
