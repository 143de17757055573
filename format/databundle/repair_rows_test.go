package databundle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

var only = holdall.OpenOptions{Formats: []*format.Format{Format}}

// crowd is as many files as make an index of many blocks.
func crowd() []added {
	var all []added
	text := prose(4 << 20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 700 {
		b := text[r.IntN(1<<20):][:1+r.IntN(6000)]
		if i%50 == 7 {
			b = make([]byte, 9000)
		}
		all = append(all, added{format.Entry{Name: fmt.Sprintf("%d/%06d-%x.txt", i/100, i, r.Uint64()), Size: int64(len(b))}, b})
	}
	return all
}

// applied repairs b of st, and checks that the result is intact.
func applied(t *testing.T, st *storetest.Mem, out *storetest.Mem) *holdall.RepairPlan {
	t.Helper()
	plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: only.In(st)})
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Changes() {
		t.Fatal("nothing is repaired")
	}
	if err := plan.ApplyStore(t.Context(), out, "b"); err != nil {
		t.Fatal(err)
	}
	v, err := holdall.Verify(t.Context(), "b", holdall.VerifyOptions{OpenOptions: only.In(out)}, func(p holdall.Problem) {
		if p.Severity > format.Note {
			t.Errorf("repaired: %+v", p)
		}
	})
	if err != nil || v.Errors > 0 {
		t.Fatalf("repaired: %+v, %v", v, err)
	}
	return plan
}

func contentOf(t *testing.T, a *holdall.Archive, e holdall.Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := a.WriteContent(t.Context(), &b, e); err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	return b.Bytes()
}

// If a block of the index is lost, the names of some files are lost, but nothing else: their
// contents are in lost+found, and all other files are there. Two of eight blocks are chosen at
// random, and all with HOLDALL_LONG=4.
func TestContentOfDamagedRowsIsFound(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	all := crowd()
	for _, param := range []map[string]string{
		{"record-size": "65536"}, {"compression": "snappy"}, {"compression": "zstd", "shards": "3", "record-size": "16384"}, {"compression": "none"}, {"compression": "none", "align": "1"},
	} {
		whole := &storetest.Mem{}
		pack(t, whole, all, param)
		table := whole.Get("b/index/000004.sst")
		for _, i := range rnd.Perm(8)[:min(2*testkit.Rounds(t, 1), 8)] {
			at := len(table) * i / 8
			t.Run(fmt.Sprint(param, at), func(t *testing.T) {
				st := whole.Clone()
				b := bytes.Clone(table)
				b[at] ^= 4
				st.Put("b/index/000004.sst", b)
				out := &storetest.Mem{}
				plan := applied(t, st, out)
				a, err := holdall.Open(t.Context(), "b", only.In(out))
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				var found [][]byte
				for e, err := range a.Entries(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Kind == format.File && strings.HasPrefix(e.Name, "lost+found/") {
						found = append(found, contentOf(t, a, e))
					}
				}
				lost := 0
				for _, x := range all {
					e, err := a.Lookup(t.Context(), x.Name)
					if err == nil {
						if !bytes.Equal(contentOf(t, a, e), x.content) {
							t.Errorf("%s: its content is another", x.Name)
						}
						continue
					}
					lost++
					there := allZeros(x.content)
					for _, b := range found {
						there = there || bytes.Contains(b, x.content)
					}
					if !there {
						t.Errorf("the content of %s is nowhere", x.Name)
					}
				}
				if lost > 150 {
					t.Errorf("%d files have no name any more", lost)
				}
				if lost > 0 != plan.Partial {
					t.Errorf("%d files have no name any more, and the plan says partial: %v", lost, plan.Partial)
				}
			})
		}
	}
}

// What a copy of the index is for.
func TestCopiesOfTheIndexSaveIt(t *testing.T) {
	testkit.Serial(t)
	all := crowd()
	whole := &storetest.Mem{}
	pack(t, whole, all, map[string]string{"index-copies": "2"})
	count := func(st *storetest.Mem, prefix string) (n int) {
		for _, err := range st.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for _, where := range []string{"b/index/000004.sst", "b/index-copy-1/000004.sst"} {
		t.Run(where, func(t *testing.T) {
			st := whole.Clone()
			b := bytes.Clone(st.Get(where))
			b[len(b)/2] ^= 1
			st.Put(where, b)
			said := map[holdall.Problem]int{}
			if _, err := holdall.Verify(t.Context(), "b", holdall.VerifyOptions{OpenOptions: only.In(st)}, func(p holdall.Problem) { said[p]++ }); err != nil {
				t.Errorf("the check ends with %v", err)
			}
			for p, n := range said {
				if n > 1 {
					t.Errorf("said %d times: %+v", n, p)
				}
			}
			if len(said) == 0 {
				t.Error("the check says nothing")
			}
			out := &storetest.Mem{}
			if plan := applied(t, st, out); plan.Partial {
				t.Errorf("lost: %q", plan.Lost)
			}
			if n, want := count(out, "b/index-copy-"), count(whole, "b/index-copy-"); n != want {
				t.Errorf("%d objects of copies, expected %d", n, want)
			}
			applied(t, st, st) // in place
			for _, name := range []string{"b/index/000004.sst", "b/index-copy-1/000004.sst", "b/index-copy-2/000004.sst"} {
				if !bytes.Equal(st.Get(name), whole.Get("b/index/000004.sst")) {
					t.Errorf("%s is not as it was", name)
				}
			}
			a, err := holdall.Open(t.Context(), "b", only.In(st))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			about, err := a.About(t.Context())
			if n := count(whole, "b/"); err != nil || len(about.Volumes) != n {
				t.Errorf("%v, and it says that it has %d objects: %q, of %d", err, len(about.Volumes), about.Volumes, n)
			}
		})
	}
}

// Every bundle has a copy of its index, unless one says otherwise: whatever becomes of any one
// file of the index, each name is listed, and read.
func TestABundleOutlivesAnyFileOfItsIndex(t *testing.T) {
	testkit.Serial(t)
	all := crowd()
	whole := &storetest.Mem{}
	pack(t, whole, all, nil)
	damages := map[string]func(st *storetest.Mem, name string){
		"removed": func(st *storetest.Mem, name string) {
			if err := st.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		},
		"of zeros": func(st *storetest.Mem, name string) { st.Put(name, make([]byte, len(st.Get(name)))) },
		"half":     func(st *storetest.Mem, name string) { st.Put(name, st.Get(name)[:len(st.Get(name))/2]) },
		"empty":    func(st *storetest.Mem, name string) { st.Put(name, nil) },
	}
	files, table := 0, "b/index/000004.sst"
	for info, err := range whole.List(t.Context(), "b/index/") {
		if err != nil {
			t.Fatal(err)
		}
		files++
		for how, damage := range damages {
			if info.Size == 0 && how != "removed" {
				continue
			}
			st := whole.Clone()
			damage(st, info.Name)
			readsAll(t, st, all, info.Name+" is "+how)
		}
	}
	if n := len(whole.Get(table)); files < 3 || n < 3*4096 {
		t.Fatalf("an index of %d files, a table of %d bytes", files, n)
	}
	// Flip a bit in each block of its table. The largest blocks are little over 4 KiB.
	for at := int64(0); at < int64(len(whole.Get(table))); at += 1 << 10 {
		st := whole.Clone()
		b := bytes.Clone(st.Get(table))
		b[at] ^= 1 << (at >> 10 % 8)
		st.Put(table, b)
		readsAll(t, st, all, fmt.Sprintf("a bit of byte %d of the table is another", at))
	}
	for _, dir := range []string{"b/index/", "b/index-copy-1/"} {
		st := whole.Clone()
		for info := range whole.List(t.Context(), dir) {
			damages["removed"](st, info.Name)
		}
		readsAll(t, st, all, dir+" is lost")
	}
}

func readsAll(t *testing.T, st *storetest.Mem, all []added, what string) {
	t.Helper()
	a, err := holdall.Open(t.Context(), "b", only.In(st))
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer a.Close()
	listed := map[string]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		listed[e.Name] = true
	}
	for _, x := range all {
		e, err := a.Lookup(t.Context(), x.Name)
		if err != nil || !listed[x.Name] {
			t.Errorf("%s: %s: listed: %v, %v", what, x.Name, listed[x.Name], err)
			return
		}
		if x.Kind == format.File && !bytes.Equal(contentOf(t, a, e), x.content) {
			t.Errorf("%s: %s: its content is another", what, x.Name)
		}
	}
}
