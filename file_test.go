package holdall_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// TestFilesBehaveAsTheStandardLibrarys closes files and archives, and seeks where nothing is.
func TestFilesBehaveAsTheStandardLibrarys(t *testing.T) {
	m := archiveOf(t, both[0], []holdall.Entry{{Name: "a"}, {Name: "long"}}, map[string]string{"a": "content", "long": strings.Repeat("0123456789", 200_000)})
	a := openMem(t, m, holdall.OpenOptions{})
	f, err := a.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 7); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("seek by a whence that there is not: %v", err)
	}
	if _, err := f.Seek(-1, io.SeekStart); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("seek to before the beginning: %v", err)
	}
	if at, err := f.Seek(-3, io.SeekEnd); at != 4 || err != nil {
		t.Errorf("seek from the end: %d, %v", at, err)
	}
	if b, err := io.ReadAll(f); string(b) != "ent" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for op, try := range map[string]func() error{
		"Read":   func() error { _, err := f.Read(make([]byte, 1)); return err },
		"ReadAt": func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		"Seek":   func() error { _, err := f.Seek(0, io.SeekStart); return err },
		"Stat":   func() error { _, err := f.Stat(); return err },
		"Close":  f.Close,
	} {
		if err := try(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", op, err)
		}
	}
	e, err := a.Lookup(t.Context(), "long")
	if err != nil {
		t.Fatal(err)
	}
	open, err := a.OpenEntry(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for what, try := range map[string]func() error{
		"an open file": func() error { _, err := open.ReadAt(make([]byte, 10), 1_000_000); return err },
		"its other end": func() error {
			_, err := open.Seek(1_500_000, io.SeekStart)
			if err == nil {
				_, err = open.Read(make([]byte, 10))
			}
			return err
		},
		"the archive":     func() error { _, err := a.ReadAt(t.Context(), e, make([]byte, 10), 0); return err },
		"all of a file":   func() error { return a.WriteContent(t.Context(), io.Discard, e) },
		"one by its name": func() error { _, err := a.Get(t.Context(), "a", 100); return err },
	} {
		if err := try(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed archive is read: %v", what, err)
		}
	}
}

// TestEveryFunctionTakesAnAddress does by addresses what the other tests do in stores.
func TestEveryFunctionTakesAnAddress(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("in"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("in/a"), []byte("content"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.Pack(ctx, at("x.caf"), []string{at("in")}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(ctx, at("x.caf"), holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := holdall.Convert(ctx, a, at("x.lindi.tar"), holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := holdall.Amend(ctx, at("x.lindi.tar"), holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Put(ctx, format.Entry{Name: "b", Size: 1}, strings.NewReader("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if sum, err := holdall.BuildIndex(ctx, at("x.lindi.tar"), at("x.lindi.tar.holdall"), holdall.IndexOptions{}); err != nil || sum.Entries < 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err := holdall.Verify(ctx, at("x.caf"), holdall.VerifyOptions{}, func(p holdall.Problem) { t.Error(p) }); err != nil || sum.Bytes != 7 {
		t.Errorf("%+v, %v", sum, err)
	}
	b, err := os.ReadFile(at("x.caf"))
	if err == nil {
		err = os.WriteFile(at("cut.caf"), b[:len(b)-2], 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	plan, err := holdall.Repair(ctx, at("cut.caf"), holdall.RepairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	if err := plan.Apply(ctx, at("repaired.caf")); err != nil {
		t.Fatal(err)
	}
	repaired, err := holdall.Open(ctx, at("repaired.caf"), holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer repaired.Close()
	if b, err := repaired.Get(ctx, "a", 100); string(b) != "content" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
