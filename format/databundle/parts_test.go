package databundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// apart divides the entries to be packed at random places. A further name of a file stays with
// the file.
func apart(all []added, r *rand.Rand) (parts [][]added) {
	for _, x := range all {
		switch {
		case x.Kind == format.HardLink:
		case len(parts) == 0 || r.IntN(15) == 0:
			parts = append(parts, nil)
		}
		last := &parts[len(parts)-1]
		if x.Kind == format.HardLink {
			last = &parts[slices.IndexFunc(parts, func(p []added) bool {
				return slices.ContainsFunc(p, func(y added) bool { return y.Name == x.Link })
			})]
		}
		*last = append(*last, x)
	}
	return parts
}

// inOne writes the parts with one writer, which is given the places where shards begin.
func inOne(t *testing.T, parts [][]added, param map[string]string) map[string][]byte {
	t.Helper()
	param = maps.Clone(param)
	param["shard-size"] = fmt.Sprint(1 << 50)
	st := &storetest.Mem{}
	f, err := create(t.Context(), st, "b", format.CreateOptions{Scratch: tmp, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	w := f.(*writer)
	for i, part := range parts {
		if i > 0 {
			if err := errors.Join(w.cut(), w.addShard(t.Context())); err != nil {
				t.Fatal(err)
			}
			w.cur = w.shards[i]
		}
		for _, x := range part {
			if err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return contents(t, st)
}

func contents(t *testing.T, st *storetest.Mem) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = st.Get(info.Name)
	}
	return all
}

func writePart(t *testing.T, st store.Store, p format.Part, all []added, param map[string]string) {
	t.Helper()
	w, err := createPart(t.Context(), st, p, format.CreateOptions{Scratch: tmp, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPartsBecomeWhatOneWriterWrites(t *testing.T) {
	testkit.Long(t)
	seed := testkit.Seed(t)
	all := assortment()
	// The same name again, and a name that others only imply.
	all = append(all, all[len(all)-1], added{Entry: format.Entry{Name: "small", Kind: format.Dir, Mode: 0o700, HasMode: true}})
	all[len(all)-2].content = []byte("another")
	all[len(all)-2].Size = 7
	for _, param := range []map[string]string{
		{}, {"compression": "zstd", "level": "1"}, {"compression": "none"}, {"compression": "none", "align": "1"}, {"record-size": "4096", "align": "512", "index-copies": "1"},
	} {
		t.Run(fmt.Sprint(param), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			parts := apart(all, r)
			want := inOne(t, parts, param)
			st := &storetest.Mem{}
			var made []format.Part
			for i := range parts {
				made = append(made, format.Part{Archive: "b", Number: i, Try: int64(r.IntN(100))})
			}
			for _, i := range r.Perm(len(parts)) {
				procs := runtime.GOMAXPROCS(1 + r.IntN(4))
				writePart(t, st, made[i], parts[i], param)
				runtime.GOMAXPROCS(procs)
			}
			if _, err := open(t.Context(), st, "b", format.OpenOptions{}); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("before the index is there: %v", err)
			}
			sum, err := mergeParts(t.Context(), st, "b/", made, format.CreateOptions{Scratch: tmp, Param: param})
			if err != nil {
				t.Fatal(err)
			}
			if err := clearParts(t.Context(), st, "b"); err != nil {
				t.Fatal(err)
			}
			got := contents(t, st)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("%q, expected %q", names, slices.Sorted(maps.Keys(want)))
			}
			stored := int64(0)
			for name, b := range got {
				if !bytes.Equal(b, want[name]) {
					t.Errorf("%s is another than of one writer", name)
				}
				stored += int64(len(b))
			}
			if sum.Entries != int64(len(all)-1) || sum.Stored != stored || len(sum.Volumes) != len(got) {
				t.Errorf("%+v, expected %d entries, %d bytes stored in %d objects", sum, len(all)-1, stored, len(got))
			}
			v, err := holdall.Verify(t.Context(), "b", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}}, func(p holdall.Problem) {
				if p.Severity > format.Note {
					t.Errorf("%+v", p)
				}
			})
			if err != nil || v.Errors+v.Warnings > 0 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// Parts that are divided by content equal the output of one writer with the same size of shards.
func TestPartsCutByContentAreThoseOfAShardSize(t *testing.T) {
	testkit.Long(t)
	const size = 2_000_000
	all := slices.DeleteFunc(assortment(), func(x added) bool { return x.Kind != format.File })
	one := &storetest.Mem{}
	pack(t, one, all, map[string]string{"shard-size": fmt.Sprint(size)})
	var parts [][]added
	left := int64(0)
	for i, x := range all {
		if left -= x.Size; left < 0 || i == 0 {
			parts, left = append(parts, nil), size-x.Size
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], x)
	}
	st := &storetest.Mem{}
	var made []format.Part
	for i, p := range parts {
		made = append(made, format.Part{Archive: "b", Number: i})
		writePart(t, st, made[i], p, nil)
	}
	if _, err := mergeParts(t.Context(), st, "b", made, format.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clearParts(t.Context(), st, "b"); err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, st), contents(t, one); len(parts) < 3 || !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%d parts: %q, expected what is in %q", len(parts), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func TestAListIsOfTheShardThatItsTryWrote(t *testing.T) {
	testkit.Long(t)
	st := &storetest.Mem{}
	all := assortment()
	try := func(n int64) format.Part { return format.Part{Archive: "b", Number: 2, Try: n} }
	writePart(t, st, try(7), all, nil)
	first := st.Get("b/" + shardName(2))
	writePart(t, st, try(12), all[:5], nil)
	// A third one gets as far as its list.
	elsewhere := &storetest.Mem{}
	writePart(t, elsewhere, try(13), all[:7], nil)
	for name, b := range contents(t, elsewhere) {
		if strings.HasPrefix(name, partDir(try(13))) {
			st.Put(name, b)
		}
	}
	st.Put(partDir(try(20))+"/000005.ldb", []byte("x"))
	st.Put("b/parts/00000002.07/CURRENT", []byte("x"))
	tries, err := triesOf(t.Context(), st, "b", 2)
	if want := []format.Part{try(20), try(13), try(12), try(7)}; err != nil || !slices.Equal(tries, want) {
		t.Errorf("%v, %v: expected %v", tries, err, want)
	}
	for _, p := range []format.Part{try(20), try(7), try(13)} {
		if _, err := openPart(t.Context(), st, p, format.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: %v", p, err)
		}
	}
	r, err := openPart(t.Context(), st, try(12), format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Lookup(t.Context(), all[4].Name); err != nil {
		t.Error(err)
	}
	if _, err := r.Lookup(t.Context(), all[5].Name); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	st.Put("b/"+shardName(2), first)
	if _, err := openPart(t.Context(), st, try(12), format.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the list of a try and the shard of another: %v", err)
	}
	if _, err := openPart(t.Context(), st, try(7), format.OpenOptions{}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNoSetOfPartsIsNotMerged(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	part := func(n int) format.Part { return format.Part{Archive: "b", Number: n} }
	for n := range 2 {
		writePart(t, st, part(n), assortment()[n*4:n*4+4], nil)
	}
	merge := func(param map[string]string, parts ...format.Part) error {
		_, err := mergeParts(t.Context(), st, "b", parts, format.CreateOptions{Param: param})
		return err
	}
	for what, err := range map[string]error{
		"nothing":              merge(nil),
		"none before it":       merge(nil, part(1)),
		"one missing":          merge(nil, part(0), part(1), part(2)),
		"twice":                merge(nil, part(0), part(0)),
		"of another":           merge(nil, format.Part{Archive: "c"}),
		"with other options":   merge(map[string]string{"compression": "none"}, part(0), part(1)),
		"told how many":        merge(map[string]string{"shards": "2"}, part(0), part(1)),
		"with an index inside": merge(map[string]string{"index": "inline"}, part(0)),
		"of a negative number": merge(nil, part(-1)),
	} {
		if err == nil {
			t.Errorf("merged: %s", what)
		}
	}
	if _, err := createPart(t.Context(), st, part(maxShards), format.CreateOptions{}); err == nil {
		t.Error("a part of a number that is too large")
	}
	for name := range contents(t, st) {
		if strings.HasPrefix(name, "b/"+indexDir) {
			t.Errorf("%s is there", name)
		}
	}
	if err := merge(nil, part(0), part(1)); err != nil {
		t.Error(err)
	}
	before := contents(t, st)
	if err := merge(nil, part(0)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("merged over it: %v", err)
	}
	if !maps.EqualFunc(before, contents(t, st), bytes.Equal) {
		t.Error("it was replaced")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := mergeParts(ctx, st, "d", []format.Part{{Archive: "d"}}, format.CreateOptions{}); err == nil {
		t.Error("merged after the end")
	}
}

// The last file of a shard is replaced by one in the next: no row says how long the
// record is that it lies in, and what else is there is read nevertheless.
func TestRecordWhoseLastFileWasReplaced(t *testing.T) {
	for _, kind := range []string{"none", "snappy", "zlib", "zstd"} {
		t.Run(kind, func(t *testing.T) {
			var all []added
			for _, name := range []string{"a", "b", "c", "z", "d", "z"} {
				b := prose(10_000 + len(all))
				all = append(all, added{format.Entry{Name: name, Size: int64(len(b))}, b})
			}
			st := &storetest.Mem{}
			if sum := pack(t, st, all, map[string]string{"compression": kind, "shard-size": "45000"}); sum.Entries != 5 || len(sum.Volumes) < 3 {
				t.Fatalf("%+v", sum)
			}
			a, err := holdall.Open(t.Context(), "b", holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for _, x := range append(all[:3], all[4:]...) {
				if b, err := a.Get(t.Context(), x.Name, 1<<20); err != nil || !bytes.Equal(b, x.content) {
					t.Errorf("%s: %d bytes, %v", x.Name, len(b), err)
				}
			}
			v, err := holdall.Verify(t.Context(), "b", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}}, func(p holdall.Problem) {
				if p.Severity > format.Note {
					t.Errorf("%+v", p)
				}
			})
			if err != nil || v.Errors > 0 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}
