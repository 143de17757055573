package formattest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func testRoundTrip(t *testing.T, s *suite) {
	st, name, samples := &storetest.Mem{}, s.archiveName(), s.many()
	sum, err := s.write(t.Context(), st, name, format.CreateOptions{}, samples)
	if err != nil {
		t.Fatal(err)
	}
	s.wantSamples(t, st, name, samples)
	s.wantSummary(t, st, sum, samples)
}

// wantSummary compares the result of Commit with the stored archive.
func (s *suite) wantSummary(t *testing.T, st *storetest.Mem, sum format.Summary, samples []sample) {
	t.Helper()
	var content, onDisk int64
	for _, x := range samples {
		content += x.Size
	}
	all := objects(t, st)
	for _, b := range all {
		onDisk += int64(len(b))
	}
	if sum.Entries != int64(len(samples)) || sum.Content != content {
		t.Errorf("summary: expected %d entries, %d bytes; found %d, %d", len(samples), content, sum.Entries, sum.Content)
	}
	if sum.Stored != onDisk {
		t.Errorf("summary: expected %d stored bytes, found %d", onDisk, sum.Stored)
	}
	if volumes := slices.Sorted(slices.Values(sum.Volumes)); !slices.Equal(volumes, sortedNames(all)) {
		t.Errorf("summary: expected volumes %q, found %q", sortedNames(all), volumes)
	}
}

// testSources adds content in all ways in which an io.Reader may return it, and as sections of
// objects of the same store and of another one.
func testSources(t *testing.T, s *suite) {
	st, name := &storetest.Mem{}, s.archiveName()
	elsewhere := &storetest.Mem{}
	source := append([]byte("in front"), noise(3, s.most(5<<19))...)
	st.Put("source", source)
	elsewhere.Put("source", source)
	section := func(st store.Store, off, n int64) io.Reader {
		o, err := st.Open(t.Context(), "source")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Close() })
		return kit.NewSection(t.Context(), o, off, n)
	}
	large := source[8:]
	small := large[:min(len(large), 10_000)]
	var samples []sample
	w := s.begin(t, st, name, format.CreateOptions{})
	for i, c := range []struct {
		name    string
		content []byte
		r       io.Reader
	}{
		{"writer to", large, bytes.NewReader(large)},
		{"one byte at a time", small, iotest.OneByteReader(bytes.NewReader(small))},
		{"halves", large, iotest.HalfReader(bytes.NewReader(large))},
		{"data with the end", small, iotest.DataErrReader(bytes.NewReader(small))},
		{"nothing now and then", small, &stutter{r: bytes.NewReader(small)}},
		{"section here", small, section(st, 8, int64(len(small)))},
		{"section elsewhere", small, section(elsewhere, 8, int64(len(small)))},
		{"large section here", large, section(st, 8, int64(len(large)))},
		{"large section elsewhere", large, section(elsewhere, 8, int64(len(large)))},
		{"empty section", nil, section(st, 4, 0)},
		{"after it", small, strings.NewReader(string(small))},
	} {
		x := file(fmt.Sprint(i), c.content)
		if err := w.Add(t.Context(), x.Entry, c.r); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		samples = append(samples, x)
	}
	mustCommit(t, w)
	s.wantSamples(t, st, name, samples)
}

// stutter returns no bytes and no error every other time.
type stutter struct {
	r   io.Reader
	odd bool
}

func (s *stutter) Read(p []byte) (int, error) {
	if s.odd = !s.odd; s.odd {
		return 0, nil
	}
	return s.r.Read(p)
}

func testKinds(t *testing.T, s *suite) {
	st, name := &storetest.Mem{}, s.archiveName()
	samples := s.special()
	w := s.begin(t, st, name, format.CreateOptions{})
	for _, x := range samples {
		mustAdd(t, w, x)
	}
	for _, k := range []struct {
		kind  format.Kind
		keeps format.Keeps
	}{
		{format.Dir, format.KeepsDirs}, {format.Symlink, format.KeepsSymlinks},
		{format.HardLink, format.KeepsHardLinks}, {format.Fifo, format.KeepsFifos},
	} {
		if s.f.Keeps&k.keeps != 0 {
			continue
		}
		e := format.Entry{Name: "not kept", Kind: k.kind, Link: "target"}
		if err := w.Add(t.Context(), e, strings.NewReader("")); err == nil {
			t.Errorf("a %v is accepted, but the format does not list it in Keeps", k.kind)
		}
	}
	last := file("last", []byte("after what was refused"))
	mustAdd(t, w, last)
	mustCommit(t, w)
	s.wantSamples(t, st, name, append(samples, last))
}

// strange are names that a format may refuse but must not change.
var strange = []string{
	"", ".", "..", "/", "/absolute", "../up", "a/../b", "./a", "a//b", "folder/", "C:drive", `back\slash`,
	"nul\x00byte", "new\nline", "tab\t", "\x01\x02\x1f\x7f", "not \xff utf-8", "not \xfe utf-8", "\xf0\x9f", "U+FFFD: \ufffd",
	"\u2028line\u2029", "\u202ereversed", "</script>", "__proto__", "%2e%2e%2f", strings.Repeat("x", 256), strings.Repeat("deep/", 60) + "file", strings.Repeat("long/", 1000),
}

func testStrangeNames(t *testing.T, s *suite) {
	st, name := &storetest.Mem{}, s.archiveName()
	w := s.begin(t, st, name, format.CreateOptions{})
	samples := []sample{file("first", []byte("before"))}
	mustAdd(t, w, samples[0])
	for i, n := range strange {
		x := file(n, fmt.Appendf(nil, "content %d", i))
		err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content))
		if err == nil {
			samples = append(samples, x)
			continue
		}
		s.wantEntryError(t, err, n)
	}
	last := file("last", []byte("after"))
	mustAdd(t, w, last)
	mustCommit(t, w)
	s.wantSamples(t, st, name, append(samples, last))
}

// wantEntryError checks that err concerns only the entry of that name.
func (s *suite) wantEntryError(t *testing.T, err error, name string) {
	t.Helper()
	if e, ok := errors.AsType[kit.EntryError](err); !ok {
		t.Errorf("add %q: expected a format.EntryError, found %T: %v", name, err, err)
	} else if e.EntryName() != name {
		t.Errorf("add %q: the error is about %q", name, e.EntryName())
	}
}

// testSameNameTwice also adds a file below another file, which flat formats allow.
func testSameNameTwice(t *testing.T, s *suite) {
	for _, c := range []struct{ first, second string }{{"same", "same"}, {"n", "n/below"}, {"n/below", "n"}} {
		st, name := &storetest.Mem{}, s.archiveName()
		w := s.begin(t, st, name, format.CreateOptions{})
		one, two := file(c.first, []byte("one")), file(c.second, []byte("number two"))
		if s.unfit(one) || s.unfit(two) {
			continue
		}
		mustAdd(t, w, one)
		want := []sample{one, two}
		err := w.Add(t.Context(), two.Entry, bytes.NewReader(two.content))
		switch {
		case err != nil:
			s.wantEntryError(t, err, two.Name)
			want = want[:1]
		case one.Name == two.Name:
			want = want[1:]
		}
		mustCommit(t, w)
		s.wantSamples(t, st, name, want)
	}
}

func testSameBytes(t *testing.T, s *suite) {
	samples := append(s.few(), file("large", noise(9, s.most(3<<20))))
	var first map[string][]byte
	for range 2 {
		st := &storetest.Mem{}
		if _, err := s.write(t.Context(), st, s.archiveName(), format.CreateOptions{}, samples); err != nil {
			t.Fatal(err)
		}
		all := objects(t, st)
		if first == nil {
			first = all
			continue
		}
		if !slices.Equal(sortedNames(first), sortedNames(all)) {
			t.Fatalf("first objects %q, then %q", sortedNames(first), sortedNames(all))
		}
		for n, b := range first {
			if !bytes.Equal(b, all[n]) {
				t.Errorf("%s: %s", n, differ(all[n], b))
			}
		}
	}
}

func testManifest(t *testing.T, s *suite) {
	st, samples := &storetest.Mem{}, s.few()
	var o format.CreateOptions
	for _, x := range samples {
		o.Manifest = append(o.Manifest, x.Entry)
	}
	sum, err := s.write(t.Context(), st, s.archiveName(), o, samples)
	if err != nil {
		t.Fatal(err)
	}
	s.wantSamples(t, st, s.archiveName(), samples)
	s.wantSummary(t, st, sum, samples)
}

// testDigests checks that digests distinguish contents, that they are correct if the standard
// library can compute them, and that a copy has them too.
func testDigests(t *testing.T, s *suite) {
	st, name := &storetest.Mem{}, s.archiveName()
	samples := append(s.few(), file("twin1", noise(5, 3000)), file("twin2", noise(5, 3000)))
	if _, err := s.write(t.Context(), st, name, format.CreateOptions{}, samples); err != nil {
		t.Fatal(err)
	}
	digests := s.digests(t, st, name)
	byDigest := map[format.Digest]string{}
	for i, x := range samples {
		if !x.Kind.HasContent() {
			continue
		}
		d := digests[x.Name]
		var want []byte
		switch d.Algo {
		case "":
			t.Errorf("%q has no digest", x.Name)
		case "sha256":
			h := sha256.Sum256(x.content)
			want = h[:]
		case "crc32c":
			h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
			h.Write(x.content)
			want = h.Sum(nil)
		}
		if want != nil && d.Sum != string(want) {
			t.Errorf("%q: expected %s:%x, found %s", x.Name, d.Algo, want, d)
		}
		if other, ok := byDigest[d]; ok && other != string(x.content) {
			t.Errorf("%q has the digest of another content", x.Name)
		}
		byDigest[d] = string(x.content)
		samples[i].Digest = d
	}
	if digests["twin1"] != digests["twin2"] {
		t.Errorf("equal contents have digests %s and %s", digests["twin1"], digests["twin2"])
	}
	// Given the digests, the writer must write the same archive.
	again := &storetest.Mem{}
	if _, err := s.write(t.Context(), again, name, format.CreateOptions{}, samples); err != nil {
		t.Fatal(err)
	}
	for n, d := range s.digests(t, again, name) {
		if d != digests[n] {
			t.Errorf("%q: digest %s became %s in a copy", n, digests[n], d)
		}
	}
	bare := &storetest.Mem{}
	if _, err := s.write(t.Context(), bare, name, format.CreateOptions{NoDigests: true}, samples); err != nil {
		t.Fatal(err)
	}
	s.wantSamples(t, bare, name, samples)
}

func (s *suite) digests(t *testing.T, st store.Store, name string) map[string]format.Digest {
	t.Helper()
	all := map[string]format.Digest{}
	r := s.open(t, st, name, format.OpenOptions{})
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name] = e.Digest
	}
	return all
}

func testCommitAbort(t *testing.T, s *suite) {
	st, name := &storetest.Mem{}, s.archiveName()
	one := []sample{file("one", noise(1, s.most(3<<20)))}
	w := s.begin(t, st, name, format.CreateOptions{})
	mustAdd(t, w, one[0])
	if all := objects(t, st); len(all) > 0 {
		t.Errorf("before commit: found %q", sortedNames(all))
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	if all := objects(t, st); len(all) > 0 {
		t.Errorf("after abort: found %q", sortedNames(all))
	}

	w = s.begin(t, st, name, format.CreateOptions{})
	mustAdd(t, w, one[0])
	mustCommit(t, w)
	if err := w.Add(t.Context(), file("late", nil).Entry, strings.NewReader("")); err == nil {
		t.Error("an entry is added after commit")
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("a second commit succeeds")
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort after commit: %v", err)
	}
	s.wantSamples(t, st, name, one)

	// The old archive must stay until the new one replaces it.
	two := []sample{file("two", []byte("instead of one"))}
	w = s.begin(t, st, name, format.CreateOptions{})
	mustAdd(t, w, two[0])
	s.wantSamples(t, st, name, one)
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	s.wantSamples(t, st, name, one)
	if _, err := s.write(t.Context(), st, name, format.CreateOptions{}, two); err != nil {
		t.Fatal(err)
	}
	s.wantSamples(t, st, name, two)
}

// counting counts the bytes that are read.
type counting struct {
	io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// testFull fills one chunk after another, as packing does.
func testFull(t *testing.T, s *suite) {
	var samples []sample
	for i, n := range []int{300, 400, 300, 0, 1, 999, 1, 5000, 10, 990, 0, 5, 500, 500, 0, 1} {
		samples = append(samples, file(fmt.Sprintf("%02d", i), noise(uint64(i), n)))
	}
	o := format.CreateOptions{ChunkSize: 1000}
	st := &storetest.Mem{}
	chunk, added := 0, map[int][]sample{}
	next := func() (string, format.Writer) {
		chunk++
		name := fmt.Sprintf("%d-%s", chunk, s.archiveName())
		return name, s.begin(t, st, name, o)
	}
	name, w := next()
	for _, x := range samples {
		r := &counting{Reader: bytes.NewReader(x.content)}
		err := w.Add(t.Context(), x.Entry, r)
		if errors.Is(err, format.ErrFull) {
			if r.n > 0 {
				t.Errorf("%q: ErrFull after %d bytes were read", x.Name, r.n)
			}
			if len(added[chunk]) == 0 {
				t.Fatalf("%q of %d bytes: ErrFull from an empty archive", x.Name, x.Size)
			}
			mustCommit(t, w)
			s.wantSamples(t, st, name, added[chunk])
			name, w = next()
			err = w.Add(t.Context(), x.Entry, r)
		}
		if err != nil {
			t.Fatalf("add %q: %v", x.Name, err)
		}
		added[chunk] = append(added[chunk], x)
	}
	mustCommit(t, w)
	s.wantSamples(t, st, name, added[chunk])
	for i := range chunk {
		var content int64
		for _, x := range added[i+1] {
			content += x.Size
		}
		if content > o.ChunkSize && len(added[i+1]) > 1 {
			t.Errorf("chunk %d holds %d bytes in %d entries, more than the %d it should", i+1, content, len(added[i+1]), o.ChunkSize)
		}
	}
	if chunk < 5 {
		t.Errorf("%d chunks of %d bytes for 9005 bytes", chunk, o.ChunkSize)
	}

	// An entry that fits no chunk must be refused by name, and the chunk must remain usable.
	o.ChunkMax = 2000
	name, w = next()
	x := file("toolarge", noise(1, 5000))
	if err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content)); err == nil {
		t.Errorf("a chunk of at most %[2]d bytes accepts %[1]d", x.Size, o.ChunkMax)
	} else {
		s.wantEntryError(t, err, x.Name)
	}
	mustAdd(t, w, samples[0])
	if sum := mustCommit(t, w); sum.Stored > o.ChunkMax {
		t.Errorf("a chunk of at most %d bytes has %d", o.ChunkMax, sum.Stored)
	}
	s.wantSamples(t, st, name, samples[:1])
}

// memScratch is scratch space in memory.
type memScratch struct {
	b      []byte
	at     int64
	closed bool
	open   *atomic.Int32
}

func (m *memScratch) Write(p []byte) (int, error) {
	if grow := m.at + int64(len(p)) - int64(len(m.b)); grow > 0 {
		m.b = append(m.b, make([]byte, grow)...)
	}
	copy(m.b[m.at:], p)
	m.at += int64(len(p))
	return len(p), nil
}

func (m *memScratch) Read(p []byte) (int, error) {
	if m.at >= int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(p, m.b[m.at:])
	m.at += int64(n)
	return n, nil
}

func (m *memScratch) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += m.at
	case io.SeekEnd:
		off += int64(len(m.b))
	}
	if off < 0 {
		return 0, errors.New("seek: negative position")
	}
	m.at = off
	return off, nil
}

func (m *memScratch) Close() error {
	if !m.closed {
		m.closed = true
		m.open.Add(-1)
	}
	return nil
}

func testScratch(t *testing.T, s *suite) {
	samples := s.many()
	var open atomic.Int32
	o := format.CreateOptions{Scratch: func() (sorter.Scratch, error) {
		open.Add(1)
		return &memScratch{open: &open}, nil
	}}
	st, name := &storetest.Mem{}, s.archiveName()
	if _, err := s.write(t.Context(), st, name, o, samples); err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("after commit: %d scratch files are open", n)
	}
	s.wantSamples(t, st, name, samples)
	w := s.begin(t, st, "aborted", o)
	for _, x := range samples {
		mustAdd(t, w, x)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("after abort: %d scratch files are open", n)
	}
}

func testCancelledWrite(t *testing.T, s *suite) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	st, name := &storetest.Mem{}, s.archiveName()
	w, err := s.create(gone, st, name, format.CreateOptions{})
	if err == nil {
		// Creating need not send a request; adding many entries or committing must.
		t.Cleanup(func() { w.Abort() })
		x := file("large", noise(1, s.most(5<<20)))
		if err = w.Add(gone, x.Entry, bytes.NewReader(x.content)); err == nil {
			_, err = w.Commit(gone)
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("create, add, commit: expected context.Canceled, found %v", err)
	}

	w = s.begin(t, st, name, format.CreateOptions{})
	mustAdd(t, w, file("one", []byte("1")))
	x := file("large", noise(1, s.most(5<<20)))
	if err := w.Add(gone, x.Entry, bytes.NewReader(x.content)); !errors.Is(err, context.Canceled) {
		t.Errorf("add: expected context.Canceled, found %v", err)
	}
	if _, err := w.Commit(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: expected context.Canceled, found %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	if all := objects(t, st); len(all) > 0 {
		t.Errorf("after a cancelled commit: found %q", sortedNames(all))
	}
}
