package holdall_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// nearMem is a store in memory that says that it is a disk.
type nearMem struct{ *storetest.Mem }

func (n nearMem) Can() store.Abilities {
	can := n.Mem.Can()
	can.Near = true
	return can
}

// protected packs files and protects them.
func protected(t *testing.T, format string, files map[string]string, loss float64) *storetest.Mem {
	t.Helper()
	st := packedAs(t, format, nil, files)
	if _, err := holdall.Protect(t.Context(), []string{"x"}, "x"+parity.Suffix, holdall.ProtectOptions{Store: st, To: st, Loss: loss}); err != nil {
		t.Fatal(err)
	}
	return st
}

// hurt damages some bytes of what is called x or is below it.
func hurt(t *testing.T, st *storetest.Mem, rnd *rand.Rand, n int) (what string) {
	var names []string
	for _, name := range objectsIn(t, st) {
		if !strings.HasSuffix(name, parity.Suffix) && len(st.Get(name)) > 0 {
			names = append(names, name)
		}
	}
	for range n {
		name := names[rnd.IntN(len(names))]
		b := bytes.Clone(st.Get(name))
		at := rnd.IntN(len(b))
		b[at] ^= byte(1 + rnd.IntN(255))
		st.Put(name, b)
		what += fmt.Sprintf(" %s:%d", name, at)
	}
	return what
}

// contentsOf reads all of what is called x.
func contentsOf(t *testing.T, st store.Store) map[string]string {
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	all := map[string]string{}
	err = a.Contents(t.Context(), func(e holdall.Entry) bool { return e.Kind.HasContent() }, func(e holdall.Entry, r io.Reader, err error) error {
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		all[e.Name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// someOf are two of some formats, chosen at random, and all with HOLDALL_LONG.
func someOf(t *testing.T, all ...string) []string {
	if testkit.Rounds(t, 1) > 1 {
		return all
	}
	testkit.Rand(t).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:2]
}

// Whatever is damaged of an archive with parity beside it, all of it can be read, in every
// way to read it. Package content tries all formats.
func TestDamageIsHealedInEveryWayToRead(t *testing.T) {
	for _, format := range append(someOf(t, "lindi", "rvn", "zip", "tar", "databundle", "oak"), "caf") {
		for _, near := range []bool{true, false} {
			if (format == "tar" || format == "zip") && !near {
				// Nothing tells of damage to contents of the one, and to the directory of the
				// other; from afar parity is looked for when something does.
				continue
			}
			t.Run(fmt.Sprint(format, near), func(t *testing.T) {
				if format != "caf" {
					testkit.Serial(t)
				}
				rnd := testkit.Rand(t)
				files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10)), "e": ""}
				for i := range 20 {
					files[fmt.Sprintf("d%d/f%02d", i%3, i)] = string(testkit.Noise(rnd, 1+rnd.IntN(12000)))
				}
				sound := protected(t, format, files, 0.2)
				if format == "oak" { // which has more in it than files
					files = contentsOf(t, sound)
				}
				for range testkit.Rounds(t, 1) {
					mem := sound.Clone()
					what := hurt(t, mem, rnd, 1+rnd.IntN(12))
					st := store.Store(mem)
					if near {
						st = nearMem{mem}
					}
					a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
					if err != nil {
						t.Fatal(what, err)
					}
					if a.Doubt() != nil {
						t.Errorf("%s: in doubt: %v", what, a.Doubt())
					}
					a.Healing() // whoever asks early keeps nothing from being healed
					seen := 0
					err = a.Contents(t.Context(), func(e holdall.Entry) bool { _, ours := files[e.Name]; return ours }, func(e holdall.Entry, r io.Reader, err error) error {
						if err != nil {
							return err
						}
						b, err := io.ReadAll(r)
						if err == nil && string(b) != files[e.Name] {
							err = fmt.Errorf("%s: wrong", e.Name)
						}
						seen++
						return err
					})
					if err != nil || seen != len(files) {
						t.Fatalf("%s: contents: %v, %d of %d", what, err, seen, len(files))
					}
					for name, want := range files {
						e, err := a.Lookup(t.Context(), name)
						if err != nil {
							t.Fatal(what, err)
						}
						if bad := readInEveryWay(t, a, e, want, rnd); len(bad) > 0 {
							t.Fatalf("%s: %s: %v", what, name, bad)
						}
						if got, err := fs.ReadFile(a.FS(t.Context()), name); err != nil || string(got) != want {
							t.Fatalf("%s: ReadFile of %s: %v", what, name, err)
						}
					}
					if _, _, ignored := a.Healing(); ignored != nil {
						t.Errorf("%s: %v", what, ignored)
					}
					a.Close()
				}
			})
		}
	}
}

// An archive in which bytes were inserted, removed, exchanged or doubled reads as it was.
func TestMovedBytesAreHealedWhileRead(t *testing.T) {
	for _, format := range []string{"caf", "lindi", "rvn", "zip", "tar"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10)), "e": ""}
			for i := range 20 {
				files[fmt.Sprintf("d%d/f%02d", i%3, i)] = string(testkit.Noise(rnd, 1+rnd.IntN(12000)))
			}
			sound := protected(t, format, files, 0.1)
			objects := slices.DeleteFunc(objectsIn(t, sound), func(name string) bool {
				return strings.HasSuffix(name, parity.Suffix) || len(sound.Get(name)) < 100
			})
			for i := range testkit.Rounds(t, 2*len(testkit.Moves)) {
				mem := sound.Clone()
				name, kind := objects[rnd.IntN(len(objects))], testkit.Moves[i%len(testkit.Moves)]
				b := testkit.Move(rnd, mem.Get(name), kind)
				if i == 0 { // into the last block, which nothing fills
					was := mem.Get(name)
					at := len(was) - 1 - rnd.IntN(2000)
					b = slices.Concat(was[:at], testkit.Noise(rnd, 10), was[at:])
				}
				mem.Put(name, b)
				got := contentsOf(t, nearMem{mem})
				for f, want := range files {
					if got[f] != want {
						t.Errorf("round %d, %s in %s, %d bytes instead of %d: %s is not what it was", i, kind, name, len(b), len(sound.Get(name)), f)
					}
				}
			}
		})
	}
}

// Parity of another version of an archive, or one that was made to mislead, changes nothing
// that is read of content with a digest, nor what is in the archive.
func TestForeignParityChangesNothing(t *testing.T) {
	for _, format := range append(someOf(t, "lindi", "rvn", "zip", "databundle", "oak"), "caf") {
		for _, near := range []bool{true, false} {
			t.Run(fmt.Sprint(format, near), func(t *testing.T) {
				rnd := testkit.Rand(t)
				files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10))}
				for i := range 20 {
					files[fmt.Sprintf("d%d/f%02d", i%3, i)] = string(testkit.Noise(rnd, 1+rnd.IntN(12000)))
				}
				other := maps.Clone(files)
				for _, name := range []string{"long", "d0/f03", "d1/f07"} {
					b := []byte(files[name])
					b[rnd.IntN(len(b))]++
					other[name] = string(b)
				}
				withParityOf(t, format, near, files, other)
			})
		}
	}
}

// withParityOf reads an archive of files beside which the parity of one of other files lies.
func withParityOf(t *testing.T, format string, near bool, files, other map[string]string) {
	t.Helper()
	st, was := packedAs(t, format, nil, files), protected(t, format, other, 0.2)
	if format == "oak" {
		files = contentsOf(t, st)
	}
	st.Put("x"+parity.Suffix, was.Get("x"+parity.Suffix))
	in := store.Store(st)
	if near {
		in = nearMem{st}
	}
	got := contentsOf(t, in)
	for name, want := range files {
		if got[name] != want {
			t.Errorf("%s is not what it is", name)
		}
	}
}

// Parity of an archive in which a file was a little longer or shorter does no harm to one that is sound, though its blocks
// seem to have moved.
func TestParityOfALongerArchiveChangesNothing(t *testing.T) {
	for _, format := range append(someOf(t, "lindi", "rvn", "zip", "databundle", "oak"), "caf", "tar") {
		for _, near := range []bool{true, false} {
			for _, grown := range []int{-700, -7, 0, 5, 600} {
				if format == "tar" && -512 < grown && grown < 512 {
					continue // it has the same length, and then a tar may be damaged
				}
				t.Run(fmt.Sprint(format, near, grown), func(t *testing.T) {
					rnd := testkit.Rand(t)
					files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10))}
					for i := range 20 {
						files[fmt.Sprintf("d%d/f%02d", i%3, i)] = string(testkit.Noise(rnd, 1000+rnd.IntN(12000)))
					}
					other := maps.Clone(files)
					longer := files["d0/f00"] + strings.Repeat("x", 600)
					other["d0/f00"] = longer[:len(longer)-600+grown]
					withParityOf(t, format, near, files, other)
				})
			}
		}
	}
}

// Parity of another archive of the same length and time is not used, though a tar has nothing
// else that says what is right.
func TestParityOfAnotherTar(t *testing.T) {
	rnd := testkit.Rand(t)
	dir, when := t.TempDir(), time.Unix(1_700_000_000, 0)
	files := map[string]string{"a": string(testkit.Noise(rnd, 300_000)), "b": string(testkit.Noise(rnd, 5000))}
	var archives []string
	for i := range 2 {
		other := maps.Clone(files)
		if i == 1 {
			for name, was := range files {
				other[name] = string(testkit.Noise(rnd, len(was)))
			}
		}
		p := filepath.Join(dir, fmt.Sprint(i), "x.tar")
		archives = append(archives, p)
		if err := os.Mkdir(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		_, err := holdall.Pack(t.Context(), p, []string{tree(t, other)}, holdall.PackOptions{Format: "tar", Time: when})
		if err == nil {
			err = os.Chtimes(p, when, when)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holdall.Protect(t.Context(), []string{archives[1]}, archives[0]+parity.Suffix, holdall.ProtectOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(t.Context(), archives[0], holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, want := range files {
		if got, err := fs.ReadFile(a.FS(t.Context()), name); err != nil || string(got) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, ignored := a.Healing(); ignored == nil {
		t.Error("it is not said that the parity is not used")
	}
}
