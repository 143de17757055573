package lindi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// Index and lindi.json go to the front if the manifest showed how much space they need, otherwise
// after the members, also if that is found out in the middle of the index.
func TestFrontIsFilledOrAbandoned(t *testing.T) {
	const name, n = "x.lindi.tar", 2000
	content := noise(1, 1000)
	for what, c := range map[string]struct {
		as       string
		expected string // names in the manifest
		front    bool
	}{
		"members":                     {"members", "a/%05d", true},
		"more index than expected":    {"members", "", false},
		"keys":                        {"zarr", "a/%05d", true},
		"more of all than expected":   {"zarr", "", false},
		"a much longer name each":     {"members", "%d", false},
		"a much longer key each":      {"zarr", "%d", false},
		"shorter names than expected": {"members", "a/" + strings.Repeat("x", 50) + "%05d", true},
	} {
		t.Run(what, func(t *testing.T) {
			st := &storetest.Mem{}
			o := format.CreateOptions{Param: map[string]string{"as": c.as}}
			for i := range n {
				if c.expected != "" {
					o.Manifest = append(o.Manifest, format.Entry{Name: fmt.Sprintf(c.expected, i), Size: int64(len(content))})
				}
			}
			long := "a/%05d"
			if c.expected == "%d" {
				long = "a/" + strings.Repeat("y", 60) + "%05d"
			}
			w, err := create(t.Context(), st, name, o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := w.Add(t.Context(), format.Entry{Name: fmt.Sprintf(long, i), Size: int64(len(content))}, bytes.NewReader(content)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			a, err := openArchive(t.Context(), st, name, format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			if err := a.loadTable(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if at := a.entry.o; (at == frontLen) != c.front {
				t.Errorf("the index is at %d", at)
			}
			if a.entry.indexSum == "" || a.entry.indexText < n*100 {
				t.Errorf("the index has %d bytes and the digest %x", a.entry.indexText, a.entry.indexSum)
			}
			// All texts match their digests, and a walk over headers finds the same members.
			if err := verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) {
				if p.Code != format.Gap || c.expected != "%d" { // the space at the front is in the trash
					t.Error(p)
				}
			}); err != nil {
				t.Error(err)
			}
			found, err := a.scan(t.Context())
			if err != nil || found.Len() != n+3 || len(found.holes) > 0 {
				t.Errorf("%d members by their headers, %v, %v", found.Len(), found.holes, err)
			}
		})
	}
}
