package pack_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A bucket copies what lies in long runs by itself, within and between archives.
func TestAStoreCopiesLongRunsItself(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const mib = 1 << 20
	want := map[string][]byte{}
	var mem storetest.Mem
	add := func(name string, n int) {
		want[name] = numbered(n, len(want))
		mem.Put(name, want[name])
	}
	for i := range 300 {
		add(fmt.Sprintf("a/%03d", i), i%7*100) // some are empty
	}
	add("b/large", 18*mib)
	add("b/less", 3*mib)
	for i := range 3000 {
		add(fmt.Sprintf("c/%04d", i), i%13*10)
	}
	add("d/large", 17*mib)
	s, source, target := buckets(t)
	for _, name := range []string{"x.caf", "x.tar"} {
		var to storetest.Mem
		if _, err := pack.Objects(t.Context(), &to, name, objectsOf(&mem, storekit.List(t.Context(), &mem, "")), pack.Options{Formats: objectFormats}); err != nil {
			t.Fatal(err)
		}
		s.Put("source", name, to.Get(name))
	}
	for _, c := range []struct {
		from, to     string
		plain        bool
		copied, read int64 // at least and at most
	}{
		{"x.caf", "y.caf", false, 38 * mib, 6 * mib},
		{"x.tar", "y.caf", false, 0, 48 * mib}, // without digests all is read
		{"x.tar", "y.caf", true, 28 * mib, 24 * mib},
		{"x.caf", "y.tar", false, 0, 48 * mib},
	} {
		t.Run(fmt.Sprint(c.from, " to ", c.to, c.plain), func(t *testing.T) {
			in := archivetest.Open(t, source, c.from)
			sum, err := pack.Convert(t.Context(), in, target, c.to, pack.Options{Formats: objectFormats, Plain: c.plain})
			if err != nil {
				t.Fatal(err)
			}
			if sum.Copied < c.copied || c.copied == 0 && sum.Copied != 0 || sum.Stored-sum.Copied > c.read {
				t.Errorf("%d bytes of %d were copied", sum.Copied, sum.Stored)
			}
			if out := holds(t, target, c.to, want); !slices.Equal(namesIn(t, out), namesIn(t, in)) {
				t.Error("the entries are in another order")
			}
		})
	}
}
