package storekit_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// journal is a store that notes which objects appeared, in which order.
type journal struct {
	storetest.Mem
	appeared []string
}

func (j *journal) inject(op, name string, _, _ int64) error {
	if op == "commit" {
		j.appeared = append(j.appeared, name)
	}
	return nil
}

// finish stages an object under name that holds its name.
func finish(t *testing.T, st store.Store, name string) {
	t.Helper()
	w, err := storekit.Create(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort after commit of %s: %v", name, err)
		}
	}()
	if _, err := fmt.Fprint(w, name); err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit(t.Context())
	if err != nil || info.Name != name || info.Size != int64(len(name)) {
		t.Fatalf("commit of %s: %+v, %v", name, info, err)
	}
}

func names(t *testing.T, st store.Store) (names []string) {
	t.Helper()
	for info, err := range storekit.List(t.Context(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}

func TestStagedObjectsAppearAtPublishInOrder(t *testing.T) {
	j := &journal{}
	stage := storekit.NewStage(storetest.Fault(&j.Mem, j.inject))
	for _, name := range []string{"shard-1", "shard-0", "index"} {
		finish(t, stage, name)
		if got := names(t, &j.Mem); len(got) != 0 {
			t.Errorf("before publish: found %q", got)
		}
		if o, err := stage.Open(t.Context(), name); err == nil {
			o.Close()
			t.Errorf("%s can be opened before publish", name)
		}
	}
	if err := stage.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"shard-1", "shard-0", "index"}; !slices.Equal(j.appeared, want) {
		t.Errorf("expected them to appear as %q, found %q", want, j.appeared)
	}
	for _, name := range j.appeared {
		if got := string(j.Get(name)); got != name {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if err := stage.Publish(t.Context()); err != nil || len(j.appeared) != 3 {
		t.Errorf("publish again: expected nothing to happen, found %v, %q", err, j.appeared)
	}
	if err := stage.Discard(); err != nil || len(names(t, &j.Mem)) != 3 {
		t.Errorf("discard after publish: expected nothing to happen, found %v, %q", err, names(t, &j.Mem))
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for name, st := range map[string]store.Store{"memory": &storetest.Mem{}, "files": local.New(dir)} {
		stage := storekit.NewStage(st)
		finish(t, stage, "a")
		finish(t, stage, "folder/b")
		w, err := storekit.Create(t.Context(), stage, "never finished")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if err := stage.Discard(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, st); len(got) != 0 {
			t.Errorf("%s: found %q", name, got)
		}
		if err := stage.Publish(t.Context()); err != nil || len(names(t, st)) != 0 {
			t.Errorf("%s: publish after discard: expected nothing to happen, found %v, %q", name, err, names(t, st))
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func TestFailureInTheMiddleOfPublishDiscardsTheRest(t *testing.T) {
	broken := errors.New("broken")
	dir := t.TempDir()
	for name, below := range map[string]store.Store{"memory": &storetest.Mem{}, "files": local.New(dir)} {
		c := storetest.Count(storetest.Nth("commit", 2, broken))
		stage := storekit.NewStage(storetest.Fault(below, c.Inject))
		for _, object := range []string{"first", "second", "third", "fourth"} {
			finish(t, stage, object)
		}
		if err := c.Surfaced(stage.Publish(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, below); !slices.Equal(got, []string{"first"}) {
			t.Errorf("%s: expected what was before the failure, found %q", name, got)
		}
		if err := stage.Publish(t.Context()); err != nil || len(names(t, below)) != 1 {
			t.Errorf("%s: publish again: expected nothing to happen, found %v, %q", name, err, names(t, below))
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func TestStagedWriterCopiesAndRewinds(t *testing.T) {
	mem := &storetest.Mem{}
	mem.Put("source", []byte("0123456789"))
	from, err := mem.Open(t.Context(), "source")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	stage := storekit.NewStage(mem)
	w, err := storekit.Create(t.Context(), stage, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := storekit.WriteRange(t.Context(), w, from, 2, 5); err != nil {
		t.Fatal(err)
	}
	if err := w.Can().Rewind(3); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if info, err := w.Commit(t.Context()); err != nil || info.Size != 6 {
		t.Errorf("commit: %+v, %v", info, err)
	}
	if err := stage.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := string(mem.Get("x")); got != "234abc" {
		t.Errorf("found %q", got)
	}
}
