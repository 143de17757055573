package holdall_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A countedDisk counts how often the archive x is opened.
type countedDisk struct {
	nearMem
	opened *atomic.Int64
}

func (d countedDisk) Open(ctx context.Context, name string) (store.Object, error) {
	if name == "x" {
		d.opened.Add(1)
	}
	return d.Mem.Open(ctx, name)
}

// Detecting the format, the format itself, the check and all reads share one open file.
func TestAnArchiveOnADiskIsOpenedOnce(t *testing.T) {
	files := testkit.Tree(t, t.TempDir(), map[string]string{"a": "content", "d/b": "other"})
	for _, kind := range []string{"caf", "tar", "zip", "rvn"} {
		t.Run(kind, func(t *testing.T) {
			st := countedDisk{nearMem{&storetest.Mem{}}, new(atomic.Int64)}
			if _, err := holdall.Pack(t.Context(), "x", []string{files}, holdall.PackOptions{Store: st, Format: kind}); err != nil {
				t.Fatal(err)
			}
			once := func(what string) {
				t.Helper()
				if n := st.opened.Swap(0); n != 1 {
					t.Errorf("%s opens the archive %d times", what, n)
				}
			}
			st.opened.Store(0)
			a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
			if err != nil {
				t.Fatal(err)
			}
			for e, err := range a.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind.HasContent() {
					if err := a.WriteContent(t.Context(), io.Discard, e); err != nil {
						t.Error(err)
					}
				}
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			once("reading")
			if sum, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) { t.Error(p) }); err != nil || sum.Entries == 0 {
				t.Errorf("%+v, %v", sum, err)
			}
			once("verify")
		})
	}
}
