package fleet

import (
	"crypto/md5"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/store"
)

// TestANightCostsWhatHasChanged states the goal: where events or an inventory say what is there, a night in which a
// thousandth of the objects has changed takes at most half a percent of the requests of the first run. All requests
// of plan and work count, also those to the catalogue.
func TestANightCostsWhatHasChanged(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	const n, changes = 20_000, 20
	key := func(i int) string { return fmt.Sprintf("2026/%02d/%02d/%06d", i%12, i%28, i) }
	for i := range n {
		s.S3.Put("from", key(i), fmt.Appendf(nil, "%d", i))
		s.S3.Touch("from", key(i), keptAt)
	}
	kinds := map[string]int{}
	open := func() { // as the command does, which looks for new commits now and then
		st, name, err := store.OpenAddress(t.Context(), fleettest.Catalogue)
		if err == nil {
			s.B, err = book.Open(t.Context(), st, name, book.Options{Write: true, Fresh: time.Minute})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.f.Book = s.B
	}
	requests := func(with Spec) (all int) {
		t.Helper()
		clear(kinds)
		s.sees(func(r *http.Request) {
			all++
			of := strings.Split(r.URL.Path+"//", "/")
			kinds[r.Method+" "+of[1]+"/"+of[2]+"/"+of[3]+r.URL.Query().Get("list-type")]++
		}, func() {
			open()
			p := s.plan(with)
			open()
			if sum := s.work(WorkOptions{}); sum.Objects != p.Objects || sum.Failed != 0 {
				t.Errorf("planned %+v, packed %+v", p, sum)
			}
		})
		return all
	}
	with := Spec{Sources: spec.Sources, Target: spec.Target}
	first := requests(with)
	changed := 0
	change := func() (events string) {
		for range changes {
			i := changed * 997 % n
			changed++
			s.S3.Put("from", key(i), fmt.Appendf(nil, "%d changed", i))
			events += records(fmt.Sprintf(s3Event, "ObjectCreated:Put", "from", key(i))) + "\n"
		}
		return events
	}
	night := func(what string, with Spec) {
		t.Helper()
		took := requests(with)
		t.Logf("%s: %d requests, the first run %d: %.2f %%, %v", what, took, first, 100*float64(took)/float64(first), kinds)
		if 200*took > first {
			t.Errorf("%s: %d requests, more than half a percent of %d", what, took, first)
		}
	}
	for i := range 3 {
		events := with
		events.Events = []string{s.file("events.json", change())}
		night(fmt.Sprint("events ", i), events)
	}
	for i := range 3 {
		change()
		var rows [][]string
		for i := range n {
			content := s.S3.Get("from", key(i))
			rows = append(rows, []string{"from", key(i), "v1", "true", "false", fmt.Sprint(len(content)), "", fmt.Sprintf("%x", md5.Sum(content)), ""})
		}
		inventory := with
		inventory.Inventory = s.inventory("CSV", schema, rows...)
		night(fmt.Sprint("inventory ", i), inventory)
	}
	s.reopen()
	if p := s.plan(with); p.Objects != 0 || p.Known != n {
		t.Errorf("after all nights: %+v", p)
	}
}
