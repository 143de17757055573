package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// wished begins an object. It skips the test if the store cannot ensure that an object is created
// only once.
func (s *suite) wished(t *testing.T, name string, wish store.Wishes) store.Writer {
	t.Helper()
	w, err := storekit.CreateAs(t.Context(), s.st, name, wish)
	if wish.Once && errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this store cannot create an object once")
	}
	if err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	abortAtEnd(t, w, name)
	return w
}

// once creates an object that must not exist yet.
func (s *suite) once(t *testing.T, name string, content []byte) error {
	t.Helper()
	w, err := storekit.CreateAs(t.Context(), s.st, name, store.Wishes{Once: true})
	if err != nil {
		return err
	}
	abortAtEnd(t, w, name)
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err = w.Commit(t.Context())
	return err
}

func testOnce(t *testing.T, s *suite) {
	w := s.wished(t, "dir/once", store.Wishes{Once: true})
	write(t, w, []byte("first"))
	s.commit(t, w, "dir/once", []byte("first"))
	s.put(t, "dir/other", []byte("old"))
	for _, name := range []string{"dir/once", "dir/other"} {
		if err := s.once(t, name, []byte("second")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: expected an error wrapping fs.ErrExist, found %v", name, err)
		}
	}
	s.wantContent(t, "dir/once", []byte("first"))
	s.wantContent(t, "dir/other", []byte("old"))

	// The object may be created while another writer is open.
	w = s.wished(t, "dir/late", store.Wishes{Once: true})
	write(t, w, []byte("mine"))
	s.put(t, "dir/late", []byte("another's"))
	if _, err := w.Commit(t.Context()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("expected an error wrapping fs.ErrExist, found %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	s.wantContent(t, "dir/late", []byte("another's"))
	if s.st.Can().List != nil {
		if got := s.list(t, "dir/"); len(got) != 3 {
			t.Errorf("expected three objects, found %q", got)
		}
	}
	if s.st.Can().Remove == nil {
		return
	}
	if err := storekit.Remove(t.Context(), s.st, "dir/once"); err != nil {
		t.Fatal(err)
	}
	if err := s.once(t, "dir/once", []byte("again")); err != nil {
		t.Error(err)
	}
}

func testOnceRace(t *testing.T, s *suite) {
	const racers = 8
	writers := make([]store.Writer, racers)
	for i := range writers {
		w := s.wished(t, "race", store.Wishes{Once: true})
		write(t, w, fmt.Appendf(nil, "racer %d", i))
		writers[i] = w
	}
	var wg sync.WaitGroup
	errs := make([]error, racers)
	for i, w := range writers {
		wg.Go(func() { _, errs[i] = w.Commit(t.Context()) })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			t.Fatalf("both %d and %d created it", won, i)
		case err == nil:
			won = i
		case !errors.Is(err, fs.ErrExist) && !storekit.Temporary(err):
			t.Errorf("racer %d: %v", i, err)
		}
	}
	if won < 0 {
		t.Fatal("no racer created it")
	}
	s.wantContent(t, "race", fmt.Appendf(nil, "racer %d", won))
}

func testResume(t *testing.T, s *suite) {
	r := seeded(t)
	want := noise(r, 18<<20)
	w := s.wished(t, "resumed", store.Wishes{Resume: true})
	write(t, w, want[:17<<20])
	kept, err := storekit.Keep(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("write after Keep: expected an error")
	}
	s.wantMissing(t, "resumed")
	w = s.wished(t, "resumed", store.Wishes{Resume: true, Once: true})
	write(t, w, want)
	s.commit(t, w, "resumed", want)
	if saved := w.Can().Saved; saved != nil {
		if _, proven := saved(); proven != kept {
			t.Errorf("%d bytes were kept, %d were not sent again", kept, proven)
		}
	}
	if unfinished := s.st.Can().Unfinished; unfinished != nil {
		for u, err := range unfinished(t.Context(), "") {
			t.Errorf("left over: %+v, %v", u, err)
		}
	}

	// Other bytes must not be mixed with what was kept.
	want = want[:9<<20]
	w = s.wished(t, "other", store.Wishes{Resume: true})
	write(t, w, want)
	if _, err = storekit.Keep(w); err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(want)
	other[len(other)/2]++
	w = s.wished(t, "other", store.Wishes{Resume: true})
	write(t, w, other)
	s.commit(t, w, "other", other)

	n, err := storekit.Abandon(t.Context(), s.st, "", func(store.Upload) bool { return true })
	if err != nil || n > 1 {
		t.Errorf("abandoned %d uploads, %v", n, err)
	}
	s.wantContent(t, "other", other)
}

func testFinish(t *testing.T, s *suite) {
	w := s.create(t, "finished")
	want := noise(seeded(t), 3<<20)
	write(t, w, want)
	finish := w.Can().Finish
	if finish == nil {
		t.Skip("this store's writers are not finished before they are committed")
	}
	told, err := finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("write after the end: expected an error")
	}
	s.wantMissing(t, "finished")
	s.commit(t, w, "finished", want)
	o, err := s.st.Open(t.Context(), "finished")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	info, err := o.Info(t.Context())
	if err != nil || told.Size != info.Size || !told.ModTime.IsZero() && !told.ModTime.Equal(info.ModTime) || told.Version != "" && told.Version != info.Version {
		t.Errorf("found %+v, %v; Finish gave %+v", info, err, told)
	}
}
