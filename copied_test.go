package holdall_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
)

// copied packs files, indexes the archive, and copies both as cp does, so that the copies have other times. An
// archive that is not long is compared whole, so there are 2 MiB more.
func copied(t *testing.T, rnd *rand.Rand, kind string, plain bool, chunk int64, files map[string]string) string {
	t.Helper()
	files["long"] = string(testkit.Noise(rnd, 2<<20))
	from, to := filepath.Join(t.TempDir(), "x"), filepath.Join(t.TempDir(), "x")
	_, err := holdall.Pack(t.Context(), from, []string{tree(t, files)}, holdall.PackOptions{Format: kind, Plain: plain})
	if err == nil {
		_, err = holdall.BuildIndex(t.Context(), from, "", holdall.IndexOptions{Chunk: chunk})
	}
	if err == nil {
		if fi, _ := os.Stat(from); fi.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			err = os.Rename(from, to)
		}
	}
	if err = errors.Join(err, os.Rename(from+kept.Suffix, to+kept.Suffix)); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Minute)
	at(t, to, now)
	at(t, to+kept.Suffix, now.Add(time.Second))
	return to
}

// at sets the time of a file, or of all files of a folder.
func at(t *testing.T, path string, when time.Time) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(p, when, when))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func beside(t *testing.T, address string, o holdall.OpenOptions) *holdall.Archive {
	t.Helper()
	o.Index = holdall.UseIndex{Beside: true}
	a, err := holdall.Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// An archive and its index are used where they were copied to: on a disk, and on a server. Each bit that is
// turned in the archive's contents is noticed, or the bytes are right.
func TestAnArchiveCanBeCopiedWithItsIndex(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, kind := range []string{"caf", "databundle", "lindi", "oak", "rvn", "tar", "zip"} {
		for _, chunk := range []int64{0, 64 << 10} {
			t.Run(fmt.Sprint(kind, chunk), func(t *testing.T) {
				files := map[string]string{}
				for i := range 5 {
					files[fmt.Sprintf("d%d/f%d", i%2, i)] = string(testkit.Noise(rnd, 3000*i))
				}
				path := copied(t, rnd, kind, false, chunk, files)
				web := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
				defer web.Close()
				fi, _ := os.Stat(path)
				addresses := []string{path}
				if !fi.IsDir() {
					addresses = append(addresses, web.URL+"/x")
				}
				check := func(damaged bool) (wrong int) {
					for _, address := range addresses {
						a := beside(t, address, holdall.OpenOptions{})
						if a.Index().Used == "" {
							t.Fatalf("%s: %+v", address, a.Index())
						}
						seen := 0
						for e, err := range a.Entries(t.Context()) {
							if err != nil {
								t.Fatal(err)
							}
							name := e.Name
							if kind == "oak" {
								name = strings.TrimSuffix(name, "/jcr:content/jcr:data")
							}
							want, ok := files[name]
							if !ok || name == e.Name && kind == "oak" {
								continue
							}
							seen++
							got, err := a.Get(t.Context(), e.Name, 4<<20)
							if !damaged && err != nil || err == nil && string(got) != want {
								t.Errorf("%s: %s: %d bytes, %v", address, e.Name, len(got), err)
							}
							p := make([]byte, min(10, len(want)))
							if _, rerr := a.ReadAt(t.Context(), e, p, int64(len(want)-len(p))); (rerr == nil || !damaged) && string(p) != want[len(want)-len(p):] {
								t.Errorf("%s: the end of %s: %v", address, e.Name, rerr)
							}
							if err != nil {
								wrong++
							}
						}
						if seen != len(files) {
							t.Errorf("%s: %d of %d files", address, seen, len(files))
						}
					}
					return wrong
				}
				check(false)
				if fi.IsDir() || chunk == 0 && kind == "tar" { // which has no digests
					return
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				noticed := 0
				for range testkit.Rounds(t, 20) {
					bad := bytes.Clone(b)
					bad[5000+rnd.IntN(len(b)-10_000)] ^= 1 << rnd.IntN(8)
					if err := os.WriteFile(path, bad, 0o666); err != nil {
						t.Fatal(err)
					}
					at(t, path, time.Now())
					noticed += check(true)
				}
				if noticed == 0 {
					t.Error("no damage was noticed")
				}
			})
		}
	}
}

// An archive that was changed in its middle after it was indexed has the same length and the same ends. Its
// index is older, and not used. If the index claims to be newer, what is read is that of the archive, or an error.
func TestAnArchiveThatWasChangedIsNotReadByItsOldIndex(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, kind := range []string{"caf", "tar"} {
		for _, plain := range []bool{false, true} {
			for _, chunk := range []int64{0, 64 << 10} {
				files := map[string]string{"a": strings.Repeat("a", 5000), "m": "old old", "z": strings.Repeat("z", 5000)}
				path := copied(t, rnd, kind, plain, chunk, files)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, bytes.Replace(b, []byte("old old"), []byte("new new"), 1), 0o666); err != nil {
					t.Fatal(err)
				}
				said := time.Now().Add(time.Hour)
				for _, lies := range []bool{false, true} {
					at(t, path, said)
					at(t, path+kept.Suffix, said.Add(map[bool]time.Duration{false: -time.Second, true: time.Second}[lies]))
					a := beside(t, path, holdall.OpenOptions{})
					if used := a.Index(); (used.Used != "") != lies || !lies && !strings.Contains(fmt.Sprint(used.Why), "the archive is newer") {
						t.Errorf("%s, plain %v, chunk %d, lies %v: %+v", kind, plain, chunk, lies, used)
					}
					got, err := a.Get(t.Context(), "m", 100)
					if err == nil && string(got) != "new new" || err != nil && !errors.Is(err, format.ErrCorrupt) {
						t.Errorf("%s, plain %v, chunk %d, lies %v: %q, %v", kind, plain, chunk, lies, got, err)
					}
					if plain && !lies && err != nil {
						t.Errorf("%s, chunk %d: %v", kind, chunk, err)
					}
				}
			}
		}
	}
}

// A name of which the archive has other content than its copied index says is an error, and the index is not
// used any more.
func TestACopiedIndexThatIsWrongIsGivenUp(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{"a": strings.Repeat("a", 5000), "m": "same", "z": strings.Repeat("z", 5000)}
	path := copied(t, rnd, "tar", true, 0, files)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := bytes.Index(b, append([]byte("m"), make([]byte, 99)...)) // the header of m
	renamed(t, b[name:])
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	at(t, path, time.Now())
	a := beside(t, path, holdall.OpenOptions{})
	if a.Index().Used == "" {
		t.Fatalf("%+v", a.Index())
	}
	_, err = a.Get(t.Context(), "m", 100)
	if err == nil || a.Index().Used != "" || a.Index().Why == nil {
		t.Errorf("%v, %+v", err, a.Index())
	}
	if got, err := a.Get(t.Context(), "n", 100); err != nil || string(got) != "same" {
		t.Errorf("%q, %v", got, err)
	}
}

// renamed changes the first byte of the name in a header of a tar, and its checksum.
func renamed(t *testing.T, header []byte) {
	t.Helper()
	sum, err := strconv.ParseUint(string(header[148:154]), 8, 64)
	if err != nil {
		t.Fatal(err)
	}
	header[0]++
	copy(header[148:], fmt.Sprintf("%06o", sum+1))
}

// A short archive is compared whole with what its index was made of, whatever its time.
func TestAShortArchiveIsComparedWholeWithItsIndex(t *testing.T) {
	path := packed(t, t.TempDir(), map[string]string{"a": strings.Repeat("a", 9000), "m": "old", "z": strings.Repeat("z", 9000)})
	sound := index(t, path)
	later := time.Now().Add(time.Hour)
	at(t, path, later)
	if a := beside(t, path, holdall.OpenOptions{}); a.Index().Used == "" {
		t.Errorf("of another time: %+v", a.Index())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte("old"), []byte("new"), 1), 0o666); err != nil {
		t.Fatal(err)
	}
	at(t, path, later)
	if err := os.WriteFile(path+kept.Suffix, sound, 0o666); err != nil {
		t.Fatal(err)
	}
	at(t, path+kept.Suffix, later.Add(time.Second))
	if a := beside(t, path, holdall.OpenOptions{}); a.Index().Used != "" || a.Index().Why == nil {
		t.Errorf("of other content: %+v", a.Index())
	}
}

// What is made of a copy of an archive is made of what that has, also where its old index says something else: the
// name of a member of a tar.
func TestNothingThatLastsIsMadeOfAnOldIndex(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, stale := range []bool{false, true} {
		path := copied(t, rnd, "tar", true, 64<<10, map[string]string{"a": strings.Repeat("a", 5000), "m": "same", "z": strings.Repeat("z", 5000)})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := "m"
		if stale {
			name := bytes.Index(b, append([]byte("m"), make([]byte, 99)...))
			renamed(t, b[name:])
			want = "n"
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		at(t, path, time.Now())
		a := beside(t, path, holdall.OpenOptions{})
		out := filepath.Join(t.TempDir(), "x.caf")
		if _, err := holdall.Convert(t.Context(), a, out, holdall.PackOptions{Format: "caf"}); err != nil {
			t.Fatal(err)
		}
		if used := a.Index().Used != ""; used == stale {
			t.Errorf("stale %v: %+v", stale, a.Index())
		}
		if got, err := beside(t, out, holdall.OpenOptions{}).Get(t.Context(), want, 100); err != nil || string(got) != "same" {
			t.Errorf("stale %v: %q, %v", stale, got, err)
		}
	}
}
