package zarr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Damage of a shard's index, and of what it leads to, is an error that names the shard.
func TestDamagedShards(t *testing.T) {
	for _, name := range []string{"shards start summed", "shards end summed", "shards end bare", "shards start bare"} {
		good := goldens3(t)[name].Keys
		shard := good["c/0/0"]
		index := len(shard) - 4*indexRow
		if name == "shards end summed" {
			index -= 4
		} else if name == "shards start summed" || name == "shards start bare" {
			index = 0
		}
		for what, damage := range map[string]func(b []byte) []byte{
			"cut":      func(b []byte) []byte { return b[:10] },
			"far away": func(b []byte) []byte { binary.LittleEndian.PutUint64(b[index:], 1<<40); return b },
			"negative": func(b []byte) []byte { binary.LittleEndian.PutUint64(b[index:], 1<<63); return b },
			"long":     func(b []byte) []byte { binary.LittleEndian.PutUint64(b[index+8:], 1<<50); return b },
			"chunk":    func(b []byte) []byte { b[int(binary.LittleEndian.Uint64(b[index:]))] ^= 0xff; return b },
		} {
			keys := keyed{}
			for k, v := range good {
				keys[k] = v
			}
			keys["c/0/0"] = damage(bytes.Clone(shard))
			a, err := Open(t.Context(), keys, "")
			if err != nil {
				t.Fatal(err)
			}
			err = a.WriteElements(t.Context(), &bytes.Buffer{})
			if ke, ok := errors.AsType[*KeyError](err); !ok || ke.Key != "c/0/0" || kindOf(err) == nil {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
}

// counting counts what of values is read.
type counting struct {
	keyed
	bytes int64
}

func (c *counting) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	c.bytes += n
	return c.keyed.GetRange(ctx, key, off, n)
}

// Of a shard only its index and the chunks are read that are wanted.
func TestShardsAreReadByRanges(t *testing.T) {
	keys := &counting{keyed: goldens3(t)["shards usual"].Keys}
	a, err := Open(t.Context(), keys, "")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Chunks, []int64{2, 2, 2}) || !slices.Equal(a.Shard.Chunks, []int64{4, 4, 10}) || a.NumKeys() != 9 || a.NumChunks() != 125 {
		t.Fatalf("%+v, %d keys, %d chunks", a.Meta, a.NumKeys(), a.NumChunks())
	}
	v, err := a.Sample(t.Context(), []int64{5, 5, 5}, []int64{1, 1, 1}, []int64{1, 1, 1})
	whole := int64(len(keys.keyed["c/1/1/0"]))
	if err != nil || len(v) != 1 || keys.bytes == 0 || keys.bytes > whole*2/3 {
		t.Errorf("%v, %v: %d bytes read of a shard of %d", v, err, keys.bytes, whole)
	}
}

// Files are read by ranges, too.
func TestShardsInFiles(t *testing.T) {
	keys, dir := goldens3(t)["shards end summed"].Keys, t.TempDir()
	for key, v := range keys {
		at := filepath.Join(dir, key)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, v, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var want, got bytes.Buffer
	for _, c := range []struct {
		src Source
		to  *bytes.Buffer
	}{{keys, &want}, {Files(os.DirFS(dir)), &got}} {
		a, err := Open(t.Context(), c.src, "")
		if err == nil {
			err = a.WriteNPY(t.Context(), c.to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want.Len() == 0 || !bytes.Equal(want.Bytes(), got.Bytes()) {
		t.Error("files hold something else")
	}
}
