package oak

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

func opened(t testing.TB, st store.Store, name string) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), st, name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func copied(t testing.TB, from store.Store, name string, to store.Store, out string, o CopyOptions) *Copied {
	t.Helper()
	c, err := opened(t, from, name).Copy(t.Context(), to, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func same(t testing.TB, from store.Store, name string, to store.Store, out string) {
	t.Helper()
	c, err := opened(t, from, name).CheckCopy(t.Context(), to, out, CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Different > 0 || c.Behind > 0 || c.Segments == 0 {
		t.Errorf("a copy differs: %+v", c)
	}
}

// whole are the fixtures that can be copied: sound ones, and ones without an index.
var wholeFixtures = []string{"empty-store", "multitar", "types", "datastore", "longblobid", "unclean-open", "unclean-truncated", "v12", "v12-upgraded", "cleanup-pending",
	"gc-online", "checkpoints", "compacted-offline", "wide"}

// What every verb reads of a store is the same of its copy as blobs, with metadata and
// without, and of the tars that are made of that.
func TestACopyIsReadAsItsSource(t *testing.T) {
	for _, name := range testkit.Few(t, 3, wholeFixtures...) {
		t.Run(name, func(t *testing.T) {
			src := fixture(t, name)
			want, _ := exported(t, treeOf(t, opened(t, src, "s"), nil), "/", wholeTree)
			container, bucket := &storetest.Container{}, &storetest.Mem{}
			for _, to := range []store.Store{container, bucket} {
				copied(t, src, "s", to, "c", CopyOptions{})
				same(t, src, "s", to, "c")
				got, _ := exported(t, treeOf(t, opened(t, to, "c"), nil), "/", wholeTree)
				if !bytes.Equal(got, want) {
					t.Errorf("the export of the copy differs: %d bytes, expected %d", len(got), len(want))
				}
				if again := copied(t, src, "s", to, "c", CopyOptions{}); again.Segments+int64(again.Revisions) > 0 {
					t.Errorf("copied once more: %+v", again)
				}
				for _, quick := range []bool{true, false} {
					err := verify(t.Context(), to, "c", format.OpenOptions{Quick: quick}, func(p format.Problem) {
						if p.Severity == format.Error {
							t.Errorf("verify: %+v", p)
						}
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
			if container.Get("c/data00000a.tar/data00000a.tar.idx") != nil || bucket.Get("c/data00000a.tar/data00000a.tar.idx") == nil && name != "cleanup-pending" && name != "gc-online" && name != "compacted-offline" {
				t.Error("an index is for buckets, and for nobody else")
			}
			other := &storetest.Mem{}
			copied(t, container, "c", other, "o", CopyOptions{})
			same(t, src, "s", other, "o")
			same(t, container, "c", bucket, "c")
			back := local.New(t.TempDir())
			copied(t, bucket, "c", back, "tars", CopyOptions{})
			same(t, src, "s", back, "tars")
			if again := copied(t, src, "s", back, "tars", CopyOptions{}); again.Segments > 0 {
				t.Errorf("copied once more: %+v", again)
			}
			err := verify(t.Context(), back, "tars", format.OpenOptions{}, func(p format.Problem) {
				if p.Severity == format.Error {
					t.Errorf("verify: %+v", p)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Without a word about the format: by names, in both views, with all that the engine does.
func TestBlobsAreKnownByTheirNamesAndReadLikeTars(t *testing.T) {
	for _, name := range testkit.Few(t, 1, "types", "datastore", "multitar") {
		src, to := fixture(t, name), &storetest.Container{}
		copied(t, src, "s", to, "s", CopyOptions{})
		for _, view := range []string{segmentsView, treeView} {
			var got [2]map[string]string
			for i, st := range []store.Store{src, to} {
				got[i] = map[string]string{}
				a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{Format}})
				if err != nil {
					t.Fatal(err)
				}
				for e, err := range a.Entries(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Kind == format.Dir || !strings.Contains(e.Name, "/") {
						continue
					}
					var b bytes.Buffer
					if err := a.WriteContent(t.Context(), &b, e); err != nil && e.Fault == nil && name != "datastore" {
						t.Fatal(err)
					}
					got[i][e.Name] = fmt.Sprintf("%d %x", e.Size, sha256.Sum256(b.Bytes()))
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(got[0]) == 0 || !maps.Equal(got[0], got[1]) {
				t.Errorf("%s, %s: %d and %d entries, and they differ", name, view, len(got[0]), len(got[1]))
			}
		}
	}
}

// grown are two states of one store: without its newest tar and revisions, and with them.
func grown(t *testing.T) (before, after *storetest.Mem) {
	t.Helper()
	after = fixture(t, "multitar")
	before = after.Clone()
	l, err := repo.List(t.Context(), after, "s")
	if err != nil {
		t.Fatal(err)
	}
	newest := l.Tars[0].Name
	// Its last segments are not there yet, nor is its index.
	b := after.Get("s/" + newest)
	o, err := after.Open(t.Context(), "s/"+newest)
	if err != nil {
		t.Fatal(err)
	}
	x, err := tarfile.Open(t.Context(), o, newest, tarfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	order := x.Index().ByPosition()
	before.Put("s/"+newest, b[:x.Index().At(int(order[len(order)/2])).Pos-tarfile.BlockSize])
	return before, after
}

// An old copy is updated: what exists stays, a tar that has grown is continued, and revisions are
// added.
func TestACopyIsBroughtUpToDate(t *testing.T) {
	before, after := grown(t)
	for name, to := range map[string]store.Store{"container": &storetest.Container{}, "bucket": &storetest.Mem{}, "disk": local.New(t.TempDir())} {
		first := copied(t, before, "s", to, "c", CopyOptions{})
		same(t, before, "s", to, "c")
		dry := copied(t, after, "s", to, "c", CopyOptions{DryRun: true})
		second := copied(t, after, "s", to, "c", CopyOptions{})
		if second.Segments == 0 || second.There < first.Segments/2 || second.Revisions == 0 || dry.Segments != second.Segments || dry.Bytes != second.Bytes {
			t.Errorf("%s: first %+v, then %+v, dry %+v", name, first, second, dry)
		}
		same(t, after, "s", to, "c")
		// Backwards it is no copy.
		if _, err := opened(t, before, "s").Copy(t.Context(), to, "c", CopyOptions{}); !refused(err) {
			t.Errorf("%s: an older state over a newer one: %v", name, err)
		}
		same(t, after, "s", to, "c")
	}
}

func TestAnotherStoreIsNotOverwritten(t *testing.T) {
	types, wide := fixture(t, "types"), fixture(t, "wide")
	for name, to := range map[string]store.Store{"container": &storetest.Container{}, "bucket": &storetest.Mem{}, "disk": local.New(t.TempDir())} {
		copied(t, types, "s", to, "c", CopyOptions{})
		if _, err := opened(t, wide, "s").Copy(t.Context(), to, "c", CopyOptions{}); !refused(err) {
			t.Errorf("%s: another store: %v", name, err)
		}
		same(t, types, "s", to, "c")
		if err := storetest.Put(t.Context(), to, "other/readme", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := opened(t, types, "s").Copy(t.Context(), to, "other", CopyOptions{}); !refused(err) {
			t.Errorf("%s: a folder of something else: %v", name, err)
		}
	}
	// Tars lie in a bucket: blobs do not go beside them.
	if _, err := opened(t, types, "s").Copy(t.Context(), types.Clone(), "s", CopyOptions{}); !refused(err) {
		t.Errorf("among tars: %v", err)
	}
}

// A copy that is interrupted anywhere leaves the old store or the complete new one, and the next
// copy completes it.
func TestACopyThatIsCutOffIsGoneOnWith(t *testing.T) {
	testkit.Long(t)
	before, after := grown(t)
	for _, kind := range []string{"container", "bucket"} {
		old := int64(0)
		for at := 0; ; at += 3 {
			var to interface {
				store.Store
				Get(string) []byte
			} = &storetest.Mem{}
			if kind == "container" {
				to = &storetest.Container{}
			}
			copied(t, before, "s", to, "c", CopyOptions{})
			var n atomic.Int64
			broken := errors.New("broken")
			failing := storetest.Fault(to, func(op, name string, off, size int64) error {
				if n.Add(1) > int64(at) {
					return broken
				}
				return nil
			})
			_, err := opened(t, after, "s").Copy(t.Context(), failing, "c", CopyOptions{})
			if err == nil {
				old = int64(at)
				break
			}
			if !errors.Is(err, broken) {
				t.Fatalf("%s, request %d: %v", kind, at, err)
			}
			tree := treeOf(t, opened(t, to, "c"), nil)
			if _, x := exported(t, tree, "/", wholeTree); x.Lost > 0 {
				t.Fatalf("%s, request %d: %d nodes are lost", kind, at, x.Lost)
			}
			copied(t, after, "s", to, "c", CopyOptions{})
			same(t, after, "s", to, "c")
		}
		if old < 10 {
			t.Errorf("%s: only %d requests", kind, old)
		}
	}
}

// A lock of another program is respected, and a copy whose lock is lost ends.
func TestTheLeaseOfTheDestinationIsHeld(t *testing.T) {
	src, to := fixture(t, "multitar"), &storetest.Container{}
	s := opened(t, src, "s")
	_, release, err := to.Lease(t.Context(), "c/repo.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Copy(t.Context(), to, "c", CopyOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a store that is leased: %v", err)
	}
	if _, err := s.Copy(t.Context(), to, "c", CopyOptions{DryRun: true}); err != nil {
		t.Errorf("a dry run needs no lease: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("somebody broke it")
	breaking := storetest.Fault(to, func(op, name string, _, _ int64) error {
		if strings.HasSuffix(name, cloud.Graph) {
			to.Break("c/repo.lock", lost)
		}
		return nil
	})
	if _, err := s.Copy(t.Context(), breaking, "c", CopyOptions{}); !errors.Is(err, lost) {
		t.Errorf("a lease that is lost: %v", err)
	}
	if to.Get("c/journal.log.001") != nil {
		t.Error("the journal was written without the lease")
	}
	if to.Get("c/repo.lock") != nil {
		t.Error("the lock was left")
	}
	copied(t, src, "s", to, "c", CopyOptions{})
	same(t, src, "s", to, "c")
}

// The journal has the newest revisions that were requested, in parts as Oak makes them. New lines
// go into the next part if Oak keeps the last line in a part's metadata.
func TestTheJournalIsCopiedInParts(t *testing.T) {
	src := fixture(t, "multitar")
	lines := bytes.SplitAfter(src.Get("s/journal.log"), []byte{'\n'})
	lines = lines[:len(lines)-1]
	to := &storetest.Container{}
	if c := copied(t, src, "s", to, "last", CopyOptions{Last: 2}); c.Revisions != 2 {
		t.Errorf("%+v", c)
	}
	if got, want := to.Get("last/journal.log.001"), bytes.Join(lines[len(lines)-2:], nil); !bytes.Equal(got, want) {
		t.Errorf("journal %q, expected %q", got, want)
	}
	many := src.Clone()
	var long []byte
	for range cloud.PartLines + 5 {
		long = append(long, lines[0]...)
	}
	many.Put("s/journal.log", append(bytes.Clone(long), bytes.Join(lines[1:], nil)...))
	copied(t, many, "s", to, "c", CopyOptions{})
	if got := to.Get("c/journal.log.001"); !bytes.Equal(got, long[:cloud.PartLines*len(lines[0])]) {
		t.Errorf("the first part has %d bytes", len(got))
	}
	same(t, many, "s", to, "c")
	more := many.Clone()
	add := func(line []byte) {
		more.Put("s/journal.log", append(more.Get("s/journal.log"), line...))
	}
	add(bytes.Replace(lines[len(lines)-1], []byte(" root "), []byte(" root 1"), 1))
	second := len(to.Get("c/journal.log.002"))
	copied(t, more, "s", to, "c", CopyOptions{})
	if to.Get("c/journal.log.003") != nil || len(to.Get("c/journal.log.002")) <= second {
		t.Error("a part of our own is not appended to")
	}
	to.SetHeaders("c/journal.log.002", map[string]string{"x-amz-meta-lastentry": "x"})
	add(bytes.Replace(lines[len(lines)-1], []byte(" root "), []byte(" root 2"), 1))
	copied(t, more, "s", to, "c", CopyOptions{})
	if to.Get("c/journal.log.003") == nil {
		t.Error("a part of Oak's is appended to")
	}
	same(t, more, "s", to, "c")
}

// Names and generations: what was listed without metadata is read from the segments. Oak does not
// see blobs with other names, and a copy corrects that.
func TestGenerationsComeFromWhereTheyAre(t *testing.T) {
	src := fixture(t, "gc-online")
	want := opened(t, src, "s")
	bucket, container := &storetest.Mem{}, &storetest.Container{}
	copied(t, src, "s", bucket, "c", CopyOptions{})
	copied(t, src, "s", container, "c", CopyOptions{})
	for name := range objects(t, bucket) {
		if strings.HasSuffix(name, cloud.Index) {
			bucket.Put(name, bucket.Get(name)[:tarfile.MostSegments%len(bucket.Get(name))]) // cut somewhere
		}
	}
	same(t, src, "s", bucket, "c")
	for name := range objects(t, bucket) {
		if strings.HasSuffix(name, cloud.Index) {
			if err := bucket.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, src, "s", bucket, "c")
	// Metadata with capital letters, as azcopy writes it, and without any.
	some := ""
	for name := range objects(t, &container.Mem) {
		if _, _, ok := cloud.ParseBlobName(name[strings.LastIndexByte(name, '/')+1:]); ok && some == "" {
			some = name
			container.SetHeaders(name, map[string]string{})
		}
	}
	found := 0
	if err := verify(t.Context(), container, "c", format.OpenOptions{}, func(p format.Problem) {
		if p.Class == unseenBlobs {
			found++
		}
	}); err != nil || found != 1 {
		t.Errorf("%d archives with segments that are not seen; %v", found, err)
	}
	if c := copied(t, src, "s", container, "c", CopyOptions{}); c.Segments != 1 {
		t.Errorf("one segment was to be put right: %+v", c)
	}
	got := opened(t, container, "c")
	for i, x := range want.r.tars {
		if y := got.r.tars[i]; y.Name != x.Name || y.Len() != x.Len() {
			t.Errorf("%s of %d, expected %s of %d", y.Name, y.Len(), x.Name, x.Len())
		}
	}
}

// An archive that is not closed is read as by Oak's recovery. One without a first segment is not
// an archive. Missing segments are reported.
func TestArchivesThatAreNotClosed(t *testing.T) {
	src, to := fixture(t, "multitar"), &storetest.Container{}
	want, _ := exported(t, treeOf(t, opened(t, src, "s"), nil), "/", wholeTree)
	copied(t, src, "s", to, "c", CopyOptions{})
	l, err := repo.List(t.Context(), to, "c")
	if err != nil {
		t.Fatal(err)
	}
	newest := "c/" + l.Tars[0].Name + "/"
	for name := range objects(t, &to.Mem) {
		if base, ok := strings.CutPrefix(name, newest); ok {
			if _, _, segment := cloud.ParseBlobName(base); !segment {
				if err := to.Remove(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	to.Put("c/data00099a.tar/0001.486aa03b-5c65-4d55-ad28-72210ab8c5e7", []byte("x"))
	if got, _ := exported(t, treeOf(t, opened(t, to, "c"), nil), "/", wholeTree); !bytes.Equal(got, want) {
		t.Error("the export differs")
	}
	classes := map[string]int{}
	tell := func(p format.Problem) { classes[p.Class]++ }
	if err := verify(t.Context(), to, "c", format.OpenOptions{}, tell); err != nil || classes["not-closed"] != 1 || len(classes) != 1 {
		t.Errorf("%v; %v", classes, err)
	}
	a := opened(t, to, "c").r.list.Blobs.Archive(l.Tars[0].Name)
	to.Remove(t.Context(), "c/"+a.BlobOf(1))
	clear(classes)
	if err := verify(t.Context(), to, "c", format.OpenOptions{}, tell); err != nil || classes[missingBlobs] != 1 {
		t.Errorf("a segment is gone: %v; %v", classes, err)
	}
	copied(t, src, "s", to, "c", CopyOptions{})
	same(t, src, "s", to, "c")
}

// A program that writes to Azure sends several segments at once. A missing one may appear after
// those that follow it, and an earlier copy is then continued.
func TestASegmentThatComesLateIsCopied(t *testing.T) {
	src, all := fixture(t, "multitar"), &storetest.Container{}
	copied(t, src, "s", all, "c", CopyOptions{})
	late := opened(t, all, "c").r.list.Blobs.Archive("data00000a.tar").BlobOf(1)
	early := &storetest.Container{}
	copied(t, src, "s", early, "c", CopyOptions{})
	for _, name := range []string{late, "data00000a.tar/closed"} {
		if err := early.Remove(t.Context(), "c/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]store.Store{"container": &storetest.Container{}, "bucket": &storetest.Mem{}, "disk": local.New(t.TempDir())} {
		s := opened(t, early, "c")
		s.r.trust = asStored // for its graph is made without the segment that others refer to
		if _, err := s.Copy(t.Context(), to, "o", CopyOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c := copied(t, all, "c", to, "o", CopyOptions{}); c.Segments == 0 {
			t.Errorf("%s: %+v", name, c)
		}
		same(t, src, "s", to, "o")
	}
}

// What oak-segment-aws leaves in a bucket has no journal: that is in a database.
func TestWithoutAJournalARevisionIsNamed(t *testing.T) {
	testkit.Serial(t)
	src, to := fixture(t, "multitar"), &storetest.Mem{}
	s := opened(t, src, "s")
	want, _ := exported(t, treeOf(t, s, nil), "/", wholeTree)
	copied(t, src, "s", to, "c", CopyOptions{})
	for _, name := range []string{"c/journal.log", "c/gc.log"} {
		_ = to.Remove(t.Context(), name) // there may be none
	}
	head, err := s.r.head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := exported(t, treeOf(t, opened(t, to, "c"), map[string]string{revisionParam: head.Revision.String()}), "/", wholeTree); !bytes.Equal(got, want) {
		t.Error("the export differs")
	}
	_, err = opened(t, to, "c").Tree(t.Context(), nil)
	if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Class != noHead {
		t.Errorf("without a revision: %v", err)
	}
}

// late is a store in which objects that do not exist can be opened; reading them fails.
type late struct{ *storetest.Container }

func (l late) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := l.Container.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return missing{name}, nil
	}
	return o, err
}

type missing struct{ name string }

func (m missing) Info(context.Context) (store.Info, error) {
	return store.Info{}, &fs.PathError{Op: "read", Path: m.name, Err: fs.ErrNotExist}
}

func (m missing) ReadAt(ctx context.Context, _ []byte, _ int64) error {
	_, err := m.Info(ctx)
	return err
}

func (m missing) Close() error { return nil }

func (m missing) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// A node in a remote store is read with few consecutive requests: for the list, the journal, and
// segments on the path. If the format is not given, both ends of the object with that name are
// requested together with the list, which is requested once.
func TestANodeIsReadFromAfarInFewRounds(t *testing.T) {
	src, to := fixture(t, "multitar"), &storetest.Container{}
	copied(t, src, "s", to, "s", CopyOptions{})
	longest := ""
	for e, err := range openTreeArchive(t, src, nil).Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind.HasContent() && e.Size > 0 && strings.Count(e.Name, "/") > strings.Count(longest, "/") {
			longest = e.Name
		}
	}
	for _, said := range []string{"oak", ""} {
		var log bytes.Buffer
		before := to.Lists
		a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: storetest.Trace(late{to}, &log), Format: said, Formats: []*format.Format{Format}, FewLookups: true})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		e, err := a.Lookup(t.Context(), longest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.ReadAt(t.Context(), e, make([]byte, e.Size), 0); err != nil {
			t.Fatal(err)
		}
		// As many requests are no fewer rounds.
		asked := slices.DeleteFunc(strings.Split(strings.TrimSpace(log.String()), "\n"), func(l string) bool {
			return strings.HasPrefix(l, "open ") || strings.HasPrefix(l, "info ") || // which make no request
				strings.HasPrefix(l, "head s ") || strings.HasPrefix(l, "tail s ") // beside the list
		})
		if lists := to.Lists - before; lists != 1 || len(asked)+lists > 8 {
			t.Errorf("%q %s: %d lists and %d reads:\n%s", said, longest, lists, len(asked), log.String())
		}
	}
}

// A copy has gc.log as it was when the source was opened. Its last line never names a revision
// that the copy lacks, because Oak would treat everything as garbage.
func TestACopyHasTheLogThatFitsIt(t *testing.T) {
	for name, before := range map[string]bool{"a line is added while it is open": false, "a line leads nowhere": true} {
		dir := filepath.Join(testkit.Unpacked(t, "testdata/gc-online.tar.gz"), "segmentstore")
		log := filepath.Join(dir, repo.GCLog)
		was, err := os.ReadFile(log)
		if err != nil || len(was) == 0 {
			t.Fatalf("%q, %v", was, err)
		}
		last := bytes.TrimRight(was, "\n")
		words := strings.Split(string(last[bytes.LastIndexByte(last, '\n')+1:]), ",")
		words[len(words)-1] = "11111111-2222-4333-a444-555555555555:1"
		line := strings.Join(words, ",")
		if gc, err := repo.ParseGC(line); err != nil || !gc.HasRoot {
			t.Fatalf("%q: %+v, %v", line, gc, err)
		}
		add := func() {
			if err := os.WriteFile(log, append(was[:len(was):len(was)], line+"\n"...), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if before {
			add()
		}
		s := opened(t, local.New(filepath.Dir(dir)), filepath.Base(dir))
		if !before {
			add()
		}
		to := &storetest.Mem{}
		if _, err := s.Copy(t.Context(), to, "c", CopyOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := to.Get("c/" + repo.GCLog); !bytes.Equal(got, was) {
			t.Errorf("%s: the log is %q, expected %q", name, got, was)
		}
	}
}
