// Package azure_test runs Azurite, Microsoft's emulator of Azure Blob Storage, on this
// machine.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_AZURITE names the program that ../install azure makes; ./check does both.
package azure_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/azure"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

const account = "holdalltest"

var key = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("0123456789abcdef"), 4))

const programVar = "HOLDALL_AZURITE"

func TestMain(m *testing.M) {
	testkit.Main(m, func() error {
		end()
		return nil
	})
}

// emulator starts one for all tests, since it takes some seconds to start, and returns
// its address.
var emulator = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "azurite")
	if err != nil {
		return "", err
	}
	end = func() { os.RemoveAll(dir) }
	addr, err := testkit.FreeAddr()
	if err != nil {
		return "", err
	}
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(os.Getenv(programVar), "--blobHost", host, "--blobPort", port, "--location", dir, "--silent", "--disableTelemetry")
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+account+":"+key)
	stop, err := testkit.Start(cmd, addr)
	if err == nil {
		end = func() { stop(); os.RemoveAll(dir) }
	}
	return "http://" + addr + "/" + account, err
})

var end = func() {}

var endpoint string

// settings are those of the environment, and those alone.
func settings(t *testing.T) {
	t.Helper()
	testkit.Needs(t, programVar)
	var err error
	if endpoint, err = emulator(); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGE_ACCOUNT": account, "AZURE_STORAGE_KEY": key, "AZURE_STORAGE_SAS_TOKEN": "",
		"AZURE_STORAGE_SERVICE_ENDPOINT": endpoint, "AZURE_STORAGE_AUTH_MODE": "", "HOLDALL_AZURE_ANONYMOUS": "",
	} {
		t.Setenv(k, v)
	}
}

// token is one for the whole account, by the rules of Microsoft's pages and without help
// of what is tested here.
func token(permissions string) string {
	end := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	const version = "2021-12-02"
	text := strings.Join([]string{account, permissions, "b", "sco", "", end, "", "https,http", version, "", ""}, "\n")
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		panic(err)
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(text))
	return url.Values{"sp": {permissions}, "ss": {"b"}, "srt": {"sco"}, "se": {end}, "spr": {"https,http"}, "sv": {version},
		"sig": {base64.StdEncoding.EncodeToString(m.Sum(nil))}}.Encode()
}

var made int

// container makes one and returns its name.
func container(t *testing.T, header ...string) string {
	t.Helper()
	made++
	name := fmt.Sprintf("container-%d", made)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, endpoint+"/"+name+"?restype=container&"+token("rwdlac"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Ms-Version", "2021-12-02")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("no container: %s", resp.Status)
	}
	return name
}

func at(t *testing.T, container, prefix string) *azure.Store {
	t.Helper()
	st, err := azure.New(account, container, prefix, azure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStoreKeepsTheContract(t *testing.T) {
	settings(t)
	storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
		st := at(t, container(t), "pre fix/+ü/")
		return st, func(name string, content []byte) error {
			err := storetest.Put(t.Context(), st, name, content)
			if errors.Is(err, fs.ErrInvalid) {
				return errors.ErrUnsupported // a name that ends in a dot
			}
			return err
		}
	})
}

func TestTokenDoesWhatAKeyDoes(t *testing.T) {
	settings(t)
	name := container(t)
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?"+token("rwdlac"))
	st := at(t, name, "pre fix/+ü/")
	want := testkit.Numbered(9 << 20)
	for _, name := range []string{"a?b #1/100%.caf", "b+c"} {
		if err := storetest.Put(t.Context(), st, name, want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, st, name, len(want)), want) {
			t.Errorf("%q: other bytes", name)
		}
	}
	n := 0
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if err := st.Remove(t.Context(), info.Name); err != nil {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Errorf("%d objects, expected 2", n)
	}
}

func content(t *testing.T, st store.Store, name string, n int) []byte {
	t.Helper()
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	p := make([]byte, n)
	if err := o.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestObjectOfManyBlocksIsWholeAndUnseenBefore(t *testing.T) {
	settings(t)
	st := at(t, container(t), "")
	want := testkit.Numbered(42<<20 + 7)
	w, err := storekit.Create(t.Context(), st, "dir/large")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	for info, err := range st.List(t.Context(), "") {
		t.Errorf("listed before it is whole: %+v, %v", info, err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, st, "dir/large", len(want)), want) {
		t.Error("other bytes")
	}
}

// The emulator does not copy blocks, and says so.
func TestRangeGoesThroughUsWhereTheServerDoesNotCopy(t *testing.T) {
	settings(t)
	st := at(t, container(t), "")
	src := testkit.Numbered(20 << 20)
	if err := storetest.Put(t.Context(), st, "dir/so urce", src); err != nil {
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
	if err := storekit.WriteRange(t.Context(), w, from, 1000, 18<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := append([]byte("head"), src[1000:1000+18<<20]...)
	if !bytes.Equal(content(t, st, "copy", len(want)), want) {
		t.Error("other bytes")
	}
}

func TestOfThoseWhoCreateOnceOneWins(t *testing.T) {
	settings(t)
	st := at(t, container(t), "")
	for _, n := range []int{10, 9 << 20} {
		name := fmt.Sprint(n)
		var wg sync.WaitGroup
		results := make([]error, 3)
		for i := range results {
			w, err := st.CreateAs(t.Context(), name, store.Wishes{Once: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(bytes.Repeat([]byte{byte('a' + i)}, n)); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				_, results[i] = w.Commit(t.Context())
				results[i] = errors.Join(results[i], w.Abort())
			})
		}
		wg.Wait()
		won := -1
		for i, err := range results {
			switch {
			case err == nil && won < 0:
				won = i
			case err == nil:
				t.Errorf("%d bytes: two have won", n)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		if won < 0 {
			t.Fatalf("%d bytes: nobody has won: %v", n, results)
		}
		if got := content(t, st, name, n); !bytes.Equal(got, bytes.Repeat([]byte{byte('a' + won)}, n)) {
			t.Errorf("%d bytes: not the winner's", n)
		}
	}
}

// Short pages have the server list seven names at once.
type shortPages struct{}

func (shortPages) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if q.Get("comp") == "list" {
		q.Set("maxresults", "7")
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestListingGoesOnPageAfterPage(t *testing.T) {
	settings(t)
	name := container(t)
	// A token is not of the request that it lets in, so that can be changed.
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", token("rwl"))
	st, err := azure.New(account, name, "", azure.Options{Client: &http.Client{Transport: shortPages{}}})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("dir/%04d & <ü>", i))
		if err := storetest.Put(t.Context(), st, want[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for info, err := range st.List(t.Context(), "dir/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
}

func TestRefusalsAreTold(t *testing.T) {
	settings(t)
	name := container(t)
	public := container(t, "X-Ms-Blob-Public-Access", "blob")
	if err := storetest.Put(t.Context(), at(t, name, ""), "x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := storetest.Put(t.Context(), at(t, public, ""), "x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, env, container string
		is                   error
		want                 string
	}{
		{"no container", "", "nosuch", fs.ErrNotExist, "no such container"},
		{"no key", "", name, fs.ErrNotExist, "no such key"},
		{"another key", "AZURE_STORAGE_KEY=" + base64.StdEncoding.EncodeToString([]byte("sssssecret")), name, fs.ErrPermission, "AuthorizationFailure"},
		{"nobody", "HOLDALL_AZURE_ANONYMOUS=1", name, nil, "requested without credentials"},
		{"nobody, where all may read", "HOLDALL_AZURE_ANONYMOUS=1", public, fs.ErrNotExist, "no such key"},
		{"token that may not", "AZURE_STORAGE_KEY= AZURE_STORAGE_SAS_TOKEN=" + token("l"), name, fs.ErrPermission, "AuthorizationPermissionMismatch"},
	} {
		t.Run(c.what, func(t *testing.T) {
			settings(t)
			for kv := range strings.FieldsSeq(c.env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			st := at(t, c.container, "")
			o, err := st.Open(t.Context(), "missing")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			_, err = o.Info(t.Context())
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "az://"+account+"/"+c.container+"/missing") || strings.Contains(err.Error(), "sig=") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
	t.Run("anonymous reads what is public", func(t *testing.T) {
		settings(t)
		st, name, err := azure.Open(t.Context(), "az://"+account+"/"+public+"/x?anonymous")
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, st, name, 1); string(got) != "x" {
			t.Errorf("found %q", got)
		}
	})
}
