package holdall_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/pack"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A bucket copies what lies in long runs by itself, within and between archives.
func TestAStoreCopiesLongRunsItself(t *testing.T) {
	testkit.Long(t)
	const mib = 1 << 20
	var names []string
	contents := map[string][]byte{}
	add := func(name string, n int) {
		names = append(names, name)
		contents[name] = numbered(n, len(names))
	}
	for i := range 300 {
		add(fmt.Sprintf("a/%03d", i), i%7*100) // some are empty
	}
	add("b/large", 20*mib)
	add("b/less", 3*mib)
	for i := range 3000 {
		add(fmt.Sprintf("c/%04d", i), i%13*10)
	}
	add("d/large", 17*mib)

	for _, c := range []struct {
		from, to string
		o        holdall.PackOptions
		copied   int64 // at least
		read     int64 // at most
	}{
		{"x.caf", "y.caf", holdall.PackOptions{}, 40 * mib, 6 * mib},
		{"x.tar", "y.caf", holdall.PackOptions{}, 0, 48 * mib}, // without digests all is read
		{"x.tar", "y.caf", holdall.PackOptions{Plain: true}, 30 * mib, 24 * mib},
		{"x.caf", "y.tar", holdall.PackOptions{}, 0, 48 * mib},
	} {
		t.Run(fmt.Sprint(c.from, " to ", c.to, c.o.Plain), func(t *testing.T) {
			s, source, target := buckets(t)
			c.o.Formats = objectFormats
			var mem storetest.Mem
			for name, b := range contents {
				mem.Put(name, b)
			}
			if _, err := pack.Objects(t.Context(), source, c.from, objectsOf(&mem, store.List(t.Context(), &mem, "")), pack.Options{Formats: objectFormats, Plain: c.o.Plain}); err != nil {
				t.Fatal(err)
			}
			a, err := holdall.OpenStore(t.Context(), source, c.from, holdall.OpenOptions{Formats: objectFormats})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			s.Took()
			sum, err := holdall.ConvertStore(t.Context(), a, target, c.to, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if sum.Copied < c.copied || sum.Stored-sum.Copied > c.read {
				t.Errorf("%d bytes of %d were copied", sum.Copied, sum.Stored)
			}
			out, err := holdall.OpenStore(t.Context(), target, c.to, holdall.OpenOptions{Formats: objectFormats})
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			var found []string
			for e, err := range out.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, e.Name)
				r, err := out.OpenEntry(t.Context(), e)
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				if _, err := b.ReadFrom(r); err != nil || !bytes.Equal(b.Bytes(), contents[e.Name]) {
					t.Errorf("%s: found %d bytes (%v), want %d others", e.Name, b.Len(), err, len(contents[e.Name]))
				}
				r.Close()
			}
			if len(found) != len(names) {
				t.Errorf("found %d entries of %d", len(found), len(names))
			}
		})
	}
}
