package explore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// left returns a source of whatever is stored, as the command makes them.
func left(st store.Store, name string, o holdall.OpenOptions) serve.Source {
	return serve.Source{Name: path.Base(name), Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		if autopsy.Is(view) {
			in, err := autopsy.Open(ctx, st, name, view, o)
			return in, "", err
		}
		o := o
		o.Store, o.View = st, view
		in, err := holdall.Open(ctx, name, o)
		return in, "", err
	}}
}

// covered fails unless each byte of a view's map is in one span.
func covered(s *site, name, view string, size int64) {
	s.t.Helper()
	code, b, _ := s.get("/api/map", "a", name, "view", view, "cells", "7")
	if code != http.StatusOK {
		s.t.Fatalf("%s: the map of %s: %d %s", name, view, code, b)
	}
	var m struct {
		Size   int64
		Totals map[string]int64
	}
	if err := json.Unmarshal(b[4:4+binary.LittleEndian.Uint32(b)], &m); err != nil {
		s.t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range m.Totals {
		sum += n
	}
	if m.Size != size || sum < size-7 || sum > size+7 { // they are rounded
		s.t.Errorf("%s: the map of %s has %d bytes with uses %v, expected %d", name, view, m.Size, m.Totals, size)
	}
	if view != autopsy.Bytes {
		return
	}
	if m.Totals["gap"] != 0 {
		s.t.Errorf("%s: the map has holes: %v", name, m.Totals)
	}
	at := ask[struct {
		Count int
		Spans []struct{ At, Len int64 }
	}](s, "/api/map/at", "a", name, "view", view, "limit", "2000")
	if at.Count != len(at.Spans) {
		return
	}
	slices.SortFunc(at.Spans, func(a, b struct{ At, Len int64 }) int { return int(a.At - b.At) })
	end := int64(0)
	for _, x := range at.Spans {
		if x.At != end {
			s.t.Fatalf("%s: a span begins at %d, the one before ends at %d", name, x.At, end)
		}
		end += x.Len
	}
	if end != size {
		s.t.Errorf("%s: the spans end at %d of %d", name, end, size)
	}
}

// contents reads what is in an archive. A file that cannot be read has its error.
func contents(t testing.TB, in *holdall.Archive) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range in.Entries(t.Context()) {
		if err != nil {
			all["the end"] = err.Error()
			break
		}
		if !e.Kind.HasContent() {
			all[e.Name] = e.Kind.String()
			continue
		}
		b := make([]byte, min(e.Size, 1<<20))
		if _, err := in.ReadAt(t.Context(), e, b, 0); err != nil && !errors.Is(err, io.EOF) {
			b = []byte("cannot be read")
		}
		all[e.Name] = fmt.Sprint(e.Size, " ", string(b))
	}
	return all
}

// firstScreen looks at whatever is stored as the page does, and returns how many files can be recovered.
func firstScreen(t testing.TB, st store.Store, name string, o holdall.OpenOptions, rnd *rand.Rand) (recovered int) {
	t.Helper()
	s, base := serving(t, left(st, name, o)), path.Base(name)
	d := ask[struct {
		Happened, Command string
		Size              int64
		Volumes           []struct {
			Name       string
			Base, Size int64
		}
		Looks []struct {
			Look  string
			Bytes int64
		}
	}](s, "/api/damage", "a", base)
	seen := int64(0)
	for _, x := range d.Looks {
		if seen += x.Bytes; x.Look == "" || x.Bytes <= 0 {
			t.Errorf("%s: %d bytes look like %q", name, x.Bytes, x.Look)
		}
	}
	if seen > d.Size || seen < d.Size && len(d.Looks) < 8 {
		t.Errorf("%s: it says what %d of %d bytes look like", name, seen, d.Size)
	}
	if !strings.HasSuffix(d.Happened, ".") && !strings.Contains(d.Happened, ":") || !strings.HasPrefix(d.Command, "holdall repair ") || len(d.Volumes) == 0 {
		t.Errorf("%s: the first screen says %+v", name, d)
	}
	if a := ask[struct{ Can []string }](s, "/api/archive", "a", base, "view", autopsy.Bytes); !slices.Contains(a.Can, "damage") {
		t.Errorf("%s: its bytes can %q", name, a.Can)
	}
	if d.Size > 0 {
		covered(s, base, autopsy.Bytes, d.Size)
	}
	for _, v := range d.Volumes[:min(3, len(d.Volumes))] {
		if v.Size == 0 {
			continue
		}
		at := rnd.Int64N(v.Size)
		code, got, _ := s.get("/api/content", "a", base, "view", autopsy.Bytes, "path", v.Name, "off", fmt.Sprint(at), "n", "64")
		want := make([]byte, min(64, v.Size-at))
		in := name
		if len(d.Volumes) > 1 || path.Base(name) != v.Name {
			in = name + "/" + v.Name
		}
		obj, err := st.Open(t.Context(), in)
		if err == nil {
			err = errors.Join(obj.ReadAt(t.Context(), want, at), obj.Close())
		}
		if err != nil || code != http.StatusOK || !bytes.Equal(got, want) {
			t.Errorf("%s: bytes at %d of %s: %d %.40q, %v", name, at, v.Name, code, got, err)
		}
	}
	p := ask[struct {
		Nothing, Command string
		Changes, Saves   bool
	}](s, "/api/repair", "a", base)
	if p.Nothing != "" {
		return 0
	}
	code, saved, head := s.get("/api/repaired", "a", base)
	if code != http.StatusOK {
		t.Fatalf("%s: the copy: %d %s", name, code, saved)
	}
	covered(s, base, autopsy.Repaired, d.Size)
	preview, err := autopsy.Open(t.Context(), st, name, autopsy.Repaired, o)
	if err != nil {
		t.Fatal(err)
	}
	defer preview.Close()
	shown := contents(t, preview)
	m := &storetest.Mem{}
	if strings.HasSuffix(head.Get("Content-Disposition"), ".tar") && !strings.HasSuffix(base, ".tar") {
		for r := tar.NewReader(bytes.NewReader(saved)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			var b []byte
			if err == nil {
				b, err = io.ReadAll(r)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, below, _ := strings.Cut(h.Name, "/")
			m.Put(name+"/"+below, b)
		}
	} else {
		m.Put(name, saved)
	}
	copied, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: m, Format: preview.Format().Name})
	if err != nil {
		t.Fatalf("%s: the saved copy: %v", name, err)
	}
	defer copied.Close()
	is := contents(t, copied)
	for file, content := range shown {
		if is[file] != content {
			t.Errorf("%s: the preview has %.60q in %s, the copy %.60q", name, content, file, is[file])
		}
	}
	if len(is) != len(shown) {
		t.Errorf("%s: the preview has %d files, the copy %d", name, len(shown), len(is))
	}
	return len(shown)
}

// made are archives of each format, as objects below "x".
func made(t testing.TB, rnd *rand.Rand) map[string]*storetest.Mem {
	t.Helper()
	files := map[string]string{"a.txt": strings.Repeat("some text\n", 700), "d/b.json": `{"a": [` + strings.Repeat("1, ", 300) + `2]}`, "d/c.bin": string(testkit.Noise(rnd, 9000)), "d/zeros": string(make([]byte, 5000)), "empty": ""}
	dir := testkit.Tree(t, t.TempDir(), files)
	all := map[string]*storetest.Mem{}
	for _, as := range []struct {
		ext, format string
		param       map[string]string
	}{{".caf", "caf", nil}, {".tar", "tar", nil}, {".tar.zst", "tar", nil}, {".zip", "zip", nil}, {".rvn", "rvn", nil}, {".lindi.tar", "lindi", nil}, {".databundle", "databundle", nil}} {
		m := &storetest.Mem{}
		if _, err := holdall.Pack(t.Context(), "x"+as.ext, []string{dir}, holdall.PackOptions{Store: m, Format: as.format, Param: as.param}); err != nil {
			t.Fatalf("%s: %v", as.ext, err)
		}
		all["x"+as.ext] = m
	}
	return all
}

func objectsOf(t testing.TB, m *storetest.Mem) (names []string) {
	t.Helper()
	for info, err := range storekit.List(t.Context(), m, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return names
}

// TestWhateverIsOpenedHasAFirstScreen cuts and damages archives of all formats at random.
func TestWhateverIsOpenedHasAFirstScreen(t *testing.T) {
	rnd := testkit.Rand(t)
	all := made(t, rnd)
	recovered := map[string]int{}
	for name, m := range all {
		if n := firstScreen(t, m, name, holdall.OpenOptions{}, rnd); n < 5 {
			t.Errorf("%s: %d files of a sound archive", name, n)
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range testkit.Rounds(t, 42) {
		name := names[i%len(names)]
		m, whole := &storetest.Mem{}, all[name]
		objects := objectsOf(t, whole)
		hurt := objects[rnd.IntN(len(objects))]
		what := ""
		for _, o := range objects {
			b := whole.Get(o)
			if o == hurt && len(b) > 2 {
				switch rnd.IntN(3) {
				case 0:
					what = testkit.Moves[rnd.IntN(len(testkit.Moves))]
					b = testkit.Move(rnd, b, what)
				case 1:
					b, what = testkit.Damage(rnd, b)
				default:
					b = b[:rnd.IntN(len(b))]
					what = fmt.Sprintf("cut at %d", len(b))
				}
			}
			m.Put(o, b)
		}
		t.Run(strings.ReplaceAll(fmt.Sprintf("%d %s of %s: %s", i, name, hurt, what), "/", "|"), func(t *testing.T) {
			recovered[name] += firstScreen(t, m, name, holdall.OpenOptions{}, rnd)
		})
	}
	t.Log("recovered:", recovered)
}

func TestWhatIsNoArchiveHasAFirstScreen(t *testing.T) {
	rnd := testkit.Rand(t)
	all := made(t, rnd)
	b := all["x.zip"].Get("x.zip")
	tar, lindi, rvn := all["x.tar"].Get("x.tar"), all["x.lindi.tar"].Get("x.lindi.tar"), all["x.rvn"].Get("x.rvn")
	for _, x := range []struct {
		name    string
		content []byte
		least   int
	}{
		{"empty.caf", nil, 0}, {"empty", nil, 0}, {"noise", testkit.Noise(rnd, 50_000), 0}, {"noise.zip", testkit.Noise(rnd, 5000), 0}, {"zeros.tar", make([]byte, 9000), 0},
		{"text", []byte(strings.Repeat("text, and nothing else\n", 999)), 0}, {"a", []byte("a"), 0},
		{"no-directory.zip", b[:bytes.Index(b, []byte("PK\x01\x02"))], 4}, {"no-directory", b[:bytes.Index(b, []byte("PK\x01\x02"))], 4},
		{"headless", tar[700:], 4}, {"headless.lindi", lindi[1500:], 4}, {"no-magic.rvn", rvn[3:], 0}, {"no-magic", rvn[3:], 0},
	} {
		m := &storetest.Mem{}
		m.Put(x.name, x.content)
		if n := firstScreen(t, m, x.name, holdall.OpenOptions{}, rnd); n < x.least {
			t.Errorf("%s: %d files are recovered, expected %d", x.name, n, x.least)
		}
	}
}

// TestFixturesHaveAFirstScreen opens what the references wrote, whole and damaged.
func TestFixturesHaveAFirstScreen(t *testing.T) {
	dir := os.Getenv("HOLDALL_FIXTURES")
	if dir == "" {
		testkit.Missing(t, "HOLDALL_FIXTURES", "it names no folder with what the references wrote")
	}
	rnd, opened := testkit.Rand(t), 0
	for _, f := range []string{"caf", "databundle", "lindi", "oak", "rvn"} {
		all, err := os.ReadDir(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if strings.HasSuffix(e.Name(), ".json") && !strings.HasSuffix(e.Name(), ".lindi.json") || strings.HasSuffix(e.Name(), ".md") || strings.HasSuffix(e.Name(), ".txt") {
				continue
			}
			root, err := os.OpenRoot(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			st := local.Within(root)
			if e.IsDir() && !hasFile(root.FS(), e.Name()) {
				continue
			}
			t.Run(f+" "+e.Name(), func(t *testing.T) {
				firstScreen(t, st, e.Name(), holdall.OpenOptions{External: []string{"none"}}, rnd)
			})
			opened++
		}
	}
	if opened < 100 {
		t.Errorf("opened %d fixtures only", opened)
	}
}

func hasFile(fsys fs.FS, dir string) (has bool) {
	_ = fs.WalkDir(fsys, dir, func(_ string, d fs.DirEntry, err error) error {
		has = has || err == nil && d.Type().IsRegular()
		return err
	})
	return has
}

func TestNothingIsShownThatNoTrustedKeyHasSigned(t *testing.T) {
	m := made(t, testkit.Rand(t))["x.caf"]
	s := serving(t, left(m, "x.caf", holdall.OpenOptions{Trusted: []string{"a key"}}))
	for _, p := range []string{"/api/damage", "/api/repair", "/api/repaired"} {
		if code, b, _ := s.get(p, "a", "x.caf"); code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "trusted") {
			t.Errorf("%s: %d %s", p, code, b)
		}
	}
}
