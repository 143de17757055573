package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/caf"
	_ "github.com/holdall/holdall/store/all"

	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
)

func record(name, content string) *Record {
	return &Record{LogRow: caf.LogRow{Name: name}, Content: []byte(content)}
}

func deletion(name string) *Record { return &Record{LogRow: caf.LogRow{Name: name, Deleted: true}} }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, dir string, o Options) (*Journal, []*Segment) {
	t.Helper()
	j, all, err := Open(t.Context(), dir, o)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j, all
}

// told returns the rows of a segment with their contents.
func told(t testing.TB, s *Segment) (all []string) {
	t.Helper()
	for r, err := range s.Rows(t.Context()) {
		must(t, err)
		b := make([]byte, r.Size)
		if r.Here() {
			if _, err := s.ReadAt(b, r.Off); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, fmt.Sprintf("%d %s %s", r.Seq, r.Name, b))
	}
	return all
}

func want(t testing.TB, what string, got []string, all ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(all, "|") {
		t.Errorf("%s: %q, expected %q", what, got, all)
	}
}

// TestAnEmptySegmentIsInNobodysWay has a crash between the beginning of a segment and the removal of the empty one
// before it.
func TestAnEmptySegmentIsInNobodysWay(t *testing.T) {
	dir := t.TempDir()
	j, _ := mustOpen(t, dir, Options{})
	must(t, j.Append([]*Record{record("a", "x")}))
	first, err := j.Roll()
	must(t, err)
	must(t, first.Remove())
	must(t, j.Close())
	empty := dir + "/" + nameOf(2)
	b, err := os.ReadFile(empty)
	must(t, err)
	j, _ = mustOpen(t, dir, Options{})
	must(t, j.Append([]*Record{record("b", "y")}))
	must(t, j.Close())
	must(t, os.WriteFile(empty, b, 0o666))

	j, all := mustOpen(t, dir, Options{})
	if len(all) != 1 {
		t.Fatalf("recovered %d segments", len(all))
	}
	want(t, "rows", told(t, all[0]), "1 b y")
	must(t, all[0].Remove())
	if _, err := os.Stat(empty); err == nil {
		t.Error("the empty segment is there")
	}
}

func TestALogOnADisk(t *testing.T) {
	dir := t.TempDir()
	j, all := mustOpen(t, dir, Options{Text: "of photos"})
	if len(all) > 0 {
		t.Fatalf("recovered %d segments", len(all))
	}
	must(t, j.Append([]*Record{record("a", "first"), record("b", "stays"), record("gone", "x")}))
	second := record("a", "second")
	must(t, j.Append([]*Record{second, deletion("gone")}))
	if second.Seq != 3 || second.Segment.Log().Text != "of photos" {
		t.Errorf("%+v", second)
	}
	first, err := j.Roll()
	must(t, err)
	if none, err := j.Roll(); none != nil || err != nil {
		t.Errorf("rolled an empty segment: %v", err)
	}
	must(t, j.Append([]*Record{record("c", "")}))
	if _, err := second.Segment.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := j.current.Seal(t.Context()); err == nil {
		t.Error("sealed a segment that grows")
	}
	var locked *disk.LockedError
	if _, _, err := Open(t.Context(), dir, Options{}); !errors.As(err, &locked) || locked.PID != fmt.Sprint(os.Getpid()) {
		t.Errorf("opened it twice: %v", err)
	}
	must(t, j.Close())

	// The sealed segment is a CAF without a finding.
	sum, err := holdall.Verify(t.Context(), first.Path(), holdall.VerifyOptions{}, func(p holdall.Problem) { t.Errorf("%+v", p) })
	if err != nil || sum.Verdict() != "sound" || sum.Entries != 2 {
		t.Errorf("%+v, %v", sum, err)
	}

	j, all = mustOpen(t, dir, Options{})
	if len(all) != 2 || all[0].Sealed() == 0 || all[1].Sealed() != 0 {
		t.Fatalf("recovered %+v", all)
	}
	want(t, "first", told(t, all[0]), "0 a first", "1 b stays", "2 gone x", "3 a second", "4 gone ")
	want(t, "second", told(t, all[1]), "5 c ")
	if err := all[1].Remove(); err == nil {
		t.Error("removed a segment before an older one")
	}
	if !all[0].Hold() {
		t.Fatal("cannot be held")
	}
	must(t, all[0].Remove())
	want(t, "while it is held", told(t, all[0]), "0 a first", "1 b stays", "2 gone x", "3 a second", "4 gone ")
	all[0].Release()
	if _, err := all[0].ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrRemoved) {
		t.Errorf("read a removed segment: %v", err)
	}
	must(t, all[1].Remove())
	must(t, j.Close())
	j, all = mustOpen(t, dir, Options{})
	r := record("d", "x")
	must(t, j.Append([]*Record{r}))
	if len(all) != 0 || r.Seq != 6 {
		t.Errorf("recovered %d segments, sequence %d", len(all), r.Seq)
	}
}

// A second process is refused, and told who has the log.
func TestASecondProcessIsRefused(t *testing.T) {
	if dir := os.Getenv("HOLDALL_JOURNAL"); dir != "" {
		_, _, err := Open(t.Context(), dir, Options{})
		fmt.Println(err)
		return
	}
	dir := t.TempDir()
	mustOpen(t, dir, Options{})
	c := exec.Command(os.Args[0], "-test.run=^TestASecondProcessIsRefused$", "-test.v")
	c.Env = append(os.Environ(), "HOLDALL_JOURNAL="+dir)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), (&disk.LockedError{Dir: dir, PID: fmt.Sprint(os.Getpid())}).Error()) {
		t.Errorf("%s, %v", out, err)
	}
}
