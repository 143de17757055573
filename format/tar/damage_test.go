package tar

import (
	"archive/tar"
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// files returns a tar of twenty files, each of another length.
func files(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 20 {
		text := strings.Repeat(fmt.Sprintf("file %d. ", i), i*20)
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%02d", i), Mode: 0o644, Size: int64(len(text)), Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// headerAt is where a member's header begins.
func headerAt(t testing.TB, b []byte, name string) int {
	t.Helper()
	for at := 0; at+blockSize <= len(b); at += blockSize {
		if h := block(b[at:][:blockSize]); string(h.name()) == name && h.checked() {
			return at
		}
	}
	t.Fatalf("no header of %s", name)
	return 0
}

// names returns the listed names, and what is reported about the archive.
func names(t testing.TB, name string, b []byte, once bool) (list []string, doubt *format.Problem) {
	t.Helper()
	r := mustOpen(t, name, b, format.OpenOptions{Once: once})
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Name)
	}
	return list, r.Can().Doubt()
}

func TestListsGoOnBehindADamagedHeader(t *testing.T) {
	whole := files(t)
	all, doubt := names(t, "x.tar", whole, false)
	if len(all) != 20 || doubt != nil {
		t.Fatalf("%d files, %+v", len(all), doubt)
	}
	at := headerAt(t, whole, "f07")
	for what, change := range map[string]func(b []byte) []byte{
		"a bit":              func(b []byte) []byte { b[at+20] ^= 1; return b },
		"the size":           func(b []byte) []byte { copy(b[at+124:], "77777777777"); return b },
		"no size":            func(b []byte) []byte { copy(b[at+124:], "????????????"); return resum(b, at) },
		"zeros":              func(b []byte) []byte { clear(b[at:][:blockSize]); return b },
		"noise":              func(b []byte) []byte { copy(b[at:], strings.Repeat("\xa5", blockSize)); return b },
		"a too long name":    func(b []byte) []byte { b[at+156] = typeLongName; copy(b[at+124:], "00077777777"); return resum(b, at) },
		"a block is missing": func(b []byte) []byte { return append(b[:at], b[at+blockSize:]...) },
	} {
		b := change(bytes.Clone(whole))
		for name, b := range map[string][]byte{"x.tar": b, "x.tgz": zipped(t, b, 7000), "x.tar.zst": inFrames(t, b, 5000), "x.tar.xz": by(t, codec.XZ, b), "x.tar.lz4": by(t, codec.LZ4, b)} {
			for _, once := range []bool{false, true} {
				list, doubt := names(t, name, b, once)
				if want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == "f07" }); !slices.Equal(list, want) {
					t.Errorf("%s, %s, once %v: %q", what, name, once, list)
				}
				if off := int64(at); doubt == nil || doubt.Severity != format.Error || name == "x.tar" && doubt.Off != off {
					t.Errorf("%s, %s, once %v: %+v, expected something at %d", what, name, once, doubt, off)
				}
			}
		}
		var said []format.Problem
		st := &storetest.Mem{}
		st.Put("x.tar", b)
		if err := verify(t.Context(), st, "x.tar", format.OpenOptions{}, func(p format.Problem) { said = append(said, p) }); err != nil || len(said) != 1 || said[0].Off != int64(at) || said[0].Code != format.BadHeader {
			t.Errorf("%s: %+v, %v", what, said, err)
		}
	}
}

// resum gives the header at a place the checksum that it should have.
func resum(b []byte, at int) []byte {
	copy(b[at+148:], "        ")
	sum := 0
	for _, c := range b[at:][:blockSize] {
		sum += int(c)
	}
	copy(b[at+148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func TestTheFirstHeaderMayBeDamaged(t *testing.T) {
	b := files(t)
	b[3] ^= 1
	if list, doubt := names(t, "x.tar", b, false); len(list) != 19 || doubt == nil || doubt.Off != 0 {
		t.Errorf("%q, %+v", list, doubt)
	}
}

// A tar within a tar has headers too. They are not used as headers of the outer tar if the size
// in the damaged header leads to another header after them.
func TestATarWithinATarIsNotLookedInto(t *testing.T) {
	inner := files(t)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range []string{"a", "b", "c"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(inner))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(inner); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		b := bytes.Clone(out.Bytes())
		b[headerAt(t, b, name)+100] ^= 1
		if list, doubt := names(t, "x.tar", b, false); len(list) != 2 || doubt == nil {
			t.Errorf("%s: %q, %+v", name, list, doubt)
		}
	}
}

func TestWhatIsBehindTheEndIsSaid(t *testing.T) {
	b := append(files(t), files(t)...)
	if list, doubt := names(t, "x.tar", b, false); len(list) != 20 || doubt == nil || doubt.Off != int64(len(b)/2) {
		t.Errorf("%q, %+v", list, doubt)
	}
	b = append(files(t), bytes.Repeat([]byte("no header "), 1000)...)
	if list, doubt := names(t, "x.tar", b, false); len(list) != 20 || doubt == nil {
		t.Errorf("%q, %+v", list, doubt)
	}
	repaired := func(b []byte, partial bool) {
		t.Helper()
		b, plan, err := repaired(t, "x.tar", b)
		if err != nil || !plan.Changes() || plan.Partial != partial {
			t.Fatalf("%v, %+v", err, plan)
		}
		if list, doubt := names(t, "x.tar", b, false); len(list) != 20 || doubt != nil {
			t.Errorf("after the repair: %q, %+v", list, doubt)
		}
	}
	repaired(b, true)
	whole := files(t)
	repaired(whole[:len(whole)-1024-5], false) // within the padding of the last one
	b = append(files(t), make([]byte, 10_000)...)
	if list, doubt := names(t, "x.tar", b, false); len(list) != 20 || doubt != nil {
		t.Errorf("%q, %+v", list, doubt)
	}
	b = files(t)
	if list, doubt := names(t, "x.tar", b[:5*512-3], false); len(list) == 0 || doubt == nil {
		t.Errorf("%q, %+v", list, doubt)
	}
}

func TestDamagedPaxRecordsAreSaid(t *testing.T) {
	for what, c := range map[string]struct {
		old, new string
		severity format.Severity
	}{
		"a time that is none": {" mtime=1", " mtime=x", format.Note},
		"a length":            {"22 mtime=", "2x mtime=", format.Error},
	} {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range []*tar.Header{
			{Name: "a", PAXRecords: map[string]string{"mtime": "1600000000.5"}, Format: tar.FormatPAX},
			{Name: "b", Format: tar.FormatPAX},
		} {
			h.Mode, h.ModTime = 0o644, unixTime(1_600_000_000, 500_000_000)
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b := bytes.Replace(out.Bytes(), []byte(c.old), []byte(c.new), 1)
		list, doubt := names(t, "x.tar", b, false)
		if !slices.Equal(list, []string{"a", "b"}) || (doubt != nil) != (c.severity == format.Error) {
			t.Errorf("%s: %q, %+v", what, list, doubt)
		}
		r := mustOpen(t, "x.tar", b, format.OpenOptions{})
		about, err := r.About(t.Context())
		if err != nil || len(about.Notes) != 1 || about.Notes[0].Severity != c.severity {
			t.Errorf("%s: %+v, %v", what, about.Notes, err)
		}
		if e, err := r.Lookup(t.Context(), "a"); err != nil || e.ModTime.Unix() != 1_600_000_000 {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}
}

// GNU tar writes a name that is given twice as a hard link to itself.
func TestAHardLinkToItsOwnNameIsTheEntryBefore(t *testing.T) {
	write := func(skip string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range []*tar.Header{
			{Name: "foo", Typeflag: tar.TypeReg, Size: 5},
			{Name: "bar", Typeflag: tar.TypeReg, Size: 5},
			{Name: "foo", Typeflag: tar.TypeLink, Linkname: "./foo"},
		} {
			if h.Typeflag == tar.TypeReg && h.Name == skip {
				continue
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				if _, err := w.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for _, once := range []bool{false, true} {
		if list, doubt := names(t, "x.tar", write(""), once); !slices.Equal(list, []string{"foo", "bar"}) || doubt != nil {
			t.Errorf("once %v: %q, %+v", once, list, doubt)
		}
	}
	b := write("")
	r := mustOpen(t, "x.tar", b, format.OpenOptions{})
	if e, err := r.Lookup(t.Context(), "foo"); err != nil || e.Kind != format.File || string(content(t, r, b, e, 0, 5)) != "hello" {
		t.Errorf("%+v, %v", e, err)
	}
	if list, doubt := names(t, "x.tar", write("foo"), false); !slices.Equal(list, []string{"bar"}) || doubt == nil || doubt.Entry != "foo" {
		t.Errorf("%q, %+v", list, doubt)
	}
}

// repaired repairs a tar, and returns the result.
func repaired(t testing.TB, name string, b []byte) ([]byte, format.Plan, error) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put(name, b)
	plan, err := repair(t.Context(), st, name, format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}, func(format.Problem) {})
	if err != nil || len(plan.Edits) == 0 {
		return b, plan, err
	}
	var out bytes.Buffer
	at := int64(0)
	for _, e := range plan.Edits {
		if e.Off < at || e.Len < 0 || e.Off+e.Len > int64(len(b)) {
			t.Fatalf("bytes %d+%d behind %d, of %d", e.Off, e.Len, at, len(b))
		}
		out.Write(b[at:e.Off])
		if e.Write != nil {
			if err := e.Write(&out); err != nil {
				t.Fatal(err)
			}
		}
		at = e.Off + e.Len
	}
	out.Write(b[at:])
	return out.Bytes(), plan, nil
}

// sound returns the names in a tar, and fails if archive/tar or we find anything wrong.
func sound(t testing.TB, what, name string, b []byte) (list []string) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put(name, b)
	err := verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) {
		if p.Severity == format.Error {
			t.Errorf("%s: %+v", what, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, name, b, format.OpenOptions{})
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Name)
		if len(e.Name) == 3 && e.Name[0] == 'f' { // a file of files
			var i int
			fmt.Sscanf(e.Name, "f%d", &i)
			want := strings.Repeat(fmt.Sprintf("file %d. ", i), i*20)
			if got := string(content(t, r, b, e, 0, e.Size)); !strings.HasPrefix(want, got) {
				t.Errorf("%s: %s has another content", what, e.Name)
			}
		}
	}
	if plain := name == "x.tar"; plain {
		n := 0
		for z := tar.NewReader(bytes.NewReader(b)); ; n++ {
			if _, err := z.Next(); err != nil {
				if err.Error() != "EOF" || n != len(list) {
					t.Errorf("%s: archive/tar finds %d members, %v", what, n, err)
				}
				break
			}
		}
	}
	return list
}

func TestRepairKeepsWhatCanBeRead(t *testing.T) {
	testkit.Serial(t)
	whole := files(t)
	all := sound(t, "whole", "x.tar", whole)
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == name })
	}
	at, last := headerAt(t, whole, "f07"), headerAt(t, whole, "f19")
	for what, c := range map[string]struct {
		change  func(b []byte) []byte
		want    []string
		partial bool
	}{
		"nothing":             {func(b []byte) []byte { return b }, all, false},
		"a bit":               {func(b []byte) []byte { b[at+20] ^= 1; return b }, without("f07"), true},
		"zeros":               {func(b []byte) []byte { clear(b[at:][:blockSize]); return b }, without("f07"), true},
		"a block is missing":  {func(b []byte) []byte { return append(b[:at], b[at+blockSize:]...) }, without("f07"), true},
		"the first":           {func(b []byte) []byte { b[1] ^= 1; return b }, without("f00"), true},
		"the last":            {func(b []byte) []byte { b[last] ^= 1; return b }, without("f19"), true},
		"cut in a file":       {func(b []byte) []byte { return b[:last+blockSize+99] }, append(without("f19"), "f19.damaged"), true},
		"cut before a file":   {func(b []byte) []byte { return b[:last+blockSize] }, without("f19"), true},
		"cut in a header":     {func(b []byte) []byte { return b[:last+99] }, without("f19"), true},
		"cut before the end":  {func(b []byte) []byte { return b[:len(b)-2*blockSize] }, all, false},
		"noise behind":        {func(b []byte) []byte { return append(b[:len(b)-2*blockSize], strings.Repeat("\xa5", 3000)...) }, all, true},
		"two headers, behind": {func(b []byte) []byte { b[at] ^= 1; b[last] ^= 1; return b }, slices.DeleteFunc(without("f07"), func(n string) bool { return n == "f19" }), true},
	} {
		b := c.change(bytes.Clone(whole))
		for name, b := range map[string][]byte{"x.tar": b, "x.tgz": zipped(t, b, 7000), "x.tar.zst": inFrames(t, b, 5000), "x.tar.xz": by(t, codec.XZ, b), "x.tar.lz4": by(t, codec.LZ4, b)} {
			what := what + ", " + name
			got, plan, err := repaired(t, name, b)
			if err != nil || plan.Partial != c.partial || len(plan.Edits) > 0 && len(plan.Notes) == 0 {
				t.Fatalf("%s: %+v, %v", what, plan, err)
			}
			if list := sound(t, what, name, got); !slices.Equal(list, c.want) {
				t.Errorf("%s: %q", what, list)
			}
			if _, again, err := repaired(t, name, got); err != nil || again.Changes() {
				t.Errorf("%s, again: %+v, %v", what, again, err)
			}
		}
	}
}

func TestRepairOfCompressedTarsKeepsWhatDecodes(t *testing.T) {
	whole := files(t)
	for name, b := range map[string][]byte{"x.tgz": zipped(t, whole, 9000), "x.tar.zst": inFrames(t, whole, 9000)} {
		for what, b := range map[string][]byte{
			"cut":        b[:len(b)*2/3],
			"overridden": append(append(bytes.Clone(b[:len(b)/2]), strings.Repeat("\xa5", 100)...), b[len(b)/2+100:]...),
		} {
			what := what + ", " + name
			got, plan, err := repaired(t, name, b)
			if err != nil || !plan.Partial || len(plan.Lost) == 0 {
				t.Fatalf("%s: %+v, %v", what, plan, err)
			}
			if list := sound(t, what, name, got); len(list) < 5 {
				t.Errorf("%s: %q", what, list)
			}
		}
	}
}

// If a frame cannot be decoded, those after it are kept, wherever files begin in them. Contents
// that are decoded but do not match their checksum are kept under other names.
func TestRepairGoesOnBehindADamagedFrame(t *testing.T) {
	whole := files(t)
	const n = 7001
	var frames [][]byte
	for part := range slices.Chunk(whole, n) {
		frames = append(frames, compressed(t, part))
	}
	for k := range frames {
		for what, change := range map[string]func(b []byte) []byte{
			"its magic":    func(b []byte) []byte { b[0] ^= 1; return b },
			"half of it":   func(b []byte) []byte { clear(b[len(b)/2:]); return b },
			"cut":          func(b []byte) []byte { return b[:len(b)/2] },
			"its checksum": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			"noise":        func(b []byte) []byte { return bytes.Repeat([]byte("\xa5\x28\xb5\x2f\xfd"), 50) },
		} {
			what := fmt.Sprintf("frame %d, %s", k, what)
			all := slices.Clone(frames)
			all[k] = change(bytes.Clone(frames[k]))
			b := slices.Concat(all...)
			got, plan, err := repaired(t, "x.tar.zst", b)
			if k == 0 && strings.Contains(what, "magic") || k == 0 && strings.Contains(what, "noise") {
				continue // it is not known what it is
			}
			if err != nil || !plan.Partial {
				t.Errorf("%s: %+v, %v", what, plan, err)
				continue
			}
			list := sound(t, what, "x.tar.zst", got)
			for i := range 20 {
				name := fmt.Sprintf("f%02d", i)
				from := headerAt(t, whole, name)
				to := from + blockSize + i*20*len(fmt.Sprintf("file %d. ", i))
				whole, doubtful := to <= k*n || from >= (k+1)*n, strings.HasSuffix(what, "checksum")
				if doubtful && !whole && to > from+blockSize {
					whole, name = true, name+".damaged"
				}
				if (whole || doubtful) && !slices.Contains(list, name) {
					t.Errorf("%s: %s is missing: %q, %q", what, name, list, plan.Lost)
				}
			}
			if _, again, err := repaired(t, "x.tar.zst", got); err != nil || again.Changes() {
				t.Errorf("%s, again: %+v, %v", what, again, err)
			}
		}
	}
}

func TestRepairOfPaxRecordsKeepsThoseThatCanBeRead(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	long := strings.Repeat("long", 40)
	for _, n := range []string{long, "f02"} {
		if err := w.WriteHeader(&tar.Header{Name: n, PAXRecords: map[string]string{"z.last": "x"}, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := bytes.Replace(out.Bytes(), []byte("z.last=x\n"), []byte("z.last=x!"), 1)
	got, plan, err := repaired(t, "x.tar", b)
	if err != nil || !plan.Partial {
		t.Fatalf("%+v, %v", plan, err)
	}
	if list := sound(t, "pax", "x.tar", got); !slices.Equal(list, []string{long, "f02"}) {
		t.Errorf("%q", list)
	}
}

func TestRepairOfPaxRecordsAtTheEndWithoutPadding(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []*tar.Header{{Name: "f00", Format: tar.FormatUSTAR}, {Name: "last", PAXRecords: map[string]string{"z.last": "x"}, Format: tar.FormatPAX}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	record := []byte("12 z.last=x\n")
	b := out.Bytes()[:bytes.Index(out.Bytes(), record)+len(record)]
	b[len(b)-1] = '!'
	for name, b := range map[string][]byte{"x.tar": b, "x.tgz": zipped(t, b, len(b)), "x.tar.zst": compressed(t, b)} {
		got, plan, err := repaired(t, name, b)
		if err != nil || !plan.Partial {
			t.Errorf("%s: %+v, %v", name, plan, err)
			continue
		}
		if list := sound(t, name, name, got); !slices.Equal(list, []string{"f00"}) {
			t.Errorf("%s: %q", name, list)
		}
	}
}

// A compressed tar that was cut off is read up to the last of what could be decoded.
func TestACompressedTarThatWasCutIsReadBeforeItsEnd(t *testing.T) {
	const size = 128 << 10
	rnd := testkit.Rand(t)
	names := []string{codec.Zstd, codec.Gzip, codec.XZ, codec.LZ4}
	if testkit.Race() {
		names = names[:1]
	}
	for _, name := range names {
		held := int(mostHeld(name) / size)
		count := 2*held + 16
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range count {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Size: size, Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(testkit.Noise(rnd, size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		whole := by(t, name, b.Bytes())
		st := &storetest.Mem{}
		st.Put("x", whole[:len(whole)*4/5])
		r, err := openReader(t.Context(), st, "x", format.OpenOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sound := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			damaged := e.Fault != nil
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				damaged = damaged || err != nil || x.Damaged
			}
			if !damaged {
				sound++
			}
		}
		if least := count*4/5 - held - held/2 - 3; sound < least || sound >= count*4/5 {
			t.Errorf("%s: %d files of the first %d are read, expected at least %d", name, sound, count*4/5, least)
		}
		r.Close()
	}
}

// A repair may change the compression, and not the name.
func TestATarIsRecognisedByAnyNameOfACompressedOne(t *testing.T) {
	head := by(t, codec.Zstd, append(files(t), testkit.Noise(testkit.Rand(t), 1<<20)...))
	for name, want := range map[string]format.Match{"x.tar.zst": format.Likely, "x.tar.bz2": format.Likely, "x.zst": format.No} {
		if got := detect(format.Probe{Name: name, Size: 1 << 20, Head: head[:len(zstdMagic)+30]}); got != want {
			t.Errorf("%s: %v, expected %v", name, got, want)
		}
	}
}

// Files of which bytes were lost get other names and are padded, also several in a row.
func TestRepairPadsEachFileThatLostBytes(t *testing.T) {
	b := files(t)
	for _, name := range []string{"f09", "f08", "f07"} {
		at := headerAt(t, b, name) + blockSize + 50
		b = slices.Delete(b, at, at+3)
	}
	got, plan, err := repaired(t, "x.tar", b)
	if err != nil || !plan.Partial {
		t.Fatalf("%+v, %v", plan, err)
	}
	want := sound(t, "whole", "x.tar", files(t))
	for i := 7; i < 10; i++ {
		want[i] += ".damaged"
	}
	if list := sound(t, "lost bytes", "x.tar", got); !slices.Equal(list, want) {
		t.Errorf("%q", list)
	}
	if _, again, err := repaired(t, "x.tar", got); err != nil || again.Changes() {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// A header of records that was copied over those of the next file leads to garbage. The file before
// both is not to blame, and its header stays its own.
func TestRepairDoesNotBlameAFileTwice(t *testing.T) {
	var w bytes.Buffer
	tw := tar.NewWriter(&w)
	at := map[string]int{}
	for i, name := range []string{"a", "b", "c", "d"} {
		at[name] = w.Len()
		text := bytes.Repeat([]byte{byte('1' + i)}, 4500+i)
		err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX, PAXRecords: map[string]string{"X.y": "z"}})
		if err == nil {
			_, err = tw.Write(text)
		}
		if err == nil {
			err = tw.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(w.Bytes())
	copy(b[at["b"]+89:], b[at["c"]:][:2*blockSize-89])
	b[at["c"]] ^= 1 // or the header in its place would lead to the end
	got, plan, err := repaired(t, "x.tar", b)
	if err != nil || !plan.Partial {
		t.Fatalf("%+v, %v", plan, err)
	}
	if list := sound(t, "records", "x.tar", got); !slices.Contains(list, "a") || !slices.Contains(list, "b") || !bytes.Contains(got, bytes.Repeat([]byte("1"), 4500)) {
		t.Errorf("%q: %+v", list, plan.Lost)
	}
	if _, again, err := repaired(t, "x.tar", got); err != nil || again.Changes() {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// Whatever is wrong, a repair gives a tar that needs none, and panics on nothing.
func FuzzRepair(f *testing.F) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		b := sample(f, format)
		f.Add(b)
		f.Add(b[:len(b)-1500])
		f.Add(zipped(f, b, 1000))
		f.Add(inFrames(f, b, 1000))
		torn := bytes.Clone(b)
		torn[blockSize+20] ^= 1
		f.Add(torn)
	}
	for _, kind := range sparseKinds {
		f.Add(fixture(f, kind)[:8<<10])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, plan, err := repaired(t, "x.tar", b)
		if err != nil || !plan.Changes() {
			return
		}
		if _, again, err := repaired(t, "x.tar", got); err != nil || again.Changes() {
			t.Errorf("repaired, it has still to be repaired: %+v, %v", again, err)
		}
	})
}

func TestATarThatIsCutBehindItsFirstHeaderIsListed(t *testing.T) {
	b := files(t)
	at := headerAt(t, b, "f07")
	list, doubt := names(t, "x.tar", b[at:at+blockSize], false)
	if !slices.Equal(list, []string{"f07"}) || doubt == nil || doubt.Code != format.Truncated {
		t.Errorf("%q, %+v", list, doubt)
	}
}

// In incremental backups, GNU tar lists the contents of a folder after its header.
func TestFoldersOfIncrementalBackupsAreFolders(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []*tar.Header{{Name: "d/", Typeflag: typeDumpDir, Size: 9, Format: tar.FormatGNU}, {Name: "d/f", Format: tar.FormatGNU}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, "x.tar", out.Bytes(), format.OpenOptions{})
	if e, err := r.Lookup(t.Context(), "d"); err != nil || e.Kind != format.Dir || e.Size != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := r.Lookup(t.Context(), "d/f"); err != nil {
		t.Error(err)
	}
}

// A member of which only the headers in front of its own are left is lost, wherever the cut is.
func TestAMemberWithoutItsHeaderIsALoss(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []*tar.Header{{Name: "f00", Format: tar.FormatUSTAR}, {Name: "last", PAXRecords: map[string]string{"z.last": "x"}, Format: tar.FormatPAX}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{blockSize + 1, 2 * blockSize, 2*blockSize + 20, 3*blockSize - 1, 3 * blockSize, 3*blockSize + 7} {
		b := out.Bytes()[:n]
		for name, b := range map[string][]byte{"x.tar": b, "x.tgz": zipped(t, b, len(b)), "x.tar.zst": compressed(t, b)} {
			got, plan, err := repaired(t, name, b)
			if err != nil || !plan.Partial {
				t.Errorf("%s of %d bytes: %+v, %v", name, n, plan, err)
				continue
			}
			if list := sound(t, name, name, got); !slices.Equal(list, []string{"f00"}) {
				t.Errorf("%s of %d bytes: %q", name, n, list)
			}
		}
	}
}
