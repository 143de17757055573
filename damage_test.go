package holdall_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/zarr"
)

// checkedKinds are the formats whose archives say what their contents are, and how they
// are packed.
var checkedKinds = []struct {
	format string
	param  map[string]string
}{
	{"caf", nil}, {"lindi", nil}, {"rvn", nil}, {"zip", nil},
	{"databundle", map[string]string{"align": "1"}}, {"databundle", map[string]string{"compression": "none"}}, {"databundle", map[string]string{"compression": "zstd", "align": "1"}},
}

// packedAs packs files into an archive in memory.
func packedAs(t *testing.T, format string, param map[string]string, files map[string]string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	if _, err := holdall.PackStore(t.Context(), st, "x", []string{tree(t, files)}, holdall.PackOptions{Format: format, Param: param}); err != nil {
		t.Fatal(err)
	}
	return st
}

// eachDamage turns a bit of each byte of an archive where content is stored, one at a time,
// and calls do while it is turned.
func eachDamage(t *testing.T, a *holdall.Archive, st *storetest.Mem, rnd *rand.Rand, do func(object string, at int64)) {
	t.Helper()
	seen := map[string][]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Internal || !e.Kind.HasContent() {
			continue
		}
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[x.Object] == nil {
				seen[x.Object] = make([]bool, len(st.Get(x.Object)))
			}
			for at := range x.Len {
				if !seen[x.Object][x.Off+at] {
					seen[x.Object][x.Off+at] = true
					was := st.Get(x.Object)
					b := bytes.Clone(was)
					b[x.Off+at] ^= 1 << rnd.IntN(8)
					st.Put(x.Object, b)
					do(x.Object, x.Off+at)
					st.Put(x.Object, was)
				}
			}
		}
	}
}

// Each byte of content is changed, one at a time: in none of the ways to read it does a
// wrong byte come out with success.
func TestEveryDamagedByteIsRefusedInEveryWayToRead(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 40), "d/c": "gamma" + strings.Repeat("\x00\x01\x02", 30), "e": ""}
	for _, k := range checkedKinds {
		t.Run(k.format+k.param["compression"], func(t *testing.T) {
			rnd := testkit.Rand(t)
			st := packedAs(t, k.format, k.param, files)
			sound, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer sound.Close()
			places, caught := 0, 0
			eachDamage(t, sound, st, rnd, func(object string, at int64) {
				a, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				refused := false
				for name, want := range files {
					e, err := a.Lookup(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					refused = len(readInEveryWay(t, a, e, want, rnd)) > 0 || refused
					got, err := fs.ReadFile(a.FS(t.Context()), name)
					if err == nil && string(got) != want {
						t.Fatalf("byte %d of %s: ReadFile of %s gives %q", at, object, name, got)
					}
					if got, err = a.Get(t.Context(), name, 1000); err == nil && string(got) != want {
						t.Fatalf("byte %d of %s: Get of %s gives %q", at, object, name, got)
					}
				}
				if places++; refused {
					caught++
				}
			})
			if caught < 20 {
				t.Errorf("of %d damages %d were refused", places, caught)
			}
		})
	}
}

// Each byte of the chunks of a Zarr array is changed, one at a time: neither its keys nor
// what is decoded of it is wrong with success.
func TestEveryDamagedChunkIsRefused(t *testing.T) {
	ctx, rnd := t.Context(), testkit.Rand(t)
	keys := map[string]string{
		".zgroup":   `{"zarr_format": 2}`,
		"x/.zarray": `{"zarr_format": 2, "shape": [40], "chunks": [20], "dtype": "<u2", "compressor": null, "fill_value": 0, "order": "C", "filters": null}`,
		"x/.zattrs": `{}`, "x/0": string(testkit.Noise(rnd, 40)), "x/1": string(testkit.Noise(rnd, 40)),
	}
	st := packedAs(t, "lindi", nil, keys)
	open := func() (*holdall.Archive, error) {
		return holdall.OpenStore(ctx, st, "x", holdall.OpenOptions{View: "zarr"})
	}
	decoded := func(a *holdall.Archive) (string, error) {
		array, err := zarr.Open(ctx, a, "x")
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		err = array.WriteNPY(ctx, &b)
		return b.String(), err
	}
	sound, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer sound.Close()
	want, err := decoded(sound)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	eachDamage(t, sound, st, rnd, func(object string, at int64) {
		a, err := open()
		if err != nil {
			refused++
			return
		}
		defer a.Close()
		for name, want := range keys {
			if got, err := a.Get(ctx, name, 1000); err == nil && string(got) != want && a.Doubt() == nil {
				t.Fatalf("byte %d: %s is %q", at, name, got)
			}
		}
		got, err := decoded(a)
		if err == nil && got != want && a.Doubt() == nil {
			t.Fatalf("byte %d: decoded wrong", at)
		}
		if err != nil {
			refused++
		}
	})
	if refused < 80 {
		t.Errorf("%d damages were refused", refused)
	}
}

// seen is all that an archive tells: what it is, what is in it, and the contents that can
// be had.
func seen(t *testing.T, st *storetest.Mem) string {
	t.Helper()
	ctx := t.Context()
	a, err := holdall.OpenStore(ctx, st, "x", holdall.OpenOptions{})
	if err != nil {
		return "not opened"
	}
	defer a.Close()
	var b strings.Builder
	about, err := a.About(ctx)
	fmt.Fprintf(&b, "%s %q %v %v\n", about.Version, about.Facts, about.Volumes, err)
	for e, err := range a.Entries(ctx) {
		if err != nil {
			b.WriteString("broken off\n")
			break
		}
		e.Ref = nil
		fmt.Fprintf(&b, "%+v\n", e)
		if !e.Kind.HasContent() || e.Internal {
			continue
		}
		content, err := a.Get(ctx, e.Name, 1<<20)
		fmt.Fprintf(&b, "%q %v\n", content, err != nil)
	}
	return b.String()
}

// provenKinds are the formats whose archives prove their own indexes, if we wrote them.
var provenKinds = []string{"caf", "rvn", "lindi", "databundle"}

// Bits are turned, one at a time: what makes an archive say anything else, a check tells. Two bits
// of each byte are chosen at random, fewer among zeros, and all with HOLDALL_LONG=8.
func TestEveryTurnedBitThatIsSeenIsTold(t *testing.T) {
	testkit.Long(t)
	for _, k := range provenKinds {
		t.Run(k, func(t *testing.T) {
			t.Parallel()
			var param map[string]string
			if k == "databundle" {
				param = map[string]string{"index-copies": "0"} // by a copy all would be as ever
			}
			st := packedAs(t, k, param, map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 4), "e": ""})
			want, rnd := seen(t, st), testkit.Rand(t)
			bits, changes := 0, 0
			for _, info := range objectsIn(t, st) {
				was := st.Get(info)
				for i := range was {
					turned := rnd.Perm(8)[:min(testkit.Rounds(t, 2), 8)]
					if fill := was[max(i-32, 0):min(i+32, len(was))]; bytes.Count(fill, []byte{0}) == len(fill) {
						turned = turned[:rnd.IntN(8)/7] // nothing but zeros around
					} else {
						bits += len(turned)
					}
					for _, bit := range turned {
						b := bytes.Clone(was)
						b[i] ^= 1 << bit
						st.Put(info, b)
						if seen(t, st) == want {
							continue
						}
						changes++
						told := false
						_, err := holdall.VerifyStore(t.Context(), st, "x", holdall.VerifyOptions{}, func(p holdall.Problem) { told = told || p.Severity > format.Note })
						if err == nil && !told {
							t.Errorf("bit %d of byte %d of %s is turned: nobody tells\n%s", bit, i, info, seen(t, st))
						}
					}
				}
				st.Put(info, was)
			}
			if changes < bits/4 {
				t.Errorf("of %d bits %d were seen", bits, changes)
			}
		})
	}
}

func objectsIn(t *testing.T, st *storetest.Mem) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

// What shows that contents are right is counted.
func TestVerifySaysWhatProved(t *testing.T) {
	files := map[string]string{"a": "alpha", "b": strings.Repeat("beta", 1<<20), "e": ""}
	for _, k := range []struct {
		format string
		o      holdall.PackOptions
		want   holdall.Verified
	}{
		{"caf", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Digest: 3}}},
		{"caf", holdall.PackOptions{Plain: true}, holdall.Verified{Unproven: 3}},
		{"rvn", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Digest: 3}}},
		{"rvn", holdall.PackOptions{Plain: true}, holdall.Verified{Proven: holdall.Proven{Digest: 3}}}, // it has digests always
		{"databundle", holdall.PackOptions{Plain: true}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"databundle", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"zip", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"oak", holdall.PackOptions{}, holdall.Verified{Unproven: 0}},
	} {
		st := &storetest.Mem{}
		k.o.Format = k.format
		if _, err := holdall.PackStore(t.Context(), st, "x", []string{tree(t, files)}, k.o); err != nil {
			t.Fatal(err)
		}
		got, err := holdall.VerifyStore(t.Context(), st, "x", holdall.VerifyOptions{}, func(p holdall.Problem) { t.Error(p) })
		if k.format == "oak" {
			k.want.Proven.Checksum = got.Proven.Checksum // of properties, too
			if got.Proven.Checksum < 3 {
				t.Errorf("%s: %+v", k.format, got)
			}
		}
		if err != nil || got.Proven != k.want.Proven || got.Unproven != k.want.Unproven {
			t.Errorf("%s: %+v, %v", k.format, got, err)
		}
	}
}

// A range of a long file is refused where the part that it is stored in has a checksum;
// of another only the end of a read of all of it tells. Both say so.
func TestRangesOfLongFiles(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	text := make([]byte, 3<<20)
	for i := range text {
		text[i] = "abcdefgh"[rnd.IntN(8)]
	}
	for _, k := range []struct {
		format string
		param  map[string]string
		parts  bool
	}{
		{"databundle", map[string]string{"compression": "zlib"}, true},
		{"databundle", map[string]string{"compression": "none"}, false},
		{"caf", nil, false}, {"lindi", nil, false}, {"rvn", nil, false}, {"zip", nil, false},
	} {
		ctx := t.Context()
		st := packedAs(t, k.format, k.param, map[string]string{"long": string(text)})
		for range 20 {
			a, err := holdall.OpenStore(ctx, st, "x", holdall.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			e, err := a.Lookup(ctx, "long")
			if err != nil {
				t.Fatal(err)
			}
			parts, whole := a.Compares(ctx, e)
			if parts != k.parts || !whole {
				t.Errorf("%s %v: it compares %v, %v", k.format, k.param, parts, whole)
			}
			var all []format.Extent
			for x, err := range a.Extents(ctx, e) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, x)
			}
			x := all[rnd.IntN(len(all))]
			at := x.Off + rnd.Int64N(x.Len)
			was := st.Get(x.Object)
			b := bytes.Clone(was)
			b[at] ^= 1 << rnd.IntN(8)
			st.Put(x.Object, b)
			if parts {
				readInEveryWay(t, a, e, string(text), rnd)
				p := make([]byte, 1000)
				for off := int64(0); off < e.Size-1000; off += 50000 {
					if _, err := a.ReadAt(ctx, e, p, off); err == nil && !bytes.Equal(p, text[off:off+1000]) {
						t.Fatalf("%s: byte %d: wrong bytes at %d", k.format, at, off)
					}
				}
			}
			if got, err := fs.ReadFile(a.FS(ctx), "long"); err == nil && !bytes.Equal(got, text) {
				t.Fatalf("%s: byte %d: ReadFile gives wrong bytes", k.format, at)
			}
			var sink bytes.Buffer
			if err := a.WriteContent(ctx, &sink, e); err == nil && !bytes.Equal(sink.Bytes(), text) {
				t.Fatalf("%s: byte %d: WriteContent gives wrong bytes", k.format, at)
			}
			st.Put(x.Object, was)
		}
	}
}

// One wrong bit in a record takes no file with it that its own checksum shows to be right,
// however it is read. What nobody compares is not handed on.
func TestARecordWithAWrongChecksumGivesBackWhatIsProven(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	files := map[string]string{"long": string(testkit.Noise(rnd, 3<<20))}
	for i := range 60 {
		files[fmt.Sprintf("f%02d", i)] = string(testkit.Noise(rnd, 1000+rnd.IntN(5000)))
	}
	for compression, summed := range map[string]bool{"zlib": true, "zstd": false, "snappy": false} {
		t.Run(compression, func(t *testing.T) {
			st := packedAs(t, "databundle", map[string]string{"compression": compression}, files)
			const shard = "x/shard-00000000"
			was := st.Get(shard)
			if was == nil {
				t.Fatal(objectsIn(t, st))
			}
			shared := sharedRecord(t, st, "f00")
			saved, damaged, warned := 0, 0, 0
			for i := range 40 {
				b := bytes.Clone(was)
				at := 4096 + rnd.IntN(len(b)-4096)
				if i%2 == 0 {
					at = int(shared.Off) + rnd.IntN(int(shared.Len))
				}
				b[at] ^= 1 << rnd.IntN(8)
				st.Put(shard, b)
				bad := readAll(t, st, files, holdall.OpenOptions{})
				if len(bad) > 1 {
					t.Errorf("%d files are lost: %q", len(bad), bad)
				}
				if !summed {
					continue
				}
				trusting := readAll(t, st, files, holdall.OpenOptions{NoVerify: true})
				if len(trusting) == 0 {
					continue // of padding
				}
				damaged++
				saved += max(0, len(trusting)-len(bad))
				told, errors := 0, 0
				_, err := holdall.VerifyStore(t.Context(), st, "x", holdall.VerifyOptions{}, func(p holdall.Problem) {
					if told++; p.Severity == format.Error {
						errors++
					}
				})
				if err != nil || told == 0 || errors != len(bad) {
					t.Errorf("%v; %d problems are told, %d errors of %q", err, told, errors, bad)
				}
				warned += told - errors
				plan, err := holdall.RepairStore(t.Context(), st, "x", holdall.RepairOptions{})
				if err != nil || !plan.Partial || len(plan.Lost) == 0 || len(bad) > 0 != plan.Changes() {
					t.Errorf("repair of %q: %v, %+v", bad, err, plan)
				}
				if plan.Changes() {
					out := &storetest.Mem{}
					if err := plan.ApplyStore(t.Context(), out, "x"); err != nil {
						t.Fatal(err)
					}
					left := maps.Clone(files)
					for _, name := range bad {
						delete(left, name)
					}
					if lost := readAll(t, out, left, holdall.OpenOptions{}); len(lost) > 0 {
						t.Errorf("after the repair %q are lost, before it %q", lost, bad)
					}
				}
				dir := t.TempDir()
				a, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				into, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				sum, err := holdall.Extract(t.Context(), a, into, holdall.ExtractOptions{OnError: func(holdall.Problem, error) {}})
				into.Close()
				a.Close()
				if sum.Entries != int64(len(files)-len(bad)) {
					t.Errorf("%d files were extracted, of %q; %v", sum.Entries, bad, err)
				}
			}
			if summed && damaged < 30 || saved < damaged || warned < saved {
				t.Errorf("%d times something was damaged, %d files were saved, %d told", damaged, saved, warned)
			}
		})
	}
}

// sharedRecord is the record that a small file is in, with others.
func sharedRecord(t *testing.T, st *storetest.Mem, name string) (record format.Extent) {
	t.Helper()
	a, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	e, err := a.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for x, err := range a.Extents(t.Context(), e) {
		if err != nil {
			t.Fatal(err)
		}
		record = x
	}
	return record
}

// readAll returns the names of files that cannot be read. Others must be what they were.
func readAll(t *testing.T, st *storetest.Mem, files map[string]string, o holdall.OpenOptions) (bad []string) {
	t.Helper()
	a, err := holdall.OpenStore(t.Context(), st, "x", o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, content := range files {
		b, err := a.Get(t.Context(), name, 1<<30)
		switch {
		case err != nil:
			bad = append(bad, name)
		case string(b) != content && !o.NoVerify:
			t.Errorf("%s is other content", name)
		}
		var copied bytes.Buffer
		e, err2 := a.Lookup(t.Context(), name)
		if err2 != nil {
			t.Fatal(err2)
		}
		if cerr := a.WriteContent(t.Context(), &copied, e); (cerr == nil) != (err == nil) {
			t.Errorf("%s: %v, but %v", name, err, cerr)
		} else if cerr == nil && copied.String() != content && !o.NoVerify {
			t.Errorf("%s is copied as other content", name)
		}
	}
	return bad
}

// A bit of each byte of the texts of a LINDI archive is turned. No member that is read has a
// wrong byte then, and neither has an archive that is made of it.
func TestADamagedTextOfLINDIIsNotCopied(t *testing.T) {
	testkit.Serial(t)
	const name = "a.lindi.tar"
	st := packedAs(t, "lindi", map[string]string{"as": "zarr"}, map[string]string{
		".zgroup": `{"zarr_format": 2}`, ".zattrs": `{"session": "A"}`, "a/.zarray": `{"chunks": [2], "compressor": null, "dtype": "|u1", "fill_value": 0, "filters": null, "order": "C", "shape": [2], "zarr_format": 2}`, "a/0": strings.Repeat("x", 2000),
	})
	st.Put(name, st.Get(objectsIn(t, st)[0]))
	views := []string{"members", "zarr", "zarr3"}
	right := map[string]string{}
	strict := false // members fail by themselves
	read := func(st *storetest.Mem, name, view string) map[string]string {
		a, err := holdall.OpenStore(t.Context(), st, name, holdall.OpenOptions{View: view})
		if err != nil {
			return nil
		}
		defer a.Close()
		found := map[string]string{}
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				break
			}
			var b bytes.Buffer
			if a.WriteContent(t.Context(), &b, e) == nil && e.Name != ".tar_entry.json" {
				found[e.Name] = b.String()
			}
		}
		if a.Doubt() != nil && (view != "members" || !strict) {
			return nil // the reader says so
		}
		return found
	}
	for _, view := range views {
		for n, b := range read(st, name, view) {
			right[view+" "+n] = b
		}
	}
	intact := st.Get(name)
	texts := []string{`{"files": [`, "{\n \"generationMetadata\"", "{\n \"refs\""}
	turned := 0
	for _, begins := range texts {
		from := bytes.Index(intact, []byte(begins))
		if from < 0 {
			continue
		}
		strict = begins != texts[0]
		for at := from; intact[at] != 0 && !bytes.HasPrefix(intact[at:], []byte("        ")); at++ {
			for bit := range 8 {
				if bit != at%8 && at-from > 8 {
					continue // all bits only of how a text begins, which says whose it is
				}
				turned++
				b := bytes.Clone(intact)
				b[at] ^= 1 << bit
				damaged := &storetest.Mem{}
				damaged.Put(name, b)
				for _, view := range views {
					for n, b := range read(damaged, name, view) {
						if want, known := right[view+" "+n]; known && b != want {
							t.Fatalf("byte %d bit %d: %s of view %s is wrong: %.80q", at, bit, n, view, b)
						}
					}
				}
				if bit != at%8 || at%3 != 0 {
					continue
				}
				for _, view := range views[:2] {
					a, err := holdall.OpenStore(t.Context(), damaged, name, holdall.OpenOptions{View: view})
					if err != nil {
						continue
					}
					failed := 0
					_, err = holdall.ConvertStore(t.Context(), a, damaged, "copy.lindi.tar", holdall.PackOptions{Force: true, OnError: func(string, error) { failed++ }})
					a.Close()
					if err != nil {
						continue
					}
					for n, b := range read(damaged, "copy.lindi.tar", view) {
						if want, known := right[view+" "+n]; known && b != want && n != ".tar_index.json" && failed == 0 && n != "lindi.json" {
							t.Fatalf("byte %d bit %d: the copy's %s is wrong: %.80q", at, bit, n, b)
						}
					}
					for n, b := range read(damaged, "copy.lindi.tar", "zarr") {
						if want, known := right["zarr "+n]; known && b != want {
							t.Fatalf("byte %d bit %d: the copy's key %s is wrong: %.80q", at, bit, n, b)
						}
					}
				}
			}
		}
	}
	if turned < 500 {
		t.Fatalf("only %d bits were turned", turned)
	}
}
