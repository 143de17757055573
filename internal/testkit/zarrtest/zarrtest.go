// Package zarrtest makes Zarr hierarchies of version 2 at random. Only tests import it.
package zarrtest

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A Folder has the values of a hierarchy by their keys.
type Folder map[string][]byte

// Dir writes the values into a new folder.
func (f Folder) Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range f {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Words are texts of all kinds.
var Words = []string{"", "a", "größe", "NaN!", "with \"quotes\"", "日本", strings.Repeat("long ", 50)}

// RandomAttributes returns the text of attributes, with references to targets.
func RandomAttributes(rnd *rand.Rand, targets []string) []byte {
	all := map[string]any{}
	one := map[string]func() any{
		"bool":   func() any { return rnd.IntN(2) == 1 },
		"int":    func() any { return rnd.Int64() - rnd.Int64() },
		"large":  func() any { return uint64(1<<63) + rnd.Uint64N(1<<62) },
		"float":  func() any { return json.Number(strconv.FormatFloat(rnd.NormFloat64(), 'e', -1, 64)) },
		"word":   func() any { return []string{"NaN", "Infinity", "-Infinity"}[rnd.IntN(3)] },
		"string": func() any { return Words[rnd.IntN(len(Words))] },
	}
	if targets != nil {
		one["ref"] = func() any {
			return map[string]any{"_REFERENCE": map[string]any{"path": targets[rnd.IntN(len(targets))], "source": ".", "object_id": nil, "source_object_id": nil}}
		}
	}
	for name, value := range one {
		if all[name] = value(); rnd.IntN(2) == 0 {
			list := []any{}
			for range 1 + rnd.IntN(4) {
				list = append(list, value())
			}
			if all[name+"s"] = list; rnd.IntN(2) == 0 {
				all[name+"s"] = []any{list, list}
			}
		}
	}
	all["none"], all["empty"] = nil, []any{}
	b, _ := json.Marshal(all)
	return b
}

// AddArray adds an array of some type, shape, order, codec and separator, some of whose chunks were never written.
// Its type may also be one of more, of which there is "pair".
func (f Folder) AddArray(rnd *rand.Rand, at string, more ...string) {
	rank := rnd.IntN(4)
	shape, chunk, grid, n := make([]int, rank), make([]int, rank), make([]int, rank), 1
	for i := range rank {
		shape[i] = rnd.IntN(9)
		chunk[i] = 1 + rnd.IntN(10)
		if rnd.IntN(3) == 0 && shape[i] > 0 {
			chunk[i] = shape[i]
		}
		grid[i] = (shape[i] + chunk[i] - 1) / chunk[i]
		n *= chunk[i]
	}
	dtypes := []string{"|b1", "|i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16", "|S3", "|V5", "<M8[ns]", "|O", "<U4", "record"}
	dtypes = append(dtypes, more...)
	dtype := dtypes[rnd.IntN(len(dtypes))]
	size, fill, filters := 0, []string{"null", "0"}[rnd.IntN(2)], []string{}
	compressor := []string{"null", `{"id":"zlib","level":5}`, `{"id":"gzip","level":5}`}[rnd.IntN(3)]
	name := strconv.Quote(dtype)
	switch {
	case dtype == "record":
		name, size = `[["a","<i2"],["b","|S3",[2]],["c",[["d",">f8"],["e","|b1"]]]]`, 17
	case dtype == "pair":
		name, size = `[["a","<i2"],["b",">f8"]]`, 10
	case dtype == "|O":
		filters = append(filters, []string{`{"id":"vlen-utf8"}`, `{"id":"vlen-array","dtype":"<i2"}`}[rnd.IntN(2)])
		fill = "null"
		if strings.Contains(filters[0], "utf8") {
			fill = `""`
		}
	default:
		size, _ = strconv.Atoi(strings.TrimSuffix(dtype[2:], "[ns]"))
		if dtype[1] == 'U' {
			size *= 4
		}
		switch {
		case dtype[1] == 'U':
			fill = `"äb"`
		case dtype[1] == 'S' || dtype[1] == 'V':
			fill = "null"
		case strings.ContainsRune("iuf", rune(dtype[1])) && rnd.IntN(2) == 0:
			fill = "7"
		}
	}
	if size > 1 && rnd.IntN(3) == 0 {
		filters = append(filters, fmt.Sprintf(`{"id":"shuffle","elementsize":%d}`, size))
	}
	order, separator := "CF"[rnd.IntN(2)], "./"[rnd.IntN(2)]
	if rank == 0 {
		rank, shape, chunk, grid = 1, []int{1}, []int{1}, []int{1}
		f[at+"/.zattrs"] = []byte(`{"_SCALAR":true}`)
	}
	list := func(all []int) string { b, _ := json.Marshal(all); return string(b) }
	f[at+"/.zarray"] = fmt.Appendf(nil, `{"zarr_format":2,"shape":%s,"chunks":%s,"dtype":%s,"fill_value":%s,"order":"%c","filters":[%s],"compressor":%s,"dimension_separator":"%c"}`,
		list(shape), list(chunk), name, fill, order, strings.Join(filters, ","), compressor, separator)
	chunks := 1
	for _, g := range grid {
		chunks *= g
	}
	for i := range chunks {
		if rnd.IntN(4) == 0 {
			continue // never written
		}
		key, rest := make([]string, rank), i
		for d := rank - 1; d >= 0; d-- {
			key[d], rest = strconv.Itoa(rest%grid[d]), rest/grid[d]
		}
		f[at+"/"+strings.Join(key, string(separator))] = randomChunk(rnd, dtype, size, n, filters, compressor)
	}
}

func randomChunk(rnd *rand.Rand, dtype string, size, n int, filters []string, compressor string) []byte {
	b := testkit.Noise(rnd, size*n)
	switch {
	case dtype == "|O":
		b = binary.LittleEndian.AppendUint32(nil, uint32(n))
		for range n {
			text := Words[rnd.IntN(len(Words))]
			if strings.Contains(filters[0], "array") {
				text = string(testkit.Noise(rnd, 2*rnd.IntN(5)))
			}
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
		}
	case dtype == "<U4":
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], uint32(0x41+rnd.IntN(400)))
		}
	case dtype == "|b1":
		for i := range b {
			b[i] &= 1
		}
	case dtype == "record":
		for i := 16; i < len(b); i += 17 {
			b[i] &= 1
		}
	}
	if len(filters) > 0 && strings.Contains(filters[len(filters)-1], "shuffle") {
		mixed := make([]byte, len(b))
		for i := range b {
			mixed[i%size*n+i/size] = b[i]
		}
		b = mixed
	}
	var out bytes.Buffer
	switch {
	case strings.Contains(compressor, "zlib"):
		z := zlib.NewWriter(&out)
		z.Write(b)
		z.Close()
	case strings.Contains(compressor, "gzip"):
		z := gzip.NewWriter(&out)
		z.Write(b)
		z.Close()
	default:
		return b
	}
	return out.Bytes()
}
