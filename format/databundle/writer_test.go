package databundle

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// tmp is scratch for a writer.
func tmp() (sorter.Scratch, error) {
	f, err := os.CreateTemp("", "holdall")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

type added struct {
	format.Entry
	content []byte
}

// assortment is files of all lengths that the format has an opinion on.
func assortment() []added {
	noise := make([]byte, 300_000)
	rand.Read(noise)
	text := prose(3 << 20)
	file := func(name string, b []byte) added {
		return added{format.Entry{Name: name, Size: int64(len(b)), Mode: 0o640, HasMode: true, ModTime: time.Unix(1e9, 5).UTC(), Owner: "1000", Group: "users"}, b}
	}
	all := []added{
		{Entry: format.Entry{Name: "d", Kind: format.Dir, Mode: 0o750, HasMode: true}},
		file("d/empty", nil),
		file("d/noise", noise),
		file("d/one", []byte{7}),
		file("d/zeros", make([]byte, 900_000)),
		file("e/deep/er/text", text[:100_000]),
		file("large/exactly", text[:largeFile]),
		file("large/larger", text[1:5<<19]),
		file("large/less", text[2:largeFile+1]),
		file("large/more", text[3:largeFile+4]),
		file("large/zeros", make([]byte, 3<<20)),
		file("name with a space and \xff\xfe", text[:77]),
		{Entry: format.Entry{Name: "z link", Kind: format.Symlink, Link: "d/one"}},
		{Entry: format.Entry{Name: "z other name", Kind: format.HardLink, Link: "d/noise"}},
	}
	for i := range 200 {
		all = append(all, file(fmt.Sprintf("small/%03d", i), text[i*1000:i*1000+i*37]))
	}
	return all
}

func pack(t testing.TB, st *storetest.Mem, all []added, param map[string]string) format.Summary {
	t.Helper()
	w, err := create(t.Context(), st, "b", format.CreateOptions{Scratch: tmp, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if err := w.Add(t.Context(), x.Entry, bytes.NewReader(x.content)); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestAllFlavoursComeBack(t *testing.T) {
	testkit.Long(t)
	all := assortment()
	flavours := []map[string]string{
		{}, {"compression": "snappy"}, {"compression": "zstd"}, {"compression": "none"}, {"compression": "none", "align": "1"},
		{"shards": "3"}, {"shards": "3", "compression": "none", "align": "512"}, {"shard-size": "2000000"}, {"shard-size": "1048576", "compression": "none"},
		{"record-size": "4096", "align": "1"}, {"record-size": "1048576"}, {"level": "1"}, {"compression": "zstd", "level": "best"},
		{"index": "inline"}, {"index": "inline", "compression": "none"}, {"index-copies": "2"}, {"shards": "300"},
	}
	if raced {
		flavours = flavours[:6]
	}
	for _, param := range flavours {
		t.Run(fmt.Sprint(param), func(t *testing.T) {
			ctx := t.Context()
			st := &storetest.Mem{}
			sum := pack(t, st, all, param)
			if sum.Entries != int64(len(all)) {
				t.Errorf("%d entries, expected %d", sum.Entries, len(all))
			}
			o := holdall.OpenOptions{Formats: []*format.Format{Format}}
			v, err := holdall.Verify(ctx, "b", holdall.VerifyOptions{OpenOptions: o.In(st)}, func(p holdall.Problem) {
				if p.Severity > format.Note {
					t.Errorf("%+v", p)
				}
			})
			if err != nil || v.Errors+v.Warnings > 0 {
				t.Fatalf("%+v, %v", v, err)
			}
			a, err := holdall.Open(ctx, "b", o.In(st))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for _, x := range all {
				e, err := a.Lookup(ctx, x.Name)
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind != x.Kind || e.Link != x.Link || e.Mode != x.Mode || !e.ModTime.Equal(x.ModTime) || e.Owner != x.Owner || e.Group != x.Group {
					t.Errorf("%+v, expected %+v", e, x.Entry)
				}
				if x.Kind != format.File {
					continue
				}
				var got bytes.Buffer
				if err := a.WriteContent(ctx, &got, e); err != nil || !bytes.Equal(got.Bytes(), x.content) {
					t.Errorf("%q: %v, or it differs", x.Name, err)
				}
				// A piece of the middle.
				if n := len(x.content); n > 10 {
					p := make([]byte, n/3)
					if k, err := a.ReadAt(ctx, e, p, int64(n/2)); err != nil && err != io.EOF || !bytes.Equal(p[:k], x.content[n/2:n/2+k]) || k < len(p) {
						t.Errorf("%q from %d: %d bytes, %v", x.Name, n/2, k, err)
					}
				}
			}
		})
	}
}

func TestTheNumberOfWorkersChangesNothing(t *testing.T) {
	all := assortment()
	if testkit.Race() {
		all = slices.DeleteFunc(all, func(x added) bool { return x.Size > largeFile })
	}
	var first map[string][]byte
	for _, procs := range []int{1, 4} {
		old := runtime.GOMAXPROCS(procs)
		st := &storetest.Mem{}
		pack(t, st, all, map[string]string{"shards": "2"})
		runtime.GOMAXPROCS(old)
		got := map[string][]byte{}
		for info := range st.List(t.Context(), "") {
			got[info.Name] = st.Get(info.Name)
		}
		if first == nil {
			first = got
			continue
		}
		if !slices.Equal(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(got))) {
			t.Fatal("other objects")
		}
		for n := range got {
			if !bytes.Equal(first[n], got[n]) {
				t.Errorf("%d workers: %s is another", procs, n)
			}
		}
	}
}

func TestLargeFilesBeginRecords(t *testing.T) {
	testkit.Long(t)
	st := &storetest.Mem{}
	pack(t, st, assortment(), nil)
	a, err := load(t.Context(), st, "b", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	s, err := a.shard(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	places, err := a.placesOf(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	zeros := 0
	begins := map[int64]bool{}
	for _, p := range places {
		begins[p.off] = true
		if p.at < 0 {
			zeros++
		} else if p.at%defaultAlign != 0 {
			t.Errorf("a record is stored at %d", p.at)
		}
	}
	if zeros < 12 {
		t.Errorf("%d records are all zeros and not stored, expected 12 or more", zeros)
	}
	for _, name := range []string{"large/exactly", "large/more", "large/zeros"} {
		row, ok, err := a.row(t.Context(), name)
		m, merr := parseMeta(row.Value)
		if !ok || err != nil || merr != nil {
			t.Fatal(ok, err, merr)
		}
		if !begins[int64(m.offset)] {
			t.Errorf("%s, of %d bytes, begins no record", name, m.size)
		}
	}
}

func TestHardLinksToNothingAreRefused(t *testing.T) {
	w, err := create(t.Context(), &storetest.Mem{}, "b", format.CreateOptions{Scratch: tmp})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), format.Entry{Name: "x", Kind: format.HardLink, Link: "y"}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = w.Commit(t.Context())
	if e, ok := errors.AsType[kit.EntryError](err); !ok || e.EntryName() != "x" {
		t.Errorf("commit: %v", err)
	}
	w.Abort()
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, param := range []map[string]string{
		{"shards": "0"}, {"shards": "x"}, {"shards": "2", "shard-size": "2000000"}, {"compression": "lzma"}, {"level": "10"}, {"level": "x"},
		{"compression": "none", "level": "3"}, {"record-size": "1"}, {"align": "-1"}, {"index": "inline", "shards": "2"}, {"what": "1"},
	} {
		if Format.CheckParams(format.ToCreate, param) != nil {
			continue
		}
		if w, err := create(t.Context(), &storetest.Mem{}, "b", format.CreateOptions{Scratch: tmp, Param: param}); err == nil {
			w.Abort()
			t.Errorf("%v is taken", param)
		}
	}
}

// A bundle of many files is packed in little memory, opens at once, and lists its
// folders without reading the others.
func TestManyFiles(t *testing.T) {
	testkit.Long(t)
	n := 200_000
	if raced {
		n = 20_000
	}
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "b", format.CreateOptions{Scratch: tmp})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b := strconv.AppendInt(nil, int64(i), 10)
		if err := w.Add(t.Context(), format.Entry{Name: fmt.Sprintf("%03d/%06d", i/1000, i), Size: int64(len(b))}, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	counting := storetest.Count(func(string, string, int64, int64) error { return nil })
	var read int64
	r, err := open(t.Context(), storetest.Fault(st, func(op, name string, off, k int64) error {
		read += k
		return counting.Inject(op, name, off, k)
	}), "b", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Lookup(t.Context(), "012/012345")
	if err != nil || e.Size != 5 {
		t.Fatal(e, err)
	}
	if read > 1<<20 {
		t.Errorf("%d bytes are read for a name", read)
	}
	before := read
	files := 0
	for e, err := range r.ReadDir(t.Context(), "017") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == format.File {
			files++
		}
	}
	if files != 1000 || read-before > 1<<20 {
		t.Errorf("%d files, %d bytes are read for a folder", files, read-before)
	}
	dirs := 0
	for e, err := range r.ReadDir(t.Context(), ".") {
		if err != nil || e.Kind != format.Dir {
			t.Fatal(e, err)
		}
		dirs++
	}
	if dirs != n/1000 {
		t.Errorf("%d folders", dirs)
	}
	if _, err := r.Lookup(context.Background(), "200"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
