package holdall_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

// Pack a folder, open the archive, and read one file of it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "holdall-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	docs := filepath.Join(dir, "docs")
	os.Mkdir(docs, 0o777)
	os.WriteFile(filepath.Join(docs, "intro.md"), []byte("hello\n"), 0o666)

	sum, err := holdall.Pack(ctx, filepath.Join(dir, "docs.caf"), []string{docs}, holdall.PackOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.Entries, "file packed")

	a, err := holdall.Open(ctx, filepath.Join(dir, "docs.caf"), holdall.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	e, err := a.Lookup(ctx, "intro.md")
	if err != nil {
		log.Fatal(err)
	}
	if err := a.WriteContent(ctx, os.Stdout, e); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 file packed
	// hello
}

// An archive can be used wherever an fs.FS is accepted.
func ExampleArchive_FS() {
	ctx := context.Background()
	a, err := holdall.Open(ctx, "format/caf/testdata/fixtures/g-basic.caf", holdall.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	names, err := fs.Glob(a.FS(ctx), "*")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(names), "names at the top")
	// Output:
	// 5 names at the top
}

// Entries yields entries in stored order, with everything that the archive stores about them.
func ExampleArchive_Entries() {
	ctx := context.Background()
	a, err := holdall.Open(ctx, "format/caf/testdata/fixtures/v-overlap.caf", holdall.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	for e, err := range a.Entries(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Name, e.Size)
	}
	// Output:
	// a 40
	// b 35
}
