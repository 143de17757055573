package holdall_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
)

// BenchmarkReadParts reads 4 KiB at random of files of 10 kB: with nothing compared, of
// files that were not read before, and of such as were.
func BenchmarkReadParts(b *testing.B) {
	const files, size = 20_000, 10_000
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string]string{}
	for i := range files {
		content := make([]byte, size)
		for k := range content {
			content[k] = byte(rnd.Uint32())
		}
		all[fmt.Sprintf("%02d/%d", i%100, i)] = string(content)
	}
	dir := testkit.Tree(b, b.TempDir(), all)
	p := filepath.Join(b.TempDir(), "x.caf")
	if _, err := holdall.Pack(b.Context(), p, []string{dir}, holdall.PackOptions{}); err != nil {
		b.Fatal(err)
	}
	for _, way := range []string{"compared with nothing", "first", "once more"} {
		b.Run(way, func(b *testing.B) {
			o := holdall.OpenOptions{NoVerify: way == "compared with nothing"}
			var entries []holdall.Entry
			var a *holdall.Archive
			buf := make([]byte, 4096)
			again := func() {
				var err error
				if a != nil {
					a.Close()
				}
				if a, err = holdall.Open(b.Context(), p, o); err != nil {
					b.Fatal(err)
				}
				entries = entries[:0]
				for e, err := range a.Entries(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					entries = append(entries, e)
				}
				rnd.Shuffle(len(entries), func(i, k int) { entries[i], entries[k] = entries[k], entries[i] })
			}
			read := func(i int) {
				if _, err := a.ReadAt(b.Context(), entries[i%files], buf, int64(i%(size-4096))); err != nil {
					b.Fatal(err)
				}
			}
			again()
			if way == "once more" {
				for i := range files {
					read(i)
				}
			}
			for i := 0; b.Loop(); i++ {
				if i%files == 0 && i > 0 && way == "first" {
					b.StopTimer()
					again()
					b.StartTimer()
				}
				read(i)
			}
			a.Close()
		})
	}
}
