package all

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func TestEveryAddressFindsItsObject(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "with space"), []byte("bytes"), 0o666); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	t.Chdir(dir)
	for _, address := range []string{
		"with space",
		filepath.Join(dir, "with space"),
		"file://" + filepath.ToSlash(dir) + "/with%20space",
		server.URL + "/with%20space",
	} {
		st, name, err := store.OpenAddress(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		o, err := st.Open(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		p := make([]byte, 10)
		if n, err := storekit.ReadTail(t.Context(), o, p); err != nil || string(p[:n]) != "bytes" {
			t.Errorf("%s: found %q, %v", address, p[:n], err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := store.OpenAddress(t.Context(), "gopher://host/file"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a scheme that nobody knows: found %v", err)
	}
}
