package tar

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// The second volumes begin with the rest of d/2; see testdata/README.md.
func TestALaterVolumeSaysWhichFileGoesOnInIt(t *testing.T) {
	for name, want := range map[string]struct {
		entries []string
		from    int
	}{
		"volume2-gnu.tar":   {[]string{"d/3"}, 5632},
		"volume2-posix.tar": {[]string{"d/GNUFileParts/2.2", "d/3"}, 5632},
	} {
		st := &storetest.Mem{}
		st.Put(name, testkit.Read(t, "testdata/"+name))
		var found []string
		err := verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) {
			found = append(found, fmt.Sprint(p.Severity, " ", p.Code, " ", p.Class, " ", p.Entry, ": ", p.Message))
		})
		said := fmt.Sprintf("error missing-volume continued d/2: this is a later volume of an archive: only the bytes from %d on, of 11000, of this file can be here", want.from)
		if err != nil || !slices.Equal(found, []string{said}) {
			t.Errorf("%s: %q, %v", name, found, err)
		}
		r, err := open(t.Context(), st, name, format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var entries []string
		for e, err := range r.Entries(t.Context()) {
			if err != nil || e.Fault != nil {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
			entries = append(entries, e.Name)
		}
		if p := r.Can().Doubt(); !slices.Equal(entries, want.entries) || p == nil || p.Code != format.MissingVolume {
			t.Errorf("%s: %q, in doubt %v", name, entries, p)
		}
	}
}

// GNU tar announces a file at the beginning of a volume although none of it is in the one before.
func TestAFileThatBeginsInALaterVolumeIsWhole(t *testing.T) {
	first := make(block, blockSize)
	copy(first, "d/3")
	copy(first[124:], "00000000006\x00")
	first[156] = typeContinued
	copy(first[369:], "00000000000\x00")
	copy(first[148:], fmt.Sprintf("%06o\x00 ", tarhead.Sum(first)))
	b := testkit.Read(t, "testdata/volume2-gnu.tar")
	st := &storetest.Mem{}
	st.Put("x.tar", append(first, b[len(b)-2048:]...))
	if err := verify(t.Context(), st, "x.tar", format.OpenOptions{}, func(p format.Problem) { t.Error(p) }); err != nil {
		t.Fatal(err)
	}
}
