package s3_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// What one of Go and Python has read of a bucket, by s3fs, the other has.
func TestPythonSharesTheCacheOfBuckets(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	python, cache := testkit.Needs(t, "HOLDALL_ZARR3_PYTHON"), &holdall.BlockCache{Dir: t.TempDir(), Size: 16 << 20}
	if err := os.Mkdir(filepath.Join(dir, "cached"), 0o777); err != nil {
		t.Fatal(err)
	}
	want := testkit.Noise(testkit.Rand(t), 900_000)
	in := testkit.Tree(t, filepath.Join(t.TempDir(), "in"), map[string]string{"a é+%": string(want)})
	blocks := func(address string, n int64, read func(string) []byte) int64 {
		t.Helper()
		if got := read(address); string(got) != string(want) {
			t.Errorf("%s: %d bytes", address, len(got))
		}
		u, err := cache.Usage(t.Context())
		if err != nil || n >= 0 && u.Blocks != n || u.Blocks == 0 {
			t.Errorf("%s: %d blocks, expected %d; %v", address, u.Blocks, n, err)
		}
		return u.Blocks
	}
	byGo := func(address string) []byte {
		a, err := holdall.Open(t.Context(), address, holdall.OpenOptions{Blocks: cache})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		got, err := a.Get(t.Context(), "a é+%", 1<<20)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	byPython := func(address string) []byte {
		cmd := exec.Command(python, "-c", "import holdall, sys\nsys.stdout.buffer.write(holdall.open(sys.argv[1], index=False)['a é+%'])", address)
		none := func(v string) bool { return strings.HasPrefix(v, "AWS_") && strings.HasSuffix(v, "=") } // botocore takes these for values
		cmd.Env = append(slices.DeleteFunc(os.Environ(), none), "PYTHONPATH=../../python/src", "PYTHONDONTWRITEBYTECODE=1", "HOLDALL_CACHE_DIR="+cache.Dir)
		cmd.Stderr = os.Stderr
		got, err := cmd.Output()
		if err != nil {
			t.Error(err)
		}
		return got
	}
	for _, c := range []struct {
		name          string
		first, second func(string) []byte
	}{{"s3://cached/go é+.caf", byGo, byPython}, {"s3://cached/python.caf", byPython, byGo}} {
		if _, err := holdall.Pack(t.Context(), c.name, []string{in}, holdall.PackOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := cache.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := blocks(c.name, -1, c.first)
		blocks(c.name, n, c.second)
	}
}
