package rvn

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// outcomes has, for each damaged fixture, what a check finds ("" is nothing, "!" that it does not
// open), and how many entries a repair recovers.
var outcomes = map[string]struct {
	classes string
	saved   int
}{
	"bomb-index":                          {"!index-size", -1},
	"bomb-meta":                           {"metadata-size", 1},
	"bomb-zeros":                          {"", 1},
	"evil-abs":                            {"name-absolute", 2},
	"evil-ctrl-names":                     {"", 3},
	"evil-dot":                            {"name-empty", 3},
	"evil-dotdot":                         {"name-traversal", 2},
	"evil-dotdot2":                        {"name-traversal name-traversal name-traversal", 2},
	"evil-fifo-chmod":                     {"name-traversal", 2},
	"evil-hl-out":                         {"hardlink", 1},
	"evil-hl-write":                       {"duplicate hardlink", 1},
	"evil-slash":                          {"name-traversal", 2},
	"evil-symlink-dir":                    {"duplicate", 4},
	"evil-symlink-over":                   {"duplicate", 3},
	"evil-symlink-over-stream":            {"duplicate", 3},
	"evil-symlink-slash":                  {"name-conflict name-slash", 3},
	"flip-b2":                             {"", 17}, // other letters, nothing that could tell
	"flip-b3":                             {"", 17}, // other nanoseconds
	"flip-b4-small":                       {"", 14},
	"flip-b4-stream-head":                 {"frame", 3},
	"flip-b4-stream0":                     {"", 3},
	"flip-b4-stream1":                     {"", 3},
	"flip-b4-stream2":                     {"", 3},
	"hdr-arc_comp-content_comp_-1":        {"header-arc-comp", 17},
	"hdr-arc_comp-content_comp_0":         {"header-arc-comp", 17},
	"hdr-arc_comp-content_comp_4_GiB":     {"header-arc-comp", 17},
	"hdr-arc_flat-content_flat_+1":        {"header-arc-flat", 17},
	"hdr-arc_flat-content_flat_-1":        {"header-arc-flat", 17},
	"hdr-arc_flat-content_flat_0":         {"header-arc-flat", 17},
	"hdr-arc_flat-content_flat_1_TiB__":   {"header-arc-flat", 17},
	"hdr-arc_flat-content_flat_2_64-1":    {"header-arc-flat", 17},
	"hdr-arc_flat-stream-200k":            {"header-arc-flat", 4},
	"hdr-arc_flat-stream-short":           {"header-arc-flat", 4},
	"hdr-files-4G_records":                {"header-files", 17},
	"hdr-files-no_records_claimed":        {"header-files", 17},
	"hdr-files-one_record_too_few":        {"header-files", 17},
	"hdr-files-one_record_too_many":       {"header-files", 17},
	"hdr-fname_blocks-fname_blocks_0":     {"header-name-blocks", 17},
	"hdr-fname_blocks-fname_blocks_9999":  {"header-name-blocks", 17},
	"hdr-groups-65535_groups":             {"header-groups", 17},
	"hdr-groups-no_groups":                {"header-groups", 17},
	"hdr-groups-one_group_too_many":       {"header-groups", 17},
	"hdr-index_comp-index_comp_+1__shift": {"header-index-comp", 17},
	"hdr-index_comp-index_comp_0":         {"header-index-comp", 17},
	"hdr-index_comp-index_comp_4_GiB":     {"header-index-comp", 17},
	"hdr-index_flat-index_flat_4_GiB__bo": {"header-index-flat", 17},
	"hdr-index_flat-index_flat_long":      {"header-index-flat", 17},
	"hdr-index_flat-index_flat_short":     {"header-index-flat", 17},
	"hdr-link_blocks-no_link_blocks":      {"header-link-blocks", 17},
	"hdr-link_blocks-one_link_block_more": {"header-link-blocks", 17},
	"hdr-meta_comp-meta_comp_0__shifts_":  {"header-meta-comp", 17},
	"hdr-meta_comp-meta_comp_2_GiB":       {"header-meta-comp", 17},
	"hdr-meta_flat-meta_flat_+1":          {"header-meta-flat", 17},
	"hdr-meta_flat-meta_flat_over_limit":  {"header-meta-flat", 17},
	"hdr-owners-no_owners":                {"header-owners", 17},
	"ix-digest":                           {"", 1},
	"ix-dir-parent-self":                  {"parent parent", 2},
	"ix-dirid-dup":                        {"dir-id", 4},
	"ix-dirid-gap":                        {"dir-id parent", 4},
	"ix-dirid-zero":                       {"dir-id parent", 3},
	"ix-dup-path":                         {"duplicate", 3},
	"ix-file-dirid":                       {"dir-id name-conflict", 3},
	"ix-file-then-dir":                    {"duplicate", 4},
	"ix-hl-dir":                           {"hardlink", 2},
	"ix-hl-forward":                       {"hardlink-later", 2},
	"ix-hl-missing":                       {"hardlink", 1},
	"ix-link-empty":                       {"link-empty", 1},
	"ix-linklen-over":                     {"link-range", 1},
	"ix-mode-hi":                          {"mode mode", 2},
	"ix-mtime-neg":                        {"time", 2},
	"ix-name-empty":                       {"name-empty", 3},
	"ix-namelen-over":                     {"name-range", 3},
	"ix-ns-over":                          {"time time", 2},
	"ix-nul-name":                         {"name-nul", 3},
	"ix-owner-range":                      {"group owner", 2},
	"ix-pad-nonzero":                      {"", 2},
	"ix-parent-forward":                   {"parent-later", 3},
	"ix-parent-unknown":                   {"parent", 4},
	"ix-size-hi-bit":                      {"content-size header-arc-flat size-word", 0},
	"ix-size-mul255":                      {"content-size header-arc-flat", 0},
	"ix-size-on-symlink":                  {"size", 2},
	"ix-size-over":                        {"content-size header-arc-flat", 1},
	"ix-size-over-stream":                 {"header-arc-flat", 1},
	"ix-size-under":                       {"content-size header-arc-flat", 1},
	"ix-type5":                            {"record-type", 1},
	"ix-type9":                            {"content-size header-arc-flat record-type", 1},
	"magic":                               {"!magic", -1},
	"trunc-b2":                            {"!prefix", -1},
	"trunc-b3":                            {"!prefix", -1},
	"trunc-b4-1":                          {"contents", 15},
	"trunc-b4-small":                      {"contents", 12},
	"trunc-b4-stream":                     {"contents", 1},
	"trunc-empty":                         {"!header", -1},
	"trunc-hdr63":                         {"!header", -1},
	"trunc-hdr64":                         {"!prefix", -1},
	"version0":                            {"version", 17},
	"zero-4k-b4-stream":                   {"", 3},
}

func check(ctx context.Context, t *testing.T, st *storetest.Mem, name string) (classes []string) {
	t.Helper()
	err := verify(ctx, st, name, format.OpenOptions{}, func(p format.Problem) {
		if p.Severity > format.Note {
			classes = append(classes, p.Class)
		}
	})
	if err != nil {
		t.Error(err)
	}
	slices.Sort(classes)
	return classes
}

// apply returns an archive with a plan applied.
func apply(t *testing.T, b []byte, p format.Plan) []byte {
	t.Helper()
	var out bytes.Buffer
	at := int64(0)
	for _, e := range p.Edits {
		out.Write(b[at:e.Off])
		if err := e.Write(&out); err != nil {
			t.Fatal(err)
		}
		at = e.Off + e.Len
	}
	out.Write(b[at:])
	return out.Bytes()
}

func TestDamagedArchivesHaveTheirOutcome(t *testing.T) {
	testkit.Serial(t)
	for _, name := range fixtures(t, "dmg-") {
		t.Run(name, func(t *testing.T) {
			want, ok := outcomes[strings.TrimPrefix(name, "dmg-")]
			if !ok {
				t.Fatal("no outcome")
			}
			b := fixture(t, name)
			st := &storetest.Mem{}
			st.Put("x.rvn", b)
			found := strings.Join(check(t.Context(), t, st, "x.rvn"), " ")
			broken, opens := strings.CutPrefix(want.classes, "!")
			if found != broken {
				t.Errorf("found %q, want %q", found, broken)
			}
			r, err := open(t.Context(), st, "x.rvn", format.OpenOptions{})
			if (err != nil) != opens {
				t.Errorf("open: %v", err)
			}
			if err == nil {
				r.Close()
			}
			plan, err := repair(t.Context(), st, "x.rvn", format.OpenOptions{}, func(format.Problem) {})
			if want.saved < 0 {
				if err == nil {
					t.Error("it is repaired")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			repaired := apply(t, b, plan)
			wantSound(t, repaired, want.saved)
		})
	}
	for name := range outcomes {
		fixture(t, "dmg-"+name)
	}
}

// wantSound checks that an archive has so many entries, nothing wrong with it
// that could be repaired, and contents that match their digests.
func wantSound(t *testing.T, b []byte, entries int) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.rvn", b)
	for _, c := range check(t.Context(), t, st, "x.rvn") {
		if repairable(format.Problem{Class: c}) {
			t.Errorf("%s is left", c)
		}
	}
	a, content, err := contentsOf(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if a.index.Len() != entries {
		t.Errorf("%d entries, want %d", a.index.Len(), entries)
	}
	for i := range a.index.Len() {
		e := a.index.Entry(i)
		if e.Kind != format.File {
			continue
		}
		at := a.index.start(i)
		if sum := blake3.Sum256(content[at:][:e.Size]); string(sum[:]) != e.Digest.Sum {
			t.Errorf("%s is not what its digest says", e.Name)
		}
	}
}

// desync does what the reference's writer does when it drops files: their names stay among the
// names of the others.
func desync(t *testing.T, names []string, dropped map[string]bool) []byte {
	t.Helper()
	w := newBuilder()
	var err error
	if w.c, err = newCompressor("", 1, defaultSection); err != nil {
		t.Fatal(err)
	}
	var content []byte
	for _, n := range names {
		if dropped[n] {
			w.tails = append(w.tails, n...)
			continue
		}
		text := []byte("content of " + n)
		sum := blake3.Sum256(text)
		w.addRecord(format.Entry{Name: n, Size: int64(len(text))}, string(sum[:]), 0, 0)
		content = append(content, text...)
	}
	w.flat = int64(len(content))
	block, err := w.c.frame(nil, content)
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := w.prefix(nil, int64(len(block)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(prefix, block...)
}

func TestNamesOfDroppedFilesAreTakenOut(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	unsure, wrong := 0, 0
	for round := range 60 {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("%c%0*d-%x", 'a'+i/10, 2+rnd.IntN(3), rnd.IntN(100), rnd.Uint64()>>(rnd.IntN(48))))
		}
		slices.Sort(names)
		names = slices.Compact(names)
		dropped := map[string]bool{}
		for range 1 + round%3 {
			dropped[names[rnd.IntN(len(names))]] = true
		}
		b := desync(t, names, dropped)
		st := &storetest.Mem{}
		st.Put("x.rvn", b)
		if got := check(t.Context(), t, st, "x.rvn"); !slices.Contains(got, "names-surplus") {
			t.Fatalf("names of dropped files are not found: %q", got)
		}
		plan, err := repair(t.Context(), st, "x.rvn", format.OpenOptions{}, func(format.Problem) {})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Partial {
			unsure++
			continue
		}
		a, _, err := contentsOf(t, apply(t, b, plan))
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for _, n := range names {
			if dropped[n] {
				continue
			}
			text := "content of " + n
			sum := blake3.Sum256([]byte(text))
			if e := a.index.Entry(i); e.Name != n || e.Digest.Sum != string(sum[:]) {
				if len(dropped) == 1 {
					t.Errorf("file %d is called %q, want %q; dropped: %v", i, e.Name, n, dropped)
				}
				wrong++
				break
			}
			i++
		}
	}
	// If several files were dropped, it cannot always be determined which ones.
	if unsure > 40 || wrong > 6 {
		t.Errorf("%d of 60 cannot be told, %d are wrong", unsure, wrong)
	}
}

func TestALostPrefixOfContentsKeepsWhatIsBehindIt(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.rvn", format.CreateOptions{Scratch: fileScratch(t), Param: map[string]string{paramSections: "65536"}})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		b := make([]byte, 20_000)
		for k := range b {
			b[k] = byte('a' + rnd.IntN(20))
		}
		if err := w.Add(t.Context(), format.Entry{Name: fmt.Sprintf("f%02d", i), Size: int64(len(b))}, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := st.Get("x.rvn")
	a, _, err := contentsOf(t, b)
	if err != nil {
		t.Fatal(err)
	}
	sections := a.table.sections
	if len(sections) < 5 {
		t.Fatalf("%d sections", len(sections))
	}
	// Zeros in the second section: of its files some are lost, of others none.
	off := a.block[contentBlock].off + sections[1].comp
	damaged := bytes.Clone(b)
	clear(damaged[off:][:1000])
	st.Put("y.rvn", damaged)
	plan, err := repair(t.Context(), st, "y.rvn", format.OpenOptions{}, func(format.Problem) {})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for i := range a.index.Len() {
		if at := a.index.start(i); at+a.index.rec(i).size() > sections[1].flat && at < sections[2].flat {
			lost++
		}
	}
	if lost == 0 || lost > 6 || len(plan.Lost) != lost || !plan.Partial {
		t.Errorf("lost %q, want %d files", plan.Lost, lost)
	}
	wantSound(t, apply(t, damaged, plan), 40-lost)
	// Truncated in the third section: the contents of the first two are kept.
	cut := b[:a.block[contentBlock].off+sections[2].comp+50]
	st.Put("z.rvn", cut)
	if plan, err = repair(t.Context(), st, "z.rvn", format.OpenOptions{}, func(format.Problem) {}); err != nil {
		t.Fatal(err)
	}
	whole := 0
	for i := range a.index.Len() {
		if a.index.start(i)+a.index.rec(i).size() <= sections[2].flat {
			whole++
		}
	}
	wantSound(t, apply(t, cut, plan), whole)
}

// made is an archive of records with these names and contents, and metadata of this text.
func made(t *testing.T, text string, names, contents []string) []byte {
	t.Helper()
	w := newBuilder()
	var err error
	if w.c, err = newCompressor("", 1, defaultSection); err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		sum := blake3.Sum256([]byte(contents[i]))
		w.addRecord(format.Entry{Name: n, Size: int64(len(contents[i]))}, string(sum[:]), 0, 0)
	}
	all := strings.Join(contents, "")
	w.flat = int64(len(all))
	block, err := w.c.frame(nil, []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := w.prefix(nil, int64(len(block)), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := parseHeader(prefix)
	if text != "" {
		meta, err := w.c.frame(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		rest := prefix[h.indexOff():]
		h.MetaComp, h.MetaFlat = uint32(len(meta)), uint32(len(text))
		prefix = append(append(h.append(nil), meta...), rest...)
	}
	return append(prefix, block...)
}

// If several paths are equal, the one that is read keeps its name, and the other goes to
// lost+found.
func TestOfEqualPathsRepairKeepsTheOneThatIsRead(t *testing.T) {
	b := made(t, "", []string{"a", "b", "a", "c", "a"}, []string{"first", "other", "second", "third", "the last"})
	st := &storetest.Mem{}
	st.Put("x.rvn", b)
	want := func(name, content string) {
		t.Helper()
		a, all, err := contentsOf(t, st.Get("x.rvn"))
		if err != nil {
			t.Fatal(err)
		}
		i, ok := a.byName.Find(name)
		if !ok {
			t.Fatalf("%s is not there", name)
		}
		if got := string(all[a.index.start(i):][:a.index.Entry(i).Size]); got != content {
			t.Errorf("%s is %q, want %q", name, got, content)
		}
	}
	want("a", "the last")
	plan, err := repair(t.Context(), st, "x.rvn", format.OpenOptions{}, func(format.Problem) {})
	if err != nil || plan.Partial {
		t.Fatal(err, plan.Lost)
	}
	st.Put("x.rvn", apply(t, b, plan))
	wantSound(t, st.Get("x.rvn"), 6) // and the folder lost+found
	want("a", "the last")
	want("c", "third")
	want(lostFound+"/1", "first")
	want(lostFound+"/2", "second")
}

// Metadata that is not UCL becomes a description. Metadata that is too large is kept, and repair
// reports that.
func TestRepairRestoresMetadata(t *testing.T) {
	for what, k := range map[string]struct {
		text    string
		class   string
		partial bool
	}{
		"no UCL":   {"namebase: {{{ \x01 not UCL", "metadata-ucl", false},
		"too long": {"desc: \"" + strings.Repeat("x", maxMetadata) + "\"", "metadata-size", true},
	} {
		t.Run(what, func(t *testing.T) {
			b := made(t, k.text, []string{"a"}, []string{"alpha"})
			st := &storetest.Mem{}
			st.Put("x.rvn", b)
			if got := check(t.Context(), t, st, "x.rvn"); !slices.Equal(got, []string{k.class}) {
				t.Fatalf("found %q", got)
			}
			plan, err := repair(t.Context(), st, "x.rvn", format.OpenOptions{}, func(format.Problem) {})
			if err != nil || plan.Partial != k.partial || k.partial != (len(plan.Lost) > 0) || k.partial == (len(plan.Edits) > 0) {
				t.Fatal(err, plan)
			}
			b = apply(t, b, plan)
			wantSound(t, b, 1)
			a, _, err := contentsOf(t, b)
			if err != nil {
				t.Fatal(err)
			}
			m, err := a.metadata()
			if err != nil {
				t.Fatal(err)
			}
			if desc, _ := m.tree.Get("desc").Str(); !k.partial && desc != k.text || k.partial && string(m.text) != k.text {
				t.Errorf("the text is %.100q", m.text)
			}
		})
	}
}
