package rvn

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// repositoryOf makes a repository of packages.
func repositoryOf(t *testing.T, packages map[string][]byte) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	var catalog strings.Builder
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range packages {
			if !yield(n) {
				return
			}
		}
	}) {
		b := packages[name]
		sum := blake3.Sum256(b)
		fmt.Fprintf(&catalog, "{abi:\"x\",namebase:%q,subpackage:\"primary\",variant:\"std\",version:\"1.0_1\",rvnsize:%d,rvndigest:\"%x\"}\n", name, len(b), sum)
		st.Put("repo/files/"+name+"~primary~std~1.0_1.rvn", b)
	}
	made := &storetest.Mem{}
	w, err := create(t.Context(), made, "x.rvn", format.CreateOptions{Scratch: fileScratch(t)})
	if err == nil {
		err = w.Add(t.Context(), format.Entry{Name: catalogText, Size: int64(catalog.Len())}, strings.NewReader(catalog.String()))
	}
	if err == nil {
		_, err = w.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b := made.Get("x.rvn")
	sum := blake3.Sum256(b)
	st.Put("repo/"+catalogArchive, b)
	st.Put("repo/"+catalogSum, []byte(hex.EncodeToString(sum[:])+"\n"))
	return st
}

func TestRepositoriesAreComparedWithTheirCatalogue(t *testing.T) {
	packages := map[string][]byte{"a": fixture(t, "basic"), "b": fixture(t, "links"), "c": fixture(t, "one-file")}
	st := repositoryOf(t, packages)
	r, err := open(t.Context(), st, "repo", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
			sum := blake3.Sum256(st.Get(x.Object)[x.Off:][:x.Len])
			if err != nil || string(sum[:]) != e.Digest.Sum || x.Codec != "" {
				t.Errorf("%s: %+v, %v", e.Name, x, err)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d packages", n)
	}
	if got := check(t.Context(), t, st, "repo"); len(got) > 0 {
		t.Errorf("a sound repository: %q", got)
	}
	if detect(format.Probe{Name: "repo", Size: -1, Names: []string{catalogArchive, "files/a.rvn"}}) != format.Certain {
		t.Error("it is not detected")
	}

	st.Put("repo/files/a~primary~std~1.0_1.rvn", packages["b"]) // of another length
	st.Put("repo/files/d.rvn", packages["c"])
	st.Put("repo/"+catalogSum, []byte("0000"))
	if err := st.Remove(t.Context(), "repo/files/b~primary~std~1.0_1.rvn"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(check(t.Context(), t, st, "repo"), " "); got != "catalog-sum package package package" {
		t.Errorf("found %q", got)
	}
	if _, err := open(t.Context(), st, "nothing", format.OpenOptions{}); err == nil {
		t.Error("nothing opens")
	}
}
