package content_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

const chunk = 64 << 10 // as short as a piece may be

var beside = way{index: kept.Use{Beside: true}}

// proven is a CAF in memory that is read by an index with digests, and of which a byte may rot while
// it is open.
type proven struct {
	nearMem
	rotten int64 // where; -1 is nowhere
	with   byte
	files  map[string]string
	sum    content.IndexSummary
	found  []format.Problem // when the index was made
}

func (p *proven) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := p.Mem.Open(ctx, name)
	if err == nil && name == "x" {
		o = rotting{o, p}
	}
	return o, err
}

type rotting struct {
	store.Object
	p *proven
}

func (rotting) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o rotting) ReadAt(ctx context.Context, b []byte, off int64) error {
	err := o.Object.ReadAt(ctx, b, off)
	if at := o.p.rotten - off; o.p.rotten >= 0 && at >= 0 && at < int64(len(b)) {
		b[at] ^= o.p.with
	}
	return err
}

// prove makes such an archive, whose bytes damage may change before the index is made.
func prove(t *testing.T, files map[string]string, damage func(b []byte)) *proven {
	t.Helper()
	p := &proven{nearMem: nearMem{packedAs(t, "caf", nil, files)}, rotten: -1, files: files}
	if damage != nil {
		b := bytes.Clone(p.Get("x"))
		damage(b)
		p.Put("x", b)
	}
	p.sum = writeIndex(t, openAs(t, p, "x", "caf", way{}), p, "x"+kept.Suffix,
		content.IndexOptions{Chunk: chunk, OnError: func(f format.Problem) { p.found = append(p.found, f) }})
	return p
}

func writeIndex(t testing.TB, s *content.Source, to store.Store, name string, o content.IndexOptions) content.IndexSummary {
	t.Helper()
	sum, err := s.WriteIndex(t.Context(), to, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func someFiles(rnd *rand.Rand) map[string]string {
	files := map[string]string{}
	for i, n := range []int{0, 1, 100, chunk - 1, chunk, chunk + 1, 3*chunk + 17, 20 * chunk, 21*chunk + 1} {
		files[fmt.Sprintf("d%d/f%d", i%3, n)] = string(testkit.Noise(rnd, n))
	}
	return files
}

func TestProvenReadsGiveTheSameBytes(t *testing.T) {
	rnd := testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	if p.sum.Unproven != 0 || p.sum.Digests == 0 || p.sum.Entries != int64(len(p.files)) || len(p.found) > 0 {
		t.Fatalf("%+v", p.sum)
	}
	s := openAs(t, p, "x", "caf", beside)
	sameArchives(t, s, openAs(t, p, "x", "caf", way{}))
	for name, want := range p.files {
		if errs := readInEveryWay(t, s, lookup(t, s, name), want, rnd); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if s.Index() == nil || openAs(t, p, "x", "caf", way{}).Index() != nil {
		t.Error("an index proves, and nothing else does")
	}
}

// An archive is damaged at one place at a time behind the back of its index: every way to read comes
// to an error or to bytes that are right.
func TestNoDamagedByteIsHandedOut(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	plain := openAs(t, p, "x", "caf", way{})
	for e, err := range plain.Packed(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range extentsOf(t, plain, e) {
			at := rnd.Int64N(e.Size)
			p.rotten, p.with = -1, 1<<rnd.IntN(8)
			s := openAs(t, p, "x", "caf", beside)
			p.rotten = x.Off + at
			found := lookup(t, s, e.Name)
			errs := readInEveryWay(t, s, found, p.files[e.Name], rnd)
			if len(errs) == 0 {
				t.Errorf("%s: nobody noticed the damage at %d", e.Name, at)
			}
			for _, err := range errs {
				bad, ok := errors.AsType[*content.ProofError](err)
				if !ok || !errors.Is(err, format.ErrCorrupt) || bad.None || bad.Entry != e.Name || bad.Off != at/chunk*chunk || bad.Len != min(chunk, e.Size-bad.Off) {
					t.Errorf("%s: damage at %d: %v", e.Name, at, err)
					continue
				}
				pr := s.Problem(t.Context(), found, err)
				if pr.Code != format.BadChecksum || pr.Volume != "x" || pr.Off != x.Off+bad.Off || pr.Entry != e.Name || !strings.Contains(pr.Message, "do not match the digest in the index") {
					t.Errorf("%s: damage at %d is told as %+v", e.Name, at, pr)
				}
			}
			// What lies in other pieces can be had.
			b := make([]byte, 1)
			for off := at % chunk; off < e.Size; off += chunk {
				if _, err := s.ReadAt(t.Context(), found, b, off); (err != nil) != (off/chunk == at/chunk) {
					t.Errorf("%s: damage at %d: a byte at %d: %v", e.Name, at, off, err)
				}
			}
		}
	}
}

func TestEveryDamagedByteOfASmallArchiveIsCaught(t *testing.T) {
	testkit.Long(t)
	p := prove(t, map[string]string{"a": "alpha", "b": strings.Repeat("beta", 60), "c": "gamma"}, nil)
	caught := 0
	p.with = 0x10
	for i := range p.Get("x") {
		p.rotten = -1
		s := openAs(t, p, "x", "caf", beside)
		p.rotten = int64(i)
		for name, want := range p.files {
			e := lookup(t, s, name)
			for off := range want {
				b := []byte{0xee}
				n, err := s.ReadAt(t.Context(), e, b, int64(off))
				switch {
				case err == nil && (n != 1 || b[0] != want[off]) || err != nil && n != 0:
					t.Fatalf("damage at %d: byte %d of %s is %q, %v", i, off, name, b[:n], err)
				case err != nil:
					caught++
				}
			}
		}
		s.Close()
	}
	// Each byte of content keeps its whole piece from being read.
	want := 0
	for _, c := range p.files {
		want += len(c) * len(c)
	}
	if caught != want {
		t.Errorf("%d reads failed, expected %d", caught, want)
	}
}

func TestWhatWasDamagedBeforeIsNotVouchedFor(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	files := someFiles(rnd)
	name := fmt.Sprintf("d2/f%d", 21*chunk+1)
	p := prove(t, files, func(b []byte) { b[bytes.Index(b, []byte(files[name]))+5*chunk] ^= 1 })
	if p.sum.Unproven != 1 || len(p.found) != 1 || p.found[0].Entry != name {
		t.Fatalf("%+v, %v", p.sum, p.found)
	}
	s := openAs(t, p, "x", "caf", beside)
	for n, want := range files {
		errs := readInEveryWay(t, s, lookup(t, s, n), want, rnd)
		if (len(errs) > 0) != (n == name) {
			t.Errorf("%s: %v", n, errs)
		}
		for _, err := range errs {
			if bad, ok := errors.AsType[*content.ProofError](err); !ok || !bad.None || !strings.Contains(err.Error(), "have no digest") {
				t.Errorf("%s: %v", n, err)
			}
		}
	}
}

// Each way to read is the first that meets a damaged page of digests: what it returns is compared
// with what the archive itself has, and so is everything after it. One of about ten places is tried,
// and of the others with HOLDALL_LONG.
func TestAnIndexThatLosesItsDigestsIsAsNone(t *testing.T) {
	testkit.Serial(t)
	ctx, rnd := t.Context(), testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	index := p.Get("x" + kept.Suffix)
	step := max(200/testkit.Rounds(t, 2), 2)
	lost, used := 0, 0
	for i := 16 + rnd.IntN(step); i < len(index); i += 1 + rnd.IntN(step) {
		p.Put("x"+kept.Suffix, flipped(flipped(index, int64(i), 0), int64(i), 6))
		for way, read := range firstReads {
			s, err := tryOpen(ctx, p, "x", formatNamed(t, "caf"), beside)
			if errors.Is(err, errNoIndex) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			used++
			for name, want := range p.files {
				if got, err := read(ctx, s, lookup(t, s, name)); err != nil || string(got) != want {
					t.Errorf("damage at %d: %s of %s: %d bytes, %v", i, way, name, len(got), err)
				}
			}
			if s.Index() == nil {
				lost++
				for name, want := range p.files {
					if by := s.Proof(ctx, lookup(t, s, name)).By; len(want) > 0 && by != format.Digested {
						t.Errorf("%s: proven by %v", name, by)
					}
				}
			}
			s.Close()
		}
	}
	if lost == 0 {
		t.Errorf("of %d damages none was in the digests", used)
	}
}

var firstReads = map[string]func(ctx context.Context, s *content.Source, e content.Entry) ([]byte, error){
	"ReadAt": func(ctx context.Context, s *content.Source, e content.Entry) ([]byte, error) {
		b := make([]byte, e.Size)
		_, err := s.ReadAt(ctx, e, b, 0)
		return b, err
	},
	"ReadFrom": func(ctx context.Context, s *content.Source, e content.Entry) ([]byte, error) {
		r := s.ReadFrom(ctx, e, 0)
		defer r.Close()
		return io.ReadAll(r)
	},
	"Copy": func(ctx context.Context, s *content.Source, e content.Entry) ([]byte, error) {
		var b bytes.Buffer
		err := s.Copy(ctx, &b, e)
		return b.Bytes(), err
	},
	"Sweep": func(ctx context.Context, s *content.Source, e content.Entry) ([]byte, error) {
		var b bytes.Buffer
		err := s.Sweep(ctx, one(e), content.InOrder, func(c content.Content, err error) error {
			return errors.Join(err, c.CopyTo(ctx, &b, nil))
		})
		return b.Bytes(), err
	},
}

// The digests of a long file are on several pages, of which a later one is damaged. The rest is read
// without them. If the file is damaged too, the last read says so.
func TestDigestsThatAreLostWhileReading(t *testing.T) {
	testkit.Serial(t)
	ctx, rnd := t.Context(), testkit.Rand(t)
	want := string(testkit.Noise(rnd, 600*chunk+5))
	p := prove(t, map[string]string{"long": want}, nil)
	index := p.Get("x" + kept.Suffix)
	last := blake3.Sum256([]byte(want[600*chunk:]))
	at := bytes.Index(index, last[:])
	if at < 0 {
		t.Fatal("the index does not have the last digest")
	}
	p.Put("x"+kept.Suffix, flipped(index, int64(at), 3))
	for way, read := range firstReads {
		for _, damaged := range []bool{false, true} {
			s := openAs(t, p, "x", "caf", beside)
			e := lookup(t, s, "long")
			if p.rotten = -1; damaged {
				p.rotten, p.with = 599*chunk, 1
			}
			got, err := read(ctx, s, e)
			switch {
			case s.Index() != nil:
				t.Errorf("%s: the damage in the index is not met", way)
			case !damaged && (err != nil || string(got) != want):
				t.Errorf("%s: %d bytes, %v", way, len(got), err)
			case damaged && way != "ReadAt" && !errors.Is(err, format.ErrCorrupt): // which compares no long files
				t.Errorf("%s of a damaged file: %v", way, err)
			}
			p.rotten = -1
		}
	}
	for _, off := range []int{1, 511 * chunk, 599*chunk + 7} {
		s := openAs(t, p, "x", "caf", beside)
		c := s.Open(ctx, lookup(t, s, "long"), int64(off))
		if got, err := io.ReadAll(c); err != nil || string(got) != want[off:] {
			t.Errorf("from %d: %d bytes, %v", off, len(got), err)
		}
		c.Close()
	}
}

// An archive is read by what was made of one of the same names, lengths, times and ends.
func TestAnIndexWithDigestsOfOtherContentRefuses(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"a": strings.Repeat("0", 8<<10), "b": "right", "c": strings.Repeat("0", 8<<10)}
	b := packedAs(t, "caf", nil, files).Get("x")
	path := dir + "/x"
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := local.New(dir)
	writeIndex(t, openAs(t, st, "x", "caf", way{}), st, "x"+kept.Suffix, content.IndexOptions{Chunk: chunk})
	copy(b[bytes.Index(b, []byte("right")):], "wrong")
	if err := errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
		t.Fatal(err)
	}
	s := openAs(t, st, "x", "caf", beside)
	got := make([]byte, 5)
	if n, err := s.ReadAt(t.Context(), lookup(t, s, "b"), got, 0); n != 0 || !errors.Is(err, format.ErrCorrupt) || string(got) != "\x00\x00\x00\x00\x00" {
		t.Errorf("%d, %v, %q", n, err, got)
	}
}

// Test data of all formats is read with an index that proves it, and without.
func TestEveryFormatIsProvenAlike(t *testing.T) {
	testkit.Long(t)
	used := 0
	rnd := testkit.Rand(t)
	share := min(testkit.Rounds(t, 1), 6)
	for _, a := range archivesOfOthers(t) {
		if rnd.IntN(6) >= share {
			continue // enough of each kind are left
		}
		t.Run(a.name, func(t *testing.T) {
			plain, err := tryOpen(t.Context(), a.st, a.name, a.format, way{})
			if err != nil {
				t.Skip(err)
			}
			defer plain.Close()
			if _, failed := entriesOf(plain.Reader.Entries(t.Context())); failed != "" || plain.Doubt() != nil {
				t.Skip(failed)
			}
			to := local.New(t.TempDir())
			bad := map[string]bool{}
			sum := writeIndex(t, plain, to, "x.holdall", content.IndexOptions{Chunk: chunk, OnError: func(p format.Problem) { bad[p.Entry] = true }})
			if sum.Unproven != int64(len(bad)) {
				t.Errorf("%+v, but %d are told", sum, len(bad))
			}
			s := openAs(t, a.st, a.name, a.format.Name, way{index: kept.Use{At: storekit.AddressOf(to, "x.holdall")}})
			used++
			want := map[string]string{}
			each := func(s *content.Source, into func(e content.Entry, b []byte, err error)) {
				t.Helper()
				files := func(yield func(content.Entry, error) bool) {
					for e, err := range s.Reader.Entries(t.Context()) {
						if (err != nil || e.Kind.HasContent() && e.Fault == nil) && !yield(e, err) {
							return
						}
					}
				}
				err := s.Sweep(t.Context(), files, content.Compared, func(c content.Content, err error) error {
					var b []byte
					if err == nil {
						b, err = io.ReadAll(c.Checked())
					}
					into(c.Entry, b, err)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
			each(plain, func(e content.Entry, b []byte, err error) {
				if err == nil {
					want[e.Name] = string(b)
				}
			})
			each(s, func(e content.Entry, b []byte, err error) {
				if w, ok := want[e.Name]; e.Size > 0 && bad[e.Name] == (err == nil) || err == nil && (!ok || w != string(b)) {
					t.Errorf("%s: damaged %v: %d bytes, %v", e.Name, bad[e.Name], len(b), err)
				}
			})
		})
	}
	if used < 3*share {
		t.Errorf("compared only %d", used)
	}
}

// Short and long contents say whether they are vouched for, with and without an index that has
// digests of pieces.
func TestContentSaysWhetherItIsVouchedFor(t *testing.T) {
	ctx := t.Context()
	files := map[string]string{"a": "content", "long": strings.Repeat("0123456789", 200_000)}
	p := prove(t, files, nil)
	for _, want := range []bool{false, true} {
		w := way{}
		if want {
			w = beside
		}
		s := openAs(t, p, "x", "caf", w)
		n := 0
		err := s.Sweep(ctx, s.Packed(ctx), content.InOrder, func(c content.Content, err error) error {
			opened := s.Open(ctx, c.Entry, 0)
			defer opened.Close()
			if n++; err != nil || c.Vouched() != want || opened.Vouched() != want || c.Amiss() != nil {
				t.Errorf("%s, by an index %v: vouched for in a sweep %v, by itself %v, %v", c.Entry.Name, want, c.Vouched(), opened.Vouched(), err)
			}
			return nil
		})
		if err != nil || n != 2 {
			t.Errorf("%d contents, %v", n, err)
		}
		for name := range files {
			e := lookup(t, s, name)
			parts, whole := compares(t, s, e)
			if parts != (want || name == "a") || !whole {
				t.Errorf("%s, by an index %v: it compares parts %v, all %v", name, want, parts, whole)
			}
			if _, raw := s.Section(ctx, e); raw == want {
				t.Errorf("%s, by an index %v: stored as it is: %v", name, want, raw)
			}
		}
	}
}

// CheckPieces names each damaged piece, calls done for all others, and counts.
func TestDamagedPiecesAreNamedOneByOne(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for kind, param := range map[string]map[string]string{"caf": nil, "zip": nil, "databundle": {"compression": "zlib"}} {
		t.Run(kind, func(t *testing.T) {
			files := map[string]string{"long": text(rnd, 21*chunk+1), "b": text(rnd, 3*chunk+17), "c": "gamma", "e": ""}
			st := packedAs(t, kind, param, files)
			s := openAs(t, st, "x", kind, way{})
			writeIndex(t, s, st, "x"+kept.Suffix, content.IndexOptions{Chunk: chunk})
			var m meter.Meter
			done := 0
			s = openAs(t, st, "x", kind, beside)
			err := s.CheckPieces(t.Context(), &m, func(e content.Entry, p *content.ProofError) { t.Error(p) }, func(content.Entry) { done++ })
			if n := m.Snapshot(); err != nil || done != 3 || n.Entries != 3 || n.Bytes < 24*chunk {
				t.Errorf("sound: %d are done, %+v, %v", done, n, err)
			}
			x := extentsOf(t, s, lookup(t, s, "long"))[0]
			st.Put(x.Object, flipped(st.Get(x.Object), x.Off+x.Len/2, 3))
			s = openAs(t, st, "x", kind, way{index: kept.Use{Beside: true, SizeOnly: true}})
			var found []string
			done = 0
			err = s.CheckPieces(t.Context(), &m, func(e content.Entry, p *content.ProofError) {
				found = append(found, e.Name)
				if p.Entry != e.Name || p.Off%chunk != 0 || p.None {
					t.Errorf("%+v", p)
				}
				if _, err := s.ReadAt(t.Context(), e, make([]byte, p.Len), p.Off); err == nil {
					t.Errorf("%s can be read at %d", e.Name, p.Off)
				}
			}, func(content.Entry) { done++ })
			if err != nil || len(found) == 0 || done != 3-len(slices.Compact(found)) || kind == "caf" && len(found) > 1 {
				t.Errorf("%q are damaged, %d are not; %v", found, done, err)
			}
		})
	}
}

// text is content that compresses. Of fewer letters, Adler-32 misses one damage in some thousands.
func text(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + rnd.IntN(64))
	}
	return string(b)
}

// What an index is asked to be made of must not change meanwhile, and what fails on the way is no
// damage.
func TestAnIndexIsOfOneVersion(t *testing.T) {
	files := map[string]string{"a": "alpha", "b": strings.Repeat("beta", 100)}
	mem := packedAs(t, "caf", nil, files)
	other := packedAs(t, "caf", nil, map[string]string{"a": "alpha", "b": strings.Repeat("BETA", 100)}).Get("x")
	s := openAs(t, mem, "x", "caf", way{})
	into := &storetest.Mem{}
	_, err := s.WriteIndex(t.Context(), into, "i", content.IndexOptions{Chunk: chunk, OnError: func(format.Problem) {}, Meter: nil})
	if err != nil {
		t.Fatal(err)
	}
	mem.Put("x", other)
	if _, err := s.WriteIndex(t.Context(), into, "j", content.IndexOptions{Chunk: chunk, OnError: func(format.Problem) {}}); err == nil || into.Get("j") != nil {
		t.Errorf("an index of two versions is written: %v", err)
	}
	fails := storetest.Fault(packedAs(t, "caf", nil, files), func(op, name string, off, n int64) error {
		if op == "read" && off == 0 && n < 1000 {
			return &store.Error{Op: "read", Name: name, Off: off, Len: n, Retry: true, Err: errors.New("busy")}
		}
		return nil
	})
	s = openAs(t, fails, "x", "caf", way{})
	if _, err := s.WriteIndex(t.Context(), into, "k", content.IndexOptions{Chunk: chunk, OnError: func(p format.Problem) { t.Error(p) }}); err == nil || into.Get("k") != nil {
		t.Errorf("what a server failed to give is written down as damage: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openAs(t, mem, "x", "caf", way{}).WriteIndex(canceled, into, "l", content.IndexOptions{}); !errors.Is(err, context.Canceled) || into.Get("l") != nil {
		t.Error(err)
	}
}
