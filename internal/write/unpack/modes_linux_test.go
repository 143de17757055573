package unpack_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/tar"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/unpack"
)

// Files have the modes that are stored, whatever a mask or the default access control list of
// the folder would make of them, and in folders that are new or not.
func TestExtractedModesAreTheStoredOnes(t *testing.T) {
	t.Parallel()
	modes := []fs.FileMode{0o400, 0o600, 0o640, 0o644, 0o666, 0o755, 0o777}
	var entries []format.Entry
	for _, dir := range []string{"old", "new"} {
		entries = append(entries, format.Entry{Name: dir, Kind: format.Dir})
		for _, mode := range modes {
			entries = append(entries, format.Entry{Name: fmt.Sprintf("%s/%o", dir, mode), Mode: mode, HasMode: true})
		}
	}
	a := archiveOf(t, tar.Format, entries, nil)
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
			extractAll(t, a, out, unpack.Options{NoOwner: true})
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
