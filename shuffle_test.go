package holdall_test

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"testing"

	"bytes"
	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/databundle"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store/storetest"
	"os"
)

func TestShuffled(t *testing.T) {
	const n = 3000
	for _, f := range []*format.Format{caf.Format, databundle.Format} {
		t.Run(f.Name, func(t *testing.T) {
			ctx, st, name := t.Context(), &storetest.Mem{}, "x"+f.Extensions[0]
			w, err := f.Create(ctx, st, name, format.CreateOptions{Scratch: func() (sorter.Scratch, error) { return os.CreateTemp(t.TempDir(), "") }})
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				b := fmt.Appendf(nil, "content %d", i)
				if err := w.Add(ctx, format.Entry{Name: fmt.Sprintf("%02d/%04d", i/100, i), Size: int64(len(b))}, bytes.NewReader(b)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			a, err := holdall.Open(ctx, name, holdall.OpenOptions{Store: st, Formats: []*format.Format{f}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			order := func(o holdall.ShuffleOptions) (names []string) {
				o.Block = 1000
				for e, err := range a.Shuffled(ctx, o) {
					if err != nil {
						t.Fatal(err)
					}
					names = append(names, e.Name)
				}
				return names
			}
			one := order(holdall.ShuffleOptions{Seed: 1})
			if len(one) != n || slices.IsSorted(one) || !slices.Equal(one, order(holdall.ShuffleOptions{Seed: 1})) {
				t.Errorf("%d names, or in order, or another time others", len(one))
			}
			if slices.Equal(one, order(holdall.ShuffleOptions{Seed: 2})) {
				t.Error("another seed is the same order")
			}
			for _, skip := range []int64{1, 77, 1000, n - 1, n, n + 5} {
				if got := order(holdall.ShuffleOptions{Seed: 1, Skip: skip}); !slices.Equal(got, one[min(skip, n):]) {
					t.Errorf("taken up after %d it goes on otherwise", skip)
				}
			}
			var all []string
			for r := range 3 {
				part := order(holdall.ShuffleOptions{Seed: 5, Readers: 3, Reader: r})
				if len(part) < n/4 {
					t.Errorf("reader %d gets %d", r, len(part))
				}
				all = append(all, part...)
			}
			slices.Sort(all)
			if len(slices.Compact(all)) != n {
				t.Error("three readers do not share all files without overlap")
			}
			neighbours := 0
			for i := range one[1:] {
				if one[i] < one[i+1] && one[i][:2] == one[i+1][:2] {
					neighbours++
				}
			}
			if neighbours > n/3 {
				t.Errorf("%d of %d come behind one of their folder", neighbours, n)
			}
			read := 0
			err = a.ContentsOf(ctx, a.Shuffled(ctx, holdall.ShuffleOptions{Seed: 3}), func(e holdall.Entry, r io.Reader, err error) error {
				if err != nil {
					return err
				}
				b, err := io.ReadAll(r)
				var i int
				if fmt.Sscanf(e.Name[3:], "%d", &i); string(b) != fmt.Sprintf("content %d", i) {
					t.Errorf("%s is %q", e.Name, b)
				}
				read++
				return err
			})
			if err != nil || read != n {
				t.Errorf("%d are read, %v", read, err)
			}
			next, stop := iter.Pull2(a.Shuffled(ctx, holdall.ShuffleOptions{Readers: 2, Reader: 2}))
			defer stop()
			if _, err, ok := next(); !ok || err == nil || errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("reader 2 of 2: %v", err)
			}
		})
	}
}
