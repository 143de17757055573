package holdall_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestParityAndIndexesWithoutAPlaceAreWrittenBesideTheArchive(t *testing.T) {
	ctx := t.Context()
	onDisk := filepath.Join(t.TempDir(), "x.tar")
	for what, c := range map[string]struct {
		st   store.Store
		name string
	}{"of an address": {nil, onDisk}, "of a name in a store": {&storetest.Mem{}, "x.tar"}} {
		pack := func(content string) {
			if _, err := holdall.Pack(ctx, c.name, []string{tree(t, map[string]string{"a": content})}, holdall.PackOptions{Store: c.st}); err != nil {
				t.Fatal(err)
			}
		}
		pack("alpha")
		update := func(o holdall.ProtectOptions) (holdall.Protection, error) {
			o.Store, o.Update = c.st, true
			return holdall.Protect(ctx, []string{c.name}, "", o)
		}
		if _, err := update(holdall.ProtectOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: without parity, an update: %v", what, err)
		}
		if _, err := holdall.Protect(ctx, []string{c.name}, "", holdall.ProtectOptions{Store: c.st, Loss: .5}); err != nil {
			t.Fatal(err)
		}
		if sum, err := update(holdall.ProtectOptions{}); err != nil || sum.Updated {
			t.Errorf("%s: an update without a change: %+v, %v", what, sum, err)
		}
		pack("another content")
		if sum, err := update(holdall.ProtectOptions{Loss: .1}); err == nil {
			t.Errorf("%s: an update with another share: %+v", what, sum)
		}
		if sum, err := update(holdall.ProtectOptions{}); err != nil || !sum.Updated || sum.Loss != .5 {
			t.Errorf("%s: an update after a change: %+v, %v", what, sum, err)
		}
		if _, err := holdall.BuildIndex(ctx, c.name, "", holdall.IndexOptions{OpenOptions: holdall.OpenOptions{Store: c.st}}); err != nil {
			t.Fatal(err)
		}
		a, err := holdall.Open(ctx, c.name, holdall.OpenOptions{Store: c.st, Index: holdall.UseIndex{Beside: true}})
		if err != nil {
			t.Fatal(err)
		}
		if p := a.Protection(ctx); p == nil || p.Unused != "" || a.Index().Used == "" {
			t.Errorf("%s: %+v, %+v", what, p, a.Index())
		}
		a.Close()
	}
}

func TestAFileIsNoFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address string
		st      store.Store
	}{{name, nil}, {name + "y", nil}, {"x", &storetest.Mem{}}} {
		if a, err := holdall.Open(t.Context(), c.address, holdall.OpenOptions{Format: "dir", Store: c.st}); err == nil {
			t.Errorf("%s: %v", c.address, a.Format().Name)
		}
	}
}
