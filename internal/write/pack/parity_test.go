package pack_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// wantProtected checks that the parity beside an archive is of it.
func wantProtected(t *testing.T, st store.Store, name string) {
	t.Helper()
	g, err := parity.Seek(t.Context(), st, name, "", nil)
	if err != nil || g == nil || g.Suits != nil {
		t.Fatalf("%s: found %v, %v", name, g, err)
	}
	defer g.Close()
	if r, err := g.Check(t.Context(), false, nil); err != nil || r.Damaged > 0 || r.ParityBroken > 0 || r.Blocks == 0 {
		t.Errorf("%s: found %+v, %v", name, r, err)
	}
}

func TestPackWritesParityOfEveryFormat(t *testing.T) {
	t.Parallel()
	dir, rnd := t.TempDir(), testkit.Rand(t)
	for i := range 300 {
		name := filepath.Join(dir, "in", fmt.Sprint("d", i%7), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, testkit.Noise(rnd, rnd.IntN(20_000)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "in", "large"), testkit.Noise(rnd, 3<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	st := local.New(dir)
	st.NoSync = true
	for _, f := range format.All() {
		if f.Create == nil || f.Name == "oak" {
			continue // Oak's is tested where its content is made
		}
		t.Run(f.Name, func(t *testing.T) {
			name := "x" + f.Extensions[0]
			o := pack.Options{Format: f.Name, Protect: 0.05}
			sum, err := pack.Pack(t.Context(), st, name, []string{filepath.Join(dir, "in")}, o)
			if err != nil || sum.Parity != name+".parity" || sum.ParityBytes == 0 {
				t.Fatalf("found %+v, %v", sum, err)
			}
			wantProtected(t, st, name)
			in := archivetest.OpenAs(t, st, name, f, format.OpenOptions{})
			if _, err := pack.Convert(t.Context(), in, st, "of-"+f.Name+".tar", pack.Options{Protect: 0.1}); err != nil {
				t.Fatal(err)
			}
			wantProtected(t, st, "of-"+f.Name+".tar")
		})
	}
	o := pack.Options{Format: "caf", ChunkSize: 2e6, Protect: 0.02}
	sum, err := pack.Pack(t.Context(), st, "set.caf", []string{filepath.Join(dir, "in")}, o)
	if err != nil || len(sum.Volumes) < 2 || sum.Parity != "set.caf.parity" {
		t.Fatalf("found %+v, %v", sum, err)
	}
	wantProtected(t, st, sum.Volumes[1])
}

// What goes to a bucket is not read from there again, and the parity knows the version
// that it will be.
func TestParityOfABucketIsWrittenWithoutReadingIt(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	for i := range 40 {
		s.Put("source", fmt.Sprint("small", i), numbered(1000*i+1, i))
	}
	s.Put("source", "large", numbered(20<<20, 1))
	for _, name := range []string{"x.caf", "x.tar"} {
		s.Took()
		sum, err := pack.Objects(t.Context(), target, name, objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats, Protect: 0.05})
		if err != nil || sum.Parity == "" {
			t.Fatalf("found %+v, %v", sum, err)
		}
		for _, r := range s.Took() {
			if strings.HasPrefix(r, "GET /target/"+name) || strings.HasPrefix(r, "HEAD") {
				t.Errorf("%s: found %s", name, r)
			}
		}
		wantProtected(t, target, name)
		s.Took()
		g, err := parity.Seek(t.Context(), target, name, "", nil)
		if err != nil || g.Suits != nil {
			t.Fatalf("found %v", err)
		}
		g.Close()
		for _, r := range s.Took() {
			if strings.HasPrefix(r, "GET /target/"+name+" ") && !strings.HasSuffix(r, "bytes=0-0") {
				t.Errorf("to know that it is the same version it was read: %s", r)
			}
		}
	}
}

// A pack that ends early leaves neither archive nor parity.
func TestPackThatFailsLeavesNoParity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("x"), 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	st := local.New(filepath.Join(dir, "out"))
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	o := pack.Options{Protect: 0.05, Confirm: func(context.Context) error { return context.Canceled }}
	if _, err := pack.Pack(t.Context(), st, "x.caf", []string{filepath.Join(dir, "f")}, o); err == nil {
		t.Fatal("expected an error")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "out")); err != nil || len(left) > 0 {
		t.Errorf("found %v, %v", left, err)
	}
}
