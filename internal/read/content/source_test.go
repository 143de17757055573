package content_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// What can be read of a damaged content is kept, with zeros for bytes that no store has. Nothing of
// it is compared.
func TestSalvageGivesWhatCanBeRead(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{"long": string(testkit.Noise(rnd, 700_000)), "small": string(testkit.Noise(rnd, 5000))}
	for _, kind := range []string{"caf", "zip", "databundle"} {
		t.Run(kind, func(t *testing.T) {
			st := packedAs(t, kind, map[string]map[string]string{"databundle": {"compression": "zlib"}}[kind], files)
			s := openAs(t, st, "x", kind, way{})
			object := extentsOf(t, s, lookup(t, s, "small"))[0].Object
			was := st.Get(object)
			for name, want := range files {
				// Noise is stored as it is, also by what compresses.
				at := bytes.Index(was, []byte(want[2000:2016]))
				if at < 0 {
					t.Fatalf("%s is not in %s", name, object)
				}
				st.Put(object, flipped(was, int64(at), 0))
				hurt := openAs(t, st, "x", kind, way{})
				if _, err := copyOf(t, hurt, lookup(t, hurt, name)); err == nil {
					t.Fatalf("%s is not damaged", name)
				}
				var b bytes.Buffer
				lost, err := hurt.Salvage(t.Context(), lookup(t, hurt, name), &b)
				if err != nil || b.Len() != len(want) {
					t.Fatalf("%s: %d bytes, %v", name, b.Len(), err)
				}
				others := int64(0)
				for i := range len(want) {
					if b.Bytes()[i] != want[i] {
						others++
					}
				}
				if lost > 0 || others != 1 {
					t.Errorf("%s: %d bytes are lost, %d are others", name, lost, others)
				}
			}
		})
	}
	// Of a bad sector, zeros are given, and the rest is as it was.
	mem := packedAs(t, "caf", nil, files)
	e := lookup(t, openAs(t, mem, "x", "caf", way{}), "long")
	begin := extentsOf(t, openAs(t, mem, "x", "caf", way{}), e)[0].Off
	bad := [2]int64{begin + 300_000, begin + 301_000}
	var cause error = errors.New("bad sector")
	sectors := storetest.Fault(mem, func(op, name string, off, n int64) error {
		if op == "read" && off < bad[1] && off+n > bad[0] {
			return cause
		}
		return nil
	})
	s := openAs(t, sectors, "x", "caf", way{})
	var b bytes.Buffer
	lost, err := s.Salvage(t.Context(), e, &b)
	if err != nil || lost < 1000 || lost > 2048 || b.Len() != len(files["long"]) {
		t.Fatalf("%d bytes, %d lost, %v", b.Len(), lost, err)
	}
	zeros := int64(0)
	for i, c := range b.Bytes() {
		if c != files["long"][i] {
			if zeros++; c != 0 {
				t.Fatalf("byte %d is another", i)
			}
		}
	}
	if zeros > lost || zeros < 900 {
		t.Errorf("%d bytes are zeros, %d lost", zeros, lost)
	}
	// What may be had later ends it, and so do a context and a writer.
	cause = &store.Error{Op: "read", Name: "x", Off: 0, Len: 1, Retry: true, Err: errors.New("busy")}
	if _, err := s.Salvage(t.Context(), e, io.Discard); !storekit.Temporary(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Salvage(ctx, e, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	full := errors.New("full")
	if _, err := s.Salvage(t.Context(), e, writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// onDisk writes an archive to a folder.
func onDisk(t *testing.T, kind string, files map[string]string) (store.Store, string) {
	t.Helper()
	st := packedAs(t, kind, nil, files)
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, st.Get("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	return local.New(filepath.Dir(path)), path
}

// The system may send a file that has content in one piece. Short content is compared before.
func TestAFileIsHandedOutIfItHasTheContent(t *testing.T) {
	files := map[string]string{"a": strings.Repeat("alpha", 100), "long": strings.Repeat("0123456789", 200_000)}
	st, path := onDisk(t, "caf", files)
	s := openAs(t, st, "x", "caf", way{})
	for name, want := range files {
		e := lookup(t, s, name)
		f, off, ok, err := s.File(t.Context(), e, false)
		b := make([]byte, len(want))
		if err != nil || !ok {
			t.Fatal(name, ok, err)
		}
		if _, err := f.ReadAt(b, off); err != nil || string(b) != want {
			t.Errorf("%s: %v", name, err)
		}
		section, ok := s.Section(t.Context(), e)
		if !ok {
			t.Fatalf("%s is not one section", name)
		}
		b = make([]byte, len(want))
		if _, err := io.ReadFull(section, b); err != nil || string(b) != want {
			t.Errorf("%s: %v", name, err)
		}
		if p, external, ok := s.Place(t.Context(), e, "", "https://example.org/x"); !ok || external || p != (content.Place{Off: off, N: e.Size, Address: "https://example.org/x"}) {
			t.Errorf("%s: %+v %v %v", name, p, external, ok)
		}
		if p, _, ok := s.Place(t.Context(), e, "", ""); !ok || p.Address != path {
			t.Errorf("%s: %+v %v", name, p, ok)
		}
	}
	if err := s.Unchanged(t.Context()); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("alpha"))] = 'A'
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	hurt := openAs(t, st, "x", "caf", way{})
	if _, _, ok, err := hurt.File(t.Context(), lookup(t, hurt, "a"), false); ok || !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a damaged content is handed out: %v, %v", ok, err)
	}
	// In memory there is no file, and what is compressed is none.
	mem := openAs(t, packedAs(t, "caf", nil, files), "x", "caf", way{})
	if _, _, ok, err := mem.File(t.Context(), lookup(t, mem, "a"), false); ok || err != nil {
		t.Error(ok, err)
	}
	zipped, _ := onDisk(t, "zip", files)
	z := openAs(t, zipped, "x", "zip", way{})
	e := lookup(t, z, "long")
	if _, _, ok, err := z.File(t.Context(), e, false); ok || err != nil {
		t.Error(ok, err)
	}
	if _, ok := z.Section(t.Context(), e); ok {
		t.Error("what is compressed is a section")
	}
	if _, _, ok := z.Place(t.Context(), e, "", "base"); ok {
		t.Error("what is compressed has a place that others may refer to")
	}
}

// An archive that is replaced while it is open is not mixed with the new one, and that is no damage.
func TestAnArchiveThatChangesIsNotMixed(t *testing.T) {
	files := map[string]string{"a": "alpha", "long": strings.Repeat("0123456789", 200_000)}
	st, path := onDisk(t, "caf", files)
	s := openAs(t, st, "x", "caf", way{})
	if _, err := copyOf(t, s, lookup(t, s, "a")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+".new", bytes.ReplaceAll(b, []byte("0123456789"), []byte("9876543210")), 0o666), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	e := lookup(t, s, "long")
	for range 2 {
		// The open file is the old one.
		got, err := copyOf(t, s, e)
		if err == nil && got != files["long"] || err != nil && !errors.Is(err, store.ErrChanged) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	var changed error
	s = openAs(t, telling{st, &changed}, "x", "caf", way{})
	for _, changed = range []error{nil, store.ErrChanged} {
		if err := s.Unchanged(t.Context()); err != changed {
			t.Errorf("found %v, expected %v", err, changed)
		}
	}
	// In memory as well; then nothing is read any more.
	mem := packedAs(t, "caf", nil, files)
	s = openAs(t, mem, "x", "caf", way{})
	e = lookup(t, s, "a")
	mem.Put("x", bytes.Replace(mem.Get("x"), []byte("alpha"), []byte("ALPHA"), 1))
	for range 2 {
		if got, err := copyOf(t, s, e); err == nil && got != "alpha" || err != nil && !errors.Is(err, store.ErrChanged) {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// telling is a store whose objects say whether their files have changed.
type telling struct {
	store.Store
	changed *error
}

func (x telling) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := x.Store.Open(ctx, name)
	return tellingObject{o, x.changed}, err
}

type tellingObject struct {
	store.Object
	changed *error
}

func (o tellingObject) Can() store.ObjectAbilities {
	return store.ObjectAbilities{File: func(context.Context) (*os.File, error) { return nil, *o.changed }}
}

// Totals are told to a meter that wants them, before the work.
func TestExpectCountsWhatIsWanted(t *testing.T) {
	s := openAs(t, packedAs(t, "caf", nil, map[string]string{"a": "alpha", "b": "beta", "c": ""}), "x", "caf", way{})
	for _, wants := range []bool{false, true} {
		m := meter.Meter{WantTotal: wants}
		if err := s.Expect(t.Context(), &m, func(e content.Entry) bool { return e.Name != "b" }); err != nil {
			t.Error(err)
		}
		entries, size := int64(0), int64(0)
		if wants {
			entries, size = 2, 5
		}
		if got := m.Snapshot(); got.TotalEntries != entries || got.TotalBytes != size {
			t.Errorf("%+v, expected %d entries of %d bytes", got, entries, size)
		}
	}
}

// Objects of an archive are listed and measured, by an index, too.
func TestWhatIsStoredIsMeasured(t *testing.T) {
	files := map[string]string{"a": strings.Repeat("alpha", 10_000), "b": "beta"}
	for kind, param := range map[string]map[string]string{"caf": nil, "databundle": {"shards": "2"}} {
		st := packedAs(t, kind, param, files)
		var names []string
		sizes := map[string]int64{}
		for _, name := range objectsIn(t, st) {
			names = append(names, name)
			sizes[name] = int64(len(st.Get(name)))
		}
		s := openAs(t, st, "x", kind, way{})
		volumes, err := s.Volumes(t.Context())
		if err != nil || len(volumes) == 0 {
			t.Fatal(volumes, err)
		}
		total := int64(0)
		for _, v := range volumes {
			n, err := s.VolumeSize(t.Context(), v)
			if total += n; err != nil || !slices.Contains(names, v) || n != sizes[v] {
				t.Errorf("%s: %s has %d bytes, %v", kind, v, n, err)
			}
		}
		if n, err := s.StoredSize(t.Context()); n != total || err != nil {
			t.Errorf("%s: %d bytes are stored, expected %d; %v", kind, n, total, err)
		}
		writeIndex(t, s, st, "x.holdall", content.IndexOptions{})
		by := openAs(t, st, "x", kind, beside)
		if got, err := by.Volumes(t.Context()); err != nil || !slices.Equal(got, volumes) {
			t.Errorf("%s: by an index %q, %v", kind, got, err)
		}
		if n, err := by.StoredSize(t.Context()); n != total || err != nil {
			t.Errorf("%s: by an index %d, expected %d; %v", kind, n, total, err)
		}
		loose := openAs(t, st, "x", kind, way{})
		loose.Loose = 7
		if n, err := loose.StoredSize(t.Context()); n != 7 || err != nil {
			t.Errorf("%s: of a folder %d, %v", kind, n, err)
		}
	}
}

// An index that does not match its own digest is doubted, and nothing lasting may be made of it.
// What the format knows of a single entry is its fault.
func TestWhatIsDoubtedIsNotVouchedFor(t *testing.T) {
	st := packedAs(t, "caf", nil, map[string]string{"a": "alpha", "b": "beta"})
	s := openAs(t, st, "x", "caf", way{})
	e := lookup(t, s, "a")
	if s.Doubt() != nil || s.Vouched() != nil || s.Fault(e) != nil {
		t.Errorf("%v %v %v", s.Doubt(), s.Vouched(), s.Fault(e))
	}
	b := st.Get("x")
	st.Put("x", bytes.Replace(b, []byte(`"b":`), []byte(`"c":`), 1))
	s = openAs(t, st, "x", "caf", way{})
	lookup(t, s, "c")
	if !errors.Is(s.Doubt(), format.ErrCorrupt) || s.Vouched() == nil {
		t.Errorf("doubt %v, not vouched for %v", s.Doubt(), s.Vouched())
	}
	if _, err := s.WriteIndex(t.Context(), &storetest.Mem{}, "i", content.IndexOptions{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("an index is made of it: %v", err)
	}
	e.Fault = &format.Problem{Code: format.BadData, Entry: "a", HasEntry: true, Message: "gone"}
	fault := s.Fault(e)
	if c, ok := errors.AsType[*format.CorruptError](fault); !ok || c.Format != "caf" || c.Problem != *e.Fault {
		t.Errorf("%v", fault)
	}
	if p := s.Problem(t.Context(), e, fault); p != *e.Fault {
		t.Errorf("%+v", p)
	}
	refusal := &content.Refusal{Told: format.Problem{Code: format.UnsafePath, Entry: "a\n", Message: "no"}}
	if p := s.Problem(t.Context(), e, fmt.Errorf("x: %w", refusal)); p != refusal.Told || !strings.HasSuffix(refusal.Error(), ": no") || strings.Contains(refusal.Error(), "\n") {
		t.Errorf("%+v, %v", p, refusal)
	}
	if p := s.Problem(t.Context(), e, io.ErrUnexpectedEOF); p.Code != format.BadData || p.Entry != "a" || p.Off != -1 || p.Volume != "x" {
		t.Errorf("%+v", p)
	}
}

// References out of an archive are followed as far as they are allowed.
func TestReferencesOutsideAreFoundIfTheyAreAllowed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"in/x": string(packedAs(t, "caf", nil, map[string]string{"a": "alpha"}).Get("x")), "in/beside": "12345", "out/other": "123"} {
		testkit.Tree(t, dir, map[string]string{name: text})
	}
	st := local.New(filepath.Join(dir, "in"))
	other := filepath.Join(dir, "out", "other")
	for _, test := range []struct {
		address string
		allowed []string
		size    int64 // -1 if it is refused, -2 if it is not there
	}{
		{"beside", nil, 5}, {"beside", []string{"none"}, -1}, {"gone", nil, -2}, {other, nil, -1}, {"../out/other", nil, -1},
		{other, []string{filepath.Join(dir, "out")}, 3}, {other, []string{"any"}, 3},
	} {
		s := openAs(t, st, "x", "caf", way{external: test.allowed})
		info, err := s.Stat(t.Context(), test.address)
		switch {
		case test.size == -1 && !errors.Is(err, errors.ErrUnsupported), test.size == -2 && !errors.Is(err, fs.ErrNotExist), test.size >= 0 && (err != nil || info.Size != test.size):
			t.Errorf("%s with %q: %d bytes, %v", test.address, test.allowed, info.Size, err)
		}
	}
}

// A read beyond the end, before the beginning, and after Close.
func TestReadsAtTheEnds(t *testing.T) {
	s := openAs(t, packedAs(t, "caf", nil, map[string]string{"a": "alpha"}), "x", "caf", way{})
	e := lookup(t, s, "a")
	for _, test := range []struct {
		off  int64
		n    int
		want string
		err  error
	}{{0, 5, "alpha", nil}, {3, 5, "ha", io.EOF}, {5, 0, "", nil}, {5, 1, "", io.EOF}, {9, 1, "", io.EOF}, {-1, 1, "", fs.ErrInvalid}} {
		b := make([]byte, test.n)
		n, err := s.ReadAt(t.Context(), e, b, test.off)
		if string(b[:n]) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%d at %d: %q, %v", test.n, test.off, b[:n], err)
		}
	}
	r := s.ReadFrom(t.Context(), e, 2)
	if b, err := io.ReadAll(r); string(b) != "pha" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	r.Close()
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("read after it was closed")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.ReadAt(t.Context(), e, make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("of a closed archive: %v", err)
	}
	if _, err := s.Stored(t.Context(), "x", 0, 1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("of a closed archive: %v", err)
	}
}

// A long content that was read whole is known, right or wrong.
func TestWhatWasComparedIsKnown(t *testing.T) {
	st := packedAs(t, "caf", nil, map[string]string{"right": strings.Repeat("0", 2<<20), "wrong": strings.Repeat("1", 2<<20)})
	b := st.Get("x")
	st.Put("x", flipped(b, int64(bytes.Index(b, []byte("11111111")))+1<<20, 1))
	s := openAs(t, st, "x", "caf", way{})
	for _, name := range []string{"right", "wrong"} {
		e := lookup(t, s, name)
		if known, err := s.Known(t.Context(), e); known || err != nil {
			t.Errorf("%s is known before it is read: %v", name, err)
		}
		p := make([]byte, 10)
		if _, err := s.ReadAt(t.Context(), e, p, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for range 2 {
			if err := s.Settle(t.Context(), e); (err != nil) != (name == "wrong") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if known, err := s.Known(t.Context(), e); !known || (err != nil) != (name == "wrong") {
			t.Errorf("%s: %v, %v", name, known, err)
		}
		if _, err := s.ReadAt(t.Context(), e, p, 0); (err != nil) != (name == "wrong") {
			t.Errorf("%s is read again: %v", name, err)
		}
		if _, err := copyOf(t, s, e); (err != nil) != (name == "wrong") {
			t.Errorf("%s is copied: %v", name, err)
		}
	}
	trusting := openAs(t, st, "x", "caf", way{checking: content.Checking{None: true}})
	e := lookup(t, trusting, "wrong")
	if _, err := copyOf(t, trusting, e); err != nil || trusting.HasDigest(e) {
		t.Errorf("nothing is to be compared: %v", err)
	}
	never := openAs(t, st, "x", "caf", way{checking: content.Checking{Whole: -1}})
	if parts, whole := compares(t, never, lookup(t, never, "right")); parts || !whole {
		t.Errorf("it compares %v, %v", parts, whole)
	}
}

// backwards lists directories the wrong way round, and finds no places in them.
type backwards struct{ format.Reader }

func (backwards) Can() format.Abilities { return format.Abilities{} }

func (b backwards) ReadDir(ctx context.Context, dir string) iter.Seq2[content.Entry, error] {
	return func(yield func(content.Entry, error) bool) {
		var all []content.Entry
		for e, err := range b.Reader.Can().ReadDirFrom(ctx, dir, "") {
			if err != nil {
				yield(e, err)
				return
			}
			all = append(all, e)
		}
		for _, e := range slices.Backward(all) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A directory without order that is larger than what is held of it comes whole and in order.
func TestALargeDirectoryWithoutOrder(t *testing.T) {
	st := &storetest.Mem{}
	w, err := tiny.Format.Create(t.Context(), st, "x", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 30_000
	for i := range n {
		if err := w.Add(t.Context(), content.Entry{Name: fmt.Sprintf("d/%05d", (i*7919)%n)}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := tryOpen(t.Context(), st, "x", tiny.Format, way{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Read(tiny.Format, backwards{s.Reader})
	i := 123
	for e, err := range s.ReadDirFrom(t.Context(), "d", "00123") {
		if err != nil || e.Name != fmt.Sprintf("d/%05d", i) {
			t.Fatalf("%q, %v, expected number %d", e.Name, err, i)
		}
		i++
	}
	if i != n {
		t.Errorf("ended at %d", i)
	}
}
