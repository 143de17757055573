package pack_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/pack"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// A source that breaks off while it is packed leaves the others right.
func TestPackGoesOnWithoutWhatFails(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "first", "b": strings.Repeat("b", 3<<20), "c": "third"})
	if os.Geteuid() != 0 {
		os.Chmod(filepath.Join(dir, "b"), 0)
	} else {
		os.Remove(filepath.Join(dir, "b"))
		if err := os.Symlink("nowhere", filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
	}
	st, failed := &storetest.Mem{}, []string{}
	sum, err := pack.Pack(t.Context(), st, "x.caf", []string{filepath.Join(dir, "a"), filepath.Join(dir, "c"), dir},
		pack.Options{OnError: func(name string, _ error) { failed = append(failed, name) }})
	if err != nil || sum.Entries < 4 || sum.Failed != int64(len(failed)) {
		t.Fatalf("%+v, %q, %v", sum, failed, err)
	}
	src := archivetest.Open(t, st, "x.caf")
	archivetest.Sound(t, src, format.Note)
	want := map[string]string{"a": "first", "c": "third", filepath.Base(dir) + "/a": "first", filepath.Base(dir) + "/c": "third"}
	if got := archivetest.Contents(t, src); !maps.Equal(got, want) {
		t.Errorf("found %.200v", got)
	}
}

func TestCancelledPackLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": strings.Repeat("x", 8<<20)})
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pack.Pack(ctx, local.New(out), "x.caf", []string{dir}, pack.Options{}); err == nil {
		t.Error("packed all the same")
	}
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
