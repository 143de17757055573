package sweep

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

const testdata = "../../testdata/"

// unpack unpacks a fixture: the folders segmentstore and by chance datastore.
func unpack(t testing.TB, name string) (place string) {
	t.Helper()
	return testkit.Unpacked(t, testdata+name+".tar.gz")
}

// openTars opens the tars of a folder as Oak does: of each number the last letter
// whose index is sound. others are the files of other letters.
func openTars(t testing.TB, st store.Store) (tars []Tar, others []string) {
	t.Helper()
	var names []string
	for info, err := range storekit.List(t.Context(), st, "data") {
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := tarfile.ParseName(info.Name); ok {
			names = append(names, info.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, k, _ := tarfile.ParseName(a)
		y, l, _ := tarfile.ParseName(b)
		return cmp.Or(y-x, int(l)-int(k))
	})
	for _, name := range names {
		number, letter, _ := tarfile.ParseName(name)
		if len(tars) > 0 && tars[len(tars)-1].Number == number {
			others = append(others, name)
			continue
		}
		o, err := st.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := tarfile.Open(t.Context(), o, name, tarfile.Options{})
		if _, ok := errors.AsType[*tarfile.NoIndex](err); ok {
			o.Close()
			others = append(others, name)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		tars = append(tars, Tar{name, number, letter, o, x})
	}
	return tars, others
}

func closeTars(tars []Tar) {
	for _, t := range tars {
		t.Object.Close()
	}
}

// newest reads the journal: its last line whose segment is there.
func newest(t testing.TB, dir string, tars []Tar) (head Head, root segment.RecordID) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "journal.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range slices.Backward(strings.Split(string(b), "\n")) {
		revision, _, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		root, err := segment.ParseRecordID(revision)
		if err != nil {
			continue
		}
		for _, x := range tars {
			if i, ok := x.Index().Find(root.Segment); ok {
				return Head{root.Segment, x.Index().At(i).Generation}, root
			}
		}
	}
	t.Fatal("no revision")
	return
}

// swept is the result of a cleanup.
type swept struct {
	plan     *Plan
	problems []tarfile.Problem
	root     segment.RecordID
}

// cleanup does what a command does: it marks, writes, and removes the old tars.
func cleanup(t testing.TB, dir string, o Options) (s swept) {
	t.Helper()
	st := local.New(dir)
	tars, others := openTars(t, st)
	defer closeTars(tars)
	head, root := newest(t, dir, tars)
	s.root = root
	o.Root = &head.Segment
	o.Taken = func(name string) bool { return exists(filepath.Join(dir, name)) }
	o.Report = func(_ string, p tarfile.Problem) { s.problems = append(s.problems, p) }
	var err error
	if s.plan, err = Mark(t.Context(), tars, head, o); err != nil {
		t.Fatal(err)
	}
	old := others
	for i, x := range s.plan.Tars {
		if x.Action == Rewrite {
			info, err := s.plan.Sweep(t.Context(), st, "", i)
			if err != nil {
				t.Fatal(err)
			}
			if info.Name != x.NewName {
				t.Fatalf("%s: expected %s", info.Name, x.NewName)
			}
		}
		if x.Action == Rewrite || x.Action == Drop {
			old = append(old, x.Name)
		}
	}
	for _, name := range old {
		if err := storekit.Remove(t.Context(), st, name); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// openDir opens the tars of a folder until the test ends.
func openDir(t testing.TB, dir string) []Tar {
	t.Helper()
	tars, _ := openTars(t, local.New(dir))
	t.Cleanup(func() { closeTars(tars) })
	return tars
}

func storeOf(dir string) store.Store { return local.New(dir) }

func writeFile(t testing.TB, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
