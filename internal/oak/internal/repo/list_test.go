package repo

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func names(l Listing) (all []string) {
	for _, t := range l.Tars {
		all = append(all, t.Name)
	}
	return all
}

func put(st *storetest.Mem, files ...string) {
	for _, f := range files {
		st.Put(f, []byte(f))
	}
}

func list(t *testing.T, st store.Store, dir string) Listing {
	t.Helper()
	l, err := List(t.Context(), st, dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestListingOfFixturesHasTheirTarsNewestFirst(t *testing.T) {
	testkit.Serial(t)
	fixtures(t, func(t *testing.T, st *storetest.Mem, want expected) {
		l := list(t, st, "segmentstore")
		guessed := list(t, unlisted{st}, "segmentstore/")
		if !guessed.Guessed || guessed.Manifest != nil || guessed.GCLog != nil {
			t.Error("a store that cannot list was listed")
		}
		if err := guessed.Beside(t.Context(), unlisted{st}); err != nil {
			t.Error(err)
		}
		guessed.Release()
		if guessed.Guessed = false; !reflect.DeepEqual(guessed, l) {
			t.Errorf("guessed\n%+v, listed\n%+v", guessed, l)
		}
		if len(l.Tars) != len(want.Tars) || l.Journal == nil || l.Manifest == nil || (l.GCLog != nil) != (want.GCLog != nil) {
			t.Fatalf("%+v", l)
		}
		for i, f := range l.Tars {
			if want.Files[f.Name] != f.Size || f.Size == 0 {
				t.Errorf("%s: %d bytes, expected %d", f.Name, f.Size, want.Files[f.Name])
			}
			if i > 0 && (l.Tars[i-1].Number < f.Number || l.Tars[i-1].Number == f.Number && l.Tars[i-1].Letter <= f.Letter) {
				t.Errorf("%s comes after %s", f.Name, l.Tars[i-1].Name)
			}
		}
	})
}

func TestListingTellsFilesApart(t *testing.T) {
	st := &storetest.Mem{}
	put(st, "x/data00000.tar", "x/data00000a.tar", "x/data00000b.tar", "x/data100000c.tar", "x/data00002a.tar",
		"x/data0000a.tar", "x/data012345a.tar", "x/data00001A.tar", "x/data99999999999a.tar", "x/old data00001a.tar", "x/data00001a.tar~",
		"x/data00002a.tar.bak", "x/data00002a.tar.2.bak", "x/data00002a.tar.ro.bak", "x/data00002a.tar.3.ro.bak", "x/journal.log.bak.007", "x/journal.log.bak.07",
		"x/journal.log", "x/manifest", "x/gc.log", "x/repo.lock", "x/notes", "x/datastore/data00009a.tar", "xy/data00010a.tar")
	l := list(t, st, "./x")
	if want := []string{"data100000c.tar", "data00002a.tar", "data00000b.tar", "data00000.tar", "data00000a.tar"}; !reflect.DeepEqual(names(l), want) {
		t.Errorf("tars %q, expected %q", names(l), want)
	}
	var ignored []string
	for _, i := range l.Ignored {
		ignored = append(ignored, fmt.Sprint(i.Name, i.TooLarge))
	}
	if want := []string{"data00001A.tarfalse", "data00001a.tar~false", "data0000a.tarfalse", "data012345a.tarfalse", "data99999999999a.tartrue", "old data00001a.tarfalse"}; !reflect.DeepEqual(ignored, want) {
		t.Errorf("ignored %q, expected %q", ignored, want)
	}
	var backups []string
	for _, b := range l.Backups {
		backups = append(backups, b.Name)
	}
	if want := []string{"data00002a.tar.2.bak", "data00002a.tar.3.ro.bak", "data00002a.tar.bak", "data00002a.tar.ro.bak", "journal.log.bak.007"}; !reflect.DeepEqual(backups, want) {
		t.Errorf("backups %q, expected %q", backups, want)
	}
	if l.Journal == nil || l.Manifest == nil || l.GCLog == nil || l.Lock == nil || l.Lock.Size != int64(len("x/repo.lock")) {
		t.Errorf("%+v", l)
	}
	if len(l.Others) != 2 || l.Others[0].Name != "journal.log.bak.07" || l.Others[1].Name != "notes" {
		t.Errorf("others %+v", l.Others)
	}
	if c := l.Clashes(); len(c) != 1 || c[0][0].Name != "data00000.tar" || c[0][1].Name != "data00000a.tar" || !c[0][0].Letterless() || c[0][1].Letterless() {
		t.Errorf("clashes %+v", c)
	}
	if n := l.Numbers(); len(n) != 3 || len(n[2]) != 3 || n[2][0].Letter != 'b' {
		t.Errorf("numbers %+v", n)
	}
	if p := l.Path(l.Tars[0].Name); p != "x/data100000c.tar" {
		t.Error(p)
	}
	if root := list(t, st, ""); len(root.Tars) != 0 || len(root.Others) != 0 {
		t.Errorf("%+v", root)
	}
}

func TestGuessFindsLettersAfterGapsAndIsBounded(t *testing.T) {
	st := &storetest.Mem{}
	put(st, "data00003c.tar", "data00005z.tar", "data00010a.tar", "data00010b.tar", "data00070a.tar", "data00071b.tar")
	l := list(t, unlisted{st}, "")
	// Number 71 has no letter a, and is after the last one.
	if want := []string{"data00070a.tar", "data00010b.tar", "data00010a.tar", "data00005z.tar", "data00003c.tar"}; !reflect.DeepEqual(names(l), want) {
		t.Errorf("%q, expected %q", names(l), want)
	}
}

func TestGuessReturnsErrorsOfTheStore(t *testing.T) {
	st := &storetest.Mem{}
	put(st, tarfile.Name(0, 'a'))
	broken := errors.New("broken")
	for k, op := range []string{"info", "open"} {
		if _, err := List(t.Context(), unlisted{storetest.Fault(st, storetest.Nth(op, k+1, broken))}, ""); !errors.Is(err, broken) {
			t.Error(op, err)
		}
	}
	if _, err := List(t.Context(), storetest.Fault(st, storetest.Nth("list", 1, broken)), ""); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// asked is a store that counts which files are opened.
type asked struct {
	store.Store
	mu sync.Mutex
	n  map[string]int
}

func (a *asked) Open(ctx context.Context, name string) (store.Object, error) {
	a.mu.Lock()
	a.n[path.Base(name)]++
	a.mu.Unlock()
	return a.Store.Open(ctx, name)
}

func TestGuessEndsAtTheTarOfTheNewestRevision(t *testing.T) {
	testkit.Serial(t)
	fixtures(t, func(t *testing.T, st *storetest.Mem, _ expected) {
		if path.Base(t.Name()) != "multitar" {
			return
		}
		tars := list(t, st, "segmentstore").Tars // four; the newest has the newest revision
		for _, tt := range []struct {
			what     string
			as       []string // names of the tars, oldest first
			missing  []string // of them, that are not to be found
			at, most int      // files that are looked for
		}{
			{"one after another", []string{"data00000a.tar", "data00001a.tar", "data00002a.tar", "data00003a.tar"}, nil, 11, 11},
			{"gaps", []string{"data00000a.tar", "data00040a.tar", "data00041b.tar", "data00100a.tar"}, nil, 2500, 2700},
			{"letters", []string{"data00000c.tar", "data00001b.tar", "data00001c.tar", "data00005a.tar"}, nil, 120, 160},
			{"the newest has a letter", []string{"data00000a.tar", "data00001a.tar", "data00002a.tar", "data00003b.tar"}, nil, 250, 300},
			{"a long gap", []string{"data00000a.tar", "data00001a.tar", "data00002a.tar", "data00100a.tar"}, []string{"data00100a.tar"}, 250, 300},
			{"what no revision is in, after a gap", []string{"data00000a.tar", "data00001a.tar", "data00009a.tar", "data00002a.tar"}, []string{"data00009a.tar"}, 10, 10},
		} {
			moved := &storetest.Mem{}
			moved.Put("journal.log", st.Get("segmentstore/journal.log"))
			for i, name := range tt.as {
				moved.Put(name, st.Get("segmentstore/"+tars[len(tars)-1-i].Name))
			}
			a := &asked{Store: moved, n: map[string]int{}}
			l := list(t, unlisted{a}, "")
			l.Release()
			want := slices.DeleteFunc(slices.Clone(tt.as), func(name string) bool { return slices.Contains(tt.missing, name) })
			slices.Sort(want)
			slices.Reverse(want)
			if got := names(l); !slices.Equal(got, want) || l.Journal == nil || len(a.n) < tt.at || len(a.n) > tt.most {
				t.Errorf("%s: %d asked for, found %q", tt.what, len(a.n), got)
			}
		}
	})
}
