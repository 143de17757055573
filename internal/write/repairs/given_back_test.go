package repairs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// manyRounds is from how many rounds on a share is asked for.
const manyRounds = 1000

// TestWhatIsLeftIsGivenBack damages archives at random. A file that could be read before a
// repair can be read after it, nothing that has a digest is read wrong, and nothing that
// verify finds is left without a word. Of the files whose own bytes are as they were, a
// share is given back: it is printed, and asked for if HOLDALL_LONG says that there are
// many rounds. The plans are those of package holdall, which refuses what would lose a file. Oak has
// such a test of its own.
func TestWhatIsLeftIsGivenBack(t *testing.T) {
	testkit.Long(t)
	for _, k := range []struct {
		format string
		param  map[string]string
		share  float64
	}{
		{format: "caf", share: .999}, {format: "lindi", share: .999}, {format: "zip", share: .999}, {format: "tar", share: .999},
		{format: "databundle", share: .99}, {format: "databundle", share: .99, param: map[string]string{"compression": "zstd"}},
		{format: "rvn", share: .95},
	} {
		t.Run(k.format+k.param["compression"], func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			rounds := testkit.Rounds(t, 5)
			files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+50<<10))}
			for i := range 40 {
				files[fmt.Sprintf("d%d/f%02d", i%7, i)] = string(testkit.Noise(rnd, rnd.IntN(12000)))
			}
			sound := packedAs(t, k.format, k.param, files)
			own := ownBytes(t, k.format, sound)
			names := objectsIn(t, sound)
			expected, missed, before, after := 0, 0, 0, 0
			for range rounds {
				st := sound.Clone()
				name := names[rnd.IntN(len(names))]
				b, what := testkit.Damage(rnd, st.Get(name))
				what = name + what
				st.Put(name, b)
				had := readable(t, st, k.format)
				had.right(t, what, files)
				out := &storetest.Mem{}
				plan, found := repairAll(t, st, out, k.format)
				if plan == nil || !plan.Changes() {
					out = st
				}
				has := had
				if out != st {
					has = readable(t, out, k.format)
					has.right(t, what, files)
				}
				for name, content := range had.contents {
					_, ours := files[name] // or damage made the name
					if ours && has.contents[name] != content {
						t.Errorf("%s: %s could be read before the repair, and not after it: %v", what, name, has.wrong[name])
					}
				}
				if plan != nil && !plan.Partial {
					if left := errorsOf(t, out); left > 0 {
						t.Errorf("%s: verify finds %d errors after the repair, which told of nothing that is lost; %d before", what, left, found)
					}
				}
				for name := range files {
					if own.touched(name, st) {
						continue
					}
					expected++
					if has.contents[name] != files[name] {
						missed++
						if rounds >= manyRounds {
							t.Logf("%s: %s is not given back: %v %v", what, name, has.err, has.wrong[name])
						}
					}
				}
				before, after = before+len(had.contents), after+len(has.contents)
				if t.Failed() {
					return
				}
			}
			share := 1 - float64(missed)/float64(max(expected, 1))
			t.Logf("%d files readable before repairs, %d after; of %d whose bytes are as they were %.3f %% are given back", before, after, expected, 100*share)
			if rounds >= manyRounds && share < k.share {
				t.Errorf("%.3f %% are given back, expected %.1f %%", 100*share, 100*k.share)
			}
		})
	}
}

// TestWhatMovedIsGivenBack inserts, deletes and exchanges bytes of archives. A repair leaves no file
// less, reads none wrong under its own name, and of the files whose bytes are anywhere in what is
// left, it gives back a share, which is printed.
func TestWhatMovedIsGivenBack(t *testing.T) {
	for _, k := range []struct {
		format string
		param  map[string]string
		share  float64
	}{
		{format: "caf", share: .99}, {format: "lindi", share: .99}, {format: "zip", share: .99}, {format: "tar", share: .99},
		{format: "databundle", share: .9, param: map[string]string{"compression": "none"}}, {format: "rvn", share: .75},
	} {
		t.Run(k.format, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			files := map[string]string{}
			for i := range 19 {
				files[fmt.Sprintf("d%d/f%02d", i%4, i)] = string(testkit.Noise(rnd, 4100+rnd.IntN(2000)))
			}
			sound := packedAs(t, k.format, k.param, files)
			names := slices.DeleteFunc(objectsIn(t, sound), func(name string) bool { return len(sound.Get(name)) < 100 })
			refused := 0
			there, given := map[string]int{}, map[string]int{}
			rounds := testkit.Rounds(t, 36)
			for i := range rounds {
				kind := testkit.Moves[i%len(testkit.Moves)]
				st := sound.Clone()
				object := names[rnd.IntN(len(names))]
				b := testkit.Move(rnd, st.Get(object), kind)
				st.Put(object, b)
				had := readable(t, st, k.format)
				out := &storetest.Mem{}
				plan, _ := repairAll(t, st, out, k.format)
				if plan == nil && len(had.contents) > 0 {
					refused++
				}
				has := had
				if plan != nil && plan.Changes() {
					has = readable(t, out, k.format)
				}
				all := slices.Collect(maps.Values(has.contents))
				back := func(name, want string) bool { // a tar cannot tell whether bytes were inserted in a file or behind it
					return slices.Contains(all, want) || strings.HasPrefix(has.contents[name+kit.DamagedSuffix], want)
				}
				for name, want := range files {
					if had.contents[name] == want && !back(name, want) {
						t.Errorf("%s of %s: %s could be read before the repair, and not after it: %v", kind, object, name, has.wrong[name])
					}
					if got, ok := has.contents[name]; ok && got != want && k.format != "tar" && !has.doubt {
						t.Errorf("%s of %s: %s is read as other content", kind, object, name)
					}
					if bytes.Contains(b, []byte(want)) {
						there[kind]++
						if back(name, want) {
							given[kind]++
						}
					}
				}
			}
			t.Logf("%d repairs refused", refused)
			sum := [2]int{}
			for _, kind := range testkit.Moves {
				t.Logf("%-15s %d of %d given back", kind, given[kind], there[kind])
				sum[0], sum[1] = sum[0]+given[kind], sum[1]+there[kind]
			}
			if rounds < manyRounds { // one that costs the names of all files counts for much among few
				k.share *= .75
			}
			const few = 150
			if share := float64(sum[0]) / float64(max(1, sum[1])); share < k.share && sum[1] >= few {
				t.Errorf("%.3f %% are given back, expected %.1f %%", 100*share, 100*k.share)
			}
		})
	}
}

// places are the bytes that only one file needs: where they are, and what they were.
type places map[string][]place

type place struct {
	object string
	off    int64
	was    []byte
}

func (p places) touched(name string, st *storetest.Mem) bool {
	return slices.ContainsFunc(p[name], func(at place) bool {
		b := st.Get(at.object)
		return at.off+int64(len(at.was)) > int64(len(b)) || !bytes.Equal(b[at.off:][:len(at.was)], at.was)
	})
}

// ownBytes are the bytes of contents, and of a name where that is stored once only, as in
// a row of CAF's index and a header of a tar.
func ownBytes(t *testing.T, kind string, st *storetest.Mem) places {
	t.Helper()
	own := places{}
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != format.File {
			continue
		}
		add := func(object string, off, n int64) {
			own[e.Name] = append(own[e.Name], place{object, off, bytes.Clone(st.Get(object)[off:][:n])})
		}
		first := true
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if kind == "tar" && first {
				x.Off, x.Len, first = x.Off-512, x.Len+512, false
			}
			add(x.Object, x.Off, x.Len)
		}
		if kind == "caf" {
			b := st.Get("x")
			key, _ := json.Marshal(e.Name)
			at := bytes.LastIndex(b, key)
			from := bytes.LastIndexByte(b[:at], '{')
			add("x", int64(from), int64(bytes.IndexByte(b[from:], '}')+1))
		}
	}
	return own
}

// A harvest is what can be read of an archive.
type harvest struct {
	contents map[string]string
	proven   map[string]bool // they were compared with a digest
	wrong    map[string]error
	doubt    bool // the archive says that what is read may be wrong
	err      error
}

func readable(t *testing.T, st *storetest.Mem, kind string) (h harvest) {
	t.Helper()
	h = harvest{contents: map[string]string{}, proven: map[string]bool{}, wrong: map[string]error{}}
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Format: kind})
	if err != nil {
		h.err = err
		return h
	}
	defer a.Close()
	defer func() { h.doubt = a.Doubt() != nil }()
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			h.err = err
			break
		}
		if e.Kind != format.File || e.Internal || e.Name == "lindi.json" {
			continue // an index that is damaged may be listed as what it is, a file
		}
		b, err := a.Get(t.Context(), e.Name, 4<<20)
		if err != nil {
			h.wrong[e.Name] = err
			continue
		}
		h.contents[e.Name], h.proven[e.Name] = string(b), e.Digest.Algo != ""
	}
	return h
}

// right expects that what was read and compared is what was packed. A damaged name is
// another one, and a damaged index has no digests.
func (h harvest) right(t *testing.T, what string, files map[string]string) {
	t.Helper()
	all := slices.Collect(maps.Values(files))
	for name, content := range h.contents {
		if !h.proven[name] {
			continue
		}
		if want, ok := files[name]; ok && content != want || !ok && !strings.HasPrefix(name, "lost+found/") && !slices.Contains(all, content) {
			t.Errorf("%s: %q is read as other content", what, name)
		}
	}
}

// repairAll repairs into out; the plan is nil if that is refused, which says why.
func repairAll(t *testing.T, st, out *storetest.Mem, kind string) (plan *holdall.RepairPlan, found int) {
	t.Helper()
	plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: kind}, Report: func(holdall.Problem) { found++ }})
	if err != nil {
		return nil, found
	}
	if plan.Changes() {
		if err := plan.ApplyStore(t.Context(), out, "x"); err != nil {
			t.Fatal(err)
		}
	}
	return plan, found
}

func errorsOf(t *testing.T, st *storetest.Mem) (n int) {
	t.Helper()
	_, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) {
		if p.Severity == format.Error {
			n++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A damaged page in the last record of a bundle costs no other file of this record.
func TestABundleKeepsTheFilesOfADamagedRecord(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 1) {
		files := map[string]string{}
		for i := range 14 {
			n := []int{200, 1500, 5000, 9000}[rnd.IntN(4)]
			if files["f"+string(rune('a'+i))] = string(testkit.Noise(rnd, n)); i%2 == 1 {
				files["f"+string(rune('a'+i))] = strings.Repeat("alpha beta ", n/11)
			}
		}
		st := packedAs(t, "databundle", nil, files)
		shard := slices.DeleteFunc(objectsIn(t, st), func(name string) bool { return !strings.Contains(name, "shard-") })[0]
		intact := st.Get(shard)
		for at := 4096; at < len(intact); at += 4096 {
			damaged := bytes.Clone(intact)
			copy(damaged[at:min(at+4096, len(damaged))], testkit.Noise(rnd, 4096))
			st.Put(shard, damaged)
			before := intactIn(t, st)
			plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st}})
			if err != nil {
				t.Fatalf("page at %d: %v", at, err)
			}
			out := &storetest.Mem{}
			if err := plan.ApplyStore(t.Context(), out, "x"); err != nil {
				t.Fatalf("page at %d: %v", at, err)
			}
			plan.Close()
			if after := intactIn(t, out); after < before {
				t.Errorf("page at %d: %d files can be read before the repair, and %d after it", at, before, after)
			}
		}
	}
}

// intactIn returns how many files of an archive have the right content.
func intactIn(t *testing.T, st *storetest.Mem) (n int) {
	t.Helper()
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
	if err != nil {
		return 0
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err == nil && a.WriteContent(t.Context(), io.Discard, e) == nil {
			n++
		}
	}
	return n
}
