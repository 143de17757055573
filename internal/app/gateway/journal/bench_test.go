package journal

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
)

// BenchmarkAppend compares a batch with the least that a disk can do for it.
func BenchmarkAppend(b *testing.B) {
	b.Run("16x4KiB", func(b *testing.B) {
		j, _, err := Open(b.Context(), b.TempDir(), Options{})
		must(b, err)
		defer j.Close()
		content := make([]byte, 4096)
		batch := make([]*Record, 16)
		first := int64(0)
		b.SetBytes(16 * 4096)
		n := 0
		for b.Loop() {
			for i := range batch {
				batch[i] = record(fmt.Sprintf("photos/2026/%08d.jpg", n), "")
				batch[i].Content, batch[i].ETag, batch[i].Modified, batch[i].Headers = content, `"0123456789abcdef0123456789abcdef"`, time.UnixMilli(1_700_000_000_000), `{"content-type":"image/jpeg"}`
				n++
			}
			must(b, j.Append(batch))
			if j.current.Size() > 1<<30 {
				s, err := j.Roll()
				must(b, err)
				first += s.Size()
			}
		}
		b.ReportMetric(float64(first+j.current.Size())/float64(n)/4096, "written/content")
	})
	for _, size := range []int{4096, 16 * 4096} {
		b.Run(fmt.Sprintf("lone/%d", size), func(b *testing.B) {
			f, err := disk.Folder(filepath.Dir(b.TempDir())).Create("lone")
			must(b, err)
			defer f.Close()
			must(b, f.Allocate(mostRoom))
			p, at := make([]byte, size), int64(0)
			must(b, f.Sync())
			b.SetBytes(int64(size))
			for b.Loop() {
				_, err := f.WriteAt(p, at)
				must(b, err)
				must(b, f.Datasync())
				if at += int64(size); at+int64(size) > mostRoom {
					at = 0
				}
			}
		})
	}
}

// BenchmarkOpen opens a log of 1 GiB that was not closed.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	content := make([]byte, 4096)
	for _, rows := range []int{1, 16} {
		b.Run(fmt.Sprint("rows/", rows), func(b *testing.B) {
			d, err := disk.Open(filepath.Join(dir, fmt.Sprint(rows)))
			must(b, err)
			j, _, err := open(b.Context(), "", unsynced{d}, Options{})
			must(b, err)
			for n := 0; n < 1<<30/4096; n += rows {
				batch := make([]*Record, rows)
				for i := range batch {
					batch[i] = record(fmt.Sprintf("photos/2026/%08d.jpg", n+i), "")
					batch[i].Content = content
				}
				must(b, j.Append(batch))
				if j.current.Size() > 256<<20 {
					_, err := j.Roll()
					must(b, err)
				}
			}
			must(b, j.Close())
			for b.Loop() {
				j, segments, err := Open(b.Context(), string(d), Options{})
				must(b, err)
				n := 0
				for _, s := range segments {
					for _, err := range s.Rows(b.Context()) {
						must(b, err)
						n++
					}
				}
				if n != 1<<30/4096 {
					b.Fatalf("%d rows", n)
				}
				must(b, j.Close())
			}
		})
	}
}

// unsynced is a folder whose files are not synced, to write much quickly.
type unsynced struct{ disk.Folder }

func (d unsynced) Open(name string) (disk.File, error) {
	f, err := d.Folder.Open(name)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ disk.File }

func (unsyncedFile) Datasync() error { return nil }
