package shelf_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/store"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

func newSite(t *testing.T) *fleettest.Site {
	t.Helper()
	return fleettest.New(t, filepath.Join(t.TempDir(), "jobs.db"))
}

// pack packs sources.
func pack(t *testing.T, s *fleettest.Site, spec fleet.Spec) {
	t.Helper()
	f := fleet.Fleet{Book: s.B, Queue: s.Q}
	if _, err := fleet.MakePlan(t.Context(), f, spec, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Work(t.Context(), f, fleet.WorkOptions{}); err != nil {
		t.Fatal(err)
	}
}

// open opens a tree of the catalogue.
func open(t *testing.T, s *fleettest.Site, name string) *holdall.Archive {
	t.Helper()
	return openBy(t, s, name, shelf.Options{})
}

func openBy(t *testing.T, s *fleettest.Site, name string, o shelf.Options) *holdall.Archive {
	t.Helper()
	sh, err := shelf.New(t.Context(), s.B, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sh.Close() })
	in, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: sh, Formats: []*format.Format{shelf.Format}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

func names(t *testing.T, seq func(func(holdall.Entry, error) bool)) (all []string) {
	t.Helper()
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		name := e.Name
		if e.Kind == format.Dir {
			name += "/"
		}
		all = append(all, name)
	}
	return all
}

func read(t *testing.T, in *holdall.Archive, name string) string {
	t.Helper()
	e, err := in.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := in.WriteContent(t.Context(), &b, e); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestABucketIsAsItWas(t *testing.T) {
	s := newSite(t)
	for _, key := range []string{"a", "a-b", "a/1", "a/2", "a//3", "/top", "b/../c", "z"} {
		s.Put(key, []byte("content of "+key))
	}
	s.S3.Describe("from", "a/1", map[string]string{"Content-Type": "text/x-one", "X-Amz-Meta-Colour": "blue"})
	written := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	s.S3.Touch("from", "a/1", written)
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf", ChunkObjects: 3})
	in := open(t, s, "buckets/s3/from")
	ctx := t.Context()
	for _, c := range []struct {
		prefix, from string
		want         string
	}{
		{"", "", "/top a a-b a/1 a//3 a/2 b/../c z"},
		{"a", "", "a a-b a/1 a//3 a/2"},
		{"a/", "", "a/1 a//3 a/2"},
		{"a/", "a/2", "a/2"},
		{"", "b", "b/../c z"},
		{"y", "", ""},
	} {
		got, want := names(t, in.Keys(ctx, c.prefix, c.from)), strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("keys of %q from %q: %q, want %q", c.prefix, c.from, got, want)
		}
	}
	if got := names(t, in.ReadDir(ctx, ".")); !slices.Equal(got, []string{"/top", "a", "a-b", "a/", "b/", "z"}) {
		t.Errorf("the root has %q", got)
	}
	if got := names(t, in.ReadDir(ctx, "a")); !slices.Equal(got, []string{"a/1", "a/2"}) {
		t.Errorf("a has %q", got)
	}
	for key := range s.Want {
		if got := read(t, in, key); got != "content of "+key {
			t.Errorf("%q: %q", key, got)
		}
	}
	e, err := in.Lookup(ctx, "a/1")
	if err != nil {
		t.Fatal(err)
	}
	if e.Attr["content-type"] != "text/x-one" || e.Attr["x-amz-meta-colour"] != "blue" || !strings.HasPrefix(e.Attr[kit.ETagAttr], `"`) || !e.ModTime.Equal(written) {
		t.Errorf("%+v of %s", e.Attr, e.ModTime)
	}
	if _, err := in.Lookup(ctx, "absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// A new version is visible as soon as it is packed, and a deleted file is not
	// visible any more.
	s.Put("a/2", []byte("newer"))
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf", ChunkObjects: 3})
	if got := read(t, open(t, s, shelf.Tree), "a/2"); got != "newer" {
		t.Errorf("%q", got)
	}
	if n, err := s.B.Delete(ctx, []string{"a/2", "absent"}); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := in.Lookup(ctx, "a/2"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestBucketsOfSeveralPlans checks that each bucket is shown in its original
// layout, when several plans pack parts of one bucket and others pack another.
func TestBucketsOfSeveralPlans(t *testing.T) {
	s := newSite(t)
	for i := range 20 {
		s.Put(fmt.Sprintf("2025/%02d", i), []byte("old"))
		s.Put(fmt.Sprintf("2026/%02d", i), []byte("new"))
	}
	s.S3.Put("out", "other/2025/00", []byte("of another"))
	pack(t, s, fleet.Spec{Sources: []string{"s3://from/2025", "s3://from/2026"}, Target: "s3://out/a.caf", ChunkObjects: 7})
	pack(t, s, fleet.Spec{Sources: []string{"s3://out/other"}, Target: "s3://out/b.caf"})
	s.Put("2026/00", []byte("newest"))
	pack(t, s, fleet.Spec{Sources: []string{"s3://from/2026*"}, Target: "s3://out/c.caf"})
	in := open(t, s, "buckets/s3/from")
	got := names(t, in.Keys(t.Context(), "", ""))
	if len(got) != 40 || !slices.IsSorted(got) {
		t.Errorf("%q", got)
	}
	if got := names(t, in.ReadDir(t.Context(), ".")); !slices.Equal(got, []string{"2025/", "2026/"}) {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]string{"2025/00": "old", "2026/00": "newest", "2026/01": "new"} {
		if got := read(t, in, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := read(t, open(t, s, "buckets/s3/out"), "other/2025/00"); got != "of another" {
		t.Errorf("%q", got)
	}
}

// TestArchivesThatAreNoRuns checks that content that is not a run of its
// archive's bytes is read by the archive's own index.
func TestArchivesThatAreNoRuns(t *testing.T) {
	s := newSite(t)
	for i := range 50 {
		s.Put(fmt.Sprintf("d/%02d", i), bytes.Repeat([]byte{byte(i)}, 3000))
	}
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.bundle", Format: "databundle"})
	in := open(t, s, shelf.Tree)
	for i := range 50 {
		if got := read(t, in, fmt.Sprintf("d/%02d", i)); got != strings.Repeat(string([]byte{byte(i)}), 3000) {
			t.Errorf("%d: %d bytes", i, len(got))
		}
	}
}

// TestAnArchiveThatWasReplacedIsNotRead checks that reading from an archive
// that was replaced returns an error.
func TestAnArchiveThatWasReplacedIsNotRead(t *testing.T) {
	s := newSite(t)
	s.Put("a", []byte("first"))
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf"})
	in := open(t, s, shelf.Tree)
	if got := read(t, in, "a"); got != "first" {
		t.Errorf("%q", got)
	}
	s.S3.Put("out", "x-00002-00001.caf", []byte("something else, which is longer than it was before, by far"))
	in = open(t, s, shelf.Tree)
	e, err := in.Lookup(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := in.WriteContent(t.Context(), &b, e); err == nil || !strings.Contains(err.Error(), "changed since it was added") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestTheCacheOnADiskServesACatalogue checks that what was read once of an archive takes no request, and that another
// archive in its place is not read.
func TestTheCacheOnADiskServesACatalogue(t *testing.T) {
	s := newSite(t)
	for i := range 20 {
		s.Put(fmt.Sprintf("a/%02d", i), bytes.Repeat([]byte{byte(i)}, 30_000))
	}
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf"})
	const archive = "x-00002-00001.caf"
	asked := func() (n int) {
		for _, r := range s.S3.Took() {
			if strings.Contains(r, archive) {
				n++
			}
		}
		return n
	}
	o := shelf.Options{Blocks: &holdall.BlockCache{Dir: t.TempDir(), Size: 16 << 20}}
	asked()
	for pass := range 2 {
		in := openBy(t, s, shelf.Tree, o)
		for name, content := range s.Want {
			if got := read(t, in, name); got != string(content) {
				t.Errorf("%s: %d bytes", name, len(got))
			}
		}
		if n := asked(); n > 3 || pass == 1 && n > 0 {
			t.Errorf("pass %d: %d requests", pass, n)
		}
	}
	other := s.S3.Get("out", archive)
	other[0] ^= 1
	s.S3.Put("out", archive, other)
	o.Blocks.Dir = t.TempDir()
	in := openBy(t, s, shelf.Tree, o)
	e, err := in.Lookup(t.Context(), "a/01")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := in.WriteContent(t.Context(), io.Discard, e); err == nil || !strings.Contains(err.Error(), "changed since it was added") {
			t.Error(err)
		}
	}
}

// TestWhatIsNotPackedComesFromItsSource checks that objects that are not
// packed yet are visible through the catalogue, if their source is named.
func TestWhatIsNotPackedComesFromItsSource(t *testing.T) {
	s := newSite(t)
	for _, key := range []string{"a/1", "a/2", "b", "c/x/1"} {
		s.Put(key, []byte("packed "+key))
	}
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf"})
	s.S3.Remove("from", "a/1")
	for _, key := range []string{"a/1b", "a/2", "a/3", "c/y", "d/e/f", "z"} {
		s.S3.Put("from", key, []byte("source "+key))
	}
	s.S3.Describe("from", "z", map[string]string{"Content-Type": "text/z"})
	s.S3.Page = 2
	ctx := t.Context()
	sh, err := shelf.New(ctx, s.B, shelf.Options{Through: []string{"s3://from"}})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	in, err := holdall.Open(ctx, "buckets/s3/from", holdall.OpenOptions{Store: sh, Formats: []*format.Format{shelf.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	want := []string{"a/1", "a/1b", "a/2", "a/3", "b", "c/x/1", "c/y", "d/e/f", "z"}
	if got := names(t, in.Keys(ctx, "", "")); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i, from := range want {
		if got := names(t, in.Keys(ctx, "", from)); !slices.Equal(got, want[i:]) {
			t.Errorf("from %q: %q", from, got)
		}
		if got := names(t, in.Keys(ctx, "", from+"\x00")); !slices.Equal(got, want[i+1:]) {
			t.Errorf("behind %q: %q", from, got)
		}
	}
	for dir, want := range map[string][]string{".": {"a/", "b", "c/", "d/", "z"}, "a": {"a/1", "a/1b", "a/2", "a/3"}, "c": {"c/x/", "c/y"}, "d": {"d/e/"}} {
		if got := names(t, in.ReadDir(ctx, dir)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", dir, got)
		}
	}
	for key, want := range map[string]string{"a/1": "packed a/1", "a/2": "packed a/2", "a/3": "source a/3", "z": "source z"} {
		if got := read(t, in, key); got != want {
			t.Errorf("%s: %q", key, got)
		}
	}
	if e, err := in.Lookup(ctx, "z"); err != nil || e.Attr["content-type"] != "text/z" || e.Attr[kit.ETagAttr] == "" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := in.Lookup(ctx, "absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// A file that was replaced is never read as half old, half new.
	e, err := in.Lookup(ctx, "a/3")
	if err != nil {
		t.Fatal(err)
	}
	s.S3.Put("from", "a/3", []byte("changed a/3"))
	var b bytes.Buffer
	if err := in.WriteContent(ctx, &b, e); !errors.Is(err, store.ErrChanged) {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestACatalogueSaysWhatItHas(t *testing.T) {
	s := newSite(t)
	for _, key := range []string{"a/1", "a/2", "a/3", "b/4"} {
		s.Put(key, []byte("content of "+key))
	}
	pack(t, s, fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf", ChunkObjects: 2})
	ctx := t.Context()
	archives, err := s.B.Archives(ctx)
	if err != nil || len(archives) != 2 {
		t.Fatal(archives, err)
	}
	if n, err := s.B.Delete(ctx, []string{"a/1"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l, err := s.B.Newest(ctx, "b/4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.B.Do(ctx, book.Step{Rows: func(yield func(*rows.Row, error) bool) {
		yield(&rows.Row{Name: "b/4", What: rows.Fate, Of: l.Seq, Original: rows.Leaving}, nil)
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.B.Verified(ctx, archives[1].ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	sh, err := shelf.New(ctx, s.B, shelf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	sum, err := sh.Summary(ctx)
	if err != nil || !sum.Counted || len(sum.Buckets) != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	want := shelf.BucketSummary{Address: "s3://from", Archives: 2, Files: 4, Bytes: archives[0].Size + archives[1].Size, Verified: 1, Gone: 1, Left: 1}
	if sum.Buckets[0] != want {
		t.Errorf("%+v, expected %+v", sum.Buckets[0], want)
	}
}

func TestRootsAreAddressesOfBuckets(t *testing.T) {
	for given, want := range map[string]string{
		"s3://photos": "s3://photos/", "s3://photos/": "s3://photos/", "s3://photos/a%20b/c+d": "s3://photos/a%20b/c+d/", "gs://photos/2026//": "gs://photos/2026/",
		"az://account/photos/2026": "az://account/photos/2026/", "az://account": "", "s3://": "", "photos": "", "/photos": "", "https://example.org/photos": "",
		"s3://user:secret@photos": "", "s3://photos?region=eu": "", "s3://photos/%zz": "", "": "",
	} {
		r, err := shelf.RootOf(given)
		if r.Address != want || r.Prefix != "" || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %+v, %v", given, r, err)
		}
	}
}
