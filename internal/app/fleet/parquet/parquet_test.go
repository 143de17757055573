package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

var columns = []string{"bucket", "key", "is_delete_marker", "is_latest", "size", "e_tag"}

func read(b []byte, columns []string) (all [][]string, err error) {
	err = Read(bytes.NewReader(b), int64(len(b)), columns, func(values []string) error {
		all = append(all, slices.Clone(values))
		return nil
	})
	return all, err
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rows are those of testdata/make.py.
func rows(n int) (all [][]string) {
	or := func(is bool, s string) string {
		if is {
			return s
		}
		return ""
	}
	for i := range n {
		all = append(all, []string{"from", fmt.Sprintf("in/é %d%%41/%d", i%9, i), or(i%2 == 1, fmt.Sprint(i%7 == 0)), fmt.Sprint(i%5 != 0), or(i%11 > 0, fmt.Sprint(i*i)), or(i%13 > 0, fmt.Sprintf("%032x", i*7919))})
	}
	return all
}

func TestFilesOfAnotherProgramAreRead(t *testing.T) {
	want := rows(700)
	for _, name := range []string{"v1-snappy", "v2-gzip", "v1-zstd", "v1-plain", "v2-small"} {
		got, err := read(file(t, name), columns)
		if err != nil || !slices.EqualFunc(want, got, slices.Equal) {
			t.Errorf("%s: %d rows, %v, or others than %d", name, len(got), err, len(want))
		}
	}
	got, err := read(file(t, "keys"), []string{"size", "key"})
	if err != nil || len(got) != len(want) || got[8][0] != "" || got[8][1] != want[8][1] {
		t.Errorf("%d rows, %v", len(got), err)
	}
	stop := errors.New("stop")
	if err := Read(bytes.NewReader(file(t, "keys")), int64(len(file(t, "keys"))), columns, func([]string) error { return stop }); err != stop {
		t.Errorf("found %v", err)
	}
	for name, what := range map[string]string{"brotli": "column bucket: compression 4", "delta": "column size: encoding 5"} {
		_, err := read(file(t, name), columns)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// damaged checks that a file that may be damaged is read, or refused with an [Error].
func damaged(t *testing.T, b []byte) {
	t.Helper()
	n := int64(0)
	err := Read(bytes.NewReader(b), int64(len(b)), columns, func([]string) error { n++; return nil })
	if x, is := errors.AsType[*Error](err); err != nil && (!is || x.Off < 0 || x.Off > int64(len(b))) || n > 8*int64(len(b)) {
		t.Fatalf("%d rows, %v", n, err)
	}
}

// TestDamagedFilesAreErrors reads files with some wrong bytes, and parts of files.
func TestDamagedFilesAreErrors(t *testing.T) {
	r := testkit.Rand(t)
	rounds := testkit.Rounds(t, 300)
	for _, name := range []string{"v1-snappy", "v2-gzip", "v1-zstd", "v2-small"} {
		b := file(t, name)
		foot := len(b) - 1500
		for range rounds {
			x := slices.Clone(b)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(x))
				if r.IntN(2) == 0 {
					at = foot + r.IntN(len(x)-foot)
				}
				x[at] = byte(r.Uint32())
			}
			damaged(t, x)
		}
		for _, n := range []int{0, 4, 11, 12, len(b) / 2, len(b) - 1} {
			if damaged(t, b[:n]); n > 0 {
				damaged(t, b[n:])
			}
		}
	}
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"v1-snappy", "v2-gzip", "v2-small", "brotli"} {
		f.Add(file(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) { damaged(t, b) })
}
