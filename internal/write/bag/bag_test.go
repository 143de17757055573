package bag

import (
	"bytes"
	"crypto/md5"
	"crypto/sha512"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// archive is a CAF of files.
func archive(t testing.TB, files map[string]string) *content.Source {
	t.Helper()
	st := &storetest.Mem{}
	f := format.All().ByName("caf")
	w, err := f.Create(t.Context(), st, "x.caf", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.Add(t.Context(), format.Entry{Name: name, Size: int64(len(files[name]))}, strings.NewReader(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return archivetest.Open(t, st, "x.caf")
}

// said returns what a check of a bag of files tells.
func said(t testing.TB, files map[string]string) (all []string) {
	t.Helper()
	src := archive(t, files)
	base, declared := Find(t.Context(), src)
	bad, err := Check(t.Context(), src, base, declared, nil, func(p format.Problem) { all = append(all, p.Entry+": "+p.Message) })
	if err != nil || bad != (len(all) > 0) {
		t.Fatal(bad, all, err)
	}
	slices.Sort(all)
	return all
}

const head = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"

func sum(content string) string { return fmt.Sprintf("%x", md5.Sum([]byte(content))) }

func TestABagIsAsItsManifestsSay(t *testing.T) {
	two := fmt.Sprintf("%X", sha512.Sum512([]byte("a")))
	good := map[string]string{
		"bagit.txt": head, "data/a": "a", "data/d/n\nl%": "n",
		"manifest-md5.txt":    sum("a") + "  data/a\n" + sum("n") + "\t*./data/d/n%0al%25\n",
		"manifest-sha512.txt": two + " data/a\r\n" + fmt.Sprintf("%x", sha512.Sum512([]byte("n"))) + "  data/d/n%0Al%25",
		"tagmanifest-md5.txt": sum(head) + " bagit.txt\n", "more/tags": "in no manifest",
	}
	if all := said(t, good); all != nil {
		t.Errorf("a bag is not sound: %q", all)
	}
	for _, c := range []struct {
		name, content string // "" is no file
		want          []string
	}{
		{"data/a", "b", []string{"data/a: expected md5:" + sum("a") + ", found md5:" + sum("b") + "|data/a: expected sha512:" + strings.ToLower(two)}},
		{"data/a", "", []string{"data/a: it is in manifest-md5.txt, but not in the bag", "data/a: it is in manifest-sha512.txt, but not in the bag"}},
		{"data/new", "x", []string{"data/new: it is not in manifest-md5.txt", "data/new: it is not in manifest-sha512.txt"}},
		{"manifest-md5.txt", sum("a") + " data/a\n", []string{"data/d/n\nl%: it is not in manifest-md5.txt"}},
		{"manifest-md5.txt", good["manifest-md5.txt"] + sum("a") + " data/a\n", []string{"data/a: it is not in manifest-md5.txt", "manifest-md5.txt: data/a does not belong into it, or is in it twice"}},
		{"manifest-md5.txt", good["manifest-md5.txt"] + sum(head) + " bagit.txt\n", []string{"manifest-md5.txt: bagit.txt does not belong into it, or is in it twice"}},
		{"manifest-md5.txt", good["manifest-md5.txt"] + sum("") + " data/../../x\n", []string{"manifest-md5.txt: line 3 is not a digest and the name of a file in the bag"}},
		{"manifest-md5.txt", good["manifest-md5.txt"] + sum("")[2:] + " data/x\n", []string{"manifest-md5.txt: line 3 is not a digest and the name of a file in the bag"}},
		{"manifest-md4.txt", "", nil},
		{"manifest-md4.txt", "x", []string{"manifest-md4.txt: unknown digest: expected md5, sha1, sha256 or sha512"}},
		{"fetch.txt", "http://127.0.0.1/x 1 data/x\n", []string{"fetch.txt: files that are still to be fetched are not supported: complete the bag first"}},
		{"fetch.txt", "", nil},
		{"tagmanifest-md5.txt", sum("x") + " bagit.txt\n", []string{"bagit.txt: expected md5:" + sum("x") + ", found md5:" + sum(head)}},
		{"bagit.txt", "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-16\n", []string{"bagit.txt: expected BagIt-Version and Tag-File-Character-Encoding, which must be UTF-8"}},
		{"bag-info.txt", "Payload-Oxum: 2.2\n", nil},
		{"bag-info.txt", "Bagging-Date: 2026-01-01\r\npayload-oxum: 2.3\r\n", []string{"bag-info.txt: Payload-Oxum, the size and the number of files in data/: expected 2.3, found 2.2"}},
		// Before version 1.0 a percent sign stands for itself.
		{"bagit.txt", strings.Replace(head, "1.0", "0.97", 1), []string{
			"bagit.txt: expected", "data/d/n\nl%25: it is in manifest-md5.txt, but", "data/d/n\nl%25: it is in manifest-sha512.txt, but", "data/d/n\nl%: it is not in manifest-md5", "data/d/n\nl%: it is not in manifest-sha512"}},
	} {
		files := maps.Clone(good)
		if files[c.name] = c.content; c.content == "" {
			delete(files, c.name)
		}
		all := said(t, files)
		nested := map[string]string{}
		for name, content := range files {
			nested["bag/"+name] = content
		}
		for i, told := range said(t, nested) {
			if i >= len(all) || told != "bag/"+all[i] {
				t.Errorf("below a folder: %q, expected %q", told, all)
			}
		}
		ok := len(all) == len(c.want)
		for i := 0; ok && i < len(all); i++ {
			ok = slices.ContainsFunc(strings.Split(c.want[i], "|"), func(one string) bool { return strings.HasPrefix(all[i], one) })
		}
		if !ok {
			t.Errorf("%s is %q: %q, expected %q", c.name, c.content, all, c.want)
		}
	}
}

// Whatever names files have, what is written is a bag, and no other file is touched.
func TestWhatIsWrittenIsABag(t *testing.T) {
	for _, files := range []map[string]string{
		{"a": "a", "d/b": "", "ü€": "unicode", "x\ny\r": "lines", " s ": "spaces"},
		{"100%": "percent", "50%25": "twice"},
		{"%0A": "what stands for a line end", "50%25": "twice"},
		{},
	} {
		dir := t.TempDir()
		if _, err := Write(t.Context(), archive(t, files), local.New(dir), "bag", false, "", unpack.Options{}); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				var b []byte
				b, err = os.ReadFile(p)
				name, in := strings.CutPrefix(filepath.ToSlash(p), filepath.ToSlash(dir)+"/bag/")
				if found[name] = string(b); !in {
					t.Errorf("%s is outside", p)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if got, ok := found["data/"+name]; !ok || got != want {
				t.Errorf("%q is %q", name, got)
			}
		}
		if all := said(t, found); all != nil || len(found) != len(files)+4 {
			t.Errorf("%q: %q", found, all)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"../x", "\xff", "a/../../x"} {
		if _, err := Write(t.Context(), archive(t, map[string]string{name: "x"}), local.New(dir), "bag", false, "", unpack.Options{}); err == nil {
			t.Errorf("%q is written", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Whatever a manifest has, names in it are safe, and those that we write are read again.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(sum("a")+"  data/a\n"+sum("n")+"\t*./data/d/n%0al%25\n"), true)
	f.Add([]byte(sum("a")+"  data/../../x\r\n\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, newer bool) {
		names, encoder := old, encodeOld
		if newer {
			names, encoder = decoded, encode
		}
		none := func(string, ...any) {}
		for _, payload := range []bool{true, false} {
			l := list{"", "md5", payload, map[string]string{}}
			_ = l.read(bytes.NewReader(b), names, none)
			for name, sum := range l.sums {
				if naming.Fault(name) != "" || len(sum) != md5.Size || strings.HasPrefix(name, data) != payload {
					t.Errorf("%q: %q", name, sum)
				}
				if line := fmt.Sprintf("%x  %s\n", sum, encoder.Replace(name)); newer && !strings.ContainsAny(name[:1], " \t*.") {
					again := list{"", "md5", payload, map[string]string{}}
					if err := again.read(strings.NewReader(line), names, none); err != nil && len(line) < 1<<16 || err == nil && again.sums[name] != sum {
						t.Errorf("%q became %q, %v", name, again.sums, err)
					}
				}
			}
		}
	})
}
