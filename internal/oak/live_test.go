//go:build unix

package oak

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// A replay writes a store of the reference again, in the order in which the reference does it:
// bytes at the ends of files, a line of the journal when everything that it needs is there, and
// sometimes a tar with another letter in place of a closed one.
type replay struct {
	t     *testing.T
	dir   string
	steps []func()
	want  map[string][]byte // exports of the revisions, by name
	rows  int               // of the journal
}

func newReplay(t *testing.T, name string, rnd *rand.Rand) *replay {
	t.Helper()
	mem := fixture(t, name)
	done := openStoreOf(t, mem)
	w := &replay{t: t, dir: filepath.Join(t.TempDir(), "s"), want: map[string][]byte{}}
	if err := os.Mkdir(w.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	w.write(repo.Manifest, mem.Get("s/"+repo.Manifest))
	var lines []repo.Entry
	for e, err := range done.r.journal(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		w.want[e.Revision.String()], _ = exported(t, treeOf(t, done, map[string]string{revisionParam: e.Revision.String()}), "/", wholeTree)
		lines = append(lines, e)
	}
	slices.Reverse(lines)
	written := map[segment.ID]bool{}
	line := func() {
		for len(lines) > 0 && allThere(t, done, lines[0].Segment, written, map[segment.ID]bool{}) {
			b := repo.AppendLine(nil, lines[0].Revision, lines[0].Millis)
			lines = lines[1:]
			w.pieces(repo.Journal, b, 1+rnd.IntN(len(b)-1))
		}
	}
	for i, tar := range slices.Backward(done.r.tars) {
		whole := mem.Get("s/" + tar.Name)
		end := 0
		for _, k := range tar.ByPosition() {
			e := tar.At(int(k))
			span := e.Whole()
			w.pieces(tar.Name, whole[span.Off:span.Off+span.Len], rnd.IntN(tarfile.BlockSize), tarfile.BlockSize, tarfile.BlockSize+rnd.IntN(e.Len))
			written[e.ID], end = true, int(span.Off+span.Len)
			line()
		}
		if rest := whole[end:]; i > 0 {
			w.pieces(tar.Name, rest, rnd.IntN(len(rest)), len(rest)-tarfile.BlockSize-1)
			again := tarfile.Name(tar.Number, tar.Letter+1)
			w.pieces(again, whole, rnd.IntN(len(whole)), len(whole)-1)
			w.steps = append(w.steps, func() { w.must(os.Remove(filepath.Join(w.dir, tar.Name))) })
		}
	}
	if len(lines) > 0 {
		t.Fatalf("%d lines of the journal need what is not there", len(lines))
	}
	return w
}

// allThere reports whether a segment was written, and all that it refers to, as far as it is
// in the finished store.
func allThere(t *testing.T, s *Store, id segment.ID, written, seen map[segment.ID]bool) bool {
	tar, e, ok := s.r.locate(id)
	if !ok || seen[id] {
		return true
	}
	seen[id] = true
	if !written[id] {
		return false
	}
	if !id.IsData() {
		return true
	}
	b, err := tar.read(t.Context(), e, nil, asStored)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := segment.ParseHead(b)
	for to := range h.Refs.All() {
		if !allThere(t, s, to, written, seen) {
			return false
		}
	}
	return true
}

// pieces adds steps that write b at the end of a file, cut into pieces.
func (w *replay) pieces(name string, b []byte, cuts ...int) {
	slices.Sort(cuts)
	from := 0
	for _, to := range append(cuts, len(b)) {
		piece := b[from:to]
		if from = to; len(piece) > 0 {
			w.steps = append(w.steps, func() {
				w.write(name, piece)
				if name == repo.Journal && bytes.HasSuffix(piece, []byte("\n")) {
					w.rows++
				}
			})
		}
	}
}

func (w *replay) write(name string, b []byte) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	w.must(err)
	_, err = f.Write(b)
	w.must(err)
	w.must(f.Close())
}

func (w *replay) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// step does the next step, if there is one.
func (w *replay) step() bool {
	if len(w.steps) == 0 {
		return false
	}
	do := w.steps[0]
	w.steps = w.steps[1:]
	do()
	return true
}

// between is the store of a replay that continues with each request.
type between struct {
	store.Store
	meanwhile func()
	locked    bool
}

func (b *between) Open(ctx context.Context, name string) (store.Object, error) {
	b.meanwhile()
	o, err := b.Store.Open(ctx, name)
	return passing{o, b}, err
}

func (b *between) Can() store.Abilities {
	can := b.Store.Can()
	list, open := can.List, can.OpenGrowing
	can.List = func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
		b.meanwhile()
		return list(ctx, prefix)
	}
	can.OpenGrowing = func(ctx context.Context, name string) (store.Object, error) {
		b.meanwhile()
		o, err := open(ctx, name)
		if err != nil {
			return nil, err
		}
		return passing{o, b}, nil
	}
	can.Locked = func(context.Context, string) (string, error) {
		if b.locked {
			return "process 7 (java)", nil
		}
		return "", nil
	}
	return can
}

type passing struct {
	store.Object
	b *between
}

func (p passing) ReadAt(ctx context.Context, b []byte, off int64) error {
	p.b.meanwhile()
	return p.Object.ReadAt(ctx, b, off)
}

func TestAStoreIsReadBetweenAnyTwoWrites(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, name := range []string{"checkpoints", "multitar"} {
		for _, often := range []int{0, 40, 4} { // how seldom something is written while it is read; 0 is never
			t.Run(name, func(t *testing.T) {
				var w *replay
				seldom := often
				var one sync.Mutex // tars are read side by side
				reading := &between{locked: true, meanwhile: func() {
					one.Lock()
					defer one.Unlock()
					if often > 0 && rnd.IntN(seldom) == 0 {
						w.step()
					}
				}}
				seen := map[string]bool{}
				reads, least := 0, testkit.Rounds(t, 15)
				for again := true; again; again = often > 0 && (reads < least || len(seen) < min(3, len(w.want)) && reads < 2000) {
					if reads > least { // all was written while little was read
						seldom *= 2
					}
					w = newReplay(t, name, rnd)
					for w.rows == 0 {
						w.step()
					}
					reading.Store = local.New(filepath.Dir(w.dir))
					for n := 0; w.step(); n++ {
						if often == 0 && name == "multitar" && n%max(1, 150/least) > 0 {
							continue
						}
						reads++
						if readBeside(t, w, reading, seen); t.Failed() {
							return
						}
					}
				}
				t.Logf("%d reads; %d of %d revisions were the newest", reads, len(seen), len(w.want))
				if len(seen) < min(3, len(w.want)) {
					t.Error("too few")
				}
			})
		}
	}
}

// readBeside reads a store while it is being written.
func readBeside(t *testing.T, w *replay, st store.Store, seen map[string]bool) {
	t.Helper()
	s := openStoreOf(t, st)
	tree := treeOf(t, s, nil)
	b, _ := exported(t, tree, "/", wholeTree)
	if !bytes.Equal(b, w.want[tree.Revision()]) {
		t.Errorf("revision %s: another export", tree.Revision())
	}
	seen[tree.Revision()] = true
	r, err := s.Check(t.Context(), CheckOptions{Binaries: true})
	if err != nil || !r.Whole || !r.BeingWritten {
		t.Errorf("check: %+v, %v", r, err)
	}
	if p := s.Doubt(); p != nil {
		t.Errorf("doubt: %+v", *p)
	}
	w.must(s.Close())
	for _, quick := range []bool{false, true} {
		sum, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}, Quick: quick}, func(p format.Problem) {
			if p.Severity > format.Note {
				t.Errorf("verify, quick %v: %+v", quick, p)
			}
		})
		if err != nil || !sum.BeingWritten {
			t.Errorf("verify, quick %v: %+v, %v", quick, sum, err)
		}
	}
	for _, view := range Format.Views {
		a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{Format}})
		w.must(err)
		for e, err := range a.Entries(t.Context()) {
			if err != nil || e.Fault != nil {
				t.Errorf("%s: %+v, %v", e.Name, e.Fault, err)
			}
		}
		_, err = a.About(t.Context())
		w.must(err)
		_, err = a.StoredSize(t.Context())
		w.must(err)
		w.must(a.Close())
	}
}

// A program that writes to a store without a lock is noticed by its growth. If nothing grows, the
// store was left like that.
func TestATarWithoutIndexIsOfAWriterOnlyIfThereIsOne(t *testing.T) {
	w := newReplay(t, "checkpoints", testkit.Rand(t))
	for w.rows == 0 {
		w.step()
	}
	listed := 0
	grows := &between{Store: local.New(filepath.Dir(w.dir)), meanwhile: func() {}}
	about := func() map[string]format.Severity {
		found := map[string]format.Severity{}
		sum, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: grows, Formats: []*format.Format{Format}}}, func(p format.Problem) { found[p.Class] = p.Severity })
		w.must(err)
		if _, said := found[beingWritten]; said != sum.BeingWritten {
			t.Errorf("%+v of %v", sum, found)
		}
		return found
	}
	if found := about(); found["not-closed"] != format.Warning || len(found) != 1 {
		t.Errorf("left: %v", found)
	}
	grows.meanwhile = func() {
		if listed++; listed%2 == 0 {
			w.step()
		}
	}
	if found := about(); found[beingWritten] != format.Note || len(found) != 1 {
		t.Errorf("growing: %v", found)
	}
}

// listed does something when it has been listed for the first time.
type listed struct {
	storetest.Mem
	then sync.Once
	do   func()
}

func (l *listed) Can() store.Abilities {
	can := l.Mem.Can()
	list := can.List
	can.List = func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
		return func(yield func(store.Info, error) bool) {
			list(ctx, prefix)(yield)
			l.then.Do(l.do)
		}
	}
	return can
}

// In a bucket the journal is read after the list: if a revision came between them, the list is
// read again.
func TestARevisionThatCameAfterTheListIsRead(t *testing.T) {
	w := fixture(t, "multitar")
	was := &listed{}
	for name, b := range objects(t, w) {
		was.Put(name, b)
	}
	if err := onStore(t.Context(), w, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "x", []string{"y"}, SetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	was.do = func() {
		for name, b := range objects(t, w) {
			was.Put(name, b)
		}
	}
	s := openStoreOf(t, was)
	defer s.Close()
	want := treeOf(t, openStoreOf(t, w), nil).Revision()
	if got := treeOf(t, s, nil).Revision(); got != want || s.Doubt() != nil {
		t.Errorf("revision %s, expected %s; %v", got, want, s.Doubt())
	}
}

// An open archive continues to show what it had when it was opened, even if tars have been
// removed since.
func TestWhatIsOpenStaysAsItWas(t *testing.T) {
	dir := filepath.Join(testkit.Unpacked(t, "testdata/multitar.tar.gz"), "segmentstore")
	for _, view := range Format.Views {
		a, err := holdall.Open(t.Context(), filepath.Base(dir), holdall.OpenOptions{Store: local.New(filepath.Dir(dir)), View: view, Formats: []*format.Format{Format}})
		if err != nil {
			t.Fatal(err)
		}
		aside := dir + " aside"
		if err := os.Rename(dir, aside); err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !e.Kind.HasContent() || e.Fault != nil || e.Size == 0 {
				continue
			}
			if _, err := a.ReadAt(t.Context(), e, make([]byte, e.Size), 0); err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}
			n++
		}
		if err := a.Close(); err != nil || n == 0 && view != filesView { // the fixture has no files
			t.Errorf("%d files, %v", n, err)
		}
		if err := os.Rename(aside, dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A watch reports each revision once, whenever it looks, with the same changes as a diff.
func TestAWatchTellsEachRevisionOnce(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, name := range testkit.Few(t, 1, "checkpoints", "multitar") {
		w := newReplay(t, name, rnd)
		for w.rows == 0 {
			w.step()
		}
		st := &between{Store: local.New(filepath.Dir(w.dir)), locked: true, meanwhile: func() {
			if rnd.IntN(20) == 0 {
				w.step()
			}
		}}
		watch, err := Watch(t.Context(), st, "s", format.OpenOptions{}, WatchOptions{})
		w.must(err)
		first := watch.from
		var told []Arrival
		for more := true; more; {
			more = w.step()
			for a, err := range watch.Next(t.Context()) {
				w.must(err)
				told = append(told, a)
			}
		}
		w.must(watch.Close())
		done := openStoreOf(t, fixture(t, name))
		var want []string
		for e, err := range done.r.journal(t.Context()) {
			w.must(err)
			if e.Revision.String() == first {
				break
			}
			want = append(want, e.Revision.String())
		}
		slices.Reverse(want)
		want = slices.Compact(want)
		var got []string
		before := first
		for _, a := range told {
			got = append(got, a.Revision)
			if a.After != before || a.Lost != "" || a.Gap {
				t.Errorf("%+v, after %s", a, before)
			}
			var changes []string
			for c, err := range treeOf(t, done, map[string]string{revisionParam: before}).Changes(t.Context(), treeOf(t, done, map[string]string{revisionParam: a.Revision}), "/", ChangesOptions{}) {
				w.must(err)
				changes = append(changes, c.String())
			}
			var said []string
			for _, c := range a.Changes {
				said = append(said, c.String())
			}
			if changes = changes[:min(len(changes), mostArrived)]; !slices.Equal(said, changes) {
				t.Errorf("%s: %q, expected %q", a.Revision, said, changes)
			}
			before = a.Revision
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

func TestAWatchBeginsWhereItIsTold(t *testing.T) {
	mem := fixture(t, "checkpoints")
	s := openStoreOf(t, mem)
	var all []string
	for e, err := range s.r.journal(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Revision.String())
	}
	next := func(w *Watcher) (revisions []string, last Arrival) {
		t.Helper()
		for a, err := range w.Next(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			revisions, last = append(revisions, a.Revision), a
		}
		return revisions, last
	}
	open := func(o WatchOptions) *Watcher {
		t.Helper()
		w, err := Watch(t.Context(), mem, "s", format.OpenOptions{}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	w := open(WatchOptions{From: all[2]})
	if got, _ := next(w); !slices.Equal(got, []string{all[1], all[0]}) {
		t.Errorf("%q, expected the newest of %q", got, all)
	}
	if got, last := next(open(WatchOptions{From: all[len(all)-1], Path: "/later"})); !slices.Equal(got, all[:1]) || last.Changes[0].Kind != NodeAdded {
		t.Errorf("below a path: %q, %+v", got, last)
	}
	// The previous contents of a rewritten journal are not known.
	mem.Put("s/"+repo.Journal, []byte(all[1]+" root 1\n"))
	if got, last := next(w); !slices.Equal(got, all[1:2]) || !last.Gap {
		t.Errorf("written anew: %q, %+v", got, last)
	}
	if _, err := Watch(t.Context(), mem, "s", format.OpenOptions{}, WatchOptions{From: all[0]}); err == nil {
		t.Error("a revision that the journal has not")
	}
	// So is what has no segment any more.
	gone := "11111111-2222-4333-a444-555555555555:1"
	mem.Put("s/"+repo.Journal, []byte(all[1]+" root 1\n"+gone+" root 2\n"+all[0]+" root 3\n"))
	var lost []string
	for a, err := range w.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		lost = append(lost, a.Lost)
		if a.After != all[1] {
			t.Errorf("%+v", a)
		}
	}
	if len(lost) != 2 || lost[0] == "" || lost[1] != "" {
		t.Errorf("%q", lost)
	}
}

// What a scan has found is not scanned again, and tars with an index stay open.
func TestAWatchReadsOnlyWhatIsNew(t *testing.T) {
	testkit.Serial(t)
	w := newReplay(t, "multitar", testkit.Rand(t))
	for w.rows < 2 {
		w.step()
	}
	var read int64
	st := &tally{local.New(filepath.Dir(w.dir)), &read}
	watch, err := Watch(t.Context(), st, "s", format.OpenOptions{}, WatchOptions{})
	w.must(err)
	for more := true; more; {
		more = w.step()
		rows := w.rows
		read = 0
		for _, err := range watch.Next(t.Context()) {
			w.must(err)
		}
		if rows == w.rows && read > 8<<20 {
			t.Errorf("%d bytes", read)
		}
	}
	had := maps.Clone(watch.s.r.byPath)
	w.write(repo.Journal, []byte("\n"))
	read = 0
	for range watch.Next(t.Context()) {
		t.Error("something has come")
	}
	for path, tar := range had {
		if is := watch.s.r.byPath[path]; tar.file != nil && is != tar {
			t.Errorf("%s was opened again", path)
		}
	}
	if read > 3*tailGuess { // the last tar's end, where the scan continues
		t.Errorf("%d bytes for an empty line", read)
	}
	w.must(watch.Close())
}

// tally counts the bytes that are read.
type tally struct {
	store.Store
	n *int64
}

func (c *tally) Can() store.Abilities {
	can := c.Store.Can()
	open := can.OpenGrowing
	can.OpenGrowing = func(ctx context.Context, name string) (store.Object, error) {
		o, err := open(ctx, name)
		if err != nil {
			return nil, err
		}
		return tallied{o, c.n}, nil
	}
	return can
}

type tallied struct {
	store.Object
	n *int64
}

func (c tallied) ReadAt(ctx context.Context, b []byte, off int64) error {
	*c.n += int64(len(b))
	return c.Object.ReadAt(ctx, b, off)
}

// busy is a store that another program has locked. It changes when its journal has been opened.
type busy struct {
	storetest.Mem
	then sync.Once
	do   func()
}

func (b *busy) Can() store.Abilities {
	can := b.Mem.Can()
	can.Near, can.Locked = true, func(context.Context, string) (string, error) { return "java", nil }
	can.OpenGrowing = func(ctx context.Context, name string) (store.Object, error) {
		o, err := b.Mem.Clone().Open(ctx, name) // which stays as it is
		if path.Base(name) == repo.Journal {
			b.then.Do(b.do)
		}
		return o, err
	}
	return can
}

// If a cleanup comes between the journal and the tars, the journal is read again: its line may need
// what has been removed.
func TestACleanupAfterTheJournalIsNoticed(t *testing.T) {
	w := fixture(t, "cleanup-pending")
	was := &busy{}
	for name, b := range objects(t, w) {
		was.Put(name, b)
	}
	if err := cleanUp(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := onStore(t.Context(), w, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "x", []string{"y"}, SetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	was.do = func() {
		for name := range objects(t, &was.Mem) {
			if w.Get(name) == nil {
				if err := was.Remove(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		}
		for name, b := range objects(t, w) {
			if !bytes.Equal(was.Get(name), b) {
				was.Put(name, b)
			}
		}
	}
	s := openStoreOf(t, was)
	defer s.Close()
	want := treeOf(t, openStoreOf(t, w), nil).Revision()
	if got := treeOf(t, s, nil).Revision(); got != want {
		t.Errorf("revision %s, expected %s", got, want)
	}
}

func cleanUp(ctx context.Context, st store.Store) error {
	return onStore(ctx, st, func(s *Store) error {
		c, err := s.PlanCleanup(ctx, CleanupOptions{})
		if err == nil && !c.Changes() {
			err = errors.New("nothing to clean up")
		}
		if err == nil {
			err = c.Apply(ctx)
		}
		return err
	})
}
