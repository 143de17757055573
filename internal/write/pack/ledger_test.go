package pack_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storetest"
)

// A time comes back as it was, to the nanosecond, or the result names that it does not.
func TestTimesComeBackOrAreNamed(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"f": "text"})
	at := func(sec, nsec int64) time.Time { return time.Unix(sec, nsec).UTC() }
	for _, then := range []time.Time{at(1_700_000_000, 0), at(1_700_000_000, 123_456_700), at(1_700_000_000, 123_456_789), at(1_700_000_000, 1), at(1<<31+1, 5e8), at(1<<32, 0),
		at(-1, 5e8), at(-1<<31-1, 0), at(-12e9, 0), at(5e10, 0), at(252e9, 0)} {
		lost := func(name string, sum pack.Summary, st *storetest.Mem) {
			t.Helper()
			src := archivetest.Open(t, st, name)
			for _, e := range archivetest.Entries(t, src) {
				named := slices.Contains(sum.Lost, "times") || slices.Contains(sum.Lost, "exact times")
				if e.Name == "f" && e.ModTime.Equal(then) == named {
					t.Errorf("%s: %v came back as %v, lost: %q", name, then, e.ModTime, sum.Lost)
				}
			}
		}
		refused := func(string, error) {} // by formats that cannot hold such a time
		if err := os.Chtimes(filepath.Join(dir, "f"), then, then); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range everyFormat {
			st := &storetest.Mem{}
			if !info.ModTime().Equal(then) {
				continue // the disk cannot hold it
			}
			if sum, err := pack.Pack(t.Context(), st, to, []string{dir}, pack.Options{OnError: refused}); err == nil {
				lost(to, sum, st)
			} else if !strings.Contains(err.Error(), "f: time: ") {
				t.Errorf("%s: %v: %v", to, then, err)
			}
			if sum, err := pack.Pack(t.Context(), st, "dated-"+to, []string{dir}, pack.Options{Time: at(1e9, 0)}); err != nil || slices.Contains(sum.Lost, "exact times") {
				t.Errorf("%s with a time that was asked for: %q, %v", to, sum.Lost, err)
			}
		}
		// A tar holds any time.
		st := &storetest.Mem{}
		if sum, err := pack.Pack(t.Context(), st, "x.tar", []string{dir}, pack.Options{Time: then}); err != nil || slices.Contains(sum.Lost, "exact times") {
			t.Fatal(sum.Lost, err)
		}
		for _, to := range everyFormat {
			if sum, err := pack.Convert(t.Context(), archivetest.Open(t, st, "x.tar"), st, "of-"+to, pack.Options{OnError: refused}); err == nil {
				lost("of-"+to, sum, st)
			} else if !strings.Contains(err.Error(), "f: time: ") {
				t.Errorf("%s: %v: %v", to, then, err)
			}
		}
	}
}
