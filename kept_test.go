package holdall_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// packed is a CAF of a few files.
func packed(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	in := testkit.Tree(t, filepath.Join(dir, "in"), files)
	path := filepath.Join(dir, "x.caf")
	if _, err := holdall.Pack(t.Context(), path, []string{in}, holdall.PackOptions{Format: "caf"}); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildIndex(t *testing.T, path string, o holdall.OpenOptions, to string) {
	t.Helper()
	st, name, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	toStore, toName, err := store.OpenAddress(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdall.BuildIndex(t.Context(), name, toName, holdall.IndexOptions{To: toStore, OpenOptions: o.In(st)}); err != nil {
		t.Fatal(err)
	}
}

func index(t *testing.T, path string) []byte {
	t.Helper()
	buildIndex(t, path, holdall.OpenOptions{}, path+kept.Suffix)
	b, err := os.ReadFile(path + kept.Suffix)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnIndexOfAnotherVersionIsNotBelieved(t *testing.T) {
	path := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/c": "gamma"})
	index(t, path)
	other := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/d": "delta"})
	indexOfOther := index(t, other)
	for what, change := range map[string]func() error{
		"longer": func() error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(" ")
			return errors.Join(err, f.Close())
		},
		"another archive": func() error { return os.WriteFile(path+kept.Suffix, indexOfOther, 0o666) },
		"another end": func() error {
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[0] ^= 1
			return errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fi, _ := os.Stat(path)
			defer func() {
				if err := errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
					t.Fatal(err)
				}
				index(t, path)
			}()
			if err := change(); err != nil {
				t.Fatal(err)
			}
			a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Format: "caf", Index: holdall.UseIndex{Beside: true}})
			if err == nil {
				defer a.Close()
			} else if what != "longer" { // which is no CAF any more
				t.Fatal(err)
			}
			if err == nil && (a.Index().Used != "" || a.Index().Why == nil) {
				t.Errorf("%+v", a.Index())
			}
		})
	}
	a, err := holdall.Open(t.Context(), path, holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
	if err != nil || a.Index().Used == "" {
		t.Fatalf("the right one: %v, %+v", err, a.Index())
	}
	a.Close()
}

func TestAnArchiveThatIsSlowToOpenIsIndexedForTheNextTime(t *testing.T) {
	path := packed(t, t.TempDir(), map[string]string{"a": "alpha", "b/c": "gamma"})
	folder := &holdall.IndexFolder{Dir: filepath.Join(t.TempDir(), "not", "yet"), Expensive: 1}
	o := holdall.OpenOptions{Index: holdall.UseIndex{Folder: folder}}
	for i, want := range []bool{true, false} {
		a, err := holdall.Open(t.Context(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := a.KeepIndex(t.Context(), false)
		if err != nil || kept != want || (a.Index().Used == "") != want {
			t.Errorf("%d: %v, %v, %+v", i, kept, err, a.Index())
		}
		e, err := a.Lookup(t.Context(), "b/c")
		p := make([]byte, 5)
		if err == nil {
			_, err = a.ReadAt(t.Context(), e, p, 0)
		}
		if err != nil && err != io.EOF || string(p) != "gamma" {
			t.Errorf("%q, %v", p, err)
		}
		a.Close()
	}
	all, err := folder.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Entries != 2 || all[0].Archive != path {
		t.Fatalf("%+v, %v", all, err)
	}
	folder.Most = 1 // the next one takes the place of all
	other := packed(t, t.TempDir(), map[string]string{"a": "alpha"})
	a, err := holdall.Open(t.Context(), other, o)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := a.KeepIndex(t.Context(), false); !kept || err != nil {
		t.Error(kept, err)
	}
	a.Close()
	if n, _, err := folder.Clear(); n != 0 || err != nil {
		t.Errorf("%d were left, %v", n, err)
	}
}

// manyRows is a CAF of n files of 100 bytes in folders of a thousand, whose contents are
// a hole.
func manyRows(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "many.caf")
	b := []byte(`{"format_version":"1.0","files":{`)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `%q:{"start_byte":%d,"end_byte":%d}`, rowName(i), i*100, i*100+100)
	}
	b = append(b, "}}"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	f, err := os.Create(path)
	if err == nil {
		_, err = f.WriteAt(b, int64(n)*100)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// rowName is a name that tells nothing of the one before.
func rowName(i int) string {
	sum := blake3.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	return fmt.Sprintf("data/%04d/%x", i/1000, sum[:10])
}

func TestOneOfManyByAnIndexIsFourSmallRequests(t *testing.T) {
	testkit.Long(t)
	path := manyRows(t, 200_000)
	buildIndex(t, path, holdall.OpenOptions{}, path+kept.Suffix)
	var requests, sent atomic.Int64
	files := http.FileServer(http.Dir(filepath.Dir(path)))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		files.ServeHTTP(&counting{w, &sent}, r)
	}))
	defer web.Close()
	a, err := holdall.Open(t.Context(), web.URL+"/many.caf", holdall.OpenOptions{FewLookups: true, Index: holdall.UseIndex{Beside: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p := make([]byte, 100)
	read := func(name string) {
		t.Helper()
		e, err := a.Lookup(t.Context(), name)
		if err == nil {
			_, err = a.ReadAt(t.Context(), e, p, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read(rowName(123_456))
	if requests.Load() > 4 || sent.Load() > 64<<10+100 {
		t.Errorf("%d requests, %d bytes", requests.Load(), sent.Load())
	}
	requests.Store(0)
	sent.Store(0)
	read(rowName(123_455))
	if requests.Load() != 1 || sent.Load() > 120 {
		t.Errorf("another one: %d requests, %d bytes", requests.Load(), sent.Load())
	}
}

// counting counts the bytes of answers.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}
