package formattest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

var errInjected = errors.New("the store broke")

// mostFaults is the number of the last request that is made to fail. Some of the later requests,
// which are similar to each other, are skipped.
const mostFaults = 500

// testReadFaults makes each request of a reader fail, one by one. Each error must be returned,
// and what was read before must be correct.
func testReadFaults(t *testing.T, a *archive) {
	testkit.Serial(t)
	want, err := a.readAll(t.Context(), a.st, a.name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]func(st store.Store) error{
		"read": func(st store.Store) error {
			got, err := a.readAll(t.Context(), st, a.name, format.OpenOptions{})
			for n, b := range got {
				if !bytes.Equal(b, want[n]) {
					t.Errorf("%q: wrong content from a failing store: %s", n, differ(b, want[n]))
				}
			}
			return err
		},
		"search": func(st store.Store) error {
			r, err := a.f.Open(t.Context(), st, a.name, format.OpenOptions{FewLookups: true})
			if err != nil {
				return err
			}
			_, err = r.Lookup(t.Context(), "no such name")
			return errors.Join(err, r.Close())
		},
	}
	for what, check := range a.checks() {
		uses[what] = func(st store.Store) error {
			return check(t.Context(), st, a.name, func(format.Problem) {})
		}
	}
	for _, what := range sortedNames(uses) {
		t.Run(what, func(t *testing.T) {
			for k := 1; k <= mostFaults; k += 1 + k/20 {
				c := storetest.Count(storetest.Nth("", k, errInjected))
				err := uses[what](storetest.Fault(a.st, c.Inject))
				if n, _ := c.Injected(); n == 0 {
					break
				}
				if err := c.Surfaced(err); err != nil {
					t.Errorf("request %d failed: %v", k, err)
				}
			}
		})
	}
}

// testWriteFaults makes each request of a writer fail, one by one, and cuts writes short as a
// full disk does. Each error must be returned, and afterwards the archive must be complete or
// absent.
func testWriteFaults(t *testing.T, s *suite) {
	name := s.archiveName()
	large := s.most(5 << 18) // more than writers buffer
	samples := append(s.few(), file("large", noise(3, large)), file("after", []byte("it")))
	source := &storetest.Mem{}
	source.Put("source", noise(8, large))
	sectioned := func(st store.Store) error {
		w, err := s.create(t.Context(), st, name, format.CreateOptions{})
		if err != nil {
			return err
		}
		o, err := st.Open(t.Context(), "source")
		if err != nil {
			return errors.Join(err, w.Abort())
		}
		defer o.Close()
		for i, n := range []int64{100, int64(large), 100} {
			e := format.Entry{Name: fmt.Sprint(i), Size: n}
			if err := w.Add(t.Context(), e, kit.NewSection(t.Context(), o, 0, n)); err != nil {
				return errors.Join(err, w.Abort())
			}
		}
		_, err = w.Commit(t.Context())
		return errors.Join(err, w.Abort())
	}
	for _, c := range []struct {
		name  string
		write func(store.Store) error
		want  []sample
	}{
		{"from memory", func(st store.Store) error {
			_, err := s.write(t.Context(), st, name, format.CreateOptions{}, samples)
			return err
		}, samples},
		{"from sections", sectioned, []sample{
			file("0", noise(8, 100)), file("1", noise(8, large)), file("2", noise(8, 100)),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := source.Clone()
			if err := c.write(whole); err != nil {
				t.Fatal(err)
			}
			var size int64
			for n, b := range objects(t, whole) {
				if n != "source" {
					size = max(size, int64(len(b)))
				}
			}
			check := func(what string, inject storetest.Injector) (met bool) {
				st := source.Clone()
				count := storetest.Count(inject)
				err := c.write(storetest.Fault(st, count.Inject))
				if n, _ := count.Injected(); n == 0 {
					return false
				}
				if err := count.Surfaced(err); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				left := objects(t, st)
				if delete(left, "source"); len(left) > 0 {
					s.wantSamples(t, st, name, c.want)
				}
				return true
			}
			skip := 10
			if testkit.Race() {
				skip = 1
			}
			for k := 1; k <= mostFaults && check(fmt.Sprintf("request %d failed", k), storetest.Nth("", k, errInjected)); k += 1 + k/skip {
			}
			for _, op := range []string{"create", "commit", "abort"} {
				if !check(op+" failed", storetest.Nth(op, 1, errInjected)) {
					t.Errorf("no request failed: %s", op)
				}
			}
			for _, n := range []int64{0, 1, 100, size / 2, size - 1} {
				if !check(fmt.Sprintf("room for %d bytes of %d", n, size), storetest.CutWrites(n, errInjected)) {
					t.Errorf("%d bytes were written to a store with room for %d", size, n)
				}
			}
		})
	}
}
