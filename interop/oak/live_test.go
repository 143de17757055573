//go:build unix

package oak_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store/local"
)

// An exported line, as docs/oak.md describes it.
type exportedLine struct {
	Path       string
	Properties map[string]exportedValue
	Property   string
	Index      int
	From       *int
	Offset     *int64
	Base64     *string
	Text       *string
	Values     []any
	Lost       any
}

type exportedValue struct {
	Type     string
	Multiple bool
	Value    *string
	Base64   *string
	Values   []any
	Follows  bool
	Lost     any
}

// elementOf decodes an element of a path as docs/oak.md tells.
func elementOf(elem string) string {
	if elem == "%" {
		return ""
	}
	var name []byte
	for i := 0; i < len(elem); i++ {
		if elem[i] == '%' && i+2 < len(elem) {
			if b, err := strconv.ParseUint(elem[i+1:i+3], 16, 8); err == nil && elem[i+1:i+3] == strings.ToUpper(elem[i+1:i+3]) &&
				(b < 0x20 || b >= 0x7f || strings.ContainsRune(`%./:\`, rune(b))) {
				name, i = append(name, byte(b)), i+2
				continue
			}
		}
		name = append(name, elem[i])
	}
	return string(name)
}

// sumOfExport is the digest of an export's tree as LiveStore.java makes it of the tree, and
// the number of the commit that the root has.
func sumOfExport(t *testing.T, export []byte) (sum string, commit int64) {
	t.Helper()
	type property struct {
		exportedValue
		rest []byte // that follows
	}
	nodes := map[string]map[string]*property{}
	for line := range bytes.Lines(export) {
		var l exportedLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if bytes.Contains(line, []byte(`"lost"`)) {
			t.Fatalf("%s", line)
		}
		if l.Properties == nil && l.Property != "" {
			b, err := base64.StdEncoding.DecodeString(*l.Base64)
			if err != nil {
				t.Fatal(err)
			}
			p := nodes[l.Path][l.Property]
			p.rest = append(p.rest, b...)
			continue
		}
		if nodes[l.Path] == nil {
			nodes[l.Path] = map[string]*property{}
		}
		for name, v := range l.Properties {
			nodes[l.Path][name] = &property{exportedValue: v}
		}
	}
	var all []string
	for path, properties := range nodes {
		var props []string
		for name, p := range properties {
			parts := []string{elementOf(name), p.Type, fmt.Sprint(p.Multiple)}
			text := func(v any) {
				s, ok := v.(string)
				if !ok {
					t.Fatalf("%s %s: %v", path, name, v)
				}
				parts = append(parts, s)
			}
			switch {
			case p.Multiple:
				for _, v := range p.Values {
					text(v)
				}
			case p.Follows:
				parts = append(parts, string(p.rest))
			case p.Base64 != nil:
				b, err := base64.StdEncoding.DecodeString(*p.Base64)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, string(b))
			default:
				text(*p.Value)
			}
			props = append(props, digestOf(parts...))
		}
		var parts []string
		if path != "/" {
			for elem := range strings.SplitSeq(path[1:], "/") {
				parts = append(parts, elementOf(elem))
			}
		}
		all = append(all, digestOf(append(parts, sortedDigest(props))...))
	}
	if n := nodes["/"]["commit"]; n != nil {
		commit, _ = strconv.ParseInt(*n.Value, 10, 64)
	}
	return sortedDigest(all), commit
}

func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		io.WriteString(h, p)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func sortedDigest(digests []string) string {
	slices.Sort(digests)
	return digestOf(strings.Join(digests, ""))
}

// exportOf exports a store's tree, of the newest revision if revision is empty.
func exportOf(t *testing.T, dir, revision string) []byte {
	t.Helper()
	var out bytes.Buffer
	withStore(t, dir, func(s *oak.Store) {
		param := map[string]string{}
		if revision != "" {
			param["revision"] = revision
		}
		tree, err := s.Tree(t.Context(), param)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := tree.Export(t.Context(), &out, "/", oak.ExportOptions{Depth: -1}); err != nil || x.Lost > 0 {
			t.Fatalf("%d lost, %v", x.Lost, err)
		}
		if p := s.Doubt(); p != nil {
			t.Errorf("%+v", *p)
		}
	})
	return out.Bytes()
}

// contentsOf reads all that an open archive has.
func contentsOf(t *testing.T, a *holdall.Archive) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := a.Contents(t.Context(), func(holdall.Entry) bool { return true }, func(e holdall.Entry, r io.Reader, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		b, err := io.ReadAll(r)
		all[e.Name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func opened(t *testing.T, dir, view string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), filepath.Base(dir), holdall.OpenOptions{Store: local.New(filepath.Dir(dir)), Format: "oak", View: view})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// readLive does once with a store what people do, and wants no alarm.
func readLive(t *testing.T, l *oaktest.Live) {
	t.Helper()
	sum, commit := sumOfExport(t, exportOf(t, l.Store, ""))
	if want := l.Numbered(t, commit); sum != want.Sum {
		t.Errorf("commit %d: the export is not what the reference reads", commit)
	}
	verified(t, l.Store, false, true)
	verified(t, l.Store, true, true)
	if r := checkStore(t, l.Store); !r.Whole || !r.BeingWritten {
		t.Errorf("check: %+v", r)
	}
	for _, view := range []string{"tree", "segments"} { // ls, cat, extract and info
		a := opened(t, l.Store, view)
		contentsOf(t, a)
		about, err := a.About(t.Context())
		if err != nil || !slices.ContainsFunc(about.Notes, func(p format.Problem) bool { return p.Code == format.BeingWritten }) ||
			slices.ContainsFunc(about.Notes, func(p format.Problem) bool { return p.Severity > format.Note }) {
			t.Errorf("info: %+v, %v", about.Notes, err)
		}
		if _, err := a.StoredSize(t.Context()); err != nil {
			t.Error(err)
		}
		if err := a.Doubt(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// verified wants a check to find no fault, and to say whether the store is being written.
func verified(t *testing.T, dir string, quick, live bool) {
	t.Helper()
	sum, err := holdall.Verify(t.Context(), filepath.Base(dir), holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: local.New(filepath.Dir(dir))}, Quick: quick}, func(p holdall.Problem) {
		if p.Severity > format.Note {
			t.Errorf("verify, quick %v: %s %s", quick, p.Class, p.Message)
		}
	})
	if err != nil || sum.BeingWritten != live {
		t.Errorf("verify, quick %v: %+v, %v", quick, sum, err)
	}
}

// rounds are as many as usual, fewer in a short run, or HOLDALL_TORTURE if that is more.
func rounds(usual int) int {
	if testing.Short() {
		usual /= 4
	}
	if n, err := strconv.Atoi(os.Getenv("HOLDALL_TORTURE")); err == nil && n > usual {
		usual = n
	}
	return usual
}

func TestAStoreThatTheReferenceWritesToIsReadWithoutAlarm(t *testing.T) {
	rounds := rounds(28)
	seed := rand.Int64()
	t.Logf("seed %d", seed)
	l := oaktest.OpenLive(t, seed)
	l.Do(t, "commit 10")
	long := opened(t, l.Store, "tree")
	was := contentsOf(t, long)
	if err := long.Close(); err != nil {
		t.Fatal(err)
	}
	long = opened(t, l.Store, "tree") // opened before the tars are removed, but not read yet
	l.Begin(t, "run 5 15")
	for n := range rounds {
		if readLive(t, l); t.Failed() {
			break
		}
		if n%100 == 99 {
			t.Logf("%d rounds, %d commits", n+1, l.Last().Commit)
		}
	}
	if is := contentsOf(t, long); !maps.Equal(was, is) {
		t.Errorf("what was opened at the beginning: %d entries, expected %d", len(is), len(was))
	}
	if err := long.Close(); err != nil {
		t.Error(err)
	}
	last := l.Do(t, "commit")
	tars, _ := filepath.Glob(filepath.Join(l.Store, "*.tar"))
	b, _ := os.ReadFile(filepath.Join(l.Store, "gc.log"))
	t.Logf("%d rounds beside %d commits and %d collections; %d tars", rounds, last.Commit, bytes.Count(b, []byte("\n")), len(tars))
	for _, revision := range []string{"", last.Revision} {
		if sum, commit := sumOfExport(t, exportOf(t, l.Store, revision)); sum != last.Sum || commit != last.Commit {
			t.Errorf("at rest: commit %d, expected %d", commit, last.Commit)
		}
	}
	l.Close(t)
	verified(t, l.Store, false, false)
}

// A backup that goes on while the reference commits, compacts and cleans up is after each round
// whole and what the reference had at that commit, and in the end the reference goes on with it.
func TestABackupBesideTheReference(t *testing.T) {
	seed := rand.Int64()
	t.Logf("seed %d", seed)
	l := oaktest.OpenLive(t, seed)
	dir := t.TempDir()
	backup := oaktest.Place{Store: filepath.Join(dir, "0")}
	known, fresh, freed := int64(0), 0, int64(0)
	backUp := func() (said oak.BackedUp) {
		t.Helper()
		withStore(t, l.Store, func(s *oak.Store) {
			var err error
			said, err = s.Backup(t.Context(), local.New(dir), filepath.Base(backup.Store), oak.BackupOptions{})
			if err != nil && strings.Contains(err.Error(), "no segment in common") { // all was compacted twice meanwhile
				fresh++
				backup.Store = filepath.Join(dir, strconv.Itoa(fresh))
				said, err = s.Backup(t.Context(), local.New(dir), filepath.Base(backup.Store), oak.BackupOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		known, freed = known+said.Known, freed+said.Freed
		return said
	}
	l.Begin(t, "run 1 6")
	n := 0
	for ; n < rounds(8) || known == 0 || freed == 0 && fresh == 0; n++ { // until backups went on, and garbage was collected
		backUp()
		sum, commit := sumOfExport(t, exportOf(t, backup.Store, ""))
		if want := l.Numbered(t, commit); sum != want.Sum {
			t.Fatalf("commit %d: the backup is not what the reference had", commit)
		}
		if r := checkStore(t, backup.Store); !r.Whole || r.BeingWritten {
			t.Fatalf("check of the backup: %+v", r)
		}
		verified(t, backup.Store, false, false)
		l.Numbered(t, commit+3)
	}
	last := l.Do(t, "commit")
	l.Close(t)
	if said := backUp(); said.Head != last.Revision {
		t.Errorf("the last backup is of %s, expected %s", said.Head, last.Revision)
	}
	t.Logf("%d backups beside %d commits: %d segments were there already, %d bytes of garbage went, %d folders more", n, last.Commit, known, freed, fresh)
	backup.Verify(t)
	compareStores(t, backup, l.Place)
	openWithReference(t, backup)
}

// A store whose writer was killed is no store that is being written.
func TestAKilledWriterIsNoWriter(t *testing.T) {
	l := oaktest.OpenLive(t, rand.Int64())
	l.Do(t, "commit 3")
	verified(t, l.Store, false, true)
	l.Kill(t)
	found := map[string]format.Severity{}
	sum, err := holdall.Verify(t.Context(), filepath.Base(l.Store), holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: local.New(filepath.Dir(l.Store))}}, func(p holdall.Problem) { found[p.Class] = p.Severity })
	if err != nil || sum.BeingWritten || found["not-closed"] != format.Warning {
		t.Errorf("%v: %+v, %v", found, sum, err)
	}
	a := opened(t, l.Store, "segments")
	defer a.Close()
	about, err := a.About(context.WithoutCancel(t.Context()))
	if err != nil || !slices.ContainsFunc(about.Notes, func(p format.Problem) bool { return p.Class == "no-index" && p.Severity == format.Warning }) {
		t.Errorf("%+v, %v", about.Notes, err)
	}
}

// A watch tells of each commit of the reference, through compactions and cleanups.
func TestAWatchFollowsTheReference(t *testing.T) {
	l := oaktest.OpenLive(t, rand.Int64())
	w, err := oak.Watch(t.Context(), local.New(filepath.Dir(l.Store)), filepath.Base(l.Store), format.OpenOptions{}, oak.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	from := l.Last().Commit
	next := func() {
		t.Helper()
		told := map[string]oak.Arrival{}
		for a, err := range w.Next(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if told[a.Revision] = a; a.Gap || a.Lost != "" {
				t.Errorf("%+v", a)
			}
		}
		for n := from + 1; n <= l.Last().Commit; n++ {
			a, ok := told[l.Numbered(t, n).Revision]
			want := fmt.Sprintf(`{"type":"Long","value":"%d"}`, n)
			if !ok || !slices.ContainsFunc(a.Changes, func(c oak.Change) bool { return c.Property == "commit" && string(c.After) == want }) {
				t.Errorf("commit %d: %+v", n, a)
			}
		}
		from = l.Last().Commit
	}
	for _, line := range []string{"commit", "commit 20", "gc full", "commit", "gc tail", "gc full", "commit 3"} {
		l.Do(t, line)
		next()
	}
	l.Close(t)
	next()
}

// Verbs that change a store refuse an open one. Reading the store before that does not release
// the lock of its holder.
func TestReadingTakesNoLock(t *testing.T) {
	l := oaktest.OpenLive(t, rand.Int64())
	readLive(t, l)
	if _, err := oak.Format.Repair(t.Context(), local.New(filepath.Dir(l.Store)), filepath.Base(l.Store), format.OpenOptions{}, func(format.Problem) {}); err == nil || !strings.Contains(err.Error(), "is writing to the store") {
		t.Errorf("repair: %v", err)
	}
	by, err := local.New(l.Store).Locked(t.Context(), "repo.lock")
	if err != nil || !strings.HasPrefix(by, "process ") {
		t.Errorf("%q, %v", by, err)
	}
	l.Close(t)
	if by, err := local.New(l.Store).Locked(t.Context(), "repo.lock"); by != "" || err != nil {
		t.Errorf("closed: %q, %v", by, err)
	}
}
