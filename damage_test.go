package holdall_test

import (
	"bytes"
	"fmt"
	"io"
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
	if _, err := holdall.Pack(t.Context(), "x", []string{tree(t, files)}, holdall.PackOptions{Store: st, Format: format, Param: param}); err != nil {
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

// Bytes of content are changed, one at a time: no function of an archive gives a wrong byte with
// success. CAF is tried, and one of the other kinds; package content tries all.
func TestNoFunctionGivesADamagedByte(t *testing.T) {
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 40), "d/c": "gamma" + strings.Repeat("\x00\x01\x02", 30), "e": ""}
	rnd := testkit.Rand(t)
	kinds := checkedKinds
	if testkit.Rounds(t, 1) == 1 {
		kinds = append(kinds[:1:1], kinds[1+rnd.IntN(len(kinds)-1)])
	}
	for _, k := range kinds {
		st := packedAs(t, k.format, k.param, files)
		sound, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		defer sound.Close()
		places, caught := 0, 0
		eachDamage(t, sound, st, rnd, func(object string, at int64) {
			if places++; places%4 > 0 {
				return
			}
			a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
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
					t.Fatalf("%s: byte %d of %s: ReadFile of %s gives %q", k.format, at, object, name, got)
				}
				if got, err = a.Get(t.Context(), name, 1000); err == nil && string(got) != want {
					t.Fatalf("%s: byte %d of %s: Get of %s gives %q", k.format, at, object, name, got)
				}
			}
			if refused {
				caught++
			}
		})
		if caught < 4 {
			t.Errorf("%s: of %d damages %d were refused", k.format, places/4, caught)
		}
	}
}

// readInEveryWay compares what each way to read a file gives with what is right. It
// returns the errors, one for a way.
func readInEveryWay(t *testing.T, a *holdall.Archive, e holdall.Entry, want string, rnd *rand.Rand) (errs []error) {
	t.Helper()
	ctx := t.Context()
	part := func(way string, got []byte, off int, err error) {
		if err != nil {
			errs = append(errs, err)
		}
		if off+len(got) > len(want) || string(got) != want[off:off+len(got)] {
			t.Fatalf("%s: %s: other bytes in the %d from %d (%v)", e.Name, way, len(got), off, err)
		}
	}
	for range 6 {
		off := rnd.IntN(len(want) + 1)
		p := bytes.Repeat([]byte{0xee}, rnd.IntN(len(want)-off+1))
		n, err := a.ReadAt(ctx, e, p, int64(off))
		part("ReadAt", p[:n], off, err)
		if err == nil && n < len(p) {
			t.Fatalf("%s: %d of %d bytes", e.Name, n, len(p))
		}
	}
	f, err := a.OpenEntry(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	off := rnd.IntN(len(want) + 1)
	if _, err := f.Seek(int64(off), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	part("Read", got, off, err)
	var b bytes.Buffer
	err = a.WriteContent(ctx, &b, e)
	part("WriteContent", b.Bytes(), 0, err)
	err = a.Contents(ctx, func(x holdall.Entry) bool { return x.Name == e.Name }, func(_ holdall.Entry, content io.Reader, err error) error {
		if err != nil {
			return err
		}
		got, err := io.ReadAll(content)
		part("Contents", got, 0, err)
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
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
		return holdall.Open(ctx, "x", holdall.OpenOptions{Store: st, View: "zarr"})
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
	a, err := holdall.Open(ctx, "x", holdall.OpenOptions{Store: st})
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

// Bits are turned, one at a time: what makes an archive say anything else, a check tells. A bit of
// one byte in six is chosen at random, fewer among zeros, and all of all with HOLDALL_LONG=8.
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
					n := testkit.Rounds(t, 1)
					if n == 1 && rnd.IntN(6) > 0 {
						continue
					}
					turned := rnd.Perm(8)[:min(n, 8)]
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
						_, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) { told = told || p.Severity > format.Note })
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
		{"caf", holdall.PackOptions{Plain: true}, holdall.Verified{Unproven: 2}}, // not the empty one,
		{"rvn", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Digest: 3}}},
		{"rvn", holdall.PackOptions{Plain: true}, holdall.Verified{Proven: holdall.Proven{Digest: 3}}}, // it has digests always
		{"databundle", holdall.PackOptions{Plain: true}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"databundle", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"zip", holdall.PackOptions{}, holdall.Verified{Proven: holdall.Proven{Checksum: 3}}},
		{"oak", holdall.PackOptions{}, holdall.Verified{Unproven: 0}},
	} {
		st := &storetest.Mem{}
		k.o.Format = k.format
		k.o.Store = st
		if _, err := holdall.Pack(t.Context(), "x", []string{tree(t, files)}, k.o); err != nil {
			t.Fatal(err)
		}
		got, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) { t.Error(p) })
		if k.format == "oak" {
			k.want.Proven.Checksum = got.Proven.Checksum // of properties, too
			if got.Proven.Checksum < 3 {
				t.Errorf("%s: %+v", k.format, got)
			}
		}
		if err != nil || got.Proven != k.want.Proven || got.Unproven != k.want.Unproven {
			t.Errorf("%s: %+v, %v", k.format, got, err)
		}
		sameDoubts(t, k.format, got, holdall.OpenOptions{Store: st})
	}
	st := packedAs(t, "lindi", nil, map[string]string{".zgroup": `{"zarr_format": 2}`, ".zattrs": "{}"})
	o := holdall.OpenOptions{Store: st, View: "zarr"}
	got, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: o}, func(p holdall.Problem) { t.Error(p) })
	if err != nil || got.Proven.Digest != 2 {
		t.Errorf("keys of lindi: %+v, %v", got, err)
	}
	sameDoubts(t, "keys of lindi", got, o)
}

// sameDoubts compares what Verify says of an archive with what the archive says of each entry.
func sameDoubts(t *testing.T, what string, v holdall.Verified, o holdall.OpenOptions) {
	t.Helper()
	a, err := holdall.Open(t.Context(), "x", o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	n := int64(0)
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Unproven(t.Context(), e) {
			n++
		}
	}
	if n != v.Doubtful() {
		t.Errorf("%s: %d entries say that they are unproven, Verify says %d", what, n, v.Doubtful())
	}
}

// One wrong bit in a record takes no file with it that its own checksum shows to be right: a check
// tells of it, a repair keeps the others, and they are extracted. Package content reads them in
// every way.
func TestARecordWithAWrongChecksumGivesBackWhatIsProven(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10))}
	for i := range 60 {
		files[fmt.Sprintf("f%02d", i)] = string(testkit.Noise(rnd, 1000+rnd.IntN(5000)))
	}
	st := packedAs(t, "databundle", map[string]string{"compression": "zlib"}, files)
	const shard = "x/shard-00000000"
	was := st.Get(shard)
	if was == nil {
		t.Fatal(objectsIn(t, st))
	}
	shared := sharedRecord(t, st, "f00")
	damaged, warned := 0, 0
	rounds := testkit.Rounds(t, 4)
	for i := range rounds {
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
		if len(readAll(t, st, files, holdall.OpenOptions{NoVerify: true})) == 0 {
			continue // of padding
		}
		damaged++
		told, errors := 0, 0
		_, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) {
			if told++; p.Severity == format.Error {
				errors++
			}
		})
		if err != nil || told == 0 || errors != len(bad) {
			t.Errorf("%v; %d problems are told, %d errors of %q", err, told, errors, bad)
		}
		warned += told - errors
		plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st}})
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
		a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		into, err := os.OpenRoot(t.TempDir())
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
	if damaged < rounds/2 || warned < damaged/2 {
		t.Errorf("of %d times something was damaged %d times, %d files were told of", rounds, damaged, warned)
	}
}

// sharedRecord is the record that a small file is in, with others.
func sharedRecord(t *testing.T, st *storetest.Mem, name string) (record format.Extent) {
	t.Helper()
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
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
	a, err := holdall.Open(t.Context(), "x", o.In(st))
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
