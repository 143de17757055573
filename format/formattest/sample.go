package formattest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// sample is an entry and its content.
type sample struct {
	format.Entry
	content []byte
}

func file(name string, content []byte) sample {
	return sample{format.Entry{Name: name, Size: int64(len(content))}, content}
}

// noise returns n bytes in which no two ranges of some length are equal. They are the same for
// the same seed.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, 0, n+8)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, r.Uint64())
	}
	return p[:n]
}

// fit returns the samples that the format can hold. If Format.Refuses refuses a name, the sample gets
// it without slashes, or else a plain one.
func (s *suite) fit(list ...sample) (fit []sample) {
	for i, x := range list {
		for _, n := range []string{x.Name, strings.ReplaceAll(x.Name, "/", "_"), fmt.Sprintf("%v%d", x.Kind, i)} {
			if x.Name = n; !s.unfit(x) {
				fit = append(fit, x)
				break
			}
		}
	}
	return fit
}

func (s *suite) unfit(x sample) bool { return s.f.Refuses != nil && s.f.Refuses(x.Entry) != "" }

// most returns n, or a smaller size that the format can hold.
func (s *suite) most(n int) int {
	for n > 1 && s.unfit(sample{Entry: format.Entry{Name: "a", Size: int64(n)}}) {
		n /= 2
	}
	return n
}

// many returns files of many sizes, unsorted, with names that every format must accept which does
// not refuse them.
func (s *suite) many() []sample {
	list := []sample{
		// '-' and '.' come before '/', and '0' after it.
		file("a/b", []byte("in a")),
		file("a.txt", []byte("beside a")),
		file("a-b", []byte("before a/")),
		file("a0", []byte("after a/")),
		file("a/b.d/c", []byte("deeper")),
		file("a/b-", nil),
		file("with space/and  two/ leading and trailing ", []byte(" ")),
		file("Ünïcödé/日本語/🗜️", []byte("ü")),
		file("e\u0301 is not \u00e9", []byte("NFD")),
		file("\u00e9 is not e\u0301", []byte("NFC")),
		file("Case", []byte("upper")),
		file("case", []byte("lower")),
		file(`quote " apostrophe ' less < and & percent %20 plus + hash # query ? star * colon ;`, []byte("punctuation")),
		file(strings.Repeat("deep/", 19)+"file", []byte("down there")), // 99 bytes; a tar header has 100
		file("compressible", bytes.Repeat([]byte("the same again, "), 5000)),
		file("zeros", make([]byte, 70_000)),
		file("twin 1", noise(7, 5000)),
		file("twin 2", noise(7, 5000)),
	}
	for i, n := range []int{0, 1, 2, 3, 7, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1<<20 + 1, 5 << 19} {
		list = append(list, file(fmt.Sprintf("sizes/%02d is %d", i, n), noise(uint64(100+i), n)))
	}
	return s.fit(list...)
}

// few returns a small set with some of everything that the format keeps, so that most of the
// archive is written by the format itself.
func (s *suite) few() []sample {
	list := []sample{
		file("d/one", []byte("first of two")),
		file("a", noise(1, 100)),
		file("empty", nil),
		file("d/ü", []byte("second")),
		file("d/e/f", bytes.Repeat([]byte("again "), 50)),
		file("z", []byte("z")),
	}
	return s.fit(append(list, s.dressy()...)...)
}

// special returns an entry of each kind besides files that the format keeps, and files with each
// kind of metadata.
func (s *suite) special() []sample { return s.fit(s.dressy()...) }

func (s *suite) dressy() (list []sample) {
	keeps := func(k format.Keeps) bool { return s.f.Keeps&k != 0 }
	if keeps(format.KeepsModes) {
		for _, m := range []fs.FileMode{0o644, 0o755, 0o400, 0o777, 0} {
			x := file(fmt.Sprintf("modes/%03o", m), []byte(m.String()))
			x.Mode, x.HasMode = m, true
			list = append(list, x)
		}
	}
	if keeps(format.KeepsTimes) {
		for _, sec := range []int64{1, 1_000_000_000, 1<<31 + 5} {
			x := file(fmt.Sprintf("times/%d", sec), []byte("then"))
			x.ModTime = time.Unix(sec, 123_456_789).UTC()
			list = append(list, x)
		}
	}
	if keeps(format.KeepsOwners) {
		x := file("owned", []byte("by someone"))
		x.Owner, x.Group = "alice", "staff"
		list = append(list, x)
	}
	if keeps(format.KeepsDirs) {
		list = append(list, s.dressed("folder", format.Dir), s.dressed("folder/bare", format.Dir))
		list = append(list, file("folder/file", []byte("in a folder of its own")))
	}
	if keeps(format.KeepsSymlinks) {
		for i, target := range []string{"a", "../elsewhere", "/absolute", "dangling ünïcödé"} {
			x := s.dressed(fmt.Sprintf("links/%d", i), format.Symlink)
			x.Link = target
			list = append(list, x)
		}
	}
	if keeps(format.KeepsHardLinks) {
		list = append(list, file("linked", []byte("has two names")))
		x := s.dressed("other name of linked", format.HardLink)
		x.Link = "linked"
		list = append(list, x)
	}
	if keeps(format.KeepsFifos) {
		list = append(list, s.dressed("fifo", format.Fifo))
	}
	return list
}

// dressed returns an entry without content, with the metadata that the format keeps.
func (s *suite) dressed(name string, k format.Kind) sample {
	x := sample{Entry: format.Entry{Name: name, Kind: k}}
	if s.f.Keeps&format.KeepsModes != 0 {
		x.Mode, x.HasMode = 0o750, true
	}
	if s.f.Keeps&format.KeepsTimes != 0 {
		x.ModTime = time.Unix(1_234_567_890, 0).UTC()
	}
	return x
}

// create begins an archive, with scratch space for the writer.
func (s *suite) create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	if o.Scratch == nil {
		o.Scratch = func() (sorter.Scratch, error) { return &memScratch{open: new(atomic.Int32)}, nil }
	}
	return kit.Create(ctx, s.f, st, name, o)
}

// write writes an archive of samples. If it fails, it aborts.
func (s *suite) write(ctx context.Context, st store.Store, name string, o format.CreateOptions, samples []sample) (sum format.Summary, err error) {
	w, err := s.create(ctx, st, name, o)
	if err != nil {
		return sum, fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	for _, x := range samples {
		if err := w.Add(ctx, x.Entry, bytes.NewReader(x.content)); err != nil {
			return sum, fmt.Errorf("add %q: %w", x.Name, err)
		}
	}
	return w.Commit(ctx)
}

// begin begins an archive, which is aborted when the test ends.
func (s *suite) begin(t *testing.T, st store.Store, name string, o format.CreateOptions) format.Writer {
	t.Helper()
	w, err := s.create(t.Context(), st, name, o)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
	})
	return w
}

func mustAdd(t *testing.T, w format.Writer, x sample) {
	t.Helper()
	if err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content)); err != nil {
		t.Fatalf("add %q: %v", x.Name, err)
	}
}

func mustCommit(t *testing.T, w format.Writer) format.Summary {
	t.Helper()
	sum, err := w.Commit(t.Context())
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return sum
}

// open opens an archive until the test ends.
func (s *suite) open(t *testing.T, st store.Store, name string, o format.OpenOptions) format.Reader {
	t.Helper()
	r, err := s.f.Open(t.Context(), st, name, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// objects returns all objects in st.
func objects(t *testing.T, st *storetest.Mem) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = st.Get(info.Name)
	}
	return all
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// wantSamples checks that the archive contains the samples and nothing else.
func (s *suite) wantSamples(t *testing.T, st store.Store, name string, samples []sample) {
	t.Helper()
	r := s.open(t, st, name, format.OpenOptions{})
	want := map[string]sample{}
	for _, x := range samples {
		want[x.Name] = x
	}
	seen := map[string]bool{}
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatalf("entries: %v", err)
		}
		if e.Internal {
			continue
		}
		x, ok := want[e.Name]
		switch {
		case !ok && e.Kind == format.Dir && impliedBy(samples, e.Name):
		case !ok:
			t.Errorf("entries: %q was never added", e.Name)
		case seen[e.Name]:
			t.Errorf("entries: %q is repeated", e.Name)
		default:
			seen[e.Name] = true
			s.wantEntry(t, st, r, e, x)
		}
	}
	for _, n := range sortedNames(want) {
		if !seen[n] {
			t.Errorf("entries: %q is missing", n)
		}
	}
}

// impliedBy reports whether a sample is below dir. A format with folders may create folders that
// were not added.
func impliedBy(samples []sample, dir string) bool {
	return slices.ContainsFunc(samples, func(x sample) bool { return strings.HasPrefix(x.Name, dir+"/") })
}

// wantEntry checks an entry and its content.
func (s *suite) wantEntry(t *testing.T, st store.Store, r format.Reader, e format.Entry, want sample) {
	t.Helper()
	keeps := func(k format.Keeps) bool { return s.f.Keeps&k != 0 }
	if e.Name != want.Name || e.Kind != want.Kind || e.Size != want.Size || e.Link != want.Link {
		t.Errorf("%q: expected %v of %d bytes, link %q; found %q, %v of %d bytes, link %q",
			want.Name, want.Kind, want.Size, want.Link, e.Name, e.Kind, e.Size, e.Link)
		return
	}
	if e.Fault != nil {
		t.Errorf("%q: fault: %s", e.Name, e.Fault.Message)
		return
	}
	if keeps(format.KeepsModes) && want.HasMode && (!e.HasMode || e.Mode != want.Mode) {
		t.Errorf("%q: expected mode %v, found %v (%v)", e.Name, want.Mode, e.Mode, e.HasMode)
	}
	if !keeps(format.KeepsModes) && e.HasMode {
		t.Errorf("%q: found mode %v, but the format keeps no modes", e.Name, e.Mode)
	}
	then := want.ModTime
	if s.f.StoredTime != nil {
		then = s.f.StoredTime(then)
	}
	if keeps(format.KeepsTimes) && !want.ModTime.IsZero() && !e.ModTime.Equal(then) {
		t.Errorf("%q: expected time %v, found %v", e.Name, then, e.ModTime)
	}
	if !keeps(format.KeepsTimes) && !e.ModTime.IsZero() {
		t.Errorf("%q: found time %v, but the format keeps no times", e.Name, e.ModTime)
	}
	if keeps(format.KeepsOwners) && want.Owner+want.Group != "" && (e.Owner != want.Owner || e.Group != want.Group) {
		t.Errorf("%q: expected owner %q, group %q, found %q, %q", e.Name, want.Owner, want.Group, e.Owner, e.Group)
	}
	if !e.Kind.HasContent() {
		return
	}
	got, err := read(t.Context(), st, r, e, 0, e.Size)
	if err != nil {
		t.Errorf("%q: %v", e.Name, err)
	} else if !bytes.Equal(got, want.content) {
		t.Errorf("%q: %s", e.Name, differ(got, want.content))
	}
}

// differ describes the first difference between two contents.
func differ(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("expected %d bytes, found %d", len(want), len(got))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d: expected %#02x, found %#02x", i, len(want), want[i], got[i])
		}
	}
	return "no difference"
}
