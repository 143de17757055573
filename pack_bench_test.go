package holdall_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/store/local"
)

// BenchmarkPack packs files that are in the page cache, without waiting for the
// disk: what holdall itself costs. bench/ compares whole commands.
func BenchmarkPack(b *testing.B) {
	for _, shape := range []struct {
		name  string
		files int
		size  int
	}{{"small", 20_000, 10_000}, {"large", 4, 64 << 20}} {
		b.Run("caf/"+shape.name, func(b *testing.B) {
			in, out := b.TempDir(), b.TempDir()
			content := make([]byte, shape.size)
			for i := range shape.files {
				name := filepath.Join(in, fmt.Sprintf("d%03d", i/100), fmt.Sprintf("f%05d", i))
				if i%100 == 0 {
					os.MkdirAll(filepath.Dir(name), 0o777)
				}
				content[i%shape.size]++
				if err := os.WriteFile(name, content, 0o666); err != nil {
					b.Fatal(err)
				}
			}
			st := local.New(out)
			st.NoSync = true
			b.SetBytes(int64(shape.files) * int64(shape.size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := holdall.Pack(b.Context(), "x.caf", []string{in}, holdall.PackOptions{Store: st}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
