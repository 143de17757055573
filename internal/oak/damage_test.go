package oak

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A readout is all that one way of reading hands out of a store, by name, and whether it
// says that anything is wrong.
type readout struct {
	all  map[string]string
	said bool
	old  bool // and that all of it may be of an older revision

	healed int // how often it was told that damage was healed
}

func (r *readout) got(name, what string) { r.all[name] = what }

func (r *readout) failed(t *testing.T, err error) {
	t.Helper()
	r.said = true
	if !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("%T: %v", err, err)
	}
}

// shown returns what is reported about an entry besides its content. Contents in a data store are
// missing here. The graph has the number of references of a segment, if it is intact.
func shown(e holdall.Entry) string {
	if e.Fault != nil {
		return e.Attr[blobAttr]
	}
	delete(e.Attr, referencesAttr)
	return fmt.Sprint(e.Kind, e.Size, e.ModTime.UnixMilli(), e.Attr)
}

// ways are the ways in which a store is read.
var ways = map[string]func(t *testing.T, st store.Store, view string, r *readout){
	"entries and contents": func(t *testing.T, st store.Store, view string, r *readout) {
		withArchive(t, st, view, r, func(a *holdall.Archive) error {
			return a.Contents(t.Context(), func(holdall.Entry) bool { return true }, func(e holdall.Entry, content io.Reader, err error) error {
				r.entry(t, e)
				if parts, _ := a.Compares(t.Context(), e); !parts {
					return nil
				}
				var b []byte
				if err == nil {
					b, err = io.ReadAll(content)
				}
				if err != nil {
					r.failed(t, err)
				} else {
					r.got("content of "+e.Name, string(b))
				}
				return nil
			})
		})
	},
	"ranges": func(t *testing.T, st store.Store, view string, r *readout) {
		withArchive(t, st, view, r, func(a *holdall.Archive) error {
			for e, err := range a.Entries(t.Context()) {
				if err != nil {
					return err
				}
				r.entry(t, e)
				if parts, _ := a.Compares(t.Context(), e); !parts || e.Size == 0 {
					continue
				}
				sum := crc32.ChecksumIEEE([]byte(e.Name))
				rnd := rand.New(rand.NewPCG(uint64(sum), 0))
				off := rnd.Int64N(e.Size)
				b := make([]byte, min(e.Size-off, 1+rnd.Int64N(300)))
				if _, err := a.ReadAt(t.Context(), e, b, off); err != nil {
					r.failed(t, err)
					continue
				}
				r.got(fmt.Sprintf("%d from %d of %s", len(b), off, e.Name), string(b))
			}
			return nil
		})
	},
	"names": func(t *testing.T, st store.Store, view string, r *readout) {
		withArchive(t, st, view, r, func(a *holdall.Archive) error {
			var walk func(dir string)
			walk = func(dir string) {
				for e, err := range a.ReadDir(t.Context(), dir) {
					if err != nil {
						r.failed(t, err)
						return
					}
					if got, err := a.Lookup(t.Context(), e.Name); err != nil {
						r.failed(t, err)
					} else {
						r.entry(t, got)
					}
					if e.Kind == format.Dir && e.Fault == nil {
						walk(e.Name)
					}
				}
			}
			walk(".")
			return nil
		})
	},
	"export": func(t *testing.T, st store.Store, _ string, r *readout) {
		s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{OnHeal: sync.OnceFunc(func() { r.healed++ })})
		if err != nil {
			r.failed(t, err)
			return
		}
		defer s.Close()
		tree, err := s.Tree(t.Context(), nil)
		if err != nil {
			r.failed(t, err)
			return
		}
		var b bytes.Buffer
		x, err := tree.Export(t.Context(), &b, "/", wholeTree)
		if err != nil {
			r.failed(t, err)
			return
		}
		r.said = r.said || x.Lost > 0 || s.Doubt() != nil
		r.old = s.Doubt() != nil && s.Doubt().Class == headRewound
		for line := range strings.SplitSeq(b.String(), "\n") {
			if !strings.Contains(line, `"lost":`) {
				r.got(line, "")
			}
		}
	},
}

// TestNothingWrongIsHandedOut flips a bit or sets a byte of a store, and reads everything in each
// way. Everything that is returned must be correct, and everything else must be reported.
// HOLDALL_LONG is how many rounds.
func TestNothingWrongIsHandedOut(t *testing.T) {
	testkit.Serial(t)
	stores := map[string]int{"written": 8, "types": 2, "checkpoints": 12, "v12": 3, "two-letters": 5, "unclean-open": 4, "empty-store": 20}
	for name, rounds := range stores {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			sound := &storetest.Mem{}
			if name == "written" {
				writeSeveralTars(t, sound)
			} else {
				sound = fixture(t, name)
			}
			read := func(st store.Store, way string) *readout {
				r := &readout{all: map[string]string{}}
				way, view, _ := strings.Cut(way, " of ")
				ways[way](t, st, view, r)
				return r
			}
			want := map[string]*readout{}
			for way := range ways {
				for _, view := range []string{treeView, segmentsView} {
					if way != "export" || view == treeView {
						way := way + " of " + view
						want[way] = read(sound, way)
					}
				}
			}
			all := objects(t, sound)
			names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool {
				return !strings.HasPrefix(n, "s/") || strings.HasSuffix(n, "gc.log") || len(all[n]) == 0
			})
			for range testkit.Rounds(t, rounds) {
				object := names[rnd.IntN(len(names))]
				at, mask := rnd.IntN(len(all[object])), byte(1)<<rnd.IntN(8)
				if rnd.IntN(2) == 0 {
					mask = byte(1 + rnd.IntN(255))
				}
				st := sound.Clone()
				b := bytes.Clone(all[object])
				b[at] ^= mask
				st.Put(object, b)
				for way, want := range want {
					got := read(st, way)
					if got.old {
						continue // as reported
					}
					wrong := !got.said && len(got.all) != len(want.all)
					for name, text := range got.all {
						if want.all[name] != text {
							wrong = true
							t.Logf("%s is %.80q, expected %.80q", name, text, want.all[name])
							break
						}
					}
					if wrong {
						t.Errorf("%s: byte %d with %02x, %s: %d of %d, said %v", object, at, mask, way, len(got.all), len(want.all), got.said)
					}
				}
			}
		})
	}
}

// TestAWrongBitCostsNothing flips a bit of a segment, and reads everything in one of the ways: all
// of it is right, and OnHeal tells if anything was corrected. HOLDALL_LONG is how many rounds.
func TestAWrongBitCostsNothing(t *testing.T) {
	testkit.Serial(t)
	told := 0
	for _, name := range []string{"written", "types", "checkpoints", "v12", "two-letters", "multitar", "wide", "cleanup-pending", "unclean-open", "empty-store"} {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			sound := &storetest.Mem{}
			if name == "written" {
				writeSeveralTars(t, sound)
			} else {
				sound = fixture(t, name)
			}
			var places [][2]int64
			var tars []string
			err := onStore(t.Context(), sound, func(s *Store) error {
				for _, tar := range s.r.tars {
					for _, e := range tar.All() {
						places, tars = append(places, [2]int64{e.Pos - tarfile.BlockSize, tarfile.BlockSize + int64(e.Len)}), append(tars, tar.path)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]*readout{}
			names := slices.Sorted(maps.Keys(ways))
			for range testkit.Rounds(t, 24) {
				i := rnd.IntN(len(places))
				at, bit := places[i][0]+rnd.Int64N(places[i][1]), rnd.IntN(8)
				st := sound.Clone()
				b := bytes.Clone(st.Get(tars[i]))
				b[at] ^= 1 << bit
				st.Put(tars[i], b)
				way, view := names[rnd.IntN(len(names))], views[rnd.IntN(len(views))]
				if want[way+view] == nil {
					want[way+view] = &readout{all: map[string]string{}}
					ways[way](t, sound, view, want[way+view])
				}
				got, all := &readout{all: map[string]string{}}, want[way+view]
				ways[way](t, st, view, got)
				told += got.healed
				if got.healed > 1 || got.said != all.said || !maps.Equal(got.all, all.all) {
					t.Errorf("bit %d of the byte at %d of %s: %s of %s: %d of %d, said %v, healed %d times", bit, at, tars[i], way, view, len(got.all), len(all.all), got.said, got.healed)
				}
			}
		})
	}
	if told == 0 {
		t.Error("nothing was told to be healed")
	}
}

// If more than a bit of a segment is wrong, the names and places that it still has are shown as
// unproven. HOLDALL_LONG is how many rounds.
func TestNamesInDamagedSegmentsAreShown(t *testing.T) {
	testkit.Serial(t)
	guessed := 0
	for _, name := range []string{"types", "checkpoints", "multitar", "wide"} {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			sound := fixture(t, name)
			names := func(st store.Store, o holdall.OpenOptions) (all map[string]string, doubt error, err error) {
				o.Store, o.Formats = st, []*format.Format{Format}
				a, err := holdall.Open(t.Context(), "s", o)
				if err != nil {
					return nil, nil, err
				}
				defer a.Close()
				all = map[string]string{}
				for e, err := range a.Entries(t.Context()) {
					if err != nil {
						return nil, nil, err
					}
					if dir := all[path.Dir(e.Name)]; dir != fmt.Sprint(format.Dir, " Binary") { // of values
						all[e.Name] = fmt.Sprint(e.Kind, " ", e.Attr[typeAttr])
					}
				}
				return all, a.Doubt(), nil
			}
			want, _, err := names(sound, holdall.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for range testkit.Rounds(t, 12) {
				st := sound.Clone()
				what := ""
				err := onStore(t.Context(), sound, func(s *Store) error {
					head, err := s.r.head(t.Context())
					tar := s.r.tars[rnd.IntN(len(s.r.tars))]
					e := tar.At(rnd.IntN(tar.Len()))
					if e.ID == head.Segment {
						return err // of which nothing is guessed
					}
					b := bytes.Clone(st.Get(tar.path))
					at := e.Pos + int64(e.Len)/4 + rnd.Int64N(int64(e.Len)/2+1)
					b[at] ^= 3 << rnd.IntN(7)
					st.Put(tar.path, b)
					what = fmt.Sprintf("byte %d of %s", at, tar.Name)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				stored, _, bad := names(st, holdall.OpenOptions{NoVerify: true})
				if bad != nil {
					continue // nothing can be read
				}
				got, doubt, err := names(st, holdall.OpenOptions{})
				if err != nil || !maps.Equal(got, stored) {
					t.Errorf("%s: %d entries, without comparing %d; %v", what, len(got), len(stored), err)
				}
				if doubt == nil && !maps.Equal(got, want) {
					t.Errorf("%s: not said: %d entries of %d", what, len(got), len(want))
				} else if doubt != nil {
					guessed++
				}
			}
		})
	}
	if guessed == 0 {
		t.Error("nothing was guessed")
	}
}

// writeSeveralTars writes a store of small contents and binaries over three tars.
func writeSeveralTars(t *testing.T, st *storetest.Mem) {
	t.Helper()
	w := newWriter(t, st, map[string]string{tarSizeParam: "1MiB", timeParam: "2024-01-01T00:00:00Z"})
	for i := range 60 {
		e := format.Entry{Name: fmt.Sprintf("d%d/f%02d", i%4, i)}
		if err := addText(t, w, e, string(noise(1+i*37%900))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if err := addText(t, w, format.Entry{Name: fmt.Sprint("large", i)}, string(noise(520_000+i))); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(t, w)
}

func withArchive(t *testing.T, st store.Store, view string, r *readout, do func(*holdall.Archive) error) {
	t.Helper()
	a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}, View: view, CacheBytes: 1, OnHeal: func(string) { r.healed++ }})
	if err != nil {
		r.failed(t, err)
		return
	}
	defer a.Close()
	if err := do(a); err != nil {
		r.failed(t, err)
	}
	if c, ok := errors.AsType[*format.CorruptError](a.Doubt()); ok {
		r.said, r.old = true, view != segmentsView && c.Class == headRewound
	}
}

func (r *readout) entry(t *testing.T, e holdall.Entry) {
	t.Helper()
	if e.Fault != nil && e.Fault.Class != externalBlob || e.Attr[unprovenAttr] != "" {
		r.said = true
		return
	}
	r.got(e.Name, shown(e))
}

// Of several copies of a segment a sound one is read, wherever the damaged one lies.
func TestASoundCopyIsPreferred(t *testing.T) {
	sound := madeStore(t, sampleTree)
	tar := sound.Get("s/data00000a.tar")
	x, err := openTreeOf(t.Context(), sound, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := x.(*treeReader).tars[0]
	x.Close()
	damage := func(b []byte) []byte {
		b = bytes.Clone(b)
		for i := range all.len() {
			e := all.at(i)
			b[e.Pos+int64(e.Len)/2] ^= 6
		}
		return b
	}
	read := func(older, newer []byte) *readout {
		st := sound.Clone()
		st.Put("s/data00000a.tar", older)
		st.Put("s/data00001a.tar", newer)
		r := &readout{all: map[string]string{}}
		ways["entries and contents"](t, st, treeView, r)
		ways["export"](t, st, treeView, r)
		return r
	}
	want := read(tar, tar)
	for _, r := range []*readout{read(damage(tar), tar), read(tar, damage(tar))} {
		if r.said || !maps.Equal(r.all, want.all) {
			t.Errorf("%d of %d, said %v", len(r.all), len(want.all), r.said)
		}
	}
	r := read(damage(tar), damage(tar))
	maps.DeleteFunc(r.all, func(_, content string) bool { return content == "" }) // of nodes, which have none
	if !r.said || len(r.all) > 0 {
		t.Errorf("nothing is sound, and there is %v", r.all)
	}
}

// A segment whose header is damaged is read as long as the digits of its checksum are
// there, all but one; if nothing tells, it is not. Without comparing, all is read.
func TestWhatADamagedHeaderCosts(t *testing.T) {
	sound := madeStore(t, sampleTree)
	x, err := openTreeOf(t.Context(), sound, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := x.(*treeReader)
	large, err := r.Lookup(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	var at int64 // of the header of its first segment
	for x := range r.Extents(t.Context(), large, 0, 1) {
		at = x.Off
	}
	r.Close()
	want := contentOf(t, openTreeArchive(t, sound, nil), large)
	for _, c := range []struct {
		what      string
		from, len int64
		with      byte
		readable  bool
	}{
		{"a digit of the checksum", 40, 1, '!', true},
		{"all but the checksum", 100, 400, 'x', true},
		{"the id", 3, 1, 'Z', true},
		{"two digits", 40, 2, '!', false},
		{"all of it", 0, 512, 0, false},
		{"a bit of the segment", 512 + 1000, 1, want[1000] ^ 1, true},
		{"two bits of the segment", 512 + 1000, 1, want[1000] ^ 3, false},
	} {
		st := sound.Clone()
		b := bytes.Clone(st.Get("s/data00000a.tar"))
		for i := range c.len {
			b[at+c.from+i] = c.with
		}
		st.Put("s/data00000a.tar", b)
		o := treeOptions()
		for _, o.NoVerify = range []bool{false, true} {
			a, err := holdall.Open(t.Context(), "s", o.In(st))
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, large.Size)
			e, err := a.Lookup(t.Context(), "large")
			if err == nil {
				_, err = a.ReadAt(t.Context(), e, got, 0)
			}
			f, damaged := errors.AsType[*format.CorruptError](err)
			switch {
			case c.readable || o.NoVerify:
				if err != nil || !(o.NoVerify && c.from >= 512) && !bytes.Equal(got, want) {
					t.Errorf("%s, not verified %v: %v", c.what, o.NoVerify, err)
				}
			case !damaged || f.Code != format.BadChecksum || f.Class != badChecksum || f.Volume != "s/data00000a.tar" || f.Off != at+512:
				t.Errorf("%s: %v", c.what, err)
			}
			a.Close()
		}
	}
}
