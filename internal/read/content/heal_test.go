package content_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

const paritySuffix = parity.Suffix

// protect writes parity of the archive called x beside it.
func protect(t testing.TB, st *storetest.Mem, loss float64) {
	t.Helper()
	objects, err := parity.Find(t.Context(), st, "x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = storekit.Write(t.Context(), st, "x"+paritySuffix, func(w store.Writer) error {
		_, err := parity.Protect(t.Context(), st, "x", objects, loss, nil, w)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// hurt damages some bytes of what is called x or is below it.
func hurt(t *testing.T, st *storetest.Mem, rnd *rand.Rand, n int) (what string) {
	var names []string
	for _, name := range objectsIn(t, st) {
		if !strings.HasSuffix(name, paritySuffix) && len(st.Get(name)) > 0 {
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

// openHealing opens an archive as package holdall does: on a disk through the parity, from afar as it
// is, until something is wrong. on counts calls of OnHeal.
func openHealing(t *testing.T, st store.Store, kind string, on func(string)) *content.Source {
	t.Helper()
	f := formatNamed(t, kind)
	if !st.Can().Near {
		s, err := tryOpen(t.Context(), st, "x", f, way{})
		if err == nil && s.Doubt() == nil {
			s.HealBy(nil, "", on, func(ctx context.Context, by store.Store) (*content.Source, error) {
				return tryOpen(ctx, by, "x", f, way{})
			})
			t.Cleanup(func() { s.Close() })
			return s
		}
		if err == nil {
			s.Close()
		}
	}
	g, err := parity.Locate(t.Context(), st, "x", "")
	if err != nil || g == nil {
		t.Fatal(g, err)
	}
	g.OnHeal = on
	by := g.Store()
	if g.Suits != nil {
		by = st
	}
	s, err := tryOpen(t.Context(), st, "x", f, way{by: by})
	if err != nil {
		t.Fatal(err)
	}
	s.HealBy(g, "", on, nil)
	t.Cleanup(func() { s.Close() })
	return s
}

func contentsOf(t *testing.T, s *content.Source) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range s.Packed(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind.HasContent() {
			b, err := copyOf(t, s, e)
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name] = b
		}
	}
	return all
}

func mixed(rnd *rand.Rand) map[string]string {
	files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+100<<10)), "e": ""}
	for i := range 12 {
		files[fmt.Sprintf("d%d/f%02d", i%3, i)] = string(testkit.Noise(rnd, 1+rnd.IntN(12000)))
	}
	return files
}

// Whatever is damaged of an archive with parity beside it, all of it can be read, in every way to
// read it.
func TestDamageIsHealedInEveryWayToRead(t *testing.T) {
	for _, kind := range []string{"caf", "lindi", "rvn", "zip", "tar", "databundle", "oak"} {
		for _, near := range []bool{true, false} {
			if (kind == "tar" || kind == "zip") && !near {
				// Nothing tells of damage to contents of the one, and to the directory of the
				// other; from afar parity is looked for when something does.
				continue
			}
			t.Run(fmt.Sprint(kind, near), func(t *testing.T) {
				if kind != "caf" {
					testkit.Serial(t)
				}
				t.Parallel()
				rnd := testkit.Rand(t)
				files := mixed(rnd)
				sound := packedAs(t, kind, nil, files)
				protect(t, sound, 0.2)
				if kind == "oak" { // which has more in it than files
					files = contentsOf(t, openAs(t, sound, "x", kind, way{}))
				}
				for range testkit.Rounds(t, 1) {
					mem := sound.Clone()
					what := hurt(t, mem, rnd, 1+rnd.IntN(12))
					st := store.Store(mem)
					if near {
						st = nearMem{mem}
					}
					s := openHealing(t, st, kind, nil)
					if s.Doubt() != nil {
						t.Errorf("%s: in doubt: %v", what, s.Doubt())
					}
					s.Healed() // whoever asks early keeps nothing from being healed
					seen := 0
					err := s.Sweep(t.Context(), s.Packed(t.Context()), content.Compared, func(c content.Content, err error) error {
						want, ours := files[c.Entry.Name]
						if !ours {
							return nil
						}
						if err != nil {
							return err
						}
						b, err := io.ReadAll(c.Checked())
						if err == nil && string(b) != want {
							err = fmt.Errorf("%s: wrong", c.Entry.Name)
						}
						seen++
						return err
					})
					if err != nil || seen != len(files) {
						t.Fatalf("%s: in a sweep: %v, %d of %d", what, err, seen, len(files))
					}
					for name, want := range files {
						if bad := readInEveryWay(t, s, lookup(t, s, name), want, rnd); len(bad) > 0 {
							t.Fatalf("%s: %s: %v", what, name, bad)
						}
					}
					if n, by, why := s.Healed(); why != nil || n > 0 && by == "" {
						t.Errorf("%s: %d healed by %q, %v", what, n, by, why)
					}
					s.Close()
				}
			})
		}
	}
}

// What is damaged is healed and told once, however it is stored: short, long, without a digest.
func TestHealingIsToldOnce(t *testing.T) {
	for _, near := range []bool{true, false} {
		for _, name := range []string{"d0/f00", "long"} {
			rnd := testkit.Rand(t)
			files := mixed(rnd)
			mem := packedAs(t, "caf", nil, files)
			protect(t, mem, 0.1)
			st := store.Store(mem)
			if near {
				st = nearMem{mem}
			}
			at := extentsOf(t, openAs(t, mem, "x", "caf", way{}), lookup(t, openAs(t, mem, "x", "caf", way{}), name))[0].Off
			mem.Put("x", flipped(mem.Get("x"), at, 1))
			told := 0
			s := openHealing(t, st, "caf", func(by string) {
				if told++; !strings.HasSuffix(by, "x"+paritySuffix) {
					t.Errorf("healed by %q", by)
				}
			})
			e := lookup(t, s, name)
			if parts, whole := compares(t, s, e); !whole || parts != (near || name != "long") {
				t.Errorf("%s, near %v: it compares %v, %v", name, near, parts, whole)
			}
			for range 2 {
				if bad := readInEveryWay(t, s, e, files[name], rnd); len(bad) > 0 {
					t.Errorf("%s, near %v: %v", name, near, bad)
				}
			}
			if n, _, why := s.Healed(); n != 1 || told != 1 || why != nil {
				t.Errorf("%s, near %v: %d blocks are healed, told %d times, %v", name, near, n, told, why)
			}
			if _, ok := s.Section(t.Context(), e); ok {
				t.Error("what is healed is not what is stored")
			}
			s.Close()
		}
	}
}

// Parity of another version of an archive, or one that was made to mislead, changes nothing that is
// read of content with a digest.
func TestForeignParityChangesNothing(t *testing.T) {
	for _, kind := range []string{"caf", "lindi", "rvn", "zip", "databundle"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			files := mixed(rnd)
			other := maps.Clone(files)
			for _, name := range []string{"long", "d0/f03", "d1/f07"} {
				b := []byte(files[name])
				b[rnd.IntN(len(b))]++
				other[name] = string(b)
			}
			st, was := packedAs(t, kind, nil, files), packedAs(t, kind, nil, other)
			protect(t, was, 0.2)
			st.Put("x"+paritySuffix, was.Get("x"+paritySuffix))
			for _, near := range []bool{true, false} {
				in := store.Store(st)
				if near {
					in = nearMem{st}
				}
				g, err := parity.Locate(t.Context(), in, "x", "")
				if err != nil {
					t.Fatal(err)
				}
				s, err := tryOpen(t.Context(), in, "x", formatNamed(t, kind), way{})
				if err != nil {
					t.Fatal(err)
				}
				s.HealBy(g, "", nil, nil)
				for name, want := range files {
					if got, err := copyOf(t, s, lookup(t, s, name)); err != nil || got != want {
						t.Errorf("near %v: %s: %d bytes, %v", near, name, len(got), err)
					}
				}
				err = s.Sweep(t.Context(), s.Packed(t.Context()), content.Compared, func(c content.Content, err error) error {
					var b []byte
					if err == nil {
						b, err = io.ReadAll(c.Checked())
					}
					if want, ours := files[c.Entry.Name]; ours && (err != nil || string(b) != want) {
						t.Errorf("near %v: %s in a sweep: %d bytes, %v", near, c.Entry.Name, len(b), err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				s.Close()
			}
		})
	}
}

// What is damaged beyond the parity, or where there is none, stays an error. So does what is no
// damage.
func TestWhatParityCannotHealStaysAnError(t *testing.T) {
	rnd := testkit.Rand(t)
	files := mixed(rnd)
	sound := packedAs(t, "caf", nil, files)
	protect(t, sound, 0.01)
	for what, change := range map[string]func(st *storetest.Mem){
		"beyond":         func(*storetest.Mem) {},
		"no parity":      func(st *storetest.Mem) { _ = st.Remove(t.Context(), "x"+paritySuffix) },
		"no parity file": func(st *storetest.Mem) { st.Put("x"+paritySuffix, []byte("no parity")) },
	} {
		for _, near := range []bool{true, false} {
			mem := sound.Clone()
			b := bytes.Clone(mem.Get("x"))
			plain := openAs(t, sound, "x", "caf", way{})
			for e, err := range plain.Packed(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range extentsOf(t, plain, e) {
					copy(b[x.Off:x.Off+x.Len], testkit.Noise(rnd, int(x.Len)))
				}
			}
			mem.Put("x", b)
			change(mem)
			st := store.Store(mem)
			if near {
				st = nearMem{mem}
			}
			s, err := tryOpen(t.Context(), st, "x", plain.Format, way{})
			if err != nil {
				t.Fatal(err)
			}
			s.HealBy(nil, "", nil, func(ctx context.Context, by store.Store) (*content.Source, error) {
				return tryOpen(ctx, by, "x", plain.Format, way{})
			})
			for _, name := range []string{"long", "d1/f01"} {
				e := lookup(t, s, name)
				if errs := waysToRead(t, s, e); errs != 0 {
					t.Errorf("%s, near %v: %s: %d ways read it", what, near, name, errs)
				}
				if s.Settle(t.Context(), e) == nil {
					t.Errorf("%s, near %v: %s is right", what, near, name)
				}
			}
			if n, _, why := s.Healed(); n > 0 || (why != nil) != (what == "no parity file") && near && what != "beyond" {
				t.Errorf("%s, near %v: %d healed, %v", what, near, n, why)
			}
			s.Close()
		}
	}
}

// waysToRead returns how many ways read a damaged content without an error.
func waysToRead(t *testing.T, s *content.Source, e content.Entry) (right int) {
	t.Helper()
	if _, err := copyOf(t, s, e); err == nil {
		right++
	}
	r := s.ReadFrom(t.Context(), e, 0)
	if _, err := io.Copy(io.Discard, r); err == nil {
		right++
	}
	r.Close()
	err := s.Sweep(t.Context(), one(e), content.Compared, func(c content.Content, err error) error {
		if err == nil {
			_, err = io.Copy(io.Discard, c.Checked())
		}
		return err
	})
	if err == nil {
		right++
	}
	return right
}

// What a store fails to deliver, and a read that is cancelled, is no damage: parity is not asked.
func TestErrorsThatAreNoDamageAreNotHealed(t *testing.T) {
	files := map[string]string{"a": strings.Repeat("alpha", 1000), "b": "beta"}
	mem := packedAs(t, "caf", nil, files)
	protect(t, mem, 0.1)
	broken := false
	busy := &store.Error{Op: "read", Name: "x", Off: 0, Len: 1, Retry: true, Err: errors.New("busy")}
	var asked []string
	st := storetest.Fault(mem, func(op, name string, off, n int64) error {
		asked = append(asked, name)
		if broken && op == "read" && name == "x" {
			return busy
		}
		return nil
	})
	s := openHealing(t, st, "caf", func(by string) { t.Error("healed") })
	broken, asked = true, nil
	e := lookup(t, s, "a")
	if _, err := copyOf(t, s, e); !storekit.Temporary(err) || content.Passing(e, err) == nil {
		t.Error(err)
	}
	if _, err := s.ReadAt(t.Context(), e, make([]byte, 10), 5); !storekit.Temporary(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadAt(ctx, lookup(t, s, "b"), make([]byte, 4), 0); err == nil {
		t.Error("read, although it was cancelled")
	}
	for _, name := range asked {
		if name != "x" {
			t.Errorf("%s was asked for", name)
		}
	}
	broken = false
	if b, err := copyOf(t, s, e); err != nil || b != files["a"] {
		t.Errorf("afterwards: %d bytes, %v", len(b), err)
	}
}
