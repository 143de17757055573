package fixity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/testkit"
)

func line(i int) Line {
	return Line{By: "me", Tool: "test", Result: Result{Archive: fmt.Sprintf("%d.caf", i), Verdict: "sound"}}
}

// logOf makes a log of n lines.
func logOf(t testing.TB, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	for i := range n {
		if _, err := Append(context.Background(), path, line(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func checked(t testing.TB, b []byte) Checked {
	t.Helper()
	c, err := Check(bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestManyAppendAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for w := range cap(errs) {
		all.Go(func() {
			var err error
			for i := range 20 {
				if _, aerr := Append(t.Context(), path, line(w*20+i), nil); aerr != nil {
					err = errors.Join(err, aerr)
				}
			}
			errs <- err
		})
	}
	all.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if c := checked(t, testkit.Read(t, path)); c.Lines != 160 || c.Wrong != 0 || c.Torn != 0 {
		t.Errorf("%+v", c)
	}
}

// Whatever a killed writer has left is kept, and the next line says so.
func TestATornEndIsCompleted(t *testing.T) {
	b := testkit.Read(t, logOf(t, 2))
	first := bytes.IndexByte(b, '\n') + 1
	for n := range len(b) + 1 {
		path := filepath.Join(t.TempDir(), "log")
		left := b[:n]
		if err := os.WriteFile(path, left, 0o666); err != nil {
			t.Fatal(err)
		}
		if c := checked(t, left); c.Wrong != 0 {
			t.Fatalf("%d bytes: %+v", n, c)
		}
		last, err := Append(t.Context(), path, line(7), nil)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		now := testkit.Read(t, path)
		c, want := checked(t, now), Checked{Lines: 1, Last: last, prev: last}
		for _, end := range []int{first, len(b)} {
			if n >= end-1 { // all but the end of the line is whole
				want.Lines++
			}
		}
		if n > 0 && n < first-1 || n > first && n < len(b)-1 {
			want.Torn = 1
		}
		if !bytes.HasPrefix(now, left) || c != want {
			t.Errorf("%d bytes: %+v, expected %+v", n, c, want)
		}
	}
	// So it is with what a killed writer of the line after that has left.
	path := logOf(t, 1)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("{\"time\n\x00\x00\n{")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Append(t.Context(), path, line(1), nil); err != nil {
		t.Fatal(err)
	}
	if c := checked(t, testkit.Read(t, path)); c.Wrong != 0 || c.Lines != 2 || c.Torn != 3 {
		t.Errorf("%+v", c)
	}
}

func TestEveryChangeBeforeTheLastLineIsFound(t *testing.T) {
	b := testkit.Read(t, logOf(t, 3))
	if c := checked(t, b); c.Lines != 3 || c.Wrong != 0 {
		t.Fatalf("%+v", c)
	}
	last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	for i := range last - 1 { // without the end of the last line but one, the rest is a torn line
		for bit := range 8 {
			turned := bytes.Clone(b)
			turned[i] ^= 1 << bit
			if c := checked(t, turned); c.Wrong == 0 {
				t.Errorf("bit %d of byte %d (%q) may be turned: %+v", bit, i, b[i], c)
			}
		}
	}
	lines := bytes.SplitAfter(b, []byte("\n"))[:3]
	for i := range 2 {
		if c := checked(t, bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil)); c.Wrong != int64(i+1) {
			t.Errorf("without line %d: %+v", i+1, c)
		}
		if c := checked(t, bytes.Join(slices.Insert(slices.Clone(lines), i, []byte("torn\n")), nil)); c.Wrong == 0 || c.Wrong > int64(i+2) {
			t.Errorf("with a line before %d: %+v", i+1, c)
		}
	}
	// What is missing at the end is not; so the last digest is to be kept elsewhere.
	if c := checked(t, bytes.Join(lines[:2], nil)); c.Wrong != 0 || c.Last == checked(t, b).Last {
		t.Errorf("%+v", c)
	}
	if c := checked(t, bytes.Repeat([]byte("x"), mostLine+1)); c.Wrong != 1 {
		t.Errorf("%+v", c)
	}
}

func TestNothingElseBecomesALog(t *testing.T) {
	for _, content := range []string{"\x00\x00", "PK\x03\x04\n", "{\"time\":", strings.Repeat("{\"a\":1}\n", mostEnd/4)} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Append(t.Context(), path, line(0), nil)
		if may := content == "{\"time\":"; may != (err == nil) || may != (Ready(t.Context(), path) == nil) {
			t.Errorf("%.20q: %v", content, err)
		}
		if b := testkit.Read(t, path); !strings.HasPrefix(string(b), content) {
			t.Errorf("%.20q was changed", content)
		}
	}
	if _, err := Append(t.Context(), t.TempDir(), line(0), nil); err == nil {
		t.Error("a folder is a log")
	}
	l := line(0)
	l.Error = strings.Repeat("x", mostLine)
	if _, err := Append(t.Context(), logOf(t, 1), l, nil); err == nil {
		t.Error("a line that cannot be checked is written")
	}
}

// Only the end of a long log is read before a line is added.
func TestALongLogGoesOn(t *testing.T) {
	path, l := filepath.Join(t.TempDir(), "log"), line(0)
	l.Error = strings.Repeat("x", mostLine-1000)
	for range mostEnd/mostLine + 4 {
		if _, err := Append(t.Context(), path, l, nil); err != nil {
			t.Fatal(err)
		}
	}
	b := testkit.Read(t, path)
	if c := checked(t, b); c.Wrong != 0 || c.Lines != mostEnd/mostLine+4 || len(b) <= mostEnd {
		t.Errorf("%+v", c)
	}
	if err := os.WriteFile(path, append(b, bytes.Repeat([]byte("torn\n"), mostEnd/5+1)...), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Append(t.Context(), path, l, nil); err == nil {
		t.Error("a line is added where no line is seen")
	}
}

// Whatever a log has, checking it ends, and a line can be added to what is accepted.
func FuzzLog(f *testing.F) {
	b := testkit.Read(f, logOf(f, 2))
	f.Add(b)
	f.Add(b[:len(b)-9])
	f.Add(append([]byte("torn\n"), b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := checked(t, b)
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		last, err := Append(context.Background(), path, line(3), nil)
		now := testkit.Read(t, path)
		if !bytes.HasPrefix(now, b) || err != nil && len(now) != len(b) {
			t.Fatalf("%q became %q", b, now)
		}
		if c := checked(t, now); err == nil && before.Wrong == 0 && (c.Wrong != 0 || c.Last != last || c.Lines != before.Lines+1) {
			t.Errorf("%q: %+v, then %+v", b, before, c)
		}
	})
}

// TestSignedLines changes each byte of a line that is signed, and adds one that is not.
func TestSignedLines(t *testing.T) {
	secret, err := minisign.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	path, keys := filepath.Join(t.TempDir(), "log"), []minisign.Key{secret.Public()}
	for i := range 3 {
		if _, err := Append(t.Context(), path, line(i), &secret); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(b []byte, keys []minisign.Key) int64 {
		c, err := Check(bytes.NewReader(b), keys)
		if err != nil {
			t.Fatal(err)
		}
		return c.Wrong
	}
	if n := wrong(b, keys); n != 0 {
		t.Fatalf("line %d", n)
	}
	last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	for i := last; i < len(b)-1; i++ {
		changed := bytes.Clone(b)
		changed[i] ^= 1
		c, err := Check(bytes.NewReader(changed), keys)
		if err != nil || c.Wrong != 3 && c.Torn != 1 && c.Lines != 2 {
			t.Fatalf("byte %d of the last line: %+v, %v", i-last, c, err)
		}
	}
	other, err := minisign.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	if n := wrong(b, []minisign.Key{other.Public()}); n != 1 {
		t.Errorf("another key: line %d", n)
	}
	if _, err := Append(t.Context(), path, line(3), nil); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(path); err != nil || wrong(b, keys) != 4 || wrong(b, nil) != 0 {
		t.Errorf("a line that is not signed: %d, %v", wrong(b, keys), err)
	}
}
