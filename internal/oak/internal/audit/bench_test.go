package audit

import (
	"context"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/local"
)

// benchStore is the store that HOLDALL_OAK_STORE names, or one tar of 128 MB.
func benchStore(b *testing.B) (*Audit, int64) {
	b.Helper()
	dir := os.Getenv("HOLDALL_OAK_STORE")
	if dir == "" {
		dir = b.TempDir()
		writeStore(b, dir, 128<<20)
	}
	a, err := Open(b.Context(), source(b, local.New(dir)))
	if err != nil {
		b.Fatal(err)
	}
	size := int64(0)
	for i := range a.Len() {
		size += a.tars[i].Size
	}
	return a, size
}

// writeStore writes a store of one tar: a long list of values, and binaries in bulk
// segments.
func writeStore(b *testing.B, dir string, size int64) {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "data00000a.tar"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := tarfile.NewWriter(f, "data00000a.tar", nil)
	var head segment.RecordID
	s := segment.NewBuilder(segment.BuilderOptions{}, func(_ context.Context, s segment.Finished) error {
		refs := make(tarfile.IDs, 0, 16*len(s.Refs))
		for _, r := range s.Refs {
			refs = append(refs, r[:]...)
		}
		return w.Add(s.ID, s.Generation, s.Data, refs, s.BlobIDs)
	})
	head = buildTree(b, s, func() bool { return w.Size() < size })
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{repo.Journal: head.String() + " root 1\n", repo.Manifest: "store.version=2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

func noProblem(b *testing.B) func(Problem) {
	return func(p Problem) {
		if p.Severity > Note {
			b.Fatal(p)
		}
	}
}

func BenchmarkFull(b *testing.B) {
	a, size := benchStore(b)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Full(b.Context(), noProblem(b)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQuick(b *testing.B) {
	a, _ := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Quick(b.Context(), noProblem(b)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHash is what Full cannot be faster than: reading and hashing alone.
func BenchmarkHash(b *testing.B) {
	a, size := benchStore(b)
	b.SetBytes(size)
	buf := make([]byte, windowLen)
	for b.Loop() {
		for _, x := range a.tars {
			for off := int64(0); off < x.Size; off += windowLen {
				p := buf[:min(windowLen, x.Size-off)]
				if err := x.obj.ReadAt(b.Context(), p, off); err != nil {
					b.Fatal(err)
				}
				crc32.ChecksumIEEE(p)
			}
		}
	}
}
