package fleet

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
)

// Names and contents of a person have these texts, which nothing else has.
const (
	personName = "zYxWv-0815"
	personText = "only this person wrote that"
)

// about is a site with objects of a person: in versions that were replaced, deleted and retired, in archives that
// were replaced, in lists of what could not be packed, and in logs.
func about(t *testing.T) (s *site, names []string) {
	s = newSite(t)
	s.some(60, 3000)
	s.S3.Page = 50
	for _, at := range []string{"a/", "data/003/00010", "data/004/", "z/"} {
		names = append(names, at+personName+at[:1])
	}
	write := func(content string) {
		for _, name := range names {
			s.Put(name, []byte(content))
		}
	}
	spec := spec
	spec.ChunkSize = 20_000
	write("first: " + personText)
	s.packs(spec)
	write("second: " + personText)
	s.packs(spec)
	p := s.planOf(spec.Target)
	if is, err := Retire(t.Context(), s.f, p, RetireOptions{}); err != nil || is.Objects == 0 {
		t.Fatal(is, err)
	}
	write("third: " + personText)
	s.plan(spec)
	s.S3.Remove("from", names[0]) // vanishes
	s.work(WorkOptions{})
	if _, err := s.B.Delete(t.Context(), names[1:2]); err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(t.Context(), s.f, p, CompactOptions{Dead: 0.001, Yes: true}); err != nil {
		t.Fatal(err)
	}
	s.work(WorkOptions{})
	for _, name := range names {
		s.S3.Remove("from", name)
		delete(s.Want, name)
	}
	return s, names
}

// where returns the objects that have a text: in their name, as they are, or in what they have compressed.
func (s *site) where(texts ...string) (all []string) {
	for _, bucket := range []string{"from", "out"} {
		for _, key := range s.S3.Keys(bucket) {
			content := s.S3.Get(bucket, key)
			for _, text := range texts {
				if strings.Contains(key, text) || has(content, text) {
					all = append(all, bucket+"/"+key+": "+text)
				}
			}
		}
	}
	return all
}

func has(content []byte, text string) bool {
	if bytes.Contains(content, []byte(text)) {
		return true
	}
	for i := range content {
		var z io.Reader
		var err error
		switch {
		case bytes.HasPrefix(content[i:], []byte{0x1f, 0x8b}):
			z, err = gzip.NewReader(bytes.NewReader(content[i:]))
		case content[i] == 0x78:
			z, err = zlib.NewReader(bytes.NewReader(content[i:]))
		default:
			continue
		}
		if err != nil {
			continue
		}
		if plain, _ := io.ReadAll(z); bytes.Contains(plain, []byte(text)) {
			return true
		}
	}
	return false
}

func (s *site) erases(ctx context.Context, names []string) (done Erased, err error) {
	for range 5 {
		e, err := PrepareErasure(ctx, s.f, names, ErasureOptions{Yes: true})
		if err != nil {
			return done, err
		}
		if len(e.Chunks) == 0 {
			return FinishErasure(ctx, s.f, names)
		}
		if _, err := Work(ctx, s.f, WorkOptions{}); err != nil {
			return done, err
		}
	}
	return done, errors.New("archives still have the names")
}

// TestWhatIsErasedIsNowhere looks into all objects of both buckets.
func TestWhatIsErasedIsNowhere(t *testing.T) {
	s, names := about(t)
	ctx := t.Context()
	if found := s.where(personName, personText); len(found) < 20 {
		t.Fatalf("the test finds only %d objects: %q", len(found), found)
	}
	reader, err := book.Open(ctx, s.B.Store(), s.B.Name(), book.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.Want)
	if e, err := PrepareErasure(ctx, s.f, names, ErasureOptions{DryRun: true}); err != nil || e.Archives == 0 {
		t.Fatal(e, err)
	}
	done, err := s.erases(ctx, names)
	if err != nil {
		t.Fatal(err)
	}
	if found := s.where(personName, personText); len(found) > 0 {
		t.Errorf("%d objects have it: %q", len(found), found)
	}
	if len(done.Names) != len(names) || len(done.Archives) == 0 || done.Commits == 0 || done.Lists == 0 || done.Deletions == 0 {
		t.Errorf("it says %+v", done)
	}
	s.reads()
	check := func(b *book.Book) {
		t.Helper()
		if err := b.Check(ctx, func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
	}
	check(s.B)
	s.reopen()
	check(s.B)
	if proofs := slices.DeleteFunc(s.S3.Keys("out"), func(key string) bool { return !strings.HasPrefix(key, "set.catalog/erased/") }); len(proofs) != 1 {
		t.Errorf("found proofs %q", proofs)
	} else if is := (Erased{}); json.Unmarshal(s.S3.Get("out", proofs[0]), &is) != nil || !slices.Equal(is.Names, done.Names) {
		t.Errorf("found %+v", is)
	}

	// What was there before cannot be read, not even by those who had it open. Everything else goes on.
	if err := s.B.At(ctx, done.At-1); err == nil {
		t.Error("an earlier state can be read")
	}
	if st, err := reader.State(ctx); err != nil || st.Number < done.At {
		t.Errorf("a reader that was open is at %v (%v)", st, err)
	}
	check(reader)
	s.put("new", 1000)
	s.packs(s.last)
	if len(s.Want) != before+1 {
		t.Errorf("%d objects, want %d", len(s.Want), before+1)
	}
	s.reads()
	if again, err := s.erases(ctx, names); err != nil || len(again.Archives) > 0 {
		t.Error(again, err)
	}
	check(s.B)
	s.reads()
}

// TestAnErasureIsKilled goes on after each request that changes something.
func TestAnErasureIsKilled(t *testing.T) {
	every := 13
	if testkit.Race() {
		every = 52
	}
	for n, dead := 1, true; dead; n += every {
		s, names := about(t)
		dead, _ = s.killed(n, n%2 == 0, func(ctx context.Context) error {
			_, err := s.erases(ctx, names)
			return err
		})
		s.reopen()
		if _, err := s.erases(t.Context(), names); err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		if found := s.where(personName, personText); len(found) > 0 {
			t.Errorf("request %d: %d objects have it: %q", n, len(found), found)
		}
		if err := s.B.Check(t.Context(), func(problem string) { t.Errorf("request %d: %s", n, problem) }); err != nil {
			t.Error(err)
		}
		s.reads()
		if t.Failed() {
			return
		}
	}
}

// TestWhatCannotBeErased leaves everything as it was.
func TestWhatCannotBeErased(t *testing.T) {
	s := newSite(t)
	s.some(20, 3000)
	s.packs(spec)
	name := slices.Sorted(maps.Keys(s.Want))[3]
	refuses := func(as any) {
		t.Helper()
		was := s.S3.Keys("out")
		if _, err := PrepareErasure(t.Context(), s.f, []string{name}, ErasureOptions{}); !errors.As(err, as) {
			t.Errorf("found %v", err)
		}
		if is := s.S3.Keys("out"); !slices.Equal(was, is) {
			t.Errorf("found %q, want %q", is, was)
		}
	}
	if _, err := PrepareErasure(t.Context(), s.f, nil, ErasureOptions{Yes: true}); err == nil {
		t.Error("nothing is erased")
	}
	refuses(new(*ThereError))
	known := name
	name = "data/000/0001"
	refuses(new(*UnknownError))
	name = known
	s.S3.Remove("from", name)
	delete(s.Want, name)
	s.put("b", 10)
	s.plan(spec)
	refuses(new(*BusyError))
	s.work(WorkOptions{})
	found, err := s.B.Newest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s.newer(found, "") // an archive of nobody
	refuses(new(*UnerasableError))
	if _, err := FinishErasure(t.Context(), s.f, []string{name}); !errors.Is(err, book.ErrConflict) {
		t.Errorf("found %v", err)
	}
	if _, err := s.B.Remove(t.Context(), "s3://out/newer.caf"); err != nil {
		t.Fatal(err)
	}
	// An archive that a killed worker has left, and a list that another has just written.
	const lost = "set-00099-00001.caf"
	s.S3.Put("out", lost, s.S3.Get("out", s.keys("out")[0]))
	if _, err := s.erases(t.Context(), []string{name}); !errors.As(err, new(*UnrecordedError)) {
		t.Errorf("found %v", err)
	}
	s.S3.Remove("out", lost)
	k := chunk{Listing: 3, Number: 77}
	if err := s.f.writeList(t.Context(), s.job(), &k, func(yield func(Member, error) bool) { yield(Member{Path: "x", Version: "1"}, nil) }); err != nil {
		t.Fatal(err)
	}
	if _, err := FinishErasure(t.Context(), s.f, []string{name}); !errors.As(err, new(*BusyError)) {
		t.Errorf("found %v", err)
	}
	if is, err := s.f.sized(t.Context(), s.job(), k); err != nil || is.Count != 1 {
		t.Errorf("the list has %d objects: %v", is.Count, err)
	}
	if err := s.f.drop(t.Context(), s.job(), k); err != nil {
		t.Fatal(err)
	}
	if _, err := s.erases(t.Context(), []string{name}); err != nil {
		t.Error(err)
	}
	s.reads()
}
