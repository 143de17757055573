package oak

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// What a store costs to be opened: its list, and the end of each tar that counts; a
// segment is one more request.
func TestOpeningReadsTheEndOfEachTar(t *testing.T) {
	var log bytes.Buffer
	st := storetest.Trace(fixture(t, "multitar"), &log)
	a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, View: segmentsView, Formats: []*format.Format{Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	reads := regexp.MustCompile(`(?m)^(tail|read) .*data\d+[a-z]\.tar`).FindAllString(log.String(), -1)
	tars := 0
	for name := range objects(t, fixture(t, "multitar")) {
		if strings.HasSuffix(name, ".tar") {
			tars++
		}
	}
	slices.Sort(reads)
	if len(reads) != tars || len(slices.Compact(reads)) != tars {
		t.Errorf("%d tars, and these reads:\n%s", tars, log.String())
	}
	log.Reset()
	e, err := a.Lookup(t.Context(), "data00000a.tar/"+nameOfASegment(t, a))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.ReadAt(t.Context(), e, make([]byte, e.Size), 0); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "\n"); n > 4 { // with the graph, in two reads at most
		t.Errorf("a segment takes these requests:\n%s", log.String())
	}
}

func nameOfASegment(t *testing.T, a *holdall.Archive) string {
	t.Helper()
	for e, err := range a.ReadDir(t.Context(), "data00000a.tar") {
		if err != nil {
			t.Fatal(err)
		}
		_, id, _ := strings.Cut(e.Name, "/")
		return id
	}
	t.Fatal("no segment")
	return ""
}
