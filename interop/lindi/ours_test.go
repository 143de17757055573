package lindi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest"
)

var ours = []*format.Format{lindi.Format}

func openView(t *testing.T, address, view string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), address, holdall.OpenOptions{View: view, Formats: ours})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// convert writes what a view of an archive shows to a new archive beside it.
func convert(t *testing.T, from, view, to string, o holdall.PackOptions) {
	t.Helper()
	st, name, err := store.OpenAddress(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	o.Formats = ours
	o.Store = st
	if _, err := holdall.Convert(t.Context(), openView(t, from, view), name, o); err != nil {
		t.Fatalf("%s to %s: %v", from, to, err)
	}
}

// gnuTar lists an archive with tar, which must find nothing wrong.
func gnuTar(t *testing.T, archive string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "tar", "tvf", archive).CombinedOutput(); err != nil {
		t.Errorf("tar tvf %s: %v\n%s", archive, err, out)
	}
}

// sound is an expect.json that says nothing: the script then checks only what
// must hold of every archive.
func sound(t *testing.T) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "sound.json")
	if err := os.WriteFile(p, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	return p
}

var healthy = []string{
	"p01_empty.lindi.tar", "p02_few_blobs.lindi.tar", "p03_index_growth.lindi.tar", "p04_lindi_json_growth.lindi.tar", "p05_rewritten.lindi.tar",
	"p06_attrs_groups_links.lindi.tar", "p07_from_hdf5.lindi.tar", "p08_from_hdf5.lindi.json", "p10_codecs.lindi.tar", "p12_reference_lost_chunks.lindi.tar",
}

func TestEveryFormOfOursReadsTheSame(t *testing.T) {
	for _, name := range healthy {
		archive, expect := copyOf(t, name)
		dir := filepath.Dir(archive)
		outside, err := os.ReadFile(filepath.Join(fixtures, "p07_source.h5"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "p07_source.h5"), outside, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		to := func(name string) string { return filepath.Join(dir, name) }
		if !strings.HasSuffix(name, ".json") {
			convert(t, archive, "members", to("members.lindi.tar"), holdall.PackOptions{})
			check(t, to("members.lindi.tar"), expect)
			gnuTar(t, to("members.lindi.tar"))
			convert(t, archive, "members", to("folder.lindi.d"), holdall.PackOptions{})
			check(t, to("folder.lindi.d"), expect, "--allow-dropped-orphans")
			convert(t, to("folder.lindi.d"), "members", to("again.lindi.tar"), holdall.PackOptions{})
			check(t, to("again.lindi.tar"), expect)
		}
		convert(t, archive, "zarr", to("keys.lindi.tar"), holdall.PackOptions{})
		check(t, to("keys.lindi.tar"), expect, "--allow-dropped-orphans")
		gnuTar(t, to("keys.lindi.tar"))
		convert(t, archive, "zarr", to("whole.lindi.tar"), holdall.PackOptions{Embed: true})
		check(t, to("whole.lindi.tar"), expect, "--allow-dropped-orphans")
		for _, size := range []string{"1000", "5000", "1000000"} {
			for _, runs := range []string{to("runs" + size + ".lindi.tar"), to("runs" + size + ".lindi.d")} {
				convert(t, archive, "zarr", runs, holdall.PackOptions{Embed: true, Param: map[string]string{"consolidate": size}})
				check(t, runs, expect, "--allow-dropped-orphans")
			}
			gnuTar(t, to("runs"+size+".lindi.tar"))
			if !strings.HasPrefix(name, "p07") {
				appendWith(t, to("runs"+size+".lindi.tar"), "--seed", "4")
			}
		}
		convert(t, archive, "zarr", to("text.lindi.json"), holdall.PackOptions{})
		check(t, to("text.lindi.json"), expect, "--allow-dropped-orphans")
		convert(t, to("text.lindi.json"), "zarr", to("back.lindi.tar"), holdall.PackOptions{})
		check(t, to("back.lindi.tar"), expect, "--allow-dropped-orphans")
		if !strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, "p07") {
			appendWith(t, to("members.lindi.tar"), "--blobs", "120", "--grow-json", "9000")
			appendWith(t, to("keys.lindi.tar"), "--seed", "3")
		}
	}
}

// References instead of contents: the reference follows them to our server.
func TestReferencesLeadToThePublishedTar(t *testing.T) {
	archive, expect := copyOf(t, "p02_few_blobs.lindi.tar")
	address := served(t, openFolder(t, filepath.Dir(archive))) + "/" + filepath.Base(archive)
	out := filepath.Join(t.TempDir(), "published.lindi.json")
	convert(t, archive, "zarr", out, holdall.PackOptions{Refer: address})
	check(t, out, expect, "--allow-dropped-orphans")
	convert(t, address, "zarr", out+".lindi.json", holdall.PackOptions{Refer: "here"})
	check(t, out+".lindi.json", expect, "--allow-dropped-orphans")
}

// served serves an archive, and returns where.
func served(t *testing.T, a *holdall.Archive) string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	set := serve.NewSet(serve.SetOptions{Log: log})
	t.Cleanup(set.Close)
	set.Add(serve.Source{Name: "x", Open: func(context.Context, string) (*holdall.Archive, string, error) { return a, "", nil }})
	web := httptest.NewServer(serve.NewSite(set, serve.SiteOptions{Log: log}))
	t.Cleanup(web.Close)
	return web.URL + "/f/x"
}

func openFolder(t *testing.T, dir string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), dir, holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestTreesBecomeMembers(t *testing.T) {
	testkit.Needs(t, pythonVar)
	dir := t.TempDir()
	for name, size := range map[string]int{"a": 0, "b/c": 512, "b/d e": 513, "ünïcödé": 100_000, strings.Repeat("deep/", 30) + "file": 7} {
		testkit.Tree(t, filepath.Join(dir, "in"), map[string]string{name: strings.Repeat("x", size)})
	}
	out := filepath.Join(dir, "x.lindi.tar")
	if _, err := holdall.Pack(t.Context(), out, []string{filepath.Join(dir, "in")}, holdall.PackOptions{Formats: ours}); err != nil {
		t.Fatal(err)
	}
	check(t, out, sound(t))
	gnuTar(t, out)
	appendWith(t, out)
	check(t, out, sound(t))
}

// What the reference reads of every key, byte by byte.
func TestKeysAreTheReferencesOwnBytes(t *testing.T) {
	for _, name := range []string{"p06_attrs_groups_links.lindi.tar", "p03_index_growth.lindi.tar", "p04_lindi_json_growth.lindi.tar"} {
		archive, _ := copyOf(t, name)
		dir := t.TempDir()
		python(t, script, "export", archive, dir)
		a := openView(t, archive, "zarr")
		n := 0
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			want, err := os.ReadFile(filepath.Join(dir, e.Name))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := a.WriteContent(t.Context(), &got, e); err != nil || !bytes.Equal(got.Bytes(), want) && !filledUp(got.Bytes(), want) {
				t.Errorf("%s: %v: %.200q, the reference has %.200q", e.Name, err, got.Bytes(), want)
			}
		}
		if n == 0 {
			t.Error("no keys")
		}
	}
}

// filledUp reports whether the reference has put zeros after what is stored, as it does even
// after compressed chunks.
func filledUp(got, want []byte) bool {
	return len(want) > len(got) && bytes.HasPrefix(want, got) && len(bytes.Trim(want[len(got):], "\x00")) == 0
}

func TestRepairedArchivesAreSound(t *testing.T) {
	testkit.Needs(t, pythonVar)
	names, err := filepath.Glob(filepath.Join(fixtures, "x*.lindi.tar"))
	if err != nil || len(names) < 9 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		archive, expect := copyOf(t, filepath.Base(n))
		text, err := os.ReadFile(expect)
		if err != nil {
			t.Fatal(err)
		}
		var notes struct {
			After json.RawMessage `json:"after_ideal_repair"`
		}
		if err := json.Unmarshal(text, &notes); err != nil {
			t.Fatal(err)
		}
		ideal := filepath.Join(filepath.Dir(archive), "ideal.json")
		if err := os.WriteFile(ideal, notes.After, 0o666); err != nil {
			t.Fatal(err)
		}
		st, name, err := store.OpenAddress(t.Context(), archive)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := holdall.Repair(t.Context(), name, holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: ours}})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.ApplyStore(t.Context(), st, "repaired.lindi.tar"); err != nil {
			t.Fatal(err)
		}
		repaired := filepath.Join(filepath.Dir(archive), "repaired.lindi.tar")
		check(t, repaired, ideal, "--superset")
		gnuTar(t, repaired)
		appendWith(t, repaired, "--seed", "5")
	}
}

// wrong returns what a check finds wrong with an archive, except for the chunks that a fixture
// lacks.
func wrong(t *testing.T, archive string) (found []holdall.Problem) {
	t.Helper()
	_, err := holdall.Verify(t.Context(), archive, holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Formats: ours}}, func(p holdall.Problem) {
		if p.Severity > format.Note && p.Entry != "grid" {
			found = append(found, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The reference writes index and lindi.json anew, and leaves our digests of them where
// they are if both keep their places. Those are of no worth then, and nothing is damaged.
func TestWhatTheReferenceChangesOfOursIsSound(t *testing.T) {
	for _, test := range []struct {
		name, view string
		changed    bool // both have room to grow where they are then
	}{
		{"p02_few_blobs.lindi.tar", "members", false}, {"p02_few_blobs.lindi.tar", "zarr", false}, {"p05_rewritten.lindi.tar", "zarr", false},
		{"p10_codecs.lindi.tar", "members", false}, {"p02_few_blobs.lindi.tar", "members", true}, {"p02_few_blobs.lindi.tar", "zarr", true},
	} {
		archive, _ := copyOf(t, test.name)
		out := filepath.Join(filepath.Dir(archive), "ours.lindi.tar")
		convert(t, archive, test.view, out, holdall.PackOptions{})
		if test.changed {
			st, name, err := store.OpenAddress(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			if err := change(t.Context(), st, name, "zarr"); err != nil {
				t.Fatal(err)
			}
		}
		appendWith(t, out)
		if found := wrong(t, out); len(found) > 0 {
			t.Errorf("%+v: %v", test, found)
		}
		if !test.changed {
			continue
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		note := bytes.LastIndex(b, []byte("added by the reference"))
		if !bytes.Contains(b[:1536], []byte("holdall_blake3")) || note < 0 {
			t.Fatalf("%+v: our digests are gone, or lindi.json is elsewhere: %d", test, note)
		}
		b[note]++
		if err := os.WriteFile(out, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if found := wrong(t, out); len(found) > 0 {
			t.Errorf("%+v: a digest of another lindi.json is believed: %v", test, found)
		}
	}
}

// change is a session with all that an amendment can do.
func change(ctx context.Context, st store.Store, name, view string) error {
	m, err := lindi.Format.Amend(ctx, st, name, format.OpenOptions{View: view})
	if err != nil {
		return err
	}
	defer m.Close()
	put := func(name string, n int) error {
		return m.Put(ctx, format.Entry{Name: name, Size: int64(n)}, bytes.NewReader(bytes.Repeat([]byte("data"), n/4)))
	}
	if view == "members" {
		err = errors.Join(put("notes.txt", 1200), put("more/notes.txt", 4))
	} else {
		err = errors.Join(
			put("raw_u1/0", 5000), m.Remove(ctx, "tiny/0"),
			m.Put(ctx, format.Entry{Name: "tiny/.zattrs", Size: 10}, strings.NewReader(`{"a": 1.5}`)),
			m.Put(ctx, format.Entry{Name: ".zattrs", Size: 20016}, strings.NewReader(`{"much": "`+strings.Repeat("text", 5001)+`"}`)))
	}
	if err == nil {
		_, err = m.Commit(ctx)
	}
	return err
}

// The reference opens every state that a crash of ours may leave, as the old version or the new
// one. After our next change it finds no problems.
func TestReferenceOpensWhatCrashesLeave(t *testing.T) {
	archive, _ := copyOf(t, "p02_few_blobs.lindi.tar")
	dir := filepath.Dir(archive)
	const name = "p02_few_blobs.lindi.tar"
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put(name, b)
	describe := func(label string, b []byte) string {
		p := filepath.Join(dir, label+".lindi.tar")
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if a := ask(t, "describe", p, "--out", p+".json"); a.Code != 0 {
			t.Fatal(a.Stderr)
		}
		var all map[string]any
		text, err := os.ReadFile(p + ".json")
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			t.Fatal(err)
		}
		delete(all, "file")
		all["structural"] = false
		if text, err = json.Marshal(all); err == nil {
			err = os.WriteFile(p+".json", text, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p + ".json"
	}
	checked := 0
	for i, view := range []string{"members", "zarr", "zarr"} {
		before := describe(fmt.Sprintf("before%d", i), st.Get(name))
		j := storetest.NewJournal(st.Clone())
		if err := change(t.Context(), j, name, view); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		after := describe(fmt.Sprintf("after%d", i), j.Get(name))
		state := filepath.Join(dir, "state.lindi.tar")
		k := 0
		for label, b := range j.States(uint64(i)) {
			if k++; k%2 == 0 {
				continue // a sample
			}
			if err := os.WriteFile(state, b, 0o666); err != nil {
				t.Fatal(err)
			}
			was, is := ask(t, "check", state, before), ask(t, "check", state, after)
			if was.Code != 0 && is.Code != 0 {
				t.Fatalf("session %d, %s: neither as it was\n%s\nnor as it was to be\n%s", i, label, was.Stderr, is.Stderr)
			}
			checked++
			if k%6 != 1 {
				continue
			}
			left := &storetest.Mem{}
			left.Put(name, b)
			if err := change(t.Context(), left, name, "members"); err != nil {
				t.Fatalf("session %d, %s: then: %v", i, label, err)
			}
			if err := os.WriteFile(state, left.Get(name), 0o666); err != nil {
				t.Fatal(err)
			}
			check(t, state, sound(t))
			appendWith(t, state)
		}
		st.Put(name, j.Get(name))
	}
	t.Logf("%d states", checked)
}

func TestStockZarrReadsTheServedView(t *testing.T) {
	for _, name := range []string{"p02_few_blobs.lindi.tar", "p05_rewritten.lindi.tar", "p06_attrs_groups_links.lindi.tar", "p10_codecs.lindi.tar", "p12_reference_lost_chunks.lindi.tar"} {
		archive, expect := copyOf(t, name)
		out, err := zarrOverHTTP(t, served(t, openView(t, archive, "zarr")), expect)
		if err != nil || strings.Contains(out, "FAIL") || !strings.Contains(out, "OK") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
