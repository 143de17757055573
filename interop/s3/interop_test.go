// Package s3_test runs versitygw, which keeps buckets as folders, on this machine.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_S3_SERVER names the program that ../install s3 makes; ./check does both.
package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// server starts one and returns its address and the folder of its buckets.
func server(t *testing.T, flags ...string) (endpoint, dir string) {
	t.Helper()
	program := testkit.Needs(t, "HOLDALL_S3_SERVER")
	dir = t.TempDir()
	sidecar := t.TempDir() // not all file systems keep attributes
	addr, err := testkit.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--port", addr, "--access", s3test.AccessKey, "--secret", s3test.Secret, "--quiet", "posix", "--sidecar", sidecar}, flags...)
	stop, err := testkit.Start(exec.Command(program, append(args, dir)...), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if said := stop(); t.Failed() {
			t.Logf("the server said: %s", said)
		}
	})
	return "http://" + addr, dir
}

// turns lets requests that read and those that write alternate, up to the header of
// the answer. The server is not atomic there: it compares If-Match with an ETag that
// it reads by an object's path, and opens the path only then, so that of a change
// between these it sends the new bytes as the old ones. No client can tell. Changes
// between two requests are what is left to be tested.
type turns struct{ sync.RWMutex }

func (l *turns) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		l.RLock()
		defer l.RUnlock()
	} else {
		l.Lock()
		defer l.Unlock()
	}
	return http.DefaultTransport.RoundTrip(r)
}

// at returns the store of a bucket that is made for it. A bucket is a folder of the
// server's.
func at(t *testing.T, dir, name string) *bucket.Store {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
		t.Fatal(err)
	}
	st, err := bucket.New(name, "", bucket.Options{Client: &http.Client{Transport: &turns{}}})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStoreKeepsTheContract(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	buckets := 0
	storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
		buckets++
		st := at(t, dir, fmt.Sprintf("bucket-%d", buckets))
		return st, func(name string, content []byte) error { return storetest.Put(t.Context(), st, name, content) }
	})
}

func TestObjectOfManyPartsIsWhole(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "parts")
	content := testkit.Numbered(50<<20 + 7)
	if err := storetest.Put(t.Context(), st, "dir/large", content); err != nil {
		t.Fatal(err)
	}
	o, err := st.Open(t.Context(), "dir/large")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got := make([]byte, len(content))
	if err := o.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("expected the bytes that were written, found others or %v", err)
	}
}

func TestRangeIsCopiedByTheServer(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "copies")
	content := testkit.Numbered(30 << 20)
	if err := storetest.Put(t.Context(), st, "dir/so urce", content); err != nil {
		t.Fatal(err)
	}
	from, err := st.Open(t.Context(), "dir/so urce")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	w, err := storekit.Create(t.Context(), st, "copy")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Write([]byte("head")); err != nil {
		t.Fatal(err)
	}
	if err := w.Can().WriteRange(t.Context(), from, 1000, 25<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "copies", "copy"))
	if err != nil || !bytes.Equal(got, append([]byte("head"), content[1000:1000+25<<20]...)) {
		t.Errorf("expected head and range, found others or %v", err)
	}
}

func TestLargeObjectsAndRangesAreCopiedIntoAnArchive(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	source, target := at(t, dir, "source"), at(t, dir, "target")
	want := map[string][]byte{"a": testkit.Numbered(9 << 20), "b": testkit.Numbered(1000), "c": testkit.Numbered(70 << 20), "d": testkit.Numbered(3)}
	for name, content := range want {
		if err := storetest.Put(t.Context(), source, name, content); err != nil {
			t.Fatal(err)
		}
	}
	changed := storetest.Put(t.Context(), source, "changed", testkit.Numbered(8<<20))
	var objects []pack.Object
	for info, err := range source.List(t.Context(), "") {
		if err = errors.Join(err, changed); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, pack.Object{From: source, Info: info, Name: info.Name})
		for i := int64(0); info.Name == "c" && i < 20; i++ {
			name := fmt.Sprintf("c %02d", i)
			objects = append(objects, pack.Object{From: source, Info: info, Name: name, Range: true, Off: 1000 + i<<20, Size: 1 << 20})
			want[name] = want["c"][1000+i<<20:][:1<<20]
		}
	}
	if err := storetest.Put(t.Context(), source, "changed", testkit.Numbered(8<<20+1)); err != nil {
		t.Fatal(err)
	}
	sum, err := pack.Objects(t.Context(), target, "x.caf", func(yield func(pack.Object, error) bool) {
		for _, x := range objects {
			if !yield(x, nil) {
				return
			}
		}
	}, pack.Options{Formats: []*format.Format{caf.Format}, Copy: true, OnError: func(name string, err error) {
		if name != "changed" || !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}})
	if err != nil || sum.Entries != int64(len(want)) || sum.Failed != 1 || sum.Copied < 85<<20 {
		t.Fatalf("%+v, %v", sum, err)
	}
	a, err := holdall.Open(t.Context(), "x.caf", holdall.OpenOptions{Store: target, Formats: []*format.Format{caf.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, content := range want {
		if got, err := fs.ReadFile(a.FS(t.Context()), name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: expected its bytes, found %d others or %v", name, len(got), err)
		}
	}
}

func TestAbortLeavesNoParts(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "aborted")
	w, err := storekit.Create(t.Context(), st, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 30<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(dir, "aborted"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			t.Errorf("left over: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRefusalsAreTold(t *testing.T) {
	endpoint, dir := server(t)
	for _, c := range []struct {
		env, value, bucket string
		is                 error
		want               string
	}{
		{"AWS_SECRET_ACCESS_KEY", "wrong-secret", "refusals", fs.ErrPermission, "the secret key does not match"},
		{"AWS_ACCESS_KEY_ID", "wrong-key", "refusals", fs.ErrPermission, "unknown access key"},
		{"HOLDALL_S3_ANONYMOUS", "1", "refusals", fs.ErrPermission, "requested without credentials"},
		{"AWS_REGION", "", "no-such-bucket", fs.ErrNotExist, "no such bucket"},
	} {
		t.Run(c.env+"="+c.value, func(t *testing.T) {
			s3test.Setenv(t, endpoint)
			t.Setenv(c.env, c.value)
			_ = at(t, dir, "refusals")
			st, err := bucket.New(c.bucket, "", bucket.Options{})
			if err != nil {
				t.Fatal(err)
			}
			o, err := st.Open(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			_, info := o.Info(t.Context())
			for op, err := range map[string]error{"info": info, "write": storetest.Put(t.Context(), st, "x", []byte("content"))} {
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "wrong-") {
					t.Errorf("%s: expected %q, found %v", op, c.want, err)
				}
			}
		})
	}
}

// Two that go on with one upload at the same time make the object of one of them, or
// none; never one of both.
func TestTwoWritersOfOneUploadNeverMixTheirBytes(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st, err := bucket.New("pair", "", bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = at(t, dir, "pair")
	one := testkit.Numbered(25 << 20)
	other := bytes.Clone(one)
	other[20<<20]++ // the first parts are the same, so both go on with the upload
	for name, theirs := range map[string][]byte{"same": one, "other": other} {
		t.Run(name, func(t *testing.T) {
			begin := func(content []byte) store.Writer {
				w, err := storekit.CreateAs(t.Context(), st, name, store.Wishes{Resume: true, Once: true})
				if err == nil {
					_, err = w.Write(content)
				}
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			if kept, err := storekit.Keep(begin(one[:9<<20])); kept != 8<<20 || err != nil {
				t.Fatalf("kept %d, %v", kept, err)
			}
			errs := make([]error, 2)
			var wg sync.WaitGroup
			for i, content := range [][]byte{one, theirs} {
				w := begin(content[:9<<20])
				wg.Go(func() {
					if _, errs[i] = w.Write(content[9<<20:]); errs[i] == nil {
						_, errs[i] = w.Commit(t.Context())
					}
				})
			}
			wg.Wait()
			got, err := os.ReadFile(filepath.Join(dir, "pair", name))
			switch {
			case errs[0] == nil && errs[1] == nil && name == "other":
				t.Error("both say that they made it")
			case name == "same" && (errs[0] != nil || errs[1] != nil):
				t.Errorf("expected both to have made it, found %v, %v", errs[0], errs[1])
			case err == nil && !bytes.Equal(got, one) && !bytes.Equal(got, other):
				t.Errorf("the object is neither's: %v, %v", errs[0], errs[1])
			case err != nil && (errs[0] == nil || errs[1] == nil):
				t.Errorf("one says that it made it: %v", err)
			}
			t.Logf("%v, %v", errs[0], errs[1])
		})
	}
}

// The server keeps objects as files, and may take keys that it cannot have for others. What
// is read is of the version that was meant, or nothing is.
func TestOddKeysAreNotTakenForOthers(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "odd-keys")
	for _, name := range []string{"b", "a/b"} {
		if err := storetest.Put(t.Context(), st, name, []byte("the bytes of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a/../b", "./b", "../odd-keys/b", "..", "/b", "a//b", "//a/b"} {
		o, err := st.OpenAs(t.Context(), store.Info{Name: name, Size: 7, Version: `"9a0364b9e99bb480dd25e1f0284c8555"`})
		if err == nil {
			p := make([]byte, 7)
			err = o.ReadAt(t.Context(), p, 0)
			o.Close()
		}
		if err == nil {
			t.Errorf("%q is read", name)
		}
		t.Logf("%q: %v", name, err)
	}
}

// TestOlderVersionsStay removes objects of a bucket that keeps versions, alone and by one request for many.
func TestOlderVersionsStay(t *testing.T) {
	endpoint, dir := server(t, "--versioning-dir", t.TempDir())
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "versions")
	client, err := minio.New(strings.TrimPrefix(endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4(s3test.AccessKey, s3test.Secret, "")})
	if err == nil {
		err = client.EnableVersioning(t.Context(), "versions")
	}
	if err != nil {
		t.Fatal(err)
	}
	var infos []store.Info
	for _, name := range []string{"alone", "a&b", "c"} {
		if err := storetest.Put(t.Context(), st, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	other := infos[0]
	other.Version = `"00000000000000000000000000000000"`
	if err := st.RemoveIf(t.Context(), other); !errors.Is(err, store.ErrChanged) {
		t.Errorf("another version: %v", err)
	}
	if err := st.RemoveIf(t.Context(), infos[1]); err != nil {
		t.Error(err)
	}
	if errs, err := st.Can().RemoveMany(t.Context(), []store.Info{infos[0], infos[2]}); err != nil || errors.Join(errs...) != nil {
		t.Errorf("%v, %v", errs, err)
	}
	versions, markers := 0, 0
	for o := range client.ListObjects(t.Context(), "versions", minio.ListObjectsOptions{WithVersions: true, Recursive: true}) {
		switch {
		case o.Err != nil:
			t.Fatal(o.Err)
		case o.IsDeleteMarker:
			markers++
		default:
			versions++
		}
	}
	if versions != 3 || markers != 3 {
		t.Errorf("%d versions and %d markers of deletions, expected 3 each", versions, markers)
	}
}

// The server keeps no lists of access.
func TestNobodyElseMayRead(t *testing.T) {
	endpoint, dir := server(t)
	s3test.Setenv(t, endpoint)
	st := at(t, dir, "lists")
	if err := storetest.Put(t.Context(), st, "x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	o, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if shared, err := o.Can().Shared(t.Context()); shared || err != nil {
		t.Errorf("%v, %v", shared, err)
	}
}
