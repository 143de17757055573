package lindi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// applied applies a plan to the only object that it changes.
func applied(t testing.TB, st *storetest.Mem, name string, p format.Plan) *storetest.Mem {
	t.Helper()
	b := st.Get(name)
	var out bytes.Buffer
	at := int64(0)
	for _, e := range p.Edits {
		if e.Object != name || e.Off < at || e.Off+e.Len > int64(len(b)) {
			t.Fatalf("edit of %q at %d+%d, behind %d", e.Object, e.Off, e.Len, at)
		}
		out.Write(b[at:e.Off])
		if err := e.Write(&out); err != nil {
			t.Fatal(err)
		}
		at = e.Off + e.Len
	}
	out.Write(b[at:])
	c := st.Clone()
	c.Put(name, out.Bytes())
	return c
}

// problems runs verify.
func problems(t testing.TB, st *storetest.Mem, name string) (list []format.Problem) {
	t.Helper()
	if err := verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) { list = append(list, p) }); err != nil {
		t.Fatal(err)
	}
	return list
}

// outcomes is what verify reports for each damaged fixture: code and entry of its
// errors and warnings.
var outcomes = map[string][]string{
	"x01_truncated_in_last_blob.lindi.tar": {"truncated blobs/s3/0", "truncated ", "truncated s3/0"},
	"x02_no_terminator.lindi.tar":          {"truncated "},
	"x03_index_garbage.lindi.tar":          {"bad-index "},
	"x04_entry_zeroed.lindi.tar":           {"bad-index "},
	"x05_blob_header_flipped.lindi.tar":    {"bad-header blobs/s1/0"},
	"x06_crash_lindi_json_dashed.lindi.tar": {
		"missing-index blobs/late/0", "bad-index ",
	},
	"x07_crash_before_index.lindi.tar": {
		"bad-header lindi.json", "missing-index blobs/late/0", "missing-index lindi.json", "bad-index ",
	},
	"x08_crash_entry_not_updated.lindi.tar": {"bad-index "},
	"x09_killed_before_flush.lindi.tar":     {"missing-index blobs/unflushed/0", "truncated "},
	"p02_few_blobs.lindi.tar":               {"gap grid"}, // trap 6, in a set that was meant to be whole
	"p12_reference_lost_chunks.lindi.tar":   {"gap lost"},
	"p13_dangling_ref.lindi.tar":            {"dangling " + strings.Repeat("n", 60) + "/" + strings.Repeat("m", 60) + "/0"},
}

func TestFixturesVerified(t *testing.T) {
	fixtures(t, func(t *testing.T, st *storetest.Mem, name string, _ expect) {
		var got []string
		for _, p := range problems(t, st, name) {
			if p.Severity > format.Note {
				got = append(got, string(p.Code)+" "+p.Entry)
			}
		}
		if !slices.Equal(got, outcomes[name]) {
			t.Errorf("found %q, expected %q", got, outcomes[name])
		}
	})
}

func TestFixturesRepaired(t *testing.T) {
	fixtures(t, func(t *testing.T, st *storetest.Mem, name string, want expect) {
		plan, err := repair(t.Context(), st, name, format.OpenOptions{}, func(format.Problem) {})
		if err != nil {
			t.Fatal(err)
		}
		if want.Damage.Cause == "" {
			if len(plan.Edits) > 0 {
				t.Errorf("nothing is damaged, but it is to be repaired: %q", plan.Notes)
			}
			return
		}
		if lost := len(want.Damage.Lost) > 0; plan.Partial != lost || lost != (len(plan.Lost) > 0) {
			t.Errorf("partial %v, lost %q; expected to lose %d members", plan.Partial, plan.Lost, len(want.Damage.Lost))
		}
		st = applied(t, st, name, plan)
		r, err := Format.Open(t.Context(), st, name, format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Name, blobDir) {
				n++
			}
		}
		if n != len(want.Repaired.Members) {
			t.Errorf("%d members, expected %d", n, len(want.Repaired.Members))
		}
		for _, m := range want.Repaired.Members {
			e, err := r.Lookup(t.Context(), m.Name)
			if err != nil || e.Size != m.Size {
				t.Errorf("%s: %d bytes, %v", m.Name, e.Size, err)
				continue
			}
			if b, err := content(t.Context(), st, r, e, nil); err != nil || hashOf(b) != m.SHA256 {
				t.Errorf("%s: %v, or other content", m.Name, err)
			}
		}
		k, err := Format.Open(t.Context(), st, name, format.OpenOptions{View: zarrView})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		for key, w := range want.Repaired.RFS {
			e, err := k.Lookup(t.Context(), key)
			if err != nil {
				t.Errorf("%s: %v", key, err)
				continue
			}
			if (w.ReadError != "") != (e.Fault != nil) {
				t.Errorf("%s: fault %+v, expected %q", key, e.Fault, w.ReadError)
			}
			if e.Fault != nil || w.Kind == "json" {
				continue
			}
			b, err := content(t.Context(), st, k, e, nil)
			if h := hashOf(b); err != nil || h != w.SHA256 && h != w.StoredSHA256 {
				t.Errorf("%s: %v, or other content", key, err)
			}
		}
		for _, p := range problems(t, st, name) {
			if p.Severity > format.Note && p.Code != format.Dangling {
				t.Errorf("after the repair: %s %s: %s", p.Code, p.Entry, p.Message)
			}
		}
	})
}

// A damaged header costs nothing where the index is lost as well, if what keys
// expect fits the hole.
func TestRepairFindsMembersInHoles(t *testing.T) {
	const name = "p02_few_blobs.lindi.tar"
	st := fixtureStore(t, name)
	b := st.Get(name)
	copy(b[entryData:], "lost")
	r, err := Format.Open(t.Context(), st, name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Lookup(t.Context(), "blobs/grid/0.1")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	clear(b[e.Ref.(int64)-blockLen:][:blockLen])
	st.Put(name, b)
	plan, err := repair(t.Context(), st, name, format.OpenOptions{}, func(format.Problem) {})
	if err != nil || plan.Partial && len(plan.Lost) > 1 {
		t.Fatal(err, plan.Lost)
	}
	st = applied(t, st, name, plan)
	k, err := Format.Open(t.Context(), st, name, format.OpenOptions{View: zarrView})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if e, err := k.Lookup(t.Context(), "grid/0.1"); err != nil || e.Fault != nil {
		t.Errorf("%v, %+v", err, e.Fault)
	}
}

func TestRepairDropsOrphansWhenAsked(t *testing.T) {
	const name = "p05_rewritten.lindi.tar"
	st := fixtureStore(t, name)
	o := format.OpenOptions{Param: map[string]string{dropOrphans: "true"}}
	plan, err := repair(t.Context(), st, name, o, func(format.Problem) {})
	if err != nil || plan.Partial || len(plan.Edits) == 0 {
		t.Fatal(err, plan)
	}
	small := applied(t, st, name, plan)
	if before, after := len(st.Get(name)), len(small.Get(name)); after > before-36000 {
		t.Errorf("%d bytes, of %d before", after, before)
	}
	for _, p := range problems(t, small, name) {
		t.Errorf("%s %s: %s", p.Code, p.Entry, p.Message)
	}
	again, err := repair(t.Context(), small, name, o, func(format.Problem) {})
	if err != nil || len(again.Edits) > 0 {
		t.Error(err, again.Notes)
	}
	if _, err := Format.Open(t.Context(), small, "none.lindi.tar", format.OpenOptions{}); err == nil || errors.Is(err, format.ErrCorrupt) {
		t.Error(err)
	}
}

func TestAnArrayWithoutADescriptionIsChecked(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("a.lindi.json", []byte(`{"refs": {".zarray": "", "a/.zarray": "base64:", "a/0": "x", "b/.zarray": "{", "b/0": "y"}}`))
	if all := problems(t, st, "a.lindi.json"); len(all) != 1 || all[0].Entry != "b/.zarray" {
		t.Errorf("%+v", all)
	}
}

// A server that does not answer is not requested for each of its many sources.
func TestServersThatDoNotAnswerAreAskedFew(t *testing.T) {
	const many = 1000
	var text strings.Builder
	text.WriteString(`{"refs": {"a/0": ["https://good.example/0", 0, 1]`)
	for i := range many {
		fmt.Fprintf(&text, `, "b/%d": ["https://silent.example/%d", 0, 1]`, i, i)
	}
	text.WriteString("}}")
	st := &storetest.Mem{}
	st.Put("x.lindi.json", []byte(text.String()))
	var asked, good atomic.Int32
	warnings := 0
	err := verify(t.Context(), st, "x.lindi.json", format.OpenOptions{Stat: func(_ context.Context, address string) (store.Info, error) {
		if strings.Contains(address, "good") {
			good.Add(1)
			return store.Info{Size: 1}, nil
		}
		asked.Add(1)
		return store.Info{}, &store.Error{Op: "info", Name: address, Err: errors.New("no answer"), Retry: true}
	}}, func(p format.Problem) {
		if p.Severity == format.Warning && p.Code == format.Dangling {
			warnings++
		}
	})
	if err != nil || warnings != many || good.Load() != 1 || asked.Load() < 3 || asked.Load() > 3+16 {
		t.Errorf("%v; %d warnings; the silent server was asked %d times, the good one %d times", err, warnings, asked.Load(), good.Load())
	}
}

// twoBlobs is a store with a new archive of two chunks, of 1547 and 1200 bytes.
func twoBlobs(t *testing.T, name string) *storetest.Mem {
	t.Helper()
	return blobs(t, name, 1547, 1200)
}

// blobs is a store with a new archive of chunks with these lengths.
func blobs(t *testing.T, name string, lengths ...int) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	w, err := Format.Create(t.Context(), st, name, format.CreateOptions{Param: map[string]string{"as": "zarr"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range lengths {
		e := format.Entry{Name: fmt.Sprintf("a/%d", i), Size: int64(n)}
		if err := w.Add(t.Context(), e, bytes.NewReader(noise(uint64(i), n))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

// repaired repairs an archive, and returns what all chunks of twoBlobs are then.
func repaired(t *testing.T, st *storetest.Mem, name string) (*storetest.Mem, format.Plan) {
	t.Helper()
	plan, err := repair(t.Context(), st, name, format.OpenOptions{}, func(format.Problem) {})
	if err != nil || len(plan.Edits) == 0 {
		t.Fatal(err, plan)
	}
	return applied(t, st, name, plan), plan
}

func wantChunk(t *testing.T, st *storetest.Mem, name string, i, n int) {
	t.Helper()
	k, err := Format.Open(t.Context(), st, name, format.OpenOptions{View: zarrView})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	e, err := k.Lookup(t.Context(), fmt.Sprintf("a/%d", i))
	if err != nil || e.Fault != nil {
		t.Fatalf("a/%d: %v, %+v", i, err, e.Fault)
	}
	if b, err := content(t.Context(), st, k, e, nil); err != nil || !bytes.Equal(b, noise(uint64(i), n)) {
		t.Errorf("a/%d: %d bytes, %v", i, len(b), err)
	}
	if e.Digest.Sum == "" {
		t.Errorf("a/%d has no digest any more", i)
	}
}

// Of header, row and key, two that agree on a length count; of header and row, the one
// that the digest fits.
// An archive whose entry and its header are damaged is not taken for a tar, whose contents nothing
// would prove.
func TestAnArchiveWithADamagedFrontIsStillOne(t *testing.T) {
	st := twoBlobs(t, "x.lindi.tar")
	b := st.Get("x.lindi.tar")
	b[6] ^= 0x80
	clear(b[entryData+40 : entryData+900])
	st.Put("x.lindi.tar", b)
	if is := detect(format.Probe{Name: "x", Head: b[:min(len(b), 4096)], Size: int64(len(b))}); is != format.Certain {
		t.Errorf("detected with certainty %v", is)
	}
	if len(problems(t, st, "x.lindi.tar")) == 0 {
		t.Error("verify finds nothing")
	}
	again, _ := repaired(t, st, "x.lindi.tar")
	wantChunk(t, again, "x.lindi.tar", 0, 1547)
	wantChunk(t, again, "x.lindi.tar", 1, 1200)
}

func TestRepairBelievesTheMajorityOfALength(t *testing.T) {
	const name = "x.lindi.tar"
	for _, wrong := range []string{"0947", "9999"} {
		for _, keys := range []bool{true, false} {
			t.Run(fmt.Sprint(wrong, keys), func(t *testing.T) {
				st := twoBlobs(t, name)
				b := st.Get(name)
				wrong := strings.Replace(wrong, "0", " ", 1)
				if n := bytes.Count(b, []byte(`"s":1547`)); n != 1 {
					t.Fatalf("the row is there %d times", n)
				}
				b = bytes.Replace(b, []byte(`"s":1547`), []byte(`"s":`+wrong), 1)
				if !keys { // nothing but header, row and digest is left
					if !bytes.Contains(b, []byte("1547]")) {
						t.Fatal("no key leads there")
					}
					b = bytes.Replace(b, []byte("1547]"), []byte("  10]"), 1)
				}
				st.Put(name, b)
				fixed, plan := repaired(t, st, name)
				if plan.Partial == keys { // without keys, lindi.json is damaged, too
					t.Errorf("lost %q", plan.Lost)
				}
				for _, p := range problems(t, fixed, name) {
					if p.Severity > format.Note && (keys || p.Class != string(format.LostDigest)) {
						t.Errorf("after the repair: %s %s: %s", p.Code, p.Entry, p.Message)
					}
				}
				if keys {
					wantChunk(t, fixed, name, 0, 1547)
				}
				wantChunk(t, fixed, name, 1, 1200)
				r, err := Format.Open(t.Context(), fixed, name, format.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if e, err := r.Lookup(t.Context(), "blobs/a/0"); err != nil || e.Size != 1547 {
					t.Errorf("%+v, %v", e, err)
				}
			})
		}
	}
}

// A correct row is used if only the header has another length.
func TestRepairBelievesARowWhoseDigestFits(t *testing.T) {
	const name = "x.lindi.tar"
	st := twoBlobs(t, name)
	b := st.Get(name)
	at := bytes.Index(b, noise(0, 1547))
	block := appendHeader(nil, "blobs/a/0", 947)
	copy(b[at-blockLen:at], block)
	st.Put(name, b)
	fixed, plan := repaired(t, st, name)
	if plan.Partial {
		t.Errorf("lost %q", plan.Lost)
	}
	wantChunk(t, fixed, name, 0, 1547)
}

// If a member was cut out and the index is still in its place, all later members are found by
// their headers, however many the index lists.
func TestRepairFindsMembersBehindOneThatWasCutOut(t *testing.T) {
	const name = "x.lindi.tar"
	for n := 2; n < 16; n++ {
		lengths := make([]int, n)
		for i := range lengths {
			lengths[i] = 1100 + i
		}
		st := blobs(t, name, lengths...)
		b := st.Get(name)
		start := bytes.Index(b, noise(0, lengths[0])) - blockLen
		last := bytes.Index(b, noise(uint64(n-1), lengths[n-1]))
		gap, end := blockLen+int(padded(int64(lengths[0]))), last+int(padded(int64(lengths[n-1])))
		copy(b[start:], b[start+gap:end])
		clear(b[end-gap : end])
		st.Put(name, b)
		fixed, plan := repaired(t, st, name)
		if len(plan.Lost) != 1 || !strings.HasPrefix(plan.Lost[0], "blobs/a/0: ") {
			t.Errorf("%d chunks: expected that blobs/a/0 is lost, found %q", n, plan.Lost)
		}
		for i := 1; i < n; i++ {
			wantChunk(t, fixed, name, i, lengths[i])
		}
	}
}

// Damage of an index, or after its text, must not lose a digest: a damaged member is still
// reported after the repair.
func TestRepairKeepsTheDigestsOfADamagedIndex(t *testing.T) {
	const name = "x.lindi.tar"
	for what, spoil := range map[string]func(a *archive, b []byte){
		"padding":     func(a *archive, b []byte) { b[a.entry.d+a.entry.indexText+3] = 'x' },
		"row":         func(a *archive, b []byte) { b[bytes.Index(b, []byte(`lindi.json","o"`))] = '"' },
		"head":        func(a *archive, b []byte) { b[a.entry.d] = 'x' },
		"entry":       func(a *archive, b []byte) { b[entryData] = 'x' },
		"lindi.json":  func(a *archive, b []byte) { b[a.entry.rfsAt] = 'x' },
		"its padding": func(a *archive, b []byte) { b[a.entry.rfsAt+a.entry.rfsText] = 'x' },
	} {
		t.Run(what, func(t *testing.T) {
			st := twoBlobs(t, name)
			b := st.Get(name)
			a, err := openArchive(t.Context(), st, name, format.OpenOptions{})
			if err == nil {
				err = a.loadTable(t.Context(), false)
			}
			if err != nil {
				t.Fatal(err)
			}
			a.close()
			if a.entry.indexText >= a.entry.s || a.entry.rfsAt+a.entry.rfsText >= a.rfsEndOfRoom() {
				t.Fatalf("no padding: %+v", a.entry)
			}
			spoil(a, b)
			b[bytes.Index(b, noise(1, 1200))] ^= 1
			st.Put(name, b)
			told := false
			for _, p := range problems(t, st, name) {
				told = told || p.Severity >= format.Warning
			}
			if !told {
				t.Error("verify says nothing")
			}
			fixed, _ := repaired(t, st, name)
			r, err := Format.Open(t.Context(), fixed, name, format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for i, n := range []int{1547, 1200} {
				e, err := r.Lookup(t.Context(), fmt.Sprintf("blobs/a/%d", i))
				if err != nil {
					t.Fatal(err)
				}
				want := blake3.Sum256(noise(uint64(i), n))
				if e.Digest.Sum != string(want[:]) {
					t.Errorf("%s: the digest is lost", e.Name)
				}
			}
		})
	}
}

func (a *archive) rfsEndOfRoom() int64 {
	r, _ := a.table.last(rfsName)
	return r.d + r.s
}
