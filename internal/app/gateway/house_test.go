package gateway

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store/storekit"
)

// ages makes a file older.
func (w *world) ages(name string, by time.Duration) {
	w.t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(w.dir, name), at, at); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) writes(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o666); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) has(name string) bool {
	_, err := os.Stat(filepath.Join(w.dir, name))
	return err == nil
}

func TestUploadsEnd(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	b := w.b.(*bucket)
	const day = 24 * time.Hour
	old := oldUpload + day
	begin := func(key string) string {
		id, err := b.Begin(ctx, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if _, err := b.Part(ctx, key, id, n+1, upload(entry{data: key}, serve.Condition{})); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	all := func(id string) (names []string) {
		for _, name := range files(t, w.dir) {
			if base := filepath.Base(name); strings.HasPrefix(base, id) {
				names = append(names, "b.uploads/"+base)
			}
		}
		return names
	}
	record := func(key string, by time.Duration) string {
		return `{"key":"` + key + `","time":"` + time.Now().Add(-by).UTC().Format(time.RFC3339) + `"}` // a key in base64
	}
	for _, c := range []struct {
		what  string
		ends  bool
		after func(id string)
	}{
		{"old", true, func(string) {}},
		{"with a new part", false, func(id string) { w.ages("b.uploads/"+id+"-part-00002", oldUpload-day) }},
		{"with new content", false, func(id string) { w.writes("b.uploads/"+id+"-content-"+strings.Repeat("A", 26), "") }},
		{"that is being finished", false, func(id string) { w.writes("b.uploads/"+id+"-finish-"+strings.Repeat("A", 26), "") }},
		{"whose record was written again", false, func(id string) { w.ages("b.uploads/"+id+"-begun", 0) }},
		{"whose record says that it is new", false, func(id string) {
			w.writes("b.uploads/"+id+"-begun", record("a2V5", oldUpload-day))
			w.ages("b.uploads/"+id+"-begun", old)
		}},
		{"from the future", false, func(id string) {
			w.writes("b.uploads/"+id+"-begun", record("a2V5", -old))
			w.ages("b.uploads/"+id+"-begun", old)
		}},
		{"whose record is damaged", false, func(id string) {
			w.writes("b.uploads/"+id+"-begun", "{")
			w.ages("b.uploads/"+id+"-begun", old)
		}},
		{"whose removal was interrupted", true, func(id string) { os.Remove(filepath.Join(w.dir, "b.uploads", id+"-begun")) }},
	} {
		id := begin("key")
		for _, name := range all(id) {
			w.writes(name, strings.Replace(string(must(os.ReadFile(filepath.Join(w.dir, name)))), `"time":"2`, `"time":"1`, 1))
			w.ages(name, old)
		}
		// What others have put there stays.
		foreign := []string{"b.uploads/" + id + "-other", "b.uploads/" + id + "-part-1", "b.uploads/" + id + "-content-x", "b.uploads/x-begun", "b.uploads/" + id}
		for _, name := range foreign {
			w.writes(name, "")
			w.ages(name, old)
		}
		c.after(id)
		before := all(id)
		if err := b.endUploads(ctx); err != nil && c.what != "whose record is damaged" {
			t.Fatal(c.what, err)
		}
		for _, name := range foreign {
			if !w.has(name) {
				t.Errorf("%s: %s is gone", c.what, name)
			}
			os.Remove(filepath.Join(w.dir, name))
		}
		want := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(foreign, name) })
		ended := "b.uploads/" + id + "-ended"
		if c.ends {
			want = []string{ended}
		}
		if is := all(id); !slices.Equal(is, want) {
			t.Errorf("%s: it has %q, expected %q", c.what, is, want)
		}
		_, _, err := b.Parts(ctx, "key", id)
		if errors.Is(err, serve.ErrNoUpload) != c.ends {
			t.Errorf("%s: %v", c.what, err)
		}
		if !c.ends {
			for _, name := range want {
				os.Remove(filepath.Join(w.dir, name))
			}
			continue
		}
		w.ages(ended, day+time.Hour)
		if err := b.endUploads(ctx); err != nil || w.has(ended) {
			t.Errorf("%s: what says that it ended is left: %v", c.what, err)
		}
	}
	// Somebody who has begun to remove it was killed: clients are asked to come again, and it goes on.
	id := begin("key")
	w.writes("b.uploads/"+id+"-ended", "")
	part := func() error {
		_, err := b.Part(ctx, "key", id, 2, upload(entry{data: "new"}, serve.Condition{}))
		return err
	}
	if err := b.endUploads(ctx); err != nil || !errors.Is(part(), serve.ErrBusy) {
		t.Fatal(err)
	}
	w.ages("b.uploads/"+id+"-ended", day+time.Hour)
	if err := b.endUploads(ctx); err != nil || part() != nil {
		t.Fatal(err)
	}
	_, parts, err := b.Parts(ctx, "key", id)
	if err == nil {
		_, err = b.Finish(ctx, "key", id, parts, &serve.Upload{End: func() (string, map[string]string) { return entry{data: "keynew"}.etag(), nil }})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.is["key"] = entry{data: "keynew"}
	w.look()
	if left := all(""); len(left) > 0 && strings.Contains(strings.Join(left, " "), "-part-") {
		t.Errorf("left: %q", left)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestOrphansAreGivenUp(t *testing.T) {
	for _, there := range []bool{false, true} {
		ctx, w := t.Context(), newWorld(t, there)
		b := w.b.(*bucket)
		const day = 24 * time.Hour
		large := entry{data: strings.Repeat("large", large)}
		if err := errors.Join(w.put("small", entry{data: "small"}, serve.Condition{}), w.put("large", large, serve.Condition{}), w.g.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := w.put("waits", large, serve.Condition{}); err != nil {
			t.Fatal(err)
		}
		entries, err := fs.Glob(os.DirFS(w.dir), "b-00000-*.caf")
		if err != nil || len(entries) != 3 {
			t.Fatal(entries, err)
		}
		orphan, making, was, young, ancient := b.packing.Name(7), b.packing.Name(8), b.packing.Name(9), b.packing.Name(10), b.packing.Name(11)
		stay := append(entries, making, was, was+".added-"+strings.Repeat("X", 26), young, ancient, "b-00001-00001.caf", "b-00000-x.caf", "b-00000-7.caf", orphan+".other", "c-00000-00007.caf", "b-00000-00007.tar")
		for _, name := range append(stay, orphan, orphan+".parity") {
			if !w.has(name) {
				w.writes(name, name)
				w.ages(name, 2*day)
			}
		}
		w.ages(young, day-time.Hour)
		w.ages(ancient, 5*day)
		for _, name := range entries { // they are as old as orphans
			w.ages(name, 2*day)
		}
		w.ages("b.catalog/commits/0000000000000001", 4*day)
		for _, name := range must(fs.Glob(os.DirFS(w.dir), entries[0]+".added-*")) { // it is known nevertheless
			if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		b.makes(making, true)
		for range 2 {
			if err := b.giveUp(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := b.state(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Removals) != 1 || filepath.Base(b.book.AddressOf(s.Removals[0])) != orphan || !s.ToBeRemoved(orphan) {
				t.Fatal(s.Removals)
			}
		}
		c, err := book.Open(ctx, w.st, "b.catalog", book.Options{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := fleet.PlanNamed(ctx, c, "b")
		if err != nil {
			t.Fatal(err)
		}
		for i, grace := range []time.Duration{day, 0} {
			if waiting, removed, err := fleet.Tidy(ctx, fleet.Fleet{Book: c}, plan, grace); waiting != 1-i || removed != i || err != nil {
				t.Fatal(grace, waiting, removed, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range stay {
			if !w.has(name) {
				t.Errorf("%s is gone", name)
			}
		}
		if w.has(orphan) || w.has(orphan+".parity") {
			t.Error("the orphan is left")
		}
		// Whoever was held up for so long cannot add an archive that was given up.
		if !there {
			name := b.over.Load().live[0].names()[0]
			if n, err := b.book.GiveUp(ctx, []catalog.Archive{{Address: storekit.AddressOf(w.st, name)}}, func(*book.State) error { return nil }); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if err := b.sealOne(ctx, b.over.Load().live[0], nil); !errors.Is(err, errGivenUp) {
				t.Fatal(err)
			}
		}
		// A gateway whose claim was replaced gives up nothing.
		w.writes(orphan, orphan)
		w.ages(orphan, 2*day)
		c, err = book.Open(ctx, w.st, "b.catalog", book.Options{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Commit(ctx, func(*book.State) (*book.Commit, error) {
			return &book.Commit{Claim: book.NewClaim("other", "", "")}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, is := errors.AsType[*ClaimError](b.giveUp(ctx)); !is {
			t.Fatal("it goes on")
		}
	}
}
