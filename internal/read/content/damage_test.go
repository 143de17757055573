package content_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
)

// checkedKinds are the formats whose archives say what their contents are, and how they are packed.
var checkedKinds = []struct {
	format string
	param  map[string]string
}{
	{"caf", nil}, {"lindi", nil}, {"rvn", nil}, {"zip", nil},
	{"databundle", map[string]string{"align": "1"}}, {"databundle", map[string]string{"compression": "none"}}, {"databundle", map[string]string{"compression": "zstd", "align": "1"}},
}

// Bytes of content are changed, one at a time: in none of the ways to read it does a wrong byte come
// out with success. A quarter of the bytes are chosen at random, and all with HOLDALL_LONG=8.
func TestEveryDamagedByteIsRefusedInEveryWayToRead(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 40), "d/c": "gamma" + strings.Repeat("\x00\x01\x02", 30), "e": ""}
	for _, k := range checkedKinds {
		t.Run(k.format+k.param["compression"], func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			st := packedAs(t, k.format, k.param, files)
			sound := openAs(t, st, "x", k.format, way{})
			share := min(testkit.Rounds(t, 2), 8)
			places, caught := 0, 0
			seen := map[string]map[int64]bool{}
			var all []content.Extent
			for name := range files {
				all = append(all, extentsOf(t, sound, lookup(t, sound, name))...)
			}
			for _, x := range all {
				if seen[x.Object] == nil {
					seen[x.Object] = map[int64]bool{}
				}
				was := st.Get(x.Object)
				for at := x.Off; at < x.Off+x.Len; at++ {
					if seen[x.Object][at] || rnd.IntN(8) >= share {
						continue
					}
					seen[x.Object][at] = true
					st.Put(x.Object, flipped(was, at, rnd.IntN(8)))
					s, err := tryOpen(t.Context(), st, "x", sound.Format, way{})
					if err != nil {
						t.Fatal(err)
					}
					refused := false
					for name, want := range files {
						refused = len(readInEveryWay(t, s, lookup(t, s, name), want, rnd)) > 0 || refused
					}
					if places++; refused {
						caught++
					}
					s.Close()
				}
				st.Put(x.Object, was)
			}
			if caught < 20*share/8 {
				t.Errorf("of %d damages %d were refused", places, caught)
			}
		})
	}
}

// A range of a long file is refused where the part that it is stored in has a checksum; of another
// only the end of a read of all of it tells. Both say so.
func TestRangesOfLongFiles(t *testing.T) {
	testkit.Serial(t)
	text := text(testkit.Rand(t), 2<<20)
	for _, k := range []struct {
		format string
		param  map[string]string
		parts  bool
	}{
		{"databundle", map[string]string{"compression": "zlib"}, true},
		{"databundle", map[string]string{"compression": "none"}, false},
		{"caf", nil, false}, {"lindi", nil, false}, {"rvn", nil, false}, {"zip", nil, false},
	} {
		t.Run(k.format+k.param["compression"], func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			st := packedAs(t, k.format, k.param, map[string]string{"long": text})
			for range testkit.Rounds(t, 4) {
				s := openAs(t, st, "x", k.format, way{})
				e := lookup(t, s, "long")
				parts, whole := compares(t, s, e)
				if parts != k.parts || !whole {
					t.Errorf("it compares %v, %v", parts, whole)
				}
				all := extentsOf(t, s, e)
				x := all[rnd.IntN(len(all))]
				at := x.Off + rnd.Int64N(x.Len)
				was := st.Get(x.Object)
				st.Put(x.Object, flipped(was, at, rnd.IntN(8)))
				if parts {
					readInEveryWay(t, s, e, text, rnd)
					p := make([]byte, 1000)
					for off := int64(0); off < e.Size-1000; off += 50000 {
						if _, err := s.ReadAt(t.Context(), e, p, off); err == nil && string(p) != text[off:off+1000] {
							t.Fatalf("byte %d: wrong bytes at %d", at, off)
						}
					}
				}
				r := s.ReadFrom(t.Context(), e, 0)
				if got, err := io.ReadAll(r); err == nil && string(got) != text {
					t.Fatalf("byte %d: ReadFrom gives wrong bytes", at)
				}
				r.Close()
				if got, err := copyOf(t, s, e); err == nil && got != text {
					t.Fatalf("byte %d: Copy gives wrong bytes", at)
				}
				st.Put(x.Object, was)
			}
		})
	}
}

// One wrong bit in a record takes no file with it that its own checksum shows to be right, however
// it is read. What nothing proves is not handed on.
func TestARecordWithAWrongChecksumGivesBackWhatIsProven(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	files := map[string]string{"long": string(testkit.Noise(rnd, 1<<20+500<<10))}
	for i := range 60 {
		files[fmt.Sprintf("f%02d", i)] = string(testkit.Noise(rnd, 1000+rnd.IntN(5000)))
	}
	for compression, summed := range map[string]bool{"zlib": true, "zstd": false, "snappy": false} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			st := packedAs(t, "databundle", map[string]string{"compression": compression}, files)
			const shard = "x/shard-00000000"
			was := st.Get(shard)
			if was == nil {
				t.Fatal(objectsIn(t, st))
			}
			sound := openAs(t, st, "x", "databundle", way{})
			all := extentsOf(t, sound, lookup(t, sound, "f00"))
			shared := all[len(all)-1] // the record that it is in, with others
			saved, damaged := 0, 0
			rounds := testkit.Rounds(t, 10)
			for i := range rounds {
				at := 4096 + rnd.Int64N(int64(len(was))-4096)
				if i%2 == 0 {
					at = shared.Off + rnd.Int64N(shared.Len)
				}
				st.Put(shard, flipped(was, at, rnd.IntN(8)))
				bad := unreadable(t, openAs(t, st, "x", "databundle", way{}), files)
				if len(bad) > 1 {
					t.Errorf("%d files are lost: %q", len(bad), bad)
				}
				if !summed {
					continue
				}
				trusting := unreadable(t, openAs(t, st, "x", "databundle", way{checking: content.Checking{None: true}}), files)
				if len(trusting) == 0 {
					continue // of padding
				}
				damaged++
				saved += max(0, len(trusting)-len(bad))
			}
			if summed && damaged == 0 || saved < damaged {
				t.Errorf("of %d times something was damaged %d times, and %d files were saved", rounds, damaged, saved)
			}
		})
	}
}

// unreadable returns the names of files that cannot be read. Others must be what they were, unless
// nothing is compared.
func unreadable(t *testing.T, s *content.Source, files map[string]string) (bad []string) {
	t.Helper()
	right := map[string]error{}
	for name, want := range files {
		e := lookup(t, s, name)
		got, err := copyOf(t, s, e)
		if err == nil && got != want && !s.Checking.None {
			t.Errorf("%s is copied as other content", name)
		}
		if right[name] = err; err != nil {
			bad = append(bad, name)
		}
		r := s.ReadFrom(t.Context(), e, 0)
		b, rerr := io.ReadAll(r)
		r.Close()
		if (rerr == nil) != (err == nil) || rerr == nil && string(b) != want && !s.Checking.None {
			t.Errorf("%s: %d bytes, %v, but copied: %v", name, len(b), rerr, err)
		}
	}
	var aside int
	err := s.Sweep(t.Context(), s.Packed(t.Context()), content.InOrder, func(c content.Content, err error) error {
		want, ours := files[c.Entry.Name]
		if !ours {
			return nil
		}
		var b bytes.Buffer
		if err == nil {
			err = c.CopyTo(t.Context(), &b, nil)
		}
		if (err == nil) != (right[c.Entry.Name] == nil) || err == nil && b.String() != want && !s.Checking.None {
			t.Errorf("%s: in a sweep %v, but copied: %v", c.Entry.Name, err, right[c.Entry.Name])
		}
		if err == nil && c.Amiss() != nil {
			aside++
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if s.Checking.None && aside > 0 {
		t.Errorf("what is not compared is right all the same: %d", aside)
	}
	return bad
}
