package book

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

var update = flag.Bool("update", false, "rewrite the test vectors")

// A vectorFile is a file of a catalogue in testdata/vectors, as the JSON beside the catalogue has it.
type vectorFile struct {
	Name    string            `json:"name,omitempty"`
	NameHex string            `json:"name_hex,omitempty"` // of what is not UTF-8
	Kind    string            `json:"kind"`
	Size    int64             `json:"size"`
	Off     *int64            `json:"offset,omitempty"`
	Digest  string            `json:"digest,omitempty"`
	Time    *time.Time        `json:"time,omitempty"`
	ETag    string            `json:"etag,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Archive int64             `json:"archive"`
	Address string            `json:"address"` // with the folder of the catalogue, if it was relative; escaped, as is Version
	Format  string            `json:"format"`
	Length  int64             `json:"archive_size"`
	Version string            `json:"version,omitempty"`
}

// vectors say what is done to each catalogue, and how large a run in a commit may be.
var vectors = map[string]struct {
	inline int
	do     func(t *testing.T, b *Book)
}{
	// Everything that a row can have, and the rules by which a version counts.
	"small": {mostInline, func(t *testing.T, b *Book) {
		var first, second []catalog.Location
		off := int64(0)
		for i := range int64(40) {
			name := fmt.Sprintf("2026/05/%03d.jpg", i)
			sum := blake3.Sum256([]byte(name))
			l := catalog.Location{Path: name, Size: 100 + i, Raw: true, Off: off, Digest: format.Digest{Algo: "blake3", Sum: string(sum[:])}, Modified: time.Unix(1_790_000_000-i, 0).UTC()}
			l.ETag, l.HeaderText = `"`+hex.EncodeToString(sum[:16])+`"`, catalog.HeaderText(map[string]string{"content-type": fmt.Sprintf("image/%d", i%3)})
			if off += l.Size; i%10 == 9 {
				off += 7
			}
			if first = append(first, l); i%8 == 0 {
				l.Size, l.Off, l.Modified, l.ETag = 1, 10*i, time.Unix(-i, 5).UTC(), `"not an MD5"`
				second = append(second, l)
			}
		}
		first = append(first,
			catalog.Location{Path: "asked", Size: 12, Digest: format.Digest{Algo: "crc32", Sum: "\x01\x02\x03\x04"}},
			catalog.Location{Path: "asked for nothing"},
			catalog.Location{Path: "dir/link", Kind: format.Symlink},
			catalog.Location{Path: "dir/node/property", Kind: format.Property, Size: 3, Raw: true, Off: 5},
			catalog.Location{Path: "large", Size: 1 << 40, Raw: true, Off: 1 << 41},
			catalog.Location{Path: "\xff\xfe", Size: 1}, catalog.Location{Path: "a\x00b", Size: 2}, catalog.Location{Path: "a\x00", Size: 3},
			catalog.Location{Path: "a//b", Size: 4}, catalog.Location{Path: "/absolute", Size: 5}, catalog.Location{Path: "", Size: 6}, catalog.Location{Path: "ü", Size: 7},
			catalog.Location{Path: strings.Repeat("long/", 300), Size: 8},
		)
		added(t, b, catalog.Archive{Address: "s3://bucket/packed/a.caf", Format: "caf", Size: 1 << 42, Version: `"etag"`}, first...)
		added(t, b, catalog.Archive{Address: "https://example.org/b.tar", Format: "tar", Size: 10_000, Version: "2026-11-29T09:51:05.538472Z"}, second...)
		added(t, b, catalog.Archive{Address: "s3://bucket/packed/sub/c.zip", Format: "zip", Size: 1000}, catalog.Location{Path: "2026/05/001.jpg", Size: 9}, catalog.Location{Path: "2026/05/007.jpg", Size: 9}, catalog.Location{Path: "new", Size: 9})
		if _, err := b.Delete(t.Context(), []string{"2026/05/002.jpg", "2026/05/007.jpg", "2026/05/016.jpg"}); err != nil {
			t.Fatal(err)
		}
		added(t, b, catalog.Archive{Address: "s3://bucket/elsewhere/d.caf", Format: "caf", Size: 100, Version: `"d"`}, catalog.Location{Path: "2026/05/002.jpg", Size: 10, Raw: true})
		if _, err := b.Remove(t.Context(), "https://example.org/b.tar"); err != nil {
			t.Fatal(err)
		}
	}},
	// Runs of their own, whose rows are merged, and more archives than a head has.
	"many": {0, func(t *testing.T, b *Book) {
		for k := range 5 {
			var all []catalog.Addition
			for i := range 30 {
				l := []catalog.Location{{Path: fmt.Sprintf("%02d/%d", i, k), Size: 10, Raw: true, Off: int64(k)}, {Path: fmt.Sprintf("same/%02d", i), Size: int64(k)}}
				all = append(all, catalog.Addition{Archive: catalog.Archive{Address: fmt.Sprintf("s3://bucket/packed/%d-%02d.caf", k, i), Format: "caf", Size: 100, Version: fmt.Sprintf(`"%d"`, 100*k+i)}, Rows: listed(l)})
			}
			if _, err := b.Add(t.Context(), all...); err != nil {
				t.Fatal(err)
			}
			if k == 3 { // what was written before has the old addresses
				for _, m := range [][2]string{{"s3://bucket/packed/1-", "s3://bucket/moved/1-"}, {"s3://bucket/moved/1-2", "https://example.org/\xff/2"}} {
					if _, err := b.Relocate(t.Context(), m[0], m[1]); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		added(t, b, catalog.Archive{Address: "s3://bucket/packed/a%20b%2520.caf", Format: "caf", Size: 100, Version: "\xfe"}, catalog.Location{Path: "odd", Size: 1, Raw: true})
	}},
	// What a fleet does with a catalogue that was made again.
	"fleet": {400, func(t *testing.T, b *Book) {
		do := func(x Step) int64 {
			t.Helper()
			done, err := b.Do(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return done.Number
		}
		if err := b.Follow(t.Context(), []Record{{Catalog: "LOST", Commit: 40}}); err != nil {
			t.Fatal(err)
		}
		roots := catalog.Roots(`[["s3://photos",""]]`)
		do(Step{Plans: []Plan{NewPlan("s3://bucket/packed/photos.caf", json.RawMessage(`{"sources":["s3://photos"]}`))}})
		pack := func(job string, seq int64, names ...string) {
			t.Helper()
			var all []catalog.Location
			for i, n := range names {
				all = append(all, catalog.Location{Path: n, Size: 10 + seq, Raw: true, Off: int64(i) * (10 + seq), ETag: fmt.Sprintf(`"%d"`, seq), Seq: seq})
			}
			do(Step{Job: job, Since: seq, Add: []catalog.Addition{{Archive: catalog.Archive{Address: "s3://bucket/packed/photos-" + job + ".caf", Format: "caf", Size: 1000, Version: `"` + job + `"`, Roots: roots}, Rows: listed(all)}}})
		}
		first := do(Step{Begins: true})
		second := do(Step{Begins: true})
		pack("second", second, "a", "b", "c")
		pack("first", first, "b", "c", "d", "e", "f") // later, but it lists what was there before
		fates := func(of int64, original rows.Original, names ...string) {
			t.Helper()
			do(Step{Rows: func(yield func(*rows.Row, error) bool) {
				for _, n := range names {
					if !yield(&rows.Row{Name: n, What: rows.Fate, Of: of, Original: original}, nil) {
						return
					}
				}
			}})
		}
		do(Step{Listed: &Listing{Number: second, Roots: roots}})
		fates(second, rows.Leaving, "a", "b")
		fates(first, rows.Missing, "d", "e")
		fates(first, rows.Stays, "e")
		archives, err := b.Archives(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x := Step{Job: "compact"}
		for _, a := range archives {
			x.Instead = append(x.Instead, a.ID)
		}
		x.Add = []catalog.Addition{{Archive: catalog.Archive{Address: "s3://bucket/packed/photos-compact.caf", Format: "caf", Size: 1000, Version: `"compact"`, Roots: roots}, Rows: func(yield func(catalog.Location, error) bool) {
			for l, err := range b.Below(t.Context(), "") {
				l.Off += 500
				if !yield(l, err) {
					return
				}
			}
		}}}
		do(x)
		do(Step{Removed: []ID{ID(archives[0].ID)}})
		do(Step{Rows: func(yield func(*rows.Row, error) bool) {
			yield(&rows.Row{Name: "f", What: rows.Delete, Seq: second}, nil)
		}})
	}},
}

// addressed is a bucket.
type addressed struct{ *storetest.Mem }

func (a addressed) Can() store.Abilities {
	can := a.Mem.Can()
	can.Address = func(name string) string { return "s3://bucket/" + name }
	return can
}

func added(t *testing.T, b *Book, a catalog.Archive, all ...catalog.Location) {
	t.Helper()
	if _, err := b.Add(t.Context(), catalog.Addition{Archive: a, Rows: listed(all)}); err != nil {
		t.Fatal(err)
	}
}

// TestTheVectorsAreWhatIsWritten makes the catalogues of testdata/vectors again, and reads them.
func TestTheVectorsAreWhatIsWritten(t *testing.T) {
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			st, at := addressed{&storetest.Mem{}}, "packed/"+name+Suffix
			seconds, texts := int64(1_800_000_000), 0
			b, err := create(t.Context(), newBook(st, at, Options{
				Write:  true,
				Now:    func() time.Time { seconds++; return time.Unix(seconds, 123_456_789) },
				text:   func() string { texts++; return fmt.Sprintf("TEXT%d", texts) },
				inline: v.inline,
			}))
			if err != nil {
				t.Fatal(err)
			}
			v.do(t, b)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			is := map[string][]byte{}
			for info := range st.List(t.Context(), at) {
				is[strings.TrimPrefix(info.Name, "packed/")] = st.Get(info.Name)
			}
			is[name+".json"] = filesOf(t, b)
			folder := filepath.Join("testdata", "vectors")
			if *update {
				for _, end := range []string{Suffix, Suffix + goneSuffix} {
					if err := os.RemoveAll(filepath.Join(folder, name+end)); err != nil {
						t.Fatal(err)
					}
				}
				for n, content := range is {
					path := filepath.Join(folder, filepath.FromSlash(n))
					if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, content, 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
			was := map[string][]byte{}
			err = fs.WalkDir(os.DirFS(folder), ".", func(p string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && (p == name+".json" || strings.HasPrefix(p, name+Suffix)) {
					was[p], err = os.ReadFile(filepath.Join(folder, filepath.FromSlash(p)))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range slices.Sorted(maps.Keys(is)) {
				if !bytes.Equal(is[n], was[n]) {
					t.Errorf("%s is not what is written: -update, and read the difference", n)
				}
				delete(was, n)
			}
			for n := range was {
				t.Errorf("%s is not written", n)
			}

			// Readers that begin with the head, with a stored state, or with the first commit see the same.
			for _, without := range []string{"", "head", "states/"} {
				left := addressed{&storetest.Mem{}}
				for n, content := range is {
					if without == "" || !strings.HasPrefix(n, name+Suffix+"/"+without) && n != name+Suffix+"/head" {
						left.Put("packed/"+n, content)
					}
				}
				x, err := Open(t.Context(), left, at, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(filesOf(t, x), is[name+".json"]) {
					t.Errorf("without %q other files are read", without)
				}
			}
		})
	}
}

// filesOf are the files of a catalogue as JSON.
func filesOf(t *testing.T, b *Book) []byte {
	t.Helper()
	all := []vectorFile{}
	for l, err := range b.Below(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		found, err := b.Newest(t.Context(), l.Path)
		if err != nil || found.Location != l {
			t.Fatalf("%q: %+v, listed %+v, %v", l.Path, found.Location, l, err)
		}
		headers, err := b.HeadersOf(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		f := vectorFile{Name: l.Path, Kind: l.Kind.String(), Size: l.Size, ETag: l.ETag, Headers: headers, Archive: l.Archive, Address: format.Escape(found.In.Address), Format: found.In.Format, Length: found.In.Size, Version: format.Escape(found.In.Version)}
		if !utf8.ValidString(l.Path) {
			f.Name, f.NameHex = "", hex.EncodeToString([]byte(l.Path))
		}
		if l.Raw {
			f.Off = &l.Off
		}
		if l.Digest.Algo != "" {
			f.Digest = l.Digest.Algo + ":" + hex.EncodeToString([]byte(l.Digest.Sum))
		}
		if !l.Modified.IsZero() {
			f.Time = &l.Modified
		}
		all = append(all, f)
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}
