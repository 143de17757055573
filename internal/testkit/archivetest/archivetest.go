// Package archivetest opens archives for tests of packages below package holdall: as it does, but
// without indexes, parity and detection.
package archivetest

import (
	"bytes"
	"testing"

	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all" // archives of all formats are opened
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/store"
)

// Open opens an archive until the test ends. The format follows from its name.
func Open(t testing.TB, st store.Store, name string) *content.Source {
	t.Helper()
	return OpenAs(t, st, name, format.All().ByExtension(name), format.OpenOptions{})
}

// OpenAs is like Open for a format.
func OpenAs(t testing.TB, st store.Store, name string, f *format.Format, o format.OpenOptions) *content.Source {
	t.Helper()
	st = cache.Shared(st, 0)
	src := content.New(st, name, nil, 0)
	r, err := f.Open(t.Context(), st, name, o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	src.Read(f, r)
	src.Borrow()
	t.Cleanup(func() { src.Close() })
	return src
}

// Entries are the entries that were packed, in stored order.
func Entries(t testing.TB, src *content.Source) (all []format.Entry) {
	t.Helper()
	for e, err := range src.Packed(t.Context()) {
		if err != nil {
			t.Fatalf("%s: %v", src.Name, err)
		}
		all = append(all, e)
	}
	return all
}

// Lookup is an entry that there must be.
func Lookup(t testing.TB, src *content.Source, name string) format.Entry {
	t.Helper()
	e, err := src.Reader.Lookup(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", src.Name, err)
	}
	return e
}

// Read reads all content of an entry. If the entry has a digest, it is compared.
func Read(t testing.TB, src *content.Source, e format.Entry) ([]byte, error) {
	t.Helper()
	var b bytes.Buffer
	b.Grow(int(min(max(e.Size, 0), 64<<20)))
	err := src.Copy(t.Context(), &b, e)
	return b.Bytes(), err
}

// Contents reads all files of an archive, which must be sound.
func Contents(t testing.TB, src *content.Source) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range Entries(t, src) {
		if !e.Kind.HasContent() {
			continue
		}
		b, err := Read(t, src, e)
		if err != nil {
			t.Errorf("%s: %s: %v", src.Name, e.Name, err)
		}
		all[e.Name] = string(b)
	}
	return all
}

// Sound wants the check of an archive's structure to find nothing worse than that.
func Sound(t testing.TB, src *content.Source, worst format.Severity) {
	t.Helper()
	err := src.Format.Verify(t.Context(), src.Store, src.Name, format.OpenOptions{}, func(p format.Problem) {
		if p.Severity > worst {
			t.Errorf("%s: %+v", src.Name, p)
		}
	})
	if err != nil {
		t.Errorf("%s: %v", src.Name, err)
	}
}
