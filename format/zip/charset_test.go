package zip

import (
	"slices"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// The names of cp932.zip are in that character set, but for one that is marked as UTF-8; see
// testdata/README.md.
func TestNamesInACharacterSet(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x.zip", fixture(t, "cp932.zip"))
	for set, want := range map[string][]string{
		"cp932": {"日本/表.txt", "plain.txt", "ü.txt"},
		"":      {"ô·û{/ò\\.txt", "plain.txt", "ü.txt"},
	} {
		r, err := open(t.Context(), st, "x.zip", format.OpenOptions{Param: map[string]string{"charset": set}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got []string
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", set, got, want)
		}
	}
}
