package holdall_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// Files have the modes that are stored, whatever a mask or the default access control list of
// the folder would make of them, and in folders that are new or not.
func TestExtractedModesAreTheStoredOnes(t *testing.T) {
	in := t.TempDir()
	modes := []fs.FileMode{0o400, 0o600, 0o640, 0o644, 0o666, 0o755, 0o777}
	for _, mode := range modes {
		for _, dir := range []string{"old", "new"} {
			name := fmt.Sprintf("%s/%o", dir, mode)
			testkit.Tree(t, in, map[string]string{name: name})
			if err := os.Chmod(filepath.Join(in, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	st := &storetest.Mem{}
	if _, err := holdall.PackStore(t.Context(), st, "x.tar", []string{in}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	a := opened(t, st, "x.tar", holdall.OpenOptions{})
	for _, list := range [][]byte{nil, slices.Concat([]byte{2, 0, 0, 0}, // a version, and tag, permissions and id of each
		[]byte{1, 0, 6, 0, 255, 255, 255, 255}, []byte{4, 0, 0, 0, 255, 255, 255, 255}, []byte{32, 0, 0, 0, 255, 255, 255, 255})} {
		t.Run(fmt.Sprintf("list=%v", list != nil), func(t *testing.T) {
			out := t.TempDir()
			if err := os.Mkdir(filepath.Join(out, "old"), 0o755); err != nil {
				t.Fatal(err)
			}
			if list != nil {
				for _, dir := range []string{out, filepath.Join(out, "old")} {
					err := syscall.Setxattr(dir, "system.posix_acl_default", list, 0)
					if errors.Is(err, syscall.EOPNOTSUPP) {
						testkit.Missing(t, "acl", "the file system has no access control lists")
					} else if err != nil {
						t.Fatal(err)
					}
				}
			}
			root, err := os.OpenRoot(out)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if _, err := holdall.Extract(t.Context(), a, root, holdall.ExtractOptions{NoOwner: true}); err != nil {
				t.Fatal(err)
			}
			for _, mode := range modes {
				for _, dir := range []string{"old", "new"} {
					info, err := os.Stat(filepath.Join(out, dir, fmt.Sprintf("%o", mode)))
					if err != nil {
						t.Fatal(err)
					}
					if info.Mode().Perm() != mode {
						t.Errorf("%s: mode %o, expected %o", dir, info.Mode().Perm(), mode)
					}
				}
			}
		})
	}
}
