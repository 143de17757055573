package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

// TestDryAmendmentIsLikeAFile changes a file at random, and compares the bytes
// read from it with a slice. The file stays unchanged.
func TestDryAmendmentIsLikeAFile(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 30) {
		was := testkit.Noise(rnd, 200)
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, was, 0o666); err != nil {
			t.Fatal(err)
		}
		st, name, err := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{}).storeOf(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := st.(*local.Store); !ok {
			t.Fatalf("%T", st)
		}
		m, err := dryStore{Store: st}.Can().Amend(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(was)
		for range 40 {
			if off := rnd.IntN(len(want) + 1); rnd.IntN(5) == 0 {
				want = want[:off]
				if err := m.Truncate(t.Context(), int64(off)); err != nil {
					t.Fatal(err)
				}
			} else {
				b := testkit.Noise(rnd, rnd.IntN(60))
				want = append(want[:off:off], append(b, want[min(len(want), off+len(b)):]...)...)
				if err := m.WriteAt(t.Context(), b, int64(off)); err != nil {
					t.Fatal(err)
				}
			}
			from := rnd.IntN(len(want) + 1)
			got := make([]byte, rnd.IntN(len(want)-from+1))
			if err := m.ReadAt(t.Context(), got, int64(from)); err != nil || m.Size() != int64(len(want)) {
				t.Fatalf("%d bytes, want %d; %v", m.Size(), len(want), err)
			}
			if !bytes.Equal(got, want[from:][:len(got)]) {
				t.Fatalf("bytes %d to %d are not what was written", from, from+len(got))
			}
		}
		if m.WriteAt(t.Context(), []byte("x"), m.Size()+1) == nil || m.ReadAt(t.Context(), make([]byte, 1), m.Size()) == nil {
			t.Error("beyond the end")
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, was) {
			t.Fatal("the file was changed", err)
		}
	}
}

// TestDryExtractionReportsWhatARealOneDoes extracts archives with names, links
// and damage that are refused, into folders where other files are in the way.
func TestDryExtractionReportsWhatARealOneDoes(t *testing.T) {
	archives, err := filepath.Glob("../../format/caf/testdata/fixtures/*.caf")
	if err != nil || len(archives) < 10 {
		t.Fatal(len(archives), err)
	}
	links := filepath.Join(t.TempDir(), "links.tar")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "there", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "in", Typeflag: tar.TypeSymlink, Linkname: "d/f"}, {Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		{Name: "hard", Typeflag: tar.TypeLink, Linkname: "d/f"}, {Name: "dangling", Typeflag: tar.TypeLink, Linkname: "nothing"},
		{Name: "kept", Typeflag: tar.TypeSymlink, Linkname: "d"}, {Name: "file/x", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "d/f/x", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "../x", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "folder", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(links, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, archive := range append(archives, links) {
		for _, flags := range [][]string{nil, {"--overwrite"}, {"--outside-links", "--overwrite"}} {
			dir := filepath.Join(t.TempDir(), "out")
			testkit.Tree(t, dir, map[string]string{"there": "x", "kept": "x", "file": "x", "folder/x": "x"})
			before := extracted(t, dir)
			args := append([]string{"extract", archive, "-C", dir}, flags...)
			dry := verb(t, append(args, "-n")...)
			if after := extracted(t, dir); after != before {
				t.Errorf("%s: a dry run wrote:\n%s", archive, after)
			}
			real := verb(t, args...)
			dry.shown = strings.Replace(dry.shown, " (dry run: nothing is written)", "", 1)
			// The system has its own message for a name that is already used.
			count := func(s said) int { return strings.Count(s.error, "\n") }
			if dry.code != real.code || dry.shown != real.shown || count(dry) != count(real) {
				t.Errorf("%s %s:\n%+v\na real one:\n%+v", archive, flags, dry, real)
			}
			refused += count(real)
		}
	}
	if refused < 20 {
		t.Errorf("only %d were refused", refused)
	}
}
