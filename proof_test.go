package holdall_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/read/kept"
)

// The functions of this package pass on that an index proves, and what it shows: reads are refused,
// a check names the piece, and a repair fetches it from another copy. Packages content and repairs
// test how.
func TestAnIndexWithDigestsIsUsedByAllFunctions(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	const chunk = 64 << 10 // as short as a piece may be
	path := packed(t, dir, map[string]string{"a": strings.Repeat("0", 8<<10), "b": strings.Repeat("right", 40<<10), "c": strings.Repeat("0", 8<<10)})
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}}
	if _, err := holdall.Repair(ctx, path, holdall.RepairOptions{OpenOptions: o, From: path}); err == nil || !strings.Contains(err.Error(), "no index with digests of pieces") {
		t.Errorf("repaired by a copy without an index: %v", err)
	}
	if _, err := holdall.BuildIndex(ctx, path, path+kept.Suffix, holdall.IndexOptions{Chunk: chunk + 1}); err == nil || !strings.Contains(err.Error(), "expected a power of two") {
		t.Errorf("pieces of 64 KiB and a byte: %v", err)
	}
	sum, err := holdall.BuildIndex(ctx, path, path+kept.Suffix, holdall.IndexOptions{Chunk: chunk, OnError: func(p holdall.Problem) { t.Error(p) }})
	if err != nil || sum.Digests != 1+4+1 || sum.Unproven != 0 || sum.Entries != 3 {
		t.Fatalf("%+v, %v", sum, err)
	}
	damaged := bytes.Clone(sound)
	damaged[bytes.Index(damaged, []byte("right"))+chunk] ^= 1
	fi, err := os.Stat(path)
	if err == nil {
		err = errors.Join(os.WriteFile(path, damaged, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime()), os.WriteFile(filepath.Join(dir, "mirror"), sound, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(ctx, path, o)
	if err != nil || a.Index().Used == "" {
		t.Fatal(err, a.Index())
	}
	defer a.Close()
	e, err := a.Lookup(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if parts, whole := a.Compares(ctx, e); !parts || !whole {
		t.Errorf("it compares %v, %v", parts, whole)
	}
	b := make([]byte, 5)
	n, err := a.ReadAt(ctx, e, b, chunk+10)
	if bad, ok := errors.AsType[*holdall.ProofError](err); n != 0 || !ok || !errors.Is(err, holdall.ErrDamaged) || bad.Off != chunk || string(b) != "\x00\x00\x00\x00\x00" {
		t.Errorf("%d, %v, %q", n, err, b)
	}
	if _, err := a.ReadAt(ctx, e, b, 0); err != nil || string(b) != "right" {
		t.Errorf("another piece: %q, %v", b, err)
	}
	var found []holdall.Problem
	checked, err := holdall.Verify(ctx, path, holdall.VerifyOptions{OpenOptions: o}, func(p holdall.Problem) { found = append(found, p) })
	if err != nil || len(found) != 1 || found[0].Entry != "b" || !strings.Contains(found[0].Message, "bytes 65536 to 131072") || checked.Proven.Digest != 2 {
		t.Errorf("%v, %+v, %v", found, checked, err)
	}
	plan, err := holdall.Repair(ctx, path, holdall.RepairOptions{OpenOptions: o, From: filepath.Join(dir, "mirror")})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	if plan.Damaged != 1 || plan.Healed != 1 || plan.Fetched != chunk || plan.Partial || !plan.Changes() {
		t.Errorf("%+v", plan)
	}
	if err := errors.Join(plan.Backup(ctx, ".bak"), plan.Apply(ctx, filepath.Join(dir, "repaired.caf"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{filepath.Join(dir, "repaired.caf"): sound, path + ".bak": damaged, path: damaged} {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", filepath.Base(name), len(got), err)
		}
	}
}
