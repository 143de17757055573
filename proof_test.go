package holdall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const chunk = 64 << 10 // as short as a piece may be

// proven is an archive in memory that is read by an index with digests, and of which a
// byte may rot while it is open.
type proven struct {
	*storetest.Mem
	rotten int64 // where; -1 is nowhere
	with   byte
	b      []byte // of the archive
	files  map[string]string
	sum    holdall.IndexSummary
	found  []holdall.Problem // when the index was made
}

// Near keeps bytes from being cached.
func (p *proven) Can() store.Abilities {
	can := p.Mem.Can()
	can.Near = true
	return can
}

func (p *proven) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := p.Mem.Open(ctx, name)
	if err == nil && name == "x.caf" {
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

func open(t *testing.T, st store.Store, at holdall.UseIndex) *holdall.Archive {
	t.Helper()
	a, err := holdall.OpenStore(t.Context(), st, "x.caf", holdall.OpenOptions{Index: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if at.Beside && a.Index().Used == "" {
		t.Fatalf("%+v", a.Index())
	}
	return a
}

var beside = holdall.UseIndex{Beside: true}

// prove makes a CAF of files, whose bytes damage may change before the index is made.
func prove(t *testing.T, files map[string]string, damage func(b []byte)) *proven {
	t.Helper()
	b, err := os.ReadFile(packed(t, t.TempDir(), files))
	if err != nil {
		t.Fatal(err)
	}
	p := &proven{Mem: &storetest.Mem{}, rotten: -1, b: b, files: files}
	if damage != nil {
		damage(b)
	}
	p.Put("x.caf", b)
	p.sum, err = holdall.BuildIndexStore(t.Context(), p, "x.caf", p, "x.caf.holdall",
		holdall.IndexOptions{Chunk: chunk, OnError: func(f holdall.Problem) { p.found = append(p.found, f) }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func someFiles(rnd *rand.Rand) map[string]string {
	files := map[string]string{}
	for i, n := range []int{0, 1, 100, chunk - 1, chunk, chunk + 1, 3*chunk + 17, 20 * chunk, 21*chunk + 1} {
		b := make([]byte, n)
		for k := range b {
			b[k] = byte(rnd.Uint32())
		}
		files[fmt.Sprintf("d%d/f%d", i%3, n)] = string(b)
	}
	return files
}

// readInEveryWay compares what each way to read a file gives with what is right. It
// returns the errors, one for a way.
func readInEveryWay(t *testing.T, a *holdall.Archive, e holdall.Entry, want string, rnd *rand.Rand) (errs []error) {
	t.Helper()
	ctx := t.Context()
	part := func(way string, got []byte, off int, err error) {
		if err != nil {
			errs = append(errs, err)
		}
		if off+len(got) > len(want) || string(got) != want[off:off+len(got)] {
			t.Fatalf("%s: %s: other bytes in the %d from %d (%v)", e.Name, way, len(got), off, err)
		}
	}
	for range 6 {
		off := rnd.IntN(len(want) + 1)
		p := bytes.Repeat([]byte{0xee}, rnd.IntN(len(want)-off+1))
		n, err := a.ReadAt(ctx, e, p, int64(off))
		part("ReadAt", p[:n], off, err)
		if err == nil && n < len(p) {
			t.Fatalf("%s: %d of %d bytes", e.Name, n, len(p))
		}
	}
	f, err := a.OpenEntry(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	off := rnd.IntN(len(want) + 1)
	if _, err := f.Seek(int64(off), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	part("Read", got, off, err)
	var b bytes.Buffer
	err = a.WriteContent(ctx, &b, e)
	part("WriteContent", b.Bytes(), 0, err)
	err = a.Contents(ctx, func(x holdall.Entry) bool { return x.Name == e.Name }, func(_ holdall.Entry, content io.Reader, err error) error {
		if err != nil {
			return err
		}
		got, err := io.ReadAll(content)
		part("Contents", got, 0, err)
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

func TestProvenReadsGiveTheSameBytes(t *testing.T) {
	rnd := testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	if p.sum.Unproven != 0 || p.sum.Digests == 0 || len(p.found) > 0 {
		t.Fatalf("%+v", p.sum)
	}
	a := open(t, p, beside)
	sameArchives(t, a, open(t, p, holdall.UseIndex{}))
	for name, want := range p.files {
		e, err := a.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if errs := readInEveryWay(t, a, e, want, rnd); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestNoDamagedByteIsHandedOut damages an archive at one place at a time behind the
// back of its index: every way to read comes to an error or to bytes that are right.
func TestNoDamagedByteIsHandedOut(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	plain := open(t, p, holdall.UseIndex{})
	for e, err := range plain.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for x, err := range plain.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			at := rnd.Int64N(e.Size)
			p.rotten, p.with = -1, 1<<rnd.IntN(8)
			a := open(t, p, beside)
			p.rotten = x.Off + at
			found, err := a.Lookup(t.Context(), e.Name)
			if err != nil {
				t.Fatal(err)
			}
			errs := readInEveryWay(t, a, found, p.files[e.Name], rnd)
			if len(errs) == 0 {
				t.Errorf("%s: nobody noticed the damage at %d", e.Name, at)
			}
			for _, err := range errs {
				bad, ok := errors.AsType[*holdall.ProofError](err)
				if !ok || !errors.Is(err, holdall.ErrDamaged) || bad.None || bad.Entry != e.Name || bad.Off != at/chunk*chunk || bad.Len != min(chunk, e.Size-bad.Off) {
					t.Errorf("%s: damage at %d: %v", e.Name, at, err)
				}
			}
			// What lies in other pieces can be had.
			b := make([]byte, 1)
			for off := at % chunk; off < e.Size; off += chunk {
				if _, err := a.ReadAt(t.Context(), found, b, off); (err != nil) != (off/chunk == at/chunk) {
					t.Errorf("%s: damage at %d: a byte at %d: %v", e.Name, at, off, err)
				}
			}
		}
	}
}

// TestEveryDamagedByteOfASmallArchiveIsCaught leaves out none.
func TestEveryDamagedByteOfASmallArchiveIsCaught(t *testing.T) {
	testkit.Long(t)
	p := prove(t, map[string]string{"a": "alpha", "b": strings.Repeat("beta", 60), "c": "gamma"}, nil)
	caught := 0
	p.with = 0x10
	for i := range p.b {
		p.rotten = -1
		a := open(t, p, beside)
		p.rotten = int64(i)
		for name, want := range p.files {
			e, err := a.Lookup(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			for off := range want {
				b := []byte{0xee}
				n, err := a.ReadAt(t.Context(), e, b, int64(off))
				switch {
				case err == nil && (n != 1 || b[0] != want[off]) || err != nil && n != 0:
					t.Fatalf("damage at %d: byte %d of %s is %q, %v", i, off, name, b[:n], err)
				case err != nil:
					caught++
				}
			}
		}
		a.Close()
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
	a := open(t, p, beside)
	for n, want := range files {
		e, err := a.Lookup(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		errs := readInEveryWay(t, a, e, want, rnd)
		if (len(errs) > 0) != (n == name) {
			t.Errorf("%s: %v", n, errs)
		}
		for _, err := range errs {
			if bad, ok := errors.AsType[*holdall.ProofError](err); !ok || !bad.None {
				t.Errorf("%s: %v", n, err)
			}
		}
	}
}

// TestAnIndexThatLosesItsDigestsIsNotPassedOver damages the pages of digests: nothing is
// read without proof because of that.
func TestAnIndexThatLosesItsDigestsIsNotPassedOver(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	p := prove(t, someFiles(rnd), nil)
	index := p.Get("x.caf.holdall")
	lost := 0
	for i := 16; i < len(index); i += 1 + rnd.IntN(20) {
		bad := bytes.Clone(index)
		bad[i] ^= 0x41
		p.Put("x.caf.holdall", bad)
		a, err := holdall.OpenStore(t.Context(), p, "x.caf", holdall.OpenOptions{Index: beside})
		if err != nil {
			t.Fatal(err)
		}
		if a.Index().Used == "" {
			a.Close()
			continue
		}
		for name, want := range p.files {
			if len(want) == 0 {
				continue
			}
			b := make([]byte, 1)
			e, err := a.Lookup(t.Context(), name)
			if err == nil {
				_, err = a.ReadAt(t.Context(), e, b, 0)
			}
			_, isLost := errors.AsType[*holdall.ProofLostError](err)
			if isLost {
				lost++
			} else if err != nil || b[0] != want[0] {
				t.Fatalf("damage at %d: %s: %v", i, name, err)
			}
		}
		a.Close()
	}
	if lost == 0 {
		t.Error("no damage was in the digests")
	}
}

// TestAnIndexWithDigestsOfOtherContentRefuses reads an archive by what was made of one
// of the same names, lengths, times and ends.
func TestAnIndexWithDigestsOfOtherContentRefuses(t *testing.T) {
	dir := t.TempDir()
	path := packed(t, dir, map[string]string{"a": strings.Repeat("0", 8<<10), "b": "right", "c": strings.Repeat("0", 8<<10)})
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, name, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.BuildIndexStore(t.Context(), st, name, st, name+".holdall", holdall.IndexOptions{Chunk: chunk}); err != nil {
		t.Fatal(err)
	}
	bytesOf, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(bytesOf[bytes.Index(bytesOf, []byte("right")):], "wrong")
	if err := errors.Join(os.WriteFile(path, bytesOf, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Index: beside})
	if err != nil || a.Index().Used == "" {
		t.Fatal(err, a.Index())
	}
	defer a.Close()
	e, err := a.Lookup(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if n, err := a.ReadAt(t.Context(), e, b, 0); n != 0 || !errors.Is(err, holdall.ErrDamaged) || string(b) != "\x00\x00\x00\x00\x00" {
		t.Errorf("%d, %v, %q", n, err, b)
	}
}

// TestEveryFormatIsProvenAlike reads test data of all formats with and without.
func TestEveryFormatIsProvenAlike(t *testing.T) {
	testkit.Long(t)
	used := 0
	for i, path := range archivesOfOthers(t) {
		if i%2 == 1 {
			continue // enough of each kind are left
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			plain, err := holdall.Open(t.Context(), path, holdall.OpenOptions{})
			if err != nil {
				t.Skip(err)
			}
			defer plain.Close()
			if _, failed := entriesOf(plain.Entries(t.Context())); failed != "" {
				t.Skip(failed)
			}
			st, name, err := store.OpenAddress(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			to, toName, err := store.OpenAddress(t.Context(), filepath.Join(t.TempDir(), "x.holdall"))
			if err != nil {
				t.Fatal(err)
			}
			bad := map[string]bool{}
			if _, err := holdall.BuildIndexStore(t.Context(), st, name, to, toName,
				holdall.IndexOptions{Chunk: chunk, OnError: func(p holdall.Problem) { bad[p.Entry] = true }}); err != nil {
				t.Fatal(err)
			}
			a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Index: holdall.UseIndex{At: store.AddressOf(to, toName)}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			used++
			ctx := t.Context()
			want := map[string]string{}
			read := func(into func(e holdall.Entry, b []byte, err error)) func(holdall.Entry, io.Reader, error) error {
				return func(e holdall.Entry, r io.Reader, err error) error {
					var b []byte
					if err == nil {
						b, err = io.ReadAll(r)
					}
					into(e, b, err)
					return nil
				}
			}
			files := func(e holdall.Entry) bool { return e.Kind.HasContent() && e.Fault == nil }
			err = errors.Join(plain.Contents(ctx, files, read(func(e holdall.Entry, b []byte, err error) {
				if err == nil {
					want[e.Name] = string(b)
				}
			})), a.Contents(ctx, files, read(func(e holdall.Entry, b []byte, err error) {
				if w, ok := want[e.Name]; e.Size > 0 && bad[e.Name] == (err == nil) || err == nil && (!ok || w != string(b)) {
					t.Errorf("%s: damaged %v: %d bytes, %v", e.Name, bad[e.Name], len(b), err)
				}
			})))
			if err != nil {
				t.Error(err)
			}
		})
	}
	if used < 20 {
		t.Errorf("compared only %d", used)
	}
}

// TestOnlyWhatIsDamagedIsFetchedFromAnotherCopy repairs archives whose contents are stored
// as they are, and compressed.
func TestOnlyWhatIsDamagedIsFetchedFromAnotherCopy(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, format := range []string{"caf", "zip"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			in := filepath.Join(dir, "in")
			if err := os.Mkdir(in, 0o777); err != nil {
				t.Fatal(err)
			}
			for name, n := range map[string]int{"a": 100, "b": 10 * chunk, "c": 3*chunk + 5, "d": 9} {
				b := make([]byte, n)
				for i := range b {
					b[i] = "abcdefgh"[rnd.IntN(8)]
				}
				if err := os.WriteFile(filepath.Join(in, name), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "x.caf")
			if _, err := holdall.Pack(t.Context(), path, []string{in}, holdall.PackOptions{Format: format}); err != nil {
				t.Fatal(err)
			}
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			st := &storetest.Mem{}
			st.Put("x.caf", sound)
			if _, err := holdall.BuildIndexStore(t.Context(), st, "x.caf", st, "x.caf.holdall", holdall.IndexOptions{Chunk: chunk}); err != nil {
				t.Fatal(err)
			}
			a := open(t, st, holdall.UseIndex{})
			// Two bytes of one piece, one of another file; and of one in a unit.
			bad, most := bytes.Clone(sound), int64(0)
			for e, err := range a.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Name != "b" && e.Name != "d" {
					continue
				}
				for x, err := range a.Extents(t.Context(), e) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Name == "b" && (x.Codec == "") != (format == "caf") {
						t.Fatalf("%s: %s is stored by %q", format, e.Name, x.Codec)
					}
					bad[x.Off+x.Len/2] ^= 1
					bad[x.Off+x.Len/2+1] ^= 1
					if most += x.Len; x.Codec == "" && x.Len > chunk {
						most += chunk - x.Len
					}
				}
			}
			st.Put("x.caf", bad)
			st.Put("mirror", sound)
			var trace bytes.Buffer
			o := holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}}
			plan, err := holdall.RepairStore(t.Context(), st, "x.caf", holdall.RepairOptions{OpenOptions: o, FromStore: storetest.Trace(st, &trace), From: "mirror"})
			if err != nil {
				t.Fatal(err)
			}
			defer plan.Close()
			sum, fetched := plan, int64(0)
			for line := range strings.Lines(trace.String()) {
				var off, n int64
				if _, err := fmt.Sscanf(line, "read mirror at %d+%d", &off, &n); err == nil {
					fetched += n
				}
			}
			if sum.Healed == 0 || sum.Healed != sum.Damaged || plan.Partial || fetched != sum.Fetched || fetched > most || fetched == 0 {
				t.Fatalf("%+v, lost %q; fetched %d, expected at most %d", sum, plan.Lost, fetched, most)
			}
			if err := plan.ApplyStore(t.Context(), st, "repaired"); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(st.Get("repaired"), sound) {
				t.Error("it is not what it was")
			}
			// A copy with the same damage does not help, and nothing of it is taken.
			again, err := holdall.RepairStore(t.Context(), st, "x.caf", holdall.RepairOptions{OpenOptions: o, FromStore: st, From: "x.caf"})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if again.Healed != 0 || len(again.Edits) != 0 || int64(len(again.Lost)) != again.Damaged || !again.Partial {
				t.Errorf("%+v", again)
			}
		})
	}
}

// TestAnArchiveOfSeveralObjectsIsRepairedByACopy does the same with one that is a folder.
func TestAnArchiveOfSeveralObjectsIsRepairedByACopy(t *testing.T) {
	rnd := testkit.Rand(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"a": 100, "b": 10 * chunk, "c": 3*chunk + 5} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.IntN(256))
		}
		if err := os.WriteFile(filepath.Join(in, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "x")
	if _, err := holdall.Pack(t.Context(), path, []string{in}, holdall.PackOptions{Format: "databundle"}); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "mirror"), os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	st, name, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	mirror, mirrorName, err := store.OpenAddress(t.Context(), filepath.Join(dir, "mirror"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.BuildIndexStore(t.Context(), st, name, st, name+".holdall", holdall.IndexOptions{Chunk: chunk}); err != nil {
		t.Fatal(err)
	}
	a, err := holdall.OpenStore(t.Context(), st, name, holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	e, err := a.Lookup(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	for x, err := range a.Extents(t.Context(), e) {
		if err != nil {
			t.Fatal(err)
		}
		shard := filepath.Join(path, strings.TrimPrefix(x.Object, name))
		b, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		b[x.Off+x.Len/2] ^= 1
		was, err := os.Stat(shard)
		if err == nil {
			err = os.WriteFile(shard, b, 0o666)
		}
		if err == nil {
			err = os.Chtimes(shard, was.ModTime(), was.ModTime())
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	o := holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}}
	plan, err := holdall.RepairStore(t.Context(), st, name, holdall.RepairOptions{OpenOptions: o, FromStore: mirror, From: mirrorName})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	if sum := plan; sum.Damaged == 0 || sum.Healed != sum.Damaged || plan.Partial || len(plan.Replaces) != 1 {
		t.Fatalf("%+v", plan)
	}
	out, outName, err := store.OpenAddress(t.Context(), filepath.Join(dir, "repaired"))
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.ApplyStore(t.Context(), out, outName); err != nil {
		t.Fatal(err)
	}
	sameFolders(t, filepath.Join(dir, "repaired"), filepath.Join(dir, "mirror"))
	if err := plan.Backup(t.Context(), ".bak"); err != nil {
		t.Fatal(err)
	}
	if err := plan.ApplyStore(t.Context(), st, name); err != nil {
		t.Fatal(err)
	}
	sameFolders(t, path, filepath.Join(dir, "mirror"))
	if kept, err := os.ReadDir(path + ".bak"); err != nil || len(kept) != 1 {
		t.Errorf("%d objects in the backup, %v", len(kept), err)
	}
}

func sameFolders(t *testing.T, got, want string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(want, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := os.ReadFile(filepath.Join(got, strings.TrimPrefix(path, want)))
		if err != nil || !bytes.Equal(found, b) {
			t.Errorf("%s is not what it was: %v", filepath.Base(path), err)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d files, %v", n, err)
	}
}
