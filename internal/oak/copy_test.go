package oak

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

func opened(t testing.TB, st store.Store, name string) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), st, name, format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func copied(t testing.TB, from store.Store, name string, to store.Store, out string, o CopyOptions) *Copied {
	t.Helper()
	c, err := opened(t, from, name).Copy(t.Context(), to, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func same(t testing.TB, from store.Store, name string, to store.Store, out string) {
	t.Helper()
	c, err := opened(t, from, name).CheckCopy(t.Context(), to, out, CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Different > 0 || c.Behind > 0 || c.Segments == 0 {
		t.Errorf("a copy differs: %+v", c)
	}
}

// whole are the fixtures that can be copied: sound ones, and ones without an index.
var wholeFixtures = []string{"empty-store", "multitar", "types", "datastore", "longblobid", "unclean-open", "unclean-truncated", "v12", "v12-upgraded", "cleanup-pending",
	"gc-online", "checkpoints", "compacted-offline", "wide"}

// What every verb reads of a store is the same of its copy as blobs, with metadata and
// without, and of the tars that are made of that.
func TestACopyIsReadAsItsSource(t *testing.T) {
	for _, name := range wholeFixtures {
		t.Run(name, func(t *testing.T) {
			src := fixture(t, name)
			want, _ := exported(t, treeOf(t, opened(t, src, "s"), nil), "/", wholeTree)
			container, bucket := &storetest.Container{}, &storetest.Mem{}
			for _, to := range []store.Store{container, bucket} {
				copied(t, src, "s", to, "c", CopyOptions{})
				same(t, src, "s", to, "c")
				got, _ := exported(t, treeOf(t, opened(t, to, "c"), nil), "/", wholeTree)
				if !bytes.Equal(got, want) {
					t.Errorf("the export of the copy differs: %d bytes, expected %d", len(got), len(want))
				}
				if again := copied(t, src, "s", to, "c", CopyOptions{}); again.Segments+int64(again.Revisions) > 0 {
					t.Errorf("copied once more: %+v", again)
				}
				for _, quick := range []bool{true, false} {
					err := verify(t.Context(), to, "c", format.OpenOptions{Quick: quick}, func(p format.Problem) {
						if p.Severity == format.Error {
							t.Errorf("verify: %+v", p)
						}
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
			if container.Get("c/data00000a.tar/data00000a.tar.idx") != nil || bucket.Get("c/data00000a.tar/data00000a.tar.idx") == nil && name != "cleanup-pending" && name != "gc-online" && name != "compacted-offline" {
				t.Error("an index is for buckets, and for nobody else")
			}
			other := &storetest.Mem{}
			copied(t, container, "c", other, "o", CopyOptions{})
			same(t, src, "s", other, "o")
			same(t, container, "c", bucket, "c")
			back := local.New(t.TempDir())
			copied(t, bucket, "c", back, "tars", CopyOptions{})
			same(t, src, "s", back, "tars")
			if again := copied(t, src, "s", back, "tars", CopyOptions{}); again.Segments > 0 {
				t.Errorf("copied once more: %+v", again)
			}
			err := verify(t.Context(), back, "tars", format.OpenOptions{}, func(p format.Problem) {
				if p.Severity == format.Error {
					t.Errorf("verify: %+v", p)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

var _ = []any{errors.New, io.EOF, fs.ErrExist, filepath.Join, slices.Sort[[]int], holdall.NoParity, cloud.Closed, tarfile.BlockSize, testkit.Main}

// Without a word about the format: by names, in both views, with all that the engine does.
func TestBlobsAreKnownByTheirNamesAndReadLikeTars(t *testing.T) {
	for _, name := range []string{"types", "datastore", "multitar"} {
		src, to := fixture(t, name), &storetest.Container{}
		copied(t, src, "s", to, "s", CopyOptions{})
		for _, view := range []string{segmentsView, treeView} {
			var got [2]map[string]string
			for i, st := range []store.Store{src, to} {
				got[i] = map[string]string{}
				a, err := holdall.OpenStore(t.Context(), st, "s", holdall.OpenOptions{View: view, Formats: []*format.Format{Format}})
				if err != nil {
					t.Fatal(err)
				}
				for e, err := range a.Entries(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Kind == format.Dir || !strings.Contains(e.Name, "/") {
						continue
					}
					var b bytes.Buffer
					if err := a.WriteContent(t.Context(), &b, e); err != nil && e.Fault == nil && name != "datastore" {
						t.Fatal(err)
					}
					got[i][e.Name] = fmt.Sprintf("%d %x", e.Size, sha256.Sum256(b.Bytes()))
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(got[0]) == 0 || !maps.Equal(got[0], got[1]) {
				t.Errorf("%s, %s: %d and %d entries, and they differ", name, view, len(got[0]), len(got[1]))
			}
		}
	}
}
